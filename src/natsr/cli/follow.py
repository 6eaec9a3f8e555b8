"""`natsr run -`: rows as they arrive on standard input, a forecast for each on standard output.

The input is CSV with a header, or JSON lines: one object for each row, whose first one names the columns. The output is
one line of JSON for each row, written at once: the forecast as `origin`, `times`, `mean`, `intervals` and, with
`--quantiles`, `quantiles`, with the present `drift`, or, for a row that cannot be used, its `time` and why it was
`refused`; then the stream goes on.

Of a column in `--known` the plan for the next rows comes in columns `NAME+1`, `NAME+2`, … up to the horizon, or, in
JSON lines, as `"future": {"NAME": [ … ]}`.

With `--state` everything learned is kept in a folder, every `EVERY` rows, at the end and on SIGTERM, and the next run
goes on from it: rows that it has taken before are refused as late.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import torch
import typer

from natsr.cli import given, lines
from natsr.cli.lines import Line, cell, is_number
from natsr.cli.run import Run
from natsr.cli.show import note
from natsr.data.grids import grid_between
from natsr.data.series import unknown
from natsr.data.ticks import FINEST, coarsest, times_of
from natsr.intake import stamp
from natsr.live import LEVELS, Live
from natsr.spread import check_probabilities
from natsr.state import MANIFEST
from natsr.types import DataError, OptionError

EVERY = 100  # rows between two savings of the state
TERMINATED = 128 + signal.SIGTERM


class Asked(NamedTuple):
    """What is to be answered beside the mean."""

    levels: tuple[float, ...]
    quantiles: tuple[float, ...] = ()


USUAL = Asked(LEVELS)


class Kept:
    """A forecaster whose state is kept in a folder, or nowhere; SIGTERM ends it between two rows, never within one."""

    def __init__(self, live: Live, folder: Path | None) -> None:
        self.live, self._folder = live, folder
        self._fresh = 0  # rows since the last saving
        self._busy = self._ending = False

    def answered(self, line: Line, asked: Asked) -> dict[str, Any]:
        """Let it take the row, and keep the state when it is time."""
        self._busy = True
        said = answered(self.live, line, asked)
        self._fresh += 1
        if self._fresh >= EVERY:
            self.save()
        self._busy = False
        if self._ending:
            raise SystemExit(TERMINATED)
        return said

    def save(self) -> None:
        """Write the state, if there is a folder for it and something new to write."""
        if self._folder is not None and self._fresh:
            self.live.save(self._folder)
        self._fresh = 0

    def end(self, _number: int, _frame: FrameType | None) -> None:
        """Stop now, or after the row that is being taken."""
        self._ending = True
        if not self._busy:
            raise SystemExit(TERMINATED)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Save when it ends, however it ends; SIGTERM is an end."""
        main = self._folder is not None and threading.current_thread() is threading.main_thread()
        before = signal.signal(signal.SIGTERM, self.end) if main else None
        try:
            yield
        finally:
            self._busy = True  # a second SIGTERM must not stop the saving
            self.save()
            if main:
                signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def follow(settings: Run) -> None:
    """Do what the settings say."""
    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    check(settings)
    levels = LEVELS if settings.levels is None else levels_of(settings.levels)
    asked = Asked(levels, quantiles_of(settings.quantiles))
    check_folder(settings.state)
    resumed = resume(settings.state)
    columns, rows = opened(settings, resumed)
    note(f"forecasting {', '.join(columns)}, {resumed.horizon if resumed else settings.ahead} rows ahead")
    waiting: list[Line] = []
    live = resumed or (made(settings, columns, settings.freq) if settings.freq else None)
    while live is None:  # the first row is answered when the second has shown how far apart they are
        line = next(rows, None)
        if line is None:
            break
        if (wrong := wrong_with(line)) is not None:
            say(wrong)  # at once: it may be that no row will ever be right
            continue
        waiting.append(line)
        freq = step_between(waiting)
        live = made(settings, columns, freq) if freq is not None else None
    if live is not None:
        kept = Kept(live, settings.state)
        with kept.saving():
            for line in chain(waiting, rows):
                say(kept.answered(line, asked))
    elif waiting:
        raise DataError(
            f"standard input ended after {len(waiting)} row(s) with a time, which do not tell how far apart rows are; "
            "say it with --freq"
        )
    else:
        raise DataError("standard input ended and no row of it could be used, expected some; see what was refused")


