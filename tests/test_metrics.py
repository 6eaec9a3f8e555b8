"""The running figures against plain numpy on the whole table of forecasts."""

from __future__ import annotations

import math
import os
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
import torch

from natsr.calibrate import PROBABILITIES
from natsr.metrics import CURVE_POINTS, STRETCH, Curve, Scores, Stretch, naive_error
from natsr.types import OptionError, ShapeError, Task

Array = npt.NDArray[np.float64]
TASK = Task(window=1, horizon=4, channels=3)


def forecasts(count: int, seed: int = 0, missing: float = 0.2) -> tuple[Array, Array, Array]:
    """Means `(N, H, C)`, targets with gaps, and quantiles `(N, Q, H, C)`."""
    generator = np.random.default_rng(seed)
    shape = (count, TASK.horizon, TASK.channels)
    mean, target = generator.normal(size=shape), generator.normal(size=shape)
    target[generator.random(shape) < missing] = math.nan
    quantiles = np.sort(generator.normal(size=(count, len(PROBABILITIES), *shape[1:])), axis=1)
    return mean, target, quantiles


def scored(mean: Array, target: Array, quantiles: Array | None) -> Scores:
    scores = Scores(TASK, denominator=0.7, std=torch.tensor([1.0, 2.0, 5.0]), probabilities=PROBABILITIES)
    for place in range(len(mean)):
        scores.update(mean[place], target[place], None if quantiles is None else quantiles[place])
    return scores


def test_errors_are_those_of_the_whole_table() -> None:
    mean, target, quantiles = forecasts(50)
    scores = scored(mean, target, quantiles)
    errors = target - mean
    assert scores.steps == 50
    assert scores.mae == pytest.approx(np.nanmean(np.abs(errors)), rel=1e-12)
    assert scores.mse == pytest.approx(np.nanmean(errors**2), rel=1e-12)
    assert scores.mase == pytest.approx(np.nanmean(np.abs(errors)) / 0.7, rel=1e-12)
    by_step, by_channel = scores.by_step(), scores.by_channel()
    assert by_step["mae"] == pytest.approx(np.nanmean(np.abs(errors), axis=(0, 2)), rel=1e-12)
    assert by_step["mse"] == pytest.approx(np.nanmean(errors**2, axis=(0, 2)), rel=1e-12)
    assert by_channel["mae"] == pytest.approx(np.nanmean(np.abs(errors), axis=(0, 1)), rel=1e-12)
    own = errors * np.array([1.0, 2.0, 5.0])
    assert by_channel["mae_units"] == pytest.approx(np.nanmean(np.abs(own), axis=(0, 1)), rel=1e-12)
    assert by_channel["mse_units"] == pytest.approx(np.nanmean(own**2, axis=(0, 1)), rel=1e-12)


def test_crps_is_twice_the_mean_pinball_loss() -> None:
    mean, target, quantiles = forecasts(50)
    losses = []
    for probability, quantile in zip(PROBABILITIES, quantiles.swapaxes(0, 1), strict=True):
        if round(probability * 1000) % 50 == 0:
            above = target - quantile
            losses.append(np.where(above >= 0, probability * above, (probability - 1) * above))
    assert len(losses) == 19
    assert scored(mean, target, quantiles).crps == pytest.approx(2 * np.nanmean(losses), rel=1e-12)


def test_crps_approaches_that_of_the_gaussian() -> None:
    """For a standard normal forecast the CRPS has the mean 1/sqrt(pi) under its own distribution."""
    generator = np.random.default_rng(1)
    task = Task(window=1, horizon=1, channels=20000)
    scores = Scores(task, probabilities=PROBABILITIES)
    normal = np.array([NormalDist().inv_cdf(p) for p in PROBABILITIES])[:, None, None] * np.ones((1, 1, task.channels))
    target = generator.normal(size=(1, task.channels))
    scores.update(np.zeros_like(target), target, normal)
    # The grid leaves out the outermost tails, where the loss is small: the mean over it is a little high.
    assert 1.0 < scores.crps / (1 / math.sqrt(math.pi)) < 1.06


def test_coverage_and_width_of_each_level() -> None:
    mean, target, quantiles = forecasts(50)
    scores = scored(mean, target, quantiles)
    places = {probability: place for place, probability in enumerate(PROBABILITIES)}
    known = ~np.isnan(target)
    for level, low, high in ((50, 0.25, 0.75), (80, 0.1, 0.9), (90, 0.05, 0.95), (95, 0.025, 0.975)):
        lower, upper = quantiles[:, places[low]], quantiles[:, places[high]]
        inside = (lower <= target) & (target <= upper)
        assert scores.coverage(level) == pytest.approx(inside[known].mean(), rel=1e-12)
        assert scores.width(level) == pytest.approx((upper - lower)[known].mean(), rel=1e-12)
    inside = (quantiles[:, places[0.05]] <= target) & (target <= quantiles[:, places[0.95]])
    by_step = [inside[:, step][known[:, step]].mean() for step in range(TASK.horizon)]
    assert scores.by_step()["coverage_90"] == pytest.approx(by_step, rel=1e-12)


def test_worst_coverage_is_the_lowest_of_all_stretches() -> None:
    generator = np.random.default_rng(2)
    count = 3 * STRETCH
    mean, target, quantiles = forecasts(count)
    target[STRETCH : STRETCH + 200] *= 1 + generator.random((200, 1, 1)) * 4  # a stretch of surprises
    scores = scored(mean, target, quantiles)
    low, high = PROBABILITIES.index(0.05), PROBABILITIES.index(0.95)
    inside = (quantiles[:, low] <= target) & (target <= quantiles[:, high])
    hits, tries = inside.sum((1, 2)), (~np.isnan(target)).sum((1, 2))
    shares = [
        hits[begin : begin + STRETCH].sum() / tries[begin : begin + STRETCH].sum()
        for begin in range(count - STRETCH + 1)
    ]
    assert scores.worst_coverage_90 == pytest.approx(min(shares), rel=1e-12)
    assert scores.worst_coverage_90 < scores.coverage(90) - 0.01


