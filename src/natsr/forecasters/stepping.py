"""Networks that bring their own step: one forecaster and one warm-up around any `Learner`.

`NeuralForecaster` makes a step from slots. FSNet and OneNet have a step of another shape (averages of gradients that
become weights; two networks and what mixes them). Here is what they share with every other network: the frame, the
guards, the schedule of the warm-up, and a state. As there, a step is computed whole before anything is changed, and a
network that has gone astray goes back to its last sane copy, with fresh optimisers.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.finish import AdamW
from natsr.forecasters.frame import Frame
from natsr.forecasters.guards import LARGEST, SANE_EVERY, whole
from natsr.forecasters.losses import LOSS_NAMES, Loss
from natsr.forecasters.warm import WarmUp, scheduled
from natsr.native.calls import at, counted, library
from natsr.nets.adapted import fitting
from natsr.state import on_device
from natsr.streams import Windows
from natsr.types import Example, State, StateError, Task

_COUNTS = ("steps", "refused", "restored")


class Taken(NamedTuple):
    """What came of a step: `refused` and `astray` steps have changed nothing."""

    verdict: Literal["taken", "refused", "astray"]
    loss: float = math.nan


class Labels(NamedTuple):
    """What examples teach."""

    target: Tensor  # (B, m), NaN = unknown
    known: Tensor | None  # (B, m) bool; None: all of them
    number: int  # of those that are known

    @classmethod
    def of(cls, target: Tensor) -> Labels:
        """See what is known."""
        known = target.isfinite()
        count = int(known.sum())
        target = target.contiguous()  # compiled code reads it
        return cls(target, None if count == target.numel() else known, count)

    def error(self, output: Tensor) -> Tensor:
        """`target - output`, and 0 where it is not known."""
        error = self.target - output
        return error if self.known is None else torch.where(self.known, error, 0.0)


class Learner(Protocol):
    """A network, or several, with a step."""

    @property
    def like(self) -> Tensor:
        """A tensor of the type and place that it computes in."""

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)`; changes nothing."""

    def judged(self, window: Tensor) -> Tensor:
        """What the warm-up's validation scores."""

    def step(self, window: Tensor, labels: Labels, dropout: float, farthest: float) -> Taken:
        """Learn from examples, at least one of whose labels is known; outputs from `farthest` on are astray."""

    def begin(self, rate: float, online: bool) -> None:
        """Start a phase with fresh optimisers."""

    def set_rate(self, rate: float) -> None:
        """Go on at another rate."""

    def forget(self) -> None:
        """Go on with fresh optimisers, at the rates that they have."""

    def trained(self) -> Sequence[Tensor]:
        """What the warm-up keeps the best copy of."""

    def vital(self) -> Sequence[Tensor]:
        """What has to be put back to undo steps that led astray."""

    def settle(self) -> None:
        """Compute again what depends on tensors that were put back."""

    def info(self) -> dict[str, float]:
        """What one may want to look at."""

    def state_dict(self) -> State:
        """Everything that must be carried on."""

    def load_state_dict(self, state: State) -> None:
        """Go on from it; whatever does not fit raises `StateError` and changes nothing."""


class Judged(NamedTuple):
    """What labels say about outputs."""

    farthest: float  # the largest output; infinite if one is no number
    loss: float  # the mean over what is known
    pull: Tensor  # its gradient by the outputs, (B, m)


def judged(loss: Loss, output: Tensor, labels: Labels) -> Judged:
    """The verdict on outputs `(B, m)`, compiled where that is possible."""
    name = LOSS_NAMES.get(type(loss))
    compiled = library() if name and output.dtype == torch.float32 and output.device.type == "cpu" else None
    if compiled is None:
        farthest, error = float(output.abs().max()), labels.error(output)
        mean = float(loss.value(error).sum()) / labels.number
        return Judged(farthest if farthest == farthest else math.inf, mean, loss.slope(error) / labels.number)
    pull, found = torch.empty_like(output), (ctypes.c_double * 2)()
    compiled.layers_judge(at(output), at(labels.target), output.numel(), int(name == "mae"), at(pull), found)
    return Judged(found[0], found[1], pull)


def in_order(gradient: Tensor) -> bool:
    """Whether a gradient is made of numbers, and not too long to go on with."""
    flat = gradient.flatten()
    return float(flat.dot(flat)) < LARGEST**2


def descend(finish: AdamW, weights: Tensor, gradient: Tensor) -> None:
    """A step of AdamW on a flat vector, compiled where that is possible."""
    compiled = library() if weights.dtype == torch.float32 and weights.device.type == "cpu" else None
    if compiled is None:
        finish.step(weights, gradient)
        return
    move = finish.move(weights)
    assert move.moments is not None
    mean, square = move.moments.mean, move.moments.square
    compiled.step_move(counted(move), at(weights), at(mean), at(square), at(gradient), weights.numel())


