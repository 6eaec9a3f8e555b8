"""Rows that come every working day, Monday to Friday: a grid without weekends. Holidays are missing rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from natsr.data.ticks import Unit

Seconds = npt.NDArray[np.int64]
_DAY = 86400


@dataclass(frozen=True)
class Weekdays:
    """A row every day from Monday to Friday, at one time of day; see `natsr.data.grids.Grid`.

    >>> friday = np.array(["2026-01-02T17:00"], "datetime64[s]").astype(np.int64)
    >>> str(Weekdays().after(friday, np.array([1])).astype("datetime64[s]")[0])
    '2026-01-05T17:00:00'
    """

    @property
    def unit(self) -> Unit:
        """Days have whole seconds."""
        return "s"

    @property
    def text(self) -> str:
        """As `freq` has it."""
        return "B"

    @property
    def named(self) -> str:
        """For people."""
        return "working day"

    @property
    def season(self) -> int:
        """A week."""
        return 5

    @property
    def longest(self) -> int:
        """From Friday to Monday."""
        return 3 * _DAY

    @property
    def settled(self) -> bool:
        """No row can tell more."""
        return True

    def seen(self, seconds: Seconds) -> Self:
        """The same."""
        del seconds
        return self

    def fits(self, seconds: int) -> bool:
        """Whether it is no weekend."""
        return bool(np.is_busday(np.datetime64(seconds, "s").astype("datetime64[D]")))

    def steps(self, first: int, later: int) -> int | None:
        """Working days between them, if both are one and have the same time of day."""
        places = self.places(np.array([first, later]))
        return None if places is None else int(places[1])

    def after(self, seconds: Seconds, steps: Seconds) -> Seconds:
        """So many working days later."""
        days, clock = _split(seconds)
        found: Seconds = np.busday_offset(days, steps, roll="forward").astype(np.int64) * _DAY + clock
        return found

    def places(self, seconds: Seconds) -> Seconds | None:
        """Working days since the first."""
        days, clock = _split(seconds)
        places = np.busday_count(days[0], days)
        on = np.is_busday(days).all() and (clock == clock[0]).all() and (np.diff(seconds) > 0).all()
        return places if on else None

    def wrong(self, seconds: int, last: int | None) -> str:
        """What is wrong with a row that is off the grid, for a message."""
        if not self.fits(seconds):
            return "is on a weekend, expected a day from Monday to Friday"
        assert last is not None  # the first row may lie on any other day
        near = self.after(np.array([last]), np.array([1])).astype("datetime64[s]")[0]
        return f"is off the grid of one row every {self.named}, expected {near} or a later day at that time"


def _split(seconds: Seconds) -> tuple[npt.NDArray[np.datetime64], Seconds]:
    """Days, and seconds of the day."""
    days = seconds // _DAY
    return days.astype("datetime64[D]"), seconds - days * _DAY
