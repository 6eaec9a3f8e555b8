"""Rows that come once a month, a quarter, a year or a working day, through every door: `Live`, a pipe, the service."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from benchmarks.serve.harness import Nursery, Postgres, Served, inside
from typer.testing import CliRunner

import natsr
from natsr.cli import app
from natsr.live import Live, LiveForecast
from natsr.serve.settings import ServeSettings
from natsr.types import DataError, Option

W, H = 8, 4
SMALL: dict[str, Option] = {"width": 4, "depth": 3, "top": 8, "epochs": 1, "memory": 20}
#: What `Live` is told, and what pandas calls the same.
GRIDS = {"B": "B", "M": "MS", "MS": "MS", "ME": "ME", "Q": "QE", "QS": "QS", "Y": "YE", "6M": "6ME", "YS": "YS"}


def grid(pandas: str, rows: int, start: str = "1970-01-01") -> pd.DatetimeIndex:
    """Times as pandas makes them, so that ours are not compared with themselves."""
    return pd.date_range(start, periods=rows, freq=pandas)


def thirtieths(rows: int) -> list[pd.Timestamp]:
    """The 30th of every month, and the last day of February."""
    return [pd.Timestamp("1970-01-30") + pd.DateOffset(months=month) for month in range(rows)]


def wave(rows: int) -> npt.NDArray[np.float64]:
    noise = np.random.default_rng(3).normal(size=rows)
    return 100 + 10 * np.sin(np.arange(rows) * math.tau / 12) + noise


def a_live(freq: str, method: str = "rls", **more: Any) -> Live:
    options = SMALL if method == "natsr" else None
    return Live(["load"], horizon=H, window=W, freq=freq, method=method, options=options, **more)


def fed(live: Live, times: Iterable[Any], values: npt.NDArray[np.float64]) -> list[LiveForecast]:
    forecasts = []
    for time, value in zip(times, values, strict=True):
        live.observe(time, [value])
        forecasts.append(live.forecast())
    return forecasts


def same(a: LiveForecast, b: LiveForecast) -> bool:
    """To the last bit."""
    ends = [(a.intervals[level], b.intervals[level]) for level in a.intervals]
    equal = [np.array_equal(x, y, equal_nan=True) for one, other in ends for x, y in zip(one, other, strict=True)]
    return bool((a.times == b.times).all() and np.array_equal(a.mean, b.mean, equal_nan=True) and all(equal))


# ---- Live ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("freq", "pandas"), GRIDS.items())
def test_forecasts_fall_on_the_grid(freq: str, pandas: str) -> None:
    times = grid(pandas, 60 + H)
    for row, forecast in enumerate(fed(a_live(freq), times[:60], wave(60))):
        assert forecast.origin == times[row].to_numpy()
        assert (forecast.times == times[row + 1 : row + 1 + H].to_numpy()).all()


def test_a_day_that_some_months_lack() -> None:
    times = thirtieths(40 + H)
    for row, forecast in enumerate(fed(a_live("M"), times[:40], wave(40))):
        assert list(forecast.times) == times[row + 1 : row + 1 + H]


def test_a_year_is_the_season_of_months() -> None:
    live = a_live("ME", "seasonal")
    values = wave(40)
    fed(live, grid("ME", 40), values)
    np.testing.assert_allclose(live.forecast().mean[:, 0], values[28 : 28 + H], rtol=1e-6)


def test_months_that_did_not_come_are_missing_rows() -> None:
    times, values = grid("ME", 80), wave(80)
    gaps = [30, 31, 55, *range(60, 75)]
    whole, gapped = a_live("M"), a_live("M")
    for row in range(80):
        whole.observe(times[row], [math.nan if row in gaps else values[row]])
        if row not in gaps:
            gapped.observe(times[row], [values[row]])
            assert same(whole.forecast(), gapped.forecast())


def test_a_history_is_as_good_as_a_cold_start_and_may_have_gaps() -> None:
    times, values = grid("QE", 60), wave(60)
    cold, warm, framed = (a_live("Q") for _ in range(3))
    fed(cold, times[: W + H], values[: W + H])
    warm.warm_up((times[: W + H].to_numpy(), values[: W + H, None]))
    assert same(cold.forecast(), warm.forecast())
    kept = [row for row in range(40) if row not in (7, 8, 20)]
    frame = pd.DataFrame({"load": values[kept]}, index=times[kept])
    framed.warm_up(frame)
    assert framed.forecast().times[0] == times[40].to_numpy()
    again = a_live("Q")
    again.warm_up((times[:40].to_numpy(), np.where(np.isin(np.arange(40), kept), values[:40], math.nan)[:, None]))
    assert same(framed.forecast(), again.forecast())


def test_a_frame_of_periods() -> None:
    values = wave(40)
    by_period, by_time = a_live("M"), a_live("MS")
    index = pd.period_range("2020-01", periods=40, freq="M")
    by_period.warm_up(pd.DataFrame({"load": values}, index=index))
    by_time.warm_up((grid("MS", 40, "2020-01-01").to_numpy(), values[:, None]))
    assert same(by_period.forecast(), by_time.forecast())
    by_period.observe(index[-1] + 1, {"load": 1.0})
    by_time.observe("2023-05", {"load": 1.0})
    assert same(by_period.forecast(), by_time.forecast())


def test_what_is_refused_changes_nothing() -> None:
    live, times = a_live("M"), grid("ME", 30)
    fed(live, times[:20], wave(20))
    before = live.forecast()
    for time, message in (
        (times[19], "duplicate"),
        (times[5], "late"),
        ("1971-09-29", "off the grid of one row every month, expected 1971-09-30T00:00:00, 1971-10-31T00:00:00 or"),
        ("1971-09-30T01:00", "off the grid"),
        ("1971-10-30", "off the grid"),
    ):
        with pytest.raises(DataError, match=message):
            live.observe(time, [1.0])
        assert same(live.forecast(), before)
    live.observe(times[20], [1.0])


def test_the_end_of_a_short_month_may_be_a_day_of_every_month(tmp_path: Path) -> None:
    """What one row leaves open the next one tells; between them lies a saved state."""
    for second, third, wrong in (
        ("2026-05-31", "2026-06-30", "2026-07-30"),
        ("2026-05-30", "2026-06-30", "2026-07-31"),
    ):
        live = a_live("M")
        live.observe("2026-04-30", [1.0])
        assert str(live.forecast().times[0]) == "2026-05-31T00:00:00"
        for row in (second, third):
            live.save(tmp_path)
            live = Live.load(tmp_path)
            live.observe(row, [2.0])
        with pytest.raises(DataError, match="off the grid"):
            live.observe(wrong, [3.0])


@pytest.mark.parametrize(
    ("method", "freq", "pandas"), [("natsr", "ME", "ME"), ("rls", "M", "MS"), ("rls", "Q", "QE"), ("rls", "B", "B")]
)
def test_the_next_500_forecasts_after_loading_are_the_same(method: str, freq: str, pandas: str, tmp_path: Path) -> None:
    times, values = grid(pandas, 600), wave(600)
    live = a_live(freq, method)
    live.warm_up((times[:60].to_numpy(), values[:60, None]))
    fed(live, times[60:100], values[60:100])
    live.save(tmp_path)
    again = Live.load(tmp_path)
    assert same(live.forecast(), again.forecast())
    both = (fed(each, times[100:], values[100:]) for each in (live, again))
    assert all(same(a, b) for a, b in zip(*both, strict=True))


def test_every_key_of_a_fleet_has_its_own_months(tmp_path: Path) -> None:
    fleet = natsr.Fleet(["load"], horizon=H, window=W, freq="M", method="rls")
    alone = {key: a_live("M", rescale=False) for key in ("starts", "ends")}
    times = {"starts": grid("MS", 50), "ends": grid("ME", 50)}
    values = wave(50)
    for row in range(50):
        for key, live in alone.items():
            live.observe(times[key][row], [values[row]])
            fleet.observe(times[key][row], {key: [values[row]]})
        if row == 30:
            fleet.save(tmp_path)
            fleet = natsr.Fleet.load(tmp_path)
        for key, forecast in fleet.forecast().items():
            expected = alone[key].forecast()
            assert (forecast.times == expected.times).all()
            np.testing.assert_allclose(forecast.mean, expected.mean, rtol=1e-4)
    with pytest.raises(DataError, match="key 'ends': row 1974-03-30T00:00:00 is off the grid"):
        fleet.observe("1974-03-30", {"ends": [1.0]})


# ---- natsr run - -----------------------------------------------------------------------------------------------------


def follow(lines: Sequence[str], *arguments: str) -> list[dict[str, Any]]:
    usual = ("run", "-", "--method", "rls", "--window", str(W), "--horizon", str(H))
    done = CliRunner().invoke(app, [*usual, *arguments], input="\n".join(lines) + "\n")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("written", "pandas", "arguments"),
    [
        ("%Y-%m-%d", "ME", ()),
        ("%Y-%m", "MS", ()),
        ("%Y-%m-%d", "QE", ("--freq", "Q")),
        ("%Y", "YS", ()),
        ("%Y-%m-%d", "B", ("--freq", "B")),
    ],
)
def test_a_pipe_of_months(written: str, pandas: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    times, values = grid(pandas, 40), wave(40)
    rows = [f"{time.strftime(written)},{value}" for time, value in zip(times, values, strict=True)]
    whole = follow(["time,load", *rows], *arguments)
    assert whole == [forecast.plain() | {"drift": None} for forecast in fed(a_live(pandas), times, values)]
    kept = str(tmp_path)
    first = follow(["time,load", *rows[:25]], "--state", kept, *arguments)
    second = follow(["time,load", *rows[20:]], "--state", kept, *arguments)
    assert all("late" in answer["refused"] or "duplicate" in answer["refused"] for answer in second[:5])
    assert first + second[5:] == whole


def test_a_pipe_of_quarters_in_json() -> None:
    values = wave(20)
    rows = [json.dumps({"time": f"{2000 + row // 4}Q{1 + row % 4}", "load": values[row]}) for row in range(20)]
    del rows[6]
    answers = follow(rows)
    live = a_live("QS")
    times = grid("QS", 20, "2000-01-01")
    expected = [row for row in range(20) if row != 6]
    assert answers == [one.plain() | {"drift": None} for one in fed(live, times[expected], values[expected])]


# ---- natsr serve -----------------------------------------------------------------------------------------------------

SETTINGS = {"columns": ["load"], "horizon": H, "window": W, "method": "rls", "freq": "M"}


def rows_of(times: Iterable[pd.Timestamp], values: npt.NDArray[np.float64]) -> list[dict[str, Any]]:
    pairs = zip(times, values, strict=True)
    return [{"time": time.isoformat(), "values": {"load": value}} for time, value in pairs]


def test_the_service_takes_months(tmp_path: Path) -> None:
    times, values = grid("ME", 60), wave(60)
    given = rows_of(times, values)
    alone = fed(a_live("M"), times, values)
    with inside(ServeSettings(str(tmp_path))) as (_, client):

        def post(rows: list[dict[str, Any]]) -> dict[str, Any]:
            return dict(client.post("/v1/series/sales/observations", json={"rows": rows}).json())

        assert client.put("/v1/series/sales", json=SETTINGS).status_code == 201
        assert client.put("/v1/series/sales", json={**SETTINGS, "freq": "1M"}).status_code == 200
        assert client.put("/v1/series/sales", json={**SETTINGS, "freq": "MS"}).status_code == 409
        assert client.get("/v1/series/sales").json()["freq"] == "1M"
        assert post(given[:50])["accepted"] == 50
        answer = post(
            [*given[45:60], {"time": "1975-01-30", "values": {"load": 1}}, rows_of(times[3:4], values[:1])[0]]
        )
        assert (answer["accepted"], answer["duplicates"]) == (10, 5)
        assert "off the grid of one row every month" in answer["refused"][0]["reason"]
        assert "other values" in answer["refused"][1]["reason"]
        got = client.get("/v1/series/sales/forecast", params={"wait": 60}).json()
        assert got == {**alone[-1].plain(), "pending": 0}
        made = client.get("/v1/series/sales/forecasts", params={"count": 60}).json()["forecasts"]
        assert [one["times"] for one in made] == [one.plain()["times"] for one in alone]
        history = client.get("/v1/series/sales/history", params={"count": 40, "step": 3}).json()
        assert history["times"] == [row["time"] for row in given[20:]]
        expected = [float(alone[row - 3].mean[2, 0]) for row in range(20, 60)]
        assert history["mean"]["load"] == pytest.approx(expected, rel=1e-6)
        for freq in ("13M", "2Y", "m"):
            assert client.put("/v1/series/long", json={**SETTINGS, "freq": freq}).status_code == 422


def test_the_day_is_found_in_the_log_after_a_restart(tmp_path: Path) -> None:
    """The first rows leave it open; nothing but the log tells a new service what they were."""

    def post(*days: str) -> list[str]:
        rows = [{"time": day, "values": {"load": 1.0}} for day in days]
        with inside(ServeSettings(str(tmp_path))) as (_, client):
            client.put("/v1/series/bills", json=SETTINGS)
            answer = client.post("/v1/series/bills/observations", json={"rows": rows}).json()
            return [refused["time"] for refused in answer["refused"]]

    assert post("2026-02-28") == []
    assert post("2026-04-30") == []  # an end too, of a longer month
    assert post("2026-05-29", "2026-05-30") == ["2026-05-29"]
    assert post("2026-07-31", "2027-02-27", "2027-02-28", "2027-03-30") == ["2026-07-31", "2027-02-27"]


def test_the_service_takes_working_days(tmp_path: Path) -> None:
    times, values = grid("B", 60), wave(60)
    given = rows_of(times, values)
    del given[33]  # a holiday
    alone = a_live("B")
    for row in given:
        alone.observe(row["time"], row["values"])
    for state in range(2):  # and once more, from what is kept
        with inside(ServeSettings(str(tmp_path))) as (_, client):
            client.put("/v1/series/till", json={**SETTINGS, "freq": "B"})
            answer = client.post("/v1/series/till/observations", json={"rows": given}).json()
            assert (answer["accepted"], answer["duplicates"]) == ((59, 0) if state == 0 else (0, 59))
            weekend = {"time": "1970-04-04", "values": {"load": 1}}
            refused = client.post("/v1/series/till/observations", json={"rows": [weekend]}).json()["refused"]
            assert "is on a weekend" in refused[0]["reason"]
            got = client.get("/v1/series/till/forecast", params={"wait": 60}).json()
            assert got == {**alone.forecast().plain(), "pending": 0}
            history = client.get("/v1/series/till/history", params={"count": 10, "step": 4}).json()
            assert None not in history["mean"]["load"]


def killed(nursery: Nursery, state: str, snapshots: bool) -> None:
    """Kill it after rows that were acknowledged, three times, and compare with a run that nothing happened to."""
    times, values = thirtieths(90), wave(90)
    given = rows_of(times, values)
    alone = fed(a_live("M"), times, values)
    more = ("--snapshot-rows", "7") if snapshots else ()
    key = f"bills-{snapshots}"
    with Served(nursery, state, *more) as served:
        for first in range(0, 90, 30):
            with natsr.Client(served.url) as client:
                client.put(key, ["load"], horizon=H, window=W, method="rls", freq="M")
                sent = client.observe_many(key, [(row["time"], row["values"]) for row in given[: first + 15]])
                assert (sent.accepted, sent.duplicates, sent.refused) == (15, first, [])
                served.kill()
            served.start()
            with natsr.Client(served.url) as client:
                assert same(client.forecast(key, wait=60), alone[first + 14])
                client.observe_many(key, [(row["time"], row["values"]) for row in given[first + 15 : first + 30]])
                assert same(client.forecast(key, wait=60), alone[first + 29])
                with pytest.raises(DataError, match="off the grid"):
                    client.observe(key, times[first + 29] + pd.Timedelta(days=1), {"load": 1.0})


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [False, True])
def test_a_kill_costs_nothing_on_sqlite(nursery: Nursery, snapshots: bool, tmp_path: Path) -> None:
    killed(nursery, str(tmp_path), snapshots)


@pytest.mark.slow
@pytest.mark.parametrize("snapshots", [False, True])
def test_a_kill_costs_nothing_on_postgresql(nursery: Nursery, snapshots: bool, database: Postgres) -> None:
    killed(nursery, database.url, snapshots)


def test_the_client_takes_months_as_people_have_them(tmp_path: Path) -> None:
    values = wave(30)
    live = a_live("MS")
    with inside(ServeSettings(str(tmp_path))) as (_, http), natsr.Client(str(http.base_url)) as client:
        client.put("sales", ["load"], horizon=H, window=W, method="rls", freq="MS")
        periods = pd.period_range("2020-01", periods=30, freq="M")
        sent = client.observe_many("sales", [(time, {"load": v}) for time, v in zip(periods, values, strict=True)])
        assert sent.accepted == 30 and client.observe("sales", "2022-06", {"load": values[29]}).duplicates == 1
        fed(live, grid("MS", 30, "2020-01-01"), values)
        assert same(client.forecast("sales", wait=60), live.forecast())
        assert client.history("sales", count=2)["times"] == ["2022-05-01T00:00:00", "2022-06-01T00:00:00"]
