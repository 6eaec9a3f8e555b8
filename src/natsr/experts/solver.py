"""The arithmetic of least squares in C: `rls.c` on the arrays of one expert."""

from __future__ import annotations

import ctypes
import math
from typing import Protocol

import numpy as np

from natsr.experts.columns import Columns, Period
from natsr.experts.native import Regression, at, fill
from natsr.experts.past import Arrays, Past


class Source(Protocol):
    """What describes a regressor."""

    shared: bool
    #: Those that `columns` depends on.
    periods: tuple[Period, ...]

    def columns(self, channels: int) -> Columns:
        """Of what each column is made."""


class Learning(Protocol):
    """How it learns."""

    @property
    def forgetting(self) -> float:
        """What the information weighs one row later."""

    @property
    def ridge(self) -> float:
        """Of each coefficient."""

    @property
    def even(self) -> bool:
        """Whether from rows without jumps."""


#: Rows that there is room for from the first block on: blocks grow with the stream, what is held should not.
ROOM = 40


class Solver:
    """One expert's addresses, the table of its columns and room to work.

    Args:
        library: Compiled.
        source: Describes the regressor.
        channels: Values in a row.
        horizon: Rows ahead.
        arrays: The expert's, by the names that C knows them by.
        knobs: How it learns.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        source: Source,
        channels: int,
        horizon: int,
        arrays: Arrays,
        knobs: Learning,
    ) -> None:
        self._library, self._source, self._channels = library, source, channels
        groups, size, outputs = arrays["weights"].shape
        each = horizon * (channels if source.shared else 1)
        self._made = Regression(groups, size, outputs // each, each, horizon, int(source.shared), int(knobs.even))
        self._made.forgetting, self._made.ridge = knobs.forgetting, knobs.ridge
        self._made.strength = math.sqrt(knobs.ridge / 2)
        fill(self._made, **arrays)
        self._address = ctypes.addressof(self._made)
        self._kept = [*arrays.values()]  # as long as their addresses are
        self._key: tuple[int, ...] | None = None
        self._room = 0

    def take(self, past: Past, count: int, first: int, due: int) -> int:
        """Take a block of `count` origins in and give `due` coefficients their ridge back; how many began again."""
        self._prepare(count + due)
        again: int = self._library.rls_take(self._address, past.address(), count, first, due)
        return again

    def forecast(self, past: Past, out: int) -> None:
        """Write the forecasts of the heads, `(heads, H, C)`, to an address."""
        self._prepare(1)
        self._library.rls_forecast(self._address, past.address(), out)

    def _prepare(self, rows: int) -> None:
        """Columns for the periods of now, and room for so many rows."""
        key = tuple([int(period[0]) for period in self._source.periods])
        if key != self._key:
            self._describe(self._source.columns(self._channels))
            self._key = key
        if rows > self._room:
            rows = max(rows, ROOM)
            self._work = np.zeros(self._library.rls_room(self._address, rows))
            self._made.work, self._room = at(self._work), rows

    def _describe(self, columns: Columns) -> None:
        places = columns.places
        self._plus = (places[:, :, 0] * self._channels + places[:, :, 1]).astype(np.int32)
        self._minus = (places[:, :, 2] * self._channels + places[:, :, 3]).astype(np.int32)
        self._sign = places[0, :, 4].astype(np.float64)
        made = self._made
        fill(made, plus=self._plus, minus=self._minus, sign=self._sign)
        made.one, made.at = columns.one, columns.waves
        made.calendar.describe(columns.kinds)
