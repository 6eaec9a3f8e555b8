"""Intervals that hold: a Student-t around any forecast, its size tracked and its quantiles learned online.

An interval end is `mean + unit * (median + (knot - median) * (factor * debt)^w)`:

- the *unit* is the present size of the errors of this step and channel (`natsr.scales`);
- a *knot* is a quantile of the errors in such units, at the nine probabilities of `KNOTS`, for each step and channel.
  It begins as that of Student's t. When a row comes, a knot moves up if the error lay above it and down if not, by `p`
  and `1 - p` times a gain: the only resting place is the one where the share `p` of the errors lies below, whatever
  their distribution and however it drifts (conformal quantile tracking; Angelopoulos, Candès and Tibshirani,
  "Conformal PID control for time series prediction", 2023). Other probabilities lie on straight lines between knots,
  drawn over the quantiles of Student's t;
- the *factor*, one for each channel, reacts within fifty rows: it grows when the 90 % intervals of late held too
  rarely, over all steps, and shrinks when they held too often (adaptive conformal inference; Gibbs and Candès, 2021).
  Most of what moves it are the misses of all channels together: there are more of them, and trouble seldom comes to
  one channel alone;
- the *debt*, one for all, is what intervals missed beyond a tenth over the last `PAYING` rows. Forecasts made shortly
  before a change miss, and nothing can be done about these; the debt keeps those after it wider until the stretch as
  a whole holds again (the integral in "Conformal PID control").

All this supposes errors that are some distribution times a size. Where they are not - nearly all of them zero and some
far away, levels that jump - a *second opinion* is better: the quantiles of the last 800 errors as they are
(`natsr.empirical`). The quantiles that are issued lie between those of the two, by a share for each column that follows
their losses and is zero until there is proof. Factor and debt widen the second opinion's outermost quantiles too, and
are moved by what the mixture missed; the knots go on as if there were no second opinion.

Factor and debt are there for the ends: `w` is 1 for the outer knots and 0 for the median. They widen around the median
knot, not around the forecast: where a forecast is always off by the same, both ends lie on one side of it.

Labels come late: the forecast made `h` rows ago tells about step `h`. The knots are moved by errors in the units and
with the factor and debt that were issued, so that what was issued holds in the long run; the factor is moved by what
it would have been worth now, so that the delay does not make it swing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natsr.empirical import Empirical, Trust, ring_of
from natsr.scales import Mask, Scales, bounded, interpolation, student_density, student_quantile
from natsr.state import into_arrays, of_arrays
from natsr.types import OptionError, ShapeError, State, StateError, Task

Array = npt.NDArray[np.float64]

#: Central intervals of 10, 20, … 90 % and of 95 %, and the median.
PROBABILITIES = (0.025, *(round(0.05 * k, 2) for k in range(1, 20)), 0.975)
#: What is tracked; all others are drawn between these.
KNOTS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)

GAIN = 0.06  # of the factor's logarithm, for each row whose errors all missed
SHARED = 0.8  # weight of the misses of all channels together in it; the rest is the channel's own
MISSES = 0.09  # share of them that leaves it where it is; a little less than a tenth, for misses come in runs
FEWER = 0.015 / 24  # how much smaller that share is for each row of the horizon beyond a day of hours, up to two days
LEAK = 0.999  # what is left of it a row later: in the long run the knots have it
NARROWEST, WIDEST = -0.1, 1.0  # its bounds
PAYING = 250  # rows that the debt looks back on
INTEREST = 2.0  # what a debt of one adds to the logarithm
LEAST, MOST = -0.1, 0.6  # bounds of what it adds
OUTER = (0.0, 0.1, 0.4, 1.0)  # powers of the factor and the debt
POWERS = (3, 3, 2, 1, 0, 1, 2, 3, 3)  # which of them each knot has
PRIOR = 20  # errors that the first ones are weighed against: one alone would move the outer knots far
#: Parts of a state that came later than others.
LATER = (
    "debt",
    "came",
    "waiting",
    "told",
    "lately",
    "lately_place",
    "lately_quantiles",
    "lately_ready",
    "trust_lost",
    "trust_square",
    "trust_count",
    "trust",
    "share",
)
LOW, MIDDLE, HIGH = KNOTS.index(0.05), KNOTS.index(0.5), KNOTS.index(0.95)
CHOSEN = slice(1, 8, 2)  # knots whose pinball losses steer the power of the fast size
COMPARED, STEPS = slice(1, -1), 8  # probabilities, and the number of steps, at which the two opinions are compared
LOWER, MIDST, UPPER = (PROBABILITIES.index(p) for p in (0.05, 0.5, 0.95))
PACE = 5  # rows of which one is compared; no divisor of a day's hours, half hours or quarters, nor of a week's days


class Calibrator:
    """Quantiles for every horizon step and channel, from the errors of the forecasts made so far.

    For every row: `reveal` it, forecast, ask for `quantiles`, and `push` the forecast so that its errors will count. A
    row without a forecast is no trouble. Before any error is known the errors are taken to be Student-t with the
    forecaster's own variance, or with size 1.

    Args:
        task: Gives the horizon, the channels and the season.
        probabilities: Those of `quantiles` unless others are asked for, rising.
        memory: Errors that the knots look back on.

    Example:
        >>> calibrator = Calibrator(Task(window=1, horizon=1, channels=1))
        >>> for value in np.random.default_rng(0).normal(size=4000):
        ...     calibrator.reveal(np.array([value]))
        ...     calibrator.push(np.zeros((1, 1)))
        >>> low, high = calibrator.quantiles(np.zeros((1, 1)))[[1, -2], 0, 0]
        >>> bool(-2.0 < low < -1.3 and 1.3 < high < 2.0)
        True
    """

    def __init__(self, task: Task, probabilities: Sequence[float] = PROBABILITIES, *, memory: int = 1200) -> None:
        if memory < 1:
            raise OptionError(f"memory is {memory}, expected at least 1")
        H, C, K = task.horizon, task.channels, len(KNOTS)
        self.task = task
        self.probabilities = tuple(probabilities)
        self.memory = memory
        self.scales = Scales(task)
        self._weights, self._fine = _weights(self.probabilities), _fine(self.probabilities)
        at = student_quantile(KNOTS)
        density = student_density(at)[:, None, None]
        levels = np.array(KNOTS)[:, None, None]
        self._outer = np.array(OUTER)[:, None]
        self._levels, self._span = levels, float(at[HIGH] - at[LOW])
        self._up, self._down = levels / density, (levels - 1) / density
        self._knots = np.broadcast_to(at[:, None, None], (K, H, C)).copy()  # may cross; what is answered does not
        self._factor = np.zeros(C)  # its logarithm
        self._debt = np.zeros(1)
        # Labels that come later let misses come in longer runs.
        self._misses = MISSES - FEWER * min(max(H - 24, 0), 24)
        # By origin modulo H: forecasts whose rows may still come, their units, and the powers of the factor and the
        # levers of the fast size that they were issued with.
        self._mean, self._unit = np.full((H, H, C), np.nan), np.ones((H, H, C))
        self._issued, self._lever = np.ones((len(OUTER), H, C)), np.zeros((H, C))
        self._steps = np.arange(H)
        self._units: Array | None = None  # of the forecast from the newest row, once asked for
        self._above, self._move = np.empty((K, H, C), dtype=bool), np.empty((K, H, C))
        self._empirical, self._trust = Empirical(task, PROBABILITIES), Trust(C, np.array(PROBABILITIES[COMPARED]), PACE)
        self._share, self._mixed = np.zeros((H, C)), False  # of the second opinion, and whether there is any
        # Every fifth forecast is compared with what came, at some of its steps, once all of its rows are there. By a
        # fifth of the origin, modulo their number: the forecast, and what both opinions said of its errors.
        self._compared = np.unique(np.linspace(0, H - 1, min(H, STEPS)).round().astype(np.int64))
        waiting, steps = -(-H // PACE) + 1, len(self._compared)
        self._waiting = np.full((waiting, steps, C), np.nan)
        self._told = np.zeros((waiting, 2, steps, len(PROBABILITIES[COMPARED]), C))
        self._came = np.full((H, C), np.nan)  # rows, by their number modulo H
        self._between = interpolation(KNOTS, PROBABILITIES[COMPARED])

    def quantiles(
        self, mean: Array, variance: Array | None = None, probabilities: Sequence[float] | None = None
    ) -> Array:
        """The quantiles `(Q, H, C)` of the rows that were forecast as `mean` `(H, C)`, never crossing; pure.

        Args:
            mean: The forecast from the row revealed last.
            variance: What the forecaster says of its errors `(H, C)`; used before the first error is known.
            probabilities: Any between 0 and 1, rising; the calibrator's own unless given.
        """
        self._check(mean)
        weights = self._weights if probabilities is None else _weights(probabilities)
        factors = self._factors()
        knots = _widened(_uncrossed(self._knots.copy()), factors, self._sizes(variance))
        if self._mixed:
            knots *= 1 - self._share  # a share of one leaves nothing, not even rounding
        quantiles: Array = (weights @ knots.reshape(len(KNOTS), -1)).reshape(-1, *mean.shape)
        if self._mixed:
            second = _ends_widened(self._empirical.quantiles * self._share, factors)
            fine = self._fine if probabilities is None else _fine(probabilities)
            if fine is not None:
                second = (fine @ second.reshape(len(second), -1)).reshape(quantiles.shape)
            quantiles += second
        quantiles += mean
        # Rounding may let neighbours without any distance cross by the last bit, and a factor below one by a little.
        return _uncrossed(quantiles)

    def samples(self, mean: Array, count: int, generator: np.random.Generator, variance: Array | None = None) -> Array:
        """Draws `(N, H, C)` from the same distribution, each step and channel for itself; pure but for the generator.

        >>> calibrator = Calibrator(Task(window=1, horizon=2, channels=1))
        >>> calibrator.samples(np.zeros((2, 1)), 3, np.random.default_rng(0)).shape
        (3, 2, 1)
        """
        grid = (np.arange(1, 200) / 200).tolist()
        table = self.quantiles(mean, variance, [0.0005, 0.002, *grid, 0.998, 0.9995])
        places = np.interp(
            generator.uniform(size=(count, *mean.shape)), [0.0005, 0.002, *grid, 0.998, 0.9995], np.arange(len(table))
        )
        below = np.minimum(places.astype(np.int64), len(table) - 2)
        low, high = (np.take_along_axis(table, below + more, axis=0) for more in (0, 1))
        drawn: Array = low + (places - below) * (high - low)
        return drawn

    def push(self, mean: Array, variance: Array | None = None) -> None:
        """Remember the forecast from the row revealed last; its errors count when its rows come."""
        self._check(mean)
        place = self.scales.rows % self.task.horizon
        self._mean[place] = mean
        self._unit[place] = self._sizes(variance)
        self._issued[:, place] = factors = self._factors()
        self._lever[place] = self.scales.lever()
        if self.scales.rows % PACE == 0:
            self._tell(mean, self._unit[place], factors)

    def _tell(self, mean: Array, unit: Array, factors: Array) -> None:
        """Remember what both opinions say, at the steps that they are compared at."""
        at, place = self._compared, self.scales.rows // PACE % len(self._told)
        knots = _widened(_uncrossed(self._knots[:, at]), factors, unit[at])
        first = (self._between @ knots.reshape(len(KNOTS), -1)).reshape(-1, *knots.shape[1:])
        second = _ends_widened(self._empirical.quantiles[:, at], factors)[COMPARED]
        second = np.where(self._empirical.ready[at] > 0, second, first)
        self._waiting[place] = mean[at]
        self._told[place, 0], self._told[place, 1] = first.swapaxes(0, 1), second.swapaxes(0, 1)

    def _compare(self, origin: int) -> None:
        """Learn from the forecast of this origin, all of whose rows have come, how far to trust the second opinion."""
        place = origin // PACE % len(self._told)
        error = self._came[(origin + self._compared) % self.task.horizon] - self._waiting[place]
        known = np.isfinite(error)
        if known.any():
            self._trust.learn(np.where(known, error, 0.0), known, *self._told[place])
        self._waiting[place] = np.nan

    def reveal(self, row: Array) -> None:
        """Learn from the next row `(C,)`: step `h` of the forecast made `h` rows ago. What is not finite is missing."""
        if row.shape != (self.task.channels,):
            raise ShapeError(f"row has shape {row.shape}, expected ({self.task.channels},)")
        rows, horizon = self.scales.rows + 1, self.task.horizon
        places = (rows - 1 - self._steps) % horizon
        error = row - self._mean[places, self._steps]  # (H, C)
        known = np.isfinite(error)
        error[~known] = 0.0
        if known.any():
            self._learn(error, known, places)
        self._came[(rows - 1) % horizon] = row
        compared = (rows - horizon) % PACE == 0
        if compared:
            self._compare(rows - horizon)
        if self._empirical.move(error, known, rows) or compared:
            np.multiply(self._empirical.ready, self._trust.share, out=self._share)
            self._mixed = bool(self._share.any())
        self.scales.move(error, known)
        self._units = None
        self._mean[rows % horizon] = np.nan

    def _learn(self, error: Array, known: Mask, places: npt.NDArray[np.int64]) -> None:
        """Move everything by the errors `(H, C)` about the newest row, of the forecasts in these places."""
        unit = self._unit[places, self._steps]
        score = error / unit
        here = known.sum(0)
        alive, here = here > 0, np.maximum(here, 1)
        centre = self._knots[MIDDLE]
        off = score - centre
        middle, (low, high) = self._interval(unit)
        far = error - middle
        now = far / np.exp(self._factor)
        missed = known & ((now < low) | (now > high))
        share = (missed.sum(0) / here - self._misses) * alive
        shared = alive * (share.sum() / np.count_nonzero(alive))
        share += SHARED * (shared - share)
        self._factor = bounded(LEAK * (self._factor + GAIN * share), NARROWEST, WIDEST)
        factors = self._issued[:, places]  # (4, H, C)
        issued = off / factors
        issued += centre
        for knot, (power, above) in enumerate(zip(POWERS, self._above, strict=True)):
            np.greater(issued[power], self._knots[knot], out=above)
        far /= factors[-1]
        held = np.count_nonzero(known & (low <= far) & (far <= high)) / np.count_nonzero(known)
        self._debt += (0.9 - held - self._debt) / PAYING
        # The slope of the pinball loss over the logarithm of the unit, in units.
        slope = ((1 - self._levels[CHOSEN] - self._above[CHOSEN]) * self._knots[CHOSEN]).sum(0)
        slope *= self._lever[places]
        slope *= known
        self.scales.lean(slope.sum(0) / here)
        # Where the tails are wider than Student's the density at a knot is lower, and its steps are longer.
        rate = (self._knots[HIGH] - self._knots[LOW]) / self._span
        rate = bounded(rate, 1.0, 20.0)
        rate *= known
        rate /= np.minimum(self.scales.count + PRIOR, self.memory)
        self._move[...] = self._down
        np.copyto(self._move, self._up, where=self._above)
        self._move *= rate
        self._knots += self._move

    def _interval(self, unit: Array) -> tuple[Array, Array]:
        """The median of the mixed errors in these units, and how far from it the ends of 90 % are without factors."""
        first, second = self._knots, self._empirical.quantiles
        rest = unit - unit * self._share
        middle = first[MIDDLE] * rest
        ends = first[LOW : HIGH + 1 : HIGH - LOW] - first[MIDDLE]  # (2, H, C)
        ends *= rest
        late = second[LOWER : UPPER + 1 : UPPER - LOWER] - second[MIDST]
        late *= self._share
        ends += late
        middle += second[MIDST] * self._share
        return middle, ends

    def _factors(self) -> Array:
        """The powers of the factor and the debt, `(4, C)`."""
        owed = min(max(INTEREST * self._debt.item(), LEAST), MOST)
        factors: Array = np.exp(self._outer * (self._factor + owed))
        return factors

    def _sizes(self, variance: Array | None) -> Array:
        if not self.scales.count.all():  # then the variance may matter
            return self.scales.units(variance)
        if self._units is None:
            self._units = self.scales.units()
        return self._units

    def _check(self, mean: Array) -> None:
        if mean.shape != self.scales.size.shape:
            raise ShapeError(f"mean has shape {mean.shape}, expected {self.scales.size.shape}")

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        return {"rows": self.scales.rows, **of_arrays(self._arrays())}

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave; what a state from before did not have begins anew."""
        fresh = Calibrator(self.task, self.probabilities, memory=self.memory)._arrays()
        state = self._longer({**of_arrays({name: fresh[name] for name in LATER}), **state})
        rows = state.get("rows")
        if not isinstance(rows, int):
            raise StateError(f"rows is {rows!r}, expected a number; is this the state of a calibrator?")
        into_arrays(state, self._arrays(), "calibrator")
        self.scales.rows = rows
        self._units, self._mixed = None, bool(self._share.any())

    def _longer(self, state: State) -> State:
        """Up to format 11 fewer errors were kept for the second opinion."""
        errors, place = state.get("lately"), state.get("lately_place")
        if not (isinstance(errors, Tensor) and isinstance(place, Tensor) and errors.ndim == 3):
            return state
        rows = self._empirical.rows
        if errors.shape[2] >= rows or place.shape != errors.shape[1:2]:
            return state
        longer = ring_of(errors.cpu().numpy(), place.cpu().numpy(), rows)
        return {**state, **of_arrays(dict(zip(("lately", "lately_place"), longer, strict=True)))}

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            **self.scales.arrays(),
            "knots": self._knots,
            "factor": self._factor,
            "debt": self._debt,
            "mean": self._mean,
            "unit": self._unit,
            "issued": self._issued,
            "lever": self._lever,
            "came": self._came,
            "waiting": self._waiting,
            "told": self._told,
            "lately": self._empirical.errors,
            "lately_place": self._empirical.place,
            "lately_quantiles": self._empirical.quantiles,
            "lately_ready": self._empirical.ready,
            "trust_lost": self._trust.lost,
            "trust_square": self._trust.square,
            "trust_count": self._trust.count,
            "trust": self._trust.share,
            "share": self._share,
        }


