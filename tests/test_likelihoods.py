"""Scores against autograd, Fisher information against quadrature and samples, densities against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.testing import assert_close

from natsr.likelihoods import (
    DAMPING_LAWS,
    LARGEST_ERROR,
    Gaussian,
    Likelihood,
    StudentT,
    box_damping,
    fixed_damping,
    paper_damping,
)
from natsr.types import OptionError

LIKELIHOODS: dict[str, Likelihood] = {
    "gaussian": Gaussian(),
    "gaussian, narrow": Gaussian(0.04),
    "cauchy": StudentT(1.0, 2.0),
    "heavy": StudentT(3.0, 0.3),
    "stable": StudentT(50.0, 1.7),
    "fast": StudentT(500.0, 9.0),
}
ERRORS = torch.tensor([-1e6, -30.0, -1.0, -1e-3, 0.0, 0.2, 1.0, 4.0, 1e3, 1e9], dtype=torch.float64)


def log_density(likelihood: Likelihood, error: Tensor, variance: Tensor) -> Tensor:
    """The whole log density, with what `nll` leaves out, as a function of the variance."""
    if isinstance(likelihood, Gaussian):
        return -0.5 * (torch.log(2 * math.pi * variance) + error.square() / variance)
    assert isinstance(likelihood, StudentT)
    nu = likelihood.dof
    constant = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(math.pi * nu)
    return constant - 0.5 * variance.log() - (nu + 1) / 2 * torch.log1p(error.square() / (nu * variance))


def scipys_log_density(likelihood: Likelihood, error: Tensor) -> Tensor:
    std, errors = math.sqrt(likelihood.variance), error.numpy()
    if isinstance(likelihood, StudentT):
        return torch.from_numpy(np.asarray(stats.t.logpdf(errors, likelihood.dof, scale=std)))
    return torch.from_numpy(np.asarray(stats.norm.logpdf(errors, scale=std)))


def expectation(likelihood: Likelihood, function: str) -> float:
    """`E[function(error)²]` under the likelihood itself, by quadrature."""

    def integrand(error: float) -> float:
        point = torch.tensor(error, dtype=torch.float64)
        density = log_density(likelihood, point, torch.tensor(likelihood.variance, dtype=torch.float64)).exp()
        return float(getattr(likelihood, function)(point) ** 2 * density)

    return 2 * integrate.quad(integrand, 0, np.inf, epsabs=1e-12, epsrel=1e-10, limit=500)[0]


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_nll_is_the_log_density_up_to_a_constant(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    truth = -scipys_log_density(likelihood, ERRORS)
    found = likelihood.nll(ERRORS)
    assert_close(found - found[4], truth - truth[4], rtol=1e-9, atol=1e-9)
    variance = torch.tensor(likelihood.variance, dtype=torch.float64)
    assert_close(-log_density(likelihood, ERRORS, variance), truth, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_score_is_autograds_derivative_by_the_mean(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    mean = torch.zeros_like(ERRORS, requires_grad=True)
    (derivative,) = torch.autograd.grad(likelihood.nll(ERRORS - mean).sum(), mean)
    assert_close(likelihood.score(ERRORS), derivative, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_scale_score_is_autograds_times_the_inverse_information_times_a_constant(name: str) -> None:
    """The constant is `ν/(ν+3)` for Student-t (the paper drops it) and 1 for the Gaussian.

    The information of the variance is `ν / (2 (ν+3) v²)`, for the Gaussian `1 / (2 v²)`.
    """
    likelihood = LIKELIHOODS[name]
    variance = torch.full_like(ERRORS, likelihood.variance, requires_grad=True)
    (derivative,) = torch.autograd.grad(log_density(likelihood, ERRORS, variance).sum(), variance)
    constant = likelihood.dof / (likelihood.dof + 3) if isinstance(likelihood, StudentT) else 1.0
    information = constant / (2 * likelihood.variance**2)
    assert_close(likelihood.scale_score(ERRORS), constant * derivative / information, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_information_of_mean_and_variance_by_quadrature(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    assert expectation(likelihood, "score") == pytest.approx(likelihood.fisher, rel=1e-6)
    # scale_score = constant · inverse information · score of the variance, so its variance is constant² / information.
    constant = likelihood.dof / (likelihood.dof + 3) if isinstance(likelihood, StudentT) else 1.0
    information = constant / (2 * likelihood.variance**2)
    assert expectation(likelihood, "scale_score") == pytest.approx(constant**2 / information, rel=1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_sampled_scores_have_mean_zero_and_the_fisher_information_as_variance(name: str) -> None:
    likelihood = LIKELIHOODS[name]
    scores = likelihood.sample_score((200_000,), torch.Generator().manual_seed(0)).double()
    spread = float(scores.square().std()) / math.sqrt(len(scores))
    assert abs(float(scores.mean())) < 4 * math.sqrt(likelihood.fisher / len(scores))
    assert abs(float(scores.square().mean()) - likelihood.fisher) < 4 * spread
    again = likelihood.sample_score((200_000,), torch.Generator().manual_seed(0)).double()
    assert torch.equal(scores, again)


def test_student_becomes_gaussian() -> None:
    errors = ERRORS[ERRORS.abs() < 100]
    for likelihood, tolerance in ((StudentT(1e7, 1.5), 1e-3), (StudentT(1e11, 1.5), 1e-7)):
        gaussian = Gaussian(1.5)
        for function in ("nll", "score", "scale_score"):
            found, limit = getattr(likelihood, function)(errors), getattr(gaussian, function)(errors)
            assert_close(found, limit, rtol=tolerance, atol=tolerance)
        assert likelihood.fisher == pytest.approx(gaussian.fisher, rel=tolerance)


@pytest.mark.parametrize("dof", [0.5, 1.0, 5.0, 50.0, 500.0])
@pytest.mark.parametrize("variance", [1e-6, 1.0, 1e6])
def test_largest_score_is_reached_and_never_passed(dof: float, variance: float) -> None:
    likelihood = StudentT(dof, variance)
    errors = torch.logspace(-12, 15, 20_000, dtype=torch.float64)
    assert float(likelihood.score(errors).abs().max()) <= likelihood.largest_score * (1 + 1e-12)
    peak = torch.tensor(math.sqrt(dof * variance), dtype=torch.float64)
    assert float(likelihood.score(peak).abs()) == pytest.approx(likelihood.largest_score, rel=1e-12)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_finite_error_gives_anything_that_is_not_finite(name: str, dtype: torch.dtype) -> None:
    errors = torch.tensor([0.0, 1e-38, 1e15, 1e20, -3e38], dtype=dtype)
    for function in ("nll", "score", "scale_score"):
        assert getattr(LIKELIHOODS[name], function)(errors).isfinite().all()
    assert torch.finfo(torch.float32).max > LARGEST_ERROR**2


def test_variance_follows_the_errors_and_keeps_to_its_floor() -> None:
    start = StudentT(50.0, 1.0)
    errors = torch.tensor([0.5, -3.0, 2.0])
    expected = 1.0 + 0.1 * sum(50 * (e * e - 1) / (50 + e * e) for e in errors.tolist()) / 3  # the paper's formula
    assert start.adapted(errors, 0.1, 1e-4).variance == pytest.approx(expected, rel=1e-6)
    assert start.adapted(torch.zeros(4), 0.1, 0.95).variance == 0.95
    assert start.adapted(torch.zeros(0), 0.1, 1e-4).variance == 1.0
    assert start.adapted(torch.tensor([1.0, math.nan]), 0.1, 1e-4).variance == 1.0
    assert start.variance == 1.0
    moving = start
    generator = torch.Generator().manual_seed(0)
    for _ in range(500):  # score-driven: it settles where the score of the variance has mean zero
        moving = moving.adapted(2 * torch.randn(64, generator=generator), 0.1, 1e-4)
    # 4 is the variance of the errors; as a Student-t of 50 degrees of freedom reads them, the squared scale is a
    # little smaller.
    assert 3.5 < moving.variance < 4.1


def test_damping_laws() -> None:
    for variance in (1e-6, 0.1, 1.0, 30.0, 1e6):
        assert 0.1 * 0.14 <= variance * paper_damping(0.14)(variance) * (1 + 1e-12) <= 0.14 * (1 + 1e-9)
        assert paper_damping(0.14)(variance) == pytest.approx(0.9 * 0.14 / (1 + variance) + 0.1 * 0.14 / variance)
        assert box_damping(0.5)(variance) == pytest.approx(1 / (0.5 + variance))
        assert fixed_damping(0.14)(variance) == 0.14
    assert set(DAMPING_LAWS) == {"paper", "box", "fixed"}


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_senseless_parameters_are_refused(value: float) -> None:
    for make in (lambda: Gaussian(value), lambda: StudentT(5.0, value), lambda: StudentT(value)):
        with pytest.raises(OptionError, match="expected a positive finite number"):
            make()
