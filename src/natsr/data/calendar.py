"""The seven calendar features of a row, from its time alone.

Order as in the published loaders: minute, hour, day of week (Monday = 0), day, day of year, month, ISO week. Everything
is arithmetic on `datetime64`, so that a row can be described without pandas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from natsr.types import OptionError

Times: TypeAlias = npt.NDArray[np.datetime64]
Floats: TypeAlias = npt.NDArray[np.float64]
CalendarKind: TypeAlias = Literal["standardised", "raw", "bounded", "none"]
CALENDARS: tuple[CalendarKind, ...] = get_args(CalendarKind)

FEATURES = ("minute", "hour", "day_of_week", "day", "day_of_year", "month", "week")
_HOUR, _DAY = 3600, 86400
#: Seconds after which each feature has taken all its values.
_CYCLE_SECONDS = (_HOUR, _DAY, 7 * _DAY, 31 * _DAY, 366 * _DAY, 366 * _DAY, 371 * _DAY)


def calendar_features(times: Times) -> Floats:
    """The raw features, `(T, 7)`, in the order of `FEATURES`.

    >>> calendar_features(np.array(["2021-01-03T23:45"], dtype="datetime64[s]"))[0].tolist()
    [45.0, 23.0, 6.0, 3.0, 3.0, 1.0, 53.0]
    """
    seconds = times.astype("datetime64[s]").astype(np.int64)
    days = seconds // _DAY
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    years = months.astype("datetime64[Y]")
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
    # An ISO week belongs to the year of its Thursday.
    thursday = days - weekday + 3
    iso_year = thursday.astype("datetime64[D]").astype("datetime64[Y]")
    columns = (
        seconds // 60 % 60,
        seconds // _HOUR % 24,
        weekday,
        days - _day_number(months) + 1,
        days - _day_number(years) + 1,
        months.astype(np.int64) % 12 + 1,
        (thursday - _day_number(iso_year)) // 7 + 1,
    )
    return np.stack(columns, axis=-1).astype(np.float64)


def _day_number(dates: Times) -> npt.NDArray[np.int64]:
    """Days since 1970-01-01 of the first day of each month or year."""
    return dates.astype("datetime64[D]").astype(np.int64)


@dataclass(frozen=True, eq=False)
class Calendar:
    """How the time of a row becomes features; fitted on the train part, then the same for every row.

    Args:
        names: The features that are kept, a part of `FEATURES`.
        mean: Subtracted, one for each kept feature.
        std: Divided by.
        low: Raw features below are raised to this.
        high: Raw features above are lowered to this.
    """

    names: tuple[str, ...]
    mean: Floats
    std: Floats
    low: Floats
    high: Floats

    @staticmethod
    def fit(train: Times, kind: CalendarKind, step_seconds: float = 1) -> Calendar:
        """Learn from the train part's times which features to use, and their mean and standard deviation.

        `standardised` and `raw` keep all seven; `none` keeps none. `bounded` leaves out a feature if the train part is
        shorter than a whole cycle of it, and holds the others to the range seen there: no feature can then run away
        from what the warm-up has shown.

        Args:
            train: Times of the rows that may be learned from.
            kind: One of `CALENDARS`.
            step_seconds: Seconds between rows; the last row covers as many.
        """
        if kind not in CALENDARS:
            raise OptionError(f"calendar is {kind!r}, expected one of {', '.join(CALENDARS)}")
        if len(train) == 0:
            raise OptionError("the train part has no rows, expected at least 1 to describe the calendar")
        span = float((train[-1] - train[0]) / np.timedelta64(1, "s")) + step_seconds
        keep = [kind != "none" and (kind != "bounded" or span >= cycle) for cycle in _CYCLE_SECONDS]
        raw = calendar_features(train)[:, keep]
        width = raw.shape[1]
        mean, std = np.zeros(width), np.ones(width)
        if kind in ("standardised", "bounded"):
            mean, std = raw.mean(axis=0), raw.std(axis=0)
            std[np.ptp(raw, axis=0) == 0] = 1.0
        low, high = np.full(width, -np.inf), np.full(width, np.inf)
        if kind == "bounded":
            low, high = raw.min(axis=0), raw.max(axis=0)
        return Calendar(tuple(np.array(FEATURES)[keep].tolist()), mean, std, low, high)

    def apply(self, times: Times) -> Floats:
        """The features of these times, `(T, F)`."""
        keep = [FEATURES.index(name) for name in self.names]
        raw = calendar_features(times)[:, keep]
        scaled: Floats = (np.clip(raw, self.low, self.high) - self.mean) / self.std
        return scaled
