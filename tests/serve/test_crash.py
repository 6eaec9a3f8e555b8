"""Killed at any moment, on SQLite and PostgreSQL: nothing acknowledged is lost or doubled, forecasts are equal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from benchmarks.serve.crash import Crash, checked_crashes
from benchmarks.serve.harness import (
    PATIENCE,
    Nursery,
    Postgres,
    Served,
    inside,
    moment,
    rows,
    uninterrupted,
)

import natsr
from natsr.serve.settings import ServeSettings


def crashed(nursery: Nursery, state: str, kills: int) -> None:
    found = checked_crashes(Crash(nursery, state, kills=kills, series=2, rows=300, seed=1, longest=0.7))
    assert found["kills"] == kills
    assert found["acknowledged"] > 0
    assert (found["lost"], found["doubled"], found["strangers"]) == (0, 0, 0)
    assert found["forecasts_compared"] > 0 and found["forecasts_different"] == 0


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_on_sqlite(nursery: Nursery, tmp_path: Path) -> None:
    crashed(nursery, str(tmp_path / "state"), kills=4)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_on_postgresql(nursery: Nursery, database: Postgres) -> None:
    crashed(nursery, database.url, kills=3)


@pytest.mark.slow
def test_a_database_that_goes_away_is_told_and_comes_back(database: Postgres) -> None:
    settings = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls"}
    with inside(ServeSettings(database.url)) as (_, client):

        def post(first: int, last: int) -> httpx.Response:
            return client.post("/v1/series/away/observations", json={"rows": rows(0, first, last)})

        assert client.put("/v1/series/away", json=settings).status_code == 201
        assert post(0, 20).json()["accepted"] == 20
        before = client.get("/v1/series/away/forecast", params={"wait": 60}).json()
        database.stop()
        try:
            refused = post(20, 30)
            assert refused.status_code == 503 and "nothing of this request was taken" in refused.json()["hint"]
            assert client.get("/readyz").status_code == 503
            assert client.get("/v1/series/away/forecast").json() == before, "what is in memory is still there"
        finally:
            database.start()
        assert post(15, 30).json() | {"pending": 0} == {"accepted": 10, "duplicates": 5, "refused": [], "pending": 0}
        after = client.get("/v1/series/away/forecast", params={"wait": 60}).json()
        assert after["mean"]["load"] == uninterrupted(settings, 0, 30, [29])[moment(29)]


@dataclass
class Posting:
    """Two clients that post rows all the time, each to a series of its own, until they are told to stop."""

    url: str
    acknowledged: tuple[set[int], set[int]] = field(default_factory=lambda: (set(), set()))
    answers: list[tuple[int, str | None]] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def post(self, number: int) -> None:
        place = 0
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as client:
            while not self.stopping.is_set():
                body = {"rows": rows(number, place, place + 2)}
                answer = client.post(f"/v1/series/gone-{number}/observations", json=body)
                self.answers.append((answer.status_code, answer.headers.get("retry-after")))
                if answer.status_code == 200:
                    assert answer.json()["accepted"] + answer.json()["duplicates"] == 2
                    self.acknowledged[number].update({place, place + 1})
                    place += 2
                time.sleep(0.02)

    def until(self, status: int) -> None:
        """Wait for the fifth such answer from now."""
        before, limit = len(self.answers), time.monotonic() + PATIENCE
        while [code for code, _ in self.answers[before:]].count(status) < 5:
            assert time.monotonic() < limit, f"got {self.answers[before:][-5:]}, expected {status}"
            time.sleep(0.01)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.post, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join(PATIENCE)


@pytest.mark.slow
def test_rows_posted_while_a_database_goes_away_and_comes_back(database: Postgres) -> None:
    """Posts are answered with 503 and when to try again; none that was acknowledged is lost, and nobody has to help."""
    settings = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls"}
    with inside(ServeSettings(database.url, snapshot_rows=10)) as (_, client):
        for number in range(2):
            assert client.put(f"/v1/series/gone-{number}", json=settings).status_code == 201
        posting = Posting(str(client.base_url))
        with posting.going_on():
            for how in (signal.SIGINT, signal.SIGQUIT):  # a restart, and a loss of power
                posting.until(200)
                database.stop(how)
                try:
                    posting.until(503)
                finally:
                    database.start()
            posting.until(200)
        assert set(posting.answers) == {(200, None), (503, "5")}
        for number, acknowledged in enumerate(posting.acknowledged):
            got = client.get(f"/v1/series/gone-{number}/forecast", params={"wait": 60}).json()
            kept = client.get(f"/v1/series/gone-{number}/observations", params={"count": 5000}).json()["rows"]
            assert acknowledged == set(range(len(kept))) and kept == rows(number, 0, len(kept))
            last = len(kept) - 1
            assert got["pending"] == 0 and got["origin"] == moment(last)
            assert got["mean"]["load"] == uninterrupted(settings, number, len(kept), [last])[moment(last)]
            limit = time.monotonic() + PATIENCE  # it is well at the end of the turn in which it learned the last row
            while client.get(f"/v1/series/gone-{number}").json()["failure"] is not None:
                assert time.monotonic() < limit, "what failed while the database was away still counts"
                time.sleep(0.05)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte, where we may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "natsr-test", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@pytest.mark.slow
def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    kept = 0
    with inside(ServeSettings(str(small_disk), snapshot_rows=50)) as (_, client):
        client.put("/v1/series/a", json={"columns": ["load"], "horizon": 2, "window": 4, "method": "last_value"})
        for first in range(0, 200_000, 500):
            answer = client.post("/v1/series/a/observations", json={"rows": rows(0, first, first + 500)})
            if answer.status_code != 200:
                break
            kept += answer.json()["accepted"]
        assert answer.status_code == 507, answer.text
        assert 0 < kept == client.get("/v1/series/a").json()["observations"]
    copy = small_disk.parent / "larger"
    shutil.copytree(small_disk, copy)
    with inside(ServeSettings(str(copy))) as (_, client):
        assert client.get("/v1/series/a").json()["observations"] == kept
        last = client.get("/v1/series/a/observations", params={"count": 1}).json()["rows"]
        assert last == rows(0, kept - 1, kept)


@pytest.mark.slow
def test_a_stop_takes_snapshots_and_a_second_service_is_refused(nursery: Nursery, tmp_path: Path) -> None:
    with Served(nursery, tmp_path) as served:
        with natsr.Client(served.url) as client:
            client.put("a", ["load"], horizon=2, window=4, method="rls")
            client.observe("a", "2026-01-01T00:00", {"load": 1.0})
            client.forecast("a", wait=60)
        with pytest.raises(RuntimeError, match="another natsr serve"), Served(nursery, tmp_path):
            pass
        served.stop()
        assert not served.alive()
    assert len(list((tmp_path / "snapshots").glob("*/manifest.json"))) == 1
