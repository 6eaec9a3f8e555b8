"""FSNet's step: AdamW on weights and adapters, and then the gradient goes into the layers' averages."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.forecasters.finish import AdamW
from natsr.forecasters.guards import LARGEST
from natsr.forecasters.losses import Loss
from natsr.forecasters.stepping import Labels, Taken, descend, in_order, judged
from natsr.forecasters.warm import dropout_mask
from natsr.nets.fsnet import AdaptedTCN
from natsr.types import State, StateError


class FSNetLearner:
    """The adapted TCN and how it learns.

    Args:
        net: The network.
        loss: MSE or MAE.
        generator: Draws dropout masks.
    """

    def __init__(self, net: AdaptedTCN, loss: Loss, generator: torch.Generator) -> None:
        self.net = net
        self.loss = loss
        self.generator = generator
        self.finish = AdamW(0.0)
        self.online = True
        self.asked = 0  # how often a layer asked its memory

    @property
    def like(self) -> Tensor:
        return self.net.weights

    def forward(self, window: Tensor) -> Tensor:
        return self.net.forward(window)

    def judged(self, window: Tensor) -> Tensor:
        return self.net.forward(window)

    def step(self, window: Tensor, labels: Labels, dropout: float, farthest: float) -> Taken:
        keep = dropout_mask((len(window), self.net.hidden), dropout, self.generator)
        trace = self.net.trace(window, None if keep is None else keep.to(window))
        verdict = judged(self.loss, trace.output, labels)
        if not verdict.farthest < farthest:
            return Taken("astray")
        asked = self.net.take(trace, verdict.pull, self.finish.move(self.net.weights), self.online, LARGEST)
        if asked is None:
            gradient = self.net.gradient(trace, verdict.pull)
            if not in_order(gradient):
                return Taken("refused")
            asked = self.net.asked
            descend(self.finish, self.net.weights, gradient)
            self.net.follow(gradient, self.online)
        self.asked += asked
        return Taken("taken", verdict.loss)

    def begin(self, rate: float, online: bool) -> None:
        self.finish, self.online = AdamW(rate), online

    def set_rate(self, rate: float) -> None:
        self.finish.set_rate(rate)

    def forget(self) -> None:
        self.finish.forget()

    def trained(self) -> Sequence[Tensor]:
        # The averages stay those of the last epoch, as published: what is kept there are parameters only.
        return (self.net.weights,)

    def vital(self) -> Sequence[Tensor]:
        return (self.net.weights, *(part for one in self.net.averages for part in (one.slow, one.fast)))

    def settle(self) -> None:
        self.net.settle()

    def info(self) -> dict[str, float]:
        return {"asked": float(self.asked)}

    def state_dict(self) -> State:
        return {"net": self.net.state_dict(), "finish": self.finish.state_dict(), "asked": self.asked}

    def load_state_dict(self, state: State) -> None:
        net, saved, asked = state.get("net"), state.get("finish"), state.get("asked")
        if not (isinstance(net, dict) and isinstance(saved, dict) and isinstance(asked, int)):
            raise StateError("the state has no network or optimiser of FSNet; it belongs to another method")
        finish = copy.copy(self.finish)
        finish.load_state_dict(saved)
        self.net.load_state_dict(net)
        self.finish, self.asked = finish, asked
