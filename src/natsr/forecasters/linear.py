"""Recursive least squares: the best linear forecast so far, brought up to date with every row.

A forecast is the last value plus a linear function of the window, its *regressor* `x`: each lag as a difference from
the last value, the last value itself, and a one. With weights of zero it is the last value, and that is what the ridge
pulls to. All outputs of a regressor share its covariance `P = A⁻¹`, where `A` sums the forgotten `x xᵀ` and the ridge,
so that `H` steps ahead cost little more than one.

Four things keep it sound over a long life:

- *The ridge is renewed.* With forgetting, `A` fades in directions that the data do not visit, and `P` blows up (a
  constant channel is enough). Here the ridge fades as data do, and one coefficient at a time is given it back, as an
  observation of zero: `P` stays bounded by about twice the inverse ridge, and the solution stays a ridge solution.
- *`P` stays symmetric* to the last bit, because it only ever changes by `beta P - u uᵀ`.
- *Regressors and errors are clipped* at 20 times their running size, so that a value of 1e6 neither freezes a direction
  nor throws the weights. Ordinary data never meet these limits. A size is counted from the first value that is not
  zero: a channel that has stood still (rain in winter) has shown no size that the first rain could be held to.
- *If rounding spoils `P` all the same*, it starts again from the ridge, and `info` says so.

Labels count once. Where an example comes with all its labels, `P` takes its regressor in once, and every known output
moves by the gain `P x` times its error. Where labels come one row at a time (`Example.fresh`), `P` takes the regressor
in with the first step's label, and the later steps move by the gain `P x` of the day: exact but for the few regressors
that `P` has taken in meanwhile. Where the first step's label is missing the regressor never enters `P`, and the later
steps use the gain that it would have had.
"""

from __future__ import annotations

import abc
import math

import torch
from torch import Tensor

from natsr.forecasters.base import Forecast, Forecaster
from natsr.types import Example, OptionError, State, StateError, Task

CLIP = 20.0  # times the running size
YOUNG = 20  # sizes seen, the first above zero, before anything is clipped
SIZE_RATE = 0.002  # weight of the newest example in a running size
MOST_REGRESSORS = 1500  # of one group; hundreds of channels with all their lags would need tens of GiB


