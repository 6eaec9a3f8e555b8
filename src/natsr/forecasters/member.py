"""A forecaster as one expert among others: rows in, its two verbs behind.

It is silent, and repeats the last value, until it has been warmed up; a network that has seen nothing would only be
in the way. A copy of it is made by its own state, never by copying what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from natsr.experts.native import Place
from natsr.experts.past import Array, Arrays, Past
from natsr.forecasters.base import Forecaster, Progress
from natsr.streams import Rows, Windows
from natsr.types import Example, Task

#: Rows after which it learns online even if nobody has warmed it up.
PATIENCE = 512


class Reader:
    """What members see of a panel's rows. All that share it get the same objects, and can be stepped as one by them.

    Args:
        task: The panel's, without features.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._seen = (-1, -1)  # rows when the example, and when the window, was read
        self._example: Example | None = None
        self._window: torch.Tensor | None = None
        self._given: tuple[Windows, Windows] | None = None
        self._parts: tuple[Windows, Windows] | None = None

    def forget(self) -> None:
        """The rows are others, though there may be as many."""
        self._seen = (-1, -1)

    def example(self, past: Past) -> Example:
        """What the newest row completes."""
        if self._example is None or self._seen[0] != past.seen:
            labels = np.where(past.known_last(self.task.horizon), past.last(self.task.horizon), np.nan)
            target = torch.from_numpy(labels).float()[None]
            self._example, self._seen = Example(self._read(past, self.task.horizon), target), (past.seen, self._seen[1])
        return self._example

    def window(self, past: Past) -> torch.Tensor:
        """Where the newest forecast begins."""
        if self._window is None or self._seen[1] != past.seen:
            self._window, self._seen = self._read(past, 0), (self._seen[0], past.seen)
        return self._window

    def _read(self, past: Past, back: int) -> torch.Tensor:
        return torch.from_numpy(np.array(past.last(self.task.reach, back))).float()[None]

    def parts(self, train: Windows, valid: Windows) -> tuple[Windows, Windows]:
        """What to learn from offline: the values alone."""
        if self._parts is None or self._given is None or self._given[0] is not train or self._given[1] is not valid:
            rows = Rows(train.rows.inputs[:, : self.task.channels], train.rows.truth)
            self._given, self._parts = (train, valid), (self._part(rows, train), self._part(rows, valid))
        return self._parts

    def _part(self, rows: Rows, part: Windows) -> Windows:
        if not len(part):
            return Windows(rows, self.task, 0, 0)
        start, stop = part.first + 1, part.first + len(part) + self.task.horizon
        return Windows(rows, self.task, min(start, stop), stop)


class Member:
    """One forecaster in a panel.

    Args:
        name: What it is called there.
        reader: What it sees.
        make: Makes it, each time the same.
        forecaster: It, if it has been made, perhaps to be stepped with others that share its reader.
    """

    def __init__(
        self, name: str, reader: Reader, make: Callable[[Task], Forecaster], forecaster: Forecaster | None = None
    ) -> None:
        self.names: tuple[str, ...] = (name,)
        self._reader, self._make = reader, make
        self.forecaster = make(reader.task) if forecaster is None else forecaster
        self._ready = np.zeros(1, dtype=np.int64)

    def warm_up(self, train: Windows, valid: Windows, progress: Progress) -> None:
        """Learn offline."""
        self.forecaster.warm_up(*self._reader.parts(train, valid), progress)
        self._ready[0] = 1

    def observe(self, past: Past) -> None:
        """Learn the example that the newest row completes."""
        task = self._reader.task
        if past.seen == PATIENCE:
            self._ready[0] = 1
        if self._ready[0] and past.seen >= task.window + task.horizon:
            self.forecaster.learn(self._reader.example(past))

    def forecast(self, past: Past, out: Array) -> None:
        """What it says; the last value while it is silent."""
        out[0] = (
            self.forecaster.forecast(self._reader.window(past)).mean[0].cpu().double().numpy()
            if self._ready[0]
            else past.last(1)
        )

    def forget(self) -> None:
        """What was read of the rows, which are others now."""
        self._reader.forget()

    def native(self, _: Past, /) -> Place | None:
        """It is asked from here."""
        return None

    def arrays(self) -> Arrays:
        """Whether it speaks; its own state is carried on apart."""
        return {"ready": self._ready}

    def __deepcopy__(self, memo: dict[int, object]) -> Member:
        """Another one with the same state, stepped alone."""
        twin = Member(self.names[0], Reader(self._reader.task), self._make)
        memo[id(self)] = twin
        twin.forecaster.load_state_dict(self.forecaster.state_dict())
        twin._ready[:] = self._ready
        return twin
