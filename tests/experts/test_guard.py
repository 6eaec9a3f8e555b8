"""The guard: the last value unless something else is proven to be better."""

from __future__ import annotations

import numpy as np
import pytest

from natsr.experts.guard import Guard

ONE = np.ones((1, 1))


def share(gain: float) -> float:
    """The mean share over the second half of random walks; the mixture knows a part of each step, and errs."""
    found = []
    for seed in range(8):
        generator, guard = np.random.default_rng(seed), Guard((1, 1))
        for row in range(1500):
            step, error = generator.standard_normal((2, 1, 1))
            guard.update(np.zeros((1, 1)), gain * step + 0.1 * error, step, ONE * guard.ready)
            if row >= 750:
                found.append(float(guard.share[0, 0]))
    return float(np.mean(found))


def test_what_is_better_is_taken_and_what_is_not_is_left() -> None:
    assert share(gain=0.3) > 0.95
    assert share(gain=0.0) < 0.15


def test_a_column_that_stands_still_now_and_then_is_left_to_the_last_value_while_it_does() -> None:
    """Moving for 40 rows, foreseen in the main, and standing for 40, in which the mixture goes on moving."""
    generator, guard = np.random.default_rng(0), Guard((2, 1))
    moving: list[float] = []
    standing: list[float] = []
    for row in range(4000):
        stands = row // 40 % 2 == 1
        step = np.zeros((2, 1)) if stands else generator.standard_normal((2, 1))
        mixture = step + 0.3 * generator.standard_normal((2, 1))
        guard.update(np.zeros((2, 1)), mixture, step, np.ones((2, 1)) * guard.ready)
        if row > 1000 and row % 40 >= 10:
            (standing if stands else moving).append(float(guard.share.mean()))
    assert np.mean(standing) < 0.05 and np.mean(moving) > 0.9


def test_far_ahead_it_takes_more_proof() -> None:
    """The same gain in every row: one row ahead it is believed at once, 25 rows ahead after four usual changes."""
    for horizon, proven in ((1, 0), (25, 4)):
        guard, step = Guard((horizon, 1)), np.ones((horizon, 1))
        shares = []
        for _ in range(60):
            guard.update(np.zeros((horizon, 1)), 0.5 * step, step, step * guard.ready)  # gains half a change a row
            shares.append(float(guard.share.min()))
        assert shares.index(1.0) == pytest.approx(2 * proven, abs=2)


def test_a_share_that_is_ready_is_judged_by_what_it_was() -> None:
    """Not by what it is when the label comes."""
    guard, step = Guard((1, 1)), np.ones((1, 1))
    for _ in range(50):
        guard.update(np.zeros((1, 1)), -step, step, 0 * ONE)  # worse than the last value, and not followed
    losses = np.asarray(guard.arrays()["loss"], dtype=np.float64)[:, 0, 0]
    assert losses[-1] == losses[0] < losses[4]


def test_shares_do_not_depend_on_the_units() -> None:
    small, large = Guard((1, 1)), Guard((1, 1))
    generator = np.random.default_rng(0)
    for _ in range(300):
        step, error = generator.standard_normal((1, 1)), generator.standard_normal((1, 1))
        for guard, unit in ((small, 1.0), (large, 1024.0)):
            guard.update(np.zeros((1, 1)), unit * (0.5 * step + 0.5 * error), unit * step, ONE * guard.ready)
        np.testing.assert_allclose(small.share, large.share, atol=1e-9)
        np.testing.assert_allclose(small.ready, large.ready, atol=1e-9)
