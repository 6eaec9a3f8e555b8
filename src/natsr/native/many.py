"""Many learners in one call of C: the structures of `many.h` as Python fills them, and who works through them."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import weakref
from collections.abc import Sequence
from typing import ClassVar, TypeAlias

from natsr.native.build import NativeError
from natsr.types import OptionError

_P, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_Fields: TypeAlias = list[tuple[str, type]]
Address: TypeAlias = int | None

IDLE, WAITING, TAKEN, REFUSED, RESTORED, DUE, NO_ROOM = range(7)  # what came of a turn


def _fields(kind: type, names: str) -> _Fields:
    return [(name, kind) for name in names.split()]


class Losses(ctypes.Structure):
    """`losses` in step.h."""

    variance: float
    tracked: float
    _fields_: ClassVar[_Fields] = _fields(_D, "student dof variance tracked share distil factor")


class Finish(ctypes.Structure):
    """`finish` in step.h."""

    _fields_: ClassVar[_Fields] = _fields(_D, "rate adam beta1 beta2 eps decay step")


class Pair(ctypes.Structure):
    """`matrices` in many.h."""

    a: Address
    g: Address
    head: Address
    _fields_: ClassVar[_Fields] = _fields(_P, "a g head")


class Record(ctypes.Structure):
    """`learner` in many.h."""

    loss: Losses
    move: Finish
    last: float
    mean: float
    spread: float
    since: float
    made: float
    made_for: float
    tau: float
    norm: float
    bound: float
    natural: int
    closed: int
    known: int
    smooth: int
    moved: int
    steps: int
    refused: int
    refreshes: int
    restored: int
    w: Address
    m: Address
    v: Address
    taken: Address
    sane: Address
    smoothed: Address
    memory: ctypes.Array[ctypes.c_void_p]
    factors: ctypes.Array[Pair]
    inverses: ctypes.Array[Pair]
    _fields_: ClassVar[_Fields] = [
        ("loss", Losses),
        ("move", Finish),
        *_fields(_D, "scale_rate scale_floor farthest largest"),
        *_fields(_D, "law beta average drift blend clip worst recent every"),
        *_fields(_D, "last mean spread since made made_for tau norm bound"),
        *_fields(_I, "natural closed known smooth moved steps refused refreshes restored"),
        *_fields(_P, "w m v taken sane smoothed"),
        ("memory", _P * 3),
        ("factors", Pair * 2),
        ("inverses", Pair * 2),
    ]


class Turn(ctypes.Structure):
    """`turn` in many.h."""

    fresh: int
    drawn: int
    probes: int
    verdict: int
    raw_window: Address
    raw_target: Address
    news: Address
    chosen: Address
    rows: Address
    owner: Address
    window: Address
    target: Address
    taught: Address
    output: Address
    weights: Address
    done: Address
    _fields_: ClassVar[_Fields] = [
        *_fields(_I, "fresh drawn probes verdict"),
        *_fields(_P, "raw_window raw_target news chosen rows owner window target taught output weights done"),
    ]


class Question(ctypes.Structure):
    """`question` in many.h."""

    examples: int
    raw_window: Address
    output: Address
    _fields_: ClassVar[_Fields] = [*_fields(_I, "examples"), *_fields(_P, "raw_window output")]


class Entry(ctypes.Structure):
    """`entry` in many.h."""

    _fields_: ClassVar[_Fields] = _fields(_I, "number index place")


class Reading(ctypes.Structure):
    """`frame` in many.h."""

    _fields_: ClassVar[_Fields] = [
        *_fields(_D, "limit farthest"),
        *_fields(_I, "reach channels anchors_input anchors_output only_news"),
    ]


@functools.cache
def check_sizes(library: ctypes.CDLL) -> None:
    """Refuse a library whose structures are not these: it would write beyond them."""
    kinds = (Record, Turn, Question, Entry, Reading)
    found = (ctypes.c_int64 * len(kinds))()
    library.many_sizes(found)
    if list(found) != (expected := [ctypes.sizeof(kind) for kind in kinds]):
        raise NativeError(
            f"the structures in C have {list(found)} bytes, expected {expected}: the C and the Python of natsr are "
            "of two versions; install it again"
        )


class Workers:
    """Threads that work through learners in C, each at a desk of its own; who calls is one of them.

    C lets go of Python's lock and wakes the threads, which wait in C, so nobody waits for anybody: each takes the next
    learner until none is left.

    Args:
        library: The compiled step.
        plan: The network, as `cone_new` reads it: sizes and convolutions.
        reading: What networks read, are taught and mean.
        threads: How many work at the same time.
    """

    def __init__(
        self, library: ctypes.CDLL, plan: tuple[Sequence[int], Sequence[int]], reading: Reading, threads: int
    ) -> None:
        if threads < 1:
            raise OptionError(f"threads is {threads}, expected at least 1")
        check_sizes(library)
        self.library, self.threads = library, threads
        self._reading = ctypes.pointer(reading)
        self._lock = threading.Lock()
        self._crew: int | None = None
        self._process = 0
        self._desks = (_P * threads)()
        sizes, convolutions = ((ctypes.c_int32 * len(part))(*part) for part in plan)
        for number in range(threads):
            address = library.desk_new(sizes, convolutions)
            if not address:
                raise MemoryError("no memory for a worker's buffers")
            weakref.finalize(self, library.desk_free, address)
            self._desks[number] = address

    def read(self, turns: ctypes.Array[Turn], count: int) -> None:
        """Read the examples of the first `count` turns."""
        self.library.many_read(self._desks[0], self._reading, turns, count)

    def learn(self, records: ctypes.Array[Record], turns: ctypes.Array[Turn], count: int) -> None:
        """Let those of the first `count` turns that wait be taken."""
        with self._lock:
            self.library.many_learn(*self._who(count), records, turns, count)

    def remember(
        self, records: ctypes.Array[Record], turns: ctypes.Array[Turn], kept: Sequence[tuple[int, int, int]]
    ) -> None:
        """Put examples into memories: of this learner, of this index, at this place."""
        entries = (Entry * len(kept))(*(Entry(*one) for one in kept))
        self.library.many_remember(self._desks[0], records, turns, entries, len(kept))

    def forecast(self, records: ctypes.Array[Record], asked: ctypes.Array[Question], count: int) -> None:
        """Let the first `count` questions be answered."""
        with self._lock:
            self.library.many_forecast(*self._who(count), self._reading, records, asked, count)

    def _who(self, count: int) -> tuple[int | None, object, int]:
        """The threads, their desks, and how many of them are to work."""
        workers = max(min(self.threads, count), 1)
        if workers > 1 and self._process != os.getpid():  # threads do not come along into a process that was forked off
            self._crew, self._process = self.library.crew_new(self.threads - 1), os.getpid()
            weakref.finalize(self, self.library.crew_free, self._crew)
        return self._crew, self._desks, workers
