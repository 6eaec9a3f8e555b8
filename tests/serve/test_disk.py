"""A disk that is full and a folder that cannot be written, for a service in a process of its own; root is not needed.

A limit on the size of files stands for the full disk: the kernel refuses to write beyond it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.serve.harness import PATIENCE, Nursery, Served, moment, rows, uninterrupted

pytestmark = pytest.mark.slow

SRC = Path(__file__).parents[2] / "src"
SETTINGS: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls"}
#: Permissions do not stop root, unless it gives up the right to pass over them: PR_CAPBSET_DROP, CAP_DAC_OVERRIDE.
_LIKE_ANYBODY = """
import ctypes, os, sys
if os.geteuid() == 0:
    assert ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "natsr", *sys.argv[1:]])
"""


@contextmanager
def limited(served: Served, size: int) -> Iterator[None]:
    """No file of the service grows beyond this size."""
    pids = [served.pid, *served.children()]
    before = [resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids]
    for pid, (_, hard) in zip(pids, before, strict=True):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        for pid, limits in zip(pids, before, strict=True):
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process can be set on Linux only")
def test_a_disk_that_is_full_for_a_while(tmp_path: Path) -> None:
    with Nursery() as nursery, Served(nursery, tmp_path / "state", "--snapshot-rows", "50") as served:
        with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
            client.put("/v1/series/a", json=SETTINGS).raise_for_status()
            place, refused = 0, list[httpx.Response]()
            with limited(served, 400_000):
                while len(refused) < 3:
                    answer = client.post("/v1/series/a/observations", json={"rows": rows(0, place, place + 200)})
                    if answer.status_code == 200:
                        place += answer.json()["accepted"]
                        assert place < 200_000, "the limit was never met"
                    else:
                        refused.append(answer)
                assert client.get("/v1/series/a").json()["observations"] == place > 0
            for answer in refused:
                assert answer.status_code in (503, 507) and answer.headers["retry-after"] == "5", answer.text
                assert "nothing of this request was taken" in answer.json()["hint"]
            more = {"rows": rows(0, place, place + 20)}
            assert client.post("/v1/series/a/observations", json=more).json()["accepted"] == 20, "nobody has to help"
            last = place + 19
        served.kill()
        served.start()
        with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
            until = time.monotonic() + PATIENCE
            while client.get("/v1/series/a").json()["pending"] and time.monotonic() < until:
                time.sleep(0.1)
            got = client.get("/v1/series/a/forecast", params={"wait": 60}).json()
            assert client.get("/v1/series/a").json()["observations"] == last + 1
    assert got["mean"]["load"] == uninterrupted(SETTINGS, 0, last + 1, [last])[moment(last)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder that can be removed again, whatever was done to it."""
    made = tmp_path / "state"
    made.mkdir()
    yield made
    writable(made, True)


def writable(folder: Path, yes: bool) -> None:
    for path in [folder, *folder.rglob("*")]:
        path.chmod((0o755 if yes else 0o555) if path.is_dir() else (0o644 if yes else 0o444))


@contextmanager
def started(folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The service, and where it listens, or what it has said if it does not."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    given = ["serve", "--port", "0", "--state", str(folder), "--workers", "1", *more]
    command = [sys.executable, "-c", _LIKE_ANYBODY, *given]
    with tempfile.NamedTemporaryFile("r+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, text=True)
        try:
            said, until = "", time.monotonic() + PATIENCE
            while "listening on " not in said and process.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
                said = Path(log.name).read_text()
            url = said.partition("listening on ")[2].split()[0] if "listening on " in said else ""
            yield process, url or Path(log.name).read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def test_a_folder_that_cannot_be_written_is_refused_at_the_start_and_keeps_what_it_has(folder: Path) -> None:
    with started(folder) as (process, url), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        assert process.poll() is None, url
        client.put("/v1/series/a", json=SETTINGS).raise_for_status()
        assert client.post("/v1/series/a/observations", json={"rows": rows(0, 0, 30)}).json()["accepted"] == 30
    writable(folder, False)
    with started(folder) as (process, said):
        assert process.wait(PATIENCE) == 2 and "cannot be written" in said and "Traceback" not in said
    writable(folder, True)
    with started(folder) as (_, url), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        assert client.get("/v1/series/a").json()["observations"] == 30


def test_a_folder_that_cannot_be_written_any_more_loses_nothing_acknowledged(folder: Path) -> None:
    """What is open stays open, so rows may still be taken; snapshots fail, which is counted and costs a replay."""
    kept = 20
    with started(folder, "--snapshot-rows", "5") as (process, url), httpx.Client(base_url=url, timeout=60) as client:
        assert process.poll() is None, url
        client.put("/v1/series/a", json=SETTINGS).raise_for_status()
        assert client.post("/v1/series/a/observations", json={"rows": rows(0, 0, kept)}).json()["accepted"] == kept
        client.get("/v1/series/a/forecast", params={"wait": 60}).raise_for_status()
        writable(folder, False)
        for _ in range(10):
            answer = client.post("/v1/series/a/observations", json={"rows": rows(0, kept, kept + 10)})
            assert answer.status_code in (200, 503), answer.text
            kept += answer.json()["accepted"] if answer.status_code == 200 else 0
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/series/a").json()["observations"] == kept
        process.kill()
    writable(folder, True)
    with started(folder) as (_, url), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        got = client.get("/v1/series/a/forecast", params={"wait": 60}).json()
        assert client.get("/v1/series/a").json()["observations"] == kept
    assert got["mean"]["load"] == uninterrupted(SETTINGS, 0, kept, [kept - 1])[moment(kept - 1)]
