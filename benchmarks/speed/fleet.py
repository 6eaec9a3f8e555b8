"""Many small learners: one step of all of them, in every way that `natsr.fleet` has, and one by one.

32 learners of one shape (24 rows ahead of one column, a network of width 32, 9 examples in a step) learn one example
each and forecast once. What takes turns, so that noise falls on all:

- one by one, compiled: 32 forecasters from `natsr.make`, each asked to learn and to forecast by a Python call of its
  own, on one core; and one by one in torch, which is the same where there is no C compiler;
- together, torch: batched matrix products over tiles of learners, in one thread and in one for each core;
- apart, compiled: each learner's own step, with buffers that they share;
- one call: compiled learners through which C goes on its own, in one thread and in one for each core.

Both times are kept: the processor's, in the median round, which on a busy machine leaves out what others had; and the
time that passed, in the fastest round, which alone shows what a second core gives. Ratios say which baseline they are
over. `natsr` is its plain step; in `natsr, refreshing` every learner estimates its curvature again every 21 to 28
steps, about as often as on the streams of the benchmark, at moments of its own.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.fleet             measures, and writes results and page
    OMP_NUM_THREADS=1 python -m benchmarks.speed.fleet --rounds 0  writes the page from the results that are there

Another machine has a file of its own: `--out benchmarks/results/fleet-<name>.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from benchmarks.speed.cases import without_compiler
from benchmarks.speed.machine import describe

from natsr.fleet.apart import Apart, Tiles
from natsr.fleet.base import Learners
from natsr.fleet.choice import SIZE, chosen
from natsr.fleet.compiled import Compiled
from natsr.forecasters.base import Forecaster
from natsr.recipes import make
from natsr.types import Example, Option, Task

LEARNERS = 32
TASK = Task(window=60, horizon=24, channels=1, features=4)
SMALL: dict[str, Option] = {"width": 32, "top": 32}
SELDOM: dict[str, Option] = {"every": 10**9, "worst": 1e9}
#: A recipe and its options, the learner's number in them.
METHODS: dict[str, tuple[str, Callable[[int], dict[str, Option]]]] = {
    "ogd": ("ogd", lambda _: {}),
    "er": ("er", lambda _: {}),
    "natsr": ("natsr", lambda _: SELDOM),
    "natsr, refreshing": ("natsr", lambda number: {**SELDOM, "every": 21 + number % 8}),
}
SELDOM_TIMED = 4  # rounds from one timing of torch to the next
SETTLED = 12  # steps before the clock runs: the memory has examples to draw, the curvature is there
OUT = Path("benchmarks/results/fleet-cpu.json")
PAGE = Path("docs/fleet.md")
BEGIN, END = "<!-- measured: written by benchmarks.speed.fleet -->", "<!-- end of what was measured -->"

Step = Callable[[], None]


class Times(NamedTuple):
    """Milliseconds of one step of all learners."""

    processor: float
    passed: float
    rounds: int


def learners(method: str, compiled: bool) -> list[Forecaster]:
    """Fresh ones, each with a seed of its own."""
    recipe, options = METHODS[method]
    with nullcontext() if compiled else without_compiler():
        return [make(recipe, TASK, seed=seed, options={**SMALL, **options(seed)}) for seed in range(LEARNERS)]


def examples(seed: int) -> Iterator[list[Example]]:
    """For ever: an example for each learner."""
    generator = torch.Generator().manual_seed(seed)
    size = (1, TASK.window, TASK.inputs)
    kept = [
        [
            Example(
                torch.randn(size, generator=generator), torch.randn(1, TASK.horizon, TASK.channels, generator=generator)
            )
            for _ in range(LEARNERS)
        ]
        for _ in range(8)
    ]
    while True:
        yield from kept


def stepping(fleet: Learners) -> Step:
    """All of them learn, then all of them forecast."""
    stream = examples(0)

    def step() -> None:
        given = next(stream)
        fleet.learn(given)
        fleet.forecast([example.window for example in given])

    for _ in range(SETTLED):
        step()
    return step


class OneByOne(Apart):
    """What a program without a fleet does: a loop over forecasters, each with buffers of its own."""

    def join(self, forecasters: Sequence[Forecaster]) -> None:
        self.forecasters += forecasters


def ways(method: str, cores: int) -> dict[str, Step]:
    """Every way of stepping them, ready."""
    fleets: dict[str, Learners] = {
        "one by one, torch": OneByOne(learners(method, compiled=False)),
        "one by one, compiled": OneByOne(learners(method, compiled=True)),
        "together, torch": Tiles(learners(method, compiled=False), SIZE),
        f"together, torch, {cores} threads": Tiles(learners(method, compiled=False), SIZE, cores),
        "apart, compiled": Apart(learners(method, compiled=True)),
        "one call": Compiled(learners(method, compiled=True)),
        f"one call, {cores} threads": Compiled(learners(method, compiled=True), cores),
    }
    return {name: stepping(fleet) for name, fleet in fleets.items()}


def in_turns(steps: dict[str, Step], rounds: int) -> dict[str, Times]:
    """Time each of them once in every round; those of torch, which take long, in every fourth."""
    processor: dict[str, list[float]] = {name: [] for name in steps}
    passed: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name, step in steps.items():
            if turn % SELDOM_TIMED and "torch" in name:
                continue
            began, spent = time.perf_counter(), time.process_time()
            step()
            passed[name].append((time.perf_counter() - began) * 1e3)
            processor[name].append((time.process_time() - spent) * 1e3)
    return {name: Times(statistics.median(processor[name]), min(passed[name]), len(passed[name])) for name in steps}


def measure(method: str, rounds: int, cores: int) -> list[dict[str, str | float]]:
    """A row for each way."""
    times = in_turns(ways(method, cores), rounds)
    picked = chosen(learners(method, compiled=True), cores)
    torch_base, base = times["one by one, torch"], times["one by one, compiled"]
    return [
        {
            "method": method,
            "way": name,
            "processor_ms": round(found.processor, 2),
            "passed_ms": round(found.passed, 2),
            "over_torch": round(torch_base.processor / found.processor, 2),
            "over_torch_passed": round(torch_base.passed / found.passed, 2),
            "over_compiled": round(base.processor / found.processor, 2),
            "over_compiled_passed": round(base.passed / found.passed, 2),
            "rounds": found.rounds,
            "best_chose": f"{'one call' if picked.compiled else f'{picked.size} in a tile'}, {picked.threads} threads",
        }
        for name, found in times.items()
    ]


def table(rows: Sequence[dict[str, str | float]]) -> str:
    """The rows as Markdown, as the page shows them."""
    lines = [
        "| method | way | ms: processor / passed | × one by one, torch | × one by one, compiled |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        pairs = (("processor_ms", "passed_ms"), ("over_torch", "over_torch_passed"))
        cells = [f"{row[one]} / {row[other]}" for one, other in (*pairs, ("over_compiled", "over_compiled_passed"))]
        lines.append(f"| {row['method']} | {row['way']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def machines(results: Path = OUT.parent) -> list[dict[str, Any]]:
    """What was measured on each machine, that with the fewest cores first."""
    found = [json.loads(path.read_text()) for path in results.glob("fleet-*.json")]
    return sorted(found, key=lambda content: int(content["machine"]["cores"]))


def where(content: dict[str, Any]) -> str:
    """The machine, and how it was measured there."""
    machine, rounds = content["machine"], max(row["rounds"] for row in content["rows"])
    return f"""\
