"""Times of several things that take turns, so that the machine's noise falls on all of them.

What is counted is the processor's time for this process. Everything that is timed runs in one thread, so on a quiet
machine that is the time that passes, and on a busy one it leaves out the time that others had.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

Step = Callable[[], object]
#: A block of calls lasts at least this long, in seconds, where one call is shorter.
BLOCK = 0.01


class Time(NamedTuple):
    """Milliseconds of one call."""

    least: float  # of the fastest block: what the machine can do
    median: float
    calls: int


def once(step: Step, calls: int = 1) -> float:
    """Seconds of `calls` calls, each."""
    start = time.process_time()
    for _ in range(calls):
        step()
    return (time.process_time() - start) / calls


def in_turns(steps: Mapping[str, Step], seconds: float, least_rounds: int = 2, rounds: int = 1000) -> dict[str, Time]:
    """Time things in rounds of one block each.

    A thing drops out when it has had its share of the time, but not before `least_rounds` blocks.

    Args:
        steps: By name; each has been called before.
        seconds: For each of them.
        least_rounds: At least.
        rounds: At most.

    >>> found = in_turns({"nothing": lambda: None}, seconds=0.0)
    >>> found["nothing"].least <= found["nothing"].median
    True
    """
    first = {name: once(step) for name, step in steps.items()}
    blocks = {name: max(1, min(1000, int(BLOCK / max(took, 1e-7)))) for name, took in first.items()}
    # The call that decided on the block's size is itself a block where that is one call.
    found = {name: [first[name]] if blocks[name] == 1 else [] for name in steps}
    for _ in range(rounds):
        due = [n for n in steps if len(found[n]) < least_rounds or sum(found[n]) * blocks[n] < seconds]
        if not due:
            break
        for name in due:
            found[name].append(once(steps[name], blocks[name]))
    return {
        name: Time(min(times) * 1e3, statistics.median(times) * 1e3, len(times) * blocks[name])
        for name, times in found.items()
    }
