"""A recorder keeps what the loop did: the same errors as the scores, and each forecast at the row it was about."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from natsr.calibrate import PROBABILITIES
from natsr.data.series import Borders, Prepared, Series, prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.base import Forecast
from natsr.forecasters.naive import LastValue
from natsr.recipes import make
from natsr.report.page import render
from natsr.report.record import Recorder, iso, shown_steps
from natsr.types import Task

H, ROWS, START = 4, 120, 60


class Talking(LastValue):
    """The last value, and something to say about itself; fails after a while if told to."""

    def __init__(self, task: Task, fail_at: int | None = None) -> None:
        super().__init__(task)
        self.calls, self.fail_at = 0, fail_at

    def forecast(self, window: Tensor) -> Forecast:
        """The last value, until the time comes."""
        self.calls += 1
        if self.calls == self.fail_at:
            raise FloatingPointError("told to")
        return super().forecast(window)

    def info(self) -> dict[str, float]:
        """Numbers that tell when they were said."""
        return {"variance": float(self.calls), "update_norm": float(self.calls), "update_bound": 1e3 - self.calls}


def stream() -> tuple[Prepared, Task]:
    times = np.datetime64("2024-01-01", "s") + np.arange(ROWS) * np.timedelta64(3600, "s")
    values = np.random.default_rng(0).normal(size=(ROWS, 2)).cumsum(0) * [10.0, 0.1] + [500.0, 0.0]
    values[80, 0] = math.nan
    data = prepare(Series("walk", times, values, ("a", "b"), 3600), Borders(40, START, ROWS), calendar="none", season=1)
    return data, data.task(window=5, horizon=H)


def test_recorded_errors_are_those_of_the_scores() -> None:
    data, task = stream()
    forecasters = {"one": Talking(task), "two": LastValue(task)}
    recorder = Recorder(data, task, forecasters, rows=20, pieces=7)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder)
    report = recorder.report(scores, title="t", dataset="walk", notes=["n"], command="c")
    track = report.track
    assert track is not None and report.unit == "MASE"
    weights, errors = np.asarray(track.weights), np.asarray(track.errors["one"])
    mase = scores["one"].mase
    assert len(errors) == 7
    assert math.isclose(float((errors * weights).sum() / weights.sum()), mase, rel_tol=1e-9)
    assert np.asarray(track.steps)[-1] == scores["one"].steps == ROWS - START - H + 1
    assert track.times[-1] == str(data.series.times[ROWS - H - 1].astype("datetime64[m]"))
    by_step = np.asarray(report.by_step["one"])
    np.testing.assert_allclose(by_step.mean(), mase, rtol=0.02)  # a step has one missing target more or less
    assert report.scores[0].mase == mase and report.scores[0].error is None
    assert "walk" in render(report)


def test_recorded_forecasts_stand_at_the_row_they_are_about() -> None:
    data, task = stream()
    forecasters = {"one": LastValue(task)}
    recorder = Recorder(data, task, forecasters, rows=20)
    ends: list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = []

    def both(moment: Moment) -> None:
        recorder(moment)
        ends.append(moment.quantiles["one"])

    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=both)
    stretch = recorder.report(scores, title="t", dataset="walk").stretch
    assert stretch is not None
    first = ROWS - H + 1 - 20  # the last origin is the row ROWS - H - 1, the last row of the stretch the one after it
    assert stretch.times[0] == iso(data.series.times[first : first + 1])[0]
    np.testing.assert_array_equal(np.asarray(stretch.truth), data.series.values[first : first + 20])
    filled = data.scaling.invert(data.rows.inputs[:, :2].double().numpy())
    assert [fan.step for fan in stretch.fans] == [1, 2, 4]
    for fan in stretch.fans:
        shifted = filled[first - fan.step : first + 20 - fan.step]
        np.testing.assert_allclose(np.asarray(fan.mean), shifted, rtol=1e-5)
    last = data.scaling.invert(ends[-1][:, 0])
    np.testing.assert_allclose(np.asarray(stretch.fans[0].low_90)[-1], last[PROBABILITIES.index(0.05)])
    np.testing.assert_allclose(np.asarray(stretch.fans[0].high_50)[-1], last[PROBABILITIES.index(0.75)])


def test_what_methods_tell_of_themselves_is_kept() -> None:
    data, task = stream()
    forecasters = {"one": Talking(task), "two": LastValue(task)}
    recorder = Recorder(data, task, forecasters, pieces=10)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder)
    track = recorder.report(scores, title="t", dataset="walk").track
    assert track is not None
    assert list(track.variance) == list(track.norms) == list(track.bounds) == ["one"]
    steps = np.asarray(track.steps, dtype=np.float64)
    np.testing.assert_array_equal(np.asarray(track.norms["one"]), steps)  # the largest of each piece is its last
    np.testing.assert_array_equal(np.asarray(track.variance["one"]), steps)
    np.testing.assert_array_equal(np.asarray(track.bounds["one"]), 1e3 - steps)  # and the smallest bound too


def test_a_method_that_fails_leaves_a_gap() -> None:
    data, task = stream()
    forecasters = {"one": LastValue(task), "bad": Talking(task, fail_at=10)}
    recorder = Recorder(data, task, forecasters, pieces=1000)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder)
    report = recorder.report(scores, title="t", dataset="walk")
    assert report.track is not None and report.stretch is not None
    errors = np.asarray(report.track.errors["bad"])
    assert np.isfinite(errors[:9]).all() and np.isnan(errors[9:]).all()
    assert report.scores[1].error is not None and report.scores[1].mae is None
    assert "told to" in render(report)


def test_without_intervals_the_line_stands_alone() -> None:
    data, task = stream()
    forecasters = {"one": LastValue(task)}
    recorder = Recorder(data, task, forecasters)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder, intervals=False)
    stretch = recorder.report(scores, title="t", dataset="walk").stretch
    assert stretch is not None and stretch.fans[0].low_90 is None


def test_a_constant_stream_is_reported_in_mae() -> None:
    times = np.datetime64("2024-01-01", "s") + np.arange(50) * np.timedelta64(10, "s")
    data = prepare(Series("flat", times, np.ones((50, 1)), ("x",), 10), Borders(20, 30, 50), calendar="none", season=1)
    task = data.task(window=3, horizon=1)
    forecasters = {"one": LastValue(task)}
    recorder = Recorder(data, task, forecasters)
    scores = evaluate(forecasters, data.rows, task, start=30, stop=50, on_step=recorder)
    report = recorder.report(scores, title="t", dataset="flat")
    assert report.unit == "MAE"
    assert report.track is not None and report.track.times[0].endswith(":50")
    assert torch.isfinite(torch.tensor(np.asarray(report.by_step["one"]))).all()
    render(report)


def test_steps_to_choose_among() -> None:
    assert [shown_steps(h) for h in (1, 2, 3, 4, 24, 48)] == [
        (1,),
        (1, 2),
        (1, 2, 3),
        (1, 2, 4),
        (1, 6, 12, 24),
        (1, 12, 24, 48),
    ]


def test_the_shares_of_a_mixture_are_recorded_piece_by_piece() -> None:
    data, task = stream()
    forecasters = {"plain": LastValue(task), "auto": make("auto", task, options={"budget": "cheap"})}
    recorder = Recorder(data, task, forecasters, pieces=7)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder)
    report = recorder.report(scores, title="t", dataset="walk")
    whose = report.whose
    assert whose is not None and whose.method == "auto" and list(whose.columns) == ["a", "b"]
    shares = np.array(list(whose.over_time.values()))
    assert shares.shape == (6, 7)
    np.testing.assert_allclose(shares.sum(0), 1, atol=1e-5)
    ends = [np.asarray(share).mean() for share in whose.by_column.values()]
    np.testing.assert_allclose(shares[:, -1], ends, atol=1e-12)  # the last piece ends where the stream does
    assert tuple(whose.steps) == shown_steps(H)
    for shown, count in ((whose.by_step, len(whose.steps)), (whose.by_column, 2)):
        total = np.sum([np.asarray(share) for share in shown.values()], axis=0)
        np.testing.assert_allclose(total, np.ones(count), atol=1e-5)
    assert "Whose forecast it is" in render(report)


def test_a_run_without_a_mixture_has_no_shares() -> None:
    data, task = stream()
    forecasters = {"plain": LastValue(task)}
    recorder = Recorder(data, task, forecasters)
    scores = evaluate(forecasters, data.rows, task, start=START, stop=ROWS, on_step=recorder)
    assert recorder.report(scores, title="t", dataset="walk").whose is None
