"""Scaling, filling and borders: what a forecaster meets, and that none of it looks ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from natsr.data.calendar import CALENDARS, CalendarKind, Floats
from natsr.data.grids import season_of
from natsr.data.series import Borders, Scaling, Series, check_length, filled_from_past, prepare, unknown
from natsr.streams import steps
from natsr.types import DataError, OptionError

NAN = float("nan")


def hourly(values: Floats, name: str = "s") -> Series:
    times = np.datetime64("2024-01-01", "s") + np.arange(len(values)) * np.timedelta64(3600, "s")
    return Series(name, times, values, tuple(f"c{number}" for number in range(values.shape[1])), 3600)


def noisy(rows: int = 400, channels: int = 3, missing: float = 0.2) -> Series:
    generator = np.random.default_rng(0)
    values = 5 + 3 * generator.standard_normal((rows, channels))
    values[generator.random(values.shape) < missing] = NAN
    return hourly(values)


def test_scaling_is_the_population_deviation_of_what_is_known() -> None:
    values = noisy().values
    scaling = Scaling.fit(values)
    np.testing.assert_allclose(scaling.mean, np.nanmean(values, axis=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.std, np.nanstd(values, axis=0, ddof=0), rtol=1e-12)
    np.testing.assert_allclose(scaling.invert(scaling.apply(values)), values, rtol=1e-12)


def test_scaling_of_a_constant_or_missing_column_keeps_its_unit() -> None:
    values = np.array([[0.1, NAN, 1.0], [0.1, NAN, 3.0], [0.1, NAN, NAN]])
    scaling = Scaling.fit(values)
    np.testing.assert_allclose(scaling.mean, [0.1, 0.0, 2.0])
    np.testing.assert_array_equal(scaling.std, [1.0, 1.0, 1.0])


def test_scaling_of_huge_values_does_not_overflow() -> None:
    scaling = Scaling.fit(np.array([[1e300], [3e300]]))
    np.testing.assert_allclose([scaling.mean[0], scaling.std[0]], [2e300, 1e300])


def test_scaling_of_tiny_values_does_not_vanish() -> None:
    values = np.array([[1e-170], [2e-170], [3e-170]])
    assert Scaling.fit(values).apply(values)[:, 0] == pytest.approx([-(1.5**0.5), 0.0, 1.5**0.5])


def test_borders_are_a_fifth_the_rest_and_three_quarters() -> None:
    assert Borders.published(26304) == Borders(5260, 6576, 26304)
    assert Borders.published(17544) == Borders(3508, 4386, 17544)
    with pytest.raises(OptionError, match="5 · 4 · 9, expected 0 < train <= valid < online"):
        Borders(5, 4, 9)
    with pytest.raises(DataError, match="4 rows, expected at least 5"):
        Borders.published(4)


def test_inputs_are_values_filled_from_the_past_then_the_calendar() -> None:
    series = noisy()
    ready = prepare(series, Borders(100, 150, 400))
    assert ready.rows.inputs.dtype == ready.rows.truth.dtype == torch.float32
    assert ready.rows.inputs.shape == (400, 3 + 7) and not ready.rows.inputs.isnan().any()
    standardised = ready.scaling.apply(series.values)
    np.testing.assert_allclose(ready.rows.truth.numpy(), standardised, rtol=1e-5, atol=1e-6)
    for channel in range(3):
        last = 0.0
        for row in range(400):
            value = float(ready.rows.truth[row, channel])
            last = last if np.isnan(value) else value
            assert float(ready.rows.inputs[row, channel]) == last
    np.testing.assert_allclose(ready.rows.inputs[:, 3:].numpy(), ready.calendar.apply(series.times), atol=1e-5)


def test_leading_gaps_become_the_train_mean() -> None:
    filled = filled_from_past(torch.tensor([[NAN, 1.0], [NAN, NAN], [3.0, NAN], [NAN, 4.0]]))
    assert filled.tolist() == [[0.0, 1.0], [0.0, 1.0], [3.0, 1.0], [3.0, 4.0]]


@pytest.mark.parametrize("calendar", CALENDARS)
def test_nothing_before_a_row_changes_when_it_and_later_rows_do(calendar: CalendarKind) -> None:
    series, borders = noisy(), Borders(100, 150, 400)
    before = prepare(series, borders, calendar=calendar)
    for row in (100, 149, 250):  # from the end of the train part on
        values = series.values.copy()
        values[row:] = np.where(np.isnan(values[row:]), 1e6, NAN)
        after = prepare(replace(series, values=values), borders, calendar=calendar)
        np.testing.assert_array_equal(after.scaling.mean, before.scaling.mean)
        np.testing.assert_array_equal(after.scaling.std, before.scaling.std)
        assert torch.equal(after.rows.inputs[:row], before.rows.inputs[:row])
        torch.testing.assert_close(after.rows.truth[:row], before.rows.truth[:row], rtol=0, atol=0, equal_nan=True)
        assert not torch.equal(after.rows.inputs[row:], before.rows.inputs[row:])
    later = series.times + np.where(np.arange(400) < 100, 0, 10**8) * np.timedelta64(1, "s")
    moved = prepare(replace(series, times=later), borders, calendar=calendar)
    assert torch.equal(moved.rows.inputs[:100], before.rows.inputs[:100])


def test_a_value_too_large_for_the_tensor_counts_as_missing() -> None:
    values = np.array([[1.0], [3.0], [2.0], [1e60], [2.5], [1.0]])
    ready = prepare(hourly(values), Borders(3, 4, 6), calendar="none")
    assert ready.rows.truth[3].isnan().all() and ready.rows.inputs[3] == ready.rows.inputs[2]
    exact = prepare(hourly(values), Borders(3, 4, 6), calendar="none", dtype=torch.float64)
    assert exact.rows.truth.dtype == torch.float64 and not exact.rows.truth.isnan().any()


def test_the_task_fits_the_stream() -> None:
    ready = prepare(noisy(), Borders(100, 150, 400), calendar="bounded")
    task = ready.task(window=10, horizon=3)
    assert (task.channels, task.features, task.season, task.reach) == (3, len(ready.calendar.names), 24, 24)
    moments = list(steps(ready.rows, task, "honest", ready.borders.valid, ready.borders.online))
    assert moments[0].origin == 149 and len(moments) == 400 - 150 - 3 + 1
    assert prepare(noisy(), Borders(100, 150, 400), season=5).task(10, 3).season == 5


def test_the_series_own_calendar_is_the_default() -> None:
    raw = prepare(replace(noisy(), calendar="raw"), Borders(100, 150, 400))
    assert raw.rows.inputs[5, 3:].tolist() == [0.0, 5.0, 0.0, 1.0, 1.0, 1.0, 1.0]


def test_a_series_shorter_than_a_window_is_refused() -> None:
    series = noisy(rows=40)
    check_length(series, 30, 10)
    with pytest.raises(DataError, match=r"40 rows, expected at least window \+ horizon = 60 \+ 24 = 84; use a longer"):
        check_length(series, 60, 24)
    with pytest.raises(DataError, match="40 rows"):
        prepare(series, Borders(10, 20, 40)).task(60, 24)


def test_borders_beyond_the_end_are_refused() -> None:
    with pytest.raises(OptionError, match="ends at row 500, but s has 400 rows"):
        prepare(noisy(), Borders(100, 150, 500))


def test_seasons_are_natural_periods() -> None:
    assert [season_of(step) for step in (1, 10, 60, 300, 600, 1800)] == [60, 360, 1440, 288, 144, 48]


def test_select_and_first_keep_the_rest() -> None:
    series = replace(noisy(), events=(3, 300))
    assert series.select("c2").columns == ("c2",)
    part = series.select(["c2", "c0"]).first(10)
    assert part.columns == ("c2", "c0") and len(part) == 10 and part.events == (3,)
    np.testing.assert_array_equal(part.values, series.values[:10][:, [2, 0]])
    with pytest.raises(OptionError, match="column 'c3' is unknown in s, expected one of c0, c1, c2; use one of these"):
        series.select(["c3"])
    with pytest.raises(OptionError, match="no column"):
        series.select([])
    with pytest.raises(OptionError, match="rows is 0"):
        series.first(0)


def test_a_series_refuses_what_would_break_later() -> None:
    good = noisy()
    with pytest.raises(DataError, match=r"shape \(400, 3\), expected \(400, 2\)"):
        replace(good, columns=("a", "b"))
    with pytest.raises(DataError, match="infinite"):
        replace(good, values=np.full((400, 3), np.inf))
    with pytest.raises(DataError, match="not strictly increasing"):
        replace(good, times=good.times[::-1])
    with pytest.raises(DataError, match="step_seconds is 0"):
        replace(good, step_seconds=0)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    assert unknown("dataset", "etth1", ("ETTh1", "WTH")).endswith("did you mean ETTh1?")
    assert unknown("dataset", "xxxxxx", ("ETTh1", "WTH")).endswith("use one of these")
