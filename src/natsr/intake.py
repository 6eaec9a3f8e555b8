"""What may come into a live stream: times on a grid, rows by name or by place, each checked before anything changes.

The rules, in one place:

- A time is a `datetime`, a `numpy.datetime64`, a pandas `Timestamp` or ISO 8601 text, to the second. One with a zone is
  turned into UTC, one without is taken as it is. Times advance by whole steps; what lies between is missing.
- `None`, NaN and pandas' `NA` mean: missing. Any other value must be a finite number; text is refused, infinity too.
- A row by name may leave columns out: they are missing. A name that is not a column is refused, for it may be a typo.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import SupportsFloat

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natsr.data.calendar import Floats, Times
from natsr.data.series import unknown
from natsr.types import DataError, OptionError

Seconds = npt.NDArray[np.int64]

_FREQ = re.compile(r"(\d*)\s*(s|sec|min|t|h|d|w)", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "sec": 1, "min": 60, "t": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def step_seconds(freq: str | timedelta | np.timedelta64) -> int:
    """Seconds between rows.

    >>> step_seconds("15min"), step_seconds("h"), step_seconds(timedelta(days=1))
    (900, 3600, 86400)
    """
    if isinstance(freq, str):
        found = _FREQ.fullmatch(freq.strip())
        seconds = int(found[1] or 1) * _UNIT_SECONDS[found[2].lower()] if found else 0
    elif isinstance(freq, timedelta):
        seconds = int(freq.total_seconds()) if freq.total_seconds().is_integer() else 0
    else:
        whole = freq.astype("timedelta64[s]")
        seconds = int(whole.astype(np.int64)) if whole == freq else 0
    if seconds < 1:
        raise OptionError(
            f"freq is {freq!r}, expected a fixed step of whole seconds such as 's', '15min', 'h', 'D' or 'W'; "
            "months and years differ in length, so resample to days or weeks"
        )
    return seconds


def stamp(time: object) -> int:
    """A time as seconds since 1970.

    >>> stamp("2024-01-01T00:00:00Z") == stamp("2024-01-01 01:00+01:00") == stamp(datetime(2024, 1, 1))
    True
    """
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.strip())
        except ValueError:
            raise DataError(f"time is {time!r}, expected ISO 8601 such as 2026-01-31T15:00:00") from None
    if isinstance(time, datetime):
        naive = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
        # By way of text: pandas' NaT is a datetime too, and numpy cannot read a Timestamp's own class.
        time = np.datetime64(naive.isoformat())
    if not isinstance(time, np.datetime64):
        raise DataError(
            f"time is {time!r}, a {type(time).__name__}; expected a datetime, numpy.datetime64, pandas Timestamp or "
            "ISO 8601 text"
        )
    whole = time.astype("datetime64[s]")
    if np.isnat(whole):
        raise DataError("time is missing (NaT), expected a time for every row; drop such rows")
    if whole != time:
        raise DataError(f"time is {time}, expected whole seconds; round it")
    return int(whole.astype(np.int64))


def steps_after(seconds: int, last: int, step: int) -> int:
    """How many steps after the last row this one lies, at least 1.

    Raises:
        DataError: It is not after the last row, or not on the grid.
    """
    if seconds == last:
        raise DataError(f"row {shown(seconds)} is a duplicate: a row with this time has been taken; it was ignored")
    if seconds < last:
        raise DataError(
            f"row {shown(seconds)} is late: {shown(last)} has been taken, expected a later one; it was ignored"
        )
    if (seconds - last) % step:
        raise DataError(
            f"row {shown(seconds)} lies {seconds - last} seconds after the last one ({shown(last)}), expected a "
            f"multiple of {step}; round the time, or use another freq"
        )
    return (seconds - last) // step


def shown(seconds: int) -> str:
    """The time for people."""
    return str(np.datetime64(seconds, "s"))


def times_of(seconds: Seconds) -> Times:
    """Seconds since 1970 as times."""
    return seconds.astype("datetime64[s]")


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


def regular(seconds: Seconds, values: Floats, step: int, longest: int) -> tuple[Seconds, Floats]:
    """History on the grid: rows that are not there become missing ones, at most `longest` in a row.

    Of a longer gap its end is kept, so that a window that reaches back from the next row sees the gap only.

    Raises:
        DataError: The times do not advance by whole steps.
    """
    gaps = np.diff(seconds)
    wrong = np.flatnonzero((gaps <= 0) | (gaps % step != 0))
    if len(wrong):
        steps_after(int(seconds[wrong[0] + 1]), int(seconds[wrong[0]]), step)  # says what is wrong with it
    places = np.concatenate([[0], np.cumsum(np.minimum(gaps // step, longest + 1))]).astype(np.int64)
    filled = np.full((places[-1] + 1, values.shape[1]), math.nan)
    filled[places] = values
    every = np.arange(len(filled))
    following = np.searchsorted(places, every)
    return seconds[following] - (places[following] - every) * step, filled
