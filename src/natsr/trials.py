"""What the checks are made of: streams with something wild in them, and looks at bits, random states and memory."""

from __future__ import annotations

import gc
import math
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType, TracebackType
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from natsr.evaluate import peak_mib
from natsr.forecasters.base import Forecaster
from natsr.streams import Rows, Step, steps
from natsr.types import Example, ProtocolName, Task

#: What most checks forecast: the windows handed over are longer than a network's, and there is a feature.
TASK = Task(window=8, horizon=3, channels=2, features=1, season=12)
WARM = 100  # rows before the stream
STRETCH = 96  # rows over which an error is measured
SETTLE = 60  # rows between the unusual and that measurement


# ---- streams -----------------------------------------------------------------------------------------------------


def wave(count: int) -> Rows:
    """Two noisy waves of period 12, and where in the period each row lies."""
    times = torch.arange(float(count))[:, None]
    noise = torch.randn(count, TASK.channels, generator=torch.Generator().manual_seed(0))
    values = torch.sin(times * (torch.pi / 6) + torch.arange(float(TASK.channels))) + 0.1 * noise
    return Rows(torch.cat([values, times % 12 / 12 - 0.5], 1), values)


def shocked(first: int, apart: int) -> Rows:
    """Waves in which three single values are wild, the first at row `first`, each `apart` rows after the one before."""
    inputs, truth = wave(first + 2 * apart + SETTLE + STRETCH)
    for number, (channel, value) in enumerate(((0, 1e6), (1, -1e6), (0, 1e30))):
        row = first + number * apart
        inputs[row, channel] = truth[row, channel] = value
    return Rows(inputs, truth)


def with_gaps(rows: Rows, first: int, count: int) -> Rows:
    """The rows with `count` of them missing from `first` on, and with every third value missing in the `count` after.

    The inputs keep the last value that was known, as they do in every stream here.
    """
    inputs, truth = rows.inputs.clone(), rows.truth.clone()
    truth[first : first + count] = torch.nan
    truth[first + count : first + 2 * count].view(-1)[::3] = torch.nan
    for row in range(first, first + 2 * count):
        known = truth[row].isfinite()
        inputs[row, : TASK.channels] = torch.where(known, truth[row], inputs[row - 1, : TASK.channels])
    return Rows(inputs, truth)


def stream(rows: Rows, protocol: ProtocolName = "honest") -> Iterator[Step]:
    """The moments after the warm-up."""
    return steps(rows, TASK, protocol, WARM, len(rows.inputs))


def windows(task: Task, batch: int) -> Tensor:
    """Windows of noise, `(B, R, D)`."""
    return torch.randn(batch, task.reach, task.inputs, generator=torch.Generator().manual_seed(1))


def copied(example: Example, device: str = "cpu") -> Example:
    """An example with memory of its own."""
    given = {name: part.to(device, copy=True) for name, part in example._asdict().items() if part is not None}
    return Example(**given)


# ---- bits --------------------------------------------------------------------------------------------------------


def contents(state: object, place: str = "") -> dict[str, bytes]:
    r"""Every part of a state by its place, as bits: states are equal if these are.

    >>> contents({"count": 3, "parts": [None, torch.zeros(1)]})
    {'/count': b'3', '/parts/0': b'None', '/parts/1': b'torch.float32(1,)\x00\x00\x00\x00'}
    """
    if isinstance(state, Tensor):
        bits = state.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return {place: f"{state.dtype}{tuple(state.shape)}".encode() + bits}
    parts = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else None
    if parts is None:
        return {place: repr(state).encode()}
    return {name: bits for key, part in parts for name, bits in contents(part, f"{place}/{key}").items()}


def differing(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The places at which two states differ."""
    return sorted(place for place in before.keys() | after.keys() if before.get(place) != after.get(place))


def apart(first: Tensor, second: Tensor) -> str:
    """The largest difference, as text."""
    return f"{float((first - second).abs().max()):.3g}"


def luck() -> tuple[bytes, str, int]:
    """Every global random state: torch's, numpy's and Python's."""
    with np.printoptions(threshold=sys.maxsize):
        numpy = repr(np.random.get_state(legacy=False))
    return torch.get_rng_state().numpy().tobytes(), numpy, hash(random.getstate())


# ---- verdicts -----------------------------------------------------------------------------------------------------


class SkippedError(Exception):
    """The check cannot be tried here, or says nothing about this forecaster."""


def expect(met: bool, otherwise: str) -> None:
    """As `assert`, which `python -O` leaves out."""
    if not met:
        raise AssertionError(otherwise)


def expect_same(before: dict[str, bytes], after: dict[str, bytes], what: str) -> None:
    """Refuse states that differ, and say where."""
    places = differing(before, after)
    expect(not places, f"{what}: {', '.join(places[:5])}; expected every bit as it was")


def expect_finite(mean: Tensor, origin: int, when: str) -> None:
    """Refuse a forecast that is no number."""
    expect(bool(mean.isfinite().all()), f"the forecast from row {origin} is not finite {when}; expected numbers")


class Verdict:
    """Times a check, and turns what it raises into a sentence."""

    def __enter__(self) -> Self:
        self.error: str | None = None
        self.skipped: str | None = None
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.seconds = time.perf_counter() - self._began
        if isinstance(error, SkippedError):
            self.skipped = str(error)
        elif isinstance(error, AssertionError) and str(error):
            self.error = str(error)
        elif isinstance(error, Exception):
            place = traceback.extract_tb(trace)[-1]
            self.error = f"{type(error).__name__} at {place.filename}:{place.lineno}: {error}"
        return isinstance(error, Exception)


# ---- memory ------------------------------------------------------------------------------------------------------


class Use(NamedTuple):
    """What a forecaster takes."""

    state: int  # bytes in state_dict()
    held: int  # bytes of everything that it reaches
    objects: int  # Python objects in the whole process
    resident: int  # bytes of the whole process


def use(forecaster: Forecaster) -> Use:
    """Look at it from four sides: a leak may hide from any one of them."""
    gc.collect()
    state = sum(map(len, contents(forecaster.state_dict()).values()))
    return Use(state, held(forecaster), len(gc.get_objects()), _resident())


def held(root: object) -> int:
    """Bytes of all objects that one reaches, tensors' memory included; code is left out, since it leads anywhere.

    >>> held([torch.zeros(1000)]) - held([torch.zeros(500)])
    2000
    """
    todo, seen, total = [root], set[object](), 0
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | FunctionType | BuiltinFunctionType):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, Tensor):
            memory = thing.untyped_storage()
            total += 0 if ("memory", memory.data_ptr()) in seen else memory.nbytes()
            seen.add(("memory", memory.data_ptr()))
        todo.extend(gc.get_referents(thing))
    return total


def _resident() -> int:
    """Bytes that the process holds; where the system does not say, the most that it ever held, or 0."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = peak_mib()
        return 0 if math.isnan(peak) else int(peak * 2**20)
