"""Natural gradient descent for any module: the method of the paper, written to be read.

One step on examples `(x_b, y_b)` of weight `w_b`, with `m` outputs each, errors `e = y - f(x)` and variance `v`:

1. loss `L = r Σ_b w_b mean_o nll(e_bo; v)` over the known targets, with `r = √m`, 1 or `m` (`reduction`);
2. curvature `F = Σ_b w_b κ JᵀJ` of the *summed* loss, a Kronecker block for each Linear or Conv1d layer, estimated
   again only when the refresh rule asks for it, and averaged;
3. `δ = (F + τ(v))⁻¹ ∇L`, cut back to the theorem's bound, averaged over the steps;
4. `w ← w - rate · δ` (or AdamW on `δ`), and `v` follows the errors by its own score.

A step that would leave anything non-finite is refused: the model and everything here stay as they were, bit for bit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from natsr.fisher import estimate, one_hot, rademacher
from natsr.kronecker import DampingRule
from natsr.likelihoods import DAMPING_LAWS, Likelihood, Reduction, StudentT, factor_of
from natsr.precondition import Curvature, WorstLosses
from natsr.state import on_device
from natsr.taps import Recorder, find_layers, read_weights, write_weights
from natsr.types import NatsrError, OptionError, ShapeError, State, StateError

Law = Literal["paper", "box", "fixed"]
Probe = Literal["rademacher", "sampled"]
Order = Literal["after", "before"]
Finish = Literal["sgd", "adamw"]
Fallback = Literal["diagonal", "identity"]
Clip = Literal["bound", "none"]
Information = Literal["current", "stored"]

#: Of AdamW, as everywhere.
BETA_FIRST, BETA_SECOND, EPSILON = 0.9, 0.999, 1e-8
T = TypeVar("T")
#: Lists of tensors in the memory.
PARTS = ("diagonal", "average", "first", "second")


class StepInfo(NamedTuple):
    """What one step did."""

    loss: float  # mean over the known targets, before the step; NaN if there were none, or it could not be computed
    update_norm: float  # length of δ, before clipping, averaging and rate: what the theorem speaks of
    bound: float  # the theorem's bound on it, for this reduction; infinite for a likelihood that has none
    variance: float  # after the step
    damping: float  # τ of this step
    refreshed: bool  # whether the curvature was estimated again
    refused: str  # what was not finite; empty if the step was taken


class _RefusalError(NatsrError):
    """Something is not finite; its text says what."""


class _Batch(NamedTuple):
    """A forward pass, and how far it was off."""

    recorder: Recorder
    output: Tensor  # (B, *)
    error: Tensor  # (B, *), 0 where the target is unknown
    known: Tensor  # (B, *), bool
    weights: Tensor  # (B,), summing to one, 0 for an example of which nothing is known

    def mean(self, values: Tensor) -> Tensor:
        """Each known value's part in the weighted mean, `(B, *)`."""
        counts = self.known.flatten(1).sum(dim=1).clamp(min=1)
        return values * (self.weights / counts).reshape(-1, *[1] * (values.ndim - 1)) * self.known


class _Memory(NamedTuple):
    """What is carried from step to step; a step makes a new one, and it is taken over only if the step is."""

    curvature: Curvature
    refresh: WorstLosses
    diagonal: tuple[Tensor, ...] = ()  # Fisher information of the parameters outside of layers
    average: tuple[Tensor, ...] = ()  # of δ, or of the gradient; like all below, matrices of layers, then the others
    first: tuple[Tensor, ...] = ()  # AdamW's two moments
    second: tuple[Tensor, ...] = ()


