"""The times of a table: which columns hold them, and in which form they are written. Needs pandas, as `natsr.data.csv`.

Rows in messages are counted from 1, the first row after the header.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from natsr.data.calendar import Floats, Times
from natsr.data.grids import Even, grid_between
from natsr.data.series import unknown
from natsr.data.ticks import PER_SECOND, coarsest
from natsr.data.written import QUARTER, ticks
from natsr.types import DataError, OptionError

_PARTS = ("year", "month", "day", "hour", "minute", "second")
_TIME_NAME = re.compile(r"(^|[^a-z])(time|date|datetime|timestamp|ts|epoch|unix|unixtime|t)([^a-z]|$)")
_CLOCK_NAMES = ("time", "clock", "hour", "uhrzeit", "stunde", "heure")
_OFFSET = re.compile(r"\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d %b %Y")
_CLOCKS = (" %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "")
_YEARS = (1000, 3000)
#: A file whose rows lie in fewer seconds than this share of their number has rows more often than every second.
_OFTEN = 0.75
_ONE_OF_TWO = (
    "remove one, or say which counts (--repeated first, last or mean; repeated= of read_csv and load), or write the "
    "times in UTC if the clock was put back"
)


def cell(value: object) -> str:
    """What stands in a cell, for a message.

    >>> cell(np.int64(1767225)), cell("noon")
    ('1767225', "'noon'")
    """
    return repr(value.item() if isinstance(value, np.generic) else value)


def find_times(table: pd.DataFrame, time: str | None, notes: list[str]) -> tuple[Times, list[str]]:
    """The times as they stand, NaT where a cell is none, and the columns that they were made of.

    Args:
        table: As it was read.
        time: The column's name, if it is known.
        notes: What was decided is added here.
    """
    if time is not None:
        if time not in table.columns:
            raise OptionError(unknown("time column", time, [str(name) for name in table.columns], "the file"))
        times = _times_in(table, time, notes)
        if times is None:
            first = cell(table[time].iloc[0])
            raise DataError(
                f"time column {time!r} begins with {first}, expected dates such as 2024-01-31 15:00 "
                "or an epoch in seconds or milliseconds; name another column or rewrite this one"
            )
        return times, [time]
    lowered = {str(name).lower(): str(name) for name in table.columns}
    texts = [name for name in lowered.values() if not is_number(table, name)]
    for name in texts:
        if (times := _times_in(table, name, notes)) is not None and np.isnat(times).mean() < 0.5:
            return _with_clock(times, table, name)
    if (parts := _from_parts(table, lowered)) is not None and len(parts[1]) > 2:
        return parts
    for name in lowered.values():
        named = name not in texts and _TIME_NAME.search(name.lower())
        if named and (times := _times_in(table, name, notes)) is not None:
            return times, [name]
    if parts is not None:
        return parts
    raise DataError(
        f"no time column was found among {listed(table)}; expected one with dates such as 2024-01-31 15:00, or "
        "columns year, month, day; name it (time=..., --time COLUMN) or add one"
    )


def _from_parts(table: pd.DataFrame, lowered: dict[str, str]) -> tuple[Times, list[str]] | None:
    """Times from columns `year`, `month`, `day`, …; where month or day are not there, the first of them."""
    count = next((place for place, part in enumerate(_PARTS) if part not in lowered), len(_PARTS))
    used = [lowered[part] for part in _PARTS[:count]]
    if not used or (count < 3 and not (is_number(table, used[0]) and table[used[0]].between(*_YEARS).all())):
        return None
    parts = pd.DataFrame({name.lower(): pd.to_numeric(table[name], errors="coerce") for name in used})
    moments = pd.to_datetime(parts.assign(**dict.fromkeys(_PARTS[count:3], 1)), errors="coerce")
    return moments.to_numpy("datetime64[us]"), used


def _with_clock(times: Times, table: pd.DataFrame, name: str) -> tuple[Times, list[str]]:
    """Dates that come more than once, and the time of day that stands in a column beside them."""
    days = times.astype("datetime64[D]")
    if len(np.unique(times)) == len(times) or not (days == times)[~np.isnat(times)].all():
        return times, [name]
    for clock in (str(column) for column in table.columns if str(column).lower() in _CLOCK_NAMES):
        if is_number(table, clock):
            whole = table[clock].between(0, 24).all() and (table[clock] % 1 == 0).all()
            since = pd.to_timedelta(table[clock], unit="h") if whole else None
        else:
            text = table[clock].astype("string").str.strip()
            short = text.str.fullmatch(r"\d{1,2}:\d\d")
            since = pd.to_timedelta(text.where(~short.fillna(False), text + ":00"), errors="coerce")
        if since is not None and since.notna().all():
            return times + since.to_numpy("timedelta64[us]"), [name, clock]
    return times, [name]


def listed(table: pd.DataFrame) -> str:
    """The columns, for a message."""
    return ", ".join(map(str, table.columns[:20])) + (" …" if table.shape[1] > 20 else "")


def is_number(table: pd.DataFrame, name: str) -> bool:
    """Whether a column holds numbers only."""
    return pd.api.types.is_numeric_dtype(table[name].dtype)


def _times_in(table: pd.DataFrame, name: str, notes: list[str]) -> Times | None:
    """The column as times, NaT where a cell is none; nothing if it is not a column of times."""
    if is_number(table, name):
        return _from_numbers(table[name].to_numpy(np.float64))
    text = table[name].astype("string").str.strip()
    head = text.dropna().iloc[:100]
    if not head.empty and head.str.fullmatch(QUARTER).all():
        parts = text.str.extract(QUARTER).astype("Int64")
        first = pd.DataFrame({"year": parts[0], "month": 3 * parts[1] - 2, "day": 1})
        return pd.to_datetime(first, errors="coerce").to_numpy("datetime64[us]")
    if head.empty or not head.str.contains(r"\d.*[-/.: ].*\d", regex=True).iloc[0]:
        return None
    if pd.to_datetime(head.iloc[:1], format="ISO8601", utc=True, errors="coerce").notna().all():
        if head.map(lambda cell: bool(_OFFSET.search(cell))).any():
            notes.append(f"times in {name} carry a time zone; they were converted to UTC")
        moments = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        return moments.dt.tz_localize(None).to_numpy("datetime64[us]")
    return _in_written_form(text, head, notes)


def _from_numbers(numbers: Floats) -> Times | None:
    """An epoch in seconds or finer, or dates written as 20240131."""
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0:
        return None
    low, high = known.min(), known.max()
    if (rate := ticks(low, high)) is not None:
        return _from_epoch(numbers / rate * 1e6)
    if low >= 1.8e7 and high < 2.2e7:
        text = pd.Series(numbers).astype("Int64").astype("string")
        return pd.to_datetime(text, format="%Y%m%d", errors="coerce").to_numpy("datetime64[us]")
    return None


def _from_epoch(microseconds: Floats) -> Times:
    known = ~np.isnan(microseconds)
    times = np.full(len(microseconds), np.datetime64("NaT"), dtype="datetime64[us]")
    times[known] = np.round(microseconds[known]).astype(np.int64).astype("datetime64[us]")
    return times


def _in_written_form(text: pd.Series[str], head: pd.Series[str], notes: list[str]) -> Times | None:
    """Dates such as 1/31/2010 0:00. Whether day or month comes first is decided by what gives times that increase."""
    found: list[tuple[str, Times]] = []
    for form in (day + clock for day in _DAYS for clock in _CLOCKS):
        if pd.to_datetime(head.iloc[:1], format=form, errors="coerce").notna().all():
            found.append((form, pd.to_datetime(text, format=form, errors="coerce").to_numpy("datetime64[us]")))
    whole = [(form, times) for form, times in found if not np.isnat(times).any()]
    rising = [(form, times) for form, times in whole if (np.diff(times) > np.timedelta64(0, "us")).all()]
    best = rising or whole or found
    if not best:
        return None
    if len(rising) > 1:
        forms = " or ".join(form for form, _ in rising)
        notes.append(f"the dates can be read as {forms}; the first was taken (ISO dates leave no doubt)")
    return best[0][1]


def in_order(times: Times, table: pd.DataFrame, used: list[str]) -> Times:
    """The times, as fine as `kept` has them, if each row has one and they increase.

    Args:
        times: As `find_times` found them.
        table: Where.
        used: The columns that they were made of.

    Raises:
        DataError: They do not.
    """
    cells, found, times = table[used], times, each(times, table, used)
    _, firsts, counts = np.unique(times, return_index=True, return_counts=True)
    if (counts > 1).any():
        first = int(firsts[counts > 1].min())
        second = int(np.flatnonzero(times == times[first])[1])
        most = "second" if found[first] != found[second] else "microsecond"
        finer = "" if cells.iloc[first].equals(cells.iloc[second]) else f" (times are kept to the {most})"
        raise DataError(
            f"rows {first + 1} and {second + 1} both have time {times[first]}{finer}, expected each time once; "
            + (_several_series(table, used) or _ONE_OF_TWO)
        )
    back = np.flatnonzero(np.diff(times) < np.timedelta64(0, "s"))
    if len(back):
        row = int(back[0]) + 1
        raise DataError(
            f"row {row + 1} has time {times[row]}, before row {row} with {times[row - 1]}; expected increasing "
            "times; sort the file by its time column"
        )
    return times


def each(times: Times, table: pd.DataFrame, used: list[str]) -> Times:
    """The times, as fine as `kept` has them, if each row has one; arguments as of `in_order`.

    Raises:
        DataError: A row has none.
    """
    none = np.flatnonzero(np.isnat(times))
    if len(none):
        got = ", ".join(f"{name} = {table[name].iloc[none[0]]}" for name in used)
        raise DataError(
            f"row {none[0] + 1} has {got}, expected a time like those of the other rows; correct or remove the row"
        )
    return kept(times)


def kept(times: Times) -> Times:
    """Times to the second, unless rows come more often, or by even steps that are no whole seconds: then as they are.

    A few rows within one second, in a file of slower ones, are no reason: they are mistakes, to be told as such.

    >>> [str(time) for time in kept(np.array(["2026-01-01T00:00:00.5", "2026-01-01T00:00:01.5"], "datetime64[us]"))]
    ['2026-01-01T00:00:00', '2026-01-01T00:00:01']
    >>> [str(time) for time in kept(np.array(["2026-01-01T00:00:00.5", "2026-01-01T00:00:00.6"], "datetime64[us]"))]
    ['2026-01-01T00:00:00.500', '2026-01-01T00:00:00.600']
    """
    seconds = times.astype("datetime64[s]")
    if (seconds == times).all():
        return seconds
    fine = times.astype(f"datetime64[{coarsest(times)}]")
    often = len(np.unique(seconds)) < _OFTEN * len(np.unique(fine))
    grid = None if often else grid_between(fine)
    between = isinstance(grid, Even) and grid.step % PER_SECOND[grid.unit] > 0
    return fine if often or between else seconds


def _several_series(table: pd.DataFrame, used: list[str]) -> str | None:
    """What to do if the rows are told apart by the names in another column."""
    for name in (str(column) for column in table.columns if column not in used):
        if not is_number(table, name) and not table.duplicated([*used, name]).any():
            found = [str(cell) for cell in table[name].unique()[:3]]
            return (
                f"column {name} ({', '.join(found)} …) seems to tell several series apart: give each a file or columns "
                "of its own, or see natsr.Fleet and natsr serve, which take many series"
            )
    return None
