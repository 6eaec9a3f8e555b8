"""A part of a stream as a journey: which example a run learns, which origin it forecasts from, and what came of it.

Run number `k` learns the example that matures at the `k`-th origin, and forecasts from the origin before it: the
weights that a forecast is made with are those that the next example is learned with, so one forward pass can serve
both.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.fleet.course import Course
from natsr.fleet.journey import Journey
from natsr.forecasters.frame import Frame
from natsr.streams import Rows, Windows, delay
from natsr.types import ProtocolName

Array = npt.NDArray[np.float64]

CHUNK = 256  # steps whose random numbers are drawn at once


class Stream(Journey):
    """Learners of one shape on their way along a part of their streams.

    Args:
        rows: One stream for each learner; learners of one stream give the same object.
        frame: What the networks read and are taught.
        like: Gives type and place.
        part: The rows to be forecast, first and one past the last.
        protocol: Who may know what: `honest` or `paper`.
        max_steps: Stop after so many forecasts.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        frame: Frame,
        like: Tensor,
        part: tuple[int, int],
        protocol: ProtocolName,
        max_steps: int | None,
    ) -> None:
        task = frame.task
        examples = Windows(rows[0], task, *part)
        self.delay = delay(protocol, task.horizon)
        self.first, self.total = examples.first, min(len(examples), max_steps or len(examples))
        self.course = Course(rows, frame, like)
        super().__init__(like.device, idle=self.delay)  # of runs, of which there is one more than of steps
        n, device = len(rows), like.device
        self._run = torch.zeros(1, dtype=torch.long, device=device)
        self._at_a_time = CHUNK
        self._outputs = like.new_zeros(CHUNK, n, task.outputs)
        self._sums = torch.zeros(3, n, task.horizon, task.channels, dtype=torch.float64, device=device)

    @abc.abstractmethod
    def draw_ahead(self) -> None:
        """The random numbers of the next chunk, at their place."""

    def _chunk(self) -> bool:
        size = min(self.total + 1 - self.done, self._at_a_time)
        if size <= 0:
            return False
        self.draw_ahead()
        self._take(size)
        self._score(size)
        self.done += size
        return True

    def _score(self, size: int) -> None:
        """Take in the forecasts of a chunk; run 0 has none."""
        start = 1 if self.done == 0 else 0
        if size > start:
            found = self.course.sums(self._outputs[start:size], self.first + self.done - 1 + start)
            self._sums += torch.stack(found)

    def sums(self) -> tuple[Array, Array, Array]:
        """Known targets, absolute and squared errors, each summed over the stream: `(N, H, C)`."""
        counts, absolute, square = (part.cpu().numpy() for part in self._sums)
        return counts, absolute, square

    def _read(self) -> tuple[Tensor, Tensor]:
        """The windows of this run's example and of the origin to forecast from, `(N, 2, L, D)`; its labels, `(N, m)`.

        Where there is no example, no label is known.
        """
        course, origin = self.course, self._run + self.first
        example = (origin - self.delay).clamp(min=self.first)
        ends = torch.cat([example, origin - 1]).expand(course.learners, 2)
        windows = course.windows(ends)
        taught = course.taught(windows[:, :1], course.targets(ends[:, :1]))
        there = (self._run >= self.delay) & (self._run < self.total)
        return course.read(windows), torch.where(there, taught[:, 0], torch.nan)

    def _forecast(self, output: Tensor) -> None:
        """Keep this run's forecasts `(N, m)`, and go on to the next run."""
        self._outputs.index_copy_(0, self._place, output[None])
        self._run += 1
        self._next()
