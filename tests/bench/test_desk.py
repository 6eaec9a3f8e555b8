"""Scores that are made elsewhere are those that are made here, whatever becomes of the processes."""

from __future__ import annotations

import os
import signal

import numpy as np
import torch

from natsr.bench.desk import Desk, Sheet
from natsr.calibrate import PROBABILITIES
from natsr.evaluate import Forecasts
from natsr.metrics import Scores
from natsr.types import Task

TASK = Task(window=4, horizon=3, channels=2, season=5)


def sheet() -> Sheet:
    random = np.random.default_rng(0)
    forecasts = Forecasts(5, random.normal(size=(40, 3, 2)).astype(np.float32), np.full(40, 0.5))
    return Sheet(Scores(TASK, 1.0, torch.ones(2), PROBABILITIES), forecasts, random.normal(size=(60, 2)))


class Deadly(Scores):
    """End the process that unpacks them."""

    def __setstate__(self, state: dict[str, object]) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_here_and_elsewhere() -> None:
    alone = sheet().scored().result()
    assert alone["steps"] == 40 and alone["crps"] is not None
    with Desk(0) as here, Desk(1) as there:
        assert here.take(sheet()).scores().result() == there.take(sheet()).scores().result() == alone


def test_what_a_process_that_died_had_is_made_here() -> None:
    doomed = sheet()._replace(scores=Deadly(TASK, 1.0, torch.ones(2), PROBABILITIES))
    with Desk(1) as desk:
        pending = desk.take(doomed)
        assert pending.scores().result() == sheet().scored().result()
        assert desk.take(sheet()).scores().steps == 40  # nobody is left to do it


def test_forecasts_that_are_not_finite_have_no_figures() -> None:
    bad = sheet()
    bad.forecasts.means[7, 1, 1] = np.nan
    scores = bad.scored()
    assert scores.error == "FloatingPointError at origin 12: 1 of 6 forecasts are not finite"
    assert scores.steps == 7 and scores.result()["mae"] is None
