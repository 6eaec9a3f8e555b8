"""Measure what the figures show: `python -m benchmarks.figures.measure [predictions|toys|scores …]`.

Each part is written to `benchmarks/results/figure-*.json`, small enough to be committed; `make figures` draws from
these files alone. The predictions need the datasets (`NATSR_DATA`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.bench.cells import warm_up
from natsr.data import synthetic
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, Series, prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.neural import NeuralForecaster
from natsr.likelihoods import Gaussian, StudentT
from natsr.recipes import RECIPES, make
from natsr.streams import Windows
from natsr.types import Example, Option

RESULTS = Path(__file__).resolve().parents[1] / "results"
Array = npt.NDArray[np.float64]
#: NatSR as in the paper's tables; the others have their defaults.
OPTIONS: dict[str, dict[str, Option]] = {"natsr": {"rate": 0.05, "average": 1}}

#: The toy examples: ten networks on one stream, one row ahead.
TOYS = ("natsr", "ogd")
REPEATS, ROWS, TOY_WINDOW = 10, 1000, 24
#: Smaller than the benchmark's network: the streams are as simple as can be.
SMALL: dict[str, Option] = {"width": 32, "depth": 5, "top": 64}
#: Of 0.01, 0.05 and 0.1 for NatSR and 1e-4, 3e-4, 1e-3 and 3e-3 for OGD those with the lowest error before an outlier.
TOY_RATES = {"natsr": 0.01, "ogd": 1e-4}
BEFORE, AFTER = 48, 120

#: The predictions: how many steps are run, and how many of the last are shown.
STEPS, SHOWN, HORIZON = 1500, 240, 24
PREDICTED = ("natsr", "fsnet", "er", "ogd")


class Watched(Forecaster):
    """A network's forecaster, with the length of each gradient or natural gradient written down."""

    def __init__(self, inner: NeuralForecaster[Any]) -> None:
        self.task = inner.task
        self.inner = inner
        self.norms: list[float] = []
        self.scales: list[float] = []

    def forecast(self, window: Tensor) -> Forecast:
        return self.inner.forecast(window)

    @torch.no_grad()
    def learn(self, example: Example) -> None:
        inner = self.inner
        window = inner.frame.read(example.window, inner.net.weights)
        trace = inner.net.trace(window)
        error = inner.frame.teach(example, inner.net.weights).reshape(trace.output.shape) - trace.output
        plain = float(inner.net.gradient(trace, inner.likelihood.score(error) / error.numel()).norm())
        inner.learn(example)
        self.norms.append(inner.info().get("update_norm", plain))
        self.scales.append(float(np.sqrt(inner.likelihood.variance)))

    def warm_up(self, train: Windows, valid: Windows, progress: Progress = silent) -> None:
        self.inner.warm_up(train, valid, progress)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.inner.state_dict())

    def load_state_dict(self, state: Any) -> None:
        self.inner.load_state_dict(state)


def toys() -> None:
    """A wave with outliers, and one whose amplitude and period change."""
    outliers = synthetic.sinusoid_with_outliers(np.random.default_rng(3), rows=ROWS, outliers=3, size=10.0)
    regimes = synthetic.sinusoid_with_regimes(
        np.random.default_rng(0), rows=ROWS, regimes=((1.0, 24.0), (1.0, 24.0), (2.5, 12.0), (1.0, 24.0))
    )
    # The second of the regimes is like the first, and the second outlier is far from the others.
    found = {"outliers": toy(outliers, outliers.events[1]), "regimes": toy(regimes, regimes.events[1])}
    keep("figure-toys.json", {"repeats": REPEATS, "rates": TOY_RATES, "network": SMALL, **found})


def toy(series: Series, event: int) -> dict[str, Any]:
    """Ten networks of each method on one stream; what they did around the event."""
    borders = Borders.published(len(series))
    data = prepare(series, borders)
    start, stop = max(event - BEFORE, borders.valid + 1), min(event + AFTER, borders.online)
    shown: dict[str, Any] = {"event": event - start, "truth": rounded(data.rows.truth[start:stop, 0].numpy())}
    for method in TOYS:
        runs = [_one_toy(method, seed, data, borders) for seed in range(REPEATS)]
        for place, name in enumerate(("forecast", "norm", "scale")):
            values = np.stack([run[place][start - borders.valid : stop - borders.valid] for run in runs])
            shown[f"{method} {name}"] = rounded(values.mean(0))
            shown[f"{method} {name} std"] = rounded(values.std(0, ddof=1))
        errors = np.stack([run[0] for run in runs]) - data.rows.truth[borders.valid : borders.online, 0].numpy()
        after = np.abs(errors[:, event + 1 - borders.valid : event + 1 - borders.valid + 48])
        shown[f"{method} error after"] = [round(float(after.mean()), 4), round(float(after.mean(1).std(ddof=1)), 4)]
    return shown


