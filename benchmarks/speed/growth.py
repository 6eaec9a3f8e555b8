"""How the cost of a step grows with the horizon, the columns, the window, the memory, and the number of learners."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.speed.cases import (
    CASES,
    NEVER,
    SETTLED,
    UNREACHABLE,
    Step,
    examples,
    fast,
    multiplications,
    one_by_one,
    shaped,
    stepper,
)
from benchmarks.speed.floor import flops
from benchmarks.speed.store import Row, Unit
from benchmarks.speed.timing import in_turns

from natsr.fleet.choice import best
from natsr.forecasters.base import Forecaster
from natsr.types import Example, Option, Task

HORIZON, CHANNELS, WINDOW, BUFFER = 24, 7, 60, 500
LEARNERS = (1, 4, 16, 32)
SMALL: dict[str, Option] = {"width": 32, "top": 32}
AXES: dict[str, tuple[int, ...]] = {
    "horizon": (1, 6, 12, 24, 48, 96),
    "channels": (1, 7, 12, 40, 120, 321),
    "window": (60, 240, 960),
    "buffer": (100, 500, 2000, 10000),
}


def at(axis: str, value: int) -> tuple[Task, dict[str, Option]]:
    """The usual shape with one size changed."""
    size = {"horizon": HORIZON, "channels": CHANNELS, "window": WINDOW} | {axis: value}
    options: dict[str, Option] = {"memory": value} if axis == "buffer" else {}
    return shaped(size["horizon"], size["channels"], size["window"]), options


def along(axis: str, seconds: float) -> list[Row]:
    """All cases at all sizes, in turns; a window of 960 takes 14 blocks to be seen, and gets them."""
    steps, work = {}, {}
    for value in AXES[axis]:
        task, more = at(axis, value)
        for case in CASES:
            if axis == "buffer" and case.method == "ogd":
                continue
            name = f"{case.name}/{value}"
            steps[name] = stepper(fast(case.method, task, {**case.options, **more}), task, SETTLED)
            work[name] = flops(multiplications(case, task)) / 1e6
    times = in_turns(steps, seconds)
    return [_row(axis, name, times[name].least, work[name]) for name in steps]


def together(seconds: float) -> list[Row]:
    """NatSR for one column and a network of width 32: all learners in one step, and one after the other."""
    task, options = shaped(HORIZON, 1), {**SMALL, "every": NEVER, "worst": UNREACHABLE}
    example = next(one_by_one(examples(task, 1)))
    steps: dict[str, Step] = {}
    for count in LEARNERS:
        apart = [fast("natsr", task, options) for _ in range(count)]
        fleet = best([fast("natsr", task, options) for _ in range(count)], threads=1)
        steps[f"in one step/{count}"] = partial(fleet.learn, [example] * count)
        steps[f"one by one/{count}"] = partial(_each, apart, example)
    for step in steps.values():
        for _ in range(SETTLED):
            step()
    times = in_turns(steps, seconds)
    return [_row("learners", name, times[name].least, 0.0) for name in steps]


def _each(learners: Sequence[Forecaster], example: Example) -> None:
    for learner in learners:
        learner.learn(example)


def _row(axis: str, name: str, ms: float, mflop: float) -> Row:
    case, value = name.split("/")
    return {"axis": axis, "value": int(value), "case": case, "ms": round(ms, 4), "mflop": round(mflop, 2)}


def grown(quick: bool) -> list[Unit]:
    """What the section `growth` is made of."""

    def unit(axis: str) -> Unit:
        return Unit(axis, lambda: along(axis, 0.03 if quick else 0.15))

    learners = Unit("learners", lambda: together(0.05 if quick else 0.5))
    return [*(unit(axis) for axis in AXES), learners]
