"""Each kind of expert against what it should compute, in the plainest way it can be written."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.experts.base import Group
from natsr.experts.layouts import Everything, Lags, Neighbours, Own, Seasons, Turned, Waves
from natsr.experts.least_squares import Knobs, Layout, LeastSquares
from natsr.experts.past import Arrays, Past
from natsr.experts.plain import LastValue, Means, Medians, Seasonal
from natsr.experts.smooth import Smooth, Smoothing

Array = npt.NDArray[np.float64]
HORIZON, CHANNELS = 3, 2


def period(rows: int) -> Arrays:
    return {"period": np.array([rows], dtype=np.int64)}


def played(group: Group, rows: Array, keep: int = 200) -> tuple[Past, Array]:
    """The past and the forecasts from the last row."""
    past, out = Past(rows.shape[1], keep, HORIZON), np.zeros((len(group.names), HORIZON, rows.shape[1]))
    for row in rows:
        past.push(row)
        group.observe(past)
    group.forecast(past, out)
    return past, out


def walk(count: int, seed: int = 0) -> Array:
    return np.cumsum(np.random.default_rng(seed).standard_normal((count, CHANNELS)), 0)


def test_last_value() -> None:
    rows = walk(30)
    assert (played(LastValue(), rows)[1] == rows[-1]).all()


def test_seasonal_values_and_means() -> None:
    rows = np.tile(np.arange(5.0)[:, None], (8, CHANNELS))
    rows[-5:] += 10
    out = played(Seasonal("day", period(5), HORIZON, 2), rows)[1]
    assert out[0, :, 0].tolist() == [10.0, 11.0, 12.0]
    assert out[1, :, 0].tolist() == [5.0, 6.0, 7.0]
    assert (np.diff(out[2, :, 0]) < 1).all() and out[2, 0, 0] == 20.0  # one period before, and the 10 since then


def test_medians_of_the_last_rows_as_many_as_there_are() -> None:
    rows = walk(30)
    out = played(Medians((3, 13, 97)), rows)[1]
    for found, count in zip(out, (3, 13), strict=False):
        assert (found == np.median(rows[-count:], axis=0)).all()
    assert (out[2] == np.sort(rows, axis=0)[15]).all()  # the upper one of two


def test_a_horizon_beyond_the_period_takes_the_same_rows_again() -> None:
    rows = np.arange(20.0)[:, None].repeat(CHANNELS, 1)
    assert played(Seasonal("day", period(2), HORIZON, 2), rows)[1][0, :, 0].tolist() == [18.0, 19.0, 18.0]


def test_running_means_skip_what_is_missing() -> None:
    rows = np.array([[1.0, 1.0], [np.nan, 3.0], [3.0, np.nan]])
    assert played(Means(CHANNELS, (0.001,)), rows)[1][0, 0].tolist() == [2.0, 2.0]


def test_winters_learns_a_season_and_a_trend() -> None:
    steps = np.arange(400.0)
    rows = np.stack([0.02 * steps + np.sin(2 * np.pi * steps / 8), np.cos(2 * np.pi * steps / 8)], 1)
    kinds = (Smoothing(0.2, 0.2, trend=0.1, damping=1.0),)
    out = played(Smooth("day", period(8), CHANNELS, HORIZON, 8, kinds), rows)[1]
    ahead = np.arange(400.0, 400.0 + HORIZON)
    truth = np.stack([0.02 * ahead + np.sin(2 * np.pi * ahead / 8), np.cos(2 * np.pi * ahead / 8)], 1)
    np.testing.assert_allclose(out[0], truth, atol=0.05)


def test_a_student_t_score_shrugs_an_outlier_off() -> None:
    rows = 0.1 * np.random.default_rng(0).standard_normal((300, CHANNELS))
    rows[-1] = 1.9  # 19 deviations, within what the past lets through
    kinds = (Smoothing(0.3, 0.0), Smoothing(0.3, 0.0, dof=5))
    out = played(Smooth("day", period(1), CHANNELS, HORIZON, 1, kinds), rows)[1]
    assert (out[0] > 0.2).all() and (np.abs(out[1]) < 0.2).all()


def test_another_period_is_taken_over_from_the_rows_that_are_there() -> None:
    steps = np.arange(400.0)
    rows = np.sin(2 * np.pi * steps / 10)[:, None].repeat(CHANNELS, 1)
    shared = period(8)
    group = Smooth("found", shared, CHANNELS, HORIZON, 50, (Smoothing(0.1, 0.1),))
    past, out = Past(CHANNELS, 200, HORIZON), np.zeros((1, HORIZON, CHANNELS))
    for number, row in enumerate(rows):
        if number == 390:
            shared["period"][:] = 10
        past.push(row)
        group.observe(past)
    group.forecast(past, out)
    np.testing.assert_allclose(out[0, :, 0], np.sin(2 * np.pi * np.arange(400, 403) / 10), atol=0.1)


def layouts() -> dict[str, Layout]:
    lags, day, waves = Lags(6), period(6), Waves((period(6), period(10)), (2, 1))
    return {
        "own": Own(lags, 4),
        "seasons": Seasons(Own(lags, 4), (day, period(10)), HORIZON, 5, waves),
        "neighbours": Neighbours(Own(lags, 4), 2, 1, CHANNELS, waves),
        "everything": Everything(Own(lags, 3), CHANNELS, waves),
        "turned": Turned(Own(lags, 4), day),
    }


@pytest.mark.parametrize("name", layouts())
def test_regressors_of_several_origins_are_those_of_each(name: str) -> None:
    layout, past = layouts()[name], Past(CHANNELS, 100, HORIZON)
    rows = walk(60)
    single = []
    for row in rows:
        past.push(row)
        single.append(np.array(layout.build(past, 0, 1)))
    several = layout.build(past, 5, 7)
    assert several.shape[2] == layout.size
    np.testing.assert_allclose(several, np.concatenate(single[-12:-5], 1), atol=1e-12)


@pytest.mark.parametrize("name", layouts())
def test_columns_describe_what_is_built(name: str) -> None:
    layout, past = layouts()[name], Past(CHANNELS, 100, HORIZON)
    for row in walk(60):
        past.push(row)
    built, described = layout.build(past, 4, 1)[:, 0], layout.columns(CHANNELS)
    rows, (row, channel, other_row, other, minus) = past.clean(60, back=4), described.places.transpose(2, 0, 1)
    found = rows[row - 1, channel] - minus * rows[other_row - 1, other]
    found[:, described.one] = 1.0
    waves = 2 * sum(harmonics for _, harmonics in described.kinds)
    found[:, described.waves : described.waves + waves] = built[:, described.waves : described.waves + waves]
    np.testing.assert_allclose(found, built, atol=1e-12)


@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize("block", [1, 7])
def test_blocks_of_rows_come_to_the_ridge_solution(name: str, block: int) -> None:
    """Without forgetting, the weights are those of one regression over all examples."""
    layout, rows = layouts()[name], np.random.default_rng(5).standard_normal((140 + HORIZON, CHANNELS))
    group = LeastSquares("x", layout, CHANNELS, HORIZON, Knobs(1.0, ridge=2.0, rows=block, heads=("plain",)))
    past = Past(CHANNELS, 200, HORIZON)
    xs, ys = [], []
    waiting: list[Array] = []
    for number, row in enumerate(rows):
        past.push(row)
        group.observe(past)
        waiting.append(np.array(layout.build(past, 0, 1)[:, 0]))
        if number >= HORIZON:
            xs.append(waiting[number - HORIZON])
            change = rows[number - HORIZON + 1 : number + 1] - rows[number - HORIZON]  # (H, C)
            ys.append(change.T.reshape(len(xs[-1]), -1) if not layout.shared else change.T.reshape(1, -1))
    done = len(xs) - (int(group.arrays()["counts"][0]))
    x, y = np.stack(xs[:done], 1), np.stack(ys[:done], 1)  # (G, T, n), (G, T, m)
    gram = np.swapaxes(x, 1, 2) @ x + 2.0 * np.eye(layout.size)
    expected = np.linalg.solve(gram, np.swapaxes(x, 1, 2) @ y)
    np.testing.assert_allclose(np.asarray(group.arrays()["weights"], dtype=np.float64), expected, atol=1e-7)


def test_the_covariance_stays_bounded_where_nothing_is_seen() -> None:
    rows = np.stack([np.full(1200, 2.0), np.random.default_rng(6).standard_normal(1200)], 1)
    group = LeastSquares("x", Own(Lags(5), 5), CHANNELS, HORIZON, Knobs(0.98, ridge=0.5))
    out = played(group, rows)[1]
    covariance = np.asarray(group.arrays()["covariance"], dtype=np.float64)
    eigenvalues = np.linalg.eigvalsh((covariance + np.swapaxes(covariance, 1, 2)) / 2)
    assert eigenvalues.min() > 0 and eigenvalues.max() < 4 / 0.5
    np.testing.assert_allclose(out[:, :, 0], 2.0, atol=1e-6)


def test_the_clipped_head_is_moved_less_by_outliers() -> None:
    generator = np.random.default_rng(7)
    rows = np.zeros((1500, CHANNELS))
    for number in range(1, 1500):
        rows[number] = 0.9 * rows[number - 1] + 0.1 * generator.standard_normal(CHANNELS)
    dirty = rows + (generator.random(rows.shape) < 0.01) * 1.0
    group = LeastSquares("x", Own(Lags(5), 5), CHANNELS, HORIZON, Knobs(0.9999))
    clean_group = LeastSquares("x", Own(Lags(5), 5), CHANNELS, HORIZON, Knobs(0.9999, heads=("plain",)))
    played(group, dirty)
    played(clean_group, rows)
    weights = np.asarray(group.arrays()["weights"], dtype=np.float64)
    best = np.asarray(clean_group.arrays()["weights"], dtype=np.float64)
    plain, clipped = weights[:, :, :HORIZON], weights[:, :, HORIZON:]
    assert np.abs(clipped - best).sum() < np.abs(plain - best).sum()
