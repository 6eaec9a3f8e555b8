"""The compiled network is the network in torch: outputs, what passes through each layer, and gradients."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from natsr.native.calls import Move, library
from natsr.nets.native import NativeTCN, NativeTrace, tcn
from natsr.nets.tcn import ConeTCN
from natsr.types import Task

CPU = torch.device("cpu")
#: window, depth, width, top, batch: every kind of cone, and widths that fill no vector, one, or several.
SHAPES = [
    (60, 10, 16, 48, 9),
    (60, 2, 6, 10, 4),
    (60, 0, 6, 10, 13),
    (1, 3, 5, 7, 1),
    (2, 3, 6, 10, 2),
    (7, 4, 64, 72, 3),
    (33, 5, 17, 33, 5),
    (96, 10, 8, 8, 2),
]


def pair(window: int, depth: int, width: int, top: int, horizon: int = 3) -> tuple[NativeTCN, ConeTCN]:
    compiled = library()
    if compiled is None:
        pytest.skip("there is no C compiler here, or NATSR_NATIVE is 0")
    task = Task(window=window, horizon=horizon, channels=2, features=3)
    native = NativeTCN(task, torch.Generator().manual_seed(0), compiled, width=width, depth=depth, top=top)
    return native, ConeTCN(task, torch.Generator().manual_seed(0), width=width, depth=depth, top=top)


def assert_near(ours: Tensor, theirs: Tensor, tolerance: float = 2e-5) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) <= tolerance * max(float(theirs.abs().max()), 1e-3)


@pytest.mark.parametrize(("window", "depth", "width", "top", "batch"), SHAPES)
@pytest.mark.parametrize("dropped", [False, True])
def test_passes_equal_those_in_torch(window: int, depth: int, width: int, top: int, batch: int, dropped: bool) -> None:
    ours, theirs = pair(window, depth, width, top)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(batch, window, ours.task.inputs, generator=generator)
    keep = (torch.rand(batch, top, generator=generator) > 0.3).float() / 0.7 if dropped else None
    pull = torch.randn(batch, ours.task.outputs, generator=generator)
    assert_near(ours.forward(x), theirs.forward(x))
    trace, other = ours.trace(x, keep), theirs.trace(x, keep)
    assert_near(trace.output, other.output)
    gradient = theirs.gradient(other, pull)
    assert_near(ours.gradient(trace, pull), gradient)
    assert ours.squared_bound(trace, pull) >= 0.999 * float(gradient.square().sum())
    probes = torch.randn(3, batch, ours.task.outputs, generator=generator)
    for tap, reference in zip(ours.taps(trace, probes), theirs.taps(other, probes), strict=True):
        assert_near(tap.inputs, reference.inputs)
        assert_near(tap.grads, reference.grads)


def test_many_outputs_take_another_way_back() -> None:
    ours, theirs = pair(8, 2, 8, 20, horizon=700)
    x, pull = torch.randn(5, 8, 5), torch.randn(5, 1400)
    assert_near(ours.gradient(ours.trace(x), pull), theirs.gradient(theirs.trace(x), pull))


def test_an_earlier_pass_can_still_be_pulled_back() -> None:
    ours, _ = pair(20, 3, 8, 12)
    first, second = torch.randn(3, 20, 5), torch.randn(6, 20, 5)
    pull = torch.randn(3, 6)
    alone = ours.gradient(ours.trace(first), pull)
    earlier = ours.trace(first)
    ours.trace(second)
    ours.forward(second)
    assert_near(ours.gradient(earlier, pull), alone, tolerance=1e-6)


def test_a_large_batch_is_forecast_in_pieces() -> None:
    ours, theirs = pair(20, 3, 8, 12)
    x = torch.randn(70, 20, 5)
    assert_near(ours.forward(x), theirs.forward(x))


def test_what_is_no_number_comes_out_as_no_number() -> None:
    ours, _ = pair(8, 2, 8, 12)
    x = torch.randn(2, 8, 5)
    x[0, -1, 0] = math.nan
    output = ours.trace(x).output
    assert output[0].isnan().all() and output[1].isfinite().all()
    huge = ours.trace(torch.full((1, 8, 5), 3e38))
    assert not math.isfinite(ours.squared_bound(huge, torch.ones(1, 6)))


def test_weights_may_be_changed_replaced_and_copied() -> None:
    ours, theirs = pair(8, 2, 8, 12)
    x = torch.randn(2, 8, 5)
    ours.weights.mul_(0.5)
    theirs.weights.mul_(0.5)
    assert_near(ours.forward(x), theirs.forward(x))
    ours.weights = theirs.weights.clone().mul_(1.5)
    twin = copy.deepcopy(ours)
    theirs.weights.mul_(1.5)
    assert_near(ours.forward(x), theirs.forward(x))
    ours.weights.zero_()
    assert_near(twin.forward(x), theirs.forward(x))


def test_a_gradient_that_is_too_long_moves_nothing() -> None:
    ours, theirs = pair(8, 2, 8, 12)
    x, pull = torch.randn(3, 8, 5), torch.randn(3, 6)
    gradient = theirs.gradient(theirs.trace(x), pull)
    length, before = float(gradient.norm()), ours.weights.clone()
    for spoilt, largest in ((pull, 0.999 * length), (pull * math.nan, 1e15), (pull * math.inf, 1e15)):
        trace = ours.trace(x)
        assert isinstance(trace, NativeTrace)
        assert not ours.descend(trace, spoilt, Move(0.1), largest)
        assert torch.equal(ours.weights, before)
    # The bound alone would refuse this one.
    trace = ours.trace(x)
    assert isinstance(trace, NativeTrace)
    assert ours.squared_bound(trace, pull) > (1.001 * length) ** 2
    assert ours.descend(trace, pull, Move(0.1), 1.001 * length)
    assert_near(ours.weights, before - 0.1 * gradient)


def test_float64_is_left_to_torch() -> None:
    net = tcn(Task(4, 1, 1), torch.Generator(), CPU, width=2, depth=1, top=2, dtype=torch.float64)
    assert type(net) is ConeTCN
