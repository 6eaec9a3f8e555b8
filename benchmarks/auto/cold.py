"""`auto` that begins with the online part of a dataset, beside one that was warmed up on the rows before it.

python -m benchmarks.auto.cold --out benchmarks/results/auto-cold.json

The mean error of both over the rows 500 to 1,400 of that part, in standardised units, honest, with the default budget.
An entry that is there already is kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.data import load, prepare
from natsr.evaluate import Moment, evaluate
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Task

Array = npt.NDArray[np.float64]
DATASETS = ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "WTH", "ECL7", "Traffic20")
HORIZONS = (1, 24, 48)
WINDOW = 60
FIRST, LAST = 500, 1400  # rows since the beginning that are scored


def errors(rows: Rows, task: Task, train: int, valid: int) -> Array:
    """The mean absolute error from each origin after the warm-up, which ends with row `valid`; 0: there is none."""
    auto = make("auto", task)
    if valid:
        auto.warm_up(Windows(rows, task, 0, train), Windows(rows, task, train, valid))
    found: list[float] = []

    def keep(moment: Moment) -> None:
        origin = moment.step.origin
        ahead = rows.truth[origin + 1 : origin + 1 + task.horizon].double().numpy()
        found.append(float(np.nanmean(np.abs(moment.means["auto"] - ahead))))

    start = max(valid, task.window)
    evaluate({"auto": auto}, rows, task, start=start, stop=len(rows.truth), intervals=False, on_step=keep)
    return np.array(found)


def compared(dataset: str, horizon: int) -> dict[str, float]:
    """The error with a warm-up, and without one."""
    series, borders = load(dataset)
    ready = prepare(series, borders)
    task, begin = ready.task(WINDOW, horizon), borders.valid
    stop = begin + LAST + horizon
    whole = Rows(*(part[:stop] for part in ready.rows))
    online = Rows(*(part[begin:] for part in whole))
    warmed = errors(whole, task, borders.train, begin)  # the first origin is the row before the part
    cold = errors(online, task, 0, 0)  # and here the last row of the first window
    return {
        "warmed": float(warmed[FIRST:LAST].mean()),
        "cold": float(cold[FIRST - WINDOW : LAST - WINDOW].mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--horizons", default=",".join(map(str, HORIZONS)))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for dataset in given.datasets.split(","):
        for horizon in map(int, given.horizons.split(",")):
            if f"{dataset}, H = {horizon}" not in found:
                found[f"{dataset}, H = {horizon}"] = compared(dataset, horizon)
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
