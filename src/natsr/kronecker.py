"""Algebra of one Kronecker block: a layer's Fisher information as `A ⊗ G`. Knows no network.

A layer is a matrix `W` of shape `(I, O)`: inputs (the bias is an input that is always one) by outputs. With row-major
`vec`, its block of the Fisher information is `A ⊗ G` with `A` of shape `(I, I)` and `G` of shape `(O, O)`, or a single
number `g` for `G = g·1`, which is exact for the last layer and saves a matrix as wide as the forecast.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

#: `exact`: `(A ⊗ G + τ 1)⁻¹`; `pi`: `(A + π√τ 1)⁻¹ ⊗ (G + √τ/π 1)⁻¹`, the factored rule of Martens and Grosse (2015).
DampingRule = Literal["exact", "pi"]
_ROUNDING = 1e-6  # of a matrix in float32, relative to its trace


class Kronecker(NamedTuple):
    """One block. `g` has shape `(O, O)`, or `()` for a multiple of the identity."""

    a: Tensor
    g: Tensor

    def blend(self, new: Kronecker, weight: float) -> Kronecker:
        """The block `weight` of the way from this one to `new`; `weight=1` forgets the past."""
        return Kronecker(torch.lerp(self.a, new.a, weight), torch.lerp(self.g, new.g, weight))

    def dense(self, outputs: int) -> Tensor:
        """The whole block, `(I·O, I·O)`; for tests and small layers."""
        g = self.g if self.g.ndim else self.g * torch.eye(outputs, dtype=self.a.dtype, device=self.a.device)
        return torch.kron(self.a, g)

    def is_finite(self) -> bool:
        """Whether every number in it is one."""
        return bool(self.a.sum().isfinite()) and bool(self.g.sum().isfinite())

    def eigen(self) -> Eigen:
        """The block in its eigenbasis, where a new damping costs a division instead of an inversion."""
        basis_a, values_a = _eigh(self.a)
        basis_g, values_g = _eigh(self.g) if self.g.ndim else (None, self.g.reshape(1).clamp(min=0))
        return Eigen(basis_a, values_a, basis_g, values_g, _balance(float(values_a.mean() / values_g.mean())))

    def inverse(self, damping: float) -> Inverse:
        """The inverse under the factored damping rule, factor by factor; a tenth of the work of an eigenbasis."""
        mean_g = self.g.diagonal().mean() if self.g.ndim else self.g
        balance, root = _balance(float(self.a.diagonal().mean() / mean_g)), math.sqrt(damping)
        g = _inverse(self.g, root / balance) if self.g.ndim else 1 / (self.g + root / balance)
        return Inverse(_inverse(self.a, balance * root), g)


def _balance(ratio: float) -> float:
    """π, which balances the two factors' average eigenvalues; a factor that is zero or not finite gets no say."""
    return math.sqrt(ratio) if 0 < ratio < math.inf else 1.0


def _inverse(matrix: Tensor, shift: float) -> Tensor:
    """`(matrix + shift)⁻¹`; not finite if the matrix is not."""
    eye = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    lower, failed = torch.linalg.cholesky_ex(matrix + shift * eye)
    if int(failed):
        # Twice the digits, and what rounding may have made of the smallest eigenvalues on top of the damping.
        shift += _ROUNDING * float(matrix.trace())
        lower, failed = torch.linalg.cholesky_ex(matrix.double() + shift * eye.double())
    if int(failed):
        return torch.full_like(matrix, math.nan)
    return torch.cholesky_inverse(lower).to(matrix.dtype)


def _eigh(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Basis and eigenvalues, not below zero: rounding must not turn a flat direction into a descent uphill."""
    try:
        values, basis = torch.linalg.eigh(matrix)
    except RuntimeError:  # torch's LinAlgError is one, and is not exported
        # Ill-conditioned in float32 (an outlier's outer product next to ordinary ones): twice the digits settle it.
        values, basis = (part.to(matrix.dtype) for part in torch.linalg.eigh(matrix.double()))
    return basis.contiguous(), values.clamp(min=0)


class Inverse(NamedTuple):
    """A damped block, inverted: `A⁻¹`, and `G⁻¹` or the number that stands for it."""

    a: Tensor
    g: Tensor

    def solve(self, grad: Tensor) -> Tensor:
        """The inverse applied to `vec(grad)`, as a matrix `(I, O)`."""
        return self.a @ (grad @ self.g if self.g.ndim else grad * self.g)

    def solve_rows(self, inputs: Tensor, grads: Tensor) -> tuple[Tensor, Tensor]:
        """`X (R, I)` and `Y (R, O)` with `solve(inputsᵀ grads) = Xᵀ Y`: see `Eigen.solve_rows`."""
        return inputs @ self.a, grads @ self.g if self.g.ndim else grads * self.g


class Eigen(NamedTuple):
    """A block as bases and eigenvalues; `basis_g` is `None` where `G` is a multiple of the identity."""

    basis_a: Tensor
    values_a: Tensor
    basis_g: Tensor | None
    values_g: Tensor
    balance: float  # π of the factored damping rule

    def solve(self, grad: Tensor, damping: float, rule: DampingRule) -> Tensor:
        """`(block + damping)⁻¹ vec(grad)`, as a matrix `(I, O)`."""
        spectrum = self._spectrum(damping, rule)
        rotated = self.basis_a.T @ grad
        if self.basis_g is None:
            return self.basis_a @ rotated.div_(spectrum)
        return self.basis_a @ ((rotated @ self.basis_g).div_(spectrum) @ self.basis_g.T)

    def solve_rows(self, inputs: Tensor, grads: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """The factored rule on a gradient `inputsᵀ grads` of few rows, which stays a product of few rows.

        Args:
            inputs: `(R, I)`.
            grads: `(R, O)`.
            damping: `τ`.

        Returns:
            `X (R, I)` and `Y (R, O)` with `solve(inputsᵀ grads, damping, "pi") = Xᵀ Y`, for a fraction of the work
            where `R` is small.
        """
        damped_a, damped_g = self._damped(damping)
        x = (inputs @ self.basis_a).div_(damped_a) @ self.basis_a.T
        if self.basis_g is None:
            return x, grads / damped_g
        return x, (grads @ self.basis_g).div_(damped_g) @ self.basis_g.T

    def _damped(self, damping: float) -> tuple[Tensor, Tensor]:
        root = math.sqrt(damping)
        return self.values_a + self.balance * root, self.values_g + root / self.balance

    def _spectrum(self, damping: float, rule: DampingRule) -> Tensor:
        """Eigenvalues of the damped block, `(I, O)` or `(I, 1)`."""
        if rule == "exact":
            return (self.values_a[:, None] * self.values_g).add_(damping)
        damped_a, damped_g = self._damped(damping)
        return damped_a[:, None] * damped_g
