"""Whose turn it is: one lane of waiting series for each thread that learns.

A series belongs to one lane as long as its learner is in memory, for that is where the learner lives. Questions come
before rows. Everything here is called with the lock held.
"""

from __future__ import annotations

import threading
import time as clock
from collections import deque
from collections.abc import Sequence

from natsr.serve.learner import Workshop
from natsr.serve.series import Series


class Lane:
    """The series of one thread that wait for their turn.

    Args:
        workshop: Where its learners live.
        lock: Of all lanes.
    """

    def __init__(self, workshop: Workshop, lock: threading.RLock) -> None:
        self.workshop = workshop
        self.changed = threading.Condition(lock)
        self.urgent: deque[Series] = deque()
        self.ready: deque[Series] = deque()
        self.homes = 0  # series that belong to it now
        self.rest_until = 0.0  # no snapshot is taken by the clock before

    def rest(self, seconds: float) -> None:
        """A snapshot took so long. Those of many series may be due at once; they take a tenth of the time at most."""
        self.rest_until = clock.monotonic() + 9 * seconds


class Lanes:
    """All of them, under one lock."""

    def __init__(self, workshops: Sequence[Workshop]) -> None:
        self.lock = threading.RLock()
        self.every = [Lane(workshop, self.lock) for workshop in workshops]

    def of(self, series: Series) -> Lane:
        """Where it belongs; one that belongs nowhere goes where the fewest are."""
        if series.home is None:
            series.home = min(range(len(self.every)), key=lambda number: self.every[number].homes)
            self.every[series.home].homes += 1
        return self.every[series.home]

    def leave(self, series: Series) -> None:
        """Its learner has left memory: it belongs nowhere."""
        if series.home is not None:
            self.every[series.home].homes -= 1
            series.home = None

    def queue(self, series: Series) -> None:
        """Have its turn come."""
        if series.queued or series.busy:
            lane = self.of(series)
            if series.tasks and series.queued and series not in lane.urgent:
                lane.urgent.append(series)  # and again, later, in the other queue: then it has nothing to do
            return
        if series.retry_at > clock.monotonic():
            return
        series.queued = True
        lane = self.of(series)
        (lane.urgent if series.tasks or series.deleted else lane.ready).append(series)
        lane.changed.notify()

    def next(self, lane: Lane) -> Series | None:
        """The series whose turn it is in this lane, which is busy from now on; `None` if none waits."""
        while queue := lane.urgent or lane.ready:
            series = queue.popleft()
            if series.queued and not series.busy and self.of(series) is lane:
                series.queued, series.busy = False, True
                return series
        return None

    def wake_all(self) -> None:
        """Something concerns every thread."""
        for lane in self.every:
            lane.changed.notify_all()
