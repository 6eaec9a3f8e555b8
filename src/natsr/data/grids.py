"""Where rows may lie: every so many seconds or parts of one, every working day, or every so many months on one day.

One idea for files and for streams: the grid of a file is found in its times (`grid_between`), that of a stream is said
by its `freq` (`grid_of`), and both are then asked the same questions. Times are ticks since 1970, and the grid says
what a tick is (`natsr.data.ticks`): a second, or what the step is written in where that is finer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from natsr.data.calendar import Times
from natsr.data.ticks import NAMES, PER_SECOND, UNITS, Ticks, Unit, coarsened, coarsest, shown
from natsr.data.weekdays import Seconds as Seconds
from natsr.data.weekdays import Weekdays
from natsr.types import OptionError, State, StateError

_HOUR, _DAY = 3600, 86400
_SPANS = (("week", 7 * _DAY), ("day", _DAY), ("hour", _HOUR), ("minute", 60), ("second", 1))
_EVEN = re.compile(r"(\d*)\s*(s|sec|min|t|h|d|w)", re.IGNORECASE)
#: Case counts: `MS` are the first days of months.
_FINE = re.compile(r"(\d*)\s*(ms|us|µs|μs)")
_UNIT_SECONDS = {"s": 1, "sec": 1, "min": 60, "t": 60, "h": _HOUR, "d": _DAY, "w": 7 * _DAY}
_MONTHLY = re.compile(r"(\d*)\s*([MQY])([SE]?)")
_UNIT_MONTHS = {"M": 1, "Q": 3, "Y": 12}
_NAMES = {1: "month", 3: "quarter", 12: "year"}
_FIRST, _LAST = 1, 31
_TWO_WEEKS = 14 * _DAY
#: A longer step is a slip of the pen, and times beyond what the calendar can count.
_LONGEST_YEARS = 1000
_LONGEST_FINE_YEARS = 1  # of steps that are counted in parts of a second
#: A season of more rows than this makes every window long; the next shorter natural period is taken instead.
_LONGEST_SEASON = 1440


class Grid(Protocol):
    """What is asked of a grid."""

    @property
    def unit(self) -> Unit:
        """What the ticks are that its times are counted in."""

    @property
    def text(self) -> str:
        """As `grid_of` reads it."""

    @property
    def named(self) -> str:
        """How far apart rows are, for people: `hour`, `15 minutes`, `quarter`."""

    @property
    def season(self) -> int:
        """Rows in the natural period; 1 where there is none."""

    @property
    def longest(self) -> float:
        """Seconds between two rows, at most."""

    @property
    def settled(self) -> bool:
        """Whether no row can tell more of where the others lie."""

    def seen(self, ticks: Ticks) -> Self:
        """The grid as it is known when rows lie here, whether they fit or not."""

    def fits(self, tick: int) -> bool:
        """Whether a row may lie here, whatever lies before it."""

    def steps(self, first: int, later: int) -> int | None:
        """Steps from a row to a later time; nothing if that is off the grid."""

    def after(self, ticks: Ticks, steps: Ticks) -> Ticks:
        """The times so many steps after these rows, or before them."""

    def places(self, ticks: Ticks) -> Ticks | None:
        """Steps from the first row to each of them; nothing if they do not increase, or one is off the grid."""

    def wrong(self, tick: int, last: int | None) -> str:
        """What is wrong with a row that is off the grid, for a message; `last` is the row before it."""


@dataclass(frozen=True)
class Even:
    """A row every so many ticks: seconds, or parts of one.

    >>> Even(900).named, Even(900).season, Even(900).steps(0, 1800), Even(900).steps(0, 1000)
    ('15 minutes', 96, 2, None)
    >>> Even(100, "ms").named, Even(100, "ms").text, Even(2000, "ms").named
    ('100 milliseconds', '100ms', '2 seconds')
    """

    step: int
    unit: Unit = "s"

    @property
    def text(self) -> str:
        """See `Grid`."""
        return f"{self.step}{self.unit}"

    @property
    def named(self) -> str:
        """See `Grid`."""
        spans = [(name, size * PER_SECOND[self.unit]) for name, size in _SPANS]
        if PER_SECOND[self.unit] > 1:
            spans += [("millisecond", PER_SECOND[self.unit] // 1000), ("microsecond", 1)]
        name, size = next((name, size) for name, size in spans if self.step % size == 0)
        return name if self.step == size else f"{self.step // size} {name}s"

    @property
    def season(self) -> int:
        """See `Grid`."""
        return season_of(self.longest)

    @property
    def longest(self) -> float:
        """See `Grid`."""
        return self.step / PER_SECOND[self.unit]

    @property
    def settled(self) -> bool:
        """See `Grid`."""
        return True

    def seen(self, ticks: Ticks) -> Self:
        """See `Grid`."""
        del ticks
        return self

    def fits(self, tick: int) -> bool:
        """See `Grid`."""
        del tick
        return True

    def steps(self, first: int, later: int) -> int | None:
        """See `Grid`."""
        return None if (later - first) % self.step else (later - first) // self.step

    def after(self, ticks: Ticks, steps: Ticks) -> Ticks:
        """See `Grid`."""
        return ticks + steps * self.step

    def places(self, ticks: Ticks) -> Ticks | None:
        """See `Grid`."""
        since = ticks - ticks[0]
        wrong = (np.diff(since) <= 0).any() or (since % self.step != 0).any()
        return None if wrong else since // self.step

    def wrong(self, tick: int, last: int | None) -> str:
        """See `Grid`."""
        assert last is not None  # the first row may lie anywhere
        after = f"{tick - last} {NAMES[self.unit]} after the last one ({shown(last, self.unit)})"
        return f"lies {after}, expected a multiple of {self.step}"


class _Parts(NamedTuple):
    """Times by month."""

    month: Seconds  # since 1970
    day: Seconds  # of the month, from 1
    length: Seconds  # of the month, in days
    clock: Seconds  # seconds of the day


def _parts(seconds: Seconds) -> _Parts:
    days = seconds // _DAY
    month = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    first = _first_days(month)
    return _Parts(month, days - first + 1, _first_days(month + 1) - first, seconds - days * _DAY)


def _first_days(months: Seconds) -> Seconds:
    """Days since 1970 of the first day of each month."""
    return months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)


@dataclass(frozen=True)
class Monthly:
    """A row every so many months, all on one day of the month; in a month that lacks that day, on its last.

    Rows on the last days of their months may mean the ends of months or, if none had 31 days, an earlier day. They are
    taken for ends of months until a row tells otherwise, and the grid is then settled.

    Args:
        months: From row to row.
        day: On which rows lie; 31 are the ends of months. Before the grid is settled: the least that it may be.
        settled: Whether the day is known.

    Example:
        >>> row = np.array(["2026-01-31"], "datetime64[s]").astype(np.int64)
        >>> grid = Monthly(1).seen(row)
        >>> [str(time) for time in grid.after(row, np.arange(1, 4)).astype("datetime64[s]").astype("datetime64[D]")]
        ['2026-02-28', '2026-03-31', '2026-04-30']
        >>> grid.named, grid.season
        ('month', 12)
    """

    months: int
    day: int = _FIRST
    settled: bool = False

    @property
    def unit(self) -> Unit:
        """See `Grid`."""
        return "s"

    @property
    def text(self) -> str:
        """See `Grid`."""
        return f"{self.months}M" + ({_FIRST: "S", _LAST: "E"}.get(self.day, "") if self.settled else "")

    @property
    def named(self) -> str:
        """See `Grid`."""
        return _NAMES.get(self.months) or f"{self.months} months"

    @property
    def season(self) -> int:
        """See `Grid`."""
        return 12 // self.months if 12 % self.months == 0 else 1

    @property
    def longest(self) -> int:
        """See `Grid`."""
        return 31 * _DAY * self.months

    def seen(self, seconds: Seconds) -> Self:
        """See `Grid`."""
        if self.settled:
            return self
        parts = _parts(seconds)
        settled = (parts.day < parts.length).any() or (parts.day == _LAST).any()
        return replace(self, day=max(self.day, int(parts.day.max())), settled=bool(settled))

    def fits(self, seconds: int) -> bool:
        """See `Grid`."""
        return bool(self._fitting(_parts(np.array([seconds])))[0])

    def _fitting(self, parts: _Parts) -> npt.NDArray[np.bool_]:
        if self.settled:
            return np.asarray(parts.day == np.minimum(self.day, parts.length))
        return np.asarray((parts.day >= self.day) | (parts.day == parts.length))

    def steps(self, first: int, later: int) -> int | None:
        """See `Grid`."""
        parts = _parts(np.array([first, later]))
        between, on = int(parts.month[1] - parts.month[0]), self._fitting(parts)[1]
        fine = on and between > 0 and between % self.months == 0 and parts.clock[0] == parts.clock[1]
        return between // self.months if fine else None

    def after(self, seconds: Seconds, steps: Seconds) -> Seconds:
        """See `Grid`."""
        parts = _parts(seconds)
        month = parts.month + steps * self.months
        first = _first_days(month)
        day = np.minimum(self.day if self.settled else _LAST, _first_days(month + 1) - first)
        found: Seconds = (first + day - 1) * _DAY + parts.clock
        return found

    def places(self, seconds: Seconds) -> Seconds | None:
        """See `Grid`."""
        parts = _parts(seconds)
        since = parts.month - parts.month[0]
        on = self._fitting(parts).all() and (parts.clock == parts.clock[0]).all() and not (since % self.months).any()
        return since // self.months if on and (np.diff(since) > 0).all() else None

    def state_dict(self) -> State:
        """What rows have shown of it."""
        return {"day": self.day, "settled": self.settled}

    def restored(self, state: State) -> Self:
        """The grid as rows had shown it when `state_dict` was asked."""
        day, settled = state.get("day"), state.get("settled")
        if not (isinstance(day, int) and isinstance(settled, bool)):
            raise StateError("the state does not say on which day of the month rows lie; it belongs to something else")
        return replace(self, day=day, settled=settled)

    def wrong(self, seconds: int, last: int | None) -> str:
        """See `Grid`."""
        del seconds
        if last is None:
            return f"is not on the {'first' if self.day == _FIRST else 'last'} day of its month, expected it there"
        near, far = (shown(time, "s") for time in self.after(np.array([last]), np.array([1, 2])).tolist())
        return f"is off the grid of one row every {self.named}, expected {near}, {far} or a later one of it"


def grid_of(freq: str | timedelta | np.timedelta64) -> Grid:
    """The grid that a `freq` says.

    `B` are the days from Monday to Friday. `M`, `Q` and `Y` are months, quarters and years on whatever day the rows
    show; with `S` the first day of the month, with `E` the last. In `ms` and `us` times are counted in parts of a
    second, whatever the step is: rows of `1000ms` may lie half a second past the full one, those of `1s` may not.

    >>> grid_of("15min").text, grid_of("Q").text, grid_of("ME").text, grid_of(timedelta(days=1)).text
    ('900s', '3M', '1ME', '86400s')
    >>> grid_of("ms").text, grid_of("250us").text, grid_of(timedelta(seconds=0.1)).text
    ('1ms', '250us', '100ms')

    Raises:
        OptionError: It says none.
    """
    if isinstance(freq, str) and freq.strip() == "B":
        return Weekdays()
    step, unit, months, ends = _of_text(freq.strip()) if isinstance(freq, str) else _of_span(freq)
    longest = (_LONGEST_YEARS if unit == "s" else _LONGEST_FINE_YEARS) * 366 * _DAY
    if not 0 < step / PER_SECOND[unit] + months * 31 * _DAY <= longest or min(step, months) < 0:
        raise OptionError(
            f"freq is {freq!r}, expected seconds or more such as 's', '15min', 'h', 'D' or 'W', parts of a second: "
            "'100ms' or '250us', from a microsecond on, working days: 'B', or months: 'M', 'Q' or 'Y', with S "
            "for their first day ('MS') or E for their last ('ME'); average rows that come more often"
        )
    return Monthly(months, _LAST if ends == "E" else _FIRST, bool(ends)) if months else Even(step, unit)


class _Said(NamedTuple):
    """A step in ticks or in months; neither where nothing is said."""

    step: int = 0
    unit: Unit = "s"
    months: int = 0
    ends: str = ""


def _of_text(freq: str) -> _Said:
    if found := _FINE.fullmatch(freq):
        return _Said(int(found[1] or 1), "ms" if found[2] == "ms" else "us")
    if found := _EVEN.fullmatch(freq):
        return _Said(int(found[1] or 1) * _UNIT_SECONDS[found[2].lower()])
    found = _MONTHLY.fullmatch(freq)
    return _Said(months=int(found[1] or 1) * _UNIT_MONTHS[found[2]], ends=found[3]) if found else _Said()


def _of_span(freq: timedelta | np.timedelta64) -> _Said:
    if isinstance(freq, timedelta):
        whole = freq // timedelta(microseconds=1)
        return _Said(*coarsened(whole)) if timedelta(microseconds=whole) == freq else _Said()
    if isinstance(freq, np.timedelta64) and np.datetime_data(freq)[0] in ("M", "Y"):
        return _Said(months=int(freq.astype("timedelta64[M]").astype(np.int64)))
    for unit in UNITS if isinstance(freq, np.timedelta64) else ():
        if (ticks := freq.astype(f"timedelta64[{unit}]")) == freq:
            return _Said(int(ticks.astype(np.int64)), unit)
    return _Said()


def grid_between(times: Times) -> Grid | None:
    """The grid with the step that is most common between rows, if all of them lie on it.

    Rows on the same day of different months, or on their last days, are as many months apart. Rows a day apart that
    leave out more than one weekend, and have none on one, are those of working days.

    >>> grid_between(np.array(["2026-01-31", "2026-02-28", "2026-03-31"], "datetime64[s]")).text
    '1ME'
    >>> grid_between(np.array(["2026-01-01", "2026-01-02", "2026-01-05"], "datetime64[s]")).text
    '86400s'
    """
    unit = coarsest(times)
    ticks = times.astype(f"datetime64[{unit}]").astype(np.int64)
    if unit == "s":
        months = _most_common(np.diff(_parts(ticks).month))
        if months > 0 and (monthly := Monthly(months).seen(ticks)).places(ticks) is not None:
            return monthly
    step = _most_common(np.diff(ticks))
    daily = unit == "s" and step == _DAY and ticks[-1] - ticks[0] >= _TWO_WEEKS
    if daily and Weekdays().places(ticks) is not None:
        return Weekdays()
    return Even(step, unit) if step > 0 and Even(step, unit).places(ticks) is not None else None


def _most_common(steps: Ticks) -> int:
    found, counts = np.unique(steps, return_counts=True)
    return int(found[counts.argmax()]) if len(found) else 0


def season_of(step_seconds: float) -> int:
    """Rows in the natural period of data with this step; 1 where there is none.

    A day (for very fast data an hour or a minute); a week for daily data, a year for weekly, monthly and quarterly. Of
    what comes more often than every second the clock says nothing: whatever period it has must be found in it.

    >>> [season_of(seconds) for seconds in (900, 3600, 86400, 7 * 86400, 30 * 86400, 92 * 86400, 7000, 0.1)]
    [96, 24, 7, 52, 12, 4, 1, 1]
    """
    if step_seconds < 1:
        return 1
    for period in (_DAY, _HOUR, 60):
        rows = round(period / step_seconds)
        if 1 < rows <= _LONGEST_SEASON and abs(rows - period / step_seconds) < 1e-9:
            return rows
    if step_seconds == _DAY:
        return 7
    if step_seconds == 7 * _DAY:
        return 52
    if 90 * _DAY <= step_seconds <= 92 * _DAY:
        return 4
    return 12 if 28 * _DAY <= step_seconds <= 31 * _DAY else 1
