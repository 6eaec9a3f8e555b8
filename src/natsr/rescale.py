"""When a column has left its scale for good: a sensor that changed its unit, a level that grew fiftyfold.

Scaling is fixed when the warm phase begins. `Watch` counts, for each column, the rows that are too large for it (more
than `FAR` standard deviations from the mean), and takes one back for every row that is not, so that outliers and short
excursions come to nothing. Once the count has reached `patience`, the rows since it was last zero get a scaling of
their own, if their spread is another one or their level too far away for whoever forecasts: a network is lost at eight
standard deviations; `auto`, which reads differences, loses more by beginning anew than it gains. So do `KEPT` times as
many rows without a break that are too small: nearer to nought than a `FAR`-th of what values used to be. It takes
longer since dry and calm spells are common, and a scale that shrinks with them makes what follows enormous. All this
knows past rows only. The rows before keep the standardised values they had: over a change of unit nothing is then to be
seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.data.calendar import Floats
from natsr.data.series import Scaling, filled_from_past
from natsr.streams import Rows
from natsr.types import State, StateError, Task

#: How many times larger or smaller a column must have become.
FAR = 8.0
#: Rows that are kept for a new beginning: so many times the patience, and at least as many as here.
KEPT, LEAST = 4, 512


class Renewed(NamedTuple):
    """What a new beginning needs."""

    scaling: Scaling
    rows: Rows
    values: Floats  # (T, C), of the same rows, in the data's units


class Recent:
    """The last rows that came, in one piece of memory that is twice as long as what is kept of them.

    >>> recent = Recent(keep=2, width=1, kind=torch.float32)
    >>> recent.extend(torch.tensor([[1.0], [2.0], [3.0]]))
    >>> recent.extend(torch.tensor([[4.0]]))
    >>> recent.rows[:, 0].tolist()
    [3.0, 4.0]
    """

    def __init__(self, keep: int, width: int, kind: torch.dtype) -> None:
        self._keep, self._end = keep, 0
        self._memory = torch.empty(2 * keep, width, dtype=kind)

    @property
    def rows(self) -> Tensor:
        """`(T, width)`, the newest last; a view."""
        return self._memory[max(0, self._end - self._keep) : self._end]

    def clear(self) -> None:
        """Forget them."""
        self._end = 0

    def extend(self, rows: Tensor) -> None:
        """Take more rows, `(T, width)`."""
        rows = rows[-self._keep :]
        if self._end + len(rows) > len(self._memory):
            kept = self.rows.clone()
            self._memory[: len(kept)], self._end = kept, len(kept)
        self._memory[self._end : self._end + len(rows)] = rows
        self._end += len(rows)


class Watch:
    """Recent rows, and for how long each column has been outside its scale.

    Args:
        task: Its sizes decide how long is long: a window with its horizon, and two seasons.
        scaling: What the columns are held against.
        far: Standard deviations by which a level may move before a column gets another scaling for that alone.
    """

    def __init__(self, task: Task, scaling: Scaling, far: float = FAR) -> None:
        self._task, self._scaling, self._far = task, scaling, far
        with np.errstate(over="ignore"):
            self._usual = np.hypot(scaling.mean, scaling.std)  # root of the mean square
        self.patience = max(task.reach + task.horizon, 2 * task.season)
        keep = max(KEPT * self.patience, LEAST)
        self._values = Recent(keep, task.channels, torch.float64)  # in the data's units, NaN where missing
        self._inputs = Recent(keep, task.inputs, torch.float32)
        self._count = np.zeros((2, task.channels), dtype=np.int64)  # rows too large less the others; rows too small
        self._since = np.zeros((2, task.channels), dtype=np.int64)  # rows since that was last 0

    def fill(self, rows: Rows, values: Floats) -> None:
        """Keep the rows of a beginning."""
        self._values.extend(torch.from_numpy(values).where(~rows.truth.isnan(), math.nan))
        self._inputs.extend(rows.inputs)

    def push(self, values: Floats, inputs: Tensor, truth: Tensor) -> None:
        """Take the next row: in the data's units `(C,)`, as inputs `(D,)`, and standardised `(C,)`, NaN if missing."""
        size = truth.abs().double().numpy()
        self._values.extend(torch.from_numpy(np.where(np.isnan(size), math.nan, values))[None])
        self._inputs.extend(inputs[None])
        large = np.where(size > FAR, 1, -1)
        small = np.where(np.abs(values) < self._usual / FAR, 1, -self._count[1])
        self._count = np.maximum(self._count + np.where(np.isnan(size), 0, np.stack([large, small])), 0)
        self._since = np.where(self._count > 0, self._since + 1, 0)

    def renewed(self) -> Renewed | None:
        """A new beginning, if a column has left its scale for long enough; whose time has come is counted anew."""
        due = self._count >= [[self.patience], [KEPT * self.patience]]
        if not due.any():
            return None
        rows = np.minimum(np.where(due, self._since, 0).max(0), len(self._values.rows))
        self._count[:, rows > 0] = self._since[:, rows > 0] = 0
        values, inputs = self._values.rows.numpy().copy(), self._inputs.rows.clone()
        mean, std, changed = self._scaling.mean.copy(), self._scaling.std.copy(), False
        for column in np.flatnonzero(rows).tolist():
            since = int(rows[column])
            recent = values[-since:, column : column + 1]
            fresh = _fitted(recent, float(mean[column]), float(std[column]))
            if not _differs(fresh, float(mean[column]), float(std[column]), self._far):
                continue
            changed, mean[column], std[column] = True, fresh.mean[0], fresh.std[0]
            inputs[-since:, column] = _expressed(recent, fresh, inputs[:-since, column])
        if not changed:
            return None
        truth = torch.where(torch.from_numpy(np.isnan(values)), math.nan, inputs[:, : self._task.channels])
        return Renewed(Scaling(mean, std), Rows(inputs, truth), values)

    def state_dict(self) -> State:
        """What must be carried on."""
        return {
            "values": self._values.rows.clone(),
            "inputs": self._inputs.rows.clone(),
            "count": torch.from_numpy(self._count.copy()),
            "since": torch.from_numpy(self._since.copy()),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on from it."""
        values, inputs, count, since = (state.get(name) for name in ("values", "inputs", "count", "since"))
        if not (isinstance(values, Tensor) and isinstance(inputs, Tensor)):
            raise StateError("the state lacks its recent rows; it belongs to something else")
        if values.shape[1:] != (self._task.channels,) or inputs.shape != (len(values), self._task.inputs):
            raise StateError(f"recent rows are {tuple(values.shape)} and {tuple(inputs.shape)}; is it the same task?")
        self._count, self._since = (_counts(part, self._count.shape) for part in (count, since))
        self._values.clear()
        self._inputs.clear()
        self._values.extend(values)
        self._inputs.extend(inputs)


def _counts(part: object, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    if not isinstance(part, Tensor) or part.shape != shape:
        raise StateError(f"the state's counts of rows outside the scale are {part!r}, expected shape {shape}")
    found: npt.NDArray[np.int64] = part.long().numpy().copy()
    return found


def _fitted(recent: Floats, mean: float, std: float) -> Scaling:
    """Of one column, `(T, 1)`. Its spread may grow as it will, but shrinks only as its level does, give or take `FAR`.

    Few rows may happen to be calm, or to stand still, and say little about the spread to come.
    """
    fresh = Scaling.fit(recent)
    level = min(1.0, abs(float(fresh.mean[0])) / abs(mean)) if mean and fresh.mean[0] else 1.0
    moves = np.nanmax(recent) > np.nanmin(recent)
    return Scaling(fresh.mean, np.maximum(fresh.std, std * level / FAR) if moves else np.array([std * level]))


def _differs(fresh: Scaling, mean: float, std: float, far: float) -> bool:
    ratio = float(fresh.std[0]) / std
    return not 1 / FAR <= ratio <= FAR or abs(float(fresh.mean[0]) - mean) > far * std


def _expressed(recent: Floats, scaling: Scaling, before: Tensor) -> Tensor:
    """Standardised, gaps filled from the past, `(T,)`."""
    with np.errstate(over="ignore"):
        scaled = torch.from_numpy(scaling.apply(recent)).float()
    scaled[~scaled.isfinite()] = math.nan
    last = before[-1:] if len(before) else torch.zeros(1)
    return filled_from_past(torch.cat([last[:, None], scaled]))[1:, 0]
