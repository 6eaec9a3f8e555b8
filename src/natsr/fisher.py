"""From what passes through a layer to its block of the Fisher information.

The format, defined once: a layer that is applied at `S` positions (a convolution, or a linear map on a sequence) sees
inputs `(B, S, I)`, with a column of ones last where it has a bias, and gives back gradients `(…, B, S, O)` of some
scalar by its outputs. A plain linear layer has `S = 1`.

`F = Σ_b w_b Σ_{s,s'} (a_s a_s'ᵀ) ⊗ (g_s g_s'ᵀ)` in expectation over the likelihood's own samples; K-FAC takes the two
factors to be independent and the positions to be uncorrelated ("expand"):
`A = Σ_b w_b mean_s a aᵀ`, `G = Σ_b w_b Σ_s E[g gᵀ]`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.kronecker import Kronecker
from natsr.taps import Recorder
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


def hadamard(shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """Random signs `(K, B, m)` whose `K` rows of an example are as good as orthogonal.

    They are rows of a Hadamard matrix, drawn without replacement, with the signs of its columns drawn for each example.
    `E[z zᵀ] = 1` as for independent signs, but no direction is looked at twice while another is left out.
    """
    count, examples, outputs = shape
    order = 1 << max(0, outputs - 1).bit_length()
    device = generator.device
    rows = torch.cat([torch.randperm(order, generator=generator, device=device) for _ in range(-(-count // order))])
    bits = rows[:count, None] & torch.arange(outputs, device=device)
    for shift in (32, 16, 8, 4, 2, 1):
        bits = bits ^ (bits >> shift)
    return rademacher((1, examples, outputs), generator) * (1.0 - 2.0 * (bits & 1))[:, None, :]


def one_hot(shape: torch.Size, like: Tensor, apart: bool) -> Tensor:
    """Probes `(K, B, *)` that estimate nothing: one output at a time, their mean outer product the identity.

    Args:
        shape: Of a batch of outputs, `(B, *)`.
        like: Gives type and device.
        apart: One example at a time too. A layer's output gradients keep the examples apart by themselves; the
            gradient of a parameter does not.
    """
    count = shape.numel() if apart else shape[1:].numel()
    eye = torch.eye(count, dtype=like.dtype, device=like.device) * math.sqrt(count)
    return eye.reshape(count, -1, *shape[1:]).expand(count, *shape)


class Estimate(NamedTuple):
    """The Fisher information of a network, as far as one batch shows it."""

    blocks: list[Kronecker]  # one for each layer
    diagonal: list[Tensor]  # one for each other parameter, shaped like it

    def scaled(self, information: float) -> Estimate:
        """The same for outputs of another Fisher information, `κ`."""
        blocks = [Kronecker(a, g * information) for a, g in self.blocks]
        return Estimate(blocks, [part * information for part in self.diagonal])


def estimate(
    recorder: Recorder, output: Tensor, probes: Tensor, weights: Tensor, others: Sequence[Tensor] = ()
) -> Estimate:
    """A block for each layer from a watched forward pass, for outputs of Fisher information 1; the last one is exact.

    Args:
        recorder: Has watched the pass.
        output: Its result, `(B, *)`.
        probes: `(K, B, *)`, with a mean outer product of one.
        weights: `(B,)`, summing to one.
        others: Parameters outside of layers, for which the diagonal is estimated.
    """
    spread = weights.reshape(-1, *[1] * (output.ndim - 1))
    taps, squares = recorder.taps(output, probes * spread.sqrt(), others)
    blocks = [block(tap, weights) for tap in taps]
    for index, values in recorder.outermost(output, spread.expand_as(output)).items():
        blocks[index] = Kronecker(blocks[index].a, torch.diag(values.sum(dim=(0, 1))))
    return Estimate(blocks, squares)
