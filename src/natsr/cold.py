"""The first phase of a live stream: too few rows to make a forecaster, but enough to say something.

From the first row on the forecast is the last value. From the second row on it has intervals, those of a random walk
whose steps are the changes seen so far, wider while these are few (Student's t); with every row the errors that the
last value would have made so many steps ahead count for more. Once there is more than a season, the value a season
ago has a say, the larger the better it would have done on the rows that have come. All of it is computed anew from the
rows that are kept, and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import torch

from natsr.data.calendar import Floats
from natsr.data.ticks import Ticks
from natsr.phases import Expected, Interval, array
from natsr.state import tensor_of
from natsr.types import State, StateError

#: Rows that forecasts are made from, the newest.
LOOKED_AT = 512
#: Rows whose value a season before is known, before that value has a say.
EVIDENCE = 3


@dataclass(frozen=True, eq=False)
class Walk:
    """Student's t around what few rows tell.

    Args:
        mean: `(H, C)`.
        deviation: `(H, C)`.
        changes: From row to row in each column, `(C,)`; the degrees of freedom.
    """

    mean: Floats
    deviation: Floats
    changes: npt.NDArray[np.int64]

    def quantiles(self, probabilities: Sequence[float]) -> Floats:
        """See `natsr.spread`."""
        with np.errstate(all="ignore"):  # as for the intervals
            away = [np.array([_student(p, count) for count in self.changes.tolist()]) for p in probabilities]
            found = np.stack([self.mean + np.where(far == 0, 0.0, far * self.deviation) for far in away])
        # No deviation is known before the second row.
        return np.maximum.accumulate(np.where(np.isnan(self.deviation), math.nan, found), axis=0)


class Cold:
    """Rows that are kept until there are enough to begin, and what they tell until then.

    A run of missing rows too long to learn across starts the counting again, so the rows kept are bounded.

    Args:
        channels: Values in a row.
        horizon: Rows ahead.
        enough: Rows with a value that suffice.
        longest: Missing rows in a row that make what came before them useless.
        extras: Numbers that follow the values in a row, and are kept with them.
        season: Rows in the natural period; 1 where there is none.
    """

    def __init__(
        self, channels: int, horizon: int, enough: int, longest: int, extras: int = 0, season: int = 1
    ) -> None:
        self._horizon, self._enough, self._longest, self._season = horizon, enough, longest, season
        self._width = channels + extras
        self._known = np.full(channels, math.nan)  # last known value of each column
        self.clear()

    def clear(self) -> None:
        """Forget the rows, but not the last values."""
        self._ticks: list[int] = []
        self._values: list[Floats] = []
        self._counted = self._missing = 0

    def append(self, tick: int, values: Floats) -> bool:
        """Keep a row; answers whether there are enough now."""
        came = values[: len(self._known)]
        here = ~np.isnan(came)
        self._known = np.where(here, came, self._known)
        if here.any():
            self._counted, self._missing = self._counted + 1, 0
        else:
            self._missing += 1
        if self._missing >= self._longest:
            self.clear()
        elif here.any() or self._values:
            self._ticks.append(tick)
            self._values.append(values.copy())
        return self._counted >= self._enough

    def history(self) -> tuple[Ticks, Floats]:
        """The rows kept: times `(T,)`, and values with their extras `(T, C + X)`."""
        return np.array(self._ticks, dtype=np.int64), np.array(self._values).reshape(-1, self._width)

    def forecast(self, levels: Sequence[float]) -> Expected:
        """The last value and that of a season ago, as far as each has been right; intervals from their errors."""
        rows = np.array(self._values[-LOOKED_AT:]).reshape(-1, self._width)[:, : len(self._known)]
        with np.errstate(all="ignore"):  # huge values have infinite errors, and intervals without an end
            mean, deviation = _told(rows, self._known, self._horizon, self._season)
            changes = np.maximum(np.count_nonzero(~np.isnan(rows), axis=0) - 1, 1)
            intervals = {}
            for level in levels:
                reach = np.array([_student((1 + level) / 2, count) for count in changes.tolist()]) * deviation
                intervals[level] = Interval(mean - reach, mean + reach)
        return Expected(mean, intervals, Walk(mean, deviation, changes))

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        ticks, values = self.history()
        return {
            "seconds": torch.from_numpy(ticks),  # called so when there were no others
            "values": torch.from_numpy(values),
            "known": torch.from_numpy(self._known.copy()),
            "missing": self._missing,
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from it."""
        values, missing = array(state, "values", (None, self._width)), state.get("missing")
        if not isinstance(missing, int):
            raise StateError(f"missing is {missing!r}, expected a number; the state belongs to something else")
        self._known = array(state, "known", (len(self._known),))
        self._ticks = tensor_of(state, "seconds", (len(values),)).to(torch.int64).tolist()
        self._values = list(values)
        came = ~np.isnan(values[:, : len(self._known)]).all(1)
        self._counted, self._missing = int(np.count_nonzero(came)), missing


