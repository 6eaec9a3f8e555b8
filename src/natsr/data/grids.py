"""Where rows may lie: every so many seconds, every working day, or every so many months on one day of the month.

One idea for files and for streams: the grid of a file is found in its times (`grid_between`), that of a stream is said
by its `freq` (`grid_of`), and both are then asked the same questions. Times are seconds since 1970.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from natsr.data.calendar import Times
from natsr.data.weekdays import Seconds as Seconds
from natsr.data.weekdays import Weekdays
from natsr.types import OptionError, State, StateError

_HOUR, _DAY = 3600, 86400
_UNITS = (("week", 7 * _DAY), ("day", _DAY), ("hour", _HOUR), ("minute", 60), ("second", 1))
_EVEN = re.compile(r"(\d*)\s*(s|sec|min|t|h|d|w)", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "sec": 1, "min": 60, "t": 60, "h": _HOUR, "d": _DAY, "w": 7 * _DAY}
_MONTHLY = re.compile(r"(\d*)\s*([MQY])([SE]?)")
_UNIT_MONTHS = {"M": 1, "Q": 3, "Y": 12}
_NAMES = {1: "month", 3: "quarter", 12: "year"}
_FIRST, _LAST = 1, 31
_TWO_WEEKS = 14 * _DAY
#: A longer step is a slip of the pen, and times beyond what the calendar can count.
_LONGEST_YEARS = 1000
#: A season of more rows than this makes every window long; the next shorter natural period is taken instead.
_LONGEST_SEASON = 1440


class Grid(Protocol):
    """What is asked of a grid."""

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
    def longest(self) -> int:
        """Seconds between two rows, at most."""

    @property
    def settled(self) -> bool:
        """Whether no row can tell more of where the others lie."""

    def seen(self, seconds: Seconds) -> Self:
        """The grid as it is known when rows lie here, whether they fit or not."""

    def fits(self, seconds: int) -> bool:
        """Whether a row may lie here, whatever lies before it."""

    def steps(self, first: int, later: int) -> int | None:
        """Steps from a row to a later time; nothing if that is off the grid."""

    def after(self, seconds: Seconds, steps: Seconds) -> Seconds:
        """The times so many steps after these rows, or before them."""

    def places(self, seconds: Seconds) -> Seconds | None:
        """Steps from the first row to each of them; nothing if they do not increase, or one is off the grid."""

    def wrong(self, seconds: int, last: int | None) -> str:
        """What is wrong with a row that is off the grid, for a message; `last` is the row before it."""


@dataclass(frozen=True)
class Even:
    """A row every so many seconds.

    >>> Even(900).named, Even(900).season, Even(900).steps(0, 1800), Even(900).steps(0, 1000)
    ('15 minutes', 96, 2, None)
    """

    step: int

    @property
    def text(self) -> str:
        """See `Grid`."""
        return f"{self.step}s"

    @property
    def named(self) -> str:
        """See `Grid`."""
        unit, size = next((unit, size) for unit, size in _UNITS if self.step % size == 0)
        return unit if self.step == size else f"{self.step // size} {unit}s"

    @property
    def season(self) -> int:
        """See `Grid`."""
        return season_of(self.step)

    @property
    def longest(self) -> int:
        """See `Grid`."""
        return self.step

    @property
    def settled(self) -> bool:
        """See `Grid`."""
        return True

    def seen(self, seconds: Seconds) -> Self:
        """See `Grid`."""
        del seconds
        return self

    def fits(self, seconds: int) -> bool:
        """See `Grid`."""
        del seconds
        return True

    def steps(self, first: int, later: int) -> int | None:
        """See `Grid`."""
        return None if (later - first) % self.step else (later - first) // self.step

    def after(self, seconds: Seconds, steps: Seconds) -> Seconds:
        """See `Grid`."""
        return seconds + steps * self.step

    def places(self, seconds: Seconds) -> Seconds | None:
        """See `Grid`."""
        since = seconds - seconds[0]
        wrong = (np.diff(since) <= 0).any() or (since % self.step != 0).any()
        return None if wrong else since // self.step

    def wrong(self, seconds: int, last: int | None) -> str:
        """See `Grid`."""
        assert last is not None  # the first row may lie anywhere
        return f"lies {seconds - last} seconds after the last one ({_shown(last)}), expected a multiple of {self.step}"


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
        near, far = (_shown(time) for time in self.after(np.array([last]), np.array([1, 2])).tolist())
        return f"is off the grid of one row every {self.named}, expected {near}, {far} or a later one of it"


def _shown(seconds: int) -> str:
    return str(np.datetime64(seconds, "s"))


def grid_of(freq: str | timedelta | np.timedelta64) -> Grid:
    """The grid that a `freq` says.

    `B` are the days from Monday to Friday. `M`, `Q` and `Y` are months, quarters and years on whatever day the rows
    show; with `S` the first day of the month, with `E` the last.

    >>> grid_of("15min").text, grid_of("Q").text, grid_of("ME").text, grid_of(timedelta(days=1)).text
    ('900s', '3M', '1ME', '86400s')

    Raises:
        OptionError: It says none.
    """
    seconds = months = 0
    ends = ""
    if isinstance(freq, str) and freq.strip() == "B":
        return Weekdays()
    if isinstance(freq, str):
        if found := _EVEN.fullmatch(freq.strip()):
            seconds = int(found[1] or 1) * _UNIT_SECONDS[found[2].lower()]
        elif found := _MONTHLY.fullmatch(freq.strip()):
            months, ends = int(found[1] or 1) * _UNIT_MONTHS[found[2]], found[3]
    elif isinstance(freq, timedelta):
        seconds = int(freq.total_seconds()) if freq.total_seconds().is_integer() else 0
    elif isinstance(freq, np.timedelta64) and np.datetime_data(freq)[0] in ("M", "Y"):
        months = int(freq.astype("timedelta64[M]").astype(np.int64))
    elif isinstance(freq, np.timedelta64):
        whole = freq.astype("timedelta64[s]")
        seconds = int(whole.astype(np.int64)) if whole == freq else 0
    if not 0 < seconds + months * 31 * _DAY <= _LONGEST_YEARS * 366 * _DAY or min(seconds, months) < 0:
        raise OptionError(
            f"freq is {freq!r}, expected whole seconds such as 's', '15min', 'h', 'D' or 'W', working days: 'B', or "
            "months: 'M', 'Q' or 'Y', with S for their first day ('MS') or E for their last ('ME')"
        )
    if not months:
        return Even(seconds)
    return Monthly(months, _LAST if ends == "E" else _FIRST, bool(ends))


def grid_between(times: Times) -> Grid | None:
    """The grid with the step that is most common between rows, if all of them lie on it.

    Rows on the same day of different months, or on their last days, are as many months apart. Rows a day apart that
    leave out more than one weekend, and have none on one, are those of working days.

    >>> grid_between(np.array(["2026-01-31", "2026-02-28", "2026-03-31"], "datetime64[s]")).text
    '1ME'
    >>> grid_between(np.array(["2026-01-01", "2026-01-02", "2026-01-05"], "datetime64[s]")).text
    '86400s'
    """
    seconds = times.astype("datetime64[s]").astype(np.int64)
    months = _most_common(np.diff(_parts(seconds).month))
    if months > 0 and (monthly := Monthly(months).seen(seconds)).places(seconds) is not None:
        return monthly
    step = _most_common(np.diff(seconds))
    if step == _DAY and seconds[-1] - seconds[0] >= _TWO_WEEKS and Weekdays().places(seconds) is not None:
        return Weekdays()
    return Even(step) if step > 0 and Even(step).places(seconds) is not None else None


def _most_common(steps: Seconds) -> int:
    found, counts = np.unique(steps, return_counts=True)
    return int(found[counts.argmax()]) if len(found) else 0


def season_of(step_seconds: int) -> int:
    """Rows in the natural period of data with this step; 1 where there is none.

    A day (for very fast data an hour or a minute); a week for daily data, a year for weekly, monthly and quarterly.

    >>> [season_of(seconds) for seconds in (900, 3600, 86400, 7 * 86400, 30 * 86400, 92 * 86400, 7000)]
    [96, 24, 7, 52, 12, 4, 1]
    """
    for period in (_DAY, _HOUR, 60):
        if step_seconds < period and period % step_seconds == 0 and period // step_seconds <= _LONGEST_SEASON:
            return period // step_seconds
    if step_seconds == _DAY:
        return 7
    if step_seconds == 7 * _DAY:
        return 52
    if 90 * _DAY <= step_seconds <= 92 * _DAY:
        return 4
    return 12 if 28 * _DAY <= step_seconds <= 31 * _DAY else 1
