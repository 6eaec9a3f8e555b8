"""A learner in C and the same learner in torch: forecasts, states, refusals."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from natsr.forecasters.neural import NeuralForecaster
from natsr.native.calls import library
from natsr.nets.native import NativeTCN
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.recipes import make
from natsr.types import Example, Option, Task

TASK = Task(window=20, horizon=3, channels=2, features=1)
SMALL: dict[str, Option] = {"width": 8, "depth": 3, "top": 20}
METHODS = ["ogd", "er", "derpp", "natsr", "natsr_fast"]


def learner(method: str, **options: Option) -> NeuralForecaster[ConeTrace]:
    found = make(method, TASK, options=SMALL | options)
    assert isinstance(found, NeuralForecaster)
    return found


def pair(
    monkeypatch: pytest.MonkeyPatch, method: str, **options: Option
) -> tuple[NeuralForecaster[ConeTrace], NeuralForecaster[ConeTrace]]:
    """The learner in C and in torch."""
    if library() is None:
        pytest.skip("there is no C compiler here, or NATSR_NATIVE is 0")
    ours = learner(method, **options)
    monkeypatch.setenv("NATSR_NATIVE", "0")
    theirs = learner(method, **options)
    monkeypatch.delenv("NATSR_NATIVE")
    assert isinstance(ours.net, NativeTCN) and type(theirs.net) is ConeTCN
    return ours, theirs


def example(seed: int, count: int = 1) -> Example:
    generator = torch.Generator().manual_seed(seed)
    window = torch.randn(count, TASK.window, TASK.inputs, generator=generator)
    target = 0.5 * window[:, -3:, :2] + 0.1 * torch.randn(count, 3, 2, generator=generator)
    if seed % 5 == 0:
        target[0, 2, 1] = math.nan
    return Example(window, target)


def flat(state: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(state, dict):
        return {prefix: state}
    return {key: value for name, part in state.items() for key, value in flat(part, f"{prefix}.{name}").items()}


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one.nan_to_num(nan=7.5), other.nan_to_num(nan=7.5))
    return one == other or (isinstance(one, float) and math.isnan(one))


def assert_alike(one: NeuralForecaster[ConeTrace], other: NeuralForecaster[ConeTrace]) -> None:
    window = example(999, count=5).window
    ours, theirs = one.forecast(window).mean, other.forecast(window).mean
    assert float((ours - theirs).abs().max()) < 1e-3 * float(theirs.abs().max())


@pytest.mark.parametrize("method", METHODS)
def test_sixty_steps_in_c_are_sixty_steps_in_torch(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ours, theirs = pair(monkeypatch, method)
    for seed in range(60):
        ours.learn(example(seed))
        theirs.learn(example(seed))
    assert ours.info().keys() == theirs.info().keys()
    for name, value in theirs.info().items():
        assert ours.info()[name] == pytest.approx(value, rel=1e-2, abs=1e-5), name
    assert_alike(ours, theirs)


@pytest.mark.parametrize("method", METHODS)
def test_each_goes_on_from_the_others_state(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ours, theirs = pair(monkeypatch, method)
    for seed in range(12):
        ours.learn(example(seed))
    theirs.load_state_dict(ours.state_dict())
    assert flat(ours.state_dict()).keys() == flat(theirs.state_dict()).keys()
    for seed in range(12, 24):
        ours.learn(example(seed))
        theirs.learn(example(seed))
    assert_alike(ours, theirs)
    ours.load_state_dict(theirs.state_dict())
    for seed in range(24, 30):
        ours.learn(example(seed))
        theirs.learn(example(seed))
    assert_alike(ours, theirs)


@pytest.mark.parametrize("method", METHODS)
def test_a_restored_learner_goes_on_bit_for_bit(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ours, _ = pair(monkeypatch, method)
    for seed in range(15):
        ours.learn(example(seed))
    twin = learner(method)
    twin.load_state_dict(ours.state_dict())
    for seed in range(15, 30):
        ours.learn(example(seed))
        twin.learn(example(seed))
    one, other = flat(ours.state_dict()), flat(twin.state_dict())
    assert {name for name in one if not same(one[name], other[name])} == set()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    ours, _ = pair(monkeypatch, method)
    for seed in range(6):
        ours.learn(example(seed))
    before = flat(ours.state_dict())
    spoilt = example(7)
    spoilt.window[0, -1, 0] = math.nan
    ours.learn(spoilt)
    after = flat(ours.state_dict())
    changed = {name for name in before if not same(before[name], after[name])}
    assert ours.refused == 1
    # It was counted, and the draw for it was made.
    assert changed <= {".counts.steps", ".counts.refused", ".generator"}


def test_learners_step_in_threads_as_they_do_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pair(monkeypatch, "er")
    together, alone = [learner("er") for _ in range(4)], [learner("er") for _ in range(4)]

    def run(one: NeuralForecaster[ConeTrace], first: int) -> Tensor:
        for seed in range(first, first + 25):
            one.learn(example(seed))
        return one.net.weights.clone()

    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(run, together, range(4)))
    for found, one, first in zip(threaded, alone, range(4), strict=True):
        assert torch.equal(found, run(one, first))
