"""The factors of OneNet's convolutions in compiled C: effective weights and steps, in one pass over memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

from torch import Tensor

from natsr.native.calls import Move, at, counted
from natsr.nets.base import Layer, Traced
from natsr.nets.columns import NativeVariables
from natsr.nets.native import NativeTCN
from natsr.nets.runs import Run
from natsr.nets.tcn import ConeTrace
from natsr.nets.variables import VariablesTrace

Compiled = NativeTCN | NativeVariables


def compiled_body(body: object) -> Compiled | None:
    """The network, if C does its work."""
    if isinstance(body, NativeTCN) and body.is_native:
        return body
    return body if isinstance(body, NativeVariables) and body.compiled is not None else None


class CompiledFactors:
    """The factors of a network's convolutions.

    Args:
        library: The compiled functions.
        layers: The network's.
        runs: Its convolutions.
        start: Where their factors begin in `weights`.
        weights: Those of network and factors; this very tensor must stay.
    """

    def __init__(
        self, library: ctypes.CDLL, layers: Sequence[Layer], runs: Sequence[Run], start: int, weights: Tensor
    ) -> None:
        self._library = library
        self.weights = weights
        places = {layer.start: index for index, layer in enumerate(layers)}
        numbers: list[int] = []
        for run in runs:
            for index in range(run.number):
                layer = places[run.start + index * (run.taps * run.inputs + 1) * run.outputs]
                numbers += [layer, run.taps, run.inputs, run.outputs, start]
                start += (run.inputs + 1) * run.outputs
        self._address = library.scaled_new((ctypes.c_int64 * len(numbers))(*numbers), len(numbers) // 5)
        if not self._address:
            raise MemoryError("no memory for the factors' buffers")
        weakref.finalize(self, library.scaled_free, self._address)
        self._passed = (ctypes.c_int64 * 4)()

    def settle(self, body: Compiled) -> None:
        """Compute the body's weights, which are the effective ones."""
        self._library.scaled_settle(self._address, self._layers(body), at(self.weights), _place(body))

    def within(self, body: Compiled, trace: Traced, grad: Tensor, largest: float) -> bool:
        """Pull `grad` back through a pass; whether its gradient is surely no longer than `largest`."""
        if isinstance(body, NativeTCN):
            pulled = isinstance(trace, ConeTrace) and body.pulled(trace, grad) is not None
        else:
            pulled = isinstance(trace, VariablesTrace) and body.pulled(trace, grad) is not None
        return pulled and bool(self._library.scaled_bound(self._address, self._layers(body)) < largest**2)

    def step(self, body: Compiled, move: Move) -> None:
        """A step of AdamW against the gradient that was pulled back last, and the effective weights after it."""
        assert move.moments is not None
        mean, square = at(move.moments.mean), at(move.moments.square)
        layers, effective = self._layers(body), _place(body)
        self._library.scaled_step(self._address, layers, counted(move), at(self.weights), mean, square, effective)

    def _layers(self, body: Compiled) -> ctypes.Array[ctypes.c_int64]:
        """The body's layers as the last passes left them, for C."""
        if isinstance(body, NativeTCN):
            self._library.cone_passed(body.context().address, self._passed)
        else:
            self._library.variables_passed(body.buffers().address, self._passed)
        return self._passed


def _place(body: Compiled) -> int:
    return body.place() if isinstance(body, NativeTCN) else body.weights.data_ptr()
