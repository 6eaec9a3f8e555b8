"""OneNet's mixture of two forecasts: a weight for each variable that is learned slowly, and a quick correction of it.

The long-term weight of a variable is `sigmoid(a)`, and `a` follows the gradient of the mixture's loss. The short-term
correction `b` is what a small network says when it sees, for one variable, the two weighted forecasts and what came:
the next forecast is mixed by `sigmoid(a + b)`. The small network learns to say what would have been right.

Here is the arithmetic, for one learner, or for several with a leading axis `N` on every tensor.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.nets.base import Layer, maps, stack
from natsr.types import Task

WIDTH = 32


def small_network(task: Task) -> tuple[Layer, ...]:
    """The layers of what says the correction: two hidden ones of tanh, dropout before each."""
    H = task.horizon
    return stack(
        [("first", 3 * H + 1, WIDTH, 3 * H), ("second", WIDTH + 1, WIDTH, WIDTH), ("last", WIDTH + 1, 1, WIDTH)]
    )


class Lesson(NamedTuple):
    """What came, and what a loss says about it."""

    target: Tensor  # (B, m), NaN = unknown
    known: Tensor | None  # (B, m) bool; None: all of them
    number: Tensor  # of those that are known, of each learner: no axis but `N`
    slope: Callable[[Tensor], Tensor]  # of the loss by outputs `(B, m)`, 0 where it is not known what came


class Moves(NamedTuple):
    """A step of the mixture that has not been taken."""

    by_lasting: Tensor  # (C,)
    by_weights: Tensor  # flat, of the small network
    passing: Tensor  # (C,), the next correction


class Mixture(abc.ABC):
    """Weights `sigmoid(lasting + passing)` of the first of two forecasts, for each variable.

    Args:
        task: Horizon and channels.
        weights: Of the small network, `(P,)`.
        lasting: `a`, `(C,)`.
        passing: `b`, `(C,)`.
    """

    def __init__(self, task: Task, weights: Tensor, lasting: Tensor, passing: Tensor) -> None:
        self.task, self.layers = task, small_network(task)
        self.weights, self.lasting, self.passing = weights, lasting, passing
        self._begin()

    @abc.abstractmethod
    def _begin(self) -> None:
        """Fresh optimisers."""

    def restart(self) -> None:
        """Equal weights, no correction and fresh optimisers; what the small network has learned stays."""
        self.lasting.zero_()
        self.passing.zero_()
        self._begin()

    def mixed(self, first: Tensor, second: Tensor) -> Tensor:
        """The mixture of forecasts `(B, m)`."""
        share = torch.sigmoid(self.lasting + self.passing)
        share = share.repeat(*[1] * (share.dim() - 1), self.task.horizon).unsqueeze(-2)
        return share * first + (1 - share) * second

    def moves(
        self, first: Tensor, second: Tensor, lesson: Lesson, masks: Sequence[Tensor | None]
    ) -> tuple[Moves, Tensor]:
        """The step on two forecasts `(B, m)` and what came, and their mixture with the long-term weights.

        Where it is not known what came, the small network sees the mixture itself. Nothing is changed.

        Args:
            first: One forecast.
            second: The other.
            lesson: What came.
            masks: On the hidden layers of the small network, `(B·C, WIDTH)` each.
        """
        C, number = self.task.channels, lesson.number
        shape = (*first.shape[:-1], self.task.horizon, C)
        apart, share = (first - second).view(shape), torch.sigmoid(self.lasting)
        spread = share[..., None, None, :]
        one, other = spread * first.reshape(shape), (1 - spread) * second.reshape(shape)
        mixture = (one + other).flatten(-2)
        by_share = (lesson.slope(mixture).view(shape) * apart).sum((-3, -2))
        came = lesson.target if lesson.known is None else torch.where(lesson.known, lesson.target, mixture)
        seen = torch.cat([one, other, came.view(shape)], -2).mT.flatten(-3, -2)
        said, kept = self._say(seen, masks)
        passing = said.view(*first.shape[:-1], C)
        quick = torch.sigmoid(self.lasting.unsqueeze(-2) + passing)
        corrected = torch.addcmul(second.reshape(shape), quick.unsqueeze(-2), apart).flatten(-2)
        by_quick = (lesson.slope(corrected).view(shape) * apart).sum(-2)
        by_passing = by_quick * (quick * (1 - quick)) / number[..., None, None]
        moves = Moves(
            by_share * (share * (1 - share)) / number[..., None],
            self._gradient(kept, by_passing.view(said.shape)),
            self._next(passing, lesson.known),
        )
        return moves, mixture

    def _next(self, passing: Tensor, known: Tensor | None) -> Tensor:
        """The next correction: the mean over examples that tell something about a variable, or the one before."""
        if known is None:
            return passing.mean(-2)
        telling = known.view(*passing.shape[:-1], -1, passing.shape[-1]).any(-2).to(passing)  # (B, C)
        total = telling.sum(-2)
        return torch.where(total > 0, (passing * telling).sum(-2) / total.clamp(min=1), self.passing)

    def _say(self, seen: Tensor, masks: Sequence[Tensor | None]) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        """What the small network says, `(M, 1)`, to `(M, 3H)`; and each layer's input and the mask on its output."""
        x, kept = seen, []
        *hidden, last = maps(self.layers, self.weights)
        for layer, keep in zip(hidden, masks, strict=True):
            kept.append((x, keep))
            x = layer.forward(x)
            x = torch.tanh(x if keep is None else x * keep)
        kept.append((x, None))
        return last.forward(x), kept

    def _gradient(self, kept: list[tuple[Tensor, Tensor | None]], g: Tensor) -> Tensor:
        """The flat gradient from the one by what it said, `(M, 1)`."""
        flat = torch.empty_like(self.weights)
        after: Tensor | None = None
        pairs = zip(maps(self.layers, self.weights), maps(self.layers, flat), kept, strict=True)
        for layer, by, (inputs, keep) in reversed(list(pairs)):
            if after is not None:
                g = g * (1 - after.square())
                g = g if keep is None else g * keep
            g, after = layer.backward(inputs, g, by), inputs
        return flat
