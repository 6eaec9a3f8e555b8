"""A fleet is as many `Live`s: the same forecasts for every key, whoever joins, misses rows or is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import natsr
from natsr.keyed import Fleet
from natsr.live import Live, LiveForecast
from natsr.types import DataError, Option, OptionError, StateError

START = datetime(2026, 1, 1)
COLUMNS = ["load", "heat"]
SMALL: dict[str, Option] = {"width": 4, "depth": 2, "top": 4, "memory": 10, "epochs": 1, "dtype": "float64"}
OPTIONS: dict[str, dict[str, Option]] = {"natsr": {**SMALL, "every": 5}, "er": SMALL}


def at(hour: int) -> datetime:
    return START + timedelta(hours=hour)


def row(key: str, hour: int) -> list[float]:
    """Waves of a size and a level of the key's own; now and then a value is missing."""
    size = 1.0 + len(key)
    load = size * math.sin(hour / 3 + len(key)) + 10 * size
    return [math.nan if hour % 11 == 10 else load, size * math.cos(hour / 4)]


def fleet(method: str = "natsr", stepping: str = "together", keys: list[str] | None = None) -> Fleet:
    options = OPTIONS.get(method)
    return Fleet(COLUMNS, 2, "h", method, 6, options=options, keys=keys, stepping=stepping)


def live(method: str = "natsr") -> Live:
    return Live(COLUMNS, 2, "h", method, 6, options=OPTIONS.get(method))


def same(ours: Mapping[str, LiveForecast], theirs: Mapping[str, LiveForecast], atol: float = 1e-6) -> None:
    assert ours.keys() == theirs.keys()
    for key, forecast in ours.items():
        other = theirs[key]
        assert forecast.origin == other.origin and list(forecast.times) == list(other.times)
        np.testing.assert_allclose(forecast.mean, other.mean, rtol=0, atol=atol)
        for level, (low, high) in forecast.intervals.items():
            np.testing.assert_allclose(low, other.intervals[level].low, rtol=0, atol=atol)
            np.testing.assert_allclose(high, other.intervals[level].high, rtol=0, atol=atol)


@pytest.mark.parametrize(("method", "stepping"), [("natsr", "together"), ("er", "auto"), ("rls", "auto")])
def test_every_key_forecasts_as_it_would_alone(method: str, stepping: str) -> None:
    many, alone = fleet(method, stepping), dict[str, Live]()
    for hour in range(30):
        rows = {}
        for place, key in enumerate(("a", "bb", "ccc", "dddd", "eeeee")):
            missing = place == 1 and hour in (12, 13, 20)  # misses rows
            if hour >= 3 * place and not missing:  # joins later than the one before
                rows[key] = row(key, hour)
        many.observe(at(hour), rows)
        for key, values in rows.items():
            alone.setdefault(key, live(method)).observe(at(hour), values)
        same(many.forecast(), {key: one.forecast() for key, one in alone.items()})
    assert len(many) == 5 and list(many) == ["a", "bb", "ccc", "dddd", "eeeee"] and "a" in many and "x" not in many
    health = many.health()
    assert all(health[key]["phase"] == "warm" for key in ("a", "bb", "ccc"))
    assert health["a"]["rows"] == 30 and health["bb"]["rows"] == 24


def test_each_key_warms_up_on_its_own_history() -> None:
    many, alone = fleet(), {key: live() for key in ("a", "bb")}
    index = pd.DatetimeIndex([at(hour) for hour in range(20)], name="time")
    histories = {key: pd.DataFrame([row(key, hour) for hour in range(20)], index, COLUMNS) for key in alone}
    many.warm_up(histories)
    for key, one in alone.items():
        one.warm_up(histories[key])
    for hour in range(20, 26):
        many.observe(at(hour), {key: row(key, hour) for key in alone})
        for key, one in alone.items():
            one.observe(at(hour), row(key, hour))
    same(many.forecast(), {key: one.forecast() for key, one in alone.items()})
    with pytest.raises(DataError, match=r"key 'c': .*no rows"):
        many.warm_up({"c": histories["a"][:0]})
    assert "c" not in many


def test_a_row_that_is_refused_changes_no_key() -> None:
    many = fleet()
    for hour in range(12):
        many.observe(at(hour), {"a": row("a", hour), "bb": row("bb", hour)})
    before, health = many.forecast(), many.health()
    for time, rows, reason in (
        (at(11), {"a": row("a", 12)}, "key 'a'"),
        (at(12), {"a": row("a", 12), "bb": ["much", 1.0]}, "key 'bb'"),
        (at(12), {"a": row("a", 12), "new": [1.0]}, "key 'new'"),
        (at(12) + timedelta(minutes=1), {"bb": row("bb", 12)}, "key 'bb'"),
    ):
        with pytest.raises(DataError, match=reason):
            many.observe(time, rows)
    same(many.forecast(), before, atol=0)
    assert many.health() == health and "new" not in many
    many.observe(at(12), {"a": row("a", 12)})


def test_with_keys_given_no_other_can_join() -> None:
    many = fleet("last_value", "auto", ["north", "south"])
    with pytest.raises(DataError, match="did you mean north"):
        many.observe(at(0), {"nort": [1.0, 2.0]})
    many.observe(at(0), {"north": [1.0, 2.0]})
    assert list(many) == ["north"]