class SteppingForecaster(Forecaster):
    """A learner behind the two verbs.

    Args:
        task: What is forecast.
        learner: The network and its step.
        frame: What it reads, is taught and means.
        warm: The offline phase.
        rate: Of the optimiser online.
        loss: Scores the validation part in the warm-up.
        generator: Every random draw; the learner's too.
    """

    def __init__(
        self,
        task: Task,
        learner: Learner,
        frame: Frame,
        warm: WarmUp,
        rate: float,
        loss: Loss,
        generator: torch.Generator,
    ) -> None:
        self.task = task
        self.learner = learner
        self.frame = frame
        self.warm = warm
        self.rate = rate
        self.loss = loss
        self.generator = generator
        self.steps = self.refused = self.restored = 0
        self._loss = math.nan
        self.learner.begin(rate, online=True)
        self.hold(learner.vital())

    @torch.no_grad()
    def forecast(self, window: Tensor) -> Forecast:
        self.check_window(window)
        return Forecast(self.frame.write(window, self.learner.forward(self.frame.read(window, self.learner.like))))

    @torch.no_grad()
    def learn(self, example: Example) -> None:
        self.check_window(example.window)
        window = self.frame.read(example.window, self.learner.like)
        labels = Labels.of(self.frame.teach(example, self.learner.like))
        if not labels.number:
            return
        self.steps += 1
        if not bool(window.isfinite().all()):
            self.refused += 1  # NaN in a window is not the network's fault
            return
        if self.steps % SANE_EVERY == 0 and self._is_sane(window):
            self.hold(self.learner.vital())
        taken = self.learner.step(window, labels, 0.0, self.frame.farthest)
        if taken.verdict == "taken":
            self._loss = taken.loss
        elif taken.verdict == "refused":
            self.refused += 1
        else:
            self.restored += 1
            self._restore()

    def _is_sane(self, window: Tensor) -> bool:
        return float(self.learner.forward(window).abs().max()) < self.frame.farthest

    def _restore(self) -> None:
        """Go back to the sane copy, and forget the averages that led away from it."""
        for part, copy in zip(self.learner.vital(), self._sane, strict=True):
            part.copy_(copy)
        self.learner.forget()
        self.learner.settle()

    @torch.no_grad()
    def warm_up(self, train_part: Windows, valid_part: Windows, progress: Progress = silent) -> None:
        self.learner.begin(self.warm.rate, online=False)
        trainee = _Trainee(self.learner, self.loss)
        scheduled(trainee, self.warm, (train_part, valid_part), self.generator, self.frame, progress)
        self.learner.begin(self.rate, online=True)
        self.hold(self.learner.vital())

    def hold(self, vital: Sequence[Tensor]) -> None:
        """Remember these as sane, as copies."""
        self._sane = [part.clone() for part in vital]

    def info(self) -> dict[str, float]:
        counts = {"refused": float(self.refused), "restored": float(self.restored)}
        return {**counts, "loss": self._loss, **self.learner.info()}

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        return {
            "learner": self.learner.state_dict(),
            "sane": [{"part": part.clone()} for part in self._sane],
            "generator": self.generator.get_state(),
            "counts": {name: getattr(self, name) for name in _COUNTS},
        }

    def load_state_dict(self, state: State) -> None:
        learner, sane, generator, counts = (state.get(k) for k in ("learner", "sane", "generator", "counts"))
        if not (isinstance(learner, dict) and isinstance(sane, list) and isinstance(counts, dict)):
            raise StateError("the state has no learner, sane copy or counts; it belongs to another kind of method")
        if not (isinstance(generator, Tensor) and generator.shape == self.generator.get_state().shape):
            raise StateError("the state's random generator is not one of this machine's; it was not written by natsr")
        if len(sane) != len(self._sane):
            raise StateError("its sane copy does not fit; load it into a forecaster for the same task and options")
        copies = [fitting("a sane copy", one.get("part"), part) for one, part in zip(sane, self._sane, strict=True)]
        numbers = [whole(counts, name) for name in _COUNTS]
        # Everything else has been tried: if the learner's part does not fit, nothing has been changed.
        self.learner.load_state_dict(on_device(learner, self.learner.like.device))
        self.generator.set_state(generator)
        self._sane = [copy.to(part.device, copy=True) for copy, part in zip(copies, self._sane, strict=True)]
        self.steps, self.refused, self.restored = numbers
        self._loss = math.nan


class _Trainee:
    """A learner in its warm-up, with what judges it."""

    def __init__(self, learner: Learner, loss: Loss) -> None:
        self.learner = learner
        self.loss = loss
        self.set_rate, self.trained, self.settle = learner.set_rate, learner.trained, learner.settle

    @property
    def like(self) -> Tensor:
        return self.learner.like

    def fit(self, window: Tensor, target: Tensor, dropout: float) -> None:
        labels = Labels.of(target)
        if labels.number:
            self.learner.step(window, labels, dropout, math.inf)

    def score(self, window: Tensor, target: Tensor) -> tuple[float, int]:
        labels = Labels.of(target)
        return float(self.loss.value(labels.error(self.learner.judged(window))).sum()), labels.number