@dataclass(eq=False)
class NaturalGradient:
    """Learns a model's weights, example by example, along the natural gradient of a likelihood.

    Linear and Conv1d layers get a Kronecker block each; every other parameter (norms, embeddings, recurrent cells, raw
    parameters) falls back to `(diagonal of F + τ)⁻¹` or to the plain gradient. Parameters that do not require a
    gradient when this is made are left alone. The model stays in the mode (train, eval) that it is in.

    Args:
        model: Any module that maps a batch to one tensor, the batch first.
        likelihood: Of the errors; its variance is the starting point.
        rate: Learning rate, `η`.
        damping: `β` of the damping law.
        law: `paper`, `box` or `fixed`: how the damping follows the variance (`natsr.likelihoods.DAMPING_LAWS`).
        rule: How damping enters the blocks (`natsr.kronecker.DampingRule`).
        average: Weight of the newest in the averages of curvature and of updates, `α_ema`; 1 keeps no past. The
            averages start at what they see first.
        order: Whether updates are averaged `after` preconditioning or gradients `before` it.
        probes: Backward passes for one estimate of the curvature, or `exact`: one for each output (for each output of
            each example where there are parameters outside of layers with a diagonal). The curvature of the outputs
            themselves, and of a last layer, is exact in any case.
        probe: Random signs, or scores drawn from the likelihood as the paper has it.
        refresh: When to estimate the curvature again.
        information: Which `κ` multiplies an estimate of `JᵀJ` that may be a hundred steps old: the `current` one, or
            as in the paper the one `stored` with it. When the variance falls, the gradient grows as `1/v`; a stored
            `κ` does not follow, and the step may be too long by that factor.
        reduction: The loss of an example is the `mean` over its outputs (the paper), the `sum`, or, halfway, the sum
            divided by the `root` of their number, so that the theorem's bound does not depend on it.
        scale_rate: Rate of the variance, `α_s`; 0 keeps it.
        scale_floor: The variance does not fall below this.
        finish: What is done with `δ`.
        decay: Weight decay, with `finish="adamw"` only.
        fallback: For parameters outside of Linear and Conv1d layers.
        clip: `bound` shortens a `δ` that is longer than the theorem allows, as K-FAC's may be; `none` leaves it.
        generator: For the probes; by default one of its own, seeded with 0.

    >>> import torch
    >>> g = torch.Generator().manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    >>> optimiser = NaturalGradient(model, rate=0.2)
    >>> for _ in range(100):
    ...     x = torch.randn(4, 2, generator=g)
    ...     info = optimiser.step(x, x.sum(1, keepdim=True))
    >>> info.refused, info.update_norm < info.bound, round(info.loss, 2)
    ('', True, 0.0)
    """

    model: nn.Module
    likelihood: Likelihood = StudentT(dof=50.0)
    _: KW_ONLY
    rate: float = 0.005
    damping: float = 0.14
    law: Law = "paper"
    rule: DampingRule = "exact"
    average: float = 0.555
    order: Order = "after"
    probes: int | Literal["exact"] = 8
    probe: Probe = "rademacher"
    refresh: WorstLosses = field(default_factory=WorstLosses)
    information: Information = "current"
    reduction: Reduction = "root"
    scale_rate: float = 0.1
    scale_floor: float = 1e-4
    finish: Finish = "sgd"
    decay: float = 0.01
    fallback: Fallback = "diagonal"
    clip: Clip = "bound"
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        self._check_options()
        self.steps = 0
        self.refused = 0
        self.layers = find_layers(self.model)
        inside = {id(parameter) for layer in self.layers for parameter in layer.parameters}
        learning = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.others = [parameter for parameter in learning if id(parameter) not in inside]
        if not learning:
            raise OptionError("the model has no parameter that requires a gradient; nothing could be learned")
        self._generator = self.generator or torch.Generator(learning[0].device).manual_seed(0)
        self._law = DAMPING_LAWS[self.law](self.damping)
        self._memory = _Memory(Curvature(self.average, self.rule), copy.copy(self.refresh))

    def _check_options(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and (got := getattr(self, name)) not in get_args(hint):
                raise OptionError(f"{name} is {got!r}, expected one of {', '.join(get_args(hint))}")
        for name, most in (("rate", math.inf), ("damping", math.inf), ("scale_floor", math.inf), ("average", 1.0)):
            if not (0 < (value := getattr(self, name)) <= most and math.isfinite(value)):
                raise OptionError(f"{name} is {value}, expected a finite number above 0, at most {most:g}")
        if not 0 <= self.scale_rate < 1:
            raise OptionError(f"scale_rate is {self.scale_rate}, expected 0 (a fixed variance) or more, below 1")
        if self.probes != "exact" and not (isinstance(self.probes, int) and self.probes > 0):
            raise OptionError(f"probes is {self.probes!r}, expected a positive integer or 'exact'")

    @property
    def curvature(self) -> Curvature:
        """The running Fisher information of the layers."""
        return self._memory.curvature

    def step(self, inputs: Tensor | tuple[Tensor, ...], targets: Tensor, weights: Tensor | None = None) -> StepInfo:
        """Learn from a batch.

        Args:
            inputs: What the model is called with; a tuple for several arguments.
            targets: Shaped like the model's output; NaN where unknown, and left out.
            weights: `(B,)`, of the examples; by default each known target counts the same. Made to sum to one.

        Returns:
            What happened; `refused` says why, if nothing did.
        """
        if not targets.ndim:
            raise ShapeError("targets are a single number, expected the shape of the model's output, the batch first")
        damping, before = self._law(self.likelihood.variance), self._generator.get_state()
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        info = StepInfo(math.nan, 0.0, self._bound(targets, damping), self.likelihood.variance, damping, False, "")
        try:
            if targets.isnan().all():
                return info
            batch = self._forward(inputs if isinstance(inputs, tuple) else (inputs,), targets, weights)
            return self._learn(batch, info)
        except Exception as error:
            # Nothing else has changed yet: the weights and the memory are taken over last, and together.
            self._generator.set_state(before)
            for buffer, old in buffers:
                buffer.copy_(old)
            if not isinstance(error, _RefusalError):
                raise
            self.refused += 1
            return info._replace(refused=str(error))

    def _bound(self, targets: Tensor, damping: float) -> float:
        if not isinstance(self.likelihood, StudentT) or not targets.numel():
            return math.inf
        outputs = targets[0].numel()
        return self.likelihood.bound(outputs, damping) * factor_of(self.reduction, outputs) / outputs

    def _forward(self, inputs: tuple[Tensor, ...], targets: Tensor, weights: Tensor | None) -> _Batch:
        _check_finite("inputs", [part for part in inputs if part.is_floating_point()])
        with torch.enable_grad(), Recorder(self.layers, len(targets)) as recorder:
            output: Tensor = self.model(*inputs)
        if output.shape != targets.shape:
            raise ShapeError(
                f"targets have shape {tuple(targets.shape)}, expected {tuple(output.shape)} as the model gives; "
                "reshape one of them, the batch first"
            )
        known = ~targets.isnan()
        error = torch.where(known, targets.to(output.dtype) - output.detach(), torch.zeros_like(output))
        _check_finite("outputs", [output.detach()])
        _check_finite("targets", [error])
        return _Batch(recorder, output, error, known, _weights(known, weights).to(output))

    def _learn(self, batch: _Batch, info: StepInfo) -> StepInfo:
        """From a forward pass to new weights; changes nothing before its last lines."""
        loss = float(batch.mean(self.likelihood.nll(batch.error)).sum(dtype=torch.float64))
        if not math.isfinite(loss):
            raise _RefusalError("loss")
        factor = factor_of(self.reduction, batch.output[0].numel())
        pull = batch.mean(self.likelihood.score(batch.error)) * factor
        grads = batch.recorder.gradient(batch.output, pull, self.others)
        _check_finite("gradient", grads)
        refresh = copy.copy(self._memory.refresh)
        memory = self._memory._replace(refresh=refresh)
        refreshed = refresh(loss) or self.steps == 0
        if refreshed:
            memory = self._look_again(batch, memory)
        update, norm, memory = self._update(grads, memory, info)
        weights, memory = self._finished(update, memory)
        _check_finite("weights", [*weights, *memory.average, *memory.second])
        likelihood = self.likelihood.adapted(batch.error[batch.known], self.scale_rate, self.scale_floor)
        write_weights(weights, self.layers, self.others)
        self._memory, self.likelihood = memory, likelihood
        self.steps += 1
        return info._replace(loss=loss, update_norm=norm, variance=likelihood.variance, refreshed=refreshed)

    def _look_again(self, batch: _Batch, memory: _Memory) -> _Memory:
        """The memory with a new estimate of the curvature taken in."""
        others = self.others if self.fallback == "diagonal" else []
        probes = self._probes(batch.output, bool(others))
        new = estimate(batch.recorder, batch.output, probes, batch.weights, others)
        if self.information == "stored":
            new = new.scaled(self.likelihood.fisher)
        _check_finite("curvature", new.diagonal)
        if (curvature := memory.curvature.updated(new.blocks)) is None:
            raise _RefusalError("curvature")
        diagonal = _lerp(memory.diagonal or new.diagonal, new.diagonal, self.average)
        return memory._replace(curvature=curvature, diagonal=diagonal)

    def _probes(self, output: Tensor, apart: bool) -> Tensor:
        """Output gradients `(K, B, *)` whose mean outer product is the identity, or is expected to be."""
        if self.probes == "exact":
            return one_hot(output.shape, output, apart)
        shape = (self.probes, *output.shape)
        if self.probe == "sampled":
            drawn = self.likelihood.sample_score(shape, self._generator).to(output)
            return drawn / math.sqrt(self.likelihood.fisher)
        return rademacher(shape, self._generator).to(output)

    def _update(
        self, grads: Sequence[Tensor], memory: _Memory, info: StepInfo
    ) -> tuple[Sequence[Tensor], float, _Memory]:
        """The averaged `δ`, and the length of `δ` itself."""
        if self.order == "before":
            grads, memory = self._averaged(grads, memory)
        update = self._preconditioned(grads, memory, info.damping)
        norm = math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in update))
        if not math.isfinite(norm):
            raise _RefusalError("update")
        if self.clip == "bound" and norm > info.bound:
            update = [part * (info.bound / norm) for part in update]
        if self.order == "before":
            return update, norm, memory
        averaged, memory = self._averaged(update, memory)
        return averaged, norm, memory

    def _preconditioned(self, grads: Sequence[Tensor], memory: _Memory, damping: float) -> list[Tensor]:
        """`(F + damping)⁻¹ grads`."""
        kappa = self.likelihood.fisher if self.information == "current" else 1.0
        inside, outside = grads[: len(self.layers)], grads[len(self.layers) :]
        update = [part / kappa for part in memory.curvature.apply(inside, damping / kappa)]
        if self.fallback == "identity":
            return [*update, *outside]
        return update + [grad / (kappa * d + damping) for grad, d in zip(outside, memory.diagonal, strict=True)]

    def _averaged(self, parts: Sequence[Tensor], memory: _Memory) -> tuple[Sequence[Tensor], _Memory]:
        average = _lerp(memory.average or parts, parts, self.average)
        return average, memory._replace(average=average)

    def _finished(self, update: Sequence[Tensor], memory: _Memory) -> tuple[list[Tensor], _Memory]:
        """The weights after the step, matrices of layers first."""
        weights = read_weights(self.layers, self.others)
        if self.finish == "sgd":
            return [w - self.rate * part for w, part in zip(weights, update, strict=True)], memory
        zeros = [torch.zeros_like(part) for part in update]
        first = _lerp(memory.first or zeros, update, 1 - BETA_FIRST)
        second = _lerp(memory.second or zeros, [part.square() for part in update], 1 - BETA_SECOND)
        unbiased = 1 - BETA_FIRST ** (self.steps + 1), 1 - BETA_SECOND ** (self.steps + 1)
        moved = [
            w * (1 - self.rate * self.decay) - self.rate * (f / unbiased[0]) / ((s / unbiased[1]).sqrt() + EPSILON)
            for w, f, s in zip(weights, first, second, strict=True)
        ]
        return moved, memory._replace(first=first, second=second)

    def state_dict(self) -> State:
        """Everything that is carried on except the model's weights, which its own `state_dict` has."""
        memory = self._memory
        return {
            "steps": self.steps,
            "refused": self.refused,
            "variance": self.likelihood.variance,
            "generator": self._generator.get_state(),
            "curvature": memory.curvature.state_dict(),
            "refresh": memory.refresh.state_dict(),
            **{name: {str(i): part.clone() for i, part in enumerate(getattr(memory, name))} for name in PARTS},
        }

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave; the model's weights are loaded on their own."""
        seed = _part(state, "generator", Tensor)  # has a device of its own
        state = on_device({**state, "generator": None}, next(self.model.parameters()).device)
        steps, refused = _part(state, "steps", int), _part(state, "refused", int)
        likelihood = self.likelihood.with_variance(_part(state, "variance", float))
        curvature, refresh = Curvature(self.average, self.rule), copy.copy(self.refresh)
        curvature.load_state_dict(_part(state, "curvature", dict))
        refresh.load_state_dict(_part(state, "refresh", dict))
        tensors = {}
        for name in PARTS:
            part = _part(state, name, dict)
            tensors[name] = tuple(_part(part, str(i), Tensor).clone() for i in range(len(part)))
        shapes = [torch.Size(layer.shape) for layer in self.layers] + [other.shape for other in self.others]
        for name in ("average", "first", "second"):
            if tensors[name] and [part.shape for part in tensors[name]] != shapes:
                raise StateError(f"{name!r} in the state does not fit the model; it was written for another model")
        self._generator.set_state(seed)
        self.steps, self.refused, self.likelihood = steps, refused, likelihood
        self._memory = _Memory(curvature, refresh, **tensors)


