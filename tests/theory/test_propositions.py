"""Propositions 1 and 2 of the paper, on models that meet their assumptions, and where they end.

The truth `q` is discrete, so every expectation is a finite sum and nothing is left to chance.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from natsr.likelihoods import Gaussian, Likelihood, StudentT


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Truth(NamedTuple):
    """A symmetric discrete distribution of the noise; nothing like the assumed one."""

    points: Tensor
    chances: Tensor


NOISE = Truth(
    torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0], dtype=torch.float64),
    torch.tensor([0.1, 0.25, 0.3, 0.25, 0.1], dtype=torch.float64),
)


def expected_score(likelihood: Likelihood, distance: Tensor) -> Tensor:
    """`E[∂ log p / ∂θ]` of each output, where `distance = θ* - θ`."""
    return -(likelihood.score(distance[..., None] + NOISE.points) * NOISE.chances).sum(-1)


# ---- Proposition 1 ----------------------------------------------------------------------------------------------

REACH = 2.0  # W: every output within this of its pseudo-true value
LIKELIHOODS: dict[str, Likelihood] = {
    "student": StudentT(5.0, 1.3),
    "student, nearly normal": StudentT(50.0, 0.9),
    "gaussian": Gaussian(0.7),
}
GAIN = 3.0
DESIGN = GAIN * torch.linalg.qr(normal(5, 3)).Q  # f(w) = X w: five outputs, three weights, XᵀX = 9
PSEUDO_TRUE = torch.tensor([0.3, -1.0, 2.0], dtype=torch.float64)


def slopes(likelihood: Likelihood) -> Tensor:
    """The derivative of the expected score over `W`, divided by the information: what (A3) is about."""
    distance = torch.linspace(-REACH, REACH, 4001, dtype=torch.float64, requires_grad=True)
    (derivative,) = torch.autograd.grad(expected_score(likelihood, distance).sum(), distance)
    return derivative / likelihood.fisher


def natural(likelihood: Likelihood, weights: Tensor) -> Tensor:
    """`(Fisher)⁻¹ ∇g(w)`, by a dense inverse."""
    gradient = DESIGN.T @ expected_score(likelihood, DESIGN @ (PSEUDO_TRUE - weights))
    found: Tensor = torch.linalg.solve(likelihood.fisher * DESIGN.T @ DESIGN, gradient)
    return found


def points(count: int, seed: int) -> list[Tensor]:
    """Weights in `W`, near and far."""
    found = []
    for trial in range(count):
        step = normal(3, seed=seed + trial)
        size = REACH * (trial + 1) / count
        found.append(PSEUDO_TRUE + step * size / float((DESIGN @ step).abs().max()))
    return found


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_model_meets_the_assumptions(name: str) -> None:
    """(A1) and (A2) hold by construction; (A3) with `c = sup φ'/κ`, at most `(ν+3)/ν` for a Student-t."""
    likelihood = LIKELIHOODS[name]
    steep = slopes(likelihood)
    assert float(steep.min()) > 0
    c = float(steep.max())
    assert c <= ((likelihood.dof + 3) / likelihood.dof if isinstance(likelihood, StudentT) else 1.0) + 1e-12
    assert float(natural(likelihood, PSEUDO_TRUE).norm()) < 1e-12
    for one, other in zip(points(200, 0), points(200, 1000)[::-1], strict=True):
        difference = natural(likelihood, one) - natural(likelihood, other)
        assert float(difference @ (one - other)) <= -float(difference @ difference) / c * (1 - 1e-9)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("share", [1e-3, 0.1, 0.5, 0.9, 0.999])
def test_proposition_1_the_expected_step_comes_closer(name: str, share: float) -> None:
    likelihood = LIKELIHOODS[name]
    rate = share * 2 / float(slopes(likelihood).max())
    for weights in points(300, 5):
        after = weights + rate * natural(likelihood, weights)
        assert float((after - PSEUDO_TRUE).norm()) < float((weights - PSEUDO_TRUE).norm())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_beyond_two_over_c_the_expected_step_moves_away(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    rate = 1.05 * 2 / float(slopes(likelihood).max())
    # The slope is largest where the outputs are right, so it is near the pseudo-true weights that the step overshoots.
    for trial in range(20):
        weights = PSEUDO_TRUE + 1e-3 * normal(3, seed=trial)
        after = weights + rate * natural(likelihood, weights)
        assert float((after - PSEUDO_TRUE).norm()) > 1.05 * float((weights - PSEUDO_TRUE).norm())


def test_at_the_pseudo_true_weights_nothing_can_come_closer() -> None:
    """The strict inequality needs `∇g(w_t) ≠ 0`, which the paper does not say."""
    after = PSEUDO_TRUE + 0.5 * natural(StudentT(5.0, 1.3), PSEUDO_TRUE)
    assert float((after - PSEUDO_TRUE).norm()) == pytest.approx(0.0, abs=1e-12)


def test_with_damping_more_weights_than_outputs_will_do_but_some_directions_stand_still() -> None:
    """The Fisher information of a network on one example has no inverse; with damping (A3) holds, here with `c = 1`."""
    design, damping, likelihood = normal(2, 4), 0.3, Gaussian(0.7)
    fisher = likelihood.fisher * design.T @ design
    step = torch.linalg.solve(fisher + damping * torch.eye(4, dtype=torch.float64), fisher)  # w* - w is moved by this
    assert float(torch.linalg.matrix_rank(fisher)) == 2
    values = torch.linalg.eigvalsh((step + step.T) / 2)
    assert float(values.max()) < 1 and float(values.min()) > -1e-12
    for trial in range(50):
        distance = normal(4, seed=trial)
        assert float((distance - 1.99 * step @ distance).norm()) < float(distance.norm())
    still = torch.linalg.svd(design).Vh[-1]  # a direction that the outputs do not see
    assert float((step @ still).norm()) < 1e-12


# ---- Proposition 2 ----------------------------------------------------------------------------------------------
# f' = 2 + tanh(w/ε) lies between l = 1 and L = 3: a smooth bend at the pseudo-true weight 0, with a Gaussian loss.

BEND = 0.01
LOW, HIGH = 1.0, 3.0


def bent(w: Tensor) -> Tensor:
    """`f(w) = 2 w + ε log cosh(w/ε)`, smooth, `f(0) = 0`, bi-Lipschitz on the whole line."""
    return 2 * w + BEND * (torch.logaddexp(w / BEND, -w / BEND) - math.log(2))


def bent_step(w: Tensor) -> Tensor:
    """`(Fisher)⁻¹ ∇g(w) = (θ* - f(w)) / f'(w)`: neither the variance nor the noise enters."""
    w = w.detach().requires_grad_()
    value = bent(w)
    (slope,) = torch.autograd.grad(value.sum(), w)
    return (-value / slope).detach()


def bent_c() -> float:
    """The smallest `c` of (A3): the steepest descent of the natural score, which is found at the bend."""
    w = torch.cat([torch.linspace(-0.2, 0.2, 40001), torch.linspace(-5, 5, 10001)]).double().sort().values
    steep = -bent_step(w).diff() / w.diff().clamp(min=1e-12)
    steep = steep[w.diff() > 1e-9]
    assert float(steep.min()) > 0.8  # decreasing everywhere
    return float(steep.max())


def test_the_bent_function_meets_the_assumptions() -> None:
    w = torch.linspace(-5, 5, 10001, dtype=torch.float64)
    quotient = bent(w).diff() / w.diff()
    assert float(quotient.min()) >= LOW - 1e-9 and float(quotient.max()) <= HIGH + 1e-9
    assert bent_c() == pytest.approx(1.43, abs=0.01)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.98])
def test_proposition_2_with_the_factor_that_its_proof_gives(share: float) -> None:
    """`‖f(E w⁺) - θ*‖ < (L/l) ‖f(w) - θ*‖`."""
    w = torch.cat([-torch.logspace(-4, 1, 500), torch.logspace(-4, 1, 500)]).double()
    after = w + share * 2 / bent_c() * bent_step(w)
    assert (after.abs() < w.abs()).all()  # Proposition 1
    assert (bent(after).abs() < HIGH / LOW * bent(w).abs()).all()


def test_proposition_2_without_the_factor_is_false() -> None:
    """Proposition 1 holds at `w = -1`, yet the output ends 13 % farther from its pseudo-true value than it began."""
    w = torch.tensor([-1.0], dtype=torch.float64)
    after = w + 0.98 * 2 / bent_c() * bent_step(w)
    assert float(after.abs()) < float(w.abs())
    ratio = float(bent(after).abs() / bent(w).abs())
    assert ratio == pytest.approx(1.13, abs=0.01)
    assert 1 < ratio < HIGH / LOW


def test_without_overshooting_the_factor_is_not_needed_in_one_dimension() -> None:
    """With `η ≤ 1/c` the weight stays on its side of the pseudo-true one, and a monotone output comes closer too."""
    w = torch.cat([-torch.logspace(-4, 1, 500), torch.logspace(-4, 1, 500)]).double()
    after = w + 1 / bent_c() * bent_step(w)
    assert (after.sign() == w.sign()).all()
    assert (bent(after).abs() < bent(w).abs()).all()
