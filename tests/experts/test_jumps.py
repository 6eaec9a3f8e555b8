from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.experts.jumps import FOR_GOOD
from natsr.experts.past import Past

Array = npt.NDArray[np.float64]
HORIZON = 24


def noise(rows: int, seed: int = 0, memory: float = 0.9) -> Array:
    """What is usual: changes of about one, and a level that is kept."""
    generator, values = np.random.default_rng(seed), np.zeros((rows, 1))
    for row in range(1, rows):
        values[row] = memory * values[row - 1] + generator.standard_normal()
    return values


def filled(rows: Array, keep: int = 400) -> Past:
    past = Past(rows.shape[1], keep, HORIZON)
    for row in rows:
        past.push(row)
    return past


def lifts(rows: Array, keep: int = 400) -> Array:
    """What forecasts are lifted by after each row, `(T, H)`."""
    past, found = Past(1, keep, HORIZON), []
    for row in rows:
        past.push(row)
        found.append(past.jumps.lift[:, 0].copy())
    return np.array(found)


def test_rows_without_jumps_are_the_rows() -> None:
    rows = noise(600)
    past = filled(rows)
    np.testing.assert_array_equal(past.even(400), rows[-400:])
    assert not past.jumps.lift.any() and past.jumps.begin.tolist() == [[rows[-1, 0]]] * HORIZON


def test_a_counter_that_begins_anew_counts_on() -> None:
    steps = np.random.default_rng(1).uniform(0.5, 1.5, (500, 1))
    rows = np.cumsum(steps, 0)
    rows[300:] -= rows[300] - 0.7
    for after in range(301, 301 + FOR_GOOD - 1):
        past = filled(rows[:after])
        changes = np.diff(past.even(after - 280, 0)[:, 0])
        assert changes.min() >= 0 and changes.max() <= 1.5, "no row but the first is other than usual"
        assert past.jumps.lift[:, 0] == pytest.approx(rows[300, 0] - rows[299, 0])
        assert past.even(1)[0, 0] + past.jumps.lift[0, 0] == pytest.approx(rows[after - 1, 0])


def test_what_has_stayed_long_becomes_the_level() -> None:
    """Even rows know nothing of it: who has learned where they come back to is right at the new level, too."""
    rows = noise(500)
    rows[300:] += 100
    before, after = filled(rows[: 300 + FOR_GOOD]), filled(rows[: 301 + FOR_GOOD])
    assert before.jumps.stays.all() and not before.jumps.offset.any()
    assert not after.jumps.stays.any() and after.jumps.offset[0] > 90 and not after.jumps.shift.any()
    np.testing.assert_allclose(after.jumps.lift, before.jumps.lift)
    np.testing.assert_allclose(after.even(FOR_GOOD)[:, 0] + after.jumps.offset, rows[301 : 301 + FOR_GOOD, 0])
    assert np.ptp(after.even(372)) < 20, "there is no edge"


def test_a_level_that_is_left_again_is_as_much_of_a_jump() -> None:
    rows = noise(700)
    rows[300:500] += 100
    past = filled(rows[:502])
    assert past.jumps.offset[0] > 90 and past.jumps.stays.all()
    np.testing.assert_allclose(past.jumps.lift, 0, atol=10)
    assert np.ptp(filled(rows).even(400)) < 20 and abs(filled(rows).jumps.offset[0]) < 10


def test_where_a_meter_has_begun_anew_all_even_rows_go_on_from_there() -> None:
    """Else they would be as far off, after years, as it has counted in all."""
    rows = np.cumsum(np.random.default_rng(1).uniform(0.5, 1.5, (500, 1)), 0)
    rows[300:] -= rows[300] - 0.7
    after = filled(rows[: 301 + FOR_GOOD])
    assert after.jumps.shift[0] < -200 and not after.jumps.offset.any() and not after.jumps.lift.any()
    np.testing.assert_allclose(after.even(FOR_GOOD)[:, 0], rows[301 : 301 + FOR_GOOD, 0])
    changes = np.diff(after.even(300)[:, 0])
    assert changes.min() >= -1e-9 and changes.max() <= 1.5, "nor is there an edge"


def test_an_outlier_is_not_there() -> None:
    rows = noise(400)
    rows[350] = 1e4
    past = filled(rows)
    np.testing.assert_array_equal(past.even(49), rows[-49:])
    assert abs(past.even(50)[0, 0] - rows[349, 0]) < 1e-9
    assert not past.jumps.lift.any()


def test_whether_one_stays_is_learned_from_those_before_it() -> None:
    rows = noise(1000)
    for start in (300, 420, 540, 660, 780):
        rows[start : start + 6] -= 9999
    found = lifts(rows) < -9000
    assert found[300].all(), "nothing is known: it stays"
    assert found[780, 0] and found[780, 4] and not found[780, 6:].any(), "those before it lasted six rows"
    assert found[784, 0] and not found[784, 2:].any()
    assert not found[786:].any() and not lifts(rows)[790:].any()


def test_an_outlier_in_noise_is_taken_back_without_any_before_it() -> None:
    white = np.random.default_rng(0).standard_normal((400, 1))
    walk = np.cumsum(white, 0)
    for rows, stays in ((white, False), (walk, True)):
        rows[350] += 1000
        assert bool(lifts(rows)[350].all()) == stays


def test_a_burst_that_fades_leaves_nothing_behind() -> None:
    rows = noise(600, memory=0.5)
    rows[400:420, 0] += 60 * np.exp(-np.arange(20) / 6)
    past = filled(rows[:450])
    assert not past.jumps.lift.any()
    np.testing.assert_array_equal(past.even(20), rows[430:450])
    assert np.abs(past.even(60)).max() < 20, "nor where it was"


def test_a_way_back_to_the_middle_is_no_jump() -> None:
    """A sensor that has gone astray slowly and is put right."""
    rows = noise(900, memory=0.5)
    rows[600:700, 0] += np.linspace(0, 40, 100)
    past = filled(rows[:720], 700)
    np.testing.assert_array_equal(past.even(20), rows[700:720])
    assert not past.jumps.lift.any()


def test_a_missing_row_says_nothing() -> None:
    rows = noise(400)
    rows[350:] += 100
    rows[351] = np.nan
    past = filled(rows[:352])
    assert int(past.arrays()["age"][0]) == 1 and past.even(1)[0, 0] == rows[349, 0]
    assert int(filled(rows[:353]).arrays()["age"][0]) == 2


def test_what_is_known_of_jumps_is_carried_on() -> None:
    rows = noise(700)
    for start in (300, 420, 540):
        rows[start : start + 6] -= 9999
    past, other = filled(rows[:543]), Past(1, 400, HORIZON)
    arrays = other.arrays()
    for name, values in past.arrays().items():
        np.copyto(arrays[name], values)
    other.reload()
    for row in rows[543:]:
        past.push(row)
        other.push(row)
        np.testing.assert_array_equal(past.jumps.lift, other.jumps.lift)
        np.testing.assert_array_equal(past.even(50), other.even(50))
