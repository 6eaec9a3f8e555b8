"""The last word of a step for several learners: from directions to new weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from natsr.fleet.shape import DECAY
from natsr.forecasters.finish import MOMENTS
from natsr.native import cuda
from natsr.types import State

BETAS, EPS = (0.9, 0.999), 1e-8  # AdamW's, as PyTorch has them


class Finishes:
    """Plain steps, or PyTorch's AdamW with a row of the weights as a learner's one parameter.

    Args:
        adaptive: Who goes by AdamW.
        rates: `(N,)`.
        weights: `(N, P)`; shared, and moved in place.
    """

    def __init__(self, adaptive: Sequence[bool], rates: Tensor, weights: Tensor) -> None:
        self._weights = weights
        self.adaptive = list(adaptive)
        plain = torch.tensor(self.adaptive, device=rates.device).logical_not()
        self._plain_rates = torch.where(plain, rates, 0.0)
        self._rows = [nn.Parameter(row) if wanted else None for row, wanted in zip(weights, adaptive, strict=True)]
        groups: dict[float, list[nn.Parameter]] = {}
        for row, rate in zip(self._rows, rates.tolist(), strict=True):
            if row is not None:
                groups.setdefault(rate, []).append(row)
        # Learners of one rate make one group, which is one call of the library's fused kernel.
        settings = [{"params": rows, "lr": rate} for rate, rows in groups.items()]
        self._optimizer = (
            torch.optim.AdamW(settings, betas=BETAS, eps=EPS, weight_decay=DECAY, fused=True) if settings else None
        )

    def set_rates(self, rates: Sequence[float]) -> None:
        """Go on at other rates, all by AdamW; learners of one group must get the same one."""
        by_row = dict(zip(map(id, self._rows), rates, strict=True))
        for group in self._optimizer.param_groups if self._optimizer is not None else ():
            group["lr"] = by_row[id(group["params"][0])]

    def step(self, directions: Tensor, good: Sequence[bool]) -> None:
        """Move the weights of the learners whose step is `good` against their directions `(N, P)`."""
        if not all(self.adaptive):
            rates = torch.where(torch.tensor(good, device=directions.device), self._plain_rates, 0.0)
            self._weights.addcmul_(directions, -rates.to(directions)[:, None])
        if self._optimizer is None:
            return
        for row, direction, wanted in zip(self._rows, directions, good, strict=True):
            if row is not None:
                row.grad = direction if wanted else None
        self._optimizer.step()
        for row in self._rows:
            if row is not None:
                row.grad = None

    def state_dict(self, number: int) -> State:
        """One learner's, as `natsr.forecasters.finish` would write it."""
        row = self._rows[number]
        if self._optimizer is None or row is None:
            return {}
        moments: dict[str, Tensor] = self._optimizer.state.get(row, {})
        return {name: part.clone() for name, part in moments.items()}

    def load(self, number: int, state: State) -> None:
        """Take over what one learner's wrote."""
        self.forget(number)
        row = self._rows[number]
        if self._optimizer is not None and row is not None and state:
            moments = {name: part.clone() for name, part in state.items() if isinstance(part, Tensor)}
            self._optimizer.state[row] = moments

    def forget(self, number: int) -> None:
        """One learner's next step is its first."""
        row = self._rows[number]
        if self._optimizer is not None and row is not None:
            self._optimizer.state.pop(row, None)


