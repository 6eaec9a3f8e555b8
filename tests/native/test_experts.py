"""Experts in C and the same experts in NumPy: forecasts, states, copies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from natsr.aggregate import Pooling
from natsr.auto import panel
from natsr.experts.analogs import Analogs, Kind, Measure
from natsr.experts.base import Group
from natsr.experts.layouts import Everything, Lags, Neighbours, Own, Seasons, Turned, Waves
from natsr.experts.least_squares import Knobs, Layout, LeastSquares
from natsr.experts.ledger import YOUNG, by_horizon
from natsr.experts.network import OneStep, Style
from natsr.experts.panel import Panel
from natsr.experts.past import Arrays, Past
from natsr.experts.plain import LastValue, Means, Medians, Seasonal
from natsr.experts.smooth import Smooth, Smoothing
from natsr.experts.swing import Swing
from natsr.mixtures import Layer, Layers
from natsr.native.calls import library
from natsr.types import Task

Array = npt.NDArray[np.float64]
T = TypeVar("T")
CHANNELS, HORIZON = 3, 5
#: What `Jumps` says.
PARTS = ("lift", "begin", "stays", "shift", "offset", "age")


@pytest.fixture(autouse=True)
def needs_a_compiler() -> None:
    if library() is None:
        pytest.skip("there is no C compiler here, or NATSR_NATIVE is 0")


def pair(monkeypatch: pytest.MonkeyPatch, make: Callable[[], T]) -> tuple[T, T]:
    """The same in C and in NumPy."""
    ours = make()
    monkeypatch.setenv("NATSR_NATIVE", "0")
    theirs = make()
    monkeypatch.delenv("NATSR_NATIVE")
    return ours, theirs


def stream(count: int, channels: int = CHANNELS, seed: int = 0) -> Array:
    """Waves on a walk, with gaps, a channel that is silent for a while, and wild values."""
    generator = np.random.default_rng(seed)
    rows = np.sin(2 * np.pi * np.arange(count)[:, None] / 6 + np.arange(channels))
    rows = (
        rows + np.cumsum(0.1 * generator.standard_normal(rows.shape), 0) + 0.2 * generator.standard_normal(rows.shape)
    )
    rows[generator.random(rows.shape) < 0.01] *= 20
    rows[generator.random(rows.shape) < 0.03] = np.nan
    rows[count // 2 : count // 2 + 15, 0] = np.nan
    rows[3 * count // 4 :, -1] -= 100  # a counter is reset
    return np.asarray(rows)


def period(rows: int) -> Arrays:
    return {"period": np.array([rows], dtype=np.int64)}


def layouts(day: Arrays) -> dict[str, Layout]:
    lags, waves = Lags(12), Waves((day, period(10)), (3, 1))
    return {
        "own": Own(lags, 12),
        "one lag": Own(lags, 1),
        "seasons": Seasons(Own(lags, 4), (day, period(10)), HORIZON, 5, waves),
        "neighbours": Neighbours(Own(lags, 4), 2, 2, CHANNELS, waves),
        "everything": Everything(Own(lags, 3), CHANNELS, waves),
        "turned": Turned(Own(lags, 4), day),
    }


def assert_close(ours: Arrays, theirs: Arrays, rtol: float) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert ours[name].dtype == value.dtype and ours[name].shape == value.shape
        wanted = np.asarray(value, dtype=np.float64)
        found = np.asarray(ours[name], dtype=np.float64)
        room = max(rtol, 1e-5) if value.dtype == np.float32 else rtol
        np.testing.assert_allclose(
            found, wanted, rtol=room, atol=room * float(np.abs(wanted).max(initial=1)), err_msg=name
        )


@pytest.mark.parametrize(("rows", "even"), [(1, False), (7, False), (7, True)])
@pytest.mark.parametrize("name", layouts(period(6)))
def test_least_squares_in_c_is_least_squares_in_numpy(
    monkeypatch: pytest.MonkeyPatch, name: str, rows: int, even: bool
) -> None:
    day = period(6)
    knobs = Knobs(0.99, ridge=0.5, rows=rows, heads=("plain", "clipped", "median"), even=even)
    ours, theirs = pair(monkeypatch, lambda: LeastSquares("x", layouts(day)[name], CHANNELS, HORIZON, knobs))
    past, found, wanted = Past(CHANNELS, 120, HORIZON), *np.zeros((2, 3, HORIZON, CHANNELS))
    for number, row in enumerate(stream(160)):
        if number == 100:
            day["period"][:] = 4
        past.push(row)
        past.swing(1)[:] = 1 + 0.01 * number * np.arange(CHANNELS)  # each channel's waves have their own size
        for group, out in ((ours, found), (theirs, wanted)):
            group.observe(past)
            group.forecast(past, out)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert_close(ours.arrays(), theirs.arrays(), 1e-7)


def simple(name: str, day: Arrays) -> Group:
    kinds = (Smoothing(0.05, 0.05), Smoothing(0.3, 0.1, trend=0.05, damping=0.9), Smoothing(0.1, 0.05, dof=5))
    if name.startswith("smooth"):
        return Smooth("day", day, CHANNELS, HORIZON, 20, kinds, even=name == "smooth, even")
    if name == "medians":
        return Medians((3, 11))
    return Means(CHANNELS, (0.1, 0.003)) if name == "means" else Seasonal("day", day, HORIZON, 4)


def test_a_period_too_long_for_all_its_cycles_has_fewer_in_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found after the rows that are kept had been counted: nothing is read from before them."""
    day, past = period(50), Past(CHANNELS, 120, HORIZON)
    ours, theirs = pair(monkeypatch, lambda: Seasonal("day", day, HORIZON, 7))
    found, wanted = np.zeros((2, 3, HORIZON, CHANNELS))
    rows = np.random.default_rng(0).standard_normal((400, CHANNELS))
    for number, row in enumerate(rows, 1):
        past.push(row)
        say_the_same(past, (ours, found), (theirs, wanted))
        if number > 120:
            both = past.clean(100).reshape(2, 50, CHANNELS)
            np.testing.assert_allclose(found[1], both.mean(0)[:HORIZON], rtol=1e-9)


