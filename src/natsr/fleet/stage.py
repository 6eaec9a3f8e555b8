"""What one step learns from: the learners' examples as one padded batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.forecasters.frame import Frame
from natsr.types import Example


class Staged(NamedTuple):
    """Examples of all learners; whoever has fewer is padded with windows of zeros and targets of NaN."""

    window: Tensor  # (N, B, L, D)
    target: Tensor  # (N, B, m), NaN = unknown
    there: Tensor  # (N, B) bool: an example, not padding
    done: Tensor  # (N, B) bool: its last label has arrived, and some label is known
    taught: Tensor  # (N, B, m), the labels that the memory keeps
    active: list[bool]  # (N,): has a label to learn from

    def joined(self, window: Tensor, target: Tensor, there: Tensor) -> Staged:
        """This with replayed examples after the new ones; what is padding has no label."""
        target = torch.where(there[:, :, None], target, torch.nan)
        return self._replace(
            window=torch.cat([self.window, window], 1),
            target=torch.cat([self.target, target], 1),
            there=torch.cat([self.there, there], 1),
        )


def stacked(given: Sequence[Tensor | None], read: Callable[[Tensor], Tensor]) -> Tensor:
    """`(N, B, …)` from tensors `(b, …)` of several learners, read and padded with zeros; one for all is read once."""
    there = [part for part in given if part is not None]
    if len(there) == len(given) and all(part is there[0] for part in there):
        return read(there[0])[None].expand(len(given), *[-1] * there[0].ndim)
    return _padded(read(torch.cat(there)), [0 if part is None else len(part) for part in given])


def staged(frame: Frame, examples: Sequence[Example | None], like: Tensor) -> Staged | None:
    """The batch; nothing if no learner has a label."""
    there = [example for example in examples if example is not None]
    if not there:
        return None
    if all(example is there[0] for example in there) and len(there) == len(examples):
        read = _read(frame, there[0], like)
        return _made(*(part[None].expand(len(examples), *part.shape) for part in read))
    sizes = [0 if example is None else len(example.window) for example in examples]
    fresh = any(example.fresh is not None for example in there)
    whole = Example(
        torch.cat([example.window for example in there]),
        torch.cat([example.target for example in there]),
        torch.cat([_fresh(example) for example in there]) if fresh else None,
    )
    return _made(*(_padded(part, sizes) for part in _read(frame, whole, like)))


def _fresh(example: Example) -> Tensor:
    if example.fresh is not None:
        return example.fresh
    return torch.ones(example.target.shape[:2], dtype=torch.bool, device=example.target.device)


def _read(frame: Frame, example: Example, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Window, labels to learn, presence, completeness and labels to keep, of a batch `(b, …)`."""
    window, target = frame.read(example.window, like), frame.teach(example, like)
    taught = target if frame.labels == "known" else frame.teach(example, like, whole=True)
    done = _fresh(example)[:, -1].to(like.device) & taught.isfinite().any(1)
    return window, target, torch.ones_like(done), done, taught


def _made(window: Tensor, target: Tensor, there: Tensor, done: Tensor, taught: Tensor) -> Staged | None:
    target, taught = (torch.where(there[:, :, None], part, torch.nan) for part in (target, taught))
    active: list[bool] = target.isfinite().flatten(1).any(1).tolist()
    if not any(active):
        return None
    done = done & torch.tensor(active, device=done.device)[:, None]
    return Staged(window, target, there, done, taught, active)


def _padded(rows: Tensor, sizes: Sequence[int]) -> Tensor:
    """`(Σ sizes, …)` as `(N, max sizes, …)`, with zeros."""
    if min(sizes) == max(sizes):
        return rows.view(len(sizes), -1, *rows.shape[1:])
    whole = rows.new_zeros(len(sizes), max(sizes), *rows.shape[1:])
    for number, row in enumerate(torch.split(rows, list(sizes))):
        whole[number, : len(row)] = row
    return whole
