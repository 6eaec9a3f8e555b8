"""Analogs: what came after the rows of the past that were most like the last ones.

A regression knows one rule for all rows. Here nothing is fitted: the last rows are compared with every stretch of the
past, and the forecast is the median of what followed the few stretches that were nearest. That finds what is not
linear (a burst that always has the same shape, a day that begins as only Mondays do) from the second time on, and
being a median it is made for the absolute loss.

How far the stretch that ends `lag` rows ago is from the last rows needs no stretch to be gone through:

`distance[lag] ← fade · distance[lag] + |x_t - x_{t-lag}|`

is the sum over all rows before, each counting `fade` times the one after it: one multiplication a lag and row, and how
long a stretch is, is said by `fade` alone. It is measured on values or on their changes from row to row, for each
channel, or over all channels together, each in units of its usual change.

What followed is taken as it was, or moved to where the stream is now: wholly, or so that this wears off. Where a stream
has a season, most kinds look only at lags of whole days or weeks, and a few rows to either side of them.
"""

from __future__ import annotations

import ctypes
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natsr.experts.native import Alike, Native, Place, address, at, fill
from natsr.experts.past import LARGEST, Array, Arrays, Past

#: What is left of a move one row later where it wears off.
WEARING = 0.9
#: Rows after which next to nothing is left of a distance.
REMEMBERED = 100
#: Stretches that a forecast can be the median of; as in analogs.c.
MOST_KEPT = 31
#: Numbers that the newest row is repeated to in C, at least; as in analogs.c.
TILE = 512
#: What followed a stretch is taken as it was, moved to where the stream is now, or moved less and less.
Move = Literal["as it was", "wholly", "wearing off"]


class Measure(NamedTuple):
    """How alike two stretches are: by values or by changes, and what a row counts beside the one after it."""

    changes: bool
    fade: float


class Kind(NamedTuple):
    """One expert.

    Attributes:
        name: Of the expert.
        measure: How alike stretches are.
        stretches: How many are in the median; odd.
        move: What is done with what followed.
        period: Lags are whole numbers of these rows; an array of one, shared with whoever may change it; all if `None`.
        near: And so many rows to either side.
        together: Whether all channels are compared at once.
    """

    name: str
    measure: Measure
    stretches: int
    move: Move
    period: Arrays | None = None
    near: int = 0
    together: bool = False


