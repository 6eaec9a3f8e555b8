"""Many live series of the same columns, by key: the two verbs of `natsr.Live`, for all of them at once.

Each key is a `Live` of its own: its own scaling, calendar, intervals and learner. Only the learning step is shared:
learners of one shape are stepped as one (`natsr.fleet`), and each forecasts what it would forecast alone, to rounding.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy.typing as npt
from torch import Tensor

from natsr import state as states
from natsr.data.calendar import Floats, Times
from natsr.data.series import unknown
from natsr.exogenous import Future
from natsr.fleet.crew import Crew, Seat, check_stepping
from natsr.forecasters.base import Progress, silent
from natsr.intake import row_values, stamp, steps_after
from natsr.live import LEVELS, Live, LiveForecast, Settings
from natsr.phases import Warm
from natsr.streams import Step
from natsr.types import DataError, Example, OptionError, StateError

if TYPE_CHECKING:
    import pandas as pd

KIND = "fleet"


class _Series(Live):
    """A live series whose rows wait, once it is warm, until the fleet steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.waiting: list[tuple[int, Floats]] = []

    def _take(self, tick: int, values: Floats) -> None:
        if self._warm is None:
            super()._take(tick, values)
            return
        self._time = tick
        self.waiting.append((tick, values))

    @property
    def warm(self) -> Warm | None:
        """The warm phase, once it has begun."""
        return self._warm

    def check(self, time: object, row: object, future: Future | None) -> None:
        """Refuse what `observe` would refuse; changes nothing."""
        tick = stamp(time, self._grid.unit)
        if self.on_late == "ignore" and self._time is not None and tick <= self._time:
            return
        row_values(row, self._names)
        self._outside.plan(future)
        steps_after(tick, self._time, self._grid)


