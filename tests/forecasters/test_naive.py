"""Last value, season and mean: exact on streams small enough to do by hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from natsr.evaluate import evaluate
from natsr.forecasters.base import Forecaster
from natsr.forecasters.naive import LastValue, RunningMean, Seasonal
from natsr.streams import Rows, steps
from natsr.types import Example, ShapeError, StateError, Task


def test_the_last_value_is_repeated_without_the_features() -> None:
    task = Task(window=2, horizon=3, channels=2, features=1)
    window = torch.arange(12.0).reshape(2, 2, 3)
    mean = LastValue(task).forecast(window).mean
    assert mean.shape == (2, 3, 2)
    assert mean[0].tolist() == [[3.0, 4.0]] * 3 and mean[1].tolist() == [[9.0, 10.0]] * 3


@pytest.mark.parametrize(("season", "horizon"), [(1, 4), (3, 2), (3, 3), (3, 8), (7, 24)])
def test_the_season_takes_the_latest_known_row_a_whole_number_of_seasons_back(season: int, horizon: int) -> None:
    task = Task(window=2, horizon=horizon, channels=1, season=season)
    newest = task.reach - 1
    window = torch.arange(float(task.reach))[None, :, None]
    expected = [newest + h - season * math.ceil(h / season) for h in range(1, horizon + 1)]
    assert Seasonal(task).forecast(window).mean[0, :, 0].tolist() == expected
    assert max(expected) <= newest


def test_the_season_is_exact_on_a_periodic_stream() -> None:
    task = Task(window=3, horizon=11, channels=1, season=5)
    values = torch.tensor([3.0, 1.0, 4.0, 1.5, 9.0]).repeat(20)[:, None]
    assert evaluate({"s": Seasonal(task)}, Rows(values, values), task, start=10, stop=100)["s"].mae == 0


@pytest.mark.parametrize("horizon", [1, 3])
def test_the_mean_counts_every_row_once_under_every_protocol(horizon: int) -> None:
    task = Task(window=4, horizon=horizon, channels=2)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(60, 2, generator=generator)
    truth = torch.where(torch.rand(60, 2, generator=generator) < 0.2, torch.tensor(math.nan), values)
    for protocol, oldest in (("honest", horizon), ("partial", 1)):
        mean = RunningMean(task)
        scores = evaluate({"m": mean}, Rows(values, truth), task, start=10, stop=60, protocol=protocol)["m"]
        last = 60 - horizon - 1  # the origin of the last forecast: the newest row that was known
        rows = truth[9 + oldest : last + 1].double()
        expected = rows.nanmean(0)
        got = mean.forecast(values[None, :4]).mean[0]
        assert scores.steps == 60 - 10 - horizon + 1
        assert torch.allclose(got.double(), expected.expand(horizon, 2), atol=1e-6)
        count = mean.state_dict()["count"]
        assert isinstance(count, Tensor) and count.tolist() == (~rows.isnan()).sum(0).tolist()


def test_the_mean_of_the_window_stands_in_before_the_first_label() -> None:
    task = Task(window=2, horizon=1, channels=2)
    mean = RunningMean(task)
    window = torch.tensor([[[1.0, 10.0], [3.0, 30.0]]])
    assert mean.forecast(window).mean[0, 0].tolist() == [2.0, 20.0]
    mean.learn(Example(window, torch.tensor([[[7.0, math.nan]]])))
    assert mean.forecast(window).mean[0, 0].tolist() == [7.0, 20.0]


def test_an_infinite_label_is_no_label() -> None:
    mean = RunningMean(Task(window=1, horizon=1, channels=1))
    for value in (1.0, math.inf, 3.0, -math.inf):
        mean.learn(Example(torch.zeros(1, 1, 1), torch.tensor([[[value]]])))
    assert mean.forecast(torch.zeros(1, 1, 1)).mean.item() == 2.0


def test_a_mean_goes_on_from_its_state() -> None:
    task = Task(window=2, horizon=2, channels=1)
    values = torch.randn(50, 1, generator=torch.Generator().manual_seed(1))
    one, other = RunningMean(task), RunningMean(task)
    for place, step in enumerate(steps(Rows(values, values), task, "honest", 2, 50)):
        if place == 20:
            state = one.state_dict()
            other.load_state_dict(state)
        for mean in (one, other):
            if step.matured is not None:
                mean.learn(step.matured)
        if place >= 20:
            assert torch.equal(one.forecast(step.window).mean, other.forecast(step.window).mean)


@pytest.mark.parametrize("method", [LastValue, Seasonal, RunningMean])
def test_the_state_of_something_else_is_refused(method: Callable[[Task], Forecaster]) -> None:
    forecaster = method(Task(window=2, horizon=2, channels=1))
    with pytest.raises(StateError, match="expected"):
        forecaster.load_state_dict({"weights": torch.zeros(3)})
    forecaster.load_state_dict(forecaster.state_dict())


@pytest.mark.parametrize("method", [LastValue, Seasonal, RunningMean])
def test_a_window_of_the_wrong_shape_is_refused(method: Callable[[Task], Forecaster]) -> None:
    with pytest.raises(ShapeError, match=r"expected \(B, 3, 2\)"):
        method(Task(window=2, horizon=2, channels=1, features=1, season=3)).forecast(torch.zeros(1, 2, 2))
