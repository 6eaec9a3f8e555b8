"""Intervals of any level from a few quantiles; the rest is in test_live."""

from __future__ import annotations

import math

import numpy as np
import pytest

from natsr.phases import interval
from natsr.spread import QUANTILES

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
