"""Live is the one loop a row at a time: same numbers, no leak, nothing changed by what is refused, nothing lost."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from torch import Tensor

from natsr import live as lives
from natsr import state as states
from natsr.data.calendar import Calendar
from natsr.data.series import Scaling, filled_from_past
from natsr.forecasters.base import Forecast
from natsr.forecasters.naive import LastValue
from natsr.live import Live, LiveForecast
from natsr.recipes import make
from natsr.spread import Learned
from natsr.streams import Rows, Windows, masked, matured
from natsr.types import DataError, Example, Option, OptionError, ProtocolName, State, StateError, Task

Floats = npt.NDArray[np.float64]

START = np.datetime64("2024-01-01T00:00:00")
HOUR = np.timedelta64(1, "h")
#: A network small enough for tests.
SMALL: dict[str, Option] = {"width": 4, "depth": 3, "top": 8, "epochs": 1, "memory": 20}
METHODS: dict[str, dict[str, Option]] = {
    "natsr": SMALL,
    "er": SMALL,
    "rls": {},
    "rls_mv": {},
    "seasonal": {},
    "mean": {},
}
W, H = 8, 4


def stream(rows: int = 400, columns: int = 2, gaps: bool = True) -> Floats:
    """A daily wave with noise, in units of its own; some values missing."""
    rng = np.random.default_rng(1)
    hour = np.arange(rows)[:, None]
    values = 50 * np.sin(2 * np.pi * (hour + 3 * np.arange(columns)) / 24) + rng.normal(size=(rows, columns)) + 1000
    if gaps:
        values[rng.uniform(size=values.shape) < 0.03] = math.nan
        values[90:93] = math.nan
    return values


def at(row: int) -> np.datetime64:
    return START + row * HOUR


def times(rows: int) -> npt.NDArray[np.datetime64]:
    return START + np.arange(rows) * HOUR


def a_live(method: str = "rls", columns: int = 2, **more: Any) -> Live:
    names = [f"c{number}" for number in range(columns)]
    options = more.pop("options", METHODS.get(method))
    return Live(names, horizon=H, window=W, method=method, options=options, **more)


def fed(live: Live, values: Floats, start: int = 0) -> list[LiveForecast]:
    forecasts = []
    for row, value in enumerate(values, start):
        live.observe(at(row), value)
        forecasts.append(live.forecast())
    return forecasts


def same(a: LiveForecast, b: LiveForecast) -> bool:
    """Equal to the last bit, intervals too."""
    arrays = [(a.mean, b.mean), (a.times, b.times)]
    arrays += [(a.intervals[level].low, b.intervals[level].low) for level in a.intervals]
    arrays += [(a.intervals[level].high, b.intervals[level].high) for level in a.intervals]
    return a.intervals.keys() == b.intervals.keys() and all(x.tobytes() == y.tobytes() for x, y in arrays)


# ---- the same numbers as the loop ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("method", ["rls", "natsr"])
def test_forecasts_are_those_of_the_loop_over_the_whole_stream(method: str, protocol: ProtocolName) -> None:
    values, known = stream(200), 120
    live = a_live(method, protocol=protocol)
    live.warm_up((times(known), values[:known]))
    found = [live.forecast(), *fed(live, values[known:], known)]

    scaling = Scaling.fit(values[:known])
    calendar = Calendar.fit(times(known).astype("datetime64[s]"), "bounded", 3600)
    truth = torch.from_numpy(scaling.apply(values)).float()
    features = torch.from_numpy(calendar.apply(times(200).astype("datetime64[s]"))).float()
    rows = Rows(torch.cat([filled_from_past(truth), features], 1), truth)
    task = Task(W, H, 2, len(calendar.names), season=24)
    forecaster = make(method, task, options=METHODS[method])
    cut = int(0.8 * known)
    past = Rows(rows.inputs[:known], rows.truth[:known])
    forecaster.warm_up(Windows(past, task, 0, cut), Windows(past, task, cut, known))
    whole = Windows(rows, task, 0, 200)
    for place, origin in enumerate(range(known - 1, 200 - H)):
        if place:
            origins, mask = matured(origin, W - 1, task, protocol)
            forecaster.learn(masked(whole.at(origins), mask))
        mean = forecaster.forecast(whole.window(origin)).mean[0].double().numpy()
        np.testing.assert_array_equal(found[place].mean, scaling.invert(mean))


class Spy(LastValue):
    """Repeats the last value, and keeps what it was given to learn."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.learned: list[tuple[Tensor, Tensor]] = []

    def learn(self, example: Example) -> None:
        """Keep copies."""
        self.learned.append((example.window.clone(), example.target.clone()))


@pytest.fixture
def spies(monkeypatch: pytest.MonkeyPatch) -> list[Spy]:
    """Live makes spies, and they are here."""
    made: list[Spy] = []

    def spy(_name: str, task: Task, **_more: object) -> Spy:
        made.append(Spy(task))
        return made[-1]

    monkeypatch.setattr(lives, "make", spy)
    return made


