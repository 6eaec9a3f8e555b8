"""Damped Kronecker blocks of several learners, ready to be inverted: by explicit inverses, or in their eigenbases.

What `natsr.kronecker` has for one block, for a stack `(n, I, I)` of each layer. The head's `G` is a number, `(n,)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from natsr.fleet.control import Branches
from natsr.kronecker import DampingRule, Kronecker
from natsr.native import cuda
from natsr.nets.base import Layer


class Solvers(Protocol):
    """State of all learners from which `(F + damping)⁻¹` is applied."""

    def parts(self) -> list[Tensor]:
        """Every tensor of it, learners first."""

    def made(self, a: Sequence[Tensor], g: Sequence[Tensor], damping: Tensor) -> list[Tensor]:
        """Rows for `parts` from the blocks of some learners; `damping` is `τ/κ`, `(n,)`."""

    def solve(self, index: int, inputs: Tensor, grads: Tensor, damping: Tensor, out: Tensor) -> None:
        """A layer's inverse applied to `inputsᵀ grads` of every learner, into `out` `(N, I, O)`."""


def _eyes(sizes: Sequence[int], n: int, like: Tensor) -> list[Tensor]:
    return [torch.eye(size, dtype=like.dtype, device=like.device).repeat(n, 1, 1) for size in sizes]


