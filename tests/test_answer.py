"""Quantiles and draws of a forecast: rising, in agreement with its intervals, and those of the moment it was made."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import numpy.typing as npt
import pytest

from natsr.live import Live, LiveForecast
from natsr.phases import Interval
from natsr.spread import QUANTILES, Told, quantile
from natsr.types import OptionError

Floats = npt.NDArray[np.float64]

START = np.datetime64("2026-01-01T00:00:00")
HOUR = np.timedelta64(1, "h")
MANY = np.array([1e-300, 1e-9, 0.001, 0.004999, *np.linspace(0.005, 0.995, 500), 0.996, 0.9999, 1 - 1e-12])


def rows(count: int) -> Floats:
    generator = np.random.default_rng(7)
    wave = 50 * np.sin(2 * np.pi * (np.arange(count)[:, None] + np.arange(2)) / 24)
    return 1000 + wave + generator.standard_t(3, size=(count, 2)) * [1.0, 20.0]


def after(count: int, columns: int = 2) -> Live:
    """Cold after a few rows, warm after some dozens."""
    live = Live([f"c{number}" for number in range(columns)], horizon=4, window=8, method="rls")
    for row, values in enumerate(rows(count)):
        live.observe(START + row * HOUR, [*values, *([math.nan] * (columns - 2))])
    return live


@pytest.mark.parametrize("count", [2, 3, 5, 9, 60, 400])
def test_ends_of_intervals_are_quantiles(count: int) -> None:
    forecast = after(count).forecast((0.1, 0.5, 0.77, 0.9, 0.99))
    for level, (low, high) in forecast.intervals.items():
        found = forecast.quantiles([(1 - level) / 2, (1 + level) / 2])
        np.testing.assert_allclose(found, [low, high], rtol=1e-12)
    assert np.isfinite(forecast.quantiles([0.05, 0.95])).all()


@pytest.mark.parametrize("count", [400, 60])
def test_of_a_forecaster_that_learns_they_are_equal_to_the_last_bit(count: int) -> None:
    forecast = after(count).forecast()
    for level, ends in ((0.9, [0.05, 0.95]), (0.5, [0.25, 0.75])):
        assert forecast.quantiles(ends).tobytes() == np.stack(forecast.intervals[level]).tobytes()


@pytest.mark.parametrize("count", [2, 3, 5, 9, 60, 400])
def test_quantiles_never_cross(count: int) -> None:
    found = after(count).forecast().quantiles(MANY.tolist())
    assert found.shape == (len(MANY), 4, 2)
    assert np.isfinite(found).all() and (np.diff(found, axis=0) >= 0).all()
    assert (found[-1] > found[0]).all()


def test_beyond_the_table_the_tails_are_those_of_the_calibrator() -> None:
    live = after(400)
    assert live._warm is not None
    warm, wanted = live._warm, [1e-6, 0.0001, 0.004, 0.996, 0.9999]
    theirs = warm.calibrator.quantiles(warm._mean, None, wanted)
    for p, one in zip(wanted, theirs, strict=True):
        np.testing.assert_allclose(quantile(warm._quantiles, p), one, rtol=1e-9, atol=1e-9)


def test_a_forecast_keeps_what_it_was_made_from() -> None:
    live = after(300)
    forecast = live.forecast()
    before = forecast.quantiles([0.02, 0.3]), forecast.samples(5, seed=3)
    for row, values in enumerate(10 * rows(320)[300:], 300):
        live.observe(START + row * HOUR, values)
    assert (forecast.quantiles([0.02, 0.3]) == before[0]).all() and (forecast.samples(5, seed=3) == before[1]).all()
    assert not np.array_equal(live.forecast().quantiles([0.02, 0.3]), before[0])
    again = pickle.loads(pickle.dumps(forecast))
    assert (again.quantiles([0.02, 0.3]) == before[0]).all()


@pytest.mark.parametrize("count", [5, 400])
def test_draws_have_the_quantiles_of_the_forecast(count: int) -> None:
    forecast = after(count).forecast()
    drawn = forecast.samples(20_000, seed=1)
    assert drawn.shape == (20_000, 4, 2)
    low, high = forecast.intervals[0.9]
    inside = ((drawn >= low) & (drawn <= high)).mean(0)
    np.testing.assert_allclose(inside, 0.9, atol=0.01)
    middle = forecast.quantiles([0.45, 0.55])
    assert ((np.median(drawn, axis=0) > middle[0]) & (np.median(drawn, axis=0) < middle[1])).all()
    ends = forecast.quantiles([0.0005, 0.9995])
    assert (drawn >= ends[0] - 1e-9).all() and (drawn <= ends[1] + 1e-9).all()
    together = np.corrcoef(drawn.reshape(len(drawn), -1).argsort(0).argsort(0).T)
    assert np.abs(together - np.eye(8)).max() < 0.05  # each step and column for itself


def test_a_seed_decides_the_draws() -> None:
    forecast = after(60).forecast()
    assert (forecast.samples(3, seed=1) == forecast.samples(3, seed=1)).all()
    assert not np.array_equal(forecast.samples(3, seed=1), forecast.samples(3, seed=2))


def test_where_nothing_is_known_there_is_no_number() -> None:
    first = after(1).forecast()
    assert np.isnan(first.quantiles([0.1, 0.5])).all() and np.isnan(first.samples(2)).all()
    for count in (9, 400):
        forecast = after(count, columns=3).forecast()
        assert np.isnan(forecast.quantiles([0.1, 0.9])[:, :, 2]).all() and np.isnan(forecast.samples(2)[:, :, 2]).all()
        assert np.isfinite(forecast.samples(2)[:, :, :2]).all()


@pytest.mark.filterwarnings("error")
def test_columns_that_stand_still_or_are_huge_have_quantiles_too() -> None:
    for count, value in itertools.product((3, 40), (5.0, 1e300)):
        live = Live(["c"], horizon=2, window=4, method="last_value")
        for row in range(count):
            live.observe(START + row * HOUR, [value * (1 if row % 2 else -1) if value > 10 else value])
        found = live.forecast().quantiles([0.001, 0.05, 0.5, 0.95])
        assert not np.isnan(found).any() and (found[1:] >= found[:-1]).all()
        live.forecast().samples(3)


@pytest.mark.parametrize(
    "wrong", [[], [0.0], [1.0], [0.5, 0.5], [0.9, 0.1], [math.nan], ["0.5"], [True], 0.5, "0.5", [0.1, -0.1]]
)
def test_probabilities_that_no_quantile_has_are_refused(wrong: list[float]) -> None:
    with pytest.raises(OptionError, match="probabilit"):
        after(3).forecast().quantiles(wrong)


def test_a_number_of_draws_is_at_least_one() -> None:
    with pytest.raises(OptionError, match="count is 0"):
        after(3).forecast().samples(0)


def test_quantiles_are_written_where_they_are_asked_for() -> None:
    forecast = after(60).forecast()
    assert "quantiles" not in forecast.plain()
    found = forecast.plain((0.05, 0.5))["quantiles"]
    assert list(found) == ["0.05", "0.5"] and list(found["0.5"]) == ["c0", "c1"]
    assert found["0.05"]["c1"] == [low for low, _ in forecast.plain()["intervals"]["0.9"]["c1"]]
    assert after(1).forecast().plain((0.5,))["quantiles"]["0.5"]["c0"] == [None] * 4


def test_a_forecast_from_elsewhere_has_the_quantiles_that_were_asked_for() -> None:
    mean = np.zeros((2, 1))
    bare = LiveForecast(START, START + HOUR * np.arange(1, 3), ("c",), mean, {0.9: Interval(mean - 1, mean + 1)})
    with pytest.raises(OptionError, match=r"quantile 0.1 did not come with this forecast.*none"):
        bare.quantiles([0.1])
    told = LiveForecast(bare.origin, bare.times, bare.columns, mean, {}, Told({0.1: mean - 1, 0.9: mean + 1}))
    assert told.quantiles([0.1, 0.9])[:, 0, 0].tolist() == [-1.0, 1.0]
    with pytest.raises(OptionError, match=r"0.1, 0.9"):
        told.samples(3)


def test_quantiles_are_carried_on(tmp_path: object) -> None:
    live = after(60)
    live.save(str(tmp_path))
    again = Live.load(str(tmp_path))
    assert (again.forecast().quantiles(QUANTILES) == live.forecast().quantiles(QUANTILES)).all()
