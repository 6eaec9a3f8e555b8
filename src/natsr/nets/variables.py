"""A network that convolves over the variables: each series is a token, and what it says is its own window.

OneNet's second branch. The last `L` values of a series become `width` numbers by one linear map that all series share;
the residual blocks of the TCN (GELU, convolution of 3, GELU, convolution of 3, dilation `2^i`, same padding, and one
more block to `top` channels with a 1×1 projection beside it) then run along the *columns*, in the order in which they
stand; and a linear head gives each series its `H` values. Known features of a row are not read.

Every column is read, so there is no cone. But among `C` columns a convolution of dilation `C` or more never meets a
neighbour: only its middle tap is kept, which changes no output and no gradient.

Passes over the weights of several networks of one shape, `(N, P)`, have that axis `N` in front of everything.
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


class VariablesPasses:
    """Forward and adjoint passes over flat weights, those of one network or of several.

    Args:
        task: Window, horizon and channels.
        dilations: Of the blocks.
        layers: Where each lies in the weights.
        weights: `(P,)`, or `(N, P)`; shared, not copied.
    """

    def __init__(self, task: Task, dilations: tuple[int, ...], layers: tuple[Layer, ...], weights: Tensor) -> None:
        self.task, self.dilations, self.layers = task, dilations, layers
        self.hidden = task.channels * (layers[-1].inputs - 1)
        self._bind(weights)

    def _bind(self, weights: Tensor) -> None:
        """Have the passes go over these weights."""
        self.weights = weights
        self._maps = maps(self.layers, weights)
        self._flat: Tensor | None = None
        self._grads: list[Affine] = []

    def trace(self, window: Tensor, keep: Tensor | None = None) -> VariablesTrace:
        """Forward over windows `(B, L, D)`, keeping the inputs of each layer and of each GELU.

        Args:
            window: What is read.
            keep: `(B, hidden)`, masks the head's inputs.
        """
        C, layers = self.task.channels, iter(self._maps)
        rows = window[..., -self.task.window :, :C].mT.flatten(-3, -2)
        with plain_kernels():
            x = next(layers).forward(rows)
            blocks, skip = [], x
            for dilation in self.dilations:
                skip = x
                patches1 = _patches(gelu(x), C, dilation)
                mid = next(layers).forward(patches1)
                patches2 = _patches(gelu(mid), C, dilation)
                y = next(layers).forward(patches2)
                blocks.append((x, patches1, mid, patches2))
                x = y.add_(x) if dilation != self.dilations[-1] else y.add_(next(layers).forward(skip))
            top = x if keep is None else x * keep.reshape(x.shape)
            out = next(layers).forward(top).view(*window.shape[:-2], C, -1).mT.flatten(-2)
        return VariablesTrace(out, rows, tuple(blocks), skip, top, keep)

    def gradient(self, trace: VariablesTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`; it stands until the next call."""
        C = self.task.channels
        if self._flat is None:
            self._flat = torch.empty_like(self.weights)
            self._grads = maps(self.layers, self._flat)
        remaining = list(zip(self._maps, self._grads, strict=True))

        def back(inputs: Tensor, g: Tensor) -> Tensor:
            """Note the last remaining layer's gradient, and pull `g` through its matrix."""
            layer, by = remaining.pop()
            return layer.backward(inputs, g, by)

        with plain_kernels():
            g = back(trace.top, grad.view(*grad.shape[:-1], -1, C).mT.flatten(-3, -2))
            if trace.keep is not None:
                g = g * trace.keep.reshape(g.shape)
            skip = back(trace.skip, g)
            for dilation, (before1, patches1, before2, patches2) in zip(
                reversed(self.dilations), reversed(trace.blocks), strict=True
            ):
                g = torch.ops.aten.gelu_backward(_unpatched(back(patches2, g), C, dilation), before2)
                g = torch.ops.aten.gelu_backward(_unpatched(back(patches1, g), C, dilation), before1)
                skip = g = g.add_(skip)
            back(trace.rows, g)
        return self._flat


class VariablesTCN(VariablesPasses):
    """One network, freshly drawn.

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
        dilations = tuple(2**i for i in range(depth + 1))
        shapes = [("input", task.window + 1, width, task.window)]
        for i, dilation in enumerate(dilations):
            taps, out = taps_of(dilation, task.channels), top if i == depth else width
            shapes.append((f"block{i}.conv1", taps * width + 1, out, 3 * width))
            shapes.append((f"block{i}.conv2", taps * out + 1, out, 3 * out))
        shapes.append((f"block{depth}.projection", width + 1, top, width))
        shapes.append(("head", top + 1, task.horizon, top))
        layers = stack(shapes)
        super().__init__(task, dilations, layers, initial_weights(layers, generator, dtype))

    def over(self, weights: Tensor) -> VariablesPasses:
        """The passes of several networks of this shape over their weights `(N, P)`."""
        return VariablesPasses(self.task, self.dilations, self.layers, weights)

    def to(self, device: torch.device) -> VariablesTCN:
        """Move the weights."""
        self._bind(self.weights.to(device))
        return self

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`; a few at a time where there are many columns, to save memory."""
        few = max(1, AT_ONCE // self.task.channels)
        parts = [self.trace(part).output for part in torch.split(window, few)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def taps_of(dilation: int, columns: int) -> int:
    """Taps of a convolution that ever meet a column: all three, or the middle one."""
    return 3 if dilation < columns else 1


def _patches(x: Tensor, columns: int, dilation: int) -> Tensor:
    """What each column sees of `(B·C, c)`: its neighbour before, itself and the one after, `(B·C, 3c)`; or itself."""
    if dilation >= columns:
        return x
    c = x.shape[-1]
    padded = pad(x.view(-1, columns, c), (0, 0, dilation, dilation))
    B, n, _ = padded.shape
    seen = padded.as_strided((B, columns, 3, c), (n * c, c, dilation * c, 1))
    return seen.reshape(*x.shape[:-1], 3 * c)


def _unpatched(g: Tensor, columns: int, dilation: int) -> Tensor:
    """The adjoint of `_patches`."""
    if dilation >= columns:
        return g
    parts = g.view(-1, columns, 3, g.shape[-1] // 3)
    whole = parts[:, :, 1].clone()
    whole[:, : columns - dilation] += parts[:, dilation:, 0]
    whole[:, dilation:] += parts[:, : columns - dilation, 2]
    return whole.view(*g.shape[:-1], -1)