def blank(layers: Sequence[Layer], n: int, like: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Identities in the place of the blocks' factors, to be written over."""
    outputs = _eyes([layer.outputs for layer in layers[:-1]], n, like)
    return _eyes([layer.inputs for layer in layers], n, like), [*outputs, like.new_ones(n)]


def is_thin(rows: int, layer: Layer) -> bool:
    """Whether preconditioning the two thin factors of a gradient takes fewer multiplications than the gradient."""
    i, o = layer.inputs, layer.outputs
    return rows * (i * i + o * o) < i * o * (i + o)


class Inverses:
    """Explicit inverses under the factored damping rule, made for one damping and kept while it hardly moves."""

    def __init__(self, layers: Sequence[Layer], n: int, like: Tensor) -> None:
        self._layers = layers
        self.a, self.g = blank(layers, n, like)
        self.branches = Branches()

    def parts(self) -> list[Tensor]:
        return [*self.a, *self.g]

    def made(self, a: Sequence[Tensor], g: Sequence[Tensor], damping: Tensor) -> list[Tensor]:
        root, shifts_a, shifts_g = damping.sqrt(), [], []
        for one, other in zip(a, g, strict=True):
            balance = balanced(_mean_diagonal(one) / _mean_diagonal(other))
            shifts_a.append(balance * root)
            shifts_g.append(root / balance)
        inverses = by_size([*a, *g[:-1]], [*shifts_a, *shifts_g[:-1]], _inverse, self.branches)
        return [*inverses, (1 / (g[-1].double() + shifts_g[-1])).to(g[-1])]

    def solve(self, index: int, inputs: Tensor, grads: Tensor, damping: Tensor, out: Tensor) -> None:
        del damping  # it is in the inverses
        a, g = self.a[index], self.g[index]
        if is_thin(grads.shape[1], self._layers[index]):
            other = torch.bmm(grads, g) if g.ndim > 1 else grads * g[:, None, None]
            torch.bmm(torch.bmm(inputs, a).transpose(1, 2), other, out=out)
            return
        whole = torch.bmm(inputs.transpose(1, 2), grads)
        torch.bmm(a, torch.bmm(whole, g) if g.ndim > 1 else whole.mul_(g[:, None, None]), out=out)


class Eigens:
    """Eigenbases, in which any damping costs a division."""

    def __init__(self, layers: Sequence[Layer], n: int, like: Tensor, rule: DampingRule) -> None:
        self._layers, self._rule = layers, rule
        self.basis_a = _eyes([layer.inputs for layer in layers], n, like)
        self.basis_g = _eyes([layer.outputs for layer in layers[:-1]], n, like)
        self.values_a = [like.new_ones(n, layer.inputs) for layer in layers]
        self.values_g = [*(like.new_ones(n, layer.outputs) for layer in layers[:-1]), like.new_ones(n, 1)]
        self.balance = [like.new_ones(n) for _ in layers]

    def parts(self) -> list[Tensor]:
        return [*self.basis_a, *self.basis_g, *self.values_a, *self.values_g, *self.balance]

    def made(self, a: Sequence[Tensor], g: Sequence[Tensor], damping: Tensor) -> list[Tensor]:
        del damping  # it comes with every step
        pairs = by_size([*a, *g[:-1]], [], _eigh, Branches())
        bases, values = pairs[: len(a) + len(g) - 1], pairs[len(a) + len(g) - 1 :]
        values_a, values_g = values[: len(a)], [*values[len(a) :], g[-1][:, None].clamp(min=0)]
        balance = [balanced(va.mean(1) / vg.mean(1)).to(va) for va, vg in zip(values_a, values_g, strict=True)]
        return [*bases, *values_a, *values_g, *balance]

    def solve(self, index: int, inputs: Tensor, grads: Tensor, damping: Tensor, out: Tensor) -> None:
        basis_a, basis_g = self.basis_a[index], self.basis_g[index] if index < len(self.basis_g) else None
        values_a, values_g, balance = self.values_a[index], self.values_g[index], self.balance[index][:, None]
        root = damping.sqrt().to(out)[:, None]
        damped_a, damped_g = values_a + balance * root, values_g + root / balance
        if self._rule == "pi" and is_thin(grads.shape[1], self._layers[index]):
            x = torch.bmm(torch.bmm(inputs, basis_a).div_(damped_a[:, None]), basis_a.transpose(1, 2))
            y = grads / damped_g[:, None]
            if basis_g is not None:
                y = torch.bmm(torch.bmm(grads, basis_g).div_(damped_g[:, None]), basis_g.transpose(1, 2))
            torch.bmm(x.transpose(1, 2), y, out=out)
            return
        if self._rule == "pi":
            spectrum = damped_a[:, :, None] * damped_g[:, None, :]
        else:
            spectrum = values_a[:, :, None] * values_g[:, None, :] + damping.to(out)[:, None, None]
        rotated = torch.bmm(basis_a.transpose(1, 2), torch.bmm(inputs.transpose(1, 2), grads))
        if basis_g is None:
            rotated.div_(spectrum)
        else:
            rotated = torch.bmm(torch.bmm(rotated, basis_g).div_(spectrum), basis_g.transpose(1, 2))
        torch.bmm(basis_a, rotated, out=out)


def balanced(ratio: Tensor) -> Tensor:
    """π, which balances the two factors' average eigenvalues; a factor that is zero or not finite gets no say."""
    ratio = ratio.double()
    return torch.where((ratio > 0) & (ratio < torch.inf), ratio.sqrt(), torch.ones_like(ratio))


def _mean_diagonal(stack: Tensor) -> Tensor:
    return stack.diagonal(dim1=1, dim2=2).mean(1) if stack.ndim > 1 else stack


def by_size(
    stacks: Sequence[Tensor],
    shifts: Sequence[Tensor],
    solve: Callable[[Tensor, Tensor | None], Sequence[Tensor]],
    branches: Branches,
) -> list[Tensor]:
    """`solve` of every stack `(n, I, I)`, those of one size in one call; the results of one kind after the other."""
    sizes: dict[int, list[int]] = {}
    for index, stack in enumerate(stacks):
        sizes.setdefault(stack.shape[-1], []).append(index)

    def job(indices: list[int]) -> Callable[[], Sequence[Tensor]]:
        def solved() -> Sequence[Tensor]:
            shift = torch.cat([shifts[index] for index in indices]) if shifts else None
            return solve(torch.cat([stacks[index] for index in indices]), shift)

        return solved

    groups = sorted(sizes.values(), key=lambda indices: -stacks[indices[0]].shape[-1])  # the longest begin first
    found: dict[tuple[int, int], Tensor] = {}
    for indices, results in zip(groups, branches.run([job(indices) for indices in groups]), strict=True):
        for kind, result in enumerate(results):
            for index, part in zip(indices, result.chunk(len(indices)), strict=True):
                found[kind, index] = part
    return [found[place] for place in sorted(found)]


def _inverse(stack: Tensor, shift: Tensor | None) -> tuple[Tensor]:
    """`(matrix + shift)⁻¹`; not finite if rounding has left the sum without one (on a CPU: even in float64)."""
    assert shift is not None
    if stack.is_cuda:  # the library's inverse is a loop over matrices there
        return (inverted(stack, shift),)
    eye = torch.eye(stack.shape[-1], dtype=stack.dtype, device=stack.device)
    shifted = stack + shift.to(stack)[:, None, None] * eye
    lower, failed = torch.linalg.cholesky_ex(shifted)
    inverse = torch.cholesky_inverse(_without(failed, lower))
    if bool(failed.any()):
        worse = failed.nonzero()[:, 0]
        lower, failed = torch.linalg.cholesky_ex(shifted[worse].double())
        again = torch.cholesky_inverse(_without(failed, lower)).to(stack)
        inverse[worse] = torch.where((failed > 0)[:, None, None], torch.nan, again)
    return (inverse,)


def inverted(stack: Tensor, shift: Tensor) -> Tensor:
    """`(matrix + shift)⁻¹` of a stack, without a look by the host; NaN where there is none."""
    out = torch.empty_like(stack)
    if _in_halves(stack, shift.to(stack), out, cuda.invert, cuda.WIDEST):
        return out
    shifted = stack.clone()
    shifted.diagonal(dim1=1, dim2=2).add_(shift.to(stack)[:, None])
    lower, failed = torch.linalg.cholesky_ex(shifted)
    eye = torch.eye(stack.shape[-1], dtype=stack.dtype, device=stack.device).expand_as(lower)
    half = torch.linalg.solve_triangular(lower, eye, upper=False)
    inverse = torch.bmm(half.transpose(1, 2), half)
    inverse.diagonal(dim1=1, dim2=2).masked_fill_((failed > 0)[:, None], torch.nan)
    return inverse


def _in_halves(
    stack: Tensor, shift: Tensor, out: Tensor, invert: Callable[[Tensor, Tensor, Tensor], bool], widest: int
) -> bool:
    """Invert by what can do so up to some size: larger ones by their upper left half and what is left of the other."""
    n = stack.shape[-1]
    if n <= widest:
        return invert(stack, shift, out)
    half = n // 2
    upper, mixed, lower = stack[:, :half, :half], stack[:, half:, :half], stack[:, half:, half:]
    first, second = out[:, :half, :half], out[:, half:, half:]
    if not _in_halves(upper, shift, first, invert, widest):
        return False
    across = torch.bmm(mixed, first)
    left = torch.baddbmm(lower, across, mixed.transpose(1, 2), alpha=-1)
    _in_halves(left, shift, second, invert, widest)
    back = torch.bmm(second, across)
    first.baddbmm_(across.transpose(1, 2), back)
    torch.neg(back, out=out[:, half:, :half])
    torch.neg(back.transpose(1, 2), out=out[:, :half, half:])
    return True


def _without(failed: Tensor, lower: Tensor) -> Tensor:
    """The factors with identities in the place of those that do not exist, which would end the whole batch."""
    eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
    return torch.where((failed > 0)[:, None, None], eye, lower)


def _eigh(stack: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor]:
    """Basis and eigenvalues, not below zero."""
    try:
        values, basis = torch.linalg.eigh(stack)
    except RuntimeError:  # one of them is ill-conditioned: one by one, in double where it must be
        each = [Kronecker(matrix, matrix.new_ones(())).eigen() for matrix in stack]
        values, basis = torch.stack([one.values_a for one in each]), torch.stack([one.basis_a for one in each])
    return basis.contiguous(), values.clamp(min=0)
