"""The ledger: nothing is staked that has not been earned.

The guard goes by what would have been gained so far. On a column with few events that is chance: whether a burst of one
to three rows is over with the next row is a coin's toss, and whoever bets on it is some per cent better or worse than
the last value after fifty of them. So it is kept account, for each column, of what was staked and what came of it. A
forecast that lies `d` from the last value can lose `d` more than the last value does, and no more. All that is out at a
time, over all steps, may lose no more than the column has:

- a five-hundredth of all that the last value has lost, and two usual rows of that to begin with;
- what the forecasts have gained over the last value, less what they have lost to it;
- further ahead than one row, a few times what the mixture *would* have gained, had it been followed all the time.
  Stakes are out for many rows there, and a stream that has just begun, and is forecast well, would have to wait for
  hundreds of rows without that.

What would be too much is staked in part, all steps alike, and as long as the largest stake of late would have been too
much every stake is made in that part: whoever bets little in full while nothing happens, and a little of much when
something does, loses what follows from being right in the main.

Some columns stand still in the main (`stillness`: nine rows of ten, say, or change by next to nothing beside what they
do in the tenth). One row ahead this is for them: there are few tosses, and so the error in all is never more than that
of the last value, a five-hundredth and those two rows, whatever comes, as long as they do. A column that moves in every
row tells in some hundred rows whether the mixture is better, and is left to the guard; a strict account would cost it
dear where tails are heavy. Further ahead it is the other way round. A burst is over by then whichever way it falls, and
of a column that stands still `H - 1` times what would have been gained may be staked; but what a few hundred rows say
of a walk is chance, for forecasts of many rows err together, and of a column that moves it is `2 - 2 / sqrt(H)` times.

A row that is wild beyond all bounds (a value of 1e30, a sensor's code) would fill or empty every account for ever: what
is forecast of it, and from it, is not counted, and its stakes are free.

The first rows are for learning, and their stakes are free. After a warm-up what was lost in it is forgiven, and what
was gained in it counts up to another five-hundredth.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from natsr.experts.past import LARGEST, Array, Arrays, Flags, Past

#: What may be lost to the last value, relative to what it loses, and in usual rows of that.
ALLOWED, START = 0.002, 2.0
#: What is kept of the gains of a warm-up, relative to what the last value has lost in it.
CARRIED = 0.002
#: What is left one row later of the largest stake.
FADE = 0.99
#: Rows whose stakes are free, beside `H`.
YOUNG = 100
#: The part of what is owed that is forgiven in a row, further ahead than one row, of a column that moves.
FORGIVEN = 0.001
#: A value is wild if it lies further, in root mean squares of the changes, from where it is cut.
FAR = 100.0
#: A column stands still in the main up to the first, and moves from the second on.
STILL, MOVING = 0.25, 0.35


def believed(horizon: int, still: Array) -> Array:
    """How many times what would have been gained may be staked, by how much a column stands still."""
    return (1 - still) * (2 - 2 / math.sqrt(horizon)) + still * (horizon - 1)


def _wild(past: Past, rows: int, back: int) -> Flags:
    """Which values of these rows are not counted."""
    return np.asarray(np.abs(past.last(rows, back) - past.clean(rows, back)) > FAR * past.size())


class Ledger:
    """The accounts of each column.

    Args:
        shape: `(H, C)`.

    Attributes:
        free: The part of the way to where the guard would go that can be paid for, `(C,)`.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._horizon, channels = shape
        self._lost = np.zeros(channels)  # by the last value
        self._earned = np.zeros(channels)  # by the forecasts over the last value
        self._gained = np.zeros(channels)  # by the mixture over the last value, had it been followed
        self._peak = np.zeros(channels)  # the largest stake of late
        self._changes = np.zeros((3, channels))  # from row to row: how many, their sum, and that of their roots
        self.free = np.ones(channels)

    def settle(self) -> None:
        """A warm-up is over."""
        np.clip(self._earned, 0.0, CARRIED * self._lost, out=self._earned)

    def take(self, past: Past, mixture: Array, given: Array, truth: Array) -> None:
        """The newest row is there: what each step of what was forecast of it has brought.

        Args:
            past: The rows.
            mixture: What was mixed, `(H, C)`, step `h` from the origin `h` rows before the newest.
            given: What was forecast.
            truth: What came; NaN where unknown, or where there was no origin.
        """
        known = np.isfinite(truth) & ~_wild(past, 1, 0) & ~_wild(past, self._horizon, 1)[::-1]
        last = past.last(self._horizon, 1)[::-1]
        change = np.where(known[0], np.minimum(np.abs(truth[0] - last[0]), LARGEST), 0.0)
        self._changes += [known[0], change, np.sqrt(change)]
        held = [np.clip(truth - guess, -LARGEST, LARGEST) for guess in (last, given, mixture)]
        lost, own, mixed = (np.where(known, np.abs(error), 0.0).sum(0) for error in held)
        self._lost += lost
        for account in (self._earned, self._gained):
            account *= np.where(account < 0, self._kept(), 1.0)
        self._gained += lost - mixed
        if past.seen > YOUNG + self._horizon:
            self._earned += lost - own

    def _kept(self) -> Array:
        """What is left one row later of what is owed, `(C,)`."""
        return 1 - FORGIVEN * (1 - self.stillness()) if self._horizon > 1 else np.ones_like(self._lost)

    def stillness(self) -> Array:
        """1 for a column that stands still in the main, 0 for one that moves, `(C,)`.

        The square of the mean root of the changes over their mean: of noise it is 0.85, with tails of 1.2 degrees of
        freedom a half, and of a column that moves in one row of ten 0.1.
        """
        count, total, roots = self._changes
        index = roots**2 / np.where(total > 0, count * total, 1.0)
        return np.clip((MOVING - index) / (MOVING - STILL), 0.0, 1.0)

    def stake(self, past: Past, wanted: Array, out: Array) -> None:
        """How much of the way can be paid for.

        Args:
            past: The rows.
            wanted: Where the guard would go from the newest row, `(H, C)`.
            out: What was forecast from each origin, `(H + 1, H, C)`, row `n` at place `n % (H + 1)`.
        """
        horizon, newest = self._horizon, past.seen - 1
        wild = _wild(past, 1, 0)[0]
        total = np.where(wild, 0.0, np.minimum(np.abs(wanted - past.last(1)), LARGEST).sum(0))
        np.maximum(FADE * self._peak, total, out=self._peak)
        if past.seen <= YOUNG + horizon:
            self.free[:] = 1.0
            return
        own = (ALLOWED + START / past.seen) * self._lost + self._earned
        still = self.stillness()
        bank = own + believed(horizon, still) * np.maximum(self._gained, 0.0)
        ago = np.arange(1, horizon)
        waits = np.arange(horizon)[:, None] >= ago[:, None, None]  # steps that have not come
        waits = waits & ~_wild(past, horizon - 1, 1)[::-1, None]
        stakes = np.abs(out[(newest - ago) % len(out)] - past.last(horizon - 1, 1)[::-1, None])
        bank -= np.where(waits, np.minimum(stakes, LARGEST), 0.0).sum((0, 1))
        most = np.where(self._peak > 0, self._peak, 1.0)
        free = np.where(self._peak > bank, np.maximum(bank, 0.0) / most, 1.0)
        free = still * free + (1 - still) if horizon == 1 else free
        self.free[:] = np.where(wild, 1.0, free)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        accounts = {"lost": self._lost, "earned": self._earned, "gained": self._gained}
        return accounts | {"peak": self._peak, "changes": self._changes, "free": self.free}

    @staticmethod
    def of_losses(loss: npt.NDArray[np.float64]) -> Arrays:
        """Accounts of a guard that had none: as after a warm-up, by its losses with the last value and the mixture.

        How still the columns stand is not known: as if they all moved, until they have shown it.
        """
        last, mixture = loss[0].sum(0), loss[4].sum(0)
        accounts = {"lost": last, "earned": CARRIED * last, "gained": last - mixture}
        changes = np.ones((3, len(last)))
        return accounts | {"peak": np.zeros_like(last), "changes": changes, "free": np.ones_like(last)}
