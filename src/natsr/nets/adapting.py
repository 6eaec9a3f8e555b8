"""FSNet's adapters in compiled C: the step and the effective weights, layer after layer, in one pass over memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence

from torch import Tensor

from natsr.native.calls import Context, Move, at, counted
from natsr.nets.adapters import HIDDEN, Adapter, Averages, Recall
from natsr.nets.base import Layer


class CompiledAdapters:
    """The adapters of a network, whose averages C changes in place.

    Args:
        library: The compiled functions.
        layers: The network's.
        adapters: Of its convolutions.
        averages: What they remember; these very tensors must stay.
        weights: Those of network and adapters, with `SLACK` numbers to spare behind them; this very tensor, too.
        recall: How the memory is read and written.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        layers: Sequence[Layer],
        adapters: Sequence[Adapter],
        averages: Sequence[Averages],
        weights: Tensor,
        recall: Recall,
    ) -> None:
        self._library = library
        self.weights = weights
        self._kept = averages  # C has their addresses
        self._attention = int(recall == "attention")
        places = {layer.start: index for index, layer in enumerate(layers)}
        numbers = [
            number
            for adapter, one in zip(adapters, averages, strict=True)
            for index in range(adapter.run.number)
            for number in _remembered(adapter, one, index, places)
        ]
        count = sum(adapter.run.number for adapter in adapters)
        self._address = library.adapters_new((ctypes.c_int64 * len(numbers))(*numbers), count)
        if not self._address:
            raise MemoryError("no memory for the adapters' buffers")
        weakref.finalize(self, library.adapters_free, self._address)

    def settle(self, context: Context, effective: int, first: bool) -> None:
        """Compute the effective weights."""
        self._library.adapters_settle(
            self._address, context.address, at(self.weights), self._attention, int(first), effective
        )

    def step(self, context: Context, effective: int, move: Move, online: bool, largest: float) -> int | None:
        """A step against the gradient of the last backward pass, unless that might be longer than `largest`.

        Returns:
            How many layers had asked their memory; nothing if there was no step.
        """
        if not self._library.adapters_bound(self._address, context.address) < largest**2:
            return None
        assert move.moments is not None
        mean, square = at(move.moments.mean), at(move.moments.square)
        asked: int = self._library.adapters_step(
            self._address,
            context.address,
            counted(move),
            int(online),
            self._attention,
            at(self.weights),
            mean,
            square,
            effective,
        )
        return asked


def _remembered(adapter: Adapter, averages: Averages, index: int, places: dict[int, int]) -> list[int]:
    """One convolution as C reads it, in the order of its `remembered`."""
    run = adapter.run
    size = (run.taps * run.inputs + 1) * run.outputs
    controller, head = adapter.chunk + 1, adapter.given
    return [
        places[run.start + index * size],
        run.first,
        run.taps,
        run.inputs,
        run.outputs,
        adapter.controller + index * controller * HIDDEN,
        adapter.heads + index * (HIDDEN + 1) * head,
        *(part[index].data_ptr() for part in averages),
    ]
