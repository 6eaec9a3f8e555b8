"""Between the stream and a network: what it reads, what it is taught, and what its outputs mean."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from natsr.types import Example, Task

Anchor = Literal["none", "last", "output"]


@dataclass(frozen=True)
class Frame:
    """A network's frame of reference.

    Args:
        task: Window, horizon and channels.
        limit: Inputs are cut at this many standard deviations, so that one wild value cannot drown all others. Outputs
            are cut at ten times as many, and a label beyond that is unknown: no forecast may reach it, and it would
            freeze AdamW for a long time.
        anchor: `none`: values as they are. `output`: the network forecasts the change from the last value. `last`: it
            also reads the values of its window as differences from the last one.
        labels: Of partly known examples teach all that is `known`, or what is `fresh`.
    """

    task: Task
    limit: float = 100.0
    anchor: Anchor = "none"
    labels: Literal["known", "fresh"] = "known"

    @property
    def farthest(self) -> float:
        """No output is larger, in standard deviations."""
        return 10 * self.limit

    def read(self, window: Tensor, like: Tensor) -> Tensor:
        """What the network sees of windows `(B, R, D)`: `(B, L, D)`, a copy in the type and place of `like`."""
        rows = window[:, -self.task.window :].to(like)
        if self.anchor == "last":
            rows = torch.cat(
                [rows[..., : self.task.channels] - self._last(window, like), rows[..., self.task.channels :]], -1
            )
        return rows.clamp(-self.limit, self.limit)

    def teach(self, example: Example, like: Tensor, *, whole: bool = False) -> Tensor:
        """The labels of an example, `(B, m)`, NaN where unknown; `whole`: all that is known, whatever `labels` says."""
        target = example.target.to(like)
        if self.labels == "fresh" and example.fresh is not None and not whole:
            target = torch.where(example.fresh[:, :, None].to(like.device), target, math.nan)
        if self.anchor != "none":
            target = target - self._last(example.window, like)
        return torch.where(target.abs() <= self.farthest, target, math.nan).flatten(1)

    def write(self, window: Tensor, output: Tensor) -> Tensor:
        """Forecasts `(B, H, C)` from outputs `(B, m)`, finite whatever they are."""
        mean = output.view(-1, self.task.horizon, self.task.channels)
        mean = mean.nan_to_num(nan=0.0, posinf=self.farthest, neginf=-self.farthest).clamp(
            -self.farthest, self.farthest
        )
        return (mean if self.anchor == "none" else mean + self._last(window, mean)).to(window.device)

    def _last(self, window: Tensor, like: Tensor) -> Tensor:
        """The last values, `(B, 1, C)`."""
        return window[:, -1:, : self.task.channels].to(like).clamp(-self.farthest, self.farthest)
