"""Compiled learners of one shape, stepped by one call of C.

A learner's step alone is a few calls of C with small torch tensors and Python in between, which for a small network
takes as long as the step itself. Here C goes through all learners, each worker taking the next one, and Python does
only what needs each learner's own random stream: it draws what is replayed before the call, the probes of those whose
curvature is due after it (for whom C is called once more), and the places of new examples in the memories. The order
of the draws is the learner's own, and what C computes is what it computes for one learner.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from natsr.fleet.apart import Apart
from natsr.fleet.base import Learners, Parts
from natsr.fleet.berth import Berth, fits, footprint
from natsr.fleet.shape import Shape, alike, learners, net_of, shape_of
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.finish import AdamW
from natsr.forecasters.neural import NeuralForecaster
from natsr.native.many import DUE, IDLE, NO_ROOM, WAITING, Question, Reading, Record, Turn, Workers
from natsr.nets.native import NativeTCN
from natsr.types import Example, OptionError, ShapeError, State, Task

T = TypeVar("T")
U = TypeVar("U")


class Stage:
    """Where examples lie while they are learned: turns, and what they point to. Made anew when it has become too small.

    Args:
        task: Window, outputs.
        learners: How many there is room for.
        fresh: New examples of each.
        draws: Replayed ones.
    """

    def __init__(self, task: Task, learners: int, fresh: int, draws: int) -> None:
        self.learners, self.fresh = learners, fresh
        self.window = torch.zeros(learners, fresh, task.window, task.inputs)
        self.target, self.taught, self.output = (torch.zeros(learners, fresh, task.outputs) for _ in range(3))
        self.weights = torch.zeros(learners, fresh + draws)
        self.done = torch.zeros(learners, fresh, dtype=torch.bool)
        self.turns = (Turn * learners)()
        for name in ("window", "target", "taught", "output", "weights", "done"):
            part: Tensor = getattr(self, name)
            step = part.stride(0) * part.element_size()
            for number, turn in enumerate(self.turns):
                setattr(turn, name, part.data_ptr() + number * step)


class Compiled(Learners):
    """Learners of one shape whose steps are compiled, stepped by one call.

    Args:
        forecasters: One for each learner, of one shape (`natsr.fleet.shape`) and run by C. Their state is taken over;
            they are stale from then on, until `release` brings them up to date.
        threads: Learners that are stepped at the same time.
    """

    def __init__(self, forecasters: Sequence[Forecaster], threads: int = 1) -> None:
        self.shape: Shape = learners(forecasters)[0]
        self.task = self.shape.task
        net = net_of(learners(forecasters[:1])[1][0])
        if not isinstance(net, NativeTCN) or net.compiled is None:
            raise OptionError("the learners' steps are not compiled; use natsr.fleet.Apart or natsr.fleet.Tiles")
        frame = self.shape.frame
        anchors = (frame.anchor == "last", frame.anchor != "none", frame.labels == "fresh")
        reading = Reading(frame.limit, frame.farthest, self.task.reach, self.task.channels, *anchors)
        self.workers = Workers(net.compiled, net.plan(), reading, threads)
        self._berths: list[Berth] = []
        self._records = (Record * 0)()
        self._stage = Stage(self.task, 0, 0, 0)
        self._draws = self.shape.learning.draws if self.shape.memory else 0
        self._fine: set[torch.Size] = set()  # shapes of windows that have been checked
        self.join(forecasters)

    @staticmethod
    def fits(forecasters: Sequence[Forecaster]) -> bool:
        """Whether all of them are of one shape, but for the last word of their steps, and compiled."""
        shapes = [shape_of(forecaster) for forecaster in forecasters]
        return bool(shapes) and all(
            isinstance(shape, Shape)
            and alike(shape, shapes[0])
            and isinstance(forecaster, NeuralForecaster)
            and fits(forecaster)
            for shape, forecaster in zip(shapes, forecasters, strict=True)
        )

    @staticmethod
    def room(forecasters: Sequence[Forecaster], size: int) -> int:
        """How many of these, which fit, have room in so many bytes; at least one."""
        largest = max(footprint(learner) for learner in learners(forecasters)[1])
        return max(1, size // largest)

    def __len__(self) -> int:
        return len(self._berths)

    @property
    def forecasters(self) -> list[Forecaster]:
        """The learners' own, as they were when they last were up to date."""
        return [berth.learner for berth in self._berths]

    def join(self, forecasters: Sequence[Forecaster]) -> None:
        """Take in more learners of the same shape, after the others."""
        shape, found = learners(forecasters)
        if not alike(shape, self.shape) or not self.fits(forecasters):
            raise OptionError("learners that join must be compiled and of the same shape; use natsr.fleet.Apart")
        first, count = len(self), len(self) + len(found)
        if count > len(self._records):  # with room to spare, so that those who come one by one are not copied each time
            grown = (Record * max(count, 2 * first))()
            ctypes.memmove(grown, self._records, ctypes.sizeof(self._records))
            self._records = grown
        for number, learner in enumerate(found, first):
            berth = Berth(replace(shape, adaptive=isinstance(learner.finish, AdamW)), learner)
            berth.settle(self._records[number])
            berth.adopt(learner.state_dict(), self._records[number])
            self._berths.append(berth)
        self._moving = [berth.learner.learning.scale_rate > 0 for berth in self._berths]

    # ---- the two verbs -------------------------------------------------------------------------------------------

    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        self.check(windows)
        given = _each(windows, self._window)
        most = max((window.shape[0] for window in given if window is not None), default=0)
        mean = torch.empty(len(given), most, self.task.horizon, self.task.channels)
        answer, step, asked = mean.data_ptr(), mean.stride(0) * mean.element_size(), (Question * len(given))()
        for number, window in enumerate(given):
            if window is not None:
                asked[number] = Question(window.shape[0], window.data_ptr(), answer + number * step)
        self.workers.forecast(self._records, asked, len(given))
        if any(question.examples < 0 for question in asked):
            raise MemoryError(f"no memory for a batch of {most}")
        return [
            None if window is None else Forecast(own if window.shape[0] == most else own[: window.shape[0]], variance)
            for window, own, variance in zip(given, mean.unbind(), self._variances(), strict=True)
        ]

    def _variances(self) -> Sequence[Tensor | None]:
        """What each learner takes its errors' squared scale to be; nothing where it does not follow them."""
        if not any(self._moving):
            return [None] * len(self)
        scales = torch.tensor([self._records[number].loss.tracked for number in range(len(self))]).unbind()
        return [scale if moving else None for scale, moving in zip(scales, self._moving, strict=True)]

    def _window(self, window: Tensor) -> Tensor:
        """A window as C reads it."""
        if window.shape not in self._fine:
            self._berths[0].learner.check_window(window)
            self._fine.add(window.shape)
        return _plain(window)

    def _example(self, example: Example) -> tuple[Tensor, Tensor, Tensor | None]:
        """An example as C reads it."""
        window, target, fresh = self._window(example.window), _plain(example.target), example.fresh
        expected = (window.shape[0], self.task.horizon, self.task.channels)
        if target.shape != expected:
            raise ShapeError(f"target has shape {tuple(target.shape)}, expected {expected}")
        if fresh is not None:
            fresh = fresh.to("cpu", torch.bool).expand(expected[:2]).contiguous()
        return window, target, fresh

    def learn(self, examples: Sequence[Example | None]) -> None:
        self.check(examples)
        given = _each(examples, self._example)
        if not self.shape.learning.online:
            return
        turns = self._staged(given)
        self.workers.read(turns, len(self))
        self._step(turns)
        if self.shape.memory:
            self._remember(turns)

    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        self.check(parts)
        found = [self.release(number) for number in range(len(self))]
        Apart(found, self.workers.threads).warm_up(parts, progress)
        for number, forecaster in enumerate(found):
            self._berths[number].adopt(forecaster.state_dict(), self._records[number])

    # ---- one step ------------------------------------------------------------------------------------------------

    def _staged(self, given: Sequence[tuple[Tensor, Tensor, Tensor | None] | None]) -> ctypes.Array[Turn]:
        """Turns that point to these examples."""
        most = max((example[0].shape[0] for example in given if example is not None), default=0)
        if most > self._stage.fresh or len(self) > self._stage.learners:
            self._stage = Stage(self.task, len(self), max(most, self._stage.fresh), self._draws)
        turns = self._stage.turns
        for turn, example in zip(turns, given, strict=False):
            if example is None:
                turn.fresh = 0
                continue
            window, target, fresh = example
            turn.fresh, turn.raw_window, turn.raw_target = window.shape[0], window.data_ptr(), target.data_ptr()
            turn.news = None if fresh is None else fresh.data_ptr()
        return turns

    def _step(self, turns: ctypes.Array[Turn]) -> None:
        """Let everyone who has a label take a step."""
        orders: list[Tensor] = []  # C reads them during the call
        for turn, berth in zip(turns, self._berths, strict=False):
            if self._draws and berth.seen and turn.verdict == WAITING:
                order = berth.order()
                turn.drawn, turn.chosen = min(self._draws, order.shape[0]), order.data_ptr()
                orders.append(order)
        self._take(turns)
        if not self.shape.natural:
            return
        probes: list[tuple[Tensor, Tensor]] = []
        for number, turn in enumerate(turns):
            if turn.verdict == DUE:
                weights = self._stage.weights[number, : turn.fresh + turn.drawn]
                rows, owner = self._berths[number].probes(weights)
                probes.append((rows, owner))
                turn.probes, turn.rows, turn.owner = rows.shape[0], rows.data_ptr(), owner.data_ptr()
                turn.verdict = WAITING
        if probes:
            self._take(turns)

    def _take(self, turns: ctypes.Array[Turn]) -> None:
        self.workers.learn(self._records, turns, len(self))
        if any(turn.verdict == NO_ROOM for turn in turns):
            raise MemoryError("no memory for a step")

    def _remember(self, turns: ctypes.Array[Turn]) -> None:
        """Offer the examples whose last label has now arrived to the memories."""
        done: list[list[bool]] = self._stage.done.tolist()
        kept: list[tuple[int, int, int]] = []
        for number, (berth, turn, row) in enumerate(zip(self._berths, turns, done, strict=False)):
            for index in range(turn.fresh if turn.verdict != IDLE else 0):
                if row[index] and (place := berth.place()) < berth.capacity:
                    kept.append((number, index, place))
                    if not berth.fields:
                        berth.keep(self._records[number])
        self.workers.remember(self._records, turns, kept)

    # ---- state ---------------------------------------------------------------------------------------------------

    def info(self, number: int) -> dict[str, float]:
        record, learning = self._records[number], self._berths[number].learner.learning
        found: dict[str, float] = {"refused": record.refused, "restored": record.restored, "loss": record.last}
        if learning.scale_rate > 0:
            found["variance"] = record.loss.variance
        if self.shape.natural and record.moved:
            found |= {"update_norm": record.norm, "update_bound": record.bound, "damping": record.tau}
            found["refreshes"] = record.refreshes
        return found

    def state_dict(self, number: int) -> State:
        return self._berths[number].state_dict(self._records[number])

    def load_state_dict(self, number: int, state: State) -> None:
        berth = self._berths[number]
        berth.learner.load_state_dict(state)  # whatever does not fit is refused there, before anything changes
        berth.adopt(berth.learner.state_dict(), self._records[number])

    def release(self, number: int) -> Forecaster:
        berth = self._berths[number]
        berth.learner.load_state_dict(self.state_dict(number))
        return berth.learner


def _each(given: Sequence[T | None], read: Callable[[T], U]) -> list[U | None]:
    """What is given to each learner, read; what all of them get is read once."""
    first = given[0]
    if first is not None and all(one is first for one in given):
        return [read(first)] * len(given)
    return [None if one is None else read(one) for one in given]


def _plain(part: Tensor) -> Tensor:
    """Numbers side by side, as C reads them."""
    if part.dtype is torch.float32 and part.is_cpu and part.is_contiguous():
        return part
    return part.to("cpu", torch.float32).contiguous()
