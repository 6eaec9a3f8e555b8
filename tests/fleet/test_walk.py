"""FSNet and OneNet with an axis of learners in front must be FSNet and OneNet alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.fleet.streams import ROWS, START, TASK, moments, wave

from natsr.fleet import stepped
from natsr.fleet.school import School
from natsr.fleet.walk import Walk, kind_of, walkers
from natsr.forecasters import stepping
from natsr.forecasters.stepping import SteppingForecaster
from natsr.nets import adapters
from natsr.recipes import make
from natsr.streams import Windows
from natsr.types import Option, OptionError, ProtocolName

SMALL: dict[str, Option] = {"width": 6, "depth": 3, "top": 12, "epochs": 2, "dtype": "float64"}
KINDS = ("fsnet", "onenet")


def made(kind: str, dropout: bool = False, **options: Option) -> list[SteppingForecaster]:
    """Three learners, the second of which has absolute errors for a loss; nothing is dropped unless asked for."""
    own: dict[str, Option] = {**SMALL, **options}
    if kind == "onenet" and not dropout:
        own["mixing_dropout"] = 0.0
    names = (kind, f"{kind}_mae", kind)
    found = []
    for seed, name in enumerate(names):
        forecaster = make(name, TASK, seed=seed, options={"rate": 1e-3 * (seed + 1), **own})
        assert isinstance(forecaster, SteppingForecaster)
        if not dropout:
            forecaster.warm = replace(forecaster.warm, dropout=0.0)
        found.append(forecaster)
    return found


_LIBRARY = torch.optim.AdamW


def _plain(*args: Any, **options: Any) -> torch.optim.AdamW:
    return _LIBRARY(*args, **{**options, "fused": False})


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's fused AdamW corrects its averages in float32, which normalised gradients blow up."""
    monkeypatch.setattr(torch.optim, "AdamW", _plain)


def alone(forecasters: Sequence[SteppingForecaster], protocol: ProtocolName) -> np.ndarray:
    """Errors of each over its stream, absolute and squared."""
    sums = np.zeros((2, 3, TASK.horizon, TASK.channels))
    for moment in moments(protocol):
        for number, (forecaster, step) in enumerate(zip(forecasters, moment, strict=True)):
            if step.matured is not None:
                forecaster.learn(step.matured)
            assert step.target is not None
            error = (step.target - forecaster.forecast(step.window).mean)[0].double().numpy()
            sums[0, number] += np.nan_to_num(np.abs(error))
            sums[1, number] += np.nan_to_num(error * error)
    return sums


