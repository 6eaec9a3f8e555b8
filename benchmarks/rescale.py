"""What `natsr.Live` makes of a column that changes its unit, and how often ordinary streams are rescaled.

`python benchmarks/rescale.py` writes `results/rescale.json`; the datasets are looked for where `NATSR_DATA` says.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from natsr import __version__
from natsr.data import load
from natsr.data.grids import season_of
from natsr.data.series import Scaling
from natsr.forecasters.pool import ANYWHERE
from natsr.live import Live
from natsr.rescale import FAR, Watch
from natsr.streams import Rows
from natsr.types import Task

RESULTS = Path(__file__).resolve().parent / "results" / "rescale.json"
COLUMNS = ("HUFL", "OT")  # the first one changes its unit
KNOWN, CHANGE, END = 2000, 2300, 3300
WINDOW, HORIZON, LEVELLED = 60, 24, 200
FACTORS = (1000.0, 0.001)
MOVED, LONG, SKIPPED = ("ETTh1", "ETTm1", "WTH"), 12_000, 500
STREAMS = ("ETTh1", "ETTm1", "WTH", "ECL7", "Traffic20", "BeijingPM25")


def unit_change(method: str, factor: float, rescale: bool) -> dict[str, Any]:
    """Mean absolute errors of both columns, in their first units, from the change on; ETTh1, honest."""
    series = load("ETTh1")[0].select(COLUMNS)
    values = series.values.copy()
    values[CHANGE:, 0] *= factor
    live = Live(list(COLUMNS), HORIZON, "h", method, WINDOW, rescale=rescale)
    live.warm_up((series.times[:KNOWN], values[:KNOWN]))
    errors, met = [], None
    for row in range(KNOWN, END):
        live.observe(series.times[row], values[row])
        if met is None and live.health()["rescaled"]:
            met = row - CHANGE + 1
        came = values[row + 1 : row + 1 + HORIZON]
        errors.append(np.abs(np.stack([live.forecast().mean - came, values[row] - came])).mean(1) / [factor, 1.0])
    after = np.array(errors)[CHANGE - KNOWN :, 0]
    last = np.array(errors)[CHANGE - KNOWN :, 1]
    return {
        "method": method,
        "factor": factor,
        "rescale": rescale,
        "rescaled": live.health()["rescaled"],
        "met_after_rows": met,
        "mae_last_200": after[-LEVELLED:].mean(0).round(4).tolist(),
        "mae_rows_400_to_800": after[400:800].mean(0).round(4).tolist(),
        "mae_last_value_rows_400_to_800": last[400:800].mean(0).round(4).tolist(),
    }


def ordinary(name: str, whole: bool, far: float) -> dict[str, Any]:
    """How often a stream is rescaled that nobody has changed; history of a fifth of it, or of a cold start."""
    series, borders = load(name)
    values = series.values
    start = borders.train if whole else WINDOW + HORIZON
    task = Task(WINDOW, HORIZON, values.shape[1], 0, season_of(series.step_seconds))
    scaling = Scaling.fit(values[:start])
    past = torch.from_numpy(scaling.apply(values[:start])).float()
    watch, events = Watch(task, scaling, far), []
    watch.fill(Rows(past.nan_to_num(), past), values[:start])
    for row in range(start, len(values)):
        truth = torch.from_numpy(scaling.apply(values[row])).float()
        watch.push(values[row], truth.nan_to_num(), truth)
        renewed = watch.renewed()
        if renewed is not None:
            changed = np.flatnonzero(renewed.scaling.mean != scaling.mean)
            ratios = (renewed.scaling.std / scaling.std)[changed].round(3)
            events.append({"row": row, "columns": changed.tolist(), "spread_over_old": ratios.tolist()})
            scaling = renewed.scaling
            watch = Watch(task, scaling, far)
            watch.fill(renewed.rows, renewed.values)
    return {
        "stream": name,
        "history": start,
        "rows": len(values),
        "far": far,
        "rescaled": len(events),
        "events": events,
    }


def moved_level(name: str, far: float) -> dict[str, Any]:
    """`auto` from a cold start, its first rows left out, if it begins anew for a level that has moved so far."""
    series = load(name)[0]
    values, spread = series.values[:LONG], np.nanstd(series.values[:LONG], axis=0)
    error, inside, slowest = np.zeros(2), 0.0, 0.0
    with mock.patch("natsr.forecasters.pool.ANYWHERE", far):
        live = Live(list(series.columns), HORIZON, f"{int(series.step_seconds)}s", options={"budget": "cheap"})
        for row in range(LONG - HORIZON):
            began = time.perf_counter()
            live.observe(series.times[row], values[row])
            slowest = max(slowest, time.perf_counter() - began)
            if row < SKIPPED:
                continue
            forecast, came = live.forecast([0.9]), values[row + 1 : row + 1 + HORIZON]
            error += np.nanmean(np.abs(np.stack([forecast.mean - came, values[row] - came])) / spread, axis=(1, 2))
            low, high = forecast.intervals[0.9]
            inside += float(np.mean((came >= low) & (came <= high)))
    scored = LONG - HORIZON - SKIPPED
    return {
        "stream": name,
        "rows": LONG,
        "far": far,
        "rescaled": live.health()["rescaled"],
        "mae": round(float(error[0]) / scored, 5),
        "mae_last_value": round(float(error[1]) / scored, 5),
        "coverage_90": round(inside / scored, 4),
        "slowest_row_seconds": round(slowest, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="rls,auto,natsr", help="with commas")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"natsr": __version__, "command": "python benchmarks/rescale.py", "units": []}
    reach = (FAR, ANYWHERE)  # of a network, and of auto without one that reads levels
    found["ordinary"] = [ordinary(name, whole, far) for name in STREAMS for whole in (True, False) for far in reach]
    found["moved level"] = [moved_level(name, far) for name in MOVED for far in reach]
    for method in given.methods.split(","):
        for factor in FACTORS:
            for rescale in (True, False):
                found["units"].append(unit_change(method, factor, rescale))
                sys.stdout.write(json.dumps(found["units"][-1]) + "\n")
                sys.stdout.flush()
                given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
