"""What the regressors of least squares are made of: lags, seasons, the calendar's waves, the other channels.

Every layout gives `(G, count, n)` for `count` origins in a row. Values enter as differences from the origin's own last
value, so that weights of zero mean the last value; that value and a one follow.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from natsr.experts.past import Array, Arrays, Past


def _windows(past: Past, back: int, count: int, lags: int) -> Array:
    """The last `lags` rows up to each origin, `(count, C, lags)`."""
    rows = past.clean(count + lags - 1, back)
    row, column = rows.strides
    return as_strided(rows, (count, past.channels, lags), (row, column, row), writeable=False)


class Own:
    """A channel's own lags.

    Args:
        lags: How many; the oldest is so many rows back.
        waves: Pairs of a period and the number of its harmonics.
    """

    shared = False

    def __init__(self, lags: int, waves: Waves | None = None) -> None:
        self._lags, self._waves = lags, waves
        self.size = lags + 1 + (waves.size if waves else 0)

    def build(self, past: Past, back: int, count: int) -> Array:
        """Differences, the last value, one, and waves."""
        lags = self._lags
        windows = _windows(past, back, count, lags).transpose(1, 0, 2)
        x = np.empty((past.channels, count, self.size))
        last = windows[:, :, -1:]
        np.subtract(windows[:, :, :-1], last, out=x[:, :, : lags - 1])
        x[:, :, lags - 1 : lags] = last
        x[:, :, lags] = 1.0
        if self._waves:
            x[:, :, lags + 1 :] = self._waves.build(past, back, count)
        return x


class Waves:
    """Sines and cosines of the row number: the calendar as far as it repeats.

    Args:
        periods: Arrays of one, in rows; shared with whoever may change them.
        harmonics: How many of each.
    """

    def __init__(self, periods: tuple[Arrays, ...], harmonics: tuple[int, ...]) -> None:
        self._periods = tuple(period["period"] for period in periods)
        self._harmonics = harmonics
        self.size = 2 * sum(harmonics)

    def build(self, past: Past, back: int, count: int) -> Array:
        """`(count, size)`; zero where a period is too short for a harmonic."""
        rows = np.arange(past.seen - back - count, past.seen - back, dtype=np.float64)
        parts = []
        for period, harmonics in zip(self._periods, self._harmonics, strict=True):
            length = int(period[0])
            number = np.arange(1, harmonics + 1)
            angle = 2 * np.pi / length * (rows[:, None] * number % length)
            there = 2 * number < length
            parts += [np.where(there, np.sin(angle), 0.0), np.where(there, np.cos(angle), 0.0)]
        return np.concatenate(parts, 1)


class Seasons:
    """A few own lags, and the neighbourhood of the target one or more periods before; with waves.

    Args:
        lags: Own lags.
        periods: Arrays of one, in rows; shared with whoever may change them.
        horizon: Rows ahead: the neighbourhood reaches over all of them.
        points: Values taken in each neighbourhood.
        waves: The calendar.
    """

    shared = False

    def __init__(self, lags: int, periods: tuple[Arrays, ...], horizon: int, points: int, waves: Waves) -> None:
        self._own = Own(lags, waves)
        self._periods = tuple(period["period"] for period in periods)
        # From one row before the origin's counterpart to the horizon's.
        self._offsets = np.unique(np.linspace(-1, horizon + 1, min(points, horizon + 3)).round().astype(np.int64))
        self.size = self._own.size + len(self._periods) * len(self._offsets)

    def build(self, past: Past, back: int, count: int) -> Array:
        """As `Own`, then the neighbourhoods, as differences from the last value."""
        x = np.empty((past.channels, count, self.size))
        x[:, :, : self._own.size] = self._own.build(past, back, count)
        last = past.clean(count, back)
        place = self._own.size
        for period in self._periods:
            length = int(period[0])
            reach = length + 1  # the oldest offset is one row before the counterpart
            rows = past.clean(count + reach, back)
            # A target further ahead than a period has its counterpart in the period before.
            offsets = np.where(self._offsets > 0, (self._offsets - 1) % length + 1, self._offsets)
            at = np.arange(count)[:, None] + 1 + np.minimum(offsets, length)
            x[:, :, place : place + len(offsets)] = (rows[at] - last[:, None]).transpose(2, 0, 1)
            place += len(offsets)
        return x


class Neighbours:
    """A channel's own lags, and a few of each other channel's.

    Args:
        lags: Own lags.
        others: Lags of each other channel.
        channels: Values in a row.
        waves: The calendar.
    """

    shared = False

    def __init__(self, lags: int, others: int, channels: int, waves: Waves) -> None:
        self._own, self._others = Own(lags, waves), others
        self.size = self._own.size + others * (channels - 1)
        index = np.array([[j for j in range(channels) if j != c] for c in range(channels)], dtype=np.int64)
        self._index = index.reshape(channels, channels - 1)

    def build(self, past: Past, back: int, count: int) -> Array:
        """As `Own`, then the others: their last value and changes before it."""
        x = np.empty((past.channels, count, self.size))
        x[:, :, : self._own.size] = self._own.build(past, back, count)
        windows = np.array(_windows(past, back, count, self._others + 1))  # (count, C, others + 1)
        changes = np.diff(windows, axis=2)
        changes[:, :, 0] = windows[:, :, -1]  # in place of the oldest change, the level
        chosen = changes[:, self._index]  # (count, C, C - 1, others)
        x[:, :, self._own.size :] = chosen.transpose(1, 0, 2, 3).reshape(past.channels, count, -1)
        return x


class Everything:
    """Lags of all channels, one regressor for all of them; with waves.

    Args:
        lags: Of each channel.
        channels: Values in a row.
        waves: The calendar.
    """

    shared = True

    def __init__(self, lags: int, channels: int, waves: Waves) -> None:
        self._own = Own(lags)
        self._waves = waves
        self._channels = channels
        self.size = lags * channels + 1 + waves.size

    def build(self, past: Past, back: int, count: int) -> Array:
        """`(1, count, n)`."""
        x = np.empty((1, count, self.size))
        own = self._own.build(past, back, count)  # (C, count, lags + 1)
        wide = (self._own.size - 1) * self._channels
        x[0, :, :wide] = own[:, :, :-1].transpose(1, 0, 2).reshape(count, wide)
        x[0, :, wide] = 1.0
        x[0, :, wide + 1 :] = self._waves.build(past, back, count)
        return x


class Turned:
    """Own lags of the series without its season: changes from the value one period before.

    Args:
        lags: How many.
        period: An array of one, in rows; shared with whoever may change it.
    """

    shared = False

    def __init__(self, lags: int, period: Arrays) -> None:
        self._lags, self._period = lags, period["period"]
        self.size = 2 * lags + 1

    def build(self, past: Past, back: int, count: int) -> Array:
        """Own lags, seasonal differences and one."""
        lags, length = self._lags, int(self._period[0])
        x = np.empty((past.channels, count, self.size))
        now = _windows(past, back, count, lags).transpose(1, 0, 2)
        then = _windows(past, back + length, count, lags).transpose(1, 0, 2)
        last = now[:, :, -1:]
        np.subtract(now[:, :, :-1], last, out=x[:, :, : lags - 1])
        x[:, :, lags - 1 : lags] = last
        np.subtract(now, then, out=x[:, :, lags : 2 * lags])
        x[:, :, 2 * lags] = 1.0
        return x
