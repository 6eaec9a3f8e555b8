"""Level, damped trend and season, moved by each row's score: Holt-Winters, and its score-driven kin.

With Gaussian errors the score is the error and the recursions are Holt and Winters' own. With Student-t errors of `nu`
degrees of freedom the score of a large error is small, `e (nu + 1) / (nu + e^2 / v)`, and the variance `v` is moved by
its own score: the filters that NatSR comes from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from natsr.experts.native import Native, Place, Smoothings, address, at, fill
from natsr.experts.past import Array, Arrays, Even, Flags, Past, View

#: Degrees of freedom at which a score is the error itself, to the last digits.
GAUSSIAN = 1e15


class Smoothing(NamedTuple):
    """One expert: the rates of level, trend and season, the damping of the trend, the degrees of freedom."""

    level: float
    season: float
    trend: float = 0.0
    damping: float = 1.0
    dof: float = GAUSSIAN

    @property
    def name(self) -> str:
        """Its rates, in one word."""
        kind = "winters" if self.dof == GAUSSIAN else f"score{self.dof:g}"
        return f"{kind}_{self.level:g}_{self.season:g}" + (f"_{self.trend:g}" if self.trend else "")


class Smooth:
    """Several smoothings that share a period.

    Args:
        name: Of the period.
        period: In rows; an array of one, shared with whoever may change it.
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.
        longest: The longest period that may come.
        kinds: The experts, `S` of them.
        even: Whether they see rows without jumps.
    """

    def __init__(
        self,
        name: str,
        period: Arrays,
        channels: int,
        horizon: int,
        longest: int,
        kinds: tuple[Smoothing, ...],
        even: bool = False,
    ) -> None:
        self.names = tuple(f"{name}_{kind.name}" for kind in kinds)
        self._even = even
        self._period = period["period"]
        self._current = np.array([int(self._period[0]), 0], dtype=np.int64)  # the period, and the phase of the next row
        columns = (np.array([getattr(kind, field) for kind in kinds])[:, None] for field in Smoothing._fields)
        self._alpha, self._gamma, self._beta, self._phi, self._dof = columns
        size = (len(kinds), channels)
        self._level, self._trend = np.zeros(size), np.zeros(size)
        self._variance = np.ones(size)
        self._season = np.zeros((longest, *size))
        self._rows = np.zeros((longest, channels))  # seen in each phase
        self._count = np.zeros(channels)
        self._steps = np.arange(1, horizon + 1)
        powers = self._phi[:, :, None] ** self._steps  # (S, 1, H)
        self._sums = np.cumsum(powers, 2).reshape(len(kinds), horizon, 1)  # the damped trend so far
        self._native = Native[Smoothings]()

    def observe(self, past: Past) -> None:
        """Move everything by the score of the newest row."""
        self._keep_up(past)
        if self._native.library is not None:
            self._native.library.smooth_move(self._address(), past.address())
            return
        if self._even:
            self._level += past.jumps.shift
        self._move(self._view(past).clean(1)[0], past.known_last(1)[0])

    def _move(self, row: Array, known: Flags) -> None:
        phase = int(self._current[1])
        self._current[1] = (phase + 1) % int(self._current[0])
        started = self._count > 0
        self._count += known
        self._rows[phase] += known
        season = self._season[phase]
        before = np.where(started, self._level + self._phi * self._trend, row - season)
        error = np.where(known & started, row - before - season, 0.0)
        score = error * (self._dof + 1) / (self._dof + error**2 / self._variance)
        square = score * error
        rate = known * np.maximum(0.01, 1 / np.maximum(self._count, 1))
        self._variance += rate * (np.maximum(square, 1e-12) - self._variance)
        alpha = np.maximum(self._alpha, 1 / np.maximum(self._count, 1))
        self._level[:] = before + alpha * score
        self._trend[:] = self._phi * self._trend + alpha * self._beta * score
        gamma = np.maximum(self._gamma, 0.5 / np.maximum(self._rows[phase], 1))
        if int(self._current[0]) > 1:
            self._season[phase] = season + gamma * (1 - alpha) * score

    def _view(self, past: Past) -> View:
        return Even(past) if self._even else past

    def _keep_up(self, past: Past) -> None:
        """With another period the seasons are learned anew, from the rows that are there."""
        period = int(self._period[0])
        if period == int(self._current[0]):
            return
        self._current[:] = (period, 0)
        self._season[:], self._rows[:] = 0.0, 0.0
        rows = min(past.seen - 1, past.keep - 1, 4 * period)
        cycles = rows // period
        if cycles >= 1:
            values = self._view(past).clean(cycles * period, back=1).reshape(cycles, period, -1)
            self._season[:period] = (values - values.mean(1, keepdims=True)).mean(0)[:, None]
            self._rows[:period] = cycles

    def forecast(self, past: Past, out: Array) -> None:
        """Level, damped trend and season."""
        if self._native.library is not None and out.flags.c_contiguous:
            self._native.library.smooth_forecast(self._address(), past.address(), at(out))
            return
        period, phase = self._current.tolist()
        seasons = self._season[(phase + self._steps - 1) % period]  # (H, S, C)
        np.add(seasons.transpose(1, 0, 2), self._level[:, None], out=out)
        out += self._sums * self._trend[:, None]
        if self._even:
            out += past.jumps.lift

    def native(self, past: Past, /) -> Place | None:
        """As `Group.native`."""
        self._keep_up(past)
        return None if self._native.library is None else ("smooth", self._address())

    def _address(self) -> int:
        """Where compiled code finds all this."""
        made = self._native.made
        if made is None:
            made = self._native.made = Smoothings(len(self.names), len(self._steps), int(self._even))
            names = ("alpha", "gamma", "beta", "phi", "dof", "sums")
            fill(made, **self.arrays(), **{name: getattr(self, f"_{name}") for name in names})
        return address(made)

    def arrays(self) -> Arrays:
        """Everything that the rows have moved."""
        return {
            "current": self._current,
            "level": self._level,
            "trend": self._trend,
            "variance": self._variance,
            "season": self._season,
            "rows": self._rows,
            "count": self._count,
        }
