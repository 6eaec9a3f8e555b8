"""Where the convolutions of a network lie in its flat weights: those of one shape beside each other form a `Run`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN
from natsr.nets.variables import VariablesTCN, taps_of


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
        """Their part of a flat vector, `(n, taps·c + 1, o)`, the biases last; of several, `(N, P)`, with that axis."""
        return split(flat[..., self.start : self.stop], self.number, -1, self.outputs)

    def taps_of(self, flat: Tensor) -> Tensor:
        """The same without the biases, `(n, taps, c, o)`."""
        matrices = self.view(flat)[..., :-1, :]
        return matrices.view(*matrices.shape[:-2], self.taps, self.inputs, self.outputs)


def split(flat: Tensor, *sizes: int) -> Tensor:
    """The last axis as several, without a copy."""
    return flat.view(*flat.shape[:-1], *sizes)


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
        taps = [taps_of(dilation, net.task.channels) for dilation in net.dilations for _ in range(2)]
        return [(layer, 0 if n == 3 else 1, n) for layer, n in zip(layers, taps, strict=True)]
    convs = [conv for block in net.blocks for conv in block]
    return [(layer, conv.first + 1, conv.taps) for layer, conv in zip(layers, convs, strict=True)]