@pytest.mark.parametrize("protocol", ["honest", "paper", "partial"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_is_each_learner_alone(kind: str, protocol: ProtocolName) -> None:
    """One stream has gaps, one a wild value, so that steps are left out and refused."""
    own, others = made(kind), made(kind)
    walk = Walk(walkers(own), [wave(seed) for seed in range(3)], (START, ROWS), protocol)
    walk.run()
    expected = alone(others, protocol)
    counts, *found = walk.sums()
    assert int(counts[0, 0, 0]) == walk.total == len(moments(protocol))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    for mine, theirs in zip(own, others, strict=True):
        assert (mine.steps, mine.refused, mine.restored) == (theirs.steps, theirs.refused, theirs.restored)
        assert mine.learner.info() == pytest.approx(theirs.learner.info())
        _same(mine.learner.state_dict(), theirs.learner.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_gives_the_sane_copies_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stepping, stepped):
        monkeypatch.setattr(module, "SANE_EVERY", 7)
    own, others = made(kind), made(kind)
    Walk(walkers(own), [wave(seed) for seed in range(3)], (START, ROWS)).run()
    alone(others, "honest")
    for mine, theirs in zip(own, others, strict=True):
        _same(mine.state_dict()["sane"], theirs.state_dict()["sane"])


def test_layers_ask_their_memory_on_a_walk_and_get_what_they_get_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that turn round every few rows make the averages point apart; a little is enough here."""
    monkeypatch.setattr(adapters, "APART", 0.1)
    own, others = made("fsnet", rate=1e-3), made("fsnet", rate=1e-3)
    rows = wave(0)
    rows = rows._replace(truth=rows.truth * torch.tensor([1.0, -1.0])[torch.arange(ROWS) // 4 % 2][:, None] * 5)
    walk = Walk(walkers(own), [rows] * 3, (START, ROWS), "paper")
    walk.run()
    part = Windows(rows, TASK, START, ROWS)
    for index in range(walk.total - 1):
        for forecaster in others:
            forecaster.learn(part.batch(torch.tensor([index])))
    asked = [one.learner.info()["asked"] for one in own]
    assert asked == [one.learner.info()["asked"] for one in others]
    assert max(asked) > 0
    for mine, theirs in zip(own, others, strict=True):
        _same(mine.learner.state_dict(), theirs.learner.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_walk_that_leads_astray_is_put_back(kind: str) -> None:
    own, others = made(kind, rate=30.0), made(kind, rate=30.0)
    for forecaster in (*own, *others):
        forecaster.frame = replace(forecaster.frame, limit=0.5)
    walk = Walk(walkers(own), [wave(0)] * 3, (START, ROWS), "paper")
    walk.run()
    part = Windows(wave(0), TASK, START, ROWS)
    for index in range(walk.total - 1):
        for forecaster in others:
            forecaster.learn(part.batch(torch.tensor([index])))
    assert sum(one.restored for one in own) > 0
    assert [one.restored for one in own] == [one.restored for one in others]
    remembered = [_remembered(one.learner.state_dict()) for one in own]
    assert remembered == [_remembered(one.learner.state_dict()) for one in others]
    for taken, one in zip(remembered, own, strict=True):
        assert max(taken, default=0) < one.steps - one.refused - one.restored


@pytest.mark.parametrize("kind", KINDS)
def test_school_teaches_them_what_a_warm_up_teaches(kind: str) -> None:
    """Where a batch holds all examples and nothing is dropped there is nothing random."""
    rows, train = wave(0), TASK.window + TASK.horizon + 31
    own, others = made(kind, epochs=6), made(kind, epochs=6)
    own[2].warm, others[2].warm = (replace(one[2].warm, epochs=3) for one in (own, others))
    group = walkers(own)
    school = School(group, [rows] * 3, (train, START))
    assert (school.batches, school.epochs) == (1, 6)
    school.run()
    group.give_back()
    for mine, theirs in zip(own, others, strict=True):
        theirs.warm_up(Windows(rows, TASK, 0, train), Windows(rows, TASK, train, START))
        _same(mine.learner.state_dict(), theirs.learner.state_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_a_learner_is_the_same_whoever_is_beside_it(kind: str) -> None:
    """With everything dropped that may be: the masks are each learner's own."""
    both, one = made(kind, dropout=True), made(kind, dropout=True)[1:2]
    sums = []
    for forecasters in (both, one):
        group = walkers(forecasters)
        School(group, [wave(0)] * len(forecasters), (60, START)).run()
        walk = Walk(group, [wave(0)] * len(forecasters), (START, ROWS))
        walk.run()
        sums.append(walk.sums())
    for many, single in zip(*sums, strict=True):
        np.testing.assert_allclose(many[1], single[0], rtol=1e-9)


def test_only_learners_of_one_shape_walk_together() -> None:
    wider = make("fsnet", TASK, options={**SMALL, "width": 4})
    for others in ([wider], made("onenet")[:1], [make("ogd", TASK)], [make("last_value", TASK)]):
        assert kind_of(others[0]) != kind_of(made("fsnet")[0])
        with pytest.raises(OptionError, match="one shape"):
            walkers([*made("fsnet"), *others])
    assert len({kind_of(one) for one in made("fsnet")}) == len({kind_of(one) for one in made("onenet")}) == 1


def _same(mine: object, theirs: object) -> None:
    """Equal to rounding, whatever they are made of."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        for name in mine:
            _same(mine[name], theirs[name])
    elif isinstance(mine, list) and isinstance(theirs, list):
        for one, other in zip(mine, theirs, strict=True):
            _same(one, other)
    elif isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-7, atol=1e-9)
    else:
        assert mine == theirs


def _remembered(state: object) -> list[int]:
    """How many steps each optimiser of a learner remembers; those that were never asked are not among them."""
    if not isinstance(state, dict):
        return []
    here = [int(state["step"])] if "step" in state else []
    return [*here, *(number for part in state.values() for number in _remembered(part))]
