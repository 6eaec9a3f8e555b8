"""Who may know which row when: the one place where time is decided.

Row `t` arrives, rows up to and including `t` are known, and the forecaster is asked for rows `t+1 … t+H` (the forecast
from *origin* `t`). Before that forecast it may learn

| protocol  | the examples of origin           | their targets                                            |
|-----------|----------------------------------|----------------------------------------------------------|
| `honest`  | `t-H`                            | all `H` rows, all known                                  |
| `partial` | `t-1 … t-H`                      | the rows up to `t`; the others are NaN                   |
| `paper`   | `t-1`                            | all `H` rows, `H-1` of which lie in the future           |

so one integer, `delay`, says how far back the youngest example lies. `paper` exists to reproduce published tables: for
`H > 1` it hands out labels that nobody could have. At `H = 1` the three are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.types import PROTOCOLS, Example, OptionError, ProtocolName, ShapeError, State, StateError, Task


class Rows(NamedTuple):
    """A stream as arrays: what a forecaster may look at, and what it is scored against."""

    inputs: Tensor  # (T, D), values with gaps filled from the past, then features; no NaN
    truth: Tensor  # (T, C), NaN = missing


class Step(NamedTuple):
    """One moment: learn `matured`, then forecast from `window`, then be scored against `target`."""

    origin: int
    window: Tensor  # (1, R, D)
    target: Tensor | None  # (1, H, C), for the scorer only; None where the future is not there yet
    matured: Example | None


def check_protocol(protocol: str) -> ProtocolName:
    """The name, if it is one of the three."""
    for name in PROTOCOLS:
        if protocol == name:
            return name
    raise OptionError(f"protocol is {protocol!r}, expected one of {', '.join(PROTOCOLS)}")


def delay(protocol: ProtocolName, horizon: int) -> int:
    """How many rows before the origin of a forecast lies the youngest example that may be learned."""
    return horizon if protocol == "honest" else 1


class Windows:
    """The examples whose targets lie in rows `start … stop-1`, made when they are asked for.

    The first window of a part reaches back into the part before it. Where a window would begin before the first row,
    the first row is repeated.

    >>> import torch
    >>> rows = Rows(torch.arange(10.0)[:, None], torch.arange(10.0)[:, None])
    >>> examples = Windows(rows, Task(window=3, horizon=2, channels=1), start=0, stop=10)
    >>> len(examples), examples[0].window[0, :, 0].tolist(), examples[0].target[0, :, 0].tolist()
    (6, [0.0, 1.0, 2.0], [3.0, 4.0])
    """

    def __init__(self, rows: Rows, task: Task, start: int, stop: int) -> None:
        check_rows(rows, task)
        if not 0 <= start <= stop <= len(rows.inputs):
            raise OptionError(f"part is {start}…{stop}, expected 0 <= start <= stop <= {len(rows.inputs)} rows")
        self.task = task
        self.rows = rows
        self.stop = stop  # one past the last row that is known
        self.first = max(start, task.window) - 1  # origin of the first example
        self._count = max(0, stop - task.horizon - self.first)
        pad = task.reach - 1
        padded = torch.cat([rows.inputs[:1].expand(pad, -1), rows.inputs]) if pad else rows.inputs
        self._windows = padded.unfold(0, task.reach, 1).transpose(1, 2)  # (T, R, D): the window that ends at row t
        self._targets = rows.truth.unfold(0, task.horizon, 1).transpose(1, 2)  # (T-H+1, H, C): rows from t on

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Example:
        if not 0 <= index < self._count:
            raise IndexError(f"example {index} of {self._count}")
        return self.at(torch.tensor([self.first + index]))

    def batch(self, indices: Tensor) -> Example:
        """The examples with these positions, `0 … len-1`, as one batch."""
        return self.at(indices + self.first)

    def at(self, origins: Tensor) -> Example:
        """The examples of these origins, as one batch; their targets must exist."""
        return Example(self._windows[origins], self._targets[origins + 1], origins=origins)

    def window(self, origin: int) -> Tensor:
        """The window that ends at row `origin`, `(1, R, D)`."""
        return self._windows[origin : origin + 1].contiguous()


def check_rows(rows: Rows, task: Task) -> None:
    """Refuse rows that do not fit the task."""
    if rows.inputs.ndim != 2 or rows.inputs.shape[1] != task.inputs:
        raise ShapeError(f"inputs have shape {tuple(rows.inputs.shape)}, expected (T, {task.inputs})")
    if rows.truth.shape != (len(rows.inputs), task.channels):
        raise ShapeError(f"truth has shape {tuple(rows.truth.shape)}, expected {(len(rows.inputs), task.channels)}")
    if len(rows.inputs) < task.window + task.horizon:
        raise ShapeError(
            f"the stream has {len(rows.inputs)} rows, expected at least window + horizon = "
            f"{task.window + task.horizon}; use a longer stream or a shorter window"
        )


def matured(origin: int, first: int, task: Task, protocol: ProtocolName) -> tuple[Tensor, Tensor | None]:
    """The origins that may be learned before the forecast from `origin`, and which target rows are known.

    Args:
        origin: The last known row.
        first: The first origin that was forecast; nothing older is learned.
        task: Gives the horizon.
        protocol: Who may know what.

    Returns:
        The origins `(B,)`, youngest first, and a mask `(B, H)`; no mask means that every target row may be used.
    """
    if protocol != "partial":
        example = origin - delay(protocol, task.horizon)
        return torch.tensor([example] if example >= first else [], dtype=torch.long), None
    oldest = max(first, origin - task.horizon)
    origins = torch.arange(origin - delay(protocol, task.horizon), oldest - 1, -1)
    steps = torch.arange(1, task.horizon + 1)
    return origins, origins[:, None] + steps <= origin


def masked(example: Example, known: Tensor | None) -> Example:
    """The example with its unknown target rows hidden, and its newest ones marked."""
    if known is None:
        return example
    hidden = torch.full_like(example.target, float("nan"))
    fresh = known & (known.sum(1, keepdim=True) == torch.arange(1, known.shape[1] + 1))
    known, fresh = known.to(hidden.device), fresh.to(hidden.device)
    return example._replace(target=torch.where(known[:, :, None], example.target, hidden), fresh=fresh)


def steps(rows: Rows, task: Task, protocol: ProtocolName, start: int, stop: int) -> Iterator[Step]:
    """The stream as a sequence of moments, with targets in rows `start … stop-1`.

    Args:
        rows: The whole stream.
        task: Window, horizon and channels.
        protocol: Who may know what; `honest` unless a published table is to be reproduced.
        start: The first row to be forecast; the first origin is the row before it.
        stop: One past the last row to be forecast.

    Yields:
        One step for each origin; `matured` comes before the forecast.
    """
    examples = Windows(rows, task, start, stop)
    for origin in range(examples.first, examples.first + len(examples)):
        origins, known = matured(origin, examples.first, task, protocol)
        # Under `partial` the youngest targets run past the origin: they are read, and hidden before they leave.
        ready = masked(examples.at(origins), known) if len(origins) else None
        yield Step(origin, examples.window(origin), examples.at(torch.tensor([origin])).target, ready)


class Feed:
    """The same moments, one row at a time, when the future is not there yet.

    A test shows that a forecaster driven by a feed sees the same calls, with the same numbers, as one driven by
    `steps`. The protocol `paper` needs the future and is refused.
    """

    def __init__(self, task: Task, protocol: ProtocolName = "honest") -> None:
        if delay(protocol, task.horizon) < task.horizon and protocol != "partial":
            raise OptionError(
                f"protocol is {protocol!r}, expected honest or partial; a live stream has no future rows to learn from"
            )
        self.task = task
        self.protocol = protocol
        self.seen = 0  # rows pushed so far
        self._inputs = torch.empty(0, task.inputs)  # the last R + H rows
        self._truth = torch.empty(0, task.channels)

    def push(self, inputs: Tensor, truth: Tensor) -> Step | None:
        """Take the next row; answer the moment it opens, or nothing while the first window is not full.

        Args:
            inputs: `(D,)`, without NaN.
            truth: `(C,)`, NaN where missing.
        """
        task, keep = self.task, self.task.reach + self.task.horizon
        if inputs.shape != (task.inputs,) or truth.shape != (task.channels,):
            raise ShapeError(
                f"row has shapes {tuple(inputs.shape)} and {tuple(truth.shape)}, "
                f"expected ({task.inputs},) and ({task.channels},)"
            )
        if self.seen == 0:
            self._inputs = inputs.expand(task.reach - 1, -1).clone()
            self._truth = truth.expand(task.reach - 1, -1).clone()
        self._inputs = torch.cat([self._inputs, inputs[None]])[-keep:]
        self._truth = torch.cat([self._truth, truth[None]])[-keep:]
        self.seen += 1
        origin, first = self.seen - 1, task.window - 1
        if origin < first:
            return None
        origins, known = matured(origin, first, task, self.protocol)
        ready = masked(self._at(origins, origin), known) if len(origins) else None
        return Step(origin, self._inputs[-task.reach :][None], None, ready)

    def _at(self, origins: Tensor, newest: int) -> Example:
        """The examples of these origins; target rows after `newest` are NaN."""
        task = self.task
        future = self._truth.new_full((task.horizon, task.channels), float("nan"))
        truth = torch.cat([self._truth, future])
        ends = len(self._inputs) - (newest - origins)  # one past the last row of each window
        windows = torch.stack([self._inputs[end - task.reach : end] for end in ends.tolist()])
        return Example(windows, torch.stack([truth[end : end + task.horizon] for end in ends.tolist()]))

    def state_dict(self) -> State:
        """What must be carried on."""
        return {"seen": self.seen, "inputs": self._inputs.clone(), "truth": self._truth.clone()}

    def load_state_dict(self, state: State) -> None:
        """Go on from a saved feed."""
        seen, inputs, truth = (state.get(name) for name in ("seen", "inputs", "truth"))
        if not (isinstance(seen, int) and isinstance(inputs, Tensor) and isinstance(truth, Tensor)):
            raise StateError("the feed's state lacks seen, inputs or truth; the state was not written by natsr")
        rows = min(self.task.reach - 1 + seen, self.task.reach + self.task.horizon) if seen else 0
        for name, part, width in (("inputs", inputs, self.task.inputs), ("truth", truth, self.task.channels)):
            if part.shape != (rows, width):
                raise StateError(f"{name} of the feed is {tuple(part.shape)}, expected {(rows, width)}; same task?")
        self.seen, self._inputs, self._truth = seen, inputs.clone(), truth.clone()
