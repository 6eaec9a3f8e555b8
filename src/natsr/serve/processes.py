"""Learners in processes of their own, so that learning never holds the interpreter's lock against an answer.

Each process is a fork of this one, made before there are threads, and ends when this one does. A thread asks it for one
thing at a time over a pipe: a line of JSON and numbers after it. Where processes cannot be forked safely (not on Linux,
or threads run already), learners live in this process instead; the numbers are the same.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from natsr.data.ticks import Unit, tick_of, times_of, unit_of
from natsr.live import LEVELS, LiveForecast
from natsr.native.build import library
from natsr.phases import Interval
from natsr.serve.learner import Here, Local, LostError, Workshop
from natsr.spread import Told
from natsr.types import DataError, NatsrError, OptionError, StateError

log = logging.getLogger(__name__)

_ERRORS: dict[str, type[NatsrError]] = {kind.__name__: kind for kind in (DataError, OptionError, StateError)}
#: How far learning stands back where processors are scarce: an answer takes little, and somebody waits for it.
NICE = 5
_SET_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG


class Message(NamedTuple):
    """What goes through the pipe, either way."""

    head: dict[str, Any]
    body: bytes = b""

    def packed(self) -> bytes:
        """As bytes."""
        return json.dumps(self.head).encode("ascii") + b"\n" + self.body

    @classmethod
    def read(cls, packed: bytes) -> Message:
        """From bytes."""
        head, _, body = packed.partition(b"\n")
        return cls(json.loads(head), body)


class Remote:
    """A learner in another process."""

    def __init__(self, process: Process, number: int, made: Message) -> None:
        self._process, self._number = process, number
        self._columns = tuple(made.head["columns"])
        self._latest, self._health = self._read(made), made.head["health"]

    def _read(self, answer: Message) -> LiveForecast | None:
        """The forecast in an answer."""
        if (origin := answer.head.get("origin")) is None:
            return None
        levels, columns, rows = answer.head["levels"], self._columns, answer.head["rows"]
        quantiles = answer.head["quantiles"]
        unit: Unit = answer.head["unit"]
        moment, times = np.datetime64(origin, unit), times_of(np.frombuffer(answer.body, np.int64, rows), unit)
        count = 1 + 2 * len(levels) + len(quantiles)
        parts = np.frombuffer(answer.body, offset=times.nbytes).reshape(count, rows, -1).copy()
        ends = {level: Interval(parts[1 + 2 * place], parts[2 + 2 * place]) for place, level in enumerate(levels)}
        told = Told(dict(zip(quantiles, parts[count - len(quantiles) :], strict=True)))
        return LiveForecast(moment, times, columns, parts[0], ends, told)

    def observe(self, time: int, row: bytes) -> None:
        """See `Learner`."""
        answer = self._process.ask({"do": "observe", "learner": self._number, "time": time}, row)
        self._latest, self._health = self._read(answer), answer.head["health"]

    def forecast(self, levels: Sequence[float] = LEVELS, quantiles: Sequence[float] = ()) -> LiveForecast:
        """See `Learner`; no other quantiles are there."""
        if tuple(levels) == LEVELS and not quantiles and self._latest is not None:
            return self._latest
        asked = {"levels": list(levels), "quantiles": list(quantiles)}
        found = self._read(self._process.ask({"do": "forecast", "learner": self._number, **asked}))
        assert found is not None
        return found

    def health(self) -> dict[str, Any]:
        """See `Learner`."""
        return dict(self._health)

    def save(self, folder: str | Path) -> None:
        """See `Learner`."""
        self._process.ask({"do": "save", "learner": self._number, "folder": str(folder)})

    def leave(self) -> None:
        """See `Learner`."""
        self._process.ask({"do": "leave", "learner": self._number})


class Process:
    """Another process; one request at a time."""

    def __init__(self, pid: int, pipe: Connection) -> None:
        self.pid, self._pipe = pid, pipe
        self._numbers = itertools.count()
        self._turn = threading.Lock()

    def fresh(self, settings: Mapping[str, Any]) -> Remote:
        """See `Workshop`."""
        return self._made({"do": "fresh", "settings": dict(settings)})

    def load(self, folder: str | Path) -> Remote:
        """See `Workshop`."""
        return self._made({"do": "load", "folder": str(folder)})

    def _made(self, head: dict[str, Any]) -> Remote:
        number = next(self._numbers)
        return Remote(self, number, self.ask({**head, "learner": number}))

    def ask(self, head: dict[str, Any], body: bytes = b"") -> Message:
        """Have something done, and wait for it.

        Raises:
            LostError: The process is gone.
            NatsrError: What it raised.
        """
        try:
            with self._turn:
                self._pipe.send_bytes(Message(head, body).packed())
                answer = Message.read(self._pipe.recv_bytes())
        except (OSError, EOFError) as error:
            raise LostError(f"process {self.pid}, which learns, is gone; the log has all that it knew") from error
        if "error" in answer.head:
            raise _ERRORS.get(answer.head["kind"], RuntimeError)(answer.head["error"])
        return answer

    def end(self) -> None:
        """Let it end, and wait until it has."""
        self._pipe.close()
        os.waitpid(self.pid, 0)


class Closable(Protocol):
    """A socket, a pipe."""

    def close(self) -> None:
        """Let go of it."""


@contextmanager
def hired(count: int, ours: Sequence[Closable] = ()) -> Iterator[list[Workshop]]:
    """So many places to learn in: processes where they can be forked safely, or else this one, again and again.

    Args:
        count: How many.
        ours: What is open here and must not stay open in them, such as the socket that listens.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        yield [Here() for _ in range(count)]
        return
    library()  # compiled or loaded once, and not in every process
    made: list[Process] = []
    private = list(ours)
    try:
        for _ in range(count):
            mine, theirs = Pipe()
            private.append(mine)
            made.append(Process(_forked(theirs, private), mine))
            theirs.close()
        yield list[Workshop](made)
    finally:
        for process in made:
            process.end()


