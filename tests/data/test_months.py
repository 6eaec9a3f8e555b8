"""Grids of months, whose steps differ in length."""

from __future__ import annotations

import numpy as np
import pytest

from natsr.data.months import month_grid, months_after, months_between


def times(*texts: str) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    return np.array(texts, dtype="datetime64[s]")


@pytest.mark.parametrize(
    ("cells", "months"),
    [
        (("2026-01-01", "2026-02-01", "2026-03-01"), 1),
        (("2026-01-15T06:00", "2026-04-15T06:00"), 3),
        (("2025-12-31", "2026-01-31", "2026-02-28", "2026-04-30"), 1),  # ends of months, one missing
        (("2024-02-29", "2025-02-28"), 12),
        (("2026-01-01", "2026-02-02"), None),
        (("2026-01-01T00:00", "2026-02-01T01:00"), None),
        (("2026-01-01", "2026-01-02"), None),
        (("2026-01-01", "2026-03-01", "2026-05-01", "2026-06-01"), None),
    ],
)
def test_which_times_lie_on_a_grid_of_months(cells: tuple[str, ...], months: int | None) -> None:
    assert months_between(times(*cells)) == months


def test_a_grid_goes_through_its_own_times() -> None:
    rows = times("2025-12-31", "2026-01-31", "2026-02-28", "2026-04-30")
    grid = month_grid(rows[0], rows[-1], 1)
    assert len(grid) == 5 and set(rows) <= set(grid)


def test_a_day_that_a_month_lacks_is_its_last() -> None:
    assert months_after(np.datetime64("2026-01-30", "s"), 1) == np.datetime64("2026-02-28")
    assert months_after(np.datetime64("2026-01-30T05:00:00"), 2) == np.datetime64("2026-03-30T05:00:00")
