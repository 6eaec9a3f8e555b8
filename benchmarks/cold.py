"""The first rows of a stream: error and coverage of `natsr.cold` beside the last value. `python -m benchmarks.cold`.

Each dataset is begun at random rows, as if it had just been connected, and the next 24 rows are forecast after 2, 3, …
rows have come. Errors are in units of each column's deviation over the stretch. Intervals are of 90 %; those of the
last value are of a random walk with the changes seen so far. Needs NATSR_DATA; writes `benchmarks/results/cold.json`.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from natsr.cold import Cold
from natsr.data import load
from natsr.version import __version__

Floats = npt.NDArray[np.float64]
DATASETS = ("ETTh1", "BeijingPM25", "WTH", "ECL7", "Traffic20")
CAME = (2, 3, 5, 10, 20, 30, 40, 60, 83)
H, STARTS, Z90 = 24, 100, 1.6448536269514722
RESULT = Path(__file__).parent / "results" / "cold.json"


def streams(generator: np.random.Generator) -> Iterator[tuple[str, Floats, int]]:
    """Name, values and season."""
    rows = np.arange(6000)
    yield "random walk", np.cumsum(generator.normal(size=6000))[:, None], 24
    yield "wave", (20 * np.sin(rows * math.tau / 24) + generator.normal(size=6000))[:, None], 24
    for name in DATASETS:
        series, _ = load(name)
        yield name, series.values, series.season


def measured(rows: Floats, season: int, came: int) -> dict[str, list[float]]:
    """Mean absolute error and coverage, of the cold phase and of the last value."""
    truth, scale = rows[came : came + H], np.nanstd(rows, axis=0)
    cold = Cold(rows.shape[1], H, enough=len(rows) + 1, longest=len(rows), season=season)
    for place, row in enumerate(rows[:came]):
        cold.append(place, row)
    mean, intervals, _ = cold.forecast([0.9])
    known = np.array([column[~np.isnan(column)][-1:].sum() for column in rows[:came].T])
    changes = np.sqrt(np.nanmean(np.diff(rows[:came], axis=0) ** 2, axis=0))
    walk = Z90 * np.sqrt(np.arange(1, H + 1))[:, None] * changes
    low, high = intervals[0.9]
    use = (scale > 0) & ~np.isnan(changes)
    return {
        "cold": [
            float(np.nanmean((np.abs(truth - mean) / scale)[:, use])),
            float(np.nanmean(np.where(np.isnan(truth), np.nan, (low <= truth) & (truth <= high))[:, use])),
        ],
        "last_value": [
            float(np.nanmean((np.abs(truth - known) / scale)[:, use])),
            float(np.nanmean(np.where(np.isnan(truth), np.nan, np.abs(truth - known) <= walk)[:, use])),
        ],
    }


def main() -> None:
    """All datasets."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    generator = np.random.default_rng(0)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name, values, season in streams(generator):
        begun = [values[start : start + CAME[-1] + H] for start in generator.integers(0, len(values) - 200, STARTS)]
        begun = [rows for rows in begun if (np.count_nonzero(~np.isnan(rows[:2]), axis=0) == 2).any()]
        for came in CAME:
            all_of = [measured(rows, season, came) for rows in begun]
            means = {who: np.nanmean([one[who] for one in all_of], axis=0).round(3).tolist() for who in all_of[0]}
            found.setdefault(name, {})[str(came)] = means
    about = {"version": __version__, "horizon": H, "starts": STARTS, "figures": "mean absolute error, coverage of 90 %"}
    RESULT.write_text(json.dumps({**about, "streams": found}, indent=1) + "\n")


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()
