"""The time of a step of FSNet and OneNet beside OGD's: `python -m benchmarks.adapted`.

Steps take turns in one process and one thread, and what is counted is the processor's time. A machine that others use
slows all of them down, the large networks more than OGD: their weights do not fit into a cache of one's own.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable

import torch
from benchmarks.speed.timing import in_turns

from natsr.recipes import make
from natsr.types import Example, Task

METHODS = ("ogd", "fsnet", "fsnet_mae", "onenet", "onenet_mae")


def stepping(method: str, task: Task) -> Callable[[], None]:
    """A step of a fresh learner on the next of some examples of noise."""
    generator = torch.Generator().manual_seed(0)
    forecaster = make(method, task)
    examples = [
        Example(
            torch.randn(1, task.window, task.inputs, generator=generator),
            torch.randn(1, task.horizon, task.channels, generator=generator),
        )
        for _ in range(50)
    ]
    turn = itertools.cycle(examples)
    forecaster.learn(next(turn))
    return lambda: forecaster.learn(next(turn))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each method and shape")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(1)
    for horizon, channels in ((1, 7), (24, 7), (48, 12)):
        task = Task(window=60, horizon=horizon, channels=channels, features=7)
        times = in_turns({method: stepping(method, task) for method in METHODS}, seconds)
        for method, time in times.items():
            ratio = time.median / times["ogd"].median
            line = f"H = {horizon:2}, C = {channels:2}  {method:10}  {time.median:6.2f} ms  {ratio:5.2f} x OGD"
            sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