def _part(state: State, name: str, kind: type[T]) -> T:
    if not isinstance(part := state.get(name), kind):
        got = type(part).__name__
        raise StateError(f"{name!r} in the state is a {got}, expected a {kind.__name__}; it was not written by natsr")
    return part


def _weights(known: Tensor, weights: Tensor | None) -> Tensor:
    """The examples' weights, summing to one over those of which something is known."""
    counts = known.flatten(1).sum(dim=1, dtype=torch.float64)
    if weights is None:
        weights = counts
    if weights.shape != counts.shape or not bool((weights >= 0).all()):
        raise ShapeError(f"weights are {weights.tolist()}, expected {len(counts)} numbers, none below zero")
    weights = weights.to(counts) * (counts > 0)
    if not float(weights.sum()) > 0:
        raise OptionError("every example with a known target has weight 0; give one of them more, or do not step")
    return weights / weights.sum()


def _check_finite(what: str, parts: Sequence[Tensor]) -> None:
    if not all(bool(part.isfinite().all()) for part in parts):
        raise _RefusalError(what)


def _lerp(old: Sequence[Tensor], new: Sequence[Tensor], weight: float) -> tuple[Tensor, ...]:
    return tuple(torch.lerp(a, b, weight) for a, b in zip(old, new, strict=True))
