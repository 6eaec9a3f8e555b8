"""A stream that has turned into another one: noticed at once, only where it has, and what was learned counts less."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr import auto
from natsr.experts.least_squares import LeastSquares
from natsr.experts.past import Past
from natsr.experts.turn import LATER, LOOSER, ONSET, REST, WINDOW, YOUNG, Turn
from natsr.mixtures import Power
from natsr.types import Task

Array = npt.NDArray[np.float64]
HORIZON, CHANGE = 24, 900


class Errors:
    """A mixture whose errors are as large as they are told to be."""

    def __init__(self) -> None:
        self.past = Past(2, 10, 1)
        self.turn, self.power = Turn(self.past, HORIZON), Power(2, (HORIZON, 2), 0.98, 20)
        self.power.count[:] = YOUNG

    def row(self, pace: float, beside: float = 0.5) -> int:
        """Rows since the turn after one more row; `beside` is the best expert's loss beside that of the last value."""
        self.power.pace[0] = pace
        self.power.loss[:] = 1.0, beside
        self.turn.look(self.power)
        return int(self.past.turned[0])


def test_large_errors_open_a_turn_and_a_few_wild_rows_do_not_hold_it() -> None:
    errors = Errors()
    assert {errors.row(ONSET) for _ in range(100)} == {-1}
    assert [errors.row(5.0) for _ in range(3)] == [0, 1, 2]
    found = [errors.row(0.7) for _ in range(WINDOW + HORIZON + REST + 10)]
    assert max(found) == WINDOW + HORIZON - 1 and found[-1] == -1  # never so long that a regression forgets
    assert errors.row(5.0) == 0  # it may turn again


def test_experts_that_stay_bad_beside_the_last_value_hold_it() -> None:
    errors = Errors()
    errors.row(0.7)
    errors.row(3.0)
    found = [errors.row(0.7, 0.8) for _ in range(WINDOW + HORIZON + LATER + 1)]
    assert found[: WINDOW + HORIZON] == list(range(1, WINDOW + HORIZON + 1))
    assert found[-1] == -1
    assert errors.row(3.0) == -1  # and it rests


def test_errors_that_stay_large_for_everybody_do_not() -> None:
    errors = Errors()
    errors.row(0.7)
    found = [errors.row(3.0) for _ in range(WINDOW + HORIZON + 1)]
    assert found[0] == 0 and max(found) == WINDOW + HORIZON - 1 and found[-1] == -1


def test_a_young_mixture_has_nothing_usual() -> None:
    errors = Errors()
    errors.power.count[:] = YOUNG - 1
    assert errors.row(10.0) == -1


def test_losses_fade_faster_only_while_errors_are_large() -> None:
    errors = Errors()
    loss = errors.power.loss
    errors.row(3.0, 1.0)
    errors.past.turned[0] = -1
    errors.turn.ease(errors.power)
    assert (loss == 1).all()  # no turn
    errors.row(3.0, 1.0)
    errors.turn.ease(errors.power)
    np.testing.assert_allclose(loss, 0.98 ** (2.5**2 - 1))
    errors.row(1.0, 1.0)
    errors.turn.ease(errors.power)
    assert (loss == 1).all()  # no longer large


def stream(seed: int, rows: int = 1300) -> Array:
    """Waves in noise that has a memory, two columns."""
    generator = np.random.default_rng(seed)
    found, noise = np.sin(2 * np.pi * np.arange(rows)[:, None] / 24 + np.arange(2)), np.zeros(2)
    for row in found:
        noise = 0.8 * noise + 0.15 * generator.standard_normal(2)
        row += noise
    return np.asarray(found)


def faster(values: Array) -> Array:
    """The same with shorter waves from `CHANGE` on."""
    steps = np.arange(len(values))[:, None]
    moved = np.sin(2 * np.pi * steps / 18 + np.arange(2)) - np.sin(2 * np.pi * steps / 24 + np.arange(2))
    return np.where(steps < CHANGE, values, values + moved)


def followed(values: Array) -> tuple[list[int], list[float]]:
    """Rows since the turn after each row, and the size of one regression's covariance."""
    panel = auto.panel(Task(12, HORIZON, 2, 0, 24), "cheap")
    group = next(group for group in panel.groups if isinstance(group, LeastSquares))
    turned, sizes = [], []
    for row in values:
        panel.advance(row)
        turned.append(int(panel.past.turned[0]))
        sizes.append(float(np.trace(np.asarray(group.arrays()["covariance"], dtype=np.float64)[0])))
    return turned, sizes


@pytest.mark.parametrize("seed", [0, 1])
def test_regressions_forget_once_after_a_change_and_never_without_one(seed: int) -> None:
    quiet, _ = followed(stream(seed))
    assert set(quiet) == {-1}
    turned, sizes = followed(faster(stream(seed)))
    start, act = turned.index(0), turned.index(WINDOW + HORIZON)
    assert CHANGE <= start < CHANGE + 24
    assert sizes[act] > 0.5 * LOOSER * sizes[act - 1]
    assert set(turned[:CHANGE]) == {-1} and turned.count(0) == 1


def test_where_rows_say_nothing_many_turns_loosen_nothing() -> None:
    """A column that stands still for ever, and a stream that turns again and again."""
    panel = auto.panel(Task(12, 2, 2, 0, 24), "cheap")
    groups = [group for group in panel.groups if isinstance(group, LeastSquares)]
    for number, row in enumerate(stream(6, 400)):
        panel.advance(np.array([row[0], 1.0]))
        if number % 20 == 19:
            for group in groups:
                group._loosen()
    for group in groups:
        covariance = np.asarray(group.arrays()["covariance"], dtype=np.float64)
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        assert (variance > 0).all() and variance.max() <= 2 * LOOSER  # the smallest ridge is 1
        assert np.linalg.eigvalsh(covariance).min() > -1e-9 * variance.max()


def test_half_of_the_answer_is_by_losses_after_a_turn() -> None:
    values = faster(stream(5))
    panel = auto.panel(Task(12, HORIZON, 2, 0, 24), "cheap")
    leaning = []
    for row in values:
        panel.advance(row)
        leaning.append((int(panel.past.turned[0]), float(panel.mixture.rules[-1].weights[-1, 0, 0])))
    after = [share for turned, share in leaning if turned >= WINDOW + HORIZON]
    assert len(after) == LATER + 1 and min(after) >= 0.5
    assert min(share for turned, share in leaning if turned < 0) < 0.5


def test_a_single_outlier_is_no_turn() -> None:
    values = stream(3)
    values[CHANGE] *= 30
    turned, _ = followed(values)
    assert WINDOW + HORIZON not in turned


def test_a_state_in_the_middle_of_a_turn_is_carried_on() -> None:
    values = stream(4)
    values[CHANGE:] += 5
    whole = auto.panel(Task(12, HORIZON, 2, 0, 24), "cheap")
    for row in values[: CHANGE + 30]:
        whole.advance(row)
    assert whole.past.turned[0] > 0
    again = auto.panel(Task(12, HORIZON, 2, 0, 24), "cheap")
    saved = whole.arrays()
    for part, arrays in again.arrays().items():
        for name, array in arrays.items():
            np.copyto(array, saved[part][name], casting="same_kind")
    again.past.reload()
    for row in values[CHANGE + 30 : CHANGE + 130]:
        whole.advance(row)
        again.advance(row)
    np.testing.assert_array_equal(whole.mean(), again.mean())
