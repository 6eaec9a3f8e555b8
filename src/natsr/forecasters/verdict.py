"""What a batch says about the network's outputs: the loss, its pull on the outputs, and where the scale goes."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from natsr.forecasters.warm import WarmUp, masked_error
from natsr.likelihoods import Gaussian, Likelihood, Reduction, StudentT, factor_of
from natsr.native.calls import at


@dataclass(frozen=True)
class Learning:
    """How a step is put together, whatever the network.

    Args:
        reduction: The loss of an example is the sum over its `m` outputs divided by `√m` (`root`), `m` (`mean`) or 1.
            With `root` the theorem's bound, which grows as `√m` for the sum, is the same for every horizon and width,
            and so is the safe rate (docs/decisions/0002).
        share: Weight of the replayed examples against the new ones, `λ`.
        draws: Examples replayed at each step.
        distil: Weight of the pull towards the outputs that were stored with the replayed examples (DER++).
        scale_rate: Rate of the dynamic scale, `α_s`; 0 keeps it.
        scale_floor: The variance never falls below this.
        scale_reading: `variance` uses one number throughout; `precursor` uses it as a standard deviation in the loss,
            the Fisher information and the damping and as a variance in its own update, as the published code does.
        dropout: Share of the last hidden layer that is dropped while learning online.
        online: Whether `learn` changes anything; off, the network stays as the warm-up left it.
        warm: The offline phase.
    """

    reduction: Reduction = "root"
    share: float = 0.2
    draws: int = 8
    distil: float = 0.0
    scale_rate: float = 0.0
    scale_floor: float = 1e-4
    scale_reading: Literal["variance", "precursor"] = "variance"
    dropout: float = 0.0
    online: bool = True
    warm: WarmUp = field(default_factory=WarmUp)

    def factor(self, outputs: int) -> float:
        """The loss of an example is this many times the mean over its `m` outputs."""
        return factor_of(self.reduction, outputs)


class Batch(NamedTuple):
    """What one step learns from: new examples first, replayed ones after."""

    window: Tensor  # (B, L, D)
    target: Tensor  # (B, m), NaN = unknown
    stored: Tensor | None  # (replayed, m), outputs as they were when the replayed examples were new
    new: int


class Scale(NamedTuple):
    """The noise that is assumed now."""

    likelihood: Likelihood
    tracked: float  # the number that follows the errors; its square is the variance in the precursor's reading


class Verdict(NamedTuple):
    """The loss of a batch, and what it asks for."""

    farthest: float  # the largest output; infinite if one is no number
    loss: float
    scale: float  # the tracked number after these errors
    pull: Tensor  # gradient of the reduced loss by the outputs, (B, m)
    weights: Tensor  # of the examples, (B,), summing to one


def judge(
    batch: Batch, output: Tensor, scale: Scale, learning: Learning, compiled: ctypes.CDLL | None = None
) -> Verdict:
    """The verdict on outputs `(B, m)`, in C where the library is given and knows the likelihood."""
    if compiled is not None and type(scale.likelihood) in (Gaussian, StudentT):
        return _judged(batch, output, scale, learning, compiled)
    target, new, share, distil = batch.target, batch.new, learning.share, learning.distil
    factor, likelihood = learning.factor(output.shape[1]), scale.likelihood
    known = target.isfinite()
    counts = known.sum(1).to(target)
    whole = 1 + share + distil if len(target) > new else 1.0
    coefficient = torch.empty_like(counts)
    coefficient[:new] = 1 / whole / counts[:new].sum()
    coefficient[new:] = share / whole / counts[new:].sum().clamp(min=1)
    coefficient *= factor
    error, _ = masked_error(output, target)
    loss = float((likelihood.nll(error).sum(1) @ coefficient) / factor)
    pull = likelihood.score(error) * coefficient[:, None]
    if batch.stored is not None and distil:
        drift = likelihood.score(batch.stored - output[new:])
        pull[new:] += drift * (factor * distil / whole / drift.numel())
    weights = coefficient * counts
    moved = scale.tracked
    if learning.scale_rate:
        follow = likelihood.with_variance(moved)
        moved = follow.adapted(error[known], learning.scale_rate, learning.scale_floor).variance
    farthest = float(output.abs().max())
    return Verdict(math.inf if math.isnan(farthest) else farthest, loss, moved, pull, weights.div_(weights.sum()))


def _judged(batch: Batch, output: Tensor, scale: Scale, learning: Learning, compiled: ctypes.CDLL) -> Verdict:
    likelihood, (B, m) = scale.likelihood, output.shape
    student = likelihood.dof if isinstance(likelihood, StudentT) else 0.0
    factor, stored = learning.factor(m), batch.stored if learning.distil else None
    asked = (ctypes.c_double * 7)(
        float(student > 0), student, likelihood.variance, scale.tracked, learning.share, learning.distil, factor
    )
    target, found = batch.target.contiguous(), (ctypes.c_double * 4)()
    stored = None if stored is None else stored.contiguous()
    pull, weights = torch.empty_like(output), output.new_empty(B)
    compiled.step_judge(asked, at(output), at(target), at(stored), B, batch.new, m, at(pull), at(weights), found)
    farthest, loss, score, _ = found
    moved = scale.tracked
    if learning.scale_rate and not math.isnan(score):
        moved = max(learning.scale_floor, moved + learning.scale_rate * score)
    return Verdict(farthest, loss, moved, pull, weights)
