"""Drift made visible: a flag, with the time at which it began, when errors have become larger than they used to be.

The logarithms of the absolute errors are averaged over blocks of rows, for a block is nearly normal however heavy the
tails of single errors are, and nearly free of what neighbours share. Each channel has a running mean and deviation of
its blocks. A cumulative sum (CUSUM; Page, 1954) adds up by how many deviations the blocks lie above their mean, less a
slack of three quarters; when it passes a limit, the stream has drifted since the block at which the sum last left
zero. One more sum looks at all channels together, for a small change of every channel.

The mean follows the stream, so that what has become usual ends the drift: the flag falls when the sum is back at zero.
Errors that become smaller are no drift here, since a learner that gets better is none.

A forecaster that is back within a few rows makes no such block. Where the row and what was expected of it are handed
over too, `natsr.signs` looks at single rows: values that stay where a large error took them, and a burst of errors
after which the weights of the experts go where they have not been. Each raises the same flag, for `HELD` rows at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from natsr.signs import Burst, Leaning, Step
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
HELD = 100  # rows that the flag stands for a sign in single rows
CONFIRMED = 60  # rows within which weights confirm a burst


class Drift:
    """Follows the size of the errors of each channel, and signs of a change in single rows.

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
        self._grown: int | None = None  # when blocks of errors became larger
        self._held = 0  # rows for which a sign in single rows still stands
        self._burst_began, self._ago = 0, CONFIRMED + 1  # of the last burst; rows since it was seen
        self._step, self._burst, self._leaning = Step(channels), Burst(channels), Leaning()
        self._rows = 0
        self._begin = 0  # what `at` was at the first row of the block
        self._total, self._count = np.zeros(channels), np.zeros(channels)
        self._level = np.zeros(channels)  # running mean size, for what counts as no error at all
        self._levels = np.zeros(channels)  # rows in it
        # One column for each channel, and one for all of them together.
        self._mean, self._square, self._seen = (np.zeros(channels + 1) for _ in range(3))
        self._sum, self._start = np.zeros(channels + 1), np.zeros(channels + 1)
        self._limit = LIMIT + math.log(channels + 1) / (2 * SLACK)

    def begin(self, rows: Array) -> None:
        """Tell of the rows `(T, C)` before the first errors, NaN where missing, so that a new level is known for one.

        Without them it takes three hundred errors until anything large is taken for a new level.
        """
        self._step.begin(rows)

    def update(
        self,
        sizes: Array,
        at: int,
        row: Array | None = None,
        expected: Array | None = None,
        weights: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Take the absolute errors about the next row.

        Args:
            sizes: `(C,)`, mean over the steps of the forecasts; NaN where nothing is known.
            at: The time of the row, or its number; `since` is one of these.
            row: The row itself `(C,)`, NaN where missing; without it only blocks of errors are looked at.
            expected: What the row before it was followed by, in the forecast made there, `(C,)`.
            weights: Answers those of the experts, and is asked once for each block; empty where there are none.
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
        whole = self._rows == BLOCK
        if whole:
            self._close()
            self._rows = 0
            self._total[:] = self._count[:] = 0.0
        told = None if row is None or expected is None else self._told(row, row - expected, at)
        if told is None and whole and weights is not None:
            told = self._confirmed(weights())
        self._decide(told)

    def _told(self, row: Array, error: Array, at: int) -> int | None:
        """When a new level began that this row confirms; a burst is kept in mind."""
        self._ago += 1
        if self._burst.look(error, at):
            self._burst_began = self._burst.since() if self._ago > CONFIRMED else self._burst_began
            self._ago = 0
        return self._step.look(row, error, at)

    def _confirmed(self, weights: Mapping[str, float]) -> int | None:
        """When the burst began after which the experts weigh what they have not weighed before."""
        far = bool(weights) and self._leaning.look(np.array(list(weights.values())))
        return self._burst_began if far and self._ago <= CONFIRMED else None

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
        above = self._sum > self._limit
        if self._grown is None and above.any():
            self._grown = int(self._start[above].min())
        elif self._grown is not None and not (self._sum > 0.5 * self._limit).any():
            self._grown = None

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

    def _decide(self, told: int | None) -> None:
        """The flag stands while errors are larger, or a sign has been seen of late; `since` is what was told first."""
        self._held = max(0, self._held - 1) if told is None else HELD
        if self.since is None:
            self.since = self._grown if told is None else told
            self.alarms += self.since is not None
        elif self._grown is None and self._held == 0:
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
        signs: State = {
            "grown": self._grown,
            "held": self._held,
            "began": self._burst_began,
            "ago": self._ago,
            "step": of_arrays(self._step.arrays()),
            "burst": of_arrays(self._burst.arrays()),
            "leaning": self._leaning.state_dict(),
        }
        return {**numbers, "signs": signs, **of_arrays(self._arrays())}

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave; up to 0.11.0 there were no signs, and they begin anew."""
        since, alarms, rows, begin = (state.get(name) for name in ("since", "alarms", "rows", "begin"))
        if not (isinstance(since, int | None) and isinstance(alarms, int)):
            raise StateError("the drift's state lacks since or alarms; it belongs to something else")
        if not (isinstance(rows, int) and isinstance(begin, int)):
            raise StateError("the drift's state lacks rows or begin; it belongs to something else")
        before = self.state_dict()
        try:
            into_arrays(state, self._arrays(), "drift")
            self._grown = since
            if (signs := state.get("signs")) is not None:
                self._load_signs(signs)
        except StateError:
            self.load_state_dict(before)  # nothing is left half written
            raise
        self.since, self.alarms, self._rows, self._begin = since, alarms, rows, begin

    def _load_signs(self, signs: object) -> None:
        found = signs if isinstance(signs, dict) else {}
        grown, held, began, ago = (found.get(name) for name in ("grown", "held", "began", "ago"))
        step, burst, leaning = (found.get(name) for name in ("step", "burst", "leaning"))
        if not (isinstance(grown, int | None) and isinstance(held, int) and isinstance(began, int)):
            raise StateError("the drift's state lacks grown, held or began; it belongs to something else")
        if not (isinstance(ago, int) and isinstance(step, dict) and isinstance(burst, dict)):
            raise StateError("the drift's state lacks ago, step or burst; it belongs to something else")
        if not isinstance(leaning, dict):
            raise StateError("the drift's state lacks its leaning; it belongs to something else")
        into_arrays(step, self._step.arrays(), "step")
        into_arrays(burst, self._burst.arrays(), "burst")
        self._leaning.load_state_dict(leaning)
        self._grown, self._held, self._burst_began, self._ago = grown, held, began, ago
