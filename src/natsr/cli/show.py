"""What people see: messages and progress on standard error, so that standard output holds results only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

#: Seconds between two looks of the live display, and between two lines where there is no terminal.
REFRESH, LINE = 0.1, 15.0


def messages() -> Console:
    """For people who watch."""
    return Console(stderr=True, highlight=False)


def output() -> Console:
    """For results; wide enough for a table where nobody's terminal sets a width."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 220))


def fail(message: str) -> None:
    """One red message."""
    messages().print(Text.assemble(("error: ", "bold red"), (message, "red")), soft_wrap=True)


def note(message: str) -> None:
    """A remark in passing."""
    messages().print(Text(message, style="dim"), soft_wrap=True)


class Watch:
    """A live display with one line for each name: how far it is, and the error so far.

    Without a terminal (a log, a pipe) a plain line comes every quarter of a minute instead.
    """

    def __init__(self) -> None:
        self._console = messages()
        self._progress = Progress(
            TextColumn("{task.description}"),
            TextColumn("{task.fields[phase]}"),
            BarColumn(bar_width=10),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[remark]}", markup=False),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._ended: set[tuple[str, str]] = set()
        self._drawn = self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def due(self, done: int, total: int) -> bool:
        """Whether an update would be shown now: not too soon after the one before, unless it is the last."""
        return done >= total or time.monotonic() - self._drawn >= REFRESH

    def update(self, remarks: Mapping[str, str], done: int, total: int, phase: str = "") -> None:
        """Show how far these names are; calls that come too fast are left out, the last one never is."""
        if not self.due(done, total):
            return
        self._drawn = now = time.monotonic()
        for name, remark in remarks.items():
            if name not in self._tasks:
                self._tasks[name] = self._progress.add_task(name, phase=phase, remark=remark)
            task = self._tasks[name]
            if self._progress.tasks[task].fields["phase"] != phase:
                self._progress.reset(task)
            self._progress.update(task, completed=done, total=total, phase=phase, remark=remark)
        ended = done == total and not self._ended >= {(name, phase) for name in remarks}
        if not self._console.is_terminal and (now - self._printed > LINE or ended):
            self._printed = now
            self._ended |= {(name, phase) for name in remarks if ended}
            shown = ", ".join(f"{name} {remark}".strip() for name, remark in remarks.items())
            self._console.print(f"{phase} {done}/{total} {shown}".strip(), soft_wrap=True)
