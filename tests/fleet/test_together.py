from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.fleet.streams import SMALL, TASK, farthest, made, moments, parts, spoilt, taken, wave

from natsr.fleet import together
from natsr.fleet.base import Learners
from natsr.fleet.together import Together
from natsr.forecasters import neural
from natsr.forecasters.base import Forecaster
from natsr.forecasters.neural import NeuralForecaster
from natsr.recipes import make
from natsr.trials import contents, differing
from natsr.types import Example, Option, OptionError, ProtocolName, ShapeError, Task

METHODS = ("ogd", "er", "derpp", "natsr", "natsr_fast")


def counts(forecaster: Forecaster) -> tuple[int, int, int, int]:
    assert isinstance(forecaster, NeuralForecaster)
    return forecaster.steps, forecaster.refused, forecaster.refreshes, forecaster.restored


def same_counts(alone: Sequence[Forecaster], fleet: Learners) -> None:
    # `release` brings the fleet's own forecasters up to date; they are other objects than those that ran alone.
    assert [counts(fleet.release(number)) for number in range(len(fleet))] == [counts(one) for one in alone]


@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("method", METHODS)
def test_learners_together_are_learners_alone(method: str, protocol: ProtocolName) -> None:
    alone, fleet = made(method), Together(made(method))
    for seed, forecaster in enumerate(alone):
        forecaster.warm_up(*parts(wave(seed)))
    fleet.warm_up([parts(wave(seed)) for seed in range(3)])
    assert farthest(alone, fleet, moments(protocol)) < 1e-9
    same_counts(alone, fleet)


@pytest.mark.parametrize("method", ["er", "natsr"])
def test_in_float32_they_agree_to_its_rounding(method: str) -> None:
    alone, fleet = made(method, "float32"), Together(made(method, "float32"))
    assert farthest(alone, fleet, moments()[:20]) < 5e-3  # forecasts are of the order of one; measured: 3e-6


def test_a_learner_that_goes_astray_is_restored_alone() -> None:
    own: tuple[dict[str, Option], ...] = ({"rate": 1e-3}, {"rate": 50.0}, {"rate": 1e-3})
    alone, fleet = made("ogd", own=own), Together(made("ogd", own=own))
    assert farthest(alone, fleet, moments()) < 1e-6
    same_counts(alone, fleet)
    restored = [counts(one)[3] for one in alone]
    assert restored[1] > 0 and restored[0] == restored[2] == 0


def test_a_state_without_history_takes_the_place_of_one_with() -> None:
    fleet, stream = Together(made("ogd")), moments()
    fresh = fleet.state_dict(0)
    for moment in stream[:8]:
        fleet.learn([step.matured for step in moment])
    assert taken(fleet.state_dict(0)) > 0
    fleet.load_state_dict(0, fresh)
    assert taken(fleet.state_dict(0)) == 0


@pytest.mark.parametrize("method", ["ogd", "natsr_fast"])
def test_a_learner_gone_astray_forgets_the_gradients_that_led_there(method: str) -> None:
    alone, fleet, stream = made(method), Together(made(method)), moments()
    assert farthest(alone, fleet, stream[:12]) < 1e-9
    wild = spoilt(fleet.state_dict(1))
    fleet.load_state_dict(1, wild)
    alone[1].load_state_dict(wild)
    assert farthest(alone, fleet, stream[12:22]) < 1e-9
    same_counts(alone, fleet)
    remembered = [taken(fleet.state_dict(number)) for number in range(3)]
    assert remembered == [taken(one.state_dict()) for one in alone]
    assert counts(alone[1])[3] == 1 and 0 < remembered[1] < 10 < remembered[0]


@pytest.mark.parametrize("method", ["derpp", "natsr"])
def test_a_window_that_is_no_number_refuses_one_learner_and_leaves_the_others(method: str) -> None:
    alone, fleet = made(method), Together(made(method))
    stream = moments()
    assert farthest(alone, fleet, stream[:16]) < 1e-9
    examples = [step.matured for step in stream[16]]
    assert all(example is not None for example in examples)
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
    assert farthest(alone, fleet, stream[17:26]) < 1e-9
    same_counts(alone, fleet)


def test_a_refresh_of_a_refused_step_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    own: tuple[dict[str, Option], ...] = ({"every": 3}, {"every": 4}, {"every": 1})
    alone, fleet, stream = made("natsr", own=own), Together(made("natsr", own=own)), moments()
    assert farthest(alone, fleet, stream[:10]) < 1e-9
    before = [contents(fleet.state_dict(number)["natural"]) for number in range(3)]
    with monkeypatch.context() as patch:
        patch.setattr(neural, "LARGEST", 0.0)  # now every step is too long to be taken, whatever it refreshes
        patch.setattr(together, "LARGEST", 0.0)
        assert farthest(alone, fleet, stream[10:15]) < 1e-9
    assert not any(differing(before[n], contents(fleet.state_dict(n)["natural"])) for n in range(3))
    assert [counts(one)[1] for one in alone] == [5, 5, 5]
    assert farthest(alone, fleet, stream[15:25]) < 1e-9
    same_counts(alone, fleet)


