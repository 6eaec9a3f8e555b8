"""Natural gradient descent is a score-driven filter: `m = n = 1`, `ω = 0`, `A = η`, `B = 1`, `S = (Fisher)⁻¹`.

The filter is written in numpy with derivatives done by hand; the descent uses torch's autograd, or the library itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from natsr.likelihoods import StudentT
from natsr.optim import NaturalGradient
from natsr.precondition import WorstLosses

Array = npt.NDArray[np.float64]
STEPS, DOF, VARIANCE, RATE = 100, 5.0, 0.8, 0.2


def gas(
    start: Array,
    innovation: Callable[[Array, int], Array],
    omega: float,
    a: Sequence[float],
    b: Sequence[float],
    steps: int,
) -> list[Array]:
    """`θ_{t+1} = ω + Σ_i A_i s_{t-i+1} + Σ_j B_j θ_{t-j+1}`, GAS(m, n) of Creal, Koopman and Lucas (2013).

    Args:
        start: `θ_1`; before it, the parameter was the same and the score zero.
        innovation: `s_t = S_t ∇_t` at `θ_t` and time `t`.
        omega: Constant.
        a: `A_1 … A_m`.
        b: `B_1 … B_n`.
        steps: How many times to go on.

    Returns:
        `θ_2, θ_3, …`
    """
    thetas, scores = [start] * len(b), [np.zeros_like(start)] * len(a)
    for t in range(steps):
        scores.append(innovation(thetas[-1], t))
        new = np.full_like(start, omega)
        for i, weight in enumerate(a, start=1):
            new = new + weight * scores[-i]
        for j, weight in enumerate(b, start=1):
            new = new + weight * thetas[-j]
        thetas.append(new)
    return thetas[len(b) :]


def normal(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def log_score(error: Array) -> Array:
    """`∂ log p / ∂ mean` of the Student-t."""
    return (DOF + 1) * error / (DOF * VARIANCE + error**2)


KAPPA = (DOF + 1) / ((DOF + 3) * VARIANCE)


def test_the_recursion_itself_on_a_case_with_two_lags_of_each() -> None:
    found = gas(np.array([1.0]), lambda theta, t: theta * 0 + t, omega=0.5, a=(2.0, 3.0), b=(0.1, 0.2), steps=3)
    first = 0.5 + 2 * 0 + 3 * 0 + 0.1 * 1 + 0.2 * 1
    second = 0.5 + 2 * 1 + 3 * 0 + 0.1 * first + 0.2 * 1
    third = 0.5 + 2 * 2 + 3 * 1 + 0.1 * second + 0.2 * first
    assert [float(theta[0]) for theta in found] == pytest.approx([first, second, third])


# ---- a nonlinear network with as many outputs as weights, so that its Fisher information can be inverted ---------


def output_by_hand(weights: Array, x: Array) -> tuple[Array, Array]:
    """`θ_i = tanh(w · x_i) + 0.5 w · x_i` for four inputs of two numbers, and its Jacobian `(4, 2)`."""
    inner = x @ weights
    return np.tanh(inner) + 0.5 * inner, (1.5 - np.tanh(inner) ** 2)[:, None] * x


def network_output(weights: Tensor, x: Tensor) -> Tensor:
    inner = x @ weights
    return inner.tanh() + 0.5 * inner


def test_natural_gradient_descent_on_a_network_equals_the_filter() -> None:
    xs = normal(STEPS, 4, 2, seed=0)
    ys = np.stack([output_by_hand(np.array([1.0, -0.5]), x)[0] for x in xs]) + 0.3 * normal(STEPS, 4, seed=1)

    def innovation(weights: Array, t: int) -> Array:
        output, jacobian = output_by_hand(weights, xs[t])
        found: Array = np.linalg.inv(KAPPA * jacobian.T @ jacobian) @ (jacobian.T @ log_score(ys[t] - output))
        return found

    filtered = gas(np.array([0.1, 0.1]), innovation, omega=0.0, a=(RATE,), b=(1.0,), steps=STEPS)

    likelihood = StudentT(DOF, VARIANCE)
    weights = torch.full((2,), 0.1, dtype=torch.float64, requires_grad=True)
    for t, expected in enumerate(filtered):
        x, y = torch.from_numpy(xs[t]), torch.from_numpy(ys[t])
        (gradient,) = torch.autograd.grad(likelihood.nll(y - network_output(weights, x)).sum(), weights)
        jacobian = torch.func.jacrev(network_output)(weights.detach(), x)
        fisher = likelihood.fisher * jacobian.T @ jacobian
        weights = (weights - RATE * torch.linalg.solve(fisher, gradient)).detach().requires_grad_()
        assert np.allclose(weights.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert np.abs(filtered[-1] - np.array([1.0, -0.5])).max() < 0.3  # and it filters: the truth is found


def test_the_librarys_step_on_a_linear_network_equals_the_filter_with_a_damped_scaling() -> None:
    """With one example the Fisher information of six weights has rank two; the damping takes its place in `S`."""
    xs = normal(STEPS, 3, seed=2)
    truth = normal(3, 2, seed=3)
    ys = xs @ truth + 0.3 * normal(STEPS, 2, seed=4)
    tau = 0.3

    def innovation(weights: Array, t: int) -> Array:
        jacobian = np.kron(xs[t][None], np.eye(2))  # (2, 6) for weights (3, 2) in rows
        output = jacobian @ weights
        scaling = np.linalg.inv(KAPPA * jacobian.T @ jacobian + tau * np.eye(6))
        found: Array = scaling @ jacobian.T @ log_score(ys[t] - output)
        return found

    filtered = gas(np.zeros(6), innovation, omega=0.0, a=(RATE,), b=(1.0,), steps=STEPS)

    model = nn.Linear(3, 2, bias=False).double()
    model.weight.data.zero_()
    optimiser = NaturalGradient(
        model,
        StudentT(DOF, VARIANCE),
        rate=RATE,
        damping=tau,
        law="fixed",
        probes="exact",
        average=1.0,  # no smoothing, neither of the update nor of the curvature
        reduction="sum",
        scale_rate=0.0,
        clip="none",
        refresh=WorstLosses(every=1),
    )
    for t, expected in enumerate(filtered):
        optimiser.step(torch.from_numpy(xs[t : t + 1]), torch.from_numpy(ys[t : t + 1]))
        assert np.allclose(model.weight.detach().numpy().T.flatten(), expected, rtol=1e-12, atol=1e-12)


# ---- the classical filter ---------------------------------------------------------------------------------------


def test_the_classical_student_t_location_and_scale_filter() -> None:
    """`μ ← μ + η (ν+3) v e / (ν v + e²)`, and `v ← v + α ν v (e² - v) / (ν v + e²)`; textbook against library.

    Harvey (2013), Creal, Koopman and Lucas (2013): score of the location over its information. The paper's update of
    the scale is the score of the variance over its information, times `ν/(ν+3)`.
    """
    y = 3 + normal(STEPS, seed=5)
    y[40:] -= 4  # a break
    y[70] = 500.0  # an outlier
    rate, scale_rate = 0.1, 0.05
    model = nn.Linear(1, 1, bias=False).double()
    model.weight.data.zero_()
    optimiser = NaturalGradient(
        model,
        StudentT(DOF, VARIANCE),
        rate=rate,
        damping=1e-300,  # as good as none: a location's information is not singular
        law="fixed",
        probes="exact",
        average=1.0,
        scale_rate=scale_rate,
        clip="none",
        refresh=WorstLosses(every=1),
    )
    one = torch.ones(1, 1, dtype=torch.float64)
    mu, v, path = 0.0, VARIANCE, []
    for value in y:
        e = float(value) - mu
        mu += rate * (DOF + 3) * v * e / (DOF * v + e * e)
        v += scale_rate * DOF * v * (e * e - v) / (DOF * v + e * e)
        optimiser.step(one, torch.full((1, 1), float(value), dtype=torch.float64))
        assert float(model.weight.detach()) == pytest.approx(mu, rel=1e-12, abs=1e-12)
        assert optimiser.likelihood.variance == pytest.approx(v, rel=1e-12)
        path.append(mu)
    assert abs(path[39] - 3) < 1 and abs(path[69] + 1) < 1  # it follows the break
    assert abs(path[70] - path[69]) < 0.05  # and shrugs off the outlier


def test_large_degrees_of_freedom_give_exponential_smoothing() -> None:
    """`ν → ∞`: the score-driven location becomes `μ ← μ + η e`."""
    y = normal(50, seed=6)
    model = nn.Linear(1, 1, bias=False).double()
    model.weight.data.zero_()
    optimiser = NaturalGradient(
        model, StudentT(1e12), rate=0.3, damping=1e-300, law="fixed", average=1.0, scale_rate=0.0, clip="none"
    )
    mu = 0.0
    for value in y:
        mu += 0.3 * (float(value) - mu)
        optimiser.step(torch.ones(1, 1, dtype=torch.float64), torch.full((1, 1), float(value), dtype=torch.float64))
    assert float(model.weight.detach()) == pytest.approx(mu, rel=1e-9)
