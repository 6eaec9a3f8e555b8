"""The natural-gradient slot of a neural forecaster: curvature, damping, averaging, and the theorem's bound.

It reads as the paper's algorithm: look at the curvature again if the loss is among the worst of late; solve
`(F + τ) δ = ∇L`; average; clip to the theorem's bound. The same step on any `nn.Module` is `natsr.NaturalGradient`;
here it works on a network's flat weights and traces, and a test holds the two together.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from natsr.fisher import gradient_factor, hadamard, input_factor, rademacher
from natsr.kronecker import DampingRule, Eigen, Inverse, Kronecker
from natsr.likelihoods import DampingLaw, Likelihood, StudentT, paper_damping
from natsr.nets.base import Layer, Network, Traced
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.precondition import Curvature, WorstLosses
from natsr.types import State, StateError

T = TypeVar("T", bound=Traced)
#: When `τ` follows the scale: at every `step`, exactly, in the eigenbasis of `F`; when it has moved by a share
#: (`drift`), by explicit inverses, which the factored damping rule has; or only when `F` is estimated (`refresh`).
Damped = Literal["drift", "step", "refresh"]
#: Output directions that estimate `G`: rows of a Hadamard matrix with random signs, independent signs, or scores of the
#: likelihood's own samples.
Probe = Literal["hadamard", "rademacher", "sampled"]
CHUNK = 32  # probes drawn and pulled back at once


@dataclass(frozen=True)
class NaturalOptions:
    """Every point at which the paper, its algorithm box and the precursor code differ, with one default each.

    docs/decisions/0003-readings.md says what each one does to ETTh1.
    """

    law: DampingLaw = field(default=paper_damping(0.14))
    average: float = 0.555  # α_ema, of the update
    order: Literal["after", "before"] = "after"  # average the update after preconditioning, or the gradient before it
    damped: Damped = "drift"
    drift: float = 0.1  # share by which τ/κ may have moved before the inverses are made again
    information: Literal["current", "stored"] = "current"  # κ of now on an old JᵀJ, or the κ it was estimated with
    probes: int = 16  # output directions that estimate G; 0: every output, exactly
    probe: Probe = "hadamard"
    allotted: bool = True  # probes by weight: light examples get fewer
    closed: bool = True  # the layers right below the head in closed form, where that is exact
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
        self.made = math.nan  # τ/κ that the inverses were made for; not a number before there are any
        self._inverses: tuple[Inverse, ...] = ()
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
        options, after = self.options, self.copy()
        due = after.trigger(batch.loss)
        tau = options.law(batch.likelihood.variance)
        after.damping = self.damping if options.damped == "refresh" and not due else tau
        if due:
            curvature = self.curvature.updated(estimate(net, trace, batch, options, generator))
            if curvature is None:
                return None
            after.curvature = curvature
        kappa = batch.likelihood.fisher if options.information == "current" else 1.0
        solvers = after.solvers(after.damping / kappa, due)
        if options.order == "before":
            after.smoothed = self._average(net.gradient(trace, pull))
            parts = zip(solvers, net.layers, strict=True)
            delta = torch.cat([solver.solve(layer.view(after.smoothed)).reshape(-1) for solver, layer in parts])
        else:
            delta = _solved_by_taps(solvers, net, trace, pull)
        delta.div_(kappa)
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

    def copy(self) -> Natural[T]:
        """A state for the step after this one, which shares everything but the refresh rule."""
        after = copy.copy(self)
        after.trigger = copy.copy(self.trigger)
        return after

    def solvers(self, damping: float, due: bool) -> Sequence[Solver]:
        """What inverts each layer's block at `τ/κ`; `due` if the blocks are new."""
        rule = self.curvature.rule
        if self.options.damped != "drift" or rule != "pi":
            return [_Damped(eigen, damping, rule) for eigen in self.curvature.eigen()]
        if due or self.has_drifted(damping):
            self.made, self._inverses = damping, ()
        if not self._inverses:  # new, or loaded
            self._inverses = self.curvature.inverse(self.made)
        return self._inverses

    def has_drifted(self, damping: float) -> bool:
        """Whether inverses must be made again for this `τ/κ`."""
        reach = 1 + self.options.drift
        return not self.made / reach <= damping <= self.made * reach

    def _average(self, new: Tensor) -> Tensor:
        return new if self.smoothed is None else torch.lerp(self.smoothed, new, self.options.average)

    def state_dict(self) -> State:
        """Curvature, refresh rule, damping and average."""
        return {
            "curvature": self.curvature.state_dict(),
            "trigger": self.trigger.state_dict(),
            "damping": self.damping,
            "made": self.made,
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
        made = state.get("made")
        self.made, self._inverses = made if isinstance(made, float) else math.nan, ()
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
    known: dict[int, Tensor] = {}
    if options.closed and options.probes and isinstance(net, ConeTCN) and isinstance(trace, ConeTrace):
        known = {index: moment * kappa for index, moment in net.known_moments(trace, batch.weights).items()}
    factors: list[Tensor] = []
    inputs: list[Tensor] = []
    for probes in draws(options, batch.weights, outputs, batch.likelihood, generator):
        taps = net.taps(trace, probes.to(roots) * (roots * math.sqrt(kappa)))
        chunk = len(probes)
        share = chunk if not options.probes else chunk / count  # exact: a sum over outputs, not a mean over draws
        new = [gradient_factor(tap.grads) * share for tap in taps[:-1]]
        factors = [old + more for old, more in zip(factors, new, strict=True)] if factors else new
        inputs = [tap.inputs for tap in taps]
    blocks = [
        Kronecker(input_factor(_with_ones(a), batch.weights), known.get(i, g))
        for i, (a, g) in enumerate(zip(inputs[:-1], factors, strict=True))
    ]
    head = inputs[-1]
    return [*blocks, Kronecker(input_factor(_with_ones(head), batch.weights), head.new_tensor(kappa))]


def draws(
    options: NaturalOptions, weights: Tensor, outputs: int, likelihood: Likelihood, generator: torch.Generator
) -> Iterator[Tensor]:
    """Output gradients `(K, B, m)` whose second moment is the identity, as many at once as are pulled back at once."""
    count, B = options.probes or outputs, len(weights)
    shares = allotment(weights, count)[:, :, None] if options.allotted and options.probes else None
    for start in range(0, count, CHUNK):
        size = (min(CHUNK, count - start), B, outputs)
        if not options.probes:
            yield torch.eye(outputs)[start : start + size[0], None, :].expand(size)
            continue
        if options.probe == "sampled":
            drawn = likelihood.sample_score(size, generator) / math.sqrt(likelihood.fisher)
        else:
            drawn = hadamard(size, generator) if options.probe == "hadamard" else rademacher(size, generator)
        yield drawn if shares is None else drawn.to(weights) * shares[start : start + size[0]]


def allotment(weights: Tensor, count: int) -> Tensor:
    """What the probes of each example are multiplied by, `(…, K, B)` for weights `(…, B)`.

    An example gets as many of the `K` probes as its weight asks for against the heaviest one, and at least one; the
    others are zero. An error in what an example adds to `G` counts with the square of its weight, so eight probes for
    each of eight replayed examples, which together weigh a fifth of the new one, would be work for nothing.
    """
    asked = allotted(weights, count)[..., None, :]
    turns = torch.arange(count, device=weights.device)[:, None]
    return torch.where(turns < asked, (count / asked).sqrt(), 0.0)


def allotted(weights: Tensor, count: int) -> Tensor:
    """How many of `count` probes each example gets, `(…, B)`."""
    asked = weights / weights.amax(-1, keepdim=True) * count
    return (asked - 1e-3).ceil_().clamp_(min=1, max=count)  # rounding must not ask for one more


def _with_ones(inputs: Tensor) -> Tensor:
    return torch.cat([inputs, inputs.new_ones(*inputs.shape[:-1], 1)], -1)


class Solver(Protocol):
    """A layer's damped block, ready to be inverted."""

    def solve(self, grad: Tensor) -> Tensor:
        """The inverse applied to a gradient `(I, O)`."""

    def solve_rows(self, inputs: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
        """The same for `inputsᵀ grads`, as such a product; for the factored damping rule."""


class _Damped(NamedTuple):
    """A block in its eigenbasis, with the damping of this step."""

    eigen: Eigen
    damping: float
    rule: DampingRule

    def solve(self, grad: Tensor) -> Tensor:
        return self.eigen.solve(grad, self.damping, self.rule)

    def solve_rows(self, inputs: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
        return self.eigen.solve_rows(inputs, grads, self.damping)


def _solved_by_taps(solvers: Sequence[Solver], net: Network[T], trace: T, pull: Tensor) -> Tensor:
    """The damped inverse applied to the gradient that `pull` gives, layer by layer, by whichever way is shorter."""
    delta = torch.empty_like(net.weights)
    for solver, layer, tap in zip(solvers, net.layers, net.taps(trace, pull[None]), strict=True):
        out = layer.view(delta)
        inputs, grads = tap.inputs.flatten(0, 1), tap.grads.flatten(0, 2)
        is_factored = not (isinstance(solver, _Damped) and solver.rule != "pi")
        if is_factored and _is_thin(len(grads), layer):
            x, y = solver.solve_rows(_with_ones(inputs), grads)
            torch.mm(x.T, y, out=out)
        else:
            torch.mm(inputs.T, grads, out=out[:-1])
            torch.sum(grads, 0, out=out[-1])
            out.copy_(solver.solve(out))
    return delta


def _is_thin(rows: int, layer: Layer) -> bool:
    """Whether preconditioning the two thin factors of a gradient takes fewer multiplications than the gradient."""
    i, o = layer.inputs, layer.outputs
    return rows * (i * i + o * o) < i * o * (i + o)