On {machine["cores"]} cores of {machine["cpu"]} ({machine["vectors"]}, torch {machine["torch"]}), with a load of
{machine["load"]} when it began, on {machine["day"]}: {content["learners"]} learners, milliseconds of one step and one
forecast of all of them. The processor's time is that of the median of {rounds} rounds (torch: a fourth of them), the
time that passed that of the fastest. Where the load is above the number of cores, others were at work, and the time
that passed says little."""


def paged(page: str, contents: Sequence[dict[str, Any]]) -> str:
    """The page with the results in their place."""
    before, rest = page.split(BEGIN)
    parts = [text for content in contents for text in (where(content), "", table(content["rows"]), "")]
    return "\n".join([before + BEGIN, "", *parts, END + rest.split(END)[1]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--methods", default=";".join(METHODS))
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.rounds:
        machine = describe()
        rows = [row for method in given.methods.split(";") for row in measure(method, given.rounds, given.cores)]
        new = {"machine": machine, "learners": LEARNERS, "options": SMALL, "rows": rows}
        given.out.write_text(json.dumps(new, indent=1) + "\n")
    PAGE.write_text(paged(PAGE.read_text(), machines()))
    sys.stdout.write(table(json.loads(given.out.read_text())["rows"]) + "\n")


if __name__ == "__main__":
    main()
