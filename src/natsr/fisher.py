"""From what passes through a layer to its block of the Fisher information.

The format, defined once: a layer that is applied at `S` positions (a convolution, or a linear map on a sequence) sees
inputs `(B, S, I)`, with a column of ones last where it has a bias, and gives back gradients `(…, B, S, O)` of some
scalar by its outputs. A plain linear layer has `S = 1`.

`F = Σ_b w_b Σ_{s,s'} (a_s a_s'ᵀ) ⊗ (g_s g_s'ᵀ)` in expectation over the likelihood's own samples; K-FAC takes the two
factors to be independent and the positions to be uncorrelated ("expand"):
`A = Σ_b w_b mean_s a aᵀ`, `G = Σ_b w_b Σ_s E[g gᵀ]`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from natsr.kronecker import Kronecker
from natsr.taps import Tap as Tap


def input_factor(inputs: Tensor, weights: Tensor) -> Tensor:
    """`A`, `(I, I)`.

    Args:
        inputs: `(B, S, I)`.
        weights: `(B,)`, summing to one.
    """
    rows = inputs * (weights / inputs.shape[1]).sqrt()[:, None, None]
    rows = rows.reshape(-1, inputs.shape[-1])
    return rows.T @ rows


def gradient_factor(grads: Tensor) -> Tensor:
    """`G`, `(O, O)`: the mean over probes of the sum over examples and positions.

    The examples' weights must be in the gradients already, as their square roots.
    """
    rows = grads.reshape(-1, grads.shape[-1])
    return (rows.T @ rows) / grads.shape[0]


def block(tap: Tap, weights: Tensor) -> Kronecker:
    """The layer's block from weighted probes."""
    return Kronecker(input_factor(tap.inputs, weights), gradient_factor(tap.grads))


def rademacher(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Random signs: probes `z` with `E[z zᵀ] = 1` and the least variance among independent ones."""
    return torch.randint(0, 2, shape, generator=generator, device=generator.device).mul_(2).sub_(1).float()
