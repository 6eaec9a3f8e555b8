"""Run every method at the full width of ECL (321 columns) and Traffic (862): `make bench-wide`.

The real files are not here, so synthetic ones of their shape are written where a dataset is looked for, and read as a
user's would be. Each method runs in a process of its own, whose peak memory is what is measured; the limit is 4 GiB.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from natsr import __version__
from natsr.bench.cells import Cell, run_cell
from natsr.data.named import DATASETS, Dataset
from natsr.recipes import METHODS, NETWORKS

RESULTS = Path(__file__).resolve().parent / "results" / "wide.json"
SHAPES = (("ECL", 1), ("ECL", 24), ("Traffic", 1), ("Traffic", 24))
LIMIT_MIB = 4096
#: Rows that are learned from: the first label comes a horizon after the first forecast.
LEARNED, EPOCHS = 12, 1
#: A method that takes longer than this is given up.
PATIENCE_SECONDS = 1800


def write_like(dataset: Dataset, folder: Path) -> Path:
    """A CSV of the dataset's shape: daily waves that differ by column, noise, and a date."""
    generator = np.random.default_rng(0)
    hours = np.arange(dataset.rows)
    phase, size = generator.uniform(0, 24, dataset.channels), generator.uniform(0.5, 2.0, dataset.channels)
    times = np.datetime64("2016-07-01T02:00:00") + hours * np.timedelta64(3600, "s")
    target = folder / f"{dataset.name}.csv"
    with target.open("w", encoding="utf-8") as file:
        file.write(",".join(["date", *map(str, range(dataset.channels - 1)), "OT"]) + "\n")
        for hour, time in zip(hours, times, strict=True):
            values = size * np.sin((hour + phase) * 2 * np.pi / 24) + 0.3 * generator.standard_normal(dataset.channels)
            file.write(f"{str(time).replace('T', ' ')}," + ",".join(f"{value:.2f}" for value in values) + "\n")
    return target


def measure(method: str, dataset: str, horizon: int) -> dict[str, Any]:
    """What one method takes; called in a process of its own."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (2 * LIMIT_MIB * 2**20,) * 2)  # a method that wants all fails, alone
    options = (("epochs", EPOCHS),) if method in NETWORKS else ()
    result = run_cell(Cell(method, dataset, horizon, options=options, max_steps=horizon + LEARNED))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    numbers = {name: result.numbers.get(name) for name in ("ms_per_step", "warm_seconds", "mase")}
    return {**numbers, "peak_mib": round(peak, 1), "error": result.error, "torch": torch.__version__}


def in_a_child(method: str, dataset: str, horizon: int, environment: dict[str, str]) -> dict[str, Any]:
    """The same from outside; a death is an error too."""
    command = [sys.executable, "-m", "benchmarks.wide", "--one", method, dataset, str(horizon)]
    what = {"method": method, "dataset": dataset, "horizon": horizon, "columns": DATASETS[dataset].channels}
    nothing = {"ms_per_step": None, "warm_seconds": None, "mase": None, "peak_mib": None}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {**what, **nothing, "error": f"took more than {PATIENCE_SECONDS} s"}
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"it died with {done.returncode}"]
        return {**what, **nothing, "error": last[0][:200]}
    return {**what, **json.loads(done.stdout)}


def keep(rows: list[dict[str, Any]], path: Path) -> None:
    """Write what there is so far."""
    order = {method: place for place, method in enumerate(METHODS)}
    rows.sort(key=lambda row: (order.get(row["method"], -1), SHAPES.index((row["dataset"], row["horizon"]))))
    found = {"natsr": __version__, "limit_mib": LIMIT_MIB, "learned": LEARNED, "epochs": EPOCHS, "rows": rows}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=",".join(METHODS), help="with commas; those measured before are kept")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=1, help="methods at the same time")
    parser.add_argument("--one", nargs=3, metavar=("METHOD", "DATASET", "HORIZON"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        method, dataset, horizon = given.one
        sys.stdout.write(json.dumps(measure(method, dataset, int(horizon))))
        return
    methods = given.methods.split(",")
    before = json.loads(given.out.read_text(encoding="utf-8"))["rows"] if given.out.exists() else []
    rows = [row for row in before if row["method"] not in methods]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "NATSR_DATA": folder, "XDG_CACHE_HOME": folder, "OMP_NUM_THREADS": "1"}
        for name in dict.fromkeys(dataset for dataset, _ in SHAPES):
            write_like(DATASETS[name], Path(folder))
        with ThreadPoolExecutor(given.workers) as pool:
            waiting = [
                pool.submit(in_a_child, method, dataset, horizon, environment)
                for method in methods
                for dataset, horizon in reversed(SHAPES)  # the widest first
            ]
            for done in as_completed(waiting):
                row = done.result()
                rows.append(row)
                keep(rows, given.out)
                sys.stdout.write("{method} {dataset} H={horizon}: {peak_mib} MiB, ".format_map(row))
                sys.stdout.write(f"{row['error'] or 'ok'}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
