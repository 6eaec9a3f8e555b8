"""NatSR on a GPU: the whole stream of ETTh1 for one learner, for 64, and 512 in memory, in one run.

    NATSR_DATA=<folder> python -m benchmarks.speed.gpu --out benchmarks/results/speed-gpu.json

Each fleet goes along the stream in `natsr.fleet.loop.Loop`: one CUDA graph for a step, nothing of it on the host.
Beside it, over a few hundred rows: the same learner stepped from the host on the GPU, and on one core of the CPU. Times
are of the online part, the recording of the graph included, the warm-up not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from benchmarks.speed.machine import describe

from natsr.bench.cells import Cell, load_for
from natsr.data.series import Prepared
from natsr.fleet.loop import Loop
from natsr.fleet.school import School
from natsr.fleet.together import Together
from natsr.forecasters.base import Forecaster
from natsr.metrics import naive_error
from natsr.native import cuda
from natsr.recipes import make
from natsr.streams import steps

FULL = (1, 8, 64)  # learners that go along the whole stream
MANY, SOME = 512, 600  # learners that go along a part of it, and how far
ALONE = 300  # steps of a learner that the host steps
GIB = 2**30


def learners(data: Prepared, count: int, device: str) -> list[Forecaster]:
    """NatSR with `count` seeds."""
    return [make("natsr", data.task(60, 24), seed=seed, device=device) for seed in range(count)]


def along(data: Prepared, count: int, max_steps: int | None = None, warm: bool = True) -> dict[str, Any]:
    """A fleet along the stream: its times, memory and error."""
    torch.cuda.reset_peak_memory_stats()
    fleet, borders = Together(learners(data, count, "cuda")), data.borders
    row: dict[str, Any] = {"learners": count}
    began = time.perf_counter()
    if warm:
        School(fleet, [data.rows] * count, (borders.train, borders.valid)).run()
        torch.cuda.synchronize()
    row["warm_seconds"] = time.perf_counter() - began if warm else None
    began = time.perf_counter()
    loop = Loop(fleet, [data.rows] * count, (borders.valid, borders.online), "paper", max_steps)
    loop.run()
    row |= {"steps": loop.total, "seconds": time.perf_counter() - began}
    counts, absolute, _ = loop.sums()
    naive = naive_error(data.rows.truth, borders.valid, borders.online)
    mases = absolute.sum((1, 2)) / counts.sum((1, 2)) / naive
    refreshes = [fleet.info(number)["refreshes"] for number in range(count)]
    row |= {"ms": 1e3 * row["seconds"] / loop.total, "mase": float(mases.mean()), "mase_std": float(mases.std())}
    row |= {"refreshes": sum(refreshes) / count, "peak_gib": torch.cuda.max_memory_allocated() / GIB}
    row["refused"] = sum(fleet.info(number)["refused"] for number in range(count))
    return row


def alone(data: Prepared, device: str) -> float:
    """Milliseconds of a step, learning and forecasting, that the host asks for."""
    (forecaster,) = learners(data, 1, device)
    walk = steps(data.rows, data.task(60, 24), "paper", data.borders.valid, data.borders.online)
    began = 0.0
    for number, step in enumerate(walk):
        if number == ALONE // 4:
            began = time.perf_counter()
        if number == ALONE:
            break
        if step.matured is not None:
            forecaster.learn(step.matured)
        forecaster.forecast(step.window).mean.sum().item()
    return 1e3 * (time.perf_counter() - began) / (ALONE - ALONE // 4)


def said(row: dict[str, Any]) -> None:
    """Show what has just been measured."""
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/speed-gpu.json"))
    parser.add_argument("--learners", type=int, nargs="*", default=list(FULL))
    parser.add_argument("--max-steps", type=int, default=None, help="less than the whole stream, to try it out")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    data = load_for(Cell("natsr", "ETTh1", 24))
    found: dict[str, Any] = {
        "machine": {**describe(), "gpu": torch.cuda.get_device_name(), "torch": torch.__version__},
        "compiled": cuda.library() is not None,
        "along": [],
    }
    along(data, 1, 50, warm=False)  # compiles and loads what is loaded once
    for count in asked.learners:
        found["along"].append(along(data, count, asked.max_steps))
        said(found["along"][-1])
    found["many"] = along(data, MANY, SOME if asked.max_steps is None else asked.max_steps, warm=False)
    said(found["many"])
    found["alone"] = {"steps": ALONE, "cuda": alone(data, "cuda"), "cpu": alone(data, "cpu")}
    said(found["alone"])
    asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