def say(answer: Mapping[str, Any]) -> None:
    """One line, at once."""
    typer.echo(json.dumps(answer, allow_nan=False))
    sys.stdout.flush()


def wrong_with(line: Line) -> dict[str, Any] | None:
    """Why a line tells nothing of how far apart rows are, as an answer."""
    try:
        if line.wrong is not None:
            raise DataError(line.wrong)
        stamp(line.time, FINEST)
    except DataError as error:
        return {"time": line.time, "refused": f"line {line.number}: {error}"}
    return None


def check_folder(folder: Path | None) -> None:
    """Refuse a folder in which nothing can be kept, before there is something to keep."""
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OptionError(f"--state {folder} cannot be written: {error}; expected a folder of your own") from error


def resume(folder: Path | None) -> Live | None:
    """What was kept in the folder, if anything was."""
    if folder is None or not (folder / MANIFEST).exists():
        return None
    live = Live.load(folder)
    note(f"going on with {live.method} after {live.health()['rows']} rows, as kept in {folder}; its settings stand")
    return live


def levels_of(text: str) -> tuple[float, ...]:
    """Levels of intervals.

    >>> levels_of("0.5,0.95")
    (0.5, 0.95)
    """
    try:
        found = tuple(float(part) for part in given.names(text, "levels"))
    except ValueError:
        raise OptionError(f"levels is {text!r}, expected numbers such as 0.5,0.9") from None
    for level in found:
        if not 0 < level <= 0.99:
            raise OptionError(f"levels is {text!r}, expected each above 0 and at most 0.99")
    return found


def quantiles_of(text: str) -> tuple[float, ...]:
    """Probabilities of quantiles, rising.

    >>> quantiles_of("0.9,0.1")
    (0.1, 0.9)
    """
    if not text:
        return ()
    try:
        found = tuple(sorted(float(part) for part in given.names(text, "quantiles")))
        check_probabilities(found)
    except (ValueError, OptionError):
        expected = "numbers above 0 and below 1, such as 0.1,0.5,0.9"
        raise OptionError(f"quantiles is {text!r}, expected {expected}") from None
    return found


def check(settings: Run) -> None:
    """Refuse what means nothing for a stream, and what cannot be, before the first row is waited for."""
    instead = {"methods": "a stream has one --method", "rows": "a stream ends where it ends"}
    instead["out"] = "what a stream is answered goes to standard output"
    for name, why in instead.items():
        if getattr(settings, name) is not None:
            raise OptionError(f"--{name} was given with -, expected a file to go with it; {why}")
    if settings.repeated != "refuse":
        raise OptionError("--repeated was given with -, expected a file to go with it; a stream keeps the first row")
    if settings.device != "cpu":
        raise OptionError(f"--device is {settings.device!r}, expected cpu with -")
    made(settings, ["(any)"], settings.freq or "h")


def made(settings: Run, columns: Sequence[str], freq: str) -> Live:
    """The forecaster that follows the stream."""
    method = settings.method or "auto"
    return Live(
        columns,
        settings.ahead,
        freq,
        method,
        settings.back,
        settings.protocol,
        settings.seed,
        settings.settings(method, [method]),
        exogenous=some(settings.exogenous, "exogenous"),
        known=some(settings.known, "known"),
    )


