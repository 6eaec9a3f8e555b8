"""The guard: the last value unless something else is proven to be better."""

from __future__ import annotations

import numpy as np

from natsr.experts.guard import Guard


def shares(gain: float, wild: float, rows: int = 1500) -> float:
    """The mean share over the second half of random walks; the mixture knows a part of each step, and errs."""
    found = []
    for seed in range(8):
        generator, guard = np.random.default_rng(seed), Guard((1, 1))
        for row in range(rows):
            size = wild if row % 100 == 0 else 1.0
            step, error = size * generator.standard_normal((2, 1, 1))
            guard.update(np.zeros((1, 1)), gain * step + 0.1 * error, step)
            if row >= rows // 2:
                found.append(float(guard.share[0, 0]))
    return float(np.mean(found))


def test_what_is_better_is_taken_and_what_is_not_is_left() -> None:
    assert shares(gain=0.3, wild=1.0) > 0.95
    assert shares(gain=0.0, wild=1.0) < 0.05


def test_a_few_wild_rows_are_no_proof() -> None:
    """Without the part that chance has in it the mean share would be 0.18."""
    assert shares(gain=0.0, wild=30.0) < 0.05
    assert shares(gain=0.3, wild=30.0) > 0.95
