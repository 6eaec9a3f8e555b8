"""Streams that come more often than every second, through `Live` and `Fleet`: 100 milliseconds, 250 microseconds."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from natsr.data.calendar import Times
from natsr.data.grids import grid_of
from natsr.data.ticks import coarsened, converted
from natsr.intake import stamp, written
from natsr.keyed import Fleet
from natsr.live import Live, LiveForecast
from natsr.types import DataError

FREQS = ("100ms", "250us")
START = np.datetime64("2026-01-01T23:59:59.500000")  # so that it runs over midnight
STEPS = {"100ms": np.timedelta64(100, "ms"), "20ms": np.timedelta64(20, "ms"), "250us": np.timedelta64(250, "us")}


def times(freq: str, rows: int) -> Times:
    return START + np.arange(rows) * STEPS[freq]


def value(row: int) -> float:
    return 10 + 3 * math.sin(row * math.tau / 13) + (row * 7919 % 101) / 200


def made(freq: str, **settings: Any) -> Live:
    return Live(**{"columns": ["load"], "horizon": 3, "window": 8, "method": "rls", "freq": freq, **settings})


def fed(live: Live, first: int, last: int, freq: str) -> Live:
    for row, time in enumerate(times(freq, last)[first:], first):
        live.observe(time, [value(row)])
    return live


def same(one: LiveForecast, other: LiveForecast) -> bool:
    return (
        one.plain() == other.plain()
        and one.times.dtype == other.times.dtype
        and one.mean.tobytes() == other.mean.tobytes()
    )


def test_times_are_written_as_finely_as_the_frequency() -> None:
    told = {
        "100ms": ("2026-01-02T00:00:00.400", "2026-01-02T00:00:00.500"),
        "250us": ("2026-01-01T23:59:59.502250", "2026-01-01T23:59:59.502500"),
    }
    for freq, (origin, following) in told.items():
        said = fed(made(freq), 0, 10, freq).forecast().plain()
        assert (said["origin"], said["times"][0]) == (origin, following)
    second = made("s", method="last_value")
    second.observe("2026-01-01T00:00:00", [1.0])
    assert second.forecast().plain()["times"][0] == "2026-01-01T00:00:01"


def test_numbers_do_not_depend_on_how_finely_time_is_counted() -> None:
    for method in ("rls", "auto"):
        fast, faster = (fed(made(freq, method=method), 0, 60, freq).forecast() for freq in FREQS)
        assert fast.mean.tobytes() == faster.mean.tobytes()
        assert fast.intervals[0.9].low.tobytes() == faster.intervals[0.9].low.tobytes()


@pytest.mark.parametrize("freq", FREQS)
def test_rows_that_are_not_there_are_missing(freq: str) -> None:
    gap, told = made(freq), made(freq)
    for row, time in enumerate(times(freq, 60)):
        if row not in (20, 21, 40):
            gap.observe(time, [value(row)])
            told.observe(time, [value(row)])
        else:
            told.observe(time, [None])
    assert same(gap.forecast(), told.forecast())


@pytest.mark.parametrize("freq", FREQS)
def test_late_duplicate_and_uneven_rows(freq: str) -> None:
    live, at = fed(made(freq), 0, 30, freq), times(freq, 31)
    before, half = live.forecast(), at[29] + np.timedelta64(125, "us")
    with pytest.raises(DataError, match=f"row {before.origin} is a duplicate"):
        live.observe(at[29], [1.0])
    with pytest.raises(DataError, match=f"is late: {before.origin} has been taken"):
        live.observe(at[3], [1.0])
    wrong = "whole milliseconds; round it, or use a freq" if freq == "100ms" else "lies 125 microseconds after the last"
    with pytest.raises(DataError, match=wrong):
        live.observe(half, [1.0])
    assert same(live.forecast(), before)
    live.observe(at[30], [value(30)])
    ignoring = fed(made(freq, on_late="ignore"), 0, 30, freq)
    ignoring.observe(at[29], [1.0])
    ignoring.observe(at[3], [1.0])
    assert ignoring.health()["ignored"] == 2 and same(ignoring.forecast(), before)
    tenths = fed(made("100ms"), 0, 3, "100ms")
    with pytest.raises(DataError, match=r"lies 150 milliseconds after the last one .*, expected a multiple of 100"):
        tenths.observe(times("100ms", 3)[2] + np.timedelta64(150, "ms"), [1.0])


@pytest.mark.parametrize("freq", FREQS)
@pytest.mark.parametrize("rows", [5, 40])  # cold, and warm
def test_a_restart_goes_on_bit_for_bit(freq: str, rows: int, tmp_path: Path) -> None:
    live = fed(made(freq), 0, rows, freq)
    live.save(tmp_path)
    again = Live.load(tmp_path)
    assert again.freq == freq and same(again.forecast(), live.forecast())
    for row, time in enumerate(times(freq, rows + 60)[rows:], rows):
        for each in (live, again):
            each.observe(time, [value(row)])
        assert same(again.forecast(), live.forecast())
    assert again.health() == live.health()


def test_drift_and_scale_are_told_to_the_tick() -> None:
    live = made("250us", method="last_value")
    for row, time in enumerate(times("250us", 800)):
        live.observe(time, [value(row) * (1000 if row >= 400 else 1)])
    at = np.datetime64(str(live.health()["rescaled_at"]))
    assert live.health()["rescaled"] == 1 and at.dtype == "datetime64[us]"
    assert times("250us", 800)[400] < at <= times("250us", 800)[-1]


def test_history_warms_up() -> None:
    rows = np.array([[value(row)] for row in range(50)])
    for freq in FREQS:
        alone = made(freq)
        alone.warm_up((times(freq, 50), rows))
        frame = made(freq)
        frame.warm_up(pd.DataFrame({"load": rows[:, 0]}, index=pd.DatetimeIndex(times(freq, 50))))
        assert same(alone.forecast(), frame.forecast()) and alone.health()["phase"] == "warm"
        alone.observe(times(freq, 51)[50], [value(50)])


def test_the_clock_says_nothing_of_parts_of_a_second() -> None:
    assert [grid_of(freq).season for freq in ("100ms", "20ms", "250us", "1us", "999ms")] == [1] * 5
    assert [grid_of(freq).season for freq in ("1000ms", "1500ms", "1200ms", "s")] == [60, 40, 50, 60]
    live = fed(made("100ms", method="auto"), 0, 30, "100ms")
    assert live._warm is not None and live._warm.calendar.names == ()
    # An hour of tenths of seconds has seen every minute; the hours of a day it has not.
    long = made("100ms", method="last_value", window=2)
    long.warm_up((times("100ms", 36_000), np.zeros((36_000, 1))))
    assert long._warm is not None and long._warm.calendar.names == ("minute",)


def test_a_period_is_found_in_the_rows() -> None:
    live = made("20ms", method="auto", window=40, horizon=13)
    wave = [10 + 3 * math.sin(row * math.tau / 13) for row in range(413)]
    for row, time in enumerate(times("20ms", 400)):
        live.observe(time, [wave[row]])
    assert np.abs(live.forecast().mean[:, 0] - wave[400:]).max() < 0.3


def test_every_form_of_a_time() -> None:
    forms: list[object] = [
        "2026-01-01T00:00:00.000250",
        "2026-01-01 01:00:00.00025+01:00",
        "2026-01-01T00:00:00,000250000Z",
        datetime(2026, 1, 1, microsecond=250),
        datetime(2026, 1, 1, microsecond=250, tzinfo=UTC),
        pd.Timestamp("2026-01-01T00:00:00.000250"),
        np.datetime64("2026-01-01T00:00:00.000250000"),
    ]
    assert {stamp(form, "us") for form in forms} == {1767225600_000250}
    assert {written(form) for form in forms} == {"2026-01-01T00:00:00.000250"}
    assert stamp("1969-12-31T23:59:59.999", "ms") == -1
    for finer in ("2026-01-01T00:00:00.0000001", pd.Timestamp(5), np.datetime64(5, "ns")):
        with pytest.raises(DataError, match=r"expected (whole microseconds|microseconds at most); round it"):
            stamp(finer, "us")
    for far in (np.datetime64(10**15, "s"), np.datetime64(2**61, "s")):  # there are not that many microseconds
        with pytest.raises(DataError, match="expected whole microseconds"):
            stamp(far, "us")
    with pytest.raises(DataError, match="expected whole seconds; round it, or use a freq in parts of a second"):
        stamp("2026-01-01T00:00:00.5")


def test_ticks_from_one_unit_to_another() -> None:
    assert [converted(tick, "us", "ms") for tick in (-1001, -1000, 0, 1, 1000)] == [-1, -1, 0, 1, 1]
    assert converted(-2, "s", "us") == -2_000_000
    assert coarsened(-1_500_000) == (-1500, "ms")


def test_rows_half_past_the_second_have_a_frequency_too() -> None:
    live = made("1000ms", method="last_value")
    for second in range(3):
        live.observe(f"2026-01-01T00:00:0{second}.500", [second])
    assert live.forecast().plain()["times"][0] == "2026-01-01T00:00:03.500"
    assert live.described()["freq"] == "1000ms" and made("s").described()["freq"] == "1s"
    assert Live(["a"], freq=timedelta(milliseconds=2.5)).described()["freq"] == "2500us"


@pytest.mark.parametrize("freq", FREQS)
def test_a_fleet_forecasts_as_its_series_would_alone(freq: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls", "freq": freq}
    fleet = Fleet(**settings, stepping="apart")
    alone = {key: Live(**settings, rescale=False) for key in ("north", "south")}
    at = times(freq, 40)
    for row, time in enumerate(at[:30]):
        keys = ("north", "south") if row % 5 else ("north",)
        fleet.observe(time, {key: [value(row)] for key in keys})
        for key in keys:
            alone[key].observe(time, [value(row)])
    with pytest.raises(DataError, match="key 'north': row .* is a duplicate"):
        fleet.observe(at[29], {"north": [1.0]})
    fleet.save(tmp_path)
    fleet = Fleet.load(tmp_path)
    for row, time in enumerate(at[30:], 30):
        fleet.observe(time, {key: [value(row)] for key in alone})
        for live in alone.values():
            live.observe(time, [value(row)])
    for key, forecast in fleet.forecast().items():
        assert forecast.plain()["times"] == alone[key].forecast().plain()["times"]
        np.testing.assert_allclose(forecast.mean, alone[key].forecast().mean, rtol=1e-9)
