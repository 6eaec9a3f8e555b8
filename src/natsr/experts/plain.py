"""Experts that learn next to nothing: values and means of the past."""

from __future__ import annotations

import numpy as np

from natsr.experts.native import Middles, Native, Place, Running, Season, address, at, fill
from natsr.experts.past import Array, Arrays, Past


class LastValue:
    """The last value."""

    names: tuple[str, ...] = ("last_value",)

    def observe(self, past: Past) -> None:
        """Nothing to learn."""

    def forecast(self, past: Past, out: Array) -> None:
        """The newest row, `H` times."""
        out[:] = past.last(1)

    def native(self, _: Past, /) -> Place | None:
        """As `Group.native`."""
        return ("last value", 0)

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


class Seasonal:
    """For one period: the value one period before; its mean over several; the last value moved as then.

    Args:
        name: Of the period.
        period: In rows; an array of one, shared with whoever may change it.
        horizon: Rows ahead, `H`.
        cycles: Periods in the mean; fewer where a period was found that is too long for so many.
    """

    def __init__(self, name: str, period: Arrays, horizon: int, cycles: int) -> None:
        self.names: tuple[str, ...] = (f"{name}_value", f"{name}_mean", f"{name}_change")
        self._period = period["period"]
        self._cycles = cycles
        self._steps = np.arange(horizon)
        self._native = Native[Season]()

    def observe(self, past: Past) -> None:
        """Nothing to learn."""

    def forecast(self, past: Past, out: Array) -> None:
        """Rows a whole number of periods before, the latest that are known."""
        library = self._native.library
        if library is not None and out.flags.c_contiguous:
            library.seasonal_forecast(self._address(), past.address(), at(out))
            return
        period = int(self._period[0])
        place = self._steps % period
        cycles = min(self._cycles, max(1, past.keep // period))
        whole = past.clean(cycles * period).reshape(cycles, period, -1)
        out[0] = past.last(period)[place]
        out[1] = whole.mean(0)[place]
        fade = 0.5 ** (self._steps / period)[:, None]
        out[2] = out[0] + fade * (past.last(1) - past.last(1, period))

    def _address(self) -> int:
        made = self._native.made
        if made is None:
            made = self._native.made = Season(len(self._steps), self._cycles)
            fill(made, period=self._period)
        return address(made)

    def native(self, _: Past, /) -> Place | None:
        """As `Group.native`."""
        return None if self._native.library is None else ("seasonal", self._address())

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


class Medians:
    """Medians of the last rows: of a stream that is skewed, or stands still most of the time, no mean is near them.

    Args:
        rows: How many each is of; odd.
    """

    def __init__(self, rows: tuple[int, ...]) -> None:
        self.names = tuple(f"median_{count}" for count in rows)
        self._rows = np.array(rows, dtype=np.int64)
        self._native = Native[Middles]()

    def observe(self, past: Past) -> None:
        """Nothing to learn."""

    def forecast(self, past: Past, out: Array) -> None:
        """The medians, of as many rows as there are."""
        library = self._native.library
        if library is not None and out.flags.c_contiguous:
            library.medians_forecast(self._address(), past.address(), at(out))
            return
        for median, rows in zip(out, self._rows.tolist(), strict=True):
            count = min(rows, past.seen)
            median[:] = np.partition(past.last(count), count // 2, axis=0)[count // 2]

    def _address(self) -> int:
        made = self._native.made
        if made is None:
            made = self._native.made = Middles(len(self._rows))
            fill(made, rows=self._rows)
        return address(made)

    def native(self, _: Past, /) -> Place | None:
        """As `Group.native`."""
        return None if self._native.library is None else ("medians", self._address())

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


class Means:
    """Running means that forget at several rates.

    Args:
        channels: Values in a row.
        rates: Weights of the newest row.
    """

    def __init__(self, channels: int, rates: tuple[float, ...]) -> None:
        self.names = tuple(f"mean_{rate:g}" for rate in rates)
        self._rates = np.array(rates)[:, None]
        self._mean = np.zeros((len(rates), channels))
        self._count = np.zeros(channels)
        self._native = Native[Running]()

    def observe(self, past: Past) -> None:
        """Move by the newest row."""
        library = self._native.library
        if library is not None:
            library.means_move(self._address(), past.address())
            return
        known = past.known_last(1)[0]
        self._count += known
        weight = known * np.maximum(self._rates, 1 / np.maximum(self._count, 1))
        self._mean += weight * (past.clean(1) - self._mean)

    def forecast(self, past: Past, out: Array) -> None:
        """The means."""
        library = self._native.library
        if library is not None and out.flags.c_contiguous:
            library.means_forecast(self._address(), past.address(), at(out))
            return
        out[:] = self._mean[:, None]

    def _address(self) -> int:
        made = self._native.made
        if made is None:
            made = self._native.made = Running(len(self._rates))
            fill(made, rates=self._rates, mean=self._mean, count=self._count)
        return address(made)

    def native(self, _: Past, /) -> Place | None:
        """As `Group.native`."""
        return None if self._native.library is None else ("means", self._address())

    def arrays(self) -> Arrays:
        """The means and what they are made of."""
        return {"mean": self._mean, "count": self._count}
