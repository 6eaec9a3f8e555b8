"""Drift made visible: a flag, with the time at which it began, when errors have become larger than they used to be.

The logarithms of the absolute errors are averaged over blocks of rows, for a block is nearly normal however heavy the
tails of single errors are, and nearly free of what neighbours share. Each channel has a running mean and deviation of
its blocks. A cumulative sum (CUSUM; Page, 1954) adds up by how many deviations the blocks lie above their mean, less a
slack of three quarters; when it passes a limit, the stream has drifted since the block at which the sum last left
zero. One more sum looks at all channels together, for a small change of every channel.

The mean follows the stream, so that what has become usual ends the drift: the flag falls when the sum is back at zero.
Errors that become smaller are no drift here, since a learner that gets better is none.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from natsr.state import into_arrays, of_arrays
from natsr.types import State, StateError

Array = npt.NDArray[np.float64]

BLOCK = 12  # rows
BASELINE = 100  # blocks that the mean and the deviation look back on
YOUNG = 20  # blocks before there is a mean to depart from
SLACK = 0.75  # deviations by which a block must be worse than the mean to count
LIMIT = 7.0  # deviations; a little is added for each channel, so that many do not raise more false alarms
HARDEST = 4.0  # deviations that one block counts at most: a single one is never a drift
STEADY = 0.1  # the least deviation of a block: errors that always have one size are no reason for alarm at the next
TINY = 1e-12


class Drift:
    """Follows the size of the errors of each channel.

    Args:
        channels: How many.

    Example:
        >>> drift, generator = Drift(channels=1), np.random.default_rng(0)
        >>> for row, size in enumerate(np.where(np.arange(2000) < 1500, 1.0, 4.0)):
        ...     drift.update(size * np.abs(generator.normal(size=1)), at=row)
        ...     if drift.since is not None:
        ...         break
        >>> drift.since, row
        (1500, 1535)
    """

    def __init__(self, channels: int) -> None:
        self.since: int | None = None  # what `at` was when the drift began; None while there is none
        self.alarms = 0  # drifts so far
        self._rows, self._blocks = 0, 0
        self._begin = 0  # what `at` was at the first row of the block
        self._total, self._count = np.zeros(channels), np.zeros(channels)
        self._level = np.zeros(channels)  # running mean size, for what counts as no error at all
        self._levels = np.zeros(channels)  # rows in it
        # One column for each channel, and one for all of them together.
        self._mean, self._square, self._seen = (np.zeros(channels + 1) for _ in range(3))
        self._sum, self._start = np.zeros(channels + 1), np.zeros(channels + 1)
        self._limit = LIMIT + math.log(channels + 1) / (2 * SLACK)

    def update(self, sizes: Array, at: int) -> None:
        """Take the absolute errors about the next row.

        Args:
            sizes: `(C,)`, mean over the steps of the forecasts; NaN where nothing is known.
            at: The time of the row, or its number; `since` is one of these.
        """
        if self._rows == 0:
            self._begin = at
        known = np.isfinite(sizes)
        sizes = np.where(known, sizes, 0.0)
        self._levels += known
        tame = np.minimum(sizes, 10 * self._level + TINY)  # one wild row is none
        usual = np.where(self._levels < YOUNG, sizes, tame)
        self._level += known * (usual - self._level) / np.clip(self._levels, 1, BLOCK * BASELINE)
        self._total += np.where(known, np.log(np.maximum(sizes, 1e-3 * self._level + TINY)), 0.0)
        self._count += known
        self._rows += 1
        if self._rows == BLOCK:
            self._close()
            self._rows = 0
            self._total[:] = self._count[:] = 0.0

    def _close(self) -> None:
        """The end of a block."""
        whole = self._count >= BLOCK / 2
        block = np.where(whole, self._total / np.maximum(self._count, 1), 0.0)
        old = self._seen[:-1] >= YOUNG
        each = self._standing(block, slice(0, -1))
        judged = whole & old
        together = float(each[judged].mean()) if judged.any() else 0.0
        values, here = np.append(block, together), np.append(whole, judged.any())
        standing = self._standing(values, slice(None))
        counted = here & (self._seen >= YOUNG)
        resting = self._sum <= 0
        self._sum = np.where(counted, np.clip(self._sum + standing - SLACK, 0.0, 2 * self._limit), self._sum)
        self._start = np.where(resting & (self._sum > 0), float(self._begin), self._start)
        self._follow(values, standing, here)
        self._decide()

    def _standing(self, values: Array, part: slice) -> Array:
        """How many deviations above the mean, bounded."""
        variance = np.maximum(self._square[part] - self._mean[part] ** 2, STEADY**2)
        standing: Array = np.clip((values - self._mean[part]) / np.sqrt(variance), -HARDEST, HARDEST)
        return standing

    def _follow(self, values: Array, standing: Array, here: npt.NDArray[np.bool_]) -> None:
        """Move mean and deviation; what lies far out counts as if it lay three deviations away."""
        self._seen += here
        deviation = np.sqrt(np.maximum(self._square - self._mean**2, STEADY**2))
        near = np.where(self._seen <= YOUNG, values, self._mean + np.clip(standing, -3.0, 3.0) * deviation)
        weight = here / np.clip(self._seen, 1, BASELINE)
        self._mean += weight * (near - self._mean)
        self._square += weight * (near**2 - self._square)

    def _decide(self) -> None:
        above = self._sum > self._limit
        if self.since is None and above.any():
            self.since = int(self._start[above].min())
            self.alarms += 1
        elif self.since is not None and not (self._sum > 0.5 * self._limit).any():
            self.since = None

    def _arrays(self) -> dict[str, Array]:
        return {
            "total": self._total,
            "count": self._count,
            "level": self._level,
            "levels": self._levels,
            "mean": self._mean,
            "square": self._square,
            "seen": self._seen,
            "sum": self._sum,
            "start": self._start,
        }

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        numbers: State = {"since": self.since, "alarms": self.alarms, "rows": self._rows, "begin": self._begin}
        return {**numbers, **of_arrays(self._arrays())}

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""
        since, alarms, rows, begin = (state.get(name) for name in ("since", "alarms", "rows", "begin"))
        if not (isinstance(since, int | None) and isinstance(alarms, int)):
            raise StateError("the drift's state lacks since or alarms; it belongs to something else")
        if not (isinstance(rows, int) and isinstance(begin, int)):
            raise StateError("the drift's state lacks rows or begin; it belongs to something else")
        into_arrays(state, self._arrays(), "drift")
        self.since, self.alarms, self._rows, self._begin = since, alarms, rows, begin
