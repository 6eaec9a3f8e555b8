"""The verbs: create, observe, forecast, look back, delete. Knows nothing of HTTP but the status of an error.

What writes gives back a future that is done when the disk has it; what reads the database blocks, and is called from a
thread that may.
"""

from __future__ import annotations

import json
import time as clock
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection

from natsr.data.grids import Grid, grid_of
from natsr.data.ticks import shown
from natsr.live import Live, LiveForecast, numbers, pairs
from natsr.serve.admit import Layout, Offered, Outcome, Refused, Tail, admit, unpacked
from natsr.serve.answers import KEPT_LEVEL, kept_numbers
from natsr.serve.events import Bus
from natsr.serve.faults import ApiError
from natsr.serve.journal import Journal
from natsr.serve.learner import Learner, Workshop
from natsr.serve.learners import Learners
from natsr.serve.meters import Meters
from natsr.serve.series import Series
from natsr.serve.settings import Limits, ServeSettings
from natsr.serve.snapshots import snapshots_of
from natsr.serve.store import ForecastRow, LogRow, SeriesRow, Store
from natsr.types import DataError, OptionError

#: Options that are sizes: a learner's memory and time grow with them, so a stranger's are bounded.
_SIZES = {"width": 256, "top": 1024, "depth": 16, "memory": 5000, "draws": 128, "probes": 256, "epochs": 50}
_LARGEST_OPTION = 1e6
_LONGEST_STEP = 12 * 31 * 86400
#: Times of a log that are looked at together, to see where its rows lie.
_LOOKED_AT = 100


class Created(NamedTuple):
    """A series, and whether it is new."""

    series: Series
    new: bool


class Looked(NamedTuple):
    """Rows, and what had been expected of each; NaN where nothing was."""

    rows: list[LogRow]
    expected: np.ndarray[tuple[int, int, int], np.dtype[np.float64]]  # (3, T, C): mean, low, high


