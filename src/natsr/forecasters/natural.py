"""The natural-gradient slot of a neural forecaster: curvature, damping, averaging, and the theorem's bound.

It reads as the paper's algorithm: look at the curvature again if the loss is among the worst of late; solve
`(F + τ) δ = ∇L`; average; clip to the theorem's bound. The same step on any `nn.Module` is `natsr.NaturalGradient`;
here it works on a network's flat weights and traces, and a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

import torch
from torch import Tensor

from natsr.fisher import gradient_factor, input_factor, rademacher
from natsr.kronecker import Kronecker
from natsr.likelihoods import DampingLaw, Likelihood, StudentT, paper_damping
from natsr.nets.base import Layer, Network, Traced
from natsr.precondition import Curvature, WorstLosses
from natsr.types import State, StateError

T = TypeVar("T", bound=Traced)
_CHUNK = 32  # probes pulled back at once


@dataclass(frozen=True)
class NaturalOptions:
    """Every point at which the paper, its algorithm box and the precursor code differ, with one default each.

    docs/decisions/0003-readings.md says what each one does to ETTh1.
    """

    law: DampingLaw = field(default=paper_damping(0.14))
    average: float = 0.555  # α_ema, of the update
    order: Literal["after", "before"] = "after"  # average the update after preconditioning, or the gradient before it
    damped: Literal["step", "refresh"] = "step"  # τ follows the scale at every step, or only when F is estimated
    probes: int = 16  # output directions that estimate G; 0: every output, exactly
    probe: Literal["rademacher", "sampled"] = "rademacher"
    clip: Literal["bound", "none"] = "bound"


@dataclass(frozen=True)
class NaturalInfo:
    """What one may want to look at after a step."""

    damping: float
    norm: float  # of the preconditioned gradient, before averaging and clipping
    bound: float  # the theorem's, for the same reduction of the loss
    refreshed: bool


class Natural(Generic[T]):
    """The state that a natural-gradient learner carries besides its weights."""

    def __init__(self, options: NaturalOptions, curvature: Curvature, trigger: WorstLosses) -> None:
        self.options = options
        self.curvature = curvature
        self.trigger = trigger
        self.damping = 1.0  # τ of the last refresh, for `damped="refresh"`
        self.smoothed: Tensor | None = None  # exponential average of the update (or of the gradient)

    def proposed(
        self, net: Network[T], trace: T, gradient: Tensor, batch: WeightedLoss, generator: torch.Generator
    ) -> tuple[Natural[T], Tensor, NaturalInfo] | None:
        """What this becomes, the direction to go against, and how it came about; changes nothing here.

        Args:
            net: The network.
            trace: Its forward pass over the batch.
            gradient: Flat gradient of the reduced loss.
            batch: The loss, its likelihood, and the examples' weights.
            generator: Draws the probes.

        Returns:
            `None` if anything on the way is not finite.
        """
        options, after = self.options, Natural[T](self.options, self.curvature, replace(self.trigger))
        due = after.trigger(batch.loss)
        tau = options.law(batch.likelihood.variance)
        after.damping = tau if due or options.damped == "step" else self.damping
        if due:
            blocks = estimate(net, trace, batch, options, generator)
            curvature = self.curvature.updated(blocks)
            if curvature is None:
                return None
            after.curvature = curvature
        if options.order == "before":
            gradient = after.smoothed = self._average(gradient)
        delta = precondition(after.curvature, net.layers, gradient, after.damping)
        norm = float(delta.norm())
        bound = batch.bound(net.layers[-1].outputs, after.damping)
        if not norm < float("inf"):
            return None
        if options.clip == "bound" and norm > bound:
            delta.mul_(bound / norm)
        if options.order == "after":
            delta = after.smoothed = self._average(delta)
        return after, delta, NaturalInfo(after.damping, norm, bound, due)

    def _average(self, new: Tensor) -> Tensor:
        return new if self.smoothed is None else torch.lerp(self.smoothed, new, self.options.average)

    def state_dict(self) -> State:
        """Curvature, refresh rule, damping and average."""
        return {
            "curvature": self.curvature.state_dict(),
            "trigger": self.trigger.state_dict(),
            "damping": self.damping,
            "smoothed": None if self.smoothed is None else self.smoothed.clone(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from it."""
        curvature, trigger, smoothed = state["curvature"], state["trigger"], state["smoothed"]
        damping = state["damping"]
        if not (isinstance(curvature, dict) and isinstance(trigger, dict) and isinstance(damping, float)):
            raise StateError("the natural gradient's state is incomplete; the state was not written by natsr")
        self.curvature.load_state_dict(curvature)
        self.trigger.load_state_dict(trigger)
        self.damping = damping
        self.smoothed = smoothed.clone() if isinstance(smoothed, Tensor) else None


