"""Measure intervals: natsr's own beside plain alternatives, on the errors of the same forecasts.

    python -m benchmarks.intervals.run --method rls --datasets ETTh1,WTH --horizons 1,24 [--forecasts FOLDER] [--ours]

Every line of `benchmarks/results/intervals.jsonl` is one way to make intervals on one stream; a line for the same
method, dataset, horizon and way is replaced. Protocol honest, defaults, nothing tuned here; the first origin of the
online part is the first of which any of them sees an error. With `--forecasts` the forecasts are kept in a folder and
taken from there (`benchmarks.intervals.forecasts`); with `--ours` only natsr's own intervals are measured again. The
time is that of the thread, learning and asking, without scoring.
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
from benchmarks.intervals.forecasts import Kept, forecasts

from natsr.bench.cells import Cell
from natsr.calibrate import PROBABILITIES, Calibrator
from natsr.metrics import Scores

RESULTS = Path(__file__).resolve().parents[1] / "results" / "intervals.jsonl"
OURS = "natsr"
Line = dict[str, float | int | str]


def ours(kept: Kept) -> Scores:
    """The scores of natsr's intervals around these forecasts."""
    task = kept.task
    calibrator, scores = Calibrator(task), Scores(task, probabilities=PROBABILITIES)
    for origin, (known, forecast) in enumerate(zip(kept.known, kept.mean, strict=True)):
        mean = forecast.astype(np.float64)
        variance = kept.variance[origin].astype(np.float64) if origin < len(kept.variance) else None
        began = time.thread_time()
        calibrator.reveal(known)
        quantiles = calibrator.quantiles(mean, variance)
        calibrator.push(mean, variance)
        scores.seconds += time.thread_time() - began
        scores.update(mean, kept.target[origin : origin + task.horizon], quantiles)
    return scores


def others(kept: Kept) -> dict[str, Scores]:
    """The scores of the alternatives around the same forecasts."""
    task = kept.task
    shape = (task.horizon, task.channels)
    ways, issued = alternatives(shape, len(kept.mean)), Issued(shape)
    scores = {name: Scores(task, probabilities=PROBABILITIES) for name in ways}
    for origin, (known, forecast) in enumerate(zip(kept.known, kept.mean, strict=True)):
        mean = forecast.astype(np.float64)
        errors = issued.errors(known)
        issued.push(mean)
        for name, way in ways.items():
            began = time.thread_time()
            way.learn(errors)
            quantiles = mean + way.quantiles()
            scores[name].seconds += time.thread_time() - began
            scores[name].update(mean, kept.target[origin : origin + task.horizon], quantiles)
    return scores


def measured(cell: Cell, folder: Path | None = None, *, only_ours: bool = False) -> Iterator[Line]:
    """One line for each way to make intervals."""
    kept = forecasts(cell, folder)
    for name, found in ({OURS: ours(kept)} | ({} if only_ours else others(kept))).items():
        yield {
            "method": cell.method,
            "dataset": cell.dataset,
            "horizon": cell.horizon,
            "intervals": name,
            **figures(found),
        }


def figures(scores: Scores) -> Line:
    """The figures of one way."""
    found = {
        "crps": scores.crps,
        **{f"coverage_{level}": scores.coverage(level) for level in (50, 80, 90, 95)},
        "worst_coverage_90": scores.worst_coverage_90,
        "width_90": scores.width(90),
        "ms_per_step": 1e3 * scores.seconds / scores.steps,
    }
    return {"steps": scores.steps, **{name: round(value, 5) for name, value in found.items() if np.isfinite(value)}}


def keep(lines: list[Line], path: Path = RESULTS) -> None:
    """Put the lines into the file, each in the place of the one that it replaces."""

    def key(entry: Line) -> tuple[object, ...]:
        return entry["method"], entry["dataset"], entry["horizon"], entry["intervals"]

    old = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    kept = {key(entry): entry for entry in old} | {key(entry): entry for entry in lines}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in kept.values()), encoding="utf-8")


def main() -> None:
    """Run what the command line asks for, one stream after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="rls")
    parser.add_argument("--datasets", default="ETTh1,WTH,ECL7,Traffic20,BeijingPM25")
    parser.add_argument("--horizons", default="24")
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--forecasts", type=Path)
    parser.add_argument("--ours", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for dataset in given.datasets.split(","):
        for horizon in given.horizons.split(","):
            cell = Cell(given.method, dataset, int(horizon), max_steps=given.max_steps)
            lines = list(measured(cell, given.forecasts, only_ours=given.ours))
            keep(lines)
            for entry in lines:
                sys.stdout.write(json.dumps(entry) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
