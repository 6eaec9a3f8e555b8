"""The loop: what it hands out, what it counts, and what it does with a forecaster that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from natsr.calibrate import PROBABILITIES
from natsr.evaluate import Moment, evaluate, peak_mib
from natsr.forecasters.base import Forecast, Forecaster
from natsr.forecasters.linear import MultivariateRLS, RecursiveLeastSquares
from natsr.forecasters.naive import LastValue, Seasonal
from natsr.metrics import naive_error
from natsr.streams import Rows
from natsr.types import PROTOCOLS, Example, OptionError, ProtocolName, ShapeError, State, Task


class Trouble(Forecaster):
    """The last value, until the forecast with the given number goes wrong."""

    def __init__(self, task: Task, at: int, how: str) -> None:
        self.task = task
        self.at = at
        self.how = how
        self.made = 0

    def forecast(self, window: Tensor) -> Forecast:
        mean = window[:, -1:, : self.task.channels].repeat(1, self.task.horizon, 1)
        self.made += 1
        if self.made == self.at:
            if self.how == "raise":
                raise FloatingPointError("the step is not finite")
            mean[0, 0, 0] = float(self.how)
        return Forecast(mean)

    def learn(self, example: Example) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        assert not state


class Wrong(Trouble):
    """Forecasts of the wrong shape."""

    def forecast(self, window: Tensor) -> Forecast:
        return Forecast(window[:, -1:, : self.task.channels])


def walk(count: int, channels: int, seed: int = 0) -> Rows:
    """A random walk with some missing values."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(count, channels, generator=generator).cumsum(0)
    missing = torch.rand(count, channels, generator=generator) < 0.1
    return Rows(values, torch.where(missing, torch.tensor(float("nan")), values))


def etth1() -> Rows:
    folder = os.environ.get("NATSR_DATA")
    if folder is None or not (Path(folder) / "ETTh1.csv").exists():
        pytest.skip("needs ETTh1.csv in $NATSR_DATA")
    raw = np.loadtxt(Path(folder) / "ETTh1.csv", delimiter=",", skiprows=1, usecols=range(1, 8))
    values = torch.tensor((raw - raw[:2880].mean(0)) / raw[:2880].std(0), dtype=torch.float32)
    return Rows(values, values)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_scores_are_those_of_plain_arithmetic(protocol: ProtocolName) -> None:
    task = Task(window=5, horizon=3, channels=2)
    rows = walk(200, 2)
    scores = evaluate({"last": LastValue(task)}, rows, task, start=50, stop=200, protocol=protocol)["last"]
    values, truth = rows.inputs.double().numpy(), rows.truth.double().numpy()
    errors = np.stack([truth[t + 1 : t + 4] - values[t] for t in range(49, 197)])
    assert scores.steps == 148
    assert scores.mae == pytest.approx(np.nanmean(np.abs(errors)), rel=1e-12)
    assert scores.mse == pytest.approx(np.nanmean(errors**2), rel=1e-12)
    assert scores.mase == pytest.approx(scores.mae / naive_error(rows.truth, 50, 200), rel=1e-12)


def test_the_last_value_one_row_ahead_has_a_mase_of_one() -> None:
    task = Task(window=5, horizon=1, channels=2)
    values = walk(300, 2).inputs
    scores = evaluate({"last": LastValue(task)}, Rows(values, values), task, start=100, stop=300)
    assert scores["last"].mase == pytest.approx(1, rel=1e-12)


def test_forecasters_beside_each_other_score_as_if_alone() -> None:
    task = Task(window=5, horizon=3, channels=2, season=4)
    rows = walk(300, 2)
    both = evaluate({"seasonal": Seasonal(task), "rls": RecursiveLeastSquares(task)}, rows, task, start=50, stop=300)
    alone = evaluate({"rls": RecursiveLeastSquares(task)}, rows, task, start=50, stop=300)
    timing = {"seconds", "ms_per_step", "peak_mib"}
    mine, yours = both["rls"].result(), alone["rls"].result()
    assert {key: mine[key] for key in mine.keys() - timing} == {key: yours[key] for key in yours.keys() - timing}
    assert both["seasonal"].mae != both["rls"].mae


