"""Columns beside the values: they help, the known ones by their plan, nothing leaks, and nothing is lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest

from natsr import state as states
from natsr.exogenous import LEADS, Exogenous
from natsr.live import Live, LiveForecast
from natsr.types import DataError, Option, OptionError, StateError

Floats = npt.NDArray[np.float64]
START = np.datetime64("2024-01-01T00:00:00")
HOUR = np.timedelta64(1, "h")
SMALL: dict[str, Option] = {"width": 8, "depth": 2, "top": 16, "epochs": 2, "memory": 20}
W, H = 6, 2


def times(rows: int) -> npt.NDArray[np.datetime64]:
    return START + np.arange(rows) * HOUR


def a_live(method: str = "er", **more: Any) -> Live:
    arguments: dict[str, Any] = {"columns": ["y"], "horizon": H, "window": W, "method": method}
    return Live(**arguments, **{"options": SMALL if method == "er" else None, **more})


def data(rows: int) -> Floats:
    """A value, a column that is known up to its row, and one that is planned; in units of their own."""
    rng = np.random.default_rng(3)
    return rng.normal(size=(rows, 3)) * [1.0, 20.0, 300.0] + [5.0, 0.0, 1000.0]


def both(**more: Any) -> Live:
    return a_live(exogenous=["wind"], known=["plan"], **more)


def ahead(values: Floats, row: int) -> dict[str, Floats]:
    return {"plan": values[row + 1 : row + 1 + H, 2]}


def fed(live: Live, values: Floats, start: int, stop: int, told: bool = True) -> list[LiveForecast]:
    forecasts = []
    for row in range(start, stop):
        live.observe(START + row * HOUR, values[row], ahead(values, row) if told else None)
        forecasts.append(live.forecast())
    return forecasts


def same(a: LiveForecast, b: LiveForecast) -> bool:
    ends = [(a.intervals[level][end], b.intervals[level][end]) for level in a.intervals for end in (0, 1)]
    return all(x.tobytes() == y.tobytes() for x, y in [(a.mean, b.mean), *ends])


def fingerprint(live: Live, folder: Path) -> list[bytes]:
    """Every bit of the state."""
    live.save(folder)
    return [path.read_bytes().replace(path.name.encode(), b"") for path in sorted(folder.glob("[tv]*"))]


# ---- it helps --------------------------------------------------------------------------------------------------------


def errors(live: Live, values: Floats, known: bool) -> Floats:
    """Mean absolute errors at each step, over rows after a warm-up on the first 1,200."""
    rows, start = len(values), 1200
    future = {"x": values[start : start + H, 1]} if known else None
    width = 1 + len(live.exogenous) + len(live.known)
    live.warm_up((times(start), values[:start, :width]), future=future)
    found = []
    for row in range(start, rows - H):
        found.append(np.abs(live.forecast().mean[:, 0] - values[row : row + H, 0]))
        future = {"x": values[row + 1 : row + 1 + H, 1]} if known else None
        live.observe(START + row * HOUR, values[row, :width], future)
    mean: Floats = np.mean(found, axis=0)
    return mean


def test_what_is_known_in_advance_helps_at_every_step() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=1400)
    values = np.stack([2 * x + 0.1 * rng.normal(size=1400), x], axis=1)
    options = {**SMALL, "epochs": 6, "warm_rate": 0.01}
    without = errors(a_live(options=options), values, known=False)
    with_it = errors(a_live(options=options, known=["x"]), values, known=True)
    assert (without > 1.2).all()  # 1.6: nothing else tells of the next rows
    assert (with_it < without / 3).all()


def test_what_comes_with_a_row_helps_where_the_next_row_follows_from_it_and_only_there() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=1400)
    values = np.stack([np.roll(x, 1), x], axis=1)
    options = {**SMALL, "epochs": 6, "warm_rate": 0.01}
    without = errors(a_live(options=options), values, known=False)
    with_it = errors(a_live(options=options, exogenous=["x"]), values, known=False)
    assert with_it[0] < without[0] / 3
    assert with_it[1] > 0.6 * without[1]  # two steps ahead it cannot: no later value of x has come in


# ---- what a row becomes ----------------------------------------------------------------------------------------------


def test_features_are_the_value_and_every_lead_or_stretches_of_them() -> None:
    short = Exogenous(["y"], [], ["p"], horizon=3)
    assert short.extend(np.array([1.0]), short.plan({"p": [2, 3, 4]})).tolist() == [1, 2, 3, 4]
    long = Exogenous(["y"], [], ["p"], horizon=2 * LEADS)
    told = np.arange(1.0, 2 * LEADS + 1)
    pairs = told.reshape(-1, 2).mean(1).tolist()
    assert long.extend(np.array([0.0]), long.plan({"p": told})).tolist() == [0.0, *pairs, 2.0 * LEADS]
    assert long.width == LEADS + 2


def test_a_plan_is_shifted_then_carried_and_its_gaps_are_filled_from_before() -> None:
    outside, nothing = Exogenous(["y"], ["e"], ["p"], horizon=3), np.full(2, math.nan)
    assert np.isnan(outside.extend(nothing, outside.plan(None))).all()
    assert outside.extend(np.array([7.0, 1.0]), outside.plan({"p": [2, None, 4]})).tolist() == [7, 1, 2, 2, 4]
    assert outside.extend(nothing, outside.plan(None)).tolist() == [7, 2, 2, 4, 4]
    assert outside.extend(np.array([8.0, 9.0]), outside.plan(None)).tolist() == [8, 9, 4, 4, 4]  # what came counts
    assert outside.extend(nothing, outside.plan({"p": [None, 6, None]})).tolist() == [8, 4, 4, 6, 6]


@pytest.mark.parametrize("gap", [1, 2, 3, 4, 50])
def test_rows_that_are_skipped_use_up_the_plan(gap: int) -> None:
    played, skipped = (Exogenous(["y"], ["e"], ["p"], horizon=3) for _ in range(2))
    nothing = np.full(2, math.nan)
    for outside in (played, skipped):
        outside.extend(np.array([7.0, 1.0]), outside.plan({"p": [2, None, 4]}))
    for _ in range(gap):
        played.extend(nothing, played.plan(None))
    skipped.skip(gap)
    assert played.extend(nothing, played.plan(None)).tolist() == skipped.extend(nothing, skipped.plan(None)).tolist()


def test_a_row_by_name_by_place_and_from_a_frame_are_the_same(tmp_path: Path) -> None:
    values = data(80)
    frame = pd.DataFrame(values, columns=["y", "wind", "plan"], index=pd.DatetimeIndex(times(80)))
    by_place, by_name, framed = both(), both(), both()
    fed(by_place, values, 0, 60)
    for row in range(60):
        cells = dict(zip(("plan", "y", "wind"), values[row, [2, 0, 1]], strict=True))
        by_name.observe(times(80)[row], cells, future=ahead(values, row))
    assert fingerprint(by_place, tmp_path / "a") == fingerprint(by_name, tmp_path / "b")
    # The frame is its own plan: warmed up on the rows a cold start waits for, it is where that one is.
    framed.warm_up(frame.iloc[: W + H], future=ahead(values, W + H - 1))
    fed(framed, values, W + H, 60)
    assert same(framed.forecast(), by_place.forecast()) and framed.health() == by_place.health()


def test_nothing_of_later_rows_is_seen_but_the_plan() -> None:
    values = data(120)
    other = values.copy()
    other[100:, :2] *= -3  # other values, another wind; the plan is the same
    lives = [both(), both()]
    for live, known in zip(lives, (values, other), strict=True):
        live.warm_up((times(90), known[:90]), future=ahead(known, 89))
    pairs = list(zip(fed(lives[0], values, 90, 118), fed(lives[1], other, 90, 118), strict=True))
    assert all(same(a, b) for a, b in pairs[:10]) and not any(same(a, b) for a, b in pairs[10:])
    other = values.copy()
    other[100:, 2] += 500  # another plan is seen as soon as it is told, H rows before
    live = both()
    live.warm_up((times(90), values[:90]), future=ahead(values, 89))
    changed = fed(live, other, 90, 101)
    assert [same(a, pair[0]) for a, pair in zip(changed, pairs, strict=False)] == [True] * 8 + [False] * 3


def test_standardised_from_the_rows_of_the_beginning() -> None:
    values = data(200)
    units = values * [1.0, 1e6, 1e-6] + [0.0, 4.0, -2.0]
    a, b = both(), both()
    for live, known in ((a, values), (b, units)):
        live.warm_up((times(150), known[:150]), future=ahead(known, 149))
    np.testing.assert_allclose(fed(a, values, 150, 198)[-1].mean, fed(b, units, 150, 198)[-1].mean, rtol=1e-2)


def test_missing_and_wild_ones_do_no_harm() -> None:
    live = both()
    live.warm_up((times(60), np.where(np.arange(3) > 0, math.nan, data(60))))  # they never came
    assert np.isfinite(live.forecast().mean).all()
    live = both()
    live.warm_up((times(60), data(60)))
    wild: list[Any] = [[5.0, 1e300, -1.7e308], {"y": 5.0}, {"wind": 1.0}, {"y": None, "plan": 1e308}, [5, None, 2]]
    for row, cells in enumerate(wild, 60):
        live.observe(START + row * HOUR, cells, {"plan": [1.7e308, -1.7e308]})
        assert np.isfinite(live.forecast().mean).all()
    live.observe(START + 10_000 * HOUR, [5.0, 1.0, 2.0])
    assert np.isfinite(live.forecast().mean).all() and live.forecast().columns == ("y",)


# ---- refused, saved --------------------------------------------------------------------------------------------------


def test_names_that_make_no_sense_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"exogenous": ["y"]}, "y comes more than once"),
        ({"exogenous": ["a"], "known": ["a", "b"]}, "a comes more than once.*need not be in exogenous"),
        ({"known": ["a", "a"]}, "a comes more than once"),
        ({"exogenous": "wind"}, r"exogenous is the text 'wind', expected a list of names: \['wind'\]"),
        ({"exogenous": ["wind"], "method": "rls_mv"}, "method is 'rls_mv', which reads the values only.*auto"),
        ({"known": ["wind"], "method": "rls"}, "method is 'rls', which reads the values only"),
    ]
    for arguments, message in cases:
        with pytest.raises(OptionError, match=message):
            a_live(**arguments)


@pytest.mark.parametrize("phase", ["cold", "warm"])
def test_what_is_refused_changes_nothing(phase: str, tmp_path: Path) -> None:
    live, values = both(), data(80)
    fed(live, values, 0, 5 if phase == "cold" else 40)
    assert live.health()["phase"] == phase
    before, good, time = fingerprint(live, tmp_path / "before"), [1.0, 2.0, 3.0], START + 60 * HOUR
    cases: list[tuple[Any, Any, str]] = [
        ([1.0], None, "row has 1 values, expected 3: y, wind, plan"),
        ([1.0, "calm", 3.0], None, "wind is 'calm', expected a number"),
        ({"y": 1.0, "wnd": 2.0}, None, "did you mean wind"),
        (good, {"wind": [1, 2]}, r"future holds 'wind', expected columns in known, which are \['plan'\]"),
        (good, {"plann": [1, 2]}, "column 'plann' is unknown in future.*did you mean plan"),
        (good, {"plan": [1, 2, 3]}, "future of plan has 3 values, expected 2"),
        (good, {"plan": [1, "two"]}, "future of plan is 'two', expected a number"),
        (good, {"plan": [1, math.inf]}, "future of plan is inf, expected a finite number"),
        (good, {"plan": 7}, "future of plan is 7, expected 2 numbers"),
        (good, [1, 2], "expected a mapping"),
    ]
    for row, future, message in cases:
        with pytest.raises(DataError, match=message):
            live.observe(time, row, future)
        assert fingerprint(live, tmp_path / "after") == before, message
    with pytest.raises(DataError, match=r"future holds 'x', expected columns in known, which are \[\]"):
        a_live().observe(time, [1.0], {"x": [1, 2]})


@pytest.mark.parametrize("rows", [0, 5, 40])
def test_a_restored_live_goes_on_bit_for_bit(rows: int, tmp_path: Path) -> None:
    live, values = both(), data(90)
    fed(live, values, 0, rows)
    live.save(tmp_path / "state")
    again = Live.load(tmp_path / "state")
    assert (again.exogenous, again.known) == (("wind",), ("plan",))
    # The first row after it tells no plan: the one that was told before must have been kept.
    pairs = [(fed(one, values, rows, rows + 1, told=False), fed(one, values, rows + 1, 80)) for one in (live, again)]
    for a, b in zip(pairs[0][0] + pairs[0][1], pairs[1][0] + pairs[1][1], strict=True):
        assert same(a, b)
    assert fingerprint(live, tmp_path / "a") == fingerprint(again, tmp_path / "b")


def test_a_state_without_them_loads_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    plain = a_live("rls")
    plain.warm_up((times(40), data(40)[:, :1]))
    plain.save(tmp_path)
    state, meta = states.load(tmp_path, kind="live")
    assert "exogenous" not in state and "exogenous" not in meta  # as before there were any
    assert same(Live.load(tmp_path).forecast(), plain.forecast())
    live = both()
    fed(live, data(80), 0, 40)
    live.save(tmp_path)
    state, meta = states.load(tmp_path, kind="live")
    for changed, settings in (
        ({**state, "exogenous": None}, meta),
        ({**state, "exogenous": {}}, meta),
        (state, {**meta, "known": ["plan", "more"]}),
        (state, {**meta, "known": [], "exogenous": []}),
    ):
        states.save(tmp_path, changed, kind="live", meta=settings)
        with pytest.raises(StateError):
            Live.load(tmp_path)
