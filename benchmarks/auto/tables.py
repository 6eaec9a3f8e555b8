"""Tables of the pages on `auto`: beside the paper's, streams from elsewhere, parts; for `benchmarks.auto.page`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean

from benchmarks.auto.cost import TASK
from benchmarks.auto.others import HELD

from natsr.auto import panel
from natsr.bench.cells import Result
from natsr.bench.reported import reported
from natsr.bench.results import read

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
OURS = tuple(RESULTS / f"{name}.jsonl" for name in ("paper-complete", "etth1-paper", "paper-subsets"))
#: An error of so little, in standard deviations, is none.
EXACT = 1e-3
#: At most so much above the last value is safe.
SAFE = 0.005
#: What is said of the milliseconds, and what `benchmarks.auto.cost` calls it.
COSTS = {
    "mean": "mean",
    "median turn": "median",
    "fastest turn": "fastest",
    "each row of a turn at its fastest": "quiet",
}
DATASETS, HORIZONS = ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "WTH", "ECL7", "Traffic20"), (1, 24, 48)


def published(auto: Path, honest: Path, others: Iterable[Path] = OURS) -> str:
    """MASE under the protocol `paper`: of `auto`, the best of our other methods, and the best that was reported.

    At H = 1 the protocols are the same, and the honest run is `auto`'s.
    """
    mine = {(result.cell.dataset, result.cell.horizon): result for result in read(honest) if result.cell.horizon == 1}
    mine |= {(result.cell.dataset, result.cell.horizon): result for result in read(auto)}
    least = _least([result for path in others for result in read(path)])
    theirs = reported()
    lines = ["| auto · best of our others · best reported | " + " | ".join(f"H = {each}" for each in HORIZONS) + " |"]
    lines.append("|---|" + "--:|" * len(HORIZONS))
    for dataset in DATASETS:
        cells = []
        for horizon in HORIZONS:
            said = [figure for (where, ahead, _), figure in theirs.items() if (where, ahead) == (dataset, horizon)]
            entry = [_figure(mine.get((dataset, horizon))), *(f"{x:.3f}" for x in [least.get((dataset, horizon))] if x)]
            cells.append(" · ".join([*entry, f"{min(said):.2f}"] if said else entry))
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(result: Result | None) -> str:
    if result is None:
        return "–"
    return f"{result.numbers['mase']:.3f}" if "mase" in result.numbers else "failed"


def _least(results: list[Result]) -> dict[tuple[str, int], float]:
    """The lowest mean over seeds of any method, by dataset and horizon."""
    figures: dict[tuple[str, int], dict[str, list[float]]] = {}
    for result in results:
        if "mase" in result.numbers and result.cell.protocol == "paper":
            place = figures.setdefault((result.cell.dataset, result.cell.horizon), {})
            place.setdefault(f"{result.cell.method} {result.cell.options}", []).append(result.numbers["mase"])
    return {
        place: min(sum(values) / len(values) for values in by_method.values()) for place, by_method in figures.items()
    }


def elsewhere(results: Path) -> str:
    """A line for each stream: by horizon the MAE of `auto` over that of the best single method, and which that is.

    And over that of the last value, and what was inside the 90 % intervals, where that was measured.
    """
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    by_name: dict[str, dict[str, dict[str, float]]] = {}
    for key, errors in found.items():
        name, horizon = key.rsplit(", ", 1)
        by_name.setdefault(name, {})[horizon] = errors
    horizons = sorted({horizon for entry in by_name.values() for horizon in entry}, key=lambda name: int(name[4:]))
    lines = [
        f"| | rows | over the best single one, {' and '.join(horizons)} | which | over the last value | inside 90 % "
        "| worst 500 rows |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    fine = 0
    for name, entry in by_name.items():
        columns: list[list[str]] = [[] for _ in range(5)]
        for horizon in horizons:
            if horizon in entry:
                cells, good = _beside(entry[horizon])
                fine += good
                for column, cell in zip(columns, cells, strict=True):
                    column.append(cell)
        rows = max(entry[horizon]["rows"] for horizon in entry)
        lines.append(f"| {name} | {rows:.0f} | " + " | ".join(", ".join(column) for column in columns) + " |")
    if found:
        lines += [
            "",
            f"{fine} of {len(found)}: at most 1 % above the best single method, and 0.5 % above the last value.",
        ]
    return "\n".join(lines)


def _beside(errors: Mapping[str, float]) -> tuple[list[str], bool]:
    """How `auto` did on one stream, and whether nothing else would have done better."""
    singles = {method: error for method, error in errors.items() if method not in ("auto", "rows", *HELD)}
    best = min(singles, key=lambda method: singles[method])
    held = [errors.get(name, math.nan) for name in HELD]
    inside = ["–" if math.isnan(share) else f"{100 * share:.1f}" for share in held]
    if "auto" not in errors:
        return ["failed", best.replace("_", " "), "failed", *inside], False
    last = singles["last_value"]
    ratios = [f"{errors['auto'] / error:.3f}" if error > EXACT else "exact" for error in (singles[best], last)]
    good = errors["auto"] <= max(1.01 * singles[best], EXACT) and errors["auto"] <= max(1.005 * last, EXACT)
    return [ratios[0], best.replace("_", " "), ratios[1], *inside], good


def kinds(results: Path) -> str:
    """A line for each kind of stream: `auto`'s error over the last value's, the mean and the largest of several."""
    found: dict[str, list[dict[str, float]]] = (
        json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    )
    lines = [
        "| over the last value | H = 1: mean, largest | H = 24 | over the best expert, H = 1 | H = 24 |",
        "|---|--:|--:|--:|--:|",
    ]
    over = []
    for name in dict.fromkeys(key.split(", ")[0] for key in found):
        safe, best = [], []
        for horizon in (1, 24):
            several = found.get(f"{name}, H = {horizon}", [])
            last = [one["auto"] / one["last_value"] for one in several]
            over += last
            safe.append(f"{sum(last) / len(last):.3f}, {max(last):.3f}" if last else "–")
            ratios = [one["auto"] / one["best expert"] for one in several]
            best.append(f"{sum(ratios) / len(ratios):.3f}" if ratios else "–")
        lines.append(f"| {name} | {' | '.join(safe + best)} |")
    safe_ones = sum(ratio <= 1 + SAFE for ratio in over)
    return "\n".join([*lines, "", f"{safe_ones} of {len(over)} streams: at most 0.5 % above the last value."])


def cold(results: Path) -> str:
    """A line for each dataset: the MAE from a cold start over that with a warm-up, by horizon."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    lines = ["| | " + " | ".join(f"H = {horizon}" for horizon in HORIZONS) + " |", "|---|" + "--:|" * len(HORIZONS)]
    for dataset in dict.fromkeys(key.split(", ")[0] for key in found):
        cells = []
        for horizon in HORIZONS:
            both = found.get(f"{dataset}, H = {horizon}")
            cells.append(f"{both['cold'] / both['warmed']:.3f}" if both else "–")
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cost(results: Path) -> str:
    """Milliseconds of a row, by how they are measured."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    experts = len(panel(TASK).names)
    lines = [f"| ms per row | `cheap`, {experts} experts | `one`, and four networks | NatSR |", "|---|--:|--:|--:|"]
    for name, figure in COSTS.items():
        cells = [f"{found[who][figure]:.2f}" if who in found else "–" for who in ("auto, cheap", "auto, one", "natsr")]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def parts(results: Path) -> str:
    """A line for each part: by how many per cent the error rises without it, by dataset and horizon."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    if not found:
        return ""
    heads = [key.rsplit(", ", 1)[0] for key in found]
    lines = ["| without | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(heads)]
    for name in [name for name in next(iter(found.values())) if name != "mae"]:
        rises = (_rise(by_part.get(name)) for by_part in found.values())
        lines.append(f"| {name} | {' | '.join(rises)} |")
    return "\n".join(lines)


#: What `benchmarks.auto.rules` calls what is compared with ML-Poly, and what the table does.
RULES = {"boa": "BOA", "ewa": "EWA", "auto": "all together"}


def rules(results: Path) -> str:
    """A line for each dataset and horizon: ML-Poly's error, and by how many per cent that of the others differs."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    lines = [f"| | ML-Poly | {' | '.join(RULES.values())} |", "|---|--:|" + "--:|" * len(RULES)]
    over: dict[str, list[float]] = {name: [] for name in RULES}
    for key, errors in found.items():
        for name, several in over.items():
            several.append(100 * (errors[name] / errors["mlpoly"] - 1))
        shown = " | ".join(f"{several[-1]:+.1f} %" for several in over.values())
        lines.append(f"| {key.rsplit(', ', 1)[0]} | {errors['mlpoly']:.3f} | {shown} |")
    if found:
        means = " | ".join(f"{sum(several) / len(several):+.1f} %" for several in over.values())
        lines.append(f"| mean | | {means} |")
    return "\n".join(lines)


#: What a column beside the values tells, by its name in `benchmarks.auto.outside`.
TOLD = {
    "noise": "nothing (noise)",
    "weak plan": "a plan that adds 0.3 in three rows of ten",
    "plan": "a plan that adds 1.5 in three rows of ten",
    "hour before": "what it was a row before, times 0.8",
}


def outside(results: Path) -> str:
    """A line for each stream with a column beside the values: the pool's error, and over it that of the others."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    lines = [
        "| what the column tells | rows before | pool | NatSR / pool | `auto` / pool | without head start |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for key, figures in found.items():
        name, horizon, before = key.split(", ")
        shown = " | ".join(f"{figures[kind]:.3f}" for kind in ("pool", "natsr", "auto", "without head start"))
        lines.append(f"| {TOLD[name]}, {horizon} | {before.split()[0]} | {shown} |")
    return "\n".join(lines)


def leads(results: Path) -> str:
    """By how many per cent the pool's error changes with each lead, and each alone against `network_day` alone."""
    found: dict[str, dict[str, dict[str, float]]] = (
        json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    )
    there = sorted((key for key in found if "with" in found[key]), key=lambda key: int(key.split(" ")[3].rstrip(",")))
    if not there:
        return ""
    entries, heads = [found[key] for key in there], " | ".join(key.rsplit(", ", 1)[0] for key in there)
    rule = "|---|" + "--:|" * (len(entries) + 1)
    lines = [f"| the pool with | mean (cells) | {heads} |", rule]
    for name in dict.fromkeys(name for entry in entries for name in entry["with"]):
        lines.append(f"| {name} | {_line([entry['with'].get(name) for entry in entries], 2)} |")
    lines += ["", f"| alone, over `network_day` alone | mean (cells) | {heads} |", rule]
    for name in dict.fromkeys(name for entry in entries for name in entry["alone"] if name != "network_day"):
        bars = [(entry["alone"].get(name), entry["alone"]["network_day"]) for entry in entries]
        lines.append(f"| `{name}` | {_line([None if error is None else error / bar for error, bar in bars], 1)} |")
    return "\n".join(lines)


def _line(ratios: list[float | None], digits: int) -> str:
    """The mean of those that there are, how many there are, and each."""
    there = [ratio for ratio in ratios if ratio is not None]
    mean = _rise(sum(there) / len(there), digits)
    return " | ".join([f"{mean} ({len(there)})", *(_rise(ratio, digits) for ratio in ratios)])


def _rise(ratio: float | None, digits: int = 1) -> str:
    if ratio is None:
        return "–"
    return "failed" if math.isnan(ratio) else f"{100 * (ratio - 1):+.{digits}f} %"


def chosen(results: Path) -> str:
    """A line for each step that was tried: its errors over Adam's, on the warm-up parts."""
    found: dict[str, dict[str, dict[str, float]]] = (
        json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    )
    if not found:
        return ""
    lines = [f"| over Adam | {' | '.join(found)} |", "|---|" + "--:|" * len(found)]
    for name in dict.fromkeys(name for entry in found.values() for name in entry if name != "adam"):
        cells = (
            ", ".join(_rise(error / entry["adam"][ahead]) for ahead, error in entry[name].items())
            if name in entry
            else "–"
            for entry in found.values()
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def calendars(results: Path, default: Iterable[Path]) -> str:
    """NatSR alone by its calendar, a line for each cell: the mean MASE of its seeds, the highest, and the change.

    Args:
        results: With the calendars that are asked for.
        default: With the one that a dataset's published loader has.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for result in read(results):
        by_kind = found.setdefault(f"{result.cell.dataset}, H = {result.cell.horizon}", {})
        by_kind.setdefault(str(dict(result.cell.options)["calendar"]), []).append(result.numbers.get("mase", math.nan))
    for result in (result for path in default for result in read(path)):
        cell = result.cell
        if (cell.method, cell.protocol, cell.options) == ("natsr", "honest", ()):
            by_kind = found.get(f"{cell.dataset}, H = {cell.horizon}", {})
            by_kind.setdefault("default", []).append(result.numbers.get("mase", math.nan))
    kinds = ("standardised", "bounded", "none")
    lines = [
        f"| NatSR alone: MASE, mean (highest) of its seeds | as published | {' | change | '.join(kinds)} | change |",
        "|---|" + "--:|" * 7,
    ]
    for name, by_kind in found.items():
        usual = by_kind.get("default", [math.nan])
        cells = [_mean_and_highest(usual)]
        for errors in (by_kind[kind] for kind in kinds):
            cells += [_mean_and_highest(errors), _rise(fmean(errors) / fmean(usual))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def wild(results: Path) -> str:
    """A line for each thing that happens: the error on the other rows over that of the last value, by horizon."""
    found: dict[str, dict[str, float]] = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    horizons = list(next(iter(found.values()), {}))
    heads = " | ".join(f"H = {horizon}" for horizon in horizons)
    lines = [f"| other rows: MAE over that of the last value | {heads} |", "|---|" + "--:|" * len(horizons)]
    lines += [
        f"| {what} | {' | '.join(f'{ratios[horizon]:.3f}' for horizon in horizons)} |" for what, ratios in found.items()
    ]
    return "\n".join(lines)


def levels(results: Path) -> str:
    """A line for each new level: the error over the last value's, mean and largest, in all and long after it."""
    found: dict[str, dict[str, list[dict[str, float]]]] = (
        json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    )
    horizons = list(next(iter(found.values()), {}))
    heads = " | ".join(f"H = {horizon}: all rows, mean, largest | long after, mean" for horizon in horizons)
    lines = [f"| over the last value | {heads} |", "|---|" + "--:|--:|" * len(horizons)]
    for what, by_horizon in found.items():
        cells = []
        for several in by_horizon.values():
            total, after = ([one[part] for one in several if part in one] for part in ("all", "after"))
            cells += [f"{fmean(total):.3f}, {max(total):.3f}", f"{fmean(after):.3f}" if after else "–"]
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def walks(results: Path) -> str:
    """A line for each horizon: of how many short walks the error is too high, the mean, and the highest, by warm-up."""
    found: dict[str, dict[str, list[float]]] = (
        json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
    )
    warm = list(next(iter(found.values()), {}))
    heads = " | ".join("cold" if rows == "0" else f"{rows} rows before" for rows in warm)
    lines = [f"| walks over by more than 0.5 %; mean; highest | {heads} |", "|---|" + "--:|" * len(warm)]
    for name, by_warm in found.items():
        cells = (
            f"{sum(ratio > 1 + SAFE for ratio in ratios)} of {len(ratios)}; {fmean(ratios):.4f}; {max(ratios):.4f}"
            for ratios in by_warm.values()
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean_and_highest(errors: list[float]) -> str:
    """Of all seeds; `failed` if one of them has."""
    return "failed" if math.isnan(fmean(errors)) else f"{fmean(errors):.3f} ({max(errors):.3f})"
