"""The reservoirs of several learners in one block of memory; each learner draws from its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.types import State


class Drawn(NamedTuple):
    """Replayed examples, padded to the same number for every learner."""

    fields: tuple[Tensor, ...]  # (N, draws, …)
    there: Tensor  # (N, draws) bool: which are examples and not padding


class Memories:
    """`N` reservoirs of `natsr.replay.Reservoir`'s kind: the same draws, the same places.

    Args:
        capacity: Examples that each keeps.
        generators: One for each learner; the same that its other draws come from.
    """

    def __init__(self, capacity: int, generators: Sequence[torch.Generator]) -> None:
        self.capacity = capacity
        self.seen = [0] * len(generators)
        self._generators = list(generators)
        self._fields: tuple[Tensor, ...] = ()  # (N · capacity, …)

    def draw(self, count: int, active: Sequence[bool]) -> Drawn | None:
        """`count` different examples for each active learner, or all that it has; nothing if nobody has any."""
        if not self._fields or not count:
            return None
        chosen = torch.full((len(self.seen), count), -1, dtype=torch.long)
        for number, generator in enumerate(self._generators):
            if active[number] and self.seen[number]:
                order = torch.randperm(min(self.seen[number], self.capacity), generator=generator)[:count]
                chosen[number, : len(order)] = order + number * self.capacity
        if int(chosen.max()) < 0:
            return None
        device = self._fields[0].device
        flat, there = chosen.clamp(min=0).flatten().to(device), (chosen >= 0).to(device)
        fields = (field.index_select(0, flat).view(*chosen.shape, *field.shape[1:]) for field in self._fields)
        return Drawn(tuple(fields), there)

    def add(self, offered: Tensor, *fields: Tensor) -> None:
        """Take in the examples `(N, B, …)` that are `offered` `(N, B)`, each learner's one by one."""
        flags: list[list[bool]] = offered.tolist()
        if not any(any(row) for row in flags):
            return
        if not self._fields:
            self._fields = tuple(field.new_zeros(len(self.seen) * self.capacity, *field.shape[2:]) for field in fields)
        kept: dict[int, int] = {}  # place in the block: place in the batch; a later example takes an earlier one's
        for number, row in enumerate(flags):
            for index, wanted in enumerate(row):
                place = self._place(number) if wanted else self.capacity
                if place < self.capacity:
                    kept[number * self.capacity + place] = number * len(row) + index
        if not kept:
            return
        device = self._fields[0].device
        places, sources = (torch.tensor(list(part), device=device) for part in (kept.keys(), kept.values()))
        for memory, field in zip(self._fields, fields, strict=True):
            memory.index_copy_(0, places, field.flatten(0, 1).index_select(0, sources))

    def _place(self, number: int) -> int:
        """Where the learner's next example goes; beyond the last place it is not kept."""
        place = self.seen[number]
        if place >= self.capacity:
            place = int(torch.randint(0, place + 1, (), generator=self._generators[number]))
        self.seen[number] += 1
        return place

    def state_dict(self, number: int) -> State:
        """One learner's memory, as its reservoir would have it."""
        start, count = number * self.capacity, min(self.seen[number], self.capacity)
        used = self._fields if self.seen[number] else ()
        fields: State = {str(i): field[start : start + count].clone() for i, field in enumerate(used)}
        return {"seen": self.seen[number], "fields": fields}

    def load(self, number: int, state: State) -> None:
        """Take over what a reservoir wrote."""
        seen, fields = state["seen"], state["fields"]
        assert isinstance(seen, int) and isinstance(fields, dict)
        parts = [part for i in range(len(fields)) if isinstance(part := fields[str(i)], Tensor)]
        if parts and not self._fields:
            self._fields = tuple(part.new_zeros(len(self.seen) * self.capacity, *part.shape[1:]) for part in parts)
        for memory, part in zip(self._fields, parts, strict=bool(parts)):
            memory[number * self.capacity : number * self.capacity + len(part)] = part
        self.seen[number] = seen