@pytest.mark.parametrize("first", [1, 6])
@pytest.mark.parametrize("name", ["smooth", "smooth, even", "means", "medians", "seasonal"])
def test_simple_experts_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch, name: str, first: int) -> None:
    day, past = period(first), Past(CHANNELS, 120, HORIZON)
    ours, theirs = pair(monkeypatch, lambda: simple(name, day))
    found, wanted = np.zeros((2, 2 if name in ("means", "medians") else 3, HORIZON, CHANNELS))
    for number, row in enumerate(stream(300)):
        if number == 200:
            day["period"][:] = 4
        past.push(row)
        say_the_same(past, (ours, found), (theirs, wanted))
    assert_close(ours.arrays(), theirs.arrays(), 1e-9)


def say_the_same(past: Past, *both: tuple[Group, Array]) -> None:
    """Let both learn the newest row and forecast; the room for what they say is theirs."""
    for group, out in both:
        group.observe(past)
        group.forecast(past, out)
    np.testing.assert_allclose(both[0][1], both[1][1], rtol=1e-9, atol=1e-9)


def alike(day: Arrays) -> Analogs:
    values, changes = Measure(False, 0.8), Measure(True, 0.6)
    kinds = (
        Kind("any", values, 7, "as it was"),
        Kind("one", values, 1, "wholly"),
        Kind("steps", changes, 15, "wearing off", together=True),
        Kind("day", changes, 4, "wholly", day, near=1),
        Kind("all", values, 31, "wearing off", day, together=True),
    )
    return Analogs(kinds, CHANNELS, HORIZON, 90)


@pytest.mark.parametrize("seed", range(3))
def test_analogs_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    day, past = period(6), Past(CHANNELS, 120, HORIZON)
    ours, theirs = pair(monkeypatch, lambda: alike(day))
    found, wanted = np.zeros((2, 5, HORIZON, CHANNELS))
    for number, row in enumerate(stream(400, seed=seed)):
        if number == 200:
            day["period"][:] = 2  # less than the rows around it
        past.push(row)
        say_the_same(past, (ours, found), (theirs, wanted))
    assert_close(ours.arrays(), theirs.arrays(), 1e-9)


