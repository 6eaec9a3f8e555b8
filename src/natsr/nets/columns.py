"""The network over the variables, run by compiled C: the same function, weights and gradients."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import torch
from torch import Tensor

from natsr.native.calls import at, library, with_room
from natsr.nets.variables import AT_ONCE, VariablesTCN, VariablesTrace
from natsr.types import Task


def over_variables(
    task: Task,
    generator: torch.Generator,
    device: torch.device,
    *,
    width: int = 64,
    depth: int = 10,
    top: int = 320,
    dtype: torch.dtype = torch.float32,
) -> VariablesTCN:
    """A freshly drawn network: in C where that is possible (float32, on the CPU, with a compiler), else in torch."""
    if dtype == torch.float32 and device.type == "cpu" and library() is not None:
        return NativeVariables(task, generator, width=width, depth=depth, top=top)
    return VariablesTCN(task, generator, width=width, depth=depth, top=top, dtype=dtype).to(device)


class NativeVariablesTrace(VariablesTrace):
    """A forward pass whose inner values lie in the network's buffers, until the next one."""

    @property
    def window(self) -> Tensor:
        """What went in, `(B, L, D)`."""
        return self.rows


class Buffers:
    """A network's buffers in C, freed with this object."""

    def __init__(self, compiled: ctypes.CDLL, net: VariablesTCN) -> None:
        task, width, top = net.task, net.layers[0].outputs, net.hidden // net.task.channels
        sizes = (task.window, task.inputs, task.channels, width, top, task.horizon, len(net.dilations))
        self.library = compiled
        self.address = compiled.variables_new((ctypes.c_int32 * len(sizes))(*sizes))
        if not self.address:
            raise MemoryError("no memory for the network's buffers")
        weakref.finalize(self, compiled.variables_free, self.address)
        assert compiled.variables_weights(self.address) == net.weights.numel()

    def forward(self, weights: Tensor, window: Tensor, keep: Tensor | None, output: Tensor) -> None:
        """Outputs of windows `(B, L, D)`, all of them contiguous."""
        if not self.library.variables_forward(self.address, at(weights), at(window), len(window), at(keep), at(output)):
            raise MemoryError(f"no memory for a batch of {len(window)}")


class NativeVariables(VariablesTCN):
    """A `VariablesTCN` whose passes are compiled."""

    def __init__(
        self, task: Task, generator: torch.Generator, *, width: int = 64, depth: int = 10, top: int = 320
    ) -> None:
        super().__init__(task, generator, width=width, depth=depth, top=top)
        self._begin()

    def _begin(self) -> None:
        self.compiled = library() if self.weights.device.type == "cpu" else None
        self._learning: Buffers | None = None
        self._ahead: Buffers | None = None
        self._holds: VariablesTrace | None = None  # the pass in `_learning`
        self._lock = threading.Lock()  # for `_ahead`: forecasts may come from several threads
        self._bind(with_room(self.weights))

    def __getstate__(self) -> dict[str, Any]:
        left_behind = ("compiled", "_learning", "_ahead", "_holds", "_lock")
        return {name: part for name, part in self.__dict__.items() if name not in left_behind}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def to(self, device: torch.device) -> VariablesTCN:
        """Move the weights; anywhere but on the CPU torch takes over."""
        super().to(device)
        self._begin()
        return self

    def buffers(self) -> Buffers:
        """Where the pass that is being learned from lies."""
        if self._learning is None:
            assert self.compiled is not None
            self._learning = Buffers(self.compiled, self)
        return self._learning

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`."""
        if self.compiled is None:
            return super().forward(window)
        window = window[:, -self.task.window :].contiguous()
        output = window.new_empty(len(window), self.task.outputs)
        few = max(1, AT_ONCE // self.task.channels)
        with self._lock:
            if self._ahead is None:
                self._ahead = Buffers(self.compiled, self)
            for start in range(0, len(window), few):
                part = slice(start, start + few)
                self._ahead.forward(self.weights, window[part], None, output[part])
        return output

    def trace(self, window: Tensor, keep: Tensor | None = None) -> VariablesTrace:
        """Forward, keeping what the adjoint needs until the next pass."""
        if self.compiled is None:
            return super().trace(window, keep)
        window = window[:, -self.task.window :].contiguous()
        keep = None if keep is None else keep.contiguous()
        output = window.new_empty(len(window), self.task.outputs)
        self.buffers().forward(self.weights, window, keep, output)
        trace = self._holds = NativeVariablesTrace(output, window, (), output, output, keep)
        return trace

    def pulled(self, trace: VariablesTrace, grad: Tensor) -> Buffers | None:
        """The buffers with `grad` `(B, m)` pulled back through a pass; nothing if the pass was not made in C."""
        if self.compiled is None or not isinstance(trace, NativeVariablesTrace):
            return None
        buffers = self.buffers()
        if self._holds is not trace:  # another pass has been made since
            buffers.forward(self.weights, trace.window, trace.keep, torch.empty_like(trace.output))
            self._holds = trace
        grad = grad.contiguous()
        self.compiled.variables_backward(buffers.address, at(self.weights), at(grad))
        return buffers

    def gradient(self, trace: VariablesTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output` for `grad` `(B, m)`."""
        buffers = self.pulled(trace, grad)
        if buffers is None:
            return super().gradient(trace, grad)
        flat = torch.empty_like(self.weights)
        buffers.library.variables_gradient(buffers.address, at(flat))
        return flat
