"""A forecast as `natsr.Live` and the service answer it: a mean, intervals, and whatever else is asked of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natsr.data.calendar import Floats, Times
from natsr.phases import Interval
from natsr.spread import Spread, Told, check_probabilities, drawn

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class LiveForecast:
    """What is expected of the next rows, in the data's own units.

    Args:
        origin: Time of the last row that was known.
        times: `(H,)`, of the rows that are forecast.
        columns: `C` names.
        mean: `(H, C)`; NaN for a column that never had a value.
        intervals: By level, such as 0.9.
        spread: What `quantiles` and `samples` are made from; of one that was made elsewhere, what was asked for.
    """

    origin: np.datetime64
    times: Times
    columns: tuple[str, ...]
    mean: Floats
    intervals: Mapping[float, Interval]
    spread: Spread = field(default_factory=Told, repr=False)

    def quantiles(self, probabilities: Sequence[float]) -> Floats:
        """The quantiles `(Q, H, C)`, never crossing; those at 0.05 and 0.95 are the ends of the 90 % interval.

        Beyond 0.005 and 0.995 the tails are those of a Student-t. NaN where there is no interval.

        Args:
            probabilities: Rising, each above 0 and below 1.

        Raises:
            OptionError: The probabilities are others, or did not come with a forecast of the service.
        """
        check_probabilities(probabilities)
        return self.spread.quantiles(tuple(probabilities))

    def samples(self, count: int, seed: int = 0) -> Floats:
        """Draws `(N, H, C)` from what is expected.

        Each step and each column is drawn for itself: a draw is no path, and of sums or maxima over rows or columns it
        says nothing. None lies beyond the quantiles at 0.0005 and 0.9995.

        Args:
            count: How many, `N`.
            seed: The same one gives the same draws; for another forecast take another one.

        Raises:
            OptionError: `count` is less than 1, or the forecast came from the service.
        """
        return drawn(self.spread, count, seed)

    def frame(self) -> pd.DataFrame:
        """As a pandas frame: a row for each time, columns `(name, "mean")`, `(name, "low_90")`, `(name, "high_90")`."""
        import pandas as pd  # here, so that who wants arrays need not have it

        parts = {"mean": self.mean}
        for level, (low, high) in self.intervals.items():
            parts |= {f"low_{100 * level:g}": low, f"high_{100 * level:g}": high}
        data = {(name, part): values[:, c] for c, name in enumerate(self.columns) for part, values in parts.items()}
        return pd.DataFrame(data, index=pd.DatetimeIndex(self.times, name="time"))

    def plain(self, quantiles: Sequence[float] = ()) -> dict[str, Any]:
        """As JSON has it, and as `natsr serve` and `natsr run -` answer: by column, `null` where there is no number.

        Args:
            quantiles: Probabilities of those that are to be in it too.
        """
        named = list(enumerate(self.columns))
        found = zip(quantiles, self.quantiles(quantiles), strict=True) if quantiles else ()
        asked = {str(p): {name: numbers(values[:, place]) for place, name in named} for p, values in found}
        return {
            "origin": str(self.origin),
            "times": [str(time) for time in self.times],
            "mean": {name: numbers(self.mean[:, place]) for place, name in named},
            "intervals": {
                f"{level:g}": {name: pairs(low[:, place], high[:, place]) for place, name in named}
                for level, (low, high) in self.intervals.items()
            },
            **({"quantiles": asked} if quantiles else {}),
        }


def numbers(values: npt.NDArray[Any]) -> list[float | None]:
    """As JSON has them.

    >>> numbers(np.array([1.5, np.nan]))
    [1.5, None]
    """
    return [value if math.isfinite(value) else None for value in values.tolist()]


def pairs(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> list[list[float | None]]:
    """Both ends of each interval."""
    return [list(ends) for ends in zip(numbers(low), numbers(high), strict=True)]
