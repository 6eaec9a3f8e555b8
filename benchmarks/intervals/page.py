"""Write the table of `docs/intervals.md` from the committed results; a test fails when it is stale.

python -m benchmarks.intervals.page
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "intervals.jsonl"
PAGE = ROOT / "docs" / "intervals.md"
MARKS = ("<!-- intervals -->", "<!-- /intervals -->")
DRIFT = ROOT / "benchmarks" / "results" / "drift.json"
DRIFT_MARKS = ("<!-- drift -->", "<!-- /drift -->")
LIVE_DRIFT = ROOT / "benchmarks" / "results" / "drift_live.json"
LIVE_DRIFT_MARKS = ("<!-- live drift -->", "<!-- /live drift -->")
DETECTORS = ("natsr", "size of errors alone", "river ADWIN", "river Page-Hinkley")
LIVE_DRIFT_HEAD = (
    "| stream | ahead | natsr | size alone | ADWIN | Page-Hinkley |",
    "|---|---|---|---|---|---|",
)
DRIFT_HEAD = (
    "| errors | detector | false alarms | found, errors x 2 | rows | found, errors x 4 | rows |",
    "|---|---|---|---|---|---|---|",
)
HEAD = (
    "| method | stream | H | intervals | coverage of 90 % | worst 500 rows | width | CRPS | ms a step |",
    "|---|---|---|---|---|---|---|---|---|",
)
CLAIMS_HEAD = (
    "| method | stream | H | coverage | worst 500 rows | CRPS | empirical quantiles | width | narrowest that holds |",
    "|---|---|--:|--:|--:|--:|--:|--:|---|",
)
#: What 90 % intervals are asked for: coverage overall between these, and at least the last in any 500 rows.
OVERALL, WORST = (0.885, 0.915), 0.85


def rendered(results: Path = RESULTS) -> str:
    """What is asked of each cell, then the table, one line for each result, as they stand in the file."""
    found = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return "\n".join([*claims(found), "", "All ways, all figures:", "", *HEAD, *map(_row, found)])


def claims(found: list[dict[str, Any]]) -> list[str]:
    """A line for each cell: what was asked, beside the best that plain ways reach."""
    cells: dict[tuple[str, str, int], dict[str, dict[str, Any]]] = {}
    for result in found:
        key = result["method"], result["dataset"], result["horizon"]
        cells.setdefault(key, {})[result["intervals"]] = result
    return [*CLAIMS_HEAD, *(_claim(*key, ways) for key, ways in cells.items())]


def _claim(method: str, dataset: str, horizon: int, ways: dict[str, dict[str, Any]]) -> str:
    ours = ways["natsr"]
    others = {name: way for name, way in ways.items() if name != "natsr"}
    empirical = [way["crps"] for name, way in others.items() if name.startswith("empirical")]
    holding = {way["width_90"]: name for name, way in others.items() if holds(way)}
    narrowest = min(holding) if holding else None
    cells = [
        method,
        dataset,
        str(horizon),
        _marked(f"{100 * ours['coverage_90']:.1f} %", OVERALL[0] <= ours["coverage_90"] <= OVERALL[1]),
        _marked(f"{100 * ours['worst_coverage_90']:.1f} %", ours["worst_coverage_90"] >= WORST),
        _marked(f"{ours['crps']:.4f}", not empirical or ours["crps"] < min(empirical)),
        f"{min(empirical):.4f}" if empirical else "–",
        _marked(f"{ours['width_90']:.3f}", narrowest is None or ours["width_90"] <= narrowest),
        "none holds" if narrowest is None else f"{narrowest:.3f}, {holding[narrowest]}",
    ]
    return f"| {' | '.join(cells)} |"


def holds(way: dict[str, Any]) -> bool:
    """Whether intervals cover what they are asked to."""
    return bool(OVERALL[0] <= way["coverage_90"] <= OVERALL[1] and way["worst_coverage_90"] >= WORST)


def _marked(text: str, fine: bool) -> str:
    return text if fine else f"{text} **(not met)**"


def _row(result: dict[str, Any]) -> str:
    ours = result["intervals"] == "natsr"
    name = "**natsr**" if ours else result["intervals"]
    cells = [
        result["method"] if ours else "",
        result["dataset"] if ours else "",
        str(result["horizon"]) if ours else "",
        name,
        f"{100 * result['coverage_90']:.1f} %",
        f"{100 * result['worst_coverage_90']:.1f} %",
        f"{result['width_90']:.3f}",
        f"{result['crps']:.4f}",
        f"{result['ms_per_step']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def drifts(results: Path = DRIFT) -> str:
    """The table of detectors."""
    rows = list(DRIFT_HEAD)
    for result in json.loads(results.read_text(encoding="utf-8")):
        cells = [result["errors"], result["detector"], f"{result['false_alarms']:.1f}"]
        for factor in (2, 4):
            delay = result[f"delay_{factor}"]
            cells += [f"{100 * result[f'found_{factor}']:.0f} %", "–" if delay is None else f"{delay:.0f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def live_drifts(results: Path = LIVE_DRIFT) -> str:
    """The table of drifts told on streams: changes first, then false alarms."""
    lines = json.loads(results.read_text(encoding="utf-8"))
    found = {(line["stream"], line["horizon"], line["detector"]): line for line in lines}
    streams = dict.fromkeys((line["stream"], line["horizon"]) for line in lines)
    rows = list(LIVE_DRIFT_HEAD)
    for steady in (False, True):
        for stream, horizon in streams:
            told = [found[stream, horizon, name] for name in DETECTORS]
            if ("false_alarms" in told[0]) == steady:
                rows.append(f"| {stream} | {horizon} | {' | '.join(map(_told, told))} |")
    return "\n".join(rows)


def _told(line: dict[str, Any]) -> str:
    """What one detector told on the streams of one kind."""
    if "false_alarms" in line:
        return f"{line['false_alarms']:.1f} false"
    if not line["found"]:
        return f"0 of {line['of']}"
    off = "" if line["off"] is None else f", {line['off']:.0f} off"
    return f"{line['found']} of {line['of']}, {line['delay']:.0f} late{off}"


def with_table(text: str, table: str, marks: tuple[str, str] = MARKS) -> str:
    """The page with this table between its marks."""
    before, _, rest = text.partition(marks[0])
    _, _, after = rest.partition(marks[1])
    return f"{before}{marks[0]}\n\n{table}\n\n{marks[1]}{after}"


def main() -> None:
    """Bring the page up to date."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    text = with_table(PAGE.read_text(encoding="utf-8"), rendered())
    text = with_table(text, live_drifts(), LIVE_DRIFT_MARKS)
    PAGE.write_text(with_table(text, drifts(), DRIFT_MARKS), encoding="utf-8")


if __name__ == "__main__":
    main()