def test_every_example_is_learned_once_and_as_soon_as_its_last_row_is_known(spies: list[Spy]) -> None:
    live = a_live("spied", columns=1)
    known = 40
    values = np.arange(100.0)[:, None]  # a row's value is its number
    live.warm_up((times(known), values[:known]))
    scaling = Scaling.fit(values[:known])
    spy = spies[-1]
    for row in range(known, 100):
        before = len(spy.learned)
        live.observe(at(row), values[row])
        assert len(spy.learned) == before + 1
        window, target = spy.learned[-1]
        rows = scaling.invert(target[0, :, 0].double().numpy()).round()
        assert rows.tolist() == [row - H + 1 + step for step in range(H)]
        assert scaling.invert(window[0, -1, :1].double().numpy()).round() == row - H
    last_rows = [round(float(scaling.invert(target[0, -1].double().numpy())[0])) for _, target in spy.learned]
    # Four fifths of the history train, the rest judges, and then every row completes one more example.
    assert last_rows == [*range(W + H - 1, 32), *range(31 + H, known), *range(known, 100)]


def test_cold_start_becomes_what_a_warm_up_on_the_same_rows_gives() -> None:
    values = stream(80, gaps=False)
    cold, warm = a_live("natsr"), a_live("natsr")
    early = fed(cold, values[: W + H])
    warm.warm_up((times(W + H), values[: W + H]))
    assert same(early[-1], warm.forecast())
    for a, b in zip(fed(cold, values[W + H :], W + H), fed(warm, values[W + H :], W + H), strict=True):
        assert same(a, b)


def test_cold_forecasts_begin_as_the_last_value_with_growing_intervals() -> None:
    live = a_live("natsr", columns=1)
    with pytest.raises(DataError, match="no row has been observed"):
        live.forecast()
    forecasts = fed(live, np.array([[1.0], [2.0], [4.0], [3.0], [math.nan]]))
    assert [forecast.mean[:, 0].tolist() for forecast in forecasts] == [[v] * H for v in (1.0, 2.0, 4.0, 3.0, 3.0)]
    assert np.isnan(forecasts[0].intervals[0.9].low).all()  # one row tells nothing about changes
    low, high = forecasts[3].intervals[0.9]
    # The first step is that of a random walk with the changes seen, by Student's t with three degrees of freedom.
    np.testing.assert_allclose(high[0, 0] - 3.0, 2.353 * math.sqrt((1 + 4 + 1) / 3), rtol=0.01)
    assert (np.diff(high[:, 0]) > 0).all()
    np.testing.assert_allclose(3.0 - low[:, 0], high[:, 0] - 3.0)
    assert live.health()["phase"] == "cold"


def test_scaling_is_fixed_on_the_first_rows_and_knows_nothing_later(spies: list[Spy]) -> None:
    calm, wild = stream(60, gaps=False), stream(60, gaps=False)
    wild[W + H :] *= 1000
    for values in (calm, wild):
        fed(a_live("spied", rescale=False), values)
    windows = [torch.stack([window for window, _ in spy.learned[:2]]) for spy in spies if spy.learned]
    assert len(windows) == 2
    assert torch.equal(windows[0], windows[1])


def test_other_units_give_the_same_forecasts_in_those_units() -> None:
    values = stream(150)
    a, b = a_live("rls"), a_live("rls")
    a.warm_up((times(100), values[:100]))
    b.warm_up((times(100), values[:100] * 7.0 - 3.0))
    first, second = fed(a, values[100:], 100)[-1], fed(b, values[100:] * 7.0 - 3.0, 100)[-1]
    np.testing.assert_allclose(second.mean, first.mean * 7.0 - 3.0, rtol=1e-4)
    np.testing.assert_allclose(second.intervals[0.9].low, first.intervals[0.9].low * 7.0 - 3.0, rtol=1e-4)


# ---- what comes in ---------------------------------------------------------------------------------------------------


def test_a_row_is_the_same_by_name_by_place_and_from_any_container() -> None:
    rows: list[Any] = [
        {"c1": 2.0, "c0": 1.0},
        [1.0, 2.0],
        (1, np.float32(2)),
        np.array([1.0, 2.0]),
        torch.tensor([1.0, 2.0]),
        pd.Series({"c1": 2.0, "c0": 1.0}),
    ]
    for row in rows:
        live = a_live()
        live.observe(at(0), row)
        assert live.forecast().mean[0].tolist() == [1.0, 2.0]


