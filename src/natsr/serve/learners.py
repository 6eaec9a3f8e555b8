"""The threads that learn: the log's rows, in order, one thread at a time for each series.

Learning is a function of the log and of nothing else: every row is observed alone and in order, whether it came alone
or with a thousand others, before a crash or after it. Each thread has a place where its learners live, usually a
process of its own, and a lane of series that wait for it (`lanes`). A series gives way after a slice of rows, and
between two rows to a question about any series of the lane. Learners that were not used for longest leave memory when
there are too many; a snapshot and the rows after it bring them back.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time as clock
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

import numpy as np
import torch
from sqlalchemy.exc import SQLAlchemyError

from natsr.data.ticks import shown, tick_of
from natsr.serve.admit import Tail
from natsr.serve.answers import by_column, kept
from natsr.serve.events import Bus
from natsr.serve.faults import ApiError
from natsr.serve.journal import Journal
from natsr.serve.lanes import Lane, Lanes
from natsr.serve.learner import Here, Learner, LostError, Workshop
from natsr.serve.meters import Meters
from natsr.serve.series import Series, Task, Waiter
from natsr.serve.settings import ServeSettings
from natsr.serve.snapshots import Snapshots
from natsr.serve.store import LogRow, Store
from natsr.types import DataError, NatsrError, StateError

T = TypeVar("T")
log = logging.getLogger(__name__)

#: Rows and seconds after which a series gives way to the next.
SLICE_ROWS, SLICE_SECONDS = 64, 0.25
#: Forecasts that are written together, and that wait at most if they cannot be.
TOGETHER, MOST = 64, 500
#: Seconds between two looks for snapshots that are due, and the longest wait after repeated failures.
TICK, LONGEST_RETRY = 0.5, 60.0
#: Seconds to wait for the journal before a snapshot is given up.
PATIENCE = 60.0


class Learners:
    """A pool of threads; `start` and `stop` it."""

    def __init__(
        self,
        parts: tuple[Store, Journal, Snapshots],
        bus: Bus,
        meters: Meters,
        settings: ServeSettings,
        workshops: Sequence[Workshop] = (),
    ) -> None:
        self._store, self._journal, self._snapshots = parts
        self._bus, self._meters, self._settings = bus, meters, settings
        self._lanes = Lanes(workshops or [Here()] * settings.workers)
        self._lock = self._lanes.lock
        self._resident: OrderedDict[str, Series] = OrderedDict()
        self._failed: set[Series] = set()
        self._looked = 0.0
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, args=(lane,), name=f"natsr-learner-{number}", daemon=True)
            for number, lane in enumerate(self._lanes.every)
        ]

    def start(self) -> None:
        """Begin to learn."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the rows in hand; take a snapshot of everything that the last one has not seen."""
        with self._lock:
            self._stopping = True
            self._lanes.wake_all()
        for thread in self._threads:
            thread.join()
        for series in list(self._resident.values()):
            self._keep(series)
            self._let_go(series)
            self._dismiss(series, _gone(series))
        self._resident.clear()

    @property
    def resident(self) -> int:
        """Learners in memory."""
        return len(self._resident)

    @property
    def failed(self) -> int:
        """Series whose learning has failed and is tried again."""
        return len(self._failed)

    def wake(self, series: Series) -> None:
        """Rows have come."""
        with self._lock:
            self._lanes.queue(series)

    def ask(self, series: Series, question: Callable[[Learner], T]) -> Future[T]:
        """Ask the learner something that does not change it; answered between two rows."""
        future: Future[T] = Future()

        def run(live: Learner) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(question(live))
                except NatsrError as error:
                    future.set_exception(error)

        def fail(error: Exception) -> None:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

        with self._lock:
            if series.failure is not None:
                fail(_unwell(series))
            elif self._stopping or series.deleted:
                fail(_gone(series))
            else:
                series.tasks.append(Task(run, fail))
                self._lanes.queue(series)
        return future

    def wait(self, series: Series, seq: int) -> Future[None]:
        """Until so many rows of the log are learned."""
        future: Future[None] = Future()
        with self._lock:
            if series.sure and series.learned.seq >= seq:
                future.set_result(None)
            else:
                series.waiters = [one for one in series.waiters if not one.future.cancelled()] + [Waiter(seq, future)]
                self._lanes.queue(series)
        return future

    def forget(self, series: Series) -> None:
        """The series is deleted."""
        with self._lock:
            series.deleted = True
            self._failed.discard(series)
            self._lanes.queue(series)

    def _run(self, lane: Lane) -> None:
        torch.set_num_threads(1)  # the matrices are small, and the same number of threads gives the same last bit
        while (series := self._next(lane)) is not None:
            try:
                self._turn(series, lane)
                self._well(series)
            except LostError as error:
                log.error("%s; its series go on in this process", error)
                lane.workshop = Here()
                self._fail(series, error)
            except Exception as error:
                log.exception("learning series %s failed; it is tried again", series.key)
                self._fail(series, error)
            self._release(series)
            self._make_room()

    def _next(self, lane: Lane) -> Series | None:
        with self._lock:
            while True:
                if self._stopping:
                    return None
                self._look()
                if (series := self._lanes.next(lane)) is not None:
                    return series
                lane.changed.wait(TICK)

    def _look(self) -> None:
        """Give a turn to what is due by the clock: a snapshot, or another try."""
        now = clock.monotonic()
        if now - self._looked < TICK:
            return
        self._looked = now
        for series in list(self._failed):
            if now >= series.retry_at:
                self._lanes.queue(series)
        for series in self._resident.values():
            late = series.dirty_since and now - series.dirty_since > self._settings.snapshot_seconds
            if late and now >= self._lanes.of(series).rest_until:
                self._lanes.queue(series)

    def _release(self, series: Series) -> None:
        with self._lock:
            series.busy = False
            if series.live is not None:
                self._resident[series.id] = series
                self._resident.move_to_end(series.id)
            else:
                self._resident.pop(series.id, None)
                self._lanes.leave(series)
            if series.tasks or (series.live is not None if series.deleted else series.pending):
                self._lanes.queue(series)
        if series.waiters:  # who began to wait while the last row was learned
            self._tell(series)

    def _well(self, series: Series) -> None:
        if series.failure is not None:
            with self._lock:
                series.failures, series.failure, series.retry_at = 0, None, 0.0
                self._failed.discard(series)

    def _dismiss(self, series: Series, error: Exception) -> None:
        """Tell everyone who waits for an answer that there is none."""
        with self._lock:
            tasks, waiters = list(series.tasks), list(series.waiters)
            series.tasks.clear()
            series.waiters = []
        for task in tasks:
            task.fail(error)
        for one in waiters:
            if one.future.set_running_or_notify_cancel():
                one.future.set_exception(error)

    def _fail(self, series: Series, error: Exception) -> None:
        """Begin again from the snapshot, a little later each time."""
        with self._lock:
            series.failures += 1
            series.retry_at = clock.monotonic() + min(LONGEST_RETRY, 0.5 * 2 ** min(series.failures, 10))
            series.failure = f"{type(error).__name__}: {error}"[:300]
            series.learned = Tail(series.snapshot, None)
            self._failed.add(series)
        self._let_go(series)
        self._dismiss(series, _unwell(series))
        self._meters.learn_failures.inc()

    # ---- one turn ------------------------------------------------------------------------------------------------

    def _turn(self, series: Series, lane: Lane) -> None:
        if series.deleted:
            self._let_go(series)
            series.unsaved = []
            self._snapshots.drop(series.id)
            self._dismiss(series, _gone(series))
            return
        live = series.live = series.live or self._load(series, lane.workshop)
        self._answer(series, live)
        until = clock.monotonic() + SLICE_SECONDS
        rows = self._store.rows_after(series.id, series.learned.time, SLICE_ROWS) if series.pending else []
        if series.pending and not rows:
            raise StateError(f"the log of {series.key} lacks row {series.tail.seq}, which it had; was it replaced?")
        for row in rows:
            self._learn(series, live, row)
            self._answer(series, live)
            if self._stopping or lane.urgent or clock.monotonic() > until:
                break
        if len(series.unsaved) >= TOGETHER:
            self._flush(series)
        if self._due(series, lane):
            started = clock.monotonic()
            self._keep(series)
            lane.rest(clock.monotonic() - started)

    def _load(self, series: Series, workshop: Workshop) -> Learner:
        """From the snapshot if there is one that the log agrees with, or from the beginning."""
        live = self._snapshots.get(series.id, workshop)
        series.learned = Tail()
        if live is not None:
            origin = tick_of(live.forecast().origin)
            seq = self._store.seq_at(series.id, origin)
            if seq is None:
                log.warning("the snapshot of %s has seen rows that the log lacks; all is learned again", series.key)
                live.leave()
                live = None
            else:
                series.learned = Tail(seq, origin)
                series.latest, series.health = live.forecast(), live.health()
        series.snapshot, series.sure = series.learned.seq, True
        self._tell(series)
        self._meters.loads.inc()
        return live if live is not None else workshop.fresh(series.row.settings)

    def _learn(self, series: Series, live: Learner, row: LogRow) -> None:
        started = clock.perf_counter()
        try:
            live.observe(row.time, row.row)
        except DataError as error:  # whoever wrote the log has checked it, so this is a change of the rules
            log.error("row %s of series %s was not learned: %s", row.time, series.key, error)
            self._meters.unlearned.inc()
        self._meters.learn_seconds.observe(clock.perf_counter() - started)
        forecast, health = live.forecast(), live.health()
        series.latest, series.health = forecast, health
        with self._lock:
            series.unsaved = [*series.unsaved[-MOST:], kept(forecast, health)]
        series.learned = Tail(row.seq, row.time)
        series.dirty_since = series.dirty_since or clock.monotonic()
        if series.waiters:
            self._tell(series)
        if self._bus.watched(series.key):
            news = {"key": series.key, "seq": row.seq, "time": shown(row.time, series.unit)}
            values = by_column(series.layout.values(row.row), series.layout.names)
            more = {"values": values, "pending": series.pending, "health": health, "forecast": forecast.plain()}
            self._bus.publish(series.key, {**news, **more})

    def _tell(self, series: Series) -> None:
        with self._lock:
            reached = [one for one in series.waiters if one.seq <= series.learned.seq]
            series.waiters = [one for one in series.waiters if one.seq > series.learned.seq]
        for one in reached:
            if one.future.set_running_or_notify_cancel():
                one.future.set_result(None)

    def _answer(self, series: Series, live: Learner) -> None:
        while series.tasks:
            series.tasks.popleft().run(live)

    # ---- what is kept --------------------------------------------------------------------------------------------

    def _due(self, series: Series, lane: Lane) -> bool:
        new, now = series.learned.seq - series.snapshot, clock.monotonic()
        waited = series.dirty_since and now - series.dirty_since > self._settings.snapshot_seconds
        return new >= self._settings.snapshot_rows or bool(new and waited and now >= lane.rest_until)

    def _flush(self, series: Series) -> Future[None]:
        """Have the forecasts written that are not yet."""
        rows = tuple(series.unsaved)

        def written(_: None) -> None:
            with self._lock:
                series.unsaved = [row for row in series.unsaved if row.origin > rows[-1].origin]

        return self._journal.submit(
            lambda connection: None if series.deleted else self._store.add_forecasts(connection, series.id, rows),
            written,
            patient=True,
        )

    def _keep(self, series: Series) -> None:
        """Take a snapshot; if it cannot be, the log has everything, and the next one is tried later."""
        live, seq, time = series.live, series.learned.seq, series.learned.time
        if live is None or time is None or seq <= series.snapshot:
            return
        try:
            if series.unsaved:  # first: a replay after the snapshot would not make these again
                self._flush(series).result(PATIENCE)
            self._snapshots.put(series.id, live)
        except (StateError, LostError, ApiError, TimeoutError, OSError, SQLAlchemyError) as error:
            log.error("no snapshot of series %s: %s", series.key, error)
            self._missed(series)
            return
        except Exception:
            log.exception("no snapshot of series %s, by a mistake of ours", series.key)
            self._missed(series)
            return
        series.snapshot, series.dirty_since = seq, 0.0
        self._meters.snapshots.inc()
        health, now = json.dumps(series.health), np.array([time])
        oldest = int(series.grid.seen(now).after(now, np.array([-self._settings.history]))[0])
        with contextlib.suppress(ApiError):  # a note that is missing costs a look at the next start
            self._journal.submit(
                lambda connection: self._store.note_snapshot(connection, series.id, seq, health, oldest), patient=True
            )

    def _missed(self, series: Series) -> None:
        self._meters.snapshot_failures.inc()
        series.dirty_since = clock.monotonic()  # not again at once

    def _make_room(self) -> None:
        """Let the learners go that were not used for longest, until there are no more than allowed."""
        while True:
            with self._lock:
                over = len(self._resident) - self._settings.resident
                idle = (one for one in self._resident.values() if not one.busy and not one.queued)
                series = next(idle, None) if over > 0 else None
                if series is None:
                    return
                series.busy = True
            self._keep(series)
            self._let_go(series)
            self._meters.evictions.inc()
            self._release(series)

    def _let_go(self, series: Series) -> None:
        """Let the learner leave memory."""
        live, series.live = series.live, None
        if live is not None:
            with contextlib.suppress(LostError):  # then it has left already
                live.leave()


def _gone(series: Series) -> ApiError:
    return ApiError(404, f"series {series.key!r} is gone", "a series that is there", "create it with PUT")


def _unwell(series: Series) -> ApiError:
    hint = "no row is lost; it is tried again, and the service's log says more"
    return ApiError(503, f"learning has failed: {series.failure}", "a healthy learner", hint)
