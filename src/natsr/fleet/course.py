"""The streams of a fleet where its networks are: whole on the device, so that a step finds its rows by itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.forecasters.frame import Frame
from natsr.streams import Rows
from natsr.types import Example, OptionError


class Course:
    """The rows of every learner's stream, on a device.

    Args:
        rows: One stream for each learner, all of one length; learners of one stream give the same object.
        frame: What the networks read and are taught.
        like: Gives type and place.
    """

    def __init__(self, rows: Sequence[Rows], frame: Frame, like: Tensor) -> None:
        shared = all(one is rows[0] for one in rows)
        kept = rows[:1] if shared else rows
        if len({len(one.inputs) for one in kept}) != 1:
            raise OptionError("the learners' streams differ in length, expected as many rows in each")
        self.learners, self.length = len(rows), len(rows[0].inputs)
        self.frame, self._like = frame, like
        self._inputs = torch.cat([one.inputs for one in kept]).to(like)
        self._truth = torch.cat([one.truth for one in kept]).to(like)
        starts = torch.arange(len(kept), device=like.device) * self.length
        self._starts = starts.expand(self.learners)[:, None, None]  # where each learner's rows begin
        task, place = frame.task, like.device
        self._back = torch.arange(1 - task.reach, 1, device=place)
        self._ahead = torch.arange(1, task.horizon + 1, device=place)

    def windows(self, origins: Tensor) -> Tensor:
        """The windows that end at rows `origins` `(N, B)`, as `(N, B, R, D)`; before the first row, it is repeated."""
        rows = (origins[:, :, None] + self._back).clamp_(min=0)
        return self._gathered(self._inputs, rows)

    def targets(self, origins: Tensor) -> Tensor:
        """The rows after `origins` `(N, B)`, as `(N, B, H, C)`; they must be there."""
        return self._gathered(self._truth, origins[:, :, None] + self._ahead)

    def _gathered(self, values: Tensor, rows: Tensor) -> Tensor:
        return values.index_select(0, (rows + self._starts).flatten()).view(*rows.shape, -1)

    def read(self, windows: Tensor) -> Tensor:
        """What the networks see of windows `(N, B, R, D)`, `(N, B, L, D)`."""
        seen = self.frame.read(windows.flatten(0, 1), self._like)
        return seen.view(*windows.shape[:2], *seen.shape[1:])

    def taught(self, windows: Tensor, targets: Tensor) -> Tensor:
        """What they are taught, `(N, B, m)`."""
        example = Example(windows.flatten(0, 1), targets.flatten(0, 1))
        return self.frame.teach(example, self._like).view(*windows.shape[:2], -1)

    def written(self, outputs: Tensor, first: int) -> Tensor:
        """What outputs `(K, N, m)` for `K` origins in a row, from `first` on, forecast: `(N, K, H, C)`."""
        (K, N, _), task = outputs.shape, self.frame.task
        last = self._gathered(self._inputs, self._row(first, K)[:, :, None])  # all that an anchor looks at
        mean = self.frame.write(last.flatten(0, 1), outputs.transpose(0, 1).reshape(N * K, -1))
        return mean.view(N, K, task.horizon, task.channels)

    def sums(self, means: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor]:
        """How far forecasts `(N, K, H, C)` for `K` origins in a row, from `first` on, were off: `(N, H, C)` in float64.

        Returns:
            Known targets, and the sums of absolute and squared errors.
        """
        error = self.targets(self._row(first, means.shape[1])).double() - means.double()
        known = ~error.isnan()
        error = torch.where(known, error, 0.0)
        return known.sum(1).double(), error.abs().sum(1), error.square().sum(1)

    def _row(self, first: int, count: int) -> Tensor:
        """Rows one after the other, the same for every learner, `(N, count)`."""
        return torch.arange(first, first + count, device=self._like.device).expand(self.learners, count)

    def is_whole(self) -> bool:
        """Whether every label of every stream is known, and none is too far off to be taught."""
        return bool((2 * self._truth.abs() <= self.frame.farthest).all())  # differences from the last value are, too
