"""What a learner needs of a network: flat weights, a traced forward pass, and its adjoint.

Every layer is a matrix `(I, O)`, with the bias as its last row where there is one, and all of them are views into one
vector. An optimiser then steps on one tensor, and curvature sees every layer in the same format (`natsr.fisher`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from natsr.fisher import Tap


class Traced(Protocol):
    """A forward pass with what its adjoint needs."""

    @property
    def output(self) -> Tensor:
        """`(B, m)`."""


T = TypeVar("T", bound=Traced)


class Layer(NamedTuple):
    """Where a layer's matrix lies in the flat weights."""

    name: str
    start: int
    inputs: int  # I, the bias included
    outputs: int  # O
    fan_in: int  # inputs that its initial spread is computed from; dead taps count, as they do in a convolution

    def view(self, flat: Tensor) -> Tensor:
        """The layer's part of a flat vector, `(I, O)`; of several, `(N, P)`, with that axis."""
        stop = self.start + self.inputs * self.outputs
        if flat.dim() == 1:
            return flat[self.start : stop].view(self.inputs, self.outputs)
        return flat[:, self.start : stop].view(-1, self.inputs, self.outputs)


class Network(Protocol[T]):
    """A function of a window with explicit derivatives; `T` is its trace."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Where each layer lies."""

    weights: Tensor  # (P,)

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer, for dropout masks."""

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, R, D)`, `R >= L`; keeps nothing."""

    def trace(self, window: Tensor, keep: Tensor | None = None) -> T:
        """Forward, keeping what the adjoint needs; `keep` masks (and scales) the last hidden layer: dropout."""

    def taps(self, trace: T, grads: Tensor) -> list[Tap]:
        """Back-propagate `grads` `(K, B, m)`: inputs (without the bias' ones) and gradients of each layer."""

    def gradient(self, trace: T, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`."""


def stack(shapes: Sequence[tuple[str, int, int, int]]) -> tuple[Layer, ...]:
    """Lay matrices `(name, I, O, fan_in)` one after the other."""
    layers, start = [], 0
    for name, inputs, outputs, fan_in in shapes:
        layers.append(Layer(name, start, inputs, outputs, fan_in))
        start += inputs * outputs
    return tuple(layers)


def size(layers: Sequence[Layer]) -> int:
    """Numbers in the flat vector."""
    last = layers[-1]
    return last.start + last.inputs * last.outputs


def initial_weights(layers: Sequence[Layer], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Uniform within `±1/sqrt(fan_in)`, weights and biases alike: PyTorch's default for Linear and Conv1d."""
    flat = torch.empty(size(layers), dtype=dtype)
    for layer in layers:
        reach = layer.fan_in**-0.5
        layer.view(flat).uniform_(-reach, reach, generator=generator)
    return flat


class Affine(NamedTuple):
    """A layer's parts as views into the flat weights, made once; of several networks, with their axis first."""

    matrix: Tensor  # (I-1, O)
    bias: Tensor  # (O,)
    transposed: Tensor  # (O, I-1)

    def forward(self, x: Tensor) -> Tensor:
        """`x W + b` for `(B, I-1)`."""
        if x.dim() == 2:
            return torch.addmm(self.bias, x, self.matrix)
        return torch.baddbmm(self.bias.unsqueeze(-2), x, self.matrix)

    def backward(self, inputs: Tensor, grad: Tensor, by: Affine) -> Tensor:
        """The gradient by the inputs from the one by the outputs, `(B, O)`; `by` takes those by `W` and `b`."""
        product = torch.mm if grad.dim() == 2 else torch.bmm
        product(inputs.mT, grad, out=by.matrix)
        torch.sum(grad, -2, out=by.bias)
        return product(grad, self.transposed)


def maps(layers: Sequence[Layer], flat: Tensor) -> list[Affine]:
    """Every layer's parts in a flat vector `(P,)`, or in several, `(N, P)`."""
    matrices = [layer.view(flat) for layer in layers]
    return [Affine(matrix[..., :-1, :], matrix[..., -1, :], matrix[..., :-1, :].mT) for matrix in matrices]