def test_analogs_of_many_columns_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than the newest row is repeated for."""
    kinds, rows = (Kind("any", Measure(False, 0.8), 3, "wholly"),), np.random.default_rng(0).standard_normal((40, 600))
    ours, theirs = pair(monkeypatch, lambda: Analogs(kinds, 600, 1, 20))
    past, found, wanted = Past(600, 60, 1), *np.zeros((2, 1, 1, 600))
    for row in rows:
        past.push(row)
        say_the_same(past, (ours, found), (theirs, wanted))


@pytest.mark.parametrize(("width", "taps"), [(16, (3, 2, 1, 0)), (21, (6, 5, 2, 1, 0))])
def test_the_network_in_c_is_that_in_numpy(monkeypatch: pytest.MonkeyPatch, width: int, taps: tuple[int, ...]) -> None:
    """Its steps and its rollout, with a memory that is written over; the ways part a little with every step."""
    waves = Waves((period(6), period(10)), (2, 1))
    ours, theirs = pair(monkeypatch, lambda: OneStep(CHANNELS, HORIZON, taps, waves, Style(width=width), memory=100))
    past, found, wanted = Past(CHANNELS, 120, HORIZON), *np.zeros((2, 1, HORIZON, CHANNELS))
    for row in stream(160):
        past.push(row)
        for group, out in ((ours, found), (theirs, wanted)):
            group.observe(past)
            group.forecast(past, out)
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)
    assert int(ours.arrays()["counts"][1]) > 50
    assert_close(ours.arrays(), theirs.arrays(), 1e-2)


def test_a_step_that_is_not_finite_is_refused_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    waves = Waves((period(6),), (2,))
    ours, theirs = pair(
        monkeypatch, lambda: OneStep(CHANNELS, HORIZON, (3, 2, 1, 0), waves, Style(width=16), memory=100)
    )
    past = Past(CHANNELS, 120, HORIZON)
    for number, row in enumerate(stream(120)):
        past.push(row)
        for group in (ours, theirs):
            if number == 100:
                group.arrays()["weights"][0] = np.float32(np.inf)
            with np.errstate(invalid="ignore"):
                group.observe(past)
    np.testing.assert_array_equal(ours.arrays()["counts"], theirs.arrays()["counts"])
    assert int(ours.arrays()["counts"][2]) == 20


def test_rows_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(monkeypatch, lambda: Past(CHANNELS, 20, HORIZON))
    rows = stream(500)
    rows[0, 1], rows[40, 2], rows[60] = np.nan, 1e9, np.inf
    rows[100:, 0] += 500  # to stay
    rows[300:, 1] += 40  # and away for some rows, and down again by and by
    rows[308:320, 1] -= np.linspace(4, 40, 12)
    rows[320:, 1] -= 40
    lifted = moved = 0
    for row in rows:
        ours.push(row)
        theirs.push(row)
        np.testing.assert_array_equal(ours.last(20), theirs.last(20))
        np.testing.assert_array_equal(ours.known_last(20), theirs.known_last(20))
        np.testing.assert_allclose(ours.clean(20), theirs.clean(20), rtol=1e-9)
        np.testing.assert_array_equal(ours.swing(20), theirs.swing(20))
        np.testing.assert_allclose(ours.even(20), theirs.even(20), rtol=1e-9)
        for part in PARTS:
            np.testing.assert_allclose(getattr(ours.jumps, part), getattr(theirs.jumps, part), rtol=1e-9)
        lifted += bool(ours.jumps.stays.any())
        moved = int(np.count_nonzero(ours.jumps.offset))
        for past in (ours, theirs):
            past.swing(1)[:] += past.seen  # is there as long as its row, and passed on to the next one
    assert_close(ours.arrays(), theirs.arrays(), 1e-9)
    assert lifted > 20 and moved >= 1 and int(ours.arrays()["ended"].sum()) > 5


def test_a_meter_that_begins_anew_is_the_same_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(monkeypatch, lambda: Past(1, 90, HORIZON))
    rows, moved = np.cumsum(np.random.default_rng(0).uniform(0.5, 1.5, 700)) % 230, 0
    for row in rows:
        for past in (ours, theirs):
            past.push(row[None])
        np.testing.assert_allclose(ours.even(90), theirs.even(90), rtol=1e-9, atol=1e-9)
        moved += bool(ours.jumps.shift.any() and theirs.jumps.shift.any())
    assert moved >= 2


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_any_stream_are_the_same_in_c(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Walks, noise, meters, columns that stand still; jumps of all sizes and lengths, gaps and what is no number."""
    draw = np.random.default_rng(seed)
    channels, keep, count = int(draw.integers(1, 4)), int(draw.integers(2, 80)), int(draw.integers(100, 400))
    ours, theirs = pair(monkeypatch, lambda: Past(channels, keep, HORIZON))
    noise = draw.standard_normal((count, channels))
    rows = (noise, np.cumsum(noise, 0), 0 * noise, np.cumsum(np.abs(noise), 0) % 20)[seed % 4]
    for start in draw.integers(0, count, 10).tolist():
        far, long = 10 ** draw.uniform(0, 8) * draw.choice([-1, 1]), int(draw.integers(1, 120))
        rows[start : start + long, int(draw.integers(channels))] += far
    for value in (np.nan, np.inf, 1e300):
        rows[draw.random(rows.shape) < 0.01] = value
    for number, row in enumerate(rows, 1):
        for past in (ours, theirs):
            past.push(row)
        seen = min(number, keep)
        np.testing.assert_allclose(ours.even(seen), theirs.even(seen), rtol=1e-9, atol=1e-9)
        assert np.isfinite(ours.even(seen)).all() and np.isfinite(ours.jumps.begin).all()
        for part in PARTS:
            np.testing.assert_allclose(
                getattr(ours.jumps, part), getattr(theirs.jumps, part), rtol=1e-9, atol=1e-9, err_msg=part
            )


