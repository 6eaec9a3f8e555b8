"""`auto` on short random walks, where nothing beats the last value: how often it is further off, and by how much.

python -m benchmarks.auto.walks --out benchmarks/results/auto-walks.json

One column, 800 scored rows, from a cold start and after so many rows of warm-up; half of the walks have normal steps,
half Student-t ones with three degrees of freedom. Budget cheap; seeds that nothing was chosen on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from benchmarks.auto.wild import beside

SEEDS = range(100, 116)
HORIZONS, WARM, SCORED, WINDOW = (1, 24, 48), (0, 200, 480), 800, 60


def over(seed: int, tails: bool, horizon: int, warm: int) -> float:
    """The mean absolute error of `auto` over that of the last value."""
    generator, rows = np.random.default_rng(seed), max(warm, WINDOW) + SCORED + horizon
    steps = generator.standard_t(3, (rows, 1)) if tails else generator.standard_normal((rows, 1))
    nothing = np.zeros(rows, dtype=bool)
    return beside(np.cumsum(steps, 0) / 10, nothing, horizon, max(warm, WINDOW), rows, settled=warm - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = {
        f"H = {horizon}": {
            str(warm): [over(seed, tails, horizon, warm) for seed in SEEDS for tails in (False, True)] for warm in WARM
        }
        for horizon in HORIZONS
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
