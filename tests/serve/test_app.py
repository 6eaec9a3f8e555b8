"""Over HTTP: the contract, every error in one form, the limits, what tokens allow; what is refused changes nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from benchmarks.serve.harness import inside, moment, rows, uninterrupted

from natsr.serve import schemas as models
from natsr.serve.service import Service
from natsr.serve.settings import Limits, ServeSettings
from natsr.serve.tokens import add

SMALL = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls", "freq": "h"}
Pair = tuple[Service, httpx.Client]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with inside(ServeSettings(str(tmp_path_factory.mktemp("state")))) as pair:
        yield pair


@pytest.fixture
def client(shared: Pair) -> httpx.Client:
    return shared[1]


def post(client: httpx.Client, key: str, body: Any, **more: Any) -> httpx.Response:
    return client.post(f"/v1/series/{key}/observations", json=body, **more)


def created(client: httpx.Client, key: str, **more: Any) -> str:
    answer = client.put(f"/v1/series/{key}", json={**SMALL, **more})
    assert answer.status_code == 201, answer.text
    return key


def refused(answer: httpx.Response, status: int, word: str = "") -> dict[str, str]:
    """Every error has the same three fields."""
    assert answer.status_code == status, answer.text
    body: dict[str, str] = answer.json()
    assert set(body) == {"error", "expected", "hint"}
    assert word in body["error"]
    return body


def test_the_contract(client: httpx.Client) -> None:
    assert client.put("/v1/series/contract", json=SMALL).status_code == 201
    again = client.put("/v1/series/contract", json={**SMALL, "freq": "3600s"})
    assert again.status_code == 200
    refused(client.put("/v1/series/contract", json={**SMALL, "horizon": 4}), 409, "horizon")

    answer = post(client, "contract", {"rows": rows(0, 0, 40)}).json()
    assert (answer["accepted"], answer["duplicates"], answer["refused"]) == (40, 0, [])
    answer = post(client, "contract", {"rows": rows(0, 30, 41) + [{"time": moment(50), "values": {"lod": 1}}]}).json()
    assert (answer["accepted"], answer["duplicates"]) == (1, 10)
    assert answer["refused"][0]["time"] == moment(50) and "did you mean load" in answer["refused"][0]["reason"]

    forecast = client.get("/v1/series/contract/forecast", params={"levels": "0.5,0.8", "wait": 60}).json()
    assert forecast["origin"] == moment(40) and forecast["pending"] == 0
    assert forecast["times"] == [moment(row) for row in (41, 42, 43)]
    assert list(forecast["intervals"]) == ["0.5", "0.8"]
    assert [len(pair) for pair in forecast["intervals"]["0.8"]["load"]] == [2, 2, 2]
    alone = uninterrupted(SMALL, 0, 41, [40])
    assert forecast["mean"]["load"] == alone[moment(40)], "the service must forecast what Live does, to the last bit"

    series = client.get("/v1/series/contract").json()
    assert (series["observations"], series["last_time"], series["pending"]) == (41, moment(40), 0)
    assert series["health"]["rows"] == 41
    assert client.delete("/v1/series/contract").status_code == 204
    refused(client.get("/v1/series/contract"), 404, "contract")
    refused(client.delete("/v1/series/contract"), 404)


def test_series_are_listed_in_pages_with_their_last_values(client: httpx.Client) -> None:
    for key in ("list-a", "list-b", "list-c"):
        created(client, key)
    post(client, "list-b", {"rows": [*rows(1, 0, 5), {"time": moment(5), "values": {"load": None}}]})
    page = client.get("/v1/series", params={"count": 2, "after": "list", "recent": 2}).json()
    assert [one["key"] for one in page["series"]] == ["list-a", "list-b"] and page["next"] == "list-b"
    assert page["series"][0]["recent"] == []
    assert page["series"][1]["recent"] == [rows(1, 4, 5)[0]["values"]["load"], None]
    page = client.get("/v1/series", params={"count": 2, "after": page["next"]}).json()
    assert page["series"][0]["key"] == "list-c"


def test_what_came_is_shown_beside_what_was_expected(client: httpx.Client) -> None:
    created(client, "past")
    post(client, "past", {"rows": rows(0, 0, 30)})
    client.get("/v1/series/past/forecast", params={"wait": 60})
    history = client.get("/v1/series/past/history", params={"count": 5, "step": 2}).json()
    assert history["times"] == [moment(row) for row in range(25, 30)]
    assert history["values"]["load"] == [row["values"]["load"] for row in rows(0, 25, 30)]
    alone = uninterrupted(SMALL, 0, 30, range(30))
    expected = [alone[moment(row - 2)][1] for row in range(25, 30)]
    assert history["mean"]["load"] == pytest.approx(expected, rel=1e-6), "kept as float32"
    made = client.get("/v1/series/past/forecasts", params={"count": 2}).json()["forecasts"]
    assert [one["origin"] for one in made] == [moment(28), moment(29)]
    assert made[1]["mean"]["load"] == pytest.approx(alone[moment(29)], rel=1e-6)
    made = client.get("/v1/series/past/forecasts", params={"count": 1, "before": moment(10)}).json()["forecasts"]
    assert [one["origin"] for one in made] == [moment(9)]
    metrics = client.get("/v1/series/past/metrics", params={"count": 3}).json()
    assert metrics["figures"]["rows"] == [28, 29, 30] and metrics["times"][-1] == moment(29)
    kept = client.get("/v1/series/past/observations", params={"count": 2}).json()
    assert kept == {"rows": rows(0, 28, 30)}
    refused(client.get("/v1/series/past/history", params={"step": 4}), 422, "step")
    refused(client.get("/v1/series/past/history", params={"before": "x"}), 422, "before")


def test_events_tell_of_every_row_learned(client: httpx.Client) -> None:
    created(client, "news")
    for path in ("/v1/series/news/events", "/v1/events"):
        first = 0 if "news" in path else 1
        with client.stream("GET", path) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry")
            post(client, "news", {"rows": rows(0, first, first + 1)})
            data = next(line for line in lines if line.startswith("data: "))
        news = json.loads(data.removeprefix("data: "))
        assert (news["key"], news["seq"], news["time"]) == ("news", first + 1, moment(first))
        assert news["values"] == rows(0, first, first + 1)[0]["values"]
        assert news["forecast"]["origin"] == moment(first)
    refused(client.get("/v1/series/none/events"), 404)


def test_quantiles_come_along_if_asked_for(client: httpx.Client) -> None:
    created(client, "spread")
    post(client, "spread", {"rows": rows(0, 0, 40)})
    where = "/v1/series/spread/forecast"
    usual = client.get(where, params={"wait": 60}).json()
    assert "quantiles" not in usual
    found = client.get(where, params={"quantiles": "0.95,0.05,0.5,0.5,0.05"}).json()
    quantiles = found.pop("quantiles")
    assert found == usual and list(quantiles) == ["0.05", "0.5", "0.95"]
    for name, ends in usual["intervals"]["0.9"].items():
        low, middle, high = (quantiles[p][name] for p in ("0.05", "0.5", "0.95"))
        assert [list(pair) for pair in zip(low, high, strict=True)] == ends
        assert all(one <= two <= three for one, two, three in zip(low, middle, high, strict=True))


def test_health_says_whose_forecast_it_is(client: httpx.Client) -> None:
    created(client, "whose", method="auto", options={"budget": "cheap"})
    post(client, "whose", {"rows": rows(0, 0, 40)})
    client.get("/v1/series/whose/forecast", params={"wait": 60})
    health = client.get("/v1/series/whose").json()["health"]
    shares = [value for name, value in health.items() if name.startswith("weight_")]
    assert len(shares) == 8 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 1.0001


def test_forecasts_that_cannot_be(client: httpx.Client) -> None:
    created(client, "empty")
    refused(client.get("/v1/series/empty/forecast"), 409, "no rows")
    post(client, "empty", {"rows": rows(0, 0, 1)})
    for levels in ("x", "0", "1", "0.5,,", ",".join(["0.5"] * 60), ",".join(f"0.{n}" for n in range(10, 40))):
        answer = client.get("/v1/series/empty/forecast", params={"levels": levels})
        assert answer.status_code == 422 or levels.startswith("0.5,0.5"), levels
    for quantiles in ("x", "0", "1", "nan", "-0.1", "0.5,,", ",".join(f"0.{n}" for n in range(10, 40))):
        answer = client.get("/v1/series/empty/forecast", params={"quantiles": quantiles})
        refused(answer, 422, "quantiles is")
    only = client.get("/v1/series/empty/forecast", params={"levels": "", "wait": 60}).json()
    assert only["intervals"] == {} and only["origin"] == moment(0)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"method": "nonsense"}, "nonsense"),
        ({"columns": []}, "columns"),
        ({"columns": ["a", "a"]}, "each name once"),
        ({"columns": ["\x00"]}, "columns"),
        ({"columns": [3]}, "columns"),
        ({"horizon": 0}, "horizon"),
        ({"horizon": 10**6}, "horizon"),
        ({"horizon": 5000}, "horizon times columns"),
        ({"window": 5000}, "window times columns"),
        ({"columns": [str(n) for n in range(300)]}, "columns"),
        ({"freq": "month"}, "freq"),
        ({"freq": "999999999999999999s"}, "freq"),
        ({"protocol": "paper"}, "protocol"),
        ({"options": {"forgetful": 1}}, "forgetful"),
        ({"method": "natsr", "options": {"width": 10**6}}, "width"),
        ({"more": 1}, "more"),
    ],
)
def test_settings_that_make_no_sense(client: httpx.Client, settings: dict[str, Any], word: str) -> None:
    body = refused(client.put("/v1/series/odd", json={**SMALL, **settings}), 422)
    assert word in body["error"]
    refused(client.get("/v1/series/odd"), 404)


@pytest.mark.parametrize("key", ["-a", "a b", "a%00", "%F0%9F%92%A9", "a" * 129, "..%2f..", "a%0a"])
def test_keys_that_cannot_be(client: httpx.Client, key: str) -> None:
    answer = client.put(f"/v1/series/{key}", json=SMALL)
    assert answer.status_code in (404, 422)
    assert set(answer.json()) == {"error", "expected", "hint"}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"rows": 3}',
        b'{"rows": [3]}',
        b'{"rows": [{"time": "2026-01-01"}]}',
        b'{"rows": [{"values": {}}]}',
        b'{"rows": [], "more": 1}',
        b'{"rows": ' + b"[" * 100_000,
        b'{"rows": [{"time": ' + b"9" * 5000 + b', "values": {}}]}',
        b"\xff\xfe\x00",
    ],
)
def test_bodies_that_cannot_be_read(shared: Pair, content: bytes) -> None:
    service, client = shared
    if "bodies" not in [series.key for series in service.all()]:
        created(client, "bodies")
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/series/bodies/observations", content=content, headers=headers)
    assert answer.status_code in (400, 422), answer.text
    assert set(answer.json()) == {"error", "expected", "hint"}
    assert client.get("/v1/series/bodies").json()["observations"] == 0


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/csv", None])
def test_a_body_that_does_not_say_that_it_is_json_is_told_so(client: httpx.Client, kind: str | None) -> None:
    client.put("/v1/series/form", json={"columns": ["load"]})
    headers = {"Content-Type": kind} if kind else {}
    answer = client.post("/v1/series/form/observations", content=b'{"rows": []}', headers=headers)
    assert answer.status_code == 422 and "-H 'Content-Type: application/json'" in answer.json()["hint"]
    assert '{"rows": [{"time"' in answer.json()["expected"]


def test_a_body_in_another_form_is_answered_with_the_right_one(client: httpx.Client) -> None:
    created(client, "other")
    body = client.post("/v1/series/other/observations", json={"time": moment(0), "values": {"load": 1}}).json()
    assert body["error"] == "body.rows: Field required" and '{"rows": [{"time"' in body["expected"]
    assert '{"columns": ["load"]' in client.put("/v1/series/other", json={}).json()["expected"]


def test_rows_that_cannot_be_used_are_refused_alone(client: httpx.Client) -> None:
    created(client, "some")
    text = (
        '{"rows": [{"time": "2026-01-01T00:00:00", "values": {"load": 1e999}},'
        '{"time": "\\ud800", "values": {"load": 1}}, {"time": null, "values": {"load": 1}},'
        '{"time": "2026-01-01T00:00:00", "values": {"\\ud800": 1}}, {"time": "2026-01-01T00:00:00", "values": 7},'
        '{"time": "9999-12-31T23:59:59-23:00", "values": {"load": 1}},'
        '{"time": "2026-01-01T00:00:00", "values": {"load": NaN}}]}'
    )
    headers = {"Content-Type": "application/json"}
    answer = client.post("/v1/series/some/observations", content=text, headers=headers)
    body = answer.json()
    assert answer.status_code == 200 and body["accepted"] == 1, body
    assert len(body["refused"]) == 6 and all(one["reason"] for one in body["refused"])


def test_paths_and_methods_that_are_not_there(client: httpx.Client) -> None:
    refused(client.get("/v2"), 404)
    refused(client.get("/page/../settings.py"), 404)
    refused(client.get("/page/%2e%2e%2fsettings.py"), 404)
    answer = client.patch("/v1/series/x")
    refused(answer, 405)


def test_without_tokens_only_this_machine_may_ask(client: httpx.Client) -> None:
    refused(client.get("/v1/series", headers={"Host": "evil.example"}), 403, "host")
    refused(client.get("/v1/series", headers={"Sec-Fetch-Site": "cross-site"}), 403, "site")
    for host in ("localhost", "127.0.0.1:80", "[::1]:8000", "[::1]"):
        assert client.get("/v1/series", headers={"Host": host}).status_code == 200


def test_health_metrics_page_and_description(shared: Pair) -> None:
    _, client = shared
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").json()["status"] == "ready"
    text = client.get("/metrics").text
    assert "natsr_observations_total" in text and "natsr_pending" in text
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    files = re.findall(r'(?:src|href)="(/page/[^"]+)"', page.text)
    assert len(files) >= 2 and [client.get(path).status_code for path in files] == [200] * len(files)
    again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert again.status_code == 304 and not again.content
    paths = client.get("/openapi.json").json()["paths"]
    assert {"get", "put", "delete"} <= set(paths["/v1/series/{key}"])
    for path, verbs in paths.items():
        for verb, described in verbs.items():
            assert described["responses"], (path, verb)


def test_the_description_has_an_example_of_everything_that_goes_in_and_out(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for path, verbs in document["paths"].items():
        for verb, described in verbs.items():
            bodies = [described["requestBody"]] if "requestBody" in described else []
            for body in (*bodies, *described["responses"].values()):
                reference = body.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref")
                if reference is not None:
                    name = reference.rpartition("/")[2]
                    assert schemas[name]["examples"], (path, verb, name)
                    for example in schemas[name]["examples"]:
                        getattr(models, name).model_validate(example)


def test_the_examples_are_what_is_answered(client: httpx.Client) -> None:
    """Each example has the fields of a true answer."""
    created(client, "example")
    answers = {"RowsOut": post(client, "example", {"rows": rows(0, 0, 30)})}
    answers["ForecastOut"] = client.get("/v1/series/example/forecast", params={"wait": 60})
    kinds = {"SeriesOut": "", "HistoryOut": "/history", "PastList": "/forecasts", "MetricsOut": "/metrics"}
    answers |= {name: client.get(f"/v1/series/example{path}") for name, path in kinds.items()}
    answers["SeriesList"] = client.get("/v1/series", params={"recent": 3})
    for name, answer in answers.items():
        (example,) = getattr(models, name).model_config["json_schema_extra"]["examples"]
        assert set(example) == set(answer.json()), name


def test_limits(tmp_path: Path) -> None:
    limits = Limits(body_bytes=2000, rows=5, series=2, pending=10)
    with inside(ServeSettings(str(tmp_path), limits=limits)) as (service, client):
        created(client, "one")
        created(client, "two")
        assert "--max-series" in refused(client.put("/v1/series/three", json=SMALL), 403, "2 series")["hint"]
        refused(post(client, "one", {"rows": rows(0, 0, 6)}), 413, "6 rows")
        refused(client.post("/v1/series/one/observations", content=b" " * 2001), 413, "large")
        chunks = iter([b" " * 1000] * 3)  # no length is told
        refused(client.post("/v1/series/one/observations", content=chunks), 413, "large")
        assert client.get("/v1/series/one").json()["observations"] == 0
        service.learners.stop()
        for first in (0, 5):
            assert post(client, "one", {"rows": rows(0, first, first + 5)}).json()["accepted"] == 5
        answer = post(client, "one", {"rows": rows(0, 10, 11)})
        refused(answer, 429, "not learned")
        assert int(answer.headers["retry-after"]) > 0
        assert client.get("/v1/series/one").json()["observations"] == 10


def test_rate(tmp_path: Path) -> None:
    with inside(ServeSettings(str(tmp_path), limits=Limits(rate=0.001))) as (_, client):
        answers = [client.get("/healthz") for _ in range(3)]
        refused(answers[-1], 429, "too many")
        assert int(answers[-1].headers["retry-after"]) > 0


def test_tokens_allow_what_they_say_and_nothing_else_changes_anything(tmp_path: Path) -> None:
    path = tmp_path / "tokens.toml"
    admin = add(path, "admin", ["admin"], ["*"])
    plant = add(path, "plant", ["read", "write"], ["plant-*"])
    reader = add(path, "reader", ["read"], ["*"])
    with inside(ServeSettings(str(tmp_path / "state"), tokens=path)) as (service, client):
        tokens = {"admin": admin, "plant": plant, "reader": reader, "wrong": admin + "x"}
        headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()} | {"none": {}}
        for key in ("plant-1", "other"):
            assert client.put(f"/v1/series/{key}", json=SMALL, headers=headers["admin"]).status_code == 201
        assert post(client, "plant-1", {"rows": rows(0, 0, 3)}, headers=headers["plant"]).json()["accepted"] == 3
        before = [(series.key, series.tail) for series in service.all()]

        for who in ("wrong", "none"):
            for method, url in (("GET", "/v1/series"), ("PUT", "/v1/series/new"), ("DELETE", "/v1/series/plant-1"),
                                ("POST", "/v1/series/plant-1/observations"), ("GET", "/v1/series/plant-1/events"),
                                ("GET", "/metrics"), ("GET", "/v1/series/missing")):  # fmt: skip
                answer = client.request(method, url, content=b"{broken", headers=headers[who])
                refused(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        odd = {"Authorization": "Basic " + admin}
        refused(client.get("/v1/series", headers=odd), 401)
        for who, method, url in (
            ("plant", "GET", "/v1/series/other"),
            ("plant", "GET", "/v1/series/other/forecast"),
            ("plant", "GET", "/v1/series/missing"),
            ("plant", "POST", "/v1/series/other/observations"),
            ("plant", "DELETE", "/v1/series/plant-1"),
            ("plant", "PUT", "/v1/series/plant-2"),
            ("reader", "POST", "/v1/series/plant-1/observations"),
            ("reader", "DELETE", "/v1/series/plant-1"),
        ):
            refused(client.request(method, url, json={"rows": rows(0, 3, 4)}, headers=headers[who]), 403, "may not")
        assert [(series.key, series.tail) for series in service.all()] == before

        listed = client.get("/v1/series", headers=headers["plant"]).json()
        assert [one["key"] for one in listed["series"]] == ["plant-1"] and listed["total"] == 1
        assert client.get("/v1/series", headers=headers["reader"]).json()["total"] == 2
        assert client.get("/healthz").status_code == client.get("/").status_code == 200
        assert client.get("/metrics", headers=headers["reader"]).status_code == 200


def test_missing_values_travel_as_null(client: httpx.Client) -> None:
    created(client, "gaps", columns=["a", "b"])
    given = [{"time": moment(row), "values": {"a": 1.0 + row, "b": None}} for row in range(4)]
    assert post(client, "gaps", {"rows": given}).json()["accepted"] == 4
    forecast = client.get("/v1/series/gaps/forecast", params={"wait": 60}).json()
    assert forecast["mean"]["b"] == [None] * 3
    assert all(math.isfinite(value) for value in forecast["mean"]["a"])
    assert client.get("/v1/series/gaps/history").json()["values"]["b"] == [None] * 4
