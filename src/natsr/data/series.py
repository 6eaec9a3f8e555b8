"""A series as it was read, and the stream that a forecaster meets: scaled, filled from the past, with its calendar.

Nothing here looks ahead: the scaling knows the train part only, and a gap is filled with what came before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

import numpy as np
import torch

from natsr.data.calendar import Calendar, CalendarKind, Floats, Times
from natsr.data.grids import Even, Grid, grid_between, season_of
from natsr.data.ticks import NAMES, PER_SECOND, unit_of
from natsr.streams import Rows
from natsr.types import DataError, OptionError, Task

#: What becomes of the rows of a file that have the same time.
Repeated: TypeAlias = Literal["refuse", "first", "last", "mean"]
REPEATED: tuple[Repeated, ...] = ("refuse", "first", "last", "mean")


def check_repeated(name: str) -> Repeated:
    """The name, if it is one of these ways."""
    for known in REPEATED:
        if name == known:
            return known
    raise OptionError(f"repeated is {name!r}, expected one of {', '.join(REPEATED)}")


@dataclass(frozen=True, eq=False)
class Series:
    """Values in time, as they were read.

    Args:
        name: What it is called in tables and messages.
        times: `(T,)`, strictly increasing, to the second or, where rows come more often, as `natsr.data.ticks` has it.
        values: `(T, C)`, NaN where missing.
        columns: One name for each column of `values`.
        step_seconds: Seconds between rows; the most common difference if they are not all the same.
        regular: Whether every row follows the one before by one step.
        calendar: How its published loader treats calendar features; the default of `prepare`.
        notes: What was done to the file on the way in, for people.
        events: Rows at which a synthetic series changes or jumps.
    """

    name: str
    times: Times
    values: Floats
    columns: tuple[str, ...]
    step_seconds: float
    regular: bool = True
    calendar: CalendarKind = "standardised"
    notes: tuple[str, ...] = ()
    events: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        rows, width = len(self.times), len(self.columns)
        if self.values.shape != (rows, width):
            raise DataError(
                f"values of {self.name} have shape {self.values.shape}, expected {(rows, width)}: "
                "one row for each time and one column for each name"
            )
        if np.isinf(self.values).any():
            raise DataError(f"{self.name} holds infinite values, expected finite ones or NaN; mark them as missing")
        if rows > 1 and not (np.diff(self.times) > np.timedelta64(0, "s")).all():
            raise DataError(f"times of {self.name} are not strictly increasing; sort the rows and drop duplicates")
        if self.step_seconds < 1 / PER_SECOND[unit_of(self.times)]:
            unit = NAMES[unit_of(self.times)]
            raise DataError(f"step_seconds is {self.step_seconds}, expected at least 1 of the {unit} of its times")

    def __len__(self) -> int:
        return len(self.times)

    @property
    def grid(self) -> Grid | None:
        """Where its rows lie; nothing where they keep no step."""
        return grid_between(self.times)

    @property
    def pace(self) -> Grid:
        """The grid, or that of the most common step where rows keep none."""
        unit = unit_of(self.times)
        return self.grid or Even(round(self.step_seconds * PER_SECOND[unit]), unit)

    @property
    def season(self) -> int:
        """Rows in its natural period; 1 where there is none."""
        grid = self.grid
        return season_of(self.step_seconds) if grid is None else grid.season

    @property
    def missing(self) -> int:
        """How many values are missing."""
        return int(np.isnan(self.values).sum())

    def select(self, columns: Sequence[str]) -> Series:
        """The same rows with these columns only, in this order."""
        columns = [columns] if isinstance(columns, str) else columns
        if not columns:
            raise OptionError(f"no column was asked for, expected at least one of {', '.join(self.columns)}")
        for column in columns:
            if column not in self.columns:
                raise OptionError(unknown("column", column, self.columns, self.name))
        where = [self.columns.index(column) for column in columns]
        return replace(self, values=self.values[:, where], columns=tuple(columns))

    def first(self, rows: int) -> Series:
        """The first `rows` rows; all of them if there are fewer."""
        if rows < 1:
            raise OptionError(f"rows is {rows}, expected at least 1")
        events = tuple(event for event in self.events if event < rows)
        return replace(self, times=self.times[:rows], values=self.values[:rows], events=events)


def unknown(what: str, got: str, known: Sequence[str], where: str = "") -> str:
    """The message about a name that does not exist, with the nearest ones that do."""
    lowered = {name.lower(): name for name in known}
    near = [lowered[name] for name in get_close_matches(got.lower(), list(lowered), n=3, cutoff=0.6)]
    hint = f"did you mean {' or '.join(near)}?" if near else "use one of these"
    listed = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return f"{what} {got!r} is unknown{' in ' + where if where else ''}, expected one of {listed}; {hint}"


@dataclass(frozen=True)
class Borders:
    """Row ends of the three parts: train `[0, train)`, validation `[train, valid)`, online `[valid, online)`."""

    train: int
    valid: int
    online: int

    def __post_init__(self) -> None:
        if not 0 < self.train <= self.valid < self.online:
            raise OptionError(
                f"borders are {self.train} · {self.valid} · {self.online}, expected 0 < train <= valid < online"
            )

    @staticmethod
    def published(rows: int) -> Borders:
        """The usual split: the first fifth trains, the last three quarters are online, the rest validates.

        >>> Borders.published(35064)
        Borders(train=7012, valid=8766, online=35064)
        """
        if rows < 5:
            raise DataError(f"the series has {rows} rows, expected at least 5 to split it; use a longer one")
        return Borders(int(0.2 * rows), rows - int(0.75 * rows), rows)


@dataclass(frozen=True, eq=False)
class Scaling:
    """Mean and population standard deviation of each column, `(C,)`, as the train part knows them."""

    mean: Floats
    std: Floats

    @staticmethod
    def fit(values: Floats) -> Scaling:
        """Learn from `(T, C)`, leaving NaN out; a column that is constant or missing keeps its unit, std 1."""
        known = ~np.isnan(values)
        count = np.maximum(known.sum(axis=0), 1)
        # Scaled by the largest value first, so that the squares of huge ones do not overflow, nor those of tiny vanish.
        largest = np.max(np.where(known, np.abs(values), 0.0), axis=0, initial=0.0)
        unit = np.where((largest > 1e100) | ((largest > 0) & (largest < 1e-100)), largest, 1.0)
        filled = np.where(known, values / unit, 0.0)
        mean = filled.sum(axis=0) / count
        std = np.sqrt(np.where(known, (filled - mean) ** 2, 0.0).sum(axis=0) / count)
        low = np.min(np.where(known, values, np.inf), axis=0, initial=np.inf)
        high = np.max(np.where(known, values, -np.inf), axis=0, initial=-np.inf)
        return Scaling(mean * unit, np.where(high > low, std * unit, 1.0))

    def apply(self, values: Floats) -> Floats:
        """From the data's units to standardised ones; columns are the last axis."""
        scaled: Floats = (values - self.mean) / self.std
        return scaled

    def held(self, values: Floats, most: float) -> Floats:
        """Standardised, held to so many deviations; 0, the mean, where there is no value."""
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.clip(self.apply(values), -most, most), nan=0.0)

    def invert(self, values: Floats) -> Floats:
        """From standardised units back to the data's."""
        restored: Floats = values * self.std + self.mean
        return restored


