"""Forecasts and rows as JSON: times as ISO 8601, numbers by column, `null` where there is none."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natsr.data.calendar import Floats
from natsr.data.grids import Grid
from natsr.data.ticks import Unit, shown, tick_of
from natsr.live import LiveForecast, numbers, pairs
from natsr.serve.admit import Layout
from natsr.serve.store import ForecastRow, LogRow

#: The level of the intervals that are kept to be compared with what came.
KEPT_LEVEL = 0.9


def kept(forecast: LiveForecast, health: dict[str, Any]) -> ForecastRow:
    """The forecast as it is kept."""
    low, high = forecast.intervals[KEPT_LEVEL]
    with np.errstate(over="ignore"):
        stacked = np.stack([forecast.mean, low, high]).astype("<f4")
    return ForecastRow(tick_of(forecast.origin), stacked.tobytes(), json.dumps(health))


def kept_numbers(row: ForecastRow, channels: int) -> npt.NDArray[np.float32]:
    """What `kept` kept: `(3, H, C)`, mean, low and high."""
    return np.frombuffer(row.numbers, dtype="<f4").reshape(3, -1, channels)


def past_answer(row: ForecastRow, columns: Sequence[str], grid: Grid) -> dict[str, Any]:
    """A kept forecast in the form in which a new one is sent."""
    mean, low, high = kept_numbers(row, len(columns))
    times = grid.after(np.array([row.origin]), np.arange(1, len(mean) + 1))
    return {
        "origin": shown(row.origin, grid.unit),
        "times": [shown(time, grid.unit) for time in times.tolist()],
        "mean": {name: numbers(mean[:, place]) for place, name in enumerate(columns)},
        "intervals": {
            f"{KEPT_LEVEL:g}": {name: pairs(low[:, place], high[:, place]) for place, name in enumerate(columns)}
        },
    }


def row_answer(row: LogRow, layout: Layout, unit: Unit) -> dict[str, Any]:
    """A kept row in the form in which rows are posted."""
    found: dict[str, Any] = {"time": shown(row.time, unit), "values": by_column(layout.values(row.row), layout.names)}
    if (future := layout.future(row.row)) is not None:
        found["future"] = {name: numbers(np.array(plan)) for name, plan in future.items()}
    return found


def by_column(values: Floats, columns: Sequence[str]) -> dict[str, float | None]:
    """A row by name."""
    return dict(zip(columns, numbers(values), strict=True))


def plain(health: Mapping[str, object]) -> dict[str, Any]:
    """A health reading as JSON has it."""
    return {name: _plain(value) for name, value in health.items()}


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return plain(value)
    return str(value)