class Service:
    """Everything that runs; `start` and `close` it."""

    def __init__(self, settings: ServeSettings, workshops: Sequence[Workshop] = ()) -> None:
        self.settings = settings
        self.bus, self.meters = Bus(), Meters()
        self.store = Store(settings.state)
        try:
            self._journal = Journal(self.store, self.meters.storage_failures.inc)
        except BaseException:
            self.store.close()
            raise
        self._snapshots = snapshots_of(self.store)
        parts = (self.store, self._journal, self._snapshots)
        self.learners = Learners(parts, self.bus, self.meters, settings, workshops)
        self._series: dict[str, Series] = {}
        self._creating: dict[str, Series] = {}
        self.ready = False
        self.meters.watch("series", "Series", lambda: len(self._series))
        self.meters.watch("resident", "Learners in memory", lambda: self.learners.resident)
        self.meters.watch("failing", "Series whose learning fails", lambda: self.learners.failed)
        self.meters.watch("pending", "Rows kept but not learned", lambda: sum(s.pending for s in self.all()))
        self.meters.watch("watching", "Streams of events open", lambda: len(self.bus))

    def start(self) -> None:
        """Find what is kept, and learn what was not learned yet."""
        rows = self.store.all_series()
        self._snapshots.tidy({row.id for row in rows})
        self._series = {row.key: Series.of(row) for row in rows}
        self.learners.start()
        for series in self.all():
            if series.pending:
                self.learners.wake(series)
        self.ready = True

    def close(self) -> None:
        """Stop learning, take snapshots, write what waits."""
        self.ready = False
        self.bus.close()
        self.learners.stop()
        self._journal.close()
        self.store.close()

    def all(self) -> list[Series]:
        """By key."""
        return sorted(self._series.copy().values(), key=lambda series: series.key)

    def find(self, key: str) -> Series:
        """The series with this key."""
        found = self._series.get(key)
        if found is None:
            raise ApiError(404, f"series {key!r} is not known", "a series that is there", "create it with PUT")
        return found

    # ---- writing -------------------------------------------------------------------------------------------------

    def create(self, key: str, settings: dict[str, Any]) -> Future[Created]:
        """A new series, or the one that is there if it is the same.

        Args:
            key: Its name.
            settings: The arguments of `natsr.Live`, as `checked` gave them.
        """

        def apply(connection: Connection) -> Created:
            found = self._creating.get(key) or self._series.get(key)
            if found is None or found.leaving:
                row = self.store.find(connection, key)  # one whose commit succeeded although its answer was lost
                found = Series.of(row) if row else None
            if found is not None:
                if found.row.settings != settings:
                    raise _differs(key, found.row.settings, settings)
                return Created(found, False)
            most = self.settings.limits.series
            if len(self._series) + len(self._creating) >= most:
                raise ApiError(
                    403, f"there are {most} series", "fewer than the limit", "delete some, or raise --max-series"
                )
            row = SeriesRow(uuid.uuid4().hex, key, settings, int(clock.time()), 0, {}, 0, None)
            self.store.add_series(connection, row)
            self._creating[key] = Series.of(row)
            return Created(self._creating[key], True)

        def done(created: Created) -> None:
            self._series[key] = created.series
            self._creating.pop(key, None)

        def lost() -> None:
            self._creating.pop(key, None)

        return self._journal.submit(apply, done, lost)

    def delete(self, series: Series) -> Future[None]:
        """The series and everything that is kept of it."""

        def apply(connection: Connection) -> None:
            self.store.remove_series(connection, series.id)
            series.leaving = True

        def done(_: None) -> None:
            if self._series.get(series.key) is series:
                del self._series[series.key]
            self.learners.forget(series)

        def lost() -> None:
            series.leaving = False

        return self._journal.submit(apply, done, lost)

    def observe(self, series: Series, rows: Sequence[Offered]) -> Future[Outcome]:
        """Take rows; when the future is done, what was accepted is on the disk.

        Raises:
            ApiError: Too many rows wait to be learned.
        """
        most = self.settings.limits.pending
        if series.pending >= most:
            raise ApiError(
                429,
                f"{series.pending} rows of {series.key!r} are not learned yet",
                f"fewer than {most}",
                "send the same rows again later; rows come faster than they can be learned",
                {"Retry-After": "5"},
            )

        def apply(connection: Connection) -> Outcome:
            if series.leaving or series.deleted:
                raise ApiError(404, f"series {series.key!r} is gone", "a series that is there", "create it with PUT")
            tail = series.draft or Tail(*self.store.tail(series.id, connection))
            grid = self._grid(series, connection)
            outcome = admit(rows, tail, grid, lambda times: self.store.known(connection, series.id, times))
            self.store.add_rows(connection, series.id, outcome.taken)
            series.draft = outcome.tail
            return outcome

        def done(outcome: Outcome) -> None:
            series.tail = outcome.tail
            if outcome.taken:
                self.learners.wake(series)
            self.count(len(outcome.taken), outcome.duplicates, len(outcome.refused))

        def lost() -> None:
            series.draft = None

        return self._journal.submit(apply, done, lost)

    def count(self, accepted: int, duplicates: int, refused: int) -> None:
        """Rows by what became of them."""
        for outcome, number in (("accepted", accepted), ("duplicate", duplicates), ("refused", refused)):
            self.meters.rows.labels(outcome).inc(number)

    # ---- looking -------------------------------------------------------------------------------------------------

    def forecast(
        self, series: Series, levels: Sequence[float], quantiles: Sequence[float] = ()
    ) -> LiveForecast | Future[LiveForecast]:
        """The newest forecast: at the usual levels at once; at others, and with quantiles, from the learner.

        Raises:
            ApiError: There is no row yet.
        """
        if series.tail.seq == 0:
            raise ApiError(409, f"series {series.key!r} has no rows", "at least one row", "post observations first")
        latest = series.latest
        if latest is not None and not quantiles and set(levels) <= set(latest.intervals):
            chosen = {level: latest.intervals[level] for level in levels}
            return LiveForecast(latest.origin, latest.times, latest.columns, latest.mean, chosen)

        def question(live: Learner) -> LiveForecast:
            try:
                return live.forecast(levels, quantiles)
            except DataError:
                hint = "ask again, or with wait=10"
                error = f"{series.pending} rows are kept and none of them is learned yet"
                raise ApiError(503, error, "a row that is learned", hint, {"Retry-After": "1"}) from None

        return self.learners.ask(series, question)

    def grid(self, series: Series) -> Grid:
        """Where rows of the series lie, as far as those on the disk have shown it."""
        if not series.grid.settled:
            with self.store.engine.connect() as connection:
                grid = self._grid(series, connection)
            series.grid = grid if grid.settled else series.grid  # for ever, for no row ever leaves the log
            return grid
        return series.grid

    def _grid(self, series: Series, connection: Connection) -> Grid:
        """The same for those that a connection sees."""
        grid, last = series.grid, None
        while not grid.settled and (times := self.store.times_after(connection, series.id, last, _LOOKED_AT)):
            grid, last = grid.seen(np.array(times)), times[-1]
        return grid

    def rows(self, series: Series, count: int, before: int | None) -> list[LogRow]:
        """The last rows kept."""
        return self.store.rows_before(series.id, before, count)

    def past(self, series: Series, first: int, last: int, count: int) -> list[ForecastRow]:
        """The newest forecasts made with an origin in a range, oldest first; those not yet written among them."""
        unsaved = {row.origin: row for row in list(series.unsaved) if first <= row.origin <= last}
        written = {row.origin: row for row in self.store.forecasts_between(series.id, first, last, count)}
        both = {**written, **unsaved}
        return [both[origin] for origin in sorted(both)][-count:]

    def look_back(self, series: Series, rows: list[LogRow], step: int) -> Looked:
        """What had been expected of these rows, `step` rows before each."""
        expected = np.full((3, len(rows), len(series.columns)), np.nan)
        if rows:
            grid = self.grid(series)
            origins = grid.after(np.array([row.time for row in rows]), np.array([-step])).tolist()
            made = self.past(series, origins[0], origins[-1], len(rows))
            by_origin = {row.origin: row for row in made}
            for place, origin in enumerate(origins):
                if (forecast := by_origin.get(origin)) is not None:
                    expected[:, place] = kept_numbers(forecast, len(series.columns))[:, step - 1]
        return Looked(rows, expected)


