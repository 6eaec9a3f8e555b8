"""How long K-FAC's update is, measured in the theorem's bounds, on ETTh1: `make bench-bound`.

The theorem holds for the exact, current Fisher information; NatSR's is K-FAC's, from nine examples, up to a hundred
steps old. Honest protocol, default options, the first steps of the online part, one seed. Updates are measured before
they are shortened. Writes `benchmarks/results/bound.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

import torch

from natsr.bench.cells import Cell, load_for, warm_up
from natsr.evaluate import Moment, evaluate
from natsr.recipes import make


def ratios(horizon: int, steps: int) -> list[float]:
    """Length over bound of every update."""
    cell = Cell("natsr", "ETTh1", horizon)
    data = load_for(cell)
    task = data.task(cell.window, horizon)
    forecaster, found = make("natsr", task), list[float]()
    warm_up(forecaster, data, data.borders)

    def look(_: Moment) -> None:
        info = forecaster.info()
        if "update_norm" in info:
            found.append(info["update_norm"] / info["update_bound"])

    evaluate(
        {"natsr": forecaster},
        data.rows,
        task,
        start=data.borders.valid,
        stop=data.borders.online,
        max_steps=steps,
        intervals=False,
        on_step=look,
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/bound.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for horizon in (1, 24, 48):
        found = ratios(horizon, given.steps)
        deciles = statistics.quantiles(found, n=20)
        rows.append(
            {
                "horizon": horizon,
                "steps": len(found),
                "median": round(statistics.median(found), 2),
                "5%": round(deciles[0], 2),
                "95%": round(deciles[-1], 2),
                "largest": round(max(found), 2),
                "share above the bound": round(sum(ratio > 1 for ratio in found) / len(found), 3),
            }
        )
        sys.stdout.write(f"{rows[-1]}\n")
    given.out.write_text(json.dumps({"dataset": "ETTh1", "protocol": "honest", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
