"""OneNet's step: two networks that learn on their own, and what mixes their forecasts."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from natsr.forecasters.finish import AdamW
from natsr.forecasters.guards import LARGEST
from natsr.forecasters.losses import Loss
from natsr.forecasters.mixing import Mixing
from natsr.forecasters.stepping import Labels, Taken, descend, in_order, judged
from natsr.forecasters.warm import dropout_mask
from natsr.nets.adapted import Scaled, fitting
from natsr.nets.base import Traced
from natsr.nets.tcn import ConeTrace
from natsr.nets.variables import VariablesTrace
from natsr.types import State, StateError

T = TypeVar("T", bound=Traced)


class Branch(Generic[T]):
    """One of the two networks, with its optimiser."""

    def __init__(self, net: Scaled[T], generator: torch.Generator) -> None:
        self.net = net
        self.generator = generator
        self.finish = AdamW(0.0)

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)`."""
        return self.net.body.forward(window)

    def traced(self, window: Tensor, dropout: float) -> T:
        """Outputs, with what the gradient needs."""
        keep = dropout_mask((len(window), self.net.hidden), dropout, self.generator)
        return self.net.body.trace(window, None if keep is None else keep.to(window))

    def gradient(self, trace: T, pull: Tensor) -> Tensor | None:
        """Of its own loss; nothing, if it is in order and C has it."""
        if self.net.within(trace, pull, LARGEST):
            return None
        return self.net.pulled(self.net.body.gradient(trace, pull))

    def take(self, gradient: Tensor | None) -> None:
        """One step of AdamW; without a gradient, of what was `within` bounds."""
        if gradient is None:
            self.net.take(self.finish.move(self.net.weights))
            return
        descend(self.finish, self.net.weights, gradient)
        self.net.settle()

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        return {"weights": self.net.weights.clone(), "finish": self.finish.state_dict()}

    def checked(self, state: object) -> tuple[Tensor, AdamW]:
        """Weights and optimiser of a state, if they fit."""
        saved = state.get("finish") if isinstance(state, dict) else None
        if not (isinstance(state, dict) and isinstance(saved, dict)):
            raise StateError("the state lacks a network of OneNet; it belongs to another method")
        finish = copy.copy(self.finish)
        finish.load_state_dict(saved)
        return fitting("weights", state.get("weights"), self.net.weights), finish


class OneNetLearner:
    """Both branches and their mixture.

    Args:
        variables: The branch over the variables.
        time: The branch over time.
        mixing: What mixes them.
        loss: MSE or MAE.
        generator: Draws dropout masks.
    """

    def __init__(
        self,
        variables: Scaled[VariablesTrace],
        time: Scaled[ConeTrace],
        mixing: Mixing,
        loss: Loss,
        generator: torch.Generator,
    ) -> None:
        self.variables = Branch(variables, generator)
        self.time = Branch(time, generator)
        self.mixing = mixing
        self.loss = loss

    @property
    def like(self) -> Tensor:
        return self.time.net.weights

    def forward(self, window: Tensor) -> Tensor:
        return self.mixing.mixed(self.variables.forward(window), self.time.forward(window))

    def judged(self, window: Tensor) -> Tensor:
        return (self.variables.forward(window) + self.time.forward(window)) / 2

    def step(self, window: Tensor, labels: Labels, dropout: float, farthest: float) -> Taken:
        variables, time = self.variables.traced(window, dropout), self.time.traced(window, dropout)
        first, second = judged(self.loss, variables.output, labels), judged(self.loss, time.output, labels)
        if not max(first.farthest, second.farthest) < farthest:
            return Taken("astray")
        by_variables, by_time = self.variables.gradient(variables, first.pull), self.time.gradient(time, second.pull)
        proposal = self.mixing.proposed(variables.output, time.output, labels)
        gradients = [gradient for gradient in (by_variables, by_time) if gradient is not None]
        if not (proposal.squares < LARGEST**2 and all(in_order(gradient) for gradient in gradients)):
            return Taken("refused")
        self.variables.take(by_variables)
        self.time.take(by_time)
        self.mixing.take(proposal.moves)
        return Taken("taken", proposal.loss)

    def begin(self, rate: float, online: bool) -> None:
        del online  # both phases have the same step
        self.variables.finish, self.time.finish = AdamW(rate), AdamW(rate)
        self.mixing.restart()

    def set_rate(self, rate: float) -> None:
        self.variables.finish.set_rate(rate)
        self.time.finish.set_rate(rate)

    def forget(self) -> None:
        self.variables.finish.forget()
        self.time.finish.forget()
        self.mixing.forget()

    def trained(self) -> Sequence[Tensor]:
        return (self.variables.net.weights, self.time.net.weights)

    def vital(self) -> Sequence[Tensor]:
        mixing = self.mixing
        return (*self.trained(), mixing.weights, mixing.lasting, mixing.passing)

    def settle(self) -> None:
        self.variables.net.settle()
        self.time.net.settle()

    def info(self) -> dict[str, float]:
        share = torch.sigmoid(self.mixing.lasting + self.mixing.passing)
        return {"share": float(share.mean())}

    def state_dict(self) -> State:
        return {
            "variables": self.variables.state_dict(),
            "time": self.time.state_dict(),
            "mixing": self.mixing.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        mixing = state.get("mixing")
        if not isinstance(mixing, dict):
            raise StateError("the state lacks the mixture of OneNet; it belongs to another method")
        variables, finish_variables = self.variables.checked(state.get("variables"))
        time, finish_time = self.time.checked(state.get("time"))
        self.mixing.load_state_dict(mixing)
        self.variables.net.weights.copy_(variables)
        self.time.net.weights.copy_(time)
        self.variables.finish, self.time.finish = finish_variables, finish_time
        self.settle()
