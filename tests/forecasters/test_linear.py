"""Recursive least squares against the solution in one piece, and over a long and troubled life."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from natsr.evaluate import evaluate
from natsr.forecasters import linear
from natsr.forecasters.base import Forecaster
from natsr.forecasters.linear import MultivariateRLS, RecursiveLeastSquares
from natsr.forecasters.naive import LastValue
from natsr.streams import Rows, Windows, steps
from natsr.types import Example, OptionError, ShapeError, State, StateError, Task

METHODS: dict[str, Callable[..., RecursiveLeastSquares | MultivariateRLS]] = {
    "rls": RecursiveLeastSquares,
    "rls_mv": MultivariateRLS,
}
both = pytest.mark.parametrize("name", METHODS)


def stream(count: int, channels: int = 2, seed: int = 0) -> Tensor:
    """Two coupled, noisy oscillations, in float64 so that comparisons can be sharp."""
    generator = torch.Generator().manual_seed(seed)
    noise = 0.3 * torch.randn(count, channels, generator=generator, dtype=torch.float64)
    values = torch.zeros(count, channels, dtype=torch.float64)
    for t in range(2, count):
        values[t] = 1.6 * values[t - 1] - 0.8 * values[t - 2] + 0.1 * values[t - 1].flip(0) + noise[t]
    return values


def regressors(name: str, windows: Tensor) -> Tensor:
    """`(G, N, n)` as the module describes them, written independently: differences, level, one."""
    last = windows[:, -1:]
    lags = torch.cat([windows[:, :-1] - last, last], 1)  # (N, L, C)
    groups = [lags[:, :, c] for c in range(lags.shape[2])] if name == "rls" else [lags.flatten(1)]
    return torch.stack([torch.cat([group, torch.ones(len(group), 1)], 1) for group in groups])


def solution(x: Tensor, y: Tensor, weight: Tensor, ridge: float) -> Tensor:
    """Weighted ridge regression in one piece."""
    scaled = x * weight[:, None]
    weights: Tensor = torch.linalg.solve(x.T @ scaled + ridge * torch.eye(x.shape[1], dtype=x.dtype), scaled.T @ y)
    return weights


@both
def test_without_forgetting_it_is_ridge_regression(name: str) -> None:
    task = Task(window=4, horizon=3, channels=2)
    values = stream(200)
    examples = Windows(Rows(values, values), task, 0, 180)
    forecaster = METHODS[name](task, forgetting=1.0, ridge=0.5)
    for index in range(len(examples)):
        forecaster.learn(examples[index])
    window, target, *_ = examples.batch(torch.arange(len(examples)))
    query = values[None, 180:184]
    x, at = regressors(name, window), regressors(name, query)
    change = target - window[:, -1:]
    equal = torch.ones(len(window), dtype=torch.float64)
    got = forecaster.forecast(query).mean[0]
    for group in range(len(x)):
        y = change[:, :, group] if name == "rls" else change.flatten(1)
        expected = at[group] @ solution(x[group], y, equal, 0.5)
        if name == "rls":
            assert torch.allclose(got[:, group] - query[0, -1, group], expected[0], rtol=1e-9, atol=1e-9)
        else:
            assert torch.allclose(got - query[0, -1], expected.reshape(3, 2), rtol=1e-9, atol=1e-9)


@both
def test_forgetting_weighs_the_past_down(name: str) -> None:
    """With much data the ridge does not matter, and the solution is that of exponential weights."""
    task = Task(window=2, horizon=2, channels=2)
    values = stream(400)
    examples = Windows(Rows(values, values), task, 0, 400)
    forgetting = 0.97
    forecaster = METHODS[name](task, forgetting=forgetting, ridge=1e-9)
    for index in range(len(examples)):
        forecaster.learn(examples[index])
    window, target, *_ = examples.batch(torch.arange(len(examples)))
    query = values[None, -2:]
    weight = forgetting ** torch.arange(len(window) - 1, -1, -1, dtype=torch.float64)
    x, at = regressors(name, window)[0], regressors(name, query)[0]
    change = target - window[:, -1:]
    y = change[:, :, 0] if name == "rls" else change.flatten(1)
    expected = (at @ solution(x, y, weight, 0.0))[0]
    got = (forecaster.forecast(query).mean[0] - query[0, -1])[:, 0]
    expected = expected if name == "rls" else expected.reshape(2, 2)[:, 0]
    assert torch.allclose(got, expected, rtol=1e-5, atol=1e-6)


@both
def test_missing_targets_are_left_out_and_the_rest_is_exact(name: str) -> None:
    """Where a step is always missing it learns nothing, and the other steps are as if it did not exist."""
    task = Task(window=3, horizon=2, channels=2)
    values = stream(150)
    examples = Windows(Rows(values, values), task, 0, 150)
    whole, gappy = METHODS[name](task), METHODS[name](task)
    for index in range(len(examples)):
        window, target, *_ = examples[index]
        whole.learn(Example(window, target))
        hidden = target.clone()
        hidden[:, 1] = math.nan
        gappy.learn(Example(window, hidden))
    query = values[None, :3]
    full, part = whole.forecast(query).mean[0], gappy.forecast(query).mean[0]
    assert torch.equal(full[0], part[0]) and torch.equal(part[1], query[0, -1])
    assert not torch.equal(full[1], part[1])


@both
def test_an_example_without_targets_changes_nothing(name: str) -> None:
    task = Task(window=3, horizon=2, channels=2)
    values = stream(60)
    forecaster = METHODS[name](task)
    for index in range(40):
        forecaster.learn(Windows(Rows(values, values), task, 0, 60)[index])
    before = forecaster.state_dict()
    forecaster.learn(Example(values[None, :3], torch.full((1, 2, 2), math.nan, dtype=torch.float64)))
    forecaster.learn(Example(values[None, :3], values[None, 3:5], torch.zeros(1, 2, dtype=torch.bool)))
    assert same(before, forecaster.state_dict())


def test_a_missing_channel_leaves_the_other_channels_alone() -> None:
    task = Task(window=3, horizon=2, channels=2)
    values = stream(100)
    truth = values.clone()
    truth[30:60, 1] = math.nan
    whole, gappy = RecursiveLeastSquares(task), RecursiveLeastSquares(task)
    for index in range(len(Windows(Rows(values, values), task, 0, 100))):
        whole.learn(Windows(Rows(values, values), task, 0, 100)[index])
        gappy.learn(Windows(Rows(values, truth), task, 0, 100)[index])
    query = values[None, :3]
    full, part = whole.forecast(query).mean[0], gappy.forecast(query).mean[0]
    # Batched products may round differently from single ones.
    assert torch.allclose(full[:, 0], part[:, 0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(full[:, 1], part[:, 1], rtol=1e-3, atol=1e-3)


@both
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_labels_one_row_at_a_time_come_to_the_same(name: str, missing: float) -> None:
    """Each label once: after the stream, partial labels have led nearly to the weights of whole ones."""
    task = Task(window=3, horizon=4, channels=2)
    values = stream(700)
    gaps = torch.rand(values.shape, generator=torch.Generator().manual_seed(5)) < missing
    rows = Rows(values, torch.where(gaps, math.nan, values))
    honest, partial = METHODS[name](task), METHODS[name](task)
    for forecaster, protocol in ((honest, "honest"), (partial, "partial")):
        evaluate({"x": forecaster}, rows, task, start=3, stop=700, protocol=protocol, intervals=False)
    one, other = (forecaster.state_dict()["weights"] for forecaster in (honest, partial))
    assert isinstance(one, Tensor) and isinstance(other, Tensor)
    assert (one - other).norm() < 0.05 * one.norm()


def test_partial_labels_move_the_weights_before_the_example_is_whole() -> None:
    task = Task(window=3, horizon=4, channels=2)
    values = stream(20)
    forecaster = RecursiveLeastSquares(task)
    moments = list(steps(Rows(values, values), task, "partial", 3, 20))
    assert moments[1].matured is not None
    forecaster.learn(moments[1].matured)
    change = forecaster.forecast(values[None, :3]).mean[0] - values[2]
    assert (change[0] != 0).all() and (change[1:] == 0).all()


@both
def test_a_late_label_whose_first_step_was_missing_moves_by_its_own_gain(name: str) -> None:
    """The regressor is not in the covariance: the error must shrink by 1 / (1 + x P x), not overshoot."""
    task = Task(window=3, horizon=2, channels=2)
    window = stream(50)[None, 40:43]
    target = torch.tensor([[[math.nan, math.nan], [5.0, -4.0]]], dtype=torch.float64)
    forecaster = METHODS[name](task, forgetting=1.0, ridge=0.5)
    covariance = forecaster.state_dict()["covariance"]
    before = target[0, 1] - forecaster.forecast(window).mean[0, 1]
    forecaster.learn(Example(window, target, torch.tensor([[False, True]])))
    after = target[0, 1] - forecaster.forecast(window).mean[0, 1]
    spread = regressors(name, window)[:, 0].square().sum(1) / 0.5
    assert torch.allclose(after, before / (1 + spread), rtol=1e-9)
    still = forecaster.state_dict()["covariance"]
    assert isinstance(covariance, Tensor) and isinstance(still, Tensor) and torch.equal(covariance, still)


@both
def test_the_covariance_stays_bounded_symmetric_and_positive(name: str) -> None:
    """A constant channel, a zero channel, and forgetting: the classic blow-up."""
    task = Task(window=3, horizon=1, channels=3)
    generator = torch.Generator().manual_seed(3)
    count = 1500
    values = torch.stack([torch.randn(count, generator=generator), torch.full((count,), 2.0), torch.zeros(count)], 1)
    forecaster = METHODS[name](task, forgetting=0.97, ridge=0.1)
    examples = Windows(Rows(values, values), task, 0, count)
    for index in range(len(examples)):
        forecaster.learn(examples[index])
    covariance = forecaster.state_dict()["covariance"]
    assert isinstance(covariance, Tensor)
    assert torch.equal(covariance, covariance.transpose(1, 2))
    eigenvalues = torch.linalg.eigvalsh(covariance)
    assert eigenvalues.min() > 0 and eigenvalues.max() < 4 / 0.1
    assert forecaster.info()["resets"] == 0
    assert forecaster.forecast(examples[0].window).mean.isfinite().all()


@both
@pytest.mark.parametrize("shock", [1e6, -1e15])
def test_it_recovers_from_a_wild_value(name: str, shock: float) -> None:
    task = Task(window=4, horizon=2, channels=2)
    values = stream(600)
    wild = values.clone()
    wild[300, 0] = shock
    errors = {}
    for which, series in (("calm", values), ("wild", wild)):
        forecaster = METHODS[name](task)
        late = []
        for step in steps(Rows(series, series), task, "honest", 4, 600):
            if step.matured is not None:
                forecaster.learn(step.matured)
            mean = forecaster.forecast(step.window).mean
            assert mean.isfinite().all()
            if step.origin >= 320 and step.target is not None:
                late.append(float((mean - step.target).abs().mean()))
        errors[which] = np.mean(late)
    assert errors["wild"] < 1.25 * errors["calm"]


@both
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_channel_that_stood_still_is_learned_once_it_moves(name: str, level: float) -> None:
    """It has shown no size to clip to: rain after a dry winter, a machine that is switched on."""
    task = Task(window=24, horizon=3, channels=2)
    time = torch.arange(900.0)
    moving = torch.where(time < 200, level, level + torch.sin(time * (math.pi / 12)))
    values = torch.stack([moving, torch.cos(time / 3)], 1)
    forecaster, errors = METHODS[name](task), []
    for step in steps(Rows(values, values), task, "honest", 24, 900):
        if step.matured is not None:
            forecaster.learn(step.matured)
        assert step.target is not None
        pair = forecaster.forecast(step.window).mean, step.window[:, -1:]
        errors.append([float((mean - step.target)[..., 0].abs().mean()) for mean in pair])
    ours, last = np.mean(errors[-200:], axis=0)
    assert ours < 0.1 * last


@both
def test_a_state_that_does_not_fit_leaves_everything_as_it_was(name: str) -> None:
    forecaster = METHODS[name](Task(window=4, horizon=2, channels=2))
    before = forecaster.state_dict()
    moved = METHODS[name](Task(window=4, horizon=2, channels=2))
    moved.learn(Windows(Rows(stream(20), stream(20)), moved.task, 0, 20)[0])
    with pytest.raises(StateError, match="error_count is None"):
        forecaster.load_state_dict({**moved.state_dict(), "error_count": None})
    assert same(before, forecaster.state_dict())


@both
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_window_that_is_no_number_teaches_nothing(name: str, wrong: float) -> None:
    task = Task(window=4, horizon=2, channels=2)
    examples = Windows(Rows(stream(60), stream(60)), task, 0, 60)
    forecaster = METHODS[name](task)
    for index in range(30):
        forecaster.learn(examples[index])
    before = forecaster.state_dict()
    window, target, *_ = examples[30]
    window[0, 1, 0] = wrong
    forecaster.learn(Example(window, target))
    assert same(before, forecaster.state_dict())


def test_a_spoilt_covariance_starts_again() -> None:
    task = Task(window=3, horizon=1, channels=1)
    values = stream(100, channels=1)
    forecaster = RecursiveLeastSquares(task)
    examples = Windows(Rows(values, values), task, 0, 100)
    state = forecaster.state_dict()
    spoilt = state["covariance"]
    assert isinstance(spoilt, Tensor)
    forecaster.load_state_dict({**state, "covariance": -10 * spoilt})
    for index in range(len(examples)):
        forecaster.learn(examples[index])
    assert forecaster.info()["resets"] == 1
    assert (forecaster.forecast(examples[5].window).mean - examples[5].target).abs().max() < 2


@both
def test_it_learns_a_line_and_an_oscillation(name: str) -> None:
    task = Task(window=5, horizon=3, channels=2)
    time = torch.arange(600.0)
    values = torch.stack([0.01 * time, torch.sin(time / 3)], 1)
    scores = evaluate(
        {"rls": METHODS[name](task, ridge=1e-4), "last": LastValue(task)},
        Rows(values, values),
        task,
        start=300,
        stop=600,
    )
    assert scores["rls"].mae < 0.02 * scores["last"].mae


@both
def test_forecasting_is_pure_and_learning_leaves_the_example_alone(name: str) -> None:
    task = Task(window=4, horizon=2, channels=2, features=1)
    values = stream(80, 3)
    rows = Rows(values, values[:, :2].clone())
    forecaster = METHODS[name](task)
    examples = Windows(rows, task, 0, 80)
    for index in range(40):
        window, target, *_ = examples[index]
        kept = window.clone(), target.clone()
        forecaster.learn(Example(window, target))
        assert torch.equal(window, kept[0]) and torch.equal(target, kept[1])
    before = forecaster.state_dict()
    window = examples[50].window.float()
    first, second = forecaster.forecast(window).mean, forecaster.forecast(window).mean
    assert torch.equal(first, second) and first.dtype == torch.float32 and first.shape == (1, 2, 2)
    assert same(before, forecaster.state_dict())
    pair = forecaster.forecast(torch.cat([window, window + 1])).mean
    assert torch.allclose(pair[:1], first, atol=1e-6) and not torch.allclose(pair[1:], first, atol=1e-3)


@both
def test_a_state_goes_on_bit_for_bit(name: str) -> None:
    task = Task(window=4, horizon=2, channels=2)
    values = stream(160)
    examples = Windows(Rows(values, values), task, 0, 160)
    whole = METHODS[name](task, forgetting=0.95)
    for index in range(80):
        whole.learn(examples[index])
    after = METHODS[name](task, forgetting=0.95)
    after.load_state_dict(whole.state_dict())
    for index in range(80, 150):
        for forecaster in (whole, after):
            forecaster.learn(examples[index])
        assert torch.equal(whole.forecast(examples[0].window).mean, after.forecast(examples[0].window).mean)
    assert same(whole.state_dict(), after.state_dict())


def same(one: State, other: State) -> bool:
    def equal(mine: object, yours: object) -> bool:
        if isinstance(mine, Tensor):
            return isinstance(yours, Tensor) and torch.equal(mine, yours)
        return mine == yours

    return one.keys() == other.keys() and all(equal(one[name], other[name]) for name in one)


@both
def test_the_state_of_something_else_is_refused(name: str) -> None:
    forecaster = METHODS[name](Task(window=4, horizon=2, channels=2))
    with pytest.raises(StateError, match="lacks its counts"):
        forecaster.load_state_dict({})
    other = METHODS[name](Task(window=5, horizon=2, channels=2))
    with pytest.raises(StateError, match="covariance is .* expected a tensor of shape"):
        forecaster.load_state_dict(other.state_dict())


@both
def test_wrong_arguments_are_refused(name: str) -> None:
    task = Task(window=4, horizon=2, channels=2)
    with pytest.raises(OptionError, match="forgetting is 1.5"):
        METHODS[name](task, forgetting=1.5)
    with pytest.raises(OptionError, match="ridge is 0"):
        METHODS[name](task, ridge=0.0)
    with pytest.raises(ShapeError, match=r"expected \(B, 4, 2\)"):
        METHODS[name](task).forecast(torch.zeros(1, 3, 2))


def test_ordinary_data_never_meet_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(window=4, horizon=2, channels=2)
    values = stream(500)
    examples = Windows(Rows(values, values), task, 0, 500)

    def learned() -> Forecaster:
        forecaster = RecursiveLeastSquares(task)
        for index in range(len(examples)):
            forecaster.learn(examples[index])
        return forecaster

    guarded = learned().forecast(examples[0].window).mean
    monkeypatch.setattr(linear, "CLIP", math.inf)
    assert torch.equal(guarded, learned().forecast(examples[0].window).mean)


@pytest.mark.data
@pytest.mark.slow
def test_etth1_is_as_good_as_it_should_be() -> None:
    """A cut of the stream; the whole of it gives a MASE of 1.41 and 1.45, where the last value has 2.71."""
    folder = os.environ.get("NATSR_DATA")
    if folder is None or not (Path(folder) / "ETTh1.csv").exists():
        pytest.skip("needs ETTh1.csv in $NATSR_DATA")
    raw = np.loadtxt(Path(folder) / "ETTh1.csv", delimiter=",", skiprows=1, usecols=range(1, 8), max_rows=6000)
    values = torch.tensor((raw - raw[:2880].mean(0)) / raw[:2880].std(0), dtype=torch.float32)
    task = Task(window=60, horizon=24, channels=7)
    rows = Rows(values, values)
    forecaster = RecursiveLeastSquares(task)
    forecaster.warm_up(Windows(rows, task, 0, 2880), Windows(rows, task, 2880, 3600))
    scores = evaluate({"rls": forecaster, "last": LastValue(task)}, rows, task, start=3600, stop=6000, intervals=False)
    assert scores["rls"].mae < 0.62 * scores["last"].mae
