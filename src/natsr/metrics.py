"""How good forecasts were: sums that are kept while the stream runs, and the figures made of them.

Everything is measured in standardised space, over all horizon steps and channels, missing targets left out:

- MAE, MSE, and MASE, which is the MAE divided by `naive_error`, the mean change from one row to the next;
- CRPS, as twice the mean pinball loss over the quantiles at 0.05, 0.10, … 0.95. This is a Riemann sum of the integral
  that defines the CRPS; it leaves out the outermost tails, and is the same for every method, so it compares;
- coverage and mean width of the central 50, 80, 90 and 95 % intervals, and the lowest coverage of the 90 % interval
  over any 500 forecasts in a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natsr.types import OptionError, ShapeError, Task

Array = npt.NDArray[np.float64]

LEVELS = (50, 80, 90, 95)  # per cent
STRETCH = 500  # forecasts in a row over which the worst coverage is looked for
CURVE_POINTS = 512


def naive_error(truth: Tensor, start: int, stop: int) -> float:
    """The mean of `|y_t - y_(t-1)|` for the rows `start … stop-1`: what MASE divides by.

    All channels are pooled; pairs with a missing value are left out. The pair that leads into row `start` counts, so
    that the last value, one row ahead, has a MASE of exactly 1.

    >>> import torch
    >>> naive_error(torch.tensor([[0.0], [1.0], [3.0], [float("nan")], [4.0]]), start=1, stop=5)
    1.5
    """
    if not 0 <= start < stop <= len(truth):
        raise OptionError(f"part is {start}…{stop}, expected 0 <= start < stop <= {len(truth)} rows")
    values = truth[max(start - 1, 0) : stop].detach().cpu().double().numpy()
    changes = np.abs(np.diff(values, axis=0))
    known = ~np.isnan(changes)
    return float(changes[known].mean()) if known.any() else math.nan


class Curve:
    """A running mean over time in bounded memory: when it is full, every second point goes."""

    def __init__(self, points: int = CURVE_POINTS) -> None:
        self._points = points
        self._stride = 1
        self._steps: list[int] = []
        self._values: list[float] = []

    def append(self, step: int, value: float) -> None:
        """Keep the value at this step (1, 2, …), if the curve is still that fine."""
        if step % self._stride:
            return
        self._steps.append(step)
        self._values.append(value)
        if len(self._steps) >= self._points:
            # The steps kept are the multiples of the stride: every second of them is a multiple of twice the stride.
            self._steps, self._values = self._steps[1::2], self._values[1::2]
            self._stride *= 2

    def arrays(self) -> tuple[npt.NDArray[np.int64], Array]:
        """The steps and the values kept."""
        return np.array(self._steps, dtype=np.int64), np.array(self._values, dtype=np.float64)


class Stretch:
    """The lowest share of successes over any run of `rows` steps, in bounded memory."""

    def __init__(self, rows: int, outcomes: int) -> None:
        self._hits = [0] * rows
        self._tries = [0] * rows
        self._sums = [0, 0]
        self._step = 0
        self._enough = rows * outcomes // 2  # with fewer known outcomes the share says little
        self.worst = math.nan

    def append(self, hits: int, tries: int) -> None:
        """Add one step with its number of successes among its number of known outcomes."""
        place = self._step % len(self._hits)
        self._sums[0] += hits - self._hits[place]
        self._sums[1] += tries - self._tries[place]
        self._hits[place], self._tries[place] = hits, tries
        self._step += 1
        if self._step >= len(self._hits) and self._sums[1] > self._enough:
            share = self._sums[0] / self._sums[1]
            self.worst = share if math.isnan(self.worst) else min(self.worst, share)


class Scores:
    """The figures of one forecaster on one stream, brought up to date with every forecast.

    Args:
        task: Gives the horizon and the channels.
        denominator: What MASE divides by; see `naive_error`.
        std: Standard deviation of each channel in the data's own units `(C,)`, for figures in those units.
        probabilities: Those of the quantiles that `update` will be given; must hold 0.025, 0.05, 0.1, … 0.95, 0.975.

    Example:
        >>> scores = Scores(Task(window=1, horizon=2, channels=1), denominator=0.5)
        >>> scores.update(np.array([[1.0], [2.0]]), np.array([[1.5], [float("nan")]]))
        >>> scores.mae, scores.mase
        (0.5, 1.0)
    """

    def __init__(
        self, task: Task, denominator: float = math.nan, std: Tensor | None = None, probabilities: Sequence[float] = ()
    ) -> None:
        if std is not None and std.shape != (task.channels,):
            raise ShapeError(f"std has shape {tuple(std.shape)}, expected ({task.channels},)")
        shape = (task.horizon, task.channels)
        self.task = task
        self.denominator = denominator
        self.steps = 0
        self.seconds = 0.0  # spent learning and forecasting
        self.peak_mib = math.nan  # of the whole process
        self.error: str | None = None
        self._std = None if std is None else std.detach().cpu().double().numpy()
        self._count = np.zeros(shape)
        self._absolute = np.zeros(shape)
        self._square = np.zeros(shape)
        self._curve = Curve()
        self._choose(probabilities)
        self._interval_count = np.zeros(shape)
        self._pinball = 0.0
        self._covered = np.zeros(shape)  # by the 90 % interval
        self._hits, self._width = [0] * len(LEVELS), [0.0] * len(LEVELS)
        self._stretch = Stretch(STRETCH, task.outputs)

    def _choose(self, probabilities: Sequence[float]) -> None:
        """Find the quantiles that make the CRPS and the ends of the intervals."""
        places = {round(p, 4): place for place, p in enumerate(probabilities)}
        crps = [round(0.05 * k, 4) for k in range(1, 20)]
        lows = [round((100 - level) / 200, 4) for level in LEVELS]
        highs = [round((100 + level) / 200, 4) for level in LEVELS]
        missing = [p for p in sorted({*crps, *lows, *highs}) if p not in places]
        if probabilities and missing:
            raise OptionError(f"probabilities lack {missing}, expected 0.025, 0.05, 0.1, … 0.95, 0.975 among them")
        self._ends = (
            [(places[low], places[high]) for low, high in zip(lows, highs, strict=True)] if probabilities else []
        )
        # The usual probabilities lie side by side: a view of the quantiles, where a list of places would copy them.
        self._crps_at = slice(places[crps[0]], places[crps[-1]] + 1) if probabilities else slice(0)
        if probabilities and [round(p, 4) for p in probabilities[self._crps_at]] != crps:
            raise OptionError("probabilities hold others between 0.05 and 0.95, expected 0.05, 0.1, … 0.95 only")
        self._crps_p = np.array(crps)
        self._below = np.empty((len(crps) if probabilities else 0, self.task.horizon, self.task.channels))

    def update(self, mean: Array, target: Array, quantiles: Array | None = None) -> None:
        """Count one forecast.

        Args:
            mean: `(H, C)`.
            target: `(H, C)`, NaN where missing.
            quantiles: `(Q, H, C)` at `probabilities`, in rising order.
        """
        known = ~np.isnan(target)
        target = np.where(known, target, mean)
        error = target - mean
        self.steps += 1
        self._count += known
        self._absolute += np.abs(error)
        self._square += error * error
        if quantiles is not None:
            self._update_intervals(quantiles, target, known)
        self._curve.append(self.steps, self.mae)

    def add(self, steps: int, count: Array, absolute: Array, square: Array) -> None:
        """Count many forecasts at once, from their sums.

        Args:
            steps: How many forecasts.
            count: Targets that are known, `(H, C)`.
            absolute: Sum of the absolute errors, `(H, C)`.
            square: Sum of their squares, `(H, C)`.
        """
        self.steps += steps
        self._count += count
        self._absolute += absolute
        self._square += square
        self._curve.append(self.steps, self.mae)

    def _update_intervals(self, quantiles: Array, target: Array, known: npt.NDArray[np.bool_]) -> None:
        self._interval_count += known
        for place, (low_at, high_at) in enumerate(self._ends):
            low, high = quantiles[low_at], quantiles[high_at]
            inside = low <= target
            inside &= target <= high
            inside &= known
            hits = int(np.count_nonzero(inside))
            self._hits[place] += hits
            self._width[place] += float(np.sum(high - low, where=known))
            if LEVELS[place] == 90:
                self._covered += inside
                self._stretch.append(hits, int(np.count_nonzero(known)))
        # The pinball loss max(p d, (p - 1) d) of d = target - quantile is p d + max(-d, 0): a product and one sum.
        chosen = quantiles[self._crps_at]
        np.subtract(chosen, target, out=self._below)
        np.maximum(self._below, 0.0, out=self._below)
        loss = self._below.sum(0)
        loss += self._crps_p.sum() * target
        loss -= (self._crps_p @ chosen.reshape(len(chosen), -1)).reshape(target.shape)
        self._pinball += float(np.sum(loss, where=known)) / len(chosen)

    @property
    def mae(self) -> float:
        """Mean absolute error so far."""
        return _ratio(float(self._absolute.sum()), float(self._count.sum()))

    @property
    def mse(self) -> float:
        """Mean squared error so far."""
        return _ratio(float(self._square.sum()), float(self._count.sum()))

    @property
    def mase(self) -> float:
        """The MAE in units of the stream's mean change from row to row."""
        return _ratio(self.mae, self.denominator)

    @property
    def crps(self) -> float:
        """Twice the mean pinball loss."""
        return 2 * _ratio(self._pinball, float(self._interval_count.sum()))

    def coverage(self, level: int) -> float:
        """The share of targets inside the central interval of `level` per cent."""
        return _ratio(self._hits[LEVELS.index(level)], float(self._interval_count.sum()))

    def width(self, level: int) -> float:
        """The mean width of the central interval of `level` per cent."""
        return _ratio(self._width[LEVELS.index(level)], float(self._interval_count.sum()))

    @property
    def worst_coverage_90(self) -> float:
        """The lowest coverage of the 90 % interval over any 500 forecasts in a row, of which half are known."""
        return self._stretch.worst

    def curve(self) -> tuple[npt.NDArray[np.int64], Array]:
        """Steps, and the MAE over the stream up to each of them; at most 512 points."""
        return self._curve.arrays()

    def by_step(self) -> dict[str, Array]:
        """MAE, MSE and coverage of the 90 % interval for each horizon step `(H,)`."""
        return self._by(axis=1)

    def by_channel(self) -> dict[str, Array]:
        """The same for each channel `(C,)`, and in the data's own units where `std` was given."""
        figures = self._by(axis=0)
        if self._std is not None:
            figures["mae_units"] = figures["mae"] * self._std
            figures["mse_units"] = figures["mse"] * self._std**2
        return figures

    def _by(self, axis: int) -> dict[str, Array]:
        count, intervals = self._count.sum(axis), self._interval_count.sum(axis)
        return {
            "mae": _ratios(self._absolute.sum(axis), count),
            "mse": _ratios(self._square.sum(axis), count),
            "coverage_90": _ratios(self._covered.sum(axis), intervals),
        }

    def result(self) -> dict[str, float | int | str | None]:
        """All of it as plain values; `None` where there is no figure, and no figures at all after a failure."""
        figures: dict[str, float] = {
            "mae": self.mae,
            "mse": self.mse,
            "mase": self.mase,
            "crps": self.crps,
            **{f"coverage_{level}": self.coverage(level) for level in LEVELS},
            **{f"width_{level}": self.width(level) for level in LEVELS},
            "worst_coverage_90": self.worst_coverage_90,
            "seconds": self.seconds,
            "ms_per_step": 1e3 * _ratio(self.seconds, self.steps),
            "peak_mib": self.peak_mib,
        }
        usable = {
            name: value if self.error is None and math.isfinite(value) else None for name, value in figures.items()
        }
        return {"steps": self.steps, **usable, "error": self.error}


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


def _ratios(total: Array, count: Array) -> Array:
    ratios: Array = np.full(total.shape, math.nan)
    np.divide(total, count, out=ratios, where=count > 0)
    return ratios