@pytest.mark.parametrize("how", ["raise", "nan", "inf"])
def test_a_forecaster_that_fails_is_marked_and_the_others_go_on(how: str) -> None:
    task = Task(window=5, horizon=3, channels=2)
    moments: list[tuple[set[str], set[str]]] = []
    scores = evaluate(
        {"bad": Trouble(task, 7, how), "good": LastValue(task)},
        walk(100, 2),
        task,
        start=50,
        stop=100,
        on_step=lambda moment: moments.append((set(moment.means), set(moment.quantiles))),
    )
    result = scores["bad"].result()
    assert scores["bad"].steps == 6
    assert "at origin 55" in str(result["error"])
    assert ("the step is not finite" if how == "raise" else "1 of 6 forecasts are not finite") in str(result["error"])
    assert all(value is None for name, value in result.items() if name not in ("steps", "error"))
    assert scores["good"].error is None and scores["good"].steps == 48
    assert moments[5] == ({"bad", "good"}, {"bad", "good"}) and moments[6] == ({"good"}, {"good"})


def test_another_error_is_not_swallowed() -> None:
    task = Task(window=5, horizon=3, channels=2)
    with pytest.raises(ShapeError, match=r"forecast has shape \(1, 1, 2\), expected \(1, 3, 2\)"):
        evaluate({"wrong": Wrong(task, 0, "")}, walk(100, 2), task, start=50, stop=100)


def test_max_steps_cuts_the_stream_short_and_keeps_the_denominator() -> None:
    task = Task(window=5, horizon=3, channels=2)
    rows = walk(100, 2)
    cut = evaluate({"last": LastValue(task)}, rows, task, start=50, stop=100, max_steps=10)["last"]
    assert cut.steps == 10 and cut.denominator == naive_error(rows.truth, 50, 100)
    whole = evaluate({"last": LastValue(task)}, rows, task, start=50, stop=100, max_steps=1000)["last"]
    assert whole.steps == 48


def test_a_moment_holds_what_a_report_needs() -> None:
    task = Task(window=5, horizon=3, channels=2)
    moments: list[Moment] = []
    running: list[float] = []

    def keep(moment: Moment) -> None:
        moments.append(moment)
        running.append(moment.scores["last"].mae)

    scores = evaluate({"last": LastValue(task)}, walk(100, 2), task, start=50, stop=100, on_step=keep)
    assert [moment.done for moment in moments] == list(range(1, 49))
    assert {moment.total for moment in moments} == {48}
    assert [moment.step.origin for moment in moments] == list(range(49, 97))
    for moment in moments:
        assert moment.quantiles["last"].shape == (len(PROBABILITIES), 3, 2)
        assert (np.diff(moment.quantiles["last"], axis=0) >= 0).all()
        assert (moment.means["last"] == moment.step.window[0, -1].double().numpy()).all()
    assert len(set(running)) > 40 and running[-1] == scores["last"].mae


def test_without_intervals_there_are_no_figures_of_them() -> None:
    task = Task(window=5, horizon=3, channels=2)
    scores = evaluate({"last": LastValue(task)}, walk(100, 2), task, start=50, stop=100, intervals=False)["last"]
    result = scores.result()
    assert result["crps"] is None and result["coverage_90"] is None and result["width_90"] is None
    assert isinstance(result["mae"], float)


@pytest.mark.parametrize("horizon", [1, 3])
def test_intervals_know_no_row_before_its_time_even_under_paper(horizon: int) -> None:
    """Changing the rows after an origin must not change the intervals of the forecasts up to it."""
    task = Task(window=5, horizon=horizon, channels=2)
    rows = walk(100, 2)
    changed = Rows(rows.inputs.clone(), rows.truth.clone())
    changed.truth[71:] += 100
    seen: dict[str, list[Moment]] = {"as it was": [], "changed": []}
    for name, stream in (("as it was", rows), ("changed", changed)):
        evaluate(
            {"last": LastValue(task)}, stream, task, start=50, stop=100, protocol="paper", on_step=seen[name].append
        )
    alike = [
        bool((one.quantiles["last"] == other.quantiles["last"]).all())
        for one, other in zip(*seen.values(), strict=True)
    ]
    # The forecasts from origins up to 70 are alike; row 71 is the first to differ, and it is used at once.
    assert alike == [True] * (70 - 49 + 1) + [False] * (len(alike) - (70 - 49 + 1))