class Analogs:
    """Several kinds of analogs of one stream.

    Args:
        kinds: Which.
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.
        lags: How far back stretches may end.
    """

    def __init__(self, kinds: tuple[Kind, ...], channels: int, horizon: int, lags: int) -> None:
        if any(not 1 <= kind.stretches <= MOST_KEPT for kind in kinds):
            raise ValueError(f"a median is of 1 to {MOST_KEPT} stretches, got {[kind.stretches for kind in kinds]}")
        self.names = tuple(kind.name for kind in kinds)
        self._kinds, self._lags, self._horizon = kinds, lags, horizon
        measures = tuple(dict.fromkeys(kind.measure for kind in kinds))
        self._measures = measures
        self._distance = np.zeros((len(measures), lags, channels))  # the longest lag first
        worn = np.power(WEARING, np.arange(1.0, horizon + 1))
        ways: dict[Move, Array] = {"as it was": np.zeros(horizon), "wholly": np.ones(horizon), "wearing off": worn}
        self._moved = np.stack([ways[kind.move] for kind in kinds])
        self._any = np.ones(1, dtype=np.int64)
        self._native = Native[tuple[Alike, list[object]]]()

    def observe(self, past: Past) -> None:
        """Take the newest row into the distances."""
        library = self._native.library
        if library is not None:
            library.analogs_observe(self._address(), past.address())
            return
        self._take(self._distance, past.last(self._lags + 2))

    def _take(self, distances: Array, rows: Array) -> None:
        """Take the last of `lags + 2` rows into distances."""
        rows = np.clip(rows, -LARGEST, LARGEST)
        changes = np.diff(rows, axis=0)
        for distance, measure in zip(distances, self._measures, strict=True):
            of = changes if measure.changes else rows[1:]
            distance *= measure.fade
            distance += np.abs(of[-1] - of[:-1])

    def forecast(self, past: Past, out: Array) -> None:
        """The medians; where nothing has been seen that could be compared, where the stream is now."""
        library = self._native.library
        if library is not None and out.flags.c_contiguous:
            library.analogs_forecast(self._address(), past.address(), at(out))
            return
        for kind, moved, answer in zip(self._kinds, self._moved, out, strict=True):
            lags = self._candidates(kind, min(self._lags, past.seen - 1))
            distance = self._distance[self._measures.index(kind.measure), self._lags - lags]
            if kind.together:
                distance = self._over_channels(past, distance)
            for channel in range(past.channels):
                near = lags[np.argsort(distance[:, 0 if kind.together else channel], kind="stable")[: kind.stretches]]
                answer[:, channel] = self._after(past, near, moved, channel)

    def _candidates(self, kind: Kind, high: int) -> npt.NDArray[np.int64]:
        """The lags that are looked at, the shortest first: those of which all rows that follow are known."""
        lags = np.arange(self._horizon, high + 1)
        period = 1 if kind.period is None else int(kind.period["period"][0])
        if period <= 2 * kind.near + 1:
            return lags
        off = (lags + kind.near) % period
        return lags[(off <= 2 * kind.near) & (lags >= period - kind.near)]

    @staticmethod
    def _over_channels(past: Past, distance: Array) -> Array:
        sums, size = np.zeros((len(distance), 1)), past.size()
        for channel in np.flatnonzero(size > 0).tolist():
            sums[:, 0] += distance[:, channel] * (1 / size[channel])
        return sums

    @staticmethod
    def _after(past: Past, lags: npt.NDArray[np.int64], moved: Array, channel: int) -> Array:
        begin = past.jumps.begin[:, channel]
        if not len(lags):
            return begin
        rows = np.clip(past.last(int(lags.max()) + 1)[:, channel], -LARGEST, LARGEST)
        then = len(rows) - 1 - lags
        followed = rows[then + np.arange(1, len(moved) + 1)[:, None]]
        return np.asarray(np.median(followed + moved[:, None] * (begin[:, None] - rows[then]), axis=1))

    def _address(self) -> int:
        made = self._native.made
        if made is None:
            kinds, measures = self._kinds, self._measures
            alike = Alike(len(kinds), len(measures), self._horizon, self._lags, largest=LARGEST)
            channels = self._distance.shape[2]
            whole: dict[str, list[int]] = {
                "by_changes": [measure.changes for measure in measures],
                "measure": [measures.index(kind.measure) for kind in kinds],
                "together": [kind.together for kind in kinds],
                "near": [kind.near for kind in kinds],
                "count": [kind.stretches for kind in kinds],
            }
            arrays: Arrays = {name: np.array(numbers, dtype=np.int64) for name, numbers in whole.items()}
            arrays["fade"] = np.array([measure.fade for measure in measures])
            # A channel's unit and limit, rows and beginnings, lags and distances; the newest row and change, repeated.
            each = 2 + self._lags + 1 + self._horizon + 2 * MOST_KEPT + 1
            arrays["work"] = np.zeros(each * channels + 2 * max(TILE, channels))
            arrays |= {"distance": self._distance, "moved": self._moved}
            fill(alike, **arrays)
            periods = [self._any if kind.period is None else kind.period["period"] for kind in kinds]
            places = (ctypes.c_void_p * len(kinds))(*(at(period) for period in periods))
            alike.periods = address(places)
            made = self._native.made = alike, [arrays, periods, places]
        return address(made[0])

    def native(self, _: Past, /) -> Place | None:
        """As `Group.native`."""
        return None if self._native.library is None else ("analogs", self._address())

    def of_rows(self, rows: Array) -> Arrays:
        """What `arrays` would be after these rows, newest last, but for what rows long before them have left."""
        newest = min(REMEMBERED, max(1, len(rows) - self._lags - 1))
        rows = np.concatenate([rows[:1]] * max(0, self._lags + 1 + newest - len(rows)) + [rows])
        found = np.zeros_like(self._distance)
        for place in range(len(rows) - newest, len(rows)):
            self._take(found, rows[place - self._lags - 1 : place + 1])
        return {"distance": found}

    def arrays(self) -> Arrays:
        """The distances."""
        return {"distance": self._distance}
