"""The fast step and the textbook step, fed the same random numbers, give the same forecasts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from benchmarks.speed.same import Agreement, Beside, compared
from benchmarks.speed.textbook import Method

from natsr.forecasters.natural import Damped
from natsr.forecasters.neural import NeuralForecaster
from natsr.recipes import NatsrOptions, make
from natsr.streams import Rows
from natsr.types import Option, Task

TASK = Task(window=30, horizon=3, channels=2, features=1)
START, STEPS = 40, 100
#: Deep enough for blocks that see a single row and taps that never meet data; a memory that overflows.
SMALL: dict[str, Option] = {"width": 8, "depth": 6, "top": 12, "memory": 40}
NATURAL: dict[str, Option] = {"every": 15}


def waves(count: int, dtype: torch.dtype) -> Rows:
    times = torch.arange(count, dtype=dtype)
    clean = torch.stack([torch.sin(times / 4), torch.cos(times / 7), times % 5 / 5], 1)
    noise = torch.randn(count, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    inputs = clean + 0.1 * noise
    return Rows(inputs, inputs[:, : TASK.channels])


def agreement(method: Method, dtype: str, damped: Damped | None = None) -> Agreement:
    more = NATURAL if method == "natsr" else {}
    fast = make(method, TASK, seed=3, options={**SMALL, **more, "dtype": dtype})
    assert isinstance(fast, NeuralForecaster)
    if damped is not None and fast.natural is not None:
        few: dict[str, Any] = {"allotted": True} if hasattr(fast.natural.options, "allotted") else {}
        few |= {"closed": True} if damped == "drift" else {}
        fast.natural.options = replace(fast.natural.options, damped=damped, probe="hadamard", **few)
    book = Beside(fast, method, NatsrOptions(memory=40, every=15))
    rows = waves(START + STEPS + 2 * TASK.horizon, torch.float64 if dtype == "float64" else torch.float32)
    return compared(fast, book, rows, (START, len(rows.inputs)))


@pytest.mark.parametrize("method", ["ogd", "er", "natsr"])
def test_in_float64_to_rounding(method: Method) -> None:
    found = agreement(method, "float64")
    assert found.steps >= STEPS and not found.refused
    assert found.largest < 1e-8 and found.typical > 0.05
    assert found.refreshes[0] == found.refreshes[1]
    assert (found.refreshes[0] >= 5) == (method == "natsr")


@pytest.mark.parametrize("damped", ["drift", "step"])
def test_however_the_curvature_is_damped_and_estimated(damped: Damped) -> None:
    found = agreement("natsr", "float64", damped)
    assert found.largest < 1e-8 and found.refreshes[0] == found.refreshes[1] >= 5


@pytest.mark.parametrize("method", ["ogd", "er", "natsr"])
def test_in_float32_as_far_as_it_goes(method: Method) -> None:
    found = agreement(method, "float32")
    assert not found.refused and found.refreshes[0] == found.refreshes[1]
    assert found.largest < 1e-3 < 0.05 < found.typical


def test_other_random_numbers_would_show() -> None:
    fast = make("natsr", TASK, seed=3, options={**SMALL, **NATURAL, "dtype": "float64"})
    assert isinstance(fast, NeuralForecaster)
    book = Beside(fast, "natsr", NatsrOptions(memory=40, every=15))
    book.book.draws.generator.manual_seed(12345)
    rows = waves(START + STEPS + 2 * TASK.horizon, torch.float64)
    assert compared(fast, book, rows, (START, len(rows.inputs)), steps=30).largest > 1e-6
