"""The warm phase of a live stream, with a forecaster that learns; `natsr.cold` is the one before it.

Both take one row of a regular grid at a time, NaN where missing, and answer forecasts in the data's own units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.calibrate import Calibrator
from natsr.data.calendar import Calendar, Floats
from natsr.data.series import Scaling
from natsr.data.ticks import Ticks, Unit, times_of
from natsr.drift import Drift
from natsr.forecasters.base import Forecast, Forecaster, Progress
from natsr.health import Tally
from natsr.rescale import Watch
from natsr.spread import QUANTILES, Learned, Spread, quantile
from natsr.state import tensor_of
from natsr.streams import Feed, Rows, Step, Windows
from natsr.types import Example, OptionError, State, StateError

Array = npt.NDArray[np.float64]

#: Those of `natsr.calibrate` among them.
USUAL = slice(1, -1)
#: Share of the history that trains; the rest of it judges when to stop.
TRAIN = 0.8
#: Parts that start again where a state of an earlier format has nothing that they could go on from.
BEGIN_ANEW = ("calibrator", "drift", "watch")
#: A feature that came with a row is held to this many standard deviations.
WILD = 100.0


class Interval(NamedTuple):
    """The ends of a central interval, `(H, C)` each; NaN where nothing is known yet."""

    low: Floats
    high: Floats


class Expected(NamedTuple):
    """A forecast in the data's own units."""

    mean: Floats  # (H, C); NaN for a column that never had a value
    intervals: dict[float, Interval]  # by level
    spread: Spread  # what else may be asked for


class Units(NamedTuple):
    """From rows and their times to what a forecaster reads; fixed."""

    scaling: Scaling  # of the values
    calendar: Calendar  # from the time of a row to its features
    extras: Scaling  # of the features that come with a row
    unit: Unit = "s"  # of the ticks that times are counted in


