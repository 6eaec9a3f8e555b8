"""Which row is new, a duplicate, or refused; decided before anything is written, and by the log alone.

The rules:

- The rows of one request are taken in the order of their times.
- A row later than every row kept, by a whole number of steps, is new.
- A row whose time is kept with the same values is a duplicate: it is counted, and changes nothing. So a request can be
  sent again whenever its answer was lost.
- A row whose time is kept with other values is refused: what was learned cannot be unlearned.
- Any other row that is not later than the last one is late, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from natsr.data.calendar import Floats
from natsr.intake import row_values, shown, stamp, steps_after
from natsr.serve.store import LogRow
from natsr.types import DataError

_FLOATS = np.dtype("<f8")


class Tail(NamedTuple):
    """How far something has come: rows, and the time of the last."""

    seq: int = 0
    time: int | None = None


class Offered(NamedTuple):
    """A row that may be taken: its place in the request, and what is in it."""

    place: int
    time: int
    row: bytes


class Refused(NamedTuple):
    """A row that was not taken."""

    place: int
    reason: str


class Outcome(NamedTuple):
    """What became of a request."""

    taken: list[LogRow]
    duplicates: int
    refused: list[Refused]
    tail: Tail


def packed(values: Floats) -> bytes:
    """A row as it is kept; every NaN becomes the same one, so that equal rows have equal bytes."""
    clean = np.where(np.isnan(values), np.nan, values + 0.0)  # and minus zero becomes zero
    return clean.astype(_FLOATS).tobytes()


def unpacked(row: bytes) -> Floats:
    """What `packed` was given."""
    return np.frombuffer(row, dtype=_FLOATS).astype(np.float64)


def offered(rows: Sequence[tuple[object, object]], columns: Sequence[str]) -> tuple[list[Offered], list[Refused]]:
    """Rows as they came, read: those that can be used, and those that cannot."""
    good: list[Offered] = []
    bad: list[Refused] = []
    for place, (time, values) in enumerate(rows):
        try:
            if not isinstance(values, Mapping):
                raise DataError(f"values is {type(values).__name__}, expected an object of numbers by column")
            good.append(Offered(place, _seconds(time), packed(row_values(values, columns))))
        except DataError as error:
            bad.append(Refused(place, str(error)[:500]))
    return good, bad


def _seconds(time: object) -> int:
    if not isinstance(time, str):
        raise DataError(f"time is {type(time).__name__}, expected ISO 8601 text such as 2026-01-31T15:00:00")
    try:
        return stamp(time)
    except (OverflowError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"time is {time[:40]!r}, which no calendar has; expected the years 1 to 9999") from error


def admit(rows: Sequence[Offered], tail: Tail, step: int, known: Callable[[list[int]], Mapping[int, bytes]]) -> Outcome:
    """Decide about every row.

    Args:
        rows: That can be used.
        tail: Of the log.
        step: Seconds between rows.
        known: Looks times up in the log.
    """
    rows = sorted(rows, key=lambda row: row.time)
    old = [row.time for row in rows if tail.time is not None and row.time <= tail.time]
    kept = dict(known(old)) if old else {}
    taken: list[LogRow] = []
    refused: list[Refused] = []
    duplicates = 0
    for row in rows:
        if row.time in kept:
            if kept[row.time] == row.row:
                duplicates += 1
            else:
                refused.append(Refused(row.place, f"row {shown(row.time)} is kept with other values; it was ignored"))
            continue
        try:
            if tail.time is not None:
                steps_after(row.time, tail.time, step)
        except DataError as error:
            refused.append(Refused(row.place, str(error)))
            continue
        tail = Tail(tail.seq + 1, row.time)
        taken.append(LogRow(tail.seq, row.time, row.row))
        kept[row.time] = row.row
    return Outcome(taken, duplicates, refused, tail)
