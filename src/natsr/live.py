"""A forecaster that lives on a stream: times and rows in, forecasts in the data's own units out.

`Live` is the one loop, one row at a time: take the row, learn what it has made known, forecast. What may come in, and
what is refused, is decided in `natsr.intake`; who may know which row when, in `natsr.streams`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from natsr import state as states
from natsr.answer import LiveForecast as LiveForecast
from natsr.answer import numbers as numbers
from natsr.answer import pairs as pairs
from natsr.cold import Cold
from natsr.data.calendar import Calendar, Floats, Times
from natsr.data.grids import Monthly, grid_of
from natsr.data.series import Scaling, filled_from_past
from natsr.data.ticks import PER_SECOND, Ticks, shown, times_of
from natsr.exogenous import Exogenous, Future
from natsr.experts.periods import Gaps
from natsr.forecasters.base import Progress, silent
from natsr.histories import history_of
from natsr.intake import regular, row_values, stamp, steps_after
from natsr.phases import Units, Warm, branch, check_levels, described
from natsr.recipes import METHODS, READERS, make
from natsr.rescale import Renewed
from natsr.streams import Feed, Rows, check_protocol
from natsr.types import DataError, Option, OptionError, State, StateError, Task

if TYPE_CHECKING:
    import pandas as pd

KIND = "live"
LEVELS = (0.5, 0.9)
_FIGURES = ("mase", "mase_last_value", "crps", "coverage_90")


@dataclass(eq=False)
class Settings:
    """What a live stream is told at its start; `Live` says what each of them is, and `natsr.Fleet` takes the same."""

    columns: Sequence[str]
    horizon: int = 24
    freq: str | timedelta = "h"
    method: str = "auto"
    window: int = 60
    protocol: str = "honest"
    seed: int = 0
    options: Mapping[str, Option] | None = None
    on_late: str = "refuse"
    exogenous: Sequence[str] = ()
    known: Sequence[str] = ()

    def described(self) -> dict[str, Any]:
        """As JSON has them, with what differs from every stream of old left out where it is not used."""
        outside = {"exogenous": list(self.exogenous), "known": list(self.known)}
        return {
            "columns": list(self.columns),
            "horizon": self.horizon,
            "freq": grid_of(self.freq).text,
            "method": self.method,
            "window": self.window,
            "protocol": self.protocol,
            "seed": self.seed,
            "options": dict(self.options) if self.options else None,
            "on_late": self.on_late,
            **(outside if self.exogenous or self.known else {}),
        }


@dataclass(eq=False)
class Live(Settings):
    """Forecast a stream, and learn from every row of it.

    Without `warm_up` it starts cold: until `window + horizon` rows have come it mixes the last value and that of a
    season ago (`natsr.cold`), then fixes the scaling on them, makes the forecaster, warms it up on them, and learns
    from every row after them.

    Args:
        columns: Names of the values in a row.
        horizon: Rows ahead.
        freq: Time between rows: `250us`, `100ms`, `s`, `15min`, `h`, `D`, `W`, or a `timedelta`; `B` for working days;
            `M`, `Q`, `Y` for months, quarters and years on the day that rows show, `MS` on the first, `ME` on the last.
        method: A name from `natsr.recipes`.
        window: Rows that a network sees.
        protocol: `honest`, or `partial`, which also learns from the rows of younger windows as they come.
        seed: Of everything random.
        options: Settings of the method that differ from its defaults.
        on_late: What to do with a row that is not later than the last one: `refuse` raises `DataError`, `ignore`
            counts it and goes on.
        exogenous: Names of columns that come with each row and are inputs only: neither forecast nor scored. In a row
            by place they follow the values.
        known: The same for columns whose future is known, such as a plan or a holiday; they follow those.
        rescale: Begin anew, on recent rows, when a column has left its scale for good, such as by a change of unit.

    Example:
        >>> live = Live(columns=["load"], horizon=2, freq="h", method="last_value", window=3)
        >>> live.observe("2026-01-01T00:00", {"load": 5.0})
        >>> live.observe("2026-01-01T01:00", [7.0])
        >>> forecast = live.forecast()
        >>> [str(time) for time in forecast.times], forecast.mean[:, 0].tolist()
        (['2026-01-01T02:00:00', '2026-01-01T03:00:00'], [7.0, 7.0])
    """

    rescale: bool = True
    _ignored: int = field(default=0, init=False, repr=False)  # late and duplicate rows
    _rows: int = field(default=0, init=False, repr=False)  # observed; rows that were not there are not counted
    _time: int | None = field(default=None, init=False, repr=False)  # of the last row
    _cold: Cold = field(init=False, repr=False)
    _warm: Warm | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            raise OptionError(f"columns is the text {self.columns!r}, expected a list of names: [{self.columns!r}]")
        self.columns = tuple(self.columns)
        named = all(isinstance(name, str) for name in self.columns)
        if not named or not self.columns or len(set(self.columns)) < len(self.columns):
            raise OptionError(f"columns are {list(self.columns)}, expected at least one name, and each name once")
        if self.on_late not in ("refuse", "ignore"):
            raise OptionError(f"on_late is {self.on_late!r}, expected refuse or ignore")
        self._grid = grid_of(self.freq)  # and what the rows have shown of it
        task = self._task()
        Feed(task, check_protocol(self.protocol))  # refuses a protocol that needs the future
        make(self.method, task, seed=self.seed, options=self.options)  # an unknown name is told now, not after a day
        self._gaps = Gaps.of(task)
        self._outside = Exogenous(self.columns, self.exogenous, self.known, self.horizon)
        self.exogenous, self.known = self._outside.exogenous, self._outside.known
        self._names = (*self.columns, *self._outside.names)
        if self._outside.names and self.method in METHODS and self.method not in READERS:
            raise OptionError(
                f"method is {self.method!r}, which reads the values only, expected one that reads exogenous and known "
                f"columns too, auto first of all; there are {', '.join(READERS)}"
            )
        enough, extras = self.window + self.horizon, self._outside.width
        self._cold = Cold(len(self.columns), self.horizon, enough, self._gaps.longest, extras, self._grid.season)

    def _task(self, calendar: int = 0, extras: int = 0) -> Task:
        return Task(self.window, self.horizon, len(self.columns), calendar + extras, self._grid.season, extras)

    def warm_up(
        self,
        history: pd.DataFrame | tuple[Sequence[object] | Times, npt.ArrayLike],
        *,
        time: str | None = None,
        future: Future | None = None,
        progress: Progress = silent,
    ) -> None:
        """Learn from the past before the stream begins; once, and before the first row.

        A history shorter than `window + horizon` rows counts as the beginning of a cold start.

        Args:
            history: A pandas frame with the columns (others are left alone) and its times as index or in a column;
                or times and an array with as many columns. What is `known` is its own plan in there.
            time: The frame's time column, where it cannot be told.
            future: The plan after the history's last row, as in `observe`.
            progress: Called with (done, of, what).

        Raises:
            DataError: The times do not advance by whole steps, or a value is not a number.
        """
        if (last := self._said(self._time)) is not None:
            raise OptionError(f"warm_up came after row {last}, expected it before the first row, once")
        ticks, values = history_of(history, self._names, time, self._grid.unit)
        if not len(ticks):
            raise DataError("the history has no rows, expected some; leave warm_up out for a cold start")
        count = len(ticks)
        plan, width = self._outside.plan(future), len(self.columns)
        self._grid, ticks, values = regular(ticks, values, self._grid, self._gaps)
        values = np.concatenate([values[:, :width], self._outside.history(values[:, width:], plan)], axis=1)
        if np.count_nonzero(~np.isnan(values[:, :width]).all(1)) < self.window + self.horizon:
            for at, row in zip(ticks.tolist(), values, strict=True):
                self._take(at, row)
        else:
            self._warm = self._begin(ticks, values, progress)
        self._rows, self._time = count, int(ticks[-1])

    def observe(self, time: object, row: object, future: Future | None = None) -> None:
        """Take the next row, and learn from whatever it has made known.

        Args:
            time: Later than the last row by a whole number of steps; rows in between are missing.
            row: A mapping by name (a column left out is missing), or one value for each column; NaN is missing.
            future: By name, the values of columns in `known` at the next `horizon` rows. Without it the last plan is
                shifted by a row, and beyond its end its last value is carried on.

        Raises:
            DataError: The row is late, a duplicate, off the grid, or holds something other than numbers. Nothing has
                changed then, and the next row can come. With `on_late="ignore"` late and duplicate rows are counted
                in `health` instead, whatever they hold.
        """
        tick = stamp(time, self._grid.unit)
        if self.on_late == "ignore" and self._time is not None and tick <= self._time:
            self._ignored += 1
            return
        values, plan = row_values(row, self._names), self._outside.plan(future)
        missing = steps_after(tick, self._time, self._grid) - 1
        self._grid = self._grid.seen(np.array([tick]))
        left_out = int(self._gaps.left_out(np.array([missing]))[0])
        self._outside.skip(left_out)
        for between in self._grid.after(np.array([tick]), np.arange(left_out - missing, 0)).tolist():
            self._play(between, np.full(len(values), math.nan), self._outside.plan(None))
        self._play(tick, values, plan)
        self._rows += 1

    def _play(self, tick: int, values: Floats, plan: Floats) -> None:
        """One row of the grid as it came."""
        width = len(self.columns)
        self._take(tick, np.concatenate([values[:width], self._outside.extend(values[width:], plan)]))

    def _take(self, tick: int, values: Floats) -> None:
        """One row of the grid: values, then the features of what else came."""
        self._time = tick
        if self._warm is not None:
            self._warm.advance(tick, values)
            if self.rescale and (renewed := self._warm.watch.renewed()) is not None:
                self._warm = self._renew(self._warm, renewed)
        elif self._cold.append(tick, values):
            self._warm = self._begin(*self._cold.history(), silent)
            self._cold.clear()

    def _begin(self, ticks: Ticks, values: Floats, progress: Progress) -> Warm:
        """The end of the beginning: scaling and calendar from these rows, and a forecaster warmed up on them."""
        values, extras = np.split(values, [len(self.columns)], axis=1)
        step = float(self._grid.after(ticks[-1:], np.array([1]))[0] - ticks[-1]) / PER_SECOND[self._grid.unit]
        calendar = Calendar.fit(times_of(ticks, self._grid.unit), "bounded", step)
        warm = self._fresh(Units(Scaling.fit(values), calendar, self._outside.scaling(extras)))
        truth = warm.standardised(values)
        rows = Rows(torch.cat([filled_from_past(truth), warm.features(ticks, extras)], 1), truth)
        warm.begin(rows, values, progress)
        return warm

    def _renew(self, old: Warm, renewed: Renewed) -> Warm:
        """Another beginning, on recent rows, for a column has left its scale; counts go on."""
        warm = self._fresh(Units(renewed.scaling, old.calendar, old.extras))
        warm.begin(renewed.rows, renewed.values, silent)
        warm.refused, warm.fallbacks, warm.drift.alarms = old.refused, old.fallbacks, old.drift.alarms
        warm.rescaled, warm.rescaled_at = old.rescaled + 1, self._time
        return warm

    def _fresh(self, units: Units) -> Warm:
        task = self._task(len(units.calendar.names), len(units.extras.mean))
        forecaster = make(self.method, task, seed=self.seed, options=self.options)
        return Warm(forecaster, Feed(task, check_protocol(self.protocol)), units._replace(unit=self._grid.unit))

    def _said(self, tick: int | None) -> str | None:
        return None if tick is None else shown(tick, self._grid.unit)

    def forecast(self, levels: Sequence[float] = LEVELS) -> LiveForecast:
        """What is expected of the next `horizon` rows; changes nothing.

        Args:
            levels: Of the intervals, above 0 and at most 0.99.

        Raises:
            DataError: No row has come yet.
        """
        check_levels(levels)
        if self._time is None:
            raise DataError("no row has been observed, expected at least one before a forecast")
        source = self._warm if self._warm is not None else self._cold
        expected = source.forecast(levels)
        ticks = self._grid.after(np.array([self._time]), np.arange(1, self.horizon + 1))
        origin, times = np.datetime64(self._time, self._grid.unit), times_of(ticks, self._grid.unit)
        return LiveForecast(origin, times, tuple(self.columns), *expected)

    def weights(self) -> dict[str, float]:
        """How much of the newest forecast is each expert's, the largest first.

        Empty while it is cold, and for a method that mixes nothing.
        """
        found = self._warm.forecaster.weights() if self._warm else {}
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def drift_since(self) -> str | None:
        """The time at which the present drift began; `None` while there is none, and while it is cold."""
        return self._said(self._warm.drift.since if self._warm else None)

    def health(self) -> dict[str, float | int | str | None]:
        """How it is doing: over the last thousand rows or so, in standardised units, `None` where there is no figure.

        `phase` (cold or warm); `rows` observed; `mase`, and `mase_last_value` of the last value at the same rows;
        `crps`, of the whole distribution, like `mase` in units of the mean change from row to row; `coverage_90`;
        `scale`, the present mean absolute error; `drift` (1 while the stream has drifted, as `natsr.drift` has it) and
        `drift_since`, the time at which that began; `drifts` so far; `variance` and `refused` steps as the method tells
        them; `fallbacks`, how often the last value stood in for a forecast that was not finite; `ignored` rows, with
        `on_late="ignore"`; `rescaled`, how often a column had left its scale and all began anew on recent rows, and
        `rescaled_at`, when that last was; and, where the method is a pool, `weight_…` of the experts that count most.
        """
        warm = self._warm
        figures: dict[str, float | None] = warm.tally.figures() if warm else dict.fromkeys(_FIGURES)
        info = warm.forecaster.info() if warm else {}
        since = self.drift_since()
        return {
            "phase": "warm" if warm else "cold",
            "rows": self._rows,
            **figures,
            "scale": warm.scale() if warm else None,
            "drift": int(since is not None),
            "drift_since": since,
            "drifts": warm.drift.alarms if warm else 0,
            "variance": info.get("variance"),
            "refused": int(info.get("refused", 0)) + (warm.refused if warm else 0),
            "fallbacks": warm.fallbacks if warm else 0,
            "ignored": self._ignored,
            "rescaled": warm.rescaled if warm else 0,
            "rescaled_at": self._said(warm.rescaled_at if warm else None),
            **{name: value for name, value in info.items() if name.startswith("weight_")},
        }

    def save(self, folder: str | Path) -> None:
        """Write everything that must be carried on into a folder; atomic, no pickle."""
        settings = self.described() | ({} if self.rescale else {"rescale": False})
        state: State = {"rows": self._rows, "ignored": self._ignored, "time": self._time}
        state["cold"] = self._cold.state_dict()
        state |= {"exogenous": self._outside.state_dict()} if self._outside.names else {}
        state |= {"grid": self._grid.state_dict()} if isinstance(self._grid, Monthly) else {}
        state["warm"] = self._warm.state_dict() if self._warm else None
        states.save(folder, state, kind=KIND, meta=settings)

    @classmethod
    def load(cls, folder: str | Path) -> Live:
        """Go on, bit for bit, from what `save` wrote."""
        state, settings = states.load(folder, kind=KIND, migrations=MIGRATIONS)
        live = cls(**settings)
        rows, time, cold, warm, ignored = (state.get(name) for name in ("rows", "time", "cold", "warm", "ignored"))
        if not (isinstance(rows, int) and isinstance(time, int | None) and isinstance(cold, dict)):
            raise StateError(f"the state in {folder} lacks its rows or time; it was not written by Live.save")
        live._rows, live._time = rows, time
        live._ignored = ignored if isinstance(ignored, int) else 0
        live._cold.load_state_dict(cold)
        if isinstance(live._grid, Monthly):
            live._grid = live._grid.restored(branch(state, "grid"))
        if live._outside.names:
            live._outside.load_state_dict(branch(state, "exogenous"))
        if isinstance(warm, dict):
            live._warm = live._fresh(described(warm))
            live._warm.load_state_dict(warm)
        return live


def _from_first(saved: states.Saved) -> states.Saved:
    """Format 2 tracks errors in another way, and drift: both begin anew, the forecaster goes on."""
    warm = saved.state.get("warm")
    if isinstance(warm, dict):
        saved.state["warm"] = {**warm, "calibrator": None, "drift": None}
    return saved


MIGRATIONS = {1: _from_first}
