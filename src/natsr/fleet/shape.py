"""What learners must share to be stepped together, and what each may have of its own.

Of one shape are networks of the same layers, for the same task, whose steps are put together from the same parts.
Rates, degrees of freedom, damping, averages, shares and seeds are each learner's own: they become tensors `(N,)`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from natsr.forecasters.base import Forecaster
from natsr.forecasters.finish import AdamW, Sgd
from natsr.forecasters.frame import Frame
from natsr.forecasters.natural import Damped, NaturalOptions, Probe
from natsr.forecasters.neural import NeuralForecaster
from natsr.forecasters.verdict import Learning
from natsr.forecasters.warm import WarmUp
from natsr.kronecker import DampingRule
from natsr.likelihoods import DAMPING_LAWS, DampingLaw, Gaussian, StudentT
from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.types import OptionError, Task

Learner = NeuralForecaster[ConeTrace]
DECAY = 0.01  # of AdamW, where there is one
LawName = Literal["paper", "box", "fixed"]


@dataclass(frozen=True)
class Shape:
    """What learners of one fleet have in common; equal shapes can be stepped together."""

    task: Task
    layers: tuple[Layer, ...]
    dtype: torch.dtype
    device: torch.device
    frame: Frame
    student: bool
    adaptive: bool  # AdamW, else plain steps
    memory: int  # examples, 0 for none
    learning: Learning  # with what is each learner's own left at the defaults
    distil: bool
    natural: bool
    law: LawName
    rule: DampingRule
    damped: Damped
    probes: int
    probe: Probe
    allotted: bool
    closed: bool


def shape_of(forecaster: Forecaster) -> Shape | str:
    """The forecaster's shape; or the reason why it can only be stepped alone."""
    if not isinstance(forecaster, NeuralForecaster) or not isinstance(forecaster.net, ConeTCN):
        return f"{type(forecaster).__name__} has no batched step; only networks on the cone have one"
    learning, natural = forecaster.learning, forecaster.natural
    options = NaturalOptions() if natural is None else natural.options
    law = _law_name(options.law)
    reason = _odd(forecaster.likelihood, forecaster.finish, learning, options)
    if reason is not None or law is None:
        return reason or "its damping law is none of " + ", ".join(DAMPING_LAWS)
    return Shape(
        task=forecaster.task,
        layers=forecaster.net.layers,
        dtype=forecaster.net.weights.dtype,
        device=forecaster.net.weights.device,
        frame=forecaster.frame,
        student=isinstance(forecaster.likelihood, StudentT),
        adaptive=isinstance(forecaster.finish, AdamW),
        memory=0 if forecaster.replay is None else forecaster.replay.capacity,
        learning=_common(learning),
        distil=learning.distil > 0,
        natural=natural is not None,
        law=law,
        rule="pi" if natural is None else natural.curvature.rule,
        damped=options.damped,
        probes=options.probes,
        probe=options.probe,
        allotted=options.allotted,
        closed=options.closed,
    )


def _odd(likelihood: object, finish: object, learning: Learning, options: NaturalOptions) -> str | None:
    """What of a method the batched step does not do."""
    if type(likelihood) not in (Gaussian, StudentT) or type(finish) not in (AdamW, Sgd):
        return f"{type(likelihood).__name__} and {type(finish).__name__} have no batched form"
    if isinstance(finish, AdamW) and finish.decay != DECAY:
        return f"its weights decay by {finish.decay}, not {DECAY}"
    if learning.dropout > 0:
        return "it drops units while learning online"
    if learning.scale_reading != "variance":
        return f"it reads the scale as {learning.scale_reading!r}"
    if options.order != "after" or options.information != "current" or options.probe == "sampled":
        return (
            f"its reading of the algorithm (order {options.order}, information {options.information}, probe "
            f"{options.probe}) has no batched form"
        )
    return None if options.probes else "its curvature is estimated from every output"


def _common(learning: Learning) -> Learning:
    plain = Learning()
    own = {name: getattr(plain, name) for name in ("share", "distil", "scale_rate", "scale_floor")}
    warm = replace(learning.warm, epochs=plain.warm.epochs, rate=plain.warm.rate)
    return replace(learning, **own, warm=warm)


#: From `τ(1)` to `β`, for each law.
_BETA = {"paper": lambda tau: tau / 0.55, "box": lambda tau: 1 / tau - 1, "fixed": lambda tau: tau}


