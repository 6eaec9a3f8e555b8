"""A forecaster as one expert among others: rows in, its two verbs behind.

It is silent, and repeats the last value, until it has been warmed up; a network that has seen nothing would only be
in the way. A copy of it is made by its own state, never by copying what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from natsr.experts.past import Array, Arrays, Past
from natsr.forecasters.base import Forecaster, Progress
from natsr.streams import Rows, Windows
from natsr.types import Example, Task

#: Rows after which it learns online even if nobody has warmed it up.
PATIENCE = 512


class Member:
    """One forecaster in a panel.

    Args:
        name: What it is called there.
        task: The panel's, without features.
        make: Makes it, each time the same.
    """

    def __init__(self, name: str, task: Task, make: Callable[[Task], Forecaster]) -> None:
        self.names: tuple[str, ...] = (name,)
        self._task, self._make = task, make
        self.forecaster = make(task)
        self._ready = np.zeros(1, dtype=np.int64)

    def warm_up(self, train: Windows, valid: Windows, progress: Progress) -> None:
        """Learn offline, from the values alone."""
        rows = Rows(train.rows.inputs[:, : self._task.channels], train.rows.truth)
        parts = []
        for part in (train, valid):
            start, stop = part.first + 1, part.first + len(part) + self._task.horizon
            parts.append(
                Windows(rows, self._task, min(start, stop), stop) if len(part) else Windows(rows, self._task, 0, 0)
            )
        self.forecaster.warm_up(parts[0], parts[1], progress)
        self._ready[0] = 1

    def observe(self, past: Past) -> None:
        """Learn the example that the newest row completes."""
        task = self._task
        if past.seen == PATIENCE:
            self._ready[0] = 1
        if not self._ready[0] or past.seen < task.window + task.horizon:
            return
        labels = np.where(past.known_last(task.horizon), past.last(task.horizon), np.nan)
        target = torch.from_numpy(labels).float()[None]
        self.forecaster.learn(Example(self._read(past, task.horizon), target))

    def _read(self, past: Past, back: int) -> torch.Tensor:
        return torch.from_numpy(np.array(past.last(self._task.reach, back))).float()[None]

    def forecast(self, past: Past, out: Array) -> None:
        """What it says; the last value while it is silent."""
        out[0] = (
            self.forecaster.forecast(self._read(past, 0)).mean[0].cpu().double().numpy()
            if self._ready[0]
            else past.last(1)
        )

    def arrays(self) -> Arrays:
        """Whether it speaks; its own state is carried on apart."""
        return {"ready": self._ready}

    def __deepcopy__(self, memo: dict[int, object]) -> Member:
        """Another one with the same state."""
        twin = Member(self.names[0], self._task, self._make)
        memo[id(self)] = twin
        twin.forecaster.load_state_dict(self.forecaster.state_dict())
        twin._ready[:] = self._ready
        return twin
