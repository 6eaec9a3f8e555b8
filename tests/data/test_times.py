"""Which columns hold the times; `test_csv.py` has the forms in which they are written."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from natsr.data.times import find_times, in_order
from natsr.types import DataError


def test_a_clock_is_joined_only_where_dates_come_again() -> None:
    notes: list[str] = []
    twice = pd.DataFrame({"date": ["2026-01-01", "2026-01-01"], "hour": [5, 24], "x": [1, 2]})
    times, used = find_times(twice, None, notes)
    assert used == ["date", "hour"] and times[1] == np.datetime64("2026-01-02")
    once = pd.DataFrame({"date": ["2026-01-01", "2026-01-02"], "hour": [5, 6], "x": [1, 2]})
    assert find_times(once, None, notes)[1] == ["date"], "a column of hours may be a value"


def test_a_clock_that_is_none_is_left_alone() -> None:
    table = pd.DataFrame({"date": ["2026-01-01", "2026-01-01"], "hour": [5, 99], "x": [1, 2]})
    times, used = find_times(table, None, [])
    assert used == ["date"]
    with pytest.raises(DataError, match="rows 1 and 2 both have time"):
        in_order(times, table, used)


def test_a_year_alone_is_the_time_only_where_nothing_else_is() -> None:
    table = pd.DataFrame({"year": [2026, 2026], "ts": [1767225600, 1767229200], "x": [1, 2]})
    assert find_times(table, None, [])[1] == ["ts"]
    assert find_times(table[["year", "x"]], None, [])[1] == ["year"]
    with pytest.raises(DataError, match="no time column was found among year, x"):
        find_times(pd.DataFrame({"year": ["first", "second"], "x": [1, 2]}), None, [])
