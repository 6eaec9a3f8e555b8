"""Streams whose truth is known: the toy streams of the paper's figures, and drifting ones for tests.

Each function draws from the generator it is given, and names the rows where something happens in `Series.events`.
"""

from __future__ import annotations

import numpy as np

from natsr.data.calendar import Floats
from natsr.data.series import Series
from natsr.types import OptionError

_START = np.datetime64("2024-01-01T00:00:00", "s")


def _hourly(name: str, values: Floats, events: tuple[int, ...] = ()) -> Series:
    """Hourly rows from a fixed start; a single column is `x`, several are `x0`, `x1` and so on."""
    table = values[:, None] if values.ndim == 1 else values
    times = _START + np.arange(len(table)) * np.timedelta64(3600, "s")
    columns = ("x",) if table.shape[1] == 1 else tuple(f"x{number}" for number in range(table.shape[1]))
    return Series(name, times, table, columns, 3600, events=events)


def sinusoid_with_outliers(
    generator: np.random.Generator,
    rows: int = 2000,
    period: float = 24.0,
    noise: float = 0.1,
    outliers: int = 10,
    size: float = 10.0,
) -> Series:
    """A noisy unit sinusoid in which single rows jump: the paper's figure on bounded updates.

    The outliers lie in the last three quarters, the part that is streamed, at least one period apart.

    Args:
        generator: Of the noise, and of where the outliers lie and their signs.
        rows: How many.
        period: In rows.
        noise: Standard deviation.
        outliers: How many rows jump; they are the events.
        size: By how much, up or down.

    Example:
        >>> stream = sinusoid_with_outliers(np.random.default_rng(0), rows=400, outliers=2)
        >>> bool((np.abs(stream.values[list(stream.events), 0]) > 8).all())
        True
    """
    apart = max(1, int(np.ceil(period)))
    places = np.arange(rows // 4, rows, apart)
    if outliers > len(places):
        raise OptionError(f"outliers is {outliers}, expected at most {len(places)} in {rows} rows; use more rows")
    values = np.sin(2 * np.pi * np.arange(rows) / period) + noise * generator.standard_normal(rows)
    events = np.sort(generator.choice(places, size=outliers, replace=False))
    values[events] += size * generator.choice([-1.0, 1.0], size=outliers)
    return _hourly("sinusoid_with_outliers", values, tuple(events.tolist()))


def sinusoid_with_regimes(
    generator: np.random.Generator,
    rows: int = 2000,
    noise: float = 0.1,
    regimes: tuple[tuple[float, float], ...] = ((1.0, 24.0), (2.5, 12.0), (1.0, 24.0), (0.5, 40.0)),
) -> Series:
    """A noisy sinusoid whose amplitude and frequency change together: the paper's figure on the dynamic scale.

    The phase is continuous, so that what changes at an event is the regime and not the level.

    Args:
        generator: Of the noise.
        rows: How many, shared out equally.
        noise: Standard deviation.
        regimes: Amplitude and period of each; the first rows of all but the first are the events.
    """
    starts = [rows * number // len(regimes) for number in range(len(regimes))]
    regime = np.searchsorted(starts, np.arange(rows), side="right") - 1
    amplitude, period = np.array(regimes).T
    phase = np.concatenate([[0.0], np.cumsum(2 * np.pi / period[regime])[:-1]])
    values = amplitude[regime] * np.sin(phase) + noise * generator.standard_normal(rows)
    return _hourly("sinusoid_with_regimes", values, tuple(starts[1:]))


def level_shift(
    generator: np.random.Generator, rows: int = 1000, shift: float = 5.0, noise: float = 0.1, channels: int = 1
) -> Series:
    """Noise about 0 that moves to `shift` half-way, in all channels at once."""
    values = noise * generator.standard_normal((rows, channels))
    values[rows // 2 :] += shift
    return _hourly("level_shift", values, (rows // 2,))


def swapped_channels(generator: np.random.Generator, rows: int = 1000, noise: float = 0.05) -> Series:
    """Two sinusoids, of periods 24 and 10, that change places half-way: what was learned is now wrong."""
    steps = np.arange(rows)
    pair = np.stack([np.sin(2 * np.pi * steps / 24), 0.5 * np.sin(2 * np.pi * steps / 10)], axis=1)
    pair[rows // 2 :] = pair[rows // 2 :, ::-1].copy()
    return _hourly("swapped_channels", pair + noise * generator.standard_normal((rows, 2)), (rows // 2,))


def random_walk(generator: np.random.Generator, rows: int = 1000, step: float = 1.0, channels: int = 1) -> Series:
    """Sums of independent steps: nothing forecasts it better than its last value."""
    return _hourly("random_walk", np.cumsum(step * generator.standard_normal((rows, channels)), axis=0))


def ar2(rows: int = 1000, period: float = 24.0) -> Series:
    """A sinusoid without noise; it obeys `y_t = 2 cos(2 pi / period) y_{t-1} - y_{t-2}`, so it can be forecast exactly.

    >>> y = ar2(rows=50, period=12).values[:, 0]
    >>> bool(np.allclose(y[2:], 2 * np.cos(2 * np.pi / 12) * y[1:-1] - y[:-2]))
    True
    """
    return _hourly("ar2", np.sin(2 * np.pi * np.arange(rows) / period + 0.5))


def mixture_with_gaps(
    generator: np.random.Generator,
    rows: int = 1000,
    channels: int = 3,
    missing: float = 0.05,
    gap: int = 30,
    noise: float = 0.1,
) -> Series:
    """A daily and a weekly wave, mixed differently in each channel, with values missing singly and all at once.

    Args:
        generator: Of the mixture, the noise and the gaps.
        rows: How many.
        channels: How many.
        missing: Share of single values that are missing.
        gap: Rows without any value, half-way; the event is the first of them.
        noise: Standard deviation.
    """
    steps = np.arange(rows)[:, None]
    waves = np.concatenate([np.sin(2 * np.pi * steps / 24), np.sin(2 * np.pi * steps / 168)], axis=1)
    values = waves @ generator.uniform(-2, 2, size=(2, channels)) + noise * generator.standard_normal((rows, channels))
    values[generator.random((rows, channels)) < missing] = np.nan
    values[rows // 2 : rows // 2 + gap] = np.nan
    return _hourly("mixture_with_gaps", values, (rows // 2,))
