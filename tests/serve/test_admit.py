"""Which row is new, a duplicate or refused: by the log alone, in the order of times, and idempotent."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import numpy as np
import pytest

from natsr.data.grids import Even
from natsr.serve.admit import Layout, Offered, Outcome, Tail, admit, offered, packed, unpacked
from natsr.serve.store import LogRow
from natsr.types import DataError

HOUR = 3600


class Log:
    """A log in memory."""

    def __init__(self) -> None:
        self.rows: list[LogRow] = []

    def known(self, times: list[int]) -> Mapping[int, bytes]:
        return {row.time: row.row for row in self.rows if row.time in times}

    def offer(self, *rows: tuple[int, float]) -> Outcome:
        given = [Offered(place, hour * HOUR, packed(np.array([value]))) for place, (hour, value) in enumerate(rows)]
        tail = Tail(self.rows[-1].seq, self.rows[-1].time) if self.rows else Tail()
        outcome = admit(given, tail, Even(HOUR), self.known)
        self.rows += outcome.taken
        return outcome


def test_new_rows_are_numbered_in_the_order_of_their_times() -> None:
    log = Log()
    outcome = log.offer((3, 3.0), (1, 1.0), (2, 2.0))
    assert [(row.seq, row.time // HOUR) for row in outcome.taken] == [(1, 1), (2, 2), (3, 3)]
    assert outcome.tail == Tail(3, 3 * HOUR)
    assert not outcome.duplicates and not outcome.refused


def test_the_same_rows_again_change_nothing() -> None:
    log = Log()
    log.offer((1, 1.0), (2, math.nan), (3, 0.0))
    outcome = log.offer((1, 1.0), (2, math.nan), (3, -0.0))
    assert (outcome.taken, outcome.duplicates, outcome.refused) == ([], 3, [])
    assert outcome.tail == Tail(3, 3 * HOUR)


def test_a_row_twice_in_one_request_is_a_duplicate() -> None:
    outcome = Log().offer((1, 1.0), (1, 1.0), (1, 2.0))
    assert len(outcome.taken) == 1 and outcome.duplicates == 1
    assert [one.place for one in outcome.refused] == [2]


def test_other_values_for_a_time_that_is_kept_are_refused() -> None:
    log = Log()
    log.offer((1, 1.0))
    outcome = log.offer((1, 1.5))
    assert not outcome.taken and not outcome.duplicates
    assert "other values" in outcome.refused[0].reason


def test_late_rows_and_rows_off_the_grid_are_refused() -> None:
    log = Log()
    log.offer((1, 1.0), (3, 3.0))
    late = log.offer((2, 2.0))
    assert "late" in late.refused[0].reason
    given = [Offered(0, 3 * HOUR + 60, packed(np.array([1.0])))]
    off = admit(given, Tail(2, 3 * HOUR), Even(HOUR), log.known)
    assert "multiple of 3600" in off.refused[0].reason and not off.taken


def test_gaps_are_allowed() -> None:
    log = Log()
    log.offer((1, 1.0))
    assert [row.seq for row in log.offer((1000, 2.0)).taken] == [2]


@pytest.mark.parametrize("seed", range(5))
def test_however_requests_are_cut_and_repeated_the_log_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(hour, float(rng.randint(0, 9))) for hour in range(60) if rng.random() < 0.8]
    whole, cut = Log(), Log()
    whole.offer(*rows)
    place = 0
    while place < len(rows):
        size = rng.randint(1, 9)
        for _ in range(rng.randint(1, 3)):
            outcome = cut.offer(*rows[max(0, place - 5) : place + size])
            assert not outcome.refused
        place += size
    assert cut.rows == whole.rows


def test_rows_are_read_one_by_one() -> None:
    good, bad = offered(
        [
            ("2026-01-01T00:00:00", {"load": 1.5}, None),
            ("nonsense", {"load": 1.5}, None),
            (1767225600, {"load": 1.5}, None),
            ("0001-01-01T00:00:00+14:00", {"load": 1.5}, None),
            ("2026-01-01T01:00:00", {"load": "1.5"}, None),
            ("2026-01-01T01:00:00", {"lood": 1.5}, None),
            ("2026-01-01T01:00:00", [1.5], None),
            ("2026-01-01T01:00:00", {"load": math.inf}, None),
            ("2026-01-01T02:00:00Z", {}, None),
        ],
        Layout(["load"]),
    )
    assert [row.place for row in good] == [0, 8]
    assert unpacked(good[0].row).tolist() == [1.5]
    assert np.isnan(unpacked(good[1].row)).all()
    assert [one.place for one in bad] == [1, 2, 3, 4, 5, 6, 7]
    assert all(one.reason for one in bad)


def test_a_plan_is_kept_with_its_row() -> None:
    layout = Layout(["load"], ["wind"], ["holiday", "price"], horizon=2)
    row = {"load": 1.5, "wind": 7, "holiday": 0}
    good, bad = offered(
        [
            ("2026-01-01T00:00:00", row, {"price": [3, None]}),
            ("2026-01-01T00:00:00", row, {"price": [3, 4]}),
            ("2026-01-01T01:00:00", row, {"price": [None, None]}),
            ("2026-01-01T02:00:00", row, None),
            ("2026-01-01T03:00:00", row, {"price": [3]}),
            ("2026-01-01T03:00:00", row, {"wind": [3, 4]}),
            ("2026-01-01T03:00:00", row, {"load": [3, 4]}),
            ("2026-01-01T03:00:00", row, [3, 4]),
            ("2026-01-01T03:00:00", row, {"price": "34"}),
            ("2026-01-01T03:00:00", row, {"price": [3, math.inf]}),
        ],
        layout,
    )
    assert [one.place for one in bad] == [4, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(layout.values(good[0].row), [1.5, 7, 0, math.nan])
    future = layout.future(good[0].row)
    assert future is not None
    np.testing.assert_array_equal(future["price"], [3, math.nan])
    np.testing.assert_array_equal(future["holiday"], [math.nan, math.nan])
    assert good[2].row == good[3].row and layout.future(good[3].row) is None
    outcome = admit(good, Tail(), Even(HOUR), lambda _: {})
    assert len(outcome.taken) == 3
    assert [one.reason for one in outcome.refused if "other values" in one.reason]
    with pytest.raises(DataError, match="was it changed"):
        layout.values(packed(np.ones(3)))
