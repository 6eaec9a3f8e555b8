"""The network on its cone, run by compiled C: the same function, weights and gradients, without torch in between."""

from __future__ import annotations

import ctypes
import math
import threading
from typing import Any

import torch
from torch import Tensor

from natsr.fisher import Tap
from natsr.native.calls import Context, Move, at, counted, library, square, with_room
from natsr.nets.base import maps
from natsr.nets.tcn import FEW, ConeTCN, ConeTrace
from natsr.types import OptionError, Task

_AHEAD = 32  # examples that are forecast at once


def tcn(
    task: Task,
    generator: torch.Generator,
    device: torch.device,
    *,
    width: int = 64,
    depth: int = 10,
    top: int = 320,
    dtype: torch.dtype = torch.float32,
) -> ConeTCN:
    """A freshly drawn network: in C where that is possible (float32, on the CPU, with a compiler), else in torch."""
    if dtype == torch.float32 and device.type == "cpu" and (compiled := library()) is not None:
        return NativeTCN(task, generator, compiled, width=width, depth=depth, top=top)
    return ConeTCN(task, generator, width=width, depth=depth, top=top, dtype=dtype).to(device)


class NativeTrace(ConeTrace):
    """A forward pass whose inner values lie in the network's context, until the next one."""

    @property
    def window(self) -> Tensor:
        """What went in, `(B, L, D)`."""
        return self.rows


class Desk:
    """Where passes are made: buffers, and whose pass lies in them. Networks of one shape may share one, in turns."""

    def __init__(self) -> None:
        self.learning: Context | None = None
        self.ahead: Context | None = None
        self.holds: ConeTrace | None = None  # the pass in `learning`
        self.lock = threading.Lock()  # for `ahead`: forecasts may come from several threads


