"""The offline phase before the stream: AdamW over shuffled batches, early stopping, best weights kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

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


@torch.no_grad()
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
    learn, judge = parts
    batches = len(learn) // plan.batch or min(1, len(learn))
    finish, best, best_loss, waited = AdamW(plan.rate), net.weights.clone(), float("inf"), 0
    for epoch in range(plan.epochs):
        finish.set_rate(plan.rate * 0.5 ** max(0, epoch - 1))
        order = torch.randperm(len(learn), generator=generator)
        for index in range(batches):
            example = learn.batch(order[index * plan.batch : (index + 1) * plan.batch])
            window, target = frame.read(example.window, net.weights), frame.teach(example, net.weights)
            keep = dropout_mask((len(window), net.hidden), plan.dropout, generator)
            trace = net.trace(window, None if keep is None else keep.to(window))
            error, known = masked_error(trace.output, target)
            pull = likelihood.score(error) / max(1, known)
            gradient = net.gradient(trace, pull)
            if bool(gradient.sum().isfinite()):
                finish.step(net.weights, gradient)
            progress(epoch * batches + index + 1, plan.epochs * batches, "warm-up")
        loss = mean_loss(net, likelihood, judge if len(judge) else learn, frame)
        if loss < best_loss:
            best, best_loss, waited = net.weights.clone(), loss, 0
        else:
            waited += 1
            if waited >= plan.patience:
                break
    net.weights.copy_(best)
    progress(1, 1, "warm-up")


def mean_loss(net: Network[T], likelihood: Likelihood, part: Windows, frame: Frame, batch: int = 256) -> float:
    """The mean loss of each known output over a part; infinite if it is not a number."""
    total, count = 0.0, 0
    for start in range(0, len(part), batch):
        example = part.batch(torch.arange(start, min(start + batch, len(part))))
        output = net.forward(frame.read(example.window, net.weights))
        error, known = masked_error(output, frame.teach(example, net.weights))
        total, count = total + float(likelihood.nll(error).sum()), count + known
    mean = total / count if count else float("inf")
    return mean if mean == mean else float("inf")


def masked_error(output: Tensor, target: Tensor) -> tuple[Tensor, int]:
    """`target - output` where the target is known and zero elsewhere, and how many are known."""
    known = target.isfinite()
    return torch.where(known, target - output, torch.zeros_like(output)), int(known.sum())


def dropout_mask(shape: tuple[int, int], rate: float, generator: torch.Generator) -> Tensor | None:
    """Zeros at `rate`, and the rest scaled up to keep the mean; nothing if nothing is dropped."""
    if rate <= 0:
        return None
    return (torch.rand(shape, generator=generator, device=generator.device) >= rate).float() / (1 - rate)
