"""FSNet's network: the TCN on its cone, with the weights that its adapters make of its own recent gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from natsr.native.calls import Move, with_room
from natsr.nets.adapted import fitting
from natsr.nets.adapters import (
    Averages,
    Calibration,
    Recall,
    calibrated,
    followed,
    fresh,
    laid_out,
    pull_,
    scale_,
)
from natsr.nets.adapting import CompiledAdapters
from natsr.nets.base import initial_weights
from natsr.nets.native import NativeTCN
from natsr.nets.runs import runs
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.types import OptionError, State, StateError


class AdaptedTCN:
    """A `ConeTCN` whose convolutions are calibrated by adapters.

    Its `weights` are those of the TCN followed by those of the adapters. Forward passes use the effective weights,
    which are kept in the body and computed again after every change: they are a function of weights and averages, so a
    pass changes nothing.

    Args:
        body: The network; from then on its weights are the effective ones.
        generator: Draws the adapters and the memory.
        recall: How the memory is read and written.
    """

    def __init__(self, body: ConeTCN, generator: torch.Generator, recall: Recall = "attention") -> None:
        convolutions = runs(body)
        if any(run.outputs % run.inputs for run in convolutions):
            raise OptionError(
                f"width is {body.layers[0].outputs} and top {body.hidden}, expected a multiple of the width: FSNet "
                "gives each input of a layer the same number of outputs"
            )
        self.body = body
        self.recall = recall
        self.adapters, layers = laid_out(convolutions, 0)
        drawn = initial_weights(layers, generator, body.weights.dtype)
        self.adapters, _ = laid_out(convolutions, len(body.weights))
        for run in convolutions:
            run.view(body.weights)[:, -1].zero_()  # as published: biases begin at zero
        self.weights = with_room(torch.cat([body.weights, drawn.to(body.weights)]))
        self.averages: list[Averages] = [fresh(adapter, generator, self.weights) for adapter in self.adapters]
        self.begun = False  # whether a pass has been learned from
        self._calibrations: Sequence[Calibration] | None = None  # in torch; made where they are needed
        self._compiled: CompiledAdapters | None = None
        self.settle()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_compiled": None}

    def _native(self) -> tuple[NativeTCN, CompiledAdapters] | None:
        """The body and the adapters in C, where that does the work."""
        body = self.body
        if not (isinstance(body, NativeTCN) and body.is_native and body.compiled is not None):
            return None
        if self._compiled is None or self._compiled.weights is not self.weights:
            self._compiled = CompiledAdapters(
                body.compiled, body.layers, self.adapters, self.averages, self.weights, self.recall
            )
            self._compiled.settle(body.context(), body.place(), not self.begun)
        return body, self._compiled

    def to(self, device: torch.device) -> AdaptedTCN:
        """Move everything."""
        self.body.to(device)
        self.weights, self._compiled = with_room(self.weights.to(device)), None
        self.averages = [Averages(*(part.to(device) for part in one)) for one in self.averages]
        self.settle()
        return self

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer."""
        return self.body.hidden

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`."""
        return self.body.forward(window)

    def trace(self, window: Tensor, keep: Tensor | None = None) -> ConeTrace:
        """Forward, keeping what the adjoint needs."""
        return self.body.trace(window, keep)

    def settle(self) -> None:
        """Compute the effective weights again; call it whenever `weights` or the averages have been changed."""
        self._calibrations = None
        if (native := self._native()) is not None:
            body, compiled = native
            compiled.settle(body.context(), body.place(), not self.begun)
            return
        effective = self.body.weights
        effective.copy_(self.weights[: len(effective)])
        for adapter, coefficients in zip(self.adapters, self._now(), strict=True):
            scale_(adapter, effective, coefficients)

    def _now(self) -> Sequence[Calibration]:
        """The coefficients of this pass."""
        if self._calibrations is None:
            self._calibrations = [
                calibrated(adapter, self.weights, averages, self.recall, self.begun)
                for adapter, averages in zip(self.adapters, self.averages, strict=True)
            ]
        return self._calibrations

    def gradient(self, trace: ConeTrace, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output`, adapters included."""
        flat = torch.empty_like(self.weights)
        flat[: len(self.body.weights)] = self.body.gradient(trace, grad)
        for adapter, averages, now in zip(self.adapters, self.averages, self._now(), strict=True):
            pull_(adapter, flat, self.weights, averages, now)
        return flat

    def follow(self, gradient: Tensor, online: bool) -> None:
        """After the weights have been moved by a step of this gradient: averages, memory and effective weights."""
        for adapter, averages, now in zip(self.adapters, self.averages, self._now(), strict=True):
            averages.query.copy_(now.query)
            if now.memory is not None:
                averages.memory.copy_(now.memory)
            followed(adapter, gradient, averages, online)
        self.begun = True
        self.settle()

    def take(self, trace: ConeTrace, grad: Tensor, move: Move, online: bool, largest: float) -> int | None:
        """Gradient, step and what follows it at once, in C; if that cannot be had, nothing is done.

        Args:
            trace: A pass.
            grad: Of the loss by its outputs.
            move: What AdamW does to the weights.
            online: Off in the warm-up.
            largest: No gradient that may be longer is taken here.

        Returns:
            How many layers had asked their memory in the pass; nothing if nothing was done.
        """
        native = self._native()
        context = None if native is None else native[0].pulled(trace, grad)
        if native is None or context is None:
            return None
        body, compiled = native
        asked = compiled.step(context, body.place(), move, online, largest)
        if asked is not None:
            self.begun, self._calibrations = True, None
        return asked

    @property
    def asked(self) -> int:
        """Layers that ask their memory in the next pass."""
        return sum(int(averages.apart.sum()) for averages in self.averages)

    def state_dict(self) -> State:
        """Weights and averages."""
        averages: list[State] = [{name: part.clone() for name, part in one._asdict().items()} for one in self.averages]
        return {"weights": self.weights.clone(), "begun": self.begun, "averages": averages}

    def load_state_dict(self, state: State) -> None:
        """Go on from what `state_dict` gave; whatever does not fit changes nothing."""
        weights, begun, saved = state.get("weights"), state.get("begun"), state.get("averages")
        if not (isinstance(begun, bool) and isinstance(saved, list) and len(saved) == len(self.averages)):
            raise StateError("the state lacks FSNet's averages; it belongs to another method")
        pairs = [(self.weights, fitting("weights", weights, self.weights))]
        for mine, theirs in zip(self.averages, saved, strict=True):
            pairs += [(part, fitting(name, theirs.get(name), part)) for name, part in mine._asdict().items()]
        for mine_part, part in pairs:
            mine_part.copy_(part)
        self.begun = begun
        self.settle()
