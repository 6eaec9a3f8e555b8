"""One series in memory: what is known of it whether or not its learner is."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from natsr.data.grids import Grid, grid_of
from natsr.data.ticks import Unit
from natsr.live import LiveForecast
from natsr.serve.admit import Layout, Tail
from natsr.serve.learner import Learner
from natsr.serve.store import ForecastRow, SeriesRow

#: What `Live.health` says.
Health = dict[str, Any]


class Waiter(NamedTuple):
    """Somebody who waits until so many rows are learned."""

    seq: int
    future: Future[None]


class Task(NamedTuple):
    """A question to the learner, and how to tell who asked that there is no answer."""

    run: Callable[[Learner], None]
    fail: Callable[[Exception], None]


@dataclass(eq=False)
class Series:
    """What is known of a series.

    The learner in `live` belongs to the thread that has set `busy`, and to nobody else. Counters are replaced, never
    changed, so that they can be read at any time.

    Args:
        row: As it is kept.
        tail: How far the log has come, as far as it has been acknowledged.
        draft: The same as the journal's thread knows it; `None` if it must look.
        learned: How far learning has come.
        sure: Whether the learner itself has said so; until it has been in memory, only a note says how far it is.
        snapshot: Rows that the newest snapshot has seen.
        live: The learner, if it is in memory.
        home: Which of the threads it belongs to meanwhile.
        latest: The newest forecast, at the usual levels.
        health: After the last row learned.
        unsaved: Forecasts made that are not in the database yet.
        tasks: Questions to the learner, answered between two rows.
        waiters: Who waits for rows to be learned.
        leaving: The journal is about to delete it; `deleted`: it has.
        dirty_since: When the first row came that the newest snapshot has not seen; 0 if there is none.
        retry_at: When to try again after a failure; 0 if there was none.
        failure: What went wrong.
        grid: Where rows may lie, as the settings say it and, once it is settled, rows that are on the disk.
    """

    row: SeriesRow
    tail: Tail
    draft: Tail | None
    learned: Tail
    snapshot: int
    health: Health
    live: Learner | None = None
    home: int | None = None
    latest: LiveForecast | None = None
    unsaved: list[ForecastRow] = field(default_factory=list)
    tasks: deque[Task] = field(default_factory=deque)
    waiters: list[Waiter] = field(default_factory=list)
    sure: bool = False
    queued: bool = False
    busy: bool = False
    leaving: bool = False
    deleted: bool = False
    dirty_since: float = 0.0
    retry_at: float = 0.0
    failures: int = 0
    failure: str | None = None
    layout: Layout = field(init=False)
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        self.layout = Layout.of(self.row.settings)
        self.grid = grid_of(self.row.settings["freq"])

    @classmethod
    def of(cls, row: SeriesRow) -> Series:
        """As it comes from the database; the learner is not in memory."""
        tail = Tail(row.seq, row.time)
        return cls(row, tail, tail, Tail(row.snapshot_seq, None), row.snapshot_seq, row.health)

    @property
    def id(self) -> str:
        """Never used again, unlike the key."""
        return self.row.id

    @property
    def columns(self) -> tuple[str, ...]:
        """That are forecast."""
        return self.layout.columns

    @property
    def key(self) -> str:
        """What people call it."""
        return self.row.key

    @property
    def unit(self) -> Unit:
        """What its times are counted in."""
        return self.grid.unit

    @property
    def pending(self) -> int:
        """Rows kept but not yet learned."""
        return max(0, self.tail.seq - self.learned.seq)
