"""Exogenous and known columns over HTTP: as `Live` has them, kept with their rows, and shown as they were posted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.serve.harness import inside, moment, value

import natsr
from natsr.serve.settings import ServeSettings

HORIZON = 2
SETTINGS: dict[str, Any] = {
    "horizon": HORIZON, "window": 4, "freq": "h", "method": "ogd", "exogenous": ["wind"], "known": ["holiday"],
    "options": {"width": 2, "depth": 1, "epochs": 1},
}  # fmt: skip


def given(row: int) -> tuple[str, dict[str, float | None], dict[str, list[float | None]] | None]:
    """A row, and, with every second one, what is planned after it."""
    values = {"load": value(0, row), "wind": None if row % 7 == 0 else value(1, row), "holiday": float(row % 5 == 0)}
    plan: list[float | None] = [None if ahead % 6 == 0 else float(ahead % 5 == 0) for ahead in (row + 1, row + 2)]
    return moment(row), values, {"holiday": plan} if row % 2 else None


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with inside(ServeSettings(str(tmp_path), snapshot_rows=7, resident=1)) as (_, made):
        yield made


@pytest.mark.parametrize("method", ["ogd", "auto"])
def test_the_service_forecasts_as_live_does(client: httpx.Client, method: str) -> None:
    settings = SETTINGS if method == "ogd" else {**SETTINGS, "method": "auto", "options": {"budget": "cheap"}}
    live = natsr.Live(["load"], **settings)
    with natsr.Client(str(client.base_url)) as caller:
        said = caller.put("a", ["load"], **settings)
        assert (said["exogenous"], said["known"]) == (["wind"], ["holiday"])
        assert caller.put("a", ["load"], **settings)["key"] == "a"
        for row in range(25):
            time, values, future = given(row)
            live.observe(time, values, future)
            caller.observe("a", time, values, future)
            if row == 12:  # and back again from its snapshot
                caller.put("b", ["load"], horizon=1, method="last_value")
                caller.observe("b", time, {"load": 1.0})
                caller.forecast("b", wait=60)
        got, expected = caller.forecast("a", wait=60), live.forecast()
        assert got.columns == ("load",) and (got.mean == expected.mean).all()
        many = [given(row) for row in range(25)]
        again = caller.observe_many(
            "a", [(time, row) if plan is None else (time, row, plan) for time, row, plan in many]
        )
        assert (again.accepted, again.duplicates, again.refused) == (0, 25, [])
        assert caller.history("a", count=2)["values"]["load"] == [value(0, 23), value(0, 24)]
        with pytest.raises(natsr.DataError, match="expected 2"):
            caller.observe("a", moment(25), {"load": 1.0}, {"holiday": [1.0]})

    rows = client.get("/v1/series/a/observations", params={"count": 3}).json()["rows"]
    for shown, (time, values, future) in zip(rows, many[-3:], strict=True):
        assert (shown["time"], shown["values"], shown.get("future")) == (time, values, future)
    assert client.get("/v1/series", params={"recent": 2}).json()["series"][0]["recent"] == [value(0, 23), value(0, 24)]


def test_what_makes_no_sense_is_refused(client: httpx.Client) -> None:
    body = {"columns": ["load"], **SETTINGS}
    for more, word in (
        ({"method": "rls", "options": {}}, "reads the values only"),
        ({"known": ["load"]}, "more than once"),
        ({"known": [f"k{number}" for number in range(300)]}, "columns"),
        ({"window": 2000, "exogenous": ["a", "b"]}, "window times columns"),
    ):
        answer = client.put("/v1/series/bad", json={**body, **more})
        assert answer.status_code == 422 and word in answer.json()["error"], answer.text
    client.put("/v1/series/a", json=body).raise_for_status()
    other = client.put("/v1/series/a", json={**body, "known": []})
    assert other.status_code == 409 and "known" in other.json()["error"]
    row: dict[str, Any] = {"time": moment(0), "values": {"load": 1, "wind": 1, "holiday": 0}}
    for future in ({"wind": [1, 2]}, {"holiday": [1]}, {"holiday": "12"}, [1, 2], "no", 3, {"holiday": [1, {}]}):
        answer = client.post("/v1/series/a/observations", json={"rows": [{**row, "future": future}]}).json()
        assert answer["accepted"] == 0 and "future" in answer["refused"][0]["reason"], future
    told = {**row, "future": {"holiday": [0, 1]}}
    taken = client.post("/v1/series/a/observations", json={"rows": [told, told, row]}).json()
    assert (taken["accepted"], taken["duplicates"]) == (1, 1) and "other values" in taken["refused"][0]["reason"]


def test_the_document_describes_plans(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()["components"]["schemas"]
    assert {"exogenous", "known"} <= set(document["SeriesIn"]["properties"])
    assert any("future" in example["rows"][0] for example in document["RowsIn"]["examples"])
    for number, example in enumerate(document["SeriesIn"]["examples"]):
        assert client.put(f"/v1/series/x{number}", json=example).status_code == 201