class Warm:
    """A forecaster on its stream: learns what each row makes known, then forecasts, and is scored as rows come.

    Args:
        forecaster: Fresh.
        feed: Fresh; decides what is learned when.
        units: From the data's units to standardised ones.
    """

    def __init__(self, forecaster: Forecaster, feed: Feed, units: Units) -> None:
        task = forecaster.task
        self.forecaster, self.feed = forecaster, feed
        self.scaling, self.calendar, self.extras, self._unit = units
        self.calibrator, self.tally, self.drift = Calibrator(task, QUANTILES), Tally(task), Drift(task.channels)
        self.watch = Watch(task, units.scaling, forecaster.far)
        self.rescaled = 0  # how often a column had left its scale
        self.rescaled_at: int | None = None  # when that last was
        self.refused = 0  # steps that the forecaster gave up with an error
        self.fallbacks = 0  # forecasts that were not finite; the last value stood in
        self._filled = torch.zeros(task.channels)  # last known values, standardised
        self._seen = torch.zeros(task.channels, dtype=torch.bool)  # columns that have had a value
        self._mean = np.zeros((task.horizon, task.channels))
        self._quantiles = np.zeros((len(QUANTILES), task.horizon, task.channels))

    def standardised(self, values: Floats) -> Tensor:
        """`(…, C)` as the forecaster sees it; what is too large for a float32 counts as missing."""
        with np.errstate(over="ignore"):
            scaled = torch.from_numpy(self.scaling.apply(values)).float()
        scaled[~scaled.isfinite()] = math.nan
        return scaled

    def features(self, ticks: Ticks, extras: Floats) -> Tensor:
        """`(T, F)`: the calendar, then what came with the rows, held to `WILD` deviations; 0, its mean, if missing."""
        scaled = self.extras.held(extras, WILD)
        calendar = self.calendar.apply(times_of(ticks, self._unit))
        return torch.from_numpy(np.concatenate([calendar, scaled], axis=1)).float()

    def begin(self, rows: Rows, values: Floats, progress: Progress) -> None:
        """Warm up on all the rows that are known (in the data's units too), and forecast from the last of them."""
        task, count = self.forecaster.task, len(rows.inputs)
        cut = int(TRAIN * count)
        train, valid = Windows(rows, task, 0, cut), Windows(rows, task, cut, count)
        if not len(train):  # too few rows for two parts
            train, valid = Windows(rows, task, 0, count), Windows(rows, task, count, count)
        self.forecaster.warm_up(train, valid, progress)
        # Examples that end in these rows have been learned. The feed needs those that still wait for a target.
        step = None
        for inputs, truth in zip(rows.inputs[-self._kept :], rows.truth[-self._kept :], strict=True):
            step = self.feed.push(inputs, truth)
        assert step is not None
        self.watch.fill(rows, values)
        self._seen = ~rows.truth.isnan().all(0)
        self._filled = rows.inputs[-1, : task.channels].clone()
        self.drift.begin(rows.truth.double().numpy())
        self.expect(self.forecaster.forecast(step.window))

    @property
    def _kept(self) -> int:
        return self.forecaster.task.reach + self.forecaster.task.horizon

    def advance(self, tick: int, values: Floats) -> None:
        """Take the next row, `(C + X,)`: what it makes known is learned, and the rows after it are forecast."""
        step = self.opened(tick, values)
        if step.matured is not None:
            self._learn(step.matured)
        self.expect(self.forecaster.forecast(step.window))

    def opened(self, tick: int, values: Floats) -> Step:
        """The first half of `advance`: take the row, and say what is now to be learned and forecast."""
        channels = self.forecaster.task.channels
        truth = self.standardised(values[:channels])
        known = ~truth.isnan()
        self._seen |= known
        self._filled = torch.where(known, truth, self._filled)
        row = truth.double().numpy()
        self.calibrator.reveal(row)
        self.drift.update(self.calibrator.scales.newest, tick, row, self._mean[0], self.forecaster.weights)
        self.tally.reveal(row)
        inputs = torch.cat([self._filled, self.features(np.array([tick]), values[None, channels:])[0]])
        self.watch.push(values[:channels], inputs, truth)
        step = self.feed.push(inputs, truth)
        assert step is not None  # `begin` has filled the first window
        return step

    def _learn(self, example: Example) -> None:
        try:
            self.forecaster.learn(example)
        except FloatingPointError:
            self.refused += 1

    def expect(self, forecast: Forecast) -> None:
        """The second half of `advance`: remember a forecast, so that it can be asked for and will be scored."""
        mean: Array = forecast.mean[0].detach().cpu().double().numpy()
        variance: Array | None = None
        if forecast.variance is not None:
            variance = np.broadcast_to(forecast.variance.detach().cpu().double().numpy(), (1, *mean.shape))[0]
        last = self._filled.double().numpy()
        if not np.isfinite(mean).all():
            mean, variance = np.tile(last, (len(mean), 1)), None
            self.fallbacks += 1
        self._mean, self._quantiles = mean, self.calibrator.quantiles(mean, variance)
        self.calibrator.push(mean, variance)
        self.tally.push(mean, self._quantiles[USUAL], last)

    def forecast(self, levels: Sequence[float]) -> Expected:
        """The forecast from the newest row; changes nothing."""
        table = self._quantiles.view()
        table.flags.writeable = False  # it is handed out
        spread = Learned(table, self.scaling, self._seen.numpy().copy())
        intervals = {}
        for level in levels:
            low, high = interval(self._quantiles, level)
            intervals[level] = Interval(spread.restored(low), spread.restored(high))
        return Expected(spread.restored(self._mean), intervals, spread)

    def scale(self) -> float:
        """The present size of the errors: their mean absolute value over steps and columns, standardised."""
        return float(self.calibrator.scales.level().mean())

    def _parts(self) -> dict[str, Forecaster | Feed | Calibrator | Tally | Drift | Watch]:
        return {
            "forecaster": self.forecaster,
            "feed": self.feed,
            "calibrator": self.calibrator,
            "tally": self.tally,
            "drift": self.drift,
            "watch": self.watch,
        }

    def state_dict(self) -> State:
        """Everything that must be carried on, and what `described` needs to build it again."""
        calendar = self.calendar
        extras = {"extras": tensors(mean=self.extras.mean, std=self.extras.std)} if len(self.extras.mean) else {}
        return {
            **extras,
            **{name: part.state_dict() for name, part in self._parts().items()},
            "scaling": tensors(mean=self.scaling.mean, std=self.scaling.std),
            "calendar": {
                "names": " ".join(calendar.names),
                **tensors(mean=calendar.mean, std=calendar.std, low=calendar.low, high=calendar.high),
            },
            "rescaled": self.rescaled,
            "rescaled_at": self.rescaled_at,
            "refused": self.refused,
            "fallbacks": self.fallbacks,
            "filled": self._filled.clone(),
            "seen": self._seen.clone(),
            **tensors(mean=self._mean, quantiles=self._quantiles),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""
        for name, part in self._parts().items():
            if name in BEGIN_ANEW and state.get(name) is None:
                continue
            try:
                part.load_state_dict(branch(state, name))
            except KeyError as error:
                raise StateError(f"the state of the {name} lacks {error}; it belongs to another method") from error
        filled, seen, refused, fallbacks = (state.get(name) for name in ("filled", "seen", "refused", "fallbacks"))
        if not (isinstance(filled, Tensor) and isinstance(seen, Tensor)):
            raise StateError("the state lacks the last values; it belongs to something else")
        if not (isinstance(refused, int) and isinstance(fallbacks, int)):
            raise StateError("the state lacks its counts; it belongs to something else")
        self._filled, self._seen, self.refused, self.fallbacks = filled.clone(), seen.clone(), refused, fallbacks
        rescaled, when = state.get("rescaled"), state.get("rescaled_at")
        self.rescaled = rescaled if isinstance(rescaled, int) else 0
        self.rescaled_at = when if isinstance(when, int) else None
        self._mean = array(state, "mean", self._mean.shape)
        self._quantiles = array(state, "quantiles", self._quantiles.shape)


def described(state: State) -> Units:
    """The scalings and the calendar of a saved warm phase; a state from before there were extras has none."""
    scaling, calendar = branch(state, "scaling"), branch(state, "calendar")
    extras = branch(state, "extras") if "extras" in state else tensors(mean=np.empty(0), std=np.empty(0))
    names = calendar.get("names")
    if not isinstance(names, str):
        raise StateError(f"the calendar's names are {names!r}, expected text; the state belongs to something else")
    kept = tuple(names.split())
    return Units(
        Scaling(array(scaling, "mean", (None,)), array(scaling, "std", (None,))),
        Calendar(kept, *(array(calendar, name, (len(kept),)) for name in ("mean", "std", "low", "high"))),
        Scaling(array(extras, "mean", (None,)), array(extras, "std", (None,))),
    )


def check_levels(levels: Sequence[float]) -> None:
    """Refuse levels of intervals that there are none of.

    Raises:
        OptionError: One is not above 0 and at most 0.99.
    """
    if not isinstance(levels, Iterable) or isinstance(levels, str):
        raise OptionError(f"levels is {levels!r}, expected several, or one in brackets, such as [0.9]")
    for level in levels:
        if not isinstance(level, float | int) or not 0 < level <= 0.99:
            raise OptionError(f"level is {level!r}, expected more than 0 and at most 0.99")


def interval(quantiles: Array, level: float) -> Interval:
    """The central interval of this level from quantiles `(Q, H, C)` at `QUANTILES`."""
    return Interval(quantile(quantiles, (1 - level) / 2), quantile(quantiles, (1 + level) / 2))


def tensors(**arrays: Array) -> State:
    """Copies as tensors, for a state."""
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def array(state: State, name: str, shape: tuple[int | None, ...]) -> Array:
    """An array of a state, if it has this shape; `None` stands for any length."""
    found: Array = tensor_of(state, name, shape).double().numpy().copy()
    return found


def branch(state: State, name: str) -> State:
    """A part of a state that is itself a state."""
    value = state.get(name)
    if not isinstance(value, dict):
        raise StateError(f"{name} is {type(value).__name__}, expected a nested state; it belongs to something else")
    return value
