"""What `auto` does on streams whose truth is known: where nothing can be forecast, from a cold start, after a shock.

python -m benchmarks.auto.streams [--budget cheap] [--only guard] --workers 2 --out benchmarks/results/auto-streams.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr.data.synthetic import random_walk
from natsr.evaluate import Moment, evaluate
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Option, Task

Array = npt.NDArray[np.float64]
SINGLES = ("last_value", "seasonal", "rls", "rls_mv")
WINDOW, SEASON, WARM = 60, 24, 1000
ROWS = 3600
SMOOTHED = 48  # rows over which an error is averaged
BACK = 1.1  # an error this many times the usual one is back
CHANGE, AFTER = 2200, 1000  # the row from which on a stream is another, and how long it goes on
LATER = 300  # rows after a change over which an error is averaged
#: Of streams with a change; none that anything was chosen on (decision 0012).
SEEDS = (*range(3, 13), *range(31, 45))
AGAIN = 1000  # times that as many streams are drawn from these, to see how much hangs on which they are


def flat(generator: np.random.Generator, rows: int, channels: int) -> Array:
    """A column that stands still and jumps once in a hundred rows."""
    jumps = (generator.random((rows, channels)) < 0.01) * generator.standard_normal((rows, channels))
    return np.cumsum(jumps, 0)


def wave(generator: np.random.Generator, rows: int, channels: int = 3) -> Array:
    """A daily and a weekly wave in noise that has a memory."""
    steps = np.arange(rows)[:, None]
    waves = np.sin(2 * np.pi * steps / 24 + np.arange(channels)) + 0.5 * np.sin(2 * np.pi * steps / 168)
    noise = np.zeros((rows, channels))
    for row in range(1, rows):
        noise[row] = 0.8 * noise[row - 1] + 0.15 * generator.standard_normal(channels)
    return waves + noise


def errors(values: Array, horizon: int, methods: Mapping[str, Mapping[str, Option]], **how: object) -> dict[str, Array]:
    """The mean absolute error of each forecast, by method, against `truth` where it is given."""
    truth = how.get("truth")
    scored = values if truth is None else np.asarray(truth, dtype=np.float64)
    warm = int(str(how.get("warm", WARM)))
    rows = Rows(torch.from_numpy(values).float(), torch.from_numpy(values).float())
    task = Task(WINDOW, horizon, values.shape[1], 0, SEASON)
    forecasters = {name: make(name.split("@")[0], task, options=dict(options)) for name, options in methods.items()}
    start = max(warm, WINDOW)
    for forecaster in forecasters.values():
        if warm:
            cut = int(0.8 * warm)
            forecaster.warm_up(Windows(rows, task, 0, cut), Windows(rows, task, cut, warm))
    found: dict[str, list[float]] = {name: [] for name in methods}

    def keep(moment: Moment) -> None:
        ahead = scored[moment.step.origin + 1 : moment.step.origin + 1 + horizon]
        for name, mean in moment.means.items():
            found[name].append(float(np.nanmean(np.abs(mean - ahead))))

    evaluate(forecasters, rows, task, start=start, stop=len(values), intervals=False, on_step=keep)
    return {name: np.array(values) for name, values in found.items()}


def guard(auto: Mapping[str, Option]) -> dict[str, float]:
    """MAE of `auto` over that of the last value, where the last value is the best there is."""
    found = {}
    generator = np.random.default_rng(0)
    streams = {
        "random walk": 0.1 * random_walk(generator, ROWS, channels=2).values,
        "constant": np.full((1200, 2), 3.0),
        "mostly flat": flat(generator, ROWS, 2),
    }
    for name, values in streams.items():
        for horizon in (1, 24):
            both = errors(values, horizon, {"auto": auto, "last_value": {}})
            last = both["last_value"].mean()
            found[f"{name}, H = {horizon}"] = float(both["auto"].mean() / last) if last else float(both["auto"].mean())
    return found


def cold(auto: Mapping[str, Option]) -> dict[str, float]:
    """MAE over rows 500 to 1,500 without a warm-up, over that with a warm-up on 2,000 other rows before them."""
    values = wave(np.random.default_rng(1), 3500)
    found = {}
    for horizon in (1, 24):
        warmed = errors(values, horizon, {"auto": auto}, warm=2000)["auto"][500:1400]
        begun = errors(values[2000:], horizon, {"auto": auto}, warm=0)["auto"][500 - WINDOW : 1400 - WINDOW]
        found[f"H = {horizon}"] = float(begun.mean() / warmed.mean())
    return found


def outliers(auto: Mapping[str, Option]) -> dict[str, dict[str, float]]:
    """MAE against the clean stream when 1 % of the values are multiplied by 20, over that on the clean stream."""
    generator = np.random.default_rng(2)
    clean = wave(generator, ROWS)
    dirty = np.where(generator.random(clean.shape) < 0.01, 20 * clean, clean)
    methods: dict[str, Mapping[str, Option]] = {"auto": auto, **dict.fromkeys(SINGLES, {})}
    before, after = errors(clean, 24, methods), errors(dirty, 24, methods, truth=clean)
    return {name: {"clean": float(before[name].mean()), "dirty": float(after[name].mean())} for name in methods}


def _around(auto: Mapping[str, Option], seed: int) -> dict[str, Mapping[str, Array]]:
    """Errors before and after each change, by method."""
    methods: dict[str, Mapping[str, Option]] = {"auto": auto, **dict.fromkeys(SINGLES, {})}
    return {name: errors(stream, 24, methods) for name, stream in changed(seed).items()}


def regimes(auto: Mapping[str, Option], workers: int = 1) -> dict[str, dict[str, dict[str, float]]]:
    """After a change, by method: its error before, and the rows until the error is back; -1 if it never is.

    Back within 10 % of the method's own error before (`own`), and of the least error that any single method had before
    (`best`). Errors are means over many streams with the same change: those of one stream go up and down by a third.
    `later` is the mean error over the rows after the change, over that least error.
    """
    curves: dict[str, dict[str, list[Array]]] = {}
    with ProcessPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        for found in pool.map(partial(_around, auto), SEEDS):
            for name, by_method in found.items():
                for method, error in by_method.items():
                    size = np.where(np.arange(len(error)) < CHANGE - WARM, 1.0, 2.0 if name == "amplitude" else 1.0)
                    curves.setdefault(name, {}).setdefault(method, []).append(error / size)
    return {
        name: judged({method: np.stack(several) for method, several in by_method.items()})
        for name, by_method in curves.items()
    }


def judged(curves: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """What `regimes` says of one change, from the errors of each method, `(streams, rows)`.

    And under `behind` how many rows more `auto` needs than the single method that needs the fewest (`rows`), with the
    5 % and the 95 % quantile of that over as many streams drawn from these again and again.
    """
    found = _needed(curves)
    for method, error in curves.items():
        after = error[:, CHANGE - WARM : CHANGE - WARM + LATER].mean()
        found[method]["later"] = float(after) / min(found[single]["before"] for single in SINGLES)
    generator, count = np.random.default_rng(0), len(curves["auto"])
    drawn = [
        _behind(_needed({method: error[chosen] for method, error in curves.items()}))
        for chosen in generator.integers(0, count, (AGAIN, count))
    ]
    low, high = np.quantile(drawn, (0.05, 0.95)).tolist()
    found["behind"] = {"rows": _behind(found), "low": low, "high": high}
    return found


def _needed(curves: Mapping[str, Array]) -> dict[str, dict[str, float]]:
    """By method the error before, and the rows until it is back."""
    means = {method: error.mean(0) for method, error in curves.items()}
    before = {method: float(error[CHANGE - WARM - 600 : CHANGE - WARM - 24].mean()) for method, error in means.items()}
    least = min(before[method] for method in SINGLES)
    return {
        method: {"before": before[method], "own": _back(error, before[method]), "best": _back(error, least)}
        for method, error in means.items()
    }


def _behind(found: Mapping[str, Mapping[str, float]]) -> float:
    """Rows that `auto` needs more than the best single method; never is as long as a stream goes on."""
    rows = {method: found[method]["best"] if found[method]["best"] >= 0 else AFTER for method in ("auto", *SINGLES)}
    return rows["auto"] - min(rows[method] for method in SINGLES)


def changed(seed: int) -> dict[str, Array]:
    """A stream that goes on in another way at row `CHANGE`, by what changes."""
    base = wave(np.random.default_rng(seed), CHANGE + AFTER, 2)
    steps = np.arange(len(base))[:, None]
    without = base - np.sin(2 * np.pi * steps / 24 + np.arange(2))
    after = {
        "level": base + 5,
        "amplitude": 2 * base,
        "frequency": without + np.sin(2 * np.pi * steps / 18 + np.arange(2)),
        "swapped": base[:, ::-1] + np.array([2.0, -2.0]),
    }
    return {name: np.where(steps < CHANGE, base, values) for name, values in after.items()}


def _back(error: Array, usual: float) -> int:
    """Rows after the change at which the smoothed error first is within a tenth of the usual one."""
    sums = np.cumsum(error)
    smooth = (sums[SMOOTHED:] - sums[:-SMOOTHED]) / SMOOTHED  # the first is of the rows 1 to SMOOTHED
    good = np.flatnonzero(smooth[CHANGE - WARM :] <= BACK * usual)
    return int(good[0]) + SMOOTHED if len(good) else -1


PARTS: Mapping[str, Callable[..., Mapping[str, object]]] = {
    "guard": guard,
    "cold": cold,
    "outliers": outliers,
    "regimes": regimes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="cheap")
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=1, help="processes, for streams with a change")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, object] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for name, part in PARTS.items():
        if given.only in (None, name):
            more = {"workers": given.workers} if part is regimes else {}
            found[f"{name}, budget {given.budget}"] = part({"budget": given.budget}, **more)
            given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
