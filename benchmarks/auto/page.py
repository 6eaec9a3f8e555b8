"""Write the tables of the pages on `auto` from the committed results; a test fails when they are stale.

python -m benchmarks.auto.page
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.auto.summary import BEFORE, HORIZONS, summary
from benchmarks.auto.tables import (
    calendars,
    chosen,
    cold,
    cost,
    elsewhere,
    kinds,
    leads,
    levels,
    outside,
    parts,
    published,
    rules,
    walks,
    wild,
)

from natsr.bench.results import read

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "auto-honest.jsonl"
#: How to use it and how it works; what was measured; networks that it does not have.
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("auto", "auto-measured", "auto-networks"))
STREAMS = ROOT / "benchmarks" / "results" / "auto-streams.json"
PAPER = ROOT / "benchmarks" / "results" / "auto-paper.jsonl"
GENERATED = ROOT / "benchmarks" / "results" / "auto-generated.json"
PACKAGES = ROOT / "benchmarks" / "results" / "auto-packages.json"
METRICS = ROOT / "benchmarks" / "results" / "auto-metrics.json"
KINDS = ROOT / "benchmarks" / "results" / "auto-kinds.json"
COST = ROOT / "benchmarks" / "results" / "auto-cost.json"
COLD = ROOT / "benchmarks" / "results" / "auto-cold.json"
PARTS = ROOT / "benchmarks" / "results" / "auto-parts.json"
LEADS = ROOT / "benchmarks" / "results" / "auto-leads.json"
CHOSEN = ROOT / "benchmarks" / "results" / "auto-leads-chosen.json"
CALENDARS = ROOT / "benchmarks" / "results" / "auto-calendar.jsonl"
#: Where NatSR is with the calendar of a dataset's published loader.
PUBLISHED = ("honest-complete", "etth1-honest")
RULES = ROOT / "benchmarks" / "results" / "auto-rules.json"
WALKS = ROOT / "benchmarks" / "results" / "auto-walks.json"
WILD = ROOT / "benchmarks" / "results" / "auto-wild.json"
LEVELS = ROOT / "benchmarks" / "results" / "auto-levels.json"
OUTSIDE = ROOT / "benchmarks" / "results" / "auto-outside.json"
METHODS = ("auto", "rls", "rls_mv", "seasonal", "last_value")


def rendered(results: Path = RESULTS) -> str:
    """A line for each dataset: MASE (and that of the pool before), coverage, and its worst stretch."""
    found = {(result.cell.dataset, result.cell.horizon): result for result in read(results)}
    lines = [
        "| | " + " | ".join(f"H = {horizon} (before)" for horizon in HORIZONS) + " | inside 90 % | worst 500 rows |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    gains = []
    for dataset, before in BEFORE.items():
        cells, inside, worst = [], [], []
        for horizon, bar in zip(HORIZONS, before, strict=True):
            result = found.get((dataset, horizon))
            if result is None or "mase" not in result.numbers:
                cells.append(f"{'–' if result is None else 'failed'} ({bar:.3f})")
                continue
            numbers = result.numbers
            gains.append(1 - numbers["mase"] / bar)
            cells.append(f"{numbers['mase']:.3f} ({bar:.3f})")
            inside.append(f"{100 * numbers['coverage_90']:.1f}")
            worst.append(f"{100 * numbers['worst_coverage_90']:.1f}")
        lines.append(f"| {dataset} | {' | '.join(cells)} | {', '.join(inside) or '–'} | {', '.join(worst) or '–'} |")
    if gains:
        below = sum(gain >= 0 for gain in gains)
        mean = 100 * sum(gains) / len(gains)
        side = "below" if mean >= 0 else "above"
        lines += [
            "",
            f"{below} of {len(gains)} cells at or below the pool before; {abs(mean):.1f} % {side} it on average.",
        ]
    return "\n".join(lines)


def streams(results: Path = STREAMS, budget: str = "cheap") -> str:
    """What is known of streams whose truth is known, a table for each question."""
    found = json.loads(results.read_text(encoding="utf-8"))
    guard, dirty, cold, regimes = (
        found[f"{part}, budget {budget}"] for part in ("guard", "outliers", "cold", "regimes")
    )
    lines = ["| where nothing can be forecast: MAE over that of the last value | H = 1 | H = 24 |", "|---|--:|--:|"]
    for name in ("random walk", "constant", "mostly flat"):
        pair = [guard[f"{name}, H = {horizon}"] for horizon in (1, 24)]
        lines.append(f"| {name} | {' | '.join(f'{ratio:.4f}' if ratio else 'both exact' for ratio in pair)} |")
    names = " | ".join(name.replace("last_value", "last value") for name in METHODS)
    lines += ["", f"| 1 % of values times 20: MAE against the clean stream, H = 24 | {names} |", "|---|" + "--:|" * 5]
    for label, key in (("without outliers", "clean"), ("with outliers", "dirty")):
        lines.append(f"| {label} | {' | '.join(f'{dirty[name][key]:.3f}' for name in METHODS)} |")
    lines += [
        "",
        "| cold start: MAE over rows 500 to 1,400, over that with a warm-up | H = 1 | H = 24 |",
        "|---|--:|--:|",
    ]
    lines.append(f"| a daily and a weekly wave in noise with a memory | {cold['H = 1']:.3f} | {cold['H = 24']:.3f} |")
    lines += ["", f"| a change at row 2,200, H = 24 | {names} |", "|---|" + "--:|" * 5]
    before = [next(iter(regimes.values()))[name]["before"] for name in METHODS]
    lines.append(f"| error before | {' | '.join(f'{error:.3f}' for error in before)} |")
    for key, label in (("own", "rows until within 10 % of its own error before"), ("best", "and of the best single's")):
        for name, by_method in regimes.items():
            rows = [int(by_method[method][key]) for method in METHODS]
            lines.append(f"| {name}: {label} | {' | '.join(str(row) if row >= 0 else 'never' for row in rows)} |")
    return "\n".join([*lines, "", *_behind(regimes)])


def _behind(regimes: dict[str, dict[str, dict[str, float]]]) -> list[str]:
    """How many rows `auto` is behind the best single method after each change, how sure that is, and what it costs."""
    lines = [
        "| after the change | rows behind the best single | 5 % to 95 % | error over 300 rows: auto | best single |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, found in regimes.items():
        behind, single = found["behind"], min(found[method]["later"] for method in METHODS[1:])
        lines.append(
            f"| {name} | {behind['rows']:.0f} | {behind['low']:.0f} to {behind['high']:.0f} "
            f"| {found['auto']['later']:.2f} | {single:.2f} |"
        )
    return lines


def tables() -> dict[str, str]:
    """Every table, by the name that its marks have on a page."""
    return {
        "summary": summary(),
        "honest": rendered(),
        "streams": streams(),
        "rules": rules(RULES),
        "published": published(PAPER, RESULTS),
        "generated": elsewhere(GENERATED),
        "packages": elsewhere(PACKAGES),
        "metrics": elsewhere(METRICS),
        "kinds": kinds(KINDS),
        "cold": cold(COLD),
        "parts": parts(PARTS),
        "leads": leads(LEADS),
        "chosen": chosen(CHOSEN),
        "calendars": calendars(CALENDARS, (CALENDARS.with_name(f"{name}.jsonl") for name in PUBLISHED)),
        "outside": outside(OUTSIDE),
        "wild": wild(WILD),
        "walks": walks(WALKS),
        "levels": levels(LEVELS),
        "cost": cost(COST),
    }


def with_tables(text: str, found: Mapping[str, str]) -> str:
    """A page with the tables that it has marks for."""
    for name, table in found.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin in text:
            text = f"{text[: text.index(begin)]}{begin}\n{table}\n{text[text.index(end) :]}"
    return text


def main() -> None:
    """Bring the pages up to date."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    found = tables()
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main()
