"""A panel of experts behind the two verbs of a forecaster.

Experts need every row, and rows from further back than a window reaches. The rows come with the examples: each call of
`learn` brings at least one that is new, in the window or among the labels. Where an example or a window belongs in what
is known already its row number says, and where there is none, or it is of another stream, that is found by comparing
rows. A forecast is asked for with a window, and nothing may be learned from that. If it
ends where the known rows end, which is usual, the answer is ready. If it ends later (the first `H` forecasts after the
warm-up, whose examples have not matured) a copy of the panel takes the newer rows in and answers; if it ends earlier
(the protocol `paper`), the experts' forecasts of that origin are mixed anew; if it is of another stream, a copy takes
all of it in.

The copy is kept until something is learned, and takes in what later windows bring: where the horizon is longer than a
window, the last of the first `H` windows do not reach back to what was learned. Rows that no window has shown are
missing ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.experts.panel import Panel
from natsr.experts.past import Array
from natsr.experts.periods import Gaps
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.member import Member
from natsr.forecasters.older import of_today
from natsr.forecasters.whose import Mixed, kind_of
from natsr.streams import Windows
from natsr.types import Example, State, StateError, Task

#: Rows that are compared to find where a window belongs.
COMPARED = 12
#: Experts read differences from the last value, so where a column lies is nothing to them, as far as a float32 tells
#: such differences.
ANYWHERE = 1000.0


class Pool(Mixed):
    """Forecasts of many experts, mixed.

    Args:
        task: What is forecast.
        make: Makes the panel, fresh.
    """

    def __init__(self, task: Task, make: Callable[[Task], Panel]) -> None:
        self.task = task
        self._panel = make(task)
        self._ahead: Panel | None = None  # a copy that has taken in rows of windows, until something is learned
        self._row: int | None = None  # number of the newest row, as those count who hand examples over
        self.far = Forecaster.far if self._members() else ANYWHERE

    # ---- forecasting ---------------------------------------------------------------------------------------------

    def forecast(self, window: Tensor) -> Forecast:
        """The mixture, and the mean square of its errors of late."""
        return self.forecast_from(window, None)

    def forecast_from(self, window: Tensor, origins: Tensor | None) -> Forecast:
        """The same; rows that stand still look alike, and only numbers tell them apart."""
        self.check_window(window)
        values = _values(window, self.task.channels)
        found = [self._answer(*pair) for pair in zip(values, _numbers(origins, len(values)), strict=True)]
        mean = torch.from_numpy(np.stack([mean for mean, _ in found])).to(window)
        return Forecast(mean, torch.from_numpy(np.stack([variance for _, variance in found])).to(window))

    def _answer(self, rows: Array, origin: int | None) -> tuple[Array, Array]:
        newer = self._newer(self._panel, rows, origin)
        if newer is not None and -self.task.horizon <= newer <= 0:
            return self._panel.mean(-newer), self._panel.variance()
        if self._ahead is not None:
            since = self._newer(self._ahead, rows, origin)
            known = self._ahead.past.seen - self._panel.past.seen
            if since is not None and since >= 0 and newer in (None, known + since):
                return self._told(self._ahead, self._after(rows, since))
        panel = copy.deepcopy(self._panel)
        if newer is None or newer < 0:
            return self._told(panel, rows[_repeated(rows) if panel.past.seen == 0 else 0 :])
        self._ahead = panel
        return self._told(panel, self._after(rows, newer))

    def _newer(self, panel: Panel, window: Array, origin: int | None, behind: int = 0) -> int | None:
        """How many rows newer than the panel's the window's last row is; negative if it is older.

        `None` where it does not belong to the panel's rows, of which the last `H` and `behind` are compared.
        """
        if origin is not None and self._row is not None:
            newer = origin - self._row - (panel.past.seen - self._panel.past.seen)
            # Of rows beyond the window's first nothing can be compared.
            if newer >= len(window) or _fits(window, panel, newer):
                return newer
        return ahead_of(window, panel, self.task.horizon + behind)

    def _after(self, rows: Array, newer: int) -> Array:
        """The newest of them; those that would come before the first are missing, as far as gaps are played."""
        unseen = newer - len(rows)
        if unseen <= 0:
            return rows[len(rows) - newer :]
        played = unseen - int(Gaps.of(self.task).left_out(np.array([unseen]))[0])
        return np.concatenate([np.full((played, rows.shape[1]), np.nan), rows])

    @staticmethod
    def _told(panel: Panel, rows: Array) -> tuple[Array, Array]:
        for row in rows:
            panel.advance(row)
        return panel.mean(), panel.variance()

    # ---- learning ------------------------------------------------------------------------------------------------

    def learn(self, example: Example) -> None:
        """Take in every row that is new."""
        values = _values(example.window, self.task.channels)
        target = example.target.detach().cpu().double().numpy()
        origins = _numbers(example.origins, len(values))
        self._ahead = None
        if example.fresh is None:
            for window, rows, origin in zip(values, target, origins, strict=True):
                self._take(window, rows, origin)
            return
        # Of examples whose labels come row by row the first is the youngest: it holds all that is new, usually.
        known = [int(np.flatnonzero(row)[-1]) + 1 if row.any() else 0 for row in example.fresh.cpu().numpy()]
        if known and known[0] and self._new(values[0], known[0], origins[0]) == 1:
            self._advance(target[0, known[0] - 1 : known[0]])
            return
        for number in range(len(values) - 1, -1, -1):
            self._take(values[number], target[number, : known[number]], origins[number])

    def _take(self, window: Array, labels: Array, origin: int | None) -> None:
        """Take in what is new in a window and the rows after it; `origin` numbers the window's last row, if known."""
        newer = self._new(window, len(labels), origin)
        rows = np.concatenate([window, labels])
        if newer is None:
            newer = len(rows) if origin is None else min(len(rows), origin + 1 + len(labels))  # row 0 may be repeated
        self._advance(self._after(rows, newer))
        if origin is not None and newer > 0:
            self._row = origin + len(labels)

    def _new(self, window: Array, labels: int, origin: int | None) -> int | None:
        """How many rows of a window and its labels are new; `None` where they do not belong to those that are known."""
        numbered = origin is not None and self._row is not None
        if not numbered and labels and _fits(window, self._panel, 1 - labels, wholly=True):
            return 1  # one label is new: as it should be
        found = self._newer(self._panel, window, origin, labels)
        return None if found is None else max(0, found + labels)

    def _advance(self, rows: Array) -> None:
        for row in rows:
            self._panel.advance(row)
        if self._row is not None:
            self._row += len(rows)

    def warm_up(self, train: Windows, valid: Windows, progress: Progress = silent) -> None:
        """Go through the rows of both parts as through a stream, those of a part too short for an example too."""
        if not len(train) and not len(valid):
            return
        first = max(0, train.first + 1 - self.task.reach)
        stop = max(train.stop, valid.stop)
        truth = train.rows.truth[first:stop].detach().cpu().double().numpy()
        self._ahead = None
        for done, row in enumerate(truth, 1):
            self._panel.advance(row)
            progress(done, len(truth), "warm-up")
        self._panel.settle()
        self._row = stop - 1
        for member in self._members():
            member.warm_up(train, valid, progress)

    def _members(self) -> list[Member]:
        return [group for group in self._panel.groups if isinstance(group, Member)]

    # ---- what can be looked at, and what is carried on ----------------------------------------------------------

    def kinds(self) -> dict[str, str]:
        """The experts by name, and what each of them is."""
        return {name: kind_of(group) for group in self._panel.groups for name in group.names}

    def weights_by_step(self) -> Array:
        """How much of the forecast is each expert's, `(E, H, C)`; what the guard keeps back is last value's."""
        return self._panel.weights_by_step()

    def weights(self) -> dict[str, float]:
        """How much of the forecast is each expert's, by name; together 1."""
        return self._panel.weights()

    def info(self) -> dict[str, float]:
        """The weights of the experts that count most, as `weight_…`, and the mean squared error of late."""
        top = sorted(self.weights().items(), key=lambda item: -item[1])[:8]
        return {"variance": float(self._panel.variance().mean())} | {f"weight_{name}": value for name, value in top}

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        state: State = {
            part: {name: torch.from_numpy(values.copy()) for name, values in arrays.items()}
            for part, arrays in self._panel.arrays().items()
        }
        members = {f"member_{member.names[0]}": member.forecaster.state_dict() for member in self._members()}
        return state | {"row": self._row} | members

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave."""
        found = []
        state = of_today(state, self._panel)
        for part, arrays in self._panel.arrays().items():  # all are looked at before any is changed
            saved = state.get(part, {} if not arrays else None)
            if not isinstance(saved, dict):
                raise StateError(f"the state lacks {part}; it belongs to another method")
            for name, values in arrays.items():
                found.append((values, _fitting(f"{part}.{name}", saved.get(name), values)))
                if values is self._panel.past.counts and not self._panel.past.may_count(found[-1][1]):
                    raise StateError(f"{part}.{name} is {found[-1][1].tolist()}, which no stream of this task counts")
        self._load_members(state)
        for values, value in found:
            np.copyto(values, value, casting="same_kind")
        self._panel.reload()
        for member in self._members():
            member.forget()
        row = state.get("row")  # states of 0.7.0 and before have none
        self._ahead, self._row = None, row if isinstance(row, int) else None

    def _load_members(self, state: State) -> None:
        """Each member's own state; if one does not fit, all are as they were."""
        before: list[tuple[Member, State]] = []
        try:
            for member in self._members():
                own = state.get(f"member_{member.names[0]}")
                if not isinstance(own, dict):
                    raise StateError(f"the state lacks its {member.names[0]}; it belongs to another budget")
                before.append((member, member.forecaster.state_dict()))
                member.forecaster.load_state_dict(own)
        except StateError:
            for member, old in before:
                member.forecaster.load_state_dict(old)
            raise


