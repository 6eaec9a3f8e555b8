"""Bring the interval figures of results of `natsr bench` up to date, from forecasts that were kept.

    python -m benchmarks.intervals.rescore --forecasts FOLDER --results benchmarks/results/auto-honest.jsonl

Intervals change no forecast, so when only they have changed a cell need not run again. A cell whose forecasts are not
in the folder stays as it is; one whose forecasts are not those of the result (its MAE says so) is refused.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.intervals.forecasts import forecasts, place
from benchmarks.intervals.run import ours

from natsr.bench.cells import Result
from natsr.bench.results import read, to_line
from natsr.metrics import LEVELS
from natsr.types import DataError

#: What follows from the intervals alone.
RENEWED = (
    "crps",
    "worst_coverage_90",
    *(f"coverage_{level}" for level in LEVELS),
    *(f"width_{level}" for level in LEVELS),
)


def rescored(result: Result, folder: Path) -> Result:
    """The same result with the interval figures of today."""
    if "mae" not in result.numbers or not place(result.cell, folder).exists():
        return result
    scores = ours(forecasts(result.cell, folder))
    if not math.isclose(scores.mae, result.numbers["mae"], rel_tol=1e-9):
        raise DataError(
            f"{result.cell.key}: the forecasts in {folder} have a MAE of {scores.mae}, expected "
            f"{result.numbers['mae']} as in the result; run the cell again, or make the forecasts again"
        )
    figures = scores.result()
    fresh = {name: value for name in RENEWED if isinstance(value := figures[name], float)}
    return replace(result, numbers={**result.numbers, **fresh})


def main() -> None:
    """Rewrite a file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forecasts", type=Path, required=True)
    parser.add_argument("--results", type=Path, required=True)
    given = parser.parse_args()
    results = [rescored(result, given.forecasts) for result in read(given.results)]
    given.results.write_text("".join(to_line(result) + "\n" for result in results), encoding="utf-8")
    sys.stdout.write(f"{len(results)} results\n")


if __name__ == "__main__":
    main()
