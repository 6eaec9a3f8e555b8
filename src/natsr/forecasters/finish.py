"""The last word of a step: from a direction to new weights."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from natsr.native.calls import Moments, Move
from natsr.types import State, StateError

MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # as torch calls AdamW's history


class Finish(Protocol):
    """Moves flat weights against a direction."""

    def move(self, weights: Tensor) -> Move:
        """What `step` does to these weights, for compiled code that does it instead."""

    def step(self, weights: Tensor, direction: Tensor) -> None:
        """Change `weights` in place."""

    def forget(self) -> None:
        """Drop what was learned from earlier steps: the next one is the first."""

    def state_dict(self) -> State:
        """What must be carried on."""

    def load_state_dict(self, state: State) -> None:
        """Go on from it."""


class Sgd:
    """`w ← w - rate · direction`: the direction's own length counts."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def step(self, weights: Tensor, direction: Tensor) -> None:
        weights.sub_(direction, alpha=self.rate)

    def move(self, weights: Tensor) -> Move:
        del weights
        return Move(self.rate)

    def forget(self) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        if state:
            raise StateError(f"SGD has no state, got {sorted(state)}; the state belongs to another method")


class AdamW:
    """PyTorch's AdamW on the one flat vector: the direction is normalised by its own history."""

    def __init__(self, rate: float, decay: float = 0.01) -> None:
        self.rate = rate
        self.decay = decay
        self._loaded: dict[str, Tensor] = {}
        self._weights: Tensor | None = None
        self._optimizer: torch.optim.AdamW | None = None

    def set_rate(self, rate: float) -> None:
        """Go on at another rate, with the history kept."""
        self.rate = rate
        if self._optimizer is not None:
            self._optimizer.param_groups[0]["lr"] = rate

    def step(self, weights: Tensor, direction: Tensor) -> None:
        if self._optimizer is None or self._weights is not weights:
            self._bind(weights)
        assert self._optimizer is not None
        parameter = self._optimizer.param_groups[0]["params"][0]
        parameter.grad = direction
        self._optimizer.step()
        parameter.grad = None

    def move(self, weights: Tensor) -> Move:
        if self._optimizer is None or self._weights is not weights:
            self._bind(weights)
        assert self._optimizer is not None
        history, group = next(iter(self._optimizer.state.values())), self._optimizer.param_groups[0]
        moments = Moments(*(history[name] for name in MOMENTS))
        return Move(self.rate, moments, group["betas"], group["eps"], self.decay)

    def forget(self) -> None:
        self._loaded, self._optimizer = {}, None

    def _bind(self, weights: Tensor) -> None:
        """Make the library's optimiser for this vector, which it then shares."""
        loaded = self._history()
        parameter = nn.Parameter(weights)
        self._weights = weights
        self._optimizer = torch.optim.AdamW([parameter], lr=self.rate, weight_decay=self.decay, fused=True)
        if not loaded:  # as the library begins, at its first step
            loaded = {name: torch.zeros_like(weights) for name in MOMENTS[:2]}
            loaded |= {"step": torch.zeros((), dtype=torch.float32, device=weights.device)}
        self._optimizer.state[parameter] = {
            name: part.to(device=weights.device, copy=True) for name, part in loaded.items()
        }

    def _history(self) -> dict[str, Tensor]:
        if self._optimizer is None:
            return self._loaded
        moments: dict[str, Tensor] = next(iter(self._optimizer.state.values()))
        return moments if float(moments["step"]) else {}

    def state_dict(self) -> State:
        return {name: part.clone() for name, part in self._history().items()}

    def load_state_dict(self, state: State) -> None:
        moments = {name: part.clone() for name, part in state.items() if isinstance(part, Tensor)}
        if state and (set(state) != set(MOMENTS) or set(moments) != set(MOMENTS)):
            raise StateError(
                f"AdamW's state has {', '.join(sorted(state))}, expected the tensors {', '.join(MOMENTS)}; the state "
                "belongs to another method"
            )
        self._loaded, self._optimizer = moments, None