class Adaptive:
    """AdamW as plain arithmetic on all learners at once, masked on the device: nobody looks at the mask.

    Args:
        weights: `(N, P)`; shared, and moved in place.
        rates: `(N,)`; shared, and looked at in every step.
        decay: Of the weights.
    """

    def __init__(self, weights: Tensor, rates: Tensor, decay: float = DECAY) -> None:
        self._weights, self.rates, self._decay = weights, rates, decay
        self._taken = torch.zeros_like(rates)
        self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)

    def step(self, directions: Tensor, mask: Tensor) -> None:
        """Move the weights of the learners in the mask against their directions."""
        rates = torch.where(mask, self.rates, 0.0)
        if directions.is_cuda and self._fused(directions, mask, rates):
            return

        def spread(values: Tensor) -> Tensor:
            return values.to(directions)[:, None]

        first, second = BETAS
        directions = torch.where(mask[:, None], directions, 0.0)
        self._taken += mask
        taken = self._taken.clamp(min=1)
        self._mean.lerp_(directions, spread(mask) * (1 - first))
        self._square.lerp_(directions.square(), spread(mask) * (1 - second))
        below = self._square.sqrt().mul_(spread((1 - second**taken).rsqrt())).add_(EPS)
        self._weights.mul_(spread(1 - rates * self._decay))
        self._weights.addcdiv_(self._mean * spread(-rates / (1 - first**taken)), below)

    def _fused(self, directions: Tensor, mask: Tensor, rates: Tensor) -> bool:
        """The same in one pass over the weights; false if that cannot be had."""
        if cuda.library() is None or directions.dtype != torch.float32:
            return False
        first, second = BETAS
        self._taken += mask
        taken = self._taken.clamp(min=1)
        ones = torch.ones_like(rates)
        parts = (ones * (1 - first), ones * (1 - second), (1 - second**taken).rsqrt(), ones * EPS)
        how = torch.stack([mask.to(rates), *parts, rates / (1 - first**taken), 1 - rates * self._decay], 1)
        return cuda.adamw((self._weights, self._mean, self._square), directions, how)

    def forget(self, mask: Tensor) -> None:
        """The next step of the learners in the mask is their first."""
        for part in (self._mean, self._square, self._taken):
            part.masked_fill_(mask.view(-1, *[1] * (part.dim() - 1)), 0.0)

    def load(self, number: int, state: State) -> None:
        """Take over what one learner's wrote."""
        for name, part in zip(MOMENTS, (self._mean, self._square, self._taken), strict=True):
            if isinstance(value := state.get(name), Tensor):
                part[number] = value

    def state_dict(self, number: int) -> State:
        """One learner's, as `natsr.forecasters.finish` would write it."""
        if not bool(self._taken[number]):
            return {}
        parts = (self._mean[number].clone(), self._square[number].clone(), self._taken[number].float())
        return dict(zip(MOMENTS, parts, strict=True))


class Moments:
    """The steps of `Finishes`, masked on the device.

    Args:
        finish: Whose state is taken over; `give_back` returns it.
        rates: `(N,)`.
        weights: `(N, P)`; shared, and moved in place.
    """

    def __init__(self, finish: Finishes, rates: Tensor, weights: Tensor) -> None:
        self._finish, self._weights, self.rates = finish, weights, rates
        self._moving = torch.tensor(finish.adaptive, device=weights.device)
        self._all = all(finish.adaptive)
        self._adaptive = Adaptive(weights, rates) if any(finish.adaptive) else None
        if self._adaptive is not None:
            for number in range(len(weights)):
                self._adaptive.load(number, finish.state_dict(number))

    def step(self, directions: Tensor, mask: Tensor) -> None:
        """Move the weights of the learners in the mask against their directions."""
        if not self._all:
            rates = torch.where(mask & ~self._moving, self.rates, 0.0)
            if not cuda.blend(self._weights, directions, torch.ones_like(rates), -rates):
                self._weights.addcmul_(directions, -rates.to(directions)[:, None])
        if self._adaptive is not None:
            self._adaptive.step(directions, mask & self._moving)

    def forget(self, mask: Tensor) -> None:
        """The next step of the learners in the mask is their first."""
        if self._adaptive is not None:
            self._adaptive.forget(mask)

    def give_back(self) -> None:
        """Let the optimizer go on from here."""
        if self._adaptive is not None:
            for number in range(len(self._weights)):
                self._finish.load(number, self._adaptive.state_dict(number))
