"""Milliseconds per row of `auto`, without and with its network, and of NatSR beside it: 7 channels, 48 rows ahead.

python -m benchmarks.auto.cost --out benchmarks/results/auto-cost.json

The contestants take turns row by row, so that whatever else the machine does meets all of them alike. A mean counts
every row, the ones at which a block of rows is taken in as well. The quiet figure takes the fastest of each place in a
block: what a machine with nothing else to do would need.
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
BLOCK = 32  # rows in the longest block of least squares


def measured(rows: int, warm: int) -> dict[str, dict[str, float]]:
    """Milliseconds per row, by contestant."""
    generator = np.random.default_rng(0)
    count = warm + rows + 2 * TASK.horizon
    waves = np.sin(2 * np.pi * np.arange(count)[:, None] / 24 + np.arange(7))
    values = torch.from_numpy(waves + 0.3 * generator.standard_normal((count, 7))).float()
    methods = {f"auto, {name}": make("auto", TASK, options={"budget": name}) for name in ("cheap", "one")}
    methods["natsr"] = make("natsr", TASK)
    found: dict[str, list[float]] = {name: [] for name in methods}
    for number, step in enumerate(steps(Rows(values, values), TASK, "honest", TASK.window, count)):
        for name, method in methods.items():
            if name == "natsr" and number < warm - BLOCK:
                continue  # it needs no rows to be as slow as it will be
            found[name].append(turn(method, step))
        if number >= warm + rows:
            break
    return {name: figures(np.array(times[-rows:])) for name, times in found.items()}


def turn(method: Forecaster, step: Step) -> float:
    """Seconds to learn what has matured and to forecast."""
    began = time.perf_counter()
    if step.matured is not None:
        method.learn(step.matured)
    method.forecast(step.window)
    return time.perf_counter() - began


def figures(seconds: npt.NDArray[np.float64]) -> dict[str, float]:
    """In milliseconds: the mean, and what a row costs where each place in a block is as fast as it ever was."""
    whole = seconds[: len(seconds) // BLOCK * BLOCK].reshape(-1, BLOCK)
    return {"mean": 1e3 * float(seconds.mean()), "quiet": 1e3 * float(whole.min(0).mean())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=320)
    parser.add_argument("--warm", type=int, default=1400)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.write_text(json.dumps(measured(given.rows, given.warm), indent=1) + "\n")


if __name__ == "__main__":
    main()
