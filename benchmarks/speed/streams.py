"""How often NatSR refreshes its curvature on a stream, and how long its steps take there, one after the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from benchmarks.speed.cases import WINDOW

from natsr.bench.cells import warm_up
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, prepare
from natsr.data.synthetic import mixture_with_gaps
from natsr.evaluate import evaluate
from natsr.recipes import make
from natsr.types import DataError

#: The stream that has so many columns.
DATASETS = {7: "ETTh1", 12: "WTH"}
SYNTHETIC_ROWS = 3000


class Streamed(NamedTuple):
    """NatSR over the first steps of a stream, honestly, after one epoch of warm-up."""

    stream: str
    horizon: int
    channels: int
    steps: int  # that learned
    refreshes: int
    ms: float  # of learning and forecasting, refreshes included, as it came

    @property
    def rate(self) -> float:
        """Refreshes in a step."""
        return self.refreshes / self.steps


def prepared(channels: int) -> Prepared:
    """A stream with so many columns: a named one where it is at hand, a mixture of waves otherwise."""
    name = DATASETS.get(channels)
    if name is not None:
        try:
            series, borders = load(name, download=False)
            return prepare(series, borders)
        except DataError:
            pass
    waves = mixture_with_gaps(np.random.default_rng(0), SYNTHETIC_ROWS, channels, missing=0.0, gap=0)
    return prepare(waves, Borders.published(SYNTHETIC_ROWS))


def streamed(horizon: int, channels: int, steps: int) -> Streamed:
    """Run it."""
    data = prepared(channels)
    task = data.task(WINDOW, horizon)
    forecaster = make("natsr", task, options={"epochs": 1})
    warm_up(forecaster, data, data.borders)
    scores = evaluate(
        {"natsr": forecaster},
        data.rows,
        task,
        start=data.borders.valid,
        stop=data.borders.online,
        max_steps=steps + horizon,  # the first example matures after `horizon` forecasts
        intervals=False,
    )["natsr"]
    refreshes = int(forecaster.info()["refreshes"])
    return Streamed(
        data.series.name, horizon, channels, steps, refreshes, round(1e3 * scores.seconds / scores.steps, 4)
    )
