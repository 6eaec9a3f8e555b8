"""What a new level costs `auto`, beside the last value: one, of any size, and levels again and again.

python -m benchmarks.auto.levels --workers 2 --out benchmarks/results/auto-levels.json

One column, budget cheap, a warm-up of 500 rows; the error over that of the last value over all rows after it, and over
rows 100 to 900 after the change. Sizes are in deviations of the noise; seeds that nothing was chosen on.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from benchmarks.auto.wild import Array, beside

Generator = np.random.Generator
SEEDS = (201, 202, 203, 204)
HORIZONS = (1, 24)
ROWS, SETTLED, CHANGE, AFTER = 2200, 500, 1200, (100, 900)
SIZES = (10, 30, 100, 300, 1000)
AGAIN = ((20, 40), (20, 100), (50, 150), (100, 300))


def noise(generator: Generator) -> Array:
    return generator.standard_normal(ROWS)


def memory(generator: Generator) -> Array:
    """What comes back to its level, by a fifth with each row."""
    values = noise(generator)
    for row in range(1, ROWS):
        values[row] += 0.8 * values[row - 1]
    return values


def day(generator: Generator) -> Array:
    """A daily wave in noise."""
    return 3 * np.sin(np.arange(ROWS) * np.pi / 12) + noise(generator)


STREAMS: Mapping[str, Callable[[Generator], Array]] = {"noise": noise, "memory": memory, "day": day}


def once(name: str, size: int, horizon: int, seed: int) -> dict[str, float]:
    """From one row on everything is so much higher."""
    values = STREAMS[name](np.random.default_rng(seed))
    values[CHANGE:] += size
    return {
        "all": ratio(values, horizon, SETTLED, ROWS),
        "after": ratio(values, horizon, CHANGE + AFTER[0], CHANGE + AFTER[1]),
    }


def again(size: int, every: int, horizon: int, seed: int) -> dict[str, float]:
    """Noise on levels that are drawn anew every so many rows."""
    generator = np.random.default_rng(seed)
    levels = size * np.repeat(generator.standard_normal(ROWS // every + 1), every)[:ROWS]
    return {"all": ratio(levels + noise(generator), horizon, SETTLED, ROWS)}


def ratio(values: Array, horizon: int, begin: int, end: int) -> float:
    """The error over that of the last value."""
    return beside(values[:, None], np.zeros(ROWS, dtype=bool), horizon, begin, end, settled=SETTLED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    cases: dict[str, Callable[[int, int], dict[str, float]]] = {
        f"{name}, a level {size} higher": partial(once, name, size) for name in STREAMS for size in SIZES
    }
    cases |= {f"noise, levels of {size} every {every} rows": partial(again, size, every) for size, every in AGAIN}
    with ProcessPoolExecutor(given.workers, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        waiting = {
            what: {str(horizon): [workers.submit(case, horizon, seed) for seed in SEEDS] for horizon in HORIZONS}
            for what, case in cases.items()
        }
        found = {
            what: {horizon: [one.result() for one in several] for horizon, several in by_horizon.items()}
            for what, by_horizon in waiting.items()
        }
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
