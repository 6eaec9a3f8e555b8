"""Which way of stepping many learners is fastest here: measured on a few steps, once for each shape."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from natsr.fleet.apart import Apart, Tiles
from natsr.fleet.base import Learners
from natsr.fleet.compiled import Compiled
from natsr.fleet.instep import in_step
from natsr.fleet.shape import Shape, alike, shape_of
from natsr.forecasters.base import Forecaster
from natsr.types import Example

#: Learners in a tile: enough to make the Python between kernels cheap. A fleet on a GPU is one tile.
SIZE = 16
_TRIED = 8  # learners that a trial is made with, at most
_SETTLE, _TIMED = 2, 4  # steps before the clock runs, and steps that are timed


class Way(NamedTuple):
    """A way of stepping: so many learners in a tile (0: each on its own), so many threads, in one call of C or not."""

    size: int
    threads: int
    compiled: bool = False

    def of(self, forecasters: Sequence[Forecaster]) -> Apart | Compiled | Tiles:
        """The forecasters as learners that are stepped so."""
        if self.compiled:
            return Compiled(forecasters, self.threads)
        if not self.size:
            return Apart(forecasters, self.threads)
        return Tiles(forecasters, self.size, self.threads)


_known: dict[tuple[Shape, bool, int, int], Way] = {}


def best(forecasters: Sequence[Forecaster], threads: int | None = None) -> Apart | Compiled | Tiles:
    """The forecasters as learners, stepped in the fastest way.

    On a GPU they step together. On a CPU a few steps of noise are timed, each learner on its own (in one call of C if
    they are compiled) and in tiles; after that the forecasters' states are put back. Learners that are not of one shape
    step on their own, without a trial.

    Args:
        forecasters: One for each learner, for one task.
        threads: Threads that may be used; as many as torch uses unless said otherwise.
    """
    return chosen(forecasters, threads).of(forecasters)


def beside(forecasters: Sequence[Forecaster]) -> list[Forecaster]:
    """Forecasters that follow one stream, stepped together without a trial: always in the same way on the same machine.

    Compiled ones of one shape in one call of C, networks on a GPU in one step, others each on its own.
    """
    shapes = [shape_of(forecaster) for forecaster in forecasters]
    if len(shapes) < 2 or any(isinstance(shape, str) or not alike(shape, shapes[0]) for shape in shapes):
        return list(forecasters)
    if Compiled.fits(forecasters):
        return in_step(Compiled(forecasters, torch.get_num_threads()))
    on_cpu = all(isinstance(shape, Shape) and shape.device.type == "cpu" for shape in shapes)
    return list(forecasters) if on_cpu else in_step(Tiles(forecasters, len(forecasters), 1))


def chosen(forecasters: Sequence[Forecaster], threads: int | None = None) -> Way:
    """The way that `best` takes."""
    count = threads or torch.get_num_threads()
    shapes = {shape_of(forecaster) for forecaster in forecasters}
    shape = next(iter(shapes), "")
    if len(shapes) != 1 or isinstance(shape, str):
        return Way(0, count)
    if shape.device.type != "cpu":
        return Way(len(forecasters), 1)
    if len(forecasters) == 1:
        return Way(0, 1)
    alone = Way(0, count, Compiled.fits(forecasters))
    key = (shape, alone.compiled, min(len(forecasters), _TRIED), count)
    if key not in _known:
        _known[key] = _measured(forecasters, shape, alone)
    return _known[key]


def _measured(forecasters: Sequence[Forecaster], shape: Shape, alone: Way) -> Way:
    tried, threads = forecasters[:_TRIED], alone.threads
    ways = [alone, Way(SIZE, threads)]
    if threads > 1:  # Python between short kernels can make threads slower than none
        ways += [way._replace(threads=1) for way in ways]
    states = [forecaster.state_dict() for forecaster in tried]
    seconds: list[list[float]] = [[] for _ in ways]
    try:
        trials = [_trial(way.of(tried), shape) for way in ways]
        for _ in range(_TIMED):  # in turns, so that noise of the machine falls on all
            for step, found in zip(trials, seconds, strict=True):
                began = time.perf_counter()
                step()
                found.append(time.perf_counter() - began)
    finally:
        for forecaster, state in zip(tried, states, strict=True):
            forecaster.load_state_dict(state)
    shortest = [min(found) for found in seconds]
    return ways[shortest.index(min(shortest))]


def _trial(fleet: Learners, shape: Shape) -> Callable[[], None]:
    """One step of the fleet on noise, its memory begun and its first curvature there."""
    task, generator = shape.task, torch.Generator().manual_seed(0)
    window = torch.randn(1, task.reach, task.inputs, generator=generator)
    example = Example(window, torch.randn(1, task.horizon, task.channels, generator=generator))

    def step() -> None:
        fleet.learn([example] * len(fleet))
        fleet.forecast([window] * len(fleet))

    for _ in range(_SETTLE):
        step()
    return step
