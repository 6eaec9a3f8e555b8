"""OneNet's mixture for several learners at once: `natsr.forecasters.mixing` with a leading axis, `N`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.fleet.finish import Adaptive
from natsr.fleet.net import matrices
from natsr.fleet.stepped import Labels
from natsr.fleet.tables import Draw
from natsr.forecasters.mixing import WIDTH, Mixing


class Proposals(NamedTuple):
    """A step of the mixtures that has not been taken."""

    by_lasting: Tensor  # (N, C)
    by_weights: Tensor  # (N, P)
    passing: Tensor  # (N, C)

    @property
    def squares(self) -> Tensor:
        """The sum over all that is proposed, `(N,)`; not finite if something is not."""
        return torch.stack([part.square().sum(1) for part in self]).sum(0)


class Mixings:
    """The mixtures of several learners.

    Args:
        mixings: Their state is taken over; `give_back` returns it.
    """

    def __init__(self, mixings: Sequence[Mixing]) -> None:
        first = mixings[0]
        self._mixings, self._task, self._dropout, self._layers = mixings, first.task, first.dropout, first.layers
        self.weights = torch.stack([one.weights for one in mixings])
        self.lasting = torch.stack([one.lasting for one in mixings])
        self.passing = torch.stack([one.passing for one in mixings])
        self._rates = torch.tensor([one.rate for one in mixings], dtype=torch.float64, device=self.weights.device)
        self._begin()
        for number, one in enumerate(mixings):
            for finish, state in zip((self._finish_lasting, self._finish_weights), one.histories(), strict=True):
                finish.load(number, state)

    def _begin(self) -> None:
        self._finish_lasting = Adaptive(self.lasting, self._rates, decay=0.0)
        self._finish_weights = Adaptive(self.weights, self._rates, decay=0.0)

    def restart(self) -> None:
        """Equal weights, no correction and fresh optimisers; what the small networks have learned stays."""
        self.lasting.zero_()
        self.passing.zero_()
        self._begin()

    def draws(self, examples: int) -> list[Draw]:
        """The masks on the two hidden layers."""
        return [Draw((examples * self._task.channels, WIDTH), self._dropout)] * 2

    def mixed(self, first: Tensor, second: Tensor) -> Tensor:
        """The mixtures of forecasts `(N, B, m)`."""
        share = torch.sigmoid(self.lasting + self.passing).repeat(1, self._task.horizon)[:, None]
        return share * first + (1 - share) * second

    def proposed(self, first: Tensor, second: Tensor, labels: Labels, masks: Sequence[Tensor | None]) -> Proposals:
        """The step on two forecasts `(N, B, m)` and what came; changes nothing."""
        (N, B, _), H, C = first.shape, self._task.horizon, self._task.channels
        shape, number = (N, B, H, C), labels.number.to(first)
        apart, share = (first - second).view(shape), torch.sigmoid(self.lasting)
        spread = share[:, None, None]
        one, other = spread * first.reshape(shape), (1 - spread) * second.reshape(shape)
        mixture = (one + other).flatten(2)
        by_share = (labels.slope(mixture).view(shape) * apart).sum((1, 2))
        came = torch.where(labels.known, labels.target, mixture).view(shape)
        seen = torch.cat([one, other, came], 2).transpose(2, 3).reshape(N, B * C, 3 * H)
        said, kept = self._say(seen, masks)
        passing = said.view(N, B, C)
        quick = torch.sigmoid(self.lasting[:, None] + passing)
        corrected = torch.addcmul(second.reshape(shape), quick[:, :, None], apart).flatten(2)
        by_quick = (labels.slope(corrected).view(shape) * apart).sum(2)
        by_passing = by_quick * (quick * (1 - quick)) / number[:, None, None]
        telling = labels.known.view(shape).any(2).to(passing)  # (N, B, C)
        total = telling.sum(1)
        return Proposals(
            by_share * (share * (1 - share)) / number[:, None],
            self._gradient(kept, by_passing.view(N, B * C, 1)),
            torch.where(total > 0, (passing * telling).sum(1) / total.clamp(min=1), self.passing),
        )

    def take(self, proposals: Proposals, mask: Tensor) -> None:
        """Take the step, for the learners of a mask."""
        self._finish_weights.step(proposals.by_weights, mask)
        self._finish_lasting.step(proposals.by_lasting, mask)
        self.passing.copy_(torch.where(mask[:, None], proposals.passing, self.passing))

    def _say(self, seen: Tensor, masks: Sequence[Tensor | None]) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        """What they say `(N, M, 1)` to `(N, M, 3H)`, and for each layer its input and the mask on its output."""
        x, kept = seen, []
        *hidden, last = matrices(self._layers, self.weights)
        for matrix, keep in zip(hidden, masks, strict=True):
            kept.append((x, keep))
            x = torch.baddbmm(matrix[:, -1:], x, matrix[:, :-1])
            x = torch.tanh(x if keep is None else x * keep)
        kept.append((x, None))
        return torch.baddbmm(last[:, -1:], x, last[:, :-1]), kept

    def _gradient(self, kept: list[tuple[Tensor, Tensor | None]], g: Tensor) -> Tensor:
        """The flat gradients from those `(N, M, 1)` by what was said."""
        flat = torch.empty_like(self.weights)
        after: Tensor | None = None
        pairs = zip(matrices(self._layers, flat), matrices(self._layers, self.weights), kept, strict=True)
        for by, matrix, (inputs, keep) in reversed(list(pairs)):
            if after is not None:
                g = g * (1 - after.square())
                g = g if keep is None else g * keep
            torch.bmm(inputs.transpose(1, 2), g, out=by[:, :-1])
            torch.sum(g, 1, out=by[:, -1])
            g, after = torch.bmm(g, matrix[:, :-1].transpose(1, 2)), inputs
        return flat

    def give_back(self) -> None:
        """Bring the mixtures up to date."""
        for number, one in enumerate(self._mixings):
            one.weights.copy_(self.weights[number])
            one.lasting.copy_(self.lasting[number])
            one.passing.copy_(self.passing[number])
            one.go_on(self._finish_lasting.state_dict(number), self._finish_weights.state_dict(number))
