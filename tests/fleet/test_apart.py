"""Learners apart, in tiles and by threads: whoever steps them, each is what it would be alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from tests.fleet.streams import SMALL, TASK, made, moments, parts, wave

from natsr.fleet import Apart, Learners, Tiles, best, in_step
from natsr.fleet.apart import Threads
from natsr.fleet.choice import chosen
from natsr.forecasters.base import Forecaster
from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.native import NativeTCN
from natsr.recipes import make
from natsr.trials import contents, differing
from natsr.types import Example, OptionError

WAYS: dict[str, Callable[[Sequence[Forecaster]], Learners]] = {
    "one thread": Apart,
    "two threads": lambda forecasters: Apart(forecasters, threads=2),
    "tiles": lambda forecasters: Tiles(forecasters, size=2),
    "tiles, two threads": lambda forecasters: Tiles(forecasters, size=2, threads=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_however_they_are_stepped_they_forecast_the_same(way: str, dtype: str) -> None:
    alone, fleet = made("natsr", dtype), WAYS[way](made("natsr", dtype))
    fleet.warm_up([parts(wave(seed)) for seed in range(3)])
    for seed, forecaster in enumerate(alone):
        forecaster.warm_up(*parts(wave(seed)))
    for moment in moments()[:16]:
        for forecaster, step in zip(alone, moment, strict=True):
            if step.matured is not None:
                forecaster.learn(step.matured)
        fleet.learn([step.matured for step in moment])
        for forecaster, step, forecast in zip(
            alone, moment, fleet.forecast([step.window for step in moment]), strict=True
        ):
            assert forecast is not None
            off = float((forecaster.forecast(step.window).mean - forecast.mean).abs().max())
            assert off < (1e-9 if dtype == "float64" else 5e-3)
    assert len(fleet) == 3 and fleet.info(2)["refused"] == 0


def test_threads_leave_the_settings_of_torch_as_they_were() -> None:
    threads, kernels = torch.get_num_threads(), torch._C._get_mkldnn_enabled()
    fleet = Apart(made("er"), threads=2)
    for moment in moments()[:5]:
        fleet.learn([step.matured for step in moment])
    assert (torch.get_num_threads(), torch._C._get_mkldnn_enabled()) == (threads, kernels)
    fleet.threads.close()
    fleet.learn([step.matured for step in moments()[5]])
    fleet.threads.close()


def test_what_a_thread_raises_is_raised_here() -> None:
    def fail() -> None:
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError, match="no"):
        Threads(2).run([fail, lambda: None])
    with pytest.raises(OptionError, match="threads is 0"):
        Threads(0)


def test_compiled_learners_share_buffers_and_nothing_else() -> None:
    alone, fleet = made("er", "float32"), made("er", "float32")
    first, second = (forecaster.net for forecaster in fleet[:2] if isinstance(forecaster, NeuralForecaster))
    if not (isinstance(first, NativeTCN) and isinstance(second, NativeTCN)):
        pytest.skip("there is no C compiler here")
    Apart(fleet)
    assert first.context() is second.context()
    window = torch.randn(2, TASK.window, TASK.inputs, generator=torch.Generator().manual_seed(0))
    mine, other = first.trace(window), second.trace(window)
    grad = torch.ones(2, TASK.outputs)
    # The first pass is no longer in the buffers; asked for again, it is made again.
    for net, trace, forecaster in ((first, mine, alone[0]), (second, other, alone[1]), (first, mine, alone[0])):
        assert isinstance(forecaster, NeuralForecaster)
        expected = forecaster.net.gradient(forecaster.net.trace(window), grad)
        torch.testing.assert_close(net.gradient(trace, grad), expected, rtol=1e-4, atol=1e-5)


def test_learners_join_tiles_as_they_come() -> None:
    alone, come = made("natsr"), made("natsr")
    fleet, stream = Tiles(come[:1], size=2), moments()
    for count, moment in enumerate(stream[:18]):
        if count in (6, 12):
            fleet.join([come[len(fleet)]])
        present = len(fleet)
        for forecaster, step in zip(alone[:present], moment, strict=False):
            if step.matured is not None:
                forecaster.learn(step.matured)
        fleet.learn([step.matured for step in moment[:present]])
    for forecaster, forecast in zip(alone, fleet.forecast([step.window for step in stream[18]]), strict=True):
        assert forecast is not None
        window = stream[18][alone.index(forecaster)].window
        torch.testing.assert_close(forecaster.forecast(window).mean, forecast.mean, rtol=0, atol=1e-9)


def test_the_trial_leaves_every_bit_as_it_was() -> None:
    forecasters, stream = made("derpp"), moments()
    for moment in stream[:8]:
        for forecaster, step in zip(forecasters, moment, strict=True):
            if step.matured is not None:
                forecaster.learn(step.matured)
    before = [contents(forecaster.state_dict()) for forecaster in forecasters]
    fleet = best(forecasters, threads=1)
    after = [contents(forecaster.state_dict()) for forecaster in forecasters]
    assert not any(differing(*pair) for pair in zip(before, after, strict=True))
    assert isinstance(fleet, Apart | Tiles) and len(fleet) == 3


def test_what_has_no_batched_step_is_stepped_apart_without_a_trial() -> None:
    assert chosen([make("rls", TASK), make("rls", TASK)], threads=1).size == 0
    assert chosen([make("er", TASK, options=SMALL), make("ogd", TASK, options=SMALL)], threads=1).size == 0
    assert chosen([make("er", TASK, options=SMALL)], threads=1).size == 0


def test_in_step_the_first_that_is_asked_moves_all() -> None:
    alone = made("natsr")
    members = in_step(Tiles(made("natsr"), size=2))
    stream = [moment[0] for moment in moments()[:14]]
    train, valid = parts(wave(0))
    for forecaster, member in zip(alone, members, strict=True):
        forecaster.warm_up(train, valid)
        member.warm_up(train, valid)
    for step in stream:
        for forecaster, member in zip(alone, members, strict=True):
            if step.matured is not None:
                forecaster.learn(step.matured)
                member.learn(step.matured)
            expected = forecaster.forecast(step.window).mean
            torch.testing.assert_close(member.forecast(step.window).mean, expected, rtol=0, atol=1e-9)
    other = in_step(Tiles(made("natsr"), size=2))
    for member, one in zip(members, other, strict=True):
        one.load_state_dict(member.state_dict())
        assert one.info()["refused"] == member.info()["refused"] == 0
    window = stream[-1].window
    assert torch.equal(other[1].forecast(window).mean, members[1].forecast(window).mean)


def test_a_wrong_fleet_is_refused() -> None:
    with pytest.raises(OptionError, match="at least one learner"):
        Apart([])
    with pytest.raises(OptionError, match="size is 0"):
        Tiles(made("er"), size=0)
    with pytest.raises(OptionError, match="got 1 for 3"):
        Apart(made("er")).learn([Example(torch.zeros(1), torch.zeros(1))])
