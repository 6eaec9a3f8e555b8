"""What is asked of `auto` and what the committed results say, in one table; for `benchmarks.auto.page`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.auto.tables import DATASETS, EXACT, OURS, RESULTS, SAFE
from benchmarks.intervals.page import OVERALL, WORST

from natsr.bench.reported import reported
from natsr.bench.results import read

#: MASE of the best pool of cheap filters known before this one, one configuration for all, at H = 1, 24 and 48.
BEFORE = {
    "ETTh1": (0.761, 1.341, 1.477),
    "ETTh2": (0.874, 1.586, 1.902),
    "ETTm1": (0.905, 1.890, 2.244),
    "ETTm2": (0.969, 1.849, 2.065),
    "WTH": (0.932, 1.784, 2.096),
    "ECL7": (0.578, 0.843, 0.908),
    "Traffic20": (0.529, 0.661, 0.685),
}
HORIZONS = (1, 24, 48)
#: Beside whom `auto` is looked at: every other method under the honest protocols.
HONEST = ("honest-complete", "honest-averages", "etth1-honest", "auto-calendar")
ELSEWHERE = ("auto-generated", "auto-packages", "auto-metrics")
#: Within so much of the best of everything; of the error with a warm-up; of what NatSR costs.
NEAR, WARMED, COSTS = 0.01, 1.1, 1.6

Scores = dict[tuple[str, int], float]


def summary(folder: Path = RESULTS) -> str:
    """A line for each thing that is asked."""
    lines = ["| asked | measured |", "|---|---|"]
    safe = (_safe, _walks, _levels, _elsewhere)
    for part in (_honest, _published, _intervals, _cold, *safe, _outliers, _wild, _regimes, _cost):
        lines += (f"| {asked} | {measured} |" for asked, measured in part(folder))
    return "\n".join(lines)


Lines = Iterator[tuple[str, str]]


def _honest(folder: Path) -> Lines:
    auto = _scores(folder / "auto-honest.jsonl", "honest")
    bars = {(name, h): bar for name, all_of in BEFORE.items() for h, bar in zip(HORIZONS, all_of, strict=True)}
    gains = [1 - auto[cell] / bars[cell] for cell in auto]
    yield (
        "honest, seven datasets × three horizons: at or below the best pool before, 2 % below it in the mean",
        f"{sum(gain >= 0 for gain in gains)} of {len(bars)}, {100 * sum(gains) / len(gains):.1f} % below",
    )
    others = _least(folder / f"{name}.jsonl" for name in HONEST)
    within = sum(auto[cell] <= (1 + NEAR) * others[cell] for cell in auto if cell in others)
    ahead = sum(auto[cell] < others[cell] for cell in auto if cell in others)
    yield (
        "within 1 % of the best of every other method here, in every cell",
        f"{within} of {len(others.keys() & auto.keys())}; ahead of all in {ahead}",
    )


def _published(folder: Path) -> Lines:
    one = {cell: mase for cell, mase in _scores(folder / "auto-honest.jsonl", "honest").items() if cell[1] == 1}
    said: dict[str, list[float]] = {}
    for (dataset, horizon, _), figure in reported().items():
        if horizon == 1 and (dataset, 1) in one:
            said.setdefault(dataset, []).append(figure)
    below = sum(one[name, 1] <= min(figures) for name, figures in said.items())
    yield "protocol `paper`, H = 1: at or below the best reported", f"{below} of {len(said)}"
    auto, ours = _scores(folder / "auto-paper.jsonl", "paper"), _least((folder / path.name for path in OURS), "paper")
    cells = [cell for cell in auto if cell[1] > 1 and cell in ours]
    yield (
        "protocol `paper`, H = 24 and 48: at or below the best of our own table",
        f"{sum(auto[cell] <= ours[cell] for cell in cells)} of {len(cells)}",
    )


def _intervals(folder: Path) -> Lines:
    cells: dict[tuple[str, int], dict[str, dict[str, Any]]] = {}
    for line in (folder / "intervals.jsonl").read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        if result["method"] == "auto":
            cells.setdefault((result["dataset"], result["horizon"]), {})[result["intervals"]] = result
    own = [ways["natsr"] for ways in cells.values()]
    share, worst = [one["coverage_90"] for one in own], [one["worst_coverage_90"] for one in own]
    held = sum(OVERALL[0] <= inside <= OVERALL[1] for inside in share)
    yield (
        "90 % intervals: 88.5 to 91.5 % inside, at least 85 % in the worst 500 rows",
        f"{held} and {sum(least >= WORST for least in worst)} of {len(cells)}; "
        f"{100 * min(share):.1f} to {100 * max(share):.1f} %, worst {100 * min(worst):.1f} %",
    )
    better = 0
    for ways in cells.values():
        plain = [way["crps"] for name, way in ways.items() if name.startswith("empirical")]
        better += ways["natsr"]["crps"] < min(plain)
    yield "CRPS below that of empirical quantiles", f"{better} of {len(cells)}"


def _cold(folder: Path) -> Lines:
    found = {key: both["cold"] / both["warmed"] for key, both in _read(folder / "auto-cold.json").items()}
    held = sum(ratio <= WARMED for ratio in found.values())
    yield (
        "from a cold start, after 500 rows: within 10 % of the error with a warm-up",
        f"{held} of {len(found)}; at most {max(found.values()):.3f} times",
    )


def _safe(folder: Path) -> Lines:
    plain = [
        ratio or 1.0 for ratio in _read(folder / "auto-streams.json")["guard, budget cheap"].values()
    ]  # 0: both are exact
    yield (
        "at most 0.5 % above the last value: random walk, constant, mostly flat",
        _safe_of(plain, 2),
    )
    hard = [
        one["auto"] / one["last_value"] for several in _read(folder / "auto-kinds.json").values() for one in several
    ]
    yield (
        "the same on 28 kinds of streams made to be hard, four seeds each",
        _safe_of(hard),
    )


def _safe_of(ratios: list[float], digits: int = 1) -> str:
    """How many errors over the last value's are safe, and the largest."""
    safe = sum(ratio <= 1 + SAFE for ratio in ratios)
    return f"{safe} of {len(ratios)}; at most {100 * (max(ratios) - 1):.{digits}f} % above"


