"""The one interface behind which every method lives: two verbs and a state."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from natsr.streams import Windows
from natsr.types import Example, ShapeError, State, Task

#: Called with (done, of, what) while something takes long.
Progress = Callable[[int, int, str], None]


def silent(_done: int, _of: int, _what: str) -> None:
    """The progress display of those who want none."""


class Forecast(NamedTuple):
    """What is expected, and how sure the forecaster itself is; calibrated intervals come from `natsr.calibrate`."""

    mean: Tensor  # (B, H, C)
    variance: Tensor | None = None  # broadcasts to (B, H, C): squared scale of the predictive distribution


class Forecaster(abc.ABC):
    """A method that forecasts `H` rows from a window and learns from examples.

    `forecast` is pure: no weight, buffer or random state changes. `learn` (and `warm_up`, once, before the stream) is
    the only thing that changes state. NaN in a target means unknown and must be left out.
    (`natsr.forecasters.joint` keeps a note of what it answered, by which it is judged later, and says why.)
    """

    task: Task
    #: How many standard deviations a column may have moved away for good before it pays to begin anew, as
    #: `natsr.rescale` has it; a network is lost there.
    far: float = 8.0

    @abc.abstractmethod
    def forecast(self, window: Tensor) -> Forecast:
        """Forecast the rows after each window `(B, R, D)`; changes nothing."""

    def forecast_from(self, window: Tensor, origins: Tensor | None) -> Forecast:
        """The same from who counts the rows: the numbers of those that the windows end with, as `Example.origins`.

        By default they make no difference.
        """
        del origins
        return self.forecast(window)

    @abc.abstractmethod
    def learn(self, example: Example) -> None:
        """Learn from examples whose labels have become known; leaves them as they are."""

    def warm_up(self, train: Windows, valid: Windows, progress: Progress = silent) -> None:
        """Learn offline before the stream begins; by default one pass over both parts."""
        total = len(train) + len(valid)
        for part, before in ((train, 0), (valid, len(train))):
            for index in range(len(part)):
                self.learn(part[index])
                progress(before + index + 1, total, "warm-up")

    def info(self) -> dict[str, float]:
        """What one may want to look at, never what must be carried on."""
        return {}

    def weights(self) -> dict[str, float]:
        """How much of the forecast is each expert's, by name; empty where there are no experts."""
        return {}

    @abc.abstractmethod
    def state_dict(self) -> State:
        """Everything that must be carried on, as tensors and plain values; no pickle."""

    @abc.abstractmethod
    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""

    def check_window(self, window: Tensor) -> None:
        """Refuse a window of the wrong shape, with a remedy."""
        task = self.task
        if window.ndim != 3 or window.shape[1] != task.reach or window.shape[2] != task.inputs:
            raise ShapeError(
                f"window has shape {tuple(window.shape)}, expected (B, {task.reach}, {task.inputs}); "
                "a single window needs window[None]"
            )
