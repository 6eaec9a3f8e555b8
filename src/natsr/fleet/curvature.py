"""The curvature of several learners: Kronecker blocks, their eigenbases, when to look again, and the damped solve.

What `natsr.precondition` and `natsr.forecasters.natural` do for one learner, with a leading axis `N`. A refresh is for
the learners that are due: gathered, computed as one batch, scattered. All else is the same program at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.fleet.net import FleetTCN, FleetTrace, matrices
from natsr.fleet.shape import Own, Shape
from natsr.kronecker import Kronecker
from natsr.nets.base import Layer
from natsr.types import State


class Factors(NamedTuple):
    """Blocks and eigenbases of `n` learners, a tensor for each layer; the head's `G` is a number, `(n,)`."""

    a: list[Tensor]  # (n, I, I)
    g: list[Tensor]  # (n, O, O)
    basis_a: list[Tensor]
    values_a: list[Tensor]  # (n, I)
    basis_g: list[Tensor]  # of all layers but the head
    values_g: list[Tensor]  # (n, O); the head's is (n, 1)
    balance: list[Tensor]  # (n,)

    def parts(self) -> list[Tensor]:
        """Every tensor, in one order."""
        return [part for field in self for part in field]

    def rows(self, chosen: Tensor) -> list[Tensor]:
        """Those of some learners, as copies."""
        return [part[chosen] for part in self.parts()]

    def put(self, chosen: Tensor, rows: Sequence[Tensor]) -> None:
        """Make them the state of these learners."""
        for part, row in zip(self.parts(), rows, strict=True):
            part[chosen] = row


def blank(layers: Sequence[Layer], n: int, like: Tensor) -> Factors:
    """Identities, to be written over."""

    def eyes(sizes: Sequence[int]) -> list[Tensor]:
        return [torch.eye(size, dtype=like.dtype, device=like.device).repeat(n, 1, 1) for size in sizes]

    inputs, outputs = [layer.inputs for layer in layers], [layer.outputs for layer in layers[:-1]]
    return Factors(
        eyes(inputs),
        [*eyes(outputs), like.new_ones(n)],
        eyes(inputs),
        [like.new_ones(n, size) for size in inputs],
        eyes(outputs),
        [*(like.new_ones(n, size) for size in outputs), like.new_ones(n, 1)],
        [like.new_ones(n) for _ in inputs],
    )


def decomposed(a: list[Tensor], g: list[Tensor]) -> Factors:
    """The blocks with their eigenbases; they must be finite."""
    pairs = _eigh([*a, *g[:-1]])
    bases_a, bases_g = pairs[: len(a)], pairs[len(a) :]
    values_a = [values for _, values in bases_a]
    values_g = [*(values for _, values in bases_g), g[-1][:, None].clamp(min=0)]
    balance = []
    for va, vg in zip(values_a, values_g, strict=True):
        ratio = va.mean(1) / vg.mean(1)
        balance.append(torch.where((ratio > 0) & (ratio < torch.inf), ratio.sqrt(), torch.ones_like(ratio)))
    return Factors(a, g, [basis for basis, _ in bases_a], values_a, [basis for basis, _ in bases_g], values_g, balance)


