"""Cells on a GPU, many at once: each group of one shape goes along its stream by itself, and nobody waits for a step.

A group (`natsr.bench.groups`) is warmed up (`natsr.fleet.school`) and run (`natsr.fleet.loop`; FSNet and OneNet:
`natsr.fleet.walk`) on a stream of its own. The host hands out chunks of steps to whichever group has nearly run out of
them; the GPU works on all of them beside each other. The seconds of a cell are its share of those that its group took,
the others running beside it. Intervals are made of the forecasts when a group has ended (`natsr.bench.desk`).
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from natsr.bench.cells import Cell, Result, borders_of, load_for, result_of
from natsr.bench.desk import Desk, Pending, Sheet
from natsr.calibrate import PROBABILITIES
from natsr.data.series import Prepared
from natsr.evaluate import Forecasts, peak_mib
from natsr.fleet.control import Mark
from natsr.fleet.loop import Loop, loopable
from natsr.fleet.school import School
from natsr.fleet.shape import shape_of
from natsr.fleet.together import Together
from natsr.fleet.walk import Walk, kind_of, walkers
from natsr.forecasters.base import Forecaster
from natsr.metrics import Scores, naive_error
from natsr.types import NatsrError

#: Groups that are under way at the same time.
AT_ONCE = 16
_AHEAD = 2  # chunks that a group may have waiting
_PAUSE = 5e-4  # seconds until the host looks again when nobody wants anything

_FAILURES = (NatsrError, ArithmeticError, RuntimeError, MemoryError)  # those that belong to the experiment

Made = tuple[Cell, Forecaster]


def fits(members: Sequence[Made]) -> bool:
    """Whether a group of one shape can go along its stream on the GPU alone."""
    cell, forecaster = members[0]
    shape = shape_of(forecaster)
    if isinstance(shape, str):
        return kind_of(forecaster) is not None and cell.device.startswith("cuda")
    return shape.device.type == "cuda" and loopable(shape)


def run(groups: Sequence[Sequence[Made]], at_once: int = AT_ONCE, workers: int | None = None) -> Iterator[list[Result]]:
    """Run groups that fit; yields the results of each as it ends.

    Args:
        groups: Cells with their forecasters.
        at_once: Groups that are under way at the same time; as many more may wait for their scores.
        workers: Processes that make intervals, as `natsr.bench.desk.Desk` has it.
    """
    waiting, going, ended = deque(_merged(groups)), list[_Trip](), list[_End]()
    with Desk(workers) as desk:
        while waiting or going or ended:
            while waiting and len(going) < at_once and len(ended) < at_once:
                members = waiting.popleft()
                try:
                    going.append(_Trip(members, desk))
                except _FAILURES as error:
                    yield _failed([cell for cell, _ in members], error)
            moved = False
            for trip in list(going):
                try:
                    moved |= trip.go_on()
                except _FAILURES as error:
                    going.remove(trip)
                    yield _failed(trip.cells, error)
                if trip.end is not None:
                    going.remove(trip)
                    ended.append(trip.end)
            for end in [end for end in ended if end.is_scored()]:
                ended.remove(end)
                try:
                    results = end.results()
                except _FAILURES as error:
                    results = _failed(end.cells, error)
                yield results
            if not moved:
                time.sleep(_PAUSE)


def _failed(cells: Sequence[Cell], error: BaseException) -> list[Result]:
    return [Result(cell, error=f"{type(error).__name__}: {error}") for cell in cells]


def _merged(groups: Sequence[Sequence[Made]]) -> list[list[Made]]:
    """Groups of one shape whose streams have the same borders, such as ETTh1 and ETTh2, as one; the longest first."""
    found: dict[tuple[object, ...], list[Made]] = {}
    for members in groups:
        cell, forecaster = members[0]
        data = _data_of(cell)
        about = (cell.protocol, cell.part, cell.max_steps, cell.intervals, data.borders, len(data.rows.inputs))
        shape = shape_of(forecaster)
        common = kind_of(forecaster) if isinstance(shape, str) else replace(shape, adaptive=False)
        found.setdefault((common, *about), []).extend(members)
    return [made for _, made in sorted(found.items(), key=lambda pair: -_data_of(pair[1][0][0]).borders.online)]


def _data_of(cell: Cell) -> Prepared:
    calendar = tuple(option for option in cell.options if option[0] == "calendar")
    return _loaded(Cell("ogd", cell.dataset, 1, options=calendar))


@functools.lru_cache(maxsize=16)
def _loaded(cell: Cell) -> Prepared:
    return load_for(cell)


class _Trip:
    """A group on its way: first through the warm-up, then along the stream."""

    def __init__(self, members: Sequence[Made], desk: Desk) -> None:
        self.cells, self._desk = [cell for cell, _ in members], desk
        self._data = [_data_of(cell) for cell in self.cells]
        self._borders = borders_of(self.cells[0], self._data[0])
        forecasters = [forecaster for _, forecaster in members]
        self._fleet = walkers(forecasters) if kind_of(forecasters[0]) is not None else Together(forecasters)
        self._rows = [data.rows for data in self._data]
        self._stage: School | Loop | Walk = School(self._fleet, self._rows, (self._borders.train, self._borders.valid))
        self._marks: deque[Mark] = deque()
        self._began, self._warm_seconds = time.perf_counter(), 0.0
        self.end: _End | None = None

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
            self.end = self._handed_in(self._stage)
        return True

    def _enter(self) -> None:
        """From the warm-up to the stream."""
        now, first = time.perf_counter(), self.cells[0]
        self._warm_seconds, self._began = now - self._began, now
        part = (self._borders.valid, self._borders.online)
        how = (self._rows, part, first.protocol, first.max_steps, first.intervals)
        self._stage = Loop(self._fleet, *how) if isinstance(self._fleet, Together) else Walk(self._fleet, *how)

    def _handed_in(self, loop: Loop | Walk) -> _End:
        seconds = (time.perf_counter() - self._began) / len(self.cells)
        pending = []
        for number, (data, *sums) in enumerate(zip(self._data, *loop.sums(), strict=True)):
            denominator = naive_error(data.rows.truth, self._borders.valid, self._borders.online)
            scores = Scores(self._fleet.task, denominator, torch.from_numpy(data.scaling.std), PROBABILITIES)
            scores.seconds, scores.peak_mib = seconds, peak_mib()
            if self.cells[0].intervals:
                forecasts = Forecasts(loop.first, *loop.forecasts(number))
                pending.append(self._desk.take(Sheet(scores, forecasts, data.rows.truth.double().numpy())))
            else:
                scores.add(loop.total, *sums)
                pending.append(Pending.there(scores))
        infos = [self._fleet.info(number) for number in range(len(self.cells))]
        return _End(self.cells, pending, infos, self._warm_seconds / len(self.cells))


class _End(NamedTuple):
    """A group at the end of its stream; nothing of it is on the GPU any more."""

    cells: Sequence[Cell]
    pending: Sequence[Pending]
    infos: Sequence[Mapping[str, float]]
    warm_seconds: float

    def is_scored(self) -> bool:
        return all(one.is_there() for one in self.pending)

    def results(self) -> list[Result]:
        return [
            result_of(cell, pending.scores(), info, self.warm_seconds)
            for cell, pending, info in zip(self.cells, self.pending, self.infos, strict=True)
        ]
