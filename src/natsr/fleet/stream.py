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
from natsr.fleet.logbook import Floats, Logbook
from natsr.forecasters.frame import Frame
from natsr.streams import Rows, Windows, delay
from natsr.types import OptionError, ProtocolName

Array = npt.NDArray[np.float64]

CHUNK = 256  # steps whose random numbers are drawn at once


class Stream(Journey):
    """Learners of one shape on their way along a part of their streams.

    Args:
        rows: One stream for each learner; learners of one stream give the same object.
        frame: What the networks read and are taught.
        like: Gives type and place.
        part: The rows to be forecast, first and one past the last.
        protocol: Who may know what.
        max_steps: Stop after so many forecasts.
        keep: Whether the forecasts are kept, for `forecasts`.
    """

    def __init__(
        self,
        rows: Sequence[Rows],
        frame: Frame,
        like: Tensor,
        part: tuple[int, int],
        protocol: ProtocolName,
        max_steps: int | None,
        keep: bool = False,
    ) -> None:
        task = frame.task
        examples, youngest = Windows(rows[0], task, *part), delay(protocol, task.horizon)
        lags = list(range(youngest, task.horizon + 1)) if protocol == "partial" else [youngest]
        self.delay = lags[-1]  # rows until an example has all the labels that it will get
        self.first, self.total = examples.first, min(len(examples), max_steps or len(examples))
        self.course = Course(rows, frame, like)
        super().__init__(like.device, idle=self.delay)  # of runs, of which there is one more than of steps
        n, device = len(rows), like.device
        self._lags = torch.tensor(lags, device=device)  # how far back the new examples lie
        self._hidden = hidden(frame, self._lags) if len(lags) > 1 else None
        self._run = torch.zeros(1, dtype=torch.long, device=device)
        self._at_a_time = CHUNK
        self._outputs = like.new_zeros(CHUNK, n, task.outputs)
        self._sums = torch.zeros(3, n, task.horizon, task.channels, dtype=torch.float64, device=device)
        self._logbook = Logbook(self._stream) if keep else None
        self._scales = torch.zeros(CHUNK, n, dtype=torch.float64, device=device)

    @abc.abstractmethod
    def draw_ahead(self) -> None:
        """The random numbers of the next chunk, at their place."""

    def advance(self) -> bool:
        if self._logbook is not None:
            self._logbook.fetch()
        return super().advance()

    def finish(self) -> None:
        super().finish()
        if self._logbook is not None:
            self._logbook.fetch()

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
        if size <= start:
            return
        first = self.first + self.done - 1 + start
        means = self.course.written(self._outputs[start:size], first)
        self._sums += torch.stack(self.course.sums(means, first))
        if self._logbook is not None:
            self._logbook.write(means, self._scales[start:size].clone())

    def sums(self) -> tuple[Array, Array, Array]:
        """Known targets, absolute and squared errors, each summed over the stream: `(N, H, C)`."""
        counts, absolute, square = (part.cpu().numpy() for part in self._sums)
        return counts, absolute, square

    def forecasts(self, number: int) -> tuple[Floats, Floats | None]:
        """What a learner forecast `(T, H, C)`, and the variance `(T,)` that it gave with each, if it gives any."""
        if self._logbook is None:
            raise OptionError("the forecasts were not kept; ask for it with keep=True")
        means, scales = self._logbook.forecasts(number)
        return means, scales if self._gives_scale(number) else None

    def _gives_scale(self, _number: int) -> bool:
        """Whether a learner says how large its errors are; then each run puts that into `_scales`."""
        return False

    def _read_all(self) -> tuple[Tensor, Tensor, Tensor]:
        """This run's `B` examples, the youngest first; where there is none, no label is known.

        Returns:
            Their windows and that of the origin to forecast from, `(N, B + 1, L, D)`; all labels, `(N, B, m)`, those in
            `_hidden` too, which may not be learned yet; and which examples there are, `(B,)`.
        """
        course, origin = self.course, self._run + self.first
        examples = (origin - self._lags).clamp(min=self.first)
        ends = torch.cat([examples, origin - 1]).expand(course.learners, len(self._lags) + 1)
        windows = course.windows(ends)
        taught = course.taught(windows[:, :-1], course.targets(ends[:, :-1]))
        there = (self._run >= self._lags) & (self._run < self.total)
        return course.read(windows), torch.where(there[:, None], taught, torch.nan), there

    def _forecast(self, output: Tensor) -> None:
        """Keep this run's forecasts `(N, m)`, and go on to the next run."""
        self._outputs.index_copy_(0, self._place, output[None])
        self._run += 1
        self._next()


def hidden(frame: Frame, lags: Tensor) -> Tensor:
    """Which labels `(B, m)` of examples that lie so far back `(B,)` may not be learned: those of rows yet to come.

    Under `labels=fresh` those that came before the newest row are not learned either.
    """
    ahead = torch.arange(1, frame.task.horizon + 1, device=lags.device) - lags[:, None]
    held = ahead != 0 if frame.labels == "fresh" else ahead > 0
    return held[:, :, None].expand(-1, -1, frame.task.channels).flatten(1)
