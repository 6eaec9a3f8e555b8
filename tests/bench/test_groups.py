"""Cells that run as one give the results that they give alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natsr.bench import groups, loops
from natsr.bench.cells import Cell, Result, load_for, make_for, run_cell
from natsr.fleet.choice import Way
from natsr.fleet.compiled import Compiled
from natsr.types import Option

SMALL: tuple[tuple[str, Option], ...] = (
    ("width", 4),
    ("depth", 2),
    ("top", 8),
    ("epochs", 1),
    ("memory", 20),
    ("dtype", "float64"),
)
TIMES = ("seconds", "ms_per_step", "steps_per_second", "warm_seconds", "peak_mib")
TOGETHER, APART = Way(8, 1), Way(0, 1)


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    hours = np.arange(160)
    values = np.sin(hours / 12 * np.pi) + 0.2 * np.random.default_rng(0).normal(size=160)
    times = np.datetime64("2024-01-01T00:00:00") + hours * np.timedelta64(1, "h")
    lines = [f"{time},{value:.6f}" for time, value in zip(times, values, strict=True)]
    (tmp_path / "s.csv").write_text("\n".join(["time,a", *lines]) + "\n")
    return str(tmp_path / "s.csv")


def by_key(results: list[Result]) -> dict[str, Result]:
    return {result.cell.key: result for result in results}


def same(ours: Result, theirs: Result) -> None:
    assert ours.cell == theirs.cell and ours.error == theirs.error
    assert ours.numbers.keys() == theirs.numbers.keys()
    for name, value in ours.numbers.items():
        if name not in TIMES:
            assert value == pytest.approx(theirs.numbers[name], rel=1e-6, abs=1e-9), name
    assert all(ours.numbers[name] > 0 for name in TIMES if name in ours.numbers)


def test_seeds_and_settings_run_as_one(dataset: str) -> None:
    cell = Cell("natsr", dataset, horizon=2, window=8, options=SMALL, max_steps=15)
    cells = [cell, replace(cell, seed=1), replace(cell, options=(*SMALL, ("rate", 0.02), ("every", 4)))]
    cells += [replace(cell, method="er"), replace(cell, method="er", seed=3)]
    results = by_key(list(groups.run(cells, way=TOGETHER)))
    assert results.keys() == {cell.key for cell in cells}
    for cell in cells:
        same(results[cell.key], run_cell(cell))
    assert results[cells[0].key].numbers["seconds"] == results[cells[1].key].numbers["seconds"]


def test_compiled_learners_run_in_one_call_as_many_as_there_is_room_for(
    dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = tuple(pair for pair in SMALL if pair[0] != "dtype")
    cell = Cell("er", dataset, horizon=2, window=8, options=options, max_steps=15)
    cells = [replace(cell, seed=seed) for seed in range(3)]
    forecasters = [make_for(one, load_for(cell).task(8, 2)) for one in cells]
    if not Compiled.fits(forecasters):
        pytest.skip("there is no C compiler here")
    each = 2**31 // Compiled.room(forecasters, 2**31)
    for room in (2 * each + each // 2, each // 2):  # two and one at once; each alone
        monkeypatch.setattr(groups, "ROOM", room)
        results = by_key(list(groups.run(cells, way=Way(0, 2, True))))
        for one in cells:
            alone = run_cell(one)
            assert results[one.key].error is None
            assert results[one.key].numbers["mae"] == pytest.approx(alone.numbers["mae"], rel=1e-3)


def test_what_cannot_run_together_runs_alone(dataset: str) -> None:
    cell = Cell("er", dataset, horizon=2, window=8, options=SMALL, max_steps=5)
    cells = [
        replace(cell, method="last_value", options=()),
        replace(cell, options=(*SMALL, ("dropout", 0.1))),
        cell,
        replace(cell, seed=1, horizon=3),  # another group
        replace(cell, options=(("no_such", 1),)),  # fails
        replace(cell, dataset=dataset + ".gone", seed=4),
        replace(cell, dataset=dataset + ".gone", seed=5),
    ]
    results = by_key(list(groups.run(cells, way=TOGETHER)))
    assert results.keys() == {cell.key for cell in cells}
    for one in cells:
        same(results[one.key], run_cell(one))
    assert [results[one.key].error is None for one in cells] == [True] * 4 + [False] * 3


def test_the_way_is_measured_and_never_changes_the_numbers(dataset: str) -> None:
    cell = Cell("ogd", dataset, horizon=2, window=8, options=SMALL, max_steps=8)
    cells = [replace(cell, seed=seed) for seed in range(2)]
    measured, apart = by_key(list(groups.run(cells))), by_key(list(groups.run(cells, way=APART)))
    for one in cells:
        same(measured[one.key], apart[one.key])


def test_a_learner_that_fails_leaves_the_others(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("ogd", dataset, horizon=2, window=8, options=SMALL, max_steps=8)
    cells = [replace(cell, seed=seed) for seed in range(2)]

    def broken(*_: object) -> list[Result]:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(groups, "run_together", broken)
    results = list(groups.run(cells, way=TOGETHER))
    assert [result.error for result in results] == [None, None]


def test_groups_share_everything_but_method_seed_and_options() -> None:
    cell = Cell("natsr", "ETTh1", 24)
    cells = [cell, replace(cell, seed=1), replace(cell, method="er"), replace(cell, horizon=1)]
    cells += [replace(cell, protocol="partial"), replace(cell, options=(("calendar", "none"),))]
    assert groups.groups(cells) == [cells[:3], [cells[3]], [cells[4]], [cells[5]]]


def made_for(*cells: Cell) -> list[loops.Made]:
    return [(cell, make_for(cell, load_for(cell).task(cell.window, cell.horizon))) for cell in cells]


@pytest.mark.parametrize("intervals", [True, False])
def test_groups_go_along_their_streams_beside_each_other(dataset: str, intervals: bool) -> None:
    """What a GPU does, on a CPU: without replay and warm-up nothing is random, so they are `run_cell`'s."""
    plain = tuple((name, 0 if name == "epochs" else value) for name, value in SMALL)
    cell = Cell("ogd", dataset, horizon=2, window=8, options=plain, intervals=intervals)
    short, other = replace(cell, max_steps=15), replace(cell, horizon=3, protocol="paper")
    partly, fresh = replace(other, protocol="partial"), replace(cell, options=(*plain, ("labels", "fresh")))
    cells = [short, replace(short, seed=1), other, partly, replace(fresh, protocol="partial")]
    groups = [made_for(*cells[:2]), *(made_for(one) for one in cells[2:])]
    results = by_key([result for some in loops.run(groups, at_once=2, workers=0) for result in some])
    assert len(results) == len(cells)
    for one in cells:
        same(results[one.key], run_cell(one))
        assert ("crps" in results[one.key].numbers) == intervals


