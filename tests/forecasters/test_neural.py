"""One step of a network: weights of the batch, refusals, restoring, replay, distillation, labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from natsr.fisher import Tap
from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.dense import DenseTCN
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.recipes import make
from natsr.state import on_device
from natsr.types import Example, Option, State, StateError, Task

TASK = Task(window=8, horizon=3, channels=2, features=1)
SMALL: dict[str, Option] = {"width": 4, "depth": 2, "top": 6, "dtype": "float64"}


def network(method: str, **options: Option) -> NeuralForecaster[ConeTrace]:
    forecaster = make(method, TASK, options=SMALL | options)
    assert isinstance(forecaster, NeuralForecaster)
    return forecaster


def example(seed: int, count: int = 1, size: float = 1.0) -> Example:
    generator = torch.Generator().manual_seed(seed)
    window = torch.randn(count, 8, 3, generator=generator, dtype=torch.float64)
    return Example(window, size * torch.randn(count, 3, 2, generator=generator, dtype=torch.float64))


def flat(state: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(state, dict):
        return {prefix: state}
    return {key: value for name, part in state.items() for key, value in flat(part, f"{prefix}.{name}").items()}


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    return one == other or (isinstance(one, float) and math.isnan(one))


def test_er_is_one_adamw_step_on_the_weighted_loss_of_new_and_replayed() -> None:
    ours = network("er", rate=0.01, draws=3, memory=10)
    past = [example(seed) for seed in range(4)]
    for one in past:
        ours.learn(one)
    assert ours.replay is not None and isinstance(ours.net, ConeTCN)
    dense, twin = DenseTCN(ours.net), network("er", rate=0.01, draws=3, memory=10)
    twin.load_state_dict(ours.state_dict())
    assert twin.replay is not None
    window, target = twin.replay.draw(3)  # what the next step will draw
    new = example(9)

    def half_mse(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(dense(x), y) * 0.5

    loss = (half_mse(new.window, new.target.flatten(1)) + 0.2 * half_mse(window, target)) / 1.2
    torch.autograd.backward(loss)
    trace_before = ours.net.weights.clone()
    ours.learn(new)
    assert ours.info()["loss"] == pytest.approx(float(loss.detach()))
    # AdamW's first moment holds the gradient: m = 0.9 m + 0.1 g.
    before, after = twin.finish.state_dict()["exp_avg"], ours.finish.state_dict()["exp_avg"]
    assert isinstance(before, Tensor) and isinstance(after, Tensor)
    assert_close((after - 0.9 * before) / 0.1, dense.flat_gradient(ours.net), rtol=1e-6, atol=1e-9)
    assert not torch.equal(trace_before, ours.net.weights)


def test_derpp_pulls_outputs_to_what_they_were() -> None:
    er, derpp = network("er", rate=0.01), network("derpp", rate=0.01)
    assert derpp.replay is not None
    for seed in range(3):
        er.learn(example(seed))
        derpp.learn(example(seed))
    window, _, stored = derpp.replay.draw(3)
    assert stored.shape == (3, TASK.outputs)
    drifted = derpp.net.forward(window) - stored
    for seed in range(200):
        derpp.learn(example(100 + seed % 2, size=3.0))
        er.learn(example(100 + seed % 2, size=3.0))
    pulled = (derpp.net.forward(window) - stored).square().mean()
    free = (er.net.forward(window) - stored).square().mean()
    assert drifted.square().mean() < pulled < free


def test_missing_labels_are_left_out_of_loss_and_gradient() -> None:
    whole, holed = network("ogd"), network("ogd")
    one = example(1)
    target = one.target.clone()
    target[0, 1:] = math.nan
    output = holed.net.forward(one.window)
    holed.learn(Example(one.window, target))
    error = (target - output.view(1, 3, 2))[0, 0]
    assert holed.info()["loss"] == pytest.approx(float(0.5 * error.square().mean()))
    whole.learn(Example(one.window, torch.full_like(target, math.nan)))
    assert whole.steps == 0 and torch.equal(whole.net.weights, network("ogd").net.weights)


def test_partly_known_labels_are_learned_once_or_as_often_as_they_are_shown() -> None:
    known, fresh = network("ogd", labels="known"), network("ogd", labels="fresh")
    one = example(2, count=2)
    target = one.target.clone()
    target[0, 1:], target[1, 2:] = math.nan, math.nan
    mask = torch.tensor([[True, False, False], [False, True, False]])
    only = target.clone()
    only[1, 0] = math.nan
    known.learn(Example(one.window, target, mask))
    fresh.learn(Example(one.window, target, mask))
    reference = network("ogd")
    reference.learn(Example(one.window, only))
    assert torch.equal(fresh.net.weights, reference.net.weights)
    assert not torch.equal(fresh.net.weights, known.net.weights)


def test_only_complete_examples_are_remembered() -> None:
    er = network("er")
    assert er.replay is not None
    mask = torch.tensor([[True, False, False], [False, False, True]])
    er.learn(Example(*example(3, count=2)[:2], mask))
    assert er.replay.seen == 1


@pytest.mark.parametrize("method", ["ogd", "er", "natsr", "natsr_fast"])
@pytest.mark.parametrize("wild", [1e6, 1e12, -1e30, 3e38])
def test_no_value_breaks_a_learner(method: str, wild: float) -> None:
    forecaster = make(method, TASK, options={**SMALL, "dtype": "float32"})
    for seed in range(60):
        one = example(seed)
        window, target = one.window.float(), one.target.float()
        if seed in (20, 21):
            window[0, -1, 0], target[0, 0, 0] = wild, wild
        forecaster.learn(Example(window, target))
        mean = forecaster.forecast(window).mean
        assert mean.isfinite().all()
    assert mean.abs().max() < 50  # the wild value has not been learned by heart


def test_a_step_that_is_not_finite_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    natsr = network("natsr")
    for seed in range(5):
        natsr.learn(example(seed))
    before = flat(natsr.state_dict())
    whole = natsr.net.taps

    def broken(trace: ConeTrace, grads: Tensor) -> list[Tap]:
        return [tap._replace(grads=tap.grads * math.nan) for tap in whole(trace, grads)]

    monkeypatch.setattr(natsr.net, "taps", broken)
    natsr.learn(example(6))
    after = flat(natsr.state_dict())
    assert natsr.refused == 1 and natsr.info()["refused"] == 1
    changed = {name for name in before if not same(before[name], after[name])}
    # The example was seen: it is counted and remembered, and the draw for it was made. Nothing was learned from it.
    assert changed <= {
        ".counts.steps",
        ".counts.refused",
        ".generator",
        ".replay.seen",
        ".replay.fields.0",
        ".replay.fields.1",
    }


def test_a_network_gone_astray_goes_back_to_sane_weights() -> None:
    ogd = network("ogd")
    sane = ogd.net.weights.clone()
    ogd.net.weights.mul_(1e12)
    assert ogd.forecast(example(0).window).mean.abs().max() <= 1000
    ogd.learn(example(0))
    assert ogd.restored == 1 and torch.equal(ogd.net.weights, sane)
    ogd.learn(example(1))
    assert ogd.restored == 1 and not torch.equal(ogd.net.weights, sane)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("method", ["ogd", "natsr_fast"])
def test_a_network_gone_astray_forgets_the_gradients_that_led_there(method: str, dtype: str) -> None:
    ours = network(method, rate=1e-3, dtype=dtype)
    for seed in range(3):
        ours.learn(example(seed))
    state = ours.state_dict()
    finish = state["finish"]
    assert isinstance(finish, dict) and isinstance(finish["exp_avg_sq"], Tensor)
    finish["exp_avg_sq"].fill_(1e20)  # with this a learner stands still for tens of thousands of steps
    ours.load_state_dict(state)
    ours.net.weights.mul_(1e12)
    ours.learn(example(3))
    assert ours.restored == 1 and ours.state_dict()["finish"] == {}
    before = ours.net.weights.clone()
    ours.learn(example(4))
    moved = (ours.net.weights - before).abs().max()
    assert 0.9e-3 < moved < 1.1e-3  # AdamW's first step is the rate itself


@pytest.mark.parametrize("method", ["ogd", "natsr"])
def test_a_window_that_is_no_number_is_refused_and_takes_nothing_back(method: str) -> None:
    ours = network(method)
    for seed in range(5):
        ours.learn(example(seed))
    weights = ours.net.weights.clone()
    spoilt = example(6)
    spoilt.window[0, 2, 0] = math.nan
    ours.learn(spoilt)
    assert (ours.refused, ours.restored) == (1, 0) and torch.equal(ours.net.weights, weights)
    ours.learn(example(7))
    assert ours.refused == 1 and not torch.equal(ours.net.weights, weights)


def test_derpp_does_not_remember_what_a_network_gone_astray_put_out() -> None:
    derpp = network("derpp", memory=5)
    derpp.learn(example(0))
    derpp.net.weights.mul_(60.0)
    derpp.learn(example(1))
    assert derpp.restored == 1 and derpp.replay is not None
    derpp.learn(example(2))
    outputs = derpp.replay.draw(5)[2]
    assert len(outputs) == 2 and outputs.abs().max() < 10


def test_frozen_learns_nothing_online() -> None:
    frozen = network("frozen")
    before = frozen.net.weights.clone()
    frozen.learn(example(0))
    assert torch.equal(frozen.net.weights, before)


def test_the_scale_follows_the_errors() -> None:
    calm, wild = network("natsr"), network("natsr")
    for seed in range(40):
        calm.learn(example(seed, size=0.1))
        wild.learn(example(seed, size=5.0))
    assert calm.info()["variance"] < 1 < wild.info()["variance"]


def test_the_precursors_reading_squares_the_tracked_number() -> None:
    ours, theirs = network("natsr"), network("natsr", scale_reading="precursor")
    ours.learn(example(0, size=4.0))
    theirs.learn(example(0, size=4.0))
    assert theirs.info()["variance"] == pytest.approx(ours.info()["variance"] ** 2)


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(StateError, match="same task and options"):
        network("ogd").load_state_dict(network("ogd", width=5).state_dict())
    with pytest.raises(StateError, match="no counts, finish"):
        network("ogd").load_state_dict({"weights": network("ogd").net.weights})
    with pytest.raises(StateError, match="does not fit this method"):
        network("ogd").load_state_dict(network("er").state_dict())


def without(state: State, slot: str, part: str) -> State:
    inner = state[slot]
    assert isinstance(inner, dict)
    return {**state, slot: {name: value for name, value in inner.items() if name != part}}


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda state: {**state, "counts": {"steps": 3}}, id="counts"),
        pytest.param(lambda state: {**state, "sane": torch.zeros(2)}, id="sane"),
        pytest.param(lambda state: {**state, "scale": -1.0}, id="scale"),
        pytest.param(lambda state: {**state, "generator": torch.zeros(3, dtype=torch.uint8)}, id="generator"),
        pytest.param(lambda state: {**state, "weights": state["weights"].float()}, id="dtype"),
        pytest.param(lambda state: {**state, "finish": {"momentum": 1.0}}, id="finish"),
        pytest.param(lambda state: {**state, "natural": "K-FAC"}, id="natural"),
        pytest.param(lambda state: without(state, "natural", "trigger"), id="trigger"),
        pytest.param(lambda state: without(state, "replay", "seen"), id="replay"),
    ],
)
@pytest.mark.parametrize("method", ["natsr", "natsr_fast"])
def test_a_state_is_loaded_whole_or_not_at_all(method: str, spoilt: Callable[[Any], State]) -> None:
    ours, other = network(method), network(method)
    for seed in range(3):
        ours.learn(example(seed))
        other.learn(example(seed + 9))
    other.learn(example(5))
    before = flat(ours.state_dict())
    with pytest.raises(StateError):
        ours.load_state_dict(spoilt(other.state_dict()))
    after = flat(ours.state_dict())
    assert before.keys() == after.keys() and all(same(before[name], after[name]) for name in before)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ogd", "derpp", "natsr", "natsr_fast"])
def test_a_learner_on_a_gpu_goes_on_from_a_state_on_the_cpu(method: str) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    ours, twin = (make(method, TASK, options=SMALL, device="cuda") for _ in range(2))
    for seed in range(5):
        ours.learn(example(seed))
    twin.load_state_dict(on_device(ours.state_dict(), torch.device("cpu")))
    for seed in range(5, 20):
        ours.learn(example(seed))
        twin.learn(example(seed))
        window = example(seed + 1).window
        assert_close(ours.forecast(window).mean, twin.forecast(window).mean)
