"""Forecasts that cost nothing and are hard to beat: the last value, the last season, the mean."""

from __future__ import annotations

import torch
from torch import Tensor

from natsr.forecasters.base import Forecast, Forecaster
from natsr.types import Example, State, StateError, Task


class Untaught(Forecaster):
    """What learns nothing, and so has no state."""

    def learn(self, example: Example) -> None:
        """Nothing to learn."""

    def state_dict(self) -> State:
        """Nothing to carry on."""
        return {}

    def load_state_dict(self, state: State) -> None:
        """Nothing to carry on."""
        if state:
            raise StateError(f"state has {', '.join(state)}, expected nothing; it belongs to another method")


class LastValue(Untaught):
    """Every row ahead will be as the last known one.

    >>> window = torch.tensor([[[1.0], [5.0]]])
    >>> LastValue(Task(window=2, horizon=3, channels=1)).forecast(window).mean[0, :, 0].tolist()
    [5.0, 5.0, 5.0]
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def forecast(self, window: Tensor) -> Forecast:
        """The last row of each window, `H` times."""
        self.check_window(window)
        return Forecast(window[:, -1:, : self.task.channels].repeat(1, self.task.horizon, 1))


class Seasonal(Untaught):
    """Every row ahead will be as the row a whole number of seasons before it, the latest that is known.

    >>> window = torch.tensor([[[1.0], [2.0], [3.0]]])
    >>> task = Task(window=1, horizon=5, channels=1, season=3)
    >>> Seasonal(task).forecast(window).mean[0, :, 0].tolist()
    [1.0, 2.0, 3.0, 1.0, 2.0]
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        # Row t+h comes from row t + h - season * ceil(h / season): place (h-1) % season among the last `season` rows.
        self._places = torch.arange(task.horizon) % task.season + task.reach - task.season

    def forecast(self, window: Tensor) -> Forecast:
        """The last season of each window, repeated."""
        self.check_window(window)
        return Forecast(window[:, self._places, : self.task.channels])


class RunningMean(Forecaster):
    """Every row ahead will be the mean of all rows learned so far; each label counts once.

    Before the first label, the mean of the window.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._count = torch.zeros(task.channels, dtype=torch.float64)
        self._mean = torch.zeros(task.channels, dtype=torch.float64)

    def forecast(self, window: Tensor) -> Forecast:
        """The mean so far, for every row."""
        self.check_window(window)
        seen = self._mean.to(window).expand(len(window), 1, -1)
        before = window[:, :, : self.task.channels].mean(1, keepdim=True)
        mean = torch.where(self._count.to(window) > 0, seen, before)
        return Forecast(mean.repeat(1, self.task.horizon, 1))

    def learn(self, example: Example) -> None:
        """Count the newest row of each example: it shares all the others with the examples before it."""
        # The row that has just become known is step 1 of one example, step 2 of the next older, and so on.
        rows = example.target[:, -1] if example.fresh is None else example.target[example.fresh[:, 0], 0]
        values = rows.to(self._mean)
        known = values.isfinite()
        self._count += known.sum(0)
        self._mean += torch.where(known, values - self._mean, 0.0).sum(0) / self._count.clamp(min=1)

    def state_dict(self) -> State:
        """The counts and the means."""
        return {"count": self._count.clone(), "mean": self._mean.clone()}

    def load_state_dict(self, state: State) -> None:
        """Go on from them."""
        count, mean = state.get("count"), state.get("mean")
        for name, value in (("count", count), ("mean", mean)):
            if not isinstance(value, Tensor) or value.shape != self._mean.shape:
                raise StateError(f"{name} is {value}, expected a tensor of shape {tuple(self._mean.shape)}")
        assert isinstance(count, Tensor) and isinstance(mean, Tensor)
        self._count, self._mean = count.clone(), mean.clone()
