"""Forecasters that follow one stream in step: to the loop each is a forecaster, and the first that is asked moves all.

Seeds and settings of one method on one stream see the same examples and the same windows. `natsr.evaluate` hands them
to one forecaster after the other; here the first one's call steps the whole fleet, and the others find it done.
"""

from __future__ import annotations

from torch import Tensor

from natsr.fleet.base import Learners
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.streams import Windows
from natsr.types import Example, State


def in_step(fleet: Learners) -> list[Forecaster]:
    """The learners as forecasters for one stream; what is given to one must be given to all, the same objects.

    A member that is left behind (because its forecasts were not finite, say) goes on with the others all the same.
    """
    stream = _Stream(fleet)
    return [_Member(stream, number) for number in range(len(fleet))]


class _Stream:
    """What the fleet was given last."""

    def __init__(self, fleet: Learners) -> None:
        self.fleet = fleet
        self._example: Example | None = None
        self._parts: tuple[Windows, Windows] | None = None
        self._window: Tensor | None = None
        self._forecasts: list[Forecast | None] = []

    def learn(self, example: Example) -> None:
        if example is not self._example:
            self._example, self._window = example, None
            self.fleet.learn([example] * len(self.fleet))

    def forecast(self, number: int, window: Tensor) -> Forecast:
        if window is not self._window:
            self._window, self._forecasts = window, self.fleet.forecast([window] * len(self.fleet))
        forecast = self._forecasts[number]
        assert forecast is not None
        return forecast

    def warm_up(self, parts: tuple[Windows, Windows], progress: Progress) -> None:
        if self._parts is None or any(new is not old for new, old in zip(parts, self._parts, strict=True)):
            self._parts, self._window = parts, None
            self.fleet.warm_up([parts] * len(self.fleet), progress)

    def load(self, number: int, state: State) -> None:
        self._window = None
        self.fleet.load_state_dict(number, state)


class _Member(Forecaster):
    """One learner's place in a fleet that follows one stream."""

    def __init__(self, stream: _Stream, number: int) -> None:
        self.task = stream.fleet.task
        self._stream, self._number = stream, number

    def forecast(self, window: Tensor) -> Forecast:
        return self._stream.forecast(self._number, window)

    def learn(self, example: Example) -> None:
        self._stream.learn(example)

    def warm_up(self, train: Windows, valid: Windows, progress: Progress = silent) -> None:
        self._stream.warm_up((train, valid), progress)

    def info(self) -> dict[str, float]:
        return self._stream.fleet.info(self._number)

    def state_dict(self) -> State:
        return self._stream.fleet.state_dict(self._number)

    def load_state_dict(self, state: State) -> None:
        self._stream.load(self._number, state)