def _eigh(stacks: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Basis and eigenvalues, not below zero, of each stack of matrices; those of one size in one call."""
    sizes: dict[int, list[int]] = {}
    for index, stack in enumerate(stacks):
        sizes.setdefault(stack.shape[-1], []).append(index)
    found: dict[int, tuple[Tensor, Tensor]] = {}
    for indices in sizes.values():
        together = torch.cat([stacks[index] for index in indices])
        try:
            values, basis = torch.linalg.eigh(together)
        except RuntimeError:  # one of them is ill-conditioned: one by one, in double where it must be
            each = [Kronecker(matrix, matrix.new_ones(())).eigen() for matrix in together]
            values, basis = torch.stack([one.values_a for one in each]), torch.stack([one.basis_a for one in each])
        parts = zip(basis.contiguous().chunk(len(indices)), values.clamp(min=0).chunk(len(indices)), strict=True)
        found |= dict(zip(indices, parts, strict=True))
    return [found[index] for index in range(len(stacks))]


class Curvatures:
    """The running Fisher information of `N` learners, and the rule that says when it is estimated again."""

    def __init__(self, shape: Shape, own: Own, like: Tensor) -> None:
        n = len(like)
        self.shape, self.own = shape, own
        self.factors = blank(shape.layers, n, like)
        self.known = torch.zeros(n, dtype=torch.bool, device=like.device)
        self.smoothed = torch.zeros_like(like)  # (N, P), average of the updates
        self.has = torch.zeros_like(self.known)  # whether there is an average yet
        self.damping = torch.ones_like(own.beta)  # τ of the last refresh
        self.mean = torch.full_like(own.beta, torch.nan)  # of recent losses
        self.variance = torch.zeros_like(own.beta)
        self.since = torch.zeros_like(own.beta)

    def trigger(self, loss: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Who is due, `(N,)`, and what the averages would be with these losses taken in; changes nothing."""
        own, first, deviation = self.own, self.mean.isnan(), loss - self.mean
        due = first | (deviation > own.worst * self.variance.sqrt()) | (self.since + 1 >= own.every)
        mean = torch.where(first, loss, self.mean + own.recent * deviation)
        spread = self.variance + own.recent * (deviation * deviation - self.variance)
        variance = torch.where(first, loss * loss, spread)
        return due, (mean, variance, torch.where(due, 0.0, self.since + 1))

    def refreshed(
        self, net: FleetTCN, trace: FleetTrace, weights: Tensor, chosen: Tensor, probes: Tensor
    ) -> tuple[Tensor, Factors | None]:
        """New blocks for some learners; changes nothing.

        Args:
            net: The networks.
            trace: Their forward pass over the batch.
            weights: Of the examples, `(N, B)`, each learner's summing to one.
            chosen: Numbers of the learners, `(n,)`.
            probes: Their random signs, `(n, K, B, m)`; zero where there is no example.

        Returns:
            Which of them have a finite estimate, `(n,)`; and the factors of those.
        """
        part, spread = trace.of(chosen), weights[chosen]
        B = spread.shape[1]
        pulled = net.pulled(part, probes * spread.sqrt()[:, None, :, None], chosen)
        a, g = [], []
        for inputs, grads in zip(part.inputs, pulled, strict=True):
            roots = (spread / (inputs.shape[1] // B)).sqrt().repeat_interleave(inputs.shape[1] // B, 1)
            rows = inputs * roots[:, :, None]
            a.append(torch.bmm(rows.transpose(1, 2), rows))
            g.append(torch.bmm(grads.transpose(1, 2), grads) / probes.shape[1])
        g[-1] = torch.ones_like(g[-1][:, 0, 0])  # the head's G is κ times the identity, and κ is put in by the solve
        old, blend = self.factors, torch.where(self.known, self.own.blend, 1.0)[chosen].to(spread)
        a, g = (
            [_lerp(was[chosen], new, blend) for was, new in zip(*pair, strict=True)]
            for pair in ((old.a, a), (old.g, g))
        )
        sums = torch.stack([matrix.flatten(1).sum(1) if matrix.ndim > 1 else matrix for matrix in (*a, *g)])
        finite = sums.isfinite().all(0)
        if not bool(finite.any()):
            return finite, None
        return finite, decomposed([matrix[finite] for matrix in a], [matrix[finite] for matrix in g])

    def solved(self, trace: FleetTrace, pulled: list[Tensor], damping: Tensor) -> Tensor:
        """`(F + damping)⁻¹` applied to every learner's gradient, flat `(N, P)`; `damping` is `τ/κ`, `(N,)`."""
        delta = torch.empty_like(self.smoothed)
        factors, root = self.factors, damping.sqrt().to(delta)[:, None]
        for index, (layer, out) in enumerate(zip(self.shape.layers, matrices(self.shape.layers, delta), strict=True)):
            inputs, grads = trace.inputs[index], pulled[index]
            basis_a, basis_g = (
                factors.basis_a[index],
                (factors.basis_g[index] if index < len(factors.basis_g) else None),
            )
            balance = factors.balance[index][:, None]
            damped_a, damped_g = factors.values_a[index] + balance * root, factors.values_g[index] + root / balance
            if self.shape.rule == "pi" and _is_thin(grads.shape[1], layer):
                x = torch.bmm(torch.bmm(inputs, basis_a).div_(damped_a[:, None]), basis_a.transpose(1, 2))
                if basis_g is None:
                    y = grads / damped_g[:, None]
                else:
                    y = torch.bmm(torch.bmm(grads, basis_g).div_(damped_g[:, None]), basis_g.transpose(1, 2))
                torch.bmm(x.transpose(1, 2), y, out=out)
                continue
            if self.shape.rule == "pi":
                spectrum = damped_a[:, :, None] * damped_g[:, None, :]
            else:
                values = factors.values_a[index][:, :, None] * factors.values_g[index][:, None, :]
                spectrum = values + damping.to(delta)[:, None, None]
            rotated = torch.bmm(basis_a.transpose(1, 2), torch.bmm(inputs.transpose(1, 2), grads))
            if basis_g is None:
                rotated.div_(spectrum)
            else:
                rotated = torch.bmm(torch.bmm(rotated, basis_g).div_(spectrum), basis_g.transpose(1, 2))
            torch.bmm(basis_a, rotated, out=out)
        return delta

    def state_dict(self, number: int) -> State:
        """One learner's curvature, refresh rule, damping and average, as `Natural` would write it."""
        blocks: State = {}
        if bool(self.known[number]):
            for index, (a, g) in enumerate(zip(self.factors.a, self.factors.g, strict=True)):
                blocks |= {f"{index}.a": a[number].clone(), f"{index}.g": g[number].clone()}
        trigger: State = {
            "mean": float(self.mean[number]),
            "variance": float(self.variance[number]),
            "since": int(self.since[number]),
        }
        smoothed = self.smoothed[number].clone() if bool(self.has[number]) else None
        return {
            "curvature": blocks,
            "trigger": trigger,
            "damping": float(self.damping[number]),
            "smoothed": smoothed,
        }

    def load(self, number: int, state: State) -> None:
        """Take over what `Natural` wrote."""
        blocks, trigger, smoothed = state["curvature"], state["trigger"], state["smoothed"]
        assert isinstance(blocks, dict) and isinstance(trigger, dict)
        if blocks:
            sides = [
                [
                    part[None].to(self.smoothed)
                    for i in range(len(self.shape.layers))
                    if isinstance(part := blocks[f"{i}.{side}"], Tensor)
                ]
                for side in "ag"
            ]
            self.factors.put(torch.tensor([number]), decomposed(*sides).parts())
        self.known[number] = bool(blocks)
        self.has[number] = isinstance(smoothed, Tensor)
        if isinstance(smoothed, Tensor):
            self.smoothed[number] = smoothed
        mean, variance, since, damping = (*(trigger[name] for name in ("mean", "variance", "since")), state["damping"])
        for part, value in ((self.mean, mean), (self.variance, variance), (self.since, since), (self.damping, damping)):
            assert isinstance(value, float | int)
            part[number] = value


def _lerp(old: Tensor, new: Tensor, weight: Tensor) -> Tensor:
    return torch.lerp(old, new, weight.reshape(-1, *[1] * (old.ndim - 1)))


def _is_thin(rows: int, layer: Layer) -> bool:
    """Whether preconditioning the two thin factors of a gradient takes fewer multiplications than the gradient."""
    i, o = layer.inputs, layer.outputs
    return rows * (2 * i * i + 2 * o * o + i * o) < 2 * i * o * (i + o)