def test_late_rows_may_be_ignored_key_by_key() -> None:
    many = Fleet(COLUMNS, 2, "h", "last_value", 6, on_late="ignore")
    many.observe(at(1), {"a": [1.0, 2.0]})
    many.observe(at(0), {"a": [9.0, 9.0], "b": [3.0, 4.0]})
    assert {key: forecast.mean[0].tolist() for key, forecast in many.forecast().items()} == {
        "a": [1.0, 2.0],
        "b": [3.0, 4.0],
    }
    assert many.health()["a"]["rows"] == 1


def test_wrong_arguments_are_told_at_once() -> None:
    with pytest.raises(OptionError, match="stepping is 'quickly'"):
        fleet(stepping="quickly")
    with pytest.raises(OptionError, match="method 'nats' is not known"):
        fleet("nats")
    with pytest.raises(OptionError, match="keys is the text"):
        Fleet(COLUMNS, keys="north")


@pytest.mark.parametrize("method", ["natsr", "seasonal"])
def test_it_goes_on_from_what_it_saved(method: str, tmp_path: Path) -> None:
    many = fleet(method)
    for hour in range(14):
        many.observe(at(hour), {key: row(key, hour) for key in ("a", "bb") if key == "a" or hour > 3})
        if hour == 10:
            many.save(tmp_path / "state")  # to be replaced
    many.save(tmp_path / "state")
    again = Fleet.load(tmp_path / "state")
    assert (again.method, again.stepping, len(again)) == (method, "together", 2)
    same(again.forecast(), many.forecast(), atol=0)
    for hour in range(14, 18):
        for one in (many, again):
            one.observe(at(hour), {"a": row("a", hour), "bb": row("bb", hour)})
    same(again.forecast(), many.forecast())
    assert sorted(path.name for path in (tmp_path / "state").iterdir() if path.is_dir()) == ["000002"]


def test_a_state_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        Fleet.load(tmp_path)
    one = live("last_value")
    one.save(tmp_path)
    with pytest.raises(StateError, match="live"):
        Fleet.load(tmp_path)


def test_it_is_one_of_the_names_of_natsr() -> None:
    assert natsr.Fleet is Fleet


def test_what_comes_with_a_row_and_what_is_planned_reach_every_key(tmp_path: Path) -> None:
    outside: dict[str, Any] = {"exogenous": ["wind"], "known": ["holiday"]}
    many = Fleet(COLUMNS, 2, "h", "natsr", 6, options=OPTIONS["natsr"], stepping="together", **outside)
    alone = {key: Live(COLUMNS, 2, "h", "natsr", 6, options=OPTIONS["natsr"], **outside) for key in ("a", "bb")}
    index = pd.DatetimeIndex([at(hour) for hour in range(20)], name="time")
    names = [*COLUMNS, "wind", "holiday"]
    histories = {
        key: pd.DataFrame([[*row(key, h), h % 3, h % 5 == 0] for h in range(20)], index, names) for key in alone
    }
    many.warm_up(histories, futures={"a": {"holiday": [1, 0]}})
    for key, one in alone.items():
        one.warm_up(histories[key], future={"holiday": [1, 0]} if key == "a" else None)
    for hour in range(20, 30):
        rows = {key: [*row(key, hour), hour % 3, hour % 5 == 0] for key in alone}
        futures = {"bb": {"holiday": [(hour + 1) % 5 == 0, math.nan]}} if hour % 2 else {}
        many.observe(at(hour), rows, futures)
        for key, one in alone.items():
            one.observe(at(hour), rows[key], futures.get(key))
        same(many.forecast(), {key: one.forecast() for key, one in alone.items()})
    before = many.forecast()
    for wrong, words in (({"c": {"holiday": [1, 0]}}, "has no row"), ({"bb": {"wind": [1, 0]}}, "key 'bb'")):
        with pytest.raises(DataError, match=words):
            many.observe(at(30), {key: [1.0, 1.0, 1.0, 0.0] for key in alone}, wrong)
    same(many.forecast(), before, 0)
    many.save(tmp_path)
    again = Fleet.load(tmp_path)
    assert (again.exogenous, again.known) == (["wind"], ["holiday"])
    for either in (many, again):
        either.observe(at(30), {"a": [1.0, 1.0, 1.0, 0.0]}, {"a": {"holiday": [0, 1]}})
    same(many.forecast(), again.forecast())
    with pytest.raises(OptionError, match="reads the values only"):
        Fleet(COLUMNS, method="rls", known=["holiday"])


def test_auto_reads_what_is_known_in_a_fleet_too(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"horizon": 2, "window": 4, "freq": "h", "known": ["holiday"]}
    settings |= {"method": "auto", "options": {"budget": "cheap"}}
    many = Fleet(["load"], **settings)
    alone = {key: Live(["load"], rescale=False, **settings) for key in ("a", "b")}

    def taken(fleet: Fleet, hour: int) -> None:
        fleet.observe(at(hour), rows_at(hour), {key: {"holiday": [hour % 3, hour % 2]} for key in alone})

    def rows_at(hour: int) -> dict[str, list[float]]:
        return {key: [float((hour * (3 + place)) % 7), float(hour % 5 == 0)] for place, key in enumerate(alone)}

    for hour in range(30):
        taken(many, hour)
        for key, one in alone.items():
            one.observe(at(hour), rows_at(hour)[key], {"holiday": [hour % 3, hour % 2]})
    same(many.forecast(), {key: one.forecast() for key, one in alone.items()}, 0)
    assert all("weight_natsr_outside" in health for health in many.health().values())
    many.save(tmp_path)
    again = Fleet.load(tmp_path)
    for hour in range(30, 40):
        taken(many, hour)
        taken(again, hour)
        same(many.forecast(), again.forecast(), 0)
