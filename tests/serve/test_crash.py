"""Killed at any moment, on SQLite and PostgreSQL: nothing acknowledged is lost or doubled, forecasts are equal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.serve.crash import Crash, checked_crashes
from benchmarks.serve.harness import Nursery, Served, postgres, postgres_binaries

import natsr


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@contextmanager
def state(database: str, folder: Path) -> Iterator[str]:
    if database == "sqlite":
        yield str(folder / "state")
    else:
        with postgres() as url:
            yield url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database", "kills"),
    [
        ("sqlite", 4),
        pytest.param(
            "postgresql",
            3,
            marks=pytest.mark.skipif(postgres_binaries() is None, reason="PostgreSQL's initdb is not installed"),
        ),
    ],
)
def test_nothing_acknowledged_is_lost(nursery: Nursery, tmp_path: Path, database: str, kills: int) -> None:
    with state(database, tmp_path) as where:
        found = checked_crashes(Crash(nursery, where, kills=kills, series=2, rows=300, seed=1, longest=0.7))
    assert found["kills"] == kills
    assert found["acknowledged"] > 0
    assert (found["lost"], found["doubled"], found["strangers"]) == (0, 0, 0)
    assert found["forecasts_compared"] > 0 and found["forecasts_different"] == 0


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