def _law_name(law: DampingLaw) -> LawName | None:
    """Which of the laws it is, told from its values: a law is a function, and does not say."""
    names: tuple[LawName, ...] = ("paper", "box", "fixed")
    for name in names:
        twin = DAMPING_LAWS[name](_BETA[name](law(1.0)))
        if all(math.isclose(law(v), twin(v), rel_tol=1e-9) for v in (0.1, 1.0, 7.0)):
            return name
    return None


def net_of(learner: Learner) -> ConeTCN:
    """Its network, which `shape_of` has found to be one on the cone."""
    assert isinstance(learner.net, ConeTCN)
    return learner.net


def alike(shape: Shape, other: Shape | str) -> bool:
    """Whether learners of these shapes can be stepped together: only the last word of a step may differ."""
    return isinstance(other, Shape) and replace(shape, adaptive=other.adaptive) == other


def learners(forecasters: Sequence[Forecaster]) -> tuple[Shape, list[Learner]]:
    """The forecasters as learners of one shape.

    Raises:
        OptionError: They are not of one shape, or one of them has no batched step.
    """
    if not forecasters:
        raise OptionError("there are no learners, expected at least one")
    shapes = [shape_of(forecaster) for forecaster in forecasters]
    found: list[Learner] = []
    for number, (shape, forecaster) in enumerate(zip(shapes, forecasters, strict=True)):
        if isinstance(shape, str):
            raise OptionError(f"learner {number} cannot be stepped with others: {shape}; use natsr.fleet.Apart")
        if not alike(shape, shapes[0]):
            raise OptionError(
                f"learner {number} has another shape than the first: {_differences(shapes[0], shape)}; make a fleet "
                "for each shape, or use natsr.fleet.Apart"
            )
        assert isinstance(forecaster, NeuralForecaster)
        found.append(forecaster)
    assert isinstance(shapes[0], Shape)
    return shapes[0], found


def _differences(first: Shape | str, other: Shape) -> str:
    names = [name for name in other.__dataclass_fields__ if getattr(first, name, None) != getattr(other, name)]
    return ", ".join(names)


@dataclass(frozen=True)
class Own:
    """What each learner has of its own, `(N,)` in float64."""

    rate: Tensor
    share: Tensor
    distil: Tensor
    scale_rate: Tensor
    scale_floor: Tensor
    dof: Tensor
    beta: Tensor
    average: Tensor
    drift: Tensor  # share by which τ/κ may move before inverses are made again
    blend: Tensor  # weight of a new estimate of the curvature
    clip: Tensor  # infinite for none
    worst: Tensor
    recent: Tensor
    every: Tensor
    warm: tuple[WarmUp, ...]

    @classmethod
    def of(cls, shape: Shape, found: Sequence[Learner]) -> Own:
        """Read them off the forecasters."""

        def numbers(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=shape.device)

        naturals = [learner.natural for learner in found]
        options = [NaturalOptions() if natural is None else natural.options for natural in naturals]
        learning = [learner.learning for learner in found]
        finishes = [learner.finish for learner in found]
        return cls(
            rate=numbers([finish.rate for finish in finishes if isinstance(finish, AdamW | Sgd)]),
            share=numbers([one.share for one in learning]),
            distil=numbers([one.distil for one in learning]),
            scale_rate=numbers([one.scale_rate for one in learning]),
            scale_floor=numbers([one.scale_floor for one in learning]),
            dof=numbers([getattr(learner.likelihood, "dof", math.inf) for learner in found]),
            beta=numbers([_BETA[shape.law](one.law(1.0)) for one in options]),
            average=numbers([one.average for one in options]),
            drift=numbers([one.drift for one in options]),
            blend=numbers([1.0 if natural is None else natural.curvature.weight for natural in naturals]),
            clip=numbers([one.clip or math.inf for one in options]),
            worst=numbers([0.0 if natural is None else natural.trigger.quantile for natural in naturals]),
            recent=numbers([0.0 if natural is None else natural.trigger.weight for natural in naturals]),
            every=numbers([0.0 if natural is None else natural.trigger.every for natural in naturals]),
            warm=tuple(one.warm for one in learning),
        )

    def damping(self, law: LawName, variance: Tensor) -> Tensor:
        """`τ` of each learner, `(N,)`; as `natsr.likelihoods` has it for one."""
        if law == "paper":
            return 0.9 * self.beta / (1 + variance) + 0.1 * self.beta / variance
        return 1 / (self.beta + variance) if law == "box" else self.beta