def _one_toy(method: str, seed: int, data: Prepared, borders: Borders) -> tuple[Array, Array, Array]:
    """The forecast of each row of the stream, made one row before, the length of the step before it, and the scale."""
    task = data.task(TOY_WINDOW, 1)
    inner = make(method, task, seed=seed, options={**OPTIONS.get(method, {}), **SMALL, "rate": TOY_RATES[method]})
    assert isinstance(inner, NeuralForecaster)
    watched = Watched(inner)
    warm_up(watched, data, borders)
    means: list[float] = []

    def on_step(moment: Moment) -> None:
        means.append(float(moment.means[method][0, 0]))

    evaluate(
        {method: watched}, data.rows, task, start=borders.valid, stop=borders.online, intervals=False, on_step=on_step
    )
    steps = len(means)
    # The first forecast comes before anything was learned.
    norms, scales = ([values[0]] * (steps - len(values)) + values for values in (watched.norms, watched.scales))
    return np.array(means), np.array(norms), np.array(scales)


def predictions(datasets: tuple[str, ...] = ("ETTh1", "ETTm1", "WTH")) -> None:
    """The last column, 24 rows ahead, at the end of a stretch of the stream, under both protocols."""
    methods = [name for name in PREDICTED if name in RECIPES]
    found = {}
    for name in datasets:
        series, borders = load(name)
        data = prepare(series, borders)
        shown: dict[str, Any] = {"column": series.columns[-1]}
        for protocol in ("paper", "honest"):
            shown[protocol] = {method: _predicted(method, data, protocol) for method in methods}
        first = borders.valid - 1 + STEPS - SHOWN + HORIZON  # the row that the first forecast shown is for
        shown["truth"] = rounded(data.rows.truth[first : first + SHOWN, -1].numpy())
        found[name] = shown
        sys.stdout.write(f"{name}: {', '.join(methods)}\n")
    keep("figure-predictions.json", {"steps": STEPS, "horizon": HORIZON, "datasets": found})


def _predicted(method: str, data: Prepared, protocol: str) -> list[float]:
    task = data.task(60, HORIZON)
    forecaster = make(method, task, options=OPTIONS.get(method, {}))
    warm_up(forecaster, data, data.borders)
    means: list[float] = []

    def on_step(moment: Moment) -> None:
        if moment.done > STEPS - SHOWN:
            means.append(float(moment.means[method][-1, -1]))

    evaluate(
        {method: forecaster},
        data.rows,
        task,
        start=data.borders.valid,
        stop=data.borders.online,
        protocol=protocol,
        max_steps=STEPS,
        intervals=False,
        on_step=on_step,
    )
    return rounded(np.array(means))


def scores() -> None:
    """The natural score of the mean for several scales, and of the scale for several degrees of freedom."""
    errors = torch.linspace(-8, 8, 161, dtype=torch.float64)
    mean = {f"s = {s:g}": _natural(StudentT(dof=5.0, variance=s * s), errors) for s in (0.5, 1.0, 2.0, 4.0)}
    mean["Gaussian"] = _natural(Gaussian(), errors)
    scale = {f"ν = {nu:g}": rounded(StudentT(dof=nu).scale_score(errors).numpy()) for nu in (2.0, 5.0, 50.0)}
    scale["Gaussian"] = rounded(Gaussian().scale_score(errors).numpy())
    keep("figure-scores.json", {"errors": rounded(errors.numpy()), "dof": 5, "mean": mean, "scale": scale})


def _natural(likelihood: Gaussian | StudentT, errors: Tensor) -> list[float]:
    """The pull of an error on the mean: the score divided by the information, up to the sign."""
    pull = likelihood.score(errors) / likelihood.fisher
    return rounded((pull * torch.sign(pull[-1])).numpy())


def rounded(values: npt.NDArray[Any]) -> list[float]:
    """With four digits, for a file that can be read."""
    return [float(f"{value:.4g}") for value in values]


def keep(name: str, found: dict[str, Any]) -> None:
    """Write one file of results."""
    (RESULTS / name).write_text(json.dumps(found, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.write(f"written: benchmarks/results/{name}\n")


PARTS: dict[str, Callable[[], None]] = {"scores": scores, "toys": toys, "predictions": predictions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"which of {', '.join(PARTS)}; all of them unless said")
    torch.set_num_threads(1)
    for part in parser.parse_args().parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
