"""FSNet for several learners at once: `natsr.nets.fsnet` and its step with a leading axis."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.finish import Adaptive
from natsr.fleet.net import FleetTCN, FleetTrace, Room
from natsr.fleet.stepped import Labels, Seen, Stepped
from natsr.fleet.tables import Draw
from natsr.forecasters.fsnet import FSNetLearner
from natsr.forecasters.stepping import SteppingForecaster
from natsr.nets.adapters import FAST, SLOW, Averages, Calibration, calibrated, point_apart, pull_, scale_, unit


class FSNets(Stepped):
    """The adapted networks of several learners.

    Their weights and averages are what is kept. Effective weights are computed anew in every step, so that nothing but
    these has to stay at its place between steps.
    """

    def __init__(self, forecasters: Sequence[SteppingForecaster]) -> None:
        super().__init__(forecasters)
        self._learners = [one.learner for one in forecasters if isinstance(one.learner, FSNetLearner)]
        nets = [learner.net for learner in self._learners]
        self._adapters, self._recall = nets[0].adapters, nets[0].recall
        self.weights = torch.stack([net.weights for net in nets])
        self.averages = [_stacked([net.averages[index] for net in nets]) for index in range(len(self._adapters))]
        self._begun = torch.tensor([net.begun for net in nets], device=self.like.device)
        self._asked = torch.tensor([learner.asked for learner in self._learners], device=self.like.device)
        self._size = nets[0].body.weights.numel()
        self._body = FleetTCN(nets[0].body, self.weights[:, : self._size].clone())  # with the effective weights
        self._finish = Adaptive(self.weights, self.rates)
        for number, learner in enumerate(self._learners):
            self._finish.load(number, learner.finish.state_dict())

    def begin(self, rates: Tensor) -> None:
        self._finish = Adaptive(self.weights, rates)

    def forget(self, who: Tensor) -> None:
        self._finish.forget(who)

    def draws(self, examples: int, dropout: float) -> list[Draw]:
        return [Draw((examples, self._body.shape.hidden), dropout)]

    def room(self, examples: int) -> Room:
        return self._body.room(examples)

    def judged(self, window: Tensor) -> Tensor:
        self._settle(online=False)
        return self._body.trace(window).output

    def look(self, window: Tensor, labels: Labels, masks: Sequence[Tensor | None], online: bool) -> Seen:
        now = self._settle(online)
        (keep,) = masks
        whole = self._body.trace(window, keep)
        trace = whole.first(labels.target.shape[1])
        gradient = self._gradient(trace, labels.pull(trace.output), now)

        def take(mask: Tensor) -> None:
            self._finish.step(gradient, mask)
            self._follow(gradient, now, mask, online)

        return Seen(whole.output, trace.output.abs().flatten(1).amax(1), gradient.square().sum(1), take)

    def _settle(self, online: bool) -> list[Calibration]:
        """The coefficients of this pass, and the effective weights that they make."""
        now = [
            calibrated(adapter, self.weights, averages, self._recall if online else None, self._begun)
            for adapter, averages in zip(self._adapters, self.averages, strict=True)
        ]
        self._body.weights.copy_(self.weights[:, : self._size])
        for adapter, coefficients in zip(self._adapters, now, strict=True):
            scale_(adapter, self._body.weights, coefficients)
        return now

    def _gradient(self, trace: FleetTrace, pull: Tensor, now: Sequence[Calibration]) -> Tensor:
        flat = torch.empty_like(self.weights)
        flat[:, : self._size] = self._body.gradient(trace, pull)
        for adapter, averages, coefficients in zip(self._adapters, self.averages, now, strict=True):
            pull_(adapter, flat, self.weights, averages, coefficients)
        return flat

    def _follow(self, gradient: Tensor, now: Sequence[Calibration], mask: Tensor, online: bool) -> None:
        """Averages and memories after a step; `natsr.nets.fsnet.AdaptedTCN.follow` for the learners of a mask."""
        clean = torch.where(mask[:, None], gradient[:, : self._size], 0.0)
        meant = mask[:, None, None, None]
        for adapter, averages, coefficients in zip(self._adapters, self.averages, now, strict=True):
            averages.query.copy_(torch.where(meant, coefficients.query, averages.query))
            if coefficients.memory is not None:
                averages.memory.copy_(torch.where(meant, coefficients.memory, averages.memory))
            if online:
                self._asked += (averages.apart & mask[:, None]).sum(1)
            new, weight = unit(adapter, clean), meant.to(clean)
            averages.fast.lerp_(new, weight * (1 - FAST))
            if online:
                averages.apart.copy_(torch.where(mask[:, None], point_apart(averages), averages.apart))
            averages.slow.lerp_(new, weight * (1 - SLOW))
        self._begun |= mask

    def trained(self) -> list[Tensor]:
        return [self.weights]

    def vital(self) -> list[Tensor]:
        return [self.weights, *(part for one in self.averages for part in (one.slow, one.fast))]

    def _give_back(self) -> None:
        for number, learner in enumerate(self._learners):
            net = learner.net
            net.weights.copy_(self.weights[number])
            for mine, theirs in zip(self.averages, net.averages, strict=True):
                for part, other in zip(mine, theirs, strict=True):
                    other.copy_(part[number])
            net.begun, learner.asked = bool(self._begun[number]), int(self._asked[number])
            learner.finish.load_state_dict(self._finish.state_dict(number))
            net.settle()


def _stacked(averages: Sequence[Averages]) -> Averages:
    return Averages(*(torch.stack(parts) for parts in zip(*averages, strict=True)))
