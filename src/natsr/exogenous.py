"""Columns that come with a row and are neither forecast nor scored: what they are now and, of some, what is planned.

A column of `exogenous` is known up to its row: the features of the row hold that value, carried forward where it is
missing. A column of `known` has a plan besides, its values at the next `H` rows. The features hold its value now and
the plan: every lead where there are at most `LEADS` of them, else means over `LEADS` stretches of them and the last
lead by itself (a window of at least `H` rows then holds every lead of the plan as it was told).

Where no plan is told, the last one is shifted by a row; beyond its end, and where it has a gap, the value before it is
carried on. Of a column that is not in `known` no later value can come in, whatever is told.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from natsr.data.calendar import Floats
from natsr.data.series import Scaling, unknown
from natsr.intake import number
from natsr.types import DataError, OptionError, State, StateError

#: Values of the next rows, by name.
Future: TypeAlias = Mapping[str, Iterable[object]]
#: Leads of a plan that become features of their own; of a longer one stretches are averaged.
LEADS = 8


class Exogenous:
    """What is known beside the values, row by row.

    Args:
        columns: Names of the values that are forecast; none may come twice.
        exogenous: Names of the columns that are known up to their row.
        known: Names of the columns that are known in advance.
        horizon: Rows of a plan, `H`.

    Example:
        >>> outside = Exogenous(["load"], ["wind"], ["holiday"], horizon=2)
        >>> outside.extend(np.array([3.0, 0.0]), outside.plan({"holiday": [0, 1]})).tolist()
        [3.0, 0.0, 0.0, 1.0]
        >>> outside.extend(np.array([np.nan, np.nan]), outside.plan(None)).tolist()  # carried; the plan is shifted
        [3.0, 0.0, 1.0, 1.0]
    """

    def __init__(self, columns: Sequence[str], exogenous: Sequence[str], known: Sequence[str], horizon: int) -> None:
        for what, names in (("exogenous", exogenous), ("known", known)):
            if isinstance(names, str):
                raise OptionError(f"{what} is the text {names!r}, expected a list of names: [{names!r}]")
        self.exogenous, self.known, self.horizon = tuple(exogenous), tuple(known), horizon
        every = (*columns, *self.exogenous, *self.known)
        twice = sorted({str(name) for name in every if every.count(name) > 1})
        if twice:
            raise OptionError(
                f"{', '.join(twice)} comes more than once in columns, exogenous and known, expected each name once, "
                "in one of them; known is for those whose future is known, and they need not be in exogenous too"
            )
        parts = np.array_split(np.arange(1, horizon + 1), min(horizon, LEADS))
        self._stretches = [part.tolist() for part in parts] + ([[horizon]] if horizon > LEADS else [])
        self._last = np.full(len(self.exogenous) + len(self.known), math.nan)
        self._plan = np.full((horizon, len(self.known)), math.nan)  # from the last row on

    @property
    def names(self) -> tuple[str, ...]:
        """Of the values that a row brings besides those that are forecast."""
        return (*self.exogenous, *self.known)

    @property
    def width(self) -> int:
        """Features of a row."""
        return len(self.names) + len(self.known) * len(self._stretches)

    def plan(self, future: Future | None) -> Floats:
        """What is told of the next rows, `(H, K)`, NaN where nothing is; changes nothing.

        Raises:
            DataError: It is told of another column, of another number of rows, or is not made of numbers.
        """
        found = np.full_like(self._plan, math.nan)
        if future is None:
            return found
        if not isinstance(future, Mapping):
            raise DataError(f"future is {future!r}, expected a mapping from names in known to {self.horizon} numbers")
        for name, told in future.items():
            if name not in self.known and (name in self.exogenous or not self.known):
                raise DataError(
                    f"future holds {name!r}, expected columns in known, which are {list(self.known)}; "
                    "put it there when the Live is made, if its future is known"
                )
            if name not in self.known:
                raise DataError(unknown("column", str(name), self.known, "future"))
            if isinstance(told, str | bytes) or not isinstance(told, Iterable | np.ndarray | Tensor):
                raise DataError(f"future of {name} is {told!r}, expected {self.horizon} numbers")
            cells = list(told)
            if len(cells) != self.horizon:
                raise DataError(
                    f"future of {name} has {len(cells)} values, expected {self.horizon}, one for each row of the "
                    "horizon; use None where there is no plan"
                )
            found[:, self.known.index(name)] = [number(cell, f"future of {name}") for cell in cells]
        return found

    def extend(self, values: Floats, plan: Floats) -> Floats:
        """Take the next row; answers its features `(width,)` in the data's own units, NaN where nothing came yet.

        Args:
            values: `(E + K,)`, NaN where missing.
            plan: From `plan`.
        """
        if not self.width:
            return np.empty(0)
        values = values.copy()
        split = len(self.exogenous)
        values[split:] = np.where(np.isnan(values[split:]), self._plan[0], values[split:])
        self._shift(1)
        features: Floats = self.history(values[None], np.where(np.isnan(plan), self._plan, plan))[0]
        return features

    def skip(self, rows: int) -> None:
        """Let rows pass that are not played."""
        for planned in self._plan[:rows]:
            values = self._last[len(self.exogenous) :]
            values[:] = np.where(np.isnan(planned), values, planned)
        self._shift(min(rows, self.horizon))

    def _shift(self, rows: int) -> None:
        self._plan = np.concatenate([self._plan[rows:], np.full((rows, len(self.known)), math.nan)])

    def history(self, values: Floats, plan: Floats) -> Floats:
        """Take rows `(T, E + K)` that are their own plan, and the plan after them; answers their features."""
        rows, split = len(values), len(self.exogenous)
        told = np.concatenate([values[:, split:], plan])
        now, ahead = _carried(values, self._last), _carried(told, self._last[split:])
        parts = [now]
        with np.errstate(over="ignore"):
            for leads in self._stretches if self.known else ():
                total = ahead[leads[0] : leads[0] + rows].copy()
                for lead in leads[1:]:
                    total += ahead[lead : lead + rows]
                parts.append(total / len(leads))
        if rows:
            self._last = now[-1].copy()
        self._plan = plan.copy()
        return np.concatenate(parts, axis=1)

    def scaling(self, features: Floats) -> Scaling:
        """From the features of past rows: mean and deviation of each column now, for its plan as well."""
        split, now = len(self.exogenous), Scaling.fit(features[:, : len(self.names)])
        mean, std = (
            np.concatenate([part, np.tile(part[split:], len(self._stretches))]) for part in (now.mean, now.std)
        )
        return Scaling(mean, std)

    def state_dict(self) -> State:
        """What must be carried on."""
        return {"last": torch.from_numpy(self._last.copy()), "plan": torch.from_numpy(self._plan.copy())}

    def load_state_dict(self, state: State) -> None:
        """Go on from it."""
        last, plan = state.get("last"), state.get("plan")
        if not (isinstance(last, Tensor) and isinstance(plan, Tensor)):
            raise StateError("the state lacks the exogenous values; it belongs to something else")
        if last.shape != self._last.shape or plan.shape != self._plan.shape:
            raise StateError(
                f"exogenous values are {tuple(last.shape)} and plans {tuple(plan.shape)}, expected "
                f"{self._last.shape} and {self._plan.shape}; the state belongs to other columns"
            )
        self._last, self._plan = last.double().numpy().copy(), plan.double().numpy().copy()


def _carried(values: Floats, before: Floats) -> Floats:
    """`(T, n)` with each NaN replaced by the last known value above it, or by what was there before."""
    whole = np.concatenate([before[None], values])
    places = np.where(np.isnan(whole), 0, np.arange(len(whole))[:, None])
    filled: Floats = np.take_along_axis(whole, np.maximum.accumulate(places, axis=0), axis=0)[1:]
    return filled
