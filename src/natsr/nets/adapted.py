"""Networks whose convolutions carry coefficients: effective weights are products, and the chain rule goes through them.

A calibrated convolution computes `(conv(x; W·w) + bias·b) · f`. All three coefficients can be taken into the weights,
so that the network itself is any one of this package, on its cone, and only the *effective* weights and the way back
from their gradient are new. Layers of one shape that lie beside each other in the flat weights form a `Run` and are
handled at once.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from natsr.nets.base import Layer, Traced
from natsr.nets.tcn import ConeTCN
from natsr.nets.variables import VariablesTCN
from natsr.types import StateError

T = TypeVar("T", bound=Traced)


class Body(Protocol[T]):
    """A network with convolutions in residual blocks, over flat weights."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Where each layer lies."""

    weights: Tensor

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer, for dropout masks."""

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)`."""

    def trace(self, window: Tensor, keep: Tensor | None = None) -> T:
        """Forward, keeping what the adjoint needs."""

    def gradient(self, trace: T, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output`."""


class Run(NamedTuple):
    """Convolutions of one shape, one after the other in the flat weights."""

    start: int
    number: int  # n
    first: int  # the first live tap, of 0, 1, 2
    taps: int
    inputs: int  # c
    outputs: int  # o

    @property
    def stop(self) -> int:
        """Where the next layer begins."""
        return self.start + self.number * (self.taps * self.inputs + 1) * self.outputs

    def view(self, flat: Tensor) -> Tensor:
        """Their part of a flat vector, `(n, taps·c + 1, o)`, the biases last."""
        return flat[self.start : self.stop].view(self.number, -1, self.outputs)

    def taps_of(self, flat: Tensor) -> Tensor:
        """The same without the biases, `(n, taps, c, o)`."""
        return self.view(flat)[:, :-1].view(self.number, self.taps, self.inputs, self.outputs)


class Part(NamedTuple):
    """The weights of a run and their factors in a flat vector, as views."""

    taps: Tensor  # (n, taps, c, o)
    pairs: Tensor  # `w`, (n, c, o)
    outputs: Tensor  # `f`, (n, 1, o)


def runs(net: ConeTCN | VariablesTCN) -> tuple[Run, ...]:
    """The convolutions of a network, those of one shape together."""
    found: list[Run] = []
    for layer, first, taps in _convolutions(net):
        one = Run(layer.start, 1, first, taps, (layer.inputs - 1) // taps, layer.outputs)
        last = found[-1] if found else None
        if last is not None and last[2:] == one[2:] and last.stop == one.start:
            found[-1] = last._replace(number=last.number + 1)
        else:
            found.append(one)
    return tuple(found)


def _convolutions(net: ConeTCN | VariablesTCN) -> list[tuple[Layer, int, int]]:
    """Each convolution with its first live tap and how many there are."""
    layers = [layer for layer in net.layers if ".conv" in layer.name]
    if isinstance(net, VariablesTCN):
        taps = [net.taps_of(dilation) for dilation in net.dilations for _ in range(2)]
        return [(layer, 0 if n == 3 else 1, n) for layer, n in zip(layers, taps, strict=True)]
    convs = [conv for block in net.blocks for conv in block]
    return [(layer, conv.first + 1, conv.taps) for layer, conv in zip(layers, convs, strict=True)]


class Scaled(Generic[T]):
    """A network whose convolutions have a learned factor for each pair of channels and each output, as OneNet's have.

    The effective weights of a convolution are `W[tap, c, o] · w[c, o] · (1 + f[o])`, with `w` and `f` one at first. Its
    bias is `bias · b`, both zero at first: each is the other's gradient, so that both stay zero for ever, and they are
    left out (docs/decisions/0011).

    Args:
        body: The network; from then on its weights are the effective ones.
        convolutions: Where its convolutions are, from `runs`.
    """

    def __init__(self, body: Body[T], convolutions: tuple[Run, ...]) -> None:
        self.body = body
        self.runs = convolutions
        for run in self.runs:
            run.view(body.weights)[:, -1].zero_()
        extra = sum(run.number * (run.inputs + 1) * run.outputs for run in self.runs)
        self.weights = torch.cat([body.weights, torch.ones(extra).to(body.weights)])
        ends = [0, *(end for run in self.runs for end in (run.start, run.stop)), len(body.weights)]
        self._others = [slice(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]  # what is no convolution
        # Memory of the size of the weights is costly to get and to touch, and so are views: both are kept.
        self._flat = torch.zeros_like(self.weights)
        self._mine, self._grads = self._parts(self.weights), self._parts(self._flat)
        self._scales = [torch.empty_like(part.pairs) for part in self._mine]
        scratch = self.weights.new_empty(max(part.taps.numel() for part in self._mine))
        self._products = [scratch[: part.taps.numel()].view(part.taps.shape) for part in self._mine]
        self.settle()

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer."""
        return self.body.hidden

    def _parts(self, flat: Tensor) -> list[Part]:
        """Where the runs lie in a flat vector."""
        found, start = [], len(self.body.weights)
        for run in self.runs:
            both = flat[start : start + run.number * (run.inputs + 1) * run.outputs]
            both = both.view(run.number, run.inputs + 1, run.outputs)
            found.append(Part(run.taps_of(flat), both[:, :-1], both[:, -1:]))
            start += both.numel()
        return found

    def settle(self) -> None:
        """Compute the effective weights again; call it whenever `weights` has been changed."""
        effective = self.body.weights
        for part in self._others:
            effective[part] = self.weights[part]
        for run, mine, scale in zip(self.runs, self._mine, self._scales, strict=True):
            torch.mul(mine.pairs, mine.outputs + 1, out=scale)
            torch.mul(mine.taps, scale[:, None], out=run.taps_of(effective))

    def pulled(self, effective: Tensor) -> Tensor:
        """The gradient by `weights` from the one by the effective weights; it stands until the next call."""
        for part in self._others:
            self._flat[part] = effective[part]
        for run, mine, by, scale, product in zip(
            self.runs, self._mine, self._grads, self._scales, self._products, strict=True
        ):
            grads = run.taps_of(effective)
            torch.mul(grads, mine.taps, out=product)
            products = product[:, 0] if run.taps == 1 else product.sum(1)
            torch.mul(products, mine.outputs + 1, out=by.pairs)
            torch.sum(products.mul_(mine.pairs), 1, keepdim=True, out=by.outputs)
            torch.mul(grads, scale[:, None], out=by.taps)
        return self._flat


def fitting(name: str, part: object, like: Tensor) -> Tensor:
    """A tensor of a state, if it can stand for `like`."""
    if isinstance(part, Tensor) and (part.shape, part.dtype) == (like.shape, like.dtype):
        return part
    got = f"{part.dtype} of shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"{part!r}"
    raise StateError(
        f"the state holds {name} {got}, expected {like.dtype} of shape {tuple(like.shape)}; load it into a forecaster "
        "for the same task and options"
    )