def test_a_time_is_the_same_in_any_form() -> None:
    forms: list[Any] = [
        "2024-01-01T05:00:00",
        "2024-01-01 05:00",
        "2024-01-01T07:00:00+02:00",
        "2024-01-01T05:00:00Z",
        datetime(2024, 1, 1, 5),
        datetime(2024, 1, 1, 5, tzinfo=UTC),
        np.datetime64("2024-01-01T05"),
        np.datetime64("2024-01-01T05:00:00.000000000"),
        pd.Timestamp("2024-01-01T05:00"),
        pd.Timestamp("2024-01-01T06:00", tz="Europe/Berlin"),
    ]
    for time in forms:
        live = a_live()
        live.observe(time, [1.0, 2.0])
        assert live.forecast().origin == np.datetime64("2024-01-01T05:00:00")


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, np.float32("nan")], ids=["None", "nan", "NA", "float32"])
def test_missing_values_in_every_form(missing: object) -> None:
    live = a_live()
    live.observe(at(0), [1.0, 2.0])
    live.observe(at(1), {"c0": missing, "c1": 3.0})
    live.observe(at(2), {"c1": 4.0})  # left out is missing
    assert live.forecast().mean[0].tolist() == [1.0, 4.0]


REFUSED: dict[str, tuple[object, object, str]] = {
    "duplicate": (at(149), [1.0, 2.0], "duplicate"),
    "late": (at(100), [1.0, 2.0], "late"),
    "off the grid": (at(150) + np.timedelta64(60, "s"), [1.0, 2.0], "multiple of 3600"),
    "fraction of a second": ("2025-01-01T00:00:00.5", [1.0, 2.0], "whole seconds"),
    "no time": ("soon", [1.0, 2.0], "ISO 8601"),
    "number as time": (1_700_000_000, [1.0, 2.0], "expected a datetime"),
    "NaT": (np.datetime64("NaT"), [1.0, 2.0], "missing"),
    "pandas NaT": (pd.NaT, [1.0, 2.0], "ISO 8601|missing"),
    "text": (at(150), [1.0, "2.0"], "c1 is '2.0', expected a number"),
    "infinite": (at(150), [math.inf, 2.0], "c0 is inf, expected a finite number"),
    "typo": (at(150), {"c0": 1.0, "C1": 2.0}, "column 'C1' is unknown.*did you mean c1"),
    "too short": (at(150), [1.0], "row has 1 values, expected 2"),
    "too long": (at(150), np.ones(3), "row has 3 values, expected 2"),
    "nested": (at(150), np.ones((2, 2)), "expected a number"),
    "no row": (at(150), None, "expected a mapping"),
    "a text": (at(150), "12", "expected a mapping"),
    "after a gap": (at(180), [1.0, "x"], "expected a number"),
}


def fingerprint(live: Live, folder: Path) -> list[bytes]:
    """Every bit of the state."""
    live.save(folder)
    return [path.read_bytes().replace(path.name.encode(), b"") for path in sorted(folder.glob("[tv]*"))]


@pytest.mark.parametrize("phase", ["cold", "warm"])
def test_what_is_refused_changes_nothing(phase: str, tmp_path: Path) -> None:
    live = a_live("natsr")
    if phase == "cold":
        live.observe(at(145), [0.0, 0.0])
        fed(live, stream(4), 146)
    else:
        live.warm_up((times(140), stream(140)))
        fed(live, stream(10), 140)
    assert live.health()["phase"] == phase
    before, forecast = fingerprint(live, tmp_path / "before"), live.forecast()
    for case, (time, row, message) in REFUSED.items():
        with pytest.raises(DataError, match=message):
            live.observe(time, row)
        assert fingerprint(live, tmp_path / case) == before, case
        assert same(live.forecast(), forecast), case
    live.observe(at(150), [1.0, 2.0])  # and it goes on
    assert fingerprint(live, tmp_path / "on") != before


def test_rows_that_did_not_come_are_missing_rows() -> None:
    values = stream(160, gaps=False)
    values[120:127] = math.nan
    told, untold = a_live("natsr"), a_live("natsr")
    for live in (told, untold):
        live.warm_up((times(100), values[:100]))
    all_rows = fed(told, values[100:], 100)
    for row in range(100, 160):
        if not 120 <= row < 127:
            untold.observe(at(row), values[row])
    assert same(all_rows[-1], untold.forecast())
    assert told.health()["rows"] == 160 and untold.health()["rows"] == 153


def test_a_gap_of_years_costs_no_more_than_a_window_and_a_week_and_teaches_nothing_false(spies: list[Spy]) -> None:
    live = a_live("spied", columns=1)
    live.warm_up((times(40), np.arange(40.0)[:, None]))
    spy = spies[-1]
    before = len(spy.learned)
    live.observe(at(10_000_000), [100.0])
    reach = 24  # a day, the season of hourly rows
    played = len(spy.learned) - before - 1
    assert reach + H <= played < reach + H + 168 and (10_000_000 - 40 - played) % 168 == 0
    fed(live, np.arange(101.0, 130.0)[:, None], 10_000_001)
    scaling = Scaling.fit(np.arange(40.0)[:, None])
    across = 0
    for window, target in spy.learned[before:]:
        seen, came = (scaling.invert(part[0, :, :1].double().numpy()).round() for part in (window, target))
        if np.nanmax(came, initial=0) >= 100 and seen[-1] < 100:  # the window ends in the gap, the target after it
            assert (seen == 39).all()  # the value before the gap, carried on, and nothing of what came before that
            across += 1
    assert across == H
    assert live.forecast().origin == at(10_000_029)


