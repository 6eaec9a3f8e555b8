"""New curvature for a few learners of a fleet at a time, in few and large operations.

`natsr.fleet.curvature` keeps two matrices and two inverses for each layer. Here those of one size lie in one block,
`(layers, N + 1, I, I)`, of which the curvature's own tensors become views: what must be done to all of them is then
done once for each size. The last place of a block belongs to nobody; what turned out not to be finite is put there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.fleet.control import Branches
from natsr.fleet.curvature import Curvatures
from natsr.fleet.solve import Inverses, balanced, inverted


class _Block(NamedTuple):
    """The factors of one size: which they are (`A` of each layer first, then `G`), and where they lie."""

    members: list[int]
    factors: Tensor  # (layers, N + 1, I, I)
    inverses: Tensor


class Renewal:
    """What estimates and inverts, for learners that are chosen on the device.

    Args:
        natural: The curvature, whose tensors are moved; it must keep explicit inverses.
        branches: Where independent work may run side by side.
    """

    def __init__(self, natural: Curvatures, branches: Branches) -> None:
        assert isinstance(natural.solvers, Inverses)
        self._natural, self._solvers, self._branches = natural, natural.solvers, branches
        layers = len(natural.a)
        self._layers, self._learners = layers, len(natural.made)
        sizes: dict[int, list[int]] = {}
        for member, part in enumerate([*natural.a, *natural.g[:-1]]):  # the head's G is a number
            sizes.setdefault(part.shape[-1], []).append(member)
        ordered = sorted(sizes.items(), reverse=True)  # the longest work begins first
        self._blocks = [self._moved(members) for _, members in ordered]
        order = torch.tensor([member for _, members in ordered for member in members])
        device = natural.made.device
        self._order = order.to(device)  # members as they follow each other in the blocks
        self._back = order.argsort().to(device)

    def _moved(self, members: list[int]) -> _Block:
        natural, solvers = self._natural, self._solvers
        found = []
        for sides in ((natural.a, natural.g), (solvers.a, solvers.g)):
            parts = [sides[member >= self._layers][member % self._layers] for member in members]
            block = parts[0].new_empty(len(parts), self._learners + 1, *parts[0].shape[1:])
            for row, (member, part) in enumerate(zip(members, parts, strict=True)):
                block[row, :-1] = part
                sides[member >= self._layers][member % self._layers] = block[row, :-1]
            found.append(block)
        return _Block(members, *found)

    def kept(self, chosen: Tensor) -> list[Tensor]:
        """The factors of some learners as they are, `(layers, n, I, I)` of each block."""

        def job(block: _Block) -> Callable[[], Tensor]:
            return lambda: block.factors.index_select(1, chosen)

        return self._branches.run([job(block) for block in self._blocks])

    def blended(self, old: Sequence[Tensor], new: Sequence[Tensor], weight: Tensor) -> list[Tensor]:
        """The factors with new estimates taken in.

        Args:
            old: What `kept` gave.
            new: Estimates of `A` of every layer, then of `G`, `(n, I, I)` each.
            weight: Of the new ones, `(n,)`.
        """

        def job(block: _Block, was: Tensor) -> Callable[[], Tensor]:
            return lambda: torch.lerp(
                was, torch.stack([new[member] for member in block.members]), weight.to(was)[:, None, None]
            )

        return self._branches.run([job(*pair) for pair in zip(self._blocks, old, strict=True)])

    def put(self, chosen: Tensor, valid: Tensor, factors: Sequence[Tensor], damping: Tensor) -> Tensor:
        """Invert at `τ/κ` `(n,)` and keep factors and inverses where they are finite; answers where, `(n,)`.

        Args:
            chosen: Numbers of the learners, `(n,)`, each once.
            valid: Which of them are meant.
            factors: As `kept` and `blended` give them.
            damping: `(n,)`.
        """
        means = torch.cat([part.diagonal(dim1=2, dim2=3).mean(-1) for part in factors]).index_select(0, self._back)
        shifts = self._shifts(means, damping)
        counts = [len(block.members) for block in self._blocks]
        pieces = torch.split(shifts[:-1].index_select(0, self._order), counts)

        def job(part: Tensor, shift: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
            def made() -> tuple[Tensor, Tensor]:
                inverse = inverted(part.flatten(0, 1), shift.flatten()).view_as(part)
                return inverse, inverse.diagonal(dim1=2, dim2=3).sum(-1).isfinite().all(0)

            return made

        made = self._branches.run([job(*pair) for pair in zip(factors, pieces, strict=True)])
        fine = valid & torch.stack([flags for _, flags in made]).all(0)
        places = torch.where(fine, chosen, self._learners)

        def copied(block: _Block, part: Tensor, inverse: Tensor) -> Callable[[], tuple[Tensor, Tensor]]:
            return lambda: (block.factors.index_copy_(1, places, part), block.inverses.index_copy_(1, places, inverse))

        triples = zip(self._blocks, factors, made, strict=True)
        self._branches.run([copied(block, part, inverse) for block, part, (inverse, _) in triples])
        natural, head = self._natural, self._solvers.g[-1]
        for place, values in ((head, (1 / (1 + shifts[-1])).to(head)), (natural.made, damping)):
            place.index_copy_(0, chosen, torch.where(fine, values, place[chosen]))
        natural.known.index_copy_(0, chosen, natural.known[chosen] | fine)
        return fine

    def _shifts(self, means: Tensor, damping: Tensor) -> Tensor:
        """What is added to the diagonals, `(2 · layers, n)`, from their means; that of the head's `G` is one."""
        root, layers = damping.sqrt(), self._layers
        ratio = torch.cat([means[: layers - 1] / means[layers:], means[layers - 1 : layers]])
        balance = balanced(ratio)
        return torch.cat([balance * root, root / balance])
