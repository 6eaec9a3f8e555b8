"""The rows that have come, as every expert sees them: the newest first known, gaps filled, wild values cut.

An expert may look hundreds of rows back, further than the window that a network is handed. So the rows are kept here,
once for all experts, in one buffer that is written along and moved to its front when it is full: the last `n` rows are
always one slice of it.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from natsr.experts.native import Native, Rows, fill

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Arrays = dict[str, npt.NDArray[np.generic]]

#: A change is cut at so many root mean squares of the changes before it: far beyond any that ordinary data make.
WILD = 10.0
#: Changes that are not zero before anything is cut.
YOUNG = 20
SIZE_RATE = 0.002  # weight of the newest change in their mean square
LARGEST = 1e6  # what is beyond this, in standard deviations, is cut from the first row on


class Past:
    """The last `keep` rows of `channels` values; before the first row, the first row.

    Args:
        channels: Values in a row, `C`.
        keep: Rows that can be looked at.

    Example:
        >>> past = Past(1, 3)
        >>> for value in (1.0, 2.0, np.nan):
        ...     past.push(np.array([value]))
        >>> past.last(3)[:, 0].tolist(), past.known_last(1).tolist()
        ([1.0, 2.0, 2.0], [[False]])

    `base` is what changes that are forecast are added to, `(C,)`.
    """

    def __init__(self, channels: int, keep: int) -> None:
        self.channels = channels
        self.keep = keep
        self._raw = np.zeros((2 * keep, channels))
        self._clean = np.zeros((2 * keep, channels))
        self._known = np.zeros((2 * keep, channels), dtype=bool)
        self._swing = np.ones((2 * keep, channels))
        self._end, self.seen = keep, 0  # one past the newest row in the buffer; rows that have come
        self._counts = np.zeros(2, dtype=np.int64)  # both, as they are saved
        self._square = np.zeros(channels)  # mean square of the changes
        self._changes = np.zeros(channels)  # how many are in it
        self._row = np.zeros(channels)  # the newest, as it came
        self.base = np.zeros(channels)
        self.turned = np.full(1, -1, dtype=np.int64)  # rows since the stream turned; `natsr.experts.turn` says when
        self._native = Native[Rows]()

    def push(self, row: Array) -> None:
        """Take the next row, `(C,)`, NaN where missing."""
        self._row[:] = row
        if self._native.library is not None:
            self._native.library.past_push(self.address(), WILD, YOUNG, SIZE_RATE, LARGEST)
            self._end = (self.keep if self._end == 2 * self.keep else self._end) + 1
            self.seen += 1
            return
        end = self._end
        known = np.isfinite(row)
        if self.seen == 0:
            first = np.where(known, row, 0.0)
            self._raw[:end], self._clean[:end] = first, np.clip(first, -LARGEST, LARGEST)
        elif end == 2 * self.keep:
            for buffer in (self._raw, self._clean, self._known, self._swing):
                buffer[: self.keep] = buffer[self.keep :]
            end = self.keep
        filled = np.where(known, row, self._raw[end - 1])
        self._raw[end], self._known[end], self._swing[end] = filled, known, self._swing[end - 1]
        self._clean[end] = self._cut(filled, self._clean[end - 1])
        self._end, self.seen = end + 1, self.seen + 1
        self._rebase()

    def _rebase(self) -> None:
        """Where forecasts begin: the newest row with wild values cut, or as it came where the stream stays there.

        A value far from all before it may be an outlier, and what is learned must not follow it at once. But when the
        row after it is near it, a counter was reset or a level has changed, and forecasts begin there.
        """
        end, usual = self._end, np.sqrt(self._square)
        now, before = (np.clip(self._raw[end - back], -LARGEST, LARGEST) for back in (1, 2))
        clean = self._clean[end - 1]
        stays = self._known[end - 1] & (np.abs(now - clean) > usual) & (np.abs(now - before) <= WILD * usual)
        np.copyto(self.base, np.where(stays, now, clean))

    def _cut(self, row: Array, before: Array) -> Array:
        """The row with each change from the row before held to what is usual; what is usual follows."""
        change = np.clip(row, -LARGEST, LARGEST) - before
        limit = np.where(self._changes < YOUNG, np.inf, WILD * np.sqrt(self._square))
        change = np.clip(change, -limit, limit)
        self._changes += (change != 0) | (self._changes > 0)
        self._square += np.maximum(SIZE_RATE, 1 / np.maximum(self._changes, 1)) * (change**2 - self._square)
        return np.asarray(before + change)

    def last(self, rows: int, back: int = 0) -> Array:
        """The last `rows` rows as they came, gaps filled from the past; `back` rows before the newest."""
        end = self._end - back
        return self._raw[end - rows : end]

    def clean(self, rows: int, back: int = 0) -> Array:
        """The same with wild values cut: what may be multiplied."""
        end = self._end - back
        return self._clean[end - rows : end]

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

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place; `reload` after that."""
        self._counts[:] = (self._end, self.seen)
        return {
            "raw": self._raw,
            "clean": self._clean,
            "known": self._known,
            "swing": self._swing,
            "counts": self._counts,
            "square": self._square,
            "changes": self._changes,
        }

    def address(self) -> int:
        """Where compiled code finds all this."""
        made = self._native.made
        if made is None:
            made = Rows(channels=self.channels, keep=self.keep)
            fill(made, raw=self._raw, clean=self._clean, known=self._known, swing=self._swing, row=self._row)
            fill(made, square=self._square, changes=self._changes, base=self.base)
            self._native.made = made
        made.end, made.seen = self._end, self.seen
        return ctypes.addressof(made)

    def reload(self) -> None:
        """The arrays have been written to."""
        self._end, self.seen = self._counts.tolist()
        self._rebase()
