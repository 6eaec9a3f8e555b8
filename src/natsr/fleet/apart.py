"""Learners that are stepped on their own or in tiles, one after the other or by several threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from natsr.fleet.base import Learners, Parts
from natsr.fleet.together import Together
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.base import Layer
from natsr.nets.native import NativeTCN
from natsr.nets.tcn import plain_kernels
from natsr.types import Example, OptionError, State

T = TypeVar("T")


class Threads:
    """Runs jobs in some threads, each of which computes on one core; with one, in the caller's.

    The time that torch spends in its kernels is spent without Python's lock, so threads help as far as kernels are
    long; the Python between them runs on one core at a time.
    """

    def __init__(self, count: int = 1) -> None:
        if count < 1:
            raise OptionError(f"threads is {count}, expected at least 1")
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The results, in order."""
        if self.count == 1 or len(jobs) < 2:
            return [job() for job in jobs]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, "natsr-fleet", initializer=torch.set_num_threads, initargs=(1,))
        threads = torch.get_num_threads()
        with plain_kernels():  # a switch of the whole process: it must not be turned back while a job still runs
            futures = [self._pool.submit(job) for job in jobs]
            found = [future.result() for future in futures]
        torch.set_num_threads(threads)  # a worker that has just begun has set it for threads to come
        return found

    def close(self) -> None:
        """End the threads; the next run would start new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


class Apart(Learners):
    """Learners of any kind for one task, each stepped on its own.

    Each thread has learners of its own. Those of them that are compiled and of one shape work in the same buffers, one
    after the other: what a step writes and reads again is then in the cache, and memory does not grow with learners.

    Args:
        forecasters: One for each learner.
        threads: Learners that are stepped at the same time.
    """

    def __init__(self, forecasters: Sequence[Forecaster], threads: int = 1) -> None:
        if not forecasters or any(forecaster.task != forecasters[0].task for forecaster in forecasters):
            raise OptionError("expected at least one learner, and all of them for the same task")
        self.task = forecasters[0].task
        self.threads = Threads(threads)
        self.forecasters: list[Forecaster] = []
        self._desks: dict[tuple[int, tuple[Layer, ...]], NativeTCN] = {}  # a network whose buffers others use
        self.join(forecasters)

    def __len__(self) -> int:
        return len(self.forecasters)

    def join(self, forecasters: Sequence[Forecaster]) -> None:
        """Take in more learners, after the others."""
        for forecaster in forecasters:
            thread = len(self.forecasters) % self.threads.count
            self.forecasters.append(forecaster)
            if isinstance(forecaster, NeuralForecaster) and isinstance(net := forecaster.net, NativeTCN):
                first = self._desks.setdefault((thread, net.layers), net)
                if first is not net:
                    net.share(first)

    def _run(self, job: Callable[[int], T], numbers: Sequence[int]) -> list[T]:
        """The job for each of these learners, in their order; each thread takes its own."""
        count = self.threads.count
        if count == 1:
            return [job(number) for number in numbers]
        shares = [[number for number in numbers if number % count == thread] for thread in range(count)]

        def work(share: Sequence[int]) -> Callable[[], list[tuple[int, T]]]:
            return lambda: [(number, job(number)) for number in share]

        done = self.threads.run([work(share) for share in shares if share])
        found = dict(pair for pairs in done for pair in pairs)
        return [found[number] for number in numbers]

    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        self.check(windows)

        def job(number: int) -> Forecast | None:
            window = windows[number]
            return None if window is None else self.forecasters[number].forecast(window)

        return self._run(job, range(len(self)))

    def learn(self, examples: Sequence[Example | None]) -> None:
        self.check(examples)

        def job(number: int) -> None:
            if (example := examples[number]) is not None:
                self.forecasters[number].learn(example)

        self._run(job, [number for number, example in enumerate(examples) if example is not None])

    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        self.check(parts)
        self._run(lambda number: self.forecasters[number].warm_up(*parts[number], progress), range(len(self)))

    def info(self, number: int) -> dict[str, float]:
        return self.forecasters[number].info()

    def state_dict(self, number: int) -> State:
        return self.forecasters[number].state_dict()

    def load_state_dict(self, number: int, state: State) -> None:
        self.forecasters[number].load_state_dict(state)

    def release(self, number: int) -> Forecaster:
        return self.forecasters[number]


class Tiles(Learners):
    """Learners of one shape in tiles that step together, small enough to stay in a core's cache.

    Args:
        forecasters: One for each learner.
        size: Learners in a tile.
        threads: Tiles that are stepped at the same time.
    """

    def __init__(self, forecasters: Sequence[Forecaster], size: int = 8, threads: int = 1) -> None:
        if size < 1:
            raise OptionError(f"size is {size}, expected at least 1 learner in a tile")
        self.size = size
        self.threads = Threads(threads)
        self._tiles = [Together(forecasters[start : start + size]) for start in range(0, len(forecasters), size)]
        self.task = Together(forecasters[:1]).task if not self._tiles else self._tiles[0].task

    def __len__(self) -> int:
        return sum(map(len, self._tiles))

    def join(self, forecasters: Sequence[Forecaster]) -> None:
        """Take in more learners of the same shape, after the others; only the last tile is made anew."""
        last = self._tiles.pop() if len(self._tiles[-1]) < self.size else None
        before = [] if last is None else [last.release(number) for number in range(len(last))]
        waiting = [*before, *forecasters]
        tiles = [Together(waiting[start : start + self.size]) for start in range(0, len(waiting), self.size)]
        self._tiles += tiles

    def _split(self, given: Sequence[T]) -> list[Sequence[T]]:
        ends = list(accumulate(map(len, self._tiles)))
        return [given[end - len(tile) : end] for end, tile in zip(ends, self._tiles, strict=True)]

    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        self.check(windows)

        def job(tile: Together, own: Sequence[Tensor | None]) -> Callable[[], list[Forecast | None]]:
            return lambda: tile.forecast(own)

        pairs = zip(self._tiles, self._split(windows), strict=True)
        return [forecast for found in self.threads.run([job(*pair) for pair in pairs]) for forecast in found]

    def learn(self, examples: Sequence[Example | None]) -> None:
        self.check(examples)

        def job(tile: Together, own: Sequence[Example | None]) -> Callable[[], None]:
            return lambda: tile.learn(own)

        pairs = zip(self._tiles, self._split(examples), strict=True)
        self.threads.run([job(tile, own) for tile, own in pairs if any(one is not None for one in own)])

    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        self.check(parts)

        def job(tile: Together, own: Sequence[Parts]) -> Callable[[], None]:
            return lambda: tile.warm_up(own, progress)

        pairs = zip(self._tiles, self._split(parts), strict=True)
        self.threads.run([job(*pair) for pair in pairs])

    def _place(self, number: int) -> tuple[Together, int]:
        for tile in self._tiles:
            if number < len(tile):
                return tile, number
            number -= len(tile)
        raise IndexError(f"learner {number + len(self)} of {len(self)}")

    def info(self, number: int) -> dict[str, float]:
        tile, place = self._place(number)
        return tile.info(place)

    def state_dict(self, number: int) -> State:
        tile, place = self._place(number)
        return tile.state_dict(place)

    def load_state_dict(self, number: int, state: State) -> None:
        tile, place = self._place(number)
        tile.load_state_dict(place, state)

    def release(self, number: int) -> Forecaster:
        tile, place = self._place(number)
        return tile.release(place)
