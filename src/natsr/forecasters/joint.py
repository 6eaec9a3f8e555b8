"""Two forecasters side by side, mixed online: one that reads the values, and one that reads what came with them too.

This is what `auto` is where a stream has columns beside its values: the pool as it always is, and NatSR, which reads
every feature of a row. How much of the forecast is whose is learned for each step and channel from what each of them
*said* at an origin and what came of it. A network asked again later has learned from labels of neighbouring windows in
the meantime, and would look better than it was. What was said is therefore kept until its labels are known: of all
forecasters this is the only one that remembers that it was asked, once for each origin, and however often it is asked
from the same origin nothing more changes. From an origin at which nobody asked, no weight is learned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from natsr.aggregate import MLPoly
from natsr.experts.past import Array
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.member import Member
from natsr.forecasters.pool import COMPARED, Pool
from natsr.forecasters.whose import KINDS, Mixed
from natsr.state import tensor_of
from natsr.streams import Windows
from natsr.types import Example, State, StateError, Task

#: What the one that reads everything is called among the experts; `budget=all` has a NatSR that reads the values.
READER = "natsr_outside"
#: What a regret weighs one row later; and the pool's at the beginning, in standard deviations of a column: it takes
#: proof to leave the pool, which knows more than a network after a few dozen rows (docs/decisions/0012).
DISCOUNT, HEAD_START = 0.999, 1.0


class Said(NamedTuple):
    """What was said at one origin."""

    end: Tensor  # (K, D), the last rows of its window
    parts: Array  # (3, H, C): the pool's forecast, the reader's, and the mixture that was answered


class Joint(Mixed):
    """A pool and a forecaster that reads every feature, mixed by ML-Poly; the pool alone to begin with.

    Args:
        task: What is forecast.
        pool: Of experts that read the values; fresh.
        reader: Of the same task; fresh.
        head_start: The pool's regret at the beginning.
    """

    def __init__(self, task: Task, pool: Pool, reader: Forecaster, head_start: float = HEAD_START) -> None:
        self.task, self.pool, self.reader = task, pool, reader
        self._mixture = MLPoly(2, (task.horizon, task.channels), DISCOUNT, pooling="near")
        self._mixture.regret[0] = head_start
        self._mixture.weights[0], self._mixture.weights[1] = 1.0, 0.0
        self._waiting: list[Said] = []  # oldest first, at most H + 1

    # ---- forecasting ---------------------------------------------------------------------------------------------

    def forecast(self, window: Tensor) -> Forecast:
        """The mixture. Its variance is the mean of theirs by weight: the mixture's errors are no larger than that."""
        return self.forecast_from(window, None)

    def forecast_from(self, window: Tensor, origins: Tensor | None) -> Forecast:
        """The same; the pool finds its rows by their numbers."""
        self.check_window(window)
        first, second = self.pool.forecast_from(window, origins), self.reader.forecast_from(window, origins)
        pool = first.mean.detach().cpu().double().numpy()
        reader = second.mean.detach().cpu().double().numpy()
        reader = np.where(np.isfinite(reader), reader, pool)
        share = self._mixture.weights
        mixed = share[0] * pool + share[1] * reader
        if len(window) == 1:
            self._remember(window[0], np.stack([pool[0], reader[0], mixed[0]]))
        assert first.variance is not None
        variance = first.variance
        if second.variance is not None:
            weights = torch.from_numpy(share).to(variance)
            variance = weights[0] * variance + weights[1] * second.variance
        return Forecast(torch.from_numpy(mixed).to(first.mean), variance)

    def _remember(self, window: Tensor, parts: Array) -> None:
        end = self._end(window)
        if not self._waiting or not torch.equal(self._waiting[-1].end, end):
            self._waiting = [*self._waiting[-self.task.horizon :], Said(end, parts)]

    def _end(self, window: Tensor) -> Tensor:
        return window[-COMPARED:].detach().cpu().clone()

    # ---- learning ------------------------------------------------------------------------------------------------

    def learn(self, example: Example) -> None:
        """Learn from the examples that are complete whom to believe; then both learn what they learn alone."""
        target = example.target.detach().cpu().double().numpy()
        whole = [True] * len(target) if example.fresh is None else example.fresh[:, -1].tolist()
        for number in range(len(target) - 1, -1, -1):  # those of a batch come youngest first
            if whole[number]:
                self._judge(self._end(example.window[number]), target[number])
        self.pool.learn(example)
        self.reader.learn(example)

    def _judge(self, end: Tensor, truth: Array) -> None:
        """What came after this origin; what was said there, and before it, is done with."""
        for place, said in enumerate(self._waiting):
            if torch.equal(said.end, end):
                self._mixture.update(said.parts[:2], said.parts[2], truth)
                self._waiting = self._waiting[place + 1 :]
                return

    def warm_up(self, train: Windows, valid: Windows, progress: Progress = silent) -> None:
        """Both learn offline; whom to believe is learned on the stream."""
        self.pool.warm_up(train, valid, progress)
        self.reader.warm_up(train, valid, progress)

    # ---- what can be looked at, and what is carried on ----------------------------------------------------------

    def kinds(self) -> dict[str, str]:
        """The pool's experts, and the reader."""
        return self.pool.kinds() | {READER: KINDS[Member]}

    def weights_by_step(self) -> Array:
        """How much of the forecast is each expert's, `(E, H, C)`, the reader's last; together 1 everywhere."""
        share = self._mixture.weights
        return np.concatenate([share[0] * self.pool.weights_by_step(), share[1:]])

    def info(self) -> dict[str, float]:
        """As the pool's, the reader's weight always among them, and the steps that the reader has refused."""
        share, reader = self._mixture.weights.mean((1, 2)), self.reader.info()
        own = self.pool.info()["variance"]
        top = sorted(self.weights().items(), key=lambda item: (item[0] != READER, -item[1]))[:8]
        return {
            "variance": float(share[0] * own + share[1] * reader.get("variance", own)),
            "refused": reader.get("refused", 0.0),
            **{f"weight_{name}": value for name, value in top},
        }

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        task, waiting = self.task, self._waiting
        ends = torch.empty(0, min(task.reach, COMPARED), task.inputs)
        parts = torch.empty(0, 3, task.horizon, task.channels, dtype=torch.float64)
        return {
            "pool": self.pool.state_dict(),
            "reader": self.reader.state_dict(),
            "mixture": {name: torch.from_numpy(values.copy()) for name, values in self._mixture.arrays().items()},
            "ends": torch.stack([said.end for said in waiting]) if waiting else ends,
            "said": torch.from_numpy(np.stack([said.parts for said in waiting])) if waiting else parts,
        }

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave; whatever does not fit leaves everything as it was."""
        task = self.task
        ends = tensor_of(state, "ends", (None, min(task.reach, COMPARED), task.inputs))
        said = tensor_of(state, "said", (len(ends), 3, task.horizon, task.channels))
        if len(ends) > task.horizon + 1:
            raise StateError(f"the state holds {len(ends)} forecasts that wait, expected at most {task.horizon + 1}")
        mixture, arrays = _part(state, "mixture"), self._mixture.arrays()
        weights = {name: tensor_of(mixture, name, values.shape) for name, values in arrays.items()}
        self._load_both(_part(state, "pool"), _part(state, "reader"))
        for name, values in arrays.items():
            np.copyto(values, weights[name].cpu().numpy(), casting="same_kind")
        self._waiting = [
            Said(end.cpu().clone(), parts.cpu().double().numpy().copy()) for end, parts in zip(ends, said, strict=True)
        ]

    def _load_both(self, pool: State, reader: State) -> None:
        before = self.pool.state_dict()
        self.pool.load_state_dict(pool)
        try:
            self.reader.load_state_dict(reader)
        except (StateError, KeyError):
            self.pool.load_state_dict(before)
            raise


def _part(state: State, name: str) -> State:
    part = state.get(name)
    if not isinstance(part, dict):
        raise StateError(
            f"the state lacks its {name}; it belongs to another method, or to a stream without such columns"
        )
    return part
