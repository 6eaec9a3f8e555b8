"""The service with rows that come more often than every second, over SQLite and PostgreSQL, and killed on the way."""

from __future__ import annotations

import json
import math
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from benchmarks.serve.harness import Nursery, Postgres, Served, inside

import natsr
from natsr.serve.settings import ServeSettings

STEPS = {"100ms": timedelta(milliseconds=100), "250us": timedelta(microseconds=250)}
START = datetime(2026, 1, 1, 23, 59, 59, 500_000)
SETTINGS: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls"}


def at(freq: str, row: int) -> str:
    return (START + row * STEPS[freq]).isoformat(timespec="milliseconds" if freq == "100ms" else "microseconds")


def value(row: int) -> float:
    return 10 + 3 * math.sin(row * math.tau / 13) + (row * 7919 % 101) / 200


def rows(freq: str, first: int, last: int) -> list[dict[str, Any]]:
    return [{"time": at(freq, row), "values": {"load": value(row)}} for row in range(first, last)]


def alone(freq: str, last: int, without: tuple[int, ...] = ()) -> natsr.Live:
    """A learner in this process that nothing ever happened to."""
    live = natsr.Live(**SETTINGS, freq=freq)
    for row in rows(freq, 0, last):
        if row["time"] not in [at(freq, missing) for missing in without]:
            live.observe(row["time"], row["values"])
    return live


@pytest.fixture(params=["sqlite", "postgresql"])
def state(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "state")
    server: Postgres = request.getfixturevalue("database")
    return server.url


@pytest.mark.parametrize("freq", STEPS)
def test_every_verb(freq: str, state: str) -> None:
    key, unit = f"verbs-{freq}", freq[-2:]
    path = f"/v1/series/{key}"
    with inside(ServeSettings(state)) as (_, http), natsr.Client(str(http.base_url)) as client:
        assert client.put(key, **SETTINGS, freq=freq)["freq"] == freq
        assert http.put(path, json={**SETTINGS, "freq": freq}).status_code == 200  # the same again
        assert http.put(path, json={**SETTINGS, "freq": "s"}).status_code == 409
        given = [(row["time"], row["values"]) for row in rows(freq, 0, 40) if row["time"] != at(freq, 20)]
        assert client.observe_many(key, given).accepted == 39
        # A duplicate in another form, one with another value, a late row, and two that are off the grid.
        assert client.observe(key, START, {"load": value(0)}).duplicates == 1
        strange = [
            {"time": at(freq, 39), "values": {"load": -1.0}},
            {"time": at(freq, 20), "values": {"load": 1.0}},
            {"time": "2026-01-02T00:00:05.000125", "values": {"load": 1.0}},
            {"time": "2026-01-02T00:00:05.0000001", "values": {"load": 1.0}},
        ]
        told = http.post(f"{path}/observations", json={"rows": strange}).json()
        assert told["accepted"] == 0 and [row["time"] for row in told["refused"]] == [row["time"] for row in strange]
        reasons = [row["reason"] for row in told["refused"]]
        assert f"row {at(freq, 39)} is kept with other values" in reasons[0]
        assert f"row {at(freq, 20)} is late: {at(freq, 39)} has been taken" in reasons[1]
        assert ("whole milliseconds" if unit == "ms" else "expected a multiple of 250") in reasons[2]
        assert "microseconds at most" in reasons[3]
        # Forecasts, at the usual levels and at others.
        expected = alone(freq, 40, without=(20,)).forecast((0.5, 0.8))
        found = client.forecast(key, (0.5, 0.8), wait=60)
        assert found.plain() == expected.plain() and found.times.dtype == f"datetime64[{unit}]"
        assert client.forecast(key).plain()["times"] == [at(freq, row) for row in range(40, 43)]
        # Looking back, page by page, by the time of the oldest row seen.
        seen: list[str] = []
        before: str | None = None
        while page := client.observations(key, count=7, before=before):
            seen, before = [row["time"] for row in page] + seen, page[0]["time"]
        assert seen == [time for time, _ in given]
        assert client.history(key, count=3, step=2)["times"] == [at(freq, row) for row in (37, 38, 39)]
        assert None not in client.history(key, count=3, step=2)["mean"]["load"]
        assert client.history(key, count=1, before=np.datetime64(at(freq, 5)))["times"] == [at(freq, 4)]
        assert client.metrics(key, count=2, before=at(freq, 10))["times"] == [at(freq, 8), at(freq, 9)]
        made = client.forecasts(key, count=2)
        assert [one.plain()["origin"] for one in made] == [at(freq, 38), at(freq, 39)]
        assert (made[1].times == expected.times).all()
        # Between two rows, and more finely than the series counts.
        between = START + 10 * STEPS[freq] + timedelta(microseconds=1)
        assert client.observations(key, count=1, before=between)[0]["time"] == at(freq, 10)
        assert http.get(f"{path}/observations", params={"before": "2026-01-01T00:00:00.0000001"}).status_code == 422
        assert client.get(key)["last_time"] == at(freq, 39)
        assert [one["freq"] for one in client.series() if one["key"] == key] == [freq]
        assert 'natsr_observations_total{outcome="accepted"} 39.0' in http.get("/metrics").text


