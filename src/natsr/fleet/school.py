"""The offline phase where the networks are: the schedule of `natsr.fleet.warm`, recorded like the online step.

Batches are gathered on the device, shuffled and thinned out by each learner's own stream there, and early stopping is
arithmetic on the losses: nobody waits until all epochs are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from natsr.fleet.control import Control
from natsr.fleet.course import Course
from natsr.fleet.finish import Adaptive
from natsr.fleet.journey import Journey
from natsr.fleet.tables import Draw, Masks, Streams
from natsr.fleet.together import Together, keep
from natsr.forecasters.frame import Frame
from natsr.forecasters.warm import WarmUp
from natsr.streams import Rows, Windows
from natsr.types import OptionError

_CHUNK = 64  # batches whose masks are drawn at once
_JUDGED = 256  # examples judged at once


class Pupils(Protocol):
    """What goes through a warm-up: learners of one shape."""

    @property
    def frame(self) -> Frame:
        """What they read and are taught."""

    @property
    def generators(self) -> Sequence[torch.Generator]:
        """One for each."""

    @property
    def plans(self) -> tuple[WarmUp, ...]:
        """Their schedules."""

    @property
    def like(self) -> Tensor:
        """Gives type and place."""

    def __len__(self) -> int:
        """How many there are."""

    def check(self, rows: Sequence[Rows], /) -> None:
        """Raise unless there is a stream for each."""

    def begin(self, rates: Tensor) -> None:
        """Start with fresh optimisers, at rates `(N,)` that are changed in place."""

    def draws(self, examples: int, dropout: float) -> list[Draw]:
        """The masks that a step on so many examples wants."""

    def room(self, examples: int) -> object:
        """What a recorded step works in, to be held as long as it is used."""

    def fit(self, window: Tensor, target: Tensor, masks: Sequence[Tensor | None], learning: Tensor) -> None:
        """A step on windows `(N, B, L, D)` and labels `(N, B, m)`, for the learners of a mask."""

    def losses(self, window: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of losses over the known labels of each learner, and how many they are."""

    def trained(self) -> list[Tensor]:
        """What the best copy is kept of, `(N, …)` each."""

    def graduate(self) -> None:
        """The best copies are in their place: get ready for the stream."""


