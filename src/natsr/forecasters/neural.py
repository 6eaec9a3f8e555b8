"""A network that learns from every row: one step, and slots for what methods differ in.

| slot         | OGD       | ER         | DER++      | NatSR             |
|--------------|-----------|------------|------------|-------------------|
| `likelihood` | Gaussian  | Gaussian   | Gaussian   | Student-t, moving |
| `replay`     | –         | reservoir  | reservoir  | reservoir         |
| `distil`     | –         | –          | yes        | –                 |
| `natural`    | –         | –          | –          | K-FAC             |
| `finish`     | AdamW     | AdamW      | AdamW      | SGD (or AdamW)    |

A step is computed whole before anything is changed. If any part of it is not finite, or too large for float32 to go on
with, the step is refused and counted, and weights, curvature, scale and averages stay as they were. A network that has
gone astray all the same, by steps that were each in order, shows in outputs that no data could ask for: then its
weights go back to the last ones that were known to be sane, AdamW begins anew, and that is counted too.
"""

from __future__ import annotations

import copy
import ctypes
import math
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.curved import NativeCurvature
from natsr.forecasters.finish import Finish
from natsr.forecasters.frame import Frame
from natsr.forecasters.guards import LARGEST, SANE_EVERY, whole
from natsr.forecasters.natural import Natural, NaturalInfo, WeightedLoss
from natsr.forecasters.verdict import Batch, Scale, Verdict, judge
from natsr.forecasters.verdict import Learning as Learning
from natsr.forecasters.warm import dropout_mask, train
from natsr.likelihoods import Likelihood
from natsr.nets.base import Network, Traced
from natsr.nets.native import NativeTCN, NativeTrace
from natsr.replay import Reservoir
from natsr.state import on_device
from natsr.streams import Windows
from natsr.types import Example, State, StateError, Task

T = TypeVar("T", bound=Traced)
_COUNTS = ("steps", "refused", "refreshes", "restored")
_SLOTS = ("finish", "replay", "natural")


@dataclass
class Slots(Generic[T]):
    """The parts that make a method: fill them in, and it is one.

    Args:
        net: The network; its weights are moved in place.
        likelihood: The loss, and the noise that the Fisher information assumes.
        finish: From a direction to new weights.
        frame: What the network reads, is taught and means.
        replay: Memory, or none.
        natural: Curvature, or none.
    """

    net: Network[T]
    likelihood: Likelihood
    finish: Finish
    frame: Frame
    replay: Reservoir | None = None
    natural: Natural[T] | None = None


