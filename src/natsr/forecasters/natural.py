"""The natural-gradient slot of a neural forecaster: curvature, damping, averaging, and the theorem's bound.

It reads as the paper's algorithm: look at the curvature again if the loss is among the worst of late; solve
`(F + τ) δ = ∇L`; average; clip to the theorem's bound. The same step on any `nn.Module` is `natsr.NaturalGradient`;
here it works on a network's flat weights and traces, and a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, NamedTuple, TypeVar

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
    information: Literal["current", "stored"] = "current"  # κ of now on an old JᵀJ, or the κ it was estimated with
    probes: int = 8  # output directions that estimate G; 0: every output, exactly
    probe: Literal["rademacher", "sampled"] = "rademacher"
    clip: float = 0.0  # shorten updates beyond this many of the theorem's bounds; 0: leave them


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
        self, net: Network[T], trace: T, pull: Tensor, batch: WeightedLoss, generator: torch.Generator
    ) -> Proposal[T] | None:
        """What the step would be; changes nothing here.

        Args:
            net: The network.
            trace: Its forward pass over the batch.
            pull: Gradient of the reduced loss by the outputs, `(B, m)`.
            batch: The loss, its likelihood, and the examples' weights.
            generator: Draws the probes.

        Returns:
            `None` if anything on the way is not finite.
        """
        options, after = self.options, Natural[T](self.options, self.curvature, replace(self.trigger))
        after.smoothed = self.smoothed
        due = after.trigger(batch.loss)
        tau = options.law(batch.likelihood.variance)
        after.damping = tau if due or options.damped == "step" else self.damping
        if due:
            curvature = self.curvature.updated(estimate(net, trace, batch, options, generator))
            if curvature is None:
                return None
            after.curvature = curvature
        kappa = batch.likelihood.fisher if options.information == "current" else 1.0
        if options.order == "before":
            after.smoothed = self._average(net.gradient(trace, pull))
            delta = _solved(after.curvature, net.layers, after.smoothed, after.damping / kappa).div_(kappa)
        else:
            delta = _solved_by_taps(after.curvature, net, trace, pull, after.damping / kappa).div_(kappa)
        norm = float(delta.norm())
        bound = batch.bound(net.layers[-1].outputs, after.damping)
        if not norm < math.inf:
            return None
        if options.clip and norm > options.clip * bound:
            delta.mul_(options.clip * bound / norm)
        return Proposal(after, delta, NaturalInfo(after.damping, norm, bound, due))

    def direction(self, proposal: Proposal[T]) -> Tensor:
        """The averaged update, once the step is taken; the average is moved in place."""
        if self.options.order == "before":
            return proposal.delta
        if proposal.after.smoothed is None:
            proposal.after.smoothed = proposal.delta
        else:
            proposal.after.smoothed.lerp_(proposal.delta, self.options.average)
        return proposal.after.smoothed

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
        names = ("curvature", "trigger", "smoothed", "damping")
        curvature, trigger, smoothed, damping = (state.get(name) for name in names)
        if not (isinstance(curvature, dict) and isinstance(trigger, dict) and isinstance(damping, float)):
            raise StateError("the natural gradient's state is incomplete; the state was not written by natsr")
        blocks, rule = Curvature(self.curvature.weight, self.curvature.rule), replace(self.trigger)
        blocks.load_state_dict(curvature)
        rule.load_state_dict(trigger)
        self.curvature, self.trigger, self.damping = blocks, rule, damping
        self.smoothed = smoothed.clone() if isinstance(smoothed, Tensor) else None


class Proposal(NamedTuple, Generic[T]):
    """A whole step that has not been taken."""

    after: Natural[T]
    delta: Tensor  # the preconditioned gradient, flat
    info: NaturalInfo


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
    outputs, current = net.layers[-1].outputs, options.information == "current"
    kappa = 1.0 if current else batch.likelihood.fisher
    count = options.probes or outputs
    roots = batch.weights.sqrt()[:, None]
    factors: list[Tensor] = []
    inputs: list[Tensor] = []
    for start in range(0, count, _CHUNK):
        chunk = min(_CHUNK, count - start)
        probes = _probes(options, start, (chunk, len(roots), outputs), batch.likelihood, generator).to(roots)
        taps = net.taps(trace, probes * (roots * math.sqrt(kappa)))
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
    """Output gradients whose second moment is the identity, `(K, B, m)`."""
    if not options.probes:
        units = torch.eye(shape[2])[start : start + shape[0], None, :]
        return units.expand(shape)
    if options.probe == "sampled":
        return likelihood.sample_score(shape, generator) / math.sqrt(likelihood.fisher)
    return rademacher(shape, generator)


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, inputs.new_ones(*inputs.shape[:-1], 1)], -1)


def _solved(curvature: Curvature, layers: Sequence[Layer], gradient: Tensor, damping: float) -> Tensor:
    """`(F + damping)⁻¹` applied to a flat gradient."""
    solved = curvature.apply([layer.view(gradient) for layer in layers], damping)
    return torch.cat([part.reshape(-1) for part in solved])


def _solved_by_taps(curvature: Curvature, net: Network[T], trace: T, pull: Tensor, damping: float) -> Tensor:
    """`(F + damping)⁻¹` applied to the gradient that `pull` gives, layer by layer, by whichever way is shorter."""
    delta = torch.empty_like(net.weights)
    for index, (layer, tap) in enumerate(zip(net.layers, net.taps(trace, pull[None]), strict=True)):
        eigen, out = curvature.eigen(index), layer.view(delta)
        inputs, grads = tap.inputs.flatten(0, 1), tap.grads.flatten(0, 2)
        if curvature.rule == "pi" and _is_thin(len(grads), layer):
            x, y = eigen.solve_rows(_with_ones(inputs), grads, damping)
            torch.mm(x.T, y, out=out)
        else:
            torch.mm(inputs.T, grads, out=out[:-1])
            torch.sum(grads, 0, out=out[-1])
            out.copy_(eigen.solve(out, damping, curvature.rule))
    return delta


def _is_thin(rows: int, layer: Layer) -> bool:
    """Whether preconditioning the two thin factors of a gradient takes fewer multiplications than the gradient."""
    i, o = layer.inputs, layer.outputs
    return rows * (2 * i * i + 2 * o * o + i * o) < 2 * i * o * (i + o)
