"""`auto` with its defaults beside single methods, honest, on streams that nothing here was chosen on.

python -m benchmarks.auto.others --out benchmarks/results/auto-generated.json
python -m benchmarks.auto.others --folder my-csvs --workers 2 --out found.json

Without a folder the streams are made, each from its own seed: what kinds of data there are, not what they look like in
any one place. With a folder each CSV in it, and in the folders below, is one, split as `natsr run` splits it: the first
quarter warms up. What is there already is kept, so it can be stopped and gone on with, also with more methods.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.data.csv import read_csv
from natsr.data.series import Borders, Series, prepare
from natsr.evaluate import Part, evaluate
from natsr.recipes import make
from natsr.streams import Windows
from natsr.types import DataError, Option

Array = npt.NDArray[np.float64]
METHODS = ("auto", "last_value", "seasonal", "rls", "rls_mv", "natsr")
HORIZONS = (1, 24)
WINDOW = 60
ROWS = 2400
#: What is kept beside errors: the share of values inside `auto`'s 90 % intervals, and in the worst 500 rows, if there
#: are as many.
HELD = ("coverage_90", "worst_coverage_90")
#: Rows of a file that are looked at, the last ones: a minute or two each.
LONGEST = 6000


def compared(
    series: Series, horizon: int, methods: tuple[str, ...], options: Mapping[str, Mapping[str, Option]]
) -> dict[str, float]:
    """MAE in standardised units by method, the rows they are means over, and what `auto`'s intervals held."""
    window = min(WINDOW, max(2, len(series) // 8))
    ready = prepare(series, Borders.published(len(series)))
    task, borders = ready.task(window, horizon), ready.borders
    train = Windows(ready.rows, task, 0, borders.train)
    valid = Windows(ready.rows, task, borders.train, borders.valid)
    found: dict[str, float] = {}
    for name in methods:  # one after the other: what one method's failure does to the next is nothing
        forecaster = make(name, task, options=dict(options.get(name, {})))
        forecaster.warm_up(train, valid)
        alone = {name: forecaster}
        part: Part = {"start": borders.valid, "stop": borders.online}
        scores = evaluate(alone, ready.rows, task, **part, intervals=name == "auto")[name]
        found["rows"] = scores.steps
        if scores.error is None:
            found[name] = scores.mae
        if scores.error is None and name == "auto":
            held = dict(zip(HELD, (scores.coverage(90), scores.worst_coverage_90), strict=True))
            found |= {figure: share for figure, share in held.items() if not math.isnan(share)}
    return found


# ---- streams that are made ---------------------------------------------------------------------------------------


def noise(generator: np.random.Generator, rows: int, memory: float, channels: int = 1) -> Array:
    """Noise with a memory."""
    steps, values = generator.standard_normal((rows, channels)), np.zeros((rows, channels))
    for row in range(1, rows):
        values[row] = memory * values[row - 1] + steps[row]
    return values


def day(rows: int, period: float = 24.0, channels: int = 1) -> Array:
    """A wave for each channel, each a little later."""
    return np.asarray(np.sin(2 * np.pi * np.arange(rows)[:, None] / period + np.arange(channels)))


def arma(generator: np.random.Generator) -> Array:
    """ARMA(2, 1) with a cycle that no calendar knows."""
    steps, values = generator.standard_normal(ROWS), np.zeros(ROWS)
    for row in range(2, ROWS):
        values[row] = 1.6 * values[row - 1] - 0.8 * values[row - 2] + steps[row] + 0.5 * steps[row - 1]
    return values[:, None]


def drifting_walk(generator: np.random.Generator) -> Array:
    """Random walks with a drift."""
    return np.cumsum(0.05 + generator.standard_normal((ROWS, 2)), 0)


def rates(generator: np.random.Generator) -> Array:
    """Three random walks that move together, in calm and in wild times."""
    calm = np.exp(0.1 * noise(generator, ROWS, 0.98))
    together = generator.standard_normal((ROWS, 1)) + 0.7 * generator.standard_normal((ROWS, 3))
    return 100 * np.exp(np.cumsum(0.002 * calm * together, 0))


def counts(generator: np.random.Generator) -> Array:
    """Counts whose rate has a day and a week."""
    rate = np.exp(1 + 0.8 * day(ROWS, channels=2) + 0.4 * day(ROWS, 168.0))
    return generator.poisson(rate).astype(np.float64)


def intermittent(generator: np.random.Generator) -> Array:
    """Demand that is zero nineteen times of twenty."""
    return (generator.random((ROWS, 2)) < 0.05) * generator.gamma(2.0, 3.0, (ROWS, 2))


def multiplicative(generator: np.random.Generator) -> Array:
    """A season that grows with its level, which grows."""
    steps = np.arange(ROWS)[:, None]
    return np.exp(0.001 * steps + 0.5 * day(ROWS, channels=2) + 0.1 * noise(generator, ROWS, 0.7, 2))


def trend(generator: np.random.Generator) -> Array:
    """A line, which bends, in noise."""
    steps = np.arange(ROWS)[:, None]
    return np.where(steps < 1500, 0.02 * steps, 45 - 0.01 * steps) + generator.standard_normal((ROWS, 1))


def heavy(generator: np.random.Generator) -> Array:
    """Noise with a memory and a day, whose steps have two degrees of freedom."""
    steps, values = generator.standard_t(2, (ROWS, 2)), np.zeros((ROWS, 2))
    for row in range(1, ROWS):
        values[row] = 0.9 * values[row - 1] + steps[row]
    return values + 3 * day(ROWS, channels=2)


def daylight(generator: np.random.Generator) -> Array:
    """A day of peaks that comes an hour earlier from one row on, and later again from another."""
    steps = np.arange(ROWS) + ((np.arange(ROWS) > 900) & (np.arange(ROWS) < 1800))
    shape = np.exp(-0.5 * ((steps % 24 - 8) / 1.5) ** 2) + 0.7 * np.exp(-0.5 * ((steps % 24 - 18) / 2) ** 2)
    return shape[:, None] * (1 + 0.1 * (steps[:, None] // 24 % 7 < 5)) + 0.05 * noise(generator, ROWS, 0.8)


def leading(generator: np.random.Generator) -> Array:
    """A column that another one tells of, five rows before."""
    first = noise(generator, ROWS + 5, 0.95)
    return np.concatenate([first[5:], first[:-5] + 0.3 * generator.standard_normal((ROWS, 1))], 1)


def gaps(generator: np.random.Generator) -> Array:
    """A day in noise with one value of ten missing, and two days at once."""
    values = 2 * day(ROWS, channels=3) + noise(generator, ROWS, 0.8, 3)
    values[generator.random(values.shape) < 0.1] = np.nan
    values[1400:1448] = np.nan
    return values


def threshold(generator: np.random.Generator) -> Array:
    """A process with one memory above zero and another below it: nothing linear."""
    steps, values = generator.standard_normal(ROWS), np.zeros(ROWS)
    for row in range(1, ROWS):
        values[row] = (0.9 if values[row - 1] < 0 else -0.7) * values[row - 1] + steps[row]
    return values[:, None]


def monthly(generator: np.random.Generator) -> Array:
    """Forty years of months: a year, and a level that wanders."""
    return 3 * day(480, 12.0, 2) + 0.3 * np.cumsum(generator.standard_normal((480, 2)), 0)


def minutes(generator: np.random.Generator) -> Array:
    """Every ten minutes: a day of 144 rows, and clouds."""
    light = np.maximum(0, day(2 * ROWS, 144.0))
    clouds = 0.09 * np.abs(noise(generator, len(light), 0.95))
    return light * (1 - clouds) + 0.01 * generator.standard_normal(light.shape)


def counter(generator: np.random.Generator) -> Array:
    """What a meter counts, with a day in it; it begins anew every 600 rows or so."""
    return np.cumsum(np.maximum(0, 5 + 3 * day(ROWS) + generator.standard_normal((ROWS, 1))), 0) % 3000


HOUR = 3600
MADE: Mapping[str, tuple[Callable[[np.random.Generator], Array], int]] = {
    "arma": (arma, HOUR),
    "drifting walk": (drifting_walk, 24 * HOUR),
    "rates": (rates, 24 * HOUR),
    "counts": (counts, HOUR),
    "intermittent": (intermittent, 24 * HOUR),
    "multiplicative": (multiplicative, HOUR),
    "trend": (trend, 24 * HOUR),
    "heavy tails": (heavy, HOUR),
    "daylight": (daylight, HOUR),
    "leading": (leading, HOUR),
    "gaps": (gaps, HOUR),
    "threshold": (threshold, HOUR),
    "monthly": (monthly, 30 * 24 * HOUR),
    "minutes": (minutes, 600),
    "counter": (counter, HOUR),
}


def made(name: str, seed: int) -> Series:
    """One of the streams above."""
    how, step = MADE[name]
    values = how(np.random.default_rng([seed, *name.encode()]))
    times = np.datetime64("2020-01-01", "s") + np.arange(len(values)) * np.timedelta64(step, "s")
    return Series(name, times, values, tuple(f"x{number}" for number in range(values.shape[1])), step)


def read(path: Path) -> Series | None:
    """A file as a series, its last rows, the mean of those with the same time; `None` where it is none."""
    try:
        series = read_csv(path, repeated="mean")
    except DataError:
        return None
    first = max(0, len(series) - LONGEST)
    return Series(
        path.stem, series.times[first:], series.values[first:], series.columns, series.step_seconds, series.regular
    )


def streams(folder: Path | None, seed: int) -> Iterator[Series]:
    """Those of a folder, the smallest file first, or the made ones."""
    if folder is None:
        yield from (made(name, seed) for name in MADE)
        return
    for path in sorted(folder.rglob("*.csv"), key=lambda path: int(path.stat().st_size)):
        series = read(path)
        if series is not None:
            yield series


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="of CSVs; made streams without one")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--only", help="names of streams, with commas between them")
    parser.add_argument("--budget", default="one")
    parser.add_argument("--seed", type=int, default=0, help="of the made streams")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    options = {"auto": {"budget": given.budget}}
    with ProcessPoolExecutor(given.workers, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        waiting, order = {}, []
        for series in streams(given.folder, given.seed):
            if given.only and series.name not in given.only.split(","):
                continue
            for horizon in (horizon for horizon in HORIZONS if len(series) >= 12 * horizon):
                key = f"{series.name}, H = {horizon}"
                order.append(key)
                missing = tuple(name for name in given.methods.split(",") if name not in found.get(key, {}))
                if missing:
                    waiting[workers.submit(compared, series, horizon, missing, options)] = key
        places = {key: place for place, key in enumerate(order)}
        for done in as_completed(waiting):
            key = waiting[done]
            found[key] = found.get(key, {}) | done.result()
            found = dict(sorted(found.items(), key=lambda item: places.get(item[0], -1)))
            given.out.write_text(json.dumps(found, indent=1) + "\n")
            sys.stderr.write(f"{key}: {_said(done.result())}\n")


def _said(errors: Mapping[str, float]) -> str:
    return " ".join(f"{name}={figure:.4g}" for name, figure in errors.items())


if __name__ == "__main__":
    main()
