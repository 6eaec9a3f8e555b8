"""What values far beyond all that is usual do to `auto` on all other rows: outliers, a sensor's codes, a new level.

python -m benchmarks.auto.wild --out benchmarks/results/auto-wild.json

A daily wave in noise, one column, budget cheap, from a cold start with a warm-up of 500 rows; seeds that nothing was
chosen on. Scored are the rows that are not wild, from origins that are not: the MAE over that of the last value. Sizes
are in the stream's own units, in which its noise has a deviation of 0.3.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.auto import panel
from natsr.types import Task

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
SEEDS = (31, 32, 33, 34)
HORIZONS = (1, 24)
ROWS, SETTLED, SCORED, CHANGE = 3000, 500, 600, 1500
OUTLIERS = (0.0, 1e3, 1e4, 1e5, 1e7, 1e30)
CODES = (10, 30)
CODE = -9999.0
LEVELS = (30.0, 300.0, 3000.0, 1e5)
#: Rows after a new level.
STRETCHES = ((0, 50), (50, 200), (200, 1400))


def wave(generator: np.random.Generator) -> Array:
    return np.sin(np.arange(ROWS) * np.pi / 12)[:, None] + 0.3 * generator.standard_normal((ROWS, 1))


def beside(values: Array, wild: Flags, horizon: int, begin: int, end: int, settled: int = SETTLED) -> float:
    """The error from origins in these rows over that of the last value, wild rows left out.

    Args:
        values: `(T, 1)`.
        wild: `(T,)`.
        horizon: Rows ahead.
        begin: The first origin that is scored.
        end: One past the last row that is.
        settled: The last row of the warm-up; below 0: there is none.
    """
    pool, totals = panel(Task(60, horizon, 1, season=24), "cheap"), np.zeros(2)
    for row in range(end - horizon):
        pool.advance(values[row])
        if row == settled:
            pool.settle()
        if row >= begin and not wild[row]:
            ahead, there = values[row + 1 : row + 1 + horizon], ~wild[row + 1 : row + 1 + horizon]
            totals += [np.abs(mean - ahead)[there].sum() for mean in (pool.mean(), values[row])]
    return float(totals[0] / totals[1])


def outliers(size: float, horizon: int, seed: int) -> float:
    """One value in a hundred is another one, up or down."""
    generator = np.random.default_rng(seed)
    values, wild = wave(generator), generator.random(ROWS) < 0.01
    wild[:20] = False
    if size:
        values[wild] = size * generator.choice([-1.0, 1.0], (int(wild.sum()), 1))
    return beside(values, wild if size else np.zeros_like(wild), horizon, SCORED, ROWS)


def codes(count: int, horizon: int, seed: int) -> float:
    """So many of six hundred values are a sensor's code for its errors; scored after them."""
    generator, wild = np.random.default_rng(seed), np.zeros(ROWS, dtype=bool)
    values = wave(generator)
    wild[generator.choice(np.arange(600, 1200), count, replace=False)] = True
    values[wild] = CODE
    return beside(values, wild, horizon, 1200, ROWS)


def level(size: float, horizon: int, seed: int, stretch: tuple[int, int]) -> float:
    """From one row on everything is so much higher."""
    values = wave(np.random.default_rng(seed))
    values[CHANGE:] += size
    nothing, (begin, end) = np.zeros(ROWS, dtype=bool), stretch
    return beside(values, nothing, horizon, CHANGE + begin, CHANGE + end + horizon)


def measured() -> dict[str, dict[str, float]]:
    """Means over the seeds, by what happens and the horizon."""
    found: dict[str, dict[str, float]] = {}

    def keep(what: str, horizon: int, ratios: list[float]) -> None:
        found.setdefault(what, {})[str(horizon)] = float(np.mean(ratios))

    for horizon in HORIZONS:
        for size in OUTLIERS:
            what = f"1 % are {size:g}" if size else "without"
            keep(what, horizon, [outliers(size, horizon, seed) for seed in SEEDS])
        for count in CODES:
            keep(f"{count} codes of {CODE:g}, after them", horizon, [codes(count, horizon, seed) for seed in SEEDS])
        for size in LEVELS:
            for stretch in STRETCHES:
                what = f"a level {size:g} higher, rows {stretch[0]} to {stretch[1]}"
                keep(what, horizon, [level(size, horizon, seed, stretch) for seed in SEEDS])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.out.write_text(json.dumps(measured(), indent=1) + "\n")


if __name__ == "__main__":
    main()