def test_fsnet_and_onenet_go_along_their_streams_too(dataset: str) -> None:
    """Nothing is random without a warm-up and dropout; squared and absolute errors are one group."""
    small: tuple[tuple[str, Option], ...] = (("width", 4), ("depth", 2), ("top", 8), ("epochs", 0))
    plain = {"fsnet": small, "onenet": (*small, ("mixing_dropout", 0.0))}
    cells = [
        Cell(f"{kind}{loss}", dataset, horizon=2, window=8, options=plain[kind], protocol=protocol, max_steps=15)
        for kind in plain
        for loss in ("", "_mae")
        for protocol in ("honest", "partial")
    ]
    members = [made_for(cell) for cell in cells]
    results = [result for some in loops.run(members, workers=0) for result in some]
    assert len(results) == len(cells)
    for cell in cells:
        same(by_key(results)[cell.key], run_cell(cell))
    assert not any(loops.fits(one) for one in members)  # on a CPU they have a faster step of their own


def test_processes_make_the_intervals(dataset: str) -> None:
    cells = [Cell("natsr", dataset, horizon=2, window=8, options=SMALL, max_steps=20, seed=seed) for seed in range(2)]
    here, there = (by_key(next(loops.run([made_for(*cells)], workers=workers))) for workers in (0, 1))
    for cell in cells:
        same(there[cell.key], here[cell.key])
        assert there[cell.key].numbers["coverage_90"] > 0


def test_a_group_that_cannot_be_run_says_so_in_its_cells(dataset: str) -> None:
    eigen: tuple[tuple[str, Option], ...] = (*SMALL, ("damped", "step"))
    cell = Cell("natsr", dataset, horizon=2, window=8, options=eigen, intervals=False)
    assert not loops.fits(made_for(cell))
    ((result,),) = loops.run([made_for(cell)])
    assert result.error is not None and "step the fleet instead" in result.error
