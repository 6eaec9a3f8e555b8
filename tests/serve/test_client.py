"""The client: the same verbs as `Live`, and requests that are sent again until they are answered."""

from __future__ import annotations

import json
import math
import re
import socket
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.serve.harness import inside, moment, rows

import natsr
from natsr.serve.settings import ServeSettings
from natsr.serve.tokens import add
from natsr.types import OptionError


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with inside(ServeSettings(str(tmp_path_factory.mktemp("state")))) as (_, client):
        yield str(client.base_url)


def test_it_forecasts_as_live_does(url: str) -> None:
    live = natsr.Live(["load"], horizon=3, window=8, method="rls")
    with natsr.Client(url) as client:
        assert client.put("a", ["load"], horizon=3, window=8, method="rls")["observations"] == 0
        given = [(row["time"], row["values"]) for row in rows(0, 0, 30)]
        sent = client.observe_many("a", given)
        assert (sent.accepted, sent.duplicates, sent.refused) == (30, 0, [])
        assert client.observe_many("a", given[:5]).duplicates == 5
        for time, row in given:
            live.observe(time, row)
        levels = (0.5, 0.8)
        got, expected = client.forecast("a", levels, wait=60), live.forecast(levels)
        assert got.origin == expected.origin and got.columns == ("load",)
        assert (got.times == expected.times).all() and (got.mean == expected.mean).all()
        for level in levels:
            assert (got.intervals[level].low == expected.intervals[level].low).all()
            assert (got.intervals[level].high == expected.intervals[level].high).all()
        assert got.frame().shape == (3, 5)
        wanted = (0.05, 0.123456789, 0.9)
        told = client.forecast("a", quantiles=wanted)
        assert (told.quantiles(wanted) == expected.quantiles(wanted)).all()
        with pytest.raises(OptionError, match=r"quantile 0.5 did not come .*0.05, 0.123456789, 0.9"):
            told.quantiles([0.5])
        with pytest.raises(OptionError, match="rising"):
            client.forecast("a", quantiles=(0.9, 0.1))
        assert client.get("a")["observations"] == 30
        assert client.history("a", count=4, step=2)["times"] == [moment(row) for row in range(26, 30)]
        assert client.metrics("a", count=2)["figures"]["rows"] == [29, 30]
        assert client.history("a", count=2, before=moment(10))["times"] == [moment(8), moment(9)]
        assert client.metrics("a", count=1, before=np.datetime64(moment(10)))["figures"]["rows"] == [10]
        assert client.observations("a", count=2, before=moment(3)) == rows(0, 1, 3)
        made = client.forecasts("a", count=2)
        assert [str(one.origin) for one in made] == [moment(28), moment(29)] and (made[1].times == expected.times).all()
        np.testing.assert_allclose(made[1].mean, expected.mean, rtol=1e-6)  # kept as float32
        np.testing.assert_allclose(made[1].intervals[0.9].low, live.forecast().intervals[0.9].low, rtol=1e-6)
        assert [one["key"] for one in client.series()] == ["a"]
        client.delete("a")
        with pytest.raises(natsr.ServiceError) as caught:
            client.delete("a")
        assert caught.value.status == 404


def test_rows_as_people_have_them(url: str) -> None:
    with natsr.Client(url) as client:
        client.put("kinds", ["a", "b"], horizon=2, window=4, method="last_value")
        client.observe("kinds", datetime(2026, 1, 1), {"a": 1, "b": np.float32(2.5)})
        client.observe("kinds", np.datetime64("2026-01-01T01:00"), {"a": math.nan, "b": None})
        client.observe("kinds", "2026-01-01T03:00+01:00", {"a": 3.0})
        assert client.get("kinds")["last_time"] == "2026-01-01T02:00:00"
        assert client.forecast("kinds", wait=60).mean[0].tolist() == [3.0, 2.5]
        with pytest.raises(natsr.DataError, match="late"):
            client.observe("kinds", "2025-12-31T23:00", {"a": 1.0})
        with pytest.raises(natsr.DataError, match="did you mean|expected one of"):
            client.observe("kinds", "2026-01-01T03:00", {"c": 1.0})
        with pytest.raises(natsr.DataError, match="expected a number"):
            client.observe("kinds", "2026-01-01T03:00", {"a": "text"})


