"""Several networks over the variables at once: `natsr.nets.variables` with a leading axis of learners, `N`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

from natsr.fleet.net import matrices
from natsr.nets.tcn import plain_kernels
from natsr.nets.variables import VariablesTCN, patches, unpatched


class FleetVariablesTrace(NamedTuple):
    """A forward pass with what its adjoint needs; `natsr.nets.variables.VariablesTrace` of each learner."""

    output: Tensor  # (N, B, m)
    rows: Tensor  # (N, B·C, L)
    blocks: tuple[tuple[Tensor, Tensor, Tensor, Tensor], ...]  # (N, B·C, …) each
    skip: Tensor
    top: Tensor
    keep: Tensor | None

    def first(self, count: int) -> FleetVariablesTrace:
        """That of the first examples of every learner, as views."""
        size = self.rows.shape[1] // self.output.shape[1] * count
        blocks = tuple((a[:, :size], b[:, :size], c[:, :size], d[:, :size]) for a, b, c, d in self.blocks)
        keep = None if self.keep is None else self.keep[:, :count]
        return FleetVariablesTrace(
            self.output[:, :count], self.rows[:, :size], blocks, self.skip[:, :size], self.top[:, :size], keep
        )


class FleetVariables:
    """Forward and adjoint passes of `N` networks over flat weights.

    Args:
        net: Gives the shape.
        weights: `(N, P)`; shared, not copied.
    """

    def __init__(self, net: VariablesTCN, weights: Tensor) -> None:
        self.shape, self.layers, self.weights = net, net.layers, weights
        self._matrices = matrices(net.layers, weights)

    def trace(self, window: Tensor, keep: Tensor | None = None) -> FleetVariablesTrace:
        """Forward over windows `(N, B, L, D)`; `keep` `(N, B, hidden)` masks the head's inputs."""
        net, (N, B), C = self.shape, window.shape[:2], self.shape.task.channels
        affine = iter(self._matrices)

        def through(x: Tensor) -> Tensor:
            matrix = next(affine)
            return torch.baddbmm(matrix[:, -1:], x, matrix[:, :-1])

        def spread(x: Tensor, dilation: int) -> Tensor:
            return patches(x.flatten(0, 1), C, dilation).view(N, B * C, -1)

        rows = window[:, :, -net.task.window :, :C].transpose(2, 3).reshape(N, B * C, -1)
        with plain_kernels():
            x = through(rows)
            blocks, skip = [], x
            for dilation in net.dilations:
                skip = x
                patches1 = spread(gelu(x), dilation)
                mid = through(patches1)
                patches2 = spread(gelu(mid), dilation)
                y = through(patches2)
                blocks.append((x, patches1, mid, patches2))
                x = y.add_(x) if dilation != net.dilations[-1] else y.add_(through(skip))
            top = x if keep is None else x * keep.view(x.shape)
            out = through(top).view(N, B, C, -1).transpose(2, 3).reshape(N, B, -1)
        return FleetVariablesTrace(out, rows, tuple(blocks), skip, top, keep)

    def gradient(self, trace: FleetVariablesTrace, grad: Tensor) -> Tensor:
        """The flat gradients `(N, P)` of `Σ grad · output` for `grad` `(N, B, m)`."""
        (N, B, _), C = grad.shape, self.shape.task.channels
        flat = torch.empty_like(self.weights)
        remaining = list(zip(matrices(self.layers, flat), self._matrices, strict=True))

        def back(inputs: Tensor, g: Tensor) -> Tensor:
            """Note the last remaining layer's gradient, and pull `g` through its matrix."""
            by, matrix = remaining.pop()
            torch.bmm(inputs.transpose(1, 2), g, out=by[:, :-1])
            torch.sum(g, 1, out=by[:, -1])
            return torch.bmm(g, matrix[:, :-1].transpose(1, 2))

        def gathered(g: Tensor, before: Tensor, dilation: int) -> Tensor:
            whole = unpatched(g.flatten(0, 1), C, dilation).view(N, B * C, -1)
            pulled: Tensor = torch.ops.aten.gelu_backward(whole, before)
            return pulled

        with plain_kernels():
            g = back(trace.top, grad.view(N, B, -1, C).transpose(2, 3).reshape(N, B * C, -1))
            if trace.keep is not None:
                g = g * trace.keep.reshape(g.shape)
            skip = back(trace.skip, g)
            for dilation, (before1, patches1, before2, patches2) in zip(
                reversed(self.shape.dilations), reversed(trace.blocks), strict=True
            ):
                g = gathered(back(patches2, g), before2, dilation)
                g = gathered(back(patches1, g), before1, dilation)
                skip = g = g.add_(skip)
            back(trace.rows, g)
        return flat
