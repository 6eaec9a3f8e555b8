"""One learner as the service uses it: rows as the log has them go in, the newest forecast and health come out.

`Learner` is what the threads of `learners` talk to, and `Workshop` is where one is made. A `Local` one lives in this
process; `processes` has those that live in another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from natsr.data.grids import grid_of
from natsr.live import LEVELS, Live, LiveForecast
from natsr.serve.admit import Layout
from natsr.serve.answers import plain
from natsr.types import NatsrError


class LostError(NatsrError):
    """The process that a learner lived in is gone; the log has everything that it knew."""


class Learner(Protocol):
    """A forecaster that lives on one series."""

    def observe(self, time: int, row: bytes) -> None:
        """Take the next row of the log, with its time in the ticks of the series.

        Raises:
            DataError: It was not taken, and nothing has changed.
        """

    def forecast(self, levels: Sequence[float] = LEVELS, quantiles: Sequence[float] = ()) -> LiveForecast:
        """What is expected of the next rows, with these quantiles at least; changes nothing."""

    def health(self) -> dict[str, Any]:
        """How it is doing, as JSON has it."""

    def save(self, folder: str | Path) -> None:
        """Write it into a folder, all or nothing."""

    def leave(self) -> None:
        """It is not needed any more."""


class Workshop(Protocol):
    """Where learners are made, and live."""

    def fresh(self, settings: Mapping[str, Any]) -> Learner:
        """One that has seen nothing; `settings` are the arguments of `natsr.Live`."""

    def load(self, folder: str | Path) -> Learner:
        """One that goes on from what `save` wrote."""


class Local:
    """A learner in this process."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self.columns = tuple(live.columns)
        self._unit = grid_of(live.freq).unit
        self._layout = Layout(live.columns, live.exogenous, live.known, live.horizon)

    @property
    def empty(self) -> bool:
        """Whether it has seen nothing yet."""
        return self._live.health()["rows"] == 0

    def observe(self, time: int, row: bytes) -> None:
        """See `Learner`."""
        self._live.observe(np.datetime64(time, self._unit), self._layout.values(row), self._layout.future(row))

    def forecast(self, levels: Sequence[float] = LEVELS, quantiles: Sequence[float] = ()) -> LiveForecast:
        """See `Learner`; all quantiles are there."""
        del quantiles
        return self._live.forecast(levels)

    def health(self) -> dict[str, Any]:
        """See `Learner`."""
        return plain(self._live.health())

    def save(self, folder: str | Path) -> None:
        """See `Learner`."""
        self._live.save(folder)

    def leave(self) -> None:
        """See `Learner`."""


class Here:
    """This process."""

    def fresh(self, settings: Mapping[str, Any]) -> Local:
        """See `Workshop`."""
        return Local(Live(**settings))

    def load(self, folder: str | Path) -> Local:
        """See `Workshop`."""
        return Local(Live.load(folder))
