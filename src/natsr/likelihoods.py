"""What the residuals look like: the loss, its score, its Fisher information, and how the scale follows the errors.

Everything is written in the error `e = y - mean` and the squared scale `variance`; the paper's `s` never appears, since
the published code mixes `s` and `s²` (docs/decisions/0001). A likelihood is a value: adapting it gives a new one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

import torch
from torch import Tensor

from natsr.types import OptionError

#: Errors are cut here before they are squared, so that float32 never overflows (its square is still finite).
LARGEST_ERROR = 1e15
#: The loss of an example is the sum over its `m` outputs divided by `√m`, `m` or 1 (docs/decisions/0002).
Reduction = Literal["root", "mean", "sum"]


def factor_of(reduction: Reduction, outputs: int) -> float:
    """The loss of an example is this many times the mean over its `m` outputs."""
    return {"root": math.sqrt(outputs), "mean": 1.0, "sum": float(outputs)}[reduction]


class Likelihood(Protocol):
    """A location family with one squared scale for all outputs."""

    @property
    def variance(self) -> float:
        """The squared scale, `v`."""

    @property
    def fisher(self) -> float:
        """Fisher information of one output's mean, `κ`."""

    def nll(self, error: Tensor) -> Tensor:
        """Negative log-likelihood of each error, up to a constant that depends on neither error nor mean."""

    def score(self, error: Tensor) -> Tensor:
        """Derivative of `nll` by the mean."""

    def scale_score(self, error: Tensor) -> Tensor:
        """Score of the variance, scaled by its inverse Fisher information (up to a constant)."""

    def sample_score(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Scores of errors drawn from the likelihood itself, for Monte-Carlo estimates of the Fisher information."""

    def adapted(self, error: Tensor, rate: float, floor: float) -> Self:
        """The likelihood after one score-driven step of its variance over these errors."""

    def with_variance(self, variance: float) -> Self:
        """The same family with another squared scale."""


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise OptionError(f"{name} is {value}, expected a positive finite number")


def _limited(error: Tensor) -> Tensor:
    return error.clamp(-LARGEST_ERROR, LARGEST_ERROR)


@dataclass(frozen=True)
class Gaussian:
    """Normal errors: the score grows without bound, so one outlier moves everything.

    >>> import torch
    >>> Gaussian(variance=2.0).score(torch.tensor([1.0, 100.0])).tolist()
    [-0.5, -50.0]
    """

    variance: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(variance=self.variance)

    @property
    def fisher(self) -> float:
        return 1.0 / self.variance

    def nll(self, error: Tensor) -> Tensor:
        return _limited(error).square() * (0.5 / self.variance)

    def score(self, error: Tensor) -> Tensor:
        return _limited(error) * (-1.0 / self.variance)

    def scale_score(self, error: Tensor) -> Tensor:
        return _limited(error).square() - self.variance

    def sample_score(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device) * math.sqrt(self.fisher)

    def adapted(self, error: Tensor, rate: float, floor: float) -> Gaussian:
        return replace(self, variance=_moved(self.variance, self.scale_score(error), rate, floor))

    def with_variance(self, variance: float) -> Gaussian:
        return replace(self, variance=variance)


@dataclass(frozen=True)
class StudentT:
    """Heavy-tailed errors: the score is bounded by `(ν+1) / (2 sqrt(ν v))`, so an outlier says little.

    Args:
        dof: Degrees of freedom, `ν`; towards infinity it becomes the Gaussian.
        variance: Squared scale, `v = s²` (not the variance of the distribution, which is `v ν/(ν-2)`).

    >>> import torch
    >>> StudentT(dof=1.0).score(torch.tensor([1.0, 100.0])).abs().tolist()
    [1.0, 0.02]
    """

    dof: float = 50.0
    variance: float = 1.0

    def __post_init__(self) -> None:
        _check_positive(dof=self.dof, variance=self.variance)

    @property
    def fisher(self) -> float:
        return (self.dof + 1) / ((self.dof + 3) * self.variance)

    @property
    def largest_score(self) -> float:
        """No score of one output is larger than this."""
        return (self.dof + 1) / (2 * math.sqrt(self.dof * self.variance))

    def bound(self, outputs: int, damping: float) -> float:
        """The paper's theorem: no update by the exact damped Fisher is longer than this.

        It holds for the sum of the losses of one example's `outputs`, and for any weighted mean of examples.
        """
        return 0.25 * math.sqrt((self.dof + 1) * (self.dof + 3) * outputs / (damping * self.dof))

    def nll(self, error: Tensor) -> Tensor:
        return torch.log1p(_limited(error).square() / (self.dof * self.variance)) * (0.5 * (self.dof + 1))

    def score(self, error: Tensor) -> Tensor:
        error = _limited(error)
        return error * (-(self.dof + 1)) / (error.square() + self.dof * self.variance)

    def scale_score(self, error: Tensor) -> Tensor:
        squared = _limited(error).square()
        return (squared - self.variance) / (squared / (self.dof * self.variance) + 1)

    def sample_score(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        normal = torch.randn(shape, generator=generator, device=generator.device)
        # torch's chi-squared sampler takes no generator of its own argument; gamma by the same generator does.
        chi2 = 2 * torch._standard_gamma(torch.full_like(normal, self.dof / 2), generator=generator)
        return self.score(normal * (self.variance * self.dof / chi2).sqrt())

    def adapted(self, error: Tensor, rate: float, floor: float) -> StudentT:
        return replace(self, variance=_moved(self.variance, self.scale_score(error), rate, floor))

    def with_variance(self, variance: float) -> StudentT:
        return replace(self, variance=variance)


def _moved(variance: float, scores: Tensor, rate: float, floor: float) -> float:
    mean = float(scores.mean()) if scores.numel() else math.nan
    # An error that is no number says nothing; `max` would take it for the floor.
    return variance if math.isnan(mean) else max(floor, variance + rate * mean)


#: The damping `τ(v)` that opens the bound when the scale grows.
DampingLaw = Callable[[float], float]


def paper_damping(beta: float) -> DampingLaw:
    """`0.9 β/(1+v) + 0.1 β/v`: main text and appendix; keeps `v τ` within `[0.1 β, β]`."""
    return lambda v: 0.9 * beta / (1 + v) + 0.1 * beta / v


def box_damping(beta: float) -> DampingLaw:
    """`1/(β+v)`: as the paper's algorithm box prints it; with `β = 1` it is also what the precursor code applies."""
    return lambda v: 1 / (beta + v)


def fixed_damping(beta: float) -> DampingLaw:
    """`β`, whatever the scale: then the bound does not open."""
    return lambda _: beta


DAMPING_LAWS: dict[str, Callable[[float], DampingLaw]] = {
    "paper": paper_damping,
    "box": box_damping,
    "fixed": fixed_damping,
}
