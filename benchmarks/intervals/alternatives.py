"""Other ways to make intervals from the errors of a forecaster, for comparison; none of them is in the package."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

from natsr.calibrate import PROBABILITIES

Array = npt.NDArray[np.float64]

MIDDLE = len(PROBABILITIES) // 2
#: Levels of the central intervals whose ends are the quantiles above the median.
LEVELS = np.array([2 * p - 1 for p in PROBABILITIES[MIDDLE + 1 :]])
YOUNG = 30  # errors before there are quantiles; an interval of nothing until then


class Intervals(Protocol):
    """What `errors`, of step `h` from the forecast `h` rows ago, teach about the quantiles of the errors to come."""

    def learn(self, errors: Array) -> None:
        """Take the errors about the newest row `(H, C)`, NaN where not known."""

    def quantiles(self) -> Array:
        """The quantiles of the errors of the next forecast, `(Q, H, C)`."""


class _Window:
    """The last errors of each step and channel, sorted now and then."""

    def __init__(self, shape: tuple[int, int], rows: int, every: int) -> None:
        self._errors = np.full((shape[0] * shape[1], rows), np.nan, dtype=np.float32)
        self._shape, self._every, self._rows = shape, every, 0
        self._due = YOUNG

    def take(self, errors: Array) -> bool:
        """Keep errors; answers whether it is time to look at all of them again."""
        self._errors[:, self._rows % self._errors.shape[1]] = errors.reshape(-1)
        self._rows += 1
        if self._rows < self._due:
            return False
        # With every 50th row, or every 50th part of what there is, an old table is hardly worse than a new one.
        self._due = self._rows + max(self._every, min(self._rows, self._errors.shape[1]) // 50)
        return True

    def at(self, probabilities: Array) -> Array:
        """Quantiles `(Q, H, C)` of the errors kept."""
        kept = np.sort(self._errors[:, : min(self._rows, self._errors.shape[1])], axis=1)  # NaN is last
        count = np.count_nonzero(~np.isnan(kept), axis=1)
        place = probabilities[:, None] * np.maximum(count - 1, 0)
        below = place.astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        cells = np.arange(len(kept))
        low, high = kept[cells, below].astype(np.float64), kept[cells, above].astype(np.float64)
        found: Array = np.nan_to_num(low + (place - below) * (high - low))
        return found.reshape(-1, *self._shape)


class Empirical:
    """The quantiles of the last `rows` errors; of all of them if that is as long as the stream."""

    def __init__(self, shape: tuple[int, int], rows: int) -> None:
        self._window = _Window(shape, rows, every=50)
        self._table = np.zeros((len(PROBABILITIES), *shape))

    def learn(self, errors: Array) -> None:
        """Keep them."""
        if self._window.take(errors):
            self._table = self._window.at(np.array(PROBABILITIES))

    def quantiles(self) -> Array:
        """From the table made last."""
        return self._table


class Adaptive:
    """Plain adaptive conformal inference: absolute errors in a window, and a level that moves with what was missed.

    For each central interval, step and channel: `level += rate * (missed - (1 - nominal))` when a label comes.
    """

    def __init__(self, shape: tuple[int, int], rows: int = 2000, rate: float = 0.006) -> None:
        self._window, self._rate = _Window(shape, rows, every=50), rate
        self._grid = np.linspace(0.0, 1.0, 201)
        self._table = np.zeros((len(self._grid), *shape))
        self._nominal = np.broadcast_to(LEVELS[:, None, None], (len(LEVELS), *shape))
        self._level = self._nominal.copy()
        self._issued: list[Array] = []  # radii of the forecasts whose rows may still come, oldest first
        self._steps = np.arange(shape[0])

    def learn(self, errors: Array) -> None:
        """Move the levels by what was issued, then keep the errors."""
        count = len(self._issued)
        for step in range(min(count, len(self._steps))):
            size = np.abs(errors[step])
            missed = size > self._issued[count - 1 - step][:, step]
            move = self._rate * (missed - (1 - self._nominal[:, step]))
            self._level[:, step] += np.where(np.isnan(size), 0.0, move)
        if self._window.take(np.abs(errors)):
            self._table = self._window.at(self._grid)

    def quantiles(self) -> Array:
        """Symmetric around the forecast."""
        place = np.rint(np.clip(self._level, 0.0, 1.0) * (len(self._grid) - 1)).astype(np.int64)
        radius: Array = np.maximum.accumulate(np.take_along_axis(self._table, place, axis=0), axis=0)
        self._issued = [*self._issued[-len(self._steps) + 1 :], radius] if len(self._steps) > 1 else [radius]
        return np.concatenate([-radius[::-1], np.zeros((1, *radius.shape[1:])), radius])


class Gaussian:
    """A normal distribution with a running variance for each step and channel, mean 0."""

    def __init__(self, shape: tuple[int, int], memory: int = 500) -> None:
        self._variance, self._count, self._memory = np.zeros(shape), np.zeros(shape), memory
        self._z = np.array([NormalDist().inv_cdf(p) for p in PROBABILITIES])[:, None, None]

    def learn(self, errors: Array) -> None:
        """Move the variance."""
        known = ~np.isnan(errors)
        self._count += known
        weight = known / np.clip(self._count, 1, self._memory)
        self._variance += weight * (np.where(known, errors, 0.0) ** 2 - self._variance)

    def quantiles(self) -> Array:
        """Of a normal."""
        found: Array = self._z * np.sqrt(self._variance)
        return found


def alternatives(shape: tuple[int, int], rows: int) -> dict[str, Intervals]:
    """All of them, for forecasts of this shape on a stream of so many rows."""
    return {
        "empirical, all": Empirical(shape, rows),
        "empirical, 2000 rows": Empirical(shape, min(2000, rows)),
        "adaptive conformal": Adaptive(shape, min(2000, rows)),
        "Gaussian, 500 rows": Gaussian(shape),
    }


class Issued:
    """Errors by the row that they are about: step `h` of the forecast made `h` rows ago."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self._means = np.full((shape[0], *shape), math.nan)
        self._rows, self._steps = 0, np.arange(shape[0])

    def errors(self, row: Array) -> Array:
        """Of the newest row `(C,)`, for each step `(H, C)`; NaN where nothing was said of it."""
        self._rows += 1
        found: Array = row - self._means[(self._rows - 1 - self._steps) % len(self._steps), self._steps]
        return found

    def push(self, mean: Array) -> None:
        """The forecast from the newest row."""
        self._means[self._rows % len(self._steps)] = mean
