"""Milliseconds per row of `auto`, without and with its network, and of NatSR beside it: 7 channels, 48 rows ahead.

python -m benchmarks.auto.cost --out benchmarks/results/auto-cost.json

The contestants take turns, 32 rows each, so that whatever else the machine does meets all of them alike, and each has
the caches to itself for as long as it would in use. In 32 rows every block of least squares is taken in at least once:
the mean of such a turn is what a row costs. Said of these means are their mean, their median and the fastest; *quiet*
takes the fastest of each row of a turn, which is what a machine with nothing else to do would need. *processor* is the
mean of the time on the processor, without what was spent waiting for it.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.forecasters.base import Forecaster
from natsr.recipes import make
from natsr.streams import Rows, Step, steps
from natsr.types import Task

TASK = Task(window=60, horizon=48, channels=7, features=0, season=24)
TURN = 32  # rows in the longest block of least squares
FEWEST = 1280  # rows after which blocks are as long as they will be


def measured(rows: int, warm: int) -> dict[str, dict[str, float]]:
    """Milliseconds per row, by contestant."""
    generator = np.random.default_rng(0)
    turns = (rows + TURN - 1) // TURN
    count = TASK.window + warm + turns * TURN + TASK.horizon
    waves = np.sin(2 * np.pi * np.arange(count)[:, None] / 24 + np.arange(7))
    values = torch.from_numpy(waves + 0.3 * generator.standard_normal((count, 7))).float()
    methods = {f"auto, {name}": make("auto", TASK, options={"budget": name}) for name in ("cheap", "one")}
    methods["natsr"] = make("natsr", TASK)
    found = {name: np.zeros((turns, TURN, 2)) for name in methods}
    way = list(steps(Rows(values, values), TASK, "honest", TASK.window, count))
    for name, method in methods.items():
        # NatSR needs no rows to be as slow as it will be.
        for step in way[warm - TURN if name == "natsr" else 0 : warm]:
            played(method, step)
    for number in range(turns):
        for name, method in methods.items():
            part = way[warm + number * TURN : warm + (number + 1) * TURN]
            found[name][number] = [played(method, step) for step in part]
    return {name: figures(times) for name, times in found.items()}


def played(method: Forecaster, step: Step) -> tuple[float, float]:
    """Seconds to learn what has matured and to forecast, by the clock and on the processor."""
    began, busy = time.perf_counter(), time.thread_time()
    if step.matured is not None:
        method.learn(step.matured)
    method.forecast(step.window)
    return time.perf_counter() - began, time.thread_time() - busy


def figures(seconds: npt.NDArray[np.float64]) -> dict[str, float]:
    """In milliseconds per row, of turns `(T, 32, 2)`."""
    turns = 1e3 * seconds[:, :, 0].mean(1)
    return {
        "mean": float(turns.mean()),
        "median": float(np.median(turns)),
        "fastest": float(turns.min()),
        "quiet": 1e3 * float(seconds[:, :, 0].min(0).mean()),
        "processor": 1e3 * float(seconds[:, :, 1].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=640)
    parser.add_argument("--warm", type=int, default=1400)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if given.warm < FEWEST:
        parser.error(f"--warm is {given.warm}, expected at least {FEWEST}: before, blocks are shorter")
    torch.set_num_threads(1)
    given.out.write_text(json.dumps(measured(given.rows, given.warm), indent=1) + "\n")


if __name__ == "__main__":
    main()
