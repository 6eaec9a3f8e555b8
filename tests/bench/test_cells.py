"""An experiment is a value; running it gives numbers or an error, the same ones every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from natsr.bench.cells import NUMBERS, Cell, load_for, rehearsal, run_cell, run_on, warm_up
from natsr.data.series import Borders, Series, prepare
from natsr.evaluate import evaluate
from natsr.forecasters.naive import LastValue
from natsr.types import DataError, Option, OptionError

SMALL: tuple[tuple[str, Option], ...] = (("width", 4), ("depth", 2), ("top", 8), ("epochs", 1))


def write_csv(path: Path, rows: int = 300, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    hours = np.arange(rows)
    values = np.sin(hours / 24 * 2 * np.pi)[:, None] + 0.1 * rng.normal(size=(rows, 2)).cumsum(0)
    times = np.datetime64("2024-01-01T00:00:00") + hours * np.timedelta64(1, "h")
    lines = [f"{time},{a:.6f},{b:.6f}" for time, (a, b) in zip(times, values, strict=True)]
    path.write_text("\n".join(["time,a,b", *lines]) + "\n")
    return path


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return Cell("last_value", str(write_csv(tmp_path / "s.csv")), horizon=3, window=12)


def test_key_is_readable_and_tells_experiments_apart() -> None:
    cell = Cell("er", "ETTh1", 24)
    assert cell.key == "er ETTh1 H=24 seed=0 honest"
    changes: list[Cell] = [
        replace(cell, method="ogd"),
        replace(cell, dataset="ETTh2"),
        replace(cell, horizon=1),
        replace(cell, seed=1),
        replace(cell, protocol="paper"),
        replace(cell, part="validation"),
        replace(cell, options=(("rate", 0.1),)),
        replace(cell, tuned_on="test"),
        replace(cell, window=30),
        replace(cell, max_steps=5),
        replace(cell, device="cuda"),
    ]
    assert len({cell.key, *(change.key for change in changes)}) == 12


def test_options_in_any_order_are_the_same_cell() -> None:
    first = Cell("er", "ETTh1", 24, options=(("rate", 0.1), ("draws", 4)))
    second = Cell("er", "ETTh1", 24, options=(("draws", 4), ("rate", 0.1)))
    assert first == second and first.key == second.key


@pytest.mark.parametrize(
    "wrong",
    [
        {"horizon": 0},
        {"window": 0},
        {"seed": -1},
        {"max_steps": 0},
        {"protocol": "honnest"},
        {"part": "test"},
        {"tuned_on": "train"},
        {"options": (("rate", 1), ("rate", 2))},
    ],
)
def test_cell_refuses_what_makes_no_sense(wrong: dict[str, object]) -> None:
    fields: dict[str, object] = {"method": "er", "dataset": "ETTh1", "horizon": 24, **wrong}
    make: object = Cell
    assert callable(make)
    with pytest.raises(OptionError):
        make(**fields)


def test_numbers_are_those_of_the_loop(cell: Cell) -> None:
    result = run_cell(cell)
    data = load_for(cell)
    task = data.task(12, 3)
    borders = data.borders
    scores = evaluate({"x": LastValue(task)}, data.rows, task, start=borders.valid, stop=borders.online)["x"]
    assert result.error is None
    assert result.numbers["mase"] == scores.mase
    assert result.numbers["steps"] == scores.steps == borders.online - borders.valid - 3 + 1
    assert set(result.numbers) <= set(NUMBERS)
    assert {"mae", "mse", "crps", "coverage_50", "width_95", "ms_per_step", "warm_seconds"} <= set(result.numbers)


def test_same_cell_same_numbers_and_other_seed_others(cell: Cell) -> None:
    er = replace(cell, method="er", options=SMALL, max_steps=30)
    first, again, other = run_cell(er), run_cell(er), run_cell(replace(er, seed=1))
    assert first.numbers["mase"] == again.numbers["mase"]
    assert first.numbers["mase"] != other.numbers["mase"]
    assert first.numbers["steps"] == 30


def test_protocol_reaches_the_loop(cell: Cell) -> None:
    rls = replace(cell, method="rls")
    mase = [run_cell(replace(rls, protocol=name)).numbers["mase"] for name in ("honest", "paper")]
    assert mase[0] != mase[1]


def test_validation_part_never_looks_at_the_online_part(cell: Cell) -> None:
    data = load_for(cell)
    poisoned = data.rows.inputs.clone(), data.rows.truth.clone()
    for tensor in poisoned:
        tensor[data.borders.valid :] = float("nan")
    blind = replace(data, rows=data.rows._replace(inputs=poisoned[0], truth=poisoned[1]))
    rehearsed = replace(cell, method="er", part="validation", options=SMALL)
    seen, unseen = run_on(rehearsed, data), run_on(rehearsed, blind)
    assert seen.error is None and seen.numbers["mase"] == unseen.numbers["mase"]
    assert seen.numbers["steps"] == data.borders.valid - data.borders.train - 3 + 1


def test_rehearsal_keeps_the_order_of_the_parts() -> None:
    assert rehearsal(Borders(100, 125, 500)) == Borders(80, 100, 125)


def test_failures_are_results_without_numbers(cell: Cell) -> None:
    for wrong in (
        replace(cell, dataset=cell.dataset + ".gone"),
        replace(cell, method="lastvalue"),
        replace(cell, options=(("rate", 1.0),)),
        replace(cell, window=250),
        replace(cell, options=(("calendar", "lunar"),)),
    ):
        result = run_cell(wrong)
        assert result.error is not None and result.numbers == {}
    assert "last_value" in (run_cell(replace(cell, method="lastvalue")).error or "")


def test_divergence_is_a_failure(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    def nan(self: LastValue, window: torch.Tensor) -> object:
        forecast = honest(self, window)
        return forecast._replace(mean=forecast.mean * float("nan"))

    honest = LastValue.forecast
    monkeypatch.setattr(LastValue, "forecast", nan)
    result = run_cell(cell)
    assert result.numbers == {} and "not finite" in (result.error or "")


def test_calendar_is_an_option_of_every_method(cell: Cell) -> None:
    plain = replace(cell, method="ogd", options=SMALL, max_steps=5)
    without = replace(plain, options=(*SMALL, ("calendar", "none")))
    assert load_for(plain).rows.inputs.shape[1] > load_for(without).rows.inputs.shape[1] == 2
    assert run_cell(without).error is None


def test_progress_tells_of_both_phases(cell: Cell) -> None:
    told: list[tuple[int, int, str]] = []
    run_cell(replace(cell, max_steps=7), lambda done, of, what: told.append((done, of, what)))
    assert told[-1] == (7, 7, "online")
    assert "warm-up" in {what for _, _, what in told}


def test_warm_up_needs_one_example() -> None:
    times = np.datetime64("2024-01-01", "s") + np.arange(100) * np.timedelta64(3600, "s")
    series = Series("short", times, np.random.default_rng(0).normal(size=(100, 1)), ("x",), 3600)
    data = prepare(series, Borders.published(100))
    with pytest.raises(DataError, match="train part of short has 20 rows"):
        warm_up(LastValue(data.task(30, 3)), data, data.borders)
