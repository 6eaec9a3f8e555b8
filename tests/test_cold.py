"""The first rows of a stream: what can be said from the second on, and better with each; a memory that is bounded."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from natsr.cold import Cold
from natsr.live import Live
from natsr.phases import Expected

Floats = npt.NDArray[np.float64]


def told(values: Floats, horizon: int = 4, season: int = 1) -> Expected:
    """What is expected after these rows, `(T, C)`."""
    cold = Cold(values.shape[1], horizon, enough=10**6, longest=10**6, season=season)
    for place, row in enumerate(values):
        cold.append(place, row)
    return cold.forecast([0.5, 0.9])


def test_cold_counts_rows_with_a_value_and_starts_again_after_silence() -> None:
    cold = Cold(channels=1, horizon=2, enough=3, longest=4)
    nothing, something = np.array([math.nan]), np.array([1.0])
    assert not cold.append(0, nothing) and len(cold.history()[0]) == 0  # silence before the first value is not kept
    assert [cold.append(second, something) for second in (1, 2)] == [False, False]
    assert [cold.append(second, nothing) for second in (3, 4, 5)] == [False, False, False]
    assert cold.history()[0].tolist() == [1, 2, 3, 4, 5]
    assert not cold.append(6, nothing) and len(cold.history()[0]) == 0
    assert [cold.append(second, something) for second in (7, 8, 9)] == [False, False, True]
    assert cold.history()[0].tolist() == [7, 8, 9]


def test_there_are_intervals_from_the_second_value_on() -> None:
    gone = math.nan
    assert np.isnan(told(np.array([[1.0, 5.0]])).intervals[0.9].low).all()  # one row tells nothing about changes
    mean, intervals, _ = told(np.array([[1.0, 5.0, gone], [3.0, gone, gone], [gone, 7.0, 2.0]]))
    low, high = intervals[0.9]
    assert mean.tolist() == [[3.0, 7.0, 2.0]] * 4 and np.isnan(low[:, 2]).all()
    # One change of 2, in one row and in two; the quantile is that of one degree of freedom.
    one = 6.3137515 * np.sqrt([1, 2, 3, 4])
    assert high[:, 0] - 3 == pytest.approx(2 * one) and high[:, 1] - 7 == pytest.approx(2 / math.sqrt(2) * one, rel=0.2)
    assert mean - low == pytest.approx(high - mean, nan_ok=True)
    assert (intervals[0.5].high[:, :2] < high[:, :2]).all()


def test_a_season_is_followed_as_soon_as_it_has_shown_itself() -> None:
    wave = (10 * np.sin(np.arange(200) * math.tau / 24))[:, None]
    errors = []
    for came in (10, 24, 30, 40, 60):
        mean, intervals, _ = told(wave[:came], horizon=24, season=24)
        errors.append(float(np.abs(mean - wave[came : came + 24]).mean()))
    assert min(errors[:2]) > 4 and max(errors[2:]) < 0.01
    assert (intervals[0.9].high - intervals[0.9].low).max() < 7  # those of a random walk reach 40


def test_a_random_walk_is_not_taken_for_a_season() -> None:
    generator, worse, inside = np.random.default_rng(0), [], []
    for _ in range(200):
        walk = np.cumsum(generator.normal(size=(84, 1)), axis=0)
        mean, intervals, _ = told(walk[:60], horizon=24, season=24)
        low, high = intervals[0.9]
        inside.append(((low <= walk[60:]) & (walk[60:] <= high)).mean())
        worse.append(np.abs(mean - walk[60:]).mean() / np.abs(walk[59] - walk[60:]).mean())
    assert np.mean(worse) < 1.1 and 0.82 < np.mean(inside) < 0.95


def test_beyond_a_season_whole_seasons_are_counted_back() -> None:
    saw = np.tile(np.arange(4.0), 10)[:38, None]  # ends with 0, 1
    mean, *_ = told(saw, horizon=9, season=4)
    assert mean[:, 0] == pytest.approx([2, 3, 0, 1, 2, 3, 0, 1, 2], abs=0.05)


@pytest.mark.parametrize("size", [0.0, 1e-300, 1e200, 1e308])
def test_whatever_the_size_the_forecast_is_finite(size: float) -> None:
    values = size * np.where(np.arange(60) % 2, 1.0, -1.0)[:, None]
    mean, intervals, _ = told(values, horizon=6, season=4)
    assert np.isfinite(mean).all() and not np.isnan(intervals[0.9].low).any()


def test_live_grows_better_before_it_is_warm() -> None:
    hours = np.arange(110)
    load = 100 + 20 * np.sin(hours * math.tau / 24) + np.random.default_rng(0).normal(size=110)
    live, errors = Live(["load"], horizon=24, freq="h", method="rls"), []
    for row in range(80):
        live.observe(np.datetime64("2026-01-01") + row * np.timedelta64(3600, "s"), [load[row]])
        errors.append(float(np.abs(live.forecast().mean[:, 0] - load[row + 1 : row + 25]).mean()))
    assert live.health()["phase"] == "cold"
    assert np.mean(errors[30:]) < 0.2 * np.mean(errors[2:24])
