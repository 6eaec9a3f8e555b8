"""Signs of a change that the size of errors over blocks of rows shows late, or not at all.

A forecaster that follows a change within a few rows makes no block of large errors. Each sign here looks at the error
of the forecast one row ahead, whatever the horizon, and is measured by the largest of its kind of late, which is
forgotten slowly: no shape of the errors need be known, and what happens now and then is none.

- `Step`: an error larger than any of late, after which the values stay where they went. A single outlier does not.
- `Leaning`: the weights of the experts are further from what they were in the last thousand rows than they have been.
  They move for many reasons, so this one counts only after a `Burst`: some rows with errors that are suddenly larger
  than in any such stretch of late, the largest of them left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natsr.state import into_arrays, of_arrays, tensor_of
from natsr.types import State

Array = npt.NDArray[np.float64]

#: What the largest of late is multiplied by each row.
FADE = 0.999
#: Rows before anything is told, and before an error is held to the usual ones.
OLD, FEW = 300, 20
TINY = 1e-12
#: A step: how much larger than the largest error of late, for how many rows the values must stay, and where: beyond
#: this share of the way.
STEP, STAY, SHARE, STEP_FADE = 1.75, 6, 0.5, 0.9995
#: A burst: how many rows, how many of the largest are left out, how much a row counts at most in usual errors, and how
#: much larger than the largest of late it must be.
ROWS, WILD, MOST, BURST = 10, 3, 4.0, 1.2
#: A row belongs to a burst when its error is so many times the usual one.
PART = 1.5
#: Rows that the usual error looks back on.
USUAL = 1200
#: Of the weights, in calls: what the slow mean looks back on, when something is told, what the largest distance is
#: multiplied by; and how much larger than it a distance must be, and how large at least.
CALLS, CALLS_OLD, CALLS_FADE, LEAN, LEAST = 100, 40, 0.995, 1.2, 0.15


class Step:
    """A new level, for each channel.

    Args:
        channels: How many.
    """

    def __init__(self, channels: int) -> None:
        self._peak, self._base, self._jump, self._left, self._begin = (np.zeros(channels) for _ in range(5))
        self._rows = np.zeros(1)

    def begin(self, rows: Array) -> None:
        """Rows `(T, C)` before the first that is looked at: their changes stand for errors, which are seldom larger."""
        rows = rows[-OLD - 2 :]
        self._rows[0] = len(rows)
        self._peak = np.fmax.reduce(np.abs(np.diff(rows, axis=0)), axis=0, initial=0.0)

    def look(self, row: Array, error: Array, at: int) -> int | None:
        """Take a row `(C,)` and how far it is from what was expected of it; when a step began, told once."""
        self._rows += 1
        known, size = np.isfinite(error), np.abs(np.where(np.isfinite(error), error, 0.0))
        told = None
        if self._left.any():
            way = np.where(known, row - self._base, self._jump) * np.sign(self._jump)
            waiting, stays = self._left > 0, way > SHARE * np.abs(self._jump)
            self._left = np.where(stays, np.maximum(self._left - known, 0), 0.0)
            done = waiting & stays & (self._left == 0)
            told = int(self._begin[done].min()) if done.any() else None
        new = (size > STEP * self._peak) & (self._left == 0)
        if self._rows[0] > OLD and new.any():
            self._left[new], self._jump[new], self._begin[new] = STAY, error[new], at
            self._base[new] = row[new] - error[new]
        self._peak = np.maximum(STEP_FADE * self._peak, size)
        return told

    def arrays(self) -> dict[str, Array]:
        """What must be carried on."""
        return {
            "peak": self._peak,
            "base": self._base,
            "jump": self._jump,
            "left": self._left,
            "begin": self._begin,
            "rows": self._rows,
        }


class Burst:
    """A few rows of large errors, in a channel or in all of them together.

    Args:
        channels: How many.
    """

    def __init__(self, channels: int) -> None:
        self._level, self._seen = np.zeros(channels), np.zeros(channels)
        self._ring, self._times = np.ones((ROWS, channels + 1)), np.zeros(ROWS)  # the oldest row first
        self._record = np.zeros(channels + 1)
        self._rows = np.zeros(1)

    def look(self, error: Array, at: int) -> bool:
        """Take the errors `(C,)` about the next row; whether it is part of a burst."""
        self._rows += 1
        known, size = np.isfinite(error), np.abs(np.where(np.isfinite(error), error, 0.0))
        old = known & (self._seen >= FEW)
        ratio = np.where(old, np.minimum(size / (self._level + TINY), MOST), 1.0)
        self._ring[:-1], self._times[:-1] = self._ring[1:], self._times[1:]
        self._ring[-1, :-1], self._ring[-1, -1], self._times[-1] = ratio, ratio.mean(), at
        self._seen += known
        tame = np.where(self._seen <= FEW, size, np.minimum(size, 10 * self._level + TINY))
        self._level += known * (tame - self._level) / np.clip(self._seen, 1, USUAL)
        large = np.sort(self._ring, axis=0)[: ROWS - WILD].mean(0)
        found = self._rows[0] > OLD and bool((large > BURST * np.maximum(self._record, 1.0)).any())
        self._record = np.maximum(FADE * self._record, large)
        return found

    def since(self) -> int:
        """Where the large errors begin: those of the rows from there on are furthest above the usual, in sum."""
        over = np.cumsum(self._ring.max(1)[::-1] - PART)
        return int(self._times[ROWS - 1 - int(over.argmax())])

    def arrays(self) -> dict[str, Array]:
        """What must be carried on."""
        return {
            "level": self._level,
            "seen": self._seen,
            "ring": self._ring,
            "times": self._times,
            "record": self._record,
            "rows": self._rows,
        }


class Leaning:
    """How far the weights of experts are from their slow mean, as half the sum of the differences."""

    def __init__(self) -> None:
        self._slow = np.zeros(0)
        self._record, self._calls = np.zeros(1), np.zeros(1)

    def look(self, weights: Array) -> bool:
        """Take the weights `(E,)` of now; whether they are further off than they have been."""
        if len(self._slow) != len(weights):
            self._slow = weights.copy()
            self._record[0] = self._calls[0] = 0.0
        distance = 0.5 * float(np.abs(weights - self._slow).sum())
        self._calls += 1
        self._slow += (weights - self._slow) / min(self._calls[0], CALLS)
        far = self._calls[0] > CALLS_OLD and distance > max(LEAN * self._record[0], LEAST)
        self._record[0] = max(CALLS_FADE * self._record[0], distance)
        return bool(far)

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        return of_arrays({"slow": self._slow, "record": self._record, "calls": self._calls})

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""
        slow = tensor_of(state, "slow", (None,))
        into_arrays(state, {"record": self._record, "calls": self._calls}, "leaning")
        self._slow = slow.double().numpy().copy()
