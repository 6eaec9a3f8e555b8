"""What only a GPU can show; without one all of it is left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.fleet.streams import NATURAL, PLAIN, ROWS, SMALL, START, TASK, WARM, wave

from natsr.fleet import journey, stream
from natsr.fleet.loop import Loop
from natsr.fleet.school import School
from natsr.fleet.together import Together
from natsr.fleet.walk import Walk, walkers
from natsr.native import cuda
from natsr.recipes import make
from natsr.types import ProtocolName

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]
METHODS = ("ogd", "er", "derpp", "natsr", "natsr_fast")


def fleet_of(method: str, device: str = "cuda", dtype: str = "float32") -> Together:
    own = NATURAL if method.startswith("natsr") else PLAIN
    options = [{**SMALL, "dtype": dtype, **some} for some in own]
    return Together([make(method, TASK, seed=seed, options=some, device=device) for seed, some in enumerate(options)])


def sums_of(fleet: Together, protocol: ProtocolName = "honest") -> tuple[np.ndarray, ...]:
    loop = Loop(fleet, [wave(0)] * 3, (START, ROWS), protocol)
    loop.run()
    return loop.sums()


@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("method", METHODS)
def test_a_recorded_loop_is_the_loop_at_once(
    method: str, protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = sums_of(fleet_of(method), protocol)
    monkeypatch.setattr(journey, "_AT_ONCE", 10**9)
    for one, other in zip(recorded, sums_of(fleet_of(method), protocol), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


def walked(kind: str, device: str = "cuda") -> tuple[np.ndarray, ...]:
    """FSNet and OneNet, taught and then on their way."""
    small = {"width": 6, "depth": 3, "top": 12, "epochs": 2}
    names = (kind, f"{kind}_mae", kind)
    group = walkers([make(name, TASK, seed=seed, options=small, device=device) for seed, name in enumerate(names)])
    School(group, [wave(0)] * 3, (WARM, START)).run()
    walk = Walk(group, [wave(0)] * 3, (START, ROWS))
    walk.run()
    return walk.sums()


@pytest.mark.parametrize("kind", ["fsnet", "onenet"])
def test_a_recorded_walk_is_the_walk_at_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = walked(kind)
    assert all(np.isfinite(part).all() for part in recorded)
    monkeypatch.setattr(journey, "_AT_ONCE", 10**9)
    for one, other in zip(recorded, walked(kind), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


@pytest.mark.parametrize("protocol", ["honest", "partial"])
def test_the_forecasts_that_are_kept_are_those_that_are_counted(
    protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come over chunk by chunk, while the loop goes on."""
    monkeypatch.setattr(stream, "CHUNK", 4)
    loop = Loop(fleet_of("natsr"), [wave(0)] * 3, (START, ROWS), protocol, keep=True)
    loop.run()
    truth = wave(0).truth.unfold(0, TASK.horizon, 1).transpose(1, 2)[loop.first + 1 :][: loop.total].numpy()
    for number, absolute in enumerate(loop.sums()[1]):
        means, variances = loop.forecasts(number)
        np.testing.assert_allclose(np.abs(truth - means).sum(0), absolute, rtol=1e-4)
        assert variances is not None and variances.shape == (loop.total,) and len(set(variances.tolist())) > 1


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("method", METHODS)
def test_the_host_waits_for_nothing_when_it_asks_for_a_chunk(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else groups that go along beside each other would wait for the slowest of them."""
    monkeypatch.setattr(stream, "CHUNK", 10)
    loop = Loop(fleet_of(method), [wave(0)] * 3, (START, ROWS))
    assert loop.advance() and loop.advance()
    torch.cuda.set_sync_debug_mode("error")
    try:
        assert loop.advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    loop.run()


@pytest.mark.parametrize("method", ["er", "natsr"])
def test_pieces_are_the_whole(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sums_of(fleet_of(method))
    monkeypatch.setattr(cuda, "library", lambda: None)
    for one, other in zip(whole, sums_of(fleet_of(method)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


def test_the_step_is_the_same_on_both_devices() -> None:
    """OGD draws nothing, so that a GPU and a CPU must agree to rounding."""
    for one, other in zip(sums_of(fleet_of("ogd")), sums_of(fleet_of("ogd", "cpu")), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)


@pytest.mark.parametrize("width", [6, 64])
def test_kernels_between_the_products_are_those_of_torch(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cuda.library() is not None or pytest.skip("there is no nvcc")
    made = [make("ogd", TASK, seed=seed, options={**SMALL, "width": width}, device="cuda") for seed in range(3)]
    fleet = Together(made)
    window = torch.randn(3, 5, TASK.window, TASK.inputs, device="cuda")
    grads = torch.randn(3, 2, 4, TASK.outputs, device="cuda")

    def pulled() -> list[torch.Tensor]:
        trace = fleet.net.trace(window)
        found = fleet.net.pulled(trace.first(4), grads)
        return [trace.output.clone(), *(part.clone() for part in (*found, *trace.inputs))]

    ours = pulled()
    monkeypatch.setattr(cuda, "library", lambda: None)
    for one, other in zip(ours, pulled(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_school_on_a_gpu_teaches_what_it_teaches_on_a_cpu() -> None:
    """The draws differ, the schedule is the same: both end far from where they began, and near each other in error."""
    errors = []
    for device in ("cuda", "cpu"):
        fleet = fleet_of("er", device)
        before = fleet.net.weights.clone()
        School(fleet, [wave(0)] * 3, (WARM, START)).run()
        assert not torch.equal(before, fleet.net.weights) and bool(fleet.net.weights.isfinite().all())
        errors.append(sums_of(fleet)[1].sum())
    assert errors[0] == pytest.approx(errors[1], rel=0.2)
