"""The mixtures of several OneNets at once: `natsr.forecasters.mixture` with optimisers that nobody waits for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.finish import Adaptive
from natsr.fleet.stepped import Labels
from natsr.fleet.tables import Draw
from natsr.forecasters.mixing import Mixing
from natsr.forecasters.mixture import WIDTH, Lesson, Mixture, Moves


class Mixings(Mixture):
    """The mixtures of several learners; every tensor has their axis first.

    Args:
        mixings: Their state is taken over; `give_back` returns it.
    """

    def __init__(self, mixings: Sequence[Mixing]) -> None:
        self._mixings, self._dropout = mixings, mixings[0].dropout
        weights, lasting, passing = (
            torch.stack(parts)
            for parts in zip(*((one.weights, one.lasting, one.passing) for one in mixings), strict=True)
        )
        self._rates = torch.tensor([one.rate for one in mixings], dtype=torch.float64, device=weights.device)
        super().__init__(mixings[0].task, weights, lasting, passing)
        for number, one in enumerate(mixings):
            for finish, state in zip((self._finish_lasting, self._finish_weights), one.histories(), strict=True):
                finish.load(number, state)

    def _begin(self) -> None:
        self._finish_lasting = Adaptive(self.lasting, self._rates, decay=0.0)
        self._finish_weights = Adaptive(self.weights, self._rates, decay=0.0)

    def forget(self, who: Tensor) -> None:
        """Fresh optimisers for the learners of a mask."""
        self._finish_lasting.forget(who)
        self._finish_weights.forget(who)

    def draws(self, examples: int) -> list[Draw]:
        """The masks on the two hidden layers."""
        return [Draw((examples * self.task.channels, WIDTH), self._dropout)] * 2

    def proposed(self, first: Tensor, second: Tensor, labels: Labels, masks: Sequence[Tensor | None]) -> Moves:
        """The step on two forecasts `(N, B, m)` and what came; changes nothing."""
        lesson = Lesson(labels.target, labels.known, labels.number.to(first), labels.slope)
        moves, _ = self.moves(first, second, lesson, masks)
        return moves

    def take(self, moves: Moves, mask: Tensor) -> None:
        """Take the step, for the learners of a mask."""
        self._finish_weights.step(moves.by_weights, mask)
        self._finish_lasting.step(moves.by_lasting, mask)
        self.passing.copy_(torch.where(mask[:, None], moves.passing, self.passing))

    def give_back(self) -> None:
        """Bring the mixtures up to date."""
        for number, one in enumerate(self._mixings):
            one.weights.copy_(self.weights[number])
            one.lasting.copy_(self.lasting[number])
            one.passing.copy_(self.passing[number])
            one.go_on(self._finish_lasting.state_dict(number), self._finish_weights.state_dict(number))
