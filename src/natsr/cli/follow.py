"""`natsr run -`: rows as they arrive on standard input, a forecast for each on standard output.

The input is CSV with a header. The output is one line of JSON for each row, written at once: the forecast as `origin`,
`times`, `mean` and `intervals`, or, for a row that cannot be used, its `time` and why it was `refused`; then the stream
goes on.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple

import torch
import typer

from natsr.cli import given
from natsr.cli.run import Run
from natsr.cli.show import note
from natsr.data.series import unknown
from natsr.intake import stamp
from natsr.live import Live, LiveForecast
from natsr.types import DataError, OptionError

MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
TIME_NAMES = ("time", "date", "datetime", "timestamp", "ts")


class Line(NamedTuple):
    """A row of the input: its time, and its cells by column."""

    number: int
    time: str
    cells: Mapping[str, str]


def follow(settings: Run) -> None:
    """Do what the settings say."""
    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    check(settings)
    columns, lines = opened(settings)
    note(f"forecasting {', '.join(columns)}, {settings.horizon} rows ahead")
    live: Live | None = None
    waiting: list[Line] = []
    for line in lines:
        waiting.append(line)
        if live is None:
            freq = settings.freq or step_between(waiting)
            if freq is None:
                continue  # the first row is answered when the second has shown how far apart they are
            live = made(settings, columns, freq)
        for taken in waiting:
            typer.echo(json.dumps(answered(live, taken), allow_nan=False))
            sys.stdout.flush()
        waiting.clear()
    if waiting:
        raise DataError(
            f"standard input ended after {len(waiting)} row(s) with a time, which do not tell how far apart rows are; "
            "say it with --freq"
        )


def check(settings: Run) -> None:
    """Refuse what means nothing for a stream, and what cannot be, before the first row is waited for."""
    for name in ("methods", "rows", "out"):
        if getattr(settings, name) is not None:
            raise OptionError(f"--{name} was given with -, expected a file to go with it; a stream has one --method")
    if settings.device != "cpu":
        raise OptionError(f"--device is {settings.device!r}, expected cpu with -")
    made(settings, ["any"], settings.freq or "h")


def made(settings: Run, columns: Sequence[str], freq: str | timedelta) -> Live:
    """The forecaster that follows the stream."""
    method = settings.method or "auto"
    options = settings.settings(method, [method])
    return Live(columns, settings.horizon, freq, method, settings.window, settings.protocol, settings.seed, options)


def opened(settings: Run) -> tuple[list[str], Iterator[Line]]:
    """The columns to forecast, and the rows as they come.

    Raises:
        DataError: There is no header, or it lacks a column that was asked for.
    """
    reader = csv.reader(sys.stdin)
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise DataError("standard input ended before a header came, expected CSV with the names in its first line")
    if len(set(header)) < len(header):
        raise DataError(f"the header is {','.join(header)}, expected each name once")
    time = settings.time or next((name for name in header if name.lower() in TIME_NAMES), header[0])
    if time not in header:
        raise DataError(unknown("time column", time, header, "the header"))
    others = [name for name in header if name != time]
    lines = _lines(reader, header, time, others)
    if settings.target == "all":
        first = next(lines, None)
        if first is None:
            raise DataError("standard input ended after its header, expected rows to follow")
        columns = [name for name in others if _is_number(first.cells[name], name)]
        if len(columns) < len(others):
            note(f"left out, for they hold text: {', '.join(name for name in others if name not in columns)}")
        lines = chain([first], lines)
    else:
        columns = list(given.names(settings.target, "target"))
    for name in columns:
        if name not in others:
            raise DataError(unknown("target", name, others, "the header"))
    if not columns:
        raise DataError(f"the header is {','.join(header)}, expected a column of numbers beside {time}")
    return columns, lines


def _lines(rows: Iterator[list[str]], header: Sequence[str], time: str, others: Sequence[str]) -> Iterator[Line]:
    for number, row in enumerate(rows, 2):
        if row:
            cells = dict(zip(header, row, strict=False))  # a row that is too short misses its last values
            yield Line(number, cells.get(time, ""), {name: cells.get(name, "") for name in others})


def _is_number(text: str, name: str) -> bool:
    try:
        cell(text, name)
    except DataError:
        return False
    return True


def step_between(lines: Sequence[Line]) -> timedelta | None:
    """The time between the first two rows that have one."""
    times = []
    for line in lines:
        try:
            times.append(stamp(line.time))
        except DataError:
            continue
    later = [time for time in times[1:] if time > times[0]]
    return timedelta(seconds=later[0] - times[0]) if later else None


def answered(live: Live, line: Line) -> dict[str, Any]:
    """Let it take the row, and say what it expects next; or why it did not take it."""
    try:
        live.observe(line.time, {name: cell(line.cells[name], name) for name in live.columns})
        return answer(live.forecast())
    except DataError as error:
        return {"time": line.time, "refused": f"line {line.number}: {error}"}


def cell(text: str, name: str) -> float:
    """A number, or NaN for a missing one."""
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{name} is {text!r}, expected a number, or nothing for missing") from None


def answer(forecast: LiveForecast) -> dict[str, Any]:
    """The forecast in the form in which the service answers; null where there is no number."""
    return {
        "origin": str(forecast.origin),
        "times": [str(time) for time in forecast.times],
        "mean": {name: _numbers(forecast.mean[:, place]) for place, name in enumerate(forecast.columns)},
        "intervals": {
            f"{level:g}": {
                name: [list(pair) for pair in zip(_numbers(low[:, place]), _numbers(high[:, place]), strict=True)]
                for place, name in enumerate(forecast.columns)
            }
            for level, (low, high) in forecast.intervals.items()
        },
    }


def _numbers(values: Any) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]
