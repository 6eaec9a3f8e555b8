"""The ledger: nothing is staked that has not been earned.

The guard goes by what would have been gained so far. On a column with few events that is chance: whether a burst of one
to three rows is over with the next row is a coin's toss, and whoever bets on it is some per cent better or worse than
the last value after fifty of them. So it is kept account, for each column, of what was staked and what came of it. A
forecast that lies `d` from the last value can lose `d` more than the last value does, and no more. All that is out at a
time, over all steps, may lose no more than the column has:

- a five-hundredth of all that the last value has lost, and to begin with a usual row of that, or further ahead half of
  one;
- what the forecasts have gained over the last value, less what they have lost to it;
- what it is lent.

What would be too much is staked in part, all steps alike, and as long as the largest stake of late would have been too
much every stake is made in that part: whoever bets little in full while nothing happens, and a little of much when
something does, loses what follows from being right in the main.

Without a loan this is a bound on any stream. It would be dear: where tails are heavy one stake may be larger than all
that was earned, and `H` rows ahead stakes are out for many rows, so that a stream that has just begun, and is forecast
well, would have to wait for hundreds of rows. Much may be lent to whoever *would* have gained much, had it been
followed all the time, for that is no chance:

- where the mixture would have been clearly better than the last value, twice what it would have gained;
- a column that stands still in the main (`stillness`: in nine rows of ten, say, or all but still beside what it does in
  the tenth) `H - 1` times what would have been gained, and nothing else. One row ahead that is nothing: there are few
  tosses, and so its error in all is never more than that of the last value, a five-hundredth and that row, whatever
  comes, as long as it stands still in the main. Further ahead a burst is over whichever way it falls.

Forecasts of many rows err together for as many, so on a short walk it is soon by chance that much would have been
gained. So all of this is lent as far as it is no chance, and the nearest steps tell soonest: in a hundred rows there
are four runs of 24 rows, and twelve of eight. How many standard deviations would have been gained, those of rows which
come in runs, is asked in three ways, and the best answer counts:

- by the nearest eight steps of the column: nothing up to 1, all from 1.5 on;
- by those of all columns together, each in its usual rows: nothing up to half a deviation, all from 2 on, as far as the
  column's own do not speak against it (all from 0 on, nothing below -1). What holds for six columns is no chance in the
  seventh;
- by all steps of the column, for streams of which the next rows tell nothing: nothing up to 1, all from 2 on, and
  nothing in the first eight runs of as many rows as are forecast, all from the sixteenth on. Few runs tell little of
  their deviation.

What the nearest steps have brought fades by three thousandths with each row: a mixture that began badly is soon
believed.

A walk in whole numbers may stand still in three rows of four, so far ahead it takes more to be such a column.

A row that is wild beyond all bounds (a value of 1e30, a sensor's code) would fill or empty every account for ever: what
is forecast of it, and from it, is not counted, and its stakes are free. A mixture may be as wild for some rows after
it. What it says then is no proof of anything, so what would have come of it is not counted either; what is staked on it
is paid for as any other stake, and remembered as no more than the largest that is not wild.

The first rows are for learning, and their stakes are free. After a warm-up what was lost in it is forgiven, what was
gained in it counts up to a five-hundredth or a usual row, whichever is less (one row ahead two of these, and four
rows), and what is allowed begins anew.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from natsr.experts.past import FAR, LARGEST, Array, Arrays, Past

T = TypeVar("T")

#: What may be lost to the last value, relative to what it loses, and in usual rows of that: one row ahead, and further
#: ahead, where a row has as many labels as there are steps.
ALLOWED, START = 0.002, (1.0, 0.5)
#: What is kept of the gains of a warm-up, relative to what the last value has lost in it and in usual rows; the less.
CARRIED, BROUGHT = (0.004, 0.002), (4.0, 1.0)
#: What is left one row later of the largest stake.
FADE = 0.99
#: Rows whose stakes are free, beside `H`.
YOUNG = (30, 20)
#: From the first to the second part of what the last value has lost, what would have been gained is the clearer; so
#: many times that is lent where it is clear.
CLEAR, TRUST = (0.03, 0.1), 2.0
#: The steps that tell soonest, and what is left one row later of what they have brought.
NEAREST, MEMORY = 8, 0.997
#: From the first to the second number of standard deviations what would have been gained is the less likely chance: by
#: the column's nearest steps; by those of all columns, and the column's own beside them; by all steps of the column.
SURE, SHARED, BESIDE, LONG = (1.0, 1.5), (0.5, 2.0), (-1.0, 0.0), (1.0, 2.0)
#: From the first to the second number of runs of `H` rows all steps are listened to.
RUNS = (8.0, 16.0)
#: What stands for no deviation at all.
LEAST = 1e-300
#: A column stands still in the main up to the first, and moves from the second on: one row ahead, and further ahead.
STILL, MOVING = (0.25, 0.12), (0.35, 0.22)


def by_horizon(one: tuple[T, T], horizon: int) -> T:
    """What holds one row ahead, or further ahead."""
    return one[horizon > 1]


def ramp(value: Array | np.float64, ends: tuple[float, float]) -> Array:
    """0 up to the first end, 1 from the second on, `(C,)`."""
    first, second = ends
    return np.clip((value - first) / (second - first), 0.0, 1.0)


class Ledger:
    """The accounts of each column.

    Args:
        shape: `(H, C)`.

    Attributes:
        free: The part of the way to where the guard would go that can be paid for, `(C,)`.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._horizon, channels = shape
        self._young = by_horizon(YOUNG, self._horizon) + self._horizon
        self._lost = np.zeros(channels)  # by the last value
        self._earned = np.zeros(channels)  # by the forecasts over the last value
        self._gained = np.zeros(channels)  # by the mixture over the last value, had it been followed
        self._squares = np.zeros(channels)  # of what would have been gained, row by row
        self._near = np.zeros((2, channels))  # the same of the nearest steps, of late: gained, and the squares
        self._shared = np.zeros(2)  # and of those of all columns together, each in its usual rows
        self._peak = np.zeros(channels)  # the largest stake of late
        self._changes = np.zeros((3, channels))  # from row to row: how many, their sum, and that of their roots
        self.free = np.ones(channels)

    def settle(self, rows: int) -> None:
        """A warm-up of so many rows is over."""
        carried, brought = (by_horizon(most, self._horizon) for most in (CARRIED, BROUGHT))
        most = min(carried, brought / max(rows, 1))
        np.clip(self._earned, 0.0, most * self._lost, out=self._earned)
        self._earned -= ALLOWED * self._lost

    def take(self, past: Past, mixture: Array, given: Array, truth: Array) -> None:
        """The newest row is there: what each step of what was forecast of it has brought.

        Args:
            past: The rows.
            mixture: What was mixed, `(H, C)`, step `h` from the origin `h` rows before the newest.
            given: What was forecast.
            truth: What came; NaN where unknown, or where there was no origin.
        """
        known = np.isfinite(truth) & ~past.wild(1) & ~past.wild(self._horizon, 1)[::-1]
        last = past.last(self._horizon, 1)[::-1]
        change = np.where(known[0], np.minimum(np.abs(truth[0] - last[0]), LARGEST), 0.0)
        self._changes += [known[0], change, np.sqrt(change)]
        held = [np.clip(truth - guess, -LARGEST, LARGEST) for guess in (last, given, mixture)]
        lost = np.where(known, np.abs(held[0]), 0.0).sum(0)
        paid = known & (past.seen - 1 - np.arange(self._horizon) > self._young)[:, None]  # not what was free
        earned = np.where(paid, np.abs(held[0]) - np.abs(held[1]), 0.0).sum(0)
        self._lost += lost
        tame = np.abs(mixture - last) <= FAR * past.size()
        steps = np.where(known & tame, np.abs(held[0]) - np.abs(held[2]), 0.0)
        gained, near = steps.sum(0), steps[:NEAREST].sum(0)
        self._gained += gained
        self._squares += gained**2
        usual = self._lost / past.seen
        together = float(np.where(usual > 0, near / np.where(usual > 0, usual, 1.0), 0.0).sum())
        for brought, newest in ((self._near, near), (self._shared, together)):
            brought[0] = MEMORY * brought[0] + newest
            brought[1] = MEMORY**2 * brought[1] + newest**2
        self._earned += earned

    def _lent(self, still: Array, rows: int) -> Array:
        """What may be staked beside what is there, `(C,)`."""
        gained = np.maximum(self._gained, 0.0)
        clear = ramp(gained / np.where(self._lost > 0, self._lost, 1.0), CLEAR)
        lent: Array = self._sure(rows) * ((1 - still) * clear * TRUST + still * (self._horizon - 1)) * gained
        return lent

    def _sure(self, rows: int) -> Array:
        """How far it is no chance that so much would have been gained, `(C,)`."""
        run = min(NEAREST, self._horizon)
        near, together = (_deviations(brought[0], brought[1], run) for brought in (self._near, self._shared))
        most = np.maximum(ramp(near, SURE), ramp(together, SHARED) * ramp(near, BESIDE))
        far = _deviations(self._gained, self._squares, self._horizon)
        return np.maximum(most, ramp(np.float64(rows / self._horizon), RUNS) * ramp(far, LONG))

    def stillness(self) -> Array:
        """1 for a column that stands still in the main, 0 for one that moves, `(C,)`.

        The square of the mean root of the changes over their mean: of noise it is 0.85, with tails of 1.2 degrees of
        freedom a half, and of a column that moves in one row of ten 0.1.
        """
        count, total, roots = self._changes
        index = roots**2 / np.where(total > 0, count * total, 1.0)
        still, moving = (by_horizon(ends, self._horizon) for ends in (STILL, MOVING))
        return np.clip((moving - index) / (moving - still), 0.0, 1.0)

    def stake(self, past: Past, wanted: Array, out: Array) -> None:
        """How much of the way can be paid for.

        Args:
            past: The rows.
            wanted: Where the guard would go from the newest row, `(H, C)`.
            out: What was forecast from each origin, `(H + 1, H, C)`, row `n` at place `n % (H + 1)`.
        """
        horizon, newest = self._horizon, past.seen - 1
        wild, away = past.wild(1)[0], np.minimum(np.abs(wanted - past.last(1)), LARGEST)
        total, tame = (np.where(wild, 0.0, far.sum(0)) for far in (away, np.minimum(away, FAR * past.size())))
        np.maximum(FADE * self._peak, tame, out=self._peak)
        if past.seen <= self._young:
            self.free[:] = 1.0
            return
        still, usual = self.stillness(), self._lost / past.seen
        bank = ALLOWED * self._lost + by_horizon(START, horizon) * usual + self._earned + self._lent(still, past.seen)
        ago = np.arange(1, horizon)
        waits = np.arange(horizon)[:, None] >= ago[:, None, None]  # steps that have not come
        waits = waits & ~past.wild(horizon - 1, 1)[::-1, None]
        stakes = np.abs(out[(newest - ago) % len(out)] - past.last(horizon - 1, 1)[::-1, None])
        bank -= np.where(waits, np.minimum(stakes, LARGEST), 0.0).sum((0, 1))
        most = np.maximum(self._peak, total)
        free = np.where(most > bank, np.maximum(bank, 0.0) / np.where(most > 0, most, 1.0), 1.0)
        self.free[:] = np.where(wild, 1.0, free)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        accounts: Arrays = {"lost": self._lost, "earned": self._earned, "near": self._near, "shared": self._shared}
        accounts |= {"gained": self._gained, "squares": self._squares}
        return accounts | {"peak": self._peak, "changes": self._changes, "free": self.free}

    @staticmethod
    def of_losses(loss: npt.NDArray[np.float64]) -> Arrays:
        """Accounts of a guard that had none: as after a warm-up, by its losses with the last value and the mixture.

        How still the columns stand is not known: as if they all moved, until they have shown it.
        """
        last, mixture = loss[0].sum(0), loss[4].sum(0)
        none, gained = np.zeros_like(last), last - mixture
        accounts: Arrays = {"lost": last, "earned": none, "gained": gained, "squares": none.copy(), "peak": none.copy()}
        accounts["near"], accounts["shared"] = near_of(gained, none, loss.shape[1]), np.zeros(2)
        accounts["changes"], accounts["free"] = np.ones((3, len(last))), np.ones_like(last)
        return accounts


def near_of(gained: Array, squares: Array, horizon: int) -> Array:
    """What the nearest steps have brought, `(2, C)`, where it is only known of all steps: as sure as that."""
    return np.stack([gained, squares * horizon / min(NEAREST, horizon)])


def _deviations(gained: Array, squares: Array, run: int) -> Array:
    """How many standard deviations that is where rows come in runs."""
    return np.asarray(gained / np.maximum(np.sqrt(run * squares), LEAST))
