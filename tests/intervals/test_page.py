"""The table of intervals is what the committed results say, and what makes it compares like with like."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.intervals.alternatives import Issued, alternatives
from benchmarks.intervals.forecasts import forecasts, place
from benchmarks.intervals.page import (
    DRIFT_MARKS,
    LIVE_DRIFT_MARKS,
    PAGE,
    RESULTS,
    claims,
    drifts,
    live_drifts,
    rendered,
    with_table,
)
from benchmarks.intervals.rescore import RENEWED, rescored
from benchmarks.intervals.run import keep, measured, ours

from natsr.bench.cells import Cell, Result, run_cell
from natsr.calibrate import PROBABILITIES
from natsr.types import DataError

LOW, HIGH = PROBABILITIES.index(0.05), PROBABILITIES.index(0.95)


def test_the_table_is_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    fresh = with_table(with_table(text, rendered()), drifts(), DRIFT_MARKS)
    fresh = with_table(fresh, live_drifts(), LIVE_DRIFT_MARKS)
    assert text == fresh, "docs/intervals.md is stale: python -m benchmarks.intervals.page"


def test_every_result_has_its_alternatives_beside_it() -> None:
    found: dict[tuple[str, str, int], set[str]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        found.setdefault((result["method"], result["dataset"], result["horizon"]), set()).add(result["intervals"])
    assert found and all(names == {"natsr", *alternatives((1, 1), 10)} for names in found.values())


def test_a_result_has_its_line_in_the_table(tmp_path: Path) -> None:
    names = ("coverage_90", "worst_coverage_90", "width_90", "crps", "ms_per_step")
    result = {"method": "rls", "dataset": "X", "horizon": 24, "intervals": "natsr", **dict.fromkeys(names, 0.5)}
    (tmp_path / "r.jsonl").write_text(json.dumps(result) + "\n", encoding="utf-8")
    table = rendered(tmp_path / "r.jsonl")
    assert table.splitlines()[-1] == "| rls | X | 24 | **natsr** | 50.0 % | 50.0 % | 0.500 | 0.5000 | 0.50 |"


def a_line(intervals: str, crps: float, coverage: float, worst: float, width: float) -> dict[str, object]:
    figures = {"coverage_90": coverage, "worst_coverage_90": worst, "width_90": width, "crps": crps, "ms_per_step": 1.0}
    return {"method": "auto", "dataset": "X", "horizon": 48, "intervals": intervals, **figures}


def test_what_is_asked_and_not_met_is_marked() -> None:
    good = a_line("natsr", 0.3, 0.9, 0.86, 1.0)
    empirical, adaptive = a_line("empirical, all", 0.31, 0.9, 0.7, 0.9), a_line("adaptive", 0.29, 0.9, 0.85, 1.1)
    met = claims([good, empirical, adaptive])[-1]
    assert met == "| auto | X | 48 | 90.0 % | 86.0 % | 0.3000 | 0.3100 | 1.000 | 1.100, adaptive |"
    bad = claims([a_line("natsr", 0.32, 0.92, 0.84, 1.2), empirical, adaptive])[-1]
    assert bad.count("(not met)") == 4
    assert "none holds" in claims([good, empirical])[-1]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    """A short stream with a daily wave, forecast by recursive least squares."""
    generator = np.random.default_rng(3)
    hours = np.arange(700)
    values = np.sin(hours[:, None] * np.pi / 12 + [0.0, 1.0]) + 0.3 * generator.normal(size=(700, 2))
    lines = [
        f"{np.datetime64('2026-01-01T00') + hour},{a:.4f},{b:.4f}" for hour, (a, b) in zip(hours, values, strict=True)
    ]
    path = tmp_path / "stream.csv"
    path.write_text("\n".join(["time,a,b", *lines]) + "\n", encoding="utf-8")
    return Cell("rls", str(path), 4, window=12)


def test_kept_forecasts_give_the_figures_of_a_run(cell: Cell, tmp_path: Path) -> None:
    made = ours(forecasts(cell, tmp_path))
    assert place(cell, tmp_path).exists()
    numbers, again = run_cell(cell).numbers, ours(forecasts(cell, tmp_path))
    for scores in (made, again):
        figures = scores.result()
        assert all(figures[name] == numbers.get(name) for name in ("mae", *RENEWED))


def test_results_take_the_figures_of_kept_forecasts_and_refuse_those_of_others(cell: Cell, tmp_path: Path) -> None:
    result = run_cell(cell)
    old = Result(cell, {**result.numbers, "crps": 9.0, "width_90": 9.0})
    assert rescored(old, tmp_path) == old  # nothing kept: nothing changed
    forecasts(cell, tmp_path)
    assert rescored(old, tmp_path).numbers == result.numbers
    with pytest.raises(DataError, match="expected 0.5 as in the result"):
        rescored(Result(cell, {**result.numbers, "mae": 0.5}), tmp_path)


def test_a_line_is_replaced_where_it_stands(cell: Cell, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    keep(list(measured(cell)), path)
    first = path.read_text(encoding="utf-8").splitlines()
    keep([{**json.loads(first[0]), "crps": 9.0}], path)
    second = path.read_text(encoding="utf-8").splitlines()
    assert len(first) == 1 + len(alternatives((1, 1), 10)) and second[1:] == first[1:]
    assert json.loads(second[0])["crps"] == 9.0


@pytest.mark.parametrize("name", list(alternatives((1, 1), 10)))
def test_alternatives_hold_on_normal_errors(name: str) -> None:
    generator = np.random.default_rng(0)
    way = alternatives((2, 1), 2000)[name]
    issued, held = Issued((2, 1)), []
    values = generator.normal(size=(1502, 1))
    for row in range(1500):
        way.learn(issued.errors(values[row]))
        quantiles = way.quantiles()
        issued.push(np.zeros((2, 1)))
        assert (np.diff(quantiles, axis=0) >= 0).all()
        target = values[row + 1 : row + 3]
        held.append(((quantiles[LOW] <= target) & (target <= quantiles[HIGH])).mean())
    assert abs(float(np.mean(held[300:])) - 0.9) < 0.03
