"""Grids of seconds and of months: where rows may lie, for files and for streams."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from natsr.data.grids import Even, Grid, Monthly, Seconds, grid_between, grid_of
from natsr.data.weekdays import Weekdays
from natsr.types import OptionError, StateError

#: Three weeks from a Monday on.
WEEKDAYS = tuple(f"2026-01-{day:02}" for day in range(5, 24) if day % 7 not in (3, 4))


def times(*texts: str) -> np.ndarray[tuple[int], np.dtype[np.datetime64]]:
    return np.array(texts, dtype="datetime64[s]")


def seconds(*texts: str) -> Seconds:
    return times(*texts).astype(np.int64)


def at(text: str) -> int:
    return int(seconds(text)[0])


def after(grid: Grid, start: str, *steps: int) -> list[str]:
    """The dates so many steps after a time."""
    found = grid.after(seconds(start), np.array(steps)).astype("datetime64[s]")
    return [str(time).removesuffix("T00:00:00") for time in found]


def test_freq_of_every_form() -> None:
    forms: dict[Any, str] = {
        "s": "1s",
        "30 s": "30s",
        "min": "60s",
        "15T": "900s",
        "H": "3600s",
        "2h": "7200s",
        "D": "86400s",
        "W": "604800s",
        timedelta(minutes=5): "300s",
        np.timedelta64(2, "h"): "7200s",
        "ms": "1ms",
        "100ms": "100ms",
        "1000 ms": "1000ms",
        "250us": "250us",
        "20µs": "20us",
        timedelta(milliseconds=100): "100ms",
        timedelta(seconds=2.5): "2500ms",
        timedelta(microseconds=250): "250us",
        timedelta(milliseconds=1000): "1s",
        np.timedelta64(5, "ms"): "5ms",
        np.timedelta64(2000, "us"): "2ms",
        np.timedelta64(7000, "ns"): "7us",
        "B": "B",
        "M": "1M",
        "MS": "1MS",
        "2ME": "2ME",
        "Q": "3M",
        "QE": "3ME",
        "Y": "12M",
        "YS": "12MS",
        np.timedelta64(1, "M"): "1M",
        np.timedelta64(1, "Y"): "12M",
    }
    assert {form: grid_of(form).text for form in forms} == forms
    assert [grid_of(text).text for text in forms.values()] == list(forms.values())  # what is kept is read again
    wrong: list[Any] = [
        "",
        "m",
        "Ms",
        "500ns",
        "0.5ms",
        "0us",
        "40000000000ms",
        "hourly",
        "-1h",
        "1.5h",
        "0s",
        "0M",
        "9" * 30 + "s",
        "9" * 30 + "M",
        5,
        None,
    ]
    for freq in [*wrong, timedelta(0), timedelta(-1), np.timedelta64(5, "ns"), np.timedelta64(-1, "M")]:
        with pytest.raises(OptionError, match="freq is"):
            grid_of(freq)


def test_grids_for_people() -> None:
    named = {
        "h": "hour",
        "B": "working day",
        "90min": "90 minutes",
        "W": "week",
        "M": "month",
        "2M": "2 months",
        "Q": "quarter",
        "Y": "year",
    }
    assert {freq: grid_of(freq).named for freq in named} == named
    assert [grid_of(freq).season for freq in ("h", "D", "M", "2M", "Q", "6M", "Y", "5M")] == [24, 7, 12, 6, 4, 2, 1, 1]


@pytest.mark.parametrize(
    ("cells", "freq"),
    [
        (("2026-01-01", "2026-02-01", "2026-03-01"), "1MS"),
        (("2026-01-15T06:00", "2026-04-15T06:00"), "3M"),
        (("2025-12-31", "2026-01-31", "2026-02-28", "2026-04-30"), "1ME"),  # ends of months, one missing
        (("2025-12-30", "2026-01-30", "2026-02-28", "2026-03-30"), "1M"),  # the 30th, or the last day
        (("2024-02-29", "2025-02-28"), "12M"),
        (("2021-01-01", "2022-01-01", "2023-01-01"), "12MS"),  # a year, though each of these has 365 days
        (("2026-01-01", "2026-02-02"), f"{32 * 86400}s"),
        (("2026-01-01", "2026-01-02"), "86400s"),
        (("2026-01-01", "2026-01-02", "2026-01-05"), "86400s"),
        (("2026-01-01T00:00", "2026-02-01T00:00", "2026-03-01T01:00"), None),
        (("2026-01-01", "2026-03-01", "2026-05-01", "2026-06-01"), None),
        (("2026-01-31", "2026-02-28", "2026-03-27"), None),
        (("2026-01-01",), None),
        (WEEKDAYS, "B"),
        (WEEKDAYS[:10], "86400s"),  # one weekend may be chance
        ((*WEEKDAYS[:7], *WEEKDAYS[8:]), "B"),  # a holiday
        ((*WEEKDAYS, "2026-01-24"), "86400s"),
    ],
)
def test_the_grid_that_times_lie_on(cells: tuple[str, ...], freq: str | None) -> None:
    found = grid_between(times(*cells))
    assert (found and found.text) == freq
    if found is not None:
        places = found.places(seconds(*cells))
        assert places is not None
        assert found.after(seconds(cells[0]), places).tolist() == seconds(*cells).tolist()


def test_steps_back_come_to_where_steps_ahead_began() -> None:
    for grid in (
        Even(900),
        Weekdays(),
        Monthly(1, 1, True),
        Monthly(3, 30, True),
        Monthly(1, 31, True),
        Monthly(12, 29, True),
    ):
        start = grid.after(seconds("1969-12-30T05:00"), np.array([0]))
        there = grid.after(start, np.arange(-40, 40))
        assert (grid.after(there, np.arange(40, -40, -1)) == start).all() and (np.diff(there) > 0).all()
        assert grid.places(there) is not None
        assert [grid.steps(int(start[0]), time) for time in there[41:].tolist()] == list(range(1, 40))


def test_a_day_that_a_month_lacks_is_its_last() -> None:
    thirtieth = Monthly(1).seen(seconds("2026-01-30"))
    assert after(thirtieth, "2026-01-30", 1, 2) == ["2026-02-28", "2026-03-30"]
    assert after(thirtieth.seen(seconds("2026-02-28")), "2026-02-28", 1, -1) == ["2026-03-30", "2026-01-30"]
    assert after(Monthly(1).seen(seconds("2026-01-15T06:00")), "2026-01-15T06:00", 1) == ["2026-02-15T06:00:00"]


def test_the_last_day_of_a_month_is_its_end_until_a_row_tells_otherwise() -> None:
    april = Monthly(1).seen(seconds("2026-04-30"))
    assert not april.settled and after(april, "2026-04-30", 1) == ["2026-05-31"]
    ends, thirtieths = (april.seen(seconds(row)) for row in ("2026-05-31", "2026-05-30"))
    assert april.steps(at("2026-04-30"), at("2026-05-31")) == april.steps(at("2026-04-30"), at("2026-05-30")) == 1
    assert april.steps(at("2026-04-30"), at("2026-05-29")) is None
    assert after(ends, "2026-05-31", 1, 2) == ["2026-06-30", "2026-07-31"]
    assert after(thirtieths, "2026-05-30", 1, 2) == ["2026-06-30", "2026-07-30"]
    assert ends.steps(at("2026-05-31"), at("2026-07-30")) is None
    # The end of a shorter month says nothing new.
    assert april.seen(seconds("2027-02-28")) == april and not april.fits(at("2026-05-28"))


def test_one_row_at_a_time_shows_what_all_of_them_show() -> None:
    for rows in (("2026-02-28", "2026-04-30", "2026-06-30", "2026-07-30"), ("2026-06-30", "2026-09-30", "2026-12-31")):
        grid = Monthly(1)
        for row in rows:
            grid = grid.seen(seconds(row))
        assert grid == Monthly(1).seen(seconds(*rows)) and grid.settled


def test_what_rows_have_shown_is_kept() -> None:
    shown = Monthly(1).seen(seconds("2026-04-30"))
    assert Monthly(1).restored(shown.state_dict()) == shown
    with pytest.raises(StateError, match="on which day of the month"):
        Monthly(1).restored({})


def test_working_days_leave_out_weekends() -> None:
    friday = at("2026-01-02T17:00")
    assert after(Weekdays(), "2026-01-02", 1, 5, 6, -5) == ["2026-01-05", "2026-01-09", "2026-01-12", "2025-12-26"]
    assert Weekdays().steps(friday, at("2026-01-06T17:00")) == 2
    for wrong, why in (
        ("2026-01-03T17:00", "is on a weekend"),
        ("2026-01-05T16:00", "expected 2026-01-05T17:00:00 or a later day at that time"),
    ):
        assert Weekdays().steps(friday, at(wrong)) is None and why in Weekdays().wrong(at(wrong), friday)
    assert not Weekdays().fits(at("2026-01-04")) and Weekdays().fits(at("1969-12-31"))


def test_a_grid_does_not_depend_on_how_finely_its_times_could_be_told() -> None:
    for unit in ("s", "ms", "us", "ns"):
        ends = times("2026-01-31", "2026-02-28", "2026-03-31").astype(f"datetime64[{unit}]")
        assert grid_between(ends) == grid_of("ME")
    parts = [f"2026-01-01T00:00:00.{part}" for part in ("000", "100", "200", "250")]
    assert grid_between(np.array(parts[:3], dtype="datetime64[ns]")) == Even(100, "ms")
    assert grid_between(np.array(parts, dtype="datetime64[ns]")) is None
