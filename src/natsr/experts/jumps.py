"""Jumps, and the rows without them: a meter that begins anew, a sensor with a code for its errors, a new level.

A value far beyond all that is usual may be an outlier, and the next row is where it would have been anyway; or the
stream stays there. What is learned must follow neither at once, and a window with a jump in it tells a regression
nothing true for as long as it is in there. So beside the rows with wild values cut there are *even* ones, in which
nothing has happened: while a value is away by `jump`, it is the value less the jump, and what is forecast from even
rows is lifted by it.

- *Leaving.* A change of more than ten times the root mean square of changes. But one that leads back is none: to where
  most of the last rows were, which the stream had left unnoticed; or, unless the stream drifts as a counter does, from
  the edge of what it has been to its middle.
- *Coming back.* The next value is near the even one; or the values have come down to where they left from, step by
  step, and the even ones are where the stream has never been: then it was a burst, and its rows become flat.
- *Staying.* After three days of hours it is the level. Even rows stay where they were, off by it for good (`offset`):
  who has learned from them where the stream comes back to is right at the new level, and no window has an edge in it.
  Where the stream drifts as a counter does all are moved there, or they would be as far off as it has counted.
- *Will it stay?* Of the last excursions that had lasted as long as this one, did more last until the row that is
  forecast, or fewer? As long as nothing is known, one that has just begun is over with the next row if changes are
  usually taken back, as those of noise are; and any other stays.

This is a guess for each step, and it decides for all experts where a forecast begins: `lift` is what is added to one of
even rows, `begin` is where the changes that others forecast are added to.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Arrays = dict[str, npt.NDArray[np.generic]]

# These are in jumps.c too.
#: Rows whose median is where the stream was of late.
AROUND = 31
#: An excursion of more rows than this has become the level.
FOR_GOOD = 72
#: So near, in units of the jump, is there.
NEARLY = 0.25
#: A change to so much of the distance from the median of all rows is one to the middle.
CENTRAL = 1 / 3
#: The mean change in root mean squares from which on a stream drifts.
DRIFTING = 0.3
#: The correlation of changes with those before them below which they are taken back.
TAKEN_BACK = -0.3
#: What an excursion's staying is worth before any have ended, in excursions; and a step ahead no longer than it has
#: lasted.
HOPE, SURE = 0.5, 2.0

#: Excursions that are remembered.
MEMORY = 16
_EVER = np.iinfo(np.int32).max


class Jumps:
    """Follows the jumps of one stream, each channel for itself.

    Args:
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.

    Attributes:
        lift: What is added to forecasts of even rows, `(H, C)`.
        begin: Where the changes that are forecast from other rows begin, `(H, C)`.
        stays: Whether the stream is at a jump, and is taken to be there at the row that is forecast, `(H, C)`.
        shift: By how much all even rows are to be moved with the newest row, `(C,)`.
        offset: How far even rows are from the stream for good, `(C,)`.
        age: Rows at this jump, `(C,)`; 0 where there is none.
    """

    def __init__(self, channels: int, horizon: int) -> None:
        self.lift, self.begin = np.zeros((horizon, channels)), np.zeros((horizon, channels))
        self.stays = np.zeros((horizon, channels), dtype=bool)
        self.shift, self.offset = np.zeros(channels), np.zeros(channels)
        self.calm, self._cross, self._drift = (np.zeros(channels) for _ in range(3))  # of even changes: means of
        # their squares, of their products with the ones before, and of themselves
        self._jump, self._start = np.zeros(channels), np.zeros(channels)  # its size, and the even value before it
        self._low, self._high = np.zeros(channels), np.zeros(channels)  # of all even values before it
        self.age = np.zeros(channels, dtype=np.int64)
        self._away = np.zeros(channels, dtype=np.int64)  # rows since the first of those that followed each other
        self._ended = np.zeros(channels, dtype=np.int64)  # how many have
        self._lasted = np.zeros((MEMORY, channels), dtype=np.int64)  # the last of them

    def follow(
        self, rows: Array, row: Array, known: Flags, most: Array, rate: Array, tame: tuple[float, float]
    ) -> Array:
        """The next even row, `(C,)`.

        Args:
            rows: Those before it, newest last; the first is repeated where there are fewer. Those since a jump are
                changed where it turns out what it was.
            row: What came.
            known: Whether it came.
            most: The largest change that is not beyond all that is usual.
            rate: The weight of the newest change.
            tame: From so many times the most on a change is wild beyond all bounds; so much of the most it counts as.
        """
        row = row - self.offset
        before, earlier = rows[-1].copy(), rows[-1] - rows[-2]
        moved = np.where(known, row - self._jump - before, 0.0)
        change = np.clip(moved, -most, most)
        counted = np.where(np.abs(moved) > tame[0] * most, tame[1], 1.0) * change
        self.shift[:] = 0.0
        self._away += ~known & (self.age > 0)
        even = np.where(known, row, before)
        for channel in np.flatnonzero(known & ((self.age > 0) | (np.abs(row - before) > most))).tolist():
            even[channel] = self._without(channel, rows[:, channel], float(row[channel]), float(most[channel]))
        self.calm += rate * (counted**2 - self.calm)
        self._cross += rate * (counted * earlier - self._cross)
        self._drift += np.where(np.abs(change) < most, rate, 0.0) * (change - self._drift)
        return even

    def _without(self, channel: int, rows: Array, value: float, limit: float) -> float:
        """The next value without jumps."""
        before, jump = float(rows[-1]), float(self._jump[channel])
        on, back = abs(value - jump - before), abs(value - before)
        if self.age[channel] == 0:
            if on <= limit or self._comes_home(channel, rows, value):
                return value
            self._jump[channel], self._start[channel] = value - before, before
            self._low[channel], self._high[channel] = rows.min(), rows.max()
            self.age[channel] = self._away[channel] = 1
            return before
        if back < on and back <= max(limit, NEARLY * abs(jump)):
            self._settle(channel, int(self.age[channel]))
            return value
        if on > limit:
            self._remember(channel, int(self.age[channel]))
            self.age[channel], self._jump[channel] = 1, value - before
            self._away[channel] += 1
            return before
        now, away = value - jump, min(int(self._away[channel]), len(rows) - 1)
        returned = abs(value - self._start[channel]) < NEARLY * abs(jump)
        if returned and not self._low[channel] <= now <= self._high[channel]:
            rows[len(rows) - away :] = self._start[channel]
            self._settle(channel, int(self.age[channel]))
            return value
        self.age[channel] += 1
        if self.age[channel] > FOR_GOOD:
            self._settle(channel, _EVER)
            if self._drifts(channel):
                self.shift[channel] = jump
                return value
            self.offset[channel] += jump
            return now
        self._away[channel] += 1
        return now

    def _comes_home(self, channel: int, rows: Array, value: float) -> bool:
        """Whether a change beyond all that is usual leads back to where the stream is at home."""
        before = rows[-1]
        if abs(value - _middle(rows[-AROUND:])) <= NEARLY * abs(value - before):
            return True
        if self._drifts(channel):
            return False
        centre = _middle(rows)
        return bool(abs(value - centre) <= CENTRAL * abs(before - centre))

    def _drifts(self, channel: int) -> bool:
        return bool(abs(self._drift[channel]) >= DRIFTING * np.sqrt(self.calm[channel]))

    def _settle(self, channel: int, lasted: int) -> None:
        self._remember(channel, lasted)
        self.age[channel] = self._away[channel] = 0
        self._jump[channel] = 0.0

    def _remember(self, channel: int, lasted: int) -> None:
        self._lasted[self._ended[channel] % MEMORY, channel] = lasted
        self._ended[channel] += 1

    def look_ahead(self, raw: Array, clean: Array, base: Array) -> None:
        """From where forecasts begin.

        Args:
            raw: The newest row.
            clean: The same with wild values cut.
            base: Where changes begin that are forecast from that, while there is no jump.
        """
        steps = np.arange(len(self.lift))[:, None]
        first = np.where(self._cross > TAKEN_BACK * self.calm, HOPE, -HOPE)
        stays = np.where(self.age < 2, first, np.where(steps < self.age, SURE, HOPE))  # (H, C)
        count = np.minimum(self._ended, MEMORY)
        rows = self._lasted[:, None]  # (MEMORY, 1, C)
        counts = (np.arange(MEMORY)[:, None] < count)[:, None] & (rows >= self.age) & (self.age > 0)
        stays = stays + np.where(counts, np.where(rows < self.age + 1 + steps, -1.0, 1.0), 0.0).sum(0)
        self.lift[:] = self.offset + np.where(stays >= 0, self._jump, 0.0)
        self.stays[:] = (stays >= 0) & (self.age > 0)
        self.begin[:] = np.where(self.age == 0, base, np.where(stays >= 0, raw, clean))

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "calm": self.calm,
            "cross": self._cross,
            "drift": self._drift,
            "jump": self._jump,
            "offset": self.offset,
            "start": self._start,
            "low": self._low,
            "high": self._high,
            "age": self.age,
            "away": self._away,
            "ended": self._ended,
            "lasted": self._lasted,
        }


def _middle(values: Array) -> float:
    return float(np.partition(values, len(values) // 2)[len(values) // 2])
