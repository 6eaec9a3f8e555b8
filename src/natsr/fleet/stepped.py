"""Learners that bring their own step (`natsr.forecasters.stepping`), several of one shape at once.

FSNet's and OneNet's steps with a leading axis of learners, `N`, for a device that goes along a whole stream by itself:
`look` computes a step whole, and nobody waits for what it found; what it returns is then taken by those who may.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.fleet.control import Control
from natsr.fleet.tables import Draw
from natsr.fleet.together import keep
from natsr.forecasters.guards import LARGEST, SANE_EVERY
from natsr.forecasters.losses import LOSS_NAMES
from natsr.forecasters.stepping import SteppingForecaster
from natsr.forecasters.warm import WarmUp
from natsr.likelihoods import LARGEST_ERROR
from natsr.streams import Rows
from natsr.types import OptionError


class Labels(NamedTuple):
    """What the examples of every learner teach."""

    target: Tensor  # (N, B, m), NaN = unknown
    known: Tensor  # bool
    number: Tensor  # (N,), of those that are known, at least one
    absolute: Tensor  # (N, 1, 1) bool: whose loss is the absolute error, not its square

    def error(self, output: Tensor) -> Tensor:
        """`target - output`, and 0 where it is not known."""
        return torch.where(self.known, self.target - output, 0.0)

    def loss(self, output: Tensor) -> Tensor:
        """The sum over what is known, `(N,)` in float64."""
        error = self.error(output)
        squared = error.clamp(-LARGEST_ERROR, LARGEST_ERROR).square()
        return torch.where(self.absolute, error.abs(), squared).sum((1, 2), dtype=torch.float64)

    def slope(self, output: Tensor) -> Tensor:
        """The derivative of the loss by each output."""
        error = self.error(output)
        squared = error.clamp(-LARGEST_ERROR, LARGEST_ERROR).mul_(-2.0)
        return torch.where(self.absolute, -error.sign(), squared)

    def pull(self, output: Tensor) -> Tensor:
        """That of its mean."""
        return self.slope(output).div_(self.number.to(output)[:, None, None])


class Seen(NamedTuple):
    """A step that has not been taken."""

    output: Tensor  # (N, windows, m), of all windows
    farthest: Tensor  # (N,), the largest output of what is learned from; NaN if one is no number
    squares: Tensor  # (N,), of the gradient
    take: Callable[[Tensor], None]  # by the learners of a mask

    @property
    def fine(self) -> Tensor:
        """Whose gradient is made of numbers, and not too long to go on with."""
        return self.squares < LARGEST**2


class Stepped(abc.ABC):
    """Forecasters of one kind and shape.

    Args:
        forecasters: Their state is taken over; `give_back` returns it.
    """

    def __init__(self, forecasters: Sequence[SteppingForecaster]) -> None:
        first = forecasters[0]
        self.forecasters = list(forecasters)
        self.task, self.frame, self.like = first.task, first.frame, first.learner.like
        self.generators = [one.generator for one in forecasters]
        device = self.like.device
        self.absolute = torch.tensor([LOSS_NAMES[type(one.loss)] == "mae" for one in forecasters], device=device)
        self.counts = {
            name: torch.tensor([int(getattr(one, name)) for one in forecasters], device=device)
            for name in ("steps", "refused", "restored")
        }

    def __len__(self) -> int:
        return len(self.forecasters)

    @property
    def plans(self) -> tuple[WarmUp, ...]:
        """The learners' warm-ups."""
        return tuple(one.warm for one in self.forecasters)

    @property
    def rates(self) -> Tensor:
        """Those of the stream, `(N,)`."""
        return torch.tensor([one.rate for one in self.forecasters], dtype=torch.float64, device=self.like.device)

    def check(self, rows: Sequence[Rows]) -> None:
        """Raise unless there is a stream for each learner."""
        if len(rows) != len(self):
            raise OptionError(f"got {len(rows)} streams for {len(self)} learners, expected one for each")

    # ---- what each kind does ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def begin(self, rates: Tensor) -> None:
        """Start a phase with fresh optimisers, at rates `(N,)` that may be changed in place."""

    @abc.abstractmethod
    def forget(self, who: Tensor) -> None:
        """Fresh optimisers for the learners of a mask."""

    @abc.abstractmethod
    def draws(self, examples: int, dropout: float) -> list[Draw]:
        """The masks that a step on so many examples wants, those of rate 0 included."""

    @abc.abstractmethod
    def look(self, window: Tensor, labels: Labels, masks: Sequence[Tensor | None], online: bool) -> Seen:
        """A step on the first windows `(N, …, L, D)`, as many as there are labels; others are forecast from only."""

    @abc.abstractmethod
    def judged(self, window: Tensor) -> Tensor:
        """What the warm-up's validation scores, `(N, B, m)`."""

    @abc.abstractmethod
    def trained(self) -> list[Tensor]:
        """What the warm-up keeps the best copy of, `(N, …)` each."""

    @abc.abstractmethod
    def vital(self) -> list[Tensor]:
        """What has to be put back to undo steps that led astray."""

    @abc.abstractmethod
    def room(self, examples: int) -> object:
        """What a recorded step on so many windows works in, to be held as long as it is used."""

    @abc.abstractmethod
    def _give_back(self) -> None:
        """Bring the forecasters' learners up to date."""

    # ---- what they share -------------------------------------------------------------------------------------------

    def labels(self, target: Tensor) -> Labels:
        """What labels `(N, B, m)`, NaN where unknown, teach."""
        known = target.isfinite()
        return Labels(target, known, known.sum((1, 2)).clamp(min=1), self.absolute[:, None, None])

    def fit(self, window: Tensor, target: Tensor, masks: Sequence[Tensor | None], learning: Tensor) -> None:
        """A step of the warm-up for the learners of a mask."""
        labels = self.labels(target)
        seen = self.look(window, labels, masks, online=False)
        seen.take(learning & labels.known.flatten(1).any(1) & seen.farthest.isfinite() & seen.fine)

    def losses(self, window: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of losses over the known labels of each learner, and how many they are."""
        labels = self.labels(target)
        return labels.loss(self.judged(window)), labels.known.sum((1, 2))

    def graduate(self) -> None:
        self.begin(self.rates)
        self.hold()

    def hold(self) -> None:
        """Remember everything vital as sane; a stream may begin."""
        self.sane = [part.clone() for part in self.vital()]
        self._keeps, self._astray = (torch.zeros((), dtype=torch.bool, device=self.like.device) for _ in range(2))

    def learn(self, control: Control, window: Tensor, target: Tensor, masks: Sequence[Tensor | None]) -> Tensor:
        """One step of the stream; answers the outputs on the last window, `(N, m)`, as they were before it.

        Args:
            control: Where a step asks.
            window: Those of the new examples, and the one to forecast from, `(N, B + 1, L, D)`.
            target: What the examples teach, `(N, B, m)`; nothing, where nothing of them is known.
            masks: What `draws` asked for.
        """
        counts, labels = self.counts, self.labels(target)
        seen = self.look(window, labels, masks, online=True)
        active, readable = labels.known.flatten(1).any(1), window[:, :-1].flatten(1).isfinite().all(1)
        counts["steps"] += active
        wanted, sane = active & readable, seen.farthest < self.frame.farthest
        kept = wanted & sane & (counts["steps"] % SANE_EVERY == 0)
        self._keeps.copy_(kept.any())
        control.when(self._keeps, lambda: self._remember(kept))
        mask, astray = wanted & sane & seen.fine, wanted & ~sane
        seen.take(mask)
        counts["refused"] += active & ~mask & ~astray
        counts["restored"] += astray
        self._astray.copy_(astray.any())
        control.when(self._astray, lambda: self._restore(astray))
        return seen.output[:, -1]

    def _remember(self, who: Tensor) -> None:
        keep(who, *zip(self.sane, self.vital(), strict=True))

    def _restore(self, who: Tensor) -> None:
        keep(who, *zip(self.vital(), self.sane, strict=True))
        self.forget(who)

    def info(self, number: int) -> dict[str, float]:
        """What one may want to look at in a learner, as it was when it was given back."""
        return self.forecasters[number].info()

    def give_back(self) -> None:
        """Bring the forecasters up to date."""
        self._give_back()
        for number, one in enumerate(self.forecasters):
            one.hold([part[number] for part in self.sane])
        for name, numbers in self.counts.items():
            for one, number in zip(self.forecasters, numbers.tolist(), strict=True):
                setattr(one, name, number)