def test_who_has_no_example_stays_as_it_is_to_the_bit() -> None:
    fleet = Together(made("natsr"))
    stream = moments()
    for moment in stream[:10]:
        fleet.learn([step.matured for step in moment])
    before = [contents(fleet.state_dict(number)) for number in range(3)]
    fleet.learn([None, stream[10][1].matured, None])
    after = [contents(fleet.state_dict(number)) for number in range(3)]
    assert not differing(before[0], after[0]) and not differing(before[2], after[2])
    assert differing(before[1], after[1])
    fleet.learn([None, None, None])
    assert not differing(after[1], contents(fleet.state_dict(1)))


def test_forecasting_changes_nothing() -> None:
    fleet = Together(made("natsr"))
    stream = moments()
    for moment in stream[:6]:
        fleet.learn([step.matured for step in moment])
    before = [contents(fleet.state_dict(number)) for number in range(3)]
    first = fleet.forecast([step.window for step in stream[6]])
    again = fleet.forecast([stream[6][0].window, None, stream[6][2].window])
    assert again[1] is None and first[0] is not None and again[0] is not None
    assert torch.equal(first[0].mean, again[0].mean)
    assert all(not differing(before[number], contents(fleet.state_dict(number))) for number in range(3))


@pytest.mark.parametrize("method", ["derpp", "natsr_fast"])
def test_a_learner_leaves_the_fleet_and_comes_back_with_its_state(method: str) -> None:
    fleet, stream = Together(made(method)), moments()
    for moment in stream[:15]:
        fleet.learn([step.matured for step in moment])
    alone = [made(method)[number] for number in range(3)]
    for number, forecaster in enumerate(alone):
        forecaster.load_state_dict(fleet.state_dict(number))
    other = Together(made(method))
    for number, forecaster in enumerate(alone):
        other.load_state_dict(number, forecaster.state_dict())
        assert not differing(contents(forecaster.state_dict()), contents(other.state_dict(number)))
    assert farthest(alone, other, stream[15:30]) < 1e-9


def test_the_same_example_for_all_is_read_once_and_learned_by_each() -> None:
    alone, fleet = made("natsr"), Together(made("natsr"))
    shared = [(moment[0],) * 3 for moment in moments()]
    assert farthest(alone, fleet, shared[:12]) < 1e-9


def test_learners_of_another_shape_are_refused_by_name() -> None:
    small = {**SMALL, "dtype": "float64"}
    with pytest.raises(OptionError, match="layers"):
        Together([make("er", TASK, options=small), make("er", TASK, options={**small, "width": 9})])
    with pytest.raises(OptionError, match="drops units"):
        Together([make("er", TASK, options={**small, "dropout": 0.1})])
    with pytest.raises(OptionError, match="LastValue"):
        Together([make("last_value", TASK)])
    with pytest.raises(OptionError, match="order before"):
        Together([make("natsr", TASK, options={**small, "order": "before"})])
    with pytest.raises(OptionError, match="at least one"):
        Together([])


def test_a_wrong_number_or_shape_is_refused() -> None:
    fleet = Together(made("er"))
    with pytest.raises(OptionError, match="got 1 for 3"):
        fleet.learn([None])
    with pytest.raises(ShapeError, match="window has shape"):
        fleet.forecast([torch.zeros(1, 2, 3), None, None])


@pytest.mark.parametrize("law", ["paper", "box", "fixed"])
@pytest.mark.parametrize("rule", ["pi", "exact"])
def test_every_damping_law_and_rule(law: str, rule: str) -> None:
    own: tuple[dict[str, Option], ...] = tuple(
        {"law": law, "rule": rule, "beta": beta, "damped": "refresh", "every": 5} for beta in (0.1, 0.5, 1.0)
    )
    alone, fleet = made("natsr", own=own), Together(made("natsr", own=own))
    assert farthest(alone, fleet, moments()[:16]) < 1e-9


@pytest.mark.parametrize("closed", [False, True])
def test_inverses_that_are_kept_while_the_damping_hardly_moves(closed: bool) -> None:
    def drifting() -> list[Forecaster]:
        forecasters = made("natsr")
        for number, forecaster in enumerate(forecasters):
            assert isinstance(forecaster, NeuralForecaster) and forecaster.natural is not None
            changes: dict[str, Any] = {
                "damped": "drift",
                "drift": 0.1 + 0.05 * number,
                "probe": "hadamard",
                "closed": closed,
            }
            forecaster.natural.options = replace(forecaster.natural.options, **changes)
        return forecasters

    alone, fleet = drifting(), Together(drifting())
    stream = moments()
    assert farthest(alone, fleet, stream[:25]) < 1e-9
    other = Together(drifting())
    for number, forecaster in enumerate(alone):
        other.load_state_dict(number, forecaster.state_dict())
    assert farthest(alone, other, stream[25:]) < 1e-9


def test_longer_windows_than_the_network_reads() -> None:
    task = Task(window=6, horizon=2, channels=1, season=10)
    options = {**SMALL, "dtype": "float64", "anchor": "last"}
    alone = [make("er", task, seed=seed, options=options) for seed in range(2)]
    fleet = Together([make("er", task, seed=seed, options=options) for seed in range(2)])
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        examples = [Example(torch.randn(1, 10, 1, generator=generator), torch.randn(1, 2, 1)) for _ in range(2)]
        for forecaster, example in zip(alone, examples, strict=True):
            forecaster.learn(example)
        fleet.learn(examples)
    window = torch.randn(1, 10, 1, generator=generator)
    for forecaster, forecast in zip(alone, fleet.forecast([window, window]), strict=True):
        assert forecast is not None
        torch.testing.assert_close(forecaster.forecast(window).mean, forecast.mean, rtol=0, atol=1e-9)