class _LeastSquares(Forecaster):
    """What the two have in common: `G` groups of channels, each with its covariance, `n` regressors and `m` outputs."""

    def __init__(self, task: Task, forgetting: float, ridge: float) -> None:
        if not 0 < forgetting <= 1:
            raise OptionError(f"forgetting is {forgetting}, expected above 0 and at most 1")
        if not (ridge > 0 and math.isfinite(ridge)):
            raise OptionError(f"ridge is {ridge}, expected a positive number")
        self.task = task
        self.forgetting = forgetting
        self.ridge = ridge
        groups, inputs, outputs = self._sizes()
        kind = torch.float64
        self._covariance = torch.eye(inputs, dtype=kind).div_(ridge).repeat(groups, 1, 1)  # (G, n, n)
        self._weights = torch.zeros(groups, inputs, outputs, dtype=kind)  # (G, n, m)
        self._input_size = torch.zeros(2, 1, 1, task.channels, dtype=kind)  # of differences and of levels
        self._input_count = torch.zeros(2, 1, 1, task.channels, dtype=kind)  # examples in it
        self._error_size = torch.zeros(groups, 1, outputs, dtype=kind)
        self._error_count = torch.zeros(groups, 1, outputs, dtype=kind)
        self._due = 0.0  # coefficients whose ridge is to be renewed, by now
        self._next = 0  # the first of them
        self._resets = 0
        # Each coefficient gets its ridge back when half of it has faded.
        self._due_per_row = inputs * -math.log(forgetting) / math.log(2)

    @abc.abstractmethod
    def _sizes(self) -> tuple[int, int, int]:
        """`G`, `n` and `m`."""

    @abc.abstractmethod
    def _grouped(self, lags: Tensor) -> Tensor:
        """`(B, rows, C)` as `(G, B, rows * C / G)`."""

    @abc.abstractmethod
    def _ungrouped(self, outputs: Tensor) -> Tensor:
        """`(G, B, m)` as `(B, H, C)`."""

    def forecast(self, window: Tensor) -> Forecast:
        """The last value and what the weights add to it."""
        self.check_window(window)
        values = self._values(window)
        change = self._ungrouped(self._regressor(values) @ self._weights)
        return Forecast((values[:, -1:] + change).to(window))

    def learn(self, example: Example) -> None:
        """Move the weights to the least-squares solution that includes the labels that are new."""
        values = self._values(example.window)
        target = example.target.to("cpu", torch.float64)
        known = target.isfinite()
        new = known if example.fresh is None else known & example.fresh.cpu()[:, :, None]
        # A window is to hold no NaN; one that does must not get into weights that would then never be numbers again.
        if not new.any() or not bool(values.isfinite().all()):
            return
        self._measure(values)
        x = self._regressor(values)  # (G, B, n)
        y = self._grouped(torch.where(known, target - values[:, -1:], 0.0))  # (G, B, m)
        first = known if example.fresh is None else known & (torch.arange(self.task.horizon) == 0)[:, None]
        included = self._grouped(first).any(2)  # (G, B): P holds this regressor, or does after this call
        entering = self._grouped(first & new).any(2)
        for place in entering.any(0).nonzero()[:, 0].tolist():
            self._take_in(x[:, place], entering[:, place])
        self._move(x, y, self._grouped(new), included)

    def _values(self, window: Tensor) -> Tensor:
        return window[:, -self.task.window :, : self.task.channels].to("cpu", torch.float64)

    def _measure(self, values: Tensor) -> None:
        """Bring the running sizes of the regressors up to date."""
        last = values[:, -1:]
        sizes = torch.stack([(values - last).abs().mean((0, 1)), last.abs().mean((0, 1))])[:, None, None]
        sizes = torch.minimum(sizes, _limit(self._input_size, self._input_count))
        self._input_count += (sizes > 0) | (self._input_count > 0)
        weight = (1 / self._input_count.clamp(min=1)).clamp(min=SIZE_RATE)
        self._input_size += weight * (sizes - self._input_size)

    def _regressor(self, values: Tensor) -> Tensor:
        """`(G, B, n)`: differences from the last value, the last value, one."""
        last = values[:, -1:]
        limit = _limit(self._input_size, self._input_count)
        differences = (values[:, :-1] - last).clamp(-limit[0], limit[0])
        last = last.clamp(-limit[1], limit[1])
        grouped = self._grouped(torch.cat([differences, last], 1))
        return torch.cat([grouped, grouped.new_ones(*grouped.shape[:2], 1)], 2)

    def _take_in(self, x: Tensor, groups: Tensor) -> None:
        """Add one regressor `(G, n)` to the information of the groups `(G,)` that it is new to."""
        gain = torch.bmm(self._covariance, x[:, :, None])  # (G, n, 1)
        spread = self.forgetting + (x[:, :, None] * gain).sum(1, keepdim=True)  # (G, 1, 1)
        if not bool((spread > 0).all()):
            self._reset()
            return
        # u uᵀ is symmetric to the last bit, a product with a factor in front of it is not.
        u = gain / (spread * self.forgetting).sqrt()
        if bool(groups.all()):
            self._covariance.baddbmm_(u, u.transpose(1, 2), beta=1 / self.forgetting, alpha=-1)
        else:
            for group in groups.nonzero()[:, 0].tolist():
                self._covariance[group].addr_(u[group, :, 0], u[group, :, 0], beta=1 / self.forgetting, alpha=-1)
        self._renew()

    def _renew(self) -> None:
        """Give the ridge back to the coefficients whose turn it is, as observations of zero."""
        inputs = self._covariance.shape[1]
        self._due += self._due_per_row
        while self._due >= 1:
            self._due -= 1
            place, self._next = self._next, (self._next + 1) % inputs
            column = self._covariance[:, :, place].clone()  # (G, n)
            spread = 2 / self.ridge + column[:, place]
            u = (column / spread.sqrt()[:, None])[:, :, None]
            error = -self._weights[:, place]  # (G, m): the coefficient should have been zero
            self._weights.baddbmm_((column / spread[:, None])[:, :, None], error[:, None].clone())
            self._covariance.baddbmm_(u, u.transpose(1, 2), alpha=-1)

    def _move(self, x: Tensor, y: Tensor, new: Tensor, included: Tensor) -> None:
        """Move the weights by gain times error, for the outputs whose labels are new."""
        gain = torch.bmm(x, self._covariance)  # (G, B, n)
        if not bool(included.all()):
            alone = self.forgetting + (gain * x).sum(2, keepdim=True)
            gain = torch.where(included[:, :, None], gain, gain / alone)
        error = torch.where(new, y - x @ self._weights, 0.0)  # (G, B, m)
        limit = _limit(self._error_size, self._error_count)
        error = error.clamp(-limit, limit)
        self._weights.baddbmm_(gain.transpose(1, 2), error)
        count = new.sum(1, keepdim=True) * ((error != 0).any(1, keepdim=True) | (self._error_count > 0))
        self._error_count += count
        mean = error.abs().sum(1, keepdim=True) / count.clamp(min=1)
        weight = (count > 0) * (1 / self._error_count.clamp(min=1)).clamp(min=SIZE_RATE)
        self._error_size += weight * (mean - self._error_size)

    def _reset(self) -> None:
        inputs = self._covariance.shape[1]
        self._covariance.copy_(torch.eye(inputs, dtype=torch.float64) / self.ridge)
        self._resets += 1

    def info(self) -> dict[str, float]:
        """How often the covariance had to start again, and its largest variance."""
        largest = self._covariance.diagonal(dim1=1, dim2=2).max()
        return {"resets": float(self._resets), "largest_variance": float(largest)}

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        numbers: State = {"due": self._due, "next": self._next, "resets": self._resets}
        return {**numbers, **{name: tensor.clone() for name, tensor in self._tensors().items()}}

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""
        due, place, resets = (state.get(name) for name in ("due", "next", "resets"))
        if not (isinstance(place, int) and isinstance(resets, int)):
            raise StateError("the state lacks its counts; it belongs to another method")
        if not isinstance(due, float | int):
            raise StateError(f"due is {due!r}, expected a number")
        found: list[tuple[Tensor, Tensor]] = []
        for name, tensor in self._tensors().items():  # all are looked at before any is changed
            value = state.get(name)
            if not isinstance(value, Tensor) or value.shape != tensor.shape:
                got = tuple(value.shape) if isinstance(value, Tensor) else value
                raise StateError(f"{name} is {got}, expected a tensor of shape {tuple(tensor.shape)}; same task?")
            found.append((tensor, value))
        for tensor, value in found:
            tensor.copy_(value)
        self._due, self._next, self._resets = float(due), place, resets

    def _tensors(self) -> dict[str, Tensor]:
        return {
            "covariance": self._covariance,
            "weights": self._weights,
            "input_size": self._input_size,
            "input_count": self._input_count,
            "error_size": self._error_size,
            "error_count": self._error_count,
        }