def opened(settings: Run, resumed: Live | None = None) -> tuple[list[str], Iterator[Line]]:
    """The columns to forecast, and the rows as they come.

    Raises:
        DataError: There is no header, or it lacks a column that was asked for.
    """
    given_in = lines.opened(settings.time)
    if given_in.time not in given_in.header:
        raise DataError(unknown("time column", given_in.time, given_in.header, "the header"))
    others = given_in.others
    beside = beside_of(settings, resumed)
    for name in beside:
        if name not in others:
            raise DataError(unknown("column", name, others, "the header"))
    columns, rows = _columns(settings, resumed, others, beside, given_in.lines)
    for name in columns:
        if name not in others:
            raise DataError(unknown("target", name, others, "the header"))
    if not columns:
        raise DataError(
            f"the header is {','.join(given_in.header)}, expected a column of numbers beside {given_in.time}"
        )
    return columns, rows


def some(text: str, what: str) -> tuple[str, ...]:
    """A list with commas that may be empty."""
    return given.names(text, what) if text else ()


def beside_of(settings: Run, resumed: Live | None) -> tuple[str, ...]:
    """The columns that are read and not forecast."""
    if resumed is not None:
        return (*resumed.exogenous, *resumed.known)
    return (*some(settings.exogenous, "exogenous"), *some(settings.known, "known"))


def _columns(
    settings: Run, resumed: Live | None, others: Sequence[str], beside: Sequence[str], rows: Iterator[Line]
) -> tuple[list[str], Iterator[Line]]:
    """Those to forecast; where all are, the first row shows which hold numbers, and comes again."""
    if resumed is not None:
        return list(resumed.columns), rows
    if settings.target != "all":
        return list(given.names(settings.target, "target")), rows
    first = next(rows, None)
    if first is None:
        raise DataError("standard input ended after its header, expected rows to follow")
    plans = {planned(name, lead) for name in beside for lead in range(1, settings.ahead + 1)}
    rest = [name for name in others if name not in plans and name not in beside]
    columns = [name for name in rest if is_number(first.cells.get(name, ""), name)]
    if len(columns) < len(rest):
        note(f"left out, for they hold text: {', '.join(name for name in rest if name not in columns)}")
    return columns, chain([first], rows)


def planned(name: str, lead: int) -> str:
    """The column that holds the plan of a known one, so many rows ahead.

    >>> planned("holiday", 2)
    'holiday+2'
    """
    return f"{name}+{lead}"


def step_between(rows: Sequence[Line]) -> str | None:
    """How far apart the first two rows that differ in time are, as `--freq` says it."""
    times = [stamp(row.time, FINEST) for row in rows]
    later = [time for time in times[1:] if time > times[0]]
    if not later:
        return None
    pair = times_of(np.array([times[0], later[0]]), FINEST)
    grid = grid_between(pair.astype(f"datetime64[{coarsest(pair)}]"))
    return None if grid is None else grid.text


def answered(live: Live, line: Line, asked: Asked = USUAL) -> dict[str, Any]:
    """Let it take the row, and say what it expects next; or why it did not take it."""
    try:
        if line.wrong is not None:
            raise DataError(line.wrong)
        names = (*live.columns, *live.exogenous, *live.known)
        values = {name: cell(line.cells.get(name, ""), name) for name in names}
        live.observe(line.time, values, line.future or plan_of(live, line))
        since = live.drift_since()
        told = live.forecast(asked.levels).plain(asked.quantiles)
        return told | {"drift": None if since is None else {"since": since}}
    except DataError as error:
        return {"time": line.time, "refused": f"line {line.number}: {error}"}


def plan_of(live: Live, line: Line) -> dict[str, list[float]] | None:
    """What the cells tell of the next rows."""
    leads = range(1, live.horizon + 1)
    found = {
        name: [cell(line.cells.get(planned(name, lead), ""), planned(name, lead)) for lead in leads]
        for name in live.known
        if any(planned(name, lead) in line.cells for lead in leads)
    }
    return found or None
