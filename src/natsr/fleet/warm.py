"""The offline phase of several learners at once: `natsr.forecasters.warm`, each learner with its own draws."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.base import Parts
from natsr.fleet.finish import Finishes
from natsr.fleet.likelihood import Likelihoods
from natsr.fleet.net import FleetTCN
from natsr.forecasters.base import Progress
from natsr.forecasters.frame import Frame
from natsr.forecasters.warm import WarmUp, dropout_mask
from natsr.streams import Windows
from natsr.types import Example

_JUDGED = 256  # examples judged at once, as by one learner alone


class _Run:
    """One learner's place in its schedule."""

    def __init__(self, plan: WarmUp, parts: Parts, generator: torch.Generator) -> None:
        self.plan, (self.learn, judge), self.generator = plan, parts, generator
        self.judge = judge if len(judge) else self.learn
        self.batches = len(self.learn) // plan.batch or min(1, len(self.learn))
        self.best, self.waited, self.stopped = float("inf"), 0, plan.epochs == 0
        self._order = torch.empty(0, dtype=torch.long)

    def begin(self) -> None:
        """Shuffle for an epoch."""
        if not self.stopped:
            self._order = torch.randperm(len(self.learn), generator=self.generator)

    def batch(self, index: int) -> Tensor | None:
        """Positions of the examples of a batch, or nothing if there is none left."""
        if self.stopped or index >= self.batches:
            return None
        return self._order[index * self.plan.batch : (index + 1) * self.plan.batch]

    def judged(self, loss: float, epoch: int) -> bool:
        """Take in the epoch's loss; answers whether it is the best so far."""
        better = loss < self.best
        self.best, self.waited = (loss, 0) if better else (self.best, self.waited + 1)
        self.stopped = self.waited >= self.plan.patience or epoch + 1 >= self.plan.epochs
        return better


@torch.no_grad()
def train(
    net: FleetTCN,
    likelihood: Likelihoods,
    plans: Sequence[WarmUp],
    parts: Sequence[Parts],
    generators: Sequence[torch.Generator],
    frame: Frame,
    progress: Progress,
) -> None:
    """Fit the weights in place, each learner on its own parts and by its own plan.

    A learner that has fewer batches, or has stopped, waits for the others; it learns what it would learn alone.

    Args:
        net: The networks.
        likelihood: The method's own losses.
        plans: The schedules; batch size and dropout are the same in all.
        parts: Examples to learn from, and examples to judge by.
        generators: Shuffle and drop.
        frame: What the networks read and are taught.
        progress: Told after every batch.
    """
    runs = [_Run(*each) for each in zip(plans, parts, generators, strict=True)]
    finish = Finishes(
        [True] * len(plans), torch.tensor([plan.rate for plan in plans], dtype=torch.float64), net.weights
    )
    best, batches, epochs = net.weights.clone(), max(run.batches for run in runs), max(plan.epochs for plan in plans)
    for epoch in range(epochs):
        going = [not run.stopped for run in runs]
        if not any(going):
            break
        finish.set_rates([plan.rate * 0.5 ** max(0, epoch - 1) for plan in plans])
        for run in runs:
            run.begin()
        for index in range(batches):
            chosen = [run.batch(index) for run in runs]
            _step(net, likelihood, finish, frame, runs, chosen)
            progress(epoch * batches + index + 1, epochs * batches, "warm-up")
        for number, loss in enumerate(_losses(net, likelihood, frame, runs, going)):
            if going[number] and runs[number].judged(loss, epoch):
                best[number] = net.weights[number]
    net.weights.copy_(best)
    progress(1, 1, "warm-up")


def _step(
    net: FleetTCN,
    likelihood: Likelihoods,
    finish: Finishes,
    frame: Frame,
    runs: Sequence[_Run],
    chosen: Sequence[Tensor | None],
) -> None:
    """One batch of AdamW for everyone who has one."""
    active = [part is not None for part in chosen]
    window, target = _gathered(net, frame, [run.learn for run in runs], chosen)
    B = window.shape[1]
    keep, sizes = torch.ones(len(runs), B, net.shape.hidden), [0 if part is None else len(part) for part in chosen]
    for number, run in enumerate(runs):
        mask = dropout_mask(
            (sizes[number], net.shape.hidden), run.plan.dropout if sizes[number] else 0.0, run.generator
        )
        if mask is not None:
            keep[number, : sizes[number]] = mask
    trace = net.trace(window, keep.to(window) if runs[0].plan.dropout > 0 else None)
    gradient = net.gradient(trace, likelihood.pull(trace.output, target))
    finite: list[bool] = gradient.sum(1).isfinite().tolist()
    finish.step(gradient, [one and fine for one, fine in zip(active, finite, strict=True)])


def _losses(
    net: FleetTCN, likelihood: Likelihoods, frame: Frame, runs: Sequence[_Run], going: Sequence[bool]
) -> list[float]:
    """Each learner's mean loss over the examples that it is judged by; infinite if it is not a number."""
    totals, counts = [0.0] * len(runs), [0] * len(runs)
    longest = max(len(run.judge) for run in runs)
    for start in range(0, longest, _JUDGED):
        chosen = [
            torch.arange(start, min(start + _JUDGED, len(run.judge))) if wanted and start < len(run.judge) else None
            for run, wanted in zip(runs, going, strict=True)
        ]
        if not any(part is not None for part in chosen):
            break
        window, target = _gathered(net, frame, [run.judge for run in runs], chosen)
        sums, numbers = (part.tolist() for part in likelihood.losses(net.trace(window).output, target))
        totals = [total + more for total, more in zip(totals, sums, strict=True)]
        counts = [count + more for count, more in zip(counts, numbers, strict=True)]
    means = [total / count if count else math.inf for total, count in zip(totals, counts, strict=True)]
    return [math.inf if math.isnan(mean) else mean for mean in means]


def _gathered(
    net: FleetTCN, frame: Frame, parts: Sequence[Windows], chosen: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor]:
    """Windows `(N, B, L, D)` and labels `(N, B, m)`, padded with zeros and NaN."""
    like, sizes = net.weights, [0 if part is None else len(part) for part in chosen]
    if min(sizes) == max(sizes) and all(part is parts[0] for part in parts):
        examples = parts[0].batch(torch.cat([part for part in chosen if part is not None]))
        window, target = frame.read(examples.window, like), frame.teach(examples, like)
        return window.view(len(parts), -1, *window.shape[1:]), target.view(len(parts), -1, *target.shape[1:])
    task = frame.task
    window = like.new_zeros(len(parts), max(sizes), task.window, task.inputs)
    target = like.new_full((len(parts), max(sizes), task.outputs), math.nan)
    for number, (part, indices) in enumerate(zip(parts, chosen, strict=True)):
        if indices is not None:
            example: Example = part.batch(indices)
            window[number, : len(indices)] = frame.read(example.window, like)
            target[number, : len(indices)] = frame.teach(example, like)
    return window, target
