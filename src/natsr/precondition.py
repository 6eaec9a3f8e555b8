"""Where curvature lives between steps: averaged blocks, their eigenbases or inverses, and when to look again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from natsr.kronecker import DampingRule, Eigen, Inverse, Kronecker
from natsr.types import State, StateError


class Curvature:
    """The running Fisher information of a network, a Kronecker block for each layer.

    Args:
        weight: Weight of a new estimate in the exponential average, `α_ema`; 1 forgets the past.
        rule: How damping enters, see `natsr.kronecker.DampingRule`.
    """

    def __init__(self, weight: float = 0.555, rule: DampingRule = "exact") -> None:
        self.weight = weight
        self.rule: DampingRule = rule
        self.blocks: tuple[Kronecker, ...] = ()
        self._eigen: tuple[Eigen, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there has been an estimate yet."""
        return bool(self.blocks)

    def blended(self, new: Sequence[Kronecker]) -> tuple[Kronecker, ...]:
        """What the blocks would be with `new` taken in; changes nothing."""
        if not self.blocks:
            return tuple(new)
        return tuple(old.blend(fresh, self.weight) for old, fresh in zip(self.blocks, new, strict=True))

    def update(self, new: Sequence[Kronecker]) -> bool:
        """Take in a new estimate; refuse it, and change nothing, if it holds anything that is not finite.

        Returns:
            Whether it was taken in.
        """
        blocks = self.blended(new)
        if not all(block.is_finite() for block in blocks):
            return False
        self.blocks, self._eigen = blocks, ()
        return True

    def updated(self, new: Sequence[Kronecker]) -> Curvature | None:
        """This with a new estimate taken in, or nothing if it holds anything that is not finite; changes nothing."""
        after = Curvature(self.weight, self.rule)
        after.blocks = self.blocks
        return after if after.update(new) else None

    def apply(self, grads: Sequence[Tensor], damping: float) -> list[Tensor]:
        """`(F + damping)⁻¹ grad`, layer by layer; pure. Without an estimate the gradient comes back as it is."""
        if not self.known:
            return list(grads)
        return [eigen.solve(grad, damping, self.rule) for eigen, grad in zip(self.eigen(), grads, strict=True)]

    def eigen(self) -> tuple[Eigen, ...]:
        """Every block in its eigenbasis, found when first asked for."""
        if not self._eigen:
            self._eigen = tuple(block.eigen() for block in self.blocks)
        return self._eigen

    def inverse(self, damping: float) -> tuple[Inverse, ...]:
        """Every block inverted under the factored damping rule."""
        return tuple(block.inverse(damping) for block in self.blocks)

    def state_dict(self) -> State:
        """Blocks only: the eigenbases follow from them."""
        parts = ((f"{i}.{name}", part) for i, block in enumerate(self.blocks) for name, part in block._asdict().items())
        return {name: part.clone() for name, part in parts}

    def load_state_dict(self, state: State) -> None:
        """Go on from saved blocks."""
        blocks = []
        for i in range(len(state) // 2):
            a, g = state.get(f"{i}.a"), state.get(f"{i}.g")
            if not (isinstance(a, Tensor) and isinstance(g, Tensor)):
                raise StateError(f"curvature block {i} holds no tensors; the state was not written by natsr")
            blocks.append(Kronecker(a.clone(), g.clone()))
        self.blocks, self._eigen = tuple(blocks), ()


@dataclass
class WorstLosses:
    """When to estimate the curvature again: the loss is among the worst of late, or it has been too long.

    Losses are taken to be normal around two exponential averages. The average is compared first and updated after, so
    a jump is measured against the time before it.

    Args:
        quantile: How many standard deviations above the mean count as the worst (2.326: the worst 1 %).
        weight: Weight of a new loss in the averages of mean and variance.
        every: Steps after which the curvature is estimated in any case.
    """

    quantile: float = 2.326
    weight: float = 0.01
    every: int = 100
    mean: float = math.nan
    variance: float = 0.0
    since: int = 0

    def __call__(self, loss: float) -> bool:
        """Whether this loss calls for a new estimate; takes it into the averages."""
        if math.isnan(self.mean):
            # The first loss is all that is known; a spread of its own size keeps the second from looking rare.
            self.mean, self.variance, self.since = loss, loss * loss, 0
            return True
        deviation = loss - self.mean
        due = deviation > self.quantile * math.sqrt(self.variance) or self.since + 1 >= self.every
        self.mean += self.weight * deviation
        self.variance += self.weight * (deviation * deviation - self.variance)
        self.since = 0 if due else self.since + 1
        return due

    def state_dict(self) -> State:
        """The averages and the count."""
        return {"mean": self.mean, "variance": self.variance, "since": self.since}

    def load_state_dict(self, state: State) -> None:
        """Go on from saved averages."""
        mean, variance, since = (state.get(name) for name in ("mean", "variance", "since"))
        if not (isinstance(mean, float) and isinstance(variance, float) and isinstance(since, int)):
            raise StateError("the refresh rule's state holds no numbers; the state was not written by natsr")
        self.mean, self.variance, self.since = mean, variance, since
