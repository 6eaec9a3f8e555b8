"""Learners that come one by one: each joins those of its own shape, and is stepped with them in the fastest way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar, get_args

import torch
from torch import Tensor

from natsr.fleet.apart import Apart, Tiles
from natsr.fleet.choice import SIZE, Way, chosen
from natsr.fleet.compiled import Compiled
from natsr.fleet.shape import Shape, shape_of
from natsr.forecasters.base import Forecast, Forecaster
from natsr.types import Example, OptionError, State

T = TypeVar("T")
Stepping = Literal["auto", "together", "apart"]
Group: TypeAlias = tuple[Shape | str, bool]  # what its learners share, and whether their steps are compiled
_ENOUGH = 4  # learners of one shape from which it is worth measuring how to step them


def check_stepping(name: str) -> Stepping:
    """The name, if it is one of the three."""
    for known in get_args(Stepping):
        if name == known:
            stepping: Stepping = known
            return stepping
    raise OptionError(f"stepping is {name!r}, expected one of {', '.join(get_args(Stepping))}")


class Crew:
    """Learners of one shape or of several, by the number under which they joined.

    Args:
        stepping: `together`, in tiles; `apart`, each on its own; `auto`, what is found to be faster.
        threads: Threads that may be used; as many as torch uses unless said otherwise.
    """

    def __init__(self, stepping: Stepping = "auto", threads: int | None = None) -> None:
        self._stepping, self._threads = stepping, threads
        self._groups: dict[Group, Apart | Compiled | Tiles] = {}
        self._seats: list[tuple[Group, int]] = []  # group, and place in it
        self._settled: set[Group] = set()  # groups whose way of stepping is decided

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def _workers(self) -> int:
        return self._threads or torch.get_num_threads()

    def join(self, forecaster: Forecaster) -> Seat:
        """Take in a forecaster; it is to be used through its seat from then on."""
        shape = shape_of(forecaster)
        # Learners that have no batched step form a group for each task, and are stepped apart.
        compiled = Compiled.fits([forecaster])
        group: Group = (f"{forecaster.task}" if isinstance(shape, str) else shape, compiled)
        here = self._groups.get(group)
        if here is None:
            together = self._stepping == "together" and not isinstance(shape, str)
            way = Way(SIZE, 1) if together else Way(0, self._workers if compiled else 1, compiled)
            here = self._groups[group] = way.of([forecaster])
            if self._stepping != "auto" or isinstance(shape, str):
                self._settled.add(group)
        else:
            here.join([forecaster])
        self._seats.append((group, len(here) - 1))
        self._settle(group)
        return Seat(self, len(self._seats) - 1)

    def _settle(self, group: Group) -> None:
        """Once there are enough, measure how they are stepped fastest."""
        here = self._groups[group]
        if group in self._settled or len(here) < _ENOUGH:
            return
        self._settled.add(group)
        forecasters = [here.release(number) for number in range(len(here))]
        way: Way = chosen(forecasters, self._threads)
        self._groups[group] = way.of(forecasters)

    @property
    def stepping(self) -> Stepping:
        """What `auto` has come to, if it has: so that who goes on from a saved state steps in the same way."""
        if self._stepping != "auto" or not self._settled:
            return self._stepping
        tiled = any(isinstance(group, Tiles) for group in self._groups.values())
        return "together" if tiled else "apart"

    def place(self, seat: int) -> tuple[Apart | Compiled | Tiles, int]:
        """Where a learner is."""
        group, number = self._seats[seat]
        return self._groups[group], number

    def learn(self, examples: dict[int, Example]) -> None:
        """Each of these seats learns its example."""
        for group, here in self._groups.items():
            given = self._spread(group, len(here), examples)
            if any(example is not None for example in given):
                here.learn(given)

    def forecast(self, windows: dict[int, Tensor]) -> dict[int, Forecast]:
        """What each of these seats makes of its window; changes nothing."""
        found: dict[int, Forecast] = {}
        for group, here in self._groups.items():
            given = self._spread(group, len(here), windows)
            if any(window is not None for window in given):
                forecasts = here.forecast(given)
                for seat in windows:
                    own, number = self._seats[seat]
                    if own == group and (forecast := forecasts[number]) is not None:
                        found[seat] = forecast
        return found

    def _spread(self, group: Group, count: int, given: dict[int, T]) -> Sequence[T | None]:
        """What is given to the learners of a group, in their order."""
        row: list[T | None] = [None] * count
        for seat, one in given.items():
            own, number = self._seats[seat]
            if own == group:
                row[number] = one
        return row


class Seat(Forecaster):
    """One learner of a crew, as a forecaster."""

    def __init__(self, crew: Crew, number: int) -> None:
        self.crew, self.number = crew, number
        self.task = crew.place(number)[0].task

    def forecast(self, window: Tensor) -> Forecast:
        return self.crew.forecast({self.number: window})[self.number]

    def learn(self, example: Example) -> None:
        self.crew.learn({self.number: example})

    def info(self) -> dict[str, float]:
        here, number = self.crew.place(self.number)
        return here.info(number)

    def state_dict(self) -> State:
        here, number = self.crew.place(self.number)
        return here.state_dict(number)

    def load_state_dict(self, state: State) -> None:
        here, number = self.crew.place(self.number)
        here.load_state_dict(number, state)
