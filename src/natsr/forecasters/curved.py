"""The natural-gradient step in C: the same algorithm as `natsr.forecasters.natural`, on buffers that are made once.

Factors and inverses have two places each. A step works on those that are not in use, and only a step that is taken
makes them the ones in use; one that is refused leaves everything as it was.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.forecasters.natural import Natural, NaturalInfo, WeightedLoss, draws
from natsr.kronecker import Kronecker
from natsr.native.calls import Move, at, counted, square
from natsr.nets.base import Layer
from natsr.nets.native import NativeTCN, NativeTrace
from natsr.nets.tcn import FEW, ConeTrace
from natsr.precondition import Curvature


class Matrices:
    """Two symmetric matrices for each layer, `A` and `G` or their inverses, where C finds them."""

    def __init__(self, layers: tuple[Layer, ...]) -> None:
        pairs = [
            Kronecker(square(layer.inputs), square(layer.outputs) if layer is not layers[-1] else torch.zeros(()))
            for layer in layers
        ]
        self.blocks = tuple(pairs)
        self.a = (ctypes.c_void_p * len(pairs))(*(at(pair.a) for pair in pairs))
        self.g = (ctypes.c_void_p * len(pairs))(*(at(pair.g) for pair in pairs))
        self.damping = math.nan  # of inverses: what they were made for

    @property
    def head(self) -> float:
        """The head's `G`, or its inverse: a number."""
        return float(self.blocks[-1].g)


def weighted(probes: Tensor, weights: Tensor, information: float) -> tuple[Tensor, Tensor]:
    """Probes `(K, B, m)` as rows that C pulls back, and the example of each; those that are zero are left out.

    Args:
        probes: As they were drawn.
        weights: Of the examples, `(B,)`.
        information: What an example of weight one gets, in each probe.
    """
    rows = (probes * (weights * information).sqrt()[:, None]).flatten(0, 1)
    asked = (rows != 0).any(1).nonzero()[:, 0]
    return rows[asked], (asked % len(weights)).int()


class Curved(NamedTuple):
    """A whole step that has not been taken."""

    after: Natural[ConeTrace]
    info: NaturalInfo
    scale: float  # of what C has solved for
    factors: Matrices
    inverses: Matrices


class NativeCurvature:
    """What a network's natural-gradient steps in C work on."""

    def __init__(self, net: NativeTCN) -> None:
        self.net = net
        self._factors = (Matrices(net.layers), Matrices(net.layers))
        self._inverses = (Matrices(net.layers), Matrices(net.layers))
        self._made_of: Matrices | None = None  # the factors that the inverses in use belong to

    @staticmethod
    def fits(natural: Natural[ConeTrace]) -> bool:
        """Whether this reading of the algorithm is the one that is compiled."""
        options = natural.options
        return options.order == "after" and options.damped == "drift" and natural.curvature.rule == "pi"

    def proposed(
        self,
        natural: Natural[ConeTrace],
        trace: NativeTrace,
        pull: Tensor,
        batch: WeightedLoss,
        generator: torch.Generator,
    ) -> Curved | None:
        """As `Natural.proposed`: what the step would be, or nothing if anything on the way is not finite."""
        options, after = natural.options, natural.copy()
        due = after.trigger(batch.loss)
        after.damping = options.law(batch.likelihood.variance)
        kappa = batch.likelihood.fisher if options.information == "current" else 1.0
        factors: Matrices | None = self._used(natural) if natural.curvature.known else None
        if due or factors is None:
            factors = self._estimated(natural, trace, batch, generator, factors)
            if factors is None:
                return None
            after.curvature = Curvature(natural.curvature.weight, natural.curvature.rule)
            after.curvature.blocks = factors.blocks
        inverses = self._inverted(natural, after, factors, after.damping / kappa)
        context = self.net.pulled(trace, pull)
        if inverses is None or context is None:
            return None
        solved = context.library.curve_solve(context.address, inverses.a, inverses.g, inverses.head)
        norm = math.sqrt(solved) / kappa if solved >= 0 else math.nan
        if not norm < math.inf:
            return None
        bound = batch.bound(self.net.task.outputs, after.damping)
        length = options.clip * bound / norm if options.clip and norm > options.clip * bound else 1.0
        return Curved(after, NaturalInfo(after.damping, norm, bound, due), length / kappa, factors, inverses)

    def take(self, step: Curved, move: Move) -> None:
        """Average the update, and move the weights against the average; both are changed in place."""
        after, context, average = step.after, self.net.context(), step.after.options.average
        if after.smoothed is None:
            after.smoothed, average = torch.zeros_like(self.net.weights), 1.0
        mean, square = (None, None) if move.moments is None else move.moments[:2]
        context.library.curve_take(
            context.address,
            counted(move),
            step.scale,
            average,
            at(after.smoothed),
            self.net.place(),
            at(mean),
            at(square),
        )
        if step.factors is not self._factors[0]:
            self._factors = (step.factors, self._factors[0])
        if step.inverses is not self._inverses[0]:
            self._inverses = (step.inverses, self._inverses[0])
        self._made_of = step.factors

    def _used(self, natural: Natural[ConeTrace]) -> Matrices:
        """The factors in use; taken in first if they come from a saved state."""
        used = self._factors[0]
        if natural.curvature.blocks is not used.blocks:
            for mine, given in zip(used.blocks, natural.curvature.blocks, strict=True):
                mine.a.copy_(given.a)
                mine.g.copy_(given.g)
            natural.curvature.blocks = used.blocks
            self._made_of = None
        return used

    def _estimated(
        self,
        natural: Natural[ConeTrace],
        trace: NativeTrace,
        batch: WeightedLoss,
        generator: torch.Generator,
        old: Matrices | None,
    ) -> Matrices | None:
        """New factors, averaged with the old ones, in the place that is not in use."""
        options, outputs, context = natural.options, self.net.task.outputs, self.net.context()
        new, weights, place = self._factors[1], batch.weights.contiguous(), self.net.place()
        kappa = 1.0 if options.information == "current" else batch.likelihood.fisher
        self.net.current(trace)
        known = 0
        if options.closed and options.probes and outputs <= FEW * self.net.hidden:
            known = context.library.curve_known(context.address, place, at(weights), kappa, new.g)
        for turn, probes in enumerate(draws(options, weights, outputs, batch.likelihood, generator)):
            rows, owner = weighted(probes, weights, kappa / options.probes if options.probes else kappa)
            if not context.library.curve_probe(
                context.address, place, at(rows), at(owner), len(rows), known, turn > 0, new.g
            ):
                raise MemoryError(f"no memory for the gradients of {len(rows)} probes")
        share = natural.curvature.weight
        ok = context.library.curve_blend(
            context.address, at(weights), share, old and old.a, old and old.g, new.a, new.g
        )
        before = old.head if old else kappa
        new.blocks[-1].g.fill_(before + share * (kappa - before))
        return new if ok else None

    def _inverted(
        self, natural: Natural[ConeTrace], after: Natural[ConeTrace], factors: Matrices, damping: float
    ) -> Matrices | None:
        """Inverses for this step: those in use, or new ones in the place that is not."""
        used, spare = self._inverses
        if factors is not self._factors[0] or natural.has_drifted(damping):
            after.made = damping
        elif self._made_of is factors and used.damping == natural.made:
            return used
        context, head = self.net.context(), ctypes.c_double()
        ok = context.library.curve_invert(
            context.address, factors.a, factors.g, factors.head, after.made, spare.a, spare.g, ctypes.byref(head)
        )
        spare.damping = after.made
        spare.blocks[-1].g.fill_(head.value)
        return spare if ok else None
