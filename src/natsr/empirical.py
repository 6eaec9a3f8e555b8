"""Quantiles of the last errors, and how far to trust them: the second opinion of `natsr.calibrate`.

For each step and column the errors of late lie in a ring, `ROWS` of them, fewer where a stream is so wide that they
would be more than `NUMBERS`. Their quantiles are read off in turn, each at least once in `TURNS` times `PAUSE` rows.

`Trust` says for each column how much of these quantiles is to be mixed in. The loss of a mixture of two quantiles is
convex in the share, so three points tell most of it: from each row that comes it adds up what the mixture would have
lost with a share of one half and of one, over what the first opinion alone lost, all as they were when they were
issued. The share is the lowest point of the parabola through the sums. What has been gained must be more than luck:
the sums are raised in proportion to the root of the sum of their squares, and more so in the first rows.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from natsr.types import Task

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]
Errors = npt.NDArray[np.float32]

ROWS = 800  # errors that are looked back on
NUMBERS = 4_000_000  # that are kept in all, where this does not leave fewer than `FEWEST` for each pair
FEWEST = 48
YOUNG = 41  # errors below which nothing is said: from here on one wild value does not reach the outer quantiles
TURNS, PAUSE = 4, 6  # in so many turns all pairs are read off, one turn after so many rows
OUTWARD = 1e-6  # relative; errors are kept in 32 bits, and one that comes back exactly is to lie inside
LARGEST = 1e38

DISCOUNT = 0.999  # of what was gained and lost, for each row
PROOF = 0.5  # roots of the sum of squares that are taken off a gain
SLOWLY = 48  # rows; after so many the proof asked for is still twice that
CUT, USUAL = 6.0, 20  # one row counts at most so many times the usual, once there is a usual


class Empirical:
    """Quantiles `(Q, H, C)` of the last errors of each step and column.

    Args:
        task: Gives the horizon and the channels.
        probabilities: Of the quantiles, rising.

    Example:
        >>> empirical = Empirical(Task(window=1, horizon=1, channels=1), (0.25, 0.5, 0.75))
        >>> for row in range(97):
        ...     _ = empirical.move(np.array([[float(row)]]), np.array([[True]]), row)
        >>> empirical.quantiles[:, 0, 0].round(3).tolist()
        [24.0, 48.0, 72.0]
    """

    def __init__(self, task: Task, probabilities: tuple[float, ...]) -> None:
        H, C = task.horizon, task.channels
        self.rows = max(min(ROWS, NUMBERS // (H * C)), FEWEST)
        self._probabilities = probabilities
        self._outward = OUTWARD * np.sign(np.array(probabilities) - 0.5)[:, None]
        self._chunk = -(-H * C // TURNS)
        self._turns = -(-H * C // self._chunk)
        self._channels = np.arange(C)
        self.errors = np.full((H, C, self.rows), np.nan, dtype=np.float32)
        self.place = np.zeros(C, dtype=np.int64)  # in the ring, of the next error
        self.quantiles = np.zeros((len(probabilities), H, C))
        self.ready = np.zeros((H, C))  # 1 where there are errors enough, else 0

    def move(self, error: Array, known: Mask, row: int) -> bool:
        """Take the errors about a row `(H, C)`, and read off the quantiles whose turn it is, if any; was it so?"""
        self._keep(error, known)
        due = row % PAUSE == 0
        if due:
            self._read(row // PAUSE % self._turns * self._chunk)
        return due

    def _read(self, first: int) -> None:
        """The quantiles of a chunk of the pairs of step and column, from this one on."""
        chosen = np.sort(self.errors.reshape(-1, self.rows)[first : first + self._chunk])  # NaN last
        counts = np.count_nonzero(chosen == chosen, axis=1)
        below, share = _between(self.rows, self._probabilities)
        at = below[:, counts] + np.arange(0, chosen.size, self.rows)
        flat = chosen.reshape(-1)
        low, high = flat[at].astype(np.float64), flat[at + 1]
        low += share[:, counts] * (high - low)
        low += self._outward * np.abs(low)
        enough = counts >= YOUNG
        pairs = slice(first, first + len(counts))
        self.ready.reshape(-1)[pairs] = enough
        self.quantiles.reshape(len(low), -1)[:, pairs] = np.where(enough, low, 0.0)

    def _keep(self, error: Array, known: Mask) -> None:
        """Only rows in which a column is known take a place in its ring."""
        newest = np.minimum(np.maximum(error, -LARGEST), LARGEST)
        if known.all():
            self.errors[:, self._channels, self.place] = newest
            self.place += 1
        else:
            newest[~known] = np.nan
            here = np.flatnonzero(known.any(0))
            self.errors[:, here, self.place[here]] = newest[:, here]
            self.place[here] += 1
        self.place %= self.rows


def ring_of(errors: npt.NDArray[np.generic], place: npt.NDArray[np.generic], rows: int) -> tuple[Errors, Places]:
    """A ring for so many errors with what is in a shorter one, and where its next error goes, for each column.

    >>> errors, place = ring_of(np.array([[[3.0, 1.0, 2.0]]]), np.array([1]), 5)
    >>> errors[0, 0].tolist(), place.tolist()
    ([1.0, 2.0, 3.0, nan, nan], [3])
    """
    kept = errors.shape[2]
    longer = np.full((*errors.shape[:2], rows), np.nan, dtype=np.float32)
    for column, first in enumerate(place.tolist()):
        longer[:, column, :kept] = np.roll(errors[:, column], -int(first), axis=1)
    return longer, np.full_like(place, kept, dtype=np.int64)


class Trust:
    """The share `(C,)`, between 0 and 1, of the second of two opinions; it begins with 0.

    Args:
        channels: How many columns.
        probabilities: Of the quantiles that are compared `(Q,)`.
        every: How many rows each that is learned from stands for.

    Example:
        >>> trust, generator = Trust(1, np.array([0.25, 0.75])), np.random.default_rng(0)
        >>> wide, right = np.array([[[-3.0], [3.0]]]), np.array([[[-0.7], [0.7]]])
        >>> for error in generator.normal(size=(200, 1, 1)):
        ...     trust.learn(error, np.array([[True]]), wide, right)
        >>> bool(trust.share[0] > 0.9)
        True
    """

    def __init__(self, channels: int, probabilities: Array, every: int = 1) -> None:
        ends = np.concatenate([[0.0], (probabilities[1:] + probabilities[:-1]) / 2, [1.0]])
        ends[[0, -1]] = 2 * probabilities[[0, -1]] - ends[[1, -2]]
        width = np.diff(ends)  # of the part of the probabilities that each stands for
        self._below, self._above = ((1 - probabilities) * width)[:, None], (probabilities * width)[:, None]
        self._fade, self._slowly = DISCOUNT**every, SLOWLY / every
        self.lost = np.zeros((2, channels))  # with a share of one half, and of one; over that without
        self.square = np.zeros(channels)  # of the second
        self.count = np.zeros(channels)
        self.share = np.zeros(channels)

    def learn(self, error: Array, known: Mask, first: Array, second: Array) -> None:
        """Learn from errors.

        Args:
            error: `(S, C)`, for each of some steps.
            known: Which of them are.
            first: The quantiles `(S, Q, C)` that the first opinion had issued.
            second: Those of the second.
        """
        off, apart = error[:, None] - first, first - second
        alone = self._loss(off, known)
        apart *= 0.5
        off += apart
        half = self._loss(off, known)
        off += apart
        whole = self._loss(off, known)
        lost = np.stack([half - alone, whole - alone])
        here = lost.any(0)
        usual = np.sqrt(self.square / np.maximum(self.count, 1))
        largest = np.abs(lost).max(0)
        wild = (self.count > USUAL) & (largest > CUT * usual)
        lost[:, wild] *= (CUT * usual / np.where(wild, largest, 1.0))[wild]
        fade = np.where(here, self._fade, 1.0)
        self.lost *= fade
        self.lost += lost
        self.square = fade * self.square + lost[1] ** 2
        self.count = fade * self.count + here
        luck = PROOF * np.sqrt(self.square) * (1 + self._slowly / np.maximum(self.count, 1))
        half, whole = self.lost[0] + luck / 2, self.lost[1] + luck
        bend, slope = 2 * whole - 4 * half, 4 * half - whole  # of the parabola: bend w² + slope w
        bent = bend > 0
        lowest = np.clip(-slope / np.where(bent, 2 * bend, 1.0), 0.0, 1.0)
        self.share = np.where(bent, lowest, whole < 0)

    def _loss(self, off: Array, known: Mask) -> Array:
        """The pinball loss `(C,)` of quantiles that values lie above by `off` `(S, Q, C)`."""
        loss = np.where(off > 0, self._above, -self._below)
        loss *= off
        total: Array = (loss.sum(1) * known).sum(0)
        return total


@cache
def _between(rows: int, probabilities: tuple[float, ...]) -> tuple[Places, Array]:
    """For each count of sorted numbers the places `(Q, rows + 1)` below the quantiles, and how far to go on."""
    at = np.array(probabilities)[:, None] * np.maximum(np.arange(rows + 1) - 1, 0)
    below = np.minimum(at.astype(np.int64), np.maximum(np.arange(rows + 1) - 2, 0))
    return below, at - below
