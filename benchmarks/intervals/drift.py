"""Drift: false alarms and delays of `natsr.drift` beside river's ADWIN and Page-Hinkley, on errors with known changes.

    python -m benchmarks.intervals.drift

Each stream is 10,000 rows of absolute errors of one column that do not change, five times over; then the same with
errors that grow at row 5,000. All three see the same numbers; river's detectors see their logarithms, as ours does, at
their default settings. Written to `benchmarks/results/drift.json`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from river import drift as rivers

from natsr.drift import Drift

Array = npt.NDArray[np.float64]

RESULTS = Path(__file__).resolve().parents[1] / "results" / "drift.json"
ROWS, CHANGE, SEEDS = 10_000, 5_000, 5
FACTORS = (2.0, 4.0)


def autoregressive(generator: np.random.Generator) -> Array:
    """Mean absolute errors of the best forecasts of an autoregression, 1 to 12 rows ahead."""
    noise, values = generator.normal(size=ROWS + 12), np.zeros(ROWS + 12)
    for row in range(1, len(values)):
        values[row] = 0.9 * values[row - 1] + noise[row]
    found: Array = np.mean([np.abs(values[12:] - 0.9**h * values[12 - h : -h]) for h in range(1, 13)], axis=0)
    return found


KINDS: dict[str, Callable[[np.random.Generator], Array]] = {
    "normal": lambda generator: np.abs(generator.normal(size=ROWS)),
    "heavy tails (t, 2)": lambda generator: np.abs(generator.standard_t(2, size=ROWS)),
    "autoregression, 12 ahead": autoregressive,
    "season": lambda g: np.abs(g.normal(size=ROWS)) * (1.5 + np.sin(np.arange(ROWS) * math.tau / 24)),
}


def ours(sizes: Array) -> list[int]:
    """Rows at which a drift was told."""
    drift, found = Drift(1), list[int]()
    for row, size in enumerate(sizes):
        before = drift.alarms
        drift.update(np.array([size]), at=row)
        if drift.alarms > before:
            found.append(row)
    return found


def rivers_own(make: Callable[[], Any]) -> Callable[[Array], list[int]]:
    """The same for a detector of river's."""

    def told(sizes: Array) -> list[int]:
        detector, found = make(), list[int]()
        for row, size in enumerate(np.log(np.maximum(sizes, 1e-6)).tolist()):
            detector.update(size)
            if detector.drift_detected:
                found.append(row)
        return found

    return told


DETECTORS: dict[str, Callable[[Array], list[int]]] = {
    "natsr": ours,
    "river ADWIN": rivers_own(rivers.ADWIN),
    "river Page-Hinkley": rivers_own(rivers.PageHinkley),
}


def measured(kind: str, detector: str) -> dict[str, float | str | None]:
    """False alarms in 10,000 rows, and the median delay of what was found within 1,000 rows of a change."""
    told = DETECTORS[detector]
    line: dict[str, float | str | None] = {"errors": kind, "detector": detector}
    line["false_alarms"] = float(
        np.mean([len(told(KINDS[kind](np.random.default_rng(seed)))) for seed in range(SEEDS)])
    )
    for factor in FACTORS:
        delays = []
        for seed in range(SEEDS):
            sizes = KINDS[kind](np.random.default_rng(seed))
            sizes[CHANGE:] *= factor
            delays += [row - CHANGE for row in told(sizes) if CHANGE <= row < CHANGE + 1000][:1]
        line[f"found_{factor:g}"] = len(delays) / SEEDS
        line[f"delay_{factor:g}"] = float(np.median(delays)) if delays else None
    return line


def main() -> None:
    """Measure all of them."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    lines = [measured(kind, detector) for kind in KINDS for detector in DETECTORS]
    RESULTS.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
