"""Compiled learners in one call of C: each is what it would be alone, and so is its state."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import ClassVar

import pytest
import torch
from tests.fleet.streams import SMALL, TASK, farthest, made, moments, parts, spoilt, taken, wave

from natsr.fleet import Apart, Compiled, Learners, best
from natsr.fleet.choice import Way, beside, chosen
from natsr.fleet.crew import Crew
from natsr.forecasters import neural
from natsr.forecasters.base import Forecaster
from natsr.forecasters.neural import NeuralForecaster
from natsr.native import many
from natsr.native.build import SWITCH, NativeError
from natsr.native.calls import library
from natsr.native.many import Turn, check_sizes
from natsr.recipes import make
from natsr.trials import contents, differing
from natsr.types import Example, Option, OptionError, ProtocolName, ShapeError, Task

METHODS = ("frozen", "ogd", "er", "derpp", "natsr", "natsr_fast")
#: Both ways run the same C on the same numbers; forecasts are of the order of one.
CLOSE = 2e-3

needs_c = pytest.mark.skipif(library() is None, reason="there is no C compiler here, or C is switched off")


def counts(forecaster: Forecaster) -> tuple[int, int, int, int]:
    assert isinstance(forecaster, NeuralForecaster)
    return forecaster.steps, forecaster.refused, forecaster.refreshes, forecaster.restored


def same_counts(alone: Sequence[Forecaster], fleet: Learners) -> None:
    assert [counts(fleet.release(number)) for number in range(len(fleet))] == [counts(one) for one in alone]
    infos = [set(fleet.info(number)) for number in range(len(fleet))]
    assert infos == [set(one.info()) for one in alone]


@needs_c
@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("method", METHODS)
def test_learners_in_one_call_are_learners_alone(method: str, protocol: ProtocolName) -> None:
    alone, fleet = made(method, "float32"), Compiled(made(method, "float32"), threads=2)
    assert farthest(alone, fleet, moments(protocol)) < CLOSE
    same_counts(alone, fleet)


@needs_c
def test_a_warm_up_and_one_thread() -> None:
    alone, fleet = made("natsr", "float32"), Compiled(made("natsr", "float32"))
    for seed, forecaster in enumerate(alone):
        forecaster.warm_up(*parts(wave(seed)))
    fleet.warm_up([parts(wave(seed)) for seed in range(3)])
    assert farthest(alone, fleet, moments()[:12]) < CLOSE


@needs_c
@pytest.mark.parametrize("method", ["derpp", "natsr", "natsr_fast"])
def test_a_learner_leaves_and_comes_back_with_its_state(method: str) -> None:
    fleet, stream = Compiled(made(method, "float32"), threads=2), moments()
    for moment in stream[:20]:
        fleet.learn([step.matured for step in moment])
    alone = made(method, "float32")
    for number, forecaster in enumerate(alone):
        forecaster.load_state_dict(fleet.state_dict(number))
    other = Compiled(made(method, "float32"))
    for number, forecaster in enumerate(alone):
        other.load_state_dict(number, forecaster.state_dict())
        assert not differing(contents(forecaster.state_dict()), contents(other.state_dict(number)))
    assert farthest(alone, other, stream[20:]) < CLOSE
    same_counts(alone, other)


@needs_c
def test_who_has_no_example_stays_as_it_is_to_the_bit() -> None:
    fleet, stream = Compiled(made("natsr", "float32"), threads=2), moments()
    for moment in stream[:10]:
        fleet.learn([step.matured for step in moment])
    before = [contents(fleet.state_dict(number)) for number in range(3)]
    fleet.learn([None, stream[10][1].matured, None])
    after = [contents(fleet.state_dict(number)) for number in range(3)]
    assert not differing(before[0], after[0]) and not differing(before[2], after[2])
    assert differing(before[1], after[1])
    fleet.learn([None, None, None])
    unknown = stream[10][1].matured
    assert unknown is not None
    fleet.learn([None, Example(unknown.window, torch.full_like(unknown.target, torch.nan)), None])
    assert not differing(after[1], contents(fleet.state_dict(1)))


@needs_c
def test_forecasting_changes_nothing_and_takes_any_number_of_windows() -> None:
    alone, fleet, stream = made("er", "float32"), Compiled(made("er", "float32"), threads=2), moments()
    farthest(alone, fleet, stream[:6])
    before = [contents(fleet.state_dict(number)) for number in range(3)]
    several = torch.cat([step.window for step in stream[6]])
    first = fleet.forecast([several, None, several[:1]])
    again = fleet.forecast([several[:1].double(), None, None])
    assert first[0] is not None and first[1] is None and first[2] is not None and again[0] is not None
    assert first[0].mean.shape == (3, TASK.horizon, TASK.channels)
    torch.testing.assert_close(first[0].mean, alone[0].forecast(several).mean, rtol=0, atol=CLOSE)
    torch.testing.assert_close(first[2].mean, alone[2].forecast(several[:1]).mean, rtol=0, atol=CLOSE)
    # One window and several are not cut into the same tiles, so some machines round them differently.
    torch.testing.assert_close(again[0].mean, first[0].mean[:1], rtol=0, atol=1e-5)
    assert again[2] is None
    assert fleet.forecast([None] * 3) == [None] * 3
    assert all(not differing(before[number], contents(fleet.state_dict(number))) for number in range(3))


@needs_c
@pytest.mark.parametrize("method", ["derpp", "natsr"])
def test_a_window_that_is_no_number_refuses_one_learner_and_leaves_the_others(method: str) -> None:
    alone, fleet, stream = made(method, "float32"), Compiled(made(method, "float32"), threads=2), moments()
    assert farthest(alone, fleet, stream[:16]) < CLOSE
    examples = [step.matured for step in stream[16]]
    wild = examples[1]
    assert wild is not None
    examples[1] = Example(torch.full_like(wild.window, torch.nan), wild.target, wild.fresh)
    before = contents(fleet.state_dict(1)["weights"])
    for forecaster, example in zip(alone, examples, strict=True):
        assert example is not None
        forecaster.learn(example)
    fleet.learn(examples)
    assert not differing(before, contents(fleet.state_dict(1)["weights"]))
    assert fleet.info(1)["refused"] == 1 and fleet.info(0)["refused"] == 0
    assert farthest(alone, fleet, stream[17:26]) < CLOSE
    same_counts(alone, fleet)


@needs_c
def test_a_learner_that_goes_astray_is_restored_alone() -> None:
    own: tuple[dict[str, Option], ...] = ({"rate": 1e-3}, {"rate": 50.0}, {"rate": 1e-3})
    alone, fleet = made("ogd", "float32", own), Compiled(made("ogd", "float32", own), threads=2)
    farthest(alone, fleet, moments())
    same_counts(alone, fleet)
    restored = [counts(one)[3] for one in alone]
    assert restored[1] > 0 and restored[0] == restored[2] == 0


@needs_c
@pytest.mark.parametrize("method", ["ogd", "natsr_fast"])
def test_a_learner_gone_astray_forgets_the_gradients_that_led_there(method: str) -> None:
    alone, fleet, stream = made(method, "float32"), Compiled(made(method, "float32"), threads=2), moments()
    assert farthest(alone, fleet, stream[:12]) < CLOSE
    wild = spoilt(fleet.state_dict(1))
    fleet.load_state_dict(1, wild)
    alone[1].load_state_dict(wild)
    assert farthest(alone, fleet, stream[12:22]) < CLOSE
    same_counts(alone, fleet)
    remembered = [taken(fleet.state_dict(number)) for number in range(3)]
    assert remembered == [taken(one.state_dict()) for one in alone]
    assert counts(alone[1])[3] == 1 and 0 < remembered[1] < 10 < remembered[0]


@needs_c
def test_a_refresh_of_a_refused_step_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own: tuple[dict[str, Option], ...] = ({"every": 3}, {"every": 4}, {"every": 1})
    alone, fleet, stream = made("natsr", "float32", own), Compiled(made("natsr", "float32", own)), moments()
    assert farthest(alone, fleet, stream[:10]) < CLOSE
    before = [contents(fleet.state_dict(number)["natural"]) for number in range(3)]
    longest = [fleet._records[number].largest for number in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(neural, "LARGEST", 0.0)  # now every step is too long to be taken, whatever it refreshes
        for number in range(3):
            fleet._records[number].largest = 0.0
        assert farthest(alone, fleet, stream[10:15]) < CLOSE
    for number, length in enumerate(longest):
        fleet._records[number].largest = length
    assert not any(differing(before[n], contents(fleet.state_dict(n)["natural"])) for n in range(3))
    assert [counts(one)[1] for one in alone] == [5, 5, 5]
    assert farthest(alone, fleet, stream[15:25]) < CLOSE
    same_counts(alone, fleet)


@needs_c
def test_a_gradient_is_measured_where_its_bound_does_not_say_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, fleet, stream = made("ogd", "float32"), Compiled(made("ogd", "float32")), moments()
    # From lengths that no gradient stays below to lengths that even the bound does, and both in between.
    for turn, moment in enumerate(stream[4:34]):
        longest = 10 ** (turn / 6 - 2.5)
        monkeypatch.setattr(neural, "LARGEST", longest)
        for number in range(3):
            fleet._records[number].largest = longest
        assert farthest(alone, fleet, [moment]) < CLOSE
    same_counts(alone, fleet)
    refused = [counts(one)[1] for one in alone]
    assert all(0 < count < 30 for count in refused)


@needs_c
@pytest.mark.parametrize("anchor", ["none", "output", "last"])
def test_longer_windows_than_the_network_reads(anchor: str) -> None:
    task = Task(window=6, horizon=2, channels=1, features=1, season=10)
    options = {**SMALL, "anchor": anchor}
    alone = [make("er", task, seed=seed, options=options) for seed in range(2)]
    fleet = Compiled([make("er", task, seed=seed, options=options) for seed in range(2)])
    generator = torch.Generator().manual_seed(0)
    for turn in range(8):
        windows = [5 + torch.randn(1, 10, 2, generator=generator) for _ in range(2)]
        if turn == 4:
            windows[0][0, 3, 0] = 1e4  # is cut
        examples = [Example(window, 5 + torch.randn(1, 2, 1, generator=generator)) for window in windows]
        for forecaster, example in zip(alone, examples, strict=True):
            forecaster.learn(example)
        fleet.learn(examples)
    window = 5 + torch.randn(1, 10, 2, generator=generator)
    for forecaster, forecast in zip(alone, fleet.forecast([window, window]), strict=True):
        assert forecast is not None
        torch.testing.assert_close(forecaster.forecast(window).mean, forecast.mean, rtol=0, atol=CLOSE)


@needs_c
def test_learners_join_as_they_come() -> None:
    alone, come, stream = made("natsr", "float32"), made("natsr", "float32"), moments()
    fleet = Compiled(come[:1], threads=2)
    for count, moment in enumerate(stream[:18]):
        if count in (6, 12):
            fleet.join([come[len(fleet)]])
        present = len(fleet)
        for forecaster, step in zip(alone[:present], moment, strict=False):
            if step.matured is not None:
                forecaster.learn(step.matured)
        fleet.learn([step.matured for step in moment[:present]])
    assert farthest(alone, fleet, stream[18:24]) < CLOSE


@needs_c
def test_a_crew_and_the_choice_take_compiled_learners_so() -> None:
    assert Compiled.fits(made("natsr", "float32")) and not Compiled.fits(made("natsr"))
    assert isinstance(Way(0, 1, True).of(made("er", "float32")), Compiled)
    picked = chosen(made("er", "float32"), threads=1)
    assert picked.compiled == (picked.size == 0)
    crew = Crew("apart", threads=2)
    seats = [crew.join(forecaster) for forecaster in made("er", "float32")]
    assert isinstance(crew.place(0)[0], Compiled) and crew.stepping == "apart"
    crew.learn({1: Example(torch.zeros(1, TASK.window, TASK.inputs), torch.zeros(1, TASK.horizon, TASK.channels))})
    assert [counts(crew.place(seat.number)[0].release(seat.number))[0] for seat in seats] == [0, 1, 0]


@needs_c
@needs_c
def test_steps_that_end_otherwise_go_in_one_call_too() -> None:
    """NatSR's plain steps and those of its fast variant, which go through AdamW."""
    pair = [make(method, TASK, options=SMALL) for method in ("natsr", "natsr_fast")]
    assert Compiled.fits(pair)
    fleet, alone = Compiled(pair), [make(method, TASK, options=SMALL) for method in ("natsr", "natsr_fast")]
    assert farthest(alone, fleet, [moment[:2] for moment in moments()]) < CLOSE
    same_counts(alone, fleet)
    others = [make("ogd", TASK, options=SMALL), make("natsr", TASK, options=SMALL)]
    assert beside(others) == others and beside(alone[:1]) == alone[:1]
    assert all(one not in alone for one in beside(alone))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OptionError, match="not compiled"):
        Compiled(made("er"))
    with pytest.raises(OptionError, match="threads is 0"):
        Compiled(made("er", "float32"), threads=0)
    fleet = Compiled(made("er", "float32"))
    with pytest.raises(OptionError, match="of the same shape"):
        fleet.join(made("ogd", "float32"))
    with pytest.raises(OptionError, match="got 1 for 3"):
        fleet.learn([None])
    with pytest.raises(ShapeError, match="window has shape"):
        fleet.forecast([torch.zeros(1, 2, 3), None, None])
    short = Example(torch.zeros(1, TASK.window, TASK.inputs), torch.zeros(1, TASK.horizon - 1, TASK.channels))
    with pytest.raises(ShapeError, match="target has shape"):
        fleet.learn([None, short, None])


