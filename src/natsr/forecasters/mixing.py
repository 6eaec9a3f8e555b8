"""OneNet's mixture of two forecasts: a weight for each variable that is learned slowly, and a quick correction of it.

The long-term weight of a variable is `sigmoid(a)`, and `a` follows the gradient of the mixture's loss. The short-term
correction `b` is what a small network says when it sees, for one variable, the two weighted forecasts and what came:
the next forecast is mixed by `sigmoid(a + b)`. The small network learns to say what would have been right.
"""

from __future__ import annotations

import copy
import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.forecasters.finish import AdamW
from natsr.forecasters.losses import LOSS_NAMES, Loss
from natsr.forecasters.stepping import Labels, descend
from natsr.forecasters.warm import dropout_mask
from natsr.native.calls import at, library
from natsr.nets.adapted import fitting
from natsr.nets.adapting import with_room
from natsr.nets.base import Layer, initial_weights, stack
from natsr.types import State, StateError, Task

WIDTH = 32
_TENSORS = ("weights", "lasting", "passing")


class Proposal(NamedTuple):
    """A step of the mixture that has not been taken."""

    by_lasting: Tensor  # (C,)
    by_weights: Tensor  # flat, of the small network
    passing: Tensor  # (C,), the next correction
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


class Mixing:
    """Weights `sigmoid(lasting + passing)` of the first of two forecasts, for each variable.

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
        H, C = task.horizon, task.channels
        self.task = task
        self.loss = loss
        self.dropout = dropout
        self.rate = rate
        self.generator = generator
        self.layers: tuple[Layer, ...] = stack(
            [("first", 3 * H + 1, WIDTH, 3 * H), ("second", WIDTH + 1, WIDTH, WIDTH), ("last", WIDTH + 1, 1, WIDTH)]
        )
        self.weights = with_room(initial_weights(self.layers, generator, dtype))
        self.lasting, self.passing = torch.zeros(C, dtype=dtype), torch.zeros(C, dtype=dtype)
        self._finish_lasting, self._finish_weights = AdamW(rate, decay=0.0), AdamW(rate, decay=0.0)

    def to(self, device: torch.device) -> Mixing:
        """Move everything."""
        self.weights, self.lasting, self.passing = (
            part.to(device) for part in (self.weights, self.lasting, self.passing)
        )
        return self

    def restart(self) -> None:
        """Equal weights, no correction and fresh optimisers; what the small network has learned stays."""
        self.lasting.zero_()
        self.passing.zero_()
        self._finish_lasting, self._finish_weights = AdamW(self.rate, decay=0.0), AdamW(self.rate, decay=0.0)

    def histories(self) -> tuple[State, State]:
        """What the optimisers of long-term weights and small network carry on."""
        return self._finish_lasting.state_dict(), self._finish_weights.state_dict()

    def go_on(self, lasting: State, weights: State) -> None:
        """Let the optimisers go on from `histories`."""
        self._finish_lasting.load_state_dict(lasting)
        self._finish_weights.load_state_dict(weights)

    def mixed(self, first: Tensor, second: Tensor) -> Tensor:
        """The mixture of forecasts `(B, m)`."""
        share = torch.sigmoid(self.lasting + self.passing).repeat(self.task.horizon)
        return share * first + (1 - share) * second

    def proposed(self, first: Tensor, second: Tensor, labels: Labels) -> Proposal:
        """The step on two forecasts `(B, m)` and what came; changes nothing.

        Where it is not known what came, the small network sees the mixture itself.
        """
        compiled = library() if self.weights.dtype == torch.float32 and self.weights.device.type == "cpu" else None
        if compiled is not None and (mae := LOSS_NAMES.get(type(self.loss))) is not None:
            return self._compiled(compiled, first, second, labels.target, mae == "mae")
        B, H, C = len(first), self.task.horizon, self.task.channels
        apart, share = (first - second).view(B, H, C), torch.sigmoid(self.lasting)
        one, other = share * first.view(B, H, C), (1 - share) * second.view(B, H, C)
        mixture = (one + other).flatten(1)
        error = labels.error(mixture)
        by_share = (self.loss.slope(error).view(B, H, C) * apart).sum((0, 1))
        came = labels.target if labels.known is None else torch.where(labels.known, labels.target, mixture)
        seen = torch.cat([one, other, came.view(B, H, C)], 1).transpose(1, 2).reshape(B * C, 3 * H)
        said, kept = self._say(seen)
        passing = said.view(B, C)
        quick = torch.sigmoid(self.lasting + passing)
        mistake = labels.error(torch.addcmul(second.view(B, H, C), quick[:, None], apart).flatten(1))
        by_quick = (self.loss.slope(mistake).view(B, H, C) * apart).sum(1)
        by_passing = by_quick * (quick * (1 - quick)) / labels.number
        parts = (
            by_share * (share * (1 - share)) / labels.number,
            self._gradient(kept, by_passing.view(-1, 1)),
            self._next(passing, labels),
        )
        loss = float(self.loss.value(error).sum()) / labels.number
        return Proposal(*parts, loss, sum(float(part.dot(part)) for part in parts))

    def _compiled(
        self, compiled: ctypes.CDLL, first: Tensor, second: Tensor, target: Tensor, absolute: bool
    ) -> Proposal:
        """The same in C."""
        B, H, C = len(first), self.task.horizon, self.task.channels
        drawn = None
        if self.dropout > 0:  # what two masks are made of, in the order in which torch draws them
            drawn = torch.rand((2, B * C, WIDTH), generator=self.generator, device=self.generator.device)
        parts = (torch.empty_like(self.lasting), torch.empty_like(self.weights), torch.empty_like(self.passing))
        asked = _Asked(H, C, B, int(absolute), self.dropout, at(first), at(second), at(target), at(self.weights))
        asked.lasting, asked.passing, asked.drawn = at(self.lasting), at(self.passing), at(drawn)
        asked.by_lasting, asked.by_weights, asked.next = (at(part) for part in parts)
        if not compiled.mixing_propose(ctypes.byref(asked)):
            raise MemoryError(f"no memory for the mixture of {B} examples")
        return Proposal(*parts, asked.loss, asked.squares)

    def _next(self, passing: Tensor, labels: Labels) -> Tensor:
        """The next correction: the mean over examples that tell something about a variable, or the one before."""
        if labels.known is None:
            return passing.mean(0)
        telling = labels.known.view(len(passing), -1, self.task.channels).any(1).to(passing)  # (B, C)
        total = telling.sum(0)
        return torch.where(total > 0, (passing * telling).sum(0) / total.clamp(min=1), self.passing)

    def take(self, proposal: Proposal) -> None:
        """Take the step."""
        descend(self._finish_weights, self.weights, proposal.by_weights)
        descend(self._finish_lasting, self.lasting, proposal.by_lasting)
        self.passing.copy_(proposal.passing)

    # ---- the small network: two hidden layers of tanh, dropout before each -----------------------------------------

    def _say(self, seen: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        """What it says `(N, 1)` to `(N, 3H)`, and for each layer its input and the mask on its output."""
        x, kept = seen, []
        for layer in self.layers[:-1]:
            matrix = layer.view(self.weights)
            keep = dropout_mask((len(x), WIDTH), self.dropout, self.generator)
            keep = None if keep is None else keep.to(x)
            kept.append((x, keep))
            x = torch.addmm(matrix[-1], x, matrix[:-1])
            x = torch.tanh(x if keep is None else x * keep)
        kept.append((x, None))
        matrix = self.layers[-1].view(self.weights)
        return torch.addmm(matrix[-1], x, matrix[:-1]), kept

    def _gradient(self, kept: list[tuple[Tensor, Tensor | None]], g: Tensor) -> Tensor:
        """The flat gradient from the gradient `(N, 1)` by what it said."""
        flat = torch.empty_like(self.weights)
        after: Tensor | None = None
        for layer, (inputs, keep) in zip(reversed(self.layers), reversed(kept), strict=True):
            if after is not None:
                g = g * (1 - after.square())
                g = g if keep is None else g * keep
            matrix = layer.view(flat)
            torch.mm(inputs.T, g, out=matrix[:-1])
            torch.sum(g, 0, out=matrix[-1])
            g, after = torch.mm(g, layer.view(self.weights)[:-1].T), inputs
        return flat

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
