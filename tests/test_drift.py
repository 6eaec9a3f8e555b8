"""Drift: rarely flagged where nothing changes, soon where something does, and with the right beginning."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from natsr.drift import Drift
from natsr.types import StateError

Array = npt.NDArray[np.float64]


def walked(drift: Drift, sizes: Array, start: int = 0) -> list[int | None]:
    """`since` after each row."""
    found = []
    for row, size in enumerate(sizes, start):
        drift.update(size, at=row)
        found.append(drift.since)
    return found


def autoregressive(rows: int, noise: Array, pull: float = 0.9) -> Array:
    values = np.zeros_like(noise)
    for row in range(1, rows):
        values[row] = pull * values[row - 1] + noise[row]
    return values


def ahead(values: Array, horizon: int, pull: float = 0.9) -> Array:
    """Mean absolute error over the steps of the best forecasts of an autoregression, by the row they are about."""
    errors = [np.abs(values[horizon:] - pull**h * values[horizon - h : -h]) for h in range(1, horizon + 1)]
    found: Array = np.mean(errors, axis=0)
    return found


STATIONARY: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda g, n: np.abs(g.normal(size=(n, 3))),
    "heavy tails": lambda g, n: np.abs(g.standard_t(2, size=(n, 3))),
    "autoregression, 12 ahead": lambda g, n: ahead(autoregressive(n, g.normal(size=(n, 3))), 12),
    "season": lambda g, n: np.abs(g.normal(size=(n, 3))) * (1.5 + np.sin(np.arange(n) * math.tau / 24))[:, None],
    "mostly nothing": lambda g, n: np.where(g.uniform(size=(n, 3)) < 0.9, 0.0, np.abs(g.normal(size=(n, 3)))),
}


@pytest.mark.parametrize("kind", STATIONARY)
def test_false_alarms_are_rare(kind: str) -> None:
    drift = Drift(3)
    walked(drift, STATIONARY[kind](np.random.default_rng(0), 10_000))
    assert drift.alarms <= 2


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "autoregression, 12 ahead"])
def test_larger_errors_are_told_soon_and_since_when(kind: str) -> None:
    sizes = STATIONARY[kind](np.random.default_rng(1), 2200)[:2000]
    sizes[1500:] *= 4
    drift = Drift(3)
    since = walked(drift, sizes)
    first = next(row for row, at in enumerate(since) if at is not None)
    assert 1500 < first < 1700
    began = since[first]
    assert began is not None and 1400 <= began <= 1560


def test_the_flag_falls_when_the_new_size_has_become_usual() -> None:
    sizes = np.abs(np.random.default_rng(2).normal(size=(8000, 1)))
    sizes[2000:] *= 5
    drift = Drift(1)
    since = walked(drift, sizes)
    assert since[2200] is not None and since[-1] is None and drift.alarms == 1


def test_one_wild_row_is_no_drift_and_smaller_errors_are_none() -> None:
    sizes = np.abs(np.random.default_rng(3).normal(size=(3000, 1)))
    sizes[1000] = 1e9
    sizes[2000:] *= 0.1
    drift = Drift(1)
    walked(drift, sizes)
    assert drift.alarms == 0


def test_one_channel_of_many_is_enough_and_missing_rows_are_nothing() -> None:
    sizes = np.abs(np.random.default_rng(4).normal(size=(2500, 8)))
    sizes[::3] = math.nan
    sizes[1500:, 5] *= 8
    drift = Drift(8)
    since = walked(drift, sizes)
    first = next(row for row, at in enumerate(since) if at is not None)
    assert 1500 < first < 1800


def test_a_state_goes_on_bit_for_bit_and_a_foreign_one_is_refused() -> None:
    sizes = np.abs(np.random.default_rng(5).normal(size=(1600, 2)))
    sizes[1000:] *= 5
    whole, after = Drift(2), Drift(2)
    walked(whole, sizes[:1007])
    after.load_state_dict(whole.state_dict())
    assert walked(whole, sizes[1007:], 1007) == walked(after, sizes[1007:], 1007)
    assert whole.alarms == after.alarms == 1
    with pytest.raises(StateError, match="lacks since or alarms"):
        after.load_state_dict({})
    with pytest.raises(StateError, match=r"total of the drift is \(3,\), expected an array of shape \(2,\)"):
        after.load_state_dict(Drift(3).state_dict())


# ---- signs in single rows ----------------------------------------------------------------------------------------

FIRST, SECOND = {"one": 0.9, "other": 0.1}, {"one": 0.3, "other": 0.7}


def shown(drift: Drift, rows: Array, expected: Array, change: int = 10**9) -> list[tuple[int, int | None]]:
    """Each alarm: the row at which it came, and the one since when; weights are others from `change` on."""
    found = []
    for at, (row, said) in enumerate(zip(rows, expected, strict=True)):
        before = drift.alarms
        weights: Callable[[], dict[str, float]] = partial(dict, FIRST if at < change else SECOND)
        drift.update(np.abs(row - said), at, row, said, weights)
        if drift.alarms > before:
            found.append((at, drift.since))
    return found


def noise(rows: int = 1500, seed: int = 0) -> Array:
    found: Array = np.random.default_rng(seed).normal(size=(rows, 2))
    return found


def test_a_level_that_a_forecaster_follows_at_once_is_told() -> None:
    rows, expected = noise(), np.zeros((1500, 2))
    rows[1000:] += 12.0
    expected[1001:] += 12.0
    assert shown(Drift(2), rows, expected) == [(1006, 1000)]
    alone = Drift(2)
    walked(alone, np.abs(rows - expected))
    assert alone.alarms == 0  # one large error is none by its size


@pytest.mark.parametrize("followed", [False, True])
def test_one_wild_row_is_no_new_level_whether_the_forecast_follows_it_or_not(followed: bool) -> None:
    rows, expected = noise(), np.zeros((1500, 2))
    rows[1000] += 30.0
    expected[1001] += 30.0 if followed else 0.0
    assert shown(Drift(2), rows, expected) == []


def test_a_new_level_is_told_across_missing_rows() -> None:
    rows, expected = noise(), np.zeros((1500, 2))
    rows[1000:] += 12.0
    expected[1001:] += 12.0
    rows[1002:1005] = math.nan
    assert shown(Drift(2), rows, expected) == [(1009, 1000)]


def test_weights_confirm_a_burst_and_neither_is_anything_alone() -> None:
    rows, quiet = noise(), np.zeros((1500, 2))
    burst = rows.copy()
    burst[1000:1008] = 4.0 * (-1.0) ** np.arange(8)[:, None]
    assert shown(Drift(2), burst, quiet) == []
    assert shown(Drift(2), rows, quiet, change=1015) == []
    ((told, since),) = shown(Drift(2), burst, quiet, change=1015)
    assert 1015 <= told < 1030 and since is not None and 990 <= since <= 1002


def test_the_flag_for_a_single_sign_falls_after_a_while() -> None:
    rows, expected = noise(), np.zeros((1500, 2))
    rows[1000:] += 12.0
    expected[1001:] += 12.0
    drift = Drift(2)
    shown(drift, rows[:1100], expected[:1100])
    assert drift.since == 1000
    shown(drift, rows[1100:1200], expected[1100:1200])
    assert drift.since is None


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "wild rows"])
def test_single_rows_raise_no_false_alarms_where_nothing_changes(kind: str) -> None:
    generator = np.random.default_rng(12)
    rows = generator.standard_t(2, size=(10_000, 2)) if kind == "heavy tails" else generator.normal(size=(10_000, 2))
    rows[generator.uniform(size=rows.shape) < (0.01 if kind == "wild rows" else 0.0)] *= 20
    assert len(shown(Drift(2), rows, np.zeros(rows.shape))) <= 1


def test_signs_go_on_bit_for_bit_and_a_state_without_them_is_taken() -> None:
    rows, expected = noise(seed=5), np.zeros((1500, 2))
    rows[1000:] += 12.0
    expected[1001:] += 12.0
    whole, after = Drift(2), Drift(2)
    shown(whole, rows[:1003], expected[:1003])
    after.load_state_dict(whole.state_dict())
    for drift in (whole, after):
        shown(drift, rows[1003:], expected[1003:])
    assert whole.alarms == after.alarms == 1
    states = [drift.state_dict()["signs"] for drift in (whole, after)]
    assert str(states[0]) == str(states[1])
    old = {name: value for name, value in whole.state_dict().items() if name != "signs"}
    fresh = Drift(2)
    fresh.load_state_dict(old)
    assert fresh.alarms == 1 and shown(fresh, noise(20), np.zeros((20, 2))) == []
    signs, before = states[0], str(fresh.state_dict())
    assert isinstance(signs, dict)
    for lacking in ("held", "burst", "leaning"):
        with pytest.raises(StateError, match="drift's state lacks"):
            fresh.load_state_dict({**old, "rows": 3, "signs": {**signs, lacking: None}})
        assert str(fresh.state_dict()) == before, "nothing is left half written"


@pytest.mark.parametrize("given", [0, 40, 400])
def test_a_new_level_soon_after_a_warm_up_is_told_by_its_rows(given: int) -> None:
    """Without enough of them nobody knows yet how far off a forecast may be."""
    rows = noise(seed=3)
    rows[450:] += 12.0
    expected = np.zeros(rows.shape)
    expected[451:] += 12.0
    drift = Drift(2)
    drift.begin(rows[400 - given : 400])
    told = shown(drift, rows[400:600], expected[400:600])
    assert [since for _, since in told] == ([] if given < 300 else [50])
