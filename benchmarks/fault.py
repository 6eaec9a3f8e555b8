"""What a fault leaves behind in AdamW: `python -m benchmarks.fault`.

Waves with a stretch of noise 500 times their size. Networks that go astray in it are given sane weights back; `kept`
leaves AdamW its history of gradients then, `forgotten` is what natsr does (docs/decisions/0006).
"""

from __future__ import annotations

import argparse
import math
import sys
from unittest.mock import patch

import torch

from natsr.evaluate import Moment, evaluate
from natsr.forecasters.finish import AdamW
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Option, Task

TASK = Task(window=24, horizon=4, channels=3)
SMALL: dict[str, Option] = {"width": 16, "depth": 3, "top": 32}
LEARN, START, FAULT, OVER, ROWS = 600, 800, 1500, 1600, 3600
#: Rows after the fault at which the stretches end that errors are averaged over; the first begins with a clean window.
STRETCHES = (TASK.window, 500, 1500, ROWS)
RUNS = (("ogd", 1e-3), ("ogd", 1e-2), ("er", 1e-3), ("er", 1e-2), ("natsr_fast", 1e-3), ("onenet", 1e-3))


def stream() -> Rows:
    """Waves of a day, and noise where the fault is."""
    generator = torch.Generator().manual_seed(0)
    times, phases = torch.arange(float(ROWS))[:, None], torch.arange(float(TASK.channels))
    values = torch.sin(times * 2 * math.pi / 24 + phases)
    values += 0.3 * torch.randn(ROWS, TASK.channels, generator=generator)
    values[FAULT:OVER] = 500 * torch.randn(OVER - FAULT, TASK.channels, generator=generator)
    return Rows(values, values)


def errors(method: str, rate: float, rows: Rows) -> tuple[int, list[float]]:
    """How often a method was restored, and its mean absolute error before the fault and in each stretch after it."""
    forecaster = make(method, TASK, options={**SMALL, "rate": rate})
    forecaster.warm_up(Windows(rows, TASK, 0, LEARN), Windows(rows, TASK, LEARN, START))
    found: list[list[float]] = [[] for _ in STRETCHES]

    def on_step(moment: Moment) -> None:
        origin, truth = moment.step.origin, moment.step.target
        assert truth is not None
        error = float(abs(moment.means[method] - truth[0].numpy()).mean())
        after = origin - OVER
        if origin + TASK.horizon < FAULT:
            found[0].append(error)
        elif after >= STRETCHES[0]:
            found[next(place for place, end in enumerate(STRETCHES) if after < end)].append(error)

    evaluate({method: forecaster}, rows, TASK, start=START, stop=ROWS, intervals=False, on_step=on_step)
    return int(forecaster.info()["restored"]), [sum(part) / len(part) for part in found]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    rows = stream()
    for method, rate in RUNS:
        with patch.object(AdamW, "forget", lambda _: None):
            kept = errors(method, rate, rows)
        for name, (restored, (before, *after)) in (("kept", kept), ("forgotten", errors(method, rate, rows))):
            shown = ", ".join(f"{error:.2f}" for error in after)
            sys.stdout.write(f"{method} {rate:g} {name}: restored {restored}, {before:.2f} before, {shown} after\n")


if __name__ == "__main__":
    main()
