"""Random numbers for many steps ahead, each learner's from its own stream on the device.

Nothing random happens within a step. Before a chunk of steps, what they will need is drawn for all of them: which
examples are replayed, where new ones go, and along which directions the curvature is looked at. A learner's numbers
depend on its own generator alone, so they are the same whoever is stepped beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

_LARGEST_SEED = 2**62


class Streams:
    """A generator on the device for each learner, seeded by its own on the host."""

    def __init__(self, generators: Sequence[torch.Generator], device: torch.device) -> None:
        seeds = [int(torch.randint(_LARGEST_SEED, (), generator=generator)) for generator in generators]
        self._device = device
        self._generators = [torch.Generator(device).manual_seed(seed) for seed in seeds]

    def uniform(self, rows: int, *shape: int) -> Tensor:
        """Numbers from 0 to 1, `(rows, N, *shape)`; each learner's are drawn as `(rows, *shape)`."""
        drawn = [torch.rand(rows, *shape, generator=one, device=self._device) for one in self._generators]
        return torch.stack(drawn, 1)

    def signs(self, rows: int, *shape: int) -> Tensor:
        """-1 or 1 as int8, `(rows, N, *shape)`."""
        drawn = [
            torch.randint(0, 2, (rows, *shape), generator=one, device=self._device, dtype=torch.int8)
            for one in self._generators
        ]
        return torch.stack(drawn, 1).mul_(2).sub_(1)

    def orders(self, size: int) -> Tensor:
        """A permutation of `size` numbers for each learner, `(N, size)`."""
        return torch.stack([torch.randperm(size, generator=one, device=self._device) for one in self._generators])


class Draw(NamedTuple):
    """A mask that a step wants for each learner: zeros at a rate, and ones that are scaled up to keep the mean."""

    shape: tuple[int, ...]
    rate: float


class Masks:
    """Masks for many steps ahead, at their place.

    Args:
        draws: What each step wants.
        rows: Steps.
        learners: How many there are.
        like: Gives type and place.
    """

    def __init__(self, draws: Sequence[Draw], rows: int, learners: int, like: Tensor) -> None:
        self._draws = draws
        self._tables = [like.new_ones(rows, learners, *one.shape) if one.rate > 0 else None for one in draws]

    def draw(self, streams: Streams) -> None:
        """New ones."""
        for one, table in zip(self._draws, self._tables, strict=True):
            if table is not None:
                table.copy_((streams.uniform(len(table), *one.shape) >= one.rate) / (1 - one.rate))

    def at(self, place: Tensor) -> list[Tensor | None]:
        """Those of one step, `(N, …)` each; nothing where nothing is dropped."""
        return [None if table is None else table.index_select(0, place)[0] for table in self._tables]


def choices(keys: Tensor, sizes: Tensor, count: int) -> Tensor:
    """`count` different numbers below `sizes` `(rows, N)`, each set equally likely, `(rows, N, count)`.

    Where there are fewer, the rest are `capacity`, one more than any number.

    Args:
        keys: Random numbers from 0 to 1, `(rows, N, capacity)`.
        sizes: What is to be chosen from.
        count: How many.
    """
    capacity = keys.shape[-1]
    there = torch.arange(capacity, device=keys.device) < sizes[:, :, None]
    values, chosen = torch.where(there, keys, -1.0).topk(min(count, capacity), -1)
    chosen = torch.where(values >= 0, chosen, capacity)
    missing = count - chosen.shape[-1]
    return torch.nn.functional.pad(chosen, (0, missing), value=capacity) if missing > 0 else chosen


def hadamard_table(outputs: int, device: torch.device) -> Tensor:
    """The first `outputs` columns of the Hadamard matrix that has them, as int8."""
    order = 1 << max(0, outputs - 1).bit_length()
    bits = torch.arange(order, device=device)[:, None] & torch.arange(outputs, device=device)
    for shift in (32, 16, 8, 4, 2, 1):
        bits = bits ^ (bits >> shift)
    return (1 - 2 * (bits & 1)).to(torch.int8)


def hadamard_rows(streams: Streams, rows: int, order: int, count: int) -> Tensor:
    """Rows of a Hadamard matrix, drawn without replacement while there are any, `(rows, N, count)`."""
    drawn = [streams.uniform(rows, order).topk(min(order, count), -1).indices for _ in range(-(-count // order))]
    return torch.cat(drawn, -1)[..., :count]
