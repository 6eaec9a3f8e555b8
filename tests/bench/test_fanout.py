"""Wherever cells run, the results are the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from natsr.bench.cells import Cell, Result, run_cell
from natsr.bench.fanout import PLACES, Processes, mapper, on_ray, serial
from natsr.types import OptionError

CELL = Cell("last_value", "x", horizon=3, window=12)


def report(cell: Cell) -> Result:
    """Runs in a worker: says in which process and with how many threads."""
    return Result(cell, {"steps": os.getpid(), "refused": torch.get_num_threads()})


def die(cell: Cell) -> Result:
    """Runs in a worker: one of the cells takes its process with it."""
    if cell.seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Result(cell, {"steps": 1})


def linger(cell: Cell) -> Result:
    """Runs in a worker: says which process it is, and stays."""
    path = Path(cell.dataset)
    path.with_suffix(".part").write_text(str(os.getpid()))
    path.with_suffix(".part").replace(path)
    time.sleep(600)
    return Result(cell, {"steps": 1})


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    rng = np.random.default_rng(0)
    times = np.datetime64("2024-01-01T00:00:00") + np.arange(200) * np.timedelta64(1, "h")
    lines = [f"{time},{value:.5f}" for time, value in zip(times, rng.normal(size=200).cumsum(), strict=True)]
    path = tmp_path / "s.csv"
    path.write_text("\n".join(["time,a", *lines]) + "\n")
    first = replace(CELL, dataset=str(path))
    return [first, replace(first, method="mean"), replace(first, method="gone")]


def numbers(results: list[Result]) -> dict[str, object]:
    return {result.cell.key: result.error or result.numbers["mase"] for result in results}


def test_processes_give_what_serial_gives(cells: list[Cell]) -> None:
    here = list(serial(run_cell, cells))
    there = list(Processes(2)(run_cell, cells))
    assert numbers(here) == numbers(there)
    assert sum(result.error is not None for result in there) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="processes are looked for as POSIX has it")
def test_workers_end_with_the_process_that_is_killed(tmp_path: Path) -> None:
    here, note = Path(__file__), tmp_path / "pid"
    code = (
        "from dataclasses import replace; from tests.bench.test_fanout import CELL, linger; "
        f"from natsr.bench.fanout import Processes; list(Processes(1)(linger, [replace(CELL, dataset={str(note)!r})]))"
    )
    root = str(here.parents[2])
    paths = os.pathsep.join([root, str(here.parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": paths})
    try:
        assert _within(120, note.exists)
    finally:
        parent.kill()
        parent.wait()
    worker = int(note.read_text())
    ended = _within(60, lambda: not _lives(worker))
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")  # one that has ended and nobody waits for still has a number
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def _within(seconds: float, is_so: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_workers_have_one_thread_and_are_other_processes() -> None:
    results = list(Processes(2)(report, [replace(CELL, seed=seed) for seed in range(4)]))
    assert {result.numbers["refused"] for result in results} == {1}
    assert os.getpid() not in {result.numbers["steps"] for result in results}
    assert len(results) == 4


def test_death_of_a_worker_fails_its_cell_only() -> None:
    results = list(Processes(1)(die, [replace(CELL, seed=seed) for seed in range(3)]))
    failed = {result.cell.seed: result.error for result in results}
    assert failed[0] is None and failed[2] is None
    assert "died" in (failed[1] or "")


def test_nothing_to_do() -> None:
    assert list(Processes(2)(run_cell, [])) == []


def test_mapper_by_name() -> None:
    assert mapper("serial") is serial
    assert mapper("ray") is on_ray
    processes = mapper("processes", 3)
    assert isinstance(processes, Processes) and processes.workers == 3
    with pytest.raises(OptionError, match=", ".join(PLACES)):
        mapper("threads")
    with pytest.raises(OptionError, match="at least 1"):
        mapper("processes", 0)


def test_ray_that_is_not_there_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(OptionError, match=r"natsr\[ray\]"):
        list(on_ray(run_cell, [CELL]))


class _Remote:
    """The shape of a Ray task, run when it is waited for."""

    def __init__(self, function: Callable[[Cell], Result], asked: list[dict[str, int]]) -> None:
        self._function, self._asked = function, asked

    def options(self, **asked: int) -> _Remote:
        self._asked.append(asked)
        return self

    def remote(self, cell: Cell) -> Callable[[], Result]:
        return lambda: self._function(cell)


def fake_ray(asked: list[dict[str, int]], cancelled: list[object]) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        exceptions=types.SimpleNamespace(WorkerCrashedError=InterruptedError, OutOfMemoryError=MemoryError),
        is_initialized=lambda: True,
        remote=lambda function: _Remote(function, asked),
        wait=lambda waiting: (waiting[:1], waiting[1:]),
        get=lambda reference: reference(),
        cancel=lambda reference, force: cancelled.append((reference, force)),
    )


def test_ray_is_asked_for_one_core_each_and_a_gpu_where_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []
    cancelled: list[object] = []
    monkeypatch.setitem(sys.modules, "ray", fake_ray(asked, cancelled))
    cells = [CELL, replace(CELL, device="cuda"), replace(CELL, seed=1)]
    results = on_ray(lambda cell: Result(cell, {"steps": 1}), cells)
    assert next(results).cell == CELL
    del results  # whoever stops listening stops the rest
    assert [wish["num_gpus"] for wish in asked] == [0, 1, 0] and {wish["num_cpus"] for wish in asked} == {1}
    assert len(cancelled) == 2


def test_death_of_a_ray_worker_fails_its_cell_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(cell: Cell) -> Result:
        if cell.seed == 1:
            raise InterruptedError("killed")
        return Result(cell, {"steps": 1})

    monkeypatch.setitem(sys.modules, "ray", fake_ray([], []))
    results = list(on_ray(run, [replace(CELL, seed=seed) for seed in range(3)]))
    assert [result.error for result in results] == [None, "the worker died: killed", None]


def test_together_is_one_of_the_places() -> None:
    cells = [Cell("last_value", "nowhere.csv", 1, seed) for seed in (0, 1)]
    results = list(mapper("together")(run_cell, cells))
    assert {result.cell.seed for result in results} == {0, 1}
    assert all(result.error is not None and "nowhere.csv" in result.error for result in results)
