"""How often NatSR refreshes its curvature on a stream, and how long its steps take there, one after the other."""

from __future__ import annotations

import time
from itertools import pairwise
from math import nan
from typing import NamedTuple

import numpy as np
from benchmarks.speed.cases import WINDOW

from natsr.bench.cells import warm_up
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, prepare
from natsr.data.synthetic import mixture_with_gaps
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.neural import NeuralForecaster
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
    inversions: int  # without a refresh, because the damping had drifted
    ms: float  # of processor time for a step as it came: refreshes, forecast and score included


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
    assert isinstance(forecaster, NeuralForecaster)
    warm_up(forecaster, data, data.borders)
    made: list[float] = []

    def look(_: Moment) -> None:
        if forecaster.natural is not None and forecaster.steps:
            made.append(forecaster.natural.made)

    began = time.process_time()
    scores = evaluate(
        {"natsr": forecaster},
        data.rows,
        task,
        start=data.borders.valid,
        stop=data.borders.online,
        max_steps=steps + horizon,  # the first example matures after `horizon` forecasts
        intervals=False,
        on_step=look,
    )["natsr"]
    ms = 1e3 * (time.process_time() - began) / scores.steps
    refreshes = int(forecaster.info()["refreshes"])
    # Inverses for another damping than the step before; where there are none at all, `made` is not a number.
    renewed = sum(new != old for old, new in pairwise([nan, *made]) if new == new)
    inversions = max(0, renewed - refreshes)
    return Streamed(data.series.name, horizon, channels, steps, refreshes, inversions, round(ms, 4))
