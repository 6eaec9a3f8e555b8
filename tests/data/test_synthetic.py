"""Synthetic streams do what they say at the rows they name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from natsr.data.series import Borders, Series, prepare
from natsr.data.synthetic import (
    ar2,
    level_shift,
    mixture_with_gaps,
    random_walk,
    sinusoid_with_outliers,
    sinusoid_with_regimes,
    swapped_channels,
)
from natsr.types import OptionError

DRAWN: dict[str, Callable[[np.random.Generator], Series]] = {
    "sinusoid_with_outliers": sinusoid_with_outliers,
    "sinusoid_with_regimes": sinusoid_with_regimes,
    "level_shift": level_shift,
    "swapped_channels": swapped_channels,
    "random_walk": random_walk,
    "mixture_with_gaps": mixture_with_gaps,
}


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", DRAWN)
def test_the_same_seed_gives_the_same_stream(name: str) -> None:
    first, same, other = DRAWN[name](generator()), DRAWN[name](generator()), DRAWN[name](generator(1))
    assert first.name == name and first.step_seconds == 3600 and first.regular
    np.testing.assert_array_equal(first.values, same.values)
    assert first.events == same.events and not np.array_equal(first.values, other.values, equal_nan=True)
    assert prepare(first, Borders.published(len(first))).task(24, 3).season == 24


def test_outliers_stand_where_the_events_say_and_nowhere_else() -> None:
    series = sinusoid_with_outliers(generator(), rows=1000, period=24, noise=0.1, outliers=7, size=10)
    clean = np.sin(2 * np.pi * np.arange(1000) / 24)
    off = np.flatnonzero(np.abs(series.values[:, 0] - clean) > 5)
    assert tuple(off.tolist()) == series.events and len(off) == 7
    assert min(series.events) >= 250 and np.diff(series.events).min() >= 24
    with pytest.raises(OptionError, match="outliers is 9, expected at most 4 in 100 rows; use more rows"):
        sinusoid_with_outliers(generator(), rows=100, outliers=9)


def test_regimes_have_their_amplitude_and_period_and_a_continuous_phase() -> None:
    regimes = ((1.0, 20.0), (3.0, 10.0), (0.5, 40.0))
    series = sinusoid_with_regimes(generator(), rows=1200, noise=0.0, regimes=regimes)
    values = series.values[:, 0]
    assert series.events == (400, 800)
    for (amplitude, period), part in zip(regimes, np.split(values, series.events), strict=True):
        spectrum = np.abs(np.fft.rfft(part))
        assert len(part) / int(spectrum.argmax()) == period
        assert np.sqrt(2) * part.std() == pytest.approx(amplitude, rel=1e-6)
        # A pure wave of the period: no jump inside the regime.
        step = 2 * np.cos(2 * np.pi / period)
        np.testing.assert_allclose(part[2:], step * part[1:-1] - part[:-2], atol=1e-9)
    for event in series.events:  # a whole number of periods has passed: the wave goes on through 0
        assert abs(values[event]) < 1e-9


def test_level_shift_moves_all_channels_by_the_shift() -> None:
    series = level_shift(generator(), rows=1000, shift=5.0, noise=0.1, channels=2)
    (event,) = series.events
    moved = series.values[event:].mean(axis=0) - series.values[:event].mean(axis=0)
    np.testing.assert_allclose(moved, 5.0, atol=0.05)
    assert series.columns == ("x0", "x1")


def test_channels_change_places_at_the_event() -> None:
    series = swapped_channels(generator(), rows=1000, noise=0.0)
    (event,) = series.events
    fast = 0.5 * np.sin(2 * np.pi * np.arange(1000) / 10)
    np.testing.assert_allclose(series.values[:event, 1], fast[:event])
    np.testing.assert_allclose(series.values[event:, 0], fast[event:])


def test_a_random_walk_has_independent_steps_of_the_given_size() -> None:
    steps = np.diff(random_walk(generator(), rows=20000, step=2.0).values[:, 0])
    assert steps.std() == pytest.approx(2.0, rel=0.03)
    assert abs(np.corrcoef(steps[1:], steps[:-1])[0, 1]) < 0.03


def test_ar2_is_exactly_predictable() -> None:
    values = ar2(rows=300, period=17).values[:, 0]
    np.testing.assert_allclose(values[2:], 2 * np.cos(2 * np.pi / 17) * values[1:-1] - values[:-2], atol=1e-12)


def test_gaps_are_where_and_as_many_as_said() -> None:
    series = mixture_with_gaps(generator(), rows=4000, channels=3, missing=0.1, gap=40)
    (event,) = series.events
    assert np.isnan(series.values[event : event + 40]).all()
    rest = np.delete(series.values, np.s_[event : event + 40], axis=0)
    assert np.isnan(rest).mean() == pytest.approx(0.1, abs=0.01)
    assert not np.isnan(mixture_with_gaps(generator(), missing=0.0, gap=0).values).any()
