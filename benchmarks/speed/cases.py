"""What is timed: a step of each method, as the recipe takes it, as the textbook does, and its floor."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import NamedTuple

import torch
from benchmarks.speed.floor import Batch, Product, flops, mebibytes, products, runner
from benchmarks.speed.store import Row
from benchmarks.speed.textbook import Draws, Method, Textbook

from natsr.forecasters.neural import NeuralForecaster
from natsr.native.build import SWITCH, library
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.options import parsed
from natsr.recipes import NatsrOptions, make
from natsr.replay import Reservoir
from natsr.types import Example, Option, Task

Step = Callable[[], object]
NEVER, ALWAYS, UNREACHABLE = 10**9, 1, 1e9
WINDOW, FEATURES = 60, 7
#: Examples that the timed steps take turns at, and examples that a memory is filled with.
STREAM, MEMORY = 64, 500
SETTLED = 12  # steps before the first that counts


class Case(NamedTuple):
    """One kind of step."""

    name: str
    method: Method
    kind: str  # of the floor's products
    options: dict[str, Option]


RECIPE = NatsrOptions().natural().options
PLAIN: dict[str, Option] = {"every": NEVER, "worst": UNREACHABLE}
#: With the damping in an eigenbasis no step inverts; with explicit inverses one does when the damping has drifted.
_INVERTING = (Case("natsr inverting", "natsr", "inverting", {**PLAIN, "drift": 0.0}),)
CASES = (
    Case("ogd", "ogd", "ogd", {}),
    Case("er", "er", "er", {}),
    Case("natsr plain", "natsr", "plain", PLAIN),
    *(_INVERTING if RECIPE.damped == "drift" else ()),
    Case("natsr refresh", "natsr", "refresh", {"every": ALWAYS}),
)


def shaped(horizon: int, channels: int, window: int = WINDOW) -> Task:
    """ETTh1's shape, with another horizon, number of columns or window."""
    return Task(window=window, horizon=horizon, channels=channels, features=FEATURES)


def examples(task: Task, count: int, seed: int = 0) -> Example:
    """Noise, as one batch."""
    generator = torch.Generator().manual_seed(seed)
    return Example(
        torch.randn(count, task.window, task.inputs, generator=generator),
        torch.randn(count, task.horizon, task.channels, generator=generator),
    )


def one_by_one(batch: Example) -> Iterator[Example]:
    """Its examples, over and over."""
    return cycle([Example(batch.window[i : i + 1], batch.target[i : i + 1]) for i in range(len(batch.window))])


def fast(method: str, task: Task, options: dict[str, Option] | None = None) -> NeuralForecaster[ConeTrace]:
    """A recipe, its memory full."""
    forecaster = make(method, task, options=options)
    assert isinstance(forecaster, NeuralForecaster)
    if isinstance(forecaster.replay, Reservoir):
        filling = examples(task, int((options or {}).get("memory", MEMORY)), seed=1)
        forecaster.replay.add(filling.window, filling.target.flatten(1))
    return forecaster


@contextmanager
def without_compiler() -> Iterator[None]:
    """As on a machine that has none."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "0"
    try:
        yield
    finally:
        del os.environ[SWITCH]
        if before is not None:
            os.environ[SWITCH] = before


def network(forecaster: NeuralForecaster[ConeTrace]) -> ConeTCN:
    """A cone of its shape with its weights, whatever computes its own."""
    net, layers = forecaster.net, forecaster.net.layers
    sizes = {"width": layers[0].outputs, "depth": (len(layers) - 5) // 2, "top": net.hidden}
    cone = ConeTCN(forecaster.task, torch.Generator(), **sizes, dtype=net.weights.dtype)
    cone.weights.copy_(net.weights)
    return cone


def textbook(case: Case, task: Task) -> Textbook:
    """The same method on the dense network, its memory full."""
    chosen = parsed(NatsrOptions(), case.options if case.method == "natsr" else {})
    book = Textbook(network(fast("ogd", task)), case.method, Draws(torch.Generator().manual_seed(0)), chosen)
    if case.method != "ogd":
        filling = examples(task, MEMORY, seed=1)
        book.memory = list(zip(filling.window[:, None], filling.target.flatten(1)[:, None], strict=True))
        book.seen = MEMORY
    return book


def stepper(learner: NeuralForecaster[ConeTrace] | Textbook, task: Task, settle: int) -> Step:
    """A step of it, after some that do not count."""
    stream = one_by_one(examples(task, STREAM))
    for _ in range(settle):
        learner.learn(next(stream))
    return lambda: learner.learn(next(stream))


def multiplications(case: Case, task: Task) -> list[Product]:
    """Of one step."""
    chosen, probes = NatsrOptions(), RECIPE.probes or task.outputs
    examples_in = 1 if case.method == "ogd" else 1 + chosen.draws
    # A replayed example gets as many probes as its weight against the new one's asks for, if they are allotted.
    each = math.ceil(probes * chosen.share / chosen.draws) if getattr(RECIPE, "allotted", False) else probes
    batch = Batch(examples_in, probes + chosen.draws * each, RECIPE.closed)
    return products(network(fast("ogd", task)), case.kind, batch)


def contestants(task: Task, cases: tuple[Case, ...] = CASES) -> dict[str, Step]:
    """Every case's step in up to four forms, by `case/form`."""
    found: dict[str, Step] = {}
    for case in cases:
        found[f"{case.name}/fast"] = stepper(fast(case.method, task, case.options), task, SETTLED)
        if library() is not None:
            with without_compiler():
                found[f"{case.name}/torch"] = stepper(fast(case.method, task, case.options), task, SETTLED)
        # A refresh of the textbook takes seconds; its first step is one.
        found[f"{case.name}/textbook"] = stepper(textbook(case, task), task, 1)
        found[f"{case.name}/floor"] = runner(multiplications(case, task))
    return found


def counted(case: Case, task: Task) -> Row:
    """Operations and bytes of one step's products."""
    needed = multiplications(case, task)
    return {"mflop": round(flops(needed) / 1e6, 2), "mib": round(mebibytes(needed), 2)}
