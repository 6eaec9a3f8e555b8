"""What `auto` makes of columns beside the values, where it is known what they tell: nothing, a little, or the most.

python -m benchmarks.auto.outside --out benchmarks/results/auto-outside.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.auto import panel
from natsr.evaluate import evaluate
from natsr.exogenous import Exogenous
from natsr.forecasters.joint import HEAD_START, Joint
from natsr.forecasters.pool import Pool
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Task

Array = npt.NDArray[np.float64]
WINDOW, SEASON, ONLINE = 60, 24, 1000
KINDS = ("noise", "weak plan", "plan", "hour before")
#: Rows ahead, and rows before the stream: 84 are the cold start of `natsr.Live` with its defaults.
CASES = ((1, 84), (24, 600))
#: None that anything was chosen on (decision 0012).
SEEDS = (101, 102)


def stream(kind: str, count: int, seed: int) -> tuple[Array, Array]:
    """Values, a daily wave in noise that has a memory and what another column adds, and that column."""
    generator = np.random.default_rng(seed)
    noise, shocks = np.zeros(count), generator.standard_normal(count)
    for row in range(1, count):
        noise[row] = 0.8 * noise[row - 1] + 0.25 * shocks[row]
    planned = kind in ("plan", "weak plan")
    beside = (generator.random(count) < 0.3).astype(float) if planned else generator.standard_normal(count)
    added = {
        "noise": 0 * beside,
        "weak plan": 0.3 * beside,
        "plan": 1.5 * beside,
        "hour before": 0.8 * np.roll(beside, 1),
    }
    return (np.sin(2 * np.pi * np.arange(count) / SEASON) + noise + added[kind])[:, None], beside[:, None]


def rows_of(kind: str, horizon: int, warm: int, seed: int) -> tuple[Rows, Task]:
    """Standardised as `natsr.Live` does, by the rows before the stream."""
    values, beside = stream(kind, warm + ONLINE, seed)
    planned = ["x"] if kind.endswith("plan") else []
    outside = Exogenous(["y"], [] if planned else ["x"], planned, horizon)
    features = outside.history(beside, np.full((horizon, len(planned)), np.nan))
    scaled = outside.scaling(features[:warm]).apply(features)
    truth = torch.from_numpy((values - values[:warm].mean(0)) / values[:warm].std(0)).float()
    task = Task(WINDOW, horizon, 1, outside.width, SEASON, outside.width)
    return Rows(torch.cat([truth, torch.from_numpy(scaled).float()], 1), truth), task


def errors(kind: str, horizon: int, warm: int, seed: int) -> dict[str, float]:
    """The mean absolute error of the pool, and of the others over it."""
    rows, task = rows_of(kind, horizon, warm, seed)

    def pool() -> Pool:
        return Pool(task, partial(panel, budget="one", seed=seed))

    natsr = partial(make, "natsr", task, seed=seed)
    forecasters = {
        "pool": pool(),
        "natsr": natsr(),
        "auto": Joint(task, pool(), natsr(), HEAD_START),
        "without head start": Joint(task, pool(), natsr(), 0.0),
    }
    cut = int(0.8 * warm)
    parts = Windows(rows, task, 0, cut), Windows(rows, task, cut, warm)
    if not len(parts[0]):
        parts = Windows(rows, task, 0, warm), Windows(rows, task, warm, warm)
    for forecaster in forecasters.values():
        forecaster.warm_up(*parts)
    scores = evaluate(forecasters, rows, task, start=warm, stop=warm + ONLINE, intervals=False)
    base = float(scores["pool"].mae)
    return {name: base if name == "pool" else float(found.mae) / base for name, found in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for kind in KINDS:
        for horizon, warm in CASES:
            key = f"{kind}, H = {horizon}, {warm} rows before it"
            if key not in found:
                runs = [errors(kind, horizon, warm, seed) for seed in SEEDS]
                found[key] = {name: round(float(np.mean([run[name] for run in runs])), 4) for name in runs[0]}
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