class Plain:
    """A fleet of networks on the cone as pupils."""

    def __init__(self, fleet: Together) -> None:
        self._fleet, self.check = fleet, fleet.check
        self.frame, self.generators, self.plans = fleet.shape.frame, fleet.generators, fleet.own.warm
        self.like, self.room = fleet.net.weights, fleet.net.room

    def __len__(self) -> int:
        return len(self._fleet)

    def begin(self, rates: Tensor) -> None:
        self._finish = Adaptive(self.like, rates)

    def draws(self, examples: int, dropout: float) -> list[Draw]:
        return [Draw((examples, self._fleet.net.shape.hidden), dropout)]

    def fit(self, window: Tensor, target: Tensor, masks: Sequence[Tensor | None], learning: Tensor) -> None:
        net, (keep,) = self._fleet.net, masks
        trace = net.trace(window, keep)
        gradient = net.gradient(trace, self._fleet.likelihood.pull(trace.output, target))
        self._finish.step(gradient, learning & gradient.sum(1).isfinite())

    def losses(self, window: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        sums, counts = self._fleet.likelihood.losses(self._fleet.net.trace(window).output, target)
        return sums.double(), counts

    def trained(self) -> list[Tensor]:
        return [self.like]

    def graduate(self) -> None:
        self._fleet.sane.copy_(self.like)


class School(Journey):
    """Learners of one shape on their way through the warm-up.

    Args:
        pupils: The learners.
        rows: One stream for each; learners of one stream give the same object.
        borders: Rows to learn from, `0 … borders[0]-1`, and to judge by, up to `borders[1]-1`.
    """

    def __init__(self, pupils: Pupils | Together, rows: Sequence[Rows], borders: tuple[int, int]) -> None:
        pupils = Plain(pupils) if isinstance(pupils, Together) else pupils
        pupils.check(rows)
        plans = pupils.plans
        self.pupils, self.plan = pupils, plans[0]
        if len({(plan.batch, plan.dropout, plan.patience) for plan in plans}) != 1:
            raise OptionError("the learners' warm-ups differ in batch, dropout or patience, expected one plan for all")
        task = pupils.frame.task
        learn, judge = Windows(rows[0], task, 0, borders[0]), Windows(rows[0], task, *borders)
        self._learn = (learn.first, len(learn))
        self._judge = (judge.first, len(judge)) if len(judge) else self._learn
        self._size = min(self.plan.batch, len(learn))
        self.batches = len(learn) // self._size if self._size else 0
        self.epochs = max(plan.epochs for plan in plans) if self.batches else 0
        self.course = Course(rows, pupils.frame, pupils.like)
        device, n = pupils.like.device, len(pupils)
        super().__init__(device)
        self._room = pupils.room(self._size)  # the program works in it: it must live as long
        self._streams = Streams(pupils.generators, device)
        self._rates = torch.tensor([plan.rate for plan in plans], dtype=torch.float64, device=device)
        self._epochs = torch.tensor([plan.epochs for plan in plans], device=device)
        self._now = self._rates.clone()
        pupils.begin(self._now)
        self._best = [part.clone() for part in pupils.trained()]
        self._best_loss = torch.full_like(self._rates, torch.inf)
        self._waited, self._learning = torch.zeros_like(self._epochs), self._epochs > 0
        self._batch = torch.zeros(1, dtype=torch.long, device=device)
        self._order = torch.zeros(n, max(1, len(learn)), dtype=torch.long, device=device)
        self._masks = Masks(pupils.draws(self._size, self.plan.dropout), _CHUNK, n, pupils.like)
        self._within = torch.arange(self._size, device=device)

    @property
    def total(self) -> int:
        """Batches in all."""
        return self.epochs * self.batches

    def _settle_up(self) -> None:
        if self.total:
            for part, best in zip(self.pupils.trained(), self._best, strict=True):
                part.copy_(best)
        self.pupils.graduate()

    def _chunk(self) -> bool:
        if self.done >= self.total:
            return False
        epoch, batch = divmod(self.done, self.batches)
        if batch == 0:
            self._order.copy_(self._streams.orders(self._learn[1]))
            self._now.copy_(self._rates * 0.5 ** max(0, epoch - 1))
            self._batch.zero_()
        size = min(_CHUNK, self.batches - batch)
        self._masks.draw(self._streams)
        self._take(size)
        self.done += size
        if batch + size == self.batches:
            self._judged(epoch)
        return True

    def _step(self, _control: Control) -> None:
        """One batch of AdamW for everyone who has not stopped."""
        order = self._order.index_select(1, self._batch * self._size + self._within)
        window, target = self._examples(order + self._learn[0])
        self.pupils.fit(window, target, self._masks.at(self._place), self._learning)
        self._batch += 1
        self._next()

    def _examples(self, origins: Tensor) -> tuple[Tensor, Tensor]:
        windows = self.course.windows(origins)
        return self.course.read(windows), self.course.taught(windows, self.course.targets(origins))

    def _judged(self, epoch: int) -> None:
        """Keep who has become better; who has not for too long, or has no epoch left, stops."""
        first, count = self._judge
        total = torch.zeros_like(self._rates)
        known = torch.zeros_like(self._rates)
        for start in range(0, count, _JUDGED):
            origins = torch.arange(first + start, first + min(start + _JUDGED, count), device=self._device)
            losses, count_known = self.pupils.losses(*self._examples(origins.expand(len(self.pupils), -1)))
            total += losses
            known += count_known
        loss = total / known
        better = self._learning & (loss < self._best_loss)
        keep(better, *zip(self._best, self.pupils.trained(), strict=True))
        self._best_loss.copy_(torch.where(better, loss, self._best_loss))
        self._waited.copy_(torch.where(better, 0, self._waited + 1))
        self._learning &= (self._waited < self.plan.patience) & (epoch + 1 < self._epochs)