@pytest.mark.parametrize("ridge", [0.5, 50.0])
def test_after_a_turn_the_rows_before_count_less_in_c_too(monkeypatch: pytest.MonkeyPatch, ridge: float) -> None:
    """Blocks become short at once, and the covariance is loosened when all windows lie behind the turn."""
    knobs = Knobs(0.99, ridge=ridge, rows=16, even=True)
    ours, theirs = pair(monkeypatch, lambda: LeastSquares("x", Own(Lags(4), 4), CHANNELS, HORIZON, knobs))
    past, groups = Past(CHANNELS, 800, HORIZON), (ours, theirs)
    variances = []
    for number, row in enumerate(stream(790)):
        past.turned[:] = number - 700 if number >= 700 else -1
        past.push(row)
        for group in groups:
            group.observe(past)
        variances.append(float(np.trace(np.asarray(theirs.arrays()["covariance"][0]))))
        if number % 10 == 0 or number >= 700:
            assert_close(ours.arrays(), theirs.arrays(), 1e-6)
    assert variances[700 + 60 + HORIZON] > 1.5 * variances[699 + 60 + HORIZON]


def test_swings_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when an amplitude changes, with gaps, and where a column stands still."""
    ours, theirs = pair(monkeypatch, lambda: Swing(CHANNELS, period(6)))
    rows = stream(900)
    rows[400:, 1] *= 3
    rows[:, 2] = 1.0
    pasts = [Past(CHANNELS, 60, 1) for _ in range(2)]
    found = []
    for row in rows:
        for past, swing in zip(pasts, (ours, theirs), strict=True):
            past.push(row)
            swing.look(past)
        np.testing.assert_allclose(pasts[0].swing(1), pasts[1].swing(1), rtol=1e-9)
        assert_close(ours.arrays(), theirs.arrays(), 1e-9)
        found.append(pasts[1].swing(1)[0].copy())
    assert np.stack(found)[:, 1].max() > 1.5 and (np.stack(found)[:, 2] == 1).all()


def test_a_spoiled_covariance_is_given_up_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(monkeypatch, lambda: LeastSquares("x", Own(Lags(4), 4), CHANNELS, HORIZON, Knobs(0.99, rows=4)))
    past, groups = Past(CHANNELS, 120, HORIZON), (ours, theirs)
    for number, row in enumerate(stream(160)):
        past.push(row)
        for group in groups:
            if number in (80, 120):  # of one channel; the others go on
                group.arrays()["covariance"][1] = np.float64(-1.0 if number == 80 else np.nan)
            group.observe(past)
    assert [int(group.arrays()["counts"][2]) for group in groups] == [2, 2]
    assert_close(ours.arrays(), theirs.arrays(), 1e-7)


def whole(horizon: int = HORIZON, channels: int = CHANNELS) -> Panel:
    return panel(Task(window=8, horizon=horizon, channels=channels, season=6))


def take_over(mine: Panel, other: Panel) -> None:
    """Make the one panel's state that of the other."""
    theirs = other.arrays()
    for part, arrays in mine.arrays().items():
        for name, value in arrays.items():
            assert theirs[part][name].dtype == value.dtype and theirs[part][name].shape == value.shape
            np.copyto(value, theirs[part][name])
    mine.reload()


