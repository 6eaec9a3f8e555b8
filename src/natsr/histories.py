"""The past of a stream as it is handed over: times and an array, or a pandas frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from natsr.data.calendar import Floats
from natsr.data.series import unknown
from natsr.data.ticks import Ticks, Unit
from natsr.intake import row_values, stamp
from natsr.types import DataError

if TYPE_CHECKING:
    import pandas as pd

_TIME_NAMES = ("time", "date", "datetime", "timestamp")


def history_of(given: object, columns: Sequence[str], time: str | None, unit: Unit) -> tuple[Ticks, Floats]:
    """Times in ticks, and values, NaN where missing.

    Args:
        given: Times and an array, or a frame.
        columns: Names of the values, in order.
        time: The frame's time column, where it cannot be told.
        unit: Of the ticks.
    """
    if not isinstance(given, tuple):
        return _from_frame(given, columns, time, unit)
    times, values = given
    stamps = np.array([stamp(at, unit) for at in times], dtype=np.int64)
    rows = [row_values(row, columns) for row in np.asarray(values)]
    if len(rows) != len(stamps):
        raise DataError(f"the history has {len(stamps)} times and {len(rows)} rows, expected as many of each")
    return stamps, np.array(rows).reshape(len(rows), len(columns))


def _from_frame(history: object, columns: Sequence[str], time: str | None, unit: Unit) -> tuple[Ticks, Floats]:
    """Times and values of a pandas frame."""
    import pandas as pd  # here, so that who has no frame need not have it

    if not isinstance(history, pd.DataFrame):
        raise DataError(f"history is a {type(history).__name__}, expected a pandas DataFrame, or (times, array)")
    for name in columns:
        if name not in history.columns:
            raise DataError(unknown("column", name, [str(column) for column in history.columns], "the history"))
    times = _frame_times(history, time)
    if isinstance(times.dtype, pd.DatetimeTZDtype):
        times = times.dt.tz_convert("UTC").dt.tz_localize(None)
    ticks = np.array([stamp(at, unit) for at in times.to_numpy()], dtype=np.int64)
    values = np.empty((len(history), len(columns)))
    for place, name in enumerate(columns):
        numeric = pd.to_numeric(history[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = (np.isnan(numeric) & history[name].notna().to_numpy()) | np.isinf(numeric)
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"{name} is {history[name].iloc[row]} in row {row} of the history, expected a finite number; "
                "mark it as missing (NaN)"
            )
        values[:, place] = numeric
    return ticks, values


def _frame_times(history: pd.DataFrame, time: str | None) -> pd.Series[pd.Timestamp]:
    """The frame's times: its index, or the column that is named, holds times, or is called like one."""
    import pandas as pd

    if time is None and isinstance(history.index, pd.PeriodIndex):
        return history.index.to_timestamp().to_series()
    if time is None and isinstance(history.index, pd.DatetimeIndex):
        return history.index.to_series()
    names = [str(name) for name in history.columns]
    if time is None:
        dated = [name for name in names if pd.api.types.is_datetime64_any_dtype(history[name].dtype)]
        called = [name for name in names if name.lower() in _TIME_NAMES]
        found = dated if len(dated) == 1 else called
        if len(found) != 1:
            raise DataError(
                f"the history has no DatetimeIndex and {len(found)} columns that look like its times, expected one; "
                "name it: warm_up(history, time=...)"
            )
        time = found[0]
    elif time not in names:
        raise DataError(unknown("time column", time, names, "the history"))
    times = pd.to_datetime(history[time], errors="coerce")
    if times.isna().any():
        row = int(np.flatnonzero(times.isna().to_numpy())[0])
        raise DataError(f"{time} is {history[time].iloc[row]} in row {row} of the history, expected a time")
    return times