def _walks(folder: Path) -> Lines:
    ratios = [
        ratio
        for by_warm in _read(folder / "auto-walks.json").values()
        for several in by_warm.values()
        for ratio in several
    ]
    yield "the same on short random walks, of 800 rows, cold and after 200 and 480", _safe_of(ratios)


def _levels(folder: Path) -> Lines:
    ratios = [
        one["all"]
        for by_horizon in _read(folder / "auto-levels.json").values()
        for several in by_horizon.values()
        for one in several
    ]
    yield "the same on streams with a new level of 10 to 1,000 deviations, or levels again and again", _safe_of(ratios)


def _elsewhere(folder: Path) -> Lines:
    cases = [errors for name in ELSEWHERE for errors in _read(folder / f"{name}.json").values() if "auto" in errors]
    safe = sum(errors["auto"] <= max((1 + SAFE) * errors["last_value"], EXACT) for errors in cases)
    yield "the same on streams from elsewhere", f"{safe} of {len(cases)}"
    singles = [
        min(error for name, error in errors.items() if name in ("last_value", "seasonal", "rls", "rls_mv", "natsr"))
        for errors in cases
    ]
    near = sum(e["auto"] <= max((1 + NEAR) * best, EXACT) for e, best in zip(cases, singles, strict=True))
    yield "at most 1 % above the best single method there, picked in hindsight", f"{near} of {len(cases)}"


def _outliers(folder: Path) -> Lines:
    found = _read(folder / "auto-streams.json")["outliers, budget cheap"]
    best = min((name for name in found if name != "auto"), key=lambda name: float(found[name]["dirty"]))
    auto = found["auto"]
    yield (
        "1 % of values times 20: error against the clean stream",
        f"{auto['dirty']:.3f} ({auto['clean']:.3f} without); best single method {found[best]['dirty']:.3f} ({best})",
    )


def _wild(folder: Path) -> Lines:
    found = _read(folder / "auto-wild.json")
    without = found["without"]
    over = [
        error / without[horizon]
        for what, by_horizon in found.items()
        if what.startswith("1 %")
        for horizon, error in by_horizon.items()
    ]
    yield (
        "1 % of values 10³ to 10³⁰: error on all other rows over that without them",
        f"at most {max(over):.3f} times",
    )


def _regimes(folder: Path) -> Lines:
    found = _read(folder / "auto-streams.json")["regimes, budget cheap"]
    behind = {name: by_method["behind"]["rows"] for name, by_method in found.items()}
    rows = ", ".join(f"{name} {_ahead(rows)}" for name, rows in behind.items())
    yield (
        "after a change, back within 10 % of the best single method's error in no more rows than it",
        f"{sum(number <= 0 for number in behind.values())} of {len(behind)}: {rows}",
    )
    yield (
        "and each to its own error before, in rows: `auto`, the best single method before, the quickest",
        "; ".join(f"{name} {_own(by_method)}" for name, by_method in found.items()),
    )


def _own(by_method: Mapping[str, Mapping[str, float]]) -> str:
    """Rows until each is back at its own error."""
    single = {name: errors for name, errors in by_method.items() if name not in ("auto", "behind")}
    least = min(single, key=lambda name: single[name]["before"])
    back = {name: math.inf if errors["own"] < 0 else errors["own"] for name, errors in single.items()}
    rows = by_method["auto"]["own"], single[least]["own"], min(back.values())
    return ", ".join("never" if number < 0 or number == math.inf else f"{number:.0f}" for number in rows)


def _ahead(rows: float) -> str:
    return f"{abs(rows):.0f} rows {'earlier' if rows <= 0 else 'later'}"


def _cost(folder: Path) -> Lines:
    found = _read(folder / "auto-cost.json")
    auto, natsr, cheap = (found[name]["mean"] for name in ("auto, one", "natsr", "auto, cheap"))
    yield (
        f"a row, 7 columns, 48 ahead, one core: at most {COSTS} times NatSR; without networks under 1.5 ms",
        f"{auto / natsr:.2f} times; {cheap:.2f} ms",
    )


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _scores(file: Path, protocol: str) -> Scores:
    """MASE of `auto` by dataset and horizon."""
    return {
        (result.cell.dataset, result.cell.horizon): result.numbers["mase"]
        for result in read(file)
        if result.cell.method == "auto" and result.cell.protocol == protocol and "mase" in result.numbers
    }


def _least(files: Iterable[Path], protocol: str = "honest") -> Scores:
    """The lowest mean over seeds of any other method, by dataset and horizon; no label comes early."""
    several: dict[tuple[str, int], dict[tuple[str, str], list[float]]] = {}
    for result in (result for file in files for result in read(file)):
        cell = result.cell
        fits = cell.protocol == protocol or (cell.horizon == 1 and protocol == "paper")
        if fits and cell.method != "auto" and cell.part == "online" and "mase" in result.numbers:
            place = several.setdefault((cell.dataset, cell.horizon), {})
            place.setdefault((cell.method, str(cell.options)), []).append(result.numbers["mase"])
    return {cell: _lowest(place) for cell, place in several.items() if cell[0] in DATASETS}


def _lowest(by_method: Mapping[tuple[str, str], list[float]]) -> float:
    return min(sum(values) / len(values) for values in by_method.values())
