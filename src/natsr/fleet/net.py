"""Several networks of one shape, evaluated at once: every layer is one batched matrix product.

The network is `natsr.nets.tcn.ConeTCN` with a leading axis of learners, `N`. Each layer's matrix, the bias as its last
row, is a slice of the flat weights `(N, P)`; its inputs carry a column of ones for that row, so that forward, adjoint
and gradient are one product each. The inputs of the layers live in rooms that are allocated once for a batch size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from natsr.native import cuda
from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN, Conv, plain_kernels


class Room:
    """Where the inputs of every layer are put, for `n` learners and batches of `B`; pads and ones are set once."""

    def __init__(self, net: ConeTCN, n: int, B: int) -> None:
        like = net.weights
        width, top = net.layers[0].outputs, net.hidden
        self.acts: list[Tensor] = []  # (n, B, padded rows, c): GELU of what comes in, between rows of zeros
        self.inputs: list[Tensor] = []  # of each layer, (n, B·S, I), the last column ones

        def inputs(rows: int, layer: Layer) -> None:
            self.inputs.append(like.new_ones(n, B * rows, layer.inputs))

        layers = iter(net.layers)
        inputs(net.rows, next(layers))
        for index, (first, second) in enumerate(net.blocks):
            last = index == len(net.blocks) - 1
            for conv, channels in ((first, width), (second, top if last else width)):
                self.acts.append(like.new_zeros(n, B, conv.before + conv.src + conv.after, channels))
                inputs(conv.dst, next(layers))
            if last:
                inputs(second.dst, next(layers))
        inputs(1, next(layers))


class FleetTrace(NamedTuple):
    """A forward pass with what its adjoint needs; valid until the next one of the same batch size."""

    output: Tensor  # (n, B, m)
    inputs: list[Tensor]  # of each layer, (n, B·S, I), the last column ones
    befores: list[Tensor]  # what went into each GELU, (n, B, src, c)
    keep: Tensor | None  # (n, B, top), the dropout masks

    def of(self, chosen: Tensor, pairs: Tensor | None = None) -> FleetTrace:
        """What an adjoint of some learners, by number, needs, as a copy; the layers' inputs are not among it.

        Args:
            chosen: `(n,)`.
            pairs: Their examples, `(n, R)`, if not all of them as they come.
        """
        place = (chosen,) if pairs is None else (chosen[:, None], pairs)
        keep = None if self.keep is None else self.keep[place]
        return FleetTrace(self.output[place], [], [part[place] for part in self.befores], keep)

    def first(self, count: int) -> FleetTrace:
        """That of the first examples of every learner, as views."""
        B = self.output.shape[1]
        inputs = [part[:, : part.shape[1] // B * count] for part in self.inputs]
        keep = None if self.keep is None else self.keep[:, :count]
        return FleetTrace(self.output[:, :count], inputs, [part[:, :count] for part in self.befores], keep)


class FleetTCN:
    """Forward and adjoint passes of `N` networks over flat weights.

    Args:
        net: Gives the shape.
        weights: `(N, P)`; shared, not copied.
    """

    def __init__(self, net: ConeTCN, weights: Tensor) -> None:
        self.shape = net
        self.layers = net.layers
        self.weights = weights
        self._matrices = matrices(net.layers, weights)
        self._rooms: dict[int, Room] = {}

    def room(self, B: int) -> Room:
        """The room for batches of this size; those of the two sizes used last are kept."""
        room = self._rooms.pop(B, None)
        if room is None:
            room = Room(self.shape, len(self.weights), B)
            while len(self._rooms) > 1:
                self._rooms.pop(next(iter(self._rooms)))
        self._rooms[B] = room
        return room

    def trace(self, window: Tensor, keep: Tensor | None = None) -> FleetTrace:
        """Forward over windows `(N, B, L, D)`, learner by learner its own."""
        with plain_kernels():
            return self._trace(window, keep)

    def _trace(self, window: Tensor, keep: Tensor | None) -> FleetTrace:
        net, (N, B) = self.shape, window.shape[:2]
        room = self.room(B)
        matrix, inputs, acts = iter(self._matrices), iter(room.inputs), iter(room.acts)
        befores: list[Tensor] = []

        def through(rows: Tensor) -> Tensor:
            return torch.bmm(rows, next(matrix)).view(N, B, rows.shape[1] // B, -1)

        rows = next(inputs)
        rows.view(N, B, net.rows, -1)[..., :-1].copy_(window[:, :, -net.rows :])
        x = through(rows)
        for index, (first, second) in enumerate(net.blocks):
            befores.append(x)
            mid = through(_patched(x, next(acts), next(inputs), first))
            befores.append(mid)
            y = through(_patched(mid, next(acts), next(inputs), second))
            skip = _every(x, second)
            if index == len(net.blocks) - 1:
                rows = next(inputs)
                rows.view(N, B, second.dst, -1)[..., :-1].copy_(skip)
                y.view(N, -1, y.shape[-1]).baddbmm_(rows, next(matrix))
            else:
                y.add_(skip)
            x = y
        top = next(inputs)
        torch.mul(x.view(N, B, -1), 1 if keep is None else keep, out=top[..., :-1])
        return FleetTrace(torch.bmm(top, next(matrix)), room.inputs, befores, keep)

    def pulled(self, trace: FleetTrace, grads: Tensor, chosen: Tensor | None = None) -> list[Tensor]:
        """Back-propagate `grads` `(n, K, B, m)`: the gradient at each layer's outputs, `(n, K·B·S, O)`, in order.

        Args:
            trace: Of all learners; or, with `chosen`, of those.
            grads: `K` gradients by the outputs.
            chosen: Numbers of the learners, if not all.
        """
        weights = self._matrices if chosen is None else matrices(self.layers, self.weights[chosen])
        with plain_kernels():
            return self._pulled(trace, grads, list(weights))

    def _pulled(self, trace: FleetTrace, grads: Tensor, weights: list[Tensor]) -> list[Tensor]:
        net, (n, K, B, _) = self.shape, grads.shape
        befores, found = list(trace.befores), list[Tensor]()

        def back(g: Tensor) -> Tensor:
            """Note the gradient `(n, K, B, S, O)` at a layer's outputs and pull it through the layer's matrix."""
            flat = g.reshape(n, -1, g.shape[-1])
            found.append(flat)
            return torch.bmm(flat, weights.pop()[:, :-1].transpose(1, 2)).view(n, K, B, g.shape[3], -1)

        g = back(grads[:, :, :, None, :])
        if trace.keep is not None:
            g = g * trace.keep[:, None, :, None, :]
        for index, (first, second) in reversed(list(enumerate(net.blocks))):
            skip = back(g) if index == len(net.blocks) - 1 else g
            g = _unpatched(back(g), befores.pop(), second)
            g = _unpatched(back(g), befores.pop(), first)
            _every(g, second).add_(skip)
        found.append(g.reshape(n, -1, g.shape[-1]))
        return found[::-1]

    def gradient(self, trace: FleetTrace, grad: Tensor) -> Tensor:
        """The flat gradients `(N, P)` of `Σ grad · output` for `grad` `(N, B, m)`."""
        flat = torch.empty_like(self.weights)
        outs = matrices(self.layers, flat)
        for out, inputs, g in zip(outs, trace.inputs, self.pulled(trace, grad[:, None]), strict=True):
            torch.bmm(inputs.transpose(1, 2), g, out=out)
        return flat


def matrices(layers: tuple[Layer, ...], flat: Tensor) -> list[Tensor]:
    """Each layer's slice of flat weights `(n, P)`, `(n, I, O)`."""
    return [layer.view(flat) for layer in layers]