def looked_answer(series: Series, looked: Looked) -> dict[str, Any]:
    """As it is sent."""
    width = len(series.columns)
    values = np.array([unpacked(row.row)[:width] for row in looked.rows]).reshape(len(looked.rows), width)
    mean, low, high = looked.expected
    named = list(enumerate(series.columns))
    return {
        "times": [shown(row.time, series.unit) for row in looked.rows],
        "values": {name: numbers(values[:, place]) for place, name in named},
        "mean": {name: numbers(mean[:, place]) for place, name in named},
        "intervals": {f"{KEPT_LEVEL:g}": {name: pairs(low[:, place], high[:, place]) for place, name in named}},
    }


def checked(given: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """Settings of a series in the one form in which they are kept and compared.

    Raises:
        ApiError: They make no sense, or ask for too much.
    """
    settings = {**given, "options": given["options"] or None}
    for name in ("exogenous", "known"):  # left out where there are none, as in states from before there were any
        if not settings.get(name):
            settings.pop(name, None)
    try:
        layout = Layout.of(settings)
        _check_sizes(settings, layout, limits)
        grid = grid_of(given["freq"])
        if grid.longest > _LONGEST_STEP:
            raise OptionError(f"freq is {given['freq']!r}, expected at most a year")
        settings["freq"] = grid.text
        Live(**settings)
    except (OptionError, DataError) as error:
        raise ApiError(422, str(error), "settings that natsr.Live takes", "see the message") from error
    return settings


def _check_sizes(settings: dict[str, Any], layout: Layout, limits: Limits) -> None:
    """Memory and time of a learner grow with these."""
    window, horizon, options = settings["window"], settings["horizon"], settings["options"] or {}
    for what, got, most in (
        ("the number of columns", len(layout.names), limits.columns),
        ("window times columns", window * (len(layout.columns) + layout.features), limits.inputs),
        ("horizon times columns", horizon * (len(layout.columns) + len(layout.known)), limits.outputs),
    ):
        if got > most:
            raise ApiError(422, f"{what} is {got}", f"at most {most}", "ask for less, or raise the service's limits")
    for name, value in options.items():
        most_of = _SIZES.get(name, _LARGEST_OPTION)
        if not isinstance(value, str) and not abs(value) <= most_of:
            raise ApiError(422, f"option {name} is {value}", f"at most {most_of:g}", "choose a smaller one")


def _differs(key: str, kept: dict[str, Any], given: dict[str, Any]) -> ApiError:
    names = [name for name in {**kept, **given} if kept.get(name) != given.get(name)]
    there = json.dumps({name: kept.get(name) for name in names})
    hint = "use another key, or delete the series first"
    return ApiError(409, f"series {key!r} is there with other settings: {', '.join(names)}", there[:500], hint)


def places(refused: Sequence[Refused], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """What was refused, in the order of the request."""
    return [
        {"time": rows[one.place] if isinstance(rows[one.place], str) else None, "reason": one.reason}
        for one in sorted(refused, key=lambda one: one.place)
    ]
