"""How large the errors are now: a Student-t's shape, and a size for each channel and step that follows the stream.

The size of the errors `h` rows ahead in channel `c` is a product of three parts, each with a pace of its own:

- a slow one for each (step, channel): the mean absolute error over the last `SLOW` rows;
- a fast one for each channel, pooled over the steps: how large the errors of the last `FAST` rows were in units of the
  slow one. It counts with a power below one, for part of what it shows is luck, and with a smaller one downwards, for
  a calm that ends is worse than an alarm that was false. How much of it is luck differs from channel to channel: the
  power follows the gradient of the CRPS;
- the rhythm: how much larger or smaller errors are at this time of the season (errors at noon are not those at night).

One wild value moves none of them far. A run of large errors moves the fast part by a constant factor a row, so a column
that wakes up after months of stillness has its new size within fifty rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from natsr.types import Task

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SLOW, FAST = 800, 40  # rows that the slow and the fast part look back on
POWER = 0.9  # of the fast part, to begin with
LEAST, MOST = 0.3, 1.0  # its bounds
DOWN = 0.55  # share of it that counts for a fast part below one
RATE = 0.005  # of the power's gradient steps
RHYTHM = 0.7  # power of the rhythm
SEASONS = 30  # seasons that the rhythm looks back on
BINS = 48  # times of the season that are told apart, at most
WINSOR = 8.0  # one error counts at most this many times the present size
YOUNG = 20  # errors seen before outliers are told from ordinary errors
PRIOR = 5  # errors at a time of the season that the first ones are weighed against
TINY = 1e-12  # keeps a channel that is forecast without error from dividing by zero


def student_quantile(p: npt.ArrayLike) -> Array:
    """Quantiles of Student's t with four degrees of freedom, which have a closed form; its mean absolute value is 1.

    >>> [round(float(z), 4) for z in student_quantile([0.025, 0.5, 0.95])]
    [-2.7764, 0.0, 2.1318]
    """
    levels = np.asarray(p, dtype=np.float64)
    root = np.sqrt(4 * levels * (1 - levels))
    # At the middle rounding may leave a little less than zero under the last root.
    inner = np.maximum(np.cos(np.arccos(np.minimum(root, 1.0)) / 3) / root - 1, 0.0)
    quantile: Array = np.sign(levels - 0.5) * 2 * np.sqrt(inner)
    return quantile


def student_density(z: Array) -> Array:
    """The density of Student's t with four degrees of freedom."""
    density: Array = 0.375 * (1 + z * z / 4) ** -2.5
    return density


