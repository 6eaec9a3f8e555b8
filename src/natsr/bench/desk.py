"""Where forecasts are scored while more of them are made: in processes of their own, one cell each.

Intervals are a loop over the rows on the host, half a millisecond each. A GPU that makes the forecasts of many cells
does not wait for it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import NamedTuple

import torch

from natsr.evaluate import Array, Forecasts, score
from natsr.metrics import Scores

#: Processes that are started unasked.
MOST = 16


class Sheet(NamedTuple):
    """Forecasts of a cell, to be scored."""

    scores: Scores
    forecasts: Forecasts
    truth: Array

    def scored(self) -> Scores:
        """The scores, brought up to date here."""
        return score(*self)


class Pending:
    """Scores that may not be there yet."""

    def __init__(self, sheet: Sheet | None, future: Future[Scores]) -> None:
        self._sheet, self._future = sheet, future

    @classmethod
    def there(cls, scores: Scores) -> Pending:
        """Scores that are."""
        future: Future[Scores] = Future()
        future.set_result(scores)
        return cls(None, future)

    def is_there(self) -> bool:
        """Whether asking for them makes nobody wait."""
        return self._future.done()

    def scores(self) -> Scores:
        """The scores; if the process that was at it died, they are made here."""
        try:
            return self._future.result()
        except BrokenProcessPool:
            assert self._sheet is not None
            return self._sheet.scored()


class Desk:
    """Takes sheets and gives back what will be their scores; to be used in a `with` block.

    Args:
        workers: Processes, started when they are needed; with none, sheets are scored here and at once. Unless said
            otherwise all cores but the one that hands out the work, and no more than `MOST`.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._workers = min(max(1, (os.cpu_count() or 1) - 1), MOST) if workers is None else workers
        self._pool: ProcessPoolExecutor | None = None

    def take(self, sheet: Sheet) -> Pending:
        """Have the sheet scored."""
        if not self._workers:
            return Pending.there(sheet.scored())
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=start_worker)
        try:
            return Pending(sheet, self._pool.submit(Sheet.scored, sheet))
        except BrokenProcessPool:
            return Pending.there(sheet.scored())

    def __enter__(self) -> Desk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)


def start_worker() -> None:
    """What a worker process begins with."""
    torch.set_num_threads(1)
    # Ctrl-C is for the process that writes the results; it ends the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Nobody is left to take the result of a cell whose process was killed; do not go on with it for minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
