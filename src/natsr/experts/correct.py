"""The example of the row before as a hint, where it is known early: how far off it was, the next one will be in part.

The errors of step `h` of two forecasts whose origins lie side by side are alike. How much is learned for each step and
column, by least squares with forgetting; and whether to move a forecast at all is decided for each column by what it
would have gained of late: it takes proof. A forecast from the newest row never has such an example: the youngest whose
labels are all known is `H` rows old, and tells nothing that the mixture has not learned already (decision 0012 has the
figures). It is there only for a forecast that is asked for late, from a row whose labels have come meanwhile.
"""

from __future__ import annotations

import numpy as np

from natsr.experts.past import Array, Arrays

FADE = 0.998
#: By how much, relative to the loss without it, a correction must be better to be used.
PROOF = 0.005
#: Errors are held to so many times their root mean square.
WILD = 4.0
YOUNG = 50  # examples before anything is corrected
RIDGE = 0.002  # towards a slope of zero, in mean squares of an error
LEAST = 1e-12  # mean square


class Correction:
    """A slope for each step and column: the part of an error that is there again in the next row's forecast.

    Args:
        shape: `(H, C)`.

    Example:
        >>> hint = Correction((2, 1))
        >>> for number in range(400):  # errors that last
        ...     hint.learn(np.full((2, 1), np.sin(number / 40)), np.full((2, 1), 0.5))
        >>> bool(abs(hint.change() - np.sin(400 / 40)).max() < 0.05)
        True
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self._error, self._cross, self._square = (np.zeros(shape) for _ in range(3))
        self._loss = np.zeros((2, shape[1]))  # left alone, and corrected
        self._count = np.zeros(1)

    def learn(self, error: Array, variance: Array) -> None:
        """Take the errors `(H, C)` of the example that has just become complete.

        Args:
            error: NaN where unknown.
            variance: Their usual mean square.
        """
        limit = WILD * np.sqrt(variance)
        newest = np.clip(np.nan_to_num(error, nan=0.0), -limit, limit)
        before = self._error
        left = newest - self._slope() * before
        self._loss *= FADE
        self._loss += [np.abs(newest).sum(0), np.abs(left).sum(0)]
        self._cross += (1 - FADE) * (newest * before - self._cross)
        self._square += (1 - FADE) * (before * before - self._square)
        before[:] = newest
        self._count += 1

    def _slope(self) -> Array:
        return np.asarray(self._cross / (self._square + RIDGE * self._square.mean() + LEAST))

    def change(self) -> Array:
        """What to add to the forecast `(H, C)` of the row after the newest complete example's."""
        alone, corrected = self._loss
        used = (corrected < (1 - PROOF) * alone) & (self._count >= YOUNG)
        return np.where(used, self._slope() * self._error, 0.0)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "error": self._error,
            "cross": self._cross,
            "square": self._square,
            "loss": self._loss,
            "count": self._count,
        }