@pytest.mark.parametrize("gap", [61, 90, 250])
def test_a_gap_longer_than_what_is_played_leaves_seasons_in_step(gap: int) -> None:
    """Of whatever length it is, the rows after it are forecast as well as if those of the gap had been told missing."""
    hours = np.arange(700)[:, None]
    values = 10 * np.maximum(0, np.sin(hours * math.tau / 24)) + 0.3 * np.random.default_rng(0).normal(size=(700, 1))
    end = 400 + gap
    errors = []
    for told in (False, True):
        live = a_live("auto", columns=1, options={"budget": "cheap"})
        live.warm_up((times(300), values[:300]))
        fed(live, values[300:400], 300)
        fed(live, np.full((gap if told else 0, 1), math.nan), 400)
        found = fed(live, values[end : end + 24], end)
        errors.append(
            np.mean([np.abs(one.mean - values[row : row + H]).mean() for row, one in enumerate(found, end + 1)])
        )
    assert errors[0] < 1.2 * errors[1], errors


def test_a_long_gap_after_a_state_was_loaded_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    values = stream(400, columns=1, gaps=False)
    live = a_live("auto", columns=1, options={"budget": "cheap"})
    live.warm_up((times(200), values[:200]))
    live.save(tmp_path / "state")
    again = Live.load(tmp_path / "state")
    for first, second in zip(fed(live, values[390:], 390), fed(again, values[390:], 390), strict=True):
        assert same(first, second)
    assert fingerprint(live, tmp_path / "a") == fingerprint(again, tmp_path / "b")


def test_a_long_gap_in_a_history_leaves_seasons_in_step() -> None:
    values = stream(400, columns=1, gaps=False)
    keep = np.r_[0:200, 310:400]
    live = a_live("auto", columns=1, options={"budget": "cheap"})
    live.warm_up((times(400)[keep], values[keep]))
    known = live._warm
    assert known is not None
    rows = known.forecaster.state_dict()["row"]
    assert isinstance(rows, int) and (399 - rows) % 168 == 0


def test_history_with_gaps_is_put_on_the_grid() -> None:
    values = stream(150, gaps=False)
    holes = values.copy()
    holes[60:65] = math.nan
    keep = [row for row in range(150) if not 60 <= row < 65]
    a, b = a_live("rls"), a_live("rls")
    a.warm_up((times(150), holes))
    b.warm_up((times(150)[keep], values[keep]))
    assert same(a.forecast(), b.forecast())


def frames() -> dict[str, tuple[pd.DataFrame, dict[str, str]]]:
    values = stream(150)
    plain = pd.DataFrame(values, columns=["c0", "c1"]).assign(other="text")
    index = pd.DatetimeIndex(times(150))
    return {
        "index": (plain.set_axis(index), {}),
        "zone": (plain.set_axis(index.tz_localize("UTC").tz_convert("Asia/Tokyo")), {}),
        "column": (plain.assign(when=index), {}),
        "named": (plain.assign(when=index, made=index), {"time": "when"}),
        "text": (plain.assign(Date=[str(time) for time in index]), {}),
        "nullable": (plain.astype({"c0": "Float64"}).set_axis(index), {}),
    }


@pytest.mark.parametrize("name", ["index", "zone", "column", "named", "text", "nullable"])
def test_a_frame_is_as_good_as_an_array(name: str) -> None:
    frame, more = frames()[name]
    a, b = a_live("rls"), a_live("rls")
    a.warm_up((times(150), stream(150)))
    b.warm_up(frame, time=more.get("time"))
    assert same(a.forecast(), b.forecast())