def _told(rows: Floats, known: Floats, horizon: int, season: int) -> tuple[Floats, Floats]:
    """What rows `(T, C)` tell of the next ones: expected values and standard deviations, `(H, C)` each.

    Args:
        rows: The newest last, NaN where missing.
        known: The last known value of each column.
        horizon: Rows ahead.
        season: Rows in the natural period.
    """
    mean = np.tile(known, (horizon, 1))
    variance = np.arange(1, horizon + 1)[:, None] * _change(rows)  # of a random walk
    share = np.zeros_like(known)
    for h in range(1, min(horizon, len(rows) - 1) + 1):
        seen, squares = _mean_square(rows[h:] - rows[:-h])
        seen = seen / h  # errors so many steps ahead overlap, and tell less than their number
        back = season * -(-h // season)  # whole seasons, at least `h` rows
        if season > 1 and len(rows) > back:
            errors = np.stack([rows[back:] - rows[back - h : -h], rows[back:] - rows[:-back]])
            errors[:, np.isnan(errors).any(0)] = math.nan
            count, (of_last, of_season) = _mean_square(errors[0])[0], (_mean_square(part)[1] for part in errors)
            ago = rows[len(rows) - 1 + h - back]
            if h < back:  # else both are the same value, and what is told of its neighbour is told of it
                share = _share(of_last, of_season * (1 + season / np.maximum(count, 1)))  # few may agree by chance
            share = np.where((count >= EVIDENCE) & ~np.isnan(ago), share, 0.0)
            mixed = _mean_square((1 - share) * errors[0] + share * errors[1])[1]
            seen = np.where(share > 0, count / (1 + (h - 1) * (1 - share)), seen)
            squares = np.where(share > 0, mixed, squares)
            mean[h - 1] = np.where(share > 0, (1 - share) * known + share * ago, known)
        told = (variance[h - 1] + seen * squares) / (1 + seen)
        variance[h - 1] = np.where(seen > 0, told, variance[h - 1])
    return mean, np.sqrt(variance)


def _change(rows: Floats) -> Floats:
    """Mean square of the changes from row to row, `(C,)`, NaN where there is none."""
    found = np.full(rows.shape[1], math.nan)
    for column in range(rows.shape[1]):
        there = np.flatnonzero(~np.isnan(rows[:, column]))
        if len(there) > 1:
            found[column] = (np.diff(rows[there, column]) ** 2 / np.diff(there)).mean()
    return found


def _mean_square(errors: Floats) -> tuple[Floats, Floats]:
    """How many are known, and their mean square, `(C,)` each; 0 where there are none."""
    known = ~np.isnan(errors)
    count = np.count_nonzero(known, axis=0)
    return count.astype(np.float64), (np.where(known, errors, 0.0) ** 2).sum(0) / np.maximum(count, 1)


def _share(of_last: Floats, of_season: Floats) -> Floats:
    """How much the value a season ago counts beside the last one: by the squares of their mean square errors."""
    share: Floats = np.where(of_last > 0, 1 / (1 + (of_season / of_last) ** 2), 0.0)
    return np.where(np.isfinite(share), share, 0.0)


def _student(p: float, dof: int) -> float:
    """The quantile of Student's t, to a percent.

    Exact for one and two degrees of freedom, else the first terms of its expansion around the normal one (Abramowitz
    and Stegun, 26.7.5).

    >>> [round(_student(0.95, dof), 2) for dof in (1, 2, 3, 10, 1000)]
    [6.31, 2.92, 2.35, 1.81, 1.65]
    """
    if dof == 1:
        return math.tan(math.pi * (p - 0.5))
    if dof == 2:
        return (2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p)))
    z = NormalDist().inv_cdf(p)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / dof**power for power, term in enumerate(terms, 1))
