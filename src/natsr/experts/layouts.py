"""What the regressors of least squares are made of: lags, seasons, the calendar's waves, the other channels.

Every layout gives `(G, count, n)` for `count` origins in a row. Values enter as differences from the origin's own last
value, so that weights of zero mean the last value; that value and a one follow. `columns` describes the same for
compiled code; it changes when one of `periods` does.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from natsr.experts import columns
from natsr.experts.columns import Columns, Period, Places
from natsr.experts.past import Array, Arrays, Even, View


class Lags:
    """The lags of every channel, computed once for all that want them.

    Args:
        longest: The most that anyone wants.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._key: tuple[bool, int, int, int] = (False, -1, 0, 0)
        self._found = np.zeros((0, 0, 0))

    def build(self, past: View, back: int, count: int) -> Array:
        """`(C, count, longest + 1)`: one, the last value, and how far each row before it lies from it, newest first.

        What belongs to fewer lags is the beginning of it.
        """
        key = (isinstance(past, Even), past.seen, back, count)
        if key != self._key:
            windows = windowed(past, back, count, self._longest)
            found = np.empty((past.channels, count, self._longest + 1))
            found[:, :, 0] = 1.0
            found[:, :, 1] = windows[:, :, 0]
            np.subtract(windows[:, :, 1:], windows[:, :, :1], out=found[:, :, 2:])
            self._key, self._found = key, found
        return self._found

    def __deepcopy__(self, memo: dict[int, object]) -> Lags:
        """A copy without what can be computed again: it may see other rows under the same numbers."""
        fresh = Lags(self._longest)
        memo[id(self)] = fresh
        return fresh


def windowed(past: View, back: int, count: int, lags: int) -> Array:
    """The last `lags` rows up to each origin, newest first, `(C, count, lags)`."""
    rows = past.clean(count + lags - 1, back)
    row, column = rows.strides
    return as_strided(rows[lags - 1 :], (past.channels, count, lags), (column, row, -row), writeable=False)


class Own:
    """A channel's own lags.

    Args:
        lags: Shared by all layouts of a stream.
        count: How many; the oldest is so many rows back.
    """

    shared = False

    def __init__(self, lags: Lags, count: int) -> None:
        self._lags = lags
        self.size = count + 1
        self.periods: tuple[Period, ...] = ()

    def build(self, past: View, back: int, count: int) -> Array:
        """One, the last value, and differences from it."""
        return self._lags.build(past, back, count)[:, :, : self.size]

    def columns(self, channels: int) -> Columns:
        """As above."""
        rows = [np.concatenate([columns.room(1), columns.own(self.size - 1, channel)]) for channel in range(channels)]
        return Columns(np.stack(rows), one=0)


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
        self._key: tuple[int, ...] = ()
        self._found = np.zeros((0, 0))

    def build(self, past: View, back: int, count: int) -> Array:
        """Those of `count` origins, `(count, size)`."""
        key = (past.seen, back, count, *(int(period[0]) for period in self._periods))
        if key != self._key:
            rows = np.arange(past.seen - back - count, past.seen - back, dtype=np.float64)
            self._key, self._found = key, self.at(rows)
        return self._found

    def swung(self, past: View, back: int, count: int) -> Array:
        """The same times how far each channel swings of late, `(C, count, size)`."""
        return np.asarray(past.swing(count, back).T[:, :, None] * self.build(past, back, count))

    def at(self, rows: Array) -> Array:
        """Those of rows by number, `(T, size)`; zero where a period is too short for a harmonic."""
        parts = []
        for period, harmonics in zip(self._periods, self._harmonics, strict=True):
            length = int(period[0])
            number = np.arange(1, harmonics + 1)
            angle = 2 * np.pi / length * (rows[:, None] * number % length)
            there = 2 * number < length
            parts += [np.where(there, np.sin(angle), 0.0), np.where(there, np.cos(angle), 0.0)]
        return np.concatenate(parts, 1)

    def kinds(self) -> tuple[tuple[Period, int], ...]:
        """Each period, and how many harmonics of it."""
        return tuple(zip(self._periods, self._harmonics, strict=True))


class Seasons:
    """A few own lags, and the neighbourhood of the target one or more periods before; with waves.

    Args:
        own: Own lags.
        periods: Arrays of one, in rows; shared with whoever may change them.
        horizon: Rows ahead: the neighbourhood reaches over all of them.
        points: Values taken in each neighbourhood.
        waves: The calendar.
    """

    shared = False

    def __init__(self, own: Own, periods: tuple[Arrays, ...], horizon: int, points: int, waves: Waves) -> None:
        self._own, self._waves = own, waves
        self.periods: tuple[Period, ...] = tuple(period["period"] for period in periods)
        # From one row before the origin's counterpart to the horizon's.
        self._offsets = np.unique(np.linspace(-1, horizon + 1, min(points, horizon + 3)).round().astype(np.int64))
        self.size = own.size + waves.size + len(self.periods) * len(self._offsets)

    def build(self, past: View, back: int, count: int) -> Array:
        """As `Own`, then waves, then the neighbourhoods, as differences from the last value."""
        x = np.empty((past.channels, count, self.size))
        place = self._own.size + self._waves.size
        x[:, :, : self._own.size] = self._own.build(past, back, count)
        x[:, :, self._own.size : place] = self._waves.swung(past, back, count)
        last = past.clean(count, back)
        for period in self.periods:
            length = int(period[0])
            rows = past.clean(count + length + 1, back)  # the oldest offset is one row before the counterpart
            offsets = self._around(length)
            at = np.arange(1, count + 1)[:, None] + offsets
            x[:, :, place : place + len(offsets)] = (rows[at] - last[:, None]).transpose(2, 0, 1)
            place += len(offsets)
        return x

    def _around(self, length: int) -> Places:
        """A target further ahead than a period has its counterpart in the period before."""
        return np.where(self._offsets > 0, (self._offsets - 1) % length + 1, self._offsets)

    def columns(self, channels: int) -> Columns:
        """As above."""
        own, found = self._own.columns(channels), []
        for channel in range(channels):
            parts = [own.places[channel], columns.room(self._waves.size)]
            for length in (int(period[0]) for period in self.periods):
                parts.append(columns.differences(self._around(length) - length, channel, 0))
            found.append(np.concatenate(parts))
        return Columns(np.stack(found), own.one, self._own.size, self._waves.kinds())


