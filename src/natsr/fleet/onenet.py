"""OneNet for several learners at once: its two branches and their mixture with a leading axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from natsr.fleet.finish import Adaptive
from natsr.fleet.mixing import Mixings
from natsr.fleet.net import FleetTCN, Room
from natsr.fleet.stepped import Labels, Seen, Stepped
from natsr.fleet.tables import Draw
from natsr.forecasters.onenet import Branch, OneNetLearner
from natsr.forecasters.stepping import SteppingForecaster
from natsr.nets.adapted import Views
from natsr.nets.base import Traced
from natsr.nets.tcn import ConeTCN
from natsr.nets.variables import VariablesTCN, VariablesTrace

T = TypeVar("T", bound=Traced)


class _Half(Generic[T]):
    """One of the two branches of several learners: weights, effective weights and optimisers."""

    def __init__(self, branches: Sequence[Branch[T]], rates: Tensor) -> None:
        first = branches[0].net
        self.body, self._branches = first.body, branches
        size = first.body.weights.numel()
        self.weights = torch.stack([one.net.weights for one in branches])
        self._views = Views(self.weights, first.runs, size)
        self.effective = self.weights[:, :size].clone()
        self.finish = Adaptive(self.weights, rates)
        for number, one in enumerate(branches):
            self.finish.load(number, one.finish.state_dict())

    def begin(self, rates: Tensor) -> None:
        """Fresh optimisers."""
        self.finish = Adaptive(self.weights, rates)

    def settle(self) -> None:
        """Compute the effective weights."""
        self._views.settle(self.effective)

    def pulled(self, effective: Tensor) -> Tensor:
        """The gradients by the weights from those by the effective weights."""
        return self._views.pulled(effective)

    def give_back(self) -> None:
        """Bring the branches up to date."""
        for number, one in enumerate(self._branches):
            one.net.weights.copy_(self.weights[number])
            one.finish.load_state_dict(self.finish.state_dict(number))
            one.net.settle()


class OneNets(Stepped):
    """Both branches of several learners, and what mixes them; as with FSNet, each step makes its effective weights."""

    def __init__(self, forecasters: Sequence[SteppingForecaster]) -> None:
        super().__init__(forecasters)
        learners = [one.learner for one in forecasters if isinstance(one.learner, OneNetLearner)]
        self.mixing = Mixings([learner.mixing for learner in learners])
        self._halves = (
            _Half([learner.variables for learner in learners], self.rates),
            _Half([learner.time for learner in learners], self.rates),
        )
        variables, time = self._halves[0].body, self._halves[1].body
        assert isinstance(variables, VariablesTCN) and isinstance(time, ConeTCN)
        self._variables = variables.over(self._halves[0].effective)
        self._time = FleetTCN(time, self._halves[1].effective)

    def begin(self, rates: Tensor) -> None:
        for half in self._halves:
            half.begin(rates)
        self.mixing.restart()

    def forget(self, who: Tensor) -> None:
        for half in self._halves:
            half.finish.forget(who)
        self.mixing.forget(who)

    def draws(self, examples: int, dropout: float) -> list[Draw]:
        hidden = (self._variables.hidden, self._time.shape.hidden)
        return [*(Draw((examples, width), dropout) for width in hidden), *self.mixing.draws(examples)]

    def room(self, examples: int) -> Room:
        return self._time.room(examples)

    def judged(self, window: Tensor) -> Tensor:
        self._settle()
        return (self._variables.trace(window).output + self._time.trace(window).output) / 2

    def look(self, window: Tensor, labels: Labels, masks: Sequence[Tensor | None], online: bool) -> Seen:
        del online  # both phases have the same step
        self._settle()
        by_variables, by_time, *others = masks
        variables, time = self._variables.trace(window, by_variables), self._time.trace(window, by_time)
        forecast = self.mixing.mixed(variables.output, time.output)
        count = labels.target.shape[1]
        variables, time = _first(variables, count), time.first(count)
        outputs = torch.stack([variables.output, time.output], 1)
        over_variables, over_time = self._halves
        first = over_variables.pulled(self._variables.gradient(variables, labels.pull(variables.output)))
        second = over_time.pulled(self._time.gradient(time, labels.pull(time.output)))
        moves = self.mixing.proposed(variables.output, time.output, labels, others)
        squares = torch.stack([_squared(*moves), _squared(first), _squared(second)])

        def take(mask: Tensor) -> None:
            over_variables.finish.step(first, mask)
            over_time.finish.step(second, mask)
            self.mixing.take(moves, mask)

        return Seen(forecast, outputs.abs().flatten(1).amax(1), squares.amax(0), take)

    def _settle(self) -> None:
        for half in self._halves:
            half.settle()

    def trained(self) -> list[Tensor]:
        return [half.weights for half in self._halves]

    def vital(self) -> list[Tensor]:
        return [*self.trained(), self.mixing.weights, self.mixing.lasting, self.mixing.passing]

    def _give_back(self) -> None:
        self.mixing.give_back()
        for half in self._halves:
            half.give_back()


def _squared(*parts: Tensor) -> Tensor:
    """The sum of squares over everything of each learner, `(N,)`; not finite if something is not."""
    return torch.stack([part.square().sum(1) for part in parts]).sum(0)


def _first(trace: VariablesTrace, count: int) -> VariablesTrace:
    """The pass of the first examples of every learner, as views."""
    rows = trace.rows.shape[1] // trace.output.shape[1] * count
    blocks = tuple((a[:, :rows], b[:, :rows], c[:, :rows], d[:, :rows]) for a, b, c, d in trace.blocks)
    keep = None if trace.keep is None else trace.keep[:, :count]
    return VariablesTrace(
        trace.output[:, :count], trace.rows[:, :rows], blocks, trace.skip[:, :rows], trace.top[:, :rows], keep
    )
