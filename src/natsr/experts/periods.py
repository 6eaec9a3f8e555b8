"""Which periods a stream shows, and which it is taken to have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natsr.experts.past import Array
from natsr.types import Task

Whole = npt.NDArray[np.int64]

#: A peak of the autocorrelation that is lower than this, or as little above the valley before it, is no period.
CLEAR = 0.1
SHORTEST = 3
#: No period, and so nothing that an expert looks back on, is longer than this many rows.
LONGEST = 1440


def week_of(season: int) -> int:
    """Rows in seven seasons; in one where seven are too long for a period.

    >>> week_of(24), week_of(96), week_of(1440)
    (168, 672, 1440)
    """
    season = min(season, LONGEST)
    return 7 * season if 7 * season <= LONGEST else season


class Gaps(NamedTuple):
    """Which rows of a gap are played as missing ones: its end, and so many that what is left out is whole periods.

    So whoever counts rows is not put out of step by a gap, and a gap of years costs little more than a long window.

    >>> Gaps(longest=84, period=168).left_out(np.array([5, 84, 251, 252, 1000])).tolist()
    [0, 0, 0, 168, 840]
    """

    longest: int  # up to so many rows all of them are played, and at least so many of more
    period: int

    @classmethod
    def of(cls, task: Task) -> Gaps:
        """As long as a window with its horizon, since no window that is learned from reaches across; whole weeks."""
        return cls(task.reach + task.horizon, week_of(task.season))

    def left_out(self, missing: Whole) -> Whole:
        """How many rows of gaps with so many missing rows are not played; they are the first of them."""
        found: Whole = np.maximum(missing - self.longest, 0) // self.period * self.period
        return found


def find_period(rows: Array, without: tuple[int, ...] = ()) -> int:
    """The lag, in rows, at which the values come back most clearly; 0 where there is none.

    The autocorrelation of each channel, without its straight line, averaged over channels. A period is a local peak of
    it that no shorter peak explains nearly as well.

    Args:
        rows: `(T, C)`.
        without: Periods that are known already; they, and lags within a tenth of them, are left out.

    Example:
        >>> waves = np.sin(2 * np.pi * np.arange(600.0) / 37)[:, None]
        >>> find_period(waves), find_period(waves, without=(37, 74, 111, 148, 185)), find_period(np.zeros((600, 1)))
        (37, 0, 0)
    """
    length = len(rows)
    longest = length // 3
    if longest <= SHORTEST:
        return 0
    time = np.linspace(-1.0, 1.0, length)[:, None]
    values = rows - rows.mean(0)
    values = values - time * ((time * values).sum(0) / (time**2).sum())
    power = (values**2).sum(0)
    values = values[:, power > 1e-9 * length]
    if not values.shape[1]:
        return 0
    values = values / np.sqrt((values**2).sum(0))
    spectrum = np.abs(np.fft.rfft(values, 2 * length, axis=0)) ** 2
    correlation = np.fft.irfft(spectrum, axis=0)[: longest + 1].mean(1)
    correlation *= length / (length - np.arange(longest + 1))
    inner = correlation[1:-1]
    peaks = np.flatnonzero((inner >= correlation[:-2]) & (inner > correlation[2:])) + 1
    peaks = peaks[(peaks >= SHORTEST) & (correlation[peaks] > CLEAR)]
    valleys = np.minimum.accumulate(correlation)
    peaks = peaks[correlation[peaks] - valleys[peaks] > CLEAR]
    for period in without:
        peaks = peaks[np.abs(peaks - period) > 0.1 * period]
    if not len(peaks):
        return 0
    for peak in peaks[correlation[peaks] >= 0.8 * correlation[peaks].max()].tolist():
        around = correlation[max(SHORTEST, int(0.7 * peak)) : int(1.3 * peak) + 1]
        if correlation[peak] >= around.max():
            return int(peak)
    return int(peaks[correlation[peaks].argmax()])