@pytest.mark.parametrize("freq", STEPS)
def test_a_snapshot_is_gone_on_from(freq: str, state: str) -> None:
    """Its time is found in the log, so that nothing is learned again."""
    key = f"again-{freq}"
    with inside(ServeSettings(state)) as (_, http), natsr.Client(str(http.base_url)) as client:
        client.put(key, **SETTINGS, freq=freq)
        client.observe_many(key, [(row["time"], row["values"]) for row in rows(freq, 0, 30)])
        client.forecast(key, wait=60)
    with inside(ServeSettings(state)) as (_, http), natsr.Client(str(http.base_url)) as client:
        assert client.forecast(key, wait=60).plain() == alone(freq, 30).forecast().plain()
        assert "natsr_learn_seconds_count 0.0" in http.get("/metrics").text
        client.observe_many(key, [(row["time"], row["values"]) for row in rows(freq, 28, 32)])
        assert client.forecast(key, wait=60).plain() == alone(freq, 32).forecast().plain()
        assert "natsr_learn_seconds_count 2.0" in http.get("/metrics").text


@pytest.mark.parametrize("freq", STEPS)
def test_events_carry_the_time_as_it_is(freq: str, tmp_path: Path) -> None:
    with inside(ServeSettings(str(tmp_path))) as (service, http), natsr.Client(str(http.base_url)) as client:
        client.put("a", **SETTINGS, freq=freq)
        news: list[dict[str, Any]] = []

        def follow() -> None:
            with httpx.stream("GET", f"{http.base_url}/v1/series/a/events", timeout=60) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data: "):
                        news.append(json.loads(line[6:]))
                        if len(news) == 3:
                            return

        watcher = threading.Thread(target=follow)
        watcher.start()
        while not len(service.bus):
            threading.Event().wait(0.01)
        client.observe_many("a", [(row["time"], row["values"]) for row in rows(freq, 0, 3)])
        watcher.join(60)
        assert [one["time"] for one in news] == [at(freq, row) for row in range(3)]
        assert news[-1]["forecast"]["times"][0] == at(freq, 3)


def test_a_whole_second_can_be_asked_about_its_parts(tmp_path: Path) -> None:
    with inside(ServeSettings(str(tmp_path))) as (_, http), natsr.Client(str(http.base_url)) as client:
        client.put("a", **SETTINGS, freq="s")
        client.observe_many("a", [(f"2026-01-01T00:00:0{row}", {"load": row}) for row in range(5)])
        for before, last in (("02", "01"), ("02.000001", "02"), ("02.5", "02")):
            assert client.observations("a", count=1, before=f"2026-01-01T00:00:{before}")[0]["time"].endswith(last)


@pytest.mark.slow
@pytest.mark.parametrize("freq", STEPS)
def test_killed_on_the_way_it_forecasts_as_if_nothing_had_happened(freq: str, state: str, nursery: Nursery) -> None:
    key = f"killed-{freq}"
    expected = alone(freq, 120)
    with Served(nursery, state, "--snapshot-rows", "25") as served:
        with natsr.Client(served.url) as client:
            client.put(key, **SETTINGS, freq=freq)
        for first in (0, 40, 80):
            with natsr.Client(served.url) as client:
                given = [(row["time"], row["values"]) for row in rows(freq, max(0, first - 5), first + 40)]
                told = client.observe_many(key, given)
                assert (told.accepted, told.duplicates) == (40, 5 if first else 0)
                if first == 40:
                    client.forecast(key, wait=60)  # a snapshot of a part of it is on the disk
            served.kill()
            served.start()
        with natsr.Client(served.url) as client:
            assert client.forecast(key, wait=60).plain() == expected.forecast().plain()
            kept = client.observations(key, count=200)
            assert [row["time"] for row in kept] == [at(freq, row) for row in range(120)]
            origins = [one.plain()["origin"] for one in client.forecasts(key, count=5)]
            assert origins == [at(freq, row) for row in range(115, 120)]
