"""The offline phase where the networks are: the schedule of `natsr.fleet.warm`, recorded like the online step.

Batches are gathered on the device, shuffled and thinned out by each learner's own stream there, and early stopping is
arithmetic on the losses: nobody waits until all epochs are done.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.control import Control
from natsr.fleet.course import Course
from natsr.fleet.finish import Finishes, Moments
from natsr.fleet.journey import Journey
from natsr.fleet.tables import Streams
from natsr.fleet.together import Together
from natsr.streams import Rows, Windows
from natsr.types import OptionError

_CHUNK = 64  # batches whose masks are drawn at once
_JUDGED = 256  # examples judged at once


class School(Journey):
    """Learners of one shape on their way through the warm-up.

    Args:
        fleet: The learners.
        rows: One stream for each; learners of one stream give the same object.
        borders: Rows to learn from, `0 … borders[0]-1`, and to judge by, up to `borders[1]-1`.
    """

    def __init__(self, fleet: Together, rows: Sequence[Rows], borders: tuple[int, int]) -> None:
        fleet.check(rows)
        plans = fleet.own.warm
        self.fleet, self.plan = fleet, plans[0]
        if len({(plan.batch, plan.dropout, plan.patience) for plan in plans}) != 1:
            raise OptionError("the learners' warm-ups differ in batch, dropout or patience, expected one plan for all")
        task = fleet.task
        learn, judge = Windows(rows[0], task, 0, borders[0]), Windows(rows[0], task, *borders)
        self._learn = (learn.first, len(learn))
        self._judge = (judge.first, len(judge)) if len(judge) else self._learn
        self._size = min(self.plan.batch, len(learn))
        self.batches = len(learn) // self._size if self._size else 0
        self.epochs = max(plan.epochs for plan in plans) if self.batches else 0
        self.course = Course(rows, fleet.shape.frame, fleet.net.weights)
        weights, device = fleet.net.weights, fleet.net.weights.device
        n = len(fleet)
        super().__init__(device)
        self._room = fleet.net.room(self._size)  # the program works in it: it must live as long
        self._streams = Streams(fleet.generators, device)
        self._rates = torch.tensor([plan.rate for plan in plans], dtype=torch.float64, device=device)
        self._epochs = torch.tensor([plan.epochs for plan in plans], device=device)
        self._moments = Moments(Finishes([True] * n, self._rates, weights.clone()), self._rates.clone(), weights)
        self._best, self._best_loss = weights.clone(), torch.full_like(self._rates, torch.inf)
        self._waited, self._learning = torch.zeros_like(self._epochs), self._epochs > 0
        self._batch = torch.zeros(1, dtype=torch.long, device=device)
        self._order = torch.zeros(n, max(1, len(learn)), dtype=torch.long, device=device)
        dropped = self.plan.dropout > 0
        self._keep = weights.new_ones(_CHUNK, n, self._size, fleet.net.shape.hidden) if dropped else None
        self._within = torch.arange(self._size, device=device)

    @property
    def total(self) -> int:
        """Batches in all."""
        return self.epochs * self.batches

    def _settle_up(self) -> None:
        if self.total:
            self.fleet.net.weights.copy_(self._best)
        self.fleet.sane.copy_(self.fleet.net.weights)

    def _chunk(self) -> bool:
        if self.done >= self.total:
            return False
        epoch, batch = divmod(self.done, self.batches)
        if batch == 0:
            self._order.copy_(self._streams.orders(self._learn[1]))
            self._moments.rates.copy_(self._rates * 0.5 ** max(0, epoch - 1))
            self._batch.zero_()
        size = min(_CHUNK, self.batches - batch)
        if self._keep is not None:
            drawn = self._streams.uniform(_CHUNK, *self._keep.shape[2:])
            self._keep.copy_((drawn >= self.plan.dropout) / (1 - self.plan.dropout))
        self._take(size)
        self.done += size
        if batch + size == self.batches:
            self._judged(epoch)
        return True

    def _step(self, _control: Control) -> None:
        """One batch of AdamW for everyone who has not stopped."""
        net = self.fleet.net
        order = self._order.index_select(1, self._batch * self._size + self._within)
        window, target = self._examples(order + self._learn[0])
        keep = None if self._keep is None else self._keep.index_select(0, self._place)[0]
        trace = net.trace(window, keep)
        known = target.isfinite()
        error = torch.where(known, target - trace.output, 0.0)
        counts = known.sum((1, 2)).clamp(min=1)
        pull = self.fleet.likelihood.score(error).div_(counts.to(error)[:, None, None])
        gradient = net.gradient(trace, pull)
        self._moments.step(gradient, self._learning & gradient.sum(1).isfinite())
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
            window, target = self._examples(origins.expand(len(self.fleet), -1))
            there = target.isfinite()
            error = torch.where(there, target - self.fleet.net.trace(window).output, 0.0)
            total += self.fleet.likelihood.nll(error).sum((1, 2)).double()
            known += there.sum((1, 2))
        loss = total / known
        better = self._learning & (loss < self._best_loss)
        self._best.copy_(torch.where(better[:, None], self.fleet.net.weights, self._best))
        self._best_loss.copy_(torch.where(better, loss, self._best_loss))
        self._waited.copy_(torch.where(better, 0, self._waited + 1))
        self._learning &= (self._waited < self.plan.patience) & (epoch + 1 < self._epochs)