def marked(row: int, column: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros((150, 2), dtype=bool)
    mask[row, column] = True
    return mask


def test_histories_that_cannot_be_used_say_why() -> None:
    frame = pd.DataFrame(stream(150), columns=["c0", "c1"], index=pd.DatetimeIndex(times(150)))
    cases: list[tuple[Any, str]] = [
        (frame.drop(columns="c1"), "column 'c1' is unknown in the history"),
        (frame.reset_index(drop=True), "no DatetimeIndex"),
        (frame.iloc[::-1], "is late"),
        (frame.iloc[[0, 1, 1, 2]], "is a duplicate"),
        (frame.iloc[:0], "has no rows"),
        (frame.astype(object).mask(marked(3, 0), "high"), "c0 is high in row 3"),
        (frame.mask(marked(4, 1), math.inf), "c1 is inf in row 4"),
        (frame.reset_index(drop=True).assign(time="soon"), "time is soon in row 0"),
        ([[1.0, 2.0]], "expected a pandas DataFrame"),
        ((times(3), stream(2)), "3 times and 2 rows"),
        ((times(3), stream(3, columns=3)), "row has 3 values, expected 2"),
        ((times(6)[::2][:2], [[1.0, "a"], [2.0, 3.0]]), "expected a number"),
    ]
    for history, message in cases:
        live = a_live()
        with pytest.raises(DataError, match=message):
            live.warm_up(history)
        with pytest.raises(DataError, match="no row has been observed"):
            live.forecast()
        live.warm_up(frame)
    with pytest.raises(OptionError, match="warm_up came after row 2024-01-07T05:00:00"):
        live.warm_up(frame)
    with pytest.raises(DataError, match="time column 'whne' is unknown"):
        a_live().warm_up(frame.assign(when=1), time="whne")


@pytest.mark.parametrize("rows", [1, W + H, 30])
@pytest.mark.parametrize("method", [*METHODS, "frozen", "derpp", "natsr_fast", "ogd", "last_value"])
def test_tiny_histories_do_no_harm(method: str, rows: int) -> None:
    neural = method in ("frozen", "derpp", "natsr_fast", "ogd")
    live = a_live(method, options=SMALL if neural else METHODS.get(method))
    values = stream(60)
    live.warm_up((times(rows), values[:rows]))
    forecasts = [live.forecast(), *fed(live, values[rows:50], rows)]
    assert live.health()["phase"] == "warm"
    for seen, forecast in enumerate(forecasts, rows):
        came = ~np.isnan(values[:seen]).all(0)
        assert np.isfinite(forecast.mean[:, came]).all()


# ---- what goes out ---------------------------------------------------------------------------------------------------


def test_forecast_is_pure_and_its_levels_nest() -> None:
    live = a_live("natsr")
    live.warm_up((times(120), stream(120)))
    levels = (0.1, 0.5, 0.55, 0.9, 0.95, 0.97, 0.99)
    forecasts = []
    for row, values in enumerate(stream(60), 120):
        live.observe(at(row), values)
        forecasts.append(live.forecast(levels))
        assert same(live.forecast(levels), forecasts[-1])
        assert all(same(live.forecast(), live.forecast()) for _ in range(3))
    last = forecasts[-1]
    assert last.mean.shape == (H, 2) and last.times.tolist() == [at(179 + h).tolist() for h in range(1, H + 1)]
    for inner, outer in zip(levels, levels[1:], strict=False):
        assert (last.intervals[outer].low <= last.intervals[inner].low).all()
        assert (last.intervals[outer].high >= last.intervals[inner].high).all()
    last.mean[:] = 0  # the caller's copy is the caller's
    assert live.forecast(levels).mean.any()
    for level in (0.0, 1.0, 0.995, -1, math.nan):
        with pytest.raises(OptionError, match="level is"):
            live.forecast([level])


def test_frame_of_a_forecast() -> None:
    live = a_live("rls")
    live.warm_up((times(120), stream(120)))
    forecast = live.forecast(levels=[0.9, 0.975])
    frame = forecast.frame()
    names: list[Any] = list(frame.columns)
    parts = ("mean", "low_90", "high_90", "low_97.5", "high_97.5")
    assert names == [(name, part) for name in ("c0", "c1") for part in parts]
    assert frame.index.name == "time" and len(frame) == H
    np.testing.assert_array_equal(frame[("c1", "high_90")].to_numpy(), forecast.intervals[0.9].high[:, 1])


def test_a_column_that_never_came_is_not_forecast() -> None:
    values = stream(100, gaps=False)
    values[:, 1] = math.nan
    live = a_live("rls")
    live.warm_up((times(80), values[:80]))
    forecast = fed(live, values[80:], 80)[-1]
    assert np.isfinite(forecast.mean[:, 0]).all() and np.isnan(forecast.mean[:, 1]).all()
    live.observe(at(100), [1.0, 5.0])
    assert np.isfinite(live.forecast().mean).all()


def test_health_counts_what_came_of_the_forecasts() -> None:
    values = stream(400, columns=1)
    live = a_live("last_value", columns=1, options={})
    live.warm_up((times(100), values[:100]))
    assert live.health()["mase"] is None and live.health()["coverage_90"] is None
    forecasts = [live.forecast(), *fed(live, values[100:], 100)]
    health = live.health()
    assert health["mase"] == health["mase_last_value"] and health["rows"] == 400
    errors, changes, inside, weights, change_weights = [], [], [], [], []
    for row in range(100, 400):
        weight = 0.999 ** (399 - row)
        if row > 100 and not math.isnan(change := float(abs(values[row, 0] - values[row - 1, 0]))):
            changes.append(weight * change)
            change_weights.append(weight)
        for h in range(1, min(H, row - 99) + 1):
            origin = forecasts[row - h - 99]
            if not math.isnan(values[row, 0]):
                errors.append(weight * abs(values[row, 0] - origin.mean[h - 1, 0]))
                low, high = origin.intervals[0.9]
                inside.append(weight * (low[h - 1, 0] <= values[row, 0] <= high[h - 1, 0]))
                weights.append(weight)
    mase = (sum(errors) / sum(weights)) / (sum(changes) / sum(change_weights))
    assert health["mase"] == pytest.approx(mase, rel=1e-5)
    assert health["coverage_90"] == pytest.approx(sum(inside) / sum(weights), rel=1e-6)
    assert 0.8 < float(str(health["coverage_90"])) < 0.97


def test_health_tells_what_the_method_tells() -> None:
    live = a_live("natsr")
    empty = dict.fromkeys(
        ("mase", "mase_last_value", "crps", "coverage_90", "variance", "scale", "drift_since", "rescaled_at")
    )
    none = dict.fromkeys(("rows", "refused", "fallbacks", "ignored", "drift", "drifts", "rescaled"), 0)
    assert live.health() == {"phase": "cold", **none, **empty}
    live.warm_up((times(120), stream(120)))
    fed(live, stream(60), 120)
    health = live.health()
    assert isinstance(health["variance"], float) and health["variance"] > 0
    assert health["phase"] == "warm" and health["rows"] == 180


def test_whose_forecast_it_is_is_told() -> None:
    live, other = (a_live(name, options={"budget": "cheap"} if name == "auto" else {}) for name in ("auto", "rls"))
    assert live.weights() == {}
    for one in (live, other):
        one.warm_up((times(120), stream(120)))
    weights, health = live.weights(), live.health()
    assert sum(weights.values()) == pytest.approx(1) and list(weights.values()) == sorted(weights.values())[::-1]
    assert all(health[f"weight_{name}"] == weight for name, weight in list(weights.items())[:8])
    assert other.weights() == {}


def test_the_distribution_behind_a_forecast_cannot_be_written_to() -> None:
    live = a_live("last_value", columns=1, options={})
    live.warm_up((times(120), stream(120, columns=1)))
    spread = live.forecast().spread
    assert isinstance(spread, Learned)
    with pytest.raises(ValueError, match="read-only"):
        spread.table[:] = 0


class Broken(LastValue):
    """Answers NaN and refuses to learn."""

    def forecast(self, window: Tensor) -> Forecast:
        """Nothing that can be used."""
        return Forecast(super().forecast(window).mean * math.nan, torch.tensor(math.nan))

    def learn(self, example: Example) -> None:
        """Gives up."""
        raise FloatingPointError(f"diverged on {example.target}")


def test_a_broken_forecaster_is_stood_in_for_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str, task: Task, **_more: Any) -> Broken:
        forecaster = Broken(task)
        monkeypatch.setattr(forecaster, "warm_up", lambda *_parts: None)
        return forecaster

    monkeypatch.setattr(lives, "make", broken)
    live = a_live("broken", columns=1)
    live.warm_up((times(50), stream(50, columns=1, gaps=False)))
    forecast = fed(live, np.array([[1000.0], [1001.0]]), 50)[-1]
    np.testing.assert_allclose(forecast.mean, 1001.0, rtol=1e-6)
    assert np.isfinite(forecast.intervals[0.9].low).all()
    assert live.health()["fallbacks"] == 3 and live.health()["refused"] == 2


