"""Rows as they come on standard input, CSV or JSON lines, one line at a time: a bad line spoils no other."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from natsr.data.written import MISSING, STYLES, check_names, fits, moment, plain, separator
from natsr.types import DataError

FUTURE = "future"  # the plan in a JSON line
VALUES = "values"  # a JSON line may hold its values in here, as those posted to the service do
TIME_NAMES = ("time", "date", "datetime", "timestamp", "ts")


class Line(NamedTuple):
    """A row of the input: its time, and its cells by column."""

    number: int
    time: str
    cells: Mapping[str, str]
    wrong: str | None = None  # why the line is no row at all
    future: Mapping[str, Any] | None = None  # the plan, where it does not come in cells


class Input(NamedTuple):
    """An input whose beginning has been read: its columns, and its rows as they come."""

    header: list[str]
    time: str
    objects: bool
    lines: Iterator[Line]

    @property
    def others(self) -> list[str]:
        """Every column but the time."""
        return [name for name in self.header if name != self.time and not (self.objects and name == FUTURE)]


def opened(time: str | None) -> Input:
    """Standard input after its first line.

    Args:
        time: The time column; else it is the first that is called like one, else the first of all.

    Raises:
        DataError: There is no header.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace")  # a bad byte spoils its own cell only
    texts = enumerate(sys.stdin, 1)
    number, first = next(((n, text) for n, text in texts if text.strip() and not _is_remark(text)), (0, ""))
    objects = first.lstrip().startswith("{")
    if first.lstrip().startswith("["):
        raise DataError(
            "standard input begins with a list, expected CSV, or one JSON object on each line; "
            "jq -c '.[]' makes such lines of a list"
        )
    between = separator(first)
    header = _header(list(_flat(_object(first))) if objects else _cells(first, between))
    found = time or next((name for name in header if name.lower() in TIME_NAMES), header[0])
    if objects:
        return Input(header, found, True, _objects(_again(number, first, texts), found))
    check_names(header, "standard input")
    return Input(header, found, False, _rows(texts, header, found, between))


def cell(text: str, name: str) -> float:
    """A number, or NaN for a missing one."""
    if text.strip().lower() in MISSING:
        return math.nan
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{name} is {text!r}, expected a number, or nothing for missing") from None


def is_number(text: str, name: str) -> bool:
    """Whether the cell can be used."""
    try:
        cell(text, name)
    except DataError:
        return False
    return True


def _is_remark(text: str) -> bool:
    return text.startswith("# ")


def _again(number: int, first: str, texts: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    yield number, first
    yield from texts


def _cells(text: str, between: str) -> list[str]:
    """One line of CSV; by itself, so that a quote that is never closed ends with it."""
    try:
        return next(csv.reader([text.rstrip("\r\n")], delimiter=between, skipinitialspace=True), [])
    except csv.Error as error:
        raise DataError(f"it is no CSV: {error}; expected cells with {between!r} between them") from None


def _header(names: Sequence[str]) -> list[str]:
    """The names of the columns, each once."""
    header = [name.strip() for name in names]
    if not header:
        raise DataError("standard input ended before a header came, expected CSV with the names in its first line")
    if len(set(header)) < len(header):
        raise DataError(f"the header is {','.join(header)}, expected each name once")
    return header


def _rows(texts: Iterator[tuple[int, str]], header: Sequence[str], time: str, between: str) -> Iterator[Line]:
    """Rows of CSV; where no comma separates them, a decimal comma is known from the first row that has one."""
    commas = False
    for number, text in texts:
        try:
            row = _cells(text, between)
        except DataError as error:
            yield Line(number, "", {}, str(error))
            continue
        if not any(part.strip() for part in row):
            continue
        cells = dict(zip(header, row, strict=False))  # a row that is too short misses its last values
        at = moment(cells.pop(time, ""))
        if between != ",":
            commas = commas or any("," in part and fits([part], "comma") for part in cells.values())
            cells = {name: plain(part, STYLES[commas]) for name, part in cells.items()}
        wrong = None
        if len(row) > len(header):
            wrong = f"it has {len(row)} cells, expected {len(header)}: {between.join(header)}"
        yield Line(number, at, cells, wrong)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f'it is no JSON: {error}; expected an object such as {{"time": …, "load": 1.5}}') from None
    if not isinstance(found, dict):
        raise DataError(f"it is a {type(found).__name__}, expected an object with a time and values")
    return found


def _flat(found: dict[str, Any]) -> dict[str, Any]:
    """With what is in `values` beside the rest."""
    inner = found.get(VALUES)
    return (
        {name: value for name, value in found.items() if name != VALUES} | inner if isinstance(inner, dict) else found
    )


def _objects(texts: Iterator[tuple[int, str]], time: str) -> Iterator[Line]:
    """Rows from JSON lines; a column that an object lacks is missing."""
    for number, text in texts:
        if not text.strip():
            continue
        try:
            found = _flat(_object(text))
        except DataError as error:
            yield Line(number, "", {}, str(error))
            continue
        future = found.pop(FUTURE) if isinstance(found.get(FUTURE), dict) else None
        cells = {name: _as_text(value) for name, value in found.items() if name != time}
        yield Line(number, moment(str(found.get(time, ""))), cells, future=future)


def _as_text(value: object) -> str:
    """A JSON value as a cell of CSV; true and false count as 1 and 0."""
    if value is None:
        return ""
    return str(int(value)) if isinstance(value, bool) else str(value)