def _limit(size: Tensor, count: Tensor) -> Tensor:
    """What is clipped to; no limit while the running size is young."""
    return torch.where(count < YOUNG, math.inf, CLIP * size)


class RecursiveLeastSquares(_LeastSquares):
    """Each channel from its own lags.

    Args:
        task: `window` lags.
        forgetting: What an example weighs one row later, relative to now.
        ridge: Pull of each coefficient to zero, in examples with a regressor of size one.

    Example:
        >>> values = torch.sin(torch.arange(400.0))[:, None]
        >>> task = Task(window=4, horizon=2, channels=1)
        >>> rls = RecursiveLeastSquares(task)
        >>> for t in range(4, 398):
        ...     rls.learn(Example(values[None, t - 4 : t], values[None, t : t + 2]))
        >>> forecast = rls.forecast(values[None, -6:-2]).mean[0]
        >>> bool((forecast - values[-2:]).abs().max() < 0.01)
        True
    """

    def __init__(self, task: Task, forgetting: float = 0.9999, ridge: float = 1.0) -> None:
        super().__init__(task, forgetting, ridge)

    def _sizes(self) -> tuple[int, int, int]:
        return self.task.channels, self.task.window + 1, self.task.horizon

    def _grouped(self, lags: Tensor) -> Tensor:
        return lags.permute(2, 0, 1)

    def _ungrouped(self, outputs: Tensor) -> Tensor:
        return outputs.permute(1, 2, 0)


class MultivariateRLS(_LeastSquares):
    """Each channel from the lags of all channels; the ridge matters here.

    Where there are so many channels that a whole window of each would be more than `MOST_REGRESSORS`, as many of the
    newest lags are taken as fit, and at least one.

    Args:
        task: `window` lags of `channels` channels: one covariance of `window * channels + 1` rows.
        forgetting: What an example weighs one row later, relative to now.
        ridge: Pull of each coefficient to zero, in examples with a regressor of size one.
    """

    def __init__(self, task: Task, forgetting: float = 0.9999, ridge: float = 10.0) -> None:
        super().__init__(task, forgetting, ridge)

    @property
    def lags(self) -> int:
        """Rows that are looked at."""
        return min(self.task.window, max(1, MOST_REGRESSORS // self.task.channels))

    def _sizes(self) -> tuple[int, int, int]:
        return 1, self.lags * self.task.channels + 1, self.task.outputs

    def _values(self, window: Tensor) -> Tensor:
        return super()._values(window)[:, -self.lags :]

    def _grouped(self, lags: Tensor) -> Tensor:
        return lags.flatten(1)[None]

    def _ungrouped(self, outputs: Tensor) -> Tensor:
        return outputs[0].reshape(-1, self.task.horizon, self.task.channels)