@pytest.mark.parametrize("method", METHODS)
def test_wild_values_pass(method: str) -> None:
    live = a_live(method)
    live.warm_up((times(120), stream(120)))
    wild = stream(60, gaps=False)
    wild[3] = 1e6
    wild[5, 0], wild[6, 0], wild[7, 1] = 1e30, -1e300, 1.7e308
    wild[10:50] = math.nan
    forecasts = fed(live, wild, 120)
    assert all(np.isfinite(forecast.mean).all() for forecast in forecasts)


def test_wild_values_pass_in_the_cold() -> None:
    live = a_live("natsr", columns=1)
    wild = np.array([[1.0], [1e300], [-1.7e308], [1.7e308], [5.0]] * 10)
    forecasts = fed(live, wild)
    assert all(np.isfinite(forecast.mean).all() for forecast in forecasts)


def test_endless_silence_in_the_cold_keeps_nothing(tmp_path: Path) -> None:
    live = a_live("natsr", columns=1)
    live.observe(at(0), [3.0])
    for row in range(1, 500):
        live.observe(at(row), [None])
    assert live.forecast().mean[:, 0].tolist() == [3.0] * H
    live.save(tmp_path)
    cold = states.load(tmp_path, kind="live").state["cold"]
    assert isinstance(cold, dict) and isinstance(cold["values"], Tensor) and len(cold["values"]) == 0
    fed(live, stream(W + H, columns=1, gaps=False), 500)
    assert live.health()["phase"] == "warm"


