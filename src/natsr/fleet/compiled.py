"""Compiled learners of one shape, stepped by one call of C.

A learner's step alone is a few calls of C with small torch tensors and Python in between, which for a small network
takes as long as the step itself. Here C goes through all learners, each worker taking the next one, and Python does
only what needs each learner's own random stream: it draws what is replayed before the call, the probes of those whose
curvature is due after it (for whom C is called once more), and the places of new examples in the memories. The order
of the draws is the learner's own, and what C computes is what it computes for one learner.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.apart import Apart
from natsr.fleet.base import Learners, Parts
from natsr.fleet.berth import Berth, fits
from natsr.fleet.shape import Shape, learners, net_of, shape_of
from natsr.fleet.stage import Staged, stacked, staged
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.neural import NeuralForecaster
from natsr.native.many import DUE, NO_ROOM, Entry, Question, Record, Turn, Workers
from natsr.nets.native import NativeTCN
from natsr.types import Example, OptionError, State

_BYTES = 4  # of a number


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
        self.workers = Workers(net.compiled, net.plan(), threads)
        self._berths: list[Berth] = []
        self._records = (Record * 0)()
        self.join(forecasters)

    @staticmethod
    def fits(forecasters: Sequence[Forecaster]) -> bool:
        """Whether all of them are of one shape, and compiled."""
        shapes = {shape_of(forecaster) for forecaster in forecasters}
        return len(shapes) == 1 and all(
            isinstance(shape_of(forecaster), Shape) and isinstance(forecaster, NeuralForecaster) and fits(forecaster)
            for forecaster in forecasters
        )

    def __len__(self) -> int:
        return len(self._berths)

    @property
    def forecasters(self) -> list[Forecaster]:
        """The learners' own, as they were when they last were up to date."""
        return [berth.learner for berth in self._berths]

    def join(self, forecasters: Sequence[Forecaster]) -> None:
        """Take in more learners of the same shape, after the others."""
        shape, found = learners(forecasters)
        if shape != self.shape or not self.fits(forecasters):
            raise OptionError("learners that join must be compiled and of the same shape; use natsr.fleet.Apart")
        first, count = len(self), len(self) + len(found)
        if count > len(self._records):  # with room to spare, so that those who come one by one are not copied each time
            grown = (Record * max(count, 2 * first))()
            ctypes.memmove(grown, self._records, ctypes.sizeof(self._records))
            self._records = grown
        for number, learner in enumerate(found, first):
            berth = Berth(shape, learner)
            berth.settle(self._records[number])
            berth.adopt(learner.state_dict(), self._records[number])
            self._berths.append(berth)

    # ---- the two verbs -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        self.check(windows)
        for window in windows:
            if window is not None:
                self._berths[0].learner.check_window(window)
        given = [(number, window) for number, window in enumerate(windows) if window is not None]
        if not given:
            return [None] * len(self)
        read = stacked(windows, lambda window: self.shape.frame.read(window, self._berths[0].weights))
        place, step = _rows(read)
        output = read.new_empty(*read.shape[:2], self.task.outputs)
        asked, (answer, width) = (Question * len(given))(), _rows(output)
        for question, (number, window) in zip(asked, given, strict=True):
            question.number, question.examples = number, len(window)
            question.window, question.output = place + number * step, answer + number * width
        self.workers.forecast(self._records, asked, len(given))
        if any(question.number < 0 for question in asked):
            raise MemoryError(f"no memory for a batch of {read.shape[1]}")
        return self._written(given, output)

    def _written(self, given: Sequence[tuple[int, Tensor]], output: Tensor) -> list[Forecast | None]:
        """What the networks' outputs `(N, B, m)` mean."""
        frame, forecasts = self.shape.frame, list[Forecast | None]([None] * len(self))
        variances = torch.tensor([self._records[number].loss.tracked for number, _ in given]).unbind()
        if frame.anchor == "none":  # all at once: no value of the windows is needed
            size = (*output.shape[:2], self.task.horizon, self.task.channels)
            whole = frame.write(given[0][1], output.flatten(0, 1)).view(size).unbind()
            means = [whole[number][: len(window)] for number, window in given]
        else:
            means = [frame.write(window, output[number, : len(window)]) for number, window in given]
        for (number, _), mean, variance in zip(given, means, variances, strict=True):
            moving = self._berths[number].learner.learning.scale_rate > 0
            forecasts[number] = Forecast(mean, variance if moving else None)
        return forecasts

    @torch.no_grad()
    def learn(self, examples: Sequence[Example | None]) -> None:
        self.check(examples)
        for example in examples:
            if example is not None:
                self._berths[0].learner.check_window(example.window)
        if not self.shape.learning.online:
            return
        batch = staged(self.shape.frame, examples, self._berths[0].weights)
        if batch is None:
            return
        sizes = [0 if example is None else len(example.window) for example in examples]
        output = self._stepped(batch, sizes)
        if self.shape.memory:
            self._remember(batch, output)

    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        self.check(parts)
        found = [self.release(number) for number in range(len(self))]
        Apart(found, self.workers.threads).warm_up(parts, progress)
        for number, forecaster in enumerate(found):
            self._berths[number].adopt(forecaster.state_dict(), self._records[number])

    # ---- one step ------------------------------------------------------------------------------------------------

    def _stepped(self, batch: Staged, sizes: Sequence[int]) -> Tensor:
        """Let everyone who has a label take a step; what the networks made of the new examples, `(N, B, m)`."""
        draws = self.shape.learning.draws if self.shape.memory else 0
        (window, window_step), (target, target_step) = _rows(batch.window), _rows(batch.target)
        output = torch.empty_like(batch.target, memory_format=torch.contiguous_format)
        weights = output.new_empty(len(self), output.shape[1] + draws)
        (answer, answer_step), (share, share_step) = _rows(output), _rows(weights)
        active = [number for number, one in enumerate(batch.active) if one]
        orders: list[Tensor] = []  # C reads them during the call
        turns = (Turn * len(active))()
        for turn, number in zip(turns, active, strict=True):
            turn.number, turn.fresh = number, sizes[number]
            order = self._berths[number].draw(draws)
            if order is not None:
                orders.append(order)
                turn.drawn, turn.chosen = len(order), order.data_ptr()
            turn.window, turn.target = window + number * window_step, target + number * target_step
            turn.output = answer + number * answer_step
            turn.weights = share + number * share_step
        self._take(turns)
        due = [turn for turn in turns if turn.verdict == DUE]
        if due:
            again = (Turn * len(due))(*due)
            probes: list[tuple[Tensor, Tensor]] = []
            for turn in again:
                rows, owner = self._berths[turn.number].probes(weights[turn.number, : turn.fresh + turn.drawn])
                probes.append((rows, owner))
                turn.probes, turn.rows, turn.owner = len(rows), rows.data_ptr(), owner.data_ptr()
            self._take(again)
        return output

    def _take(self, turns: ctypes.Array[Turn]) -> None:
        self.workers.learn(self._records, turns, len(turns))
        if any(turn.verdict == NO_ROOM for turn in turns):
            raise MemoryError("no memory for a step")

    def _remember(self, batch: Staged, output: Tensor) -> None:
        """Offer the examples whose last label has now arrived to the memories."""
        sound = output.abs() < self.shape.frame.farthest if self.shape.distil else output.isfinite()
        offered: list[list[bool]] = (batch.done & sound.all(2)).tolist()
        kept: list[tuple[int, int, int]] = []
        for number, row in enumerate(offered):
            berth = self._berths[number]
            for index, wanted in enumerate(row):
                if wanted and (place := berth.place()) < self.shape.memory:
                    kept.append((number, index, place))
        if not kept:
            return
        parts = [(*_rows(part), part.stride(1) * _BYTES) for part in (batch.window, batch.taught, output)]
        entries = (Entry * len(kept))()
        for entry, (number, index, place) in zip(entries, kept, strict=True):
            self._berths[number].keep(self._records[number])
            entry.number, entry.place = number, place
            entry.window, entry.target, entry.output = (
                first + number * step + index * row for first, step, row in parts
            )
        self.workers.remember(self._records, entries, len(kept))

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


def _rows(part: Tensor) -> tuple[int, int]:
    """Where each learner's rows of `(N, B, …)` begin: the first one's address, and bytes from one to the next."""
    assert part[0].is_contiguous()
    return part.data_ptr(), part.stride(0) * _BYTES
