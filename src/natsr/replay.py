"""Memory of the stream: a uniform sample of all that was learned, of fixed size."""

from __future__ import annotations

import torch
from torch import Tensor

from natsr.types import OptionError, State, StateError


class Reservoir:
    """Keeps `capacity` examples such that each one seen so far is equally likely to be among them (Vitter 1985).

    An example is any tuple of tensors with a leading batch axis; the first `add` fixes their shapes and allocates.

    >>> import torch
    >>> memory = Reservoir(capacity=3, generator=torch.Generator().manual_seed(0))
    >>> memory.add(torch.arange(10.0))
    >>> len(memory), memory.seen
    (3, 10)
    """

    def __init__(self, capacity: int, generator: torch.Generator) -> None:
        if capacity < 1:
            raise OptionError(f"memory is {capacity}, expected at least 1 example; a method without replay needs none")
        self.capacity = capacity
        self.seen = 0
        self._generator = generator
        self._fields: tuple[Tensor, ...] = ()

    def __len__(self) -> int:
        return min(self.seen, self.capacity)

    def add(self, *fields: Tensor) -> None:
        """Take in a batch of examples, one by one."""
        if not self._fields:
            self._fields = tuple(field.new_zeros(self.capacity, *field.shape[1:]) for field in fields)
        for row in range(len(fields[0])):
            place = self.seen
            if place >= self.capacity:
                place = int(torch.randint(0, self.seen + 1, (), generator=self._generator))
            self.seen += 1
            if place < self.capacity:
                for kept, field in zip(self._fields, fields, strict=True):
                    kept[place] = field[row]

    def draw(self, count: int) -> tuple[Tensor, ...]:
        """`count` different examples, or all there are if fewer."""
        chosen = torch.randperm(len(self), generator=self._generator)[:count]
        return tuple(field[chosen.to(field.device)] for field in self._fields)

    def state_dict(self) -> State:
        """The examples kept and how many were seen; the random stream belongs to whoever owns the generator."""
        fields: State = {str(i): field[: len(self)].clone() for i, field in enumerate(self._fields)}
        return {"seen": self.seen, "fields": fields}

    def load_state_dict(self, state: State) -> None:
        """Go on from saved examples."""
        seen, fields = state.get("seen"), state.get("fields")
        if not (isinstance(seen, int) and isinstance(fields, dict)):
            raise StateError("the memory's state holds no examples; the state was not written by natsr")
        kept = []
        for i in range(len(fields)):
            field = fields.get(str(i))
            if not isinstance(field, Tensor) or len(field) != min(seen, self.capacity):
                got = f"{len(field)} examples" if isinstance(field, Tensor) else f"{field!r}"
                raise StateError(
                    f"the memory's state has {got} of {seen} seen, expected {min(seen, self.capacity)} for a memory of "
                    f"{self.capacity}; load it into a memory of the same size"
                )
            whole = field.new_zeros(self.capacity, *field.shape[1:])
            whole[: len(field)] = field
            kept.append(whole)
        self.seen, self._fields = seen, tuple(kept)