def _widened(knots: Array, factors: Array, unit: Array) -> Array:
    """Knots `(K, S, C)` with the factors `(4, C)` around the median, in these units; in place."""
    centre = knots[MIDDLE].copy()
    knots -= centre
    knots *= factors[POWERS, None]
    knots += centre
    knots *= unit
    return knots


def _ends_widened(second: Array, factors: Array) -> Array:
    """The second opinion's quantiles `(21, S, C)` with the factor at the ends; in place."""
    middle, power = second[MIDST], factors[-1]
    for part in (second[: LOWER + 1], second[UPPER:]):
        part -= middle
        part *= power
        part += middle
    return second


def _uncrossed(rising: Array) -> Array:
    """The same array in rising order along the first axis, in place.

    Where neighbours have crossed they change places (a rearrangement, which makes quantiles no worse: Chernozhukov,
    Fernández-Val and Galichon 2010). Held to the one below, all beyond one that had come too far would be the same.
    """
    if (rising[1:] < rising[:-1]).any():  # seldom, and a third of what sorting takes
        rising.sort(axis=0)
    return rising


def _weights(probabilities: Sequence[float]) -> Array:
    levels = np.array(probabilities, dtype=np.float64)
    if not (len(levels) and np.all(np.diff(levels) > 0) and levels[0] > 0 and levels[-1] < 1):
        raise OptionError(f"probabilities are {tuple(probabilities)}, expected rising numbers between 0 and 1")
    return interpolation(KNOTS, levels)


def _fine(probabilities: Sequence[float]) -> Array | None:
    """Weights that make quantiles at any probability of those at `PROBABILITIES`; none are needed for these."""
    return None if tuple(probabilities) == PROBABILITIES else interpolation(PROBABILITIES, np.array(probabilities))
