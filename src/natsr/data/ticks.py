"""How finely time is counted: in whole seconds or, where rows come more often, in milliseconds or microseconds.

A time inside natsr is a whole number of ticks since 1970, and the unit of a tick belongs to the grid that the time lies
on (`natsr.data.grids`): everything that is kept of a stream is in the unit that its `freq` was written in. Nothing is
finer than a microsecond.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from natsr.data.calendar import Times

Ticks: TypeAlias = npt.NDArray[np.int64]
Unit: TypeAlias = Literal["s", "ms", "us"]
UNITS: tuple[Unit, ...] = get_args(Unit)
FINEST: Unit = "us"
PER_SECOND: dict[Unit, int] = {"s": 1, "ms": 10**3, "us": 10**6}
NAMES: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds"}


def times_of(ticks: Ticks, unit: Unit) -> Times:
    """Ticks as times."""
    return ticks.astype(f"datetime64[{unit}]")


def shown(tick: int, unit: Unit) -> str:
    """The time for people, and as ISO 8601: none, three or six digits after the second.

    >>> shown(1767225600, "s"), shown(1767225600100, "ms")
    ('2026-01-01T00:00:00', '2026-01-01T00:00:00.100')
    """
    return str(np.datetime64(tick, unit))


def unit_of(times: Times | np.datetime64) -> Unit:
    """What times are counted in; those that are coarser than a second count as seconds, finer ones as microseconds.

    >>> unit_of(np.datetime64("2026-01-01T00:00:00.100"))
    'ms'
    """
    named = np.datetime_data(times.dtype)[0]
    return next((unit for unit in UNITS if unit == named), FINEST if named in ("ns", "ps", "fs", "as") else "s")


def tick_of(time: np.datetime64) -> int:
    """Ticks of a time, in its `unit_of`."""
    return int(time.astype(f"datetime64[{unit_of(time)}]").astype(np.int64))


def coarsest(times: Times) -> Unit:
    """The coarsest unit in which these times are whole, or else the finest there is.

    >>> coarsest(np.array(["2026-01-01T00:00:00.000000", "2026-01-01T00:00:00.100000"], "datetime64[us]"))
    'ms'
    """
    return next((unit for unit in UNITS if (times.astype(f"datetime64[{unit}]") == times).all()), FINEST)


def converted(tick: int, unit: Unit, to: Unit) -> int:
    """A time in another unit; in a coarser one the first tick that is not before it.

    >>> converted(2, "s", "ms"), converted(2001, "ms", "s")
    (2000, 3)
    """
    return -(-tick * PER_SECOND[to] // PER_SECOND[unit])


def coarsened(microseconds: int) -> tuple[int, Unit]:
    """The same in the coarsest unit in which it is whole, and that unit.

    >>> coarsened(2_000_000), coarsened(2_500_000), coarsened(1)
    ((2, 's'), (2500, 'ms'), (1, 'us'))
    """
    sizes = [(unit, PER_SECOND[FINEST] // PER_SECOND[unit]) for unit in UNITS]
    return next((microseconds // size, unit) for unit, size in sizes if microseconds % size == 0)