class Scales:
    """The size of the errors for each horizon step and channel, `(H, C)`.

    Args:
        task: Gives the horizon, the channels and the season.

    Example:
        >>> scales = Scales(Task(window=1, horizon=1, channels=1))
        >>> for error in np.random.default_rng(0).normal(size=2000):
        ...     scales.move(np.array([[error]]), np.array([[True]]))
        >>> bool(0.6 < scales.units()[0, 0] < 1.0)  # the mean absolute value of a normal is 0.798
        True
    """

    def __init__(self, task: Task) -> None:
        H, C = task.horizon, task.channels
        bins = min(task.season, BINS)
        self.rows = 0
        self.count = np.zeros((H, C))  # errors seen
        self.size = np.ones((H, C))  # slow: mean absolute error, the rhythm taken out
        self.fast = np.ones(C)  # errors of late, in units of the slow size
        self.rhythm = np.ones((bins, C))  # by time of the season
        self.power = np.full(C, POWER)
        self.newest = np.full(C, np.nan)  # mean absolute error about the newest row, the rhythm taken out
        self._pace = np.zeros(C)  # rows with an error, for the fast part
        self._raw = np.ones((bins, C))  # the rhythm before its power
        self._raw_count = np.zeros((bins, C))
        self._sum = np.full(C, float(bins))  # of the rhythm: it is used divided by its mean
        self._phases = np.arange(task.season) * bins // task.season  # bin of each time of the season
        self._steps = np.arange(H)
        self._a, self._b = np.empty((H, C)), np.empty((H, C))

    def move(self, error: Array, known: Mask) -> None:
        """Take the errors about the next row `(H, C)`, zero where not known; those of step `h` are `h` rows old."""
        self.rows += 1
        place = self._phase(self.rows - 1)
        beat = self._beat(place)
        magnitude, ratio = self._a, self._b
        np.abs(error, out=magnitude)
        magnitude /= beat
        here = known.sum(0)
        self.newest = np.where(here, magnitude.sum(0) / np.maximum(here, 1), np.nan)
        # A run of large errors raises the limit with the fast part, so that it cannot hold the size down for long.
        limit = WINSOR * self.size * np.maximum(self.fast, 1.0)
        limit[(self.count < YOUNG) | (self.size <= 10 * TINY)] = np.inf
        np.minimum(magnitude, limit, out=magnitude)
        np.subtract(magnitude, self.size, out=ratio)
        ratio *= known / np.minimum(self.count + 1, SLOW)
        self.size += ratio
        np.maximum(self.size, TINY, out=self.size)
        np.divide(magnitude, self.size, out=ratio)
        ratio *= known
        self.count += known
        self._follow(ratio.sum(0) / np.maximum(here, 1), here > 0, place, beat)

    def _follow(self, ratio: Array, here: Mask, place: int, beat: Array) -> None:
        """Move the fast part and the rhythm by the mean error of each channel, in sizes."""
        self._pace += here
        move = (ratio - self.fast) / bounded(self._pace, 1, FAST)
        np.add(self.fast, move, out=self.fast, where=here)
        self.fast = bounded(self.fast, 0.05, 1 / TINY)
        if len(self._phases) == 1:
            return
        seen = np.minimum(ratio * beat / self.fast, WINSOR)
        self._raw_count[place] += here
        weight = here / np.minimum(self._raw_count[place] + PRIOR, SEASONS)
        self._raw[place] += weight * (seen - self._raw[place])
        fresh = np.maximum(self._raw[place], 0.02) ** RHYTHM
        self._sum += fresh - self.rhythm[place]
        self.rhythm[place] = fresh

    def units(self, variance: Array | None = None) -> Array:
        """The sizes of the errors of the forecast from the newest row, `(H, C)`; changes nothing.

        Args:
            variance: What the forecaster itself says `(H, C)`; it stands in for a channel without any error so far.
        """
        units: Array = self._sizes(variance) * self._boost()
        if len(self._phases) > 1:
            rows = self._phases[(self.rows + self._steps) % len(self._phases)]
            units *= (self.rhythm * (len(self.rhythm) / self._sum))[rows]
        return np.maximum(units, TINY, out=units)

    def lever(self) -> Array:
        """By how much of its slow size a unit of each channel `(C,)` grows, for a small step of the power."""
        pull = np.log(self.fast)
        pull = bounded(np.where(self.fast > 1, pull, DOWN * pull), -2.0, 2.0)
        pull *= np.minimum(self._boost(), 10.0)
        return pull

    def lean(self, slope: Array) -> None:
        """Step the power against the slope of the loss over it, `(C,)`."""
        self.power = bounded(self.power - RATE * slope, LEAST, MOST)

    def _boost(self) -> Array:
        boost: Array = self.fast ** np.where(self.fast > 1, self.power, DOWN * self.power)
        return boost

    def level(self) -> Array:
        """The present size of the errors of each channel `(C,)`, mean over the steps."""
        level: Array = self.size.mean(0) * self.fast
        return level

    def _phase(self, row: int) -> int:
        return int(self._phases[row % len(self._phases)])

    def _beat(self, place: int) -> Array:
        beat: Array = self.rhythm[place] * (len(self.rhythm) / self._sum)
        return beat

    def _sizes(self, variance: Array | None) -> Array:
        """The slow sizes; for steps without errors so far the size of the last step that has some."""
        if self.count.all():
            return self.size
        start = np.ones_like(self.size)
        if variance is not None:
            start = np.broadcast_to(np.sqrt(variance / 2), self.size.shape)  # a t with four degrees has variance 2
        known = self.count > 0
        last = np.maximum.accumulate(np.where(known, self._steps[:, None], -1), axis=0)
        earlier: Array = np.take_along_axis(self.size, np.maximum(last, 0), axis=0)
        # Errors grow with the steps; without a measurement, as those of a random walk do.
        grown = earlier * np.sqrt((self._steps[:, None] + 1) / (np.maximum(last, 0) + 1))
        return np.where(last >= 0, grown, start)

    def arrays(self) -> dict[str, Array]:
        """Everything that must be carried on beside `rows`."""
        return {
            "count": self.count,
            "size": self.size,
            "fast": self.fast,
            "power": self.power,
            "pace": self._pace,
            "rhythm": self.rhythm,
            "rhythm_raw": self._raw,
            "rhythm_count": self._raw_count,
            "rhythm_sum": self._sum,
        }


def bounded(values: Array, least: float, most: float) -> Array:
    """What `numpy.clip` gives, at a third of its time for few values."""
    return np.minimum(np.maximum(values, least), most)


def interpolation(knots: npt.ArrayLike, probabilities: npt.ArrayLike) -> Array:
    """Weights `(Q, K)` that make quantiles at any probability of those at the knots: straight lines over Student's t.

    Beyond the outer knots the outer lines go on, so that the tails are a Student-t's.
    """
    at, wanted = student_quantile(knots), student_quantile(probabilities)
    below = np.clip(np.searchsorted(at, wanted, side="right") - 1, 0, len(at) - 2)
    share = (wanted - at[below]) / (at[below + 1] - at[below])
    share[np.abs(share) < 1e-12] = 0.0  # a knot is taken as it is
    weights = np.zeros((len(wanted), len(at)))
    rows = np.arange(len(wanted))
    weights[rows, below] = 1 - share
    weights[rows, below + 1] += share
    return weights
