from __future__ import annotations

import numpy as np
import pytest

from natsr.experts.past import Past
from natsr.experts.periods import find_period


def filled(rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], keep: int) -> Past:
    past = Past(rows.shape[1], keep, 1)
    for row in rows:
        past.push(row)
    return past


def test_the_last_rows_are_always_at_hand() -> None:
    rows = np.random.default_rng(0).standard_normal((57, 2))
    past = Past(2, 10, 1)
    for number, row in enumerate(rows, 1):
        past.push(row)
        count = min(number, 10)
        np.testing.assert_array_equal(past.last(count), rows[number - count : number])
    np.testing.assert_array_equal(past.last(4, back=3), rows[50:54])


def test_before_the_first_row_there_is_the_first_row() -> None:
    past = filled(np.array([[3.0], [4.0]]), 6)
    assert past.last(6)[:, 0].tolist() == [3.0] * 5 + [4.0]


def test_a_gap_is_filled_from_the_past_and_marked() -> None:
    past = filled(np.array([[1.0, np.nan], [np.nan, 2.0], [5.0, np.nan]]), 4)
    assert past.last(3).tolist() == [[1.0, 0.0], [1.0, 2.0], [5.0, 2.0]]
    assert past.known_last(3).tolist() == [[True, False], [False, True], [True, False]]


def test_a_wild_value_is_cut_and_what_follows_is_not() -> None:
    rows = np.random.default_rng(1).standard_normal((200, 1))
    rows[150] = 1e12
    past = filled(rows, 100)
    assert past.last(50)[0, 0] == 1e12
    assert abs(past.clean(50)[0, 0]) < 50
    np.testing.assert_allclose(past.clean(45), rows[155:])


@pytest.mark.parametrize("size", [1e3, 1e6, 1e30])
def test_what_is_usual_stays_so_whatever_one_in_fifty_is(size: float) -> None:
    """With as much as they are cut at, each would lift it by a fifth, until nothing is cut any more."""
    generator = np.random.default_rng(4)
    rows = generator.standard_normal((1500, 1))
    wild = generator.random((1500, 1)) < 0.02
    usual = filled(rows, 10).size()[0]
    rows[wild] = size
    past = Past(1, 10, 1)
    for number, row in enumerate(rows):
        past.push(row)
        if number > 100:
            assert past.wild(1)[0, 0] == wild[number, 0]
    assert 0.8 * usual < past.size()[0] < 2 * usual


def test_four_wild_rows_in_a_row_are_where_the_stream_is() -> None:
    rows = 0.1 * np.random.default_rng(2).standard_normal((300, 1))
    rows[200:] *= 1e4
    past = filled(rows, 10)
    assert past.size()[0] > 500, "a thousand times as large is usual within a hundred rows"
    rows[204:] /= 1e4
    assert filled(rows, 10).size()[0] < 0.5, "four alone are not"


def test_a_lasting_shift_is_followed() -> None:
    rows = 0.1 * np.random.default_rng(2).standard_normal((400, 1))
    rows[200:] += 1000
    past = filled(rows, 200)
    np.testing.assert_allclose(past.clean(50), rows[350:])


@pytest.mark.parametrize("period", [7, 24, 90])
def test_a_period_is_found_under_noise(period: int) -> None:
    generator = np.random.default_rng(3)
    rows = np.sin(2 * np.pi * np.arange(1500)[:, None] / period + np.arange(3)) + generator.standard_normal((1500, 3))
    assert abs(find_period(rows) - period) <= 1


def test_noise_and_walks_have_no_period() -> None:
    generator = np.random.default_rng(4)
    assert find_period(generator.standard_normal((1500, 2))) == 0
    assert find_period(np.ones((20, 2))) == 0 and find_period(np.ones((3, 2))) == 0
