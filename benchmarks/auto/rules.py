"""The rules of `natsr.aggregate` on the same forecasts: ML-Poly, BOA and EWA, and the mixtures of `auto` beside them.

python -m benchmarks.auto.rules --out benchmarks/results/auto-rules.json [--rows 3000] [--horizons 1,24]

Each rule mixes what the experts without a network say, for each step and column on its own, with the gradient trick,
regrets cut alike and one discount, and learns a label when it has come. `auto` is its answer before the guard. All is
run on the first `--rows` of the part that `auto` is warmed up on, of which the first third is not scored. A few minutes
on one core; entries that are there already are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from natsr import auto
from natsr.aggregate import RULES
from natsr.data.named import load
from natsr.data.series import prepare
from natsr.experts.past import Array
from natsr.types import DataError, Task

DATASETS = ("ETTh1", "ETTh2", "WTH", "ECL7")
WINDOW, DISCOUNT = 60, 0.999


def compared(values: Array, task: Task) -> dict[str, float]:
    """The MAE of each rule, and of `auto`, over the last two thirds of `values` `(T, C)`."""
    panel, horizon, channels = auto.panel(task, "cheap"), task.horizon, task.channels
    shape = (len(panel.names), horizon, channels)
    rules = {name: made(shape[0], shape[1:], DISCOUNT, np.float32) for name, made in RULES.items()}
    said = np.zeros((horizon, *shape), dtype=np.float32)  # by origin
    answers = {name: np.zeros((horizon, horizon, channels), dtype=np.float32) for name in (*rules, "auto")}
    total, count = dict.fromkeys(answers, 0.0), 0
    steps, first = np.arange(horizon), len(values) // 3
    for row, value in enumerate(values):
        origins = (row - 1 - steps) % horizon
        truth = np.where((steps < row)[:, None], value, np.nan)
        forecasts = said[origins, :, steps].transpose(1, 0, 2)
        for name, rule in rules.items():
            rule.update(forecasts, answers[name][origins, steps], truth)
        panel.advance(value)
        slot, newest = row % horizon, panel.newest()
        said[slot] = newest
        answers["auto"][slot] = panel.mixture.mixed(newest)[0]
        for name, rule in rules.items():
            answers[name][slot] = (rule.weights * newest).sum(0)
        coming = values[row + 1 : row + 1 + horizon]
        if row >= first and len(coming) == horizon:
            count += int(np.isfinite(coming).sum())
            for name, answer in answers.items():
                total[name] += float(np.nansum(np.abs(answer[slot] - coming)))
    return {name: lost / count for name, lost in total.items()}


def rules(dataset: str, horizon: int, rows: int) -> dict[str, float]:
    """The MAE of each rule on the beginning of a dataset."""
    series, borders = load(dataset)
    if rows > borders.valid:
        raise DataError(f"--rows is {rows}, but {dataset} is warmed up on {borders.valid} rows; expected no more")
    ready = prepare(series, borders)
    return compared(ready.rows.truth[:rows].double().numpy(), ready.task(WINDOW, horizon))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--horizons", default="1,24")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for dataset in given.datasets.split(","):
        for horizon in map(int, given.horizons.split(",")):
            key = f"{dataset}, H = {horizon}, {given.rows} rows"
            if key not in found:
                found[key] = rules(dataset, horizon, given.rows)
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
