"""The tally scores each forecast at the row it was about, and forgets slowly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from natsr.health import FORGET, Tally
from natsr.types import StateError, Task

TASK = Task(window=1, horizon=2, channels=1)


def played(rows: list[float]) -> Tally:
    """A forecaster that says: one more at each step, give or take a half."""
    tally = Tally(TASK)
    for value in rows:
        tally.reveal(np.array([value]))
        mean = np.array([[value + 1], [value + 2]])
        tally.push(mean, mean - 0.5, mean + 0.5, np.array([value]))
    return tally


def test_figures_by_hand() -> None:
    assert Tally(TASK).figures() == {"mase": None, "mase_last_value": None, "coverage_90": None}
    figures = played([0.0, 1.0, 3.0]).figures()
    # Row 1: said 1. Row 2, which was 3: said 2 from row 1, and 2 from row 0. Row 1 weighs a thousandth less.
    weight = 2 + FORGET
    change = (2 + FORGET * 1) / (1 + FORGET)
    assert figures["mase"] == pytest.approx((1 + 1 + FORGET * 0) / weight / change)
    assert figures["mase_last_value"] == pytest.approx((2 + 3 + FORGET * 1) / weight / change)
    assert figures["coverage_90"] == pytest.approx(FORGET * 1 / weight)


def test_missing_rows_count_for_nothing() -> None:
    figures = played([0.0, math.nan, 2.0]).figures()
    assert figures["mase"] is None  # no two rows in a row are known, so there is no change to compare with
    assert figures["coverage_90"] == 1.0  # row 0 said 2 of row 2


def test_state_goes_on_and_a_foreign_one_is_refused() -> None:
    tally, other = played([0.0, 1.0, 5.0]), Tally(TASK)
    other.load_state_dict(tally.state_dict())
    for value in (1.0, math.nan, 9.0):
        for one in (tally, other):
            one.reveal(np.array([value]))
        assert other.figures() == tally.figures()
    with pytest.raises(StateError, match="lacks its counts"):
        other.load_state_dict({})
    with pytest.raises(StateError, match="same task"):
        Tally(Task(window=1, horizon=3, channels=1)).load_state_dict(tally.state_dict())
