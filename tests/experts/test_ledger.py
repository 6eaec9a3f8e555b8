"""The ledger: what may be staked, and that no stream can make one row ahead cost more than is allowed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.experts.guard import part_of_the_way
from natsr.experts.ledger import ALLOWED, START, YOUNG, Ledger
from natsr.experts.past import Past

Array = npt.NDArray[np.float64]
ROWS = 1500


def played(rows: Array, mixtures: Array, ledger: Ledger | None = None) -> tuple[Array, Ledger]:
    """What is answered one row ahead from each row, `(T, 1)`, when the guard would follow the mixture wherever it goes.

    Args:
        rows: `(T, 1)`.
        mixtures: What is mixed from each of them.
        ledger: Fresh if none is given.
    """
    ledger, past, out = ledger or Ledger((1, 1)), Past(1, 10, 1), np.zeros((2, 1, 1))
    given = np.zeros_like(rows)
    for number, row in enumerate(rows):
        past.push(row)
        if number:
            ledger.take(past, mixtures[number - 1][None], given[number - 1][None], row[None])
        ledger.stake(past, mixtures[number][None], out)
        given[number] = part_of_the_way(row, mixtures[number], ledger.free)
        out[number % 2] = given[number]
    return given, ledger


def excess(rows: Array, given: Array) -> Array:
    """By how much more than is allowed the answers have lost to the last value, over what that has lost, by row."""
    changes = np.abs(np.diff(rows, axis=0))
    own, lost = np.abs(rows[1:] - given[:-1]), changes.cumsum(0)
    usual = np.maximum.accumulate((lost / np.arange(2, len(rows) + 1)[:, None])[YOUNG - 1 :])
    more = (own - changes)[YOUNG + 1 :].cumsum(0)
    return np.asarray((more - ALLOWED * lost[YOUNG + 1 :] - START * usual[2:]) / lost[YOUNG + 1 :])


def bursts(seed: int) -> Array:
    """One to three rows of writing, now and then."""
    generator, rows = np.random.default_rng(seed), np.zeros((ROWS, 1))
    for row in range(20, ROWS - 80, 40):
        first = row + int(generator.integers(0, 20))
        rows[first : first + int(generator.integers(1, 4))] = generator.gamma(4.0, 10.0)
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_whoever_is_wrong_with_every_bet_costs_what_is_allowed_and_no_more(seed: int) -> None:
    """The mixture goes to where the next row is not: as far to the other side of the last value, or down from it."""
    rows = bursts(seed)
    ahead = np.append(rows[1:], rows[-1:], axis=0) - rows
    against = rows - np.where(ahead == 0, 5.0, ahead)
    given, _ = played(rows, against)
    over = excess(rows, given)
    assert over.max() < 1e-9  # no more than allowed, after any row
    assert np.abs(rows[1:] - against[:-1]).sum() > 3 * np.abs(np.diff(rows, axis=0)).sum()


@pytest.mark.parametrize("seed", range(6))
def test_a_toss_of_a_coin_is_not_bet_on(seed: int) -> None:
    """Whether a burst goes on is chance: who says that it is over is right as often as not."""
    rows = bursts(seed)
    given, _ = played(rows, np.zeros_like(rows))
    assert excess(rows, given).max() < 1e-9


def test_whoever_is_right_is_followed_soon() -> None:
    """Bursts of one row: after a few of them the whole way is gone."""
    rows = np.zeros((ROWS, 1))
    rows[25::40] = 10.0
    given, ledger = played(rows, np.zeros_like(rows))
    assert ledger.free[0] == 1 and given[1225, 0] == 0 < given[105, 0]
    assert np.abs(rows[1:] - given[:-1])[600:].sum() == pytest.approx(0.5 * np.abs(np.diff(rows, axis=0))[600:].sum())


def test_columns_that_move_are_left_to_the_guard_one_row_ahead() -> None:
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((ROWS, 1))
    given, ledger = played(rows, rows + 1.0)  # wrong, all the time
    assert ledger.stillness()[0] == 0 and ledger.free[0] == 1
    np.testing.assert_array_equal(given, rows + 1.0)
    assert played(bursts(0), bursts(0))[1].stillness()[0] == 1


def test_what_is_out_is_counted_until_it_has_come() -> None:
    """Three rows ahead the same stake is out three times, and what is left of it each time is less."""
    past, ledger, out = Past(1, 20, 3), Ledger((3, 1)), np.zeros((4, 3, 1))
    rows = np.zeros((YOUNG + 60, 1))
    rows[::2] = 1.0
    for number, row in enumerate(rows):
        past.push(row)
        wanted = row + np.full((3, 1), 0.1)
        ledger.stake(past, wanted, out)
        out[number % 4] = part_of_the_way(row, wanted, ledger.free)
        if past.seen <= YOUNG + 3:
            assert ledger.free[0] == 1
    assert ledger.free[0] == 0  # nobody has told the ledger that the last value has lost anything: there is nothing
    ledger.arrays()["lost"][:] = 100.0
    stakes = []
    for number in range(len(rows), len(rows) + 12):
        past.push(np.zeros(1))
        ledger.stake(past, np.full((3, 1), 0.1), out)
        out[number % 4] = ledger.free * 0.1
        stakes.append(float(ledger.free[0]))
    bank = (ALLOWED + START / past.seen) * 100.0
    assert 0.3 * stakes[-1] * (1 + 2 / 3 + 1 / 3) == pytest.approx(min(bank, 0.6), rel=0.25)


def test_a_warm_up_is_forgiven_and_remembered_a_little() -> None:
    ledger = Ledger((1, 2))
    accounts = ledger.arrays()
    accounts["lost"][:], accounts["earned"][:], accounts["gained"][:] = 100.0, (-5.0, 50.0), (-5.0, 50.0)
    ledger.settle()
    np.testing.assert_allclose(np.asarray(accounts["earned"], dtype=np.float64), [0.0, 0.2])
    np.testing.assert_allclose(np.asarray(accounts["gained"], dtype=np.float64), [-5.0, 50.0])  # that is no debt


def test_debts_of_columns_that_move_are_forgiven_in_time_and_of_those_that_stand_still_not() -> None:
    for horizon, moves, left in ((2, True, 0.9), (2, False, 1.0), (1, True, 1.0)):
        ledger, past = Ledger((horizon, 1)), Past(1, 10, horizon)
        for number in range(100):
            past.push(np.array([float(number % 2) if moves else float(number == 50)]))
            ledger.arrays()["earned"][:] = -8.0 if number < 2 else ledger.arrays()["earned"]
            known = past.last(1)[0]
            if number > horizon:
                ledger.take(
                    past, known + np.zeros((horizon, 1)), known + np.zeros((horizon, 1)), known + np.zeros((horizon, 1))
                )
        assert float(ledger.arrays()["earned"][0]) == pytest.approx(-8.0 * left, rel=0.01)


def test_a_wild_value_fills_and_empties_no_account() -> None:
    """Neither what was forecast of it nor what is forecast from it counts."""
    rows = bursts(0)
    rows[700] = 1e30
    past, ledger, out = Past(1, 10, 1), Ledger((1, 1)), np.zeros((2, 1, 1))
    before: dict[str, Array] = {}
    for number, row in enumerate(rows[:702]):
        past.push(row)
        before = {name: np.array(values, dtype=np.float64) for name, values in ledger.arrays().items()}
        if number:
            ledger.take(past, np.zeros((1, 1)), np.zeros((1, 1)), row[None])
        ledger.stake(past, np.zeros((1, 1)), out)
        if number >= 700:
            accounts = ("lost", "earned", "gained", "changes")
            assert all((np.asarray(ledger.arrays()[name]) == before[name]).all() for name in accounts)
            assert float(ledger.arrays()["peak"][0]) <= before["peak"][0] and (number > 700 or ledger.free[0] == 1)
