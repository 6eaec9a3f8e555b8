"""Cells on a GPU, many at once: each group of one shape goes along its stream by itself, and nobody waits for a step.

A group (`natsr.bench.groups`) is warmed up (`natsr.fleet.school`) and run (`natsr.fleet.loop`) on a stream of its own.
The host hands out chunks of steps to whichever group has nearly run out of them; the GPU works on all of them beside
each other. The seconds of a cell are its share of those that its group took, the others running beside it.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from natsr.bench.cells import Cell, Result, load_for, rehearsal, result_of
from natsr.data.series import Prepared
from natsr.evaluate import peak_mib
from natsr.fleet.control import Mark
from natsr.fleet.loop import Loop, loopable
from natsr.fleet.school import School
from natsr.fleet.shape import shape_of
from natsr.fleet.together import Together
from natsr.forecasters.base import Forecaster
from natsr.metrics import Scores, naive_error
from natsr.types import NatsrError

#: Groups that are under way at the same time.
AT_ONCE = 16
_AHEAD = 2  # chunks that a group may have waiting
_PAUSE = 5e-4  # seconds until the host looks again when nobody wants anything

Made = tuple[Cell, Forecaster]


def fits(members: Sequence[Made]) -> bool:
    """Whether a group of one shape can go along its stream on the GPU alone."""
    cell, forecaster = members[0]
    shape = shape_of(forecaster)
    if isinstance(shape, str) or shape.device.type != "cuda" or cell.intervals or cell.protocol == "partial":
        return False
    return loopable(shape)


def run(groups: Sequence[Sequence[Made]], at_once: int = AT_ONCE) -> Iterator[list[Result]]:
    """Run groups that fit; yields the results of each as it ends."""
    waiting, going = deque(_merged(groups)), list[_Trip]()
    while waiting or going:
        while waiting and len(going) < at_once:
            members = waiting.popleft()
            try:
                going.append(_Trip(members))
            except (NatsrError, ArithmeticError, RuntimeError, MemoryError) as error:
                yield [Result(cell, error=f"{type(error).__name__}: {error}") for cell, _ in members]
        moved = False
        for trip in list(going):
            try:
                moved |= trip.go_on()
            except (NatsrError, ArithmeticError, RuntimeError, MemoryError) as error:
                trip.results = [Result(cell, error=f"{type(error).__name__}: {error}") for cell in trip.cells]
            if trip.results is not None:
                going.remove(trip)
                yield trip.results
        if not moved:
            time.sleep(_PAUSE)


def _merged(groups: Sequence[Sequence[Made]]) -> list[list[Made]]:
    """Groups of one shape whose streams have the same borders, such as ETTh1 and ETTh2, as one; the longest first."""
    found: dict[tuple[object, ...], list[Made]] = {}
    for members in groups:
        cell, forecaster = members[0]
        data = _data_of(cell)
        about = (cell.protocol, cell.part, cell.max_steps, data.borders, len(data.rows.inputs))
        shape = shape_of(forecaster)
        assert not isinstance(shape, str)
        found.setdefault((replace(shape, adaptive=False), *about), []).extend(members)
    return [made for _, made in sorted(found.items(), key=lambda pair: -_data_of(pair[1][0][0]).borders.online)]


def _data_of(cell: Cell) -> Prepared:
    calendar = tuple(option for option in cell.options if option[0] == "calendar")
    return _loaded(Cell("ogd", cell.dataset, 1, options=calendar))


@functools.lru_cache(maxsize=16)
def _loaded(cell: Cell) -> Prepared:
    return load_for(cell)


class _Trip:
    """A group on its way: first through the warm-up, then along the stream."""

    def __init__(self, members: Sequence[Made]) -> None:
        self.cells = [cell for cell, _ in members]
        self._data = [_data_of(cell) for cell in self.cells]
        borders = self._data[0].borders
        self._borders = rehearsal(borders) if self.cells[0].part == "validation" else borders
        self._fleet = Together([forecaster for _, forecaster in members])
        self._rows = [data.rows for data in self._data]
        self._stage: School | Loop = School(self._fleet, self._rows, (self._borders.train, self._borders.valid))
        self._marks: deque[Mark] = deque()
        self._began, self._warm_seconds = time.perf_counter(), 0.0
        self.results: list[Result] | None = None

    def go_on(self) -> bool:
        """Ask for the next chunk if the last ones are nearly done; answers whether anything was to be asked for."""
        while self._marks and self._marks[0].is_reached():
            self._marks.popleft()
        if len(self._marks) >= _AHEAD:
            return False
        if self._stage.advance():
            self._marks.append(self._stage.mark())
            return True
        if self._marks:
            return False
        self._stage.finish()
        if isinstance(self._stage, School):
            self._enter()
        else:
            self.results = self._scored(self._stage)
        return True

    def _enter(self) -> None:
        """From the warm-up to the stream."""
        now, first = time.perf_counter(), self.cells[0]
        self._warm_seconds, self._began = now - self._began, now
        part = (self._borders.valid, self._borders.online)
        self._stage = Loop(self._fleet, self._rows, part, first.protocol, first.max_steps)

    def _scored(self, loop: Loop) -> list[Result]:
        share = len(self.cells)
        seconds = (time.perf_counter() - self._began) / share
        results = []
        for number, (cell, data, *sums) in enumerate(zip(self.cells, self._data, *loop.sums(), strict=True)):
            denominator = naive_error(data.rows.truth, self._borders.valid, self._borders.online)
            scores = Scores(self._fleet.task, denominator, torch.from_numpy(data.scaling.std))
            scores.add(loop.total, *sums)
            scores.seconds, scores.peak_mib = seconds, peak_mib()
            info = self._fleet.info(number)
            results.append(result_of(cell, scores, info, self._warm_seconds / share))
        return results
