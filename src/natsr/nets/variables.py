"""A network that convolves over the variables: each series is a token, and what it says is its own window.

OneNet's second branch. The last `L` values of a series become `width` numbers by one linear map that all series share;
the residual blocks of the TCN (GELU, convolution of 3, GELU, convolution of 3, dilation `2^i`, same padding, and one
more block to `top` channels with a 1×1 projection beside it) then run along the *columns*, in the order in which they
stand; and a linear head gives each series its `H` values. Known features of a row are not read.

Every column is read, so there is no cone. But among `C` columns a convolution of dilation `C` or more never meets a
neighbour: only its middle tap is kept, which changes no output and no gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, pad

from natsr.nets.base import Affine, Layer, initial_weights, maps, stack
from natsr.nets.tcn import plain_kernels
from natsr.types import OptionError, Task

AT_ONCE = 4096  # series that are forecast at once


class VariablesTrace(NamedTuple):
    """A forward pass with what its adjoint needs."""

    output: Tensor  # (B, m)
    rows: Tensor  # inputs of the first layer, (B·C, L)
    blocks: tuple[tuple[Tensor, Tensor, Tensor, Tensor], ...]  # before and after each GELU, of both convolutions
    skip: Tensor  # inputs of the projection, (B·C, width)
    top: Tensor  # inputs of the head, (B·C, top)
    keep: Tensor | None  # the dropout mask on them


class VariablesTCN:
    """The network with explicit forward and adjoint passes over flat weights.

    Args:
        task: Window, horizon and channels.
        generator: Draws the initial weights.
        width: Channels of the blocks.
        depth: Blocks before the last one.
        top: Channels of the last block.
        dtype: float32, or float64 for tests.
    """

    def __init__(
        self,
        task: Task,
        generator: torch.Generator,
        *,
        width: int = 64,
        depth: int = 10,
        top: int = 320,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if min(width, top) < 1 or depth < 0:
            raise OptionError(f"width {width}, depth {depth}, top {top}: expected positive sizes")
        self.task = task
        self.hidden = task.channels * top
        self.dilations = tuple(2**i for i in range(depth + 1))
        shapes = [("input", task.window + 1, width, task.window)]
        for i, dilation in enumerate(self.dilations):
            taps, out = self.taps_of(dilation), top if i == depth else width
            shapes.append((f"block{i}.conv1", taps * width + 1, out, 3 * width))
            shapes.append((f"block{i}.conv2", taps * out + 1, out, 3 * out))
        shapes.append((f"block{depth}.projection", width + 1, top, width))
        shapes.append(("head", top + 1, task.horizon, top))
        self.layers: tuple[Layer, ...] = stack(shapes)
        self.weights = initial_weights(self.layers, generator, dtype)
        self._maps = maps(self.layers, self.weights)
        self._grads: list[Affine] | None = None
        self._flat = self.weights

    def taps_of(self, dilation: int) -> int:
        """Taps that ever meet a column: all three, or the middle one."""
        return 3 if dilation < self.task.channels else 1

    def to(self, device: torch.device) -> VariablesTCN:
        """Move the weights."""
        self.weights = self.weights.to(device)
        self._maps, self._grads = maps(self.layers, self.weights), None
        return self

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`; a few at a time where there are many columns, to save memory."""
        few = max(1, AT_ONCE // self.task.channels)
        parts = [self.trace(part).output for part in torch.split(window, few)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def trace(self, window: Tensor, keep: Tensor | None = None) -> VariablesTrace:
        """Forward, keeping the inputs of each layer and of each GELU; `keep` `(B, hidden)` masks the head's inputs."""
        B, C = len(window), self.task.channels
        affine = iter(self._maps)
        rows = window[:, -self.task.window :, :C].transpose(1, 2).reshape(B * C, -1)
        with plain_kernels():
            x = _affine(rows, next(affine))
            blocks, skip = [], x
            for dilation in self.dilations:
                skip = x
                patches1 = patches(gelu(x), C, dilation)
                mid = _affine(patches1, next(affine))
                patches2 = patches(gelu(mid), C, dilation)
                y = _affine(patches2, next(affine))
                blocks.append((x, patches1, mid, patches2))
                x = y.add_(x) if dilation != self.dilations[-1] else y.add_(_affine(skip, next(affine)))
            top = x if keep is None else x * keep.view(x.shape)
            out = _affine(top, next(affine)).view(B, C, -1).transpose(1, 2).reshape(B, -1)
        return VariablesTrace(out, rows, tuple(blocks), skip, top, keep)

    def gradient(self, trace: VariablesTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`; it stands until the next call."""
        C = self.task.channels
        if self._grads is None:
            self._flat = torch.empty_like(self.weights)
            self._grads = maps(self.layers, self._flat)
        remaining = list(zip(self._grads, self._maps, strict=True))

        def back(inputs: Tensor, g: Tensor) -> Tensor:
            """Note the last remaining layer's gradient, and pull `g` through its matrix."""
            by, affine = remaining.pop()
            torch.mm(inputs.T, g, out=by.matrix)
            torch.sum(g, 0, out=by.bias)
            return torch.mm(g, affine.transposed)

        with plain_kernels():
            g = grad.view(len(grad), -1, C).transpose(1, 2).reshape(len(grad) * C, -1)
            g = back(trace.top, g)
            if trace.keep is not None:
                g = g * trace.keep.view(g.shape)
            skip = back(trace.skip, g)
            for dilation, (before1, patches1, before2, patches2) in zip(
                reversed(self.dilations), reversed(trace.blocks), strict=True
            ):
                g = torch.ops.aten.gelu_backward(unpatched(back(patches2, g), C, dilation), before2)
                g = torch.ops.aten.gelu_backward(unpatched(back(patches1, g), C, dilation), before1)
                skip = g = g.add_(skip)
            back(trace.rows, g)
        return self._flat


def _affine(x: Tensor, layer: Affine) -> Tensor:
    return torch.addmm(layer.bias, x, layer.matrix)


def patches(x: Tensor, columns: int, dilation: int) -> Tensor:
    """What each column sees of `(B·C, c)`: its neighbour before, itself and the one after, `(B·C, 3c)`; or itself."""
    if dilation >= columns:
        return x
    c = x.shape[1]
    padded = pad(x.view(-1, columns, c), (0, 0, dilation, dilation))
    B, n, _ = padded.shape
    return padded.as_strided((B, columns, 3, c), (n * c, c, dilation * c, 1)).reshape(B * columns, 3 * c)


def unpatched(g: Tensor, columns: int, dilation: int) -> Tensor:
    """The adjoint of `patches`."""
    if dilation >= columns:
        return g
    parts = g.view(-1, columns, 3, g.shape[1] // 3)
    whole = parts[:, :, 1].clone()
    whole[:, : columns - dilation] += parts[:, dilation:, 0]
    whole[:, dilation:] += parts[:, : columns - dilation, 2]
    return whole.view(len(g), -1)
