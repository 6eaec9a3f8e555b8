"""Times on a grid, values that are numbers: what comes in is taken whole or refused with a reason."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from natsr.data.grids import Even, grid_of
from natsr.experts.periods import Gaps
from natsr.intake import number, regular, row_values, stamp, steps_after
from natsr.types import DataError, Task


def test_times_before_1970_and_far_ahead() -> None:
    assert stamp("1969-12-31T23:59:59") == -1
    assert stamp(datetime(9999, 12, 31)) == 253402214400


def test_steps_between_rows() -> None:
    assert steps_after(7200, 0, Even(3600)) == 2
    assert steps_after(-3600, -7200, Even(3600)) == steps_after(5, None, Even(3600)) == 1
    for seconds, message in ((0, "duplicate"), (-1, "late"), (5000, "multiple of 3600")):
        with pytest.raises(DataError, match=message):
            steps_after(seconds, 0, Even(3600))


def test_steps_between_months() -> None:
    first, last, ends = stamp("2026-01-31"), stamp("2026-03-31"), grid_of("ME")
    assert steps_after(last, first, ends) == 2 and steps_after(first, None, ends) == 1
    for time, message in (
        ("2026-01-31", "duplicate"),
        ("2025-12-31", "late"),
        (
            "2026-02-27",
            r"row 2026-02-27T00:00:00 is off the grid of one row every month, expected 2026-02-28T00:00:00, ",
        ),
        ("2026-02-28T01:00", "off the grid"),
    ):
        with pytest.raises(DataError, match=message):
            steps_after(stamp(time), first, ends)
    for freq, where in (("MS", "first"), ("QE", "last")):
        with pytest.raises(DataError, match=f"is not on the {where} day of its month"):
            steps_after(stamp("2026-02-15"), None, grid_of(freq))


def test_months_quarters_and_years_are_times() -> None:
    assert stamp("2026-03") == stamp(" 2026-3 ") == stamp(pd.Period("2026-03", "M")) == stamp("2026-03-01")
    assert (
        stamp("2026Q2") == stamp("2026-q2") == stamp("2026 Q2") == stamp(pd.Period("2026Q2", "Q")) == stamp("2026-04")
    )
    assert stamp("2026") == stamp("2026-01-01")
    for wrong in ("2026-13", "2026-00", "2026Q5", "0000", "26-01"):
        with pytest.raises(DataError, match="expected ISO 8601"):
            stamp(wrong)


def test_numbers_of_every_kind() -> None:
    kinds: list[Any] = [2, 2.0, True + 1, np.int8(2), np.float16(2), Decimal(2), torch.tensor(2.0), np.array(2)]
    assert [number(value, "x") for value in kinds] == [2.0] * len(kinds)
    assert math.isnan(number(None, "x"))
    text, imaginary = np.array(["2"])[0], np.complex128(2j)
    for wrong in ("2", b"2", text, [2], {}, 2j, imaginary, -math.inf, 10**400, torch.ones(2), object()):
        with pytest.raises(DataError, match="x is "):
            number(wrong, "x")


def test_row_names_the_column_that_is_wrong() -> None:
    with pytest.raises(DataError, match="b is 'two'"):
        row_values({"b": "two", "a": 1}, ("a", "b"))


def test_gaps_are_filled_and_long_ones_keep_their_end() -> None:
    seconds = np.array([0, 10, 40, 10_000], dtype=np.int64)
    values = np.array([[0.0], [1.0], [4.0], [1000.0]])
    _, times, filled = regular(seconds, values, grid=Even(10), gaps=Gaps(3, 1))
    assert times.tolist() == [0, 10, 20, 30, 40, 9970, 9980, 9990, 10_000]
    assert np.nan_to_num(filled[:, 0], nan=-1).tolist() == [0, 1, -1, -1, 4, -1, -1, -1, 1000]
    alone = regular(seconds[:1], values[:1], grid=Even(10), gaps=Gaps(3, 1))
    assert alone.ticks.tolist() == [0] and alone.values.tolist() == [[0.0]]


def test_what_is_left_out_of_a_gap_is_whole_weeks() -> None:
    for task, period in ((Task(60, 24, 1, season=24), 168), (Task(60, 24, 1, season=1440), 1440), (Task(8, 1, 1), 7)):
        gaps, missing = Gaps.of(task), np.arange(20_000)
        left_out = gaps.left_out(missing)
        played = missing - left_out
        assert (left_out % period == 0).all() and (left_out >= 0).all()
        assert (played >= np.minimum(missing, task.reach + task.horizon)).all()
        assert played.max() < task.reach + task.horizon + period


def test_a_long_gap_keeps_its_rows_in_step() -> None:
    seconds = np.array([0, 10, 200, 210], dtype=np.int64)  # 18 rows are missing
    _, times, filled = regular(seconds, np.arange(4.0)[:, None], Even(10), Gaps(longest=3, period=7))
    assert times.tolist() == [0, 10, *range(160, 220, 10)] and np.isfinite(filled[:, 0]).nonzero()[0].tolist() == [
        0,
        1,
        6,
        7,
    ]


def test_gaps_between_months_are_filled() -> None:
    rows = np.array([stamp(time) for time in ("2026-01-31", "2026-02-28", "2026-05-31", "2027-05-31")])
    grid, times, filled = regular(rows, np.arange(4.0)[:, None], grid_of("M"), gaps=Gaps(2, 1))
    assert grid == grid_of("ME")
    days = [str(time) for time in times.astype("datetime64[s]").astype("datetime64[D]")]
    assert days == ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31"] + [
        "2027-03-31",
        "2027-04-30",
        "2027-05-31",
    ]
    assert np.nan_to_num(filled[:, 0], nan=-1).tolist() == [0, 1, -1, -1, 2, -1, -1, 3]
    with pytest.raises(DataError, match="row 2026-04-29T00:00:00 is off the grid"):
        regular(rows[[0, 1, 1]] + [0, 0, 60 * 86400], np.zeros((3, 1)), grid_of("M"), gaps=Gaps(2, 1))