@dataclass(eq=False)
class Fleet(Settings):
    """Forecast many series of the same columns, and learn from every row of each.

    A key joins with its first row, or with its history in `warm_up`; it may miss rows, which are then missing values.
    It forecasts as a `Live` with the same arguments and `rescale=False` would.

    Args:
        columns: Names of the values in a row, the same for all keys.
        horizon: Rows ahead.
        freq: Time between rows: `100ms`, `s`, `15min`, `h`, `D`, a `timedelta`, working days `B`, months `M`, `MS`, ….
        method: A name from `natsr.recipes`.
        window: Rows that a network sees.
        protocol: `honest`, or `partial`, which also learns from the rows of younger windows as they come.
        seed: Of everything random, in each series.
        options: Settings of the method that differ from its defaults.
        on_late: `refuse` late and duplicate rows with an error, or `ignore` and count them.
        exogenous: Names of columns that come with each row and are inputs only; for `auto` and networks.
        known: The same for columns whose future is known.
        keys: The keys that may come; without them, whoever comes joins.
        stepping: `together`, `apart`, or `auto`: what a short measurement finds to be faster on this machine.

    Example:
        >>> fleet = Fleet(columns=["load"], horizon=2, freq="h", method="last_value", window=3)
        >>> fleet.observe("2026-01-01T00:00", {"north": [5.0], "south": [8.0]})
        >>> fleet.observe("2026-01-01T01:00", {"north": [7.0]})
        >>> {key: forecast.mean[:, 0].tolist() for key, forecast in fleet.forecast().items()}
        {'north': [7.0, 7.0], 'south': [8.0, 8.0]}
    """

    keys: Iterable[str] | None = None
    stepping: str = "auto"
    _series: dict[str, _Series] = field(default_factory=dict, init=False, repr=False)
    _seats: dict[str, Seat] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.keys, str):
            raise OptionError(f"keys is the text {self.keys!r}, expected a list of keys: [{self.keys!r}]")
        self.keys = None if self.keys is None else tuple(self.keys)
        self._crew = Crew(check_stepping(self.stepping))
        self._made()  # a wrong argument is told now, not with the first row

    def _made(self) -> _Series:
        return _Series(**{one.name: getattr(self, one.name) for one in fields(Settings)})

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __contains__(self, key: object) -> bool:
        return key in self._series

    def _of(self, key: str) -> _Series:
        """The key's series, made if it is new; not yet in the fleet."""
        if key in self._series:
            return self._series[key]
        if not isinstance(key, str):
            raise DataError(f"key is {key!r}, expected text")
        if isinstance(self.keys, tuple) and key not in self.keys:
            raise DataError(unknown("key", key, list(self.keys), "the fleet"))
        return self._made()

    def warm_up(
        self,
        histories: Mapping[str, pd.DataFrame | tuple[Sequence[object] | Times, npt.ArrayLike]],
        *,
        time: str | None = None,
        futures: Mapping[str, Future] | None = None,
        progress: Progress = silent,
    ) -> None:
        """Let keys learn from their past before their streams begin; see `Live.warm_up`.

        Args:
            histories: By key, as `Live.warm_up` takes them.
            time: The frames' time column, where it cannot be told.
            futures: By key, the plan after its history's last row.
            progress: Called with (done, of, what).

        Raises:
            DataError: A history cannot be used; the keys before it have been warmed up, and it and those after it not.
        """
        plans = _plans(futures, histories)
        for key, history in histories.items():
            series = self._of(key)
            try:
                series.warm_up(history, time=time, future=plans.get(key), progress=progress)
            except DataError as error:
                raise DataError(f"key {key!r}: {error}") from error
            self._series[key] = series
            self._seat(key)

    def observe(self, time: object, rows: Mapping[str, object], futures: Mapping[str, Future] | None = None) -> None:
        """Take the next row of some keys, and learn from whatever they have made known.

        Args:
            time: Later than the last row of each of these keys by a whole number of steps.
            rows: By key, as `Live.observe` takes them.
            futures: By key, the plan of columns in `known`, as `Live.observe` takes it; of some of these keys.

        Raises:
            DataError: A row is late, a duplicate, off the grid, or holds something other than numbers, or a key is not
                known. No key has changed then, and the next rows can come.
        """
        found, plans = {}, _plans(futures, rows)
        for key, row in rows.items():
            series = found[key] = self._of(key)
            try:
                series.check(time, row, plans.get(key))
            except DataError as error:
                raise DataError(f"key {key!r}: {error}") from error
        for key, row in rows.items():
            self._series[key] = found[key]
            found[key].observe(time, row, plans.get(key))
        waiting = {key: series for key, series in found.items() if series.waiting}
        while waiting:
            self._advance({key: series.waiting.pop(0) for key, series in waiting.items()})
            waiting = {key: series for key, series in waiting.items() if series.waiting}
        for key in found:
            self._seat(key)

    def _advance(self, rows: Mapping[str, tuple[int, Floats]]) -> None:
        """One row of the grid for each of these keys: all of them learn, then all of them forecast."""
        moments: dict[str, Step] = {}
        for key, row in rows.items():
            self._seat(key)
            moments[key] = self._warm(key).opened(*row)
        seats = {key: self._seats[key].number for key in rows}
        examples: dict[int, Example] = {
            seats[key]: step.matured for key, step in moments.items() if step.matured is not None
        }
        self._crew.learn(examples)
        windows: dict[int, Tensor] = {seats[key]: step.window for key, step in moments.items()}
        forecasts = self._crew.forecast(windows)
        for key, seat in seats.items():
            self._warm(key).expect(forecasts[seat])

    def _warm(self, key: str) -> Warm:
        warm = self._series[key].warm
        assert warm is not None
        return warm

    def _seat(self, key: str) -> None:
        """Let a key whose warm phase has begun step with the others."""
        warm = self._series[key].warm
        if warm is not None and key not in self._seats:
            warm.forecaster = self._seats[key] = self._crew.join(warm.forecaster)

    def forecast(self, levels: Sequence[float] = LEVELS) -> dict[str, LiveForecast]:
        """What is expected of the next `horizon` rows of every key, each from its own last row; changes nothing.

        Args:
            levels: Of the intervals, above 0 and at most 0.99.
        """
        return {key: series.forecast(levels) for key, series in self._series.items()}

    def health(self) -> dict[str, dict[str, float | int | str | None]]:
        """How each key is doing; see `Live.health`."""
        return {key: series.health() for key, series in self._series.items()}

    def save(self, folder: str | Path) -> None:
        """Write everything that must be carried on into a folder: the old state or the new one stands, never half."""
        folder = Path(folder)
        turn = 1 + max((int(path.name) for path in _turns(folder)), default=0)
        for place, series in enumerate(self._series.values()):
            series.save(folder / f"{turn:06d}" / f"{place:06d}")
        keys = None if self.keys is None else list(self.keys)
        settings = {**self.described(), "keys": keys, "stepping": self._crew.stepping}
        states.save(folder, {"turn": turn}, kind=KIND, meta={"settings": settings, "series": list(self._series)})
        for old in _turns(folder):
            if int(old.name) != turn:
                shutil.rmtree(old)

    @classmethod
    def load(cls, folder: str | Path) -> Fleet:
        """Go on from what `save` wrote."""
        folder = Path(folder)
        state, meta = states.load(folder, kind=KIND)
        turn = state.get("turn")
        if not isinstance(turn, int):
            raise StateError(f"the state in {folder} does not say where its series are; it was not written by Fleet")
        fleet = cls(**meta["settings"])
        for place, key in enumerate(meta["series"]):
            series = _Series.load(folder / f"{turn:06d}" / f"{place:06d}")
            assert isinstance(series, _Series)
            fleet._series[key] = series
            fleet._seat(key)
        return fleet


def _plans(futures: Mapping[str, Future] | None, rows: Mapping[str, object]) -> Mapping[str, Future]:
    """What is told, if only of keys that have a row."""
    for key in futures or {}:
        if key not in rows:
            raise DataError(f"futures holds key {key!r}, which has no row, expected some of {', '.join(rows)}")
    return futures or {}


def _turns(folder: Path) -> list[Path]:
    """The folders of the series of earlier saves."""
    return [path for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()] if folder.is_dir() else []
