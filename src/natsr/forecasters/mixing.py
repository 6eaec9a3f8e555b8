"""The mixture of one OneNet: `natsr.forecasters.mixture` with its optimisers and state, compiled where it can be."""

from __future__ import annotations

import copy
import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.forecasters.finish import AdamW
from natsr.forecasters.losses import LOSS_NAMES, Loss
from natsr.forecasters.mixture import WIDTH, Lesson, Mixture, Moves, small_network
from natsr.forecasters.stepping import Labels, descend
from natsr.forecasters.warm import dropout_mask
from natsr.native.calls import at, library, with_room
from natsr.nets.adapted import fitting
from natsr.nets.base import initial_weights
from natsr.types import State, StateError, Task

_TENSORS = ("weights", "lasting", "passing")


class Proposal(NamedTuple):
    """A step that has not been taken, and what it says of itself."""

    moves: Moves
    loss: float  # of the mixture with the long-term weights
    squares: float  # the sum over all that is proposed; not finite if something is not


class _Asked(ctypes.Structure):
    """`proposal` of mixing.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("horizon", "channels", "examples", "absolute")),
        ("dropout", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("first", "second", "target", "weights", "lasting", "passing", "drawn")),
        *((name, ctypes.c_void_p) for name in ("by_weights", "by_lasting", "next")),
        ("loss", ctypes.c_double),
        ("squares", ctypes.c_double),
    )


class Mixing(Mixture):
    """One learner's mixture.

    Args:
        task: Horizon and channels.
        loss: The methods' own.
        dropout: Share of the small network's hidden units that are dropped while it learns, and while it says the
            next correction.
        rate: Of both of its optimisers (Adam).
        generator: Draws weights and dropout masks.
        dtype: As the networks have it.
    """

    def __init__(
        self,
        task: Task,
        loss: Loss,
        dropout: float,
        rate: float,
        generator: torch.Generator,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.loss = loss
        self.dropout = dropout
        self.rate = rate
        self.generator = generator
        weights = with_room(initial_weights(small_network(task), generator, dtype))
        lasting, passing = (torch.zeros(task.channels, dtype=dtype) for _ in range(2))
        super().__init__(task, weights, lasting, passing)

    def _begin(self) -> None:
        self._finish_lasting, self._finish_weights = AdamW(self.rate, decay=0.0), AdamW(self.rate, decay=0.0)

    def to(self, device: torch.device) -> Mixing:
        """Move everything."""
        self.weights, self.lasting, self.passing = (
            part.to(device) for part in (self.weights, self.lasting, self.passing)
        )
        return self

    def forget(self) -> None:
        """Go on with fresh optimisers."""
        self._begin()

    def histories(self) -> tuple[State, State]:
        """What the optimisers of long-term weights and small network carry on."""
        return self._finish_lasting.state_dict(), self._finish_weights.state_dict()

    def go_on(self, lasting: State, weights: State) -> None:
        """Let the optimisers go on from `histories`."""
        self._finish_lasting.load_state_dict(lasting)
        self._finish_weights.load_state_dict(weights)

    def proposed(self, first: Tensor, second: Tensor, labels: Labels) -> Proposal:
        """The step on two forecasts `(B, m)` and what came; changes nothing."""
        compiled = library() if self.weights.dtype == torch.float32 and self.weights.device.type == "cpu" else None
        if compiled is not None and (mae := LOSS_NAMES.get(type(self.loss))) is not None:
            return self._compiled(compiled, first, second, labels.target, mae == "mae")

        def slope(output: Tensor) -> Tensor:
            return self.loss.slope(labels.error(output))

        drawn = [dropout_mask((len(first) * self.task.channels, WIDTH), self.dropout, self.generator) for _ in range(2)]
        masks = [None if mask is None else mask.to(first) for mask in drawn]
        number = first.new_full((), labels.number)
        moves, mixture = self.moves(first, second, Lesson(labels.target, labels.known, number, slope), masks)
        loss = float(self.loss.value(labels.error(mixture)).sum()) / labels.number
        return Proposal(moves, loss, sum(float(part.dot(part)) for part in moves))

    def _compiled(
        self, compiled: ctypes.CDLL, first: Tensor, second: Tensor, target: Tensor, absolute: bool
    ) -> Proposal:
        """The same in C."""
        B, H, C = len(first), self.task.horizon, self.task.channels
        drawn = None
        if self.dropout > 0:  # what two masks are made of, in the order in which torch draws them
            drawn = torch.rand((2, B * C, WIDTH), generator=self.generator, device=self.generator.device)
        moves = Moves(*(torch.empty_like(part) for part in (self.lasting, self.weights, self.passing)))
        asked = _Asked(H, C, B, int(absolute), self.dropout, at(first), at(second), at(target), at(self.weights))
        asked.lasting, asked.passing, asked.drawn = at(self.lasting), at(self.passing), at(drawn)
        asked.by_lasting, asked.by_weights, asked.next = (at(part) for part in moves)
        if not compiled.mixing_propose(ctypes.byref(asked)):
            raise MemoryError(f"no memory for the mixture of {B} examples")
        return Proposal(moves, asked.loss, asked.squares)

    def take(self, moves: Moves) -> None:
        """Take the step."""
        descend(self._finish_weights, self.weights, moves.by_weights)
        descend(self._finish_lasting, self.lasting, moves.by_lasting)
        self.passing.copy_(moves.passing)

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        return {
            **{name: getattr(self, name).clone() for name in _TENSORS},
            "finish_lasting": self._finish_lasting.state_dict(),
            "finish_weights": self._finish_weights.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from it; whatever does not fit changes nothing."""
        parts = [fitting(name, state.get(name), getattr(self, name)) for name in _TENSORS]
        finishes = []
        for name in ("finish_lasting", "finish_weights"):
            saved, finish = state.get(name), copy.copy(self._finish_weights)
            if not isinstance(saved, dict):
                raise StateError(f"the mixture's state lacks its {name}; it belongs to another method")
            finish.load_state_dict(saved)
            finishes.append(finish)
        for name, part in zip(_TENSORS, parts, strict=True):
            getattr(self, name).copy_(part)
        self._finish_lasting, self._finish_weights = finishes
