"""The calendar against Python's own, and what each kind of it may know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from natsr.data.calendar import FEATURES, Calendar, Times, calendar_features
from natsr.types import OptionError


def hours(start: str, count: int) -> Times:
    return np.datetime64(start, "s") + np.arange(count) * np.timedelta64(3600, "s")


def by_python(moment: datetime) -> list[float]:
    day_of_year = moment.timetuple().tm_yday
    week = moment.isocalendar().week
    parts = (moment.minute, moment.hour, moment.weekday(), moment.day, day_of_year, moment.month, week)
    return [float(part) for part in parts]


def test_features_agree_with_datetime_over_two_centuries() -> None:
    start = datetime(1899, 12, 28, tzinfo=UTC)
    # 7 h 13 min is prime to every cycle, so that all minutes, hours and year ends come by.
    moments = [start + timedelta(minutes=433 * 1009 * step % (200 * 525_960)) for step in range(4000)]
    for year in range(1900, 2100):
        moments += [datetime(year, 12, 27, 23, 59, 59, tzinfo=UTC) + timedelta(days=day) for day in range(10)]
    times = np.array([moment.replace(tzinfo=None) for moment in moments], dtype="datetime64[s]")
    expected = np.array([by_python(moment) for moment in moments])
    np.testing.assert_array_equal(calendar_features(times), expected)
    assert {53.0, 1.0} <= set(expected[:, 6])


def test_standardised_has_mean_zero_and_population_deviation_one_on_train() -> None:
    train = hours("2016-07-01", 2880)
    features = Calendar.fit(train, "standardised").apply(train)
    assert features.shape == (2880, 7)
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), [0, 1, 1, 1, 1, 1, 1], atol=1e-12)  # an hourly minute is constant


def test_raw_is_the_feature_itself_and_none_is_nothing() -> None:
    times = hours("2016-12-30", 100)
    raw = Calendar.fit(times[:10], "raw")
    assert raw.names == FEATURES
    np.testing.assert_array_equal(raw.apply(times), calendar_features(times))
    assert Calendar.fit(times[:10], "none").apply(times).shape == (100, 0)


@pytest.mark.parametrize(
    ("days", "names"),
    [
        (6, ("minute", "hour")),
        (7, ("minute", "hour", "day_of_week")),
        (120, ("minute", "hour", "day_of_week", "day")),
        (371, FEATURES),
    ],
)
def test_bounded_keeps_only_features_whose_cycle_was_seen(days: int, names: tuple[str, ...]) -> None:
    assert Calendar.fit(hours("2016-07-01", 24 * days), "bounded", 3600).names == names


@pytest.mark.parametrize("start", ["2015-01-01", "2016-07-01", "2021-03-01"])
def test_bounded_never_leaves_the_range_of_the_warm_up(start: str) -> None:
    everything = hours(start, 24 * 365 * 6)
    train = everything[: 24 * 371]
    calendar = Calendar.fit(train, "bounded", 3600)
    seen, later = calendar.apply(train), calendar.apply(everything)
    assert (later <= seen.max(axis=0)).all() and (later >= seen.min(axis=0)).all()
    free = Calendar.fit(train[: 24 * 120], "standardised").apply(everything)
    assert (free.max(axis=0) > free[: 24 * 120].max(axis=0)).any()  # which the others do


def test_an_empty_train_part_is_refused() -> None:
    with pytest.raises(OptionError, match="no rows"):
        Calendar.fit(hours("2020-01-01", 0), "standardised")
