"""The guard: how far to go from the last value towards the mixture.

Where nothing can be forecast (a random walk, a column that stands still) the best mixture is the last value, and any
other weights, however small, cost a little for ever. The forecast is therefore `last + share · (mixture - last)`, and
the share is the best, in hindsight, of a few; the losses of the share of 0 count a little less than they are, so that
it takes proof to leave the last value.

One of them is not the same all the time. Many a column stands still for hours and moves again, and while it stands the
last value is right and the mixture is not. So the *ready* share of a column is 1 as long as the mixture was no further
off than the last value over the last few rows, falls from there on, and is 0 when it was five times as far off. Whether
that pays is found as for the others.
"""

from __future__ import annotations

import math

import numpy as np

from natsr.experts.past import FAR, LARGEST, TAMED, Array, Arrays

SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
DISCOUNT = 0.9995
#: A change counts as at most so many times the root mean square of changes, and in that as less where it is wild beyond
#: all bounds.
WILD, SIZE_RATE, YOUNG = 10.0, 0.01, 20
#: By how much, relative to the loss of the last value, a share must be better for each unit of it.
PROOF = 0.003
#: And by how many usual changes, times `sqrt(H) - 1`: forecasts of many rows err together for as many rows, and what a
#: few hundred of them say of a walk is chance.
DOUBT = 1.0
#: Of the ready share: what a row weighs one row later; from how many times the last value's error on it is 0; and an
#: error that is next to nothing.
RECENT, MOST, BARELY = 0.6, 5.0, 1e-12


def part_of_the_way(last: Array, goal: Array, share: Array) -> Array:
    """Exactly the one or the other where the share is 0 or 1, however wild the last value."""
    return np.where(share == 1, goal, (1 - share) * last + share * goal)


def doubt(horizon: int) -> float:
    """Usual changes by which a share of 1 must be better, beside `PROOF`."""
    return DOUBT * (math.sqrt(horizon) - 1)


class Guard:
    """A share for each step and channel.

    Args:
        shape: `(H, C)`.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._loss = np.zeros((len(SHARES) + 1, *shape))  # of the ready share last
        self._recent = np.zeros((2, shape[1]))  # what the last value and the mixture have lost of late
        self.ready = np.ones(shape[1])
        self._doubt = doubt(shape[0])
        self._square, self._count = np.zeros(shape), np.zeros(shape)  # of changes, and how many are in it
        self.share = np.ones(shape)

    def update(self, last: Array, mixture: Array, truth: Array, ready: Array) -> None:
        """Learn what each share would have lost.

        Args:
            last: The last values at the origins, `(H, C)`.
            mixture: What was mixed there.
            truth: What came; NaN where unknown.
            ready: The ready shares as they were there.
        """
        known = np.isfinite(truth)
        change = np.where(known, np.minimum(np.abs(truth - last), LARGEST), 0.0)
        young = self._count < YOUNG
        square = np.minimum(change**2, np.where(young, np.inf, WILD**2 * self._square))
        counted = np.where(~young & (change**2 > FAR**2 * self._square), TAMED**2 * self._square, square)
        self._count += change > 0
        self._square += known * np.maximum(SIZE_RATE, 1 / np.maximum(self._count, 1)) * (counted - self._square)
        limit = np.sqrt(square) + np.sqrt(self._square)
        ahead = np.where(known, np.clip(truth - last, -limit, limit), 0.0)
        gap = np.where(known, np.clip(mixture - last, -limit, limit), 0.0)
        self._recent *= RECENT
        self._recent += np.abs(np.stack([ahead, ahead - gap])).sum(1)
        worse = (self._recent[1] + BARELY) / (self._recent[0] + BARELY)
        self.ready[:] = np.clip((MOST - worse) / (MOST - 1), 0.0, 1.0)
        self._loss *= DISCOUNT
        self._loss += np.abs(ahead - np.concatenate([SHARES[:, None, None] * gap, (ready * gap)[None]]))
        np.copyto(self.share, self.shares(self.ready))

    def shares(self, ready: Array) -> Array:
        """What has proven best, `(H, C)`, for an origin with these ready shares, `(C,)`."""
        proof = PROOF * self._loss[0] + self._doubt * np.sqrt(self._square)
        best = (self._loss + np.append(SHARES, 1.0)[:, None, None] * proof).argmin(0)
        return np.where(best < len(SHARES), SHARES[np.minimum(best, len(SHARES) - 1)], ready)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "loss": self._loss,
            "share": self.share,
            "square": self._square,
            "count": self._count,
            "recent": self._recent,
            "ready": self.ready,
        }
