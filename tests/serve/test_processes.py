"""Learners in another process say what they would say here, and are replaced when it is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from pathlib import Path

import httpx
import numpy as np
import pytest
from benchmarks.serve.harness import PATIENCE, Nursery, Served, moment, rows, uninterrupted, value

from natsr.live import LiveForecast
from natsr.serve import processes
from natsr.serve.admit import packed
from natsr.serve.learner import Here, Learner, LostError, Workshop
from natsr.serve.processes import Process, hired
from natsr.types import DataError, OptionError, StateError

RLS = {"columns": ["load", "wind"], "horizon": 3, "window": 6, "method": "rls", "freq": "15min"}
PLANNED = {
    "columns": ["load"], "horizon": 2, "window": 4, "method": "ogd", "freq": "h", "exogenous": ["wind"],
    "known": ["plan"], "options": {"width": 2, "depth": 1, "epochs": 1},
}  # fmt: skip


@pytest.fixture
def other() -> Iterator[Process]:
    """The other end of the pipe is a thread here, which needs no fork."""
    ours, theirs = Pipe()
    thread = threading.Thread(target=processes._serve, args=(theirs,))
    thread.start()
    try:
        yield Process(os.getpid(), ours)
    finally:
        ours.close()
        thread.join(PATIENCE)
        theirs.close()


def fed(learner: Learner, first: int, last: int, step: int = 900) -> Learner:
    for row in range(first, last):
        learner.observe(row * step, packed(np.array([value(0, row), np.nan if row % 5 == 0 else value(1, row)])))
    return learner


def same(left: LiveForecast, right: LiveForecast) -> bool:
    parts = [(left.mean, right.mean), (left.times, right.times)]
    parts += [
        pair for level in left.intervals for pair in zip(left.intervals[level], right.intervals[level], strict=True)
    ]
    return (
        (left.origin, left.columns, list(left.intervals)) == (right.origin, right.columns, list(right.intervals))
        and all(np.array_equal(one, two, equal_nan=one.dtype.kind == "f") for one, two in parts)
    )  # fmt: skip


def test_another_process_says_the_same(other: Process, tmp_path: Path) -> None:
    near, far = fed(Here().fresh(RLS), 0, 30), fed(other.fresh(RLS), 0, 30)
    assert same(near.forecast(), far.forecast()) and near.health() == far.health()
    assert same(near.forecast([0.8, 0.99]), far.forecast([0.8, 0.99]))
    wanted = (0.001, 0.3, 0.9)
    told = far.forecast(quantiles=wanted)
    assert same(near.forecast(), told)
    assert (near.forecast().quantiles(wanted) == told.quantiles(wanted)).all()
    far.save(tmp_path / "far")
    far.leave()
    with pytest.raises(RuntimeError):
        far.forecast([0.8])
    for place in (Here(), other):
        again = fed(place.load(tmp_path / "far"), 30, 40)
        assert same(again.forecast(), fed(Here().fresh(RLS), 0, 40).forecast())


def test_a_plan_in_the_log_reaches_the_learner(other: Process) -> None:
    told: list[list[LiveForecast]] = []
    for future in (0.0, 3.0):
        told.append([])
        for learner in (Here().fresh(PLANNED), other.fresh(PLANNED)):
            for row in range(12):
                plan = [future, future] if row == 11 else []
                learner.observe(row * 3600, packed(np.array([value(0, row), 1.0, float(row % 2), *plan])))
            told[-1].append(learner.forecast())
    assert all(same(near, far) for near, far in told)
    assert not same(told[0][0], told[1][0])
    with pytest.raises(DataError, match="was it changed"):
        Here().fresh(RLS).observe(0, packed(np.ones(5)))


def test_errors_come_back_as_they_are(other: Process, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="horizon"):
        other.fresh({**RLS, "horizon": 0})
    with pytest.raises(StateError):
        other.load(tmp_path / "nowhere")
    learner = other.fresh(RLS)
    with pytest.raises(DataError, match="no row"):
        learner.forecast()
    fed(learner, 0, 3)
    with pytest.raises(DataError, match="later|late"):
        fed(learner, 1, 2)


def test_a_process_that_is_gone_is_told() -> None:
    ours, theirs = Pipe()
    theirs.close()
    with pytest.raises(LostError, match="the log has"):
        Process(os.getpid(), ours).fresh(RLS)
    ours.close()


def test_where_threads_run_nothing_is_forked() -> None:
    held = threading.Event()
    thread = threading.Thread(target=held.wait, args=(PATIENCE,))
    thread.start()
    try:
        with hired(3) as places:
            kinds: list[Workshop] = places
            assert [type(place) for place in kinds] == [Here] * 3
    finally:
        held.set()
        thread.join(PATIENCE)


def until(said: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not said():
        assert time.monotonic() < ends, "it did not come about"
        time.sleep(0.05)


def status(pid: int) -> str:
    return Path(f"/proc/{pid}/status").read_text()


@pytest.mark.slow
def test_the_service_goes_on_without_a_process_that_was_killed(tmp_path: Path) -> None:
    settings = {"columns": ["load"], "horizon": 3, "window": 8, "freq": "h", "method": "rls"}
    with (
        Nursery() as nursery,
        Served(nursery, tmp_path, "--workers", "1", "--snapshot-rows", "7") as served,
        httpx.Client(base_url=served.url, timeout=PATIENCE) as client,
    ):
        client.put("/v1/series/a", json=settings).raise_for_status()
        client.post("/v1/series/a/observations", json={"rows": rows(0, 0, 20)}).raise_for_status()
        client.get("/v1/series/a/forecast", params={"wait": 60}).raise_for_status()
        (child,) = served.children()
        os.kill(child, signal.SIGKILL)
        until(lambda: child not in served.children() or "Z (zombie)" in status(child))
        client.post("/v1/series/a/observations", json={"rows": rows(0, 20, 30)}).raise_for_status()
        until(lambda: client.get("/v1/series/a").json()["pending"] == 0)
        mean = client.get("/v1/series/a/forecast").raise_for_status().json()["mean"]["load"]
        assert mean == uninterrupted(settings, 0, 30, [29])[moment(29)]
        served.stop()
        assert not served.alive()
