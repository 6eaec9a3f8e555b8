"""The only loop: learn what has matured, forecast, be scored; for several forecasters beside each other."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.calibrate import PROBABILITIES, Calibrator
from natsr.drift import Drift
from natsr.forecasters.base import Forecaster
from natsr.metrics import Scores, naive_error
from natsr.streams import Rows, Step, Windows, check_protocol, steps
from natsr.types import OptionError, ShapeError, Task

try:
    from resource import RUSAGE_SELF, getrusage
except ModuleNotFoundError:  # Windows has none

    def _peak() -> float:
        return math.nan
else:

    def _peak() -> float:
        return getrusage(RUSAGE_SELF).ru_maxrss


Array = npt.NDArray[np.float64]


class Moment(NamedTuple):
    """What a progress display or a report may look at after each step; its scores go on changing."""

    step: Step
    done: int
    total: int
    means: Mapping[str, Array]  # (H, C) for each forecaster that has not failed
    quantiles: Mapping[str, Array]  # (Q, H, C) at `natsr.calibrate.PROBABILITIES`; empty without intervals
    scores: Mapping[str, Scores]
    drifts: Mapping[str, Drift]  # whose times are rows; empty without intervals


class Part(TypedDict):
    """Which rows are to be forecast; must be said."""

    start: int  # the first
    stop: int  # one past the last


class How(Part, total=False):
    """How to evaluate; the comments give the defaults."""

    protocol: str  # "honest"
    max_steps: int | None  # None: all of them
    intervals: bool  # True: calibrated intervals, and the figures made of them
    std: Tensor | None  # (C,), for figures in the data's own units
    on_step: Callable[[Moment], None] | None


class Forecasts(NamedTuple):
    """What a forecaster said along a stream, from one origin after the other."""

    first: int  # the origin of the first
    means: npt.NDArray[np.floating[Any]]  # (T, H, C)
    variances: npt.NDArray[np.floating[Any]] | None  # (T,), what it said of its errors


class _Scorer:
    """What becomes of forecasts, one after the other: they get intervals, and are scored."""

    def __init__(self, scores: Scores, calibrator: Calibrator | None) -> None:
        self.scores = scores
        self.calibrator = calibrator

    def take(self, mean: Array, variance: Array | None, newest: Array, target: Array) -> Array | None:
        """Count the next forecast `(H, C)`; answers its quantiles.

        Args:
            mean: What was forecast.
            variance: What the forecaster says of its errors, `(H, C)`.
            newest: The row that has just become known, whatever the protocol, `(C,)`.
            target: What came, `(H, C)`.
        """
        quantiles = None
        if self.calibrator is not None:
            # Whatever a forecaster may learn from, its intervals are corrected with rows that are known.
            self.calibrator.reveal(newest)
            quantiles = self.calibrator.quantiles(mean, variance)
            self.calibrator.push(mean, variance)
        self.scores.update(mean, target, quantiles)
        return quantiles

    def fail(self, origin: int, error: FloatingPointError) -> None:
        """There will be no figures."""
        self.scores.error = f"{type(error).__name__} at origin {origin}: {error}"


class _Entry:
    """A forecaster and what becomes of its forecasts."""

    def __init__(self, forecaster: Forecaster, scorer: _Scorer) -> None:
        self.forecaster = forecaster
        self.scorer, self.scores = scorer, scorer.scores
        self.mean: Array | None = None
        self.quantiles: Array | None = None
        self.drift: Drift | None = None  # where somebody looks at it

    def take(self, step: Step, newest: Array, target: Array) -> None:
        """One moment; `newest` is the row that has just become known, whatever the protocol."""
        before = self.mean
        self.mean = self.quantiles = None
        try:
            mean, variance = self._learn_and_forecast(step)
        except FloatingPointError as error:
            self.scorer.fail(step.origin, error)
            return
        self.quantiles = self.scorer.take(mean, variance, newest, target)
        self.mean = mean
        if self.drift is not None and self.scorer.calibrator is not None:
            expected = None if before is None else before[0]
            sizes = self.scorer.calibrator.scales.newest
            self.drift.update(sizes, step.origin, newest, expected, self.forecaster.weights)

    def _learn_and_forecast(self, step: Step) -> tuple[Array, Array | None]:
        began = time.perf_counter()
        if step.matured is not None:
            self.forecaster.learn(step.matured)
        forecast = self.forecaster.forecast_from(step.window, torch.tensor([step.origin]))
        mean: Array = forecast.mean.detach().cpu().double().numpy()
        self.scores.seconds += time.perf_counter() - began
        task = self.forecaster.task
        if mean.shape != (1, task.horizon, task.channels):
            raise ShapeError(f"forecast has shape {mean.shape}, expected (1, {task.horizon}, {task.channels})")
        _check_finite(mean)
        if forecast.variance is None:
            return mean[0], None
        variance = forecast.variance.detach().cpu().double().numpy()
        return mean[0], np.broadcast_to(variance, mean.shape)[0]


def evaluate(forecasters: Mapping[str, Forecaster], rows: Rows, task: Task, **how: Unpack[How]) -> dict[str, Scores]:
    """Run forecasters side by side over a part of a stream and score them.

    At each moment every forecaster learns what the protocol says it may know, forecasts, and is scored. The time it
    takes is its own, without the intervals. A forecaster that raises `FloatingPointError`, or whose forecast is not
    finite, is marked as failed and left out from there on; the others go on.

    Args:
        forecasters: By name; warmed up, or not.
        rows: The whole stream, standardised.
        task: The task that all of them have.
        how: See `How`.

    Returns:
        The scores by name.

    Example:
        >>> import torch
        >>> from natsr.forecasters.naive import LastValue
        >>> values = torch.arange(100.0)[:, None]
        >>> task = Task(window=3, horizon=2, channels=1)
        >>> scores = evaluate({"last": LastValue(task)}, Rows(values, values), task, start=10, stop=100)
        >>> scores["last"].mae, scores["last"].steps
        (1.5, 89)
    """
    _check(how)
    start, stop, on_step = how["start"], how["stop"], how.get("on_step")
    protocol = check_protocol(how.get("protocol", "honest"))
    total = len(Windows(rows, task, start, stop))
    if not total:
        raise OptionError(
            f"rows {start}…{stop - 1} hold no forecast of {task.horizon} rows after a window of {task.window}, "
            "expected at least one; use a longer stream or a shorter horizon"
        )
    total = min(total, how.get("max_steps") or total)
    denominator = naive_error(rows.truth, start, stop)
    truth: Array = rows.truth.detach().cpu().double().numpy()
    entries = {}
    for name, forecaster in forecasters.items():
        if forecaster.task != task:
            raise ShapeError(f"{name} was made for {forecaster.task}, expected {task}")
        calibrator = Calibrator(task) if how.get("intervals", True) else None
        scores = Scores(task, denominator, how.get("std"), PROBABILITIES)
        entries[name] = entry = _Entry(forecaster, _Scorer(scores, calibrator))
        if on_step is not None and calibrator is not None:
            entry.drift = Drift(task.channels)
            entry.drift.begin(truth[: Windows(rows, task, start, stop).first])
    for done, step in enumerate(islice(steps(rows, task, protocol, start, stop), total), 1):
        target = truth[step.origin + 1 : step.origin + 1 + task.horizon]
        for entry in entries.values():
            if entry.scores.error is None:
                entry.take(step, truth[step.origin], target)
        if on_step is not None:
            on_step(_moment(step, done, total, entries))
    for entry in entries.values():
        entry.scores.peak_mib = peak_mib()
    return {name: entry.scores for name, entry in entries.items()}


def score(scores: Scores, forecasts: Forecasts, truth: Array) -> Scores:
    """Count forecasts that were made elsewhere, with intervals, as `evaluate` counts those that it asks for.

    Args:
        scores: Where they are counted; made with `natsr.calibrate.PROBABILITIES`.
        forecasts: One for each origin, none left out.
        truth: The whole stream, `(rows, C)`.

    Returns:
        The scores that were given.
    """
    scorer, horizon = _Scorer(scores, Calibrator(scores.task)), scores.task.horizon
    for place, found in enumerate(forecasts.means):
        origin, mean = forecasts.first + place, found.astype(np.float64)
        variance = None
        if forecasts.variances is not None:
            variance = np.full(mean.shape, float(forecasts.variances[place]))
        try:
            _check_finite(mean)
        except FloatingPointError as error:
            scorer.fail(origin, error)
            break
        scorer.take(mean, variance, truth[origin], truth[origin + 1 : origin + 1 + horizon])
    return scores


def _check_finite(mean: Array) -> None:
    if not np.isfinite(mean).all():
        raise FloatingPointError(f"{np.count_nonzero(~np.isfinite(mean))} of {mean.size} forecasts are not finite")


def _check(how: How) -> None:
    """Refuse what the type checker would have refused, and a run of no steps."""
    unknown, lacking = set(how) - How.__required_keys__ - How.__optional_keys__, How.__required_keys__ - set(how)
    if unknown or lacking:
        raise OptionError(
            f"evaluate got {', '.join(sorted(how)) or 'nothing'}; expected start and stop, and any of "
            f"{', '.join(sorted(How.__optional_keys__))}"
        )
    max_steps = how.get("max_steps")
    if max_steps is not None and max_steps < 1:
        raise OptionError(f"max_steps is {max_steps}, expected at least 1, or None for all of them")


def _moment(step: Step, done: int, total: int, entries: Mapping[str, _Entry]) -> Moment:
    means = {name: entry.mean for name, entry in entries.items() if entry.mean is not None}
    quantiles = {name: entry.quantiles for name, entry in entries.items() if entry.quantiles is not None}
    drifts = {name: entry.drift for name, entry in entries.items() if entry.drift is not None}
    scores = {name: entry.scores for name, entry in entries.items()}
    return Moment(step, done, total, means, quantiles, scores, drifts)


def peak_mib() -> float:
    """The most memory that this process has held, in MiB; NaN where the system does not tell."""
    peak = _peak()
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, KiB elsewhere
