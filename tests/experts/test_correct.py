"""The example of the row before as a hint: used where errors last, and only there."""

from __future__ import annotations

import numpy as np

from natsr.experts.correct import Correction
from natsr.experts.past import Array


def taught(errors: Array) -> Correction:
    """A correction that has seen these errors, `(T, H, C)`."""
    hint = Correction((errors.shape[1], errors.shape[2]))
    for error in errors:
        hint.learn(error, np.ones(error.shape))
    return hint


def test_errors_that_last_are_taken_off_and_others_are_left_alone() -> None:
    generator = np.random.default_rng(0)
    lasting, noise = np.zeros((600, 3, 1)), generator.standard_normal((600, 3, 1))
    for row in range(1, 600):
        lasting[row] = 0.9 * lasting[row - 1] + 0.4 * noise[row]
    change = taught(np.concatenate([lasting, noise], 2)).change()
    np.testing.assert_allclose(change[:, 0], 0.9 * lasting[-1, :, 0], rtol=0.1)
    assert (change[:, 1] == 0).all()


def test_nothing_is_changed_before_there_is_proof() -> None:
    assert (taught(np.ones((30, 2, 1))).change() == 0).all()
    assert (taught(np.ones((90, 2, 1))).change() > 0.9).all()


def test_a_wild_error_and_a_missing_one_do_no_harm() -> None:
    errors = np.sin(np.arange(400)[:, None, None] / 30) * np.ones((1, 2, 1))
    errors[300], errors[350, 0] = 1e6, np.nan
    np.testing.assert_allclose(taught(errors).change(), errors[-1], atol=0.1)
