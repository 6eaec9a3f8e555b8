"""How a step that decides for itself is run: at once, or recorded as a CUDA graph and then replayed.

A step is a function of a `Control`. It works on tensors in place, and where what it does next depends on a tensor it
asks the control: `when(flag, body)` or `repeat(flag, body)`. Run at once, the host looks at the flag. Recorded, the
device does: the body becomes a conditional node of the graph (`natsr.native.cuda`), and so does the step itself,
in a loop: many steps are one launch, and the host neither waits nor helps. Where such nodes cannot be had, the
recording is cut at each body, the host looks at the flags between the pieces, and launches every step.
"""

from __future__ import annotations

import abc
import ctypes
import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from natsr.native import cuda

T = TypeVar("T")
Body = Callable[[], None]
new_stream: Callable[[], torch.cuda.Stream] = torch.cuda.Stream  # which torch leaves untyped

_BRANCHES = 3  # beside the one that forks
_DEPTH = 2  # a step within the loop, and a body within the step


class Control(abc.ABC):
    """What a step asks for when it depends on a tensor; `flag` is a bool without axes, on the step's device."""

    is_whole = True  # whether what is begun before a body may end after it

    @abc.abstractmethod
    def _run(self, flag: Tensor, body: Body, loop: bool) -> None:
        """Run the body if, or while, the flag is set."""

    def when(self, flag: Tensor, body: Body) -> None:
        """Run the body if the flag is set."""
        self._run(flag, body, loop=False)

    def repeat(self, flag: Tensor, body: Body) -> None:
        """Run the body as long as the flag is set; the body must see to it that it ends."""
        self._run(flag, body, loop=True)


Step = Callable[[Control], None]


class AtOnce(Control):
    """The host looks at the flag."""

    def _run(self, flag: Tensor, body: Body, loop: bool) -> None:
        while bool(flag):
            body()
            if not loop:
                break


class _Nodes(Control):
    """Bodies become conditional nodes of the graph that is being captured."""

    def __init__(self, library: ctypes.CDLL, pool: torch.cuda.MemPool) -> None:
        self._library, self._pool = library, pool
        self._depth = 0

    def _run(self, flag: Tensor, body: Body, loop: bool) -> None:
        here, graph, handle = torch.cuda.current_stream(), ctypes.c_void_p(), ctypes.c_ulonglong()
        place = ctypes.c_void_p(flag.data_ptr())
        opened = self._library.when_open(
            ctypes.c_void_p(here.cuda_stream), place, int(loop), ctypes.byref(graph), ctypes.byref(handle)
        )
        cuda.check(opened)
        stream = _lanes()[self._depth][0]  # a body is captured on a stream of its own
        side = ctypes.c_void_p(stream.cuda_stream)
        self._depth += 1
        with torch.cuda.stream(stream):
            cuda.check(self._library.when_begin(side, graph))
            with torch.cuda.use_mem_pool(self._pool) if self._depth == 1 else nullcontext():
                body()
            cuda.check(self._library.when_end(side, handle, place, int(loop)))
        self._depth -= 1


class _Pieces(Control):
    """Each body, and each stretch between bodies, becomes a graph of its own."""

    is_whole = False

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._pieces: list[tuple[torch.cuda.CUDAGraph, Tensor | None, bool]] = []

    def record(self, step: Step) -> Callable[[int], None]:
        self._begin()
        step(self)
        self._end(None, loop=False)
        return self._replay

    def _begin(self) -> None:
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(self._pool, capture_error_mode="thread_local")

    def _end(self, flag: Tensor | None, loop: bool) -> None:
        self._graph.capture_end()
        self._pieces.append((self._graph, flag, loop))

    def _run(self, flag: Tensor, body: Body, loop: bool) -> None:
        self._end(None, loop=False)
        self._begin()
        body()
        self._end(flag, loop)
        self._begin()

    def _replay(self, steps: int) -> None:
        for graph, flag, loop in self._pieces * steps:
            while flag is None or bool(flag):
                graph.replay()
                if not loop:
                    break


