"""The quantiles of the last errors: the right ones, in bounded memory; and a share that wants proof."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from natsr.empirical import FEWEST, NUMBERS, PAUSE, ROWS, TURNS, YOUNG, Empirical, Trust
from natsr.types import Task

Array = npt.NDArray[np.float64]
LEVELS = (0.025, 0.1, 0.5, 0.9, 0.975)


def moved(errors: Array, task: Task) -> Empirical:
    """After these errors `(T, H, C)`, NaN where not known, and some rows without any: so that all had their turn."""
    empirical = Empirical(task, LEVELS)
    none = np.full((TURNS * PAUSE, *errors.shape[1:]), math.nan)
    for row, error in enumerate(np.concatenate([errors, none])):
        known = np.isfinite(error)
        empirical.move(np.where(known, error, 0.0), known, row)
    return empirical


@pytest.mark.parametrize(("horizon", "channels"), [(1, 1), (1, 7), (3, 2), (5, 7)])
@pytest.mark.parametrize("count", [YOUNG, 300, ROWS + 123])
def test_they_are_the_quantiles_of_the_last_errors(horizon: int, channels: int, count: int) -> None:
    errors = np.random.default_rng(count).standard_t(2, size=(count, horizon, channels))
    empirical = moved(errors, Task(window=1, horizon=horizon, channels=channels))
    assert (empirical.ready == 1).all()
    assert empirical.quantiles == pytest.approx(np.quantile(errors[-ROWS:], LEVELS, axis=0), rel=1e-5, abs=1e-6)


def test_missing_errors_take_no_place() -> None:
    """A column that comes once a day has the quantiles of its last values, not of the last rows."""
    generator = np.random.default_rng(1)
    errors = generator.normal(size=(2000, 2, 3))
    errors[np.arange(2000) % 24 != 5, :, 1] = math.nan
    errors[:, 1, 2] = math.nan
    empirical = moved(errors, Task(window=1, horizon=2, channels=3))
    daily = errors[5::24]
    assert (empirical.ready == [[1, 1, 1], [1, 1, 0]]).all()
    assert empirical.quantiles[:, :, 1] == pytest.approx(np.quantile(daily[:, :, 1], LEVELS, axis=0), rel=1e-5)
    assert (empirical.quantiles[:, 1, 2] == 0).all()


def test_too_few_errors_say_nothing() -> None:
    errors = np.random.default_rng(2).normal(size=(YOUNG - 1, 2, 1))
    empirical = moved(errors, Task(window=1, horizon=2, channels=1))
    assert not empirical.ready.any() and not empirical.quantiles.any()


def test_one_wild_value_does_not_reach_the_outer_quantiles() -> None:
    errors = np.random.default_rng(3).normal(size=(YOUNG, 1, 1))
    errors[20] = 1e300
    with np.errstate(over="raise"):
        quantiles = moved(errors, Task(window=1, horizon=1, channels=1)).quantiles
    assert (np.abs(quantiles) < 5).all()


def test_an_error_that_comes_back_exactly_lies_inside() -> None:
    """Errors are kept in 32 bits: without a little room a value of 0.1 would be above its own quantile or below."""
    errors = np.tile([0.1, -0.3], 100)[:, None, None]
    quantiles = moved(errors, Task(window=1, horizon=1, channels=1)).quantiles
    assert quantiles[0, 0, 0] <= -0.3 and quantiles[-1, 0, 0] >= 0.1
    assert (moved(np.zeros((100, 1, 1)), Task(window=1, horizon=1, channels=1)).quantiles == 0).all()


def test_memory_is_bounded() -> None:
    for horizon, channels in ((48, 862), (96, 2000), (1, 1)):
        size = Empirical(Task(window=1, horizon=horizon, channels=channels), LEVELS).errors.size
        assert size <= max(NUMBERS, FEWEST * horizon * channels)
    assert Empirical(Task(window=1, horizon=48, channels=7), LEVELS).rows == ROWS


def told(first: float, second: float, errors: Array) -> Trust:
    """After errors `(T,)` about two opinions that are intervals of these half widths."""
    trust = Trust(1, np.array([0.25, 0.75]))
    for error in errors:
        one, other = (width * np.array([[[-1.0], [1.0]]]) for width in (first, second))
        known = np.isfinite([[error]])
        trust.learn(np.where(known, error, 0.0), known, one, other)
    return trust


def test_the_share_goes_to_what_is_better_and_lies_between_where_a_mixture_is_best() -> None:
    errors = np.random.default_rng(4).normal(size=1500)  # the best half width is 0.6745
    assert told(3.0, 0.6745, errors).share == 1
    assert told(0.6745, 3.0, errors).share == 0
    assert 0.3 < told(0.2745, 1.0745, errors).share[0] < 0.7


def test_a_few_rows_are_no_proof_and_missing_ones_none_at_all() -> None:
    assert told(3.0, 0.6745, np.random.default_rng(5).normal(size=5)).share == 0
    blind = told(3.0, 0.6745, np.full(1000, math.nan))
    assert blind.share == 0 and not blind.lost.any() and not blind.count.any()


def test_equal_opinions_teach_nothing() -> None:
    trust = told(1.0, 1.0, np.random.default_rng(6).normal(size=100))
    assert trust.share == 0 and not trust.count.any()


def test_one_row_counts_only_so_much() -> None:
    errors = np.random.default_rng(7).normal(size=1000)
    trust = told(3.0, 0.6745, errors)
    wild = np.array([[[-1e9], [1e9]]])  # said that everything was possible, and that was right this once
    trust.learn(np.array([[1e9]]), np.array([[True]]), wild, np.array([[[-1.0], [1.0]]]))
    assert trust.share == 1
