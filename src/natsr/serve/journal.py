"""The one writer: what many requests want written goes into one transaction, and is answered once it is on the disk.

A transaction that fails is tried again job by job, so that one bad job does not fail its neighbours. Whatever was
remembered of the log's end is read again after a failure, for a commit whose answer was lost may have happened.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from natsr.serve.faults import ApiError, StorageError, storage_error
from natsr.serve.store import Store

T = TypeVar("T")
log = logging.getLogger(__name__)

#: Jobs that may wait, and jobs in one transaction.
WAITING, TOGETHER = 2000, 200


@dataclass(frozen=True, eq=False)
class Job:
    """Something to write.

    Args:
        wanted: Whether somebody still waits for it.
        write: Writes, inside the transaction, and gives back what is to be done once that is on the disk.
        lost: Called if the transaction failed, so that what is remembered of the log can be forgotten.
        fail: Tells the one who asked.
    """

    wanted: Callable[[], bool]
    write: Callable[[Connection], Callable[[], None]]
    lost: Callable[[], None]
    fail: Callable[[BaseException], None]


def nothing() -> None:
    """Nothing is to be forgotten."""


class Journal:
    """A thread that writes; `close` it."""

    def __init__(self, store: Store, failed: Callable[[], None] = nothing) -> None:
        self._store, self._failed = store, failed
        self._jobs: queue.Queue[Job | None] = queue.Queue(WAITING)
        self._connection: Connection | None = store.writer()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="natsr-journal", daemon=True)
        self._thread.start()

    def submit(
        self,
        apply: Callable[[Connection], T],
        done: Callable[[T], None] = lambda _: None,
        lost: Callable[[], None] = nothing,
        *,
        patient: bool = False,
    ) -> Future[T]:
        """Have something written.

        Args:
            apply: Writes; it is called again if the transaction failed. It raises errors of the client before it has
                written anything.
            done: Called with its result once that is on the disk, in the writer's thread and in order.
            lost: Called if it failed.
            patient: Wait for a place in the queue instead of refusing when there is none.

        Raises:
            ApiError: Too much is waiting, or the service is stopping.
        """
        if self._closed:
            raise ApiError(503, "the service is stopping", "a running service", "try again later")
        future: Future[T] = Future()

        def write(connection: Connection) -> Callable[[], None]:
            result = apply(connection)

            def finish() -> None:
                try:
                    done(result)
                finally:
                    future.set_result(result)  # it is on the disk, whatever else went wrong

            return finish

        try:
            self._jobs.put(Job(future.set_running_or_notify_cancel, write, lost, future.set_exception), block=patient)
        except queue.Full:
            raise ApiError(
                429, f"{WAITING} requests wait to be written", "fewer at once", "try again", {"Retry-After": "1"}
            ) from None
        return future

    def close(self) -> None:
        """Write what waits, and stop."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self) -> None:
        stopping = False
        while not stopping:
            batch = [self._jobs.get()]
            while len(batch) < TOGETHER:
                try:
                    batch.append(self._jobs.get_nowait())
                except queue.Empty:
                    break
            stopping = None in batch
            jobs = [job for job in batch if job is not None and job.wanted()]
            if jobs:
                self._write(jobs)

    def _write(self, jobs: list[Job]) -> None:
        """All in one transaction; or, if that fails, each in its own."""
        try:
            finished = self._transaction(jobs)
        except StorageError as error:
            for job in jobs:
                job.lost()
            if len(jobs) == 1:
                self._failed()
                log.error("could not write: %s", error.error)
                jobs[0].fail(error)
            else:
                for job in jobs:
                    self._write([job])
            return
        for finish in finished:
            try:
                finish()
            except Exception:
                log.exception("what follows a write went wrong, by a mistake of ours")

    def _transaction(self, jobs: list[Job]) -> list[Callable[[], None]]:
        finished: list[Callable[[], None]] = []
        refused: list[tuple[Job, ApiError]] = []
        try:
            if self._connection is None:
                self._connection = self._store.writer()
            with self._connection.begin():
                for job in jobs:
                    try:
                        finished.append(job.write(self._connection))
                    except ApiError as error:
                        refused.append((job, error))
        except StorageError:
            raise  # there is no connection to be had
        except (SQLAlchemyError, OSError) as error:
            self._drop()
            raise storage_error(error) from error
        except Exception as error:
            log.exception("a write went wrong, by a mistake of ours")
            self._drop()
            raise StorageError(500, "it could not be written, by a mistake of ours", "", "please report it") from error
        for job, reason in refused:
            job.fail(reason)
        return finished

    def _drop(self) -> None:
        """Forget the connection, which may be broken; the next transaction makes another."""
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError, OSError):
                self._connection.close()
        self._connection = None
