"""Keep what a page shows while the one loop runs, in memory that does not grow with the stream."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Required, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from natsr.calibrate import PROBABILITIES
from natsr.data.calendar import Times
from natsr.data.series import Prepared
from natsr.evaluate import Moment
from natsr.forecasters.base import Forecaster
from natsr.forecasters.whose import Mixed, weights_of
from natsr.metrics import Scores
from natsr.report.contents import Fan, Report, Score, Stretch, Track, Whose
from natsr.types import Task

Array = npt.NDArray[np.float64]

#: Mean, then the ends of the 50 and 90 % intervals, as places among the quantiles.
ENDS = tuple(PROBABILITIES.index(p) for p in (0.25, 0.75, 0.05, 0.95))


class Text(TypedDict, total=False):
    """What a recorder cannot know; each may be left out but the title and the dataset."""

    title: Required[str]
    dataset: Required[str]
    protocol: str  # "honest"
    facts: Mapping[str, str]
    notes: Sequence[str]
    command: str


class _Pieces(NamedTuple):
    """Sums over the pieces of one method's stream, `(N,)` each."""

    error: Array  # sum of absolute errors
    weight: Array  # targets known where the method had a forecast
    variance: Array  # the last one
    norm: Array  # the largest one
    bound: Array  # the smallest one

    @staticmethod
    def empty(count: int) -> _Pieces:
        return _Pieces(np.zeros(count), np.zeros(count), *(np.full(count, math.nan) for _ in range(3)))


