"""The ledger: what may be staked, and that no stream can make it cost more than is allowed, and is lent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.experts.guard import part_of_the_way
from natsr.experts.ledger import (
    ALLOWED,
    BESIDE,
    BROUGHT,
    CARRIED,
    LONG,
    NEAREST,
    RUNS,
    SHARED,
    START,
    SURE,
    TRUST,
    YOUNG,
    Ledger,
)
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
    young = YOUNG[0] + 1
    usual = np.maximum.accumulate((lost / np.arange(2, len(rows) + 1)[:, None])[young - 2 :])
    lost, more = lost[young:], (own - changes)[young:].cumsum(0)
    return np.asarray((more - ALLOWED * lost - START[0] * usual[2:]) / np.maximum(lost, 1e-9))


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


@pytest.mark.parametrize("seed", range(3))
def test_24_rows_ahead_nobody_who_is_wrong_costs_more_than_is_allowed_either(seed: int) -> None:
    """On a walk the mixture goes as far from the last value as the truth, the other way; one step in six is right."""
    horizon, count = 24, 900
    generator = np.random.default_rng(seed)
    walk = np.cumsum(generator.standard_normal((count, 1)), 0)
    ledger, past, out = Ledger((horizon, 1)), Past(1, 60, horizon), np.zeros((horizon + 1, horizon, 1))
    mixtures, more, lost, wrong = np.zeros((count, horizon, 1)), 0.0, 0.0, 0.0
    for number, row in enumerate(walk):
        past.push(row)
        steps = np.arange(1, min(horizon, number) + 1)  # how long ago those were that have a step which comes now
        truth = np.full((horizon, 1), np.nan)
        truth[: len(steps)] = row
        origins = (number - np.arange(1, horizon + 1)) % (horizon + 1)
        mixture = mixtures[number - np.arange(1, horizon + 1), np.arange(horizon)]
        given = out[origins, np.arange(horizon)]
        if number:
            ledger.take(past, mixture, given, truth)
        paid = steps[number - steps >= YOUNG[1] + horizon]
        last = walk[number - paid]
        more += float((np.abs(row - given[paid - 1]) - np.abs(row - last)).sum())
        lost += float(np.abs(row - walk[number - steps]).sum())
        wrong += float((np.abs(row - mixture[steps - 1]) - np.abs(row - walk[number - steps])).sum())
        assert more <= ALLOWED * lost + START[1] * lost / max(number, 1) * 1.5 + 1e-9
        ahead = np.append(walk[number + 1 : number + 1 + horizon], np.full((horizon, 1), row), axis=0)[:horizon]
        away = np.where(generator.random((horizon, 1)) < 1 / 6, 1.0, -1.0) * (ahead - row)
        mixtures[number] = row + away
        ledger.stake(past, mixtures[number], out)
        out[number % (horizon + 1)] = part_of_the_way(row, mixtures[number], ledger.free)
    assert wrong > 0.5 * lost, "followed all the time it would have cost much more"


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


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_move_pay_as_well_until_the_mixture_is_clearly_better(seed: int) -> None:
    """A walk with a coin on top, as prices between bid and ask: whoever is wrong is not followed, who is right is."""
    generator = np.random.default_rng(seed)
    walk = np.cumsum(generator.standard_normal((ROWS, 1)), 0)
    ahead = np.append(walk[1:], walk[-1:], axis=0) - walk
    given, ledger = played(walk, walk - np.sign(ahead))
    assert ledger.stillness()[0] == 0 and excess(walk, given).max() < 1e-9
    noise = generator.standard_t(1.2, (ROWS, 1))  # the largest stakes are those after the largest values
    given, ledger = played(noise, np.zeros_like(noise))
    assert ledger.stillness()[0] == 0
    np.testing.assert_array_equal(given[YOUNG[0] + 50 :], 0.0)
    assert played(bursts(0), bursts(0))[1].stillness()[0] == 1


def test_what_is_out_is_counted_until_it_has_come() -> None:
    """Three rows ahead the same stake is out three times, and what is left of it each time is less."""
    past, ledger, out = Past(1, 20, 3), Ledger((3, 1)), np.zeros((4, 3, 1))
    rows = np.zeros((YOUNG[1] + 60, 1))
    rows[::2] = 1.0
    for number, row in enumerate(rows):
        past.push(row)
        wanted = row + np.full((3, 1), 0.1)
        ledger.stake(past, wanted, out)
        out[number % 4] = part_of_the_way(row, wanted, ledger.free)
        if past.seen <= YOUNG[1] + 3:
            assert ledger.free[0] == 1
    assert ledger.free[0] == 0  # nobody has told the ledger that the last value has lost anything: there is nothing
    ledger.arrays()["lost"][:] = 100.0
    stakes = []
    for number in range(len(rows), len(rows) + 12):
        past.push(np.zeros(1))
        ledger.stake(past, np.full((3, 1), 0.1), out)
        out[number % 4] = ledger.free * 0.1
        stakes.append(float(ledger.free[0]))
    bank = (ALLOWED + START[1] / past.seen) * 100.0
    assert 0.3 * stakes[-1] * (1 + 2 / 3 + 1 / 3) == pytest.approx(min(bank, 0.6), rel=0.25)


def test_a_warm_up_is_forgiven_and_remembered_a_little() -> None:
    ledger = Ledger((1, 2))
    accounts = ledger.arrays()
    accounts["lost"][:], accounts["earned"][:], accounts["gained"][:] = 100.0, (-5.0, 50.0), (-5.0, 50.0)
    ledger.settle(100)
    allowed = 100 * ALLOWED  # what was allowed in it is gone
    np.testing.assert_allclose(np.asarray(accounts["earned"], dtype=np.float64), [-allowed, 100 * CARRIED[0] - allowed])
    np.testing.assert_allclose(np.asarray(accounts["gained"], dtype=np.float64), [-5.0, 50.0])  # that is no debt
    accounts["earned"][:] = (-5.0, 50.0)
    ledger.settle(10_000)
    brought = BROUGHT[0] * 100 / 10_000  # no more than four usual rows, however long it was
    np.testing.assert_allclose(np.asarray(accounts["earned"], dtype=np.float64), [-allowed, brought - allowed])


def lent(horizon: int, moves: bool, part: float, near: float = 9.0, shared: float = -9.0, far: float = 0.0) -> float:
    """What is lent, in usual rows, to a column of which this part of the last value's loss would have been gained.

    And that is so many standard deviations of what would have been gained in rows that come in runs, by its nearest
    steps, by those of all columns together and by all of its steps.
    """
    ledger, past, run = Ledger((horizon, 1)), Past(1, 4 + horizon, horizon), min(NEAREST, horizon)
    for number in range(1000):
        past.push(np.array([float(number % 2) if moves else float(number % 500 == 0)]))
        if number > horizon:
            zeros = np.zeros((horizon, 1))
            ledger.take(past, zeros, zeros, past.last(1)[0] + zeros)
    for _ in range(horizon):
        past.push(np.ones(1))
    accounts, rows = ledger.arrays(), float(past.seen)
    accounts["lost"][:], accounts["gained"][:] = rows, part * rows
    accounts["squares"][:] = (part * rows / far) ** 2 / horizon if far else 1e30
    accounts["near"][:], accounts["shared"][:] = [[near], [1 / run]], (shared, 1 / run)
    wanted, out = past.last(1) + np.full((horizon, 1), 1e6), np.zeros((horizon + 1, horizon, 1))
    out[:] = past.last(1)  # nothing is out
    accounts["earned"][:] = -(ALLOWED * rows + START[horizon > 1])  # and nothing is there
    ledger.stake(past, wanted, out)
    return float(ledger.free[0]) * horizon * 1e6


def middle(ends: tuple[float, float]) -> float:
    return sum(ends) / 2


@pytest.mark.parametrize("horizon", [1, 24])
def test_who_would_have_gained_clearly_is_lent_to(horizon: int) -> None:
    assert lent(horizon, moves=True, part=0.02) == 0 == lent(horizon, moves=True, part=-0.5)
    assert lent(horizon, moves=True, part=0.4) == pytest.approx(TRUST * 400, rel=0.03)
    assert lent(horizon, moves=False, part=0.4) == pytest.approx((horizon - 1) * 400, rel=0.03), "one toss is no proof"


@pytest.mark.parametrize("moves", [True, False])
def test_what_is_no_more_than_chance_is_not_lent_on(moves: bool) -> None:
    whole = lent(24, moves, 0.4)
    assert whole > 0 == lent(24, moves, 0.4, near=SURE[0])
    assert lent(24, moves, 0.4, middle(SURE)) == pytest.approx(whole / 2, rel=0.03)
    assert lent(24, moves, 0.4, SURE[0], shared=SHARED[1]) == pytest.approx(whole), "the others vouch for it"
    assert lent(24, moves, 0.4, SURE[0], shared=middle(SHARED)) == pytest.approx(whole / 2, rel=0.03)
    assert lent(24, moves, 0.4, middle(BESIDE), shared=9.0) == pytest.approx(whole / 2, rel=0.03)
    assert lent(24, moves, 0.4, BESIDE[0], shared=9.0) == 0, "its own nearest steps say that they do not hold for it"
    assert lent(24, moves, 0.4, -9.0, far=LONG[1]) == pytest.approx(whole, rel=0.03), "rows far ahead are enough"
    assert lent(24, moves, 0.4, -9.0, far=middle(LONG)) == pytest.approx(whole / 2, rel=0.03)
    long = round(
        1000 / (middle(RUNS) - 1)
    )  # so that there have been as many runs of so many rows, with those after them
    few = lent(long, moves, 0.4, -9.0, far=LONG[1])
    assert few == pytest.approx(lent(long, moves, 0.4) / 2, rel=0.1), "few runs tell little"
    assert lent(200, moves, 0.4, -9.0, far=9.0) == 0 < lent(200, moves, 0.4)


def test_the_nearest_steps_are_those_that_tell_and_what_they_said_long_ago_fades() -> None:
    """A mixture that is right eight rows ahead and wrong further on, and then the other way about."""
    horizon, rows = 12, np.cumsum(np.random.default_rng(0).standard_normal((4000, 1)), 0)
    ledger, past = Ledger((horizon, 1)), Past(1, 40, horizon)
    for number, row in enumerate(rows):
        past.push(row)
        if number <= horizon:
            continue
        last, ahead = past.last(horizon, 1)[::-1], np.arange(horizon)[:, None] < NEAREST
        right = ahead if number < 1000 else ~ahead
        mixture = np.where(right, row, 2 * last - row)
        ledger.take(past, mixture, last, np.broadcast_to(row, (horizon, 1)))
        near, squares = np.asarray(ledger.arrays()["near"], np.float64)[:, 0]
        if number in (999, 3999):
            assert (near > 0) == (number == 999) and abs(near) > np.sqrt(NEAREST * squares)
    assert float(ledger.arrays()["gained"][0]) != 0


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


@pytest.mark.parametrize("away", [1e4, 1e6])
def test_a_mixture_that_was_wild_for_a_few_rows_is_believed_again(away: float) -> None:
    """It gains what there is to gain, and after an outlier it says something absurd in ten rows, ordinary ones."""
    generator = np.random.default_rng(3)
    rows = generator.standard_normal((ROWS, 1))
    mixtures = np.zeros_like(rows)
    given, ledger = played(rows[:700], mixtures[:700])
    assert ledger.free[0] == 1
    mixtures[700:710] = away
    given, ledger = played(rows, mixtures)
    worst = np.abs(given[700:710] - rows[700:710]).max()
    assert worst < 1000 < away, "what cannot be paid for is not staked"
    assert ledger.free[0] == 1 and (given[800:] == 0).all()
