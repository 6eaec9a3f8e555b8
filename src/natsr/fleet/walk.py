"""FSNet and OneNet along their streams with nothing of a step on the host: what `natsr.fleet.loop` is for others."""

from __future__ import annotations

from collections.abc import Sequence

from natsr.fleet.control import Control
from natsr.fleet.stepped import Stepped
from natsr.fleet.stream import Stream
from natsr.fleet.tables import Masks, Streams
from natsr.streams import Rows
from natsr.types import OptionError, ProtocolName


class Walk(Stream):
    """Learners of one shape that bring their own step, on their way along a part of their streams.

    Args:
        crew: The learners, warmed up or not. Their forecasters are stale until the walk has ended.
        rows: One stream for each; learners of one stream give the same object.
        part: The rows to be forecast, first and one past the last.
        protocol: Who may know what: `honest` or `paper`.
        max_steps: Stop after so many forecasts.
    """

    def __init__(
        self,
        crew: Stepped,
        rows: Sequence[Rows],
        part: tuple[int, int],
        protocol: ProtocolName = "honest",
        max_steps: int | None = None,
    ) -> None:
        crew.check(rows)
        if protocol == "partial":
            raise OptionError("protocol partial cannot be run on the device alone; step the forecasters instead")
        super().__init__(rows, crew.frame, crew.like, part, protocol, max_steps)
        self.crew = crew
        self._room = crew.room(2)  # the program works in it: it must live as long
        self._streams = Streams(crew.generators, self._device)
        self._masks = Masks(crew.draws(1, 0.0), self._at_a_time, len(crew), crew.like)
        crew.hold()

    def draw_ahead(self) -> None:
        self._masks.draw(self._streams)

    def _step(self, control: Control) -> None:
        window, target = self._read()
        self._forecast(self.crew.learn(control, window, target, self._masks.at(self._place)))

    def _settle_up(self) -> None:
        self.crew.give_back()