# ---- saved and restored ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "rows"), [*((method, 150) for method in METHODS), ("rls", 0), ("natsr", 7), ("natsr", W + H + 3)]
)
def test_a_restored_live_goes_on_bit_for_bit(method: str, rows: int, tmp_path: Path) -> None:
    values = stream(rows + 100)
    live = a_live(method, protocol="partial" if rows == 150 else "honest", freq=timedelta(hours=1), seed=3)
    if rows == 150:
        live.warm_up((times(100), values[:100]))
        fed(live, values[100:150], 100)
    else:
        fed(live, values[:rows])
    live.save(tmp_path)
    restored = Live.load(tmp_path)
    if rows:
        assert same(restored.forecast(), live.forecast())
    for a, b in zip(fed(live, values[rows:], rows), fed(restored, values[rows:], rows), strict=True):
        assert same(a, b)
    assert restored.health() == live.health()
    assert fingerprint(live, tmp_path / "a") == fingerprint(restored, tmp_path / "b")


def test_saving_does_not_disturb_and_the_saved_does_not_change(tmp_path: Path) -> None:
    values = stream(180)
    a, b = a_live("natsr"), a_live("natsr")
    for live in (a, b):
        live.warm_up((times(120), values[:120]))
    a.save(tmp_path)
    saved = [path.read_bytes() for path in sorted(tmp_path.iterdir())]
    assert all(same(x, y) for x, y in zip(fed(a, values[120:], 120), fed(b, values[120:], 120), strict=True))
    assert [path.read_bytes() for path in sorted(tmp_path.iterdir())] == saved


def test_loading_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no state in"):
        Live.load(tmp_path)
    states.save(tmp_path, {}, kind="forecaster")
    with pytest.raises(StateError, match="of kind 'forecaster'"):
        Live.load(tmp_path)
    live = a_live("rls")
    live.warm_up((times(50), stream(50)))
    live.save(tmp_path)
    state, meta = states.load(tmp_path, kind="live")
    broken: list[tuple[State, Mapping[str, Any]]] = [
        ({**state, "rows": None}, meta),
        ({**state, "warm": {}}, meta),
        (state, {**meta, "horizon": H + 1}),
        (state, {**meta, "method": "natsr", "options": SMALL}),
    ]
    for changed, settings in broken:
        states.save(tmp_path, changed, kind="live", meta=settings)
        with pytest.raises(StateError):
            Live.load(tmp_path)


# ---- what it is asked to be ------------------------------------------------------------------------------------------


def test_arguments_that_make_no_sense_are_refused_at_once() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"columns": []}, "at least one name"),
        ({"columns": "load"}, r"expected a list of names: \['load'\]"),
        ({"columns": ["a", "a"]}, "each name once"),
        ({"columns": [1]}, "columns are"),
        ({"columns": ["a"], "horizon": 0}, "horizon is 0"),
        ({"columns": ["a"], "horizon": 2.5}, "horizon is 2.5, expected a whole number"),
        ({"columns": ["a"], "window": "60"}, "window is '60', expected a whole number"),
        ({"columns": ["a"], "seed": "x"}, "seed is 'x', expected a whole number"),
        ({"columns": ["a"], "freq": "m"}, "freq is 'm'.*'15min'.*'M'"),
        (
            {"columns": ["a"], "freq": "10ns"},
            "freq is '10ns'.*from a microsecond on.*average rows that come more often",
        ),
        ({"columns": ["a"], "freq": "0h"}, "freq is '0h'"),
        ({"columns": ["a"], "protocol": "paper"}, "no future rows"),
        ({"columns": ["a"], "protocol": "honets"}, "protocol is 'honets'"),
        ({"columns": ["a"], "method": "natsrr"}, "did you mean natsr"),
        ({"columns": ["a"], "method": "natsr", "options": {"rat": 1}}, "did you mean"),
    ]
    for arguments, message in cases:
        with pytest.raises(OptionError, match=message):
            Live(**arguments)


def test_levels_that_there_are_none_of() -> None:
    live = a_live()
    live.observe(at(0), [1.0, 2.0])
    wrong: list[tuple[Any, str]] = [
        (0.9, r"levels is 0.9, expected several, or one in brackets, such as \[0.9\]"),
        ("0.9", "levels is '0.9'"),
        (["0.9"], "level is '0.9'"),
        ([90], "level is 90, expected more than 0 and at most 0.99"),
        ([math.nan], "level is nan"),
    ]
    for levels, message in wrong:
        with pytest.raises(OptionError, match=message):
            live.forecast(levels)


def test_same_seed_same_forecasts_and_other_seed_others() -> None:
    values = stream(140)
    last = []
    for seed in (0, 0, 1):
        live = a_live("natsr", seed=seed)
        live.warm_up((times(120), values[:120]))
        last.append(fed(live, values[120:], 120)[-1])
    assert same(last[0], last[1]) and not same(last[0], last[2])


@pytest.mark.parametrize(("freq", "seconds"), [("10s", 10), ("15min", 900), ("D", 86400), ("W", 604800), ("2h", 7200)])
def test_any_fixed_step(freq: str, seconds: int) -> None:
    live = a_live("rls", freq=freq)
    step = np.timedelta64(seconds, "s")
    values = stream(60, gaps=False)
    for row in range(60):
        live.observe(START + row * step, values[row])
    forecast = live.forecast()
    assert forecast.times[0] == START + 60 * step and forecast.times[-1] == START + (59 + H) * step


