"""The likelihoods of `natsr.likelihoods` for several learners, each with degrees of freedom and variance of its own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from natsr.likelihoods import LARGEST_ERROR


class Likelihoods(NamedTuple):
    """Errors are `(N, B, m)`."""

    dof: Tensor | None  # (N,) float64; None: Gaussian
    variance: Tensor  # (N,) float64

    @property
    def fisher(self) -> Tensor:
        """`κ` of each learner, `(N,)`."""
        return 1 / self.variance if self.dof is None else (self.dof + 1) / ((self.dof + 3) * self.variance)

    def nll(self, error: Tensor) -> Tensor:
        """Negative log-likelihood of each error, up to a constant."""
        squared = _limited(error).square()
        if self.dof is None:
            return squared.mul_(_spread(0.5 / self.variance, error))
        squared.div_(_spread(self.dof * self.variance, error))
        return squared.log1p_().mul_(_spread(0.5 * (self.dof + 1), error))

    def score(self, error: Tensor) -> Tensor:
        """Derivative of `nll` by the mean."""
        error = _limited(error)
        if self.dof is None:
            return error * _spread(-1 / self.variance, error)
        below = error.square().add_(_spread(self.dof * self.variance, error))
        return (error * _spread(-(self.dof + 1), error)).div_(below)

    def losses(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The sum over the known labels of each learner, NaN being unknown, and how many they are, `(N,)` each."""
        known = target.isfinite()
        return self.nll(torch.where(known, target - output, 0.0)).sum((1, 2)), known.sum((1, 2))

    def pull(self, output: Tensor, target: Tensor) -> Tensor:
        """The gradient of each learner's mean over its known labels, by the outputs."""
        known = target.isfinite()
        error, counts = torch.where(known, target - output, 0.0), known.sum((1, 2)).clamp(min=1)
        return self.score(error).div_(counts.to(error)[:, None, None])

    def moved(self, scale: Tensor, error: Tensor, known: Tensor, rate: Tensor, floor: Tensor) -> Tensor:
        """The scale `(N,)` of each learner after one score-driven step over the errors that are known."""
        squared, v = _limited(error).square(), _spread(scale, error)
        scores = squared - v
        if self.dof is not None:
            scores.div_(squared.div_(_spread(self.dof, error) * v).add_(1))
        counts = known.sum((1, 2))
        mean = torch.where(known, scores, 0.0).sum((1, 2)).double() / counts
        return torch.where(mean.isnan(), scale, torch.maximum(floor, scale + rate * mean))

    def bound(self, outputs: int, damping: Tensor, factor: float) -> Tensor:
        """The theorem's bound for each learner's reduced loss, `(N,)`."""
        if self.dof is None:
            return torch.full_like(damping, torch.inf)
        nu = self.dof
        return 0.25 * ((nu + 1) * (nu + 3) * outputs / (damping * nu)).sqrt() * (factor / outputs)


def _limited(error: Tensor) -> Tensor:
    return error.clamp(-LARGEST_ERROR, LARGEST_ERROR)


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """`(N,)` as `(N, 1, 1)` in the type of `like`."""
    return values.to(like.dtype)[:, None, None]
