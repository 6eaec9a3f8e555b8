"""Cells that can run as one: seeds and settings of methods of one shape, on the same part of the same stream.

They see the same examples at the same moments, so that their learners can be stepped together (`natsr.fleet`): always
on a GPU, and on a CPU where a short measurement finds it faster than one by one. The results are those of `run_cell`,
to rounding; the seconds of a cell are its share of those that all of them took.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator, Sequence

from natsr.bench import loops
from natsr.bench.cells import Cell, Result, borders_of, evaluated, load_for, make_for, result_of, run_cell, warm_up
from natsr.bench.loops import Made
from natsr.fleet.choice import SIZE, Way, chosen
from natsr.fleet.compiled import Compiled
from natsr.fleet.instep import in_step
from natsr.fleet.shape import shape_of
from natsr.fleet.walk import kind_of
from natsr.forecasters.base import Forecaster, Progress, silent
from natsr.types import NatsrError

#: Cells that run together at most, so that memory is bounded and results come from time to time.
MOST = 64
#: Bytes that the states of learners which step in one call of C may take.
ROOM = 2 << 30
#: The usual tiles, in one thread.
TILED = Way(SIZE, 1)
#: What may differ between the cells of a group.
_OWN = ("method", "seed", "options", "tuned_on")


def groups(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells by what they share: everything but method, seed and options (the calendar is shared too).

    >>> [len(group) for group in groups([Cell("er", "ETTh1", h, seed) for h in (1, 24) for seed in range(3)])]
    [3, 3]
    """
    found: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        shared = [getattr(cell, name) for name in cell.__dataclass_fields__ if name not in _OWN]
        found.setdefault((*shared, dict(cell.options).get("calendar")), []).append(cell)
    return list(found.values())


def run(cells: Sequence[Cell], progress: Progress = silent, way: Way | None = None) -> Iterator[Result]:
    """Run cells, together where that is possible and faster; yields the result of each, not always in their order.

    Args:
        cells: Any.
        progress: Called with (done, of, what) during each run.
        way: How to step those that can be stepped together; measured unless said otherwise.
    """
    alone: list[Cell] = []
    whole: list[Sequence[Made]] = []
    for group in groups(cells):
        for members in _shapes(group, alone):
            whole += [members[start : start + MOST] for start in range(0, len(members), MOST)]
    device = [members for members in whole if loops.fits(members)]
    here = [members for members in whole if not loops.fits(members)]
    for results in loops.run(device):
        yield from results
    for left in here:
        yield from _run(left, progress, way)
    for cell in alone:
        yield run_cell(cell, progress)


def _shapes(group: Sequence[Cell], alone: list[Cell]) -> list[list[Made]]:
    """Cells with their forecasters, by shape; those that run alone are put there."""
    found: dict[Hashable, list[Made]] = {}
    first, task = group[0], None
    try:
        if len(group) > 1 or first.device != "cpu":
            task = load_for(first).task(first.window, first.horizon)
    except NatsrError:
        pass  # each cell will tell it as its own error
    for cell in group:
        if task is None:
            alone.append(cell)
            continue
        try:
            forecaster = make_for(cell, task)
        except NatsrError:
            alone.append(cell)
            continue
        shape: Hashable = shape_of(forecaster)
        if isinstance(shape, str):  # FSNet and OneNet walk together on a GPU only
            shape = kind_of(forecaster) if cell.device != "cpu" else None
        if shape is None:
            alone.append(cell)
        else:
            found.setdefault(shape, []).append((cell, forecaster))
    return list(found.values())


def _run(members: Sequence[Made], progress: Progress, way: Way | None) -> Iterator[Result]:
    """Run cells of one shape, together if that is the way."""
    cells, forecasters = [cell for cell, _ in members], [forecaster for _, forecaster in members]
    if len(cells) > 1:
        way = chosen(forecasters) if way is None else way
        count = Compiled.room(forecasters, ROOM) if way.compiled else len(cells)
        if count > 1 and (way.size or way.compiled):
            for start in range(0, len(cells), count):
                yield from _together(cells[start : start + count], forecasters[start : start + count], way, progress)
            return
    for cell in cells:
        yield run_cell(cell, progress)


def _together(
    cells: Sequence[Cell], forecasters: Sequence[Forecaster], way: Way, progress: Progress
) -> Iterator[Result]:
    """Run cells as one, and one by one if that fails."""
    try:
        yield from run_together(cells, forecasters, way, progress)
    except (NatsrError, ArithmeticError, RuntimeError, MemoryError):
        # One by one it shows whose fault it is, and the others get their results.
        for cell in cells:
            yield run_cell(cell, progress)


def run_together(
    cells: Sequence[Cell], forecasters: Sequence[Forecaster], way: Way = TILED, progress: Progress = silent
) -> list[Result]:
    """Run cells of one group and one shape as one.

    Args:
        cells: They differ in method, seed and options only.
        forecasters: One for each, fresh.
        way: How they are stepped.
        progress: Called with (done, of, what).
    """
    first, data = cells[0], load_for(cells[0])
    members = in_step(way.of(forecasters))
    began = time.perf_counter()
    warm_up(members[0], data, borders_of(first, data), progress)  # the first that is asked moves all
    warm_seconds = (time.perf_counter() - began) / len(cells)
    names = [str(number) for number in range(len(cells))]
    scores = evaluated(dict(zip(names, members, strict=True)), first, data, progress)
    total = sum(one.seconds for one in scores.values())
    results = []
    for name, cell, member in zip(names, cells, members, strict=True):
        scores[name].seconds = total / len(cells)
        results.append(result_of(cell, scores[name], member.info(), warm_seconds))
    return results