@pytest.mark.parametrize(("freq", "kept"), [("h", "3600s"), ("MS", "1MS")])
def test_from_csv_to_live_as_the_page_says(
    freq: str, kept: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The block of the page, word for word, but for the address."""
    page = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    block = re.search(r"^   ```\n(   import natsr\n.*?)^   ```", page, re.DOTALL | re.MULTILINE)
    assert block is not None and "http://127.0.0.1:8000" in block[1]
    key = f"csv-{freq}"
    times = pd.date_range("2020-01-01", periods=41, freq=freq)
    pd.DataFrame({"time": times[:40], "load": np.arange(40.0)}).drop(index=7).to_csv(tmp_path / "load.csv", index=False)
    monkeypatch.chdir(tmp_path)
    code = textwrap.dedent(block[1]).replace("http://127.0.0.1:8000", url).replace("plant-7", key)
    exec(compile(code, "docs/serve.md", "exec"), {})
    said = capsys.readouterr().out
    assert said.startswith("40 taken, 0 known, 0 refused") and "low_90" in said
    with natsr.Client(url) as client:
        assert client.get(key)["freq"] == kept
        assert client.forecast(key, wait=60).times[0] == times[40].to_numpy()


def test_events_come_as_rows_are_learned(url: str) -> None:
    with natsr.Client(url) as client, natsr.Client(url) as other:
        client.put("news", ["load"], horizon=2, window=4, method="last_value")
        stop = threading.Event()

        def send() -> None:  # until somebody has heard one: the stream begins at an unknown moment
            for row in range(10_000):
                other.observe("news", moment(row), {"load": float(row)})
                if stop.wait(0.05):
                    return

        sender = threading.Thread(target=send)
        sender.start()
        try:
            news = next(client.events("news"))
        finally:
            stop.set()
            sender.join(60)
        assert news["key"] == "news" and moment(int(news["values"]["load"])) == news["time"]


def test_tokens(tmp_path: Path) -> None:
    token = add(tmp_path / "tokens.toml", "all", ["admin"], ["*"])
    settings = ServeSettings(str(tmp_path / "state"), tokens=tmp_path / "tokens.toml")
    with inside(settings) as (_, http):
        with natsr.Client(str(http.base_url), token) as client:
            client.put("a", ["load"])
        with natsr.Client(str(http.base_url), "wrong") as client, pytest.raises(natsr.ServiceError) as caught:
            client.get("a")
        assert caught.value.status == 401 and "natsr token" in str(caught.value)


@contextmanager
def scripted(answers: Sequence[tuple[int, Any] | None]) -> Iterator[tuple[str, list[str]]]:
    """A server that answers what it is told to; `None` closes the connection instead."""
    asked: list[str] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(65536).decode().split("\r\n")[0])
                if answer is not None:
                    body = json.dumps(answer[1]).encode()
                    head = (
                        f"HTTP/1.1 {answer[0]} X\r\nContent-Length: {len(body)}\r\nRetry-After: 0\r\nConnection: close"
                    )
                    connection.sendall(head.encode() + b"\r\n\r\n" + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
    finally:
        thread.join(60)
        listener.close()


BUSY = {"error": "busy", "expected": "patience", "hint": "wait"}


def test_what_was_not_answered_is_sent_again() -> None:
    done = {"accepted": 1, "duplicates": 0, "refused": [], "pending": 0}
    with scripted([None, (429, BUSY), (503, BUSY), (200, done)]) as (url, asked), natsr.Client(url) as client:
        assert client.observe("a", moment(0), {"load": 1.0}).accepted == 1
    assert asked == ["POST /v1/series/a/observations HTTP/1.1"] * 4


def test_a_delete_whose_answer_was_lost_is_done() -> None:
    gone = {"error": "not known", "expected": "", "hint": ""}
    with scripted([None, (404, gone)]) as (url, _), natsr.Client(url) as client:
        client.delete("a")


def test_patience_ends() -> None:
    with scripted([(503, BUSY), (503, BUSY)]) as (url, asked), natsr.Client(url, patience=0.0) as client:
        with pytest.raises(natsr.ServiceError, match="busy; expected patience; wait"):
            client.get("a")
        with pytest.raises(natsr.ServiceError):
            client.get("a")
    assert len(asked) == 2
    with natsr.Client(url, patience=0.0) as client, pytest.raises(natsr.ServiceError, match="cannot be reached"):
        client.get("a")


def test_a_full_disk_may_be_emptied() -> None:
    done = {"accepted": 1, "duplicates": 0, "refused": [], "pending": 0}
    with scripted([(507, BUSY), (200, done)]) as (url, asked), natsr.Client(url) as client:
        assert client.observe("a", moment(0), {"load": 1.0}).accepted == 1
    assert len(asked) == 2


def test_mistakes_are_named_before_anything_is_sent() -> None:
    with pytest.raises(natsr.OptionError, match="url is 'localhost:8000', expected .* http://localhost:8000"):
        natsr.Client("localhost:8000")
    with natsr.Client("http://127.0.0.1:1", patience=0.0) as client:
        with pytest.raises(natsr.OptionError, match="columns is the text 'load', expected a list of names"):
            client.put("a", "load")
        with pytest.raises(natsr.DataError, match=r"row is \[1.5\], expected values by column"):
            client.observe("a", moment(0), [1.5])  # type: ignore[arg-type]


def test_without_httpx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(natsr.OptionError, match="natsr\\[serve\\]"):
        natsr.Client("http://127.0.0.1:1")