class NeuralForecaster(Forecaster, Generic[T]):
    """A network behind the two verbs.

    Args:
        task: What is forecast.
        slots: The method's parts.
        learning: How a step is put together.
        generator: Every random draw: batches, dropout, replay, probes.
    """

    def __init__(self, task: Task, slots: Slots[T], learning: Learning, generator: torch.Generator) -> None:
        self.task = task
        self.net = slots.net
        self.likelihood = slots.likelihood
        self.finish = slots.finish
        self.frame = slots.frame
        self.replay = slots.replay
        self.natural = slots.natural
        self.learning = learning
        self.generator = generator
        self.steps = self.refused = self.refreshes = self.restored = 0
        self._sane = self.net.weights.clone()  # the last weights known to be in order
        self._curvature: NativeCurvature | None = None
        self._last: NaturalInfo | None = None
        self._loss = math.nan
        # The tracked number; its square is the variance in the precursor's reading.
        self._scale = slots.likelihood.variance

    # ---- the two verbs -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def forecast(self, window: Tensor) -> Forecast:
        self.check_window(window)
        output = self.net.forward(self.frame.read(window, self.net.weights))
        moving = self.learning.scale_rate > 0
        variance = torch.tensor(self.likelihood.variance) if moving else None
        return Forecast(self.frame.write(window, output), variance)

    @torch.no_grad()
    def learn(self, example: Example) -> None:
        self.check_window(example.window)
        if not self.learning.online:
            return
        window, target = self.frame.read(example.window, self.net.weights), self.frame.teach(example, self.net.weights)
        batch = self._batch(window, target)
        if batch is None:
            return
        self.steps += 1
        keep = dropout_mask((batch.window.shape[0], self.net.hidden), self.learning.dropout, self.generator)
        trace = self.net.trace(batch.window, None if keep is None else keep.to(batch.window))
        verdict = judge(batch, trace.output, Scale(self.likelihood, self._scale), self.learning, self._compiled)
        sane = self._is_sane(verdict.farthest)
        if not sane and bool(batch.window.isfinite().all()):
            self._restore()
        elif not sane or not self._step(trace, verdict):  # NaN in a window is not the network's fault
            self.refused += 1
        if self.replay is not None:
            self._remember(example, window, target, trace.output, verdict.farthest)

    def warm_up(self, train_part: Windows, valid_part: Windows, progress: Progress = silent) -> None:
        parts = (train_part, valid_part)
        train(self.net, self.likelihood, self.learning.warm, parts, self.generator, self.frame, progress)
        self._sane.copy_(self.net.weights)

    def info(self) -> dict[str, float]:
        found: dict[str, float] = {"refused": self.refused, "restored": self.restored, "loss": self._loss}
        if self.learning.scale_rate > 0:
            found["variance"] = self.likelihood.variance
        if self._last is not None:
            found |= {
                "update_norm": self._last.norm,
                "update_bound": self._last.bound,
                "damping": self._last.damping,
                "refreshes": self.refreshes,
            }
        return found

    # ---- one step ------------------------------------------------------------------------------------------------

    @property
    def _compiled(self) -> ctypes.CDLL | None:
        """The library, where the network runs in C."""
        return self.net.compiled if isinstance(self.net, NativeTCN) and self.net.is_native else None

    def _is_sane(self, farthest: float) -> bool:
        """Whether data could ask for such outputs; now and then keeps a copy of the weights that gave them."""
        if not farthest < self.frame.farthest:
            return False
        if self.steps % SANE_EVERY == 0:
            self._sane.copy_(self.net.weights)
        return True

    def _restore(self) -> None:
        """Go back to sane weights, and forget the averages that led away from them."""
        self.restored += 1
        self.net.weights.copy_(self._sane)
        self.finish.forget()
        if self.natural is not None:
            self.natural.smoothed = None

    def _batch(self, window: Tensor, target: Tensor) -> Batch | None:
        """New and replayed examples with their weights; nothing if no label is known."""
        if not bool(target.isfinite().any()):
            return None
        stored, new = None, window.shape[0]
        if self.replay is not None and len(self.replay) and self.learning.draws > 0:
            old_window, old_target, *rest = self.replay.draw(self.learning.draws)
            stored = rest[0] if rest else None
            window, target = torch.cat([window, old_window]), torch.cat([target, old_target])
        return Batch(window, target, stored, new)

    def _step(self, trace: T, verdict: Verdict) -> bool:
        """Compute the whole step, then take it; `False`, and nothing changed, if any of it is not finite."""
        loss, scale = verdict.loss, verdict.scale
        if not (math.isfinite(loss) and math.isfinite(scale)):
            return False
        if self.natural is None:
            if not self._descend(trace, verdict.pull):
                return False
            self._take(None, None, scale, loss)
            return True
        factor = self.learning.factor(self.task.outputs)
        measured = WeightedLoss(loss, self.likelihood, verdict.weights, factor)
        taken = self._curve(trace, verdict.pull, measured, self.natural)
        if taken is None:
            return False
        self._take(*taken, scale, loss)
        return True

    def _curve(
        self, trace: T, pull: Tensor, batch: WeightedLoss, natural: Natural[T]
    ) -> tuple[Natural[T], NaturalInfo] | None:
        """Go against the averaged natural gradient, unless it is too large; in C where that can be."""
        if isinstance(self.net, NativeTCN) and isinstance(trace, NativeTrace) and NativeCurvature.fits(natural):
            if self._curvature is None:
                self._curvature = NativeCurvature(self.net)
            step = self._curvature.proposed(natural, trace, pull, batch, self.generator)
            if step is None or not step.info.norm < LARGEST:
                return None
            self._curvature.take(step, self.finish.move(self.net.weights))
            return step.after, step.info
        proposal = natural.proposed(self.net, trace, pull, batch, self.generator)
        if proposal is None or not proposal.info.norm < LARGEST:
            return None
        self.finish.step(self.net.weights, natural.direction(proposal))
        return proposal.after, proposal.info

    def _descend(self, trace: T, pull: Tensor) -> bool:
        """Go against the gradient, unless it is too large."""
        if isinstance(self.net, NativeTCN) and isinstance(trace, NativeTrace):
            return self.net.descend(trace, pull, self.finish.move(self.net.weights), LARGEST)
        gradient = self.net.gradient(trace, pull)
        if not float(gradient.norm()) < LARGEST:
            return False
        self.finish.step(self.net.weights, gradient)
        return True

    def _take(self, natural: Natural[T] | None, info: NaturalInfo | None, scale: float, loss: float) -> None:
        """Make the step's other results the state."""
        self.natural, self._last, self._scale, self._loss = natural, info, scale, loss
        if info is not None:
            self.refreshes += info.refreshed
        variance = scale**2 if self.learning.scale_reading == "precursor" else scale
        if variance != self.likelihood.variance:
            self.likelihood = self.likelihood.with_variance(variance)

    def _remember(self, example: Example, window: Tensor, target: Tensor, output: Tensor, farthest: float) -> None:
        """Offer the examples whose last label has now arrived to the memory."""
        assert self.replay is not None
        # What a network gone astray put out must not become what its outputs are pulled to.
        limit = self.frame.farthest if self.learning.distil else math.inf
        output = output[: window.shape[0]]
        if example.fresh is not None or window.shape[0] > 1 or not farthest < limit:
            target = self.frame.teach(example, window, whole=True)
            done = (output.abs() < limit).all(1) & target.isfinite().any(1)
            if example.fresh is not None:
                done &= example.fresh[:, -1].to(window.device)
            window, target, output = window[done], target[done], output[done]
        if window.shape[0]:
            self.replay.add(window, target, *((output,) if self.learning.distil else ()))

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> State:
        return {
            "weights": self.net.weights.clone(),
            "sane": self._sane.clone(),
            "scale": self._scale,
            "generator": self.generator.get_state(),
            "finish": self.finish.state_dict(),
            "replay": None if self.replay is None else self.replay.state_dict(),
            "natural": None if self.natural is None else self.natural.state_dict(),
            "counts": {name: getattr(self, name) for name in _COUNTS},
        }

    def load_state_dict(self, state: State) -> None:
        if missing := {"weights", "sane", "scale", "generator", "counts", *_SLOTS} - set(state):
            raise StateError(f"the state has no {', '.join(sorted(missing))}; it belongs to another kind of method")
        weights, sane, scale, generator, counts = (
            state[k] for k in ("weights", "sane", "scale", "generator", "counts")
        )
        for part in (weights, sane):
            if not (isinstance(part, Tensor) and (part.shape, part.dtype) == (self._sane.shape, self._sane.dtype)):
                got = f"{part.dtype} of shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"{part!r}"
                raise StateError(
                    f"the state holds weights {got}, expected {self._sane.dtype} of shape {tuple(self._sane.shape)}; "
                    "load it into a forecaster for the same task and options"
                )
        if not (isinstance(scale, float) and 0 < scale < math.inf and isinstance(counts, dict)):
            raise StateError("the forecaster's state lacks its scale or counts; the state was not written by natsr")
        # Everything is tried before anything is changed: whatever does not fit leaves the forecaster as it was.
        numbers = [whole(counts, name) for name in _COUNTS]
        slots = {name: self._loaded(name, state[name]) for name in _SLOTS}
        _seed(self.generator, generator)
        for name, slot in slots.items():
            setattr(self, name, slot)
        assert isinstance(weights, Tensor) and isinstance(sane, Tensor)
        self.net.weights.copy_(weights)
        self._sane.copy_(sane)
        self.steps, self.refused, self.refreshes, self.restored = numbers
        self._take(self.natural, None, scale, math.nan)

    def _loaded(self, name: str, saved: object) -> object:
        """A slot as it was saved, where the weights are; the slot itself stays as it is."""
        slot = copy.copy(getattr(self, name))
        if (slot is None) != (saved is None) or not isinstance(saved, dict | None):
            raise StateError(f"the state's {name} does not fit this method; load it into the method that wrote it")
        if slot is not None and saved is not None:
            slot.load_state_dict(on_device(saved, self.net.weights.device))
        return slot


def _seed(generator: torch.Generator, state: object) -> None:
    try:
        if isinstance(state, Tensor):
            generator.set_state(state)
            return
    except (RuntimeError, TypeError):
        pass
    raise StateError("the state's random generator is not one of this machine's; the state was not written by natsr")
