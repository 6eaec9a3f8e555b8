"""The rows that have come, as experts see them: gaps filled, with wild values cut, or without jumps.

An expert may look hundreds of rows back, further than the window that a network is handed. So the rows are kept here,
once for all experts, in one buffer that is written along and moved to its front when it is full: the last `n` rows are
always one slice of it.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

import numpy as np
import numpy.typing as npt

from natsr.experts.jumps import MEMORY, Jumps
from natsr.experts.native import Native, Rows, fill

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Arrays = dict[str, npt.NDArray[np.generic]]

#: A change is cut at so many root mean squares of the changes before it: far beyond any that ordinary data make.
WILD = 10.0
#: Changes that are not zero before anything is cut.
YOUNG = 20
SIZE_RATE = 0.002  # weight of the newest change in their mean square
#: What a change that is wild beyond all bounds counts as in it. As large as it is cut at, one in fifty would lift what
#: is usual each time, until nothing was cut any more.
TAMED = 4.0
#: But from the so manieth in a row on the stream is somewhere else, or larger, and what is usual has to follow.
LASTING = 4
#: A value is wild beyond all bounds if it lies further, in root mean squares of the changes, from where it is cut.
FAR = 100.0
LARGEST = 1e6  # what is beyond this, in standard deviations, is cut from the first row on


class View(Protocol):
    """Rows of a stream as regressors are made of them."""

    @property
    def channels(self) -> int:
        """Values in a row, `C`."""

    @property
    def seen(self) -> int:
        """Rows that have come."""

    def clean(self, rows: int, back: int = 0) -> Array:
        """The last `rows` rows, `back` rows before the newest."""

    def swing(self, rows: int, back: int = 0) -> Array:
        """What the waves of these origins are multiplied by."""


class Past:
    """The last `keep` rows of `channels` values; before the first row, the first row.

    Args:
        channels: Values in a row, `C`.
        keep: Rows that can be looked at.
        horizon: Rows ahead that are forecast, `H`.

    Example:
        >>> past = Past(1, 3, 1)
        >>> for value in (1.0, 2.0, np.nan):
        ...     past.push(np.array([value]))
        >>> past.last(3)[:, 0].tolist(), past.known_last(1).tolist()
        ([1.0, 2.0, 2.0], [[False]])

    `jumps` says where forecasts begin.
    """

    def __init__(self, channels: int, keep: int, horizon: int) -> None:
        self.channels = channels
        self.keep = keep
        self._raw = np.zeros((2 * keep, channels))
        self._clean = np.zeros((2 * keep, channels))
        self._even = np.zeros((2 * keep, channels))
        self._known = np.zeros((2 * keep, channels), dtype=bool)
        self._swing = np.ones((2 * keep, channels))
        self._end, self.seen = keep, 0  # one past the newest row in the buffer; rows that have come
        self.counts = np.zeros(2, dtype=np.int64)  # both, as they are saved
        self._square = np.zeros(channels)  # mean square of the changes
        self._changes = np.zeros(channels)  # how many are in it
        self._strays = np.zeros(channels)  # of the newest rows, how many were wild beyond all bounds
        self._row = np.zeros(channels)  # the newest, as it came
        self.jumps = Jumps(channels, horizon)
        self.turned = np.full(1, -1, dtype=np.int64)  # rows since the stream turned; `natsr.experts.turn` says when
        self._native = Native[tuple[Rows, Array]]()

    def push(self, row: Array) -> None:
        """Take the next row, `(C,)`, NaN where missing."""
        self._row[:] = row
        if self._native.library is not None:
            self._native.library.past_push(
                self.address(), WILD, YOUNG, SIZE_RATE, LARGEST, FAR / WILD, TAMED / WILD, LASTING
            )
            self._end = (self.keep if self._end == 2 * self.keep else self._end) + 1
            self.seen += 1
            return
        end = self._end
        known = np.isfinite(row)
        if self.seen == 0:
            first = np.where(known, row, 0.0)
            self._raw[:end] = first
            self._clean[:end] = self._even[:end] = np.clip(first, -LARGEST, LARGEST)
        elif end == 2 * self.keep:
            for buffer in (self._raw, self._clean, self._even, self._known, self._swing):
                buffer[: self.keep] = buffer[self.keep :]
            end = self.keep
        filled = np.where(known, row, self._raw[end - 1])
        self._raw[end], self._known[end], self._swing[end] = filled, known, self._swing[end - 1]
        self._follow(end, np.clip(filled, -LARGEST, LARGEST), known)
        self._end, self.seen = end + 1, self.seen + 1

    def _follow(self, end: int, row: Array, known: Flags) -> None:
        """The row with each change from the row before held to what is usual, and without jumps; both follow."""
        young = self._changes < YOUNG
        limit, most = (np.where(young, np.inf, WILD * np.sqrt(size)) for size in (self._square, self.jumps.calm))
        change = np.clip(row - self._clean[end - 1], -limit, limit)
        far = np.abs(row - self._clean[end - 1]) > FAR / WILD * limit
        strays = np.maximum((self._strays + 1) * far, self._strays)  # also of a row that comes back
        self._strays[:] = strays * far
        tame = np.where((strays > 0) & (strays < LASTING), TAMED / WILD, 1.0)
        self._changes += (change != 0) | (self._changes > 0)
        rate = np.maximum(SIZE_RATE, 1 / np.maximum(self._changes, 1))
        self._square += rate * ((tame * change) ** 2 - self._square)
        self._clean[end] = self._clean[end - 1] + change
        rows = self._even[end - max(2, min(self.seen, self.keep)) : end]
        newest = self.jumps.follow(rows, row, known, most, rate, (FAR / WILD, TAMED / WILD))
        if self.jumps.shift.any():
            self._even[end - self.keep : end] += self.jumps.shift
        self._even[end] = newest
        self.jumps.look_ahead(row, self._clean[end], self._base(end, row, known))

    def _base(self, end: int, row: Array, known: Flags) -> Array:
        """The newest row with wild values cut, or as it came where the stream stays there.

        What is cut creeps after a stream that has jumped. When the row after a jump is near it, forecasts begin there.
        """
        usual, before = np.sqrt(self._square), np.clip(self._raw[end - 1], -LARGEST, LARGEST)
        clean = self._clean[end]
        stays = known & (np.abs(row - clean) > usual) & (np.abs(row - before) <= WILD * usual)
        return np.where(stays, row, clean)

    def last(self, rows: int, back: int = 0) -> Array:
        """The last `rows` rows as they came, gaps filled from the past; `back` rows before the newest."""
        end = self._end - back
        return self._raw[end - rows : end]

    def clean(self, rows: int, back: int = 0) -> Array:
        """The same with wild values cut: what may be multiplied."""
        end = self._end - back
        return self._clean[end - rows : end]

    def even(self, rows: int, back: int = 0) -> Array:
        """The same without jumps."""
        end = self._end - back
        return self._even[end - rows : end]

    def known_last(self, rows: int, back: int = 0) -> Flags:
        """Which of these values came, and were not filled in."""
        end = self._end - back
        return self._known[end - rows : end]

    def swing(self, rows: int, back: int = 0) -> Array:
        """What the waves of these origins are multiplied by, to be written to; what it was before, or 1."""
        end = self._end - back
        return self._swing[end - rows : end]

    def size(self) -> Array:
        """Root mean square of the changes from row to row, `(C,)`."""
        return np.sqrt(self._square)

    def wild(self, rows: int, back: int = 0) -> Flags:
        """Which of these values lie so far from where they are cut that nothing should be learned of them."""
        return np.asarray(np.abs(self.last(rows, back) - self.clean(rows, back)) > FAR * self.size())

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place; `reload` after that."""
        self.counts[:] = (self._end, self.seen)
        return {
            "raw": self._raw,
            "clean": self._clean,
            "even": self._even,
            "known": self._known,
            "swing": self._swing,
            "counts": self.counts,
            "square": self._square,
            "changes": self._changes,
            "strays": self._strays,
            **self.jumps.arrays(),
        }

    def address(self) -> int:
        """Where compiled code finds all this."""
        made = None if self._native.made is None else self._native.made[0]
        if made is None:
            jumps, sorted_rows = self.jumps, np.zeros(self.keep)
            made = Rows(channels=self.channels, keep=self.keep, horizon=len(jumps.lift), memory=MEMORY)
            fill(made, raw=self._raw, clean=self._clean, known=self._known, swing=self._swing, row=self._row)
            fill(
                made, square=self._square, changes=self._changes, strays=self._strays, even=self._even, **jumps.arrays()
            )
            fill(made, lift=jumps.lift, begin=jumps.begin, shift=jumps.shift, stays=jumps.stays, sorted=sorted_rows)
            fill(made, turned=self.turned)
            self._native.made = made, sorted_rows
        made.end, made.seen = self._end, self.seen
        return ctypes.addressof(made)

    def may_count(self, counts: npt.NDArray[np.generic]) -> bool:
        """Whether rows can be counted so: one past the newest in the buffer, and those that have come."""
        end, seen = counts.tolist()
        return bool(self.keep <= end <= 2 * self.keep and seen >= 0)

    def reload(self) -> None:
        """The arrays have been written to."""
        self._end, self.seen = self.counts.tolist()


class Even:
    """A past whose rows are those without jumps.

    Args:
        past: Whose.
    """

    def __init__(self, past: Past) -> None:
        self._past = past
        self.channels, self.seen = past.channels, past.seen

    def clean(self, rows: int, back: int = 0) -> Array:
        """As `Past.even`."""
        return self._past.even(rows, back)

    def swing(self, rows: int, back: int = 0) -> Array:
        """As `Past.swing`."""
        return self._past.swing(rows, back)