def _fitting(place: str, value: object, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """What is to be written over these."""
    if not isinstance(value, Tensor) or value.shape != values.shape:
        got = tuple(value.shape) if isinstance(value, Tensor) else value
        raise StateError(f"{place} is {got}, expected a tensor of shape {values.shape}; same task?")
    found: npt.NDArray[np.generic] = value.cpu().numpy()
    if not np.can_cast(found.dtype, values.dtype, "same_kind"):
        raise StateError(f"{place} is of {found.dtype}, expected {values.dtype}; it belongs to another method")
    return found


def _values(window: Tensor, channels: int) -> Array:
    values = window[:, :, :channels].detach().cpu().double().numpy()
    return np.where(np.isfinite(values), values, np.nan)


def _repeated(rows: Array) -> int:
    """How many rows at the beginning are only there because a window would begin before the first row."""
    other = np.flatnonzero((rows != rows[0]).any(1))
    return int(other[0]) - 1 if len(other) else len(rows) - 1


def _numbers(origins: Tensor | None, count: int) -> list[int | None]:
    return [None] * count if origins is None else origins.tolist()


def _agreeing(window: Array, panel: Panel, newer: int) -> tuple[int, int]:
    """How many rows in a row, the newest first, are the panel's if the window ends so much later, and of how many."""
    window, back = window[: len(window) - max(newer, 0)], max(-newer, 0)
    count = max(0, min(len(window), panel.past.seen - back, panel.past.keep - back))
    other = np.flatnonzero((window[len(window) - count :] != panel.past.last(count, back)).any(1))
    return count - 1 - int(other[-1]) if len(other) else count, count


def _fits(window: Array, panel: Panel, newer: int, wholly: bool = False) -> bool:
    """Whether the window may end so many rows after the panel's newest: its last rows there agree, or all of them."""
    agreed, count = _agreeing(window, panel, newer)
    return count > 0 and agreed >= (count if wholly else min(count, COMPARED))


def ahead_of(window: Array, panel: Panel, behind: int) -> int | None:
    """How many rows of the window are newer than those known; negative if it ends before them, at most `behind` rows.

    Where it stands still in its last rows it may seem to belong in several places: it does where all rows agree that
    can be compared or, if that is nowhere, the most rows. `None` where it does not belong to them.
    """
    found: int | None = None
    most, enough = 0, min(COMPARED, (len(window) + 1) // 2, panel.past.seen)
    places: list[int] = [*range(len(window)), *range(-1, -behind - 1, -1)]
    for newer in places:
        agreed, count = _agreeing(window, panel, newer)
        if agreed == count >= enough > 0:
            return newer
        if agreed > most and agreed >= min(count, COMPARED):
            found, most = newer, agreed
    return found
