"""The tally scores each forecast at the row it was about, and forgets slowly."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from natsr.calibrate import PROBABILITIES
from natsr.health import FORGET, WHOLE, Tally
from natsr.types import StateError, Task

TASK = Task(window=1, horizon=2, channels=1)
AWAY = np.array(PROBABILITIES) - 0.5


def played(rows: list[float]) -> Tally:
    """A forecaster that says: one more at each step, give or take a half."""
    tally = Tally(TASK)
    for value in rows:
        tally.reveal(np.array([value]))
        mean = np.array([[value + 1], [value + 2]])
        tally.push(mean, mean + 0.5 * AWAY[:, None, None] / AWAY[-2], np.array([value]))
    return tally


def test_figures_by_hand() -> None:
    assert Tally(TASK).figures() == {"mase": None, "mase_last_value": None, "crps": None, "coverage_90": None}
    figures = played([0.0, 1.0, 3.0]).figures()
    # Row 1: said 1. Row 2, which was 3: said 2 from row 1, and 2 from row 0. Row 1 weighs a thousandth less.
    weight = 2 + FORGET
    change = (2 + FORGET * 1) / (1 + FORGET)
    assert figures["mase"] == pytest.approx((1 + 1 + FORGET * 0) / weight / change)
    assert figures["mase_last_value"] == pytest.approx((2 + 3 + FORGET * 1) / weight / change)
    assert figures["coverage_90"] == pytest.approx(FORGET * 1 / weight)


def crps(truth: float, quantiles: npt.NDArray[np.float64]) -> float:
    """Twice the mean pinball loss over 0.05, 0.1, … 0.95."""
    pairs = list(zip(PROBABILITIES, quantiles.tolist(), strict=True))[1:-1]
    losses = [p * (truth - q) if truth > q else (1 - p) * (q - truth) for p, q in pairs]
    return float(2 * np.mean(losses))


def test_crps_by_hand() -> None:
    spread = 0.5 * AWAY / AWAY[-2]
    change = (2 + FORGET * 1) / (1 + FORGET)
    expected = FORGET * crps(1.0, 1 + spread) + crps(3.0, 2 + spread) + crps(3.0, 2 + spread)
    assert played([0.0, 1.0, 3.0]).figures()["crps"] == pytest.approx(expected / (2 + FORGET) / change)


def test_a_certain_forecast_has_its_error_as_crps() -> None:
    tally, generator = Tally(TASK), np.random.default_rng(0)
    for value in generator.normal(size=200).cumsum().tolist():
        tally.reveal(np.array([value]))
        mean = np.full((2, 1), value)
        tally.push(mean, np.tile(mean, (len(PROBABILITIES), 1, 1)), np.array([value]))
    figures = tally.figures()
    assert figures["crps"] == pytest.approx(figures["mase"])


@pytest.mark.parametrize("horizon", [1, 3, WHOLE, WHOLE + 1, 24, 47])
def test_of_long_horizons_some_forecasts_are_scored_and_of_these_every_step(horizon: int) -> None:
    tally, rows, found = Tally(Task(window=1, horizon=horizon, channels=1)), 120, []
    every = -(-horizon // WHOLE)
    truth = np.random.default_rng(1).normal(size=rows).cumsum()
    said = truth[:, None] + np.random.default_rng(2).normal(size=(rows, horizon))
    for row in range(rows):
        tally.reveal(truth[row : row + 1])
        quantiles = said[row][None, :, None] + AWAY[:, None, None]
        tally.push(said[row][:, None], quantiles, truth[row : row + 1])
    for origin in range(0, rows + 1):  # the first row revealed is number 1
        for step in range(1, horizon + 1):
            if origin and origin % every == 0 and origin + step <= rows:
                score = crps(truth[origin + step - 1], said[origin - 1, step - 1] + AWAY)
                found.append((score, FORGET ** (rows - origin - step)))
    mean = sum(score * weight for score, weight in found) / sum(weight for _, weight in found)
    assert tally._mean_of("crps") == pytest.approx(mean)


def test_in_a_state_from_before_the_crps_begins_anew() -> None:
    tally, other = played([0.0, 1.0, 5.0, 2.0]), Tally(TASK)
    state = tally.state_dict()
    sums, counts = state["sums"], state["counts"]
    assert isinstance(sums, dict) and isinstance(counts, dict)
    del state["whole"], sums["crps"], counts["crps"]
    other.load_state_dict(state)
    assert other.figures() == {**tally.figures(), "crps": None}


def test_missing_rows_count_for_nothing() -> None:
    figures = played([0.0, math.nan, 2.0]).figures()
    assert figures["mase"] is None  # no two rows in a row are known, so there is no change to compare with
    assert figures["coverage_90"] == 1.0  # row 0 said 2 of row 2


def test_state_goes_on_and_a_foreign_one_is_refused() -> None:
    tally, other = played([0.0, 1.0, 5.0]), Tally(TASK)
    other.load_state_dict(tally.state_dict())
    for value in (1.0, math.nan, 9.0):
        for one in (tally, other):
            one.reveal(np.array([value]))
        assert other.figures() == tally.figures()
    with pytest.raises(StateError, match="lacks its counts"):
        other.load_state_dict({})
    with pytest.raises(StateError, match="same task"):
        Tally(Task(window=1, horizon=3, channels=1)).load_state_dict(tally.state_dict())