def test_pandas_is_not_imported_for_who_has_no_frame() -> None:
    code = (
        "import sys, natsr.live as l; x = l.Live(['a'], method='last_value', horizon=2, window=2);"
        "[x.observe(f'2024-01-0{d}T00:00', [d]) for d in range(1, 9)]; x.forecast();"
        "print([m for m in ('pandas', 'safetensors', 'matplotlib') if m in sys.modules])"
    )
    source = {"PYTHONPATH": str(Path(lives.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=source)
    assert done.stdout.strip() == "[]"


# ---- drift, late rows, older states ----------------------------------------------------------------------------------


def test_a_drift_shows_in_the_health_with_its_time_and_ends() -> None:
    live, generator = a_live("last_value", columns=1, rescale=False), np.random.default_rng(0)
    values = np.cumsum(generator.normal(size=1000) * np.where(np.arange(1000) < 700, 1.0, 8.0))[:, None]
    live.warm_up((times(50), values[:50]))
    seen: dict[int, Mapping[str, float | int | str | None]] = {}
    for row in range(50, 1000):
        live.observe(at(row), values[row])
        seen[row] = live.health()
    assert not any(health["drift"] for row, health in seen.items() if row < 700)
    first = next(row for row, health in seen.items() if health["drift"])
    assert 700 < first < 820
    since = np.datetime64(str(seen[first]["drift_since"]))
    assert at(660) <= since <= at(740) and seen[first]["drifts"] == 1
    assert float(str(seen[999]["scale"])) > 3 * float(str(seen[650]["scale"]))


@pytest.mark.parametrize("kind", ["level", "swapped"])
def test_auto_tells_a_change_that_it_follows_within_a_few_rows(kind: str, tmp_path: Path) -> None:
    season = 3 * np.sin(np.arange(560) * math.tau / 24)[:, None]
    values = season + [4.0, -4.0] + 0.5 * np.random.default_rng(3).normal(size=(560, 2))
    values[500:] = values[500:] + 10 if kind == "level" else values[500:, ::-1]
    live = Live(["a", "b"], horizon=1, options={"budget": "cheap"})
    fed(live, values[:503])
    assert live.health()["drifts"] == 0 and live.drift_since() is None
    live.save(tmp_path)
    again = Live.load(tmp_path)
    for one in (live, again):
        fed(one, values[503:515], 503)
        since = one.drift_since()
        assert since is not None and abs(np.datetime64(since) - at(500)) <= 3 * HOUR and one.health()["drifts"] == 1


def test_late_rows_can_be_ignored_and_are_counted(tmp_path: Path) -> None:
    live = a_live("rls", on_late="ignore")
    fed(live, stream(30))
    before = live.forecast()
    live.observe(at(29), [1.0, 2.0])
    live.observe(at(3), ["late", 2.0])
    assert same(live.forecast(), before) and live.health()["ignored"] == 2 and live.health()["rows"] == 30
    live.save(tmp_path)
    assert Live.load(tmp_path).health() == live.health() and Live.load(tmp_path).on_late == "ignore"
    with pytest.raises(DataError, match="expected a multiple of 3600|multiple of 3600"):
        live.observe(at(30) + np.timedelta64(60, "s"), [1.0, 2.0])
    with pytest.raises(OptionError, match="on_late is 'drop', expected refuse or ignore"):
        a_live(on_late="drop")


def test_a_state_of_the_first_format_is_taken_over() -> None:
    live = Live.load(Path(__file__).parent / "states" / "live-format-1")
    assert live.health()["rows"] == 20 and live.health()["phase"] == "warm"
    np.testing.assert_allclose(live.forecast().mean[:, 0], 5.0, rtol=1e-5)
    assert (live.forecast().intervals[0.9].low < live.forecast().intervals[0.9].high).all()
    for hour in range(20, 40):
        live.observe(np.datetime64("2026-01-01T00:00:00") + hour * HOUR, [float(hour % 7)])
    np.testing.assert_allclose(live.forecast().mean[:, 0], 39 % 7, rtol=1e-5)
    low, high = live.forecast().intervals[0.9]
    assert np.isfinite(low).all() and (low < high).all()


@pytest.mark.parametrize("method", ["natsr", "rls"])
def test_the_next_500_forecasts_after_loading_are_the_same(method: str, tmp_path: Path) -> None:
    values = stream(700)
    live = a_live(method)
    live.warm_up((times(100), values[:100]))
    fed(live, values[100:200], 100)
    live.save(tmp_path)
    again = Live.load(tmp_path)
    for row in range(200, 700):
        for each in (live, again):
            each.observe(at(row), values[row])
        assert same(live.forecast(), again.forecast()), row
    assert live.health() == again.health()