def test_time_is_counted_for_each_forecaster_alone() -> None:
    task = Task(window=60, horizon=24, channels=7)
    rows = walk(300, 7)
    scores = evaluate({"last": LastValue(task), "rls": MultivariateRLS(task)}, rows, task, start=100, stop=300)
    assert scores["rls"].seconds > scores["last"].seconds > 0
    result = scores["last"].result()
    assert result["ms_per_step"] == pytest.approx(1e3 * scores["last"].seconds / scores["last"].steps)


def test_peak_memory_is_in_mib() -> None:
    block = np.ones(2**17 * 100)  # 100 MiB
    assert 100 < peak_mib() < 2**15
    del block


def test_a_system_that_does_not_tell_its_peak_memory_has_no_figure() -> None:
    code = (
        "import sys; sys.modules['resource'] = None\n"  # as on Windows
        "import torch, natsr\n"
        "from natsr.evaluate import evaluate; from natsr.forecasters.naive import LastValue\n"
        "from natsr.streams import Rows; from natsr.types import Task\n"
        "task, values = Task(3, 2, 1), torch.arange(50.0)[:, None]\n"
        "scores = evaluate({'last': LastValue(task)}, Rows(values, values), task, start=10, stop=50)['last'].result()\n"
        "print(scores['steps'], scores['mae'], scores['peak_mib'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr) == (["39", "1.5", "None"], "")


def test_figures_in_the_units_of_the_data() -> None:
    task = Task(window=5, horizon=3, channels=2)
    std = torch.tensor([2.0, 10.0])
    scores = evaluate({"last": LastValue(task)}, walk(100, 2), task, start=50, stop=100, std=std)["last"]
    figures = scores.by_channel()
    assert figures["mae_units"] == pytest.approx(figures["mae"] * np.array([2.0, 10.0]))


def test_a_forecaster_for_another_task_is_refused() -> None:
    task = Task(window=5, horizon=3, channels=2)
    other = Task(window=5, horizon=2, channels=2)
    with pytest.raises(ShapeError, match="last was made for .*horizon=2"):
        evaluate({"last": LastValue(other)}, walk(100, 2), task, start=50, stop=100)


def test_wrong_arguments_are_refused() -> None:
    task = Task(window=5, horizon=3, channels=2)
    rows = walk(100, 2)
    with pytest.raises(OptionError, match="max_steps is 0"):
        evaluate({}, rows, task, start=50, stop=100, max_steps=0)
    with pytest.raises(OptionError, match="protocol is 'leaky'"):
        evaluate({}, rows, task, start=50, stop=100, protocol="leaky")
    with pytest.raises(OptionError, match="rows 98…99 hold no forecast of 3 rows after a window of 5, expected"):
        evaluate({"last": LastValue(task)}, rows, task, start=98, stop=100)
    misspelt: Any = {"start": 50, "stop": 100, "protocl": "paper"}
    with pytest.raises(OptionError, match="got protocl, start, stop; expected"):
        evaluate({}, rows, task, **misspelt)


@pytest.mark.data
@pytest.mark.slow
def test_the_last_value_on_etth1_is_as_published() -> None:
    rows = etth1()
    for horizon, mase in ((1, 1.00), (24, 2.71)):
        task = Task(window=60, horizon=horizon, channels=7)
        scores = evaluate({"last": LastValue(task)}, rows, task, start=3600, stop=14400, intervals=False)["last"]
        assert scores.steps == 10801 - horizon
        assert scores.mase == pytest.approx(mase, abs=0.005)


@pytest.mark.data
@pytest.mark.slow
def test_intervals_of_the_last_value_on_etth1_hold() -> None:
    rows = etth1()
    task = Task(window=60, horizon=24, channels=7)
    scores = evaluate({"last": LastValue(task)}, rows, task, start=3600, stop=14400, max_steps=5000)["last"]
    assert 0.885 < scores.coverage(90) < 0.915
    assert scores.worst_coverage_90 > 0.80
