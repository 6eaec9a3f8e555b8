"""Regressors as compiled code builds them: each column is a value, or the difference of two.

A column is five numbers: row and channel of the value, row and channel of what is subtracted, and 1, or 0 where nothing
is. Rows are counted from the origin's and so never positive.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Period = npt.NDArray[np.generic]  # an array of one, in rows, shared with whoever may change it


class Columns(NamedTuple):
    """All columns of a regressor, and which of them are not made of values."""

    places: Places  # (G, n, 5)
    one: int  # the column of ones
    waves: int = 0  # where the calendar's waves begin
    kinds: tuple[tuple[Period, int], ...] = ()  # of waves: a period, and how many harmonics of it


def differences(rows: Places, channel: int, minus: Places | int, other: int | None = None) -> Places:
    """`value[rows, channel] - value[minus, other]`, the same channel unless said otherwise: `(n, 5)`."""
    rows, minus = np.broadcast_arrays(rows, minus)
    fixed = np.broadcast_to([channel, channel if other is None else other, 1], (len(rows), 3))
    return np.column_stack([rows, fixed[:, 0], minus, fixed[:, 1:]])


def value(channel: int, row: int = 0) -> Places:
    """One value as it is: `(1, 5)`."""
    return np.array([[row, channel, 0, channel, 0]], dtype=np.int64)


def room(count: int) -> Places:
    """Columns that are made of something else: `(count, 5)`."""
    return np.zeros((count, 5), dtype=np.int64)


def own(lags: int, channel: int) -> Places:
    """The last value, and how far each row before it lies from it: `(lags, 5)`."""
    return np.concatenate([value(channel), differences(-np.arange(1, lags), channel, 0)])