class Neighbours:
    """A channel's own lags, and a few of each other channel's; with waves.

    Args:
        own: Own lags.
        others: Lags of each other channel.
        near: How many other channels: those that follow it, the first after the last.
        channels: Values in a row.
        waves: The calendar.
    """

    shared = False

    def __init__(self, own: Own, others: int, near: int, channels: int, waves: Waves) -> None:
        self._own, self._waves, self._others = own, waves, others
        self.size = own.size + waves.size + others * near
        self._index = (np.arange(channels)[:, None] + np.arange(1, near + 1)) % channels
        self.periods: tuple[Period, ...] = ()

    def build(self, past: View, back: int, count: int) -> Array:
        """As `Own`, then waves, then the others: their last value and changes before it."""
        x = np.empty((past.channels, count, self.size))
        place = self._own.size + self._waves.size
        x[:, :, : self._own.size] = self._own.build(past, back, count)
        x[:, :, self._own.size : place] = self._waves.swung(past, back, count)
        windows = np.array(windowed(past, back, count, self._others))  # (C, count, others)
        windows[:, :, 1:] -= windows[:, :, :-1].copy()
        chosen = windows[self._index]  # (C, near, count, others)
        x[:, :, place:] = chosen.transpose(0, 2, 1, 3).reshape(past.channels, count, -1)
        return x

    def columns(self, channels: int) -> Columns:
        """As above."""
        own, found, rows = self._own.columns(channels), [], -np.arange(1, self._others)
        for channel in range(channels):
            parts = [own.places[channel], columns.room(self._waves.size)]
            for other in self._index[channel].tolist():
                parts += [columns.value(other), columns.differences(rows, other, rows + 1)]
            found.append(np.concatenate(parts))
        return Columns(np.stack(found), own.one, self._own.size, self._waves.kinds())


class Everything:
    """Lags of all channels, one regressor for all of them; with waves.

    Args:
        own: Lags of each channel.
        channels: Values in a row.
        waves: The calendar.
    """

    shared = True

    def __init__(self, own: Own, channels: int, waves: Waves) -> None:
        self._own, self._waves = own, waves
        self._wide = (own.size - 1) * channels
        self.size = self._wide + 1 + waves.size
        self.periods: tuple[Period, ...] = ()

    def build(self, past: View, back: int, count: int) -> Array:
        """`(1, count, n)`."""
        x = np.empty((1, count, self.size))
        own = self._own.build(past, back, count)[:, :, 1:]  # (C, count, lags)
        x[0, :, : self._wide] = own.transpose(1, 0, 2).reshape(count, self._wide)
        x[0, :, self._wide] = 1.0
        x[0, :, self._wide + 1 :] = self._waves.swung(past, back, count).mean(0)
        return x

    def columns(self, channels: int) -> Columns:
        """As above."""
        parts = [columns.own(self._own.size - 1, channel) for channel in range(channels)]
        places = np.concatenate([*parts, columns.room(1 + self._waves.size)])
        return Columns(places[None], self._wide, self._wide + 1, self._waves.kinds())


class Turned:
    """Own lags, and those of the series without its season: changes from the value one period before.

    Args:
        own: Own lags.
        period: An array of one, in rows; shared with whoever may change it.
    """

    shared = False

    def __init__(self, own: Own, period: Arrays) -> None:
        self._own = own
        self.periods: tuple[Period, ...] = (period["period"],)
        self.size = 2 * own.size - 1

    def build(self, past: View, back: int, count: int) -> Array:
        """As `Own`, then seasonal differences."""
        lags, length = self._own.size - 1, int(self.periods[0][0])
        x = np.empty((past.channels, count, self.size))
        x[:, :, : lags + 1] = self._own.build(past, back, count)
        now, then = windowed(past, back, count, lags), windowed(past, back + length, count, lags)
        np.subtract(now, then, out=x[:, :, lags + 1 :])
        return x

    def columns(self, channels: int) -> Columns:
        """As above."""
        own, rows = self._own.columns(channels), -np.arange(self._own.size - 1)
        turned = [columns.differences(rows, channel, rows - int(self.periods[0][0])) for channel in range(channels)]
        return Columns(np.concatenate([own.places, np.stack(turned)], 1), own.one)