@dataclass(frozen=True, eq=False)
class Prepared:
    """A stream ready for `natsr.streams`, and what is needed to come back from it."""

    rows: Rows
    scaling: Scaling
    borders: Borders
    season: int
    series: Series
    calendar: Calendar
    outside: int = 0  # features behind those of the calendar

    def task(self, window: int, horizon: int) -> Task:
        """The task on this stream, with its channels, features and season filled in."""
        channels = len(self.series.columns)
        task = Task(window, horizon, channels, self.rows.inputs.shape[1] - channels, self.season, self.outside)
        check_length(self.series, window, horizon)
        return task


def prepare(
    series: Series,
    borders: Borders,
    *,
    calendar: CalendarKind | None = None,
    season: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> Prepared:
    """Standardise, fill gaps from the past and add calendar features; nothing depends on later rows.

    The inputs of a row are its standardised values, a missing one replaced by the last known of its column (by the
    train part's mean, 0, before the first), then the features. The truth keeps NaN. A value too large for `dtype`
    counts as missing.

    Args:
        series: What was read.
        borders: The train part's end decides what scaling and calendar may know.
        calendar: How calendar features are made; the series' own way unless said otherwise.
        season: Rows in the main period; from the step unless said otherwise.
        dtype: Of the tensors.

    Example:
        >>> times = np.datetime64("2024-01-01", "s") + np.arange(6) * np.timedelta64(3600, "s")
        >>> values = np.array([[1.0], [3.0], [np.nan], [2.0], [4.0], [2.0]])
        >>> ready = prepare(Series("s", times, values, ("x",), 3600), Borders(2, 3, 6), calendar="none")
        >>> ready.rows.inputs[:, 0].tolist(), ready.rows.truth[2].tolist(), ready.season
        ([-1.0, 1.0, 1.0, 0.0, 2.0, 0.0], [nan], 24)
    """
    if borders.online > len(series):
        raise OptionError(f"the online part ends at row {borders.online}, but {series.name} has {len(series)} rows")
    scaling = Scaling.fit(series.values[: borders.train])
    described = Calendar.fit(series.times[: borders.train], calendar or series.calendar, series.step_seconds)
    truth = torch.from_numpy(scaling.apply(series.values)).to(dtype)
    truth[~torch.isfinite(truth)] = float("nan")
    features = torch.from_numpy(described.apply(series.times)).to(dtype)
    rows = Rows(torch.cat([filled_from_past(truth), features], dim=1), truth)
    return Prepared(rows, scaling, borders, season or series.season, series, described)


def filled_from_past(values: torch.Tensor) -> torch.Tensor:
    """`(T, C)` with each NaN replaced by the last known value above it, or 0 where there is none.

    >>> filled_from_past(torch.tensor([[float("nan")], [2.0], [float("nan")]]))[:, 0].tolist()
    [0.0, 2.0, 2.0]
    """
    known = ~torch.isnan(values)
    row = torch.arange(len(values))[:, None].expand_as(values)
    last = torch.where(known, row, torch.zeros_like(row)).cummax(dim=0).values
    return torch.nan_to_num(values.gather(0, last), nan=0.0)


def check_length(series: Series, window: int, horizon: int) -> None:
    """Refuse a series that is shorter than one window and the rows after it."""
    if len(series) < window + horizon:
        raise DataError(
            f"{series.name} has {len(series)} rows, expected at least window + horizon = {window} + {horizon} = "
            f"{window + horizon}; use a longer file, a shorter window or a shorter horizon"
        )