class Recorder:
    """Hand it to `evaluate` as `on_step`, then ask it for the report.

    Args:
        data: The stream, for its times, columns and units.
        task: What is forecast.
        forecasters: The methods, for what they tell about themselves; the first one is shown first.
        rows: Length of the stretch that is kept in full, the last rows of the stream.
        pieces: The stream is kept in so many pieces.
    """

    def __init__(
        self, data: Prepared, task: Task, forecasters: Mapping[str, Forecaster], *, rows: int = 336, pieces: int = 400
    ) -> None:
        self._data, self._task, self._forecasters = data, task, forecasters
        self._rows, self._count = rows, pieces
        self._steps = shown_steps(task.horizon)
        self._total = 0
        self._first = 0  # first row of the stretch
        self._fans: dict[tuple[str, int], Array] = {}  # (method, step): (5, T, C), standardised
        self._pieces: dict[str, _Pieces] = {}
        self._done = np.zeros(0, dtype=np.int64)  # forecasts up to the end of each piece
        self._ends = np.zeros(0, dtype=np.int64)  # row of the last of them
        self._weights = np.zeros(0)
        # The first method that mixes, and the share of each kind of expert in its forecast at the end of each piece.
        mixed = ((name, found) for name, found in forecasters.items() if isinstance(found, Mixed))
        self._mixed = next(mixed, None)
        self._shares: dict[str, Array] = {}

    def __call__(self, moment: Moment) -> None:
        """Take one moment of the loop."""
        if not self._total:
            self._begin(moment)
        origin, piece = moment.step.origin, (moment.done - 1) * len(self._done) // self._total
        self._done[piece], self._ends[piece] = moment.done, origin
        target = self._data.rows.truth[origin + 1 : origin + 1 + self._task.horizon].double().numpy()
        known = ~np.isnan(target)
        self._weights[piece] += np.count_nonzero(known)
        for method, mean in moment.means.items():
            pieces = self._pieces[method]
            pieces.error[piece] += float(np.abs(np.where(known, target - mean, 0.0)).sum())
            pieces.weight[piece] += np.count_nonzero(known)
            self._keep_info(pieces, piece, self._forecasters[method].info())
            self._keep_fan(method, origin, mean, moment.quantiles.get(method))
        if self._mixed is not None and self._mixed[0] in moment.means and self._ends_piece(moment):
            for kind, share in self._mixed[1].weights_by_kind().items():
                self._shares.setdefault(kind, np.full(len(self._done), math.nan))[piece] = share.mean()

    def _ends_piece(self, moment: Moment) -> bool:
        """Whether the next step is one of another piece."""
        before, after = ((done * len(self._done)) // self._total for done in (moment.done - 1, moment.done))
        return before < after

    def _begin(self, moment: Moment) -> None:
        self._total = moment.total
        last = moment.step.origin + moment.total - moment.done
        rows = min(self._rows, moment.total)
        self._first = last + 2 - rows
        shape = (1 + len(ENDS), rows, self._task.channels)
        self._fans = {(m, h): np.full(shape, math.nan) for m in self._forecasters for h in self._steps}
        count = min(self._count, self._total)
        self._pieces = {method: _Pieces.empty(count) for method in self._forecasters}
        self._done, self._ends = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._weights = np.zeros(count)

    @staticmethod
    def _keep_info(pieces: _Pieces, piece: int, info: Mapping[str, float]) -> None:
        pieces.variance[piece] = info.get("variance", math.nan)
        # fmax and fmin take the number where the other is NaN.
        pieces.norm[piece] = np.fmax(pieces.norm[piece], info.get("update_norm", math.nan))
        pieces.bound[piece] = np.fmin(pieces.bound[piece], info.get("update_bound", math.nan))

    def _keep_fan(self, method: str, origin: int, mean: Array, quantiles: Array | None) -> None:
        for step in self._steps:
            fan, place = self._fans[method, step], origin + step - self._first
            if 0 <= place < fan.shape[1]:
                fan[0, place] = mean[step - 1]
                if quantiles is not None:
                    fan[1:, place] = quantiles[list(ENDS), step - 1]

    def report(self, scores: Mapping[str, Scores], **text: Unpack[Text]) -> Report:
        """What was recorded, with the figures that `evaluate` returned."""
        denominators = [score.denominator for score in scores.values()]
        unit = denominators[0] if denominators and math.isfinite(denominators[0]) and denominators[0] > 0 else None
        return Report(
            title=text["title"],
            dataset=text["dataset"],
            task=self._task,
            protocol=text.get("protocol", "honest"),
            scores=[_score(method, found) for method, found in scores.items()],
            unit="MASE" if unit else "MAE",
            stretch=self._stretch() if self._total else None,
            track=self._track(unit or 1.0) if self._total else None,
            whose=self._whose(),
            by_step={method: found.by_step()["mae"] / (unit or 1.0) for method, found in scores.items()},
            facts=text.get("facts", {}),
            notes=text.get("notes", ()),
            command=text.get("command", ""),
        )

    def _whose(self) -> Whose | None:
        if self._mixed is None or not self._shares:
            return None
        method, forecaster = self._mixed
        kinds, steps = forecaster.weights_by_kind(), self._steps
        return Whose(
            method,
            self._shares,
            steps,
            {kind: share.mean(1)[[step - 1 for step in steps]] for kind, share in kinds.items()},
            self._data.series.columns,
            {kind: share.mean(0) for kind, share in kinds.items()},
            weights_of(forecaster) or {},
        )

    def _stretch(self) -> Stretch:
        series, scaling = self._data.series, self._data.scaling
        fans = []
        for (method, step), standardised in self._fans.items():
            fan = scaling.invert(standardised)
            with_ends = bool(np.isfinite(fan[1:]).any())
            fans.append(Fan(method, step, fan[0], *(fan[1:] if with_ends else ())))
        rows = slice(self._first, self._first + min(self._rows, self._total))
        return Stretch(iso(series.times[rows]), series.columns, series.values[rows], fans)

    def _track(self, unit: float) -> Track:
        def kept(name: str) -> dict[str, Array]:
            curves = {method: getattr(pieces, name) for method, pieces in self._pieces.items()}
            return {method: curve for method, curve in curves.items() if np.isfinite(curve).any()}

        errors = {}
        for method, pieces in self._pieces.items():
            curve = np.full(len(self._done), math.nan)
            np.divide(pieces.error, pieces.weight * unit, out=curve, where=pieces.weight > 0)
            errors[method] = curve
        times = iso(self._data.series.times[self._ends])
        return Track(times, self._done, errors, self._weights, kept("variance"), kept("norm"), kept("bound"))


def shown_steps(horizon: int) -> tuple[int, ...]:
    """The rows ahead that one can choose among: the next, the last, and two between.

    >>> shown_steps(24), shown_steps(3), shown_steps(1)
    ((1, 6, 12, 24), (1, 2, 3), (1,))
    """
    return tuple(
        sorted({1, max(1, horizon // 4), max(1, horizon // 2), horizon, min(horizon, 2) if horizon < 4 else 1})
    )


def iso(times: Times) -> list[str]:
    """Times as text, to the minute where that says it all.

    >>> iso(np.array(["2024-01-01T00:00:00"], dtype="datetime64[s]"))
    ['2024-01-01T00:00']
    """
    minutes = times.astype("datetime64[m]")
    fine = bool((minutes == times).all())
    return [str(text) for text in np.datetime_as_string(minutes if fine else times)]


def _score(method: str, scores: Scores) -> Score:
    figures = scores.result()
    numbers = {name: float(value) for name, value in figures.items() if isinstance(value, (int, float))}
    return Score(
        method,
        mae=numbers.get("mae"),
        mse=numbers.get("mse"),
        mase=numbers.get("mase"),
        crps=numbers.get("crps"),
        coverage_90=numbers.get("coverage_90"),
        width_90=numbers.get("width_90"),
        ms_per_step=numbers.get("ms_per_step"),
        error=scores.error,
    )
