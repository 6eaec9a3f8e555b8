"""The guard: the last value unless something else is proven to be better."""

from __future__ import annotations

import numpy as np

from natsr.experts.guard import Guard


def share(gain: float) -> float:
    """The mean share over the second half of random walks; the mixture knows a part of each step, and errs."""
    found = []
    for seed in range(8):
        generator, guard = np.random.default_rng(seed), Guard((1, 1))
        for row in range(1500):
            step, error = generator.standard_normal((2, 1, 1))
            guard.update(np.zeros((1, 1)), gain * step + 0.1 * error, step)
            if row >= 750:
                found.append(float(guard.share[0, 0]))
    return float(np.mean(found))


def test_what_is_better_is_taken_and_what_is_not_is_left() -> None:
    assert share(gain=0.3) > 0.95
    assert share(gain=0.0) < 0.15
