"""Where cells run: here, in worker processes, or on a Ray cluster. A mapper is `map` that may change the order.

All of them hand every cell to a function and yield the results as they come. One thread each: the matrices are small.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeAlias, cast

import torch

from natsr.bench import groups
from natsr.bench.cells import Cell, Result
from natsr.bench.desk import start_worker
from natsr.types import OptionError

Run: TypeAlias = Callable[[Cell], Result]
Mapper: TypeAlias = Callable[[Run, Sequence[Cell]], Iterator[Result]]
PLACES = ("serial", "processes", "ray", "together")


def mapper(place: str, workers: int | None = None) -> Mapper:
    """The mapper of this name.

    Args:
        place: One of `PLACES`.
        workers: For `processes` only; as many as there are cores unless said otherwise.
    """
    if workers is not None and workers < 1:
        raise OptionError(f"workers is {workers}, expected at least 1")
    if place == "serial":
        return serial
    if place == "together":
        return together
    if place == "processes":
        return Processes(workers or os.cpu_count() or 1)
    if place == "ray":
        return on_ray
    raise OptionError(f"place is {place!r}, expected one of {', '.join(PLACES)}")


def serial(run: Run, cells: Sequence[Cell]) -> Iterator[Result]:
    """One after the other, in this process."""
    for cell in cells:
        yield run(cell)


def together(_run: Run, cells: Sequence[Cell]) -> Iterator[Result]:
    """In this process, the seeds and settings of one shape stepped as one where that is possible and faster."""
    return groups.run(cells)


class Processes:
    """In worker processes on this machine, started afresh so that no state is shared."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def __call__(self, run: Run, cells: Sequence[Cell]) -> Iterator[Result]:
        left = {cell.key: cell for cell in cells}
        try:
            for result in self._pool(run, list(left.values()), min(self.workers, len(cells))):
                del left[result.cell.key]
                yield result
        except BrokenProcessPool:
            # One death (most often for want of memory) ends a pool. Those that were not at fault get another chance.
            for cell in left.values():
                yield from self._alone(run, cell)

    def _alone(self, run: Run, cell: Cell) -> Iterator[Result]:
        try:
            yield from self._pool(run, [cell], 1)
        except BrokenProcessPool:
            yield Result(cell, error="the worker process died; most often there was not enough memory")

    def _pool(self, run: Run, cells: Sequence[Cell], workers: int) -> Iterator[Result]:
        if not cells:
            return
        others = multiprocessing.active_children()
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=start_worker)
        finished = False
        try:
            futures: list[Future[Result]] = [pool.submit(run, cell) for cell in cells]
            for future in as_completed(futures):
                yield future.result()
            finished = True
        finally:
            pool.shutdown(wait=finished, cancel_futures=True)
            # After an interruption nobody waits for cells that are half done.
            for child in () if finished else multiprocessing.active_children():
                if child not in others:
                    child.terminate()


class _Ray(Protocol):
    """The part of Ray that is used here."""

    exceptions: Any

    def is_initialized(self) -> bool: ...
    def init(self, *, log_to_driver: bool) -> object: ...
    def remote(self, function: Callable[[Cell], Result]) -> Any: ...
    def wait(self, references: list[object]) -> tuple[list[object], list[object]]: ...
    def get(self, reference: object) -> Result: ...
    def cancel(self, reference: object, *, force: bool) -> None: ...


def on_ray(run: Run, cells: Sequence[Cell]) -> Iterator[Result]:
    """On the Ray cluster that this machine belongs to, or on this machine if it belongs to none."""
    try:
        ray = cast(_Ray, importlib.import_module("ray"))
    except ImportError as error:
        raise OptionError("Ray is not installed; pip install 'natsr[ray]', or use --on processes") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False)

    def run_one(cell: Cell) -> Result:
        torch.set_num_threads(1)
        return run(cell)

    remote = ray.remote(run_one)
    lost = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)
    waiting: list[object] = []
    cell_of: dict[object, Cell] = {}
    try:
        for cell in cells:
            gpus = int(cell.device.startswith("cuda"))
            waiting.append(remote.options(num_cpus=1, num_gpus=gpus, max_retries=0).remote(cell))
            cell_of[waiting[-1]] = cell
        while waiting:
            ready, waiting = ray.wait(waiting)
            for reference in ready:
                try:
                    result = ray.get(reference)
                except lost as error:
                    result = Result(cell_of[reference], error=f"the worker died: {error}")
                yield result
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
