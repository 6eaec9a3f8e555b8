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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from natsr.data.calendar import Floats
from natsr.data.grids import Grid
from natsr.data.ticks import Unit, shown
from natsr.exogenous import Exogenous, Future
from natsr.intake import row_values, stamp, steps_after
from natsr.serve.store import LogRow
from natsr.types import DataError

_FLOATS = np.dtype("<f8")


class Tail(NamedTuple):
    """How far something has come: rows, and the time of the last, in the ticks of the series."""

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
    """Numbers as they are kept; every NaN becomes the same one, so that equal rows have equal bytes."""
    clean = np.where(np.isnan(values), np.nan, values + 0.0)  # and minus zero becomes zero
    return clean.astype(_FLOATS).tobytes()


def unpacked(row: bytes) -> Floats:
    """What `packed` was given."""
    return np.frombuffer(row, dtype=_FLOATS).astype(np.float64)


class Layout:
    """What the numbers of a kept row are: the columns, what else comes with a row, and its plan if one was told.

    Args:
        columns: That are forecast.
        exogenous: That come with a row.
        known: That come with a row and have a plan besides.
        horizon: Rows of a plan.

    Example:
        >>> layout = Layout(["load"], known=["holiday"], horizon=2)
        >>> row = layout.packed({"load": 5.0, "holiday": 0}, {"holiday": [0, 1]})
        >>> layout.values(row).tolist(), layout.future(row)
        ([5.0, 0.0], {'holiday': [0.0, 1.0]})
    """

    def __init__(
        self, columns: Sequence[str], exogenous: Sequence[str] = (), known: Sequence[str] = (), horizon: int = 1
    ) -> None:
        self._outside = Exogenous(columns, exogenous, known, horizon)
        self.columns, self.known = tuple(columns), self._outside.known
        self.names = (*self.columns, *self._outside.names)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Layout:
        """From the settings of a series."""
        more = (settings.get("exogenous") or (), settings.get("known") or ())
        return cls(settings["columns"], *more, horizon=settings["horizon"])

    @property
    def features(self) -> int:
        """Numbers that a network reads of a row beside the columns."""
        return self._outside.width

    def packed(self, values: object, future: Future | None = None) -> bytes:
        """A row as it is kept; a plan that tells nothing is none.

        Raises:
            DataError: It is no row of this series.
        """
        if not isinstance(values, Mapping):
            raise DataError(f"values is {type(values).__name__}, expected an object of numbers by column")
        row, plan = row_values(values, self.names), self._outside.plan(future)
        return packed(row if np.isnan(plan).all() else np.concatenate([row, plan.reshape(-1)]))

    def values(self, row: bytes) -> Floats:
        """The numbers of a kept row by `names`, without its plan.

        Raises:
            DataError: It was kept for another series.
        """
        found = unpacked(row)
        if len(found) not in (len(self.names), len(self.names) + self._outside.horizon * len(self.known)):
            raise DataError(f"a row of the log has {len(found)} numbers, expected {len(self.names)}; was it changed?")
        return found[: len(self.names)]

    def future(self, row: bytes) -> dict[str, list[float]] | None:
        """The plan that was told with a kept row."""
        plan = unpacked(row)[len(self.names) :]
        if not len(plan):
            return None
        return dict(zip(self.known, plan.reshape(-1, len(self.known)).T.tolist(), strict=True))


def offered(
    rows: Iterable[tuple[object, object, Any]], layout: Layout, unit: Unit = "s"
) -> tuple[list[Offered], list[Refused]]:
    """Rows as they came (time, values, plan), read: those that can be used, and those that cannot."""
    good: list[Offered] = []
    bad: list[Refused] = []
    for place, (time, values, future) in enumerate(rows):
        try:
            good.append(Offered(place, _tick(time, unit), layout.packed(values, future)))
        except DataError as error:
            bad.append(Refused(place, str(error)[:500]))
    return good, bad


def _tick(time: object, unit: Unit) -> int:
    if not isinstance(time, str):
        raise DataError(f"time is {type(time).__name__}, expected ISO 8601 text such as 2026-01-31T15:00:00")
    try:
        return stamp(time, unit)
    except (OverflowError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"time is {time[:40]!r}, which no calendar has; expected the years 1 to 9999") from error


def admit(
    rows: Sequence[Offered], tail: Tail, grid: Grid, known: Callable[[list[int]], Mapping[int, bytes]]
) -> Outcome:
    """Decide about every row.

    Args:
        rows: That can be used.
        tail: Of the log.
        grid: Where rows may lie, as the log shows it.
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
                at = shown(row.time, grid.unit)
                refused.append(Refused(row.place, f"row {at} is kept with other values; it was ignored"))
            continue
        try:
            steps_after(row.time, tail.time, grid)
        except DataError as error:
            refused.append(Refused(row.place, str(error)))
            continue
        tail, grid = Tail(tail.seq + 1, row.time), grid.seen(np.array([row.time]))
        taken.append(LogRow(tail.seq, row.time, row.row))
        kept[row.time] = row.row
    return Outcome(taken, duplicates, refused, tail)
