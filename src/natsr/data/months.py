"""Rows that come once a month, a quarter or a year: a grid whose steps differ in length."""

from __future__ import annotations

import numpy as np

from natsr.data.calendar import Times

_DAY, _MONTH = "datetime64[D]", "datetime64[M]"


def months_between(times: Times) -> int | None:
    """Months from row to row, most often, where every row lies on a grid of months; nothing where one does not.

    Each row has the same day of the month and time of day, or each is on the last day of its month.

    >>> months_between(np.array(["2026-01-31", "2026-02-28", "2026-03-31"], "datetime64[s]"))
    1
    >>> months_between(np.array(["2026-01-01", "2026-01-31"], "datetime64[s]"))
    """
    months = times.astype(_MONTH).astype(np.int64)
    within = times - times.astype(_DAY)
    days = times.astype(_DAY) - times.astype(_MONTH).astype(_DAY)
    left = (times.astype(_MONTH) + 1).astype(_DAY) - times.astype(_DAY)
    steps, counts = np.unique(np.diff(months), return_counts=True)
    if not len(steps) or steps[0] < 1 or (within != within[0]).any():
        return None
    step = int(steps[counts.argmax()])
    same = (days == days[0]).all() or (left == np.timedelta64(1, "D")).all()
    return step if same and not (steps % step).any() else None


def month_grid(first: np.datetime64, last: np.datetime64, step: int) -> Times:
    """Every time of the grid from the first to the last.

    >>> grid = month_grid(np.datetime64("2026-01-31", "s"), np.datetime64("2026-03-31", "s"), 1)
    >>> [str(time) for time in grid.astype("datetime64[D]")]
    ['2026-01-31', '2026-02-28', '2026-03-31']
    """
    count = (last.astype(_MONTH) - first.astype(_MONTH)).astype(np.int64) // step + 1
    return np.array([months_after(first, step * place) for place in range(count)])


def months_after(time: np.datetime64, months: int) -> np.datetime64:
    """The same day of another month; where the day is the last of its month, or there is no such day, the last.

    >>> str(months_after(np.datetime64("2026-02-28", "s"), 1)), str(months_after(np.datetime64("2026-01-15", "s"), 12))
    ('2026-03-31T00:00:00', '2027-01-15T00:00:00')
    """
    month, day = time.astype(_MONTH), time.astype(_DAY)
    longest = (month + months + 1).astype(_DAY) - (month + months).astype(_DAY)
    last = (month + 1).astype(_DAY) - day == np.timedelta64(1, "D")
    days = longest - 1 if last else min(day - month.astype(_DAY), longest - 1)
    found: np.datetime64 = np.datetime64((month + months).astype(_DAY) + days, "s") + (time - day)
    return found
