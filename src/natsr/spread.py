"""The distribution of the rows that are forecast: any quantile of it, and draws from it, made only when asked for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from natsr.calibrate import PROBABILITIES
from natsr.data.calendar import Floats
from natsr.data.series import Scaling
from natsr.scales import student_quantile
from natsr.types import OptionError

Array = npt.NDArray[np.float64]

#: The usual quantiles, and two more so that intervals of 99 % can be had.
QUANTILES = (0.005, *PROBABILITIES, 0.995)
_PLACES = np.log(np.array(QUANTILES) / (1 - np.array(QUANTILES)))
#: Draws lie on straight lines between these, and none beyond the outermost.
_DRAWN = (0.0005, 0.002, *(k / 200 for k in range(1, 200)), 0.998, 0.9995)
_LARGEST = float(np.finfo(np.float64).max)


class Spread(Protocol):
    """Each step and column for itself, in the data's own units."""

    def quantiles(self, probabilities: Sequence[float]) -> Floats:
        """`(Q, H, C)`, never crossing; the probabilities rise, and lie between 0 and 1."""


@dataclass(frozen=True, eq=False)
class Learned:
    """What a calibrator said when the forecast was made.

    Args:
        table: Its quantiles `(K, H, C)` at `QUANTILES`, standardised.
        scaling: From the data's units to standardised ones.
        seen: Columns that have had a value, `(C,)`.
    """

    table: Array
    scaling: Scaling
    seen: npt.NDArray[np.bool_]

    def quantiles(self, probabilities: Sequence[float]) -> Floats:
        """See `Spread`."""
        found = np.stack([self.restored(quantile(self.table, p)) for p in probabilities])
        return np.maximum.accumulate(found, axis=0)  # rounding may let neighbours cross by the last bit

    def restored(self, values: Array) -> Floats:
        """Standardised ones `(H, C)` in the data's units."""
        with np.errstate(over="ignore"):
            found = self.scaling.invert(values)
        # Data at the end of what a float can hold may be forecast beyond it.
        return np.where(self.seen, np.clip(found, -_LARGEST, _LARGEST), math.nan)


@dataclass(frozen=True, eq=False)
class Told:
    """Quantiles that were asked for together with the forecast, and no others: it was made elsewhere."""

    known: Mapping[float, Floats] = field(default_factory=dict)

    def quantiles(self, probabilities: Sequence[float]) -> Floats:
        """See `Spread`.

        Raises:
            OptionError: One of them was not asked for.
        """
        for p in probabilities:
            if p not in self.known:
                raise OptionError(
                    f"the quantile {p} did not come with this forecast, expected one of those that were asked for "
                    f"({', '.join(map(str, self.known)) or 'none'}); ask with forecast(…, quantiles=[{p}])"
                )
        return np.stack([self.known[p] for p in probabilities])


def quantile(table: Array, p: float) -> Array:
    """The quantile `(H, C)` at a probability from those `(K, H, C)` at `QUANTILES`.

    Between two of them it lies on a straight line over the logit of the probability, on which a logistic distribution
    is exact; beyond them the lines over Student's t go on, as a calibrator's do.
    """
    if not QUANTILES[0] <= p <= QUANTILES[-1]:
        first, second = (0, 1) if p < QUANTILES[0] else (-1, -2)
        near, next_to, at = student_quantile([QUANTILES[first], QUANTILES[second], p]).tolist()
        beyond: Array = table[first] + (at - near) / (near - next_to) * (table[first] - table[second])
        return beyond
    at = float(np.interp(math.log(p / (1 - p)), _PLACES, np.arange(len(_PLACES))))
    below = math.floor(at + 1e-9)  # a quantile that is there is taken as it is
    share = at - below
    found: Array = table[below] if share < 1e-9 else table[below] + share * (table[below + 1] - table[below])
    return found


def drawn(spread: Spread, count: int, seed: int) -> Floats:
    """So many draws, `(N, H, C)`.

    Raises:
        OptionError: There are to be less than one.
    """
    if count < 1:
        raise OptionError(f"count is {count}, expected at least 1")
    table = spread.quantiles(_DRAWN)
    uniform = np.random.default_rng(seed).uniform(size=(count, *table.shape[1:]))
    places = np.interp(uniform, _DRAWN, np.arange(len(_DRAWN)))
    below = np.minimum(places.astype(np.int64), len(_DRAWN) - 2)
    low, high = (np.take_along_axis(table, below + more, axis=0) for more in (0, 1))
    share = places - below
    with np.errstate(over="ignore", invalid="ignore"):  # ends that are infinite, early in a cold start
        found: Floats = (1 - share) * low + share * high
    return found


def check_probabilities(probabilities: Sequence[float]) -> None:
    """Refuse those that no quantile has.

    Raises:
        OptionError: One is not between 0 and 1, or they do not rise, or there is none.
    """
    if not isinstance(probabilities, Iterable) or isinstance(probabilities, str):
        raise OptionError(f"probabilities is {probabilities!r}, expected several, or one in brackets, such as [0.9]")
    given = list(probabilities)
    for p in given:
        if not isinstance(p, float) or not 0 < p < 1:
            raise OptionError(f"probability is {p!r}, expected more than 0 and less than 1")
    if not given or any(later <= earlier for earlier, later in zip(given, given[1:], strict=False)):
        raise OptionError(f"probabilities are {given}, expected rising ones, such as [0.1, 0.5, 0.9]")