def _forked(theirs: Connection, others: Sequence[Closable]) -> int:
    """A child that serves its end of the pipe until the other end is closed, and never returns; its number."""
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, and there are none
        pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):  # they come to the whole group; the parent says when to end
            signal.signal(number, signal.SIG_IGN)
        os.nice(NICE)
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        for one in others:  # or the parent's ends would stay open when the parent is gone
            one.close()
        if os.getppid() == parent:
            _serve(theirs)
        status = 0
    finally:
        os._exit(status)


def _serve(pipe: Connection) -> None:
    learners: dict[int, Local] = {}
    while True:
        try:
            asked = Message.read(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = _done(learners, asked)
        except Exception as error:  # whatever it is, the one who asked must know
            if not isinstance(error, NatsrError):
                log.exception("process %s failed at %s", os.getpid(), asked.head.get("do"))
            answer = Message({"error": str(error) or repr(error), "kind": type(error).__name__})
        pipe.send_bytes(answer.packed())


def _done(learners: dict[int, Local], asked: Message) -> Message:
    """What was asked for."""
    head, number = asked.head, asked.head["learner"]
    match head["do"]:
        case "fresh":
            learners[number] = Here().fresh(head["settings"])
        case "load":
            learners[number] = Here().load(head["folder"])
        case "observe":
            learners[number].observe(head["time"], asked.body)
        case "forecast":
            return _said(learners[number].forecast(head["levels"]), quantiles=head["quantiles"])
        case "save":
            learners[number].save(head["folder"])
            return Message({})
        case "leave":
            learners.pop(number, None)
            return Message({})
    learner = learners[number]
    more = {"columns": learner.columns, "health": learner.health()}
    return Message(more) if learner.empty else _said(learner.forecast(), more)


def _said(forecast: LiveForecast, more: Mapping[str, Any] | None = None, quantiles: Sequence[float] = ()) -> Message:
    """A forecast as it is sent."""
    parts = [forecast.mean, *(end for ends in forecast.intervals.values() for end in ends)]
    parts += [*forecast.quantiles(quantiles)] if quantiles else []
    ticks, unit = forecast.times.astype(np.int64), unit_of(forecast.origin)
    head = {"origin": tick_of(forecast.origin), "unit": unit, "rows": len(ticks), "levels": list(forecast.intervals)}
    head["quantiles"] = list(quantiles)
    return Message({**(more or {}), **head}, ticks.tobytes() + np.stack(parts).astype(np.float64).tobytes())
