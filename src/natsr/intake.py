"""What may come into a live stream: times on a grid, rows by name or by place, each checked before anything changes.

The rules, in one place:

- A time is a `datetime`, a `numpy.datetime64`, a pandas `Timestamp` or `Period`, or ISO 8601 text; of a month
  (`2026-01`), a quarter (`2026Q1`) or a year it is the beginning. One with a zone is turned into UTC, one without is
  taken as it is. It has whole seconds, or whole parts of one as the grid counts them (`natsr.data.ticks`), down to a
  microsecond. Times advance by whole steps of the grid (`natsr.data.grids`); what lies between is missing.
- `None`, NaN and pandas' `NA` mean: missing. Any other value must be a finite number; text is refused, infinity too.
- A row by name may leave columns out: they are missing. A name that is not a column is refused, for it may be a typo.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, SupportsFloat

import numpy as np
from torch import Tensor

from natsr.data.calendar import Floats
from natsr.data.grids import Grid
from natsr.data.series import unknown
from natsr.data.ticks import FINEST, NAMES, Ticks, Unit, coarsened, shown
from natsr.data.written import period
from natsr.experts.periods import Gaps
from natsr.types import DataError

#: Digits after the sixth behind the second; Python drops them without a word.
_FINER = re.compile(r"[.,]\d{6}\d*[1-9]")


def stamp(time: object, unit: Unit = "s") -> int:
    """A time as ticks since 1970; they are seconds unless said otherwise.

    >>> stamp("2024-01-01T00:00:00Z") == stamp("2024-01-01 01:00+01:00") == stamp(datetime(2024, 1, 1))
    True
    >>> stamp("2024Q2") == stamp("2024-04") == stamp("2024-04-01")
    True
    >>> stamp("1970-01-01T00:00:01.5", "ms")
    1500
    """
    if isinstance(time, str):
        if _FINER.search(time):
            raise DataError(f"time is {time!r}, expected microseconds at most; round it")
        try:
            time = period(time) or datetime.fromisoformat(time.strip())
        except ValueError:
            raise DataError(f"time is {time!r}, expected ISO 8601 such as 2026-01-31T15:00:00") from None
    if type(time).__name__ == "Period":  # of pandas; see `number`
        time = getattr(time, "start_time", time)
    if isinstance(time, datetime):
        naive = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
        # By way of text: pandas' NaT is a datetime too, and numpy cannot read a Timestamp's own class.
        time = np.datetime64(naive.isoformat())
    if not isinstance(time, np.datetime64):
        raise DataError(
            f"time is {time!r}, a {type(time).__name__}; expected a datetime, numpy.datetime64, pandas Timestamp or "
            "ISO 8601 text"
        )
    whole = time.astype(f"datetime64[{unit}]")
    if np.isnat(whole):
        raise DataError("time is missing (NaT), expected a time for every row; drop such rows")
    if whole.astype(time.dtype) != time:  # there and back again: far enough away there are no ticks left to count
        finer = "" if unit == FINEST else ", or use a freq in parts of a second, such as '100ms' or '250us'"
        raise DataError(f"time is {time}, expected whole {NAMES[unit]}; round it{finer}")
    return int(whole.astype(np.int64))


def written(time: object) -> str:
    """A time as ISO 8601 text, with as many digits behind the second as it needs: none, three or six.

    >>> written("2026-01-01"), written(datetime(2026, 1, 1, microsecond=100_000))
    ('2026-01-01T00:00:00', '2026-01-01T00:00:00.100')
    """
    return shown(*coarsened(stamp(time, FINEST)))


def steps_after(tick: int, last: int | None, grid: Grid) -> int:
    """How many steps after the last row this one lies, at least 1; the first row of all counts as one.

    Raises:
        DataError: It is not after the last row, or not on the grid.
    """
    if last is not None and tick == last:
        at = shown(tick, grid.unit)
        raise DataError(f"row {at} is a duplicate: a row with this time has been taken; it was ignored")
    if last is not None and tick < last:
        at, taken = shown(tick, grid.unit), shown(last, grid.unit)
        raise DataError(f"row {at} is late: {taken} has been taken, expected a later one; it was ignored")
    steps = int(grid.fits(tick)) if last is None else grid.steps(last, tick)
    if not steps:
        at = shown(tick, grid.unit)
        raise DataError(f"row {at} {grid.wrong(tick, last)}; correct the time, or use another freq")
    return steps


def number(value: object, column: str) -> float:
    """One value, NaN if missing."""
    # pandas' NA and NaT are told by name: importing pandas for them would cost everyone a second.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return math.nan
    # numpy's text and complex numbers can be turned into floats too, one silently and one with half of it lost.
    if not isinstance(value, SupportsFloat) or isinstance(value, np.character | np.complexfloating):
        raise DataError(f"{column} is {value!r}, expected a number, or None or NaN for missing; convert text first")
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise DataError(f"{column} is {value!r}, expected a number, or None or NaN for missing: {error}") from error
    if math.isinf(found):
        raise DataError(f"{column} is {found}, expected a finite number; pass None or NaN if it is missing")
    return found


def row_values(row: object, columns: Sequence[str]) -> Floats:
    """A row as numbers in the order of the columns, `(C,)`, NaN where missing."""
    pandas = sys.modules.get("pandas")  # whoever has a Series has imported it
    if pandas is not None and isinstance(row, pandas.Series):
        row = row.to_dict()
    if isinstance(row, Mapping):
        for name in row:
            if name not in columns:
                raise DataError(unknown("column", str(name), columns))
        cells = [row.get(name) for name in columns]
    elif isinstance(row, (str, bytes)) or not isinstance(row, Iterable | np.ndarray | Tensor):
        raise DataError(
            f"row is {row!r}, expected a mapping from {', '.join(columns)} to numbers, or {len(columns)} numbers"
        )
    else:
        cells = list(row)
    if len(cells) != len(columns):
        raise DataError(f"row has {len(cells)} values, expected {len(columns)}: {', '.join(columns)}")
    return np.array([number(cell, name) for cell, name in zip(cells, columns, strict=True)], dtype=np.float64)


class History(NamedTuple):
    """Rows on their grid, as these rows show it; NaN where missing."""

    grid: Grid
    ticks: Ticks
    values: Floats


def regular(ticks: Ticks, values: Floats, grid: Grid, gaps: Gaps) -> History:
    """History on the grid: rows that are not there become missing ones, as far as gaps are played.

    Of a long gap its end is kept, so that a window that reaches back from the next row sees the gap only.

    Raises:
        DataError: The times do not advance by whole steps.
    """
    told = grid.seen(ticks).places(ticks)
    if told is None:
        last = None
        for at in ticks.tolist():  # one of them says what is wrong with it
            steps_after(at, last, grid)
            last, grid = at, grid.seen(np.array([at]))
    assert told is not None
    grid = grid.seen(ticks)
    steps = np.diff(told)
    places = np.concatenate([[0], np.cumsum(steps - gaps.left_out(steps - 1))]).astype(np.int64)
    filled = np.full((places[-1] + 1, values.shape[1]), math.nan)
    filled[places] = values
    every = np.arange(len(filled))
    following = np.searchsorted(places, every)
    return History(grid, grid.after(ticks[following], every - places[following]), filled)
