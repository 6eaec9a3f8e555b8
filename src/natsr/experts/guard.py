"""The guard: how far to go from the last value towards the mixture.

Where nothing can be forecast (a random walk, a column that stands still) the best mixture is the last value, and any
other weights, however small, cost a little for ever. The forecast is therefore `last + share · (mixture - last)`, and
the share is the best, in hindsight, of a few. It takes proof to leave the last value: what a share has gained must be
more than a small part of the loss, and more than chance, of which a few wild rows among many calm ones leave much.
"""

from __future__ import annotations

import numpy as np

from natsr.experts.past import LARGEST, Array, Arrays

SHARES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
DISCOUNT = 0.9995
#: A change counts as at most so many times the root mean square of changes.
WILD, SIZE_RATE, YOUNG = 10.0, 0.01, 20
#: By how much, relative to the loss of the last value, a share must be better for each unit of it.
PROOF = 0.003
#: And by how many standard deviations of the sum of its gains.
CHANCE = 1.0


class Guard:
    """A share for each step and channel, chosen per channel over its neighbouring steps.

    Args:
        shape: `(H, C)`.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._loss = np.zeros((len(SHARES), *shape))
        self._spread = np.zeros((len(SHARES), *shape))  # squares of what was gained over the last value
        self._square, self._count = np.zeros(shape), np.zeros(shape)  # of changes, and how many are in it
        self.share = np.ones(shape)

    def mean(self, last: Array, mixture: Array) -> Array:
        """The forecast; exactly the one or the other where the share is 0 or 1, however wild the last value."""
        return np.where(self.share == 1, mixture, (1 - self.share) * last + self.share * mixture)

    def update(self, last: Array, mixture: Array, truth: Array) -> None:
        """Learn what each share would have lost."""
        known = np.isfinite(truth)
        change = np.where(known, np.minimum(np.abs(truth - last), LARGEST), 0.0)
        square = np.minimum(change**2, np.where(self._count < YOUNG, np.inf, WILD**2 * self._square))
        self._count += change > 0
        self._square += known * np.maximum(SIZE_RATE, 1 / np.maximum(self._count, 1)) * (square - self._square)
        limit = np.sqrt(square) + np.sqrt(self._square)
        ahead = np.where(known, np.clip(truth - last, -limit, limit), 0.0)
        gap = np.where(known, np.clip(mixture - last, -limit, limit), 0.0)
        self._loss *= DISCOUNT
        self._spread *= DISCOUNT**2
        lost = np.abs(ahead - SHARES[:, None, None] * gap)
        self._loss += lost
        self._spread += (lost[:1] - lost) ** 2
        number = 1 + self._loss[1:].argmin(0)[None]
        loss, spread = (np.take_along_axis(values, number, 0)[0] for values in (self._loss, self._spread))
        best = SHARES[number[0]]
        proven = self._loss[0] - loss > PROOF * best * self._loss[0] + CHANCE * np.sqrt(spread)
        np.copyto(self.share, np.where(proven, best, 0.0))

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "loss": self._loss,
            "spread": self._spread,
            "share": self.share,
            "square": self._square,
            "count": self._count,
        }