class NativeTCN(ConeTCN):
    """A `ConeTCN` whose passes are compiled.

    Args:
        task: Window, horizon, channels and features.
        generator: Draws the initial weights.
        compiled: The library, from `natsr.native.calls`.
        width: Channels of the blocks.
        depth: Blocks before the last one.
        top: Channels of the last block.
    """

    def __init__(
        self,
        task: Task,
        generator: torch.Generator,
        compiled: ctypes.CDLL,
        *,
        width: int = 64,
        depth: int = 10,
        top: int = 320,
    ) -> None:
        super().__init__(task, generator, width=width, depth=depth, top=top)
        self.compiled: ctypes.CDLL | None = compiled
        self._home: Tensor | None = None
        self._desk = Desk()

    def __getstate__(self) -> dict[str, Any]:
        left_behind = ("compiled", "_desk", "_home")
        return {name: part for name, part in self.__dict__.items() if name not in left_behind}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.compiled, self._desk, self._home = library(), Desk(), None

    def share(self, other: NativeTCN) -> None:
        """Make passes where another network of the same shape makes them: less memory, and nearer to the processor.

        The two must not learn at the same time from then on.
        """
        if (self.layers, self.blocks, self.task) != (other.layers, other.blocks, other.task):
            raise OptionError("networks can share buffers only if they have the same layers and the same task")
        self._desk = other._desk

    @property
    def is_native(self) -> bool:
        """Whether C does the work: not after a move to another device."""
        return self.compiled is not None

    def to(self, device: torch.device) -> ConeTCN:
        """Move the weights; anywhere but on the CPU torch takes over."""
        super().to(device)
        self.compiled = library() if device.type == "cpu" else None
        return self

    def place(self) -> int:
        """Where the weights lie; a little room after their end is made sure of."""
        if self.weights is not self._home:
            self.weights = self._home = with_room(self.weights)
            self._maps = maps(self.layers, self.weights)
        return self.weights.data_ptr()

    def context(self) -> Context:
        """Where the pass that is being learned from lies."""
        if self._desk.learning is None:
            self._desk.learning = self._context()
        return self._desk.learning

    def plan(self) -> tuple[list[int], list[int]]:
        """The network as `cone_new` reads it: sizes and convolutions."""
        task, width = self.task, self.layers[0].outputs
        sizes = [task.window, task.inputs, self.rows, width, self.hidden, task.outputs, len(self.blocks)]
        return sizes, [number for block in self.blocks for conv in block for number in conv]

    def _context(self) -> Context:
        assert self.compiled is not None
        context = Context(self.compiled, *self.plan())
        assert self.compiled.cone_weights(context.address) == self.weights.numel()
        return context

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`."""
        if not self.is_native:
            return super().forward(window)
        window = window[:, -self.task.window :].contiguous()
        output = window.new_empty(window.shape[0], self.task.outputs)
        desk = self._desk
        with desk.lock:
            if desk.ahead is None:
                desk.ahead = self._context()
            for start in range(0, len(window), _AHEAD):
                part = slice(start, start + _AHEAD)
                desk.ahead.forward(self.place(), window[part], None, output[part])
        return output

    def trace(self, window: Tensor, keep: Tensor | None = None) -> ConeTrace:
        """Forward, keeping what the adjoint needs until the next pass."""
        if not self.is_native:
            return super().trace(window, keep)
        window = window[:, -self.task.window :].contiguous()
        keep = None if keep is None else keep.contiguous()
        output = window.new_empty(window.shape[0], self.task.outputs)
        self.context().forward(self.place(), window, keep, output)
        trace = self._desk.holds = NativeTrace(output, window, (), output, keep)
        return trace

    def current(self, trace: ConeTrace) -> Context | None:
        """The context with this pass in it; nothing if the pass was not made in C."""
        if not (self.is_native and isinstance(trace, NativeTrace)):
            return None
        context = self.context()
        if self._desk.holds is not trace:  # another pass has been made since
            context.forward(self.place(), trace.window, trace.keep, torch.empty_like(trace.output))
            self._desk.holds = trace
        return context

    def pulled(self, trace: ConeTrace, grads: Tensor) -> Context | None:
        """The context with `grads` `(N, m)` pulled back through a pass; nothing if the pass was not made in C."""
        context = self.current(trace)
        if context is not None:
            context.backward(self.place(), grads.contiguous())
        return context

    def known_moments(self, trace: ConeTrace, weights: Tensor) -> dict[int, Tensor]:
        """`G / κ` of the layers right below the head, by layer, without any probe: see `ConeTCN`."""
        context = self.current(trace)
        if context is None:
            return super().known_moments(trace, weights)
        if trace.keep is not None or self.task.outputs > FEW * self.hidden:
            return {}
        places = range(len(self.layers) - 4, len(self.layers) - 1)
        found = {index: square(self.hidden) for index in places}
        wanted = (ctypes.c_void_p * len(self.layers))(*(at(found.get(i)) for i in range(len(self.layers))))
        context.library.curve_known(context.address, self.place(), at(weights.contiguous()), 1.0, wanted)
        if self.blocks[-1][1].src != 1:
            del found[places[0]]
        return {index: moment.triu() + moment.triu(1).T for index, moment in found.items()}

    def taps(self, trace: ConeTrace, grads: Tensor) -> list[Tap]:
        """Back-propagate `(K, B, m)`: inputs `(B, S, I-1)` and gradients `(K, B, S, O)` of each layer, in order."""
        K, B, _ = grads.shape
        context = self.pulled(trace, grads.flatten(0, 1))
        if context is None:
            return super().taps(trace, grads)
        places = [self.rows, *(conv.dst for block in self.blocks for conv in block), 1, 1]
        found = []
        for index, (layer, S) in enumerate(zip(self.layers, places, strict=True)):
            tap = Tap(grads.new_empty(B, S, layer.inputs - 1), grads.new_empty(K, B, S, layer.outputs))
            context.library.cone_tap(context.address, index, at(tap.inputs), at(tap.grads))
            found.append(tap)
        return found

    def gradient(self, trace: ConeTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`."""
        context = self.pulled(trace, grad)
        if context is None:
            return super().gradient(trace, grad)
        flat = torch.empty_like(self.weights)
        context.library.cone_gradient(context.address, at(flat))
        return flat

    def squared_bound(self, trace: ConeTrace, grad: Tensor) -> float:
        """No gradient of `Σ grad · output` has a larger sum of squares than this; not finite if it is not."""
        context = self.pulled(trace, grad)
        return math.inf if context is None else float(context.library.step_bound(context.address))

    def descend(self, trace: NativeTrace, grad: Tensor, move: Move, largest: float) -> bool:
        """Move the weights against the gradient of `Σ grad · output`, unless that is longer than `largest`.

        The gradient is never whole in memory: a few rows of a layer are made and taken at once. That they are in order
        is known before, from a bound on their length; only where the bound is too large is the gradient measured.
        """
        context = self.pulled(trace, grad)
        assert context is not None
        bound = context.library.step_bound(context.address)
        if not bound < largest**2:
            flat = torch.empty_like(self.weights)
            context.library.cone_gradient(context.address, at(flat))
            if not float(flat.norm()) < largest:
                return False
        mean, square = (None, None) if move.moments is None else move.moments[:2]
        context.library.step_descend(context.address, counted(move), self.place(), at(mean), at(square))
        return True