@pytest.mark.parametrize(("horizon", "channels"), [(5, 3), (1, 1)])
def test_a_panel_in_c_is_a_panel_in_numpy(monkeypatch: pytest.MonkeyPatch, horizon: int, channels: int) -> None:
    """From the same state each row: a sign that rounding turns would set the two on different ways."""
    ours, theirs = pair(monkeypatch, lambda: whole(horizon, channels))
    for number, row in enumerate(stream(60, channels)):
        ours.advance(row)
        theirs.advance(row)
        for part, arrays in theirs.arrays().items():
            if part != "clock" and number % 3 == 0:
                assert_close(ours.arrays()[part], arrays, 1e-4)
        np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-4, atol=1e-4)
        take_over(ours, theirs)
        np.testing.assert_allclose(ours.mean(1), theirs.mean(1), rtol=1e-4, atol=1e-4)
    assert ours.weights() == pytest.approx(theirs.weights(), abs=1e-4)


@pytest.mark.parametrize(
    ("pooling", "power"),
    [("none", 0.0), ("near", 0.0), ("channels", 0.0), ("all", 0.0), ("all", 20.0), ("steps", 20.0), ("near", 20.0)],
)
def test_mixtures_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch, pooling: Pooling, power: float) -> None:
    def made() -> Panel:
        kinds = (Layer(0.99, pooling, power), Layer(1.0, "none"))
        layers = Layers(4, (HORIZON, CHANNELS), kinds, dtype=np.float32)
        groups: list[Group] = [LastValue(), Seasonal("day", period(6), HORIZON, 2)]
        return Panel(Past(CHANNELS, 40, HORIZON), Still(), groups, layers, HORIZON)

    ours, theirs = pair(monkeypatch, made)
    for row in stream(60):
        ours.advance(row)
        theirs.advance(row)
        assert_close(ours.arrays()["mixture"], theirs.arrays()["mixture"], 1e-4)
        take_over(ours, theirs)


@pytest.mark.parametrize("horizon", [1, 4])
def test_accounts_in_c_are_those_in_numpy(monkeypatch: pytest.MonkeyPatch, horizon: int) -> None:
    """A column that stands still in the main, one that moves, and one in between, with gaps."""

    def made() -> Panel:
        layers = Layers(4, (horizon, 3), (Layer(0.99, "near"), Layer(0.999, "near")), dtype=np.float32)
        groups: list[Group] = [LastValue(), Seasonal("day", period(6), horizon, 2)]
        return Panel(Past(3, 40, horizon), Still(), groups, layers, horizon)

    generator = np.random.default_rng(1)
    rows = generator.standard_normal((260, 3)) * [1.0, 0.1, 0.0]
    rows[:, 1:] += (generator.random((260, 2)) < 0.1) * generator.gamma(4.0, 1.0, (260, 2))
    rows[generator.random(rows.shape) < 0.02] = np.nan
    ours, theirs = pair(monkeypatch, made)
    limited = []
    for number, row in enumerate(rows):
        if number == 150:
            ours.settle()
            theirs.settle()
        ours.advance(row)
        theirs.advance(row)
        assert_close(ours.arrays()["ledger"], theirs.arrays()["ledger"], 1e-5)
        np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=1e-4, atol=1e-4)
        take_over(ours, theirs)
        limited.append(np.asarray(theirs.arrays()["ledger"]["free"], dtype=np.float64) < 1)
    found = np.stack(limited)
    assert not found[: by_horizon(YOUNG, horizon) + horizon].any() and found[:, 2].any()


class Still:
    """A clock whose periods stay."""

    def look(self, _: Past, /) -> bool:
        """Nothing to look for."""
        return False

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


def test_what_c_has_learned_numpy_goes_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pair(monkeypatch, whole)
    rows = stream(100)
    for row in rows[:80]:
        ours.advance(row)
    take_over(theirs, ours)
    for row in rows[80:]:
        ours.advance(row)
        theirs.advance(row)
    np.testing.assert_allclose(ours.mean(), theirs.mean(), rtol=2e-2, atol=2e-2)


def test_a_copy_goes_its_own_way() -> None:
    first = whole()
    rows = stream(110)
    for row in rows[:90]:
        first.advance(row)
    second = copy.deepcopy(first)
    before = {part: {name: value.copy() for name, value in arrays.items()} for part, arrays in first.arrays().items()}
    for row in rows[90:]:
        second.advance(row)
    for part, arrays in first.arrays().items():
        for name, value in arrays.items():
            np.testing.assert_array_equal(value, before[part][name])
    for row in rows[90:]:
        first.advance(row)
    np.testing.assert_array_equal(first.mean(), second.mean())
