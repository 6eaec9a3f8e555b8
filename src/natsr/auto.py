"""Which experts `auto` has: one fixed set for every stream, scaled to its width and its season.

Nothing here depends on the data but their shape, and the one period that `Clock` looks for in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from natsr.experts.analogs import Analogs, Kind, Measure
from natsr.experts.base import Group
from natsr.experts.layouts import Everything, Lags, Neighbours, Own, Seasons, Turned, Waves
from natsr.experts.least_squares import Knobs, LeastSquares
from natsr.experts.network import OneStep, Style
from natsr.experts.panel import Panel
from natsr.experts.past import Arrays, Past
from natsr.experts.periods import LONGEST, find_period, week_of
from natsr.experts.plain import LastValue, Means, Medians, Seasonal
from natsr.experts.smooth import Smooth, Smoothing
from natsr.experts.swing import Swing
from natsr.forecasters.base import Forecaster
from natsr.forecasters.member import Member, Reader
from natsr.mixtures import Layer, Layers
from natsr.types import Task

Budget = Literal["cheap", "one", "all"]
Members = Mapping[str, Callable[[Task], Forecaster]]
#: Inputs of a network, at most; a wide stream gets a shorter window.
NETWORK_INPUTS = 1200
#: The ways to mix: what a regret weighs one row later, and whose regrets count.
LAYERS = (
    Layer(0.99, "near"),
    Layer(0.999, "near"),
    Layer(0.99, "channels"),
    Layer(0.999, "channels"),
    Layer(0.999, "all", power=20.0),
    Layer(0.98, "all", power=20.0),
)
#: More further ahead than one row, where few rows are in many forecasts and steps differ; the last stays last.
FURTHER = (
    *LAYERS[:-1],
    Layer(0.9995, "steps", power=30.0),
    Layer(0.995, "near", power=20.0),
    Layer(0.999, "near", power=20.0),
    LAYERS[-1],
)
#: A period that is found in the stream is at most this long, or as long as a week.
FOUND_LONGEST = 400
#: More channels than this are not all regressed on each other.
WIDE = 64
#: Rows that are looked through for some that are like the last ones, and numbers in them: wide streams get fewer rows.
ALIKE, ALIKE_ROOM = 1200, 400_000
#: Numbers in the covariances of one regressor, over all channels: wide streams get fewer lags.
ROOM = 1_600_000

_DAILY = (
    Smoothing(0.05, 0.05),
    Smoothing(0.2, 0.1),
    Smoothing(0.5, 0.2),
    Smoothing(0.3, 0.1, trend=0.05, damping=0.9),
    Smoothing(0.1, 0.05, dof=5),
    Smoothing(0.5, 0.2, dof=5),
)
_WEEKLY = (Smoothing(0.05, 0.1), Smoothing(0.3, 0.2), Smoothing(0.2, 0.1, dof=5))
_FOUND = (Smoothing(0.2, 0.1),)

#: Values of about five and ten rows, and changes of about three.
_FEW, _MORE, _STEPS = Measure(False, 0.8), Measure(False, 0.9), Measure(True, 0.7)


class Clock:
    """The periods that experts share: the season, seven of it, and one that is found in the stream.

    A stream without a natural season gets the period that is found in its place, too.

    Args:
        task: Its season, in rows.
    """

    def __init__(self, task: Task) -> None:
        season, week = min(task.season, LONGEST), week_of(task.season)
        self._natural = season > 1
        self.longest = max(week, FOUND_LONGEST)
        self.day, self.week, self.found = (_period(rows) for rows in (season, week, season))
        self._swing = Swing(task.channels, self.day)

    def look(self, past: Past, /) -> bool:
        """Look for a period now and then: at 128 rows, 256, 512, and every 1,024 from there on.

        And at every row how far the stream swings, in days of its own.

        Returns:
            Whether the periods have been looked at.
        """
        self._swing.look(past)
        seen = past.seen
        if not (seen in (128, 256, 512) or seen % 1024 == 0):
            return False
        rows = past.clean(min(seen, 3 * self.longest, past.keep))
        day, week = self.day["period"], self.week["period"]
        if not self._natural:
            day[:] = min(max(1, find_period(rows)), self.longest)
            week[:] = min(2 * int(day[0]), self.longest)
        known = int(day[0])
        near = tuple(number * known for number in range(1, 8)) if known > 1 else ()
        found = find_period(rows, near)
        self.found["period"][:] = min(found, self.longest) if found else known
        return True

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        periods = {"day": self.day["period"], "week": self.week["period"], "found": self.found["period"]}
        return periods | self._swing.arrays()


def _period(rows: int) -> Arrays:
    return {"period": np.array([rows], dtype=np.int64)}


def _alike(task: Task) -> int:
    """Rows that are looked through for some that are like the last ones."""
    return max(8, min(ALIKE, ALIKE_ROOM // task.channels))


def _analogs(task: Task, clock: Clock) -> Analogs:
    """What followed rows like the last ones: any, those of whole days before, of whole weeks before."""
    day, week = clock.day, clock.week
    kinds = (
        Kind("analog_any", _FEW, 7, "as it was"),
        Kind("analog_steps", _STEPS, 9, "wholly", together=True),
        Kind("analog_day", _MORE, 9, "as it was", day, near=1),
        Kind("analog_day_moved", _MORE, 9, "wholly", day, near=1),
        Kind("analog_day_drawn", _FEW, 5, "wearing off", day),
        Kind("analog_day_steps", _STEPS, 9, "wholly", day),
        Kind("analog_day_all", _MORE, 9, "as it was", day, near=1, together=True),
        Kind("analog_day_all_drawn", _FEW, 9, "wearing off", day, together=True),
        Kind("analog_week", _MORE, 5, "wearing off", week, near=1),
    )
    return Analogs(kinds, task.channels, task.horizon, _alike(task))


def cheap(task: Task, clock: Clock) -> list[Group]:
    """The experts that cost microseconds, last value first."""
    channels, horizon = task.channels, task.horizon

    longest = max(8, min(400, int((ROOM / channels) ** 0.5)))
    lags = Lags(longest)

    def own(wanted: int) -> Own:
        return Own(lags, min(wanted, longest))

    def squares(name: str, layout: Own | Seasons | Neighbours | Everything | Turned, knobs: Knobs) -> LeastSquares:
        return LeastSquares(name, layout, channels, horizon, knobs)

    day, week, found = clock.day, clock.week, clock.found
    waves = Waves((day, week), (4, 3))
    beside = min(48, longest // 2)
    near = max(0, min(channels - 1, (longest - beside - waves.size - 1) // 3))  # of the others, three lags each
    every = max(2, min(60, 300 // channels))
    beside_others = Knobs(0.9998, ridge=3.0, rows=16, even=True)
    groups: list[Group] = [
        LastValue(),
        Seasonal("day", day, horizon, 7),
        Seasonal("week", week, horizon, 4),
        Seasonal("found", found, horizon, 2),
        Means(channels, (0.1, 0.003)),
        Medians((13, 97)),
        _analogs(task, clock),
        Smooth("day", day, channels, horizon, clock.longest, _DAILY, even=True),
        Smooth("week", week, channels, horizon, clock.longest, _WEEKLY),
        Smooth("found", found, channels, horizon, clock.longest, _FOUND),
        squares("lags60", own(60), Knobs(0.9999, rows=16)),
        squares("lags60_quick", own(60), Knobs(0.999, even=True)),
        squares("lags25_quicker", own(25), Knobs(0.995, heads=("plain",), even=True)),
        squares("lags200", own(200), Knobs(0.9999, rows=16)),
        squares("lags400", own(400), Knobs(0.99995, ridge=3.0, rows=32)),
        squares("seasons", Seasons(own(30), (day, week), horizon, 14, waves), Knobs(0.9998, rows=16, even=True)),
        squares("turned", Turned(own(26), day), Knobs(0.9998, rows=16)),
        squares("neighbours", Neighbours(own(beside), 3, near, channels, waves), beside_others),
    ]
    if channels <= WIDE:
        knobs = Knobs(0.9999, ridge=10.0, rows=32)
        groups.append(squares("everything", Everything(own(every), channels, waves), knobs))
        quick = Knobs(0.999, ridge=10.0, heads=("plain",), rows=16, even=True)
        groups.append(squares("everything_quick", Everything(own(every), channels, Waves((day,), (0,))), quick))
    return groups


def networks(task: Task, clock: Clock, seed: int = 0) -> list[Group]:
    """Networks that see the last rows, and most of them the same time a day or a week before; with several rates."""
    most = max(2, NETWORK_INPUTS // task.channels)
    waves = Waves((clock.day, clock.week), (2, 1))
    recent = min(task.window, most)

    def taps(rows: int, *periods: Arrays) -> tuple[int, ...]:
        last = tuple(range(min(rows, recent) - 1, -1, -1))
        before = {lag for period in periods for lag in range(int(period["period"][0]), 0, -1)[:3] if lag >= len(last)}
        return (*sorted(before, reverse=True), *last) if len(before) + len(last) <= most else last

    kinds = (
        (Style("network_day", 2e-4), taps(20, clock.day)),
        (Style("network_week", 5e-4), taps(20, clock.day, clock.week)),
        (Style("network_short", 5e-4), taps(8)),
        (Style("network_wide", 2e-4, 256), taps(20, clock.day)),
    )
    return [
        OneStep(task.channels, task.horizon, rows, waves, style, seed=seed + number)
        for number, (style, rows) in enumerate(kinds)
    ]


def layers(horizon: int) -> tuple[Layer, ...]:
    """The ways to mix."""
    return LAYERS if horizon == 1 else FURTHER


def panel(
    task: Task,
    budget: Budget = "cheap",
    seed: int = 0,
    members: Members | None = None,
    in_step: Callable[[list[Forecaster]], list[Forecaster]] = list,
) -> Panel:
    """The experts, mixed by ML-Poly with the absolute loss, the gradient trick and fading regrets, in two layers.

    Args:
        task: What is forecast.
        budget: `cheap`, the experts without a network; `one`, and small networks beside them; `all`, and `members`.
        seed: Of the network.
        members: What makes whole forecasters that are to be experts too, by name.
        in_step: Makes forecasters that follow one stream ones that are stepped together.
    """
    clock = Clock(task)
    groups = cheap(task, clock)
    if budget != "cheap":
        groups += networks(task, clock, seed)
    if budget == "all":
        plain = replace(task, features=0, outside=0)
        reader, made = Reader(plain), in_step([make(plain) for make in (members or {}).values()])
        pairs = zip((members or {}).items(), made, strict=True)
        groups += [Member(name, reader, make, forecaster) for (name, make), forecaster in pairs]
    count = sum(len(group.names) for group in groups)
    back = (4 * int(clock.week["period"][0]), 7 * int(clock.day["period"][0]), 3 * clock.longest, 400, _alike(task))
    keep = max(task.reach, *back) + 64
    past = Past(task.channels, keep + task.horizon, task.horizon)
    mixture = Layers(count, (task.horizon, task.channels), layers(task.horizon), dtype=np.float32)
    return Panel(past, clock, groups, mixture, task.horizon)
