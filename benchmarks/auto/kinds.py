"""`auto` beside the last value on streams that are hard to be safe on: counters, codes, bursts, jumps.

python -m benchmarks.auto.kinds --workers 2 --out benchmarks/results/auto-kinds.json

Each kind is made four times, from seeds that nothing was chosen on (with 101 and 102 the rules for jumps, the medians
and a mixture were), 2,400 rows, the first quarter warms up; budget cheap, honest. What is there already is kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.auto.others import ROWS, counter, day, noise

from natsr.auto import panel
from natsr.types import Task

Array = npt.NDArray[np.float64]
Generator = np.random.Generator
SEEDS = (111, 112, 113, 114)
HORIZONS = (1, 24)
WINDOW, SEASON = 60, 24


def restarts(generator: Generator) -> Array:
    """A counter whose process is started again once in 300 rows."""
    steps, again = generator.gamma(2.0, 1.0, ROWS), generator.random(ROWS) < 1 / 300
    values, total = np.zeros((ROWS, 1)), 0.0
    for row in range(ROWS):
        total = steps[row] + (0.0 if again[row] else total)
        values[row] = total
    return values


def battery(generator: Generator) -> Array:
    """A charge that falls, and is full again at once."""
    steps, low, values, charge = generator.normal(0.4, 0.2, ROWS), generator.random(ROWS), np.zeros((ROWS, 1)), 100.0
    for row in range(ROWS):
        charge -= abs(float(steps[row]))
        charge = 100.0 if charge < 10 + 5 * low[row] else charge
        values[row] = charge
    return values


def _levels(generator: Generator, often: float, size: float) -> Array:
    values, level = np.zeros((ROWS, 1)), 0.0
    for row in range(ROWS):
        level = generator.normal(0, size) if generator.random() < often else level
        values[row] = level
    return values


def stairs(generator: Generator) -> Array:
    """A level that is another one every 150 rows, in noise."""
    return _levels(generator, 1 / 150, 10) + 0.3 * generator.standard_normal((ROWS, 1))


def steps(generator: Generator) -> Array:
    """The same in whole numbers, more often, without any noise."""
    return np.round(_levels(generator, 1 / 60, 10))


def switch(generator: Generator) -> Array:
    """On or off, for 40 rows."""
    return np.cumsum(generator.random((ROWS, 1)) < 1 / 40, 0) % 2 + 0.02 * generator.standard_normal((ROWS, 1))


def codes(generator: Generator) -> Array:
    """A sensor that says -9999 for some rows now and then, the first time after its warm-up."""
    values, row = 20 + 3 * day(ROWS) + 0.3 * noise(generator, ROWS, 0.8), 700
    while row < ROWS:
        values[row : row + int(generator.integers(1, 12))] = -9999
        row += int(generator.integers(150, 500))
    return values


def dropouts(generator: Generator) -> Array:
    """Two sensors that say zero for some rows, often."""
    values = 20 + 3 * day(ROWS, channels=2) + 0.3 * noise(generator, ROWS, 0.8, 2)
    for channel in range(2):
        row = 300
        while row < ROWS:
            values[row : row + int(generator.integers(1, 8)), channel] = 0
            row += int(generator.integers(40, 200))
    return values


def bursts(generator: Generator) -> Array:
    """Zero, and for some rows not."""
    begin, long, size = generator.random(ROWS) < 1 / 40, generator.geometric(1 / 4, ROWS), generator.gamma(1.5, 5, ROWS)
    values, left = np.zeros((ROWS, 1)), 0
    for row in range(ROWS):
        left = 1 + int(long[row]) if left == 0 and begin[row] else left
        values[row], left = size[row] * (left > 0), max(0, left - 1)
    return values


def working_hours(generator: Generator) -> Array:
    """Zero by night, and in most rows of a day."""
    hour = np.arange(ROWS) % 24
    there = (hour > 8) & (hour < 18) & (generator.random(ROWS) < 0.3)
    return np.asarray((there * generator.gamma(1.0, 5.0, ROWS))[:, None])


def backups(generator: Generator) -> Array:
    """One to three rows of writing, every 72 rows or so: 25 in all that is scored."""
    values = np.zeros((ROWS, 1))
    for row in range(0, ROWS, 72):
        first = row + int(generator.integers(0, 4))
        values[first : first + int(generator.integers(1, 4))] = generator.gamma(4.0, 10.0)
    return values


def spikes(generator: Generator) -> Array:
    """Noise with a memory, and single values far above it."""
    return noise(generator, ROWS, 0.8) + (generator.random((ROWS, 1)) < 0.03) * generator.exponential(40.0, (ROWS, 1))


def orders(generator: Generator) -> Array:
    """Demand that is zero nine times of ten."""
    return (generator.random((ROWS, 2)) < 0.1) * generator.gamma(2.0, 3.0, (ROWS, 2))


def events(generator: Generator) -> Array:
    """Few events an hour, with a day."""
    return generator.poisson(np.exp(0.5 * day(ROWS, channels=2))).astype(np.float64)


def heavy_noise(generator: Generator) -> Array:
    """Noise with 1.2 degrees of freedom."""
    return generator.standard_t(1.2, (ROWS, 1))


def skewed_noise(generator: Generator) -> Array:
    """Exponentials of noise."""
    return np.exp(1.5 * generator.standard_normal((ROWS, 1)))


def skewed_memory(generator: Generator) -> Array:
    """Exponentials of noise with a memory."""
    return np.exp(0.6 * noise(generator, ROWS, 0.7))


def white_noise(generator: Generator) -> Array:
    """Nothing else."""
    return generator.standard_normal((ROWS, 2))


def walk(generator: Generator) -> Array:
    """Three random walks."""
    return np.cumsum(generator.standard_normal((ROWS, 3)), 0)


def jumping_walk(generator: Generator) -> Array:
    """Random walks with a step of thirty times the size now and then."""
    size = 1 + 30 * (generator.random((ROWS, 2)) < 0.01)
    return np.asarray(np.cumsum(size * generator.standard_normal((ROWS, 2)), 0))


def heavy_walk(generator: Generator) -> Array:
    """Random walks whose steps have 1.5 degrees of freedom."""
    return np.cumsum(generator.standard_t(1.5, (ROWS, 2)), 0)


def sparse_walk(generator: Generator) -> Array:
    """Random walks that stand still 19 times of 20."""
    return np.cumsum(generator.standard_normal((ROWS, 2)) * (generator.random((ROWS, 2)) < 0.05), 0)


def ticks(generator: Generator) -> Array:
    """Random walks in whole numbers."""
    return np.asarray(np.round(100 + np.cumsum(0.3 * generator.standard_normal((ROWS, 2)), 0)))


def swelling_walk(generator: Generator) -> Array:
    """A random walk whose steps swell and shrink by orders of magnitude."""
    size = np.exp(np.clip(0.24 * noise(generator, ROWS, 0.98), -6, 6))
    return np.cumsum(size * generator.standard_normal((ROWS, 1)), 0)


def clustered_walk(generator: Generator) -> Array:
    """A random walk whose steps are large after large ones (GARCH)."""
    steps, variance, step = np.zeros((ROWS, 1)), 1.0, 0.0
    for row in range(ROWS):
        variance = 0.02 + 0.18 * step * step + 0.8 * variance
        step = np.sqrt(variance) * generator.standard_normal()
        steps[row] = step
    return np.cumsum(steps, 0)


def late_walk(generator: Generator) -> Array:
    """A column that stands still for 800 rows, and then walks."""
    values = 0.01 * np.cumsum(generator.standard_normal((ROWS, 1)), 0)
    values[:800] = 0
    return values


def memories(generator: Generator) -> Array:
    """Noise with a memory that is another one every 400 rows; of one, too."""
    values, memory = np.zeros((ROWS, 1)), 0.5
    for row in range(1, ROWS):
        memory = float(generator.choice([0.2, 0.9, 1.0])) if generator.random() < 1 / 400 else memory
        values[row] = memory * values[row - 1] + generator.standard_normal()
    return values


def season(generator: Generator) -> Array:
    """A day in noise with a memory."""
    return 3 * day(ROWS, channels=3) + noise(generator, ROWS, 0.8, 3)


KINDS: Mapping[str, Callable[[Generator], Array]] = {"meter": counter} | {
    how.__name__.replace("_", " "): how
    for how in (restarts, battery, stairs, steps, switch, codes, dropouts, bursts, working_hours, backups)
    + (spikes, orders, events, heavy_noise, skewed_noise, skewed_memory, white_noise, walk, jumping_walk)
    + (heavy_walk, sparse_walk, ticks, swelling_walk, clustered_walk, late_walk, memories, season)
}


def compared(name: str, seed: int, horizon: int) -> dict[str, float]:
    """MAE in standardised units: `auto`'s, the last value's and the best of all experts' in hindsight."""
    values = KINDS[name](np.random.default_rng([seed, *name.encode()]))
    first = ROWS // 4
    size = values[:first].std(0)
    values = (values - values[:first].mean(0)) / np.where(size > 0, size, 1.0)
    torch.set_num_threads(1)
    pool = panel(Task(WINDOW, horizon, values.shape[1], season=SEASON), "cheap")
    total, experts = 0.0, np.zeros(len(pool.names))
    for row in range(ROWS - horizon):
        if row == first:
            pool.settle()
        pool.advance(values[row])
        if row >= first - 1:
            ahead = values[row + 1 : row + 1 + horizon]
            total += float(np.abs(pool.mean() - ahead).mean())
            experts += np.abs(pool.newest() - ahead).mean((1, 2))
    count = ROWS - horizon - first + 1
    sums = {"auto": total, "last_value": float(experts[0]), "best expert": float(experts.min())}
    return {who: error / count for who, error in sums.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    with ProcessPoolExecutor(given.workers) as workers:
        waiting = {
            f"{name}, H = {horizon}": [workers.submit(compared, name, seed, horizon) for seed in SEEDS]
            for name in KINDS
            for horizon in HORIZONS
            if f"{name}, H = {horizon}" not in found
        }
        for key, several in waiting.items():
            found[key] = [one.result() for one in several]
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
