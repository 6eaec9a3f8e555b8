"""The tracked size of errors: Student's t against scipy, the parts of the size, and what one wild value may do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from natsr.scales import Scales, interpolation, student_density, student_quantile
from natsr.types import Task

P = np.array([0.005, 0.025, 0.05, 0.3, 0.5, 0.71, 0.95, 0.999])


def moved(scales: Scales, errors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Scales:
    """After errors `(T, H, C)`, one row after another, NaN where missing."""
    for error in errors:
        known = ~np.isnan(error)
        scales.move(np.where(known, error, 0.0), known)
    return scales


def test_student_is_scipys() -> None:
    assert student_quantile(P) == pytest.approx(stats.t.ppf(P, 4), abs=1e-9)
    z = np.linspace(-5, 5, 11)
    assert student_density(z) == pytest.approx(stats.t.pdf(z, 4), rel=1e-9)


def test_interpolation_is_exact_on_every_student_and_takes_knots_as_they_are() -> None:
    knots = (0.05, 0.25, 0.5, 0.75, 0.95)
    weights = interpolation(knots, P)
    assert weights @ (3 + 2 * student_quantile(knots)) == pytest.approx(3 + 2 * student_quantile(P), abs=1e-9)
    assert (interpolation(knots, knots) == np.eye(5)).all()
    assert weights.sum(1) == pytest.approx(1.0)


def test_a_new_size_is_found_within_a_hundred_rows_however_much_larger() -> None:
    generator = np.random.default_rng(0)
    for factor in (10.0, 1e6):
        scales = moved(Scales(Task(1, 2, 1)), generator.normal(size=(1000, 2, 1)))
        moved(scales, factor * generator.normal(size=(100, 2, 1)))
        assert 0.4 * factor < scales.units().mean() < 2.5 * factor


def test_a_still_column_that_wakes_up_has_its_size_soon() -> None:
    generator = np.random.default_rng(1)
    scales = moved(Scales(Task(1, 2, 1)), np.zeros((1000, 2, 1)))
    assert scales.units().max() < 1e-9
    moved(scales, 5 * generator.normal(size=(100, 2, 1)))
    assert 1 < scales.units().mean() < 20


def test_one_wild_value_moves_the_size_little() -> None:
    scales = moved(Scales(Task(1, 2, 1)), np.random.default_rng(2).normal(size=(1000, 2, 1)))
    before = scales.units()
    after = moved(scales, np.full((1, 2, 1), 1e9)).units()
    assert (after < 1.5 * before).all()


def test_the_rhythm_of_the_season_is_learned_for_the_row_that_is_forecast() -> None:
    generator = np.random.default_rng(3)
    rows = 24 * 60
    size = np.where(np.arange(rows) % 24 < 12, 1.0, 4.0)[:, None, None]
    scales = moved(Scales(Task(1, 24, 1, season=24)), size * generator.normal(size=(rows, 24, 1)))
    units = scales.units()[:, 0]  # the forecast from the end of a day: step h is hour h - 1
    assert 2.0 < units[12:].mean() / units[:12].mean() < 4.5


def test_missing_errors_move_nothing_but_time() -> None:
    scales = moved(Scales(Task(1, 2, 2, season=3)), np.random.default_rng(4).normal(size=(50, 2, 2)))
    before = {name: array.copy() for name, array in scales.arrays().items()}
    moved(scales, np.full((6, 2, 2), np.nan))
    for name, array in scales.arrays().items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    assert scales.rows == 56