@dataclass(frozen=True)
class WeightedLoss:
    """A batch's loss and what its Fisher information needs."""

    loss: float
    likelihood: Likelihood
    weights: Tensor  # (B,), summing to one
    factor: float  # the loss is `factor` times the mean over outputs: 1, √m or m

    def bound(self, outputs: int, damping: float) -> float:
        """The theorem's bound for this reduction; infinite for a likelihood whose score has none."""
        if not isinstance(self.likelihood, StudentT):
            return float("inf")
        return self.likelihood.bound(outputs, damping) * self.factor / outputs


def estimate(
    net: Network[T], trace: T, batch: WeightedLoss, options: NaturalOptions, generator: torch.Generator
) -> list[Kronecker]:
    """The Fisher information of the batch, a Kronecker block for each layer.

    The curvature `κ` of one output is known; probes only decide in which directions it is looked at. The head's block
    needs none: its `G` is `κ` times the identity.
    """
    outputs, kappa = net.layers[-1].outputs, batch.likelihood.fisher
    count = options.probes or outputs
    roots = batch.weights.sqrt()[:, None]
    factors: list[Tensor] = []
    inputs: list[Tensor] = []
    for start in range(0, count, _CHUNK):
        chunk = min(_CHUNK, count - start)
        probes = _probes(options, start, (chunk, len(roots), outputs), batch.likelihood, generator).to(roots)
        taps = net.taps(trace, probes * roots)
        share = chunk if not options.probes else chunk / count  # exact: a sum over outputs, not a mean over draws
        new = [gradient_factor(tap.grads) * share for tap in taps[:-1]]
        factors = [old + more for old, more in zip(factors, new, strict=True)] if factors else new
        inputs = [tap.inputs for tap in taps]
    blocks = [
        Kronecker(input_factor(_with_ones(a), batch.weights), g) for a, g in zip(inputs[:-1], factors, strict=True)
    ]
    head = inputs[-1]
    return [*blocks, Kronecker(input_factor(_with_ones(head), batch.weights), head.new_tensor(kappa))]


def _probes(
    options: NaturalOptions, start: int, shape: tuple[int, int, int], likelihood: Likelihood, generator: torch.Generator
) -> Tensor:
    """Output gradients whose second moment is `κ` times the identity, `(K, B, m)`."""
    if not options.probes:
        units = torch.eye(shape[2])[start : start + shape[0], None, :]
        return units.expand(shape) * math.sqrt(likelihood.fisher)
    if options.probe == "sampled":
        return likelihood.sample_score(shape, generator)
    return rademacher(shape, generator) * math.sqrt(likelihood.fisher)


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, inputs.new_ones(*inputs.shape[:-1], 1)], -1)


def precondition(curvature: Curvature, layers: Sequence[Layer], flat: Tensor, damping: float) -> Tensor:
    """`(F + damping)⁻¹` applied to a flat gradient."""
    solved = curvature.apply([layer.view(flat) for layer in layers], damping)
    out = torch.empty_like(flat)
    for layer, part in zip(layers, solved, strict=True):
        layer.view(out).copy_(part)
    return out