def _patched(x: Tensor, act: Tensor, patches: Tensor, conv: Conv) -> Tensor:
    """GELU of `(n, B, src, c)`, and what each row that the convolution gives sees of it, `(n, B·dst, taps·c + 1)`."""
    n, B, rows, c = act.shape
    if x.is_cuda and cuda.gather(x, patches, _shape(conv, c)):
        return patches
    torch.ops.aten.gelu.out(x, out=act[:, :, conv.before : conv.before + conv.src])
    seen = act.as_strided(
        (n, B, conv.dst, conv.taps * c),
        (B * rows * c, rows * c, conv.stride * c, 1),
        (conv.start + conv.before) * c,
    )
    patches.view(n, B, conv.dst, -1)[..., :-1].copy_(seen)
    return patches


def _unpatched(g: Tensor, before: Tensor, conv: Conv) -> Tensor:
    """The adjoint of `_patched`: `(n, K, B, dst, taps·c)` back to `(n, K, B, src, c)`."""
    n, K, B, _, width = g.shape
    c, reach = width // conv.taps, conv.stride * (conv.dst - 1) + 1
    if g.is_cuda and (pulled := cuda.scatter(g, before, _shape(conv, c))) is not None:
        return pulled
    if conv.taps > 1 or conv.stride > 1 or conv.src != conv.dst:
        padded = g.new_zeros(n, K, B, conv.before + conv.src + conv.after, c)
        for tap in range(conv.taps):
            start = conv.start + conv.before + tap
            padded[:, :, :, start : start + reach : conv.stride] += g[..., tap * c : (tap + 1) * c]
        g = padded[:, :, :, conv.before : conv.before + conv.src]
    found: Tensor = torch.ops.aten.gelu_backward(g, before[:, None].expand_as(g))
    return found


def _shape(conv: Conv, channels: int) -> tuple[int, ...]:
    """The convolution as `natsr.native.cuda` wants it."""
    return conv.src, conv.dst, conv.taps, conv.stride, conv.start, channels


def _every(x: Tensor, conv: Conv) -> Tensor:
    """The rows of `(…, rows, c)` that the block's output has: every `stride`-th, ending at the last."""
    return x[..., x.shape[-2] - 1 - conv.stride * (conv.dst - 1) :: conv.stride, :]
