"""A column that changes its unit is expressed anew, once, from past rows; nothing else is, and nothing is lost."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from natsr import state as states
from natsr.forecasters.pool import ANYWHERE
from natsr.live import Live, LiveForecast
from natsr.recipes import make
from natsr.rescale import FAR, KEPT
from natsr.types import Option, StateError, Task

Floats = npt.NDArray[np.float64]
START = np.datetime64("2024-01-01T00:00:00")
HOUR = np.timedelta64(1, "h")
SMALL: dict[str, Option] = {"width": 8, "depth": 2, "top": 16, "epochs": 6, "memory": 20, "warm_rate": 0.01}
W, H, KNOWN, CHANGE = 6, 2, 300, 330
PATIENCE = 48  # two days, the season of hourly rows


def stream(rows: int, level: float = 10.0) -> Floats:
    """Two daily waves on a level."""
    hours = np.arange(rows)[:, None] + [0, 5]
    noise = 0.1 * np.random.default_rng(2).normal(size=(rows, 2))
    waves: Floats = level + 3 * np.sin(2 * np.pi * hours / 24) + noise
    return waves


def a_live(method: str = "er", **more: Any) -> Live:
    options = SMALL if method == "er" else None
    return Live(["a", "b"], horizon=H, window=W, method=method, options=options, **more)


def warmed(values: Floats, **more: Any) -> Live:
    live = a_live(**more)
    live.warm_up((START + np.arange(KNOWN) * HOUR, values[:KNOWN]))
    return live


def fed(live: Live, values: Floats, start: int, stop: int) -> list[LiveForecast]:
    forecasts = []
    for row in range(start, stop):
        live.observe(START + row * HOUR, values[row])
        forecasts.append(live.forecast())
    return forecasts


def same(a: LiveForecast, b: LiveForecast) -> bool:
    ends = [(a.intervals[level][end], b.intervals[level][end]) for level in a.intervals for end in (0, 1)]
    return all(x.tobytes() == y.tobytes() for x, y in [(a.mean, b.mean), *ends])


def error(forecasts: list[LiveForecast], values: Floats, first: int) -> float:
    """Of column a, the mean absolute error of the first step."""
    return float(np.mean([abs(f.mean[0, 0] - values[first + i + 1, 0]) for i, f in enumerate(forecasts[:-1])]))


CASES = [(1000.0, 10.0, 1), (50.0, 10.0, 1), (0.001, 50.0, 1), (0.001, 10.0, KEPT)]


@pytest.mark.parametrize(("factor", "level", "patience"), CASES)
def test_a_change_of_unit_is_met_once_and_the_forecasts_are_good_again(
    factor: float, level: float, patience: int
) -> None:
    met = CHANGE + patience * PATIENCE - 1
    values = stream(met + PATIENCE + 60, level)
    values[CHANGE:, 0] *= factor
    live, rigid = warmed(values), warmed(values, rescale=False)
    before = zip(fed(live, values, KNOWN, met), fed(rigid, values, KNOWN, met), strict=True)
    assert all(same(a, b) for a, b in before)  # nothing is done early
    assert live.health()["rescaled"] == 0 and live.health()["rescaled_at"] is None
    after, old = fed(live, values, met, len(values)), fed(rigid, values, met, len(values))
    assert live.health()["rescaled"] == 1
    assert live.health()["rescaled_at"] == str(START + met * HOUR)
    assert rigid.health()["rescaled"] == 0
    assert error(after, values, met) < 2 * abs(factor)  # a wave of 3
    assert error(after, values, met) < error(old, values, met) / 2
    assert np.mean([abs(f.mean[0, 1] - values[met + i + 1, 1]) for i, f in enumerate(after[:-1])]) < 2
    assert all(np.isfinite(f.intervals[0.9].high).all() for f in after)


@pytest.mark.parametrize(("method", "begun"), [("auto", 0), ("rls", 1)])
def test_who_reads_differences_does_not_begin_anew_for_another_level(method: str, begun: int) -> None:
    met = CHANGE + PATIENCE - 1
    values = stream(met + 120)
    values[CHANGE:, 0] += 60  # some thirty deviations
    options: dict[str, Option] | None = {"budget": "cheap"} if method == "auto" else None
    live = Live(["a", "b"], horizon=H, window=W, method=method, options=options)
    live.warm_up((START + np.arange(KNOWN) * HOUR, values[:KNOWN]))
    fed(live, values, KNOWN, met + 20)
    after = fed(live, values, met + 20, len(values))
    assert live.health()["rescaled"] == begun
    assert error(after, values, met + 20) < 0.5  # a wave of 3, which moves 0.5 a row
    assert all(f.intervals[0.9].high[0, 0] - f.intervals[0.9].low[0, 0] < 3 for f in after)


def test_auto_begins_anew_where_float32_tells_no_differences_and_with_networks_that_read_levels() -> None:
    task = Task(window=W, horizon=H, channels=2)
    assert make("auto", task, options={"budget": "cheap"}).far == ANYWHERE
    assert make("auto", task, options={"budget": "all"}).far == FAR
    assert make("natsr", task).far == FAR


def test_the_largest_numbers_there_are_pass() -> None:
    values = stream(CHANGE + 3 * PATIENCE)
    values[CHANGE:, 0] *= 1e37  # still a float32 once standardised
    live = warmed(values, method="last_value")
    forecasts = fed(live, values, KNOWN, len(values))
    assert live.health()["rescaled"] == 1 and all(np.isfinite(forecast.mean).all() for forecast in forecasts)
    huge = stream(CHANGE + PATIENCE)
    huge[:, 0] = np.where(np.arange(len(huge)) % 2, 1.7e308, -1.7e308)
    live = warmed(huge, method="last_value")
    assert all(np.isfinite(forecast.mean).all() for forecast in fed(live, huge, KNOWN, len(huge)))


def test_a_column_without_a_level_that_becomes_tiny_is_met_after_a_longer_while() -> None:
    values = stream(CHANGE + (KEPT + 1) * PATIENCE, level=0.0)
    values[CHANGE:, 0] /= 1000
    live = warmed(values, method="rls")
    fed(live, values, KNOWN, CHANGE + KEPT * PATIENCE - 1)
    assert live.health()["rescaled"] == 0
    fed(live, values, CHANGE + KEPT * PATIENCE - 1, len(values))
    assert live.health()["rescaled"] == 1


def test_outliers_silence_standstill_and_calm_change_nothing() -> None:
    cases: dict[str, Floats] = {name: stream(KNOWN + 400) for name in ("wild", "gone", "stuck", "calm", "often")}
    cases["wild"][KNOWN + 5 : KNOWN + 5 + PATIENCE - 1] = 1e6
    cases["gone"][KNOWN + 5 :] = math.nan
    cases["stuck"][KNOWN + 5 :] = 10.0
    cases["calm"][KNOWN + 5 :] = 10 + 0.01 * (cases["calm"][KNOWN + 5 :] - 10)
    cases["often"][KNOWN::2] = -1e6
    for name, values in cases.items():
        live = warmed(values, method="last_value")
        fed(live, values, KNOWN, len(values))
        assert live.health()["rescaled"] == 0, name


@pytest.mark.parametrize("rows", [CHANGE + 20, CHANGE + PATIENCE + 5])
def test_a_restored_live_goes_on_bit_for_bit(rows: int, tmp_path: Path) -> None:
    values = stream(CHANGE + PATIENCE + 40)
    values[CHANGE:, 0] *= 1000
    live = warmed(values)
    fed(live, values, KNOWN, rows)
    live.save(tmp_path)
    again = Live.load(tmp_path)
    pairs = zip(fed(live, values, rows, len(values)), fed(again, values, rows, len(values)), strict=True)
    assert all(same(a, b) for a, b in pairs)
    assert live.health() == again.health() and live.health()["rescaled"] == 1


def test_a_state_from_before_there_was_a_watch_loads_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    values = stream(CHANGE + PATIENCE + 40)
    values[CHANGE:, 0] *= 1000
    live = warmed(values, method="rls", rescale=False)
    live.save(tmp_path)
    assert Live.load(tmp_path).rescale is False
    state, meta = states.load(tmp_path, kind="live")
    warm = state["warm"]
    assert isinstance(warm, dict)
    older = {name: part for name, part in warm.items() if name not in ("watch", "rescaled", "rescaled_at")}
    settings = {name: value for name, value in meta.items() if name != "rescale"}
    states.save(tmp_path, {**state, "warm": older}, kind="live", meta=settings)
    again = Live.load(tmp_path)
    assert same(again.forecast(), live.forecast())
    fed(again, values, KNOWN, len(values))
    assert again.health()["rescaled"] == 1
    states.save(tmp_path, {**state, "warm": {**warm, "watch": {}}}, kind="live", meta=settings)
    with pytest.raises(StateError, match="recent rows"):
        Live.load(tmp_path)
