"""Times on a grid, values that are numbers: what comes in is taken whole or refused with a reason."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch

from natsr.intake import number, regular, row_values, stamp, step_seconds, steps_after
from natsr.types import DataError, OptionError


def test_steps_of_every_form() -> None:
    forms: dict[Any, int] = {
        "s": 1,
        "30 s": 30,
        "min": 60,
        "15T": 900,
        "H": 3600,
        "2h": 7200,
        "D": 86400,
        "W": 604800,
        timedelta(minutes=5): 300,
        np.timedelta64(2, "h"): 7200,
    }
    assert {form: step_seconds(form) for form in forms} == forms
    for wrong in ("", "M", "MS", "hourly", "-1h", "1.5h", "0s", timedelta(0), np.timedelta64(5, "ms")):
        with pytest.raises(OptionError, match="freq is"):
            step_seconds(wrong)


def test_times_before_1970_and_far_ahead() -> None:
    assert stamp("1969-12-31T23:59:59") == -1
    assert stamp(datetime(9999, 12, 31)) == 253402214400


def test_steps_between_rows() -> None:
    assert steps_after(7200, 0, 3600) == 2
    assert steps_after(-3600, -7200, 3600) == 1
    for seconds, message in ((0, "duplicate"), (-1, "late"), (5000, "multiple of 3600")):
        with pytest.raises(DataError, match=message):
            steps_after(seconds, 0, 3600)


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
    times, filled = regular(seconds, values, step=10, longest=3)
    assert times.tolist() == [0, 10, 20, 30, 40, 9970, 9980, 9990, 10_000]
    assert np.nan_to_num(filled[:, 0], nan=-1).tolist() == [0, 1, -1, -1, 4, -1, -1, -1, 1000]
    alone = regular(seconds[:1], values[:1], step=10, longest=3)
    assert alone[0].tolist() == [0] and alone[1].tolist() == [[0.0]]
