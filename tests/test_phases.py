"""Intervals of any level from a few quantiles, and a cold phase whose memory is bounded; the rest is in test_live."""

from __future__ import annotations

import math

import numpy as np
import pytest

from natsr.phases import QUANTILES, Cold, interval

PLACES = np.array(QUANTILES)
LOGISTIC = np.log(PLACES / (1 - PLACES))[:, None, None]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_quantiles_that_are_there_are_taken_as_they_are(level: float) -> None:
    marked = np.arange(len(QUANTILES), dtype=np.float64)[:, None, None]
    low, high = interval(marked, level)
    assert float(low[0, 0]) == int(np.argmin(np.abs(PLACES - (1 - level) / 2)))
    assert float(high[0, 0]) == int(np.argmin(np.abs(PLACES - (1 + level) / 2)))


@pytest.mark.parametrize("level", [1e-6, 0.03, 0.42, 0.925, 0.97, 0.9899])
def test_between_quantiles_a_logistic_is_exact(level: float) -> None:
    low, high = interval(LOGISTIC, level)
    p = (1 + level) / 2
    assert float(high[0, 0]) == pytest.approx(math.log(p / (1 - p)), abs=1e-12)
    assert float(low[0, 0]) == pytest.approx(-math.log(p / (1 - p)), abs=1e-12)


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


def test_cold_has_intervals_from_the_second_row() -> None:
    cold = Cold(channels=2, horizon=4, enough=9, longest=4)
    cold.append(0, np.array([1.0, 5.0]))
    assert np.isnan(cold.forecast([0.9]).intervals[0.9].low).all()  # one row tells nothing about changes
    cold.append(1, np.array([3.0, math.nan]))
    expected = cold.forecast([0.9])
    low, high = expected.intervals[0.9]
    assert expected.mean[:, 0] == pytest.approx(3.0) and np.isnan(low[:, 1]).all()
    assert high[:, 0] - 3.0 == pytest.approx(1.6448536 * 4.0 * np.sqrt([1, 2, 3, 4]), rel=1e-6)
    assert (np.diff(high[:, 0] - low[:, 0]) > 0).all()
