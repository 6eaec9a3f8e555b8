"""How far ahead and how far back `natsr run` looks in a file, and how many rows a file must have for that."""

from __future__ import annotations

from itertools import count

from natsr.cli.run import HORIZON, WINDOW, Run
from natsr.data.series import Borders, Series
from natsr.types import DataError, Task

#: Of the rows of a file too short for what is usual, at most this share is forecast ahead, and of those that train at
#: most this share is looked back on; together they are not much more than half of what trains.
AHEAD, BACK = 8, 3


def roomy(borders: Borders, task: Task) -> Borders:
    """The same borders, or more room to train in where a short file would leave next to nothing.

    >>> roomy(Borders(60, 75, 300), Task(window=60, horizon=24, channels=1))
    Borders(train=150, valid=180, online=300)
    """
    if borders.train >= 2 * (task.window + task.horizon):
        return borders
    rows = borders.online
    return Borders(max(1, rows // 2), max(1, int(0.6 * rows)), rows)


def fits(borders: Borders, task: Task) -> bool:
    """Whether there is one example to train on, and one forecast in the stream."""
    parts = roomy(borders, task)
    return task.window + task.horizon <= parts.train and task.horizon <= parts.online - parts.valid


def least(window: int, horizon: int) -> int:
    """The rows that a file must have.

    >>> least(60, 24), least(1, 24), least(1, 1)
    (168, 58, 5)
    """
    task = Task(window, horizon, channels=1)
    return next(rows for rows in count(max(5, 2 * (window + horizon))) if fits(Borders.published(rows), task))


def sized(settings: Run, series: Series, borders: Borders) -> tuple[Task, tuple[str, ...]]:
    """What was asked for or is usual, or, where the file is too short for what is usual, less; and what to say then.

    Raises:
        DataError: It is too short for what was asked for.
    """
    usual = Task(settings.back, settings.ahead, channels=1)
    if fits(borders, usual):
        return usual, ()
    rows = borders.online
    horizon = settings.horizon or _horizon(series, borders, settings.window)
    window = settings.window or max(1, min(WINDOW, rows // 2 // BACK, rows // 2 - horizon))
    task = Task(window, horizon, channels=1)
    asked = {"horizon": settings.horizon, "window": settings.window}
    if not fits(borders, task):
        told = " and ".join(f"--{name} {value}" for name, value in asked.items() if value is not None)
        needed = least(settings.window or 1, settings.horizon or 1)
        raise DataError(
            f"{series.name} has {rows} rows, expected at least {needed} for {told}; use a longer file, or smaller ones"
        )
    taken = {"horizon": (horizon, usual.horizon), "window": (window, usual.window)}
    less = [name for name, value in asked.items() if value is None]
    words = " ".join(f"--{name} {taken[name][0]}" for name in less)
    return task, (f"{rows} rows are few: {words} in place of {' and '.join(str(taken[name][1]) for name in less)}",)


def _horizon(series: Series, borders: Borders, window: int | None) -> int:
    """Rows ahead in a short file: at most a season."""
    season = series.season if series.season > 1 else HORIZON
    most = max(1, min(HORIZON, season, borders.online // AHEAD))
    tasks = (Task(window or 1, horizon, channels=1) for horizon in range(most, 0, -1))
    return next((task.horizon for task in tasks if fits(borders, task)), 1)
