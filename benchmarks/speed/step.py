"""One online step on the cone beside the dense network with autograd, in one run: `make bench-speed`.

Both sides learn the same examples: one new and eight replayed ones of ETTh1's shape (window 60, 7 channels, 7 calendar
features). The dense side is the network as everyone writes it (`natsr.nets.dense.DenseTCN`), with autograd and
PyTorch's AdamW for OGD and ER, and the readable hooks-based `natsr.NaturalGradient` for NatSR (factored damping, as
many probes).
Steps of both sides alternate, so that noise of the machine falls on both; medians are compared. Results go to
`benchmarks/results/speed-step.json`, with the machine they were measured on.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.dense import DenseTCN
from natsr.nets.tcn import ConeTCN
from natsr.optim import NaturalGradient
from natsr.precondition import WorstLosses
from natsr.recipes import make
from natsr.types import Example, Option, Task
from natsr.version import __version__

Step = Callable[[], None]
NEVER, ALWAYS = 10**9, 1


def shapes(horizon: int) -> Task:
    return Task(window=60, horizon=horizon, channels=7, features=7)


def examples(task: Task, count: int, generator: torch.Generator) -> list[Example]:
    return [
        Example(
            torch.randn(1, task.window, task.inputs, generator=generator),
            torch.randn(1, task.horizon, task.channels, generator=generator),
        )
        for _ in range(count)
    ]


def ours(task: Task, method: str, options: dict[str, Option], generator: torch.Generator) -> Step:
    """A step of a recipe, its memory full enough to draw from."""
    forecaster = make(method, task, options=options)
    stream = examples(task, 64, generator)
    for example in stream[:20]:
        forecaster.learn(example)
    place = iter(range(10**9))
    return lambda: forecaster.learn(stream[next(place) % len(stream)])


def dense(task: Task, replayed: int, generator: torch.Generator, natural: WorstLosses | None) -> Step:
    """The same step with the dense network and autograd."""
    twin = make("ogd", task)
    assert isinstance(twin, NeuralForecaster) and isinstance(twin.net, ConeTCN)
    net = DenseTCN(twin.net)
    stream = examples(task, 64, generator)
    batch = 1 + replayed
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    rule = NaturalGradient(net, rate=0.01, rule="pi", probes=8, refresh=natural) if natural else None
    weights = torch.tensor([1.0] + [0.2 / replayed] * replayed if replayed else [1.0])
    place = iter(range(10**9))

    def step() -> None:
        start = next(place)
        chosen = [stream[(start + i) % len(stream)] for i in range(batch)]
        window = torch.cat([example.window for example in chosen])
        target = torch.cat([example.target for example in chosen]).flatten(1)
        if rule is not None:
            rule.step(window, target, weights)
            return
        optimizer.zero_grad()
        loss: Tensor = (nn.functional.mse_loss(net(window), target, reduction="none").mean(1) * weights).sum()
        torch.autograd.backward(loss)
        optimizer.step()

    for _ in range(3):
        step()
    return step


def alternately(left: Step, right: Step, repeats: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each call, the two taking turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):
        for step, found in zip((left, right), times, strict=True):
            start = time.perf_counter()
            step()
            found.append((time.perf_counter() - start) * 1e3)
    return times


def measure(horizon: int, repeats: int) -> list[dict[str, object]]:
    task, generator, rows = shapes(horizon), torch.Generator().manual_seed(0), []
    plain: dict[str, Option] = {"every": NEVER}
    fresh: dict[str, Option] = {"every": ALWAYS}
    cases: list[tuple[str, Step, Step, int]] = [
        ("ogd", ours(task, "ogd", {}, generator), dense(task, 0, generator, None), repeats),
        ("er", ours(task, "er", {}, generator), dense(task, 8, generator, None), repeats),
        (
            "natsr, plain step",
            ours(task, "natsr", plain, generator),
            dense(task, 8, generator, WorstLosses(every=NEVER, quantile=1e9)),
            repeats,
        ),
        (
            "natsr, refresh step",
            ours(task, "natsr", fresh, generator),
            dense(task, 8, generator, WorstLosses(every=ALWAYS)),
            max(3, repeats // 10),
        ),
    ]
    for name, left, right, count in cases:
        mine, theirs = alternately(left, right, count)
        cone_ms, dense_ms = statistics.median(mine), statistics.median(theirs)
        rows.append(
            {
                "step": name,
                "horizon": horizon,
                "repeats": count,
                "cone_ms": round(cone_ms, 3),
                "dense_ms": round(dense_ms, 3),
                "ratio": round(dense_ms / cone_ms, 2),
            }
        )
    return rows


def machine() -> dict[str, object]:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.processor(),
    )
    return {"cpu": model, "threads": torch.get_num_threads(), "torch": torch.__version__, "natsr": __version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--horizons", default="1,24,48")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/speed-step.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for h in given.horizons.split(",") for row in measure(int(h), given.repeats)]
    lines = [f"{'step':20} {'H':>3} {'cone ms':>9} {'dense ms':>9} {'ratio':>6}"]
    lines += [f"{r['step']:20} {r['horizon']:>3} {r['cone_ms']:>9} {r['dense_ms']:>9} {r['ratio']:>6}" for r in rows]
    given.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
