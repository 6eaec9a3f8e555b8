"""TS2Vec's dilated convolutional network, evaluated only where its last time step can see: the receptive cone.

The network: a linear map of each row to `width` channels; `depth` residual blocks (GELU, convolution of 3, GELU,
convolution of 3, dilation `2^i`, same padding) of `width` channels; one more block to `top` channels with a 1×1
projection beside it; and a linear head on the *last time step*. Only that step is read, so block `i` is needed only at
rows `≡ L-1 (mod 2^i)`, and a tap that never meets a row can go. What is left is the same function with the same
gradients (`tests/nets/test_tcn.py` compares it with the dense network in float64) at about a twelfth of the work.

Rows of a block are a list with spacing `2^i` that ends at row `L-1`: neighbours in the list are neighbours of the
convolution, so every convolution here has dilation one, and those that feed the next block have stride two.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, pad

from natsr.fisher import Tap
from natsr.nets.base import Layer, initial_weights, maps, stack
from natsr.types import OptionError, Task

FEW = 4  # times the last block's channels: with more outputs than that, probes are cheaper than closed forms


class Conv(NamedTuple):
    """A convolution of 3 on a list of rows: `dst` rows, every `stride`-th of the `src`, both ending at the same row."""

    src: int
    dst: int
    stride: int
    first: int  # the taps that ever meet a row: first … last, of -1, 0, 1
    last: int

    @property
    def taps(self) -> int:
        """Live taps."""
        return self.last - self.first + 1

    @property
    def start(self) -> int:
        """Position in the source list of the first tap of the first destination row; -1 is a row of zeros."""
        return self.src - 1 - self.stride * (self.dst - 1) + self.first

    @property
    def before(self) -> int:
        """Rows of zeros needed before the list."""
        return 1 if self.start < 0 else 0

    @property
    def after(self) -> int:
        """Rows of zeros needed after it."""
        return 1 if self.last > 0 else 0


def cone(window: int, blocks: int) -> list[tuple[Conv, Conv]]:
    """The two convolutions of each block, from the first to the last.

    >>> [first.src for first, _ in cone(window=60, blocks=11)]
    [60, 30, 15, 8, 4, 2, 1, 1, 1, 1, 1]
    """
    found: list[tuple[Conv, Conv]] = []
    needed = 1  # rows of the block's output that are read; only the last row of the last block is
    for i in reversed(range(blocks)):
        rows = (window - 1) // 2**i + 1  # rows that exist at this spacing
        mid = min(2 * needed, rows)
        source = min(2 * needed + 1, rows)
        stride = 2 if needed > 1 else 1
        first = Conv(source, mid, 1, -1 if source > 1 else 0, 1 if mid > 1 else 0)
        second = Conv(mid, needed, stride, -1 if mid > 1 else 0, 1 if needed > 1 else 0)
        found.append((first, second))
        needed = source
    return found[::-1]


class Kept(NamedTuple):
    """What the adjoint of one block needs."""

    before1: Tensor  # inputs of the first GELU, with the rows of zeros that the convolution after it needs
    patches1: Tensor  # inputs of the first convolution, (B·dst, taps·c)
    before2: Tensor
    patches2: Tensor
    skip: Tensor | None  # inputs of the projection, where there is one


class ConeTrace(NamedTuple):
    """A forward pass with what its adjoint needs."""

    output: Tensor  # (B, m)
    rows: Tensor  # inputs of the first layer, (B·rows, D)
    blocks: tuple[Kept, ...]
    top: Tensor  # inputs of the head, (B, top)
    keep: Tensor | None  # the dropout mask on them


class ConeTCN:
    """The network on its cone, with explicit forward and adjoint passes over flat weights.

    Args:
        task: Window, horizon, channels and features.
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
        self.blocks = cone(task.window, depth + 1)
        self.rows = self.blocks[0][0].src  # rows of the window that are read at all
        self.hidden = top
        shapes = [("input", task.inputs + 1, width, task.inputs)]
        for i, (first, second) in enumerate(self.blocks):
            out = top if i == depth else width
            shapes.append((f"block{i}.conv1", first.taps * width + 1, out, 3 * width))
            shapes.append((f"block{i}.conv2", second.taps * out + 1, out, 3 * out))
            if i == depth:
                shapes.append((f"block{i}.projection", width + 1, out, width))
        shapes.append(("head", top + 1, task.outputs, top))
        self.layers: tuple[Layer, ...] = stack(shapes)
        self.weights = initial_weights(self.layers, generator, dtype)
        self._maps = maps(self.layers, self.weights)

    def to(self, device: torch.device) -> ConeTCN:
        """Move the weights."""
        self.weights = self.weights.to(device)
        self._maps = maps(self.layers, self.weights)
        return self

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`."""
        return self.trace(window).output

    def trace(self, window: Tensor, keep: Tensor | None = None) -> ConeTrace:
        """Forward, keeping the inputs of each layer and of each GELU."""
        with plain_kernels():
            return self._trace(window, keep)

    def _trace(self, window: Tensor, keep: Tensor | None) -> ConeTrace:
        B, affine = len(window), iter(self._maps)
        rows = window[:, -self.rows :].reshape(-1, self.task.inputs)
        x = next(affine).forward(rows).view(B, self.rows, -1)
        blocks = []
        for index, (first, second) in enumerate(self.blocks):
            before1 = _padded(x, first)
            patches1 = _patches(gelu(before1), first)
            mid = next(affine).forward(patches1).view(B, first.dst, -1)
            before2 = _padded(mid, second)
            patches2 = _patches(gelu(before2), second)
            y = next(affine).forward(patches2).view(B, second.dst, -1)
            skip, projected = _every(x, second), None
            if index == len(self.blocks) - 1:
                projected = skip.reshape(-1, x.shape[-1])
                skip = next(affine).forward(projected).view(y.shape)
            x = y.add_(skip)
            blocks.append(Kept(before1, patches1, before2, patches2, projected))
        top = x.reshape(B, -1) if keep is None else x.reshape(B, -1) * keep
        return ConeTrace(next(affine).forward(top), rows, tuple(blocks), top, keep)

    def taps(self, trace: ConeTrace, grads: Tensor) -> list[Tap]:
        """Back-propagate `(K, B, m)`: inputs `(B, S, I-1)` and gradients `(K, B, S, O)` of each layer, in order."""
        with plain_kernels():
            return self._taps(trace, grads)

    def _taps(self, trace: ConeTrace, grads: Tensor) -> list[Tap]:
        affine = list(self._maps)
        found: list[Tap] = []

        def back(inputs: Tensor, g: Tensor) -> Tensor:
            """Note the layer's tap and pull its gradient `(K, B, S, O)` through its matrix."""
            K, B, S, width = g.shape
            found.append(Tap(inputs.view(B, S, -1), g))
            return torch.mm(g.reshape(-1, width), affine.pop().transposed).view(K, B, S, -1)

        g = back(trace.top, grads[:, :, None, :])
        if trace.keep is not None:
            g = g * trace.keep[:, None, :]
        for (first, second), kept in zip(reversed(self.blocks), reversed(trace.blocks), strict=True):
            skip = g if kept.skip is None else back(kept.skip, g)
            g = _unpatch(back(kept.patches2, g), kept.before2, second)
            g = _unpatch(back(kept.patches1, g), kept.before1, first)
            _every(g, second).add_(skip)
        found.append(Tap(trace.rows.view(g.shape[1], self.rows, -1), g))
        return found[::-1]

    def known_moments(self, trace: ConeTrace, weights: Tensor) -> dict[int, Tensor]:
        """`G / κ` of the layers right below the head, by layer, without any probe.

        The head's matrix `W` takes outputs of unit information to `W Wᵀ` at the last block's sum, which is what its
        second convolution and its projection see. Where that convolution has one tap and one row, `V`, its own input's
        is `V W Wᵀ Vᵀ` between the slopes of the GELU.

        Args:
            trace: A pass without dropout; with it, nothing is known.
            weights: Of the examples, `(B,)`, summing to one.
        """
        if trace.keep is not None or self.task.outputs > FEW * self.hidden:
            return {}
        last, head, second = len(self.layers) - 1, self._maps[-1].matrix, self.blocks[-1][1]
        moment = head @ head.T
        known = {last - 1: moment, last - 2: moment}
        if second.src == 1:
            pulled = self._maps[-3].matrix @ head
            slopes = self._slopes(trace)
            known[last - 3] = (pulled @ pulled.T) * ((slopes * weights[:, None]).T @ slopes)
        return known

    def _slopes(self, trace: ConeTrace) -> Tensor:
        """The last GELU's derivative, `(B, top)`."""
        before = trace.blocks[-1].before2.flatten(1)
        slopes: Tensor = torch.ops.aten.gelu_backward(torch.ones_like(before), before)
        return slopes

    def gradient(self, trace: ConeTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`."""
        flat = torch.empty_like(self.weights)
        for layer, tap in zip(self.layers, self.taps(trace, grad[None]), strict=True):
            matrix = layer.view(flat)
            g = tap.grads.reshape(-1, layer.outputs)
            torch.mm(tap.inputs.reshape(len(g), -1).T, g, out=matrix[:-1])
            torch.sum(g, 0, out=matrix[-1])
        return flat


@contextmanager
def plain_kernels() -> Iterator[None]:
    """Without oneDNN, whose GELU takes up to six times as long at these sizes (its backward 41 % of a whole step)."""
    # The public `torch.backends.mkldnn.flags` also sets TF32, and warns about it at every call.
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _padded(x: Tensor, conv: Conv) -> Tensor:
    """`(B, src, c)` with the rows of zeros that the convolution needs; GELU leaves them zero."""
    if not conv.before and not conv.after:
        return x
    return pad(x, (0, 0, conv.before, conv.after))


def _patches(padded: Tensor, conv: Conv) -> Tensor:
    """What each destination row sees, `(B·dst, taps·c)`."""
    B, n, c = padded.shape
    start = conv.start + conv.before
    view = padded.as_strided((B, conv.dst, conv.taps * c), (n * c, conv.stride * c, 1), start * c)
    return view.reshape(B * conv.dst, conv.taps * c)


def _unpatch(g: Tensor, before: Tensor, conv: Conv) -> Tensor:
    """The adjoint of padding, GELU and `_patches`: `(K, B, dst, taps·c)` back to `(K, B, src, c)`."""
    if conv.taps > 1 or conv.stride > 1 or conv.src != conv.dst:
        K, B, _, width = g.shape
        c = width // conv.taps
        padded = g.new_zeros(K, B, before.shape[1], c)
        reach = conv.stride * (conv.dst - 1) + 1
        for tap in range(conv.taps):
            start = conv.start + conv.before + tap
            padded[:, :, start : start + reach : conv.stride] += g[..., tap * c : (tap + 1) * c]
        g = padded
    g = torch.ops.aten.gelu_backward(g, before)
    return g[:, :, conv.before : conv.before + conv.src] if conv.before or conv.after else g


def _every(x: Tensor, conv: Conv) -> Tensor:
    """The rows of `(…, n, c)` that the block's output has: every `stride`-th, ending at the last."""
    return x[..., x.shape[-2] - 1 - conv.stride * (conv.dst - 1) :: conv.stride, :]
