"""Measure intervals: natsr's own beside plain alternatives, on the errors of the same forecasts.

    python -m benchmarks.intervals.run --method rls --datasets ETTh1,WTH --horizons 1,24 [--max-steps N]

Every line of `benchmarks/results/intervals.jsonl` is one way to make intervals on one stream. Lines of the same method,
dataset and horizon are replaced. Protocol honest, defaults, nothing tuned here; the first origin of the online part is
the first of which any of them sees an error. The time is that of the thread, learning and asking, without scoring.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from benchmarks.intervals.alternatives import Issued, alternatives

from natsr.bench.cells import Cell, load_for, make_for, warm_up
from natsr.calibrate import PROBABILITIES, Calibrator
from natsr.evaluate import Moment, evaluate
from natsr.metrics import Scores, naive_error

RESULTS = Path(__file__).resolve().parents[1] / "results" / "intervals.jsonl"
OURS = "natsr"


def measured(cell: Cell) -> Iterator[dict[str, float | int | str]]:
    """One line for each way to make intervals."""
    data = load_for(cell)
    task = data.task(cell.window, cell.horizon)
    forecaster = make_for(cell, task)
    warm_up(forecaster, data, data.borders)
    shape = (task.horizon, task.channels)
    truth = data.rows.truth.double().numpy()
    start, stop = data.borders.valid, data.borders.online
    ways = alternatives(shape, min(cell.max_steps or stop, stop - start))
    issued, calibrator = Issued(shape), Calibrator(task)
    denominator = naive_error(data.rows.truth, start, stop)
    scores = {name: Scores(task, denominator, None, PROBABILITIES) for name in (OURS, *ways)}

    def on_step(moment: Moment) -> None:
        mean, origin = moment.means[cell.method], moment.step.origin
        target = truth[origin + 1 : origin + 1 + task.horizon]
        began = time.thread_time()
        calibrator.reveal(truth[origin])
        quantiles = calibrator.quantiles(mean)
        calibrator.push(mean)
        scores[OURS].seconds += time.thread_time() - began
        scores[OURS].update(mean, target, quantiles)
        errors = issued.errors(truth[origin])
        issued.push(mean)
        for name, way in ways.items():
            began = time.thread_time()
            way.learn(errors)
            quantiles = mean + way.quantiles()
            scores[name].seconds += time.thread_time() - began
            scores[name].update(mean, target, quantiles)

    evaluate(
        {cell.method: forecaster},
        data.rows,
        task,
        start=start,
        stop=stop,
        max_steps=cell.max_steps,
        intervals=False,
        on_step=on_step,
    )
    for name, found in scores.items():
        yield {
            "method": cell.method,
            "dataset": cell.dataset,
            "horizon": cell.horizon,
            "intervals": name,
            **figures(found),
        }


def figures(scores: Scores) -> dict[str, float | int | str]:
    """The figures of one way."""
    found = {
        "crps": scores.crps,
        **{f"coverage_{level}": scores.coverage(level) for level in (50, 80, 90, 95)},
        "worst_coverage_90": scores.worst_coverage_90,
        "width_90": scores.width(90),
        "ms_per_step": 1e3 * scores.seconds / scores.steps,
    }
    return {"steps": scores.steps, **{name: round(value, 5) for name, value in found.items() if np.isfinite(value)}}


def keep(lines: list[dict[str, float | int | str]], path: Path = RESULTS) -> None:
    """Put the lines into the file, in place of those of the same method, dataset and horizon."""

    def key(entry: dict[str, float | int | str]) -> tuple[object, ...]:
        return entry["method"], entry["dataset"], entry["horizon"]

    fresh = {key(entry) for entry in lines}
    old = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    kept = [entry for entry in old if key(entry) not in fresh] + lines
    path.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")


def main() -> None:
    """Run what the command line asks for, one stream after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="rls")
    parser.add_argument("--datasets", default="ETTh1,WTH,ECL7,Traffic20,BeijingPM25")
    parser.add_argument("--horizons", default="24")
    parser.add_argument("--max-steps", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for dataset in given.datasets.split(","):
        for horizon in given.horizons.split(","):
            lines = list(measured(Cell(given.method, dataset, int(horizon), max_steps=given.max_steps)))
            keep(lines)
            for entry in lines:
                sys.stdout.write(json.dumps(entry) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
