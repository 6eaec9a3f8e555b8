"""Recursive least squares with hundreds of lags, in blocks of rows.

A forecast is the last value plus a linear function of a regressor `x` that is the same for every step ahead, so that
all steps, and all ways of weighing their errors, share one covariance `P`. Taking rows in one by one reads and writes
all of `P` for each; here `rows` of them wait and are taken in together (Woodbury's identity, exact), which costs a
fraction and delays what the weights know by at most as many rows.

- *Forgetting* multiplies the information by `forgetting` a row. The *ridge* fades with it and is given back one
  coefficient at a time, as an observation of zero, so that `P` stays bounded where the data say nothing.
- Each regressor has several *heads*. The errors of `plain` are held to 20 times their running mean size only; those of
  `clipped` to 1.5 times it (Huber's loss); those of `median` to 0.4 times it, which is nearly the absolute loss, and
  are made up for being cut (Newton's step divides by the share of errors that are not).
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
import torch

from natsr.experts.native import Native, Place, at
from natsr.experts.past import Array, Arrays, Even, Flags, Past, View
from natsr.experts.solver import Solver, Source
from natsr.experts.turn import HURRIED, LOOSER, WINDOW

#: By head: where errors are cut, in mean sizes, and what the rest is multiplied by.
HEADS = {"plain": (20.0, 1.0), "clipped": (1.5, 1.0), "median": (0.4, 2.5)}
WILD = 20.0
SIZE_RATE = 0.005
YOUNG = 20  # errors before any is clipped
TINY = 1e-30  # variance of a coefficient
AGE = 40  # rows that a stream must have for each row of a block


class Layout(Source, Protocol):
    """What a regressor is made of. With `shared`, channels share one regressor and covariance."""

    size: int

    def build(self, past: View, back: int, count: int) -> Array:
        """`(G, count, n)`: those of `count` origins, the last of which lies `back` rows before the newest row."""


class Knobs(NamedTuple):
    """How one least-squares expert learns."""

    forgetting: float
    ridge: float = 1.0
    rows: int = 8
    heads: tuple[str, ...] = ("plain", "clipped")
    #: Whether it sees rows without jumps.
    even: bool = False


class LeastSquares:
    """The heads of one regressor as experts.

    Args:
        name: Of the regressor.
        layout: What it is made of.
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.
        knobs: How it learns.
    """

    def __init__(self, name: str, layout: Layout, channels: int, horizon: int, knobs: Knobs) -> None:
        self.names = tuple(f"{name}_{head}" for head in knobs.heads)
        self._layout, self._knobs, self._horizon = layout, knobs, horizon
        self._groups = 1 if layout.shared else channels
        self._outputs = horizon * (channels if layout.shared else 1)
        size, heads = layout.size, len(knobs.heads)
        self._covariance = np.tile(np.eye(size) / knobs.ridge, (self._groups, 1, 1))
        self._weights = np.zeros((self._groups, size, heads * self._outputs))
        self._rounded = self._weights.astype(np.float32)  # what forecasts are made with: half as much to read
        self._error = np.zeros((self._groups, 1, heads * self._outputs))  # running mean size
        self._errors = np.zeros((self._groups, 1, heads * self._outputs))  # how many are in it
        self._clip, self._lift = (np.repeat([HEADS[head][k] for head in knobs.heads], self._outputs) for k in (0, 1))
        self._counts = np.zeros(3, dtype=np.int64)  # rows waiting; the next coefficient to be renewed; fresh starts
        self._due = np.zeros(1)
        self._native = Native[Solver]()

    def observe(self, past: Past) -> None:
        """Count the example that the newest row completes; take a block of them in when it is full."""
        solver = self._solver(past.channels)
        if solver is not None:
            solver.observe(past)
            return
        if past.seen <= self._horizon:
            return
        self._counts[0] += 1
        turned = int(past.turned[0])
        if turned == WINDOW + self._horizon:
            self._loosen()
        # The first examples are taken in as they come: as long as there is little to know, nothing waits.
        rows = max(1, min(self._knobs.rows if turned < 0 else HURRIED, past.seen // AGE))
        if self._counts[0] >= rows:
            self._take_in(past, min(int(self._counts[0]), past.keep // 2))
            self._counts[0] = 0

    def _view(self, past: Past) -> View:
        return Even(past) if self._knobs.even else past

    def _loosen(self) -> None:
        """Let the rows so far count a fraction; but no coefficient becomes freer than the ridge lets it be by itself.

        Where the rows say nothing, a covariance that was multiplied at every turn would grow without bound.
        """
        variance = np.maximum(np.diagonal(self._covariance, axis1=1, axis2=2), TINY)  # (G, n)
        root = np.sqrt(np.clip(LOOSER / self._knobs.ridge / variance, 1.0, LOOSER))
        self._covariance *= root[:, :, None] * root[:, None, :]

    def _take_in(self, past: Past, count: int) -> None:
        horizon, knobs = self._horizon, self._knobs
        x = self._layout.build(self._view(past), horizon, count)  # (G, k, n)
        labels, known = self._labels(past, count)  # (G, k, m) each
        heads = len(knobs.heads)
        error = np.tile(labels, heads) - x @ self._weights
        error = self._clipped(error, np.tile(known, heads))
        silent = np.asarray(~known.any(2))
        if silent.any():
            x = np.where(silent[:, :, None], 0.0, x)
        x, error = self._with_ridge(x, error, count)
        forget = knobs.forgetting**count
        p, xt = torch.from_numpy(self._covariance), torch.from_numpy(np.ascontiguousarray(x))
        gain = torch.bmm(xt, p)  # (G, k, n), of a symmetric matrix
        inner = torch.bmm(gain, xt.transpose(1, 2))
        inner.diagonal(dim1=1, dim2=2).add_(forget)
        root, failed = torch.linalg.cholesky_ex(inner)
        half = torch.linalg.solve_triangular(root, gain, upper=False)  # (G, k, n)
        moved = torch.linalg.solve_triangular(root, torch.from_numpy(error), upper=False)
        bad = failed.ne(0) | ~(half.sum((1, 2)) + moved.sum((1, 2))).isfinite()
        half[bad], moved[bad] = 0.0, 0.0
        torch.from_numpy(self._weights).baddbmm_(half.transpose(1, 2), moved)
        np.copyto(self._rounded, self._weights, casting="same_kind")
        p.baddbmm_(half.transpose(1, 2), half, beta=1 / forget, alpha=-1 / forget)
        for group in np.flatnonzero(bad.numpy()):
            self._restart(int(group))

    def _labels(self, past: Past, count: int) -> tuple[Array, Flags]:
        """Changes from the last value of each origin, and which are known; `(G, count, m)`."""
        horizon = self._horizon
        rows = self._view(past).clean(count + horizon)
        base = rows[:count]
        ahead = np.lib.stride_tricks.sliding_window_view(rows[1:], horizon, axis=0)  # (count, C, H)
        known = np.lib.stride_tricks.sliding_window_view(past.known_last(count + horizon - 1), horizon, axis=0)
        change = ahead - base[:, :, None]
        if self._groups == 1 and self._layout.shared:
            return change.reshape(1, count, -1), known.reshape(1, count, -1)
        return change.transpose(1, 0, 2), known.transpose(1, 0, 2)

    def _clipped(self, error: Array, known: Flags) -> Array:
        """Errors held to their usual size, zero where unknown; the size follows."""
        young = self._errors < YOUNG
        limit, wild = np.where(young, np.inf, self._clip * self._error), np.where(young, np.inf, WILD * self._error)
        size = np.where(known, np.minimum(np.abs(error), wild), 0.0).sum(1, keepdims=True)
        error = np.where(known, np.where(young, 1.0, self._lift) * np.clip(error, -limit, limit), 0.0)
        count = known.sum(1, keepdims=True) * ((size > 0) | (self._errors > 0))
        self._errors += count
        rate = np.minimum(1.0, count * np.maximum(SIZE_RATE, 1 / np.maximum(self._errors, 1)))
        self._error += rate * (size / np.maximum(count, 1) - self._error)
        return error

    def _with_ridge(self, x: Array, error: Array, count: int) -> tuple[Array, Array]:
        """The block with the coefficients whose ridge has half faded added as observations of zero."""
        size = self._layout.size
        first, due = self._renewed(count)
        if not due:
            return x, error
        places = (first + np.arange(due)) % size
        strength = math.sqrt(self._knobs.ridge / 2)
        rows = np.zeros((self._groups, due, size))
        rows[:, np.arange(due), places] = strength
        return np.concatenate([x, rows], 1), np.concatenate([error, -strength * self._weights[:, places]], 1)

    def _renewed(self, count: int) -> tuple[int, int]:
        """The first of the coefficients whose ridge has half faded with `count` rows more, and how many they are."""
        size = self._layout.size
        self._due += size * count * -math.log(self._knobs.forgetting) / math.log(2)
        due = min(int(self._due[0]), size)
        self._due -= due
        first = int(self._counts[1])
        self._counts[1] = (first + due) % size
        return first, due

    def _restart(self, group: int) -> None:
        """Rounding has spoiled the covariance, or a value was beyond all bounds: begin again from the ridge."""
        self._covariance[group] = np.eye(self._layout.size) / self._knobs.ridge
        if not np.isfinite(self._weights[group]).all():
            self._weights[group] = self._rounded[group] = 0.0
        self._counts[2] += 1

    def forecast(self, past: Past, out: Array) -> None:
        """The last value and what the weights add to it."""
        solver = self._solver(past.channels)
        if solver is not None and out.flags.c_contiguous:
            solver.forecast(past, at(out))
            return
        view, jumps = self._view(past), past.jumps
        x = self._layout.build(view, 0, 1)
        change = x.astype(np.float32) @ self._rounded
        heads, channels = len(self.names), past.channels
        begin = view.clean(1) + jumps.lift if self._knobs.even else jumps.begin
        if self._layout.shared:
            np.add(change.reshape(heads, channels, -1).transpose(0, 2, 1), begin, out=out)
        else:
            np.add(change.reshape(channels, heads, -1).transpose(1, 2, 0), begin, out=out)

    def arrays(self) -> Arrays:
        """The solution so far and what goes with it."""
        return {
            "covariance": self._covariance,
            "weights": self._weights,
            "rounded": self._rounded,
            "error": self._error,
            "errors": self._errors,
            "counts": self._counts,
            "due": self._due,
        }

    def native(self, past: Past, /) -> Place | None:
        """As `Group.native`."""
        solver = self._solver(past.channels)
        return None if solver is None else ("least squares", solver.address())

    def _solver(self, channels: int) -> Solver | None:
        """The same in C, where it can be had."""
        library, knobs = self._native.library, self._knobs
        if self._native.made is None and library is not None:
            arrays = self.arrays() | {"clip": self._clip, "lift": self._lift}
            self._native.made = Solver(library, self._layout, channels, self._horizon, arrays, knobs)
        return self._native.made
