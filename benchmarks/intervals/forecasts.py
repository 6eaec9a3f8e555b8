"""Forecasts of a cell, made once and kept, so that intervals can be made and scored again without the forecaster.

    python -m benchmarks.intervals.forecasts --folder FOLDER --method auto --datasets ETTh1,WTH --horizons 1,24,48

Intervals change no forecast. What is kept of a cell is one file of NumPy arrays: the forecasts, what the forecaster
said of their variance to begin with, and the rows. Cells that are there already are skipped.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.bench.cells import Cell, load_for, make_for, warm_up
from natsr.evaluate import evaluate
from natsr.forecasters.base import Forecast, Forecaster
from natsr.streams import Windows
from natsr.types import Example, State, Task

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[np.float64]


class Kept(NamedTuple):
    """All forecasts of a cell."""

    task: Task
    mean: Floats  # (N, H, C)
    variance: Floats  # (n, H, C): of the first forecasts; an interval asks for it before an error is known
    known: Array  # (N, C): the row that each forecast was made from
    target: Array  # (N + H - 1, C): the rows after the first origin


class Listening(Forecaster):
    """A forecaster that keeps what it says."""

    def __init__(self, inner: Forecaster) -> None:
        self.task, self.inner = inner.task, inner
        self.means: list[Floats] = []
        self.variances: list[Floats] = []

    def forecast(self, window: Tensor) -> Forecast:
        """As the forecaster inside."""
        return self.forecast_from(window, None)

    def forecast_from(self, window: Tensor, origins: Tensor | None) -> Forecast:
        """As the forecaster inside."""
        found = self.inner.forecast_from(window, origins)
        self.means.append(found.mean[0].detach().cpu().float().numpy())
        if found.variance is not None and len(self.variances) < 2 * self.task.horizon:
            variance = found.variance.detach().cpu().float().numpy()
            self.variances.append(np.broadcast_to(variance, found.mean.shape)[0].copy())
        return found

    def learn(self, example: Example) -> None:
        """As the forecaster inside."""
        self.inner.learn(example)

    def state_dict(self) -> State:
        """As the forecaster inside."""
        return self.inner.state_dict()

    def load_state_dict(self, state: State) -> None:
        """As the forecaster inside."""
        self.inner.load_state_dict(state)


def made(cell: Cell) -> Kept:
    """Warm the cell's forecaster up, run it over the online part, and keep what it says."""
    data = load_for(cell)
    task = data.task(cell.window, cell.horizon)
    forecaster = make_for(cell, task)
    warm_up(forecaster, data, data.borders)
    listening = Listening(forecaster)
    start, stop = data.borders.valid, data.borders.online
    scores = evaluate(
        {"it": listening}, data.rows, task, start=start, stop=stop, max_steps=cell.max_steps, intervals=False
    )["it"]
    if scores.error is not None:
        raise FloatingPointError(f"{cell.key}: {scores.error}")
    truth = data.rows.truth.double().numpy()
    first, count, shape = Windows(data.rows, task, start, stop).first, scores.steps, (task.horizon, task.channels)
    return Kept(
        task,
        np.array(listening.means),
        np.array(listening.variances, dtype=np.float32).reshape(-1, *shape),
        truth[first : first + count],
        truth[first + 1 : first + count + task.horizon],
    )


def place(cell: Cell, folder: Path) -> Path:
    """The file of a cell."""
    return folder / (re.sub(r"[^A-Za-z0-9=.-]+", "_", cell.key) + ".npz")


def forecasts(cell: Cell, folder: Path | None = None) -> Kept:
    """The forecasts of a cell: read, if the folder has them; else made, and put there."""
    path = None if folder is None else place(cell, folder)
    if path is not None and path.exists():
        with np.load(path) as file:
            window, horizon, channels, features, season = (int(number) for number in file["task"])
            task = Task(window, horizon, channels, features, season)
            return Kept(task, *(file[name] for name in Kept._fields[1:]))
    kept = made(cell)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        task = kept.task
        numbers = [task.window, task.horizon, task.channels, task.features, task.season]
        np.savez(
            part,
            task=np.array(numbers),
            mean=kept.mean,
            variance=kept.variance,
            known=kept.known,
            target=kept.target,
        )
        part.replace(path)
    return kept


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--datasets", default="ETTh1,ETTh2,ETTm1,ETTm2,WTH,ECL7,Traffic20")
    parser.add_argument("--horizons", default="1,24,48")
    parser.add_argument("--max-steps", type=int)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for horizon in given.horizons.split(","):
        for dataset in given.datasets.split(","):
            cell = Cell(given.method, dataset, int(horizon), max_steps=given.max_steps)
            kept = forecasts(cell, given.folder)
            sys.stdout.write(f"{cell.key}: {len(kept.mean)} forecasts\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
