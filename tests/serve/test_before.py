"""A service's state of natsr 0.5.0, on both databases: everything is there, is answered as before, and goes on."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from benchmarks.serve.harness import Postgres, inside

from natsr.serve.settings import ServeSettings

BEFORE = Path(__file__).parents[1] / "states" / "natsr-0.5.0" / "serve"
TOLD: dict[str, dict[str, Any]] = json.loads((BEFORE / "answers.json").read_text(encoding="utf-8"))


def folder(place: Path) -> Path:
    """The state as it lay on the disk."""
    place.mkdir()
    connection = sqlite3.connect(place / "natsr.db")
    connection.executescript((BEFORE / "natsr.sql").read_text(encoding="utf-8"))
    connection.close()
    shutil.copytree(BEFORE / "snapshots", place / "snapshots")
    return place


def goes_on(client: httpx.Client) -> None:
    for key, told in TOLD.items():
        for path, answer in told["answers"].items():
            assert client.get(f"/v1/series/{key}/{path}").text == answer, (key, path)  # to the letter
        again = json.loads(told["answers"]["observations?count=5"])
        assert client.post(f"/v1/series/{key}/observations", json=again).json()["duplicates"] == 5
    # A series that comes more often than every second lives beside them.
    fine = {"columns": ["load"], "horizon": 2, "window": 4, "method": "last_value", "freq": "100ms"}
    assert client.put("/v1/series/fine", json=fine).status_code == 201
    rows = [{"time": f"2026-01-01T00:00:00.{row}", "values": {"load": row}} for row in range(10)]
    assert client.post("/v1/series/fine/observations", json={"rows": rows}).json()["accepted"] == 10
    later(client)
    found = client.get("/v1/series/fine/forecast", params={"wait": 60}).json()
    assert found["times"] == ["2026-01-01T00:00:01.000", "2026-01-01T00:00:01.100"]


def later(client: httpx.Client) -> None:
    """New rows are taken and learned as they were."""
    for key, told in TOLD.items():
        sent = client.post(f"/v1/series/{key}/observations", json={"rows": told["rows"]}).json()
        assert (sent["accepted"], sent["refused"]) == (4, [])
        found = client.get(f"/v1/series/{key}/forecast", params={"wait": 60}).json()
        for part in ("origin", "times", "pending"):
            assert found[part] == told["later"][part]
        assert found["mean"]["load"] == pytest.approx(told["later"]["mean"]["load"], rel=1e-6)


def test_sqlite(tmp_path: Path) -> None:
    with inside(ServeSettings(str(folder(tmp_path / "state")))) as (service, client):
        goes_on(client)
        assert service.learners.failed == 0
        assert "natsr_learn_seconds_count 18.0" in client.get("/metrics").text  # the new rows: snapshots go on
    with inside(ServeSettings(str(tmp_path / "state"))) as (_, client):
        assert client.get("/v1/series/fine").json()["last_time"] == "2026-01-01T00:00:00.900"
        assert client.get("/v1/series/hours").json()["observations"] == 34


def test_sqlite_without_snapshots(tmp_path: Path) -> None:
    shutil.rmtree(folder(tmp_path / "state") / "snapshots")
    with inside(ServeSettings(str(tmp_path / "state"))) as (_, client):
        later(client)


def test_postgresql(database: Postgres) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute((BEFORE / "postgresql.sql").read_bytes())
    with inside(ServeSettings(database.url)) as (service, client):
        goes_on(client)
        assert service.learners.failed == 0
        assert "natsr_learn_seconds_count 18.0" in client.get("/metrics").text