def test_worst_coverage_needs_a_whole_stretch_of_which_half_is_known() -> None:
    stretch = Stretch(rows=4, outcomes=2)
    for hits, tries in ((2, 2), (2, 2), (0, 0)):
        stretch.append(hits, tries)
    assert math.isnan(stretch.worst)
    stretch.append(0, 1)
    assert stretch.worst == pytest.approx(4 / 5)
    for _ in range(4):
        stretch.append(0, 1)  # known: 4 of 8, not more than half
    assert stretch.worst == pytest.approx(4 / 5)
    assert math.isnan(scored(*forecasts(STRETCH - 1)).worst_coverage_90)


def test_a_step_without_any_target_changes_nothing_but_the_count() -> None:
    mean, target, quantiles = forecasts(20)
    scores = scored(mean, target, quantiles)
    before = scores.result()
    scores.update(mean[0], np.full_like(target[0], math.nan), quantiles[0])
    after = scores.result()
    assert before.pop("steps") == 20 and after.pop("steps") == 21
    assert before == after


def test_nothing_known_gives_no_figures() -> None:
    result = Scores(TASK, denominator=1.0, probabilities=PROBABILITIES).result()
    assert result["steps"] == 0 and result["error"] is None
    assert result["mae"] is None and result["crps"] is None and result["ms_per_step"] is None


def test_the_result_has_the_fields_of_a_results_line() -> None:
    scores = scored(*forecasts(10))
    scores.seconds, scores.peak_mib = 0.5, 100.0
    result = scores.result()
    assert {"steps", "mae", "mse", "mase", "crps", "coverage_90", "width_90"} <= set(result)
    assert (
        result["seconds"] == 0.5 and result["ms_per_step"] == 50 and result["peak_mib"] == 100 and not result["error"]
    )
    scores.error = "diverged"
    failed = scores.result()
    assert failed["error"] == "diverged" and failed["mae"] is None and failed["seconds"] is None


def test_a_constant_stream_has_no_mase() -> None:
    assert naive_error(torch.ones(10, 2), 1, 10) == 0
    scores = Scores(TASK, denominator=0.0)
    scores.update(np.zeros((4, 3)), np.ones((4, 3)))
    assert scores.mae == 1 and scores.result()["mase"] is None


def test_naive_error_leaves_out_pairs_with_a_gap() -> None:
    generator = np.random.default_rng(3)
    truth = generator.normal(size=(40, 3))
    truth[generator.random(truth.shape) < 0.3] = math.nan
    changes = [
        abs(truth[row, channel] - truth[row - 1, channel])
        for row in range(10, 30)
        for channel in range(3)
        if not math.isnan(truth[row, channel]) and not math.isnan(truth[row - 1, channel])
    ]
    assert naive_error(torch.tensor(truth), 10, 30) == pytest.approx(np.mean(changes), rel=1e-12)
    assert math.isnan(naive_error(torch.full((5, 1), math.nan), 0, 5))
    with pytest.raises(OptionError, match="expected 0 <= start < stop <= 40"):
        naive_error(torch.tensor(truth), 30, 30)


def test_the_curve_is_the_running_mean_at_few_points() -> None:
    mean, target, _ = forecasts(3000)
    scores = scored(mean, target, None)
    errors = np.abs(target - mean)
    steps, values = scores.curve()
    assert CURVE_POINTS / 2 <= len(steps) <= CURVE_POINTS
    assert (np.diff(steps) == steps[0]).all()
    for step, value in zip(steps[::50], values[::50], strict=True):
        assert value == pytest.approx(np.nanmean(errors[:step]), rel=1e-10)


@pytest.mark.parametrize("count", [1, 7, 8, 9, 1000])
def test_a_curve_never_grows_beyond_its_points(count: int) -> None:
    curve = Curve(points=8)
    for step in range(1, count + 1):
        curve.append(step, float(step))
        assert len(curve.arrays()[0]) <= 8
    steps, values = curve.arrays()
    assert (steps == values).all() and steps[-1] > count / 2


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(OptionError, match=r"lack \[0.025, 0.05"):
        Scores(TASK, probabilities=(0.1, 0.5, 0.9))
    with pytest.raises(ShapeError, match=r"std has shape \(2,\), expected \(3,\)"):
        Scores(TASK, std=torch.ones(2))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "train", "start", "stop", "expected"),
    [
        ("ETTh1", 2880, 3600, 14400, 0.3550),
        ("ETTh2", 2880, 3600, 14400, 0.3363),
        ("ETTm1", 2880, 3600, 14400, 0.1855),
        ("ETTm2", 2880, 3600, 14400, 0.2321),
    ],
)
def test_denominators_are_the_papers(name: str, train: int, start: int, stop: int, expected: float) -> None:
    folder = os.environ.get("NATSR_DATA")
    if folder is None or not (Path(folder) / f"{name}.csv").exists():
        pytest.skip(f"needs {name}.csv in $NATSR_DATA")
    raw = np.loadtxt(Path(folder) / f"{name}.csv", delimiter=",", skiprows=1, usecols=range(1, 8), max_rows=stop)
    values = torch.tensor((raw - raw[:train].mean(0)) / raw[:train].std(0))
    assert naive_error(values, start, stop) == pytest.approx(expected, abs=6e-5)
