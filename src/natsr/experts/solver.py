"""The arithmetic of least squares in C: `rls.c` on the arrays of one expert."""

from __future__ import annotations

import ctypes
import math
from typing import Protocol

import numpy as np

from natsr.experts.columns import Columns, Period
from natsr.experts.native import Regression, at, fill
from natsr.experts.past import Array, Arrays, Past


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
    def rows(self) -> int:
        """Taken in at once."""

    @property
    def even(self) -> bool:
        """Whether from rows without jumps."""


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
        self._made.strength, self._made.block = math.sqrt(knobs.ridge / 2), knobs.rows
        fill(self._made, **arrays)
        self._address = ctypes.addressof(self._made)
        self._kept = [*arrays.values()]  # as long as their addresses are
        self._key: tuple[int, ...] | None = None
        # The rows of a block and of the ridge that fades meanwhile, and what was left of it before.
        most = knobs.rows + math.ceil(size * knobs.rows * -math.log2(knobs.forgetting)) + 1
        self._work: Array | None = None
        self._room = min(most, knobs.rows + size)

    def observe(self, past: Past) -> None:
        """Count the example that the newest row completes; take a block of them in when it is full."""
        self._library.rls_observe(self.address(), past.address())

    def forecast(self, past: Past, out: int) -> None:
        """Write the forecasts of the heads, `(heads, H, C)`, to an address."""
        self._library.rls_forecast(self.address(), past.address(), out)

    def address(self) -> int:
        """Where compiled code finds all this, with the columns for the periods of now."""
        key = tuple([int(period[0]) for period in self._source.periods])
        if key != self._key:
            self._describe(self._source.columns(self._channels))
            self._key = key
        if self._work is None:
            self._work = np.zeros(self._library.rls_room(self._address, self._room))
            self._made.work = at(self._work)
        return self._address

    def _describe(self, columns: Columns) -> None:
        places = columns.places
        self._plus = (places[:, :, 0] * self._channels + places[:, :, 1]).astype(np.int32)
        self._minus = (places[:, :, 2] * self._channels + places[:, :, 3]).astype(np.int32)
        self._sign = places[0, :, 4].astype(np.float64)
        made = self._made
        fill(made, plus=self._plus, minus=self._minus, sign=self._sign)
        made.one, made.at = columns.one, columns.waves
        made.calendar.describe(columns.kinds)