@needs_c
def test_structures_have_the_sizes_that_c_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = library()
    assert compiled is not None
    check_sizes(compiled)

    class Longer(Turn):
        _fields_: ClassVar[list[tuple[str, type]]] = [("more", ctypes.c_int64)]

    monkeypatch.setattr(many, "Turn", Longer)
    check_sizes.cache_clear()
    with pytest.raises(NativeError, match="of two versions; install it again"):
        Compiled(made("er", "float32"))


def test_without_c_learners_are_stepped_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    forecasters = made("er", "float32")
    assert not Compiled.fits(forecasters)
    assert not isinstance(best(forecasters, threads=1), Compiled)
    crew = Crew("apart")
    crew.join(made("er", "float32")[0])
    assert isinstance(crew.place(0)[0], Apart)
    with pytest.raises(OptionError, match="not compiled"):
        Compiled(made("er", "float32"))


FORKED = """
import os, sys
import torch
from natsr import Task, make
from natsr.fleet import Compiled
from natsr.types import Example

task = Task(window=8, horizon=2, channels=1)
small = {"width": 8, "top": 8, "depth": 2}
fleet = Compiled([make("er", task, seed=seed, options=small) for seed in range(5)], threads=3)
example = Example(torch.ones(1, 8, 1), torch.ones(1, 2, 1))

def stepped():
    fleet.learn([example] * 5)
    return sum(answer is not None for answer in fleet.forecast([example.window] * 5))

found = [stepped(), stepped()]
if child := os.fork():
    assert os.waitpid(child, 0) == (child, 0)
print(*found, stepped())
sys.stdout.flush()
"""


@needs_c
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked off here")
def test_a_process_that_was_forked_off_has_threads_of_its_own_and_both_end() -> None:
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == ["5 5 5", "5 5 5"]  # the child's, and then its parent's
