"""The interface of many learners: the two verbs of a forecaster, for all of them at once."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from torch import Tensor

from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.streams import Windows
from natsr.types import Example, OptionError, State, Task

Parts = tuple[Windows, Windows]  # what to train on, and what to judge by


class Learners(abc.ABC):
    """Independent learners for one task. Each forecasts and learns as if it were alone, to rounding.

    Where an example or a window is `None`, that learner has none at this moment and stays as it is.
    """

    task: Task

    @abc.abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abc.abstractmethod
    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        """What each learner makes of its window `(1, R, D)`; changes nothing."""

    @abc.abstractmethod
    def learn(self, examples: Sequence[Example | None]) -> None:
        """Each learner learns its own example; leaves the examples as they are."""

    @abc.abstractmethod
    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        """Each learner learns offline from its own parts, before the stream begins."""

    @abc.abstractmethod
    def info(self, number: int) -> dict[str, float]:
        """What one may want to look at in a learner."""

    @abc.abstractmethod
    def state_dict(self, number: int) -> State:
        """Everything of one learner that must be carried on, as its forecaster alone would write it."""

    @abc.abstractmethod
    def load_state_dict(self, number: int, state: State) -> None:
        """Let one learner go on from what a forecaster, or `state_dict`, wrote."""

    @abc.abstractmethod
    def release(self, number: int) -> Forecaster:
        """One learner as a forecaster of its own, with the state that it has now."""

    def check(self, given: Sequence[object]) -> None:
        """Refuse a wrong number of examples or windows."""
        if len(given) != len(self):
            raise OptionError(f"got {len(given)} for {len(self)} learners, expected one for each (None for nothing)")
