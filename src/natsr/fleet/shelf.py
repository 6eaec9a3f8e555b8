"""The reservoirs of several learners on a device, where nobody but the device knows how full they are."""

from __future__ import annotations

import torch
from torch import Tensor

from natsr.fleet.memory import Memories
from natsr.types import State


class Shelf:
    """`natsr.fleet.memory.Memories` for steps that the host does not see.

    Each learner has one place more than its capacity; what is not kept goes there, and nobody reads it.

    Args:
        memory: Whose examples are taken over; `give_back` returns them.
        fields: An example of each field, `(N, …)`.
    """

    def __init__(self, memory: Memories, fields: tuple[Tensor, ...]) -> None:
        self._memory, self.capacity = memory, memory.capacity
        like, n = fields[0], len(memory.seen)
        self.seen = torch.tensor(memory.seen, device=like.device)
        self._base = torch.arange(n, device=like.device)[:, None] * (self.capacity + 1)
        self._fields = [field.new_zeros(n * (self.capacity + 1), *field.shape[1:]) for field in fields]
        for number, state in enumerate(memory.state_dict(number) for number in range(n)):
            kept = state["fields"]
            assert isinstance(kept, dict)
            for index, field in enumerate(self._fields):
                if isinstance(rows := kept.get(str(index)), Tensor):
                    start = number * (self.capacity + 1)
                    field[start : start + len(rows)] = rows

    def there(self, chosen: Tensor) -> Tensor:
        """Which of the places `(N, draws)` hold an example."""
        return chosen < self.seen[:, None]

    def read(self, index: int, chosen: Tensor) -> Tensor:
        """A field of the examples at these places, `(N, draws, …)`."""
        flat = (chosen + self._base).flatten()
        return self._fields[index].index_select(0, flat).view(*chosen.shape, *self._fields[index].shape[1:])

    def add(self, offered: Tensor, drawn: Tensor, *fields: Tensor) -> None:
        """Take in one example of each learner that offers one.

        Args:
            offered: `(N,)`.
            drawn: Numbers from 0 to 1 `(N,)`, which decide where it goes once the memory is full.
            fields: Its fields, `(N, …)`.
        """
        count = self.seen + 1
        random = torch.minimum((drawn.double() * count).long(), self.seen)
        place = torch.where(self.seen < self.capacity, self.seen, random)
        place = torch.where(offered, place, self.capacity).clamp(max=self.capacity)
        for kept, field in zip(self._fields, fields, strict=True):
            kept.index_copy_(0, place + self._base[:, 0], field)
        self.seen += offered

    def give_back(self) -> None:
        """Let the memories on the host go on from here."""
        for number, seen in enumerate(self.seen.tolist()):
            start, count = number * (self.capacity + 1), min(seen, self.capacity)
            fields: State = {str(i): field[start : start + count].clone() for i, field in enumerate(self._fields)}
            self._memory.load(number, {"seen": seen, "fields": fields})
