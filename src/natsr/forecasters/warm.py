"""The offline phase before the stream: AdamW over shuffled batches, early stopping, best weights kept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from natsr.forecasters.base import Progress
from natsr.forecasters.finish import AdamW
from natsr.forecasters.frame import Frame
from natsr.likelihoods import Likelihood
from natsr.nets.base import Network, Traced
from natsr.streams import Windows

T = TypeVar("T", bound=Traced)


@dataclass(frozen=True)
class WarmUp:
    """The published schedule: rates 1e-3, 1e-3, 5e-4, 2.5e-4, … for 6 epochs of batches of 32, dropout on.

    Args:
        epochs: Passes over the train part.
        rate: Rate of the first two epochs; it is halved after each later one.
        batch: Examples in a step.
        patience: Epochs without a better validation loss after which it stops.
        dropout: Share of the last hidden layer that is dropped.
    """

    epochs: int = 6
    rate: float = 1e-3
    batch: int = 32
    patience: int = 3
    dropout: float = 0.1


class Trainee(Protocol):
    """What a warm-up fits: anything that takes a step on examples and can be judged by others."""

    @property
    def like(self) -> Tensor:
        """A tensor of the type and place that it computes in."""

    def set_rate(self, rate: float) -> None:
        """Go on at another rate."""

    def fit(self, window: Tensor, target: Tensor, dropout: float) -> None:
        """One step on windows `(B, L, D)` and labels `(B, m)`, NaN where unknown."""

    def score(self, window: Tensor, target: Tensor) -> tuple[float, int]:
        """The sum of losses over the known labels, and how many they are."""

    def trained(self) -> Sequence[Tensor]:
        """What the best copy is kept of."""

    def settle(self) -> None:
        """Compute again what depends on these tensors."""


@torch.no_grad()
def scheduled(
    trainee: Trainee,
    plan: WarmUp,
    parts: tuple[Windows, Windows],
    generator: torch.Generator,
    frame: Frame,
    progress: Progress,
) -> None:
    """Fit by the schedule.

    Args:
        trainee: What is fitted, in place.
        plan: The schedule.
        parts: Examples to learn from, and examples to judge by.
        generator: Shuffles.
        frame: What is read and taught.
        progress: Told after every batch.
    """
    learn, judge = parts
    batches = len(learn) // plan.batch or min(1, len(learn))
    best, best_loss, waited = [part.clone() for part in trainee.trained()], math.inf, 0
    for epoch in range(plan.epochs):
        trainee.set_rate(plan.rate * 0.5 ** max(0, epoch - 1))
        order = torch.randperm(len(learn), generator=generator)
        for index in range(batches):
            example = learn.batch(order[index * plan.batch : (index + 1) * plan.batch])
            trainee.fit(frame.read(example.window, trainee.like), frame.teach(example, trainee.like), plan.dropout)
            progress(epoch * batches + index + 1, plan.epochs * batches, "warm-up")
        loss = judged_loss(trainee, judge if len(judge) else learn, frame)
        if loss < best_loss:
            best, best_loss, waited = [part.clone() for part in trainee.trained()], loss, 0
        else:
            waited += 1
            if waited >= plan.patience:
                break
    for part, kept in zip(trainee.trained(), best, strict=True):
        part.copy_(kept)
    trainee.settle()
    progress(1, 1, "warm-up")


def judged_loss(trainee: Trainee, part: Windows, frame: Frame, batch: int = 256) -> float:
    """The mean loss of each known output over a part; infinite if it is not a number."""
    total, count = 0.0, 0
    for start in range(0, len(part), batch):
        example = part.batch(torch.arange(start, min(start + batch, len(part))))
        loss, known = trainee.score(frame.read(example.window, trainee.like), frame.teach(example, trainee.like))
        total, count = total + loss, count + known
    mean = total / count if count else math.inf
    return mean if not math.isnan(mean) else math.inf


class _Fitted(Generic[T]):
    """A network with the method's own loss, and AdamW."""

    def __init__(self, net: Network[T], likelihood: Likelihood, generator: torch.Generator) -> None:
        self.net = net
        self.likelihood = likelihood
        self.generator = generator
        self.finish = AdamW(0.0)

    @property
    def like(self) -> Tensor:
        return self.net.weights

    def set_rate(self, rate: float) -> None:
        self.finish.set_rate(rate)

    def fit(self, window: Tensor, target: Tensor, dropout: float) -> None:
        keep = dropout_mask((len(window), self.net.hidden), dropout, self.generator)
        trace = self.net.trace(window, None if keep is None else keep.to(window))
        error, known = masked_error(trace.output, target)
        gradient = self.net.gradient(trace, self.likelihood.score(error) / max(1, known))
        if bool(gradient.sum().isfinite()):
            self.finish.step(self.net.weights, gradient)

    def score(self, window: Tensor, target: Tensor) -> tuple[float, int]:
        error, known = masked_error(self.net.forward(window), target)
        return float(self.likelihood.nll(error).sum()), known

    def trained(self) -> Sequence[Tensor]:
        return (self.net.weights,)

    def settle(self) -> None:
        pass


def train(
    net: Network[T],
    likelihood: Likelihood,
    plan: WarmUp,
    parts: tuple[Windows, Windows],
    generator: torch.Generator,
    frame: Frame,
    progress: Progress,
) -> None:
    """Fit the network's weights in place.

    Args:
        net: The network.
        likelihood: The method's own loss.
        plan: The schedule.
        parts: Examples to learn from, and examples to judge by.
        generator: Shuffles and drops.
        frame: What the network reads and is taught.
        progress: Told after every batch.
    """
    scheduled(_Fitted(net, likelihood, generator), plan, parts, generator, frame, progress)


def masked_error(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """`target - output` where the target is known and zero elsewhere, and how many are known."""
    known = target.isfinite()
    return torch.where(known, target - output, torch.zeros_like(output)), int(known.sum())


def dropout_mask(shape: tuple[int, int], rate: float, generator: torch.Generator) -> Tensor | None:
    """Zeros at `rate`, and the rest scaled up to keep the mean; nothing if nothing is dropped."""
    if rate <= 0:
        return None
    return (torch.rand(shape, generator=generator, device=generator.device) >= rate).float() / (1 - rate)
