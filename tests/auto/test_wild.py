"""What is scored beside wild values."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.auto.wild import ROWS, beside, wave


def test_wild_rows_are_neither_origins_nor_targets_that_count() -> None:
    values, wild = wave(np.random.default_rng(0)), np.zeros(ROWS, dtype=bool)
    whole = beside(values, wild, 1, 600, 900)
    assert 0.5 < whole < 0.8
    values[700], wild[700] = 1e9, True
    assert beside(values, wild, 1, 600, 900) == pytest.approx(whole, rel=0.05)
    wild[700] = False
    # The row itself costs both as much, the way back the last value alone: the rest is nothing beside that.
    assert beside(values, wild, 1, 600, 900) == pytest.approx(0.5, abs=0.01)
