"""Drift as `natsr.Live` tells it: `auto`, budget cheap, on streams that change and on streams that do not.

    python -m benchmarks.intervals.live_drift

Each stream has two columns. A change comes at row 1,000 of 1,300 and is found when a drift is told within 200 rows.
Beside it on the errors of the same forecasts: what `natsr.drift` makes of their size alone, and river's ADWIN and
Page-Hinkley at their defaults, on the logarithm of the mean error about each row. Seeds are not those on which limits
were chosen. Written to `benchmarks/results/drift_live.json`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from benchmarks.intervals.drift import rivers_own
from river import drift as rivers

from natsr.drift import Drift
from natsr.live import Live

Array = npt.NDArray[np.float64]
Make = Callable[[np.random.Generator, int], Array]

RESULTS = Path(__file__).resolve().parents[1] / "results" / "drift_live.json"
ROWS, SHORT, CHANGE, WITHIN = 8_000, 1_300, 1_000, 200
START = np.datetime64("2026-01-01T00", "h")


class Told(NamedTuple):
    """One drift: the row at which it was told, and the one at which it is said to have begun."""

    row: int
    since: int | None


def autoregression(generator: np.random.Generator, rows: int, pull: float = 0.9) -> Array:
    """Two columns that come back to nought."""
    noise, values = generator.normal(size=(rows, 2)), np.zeros((rows, 2))
    for row in range(1, rows):
        values[row] = pull * values[row - 1] + noise[row]
    return values


def cycle(rows: int, period: float) -> Array:
    """The same up and down in two columns."""
    found: Array = 3 * np.sin(np.arange(rows) * math.tau / period)[:, None] * [1.0, 0.7]
    return found


def day(generator: np.random.Generator, rows: int) -> Array:
    """A daily season in noise that has a memory."""
    return cycle(rows, 24) + 0.5 * autoregression(generator, rows, 0.7)


def garch(generator: np.random.Generator, rows: int) -> Array:
    """Noise whose size goes up and down."""
    values, square, value = np.zeros((rows, 2)), np.ones(2), np.zeros(2)
    for row in range(rows):
        square = 0.05 + 0.1 * value**2 + 0.85 * square
        values[row] = value = np.sqrt(square) * generator.normal(size=2)
    return values


STEADY: dict[str, Make] = {
    "white noise": lambda g, n: g.normal(size=(n, 2)),
    "autoregression": autoregression,
    "daily season": day,
    "heavy tails (t, 2)": lambda g, n: g.standard_t(2, size=(n, 2)),
    "random walk": lambda g, n: np.cumsum(g.normal(size=(n, 2)), 0),
    "GARCH": garch,
    "daily season, outliers": lambda g, n: np.where(g.uniform(size=(n, 2)) < 0.01, 20.0, 1.0) * day(g, n),
}


def changed(make: Callable[[Array], Array]) -> Make:
    """The daily season until the change, and something made of it from there on."""

    def both(generator: np.random.Generator, rows: int) -> Array:
        values = day(generator, rows) + [4.0, -4.0]
        return np.concatenate([values[:CHANGE], make(values)[CHANGE:]])

    return both


CHANGES: dict[str, Make] = {
    "level + 10": changed(lambda values: values + 10),
    "level + 3": changed(lambda values: values + 3),
    "amplitude x 2": changed(lambda values: 2 * (values - [4.0, -4.0]) + [4.0, -4.0]),
    "period 24 to 17": changed(lambda values: values - cycle(len(values), 24) + cycle(len(values), 17)),
    "columns swapped": changed(lambda values: values[:, ::-1]),
}


def followed(values: Array, horizon: int) -> tuple[list[Told], Array]:
    """What a live forecaster tells, and its errors about each row, `(rows, 2)`, NaN before there are any."""
    live = Live(["a", "b"], horizon=horizon, options={"budget": "cheap"})
    found, sizes, alarms = list[Told](), np.full(values.shape, math.nan), 0
    for row, value in enumerate(values):
        live.observe(START + np.timedelta64(row, "h"), value)
        if live._warm is None:
            continue
        sizes[row] = live._warm.calibrator.scales.newest
        if live._warm.drift.alarms > alarms:
            alarms, since = live._warm.drift.alarms, live.drift_since()
            hours = np.datetime64(since, "h") - START if since is not None else np.timedelta64(row, "h")
            found.append(Told(row, int(hours.astype(np.int64))))
    return found, sizes


def by_size(sizes: Array) -> list[Told]:
    """What the size of errors tells alone."""
    drift, found = Drift(sizes.shape[1]), list[Told]()
    for row, size in enumerate(sizes):
        before = drift.alarms
        drift.update(size, at=row)
        if drift.alarms > before:
            found.append(Told(row, drift.since))
    return found


def by_river(sizes: Array) -> dict[str, list[Told]]:
    """What river's detectors tell; they know no beginning."""
    rows = np.flatnonzero(np.isfinite(sizes).all(1))
    told = {"river ADWIN": rivers_own(rivers.ADWIN), "river Page-Hinkley": rivers_own(rivers.PageHinkley)}
    return {name: [Told(int(rows[at]), None) for at in one(sizes[rows].mean(1))] for name, one in told.items()}


def detected(make: Make, horizon: int, rows: int, seed: int) -> dict[str, list[Told]]:
    """What each detector tells on one stream."""
    found, sizes = followed(make(np.random.default_rng([2026, seed]), rows), horizon)
    return {"natsr": found, "size of errors alone": by_size(sizes), **by_river(sizes)}


def steady(name: str, horizon: int, rows: int, seeds: int) -> Iterator[Mapping[str, object]]:
    """False alarms in 10,000 rows."""
    runs = [detected(STEADY[name], horizon, rows, seed) for seed in range(seeds)]
    for detector in runs[0]:
        alarms = sum(len(run[detector]) for run in runs) * 10_000 / (rows * seeds)
        yield {"stream": name, "horizon": horizon, "detector": detector, "false_alarms": alarms}


def change(name: str, horizon: int, seeds: int) -> Iterator[Mapping[str, object]]:
    """How many changes were found, how late, and how far off their beginning was said to be; medians."""
    runs = [detected(CHANGES[name], horizon, SHORT, 100 + seed) for seed in range(seeds)]
    for detector in runs[0]:
        first = [[told for told in run[detector] if CHANGE <= told.row < CHANGE + WITHIN][:1] for run in runs]
        found = [told for one in first for told in one]
        off = [abs(told.since - CHANGE) for told in found if told.since is not None]
        yield {
            "stream": name,
            "horizon": horizon,
            "detector": detector,
            "found": len(found),
            "of": seeds,
            "delay": float(np.median([told.row - CHANGE for told in found])) if found else None,
            "off": float(np.median(off)) if off else None,
            "before": sum(told.row < CHANGE for run in runs for told in run[detector]),
        }


def main() -> None:
    """Measure all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a stream that does not change")
    parser.add_argument("--steady", type=int, default=1, help="streams of each kind that does not change")
    parser.add_argument("--changes", type=int, default=3, help="streams of each kind that does")
    parser.add_argument("--horizons", type=int, nargs="+", default=[1, 24])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[Mapping[str, object]] = []
    for horizon in asked.horizons:
        for name in CHANGES:
            lines += change(name, horizon, asked.changes)
        for name in STEADY:
            lines += steady(name, horizon, asked.rows, asked.steady)
    asked.out.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