class Mark:
    """A place behind all that is in a stream so far; without a stream, it has been reached."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        make: Callable[[], torch.cuda.Event] = torch.cuda.Event
        self._event = None if stream is None else make()
        if self._event is not None:
            self._event.record(stream)

    def is_reached(self) -> bool:
        """Whether all of it is done."""
        if self._event is None:
            return True
        query: Callable[[], bool] = self._event.query
        return query()


def recorded(step: Step, going: Tensor, stream: torch.cuda.Stream) -> Callable[[int], None]:
    """The step as a program: call what is returned, on the same stream, with the number of steps to take.

    Args:
        step: Must have run at once on this stream before, so that the libraries have made what they need.
        going: A flag that the step clears when it was the last one; it must be set before the program is called.
        stream: Where the program will run.
    """
    library = cuda.library()
    stream.synchronize()
    _forget_workspaces()
    with torch.cuda.stream(stream):  # not torch.cuda.graph, which would wait for all that runs on the device
        if library is None:
            return _Pieces().record(step)
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.MemPool()
        control = _Nodes(library, pool)
        graph.capture_begin(capture_error_mode="thread_local")
        control.repeat(going, lambda: step(control))
        graph.capture_end()
    _forget_workspaces()
    return _Loop(graph, pool)


def _forget_workspaces() -> None:
    """Make the matrix library take new scratch memory: programs that run beside each other must not share any.

    It keeps some for each stream that it has worked on, and all recordings are made on the same few streams.
    """
    forget: Callable[[], None] = torch._C._cuda_clearCublasWorkspaces
    forget()


class _Loop:
    """A graph that loops by itself, with what must live as long as it does."""

    def __init__(self, graph: torch.cuda.CUDAGraph, pool: torch.cuda.MemPool) -> None:
        self._graph, self._kept = graph, pool

    def __call__(self, _steps: int) -> None:
        self._graph.replay()


class Branches:
    """Runs jobs that do not depend on each other: on a GPU side by side, in streams that fork here and join here.

    Args:
        fork: Whether to; not to is right on a CPU, and where nothing is recorded.
    """

    def __init__(self, fork: bool = False) -> None:
        self._fork = fork

    def run(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """The results, in order."""
        if not self._fork or len(jobs) < 2:
            return [job() for job in jobs]
        here = torch.cuda.current_stream()
        streams = _branches(here)[: len(jobs) - 1]
        for stream in streams:
            stream.wait_stream(here)
        lanes, found = [here, *streams], list[T]()
        for index, job in enumerate(jobs):
            with torch.cuda.stream(lanes[index % len(lanes)]):
                found.append(job())
        for stream in streams:
            here.wait_stream(stream)
        return found

    def aside(self, job: Callable[[], T]) -> Callable[[], T]:
        """Begin a job beside what follows; what is returned waits for it and gives its result."""
        if not self._fork:
            found = job()
            return lambda: found
        here = torch.cuda.current_stream()
        stream = _branches(here)[-1]
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            result = job()

        def join() -> T:
            here.wait_stream(stream)
            return result

        return join


@functools.cache
def _lanes() -> list[list[torch.cuda.Stream]]:
    """For bodies, and bodies within bodies: a stream to record each on, and branches of that stream.

    Recording is one after the other in a process, so all share them. They have another priority than `new_stream`'s:
    torch hands out its streams in turn, and these must not be the same.
    """
    made: Callable[..., torch.cuda.Stream] = torch.cuda.Stream
    return [[made(priority=-1) for _ in range(1 + _BRANCHES)] for _ in range(1 + _DEPTH)]


def _branches(here: torch.cuda.Stream) -> list[torch.cuda.Stream]:
    """Streams to fork into; one that has joined a recording belongs to it until it ends, so each depth has its own."""
    lanes = _lanes()
    return next((others for first, *others in lanes[:-1] if first == here), lanes[-1][1:])
