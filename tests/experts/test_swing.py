"""What waves are multiplied by: 1 while nothing happens, and what the amplitude has become after it has changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.experts.layouts import Everything, Lags, Own, Seasons, Waves
from natsr.experts.least_squares import Knobs, LeastSquares
from natsr.experts.past import Arrays, Past
from natsr.experts.swing import Swing

Array = npt.NDArray[np.float64]
DAY, CHANGE, ROWS = 24, 900, 1300


def period(rows: int = DAY) -> Arrays:
    return {"period": np.array([rows], dtype=np.int64)}


def stream(seed: int, rows: int = ROWS, channels: int = 2, season: int = DAY) -> Array:
    """Waves in noise that has a memory."""
    generator = np.random.default_rng(seed)
    found, noise = np.sin(2 * np.pi * np.arange(rows)[:, None] / season + np.arange(channels)), np.zeros(channels)
    for row in found:
        noise = 0.8 * noise + 0.15 * generator.standard_normal(channels)
        row += noise
    return np.asarray(found)


def swings(values: Array, season: int = DAY) -> Array:
    """What the waves of each row are multiplied by, `(T, C)`."""
    past, swing, found = Past(values.shape[1], 400, 1), Swing(values.shape[1], period(season)), np.empty(values.shape)
    for row, to in zip(values, found, strict=True):
        past.push(row)
        swing.look(past)
        to[:] = past.swing(1)[0]
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("times", [0.4, 1.8, 2.0, 5.0])
def test_waves_follow_an_amplitude_within_days(seed: int, times: float) -> None:
    values = stream(seed)
    values[CHANGE:, 0] *= times
    found = swings(values)
    assert (found[:CHANGE] == 1).all() and (found[:, 1] == 1).all()  # and the other column's are not touched
    after = found[CHANGE + 4 * DAY :, 0] / times
    assert after.min() > 0.75 and after.max() < 1.35


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_neither_a_level_nor_noise_nor_outliers_are_an_amplitude(seed: int) -> None:
    generator = np.random.default_rng(10 + seed)
    level, noise, outliers = (stream(seed) for _ in range(3))
    level[CHANGE:] += 5
    noise[CHANGE:] += 0.3 * generator.standard_normal(noise[CHANGE:].shape)
    outliers[generator.random(outliers.shape) < 0.01] *= 20
    for values in (level, noise, outliers):
        assert np.abs(swings(values) - 1).mean() < 0.05


def test_a_column_that_stood_still_for_a_while_is_what_it_was() -> None:
    values = stream(3)
    values[500:700] = values[500]
    found = swings(values)
    assert (found[:500] == 1).all() and (found[690] < 0.2).all() and np.abs(found[CHANGE:] - 1).mean() < 0.2
    assert (swings(np.ones((300, 2))) == 1).all()


def test_gaps_and_streams_without_a_season_are_left_alone() -> None:
    values = stream(4)
    values[::3, 0] = np.nan
    assert (swings(values) == 1).all()
    assert (swings(2.0 ** np.arange(-30, 30)[:, None] * np.ones(2), season=1) == 1).all()


def test_a_short_season_is_measured_over_several() -> None:
    values = stream(5, season=6)
    values[CHANGE:] *= 3
    found = swings(values, 6)
    assert (found[:CHANGE] == 1).all() and np.abs(found[-1] / 3 - 1).max() < 0.25


def test_regressions_with_waves_are_right_soon_after_the_amplitude_doubles() -> None:
    """Within days; with waves of one size they are wrong for hundreds of rows."""
    values, horizon = np.concatenate([stream(6), 0 * stream(7)])[:ROWS], 12
    values[CHANGE:] *= 2

    def error(follows: bool, shared: bool) -> float:
        day, past = period(), Past(2, 400, horizon)
        waves, own = Waves((day,), (2,)), Own(Lags(12), 12)
        layout = Everything(own, 2, waves) if shared else Seasons(own, (day,), horizon, 4, waves)
        group, swing = LeastSquares("x", layout, 2, horizon, Knobs(0.9999, heads=("plain",))), Swing(2, day)
        out, total = np.zeros((1, horizon, 2)), 0.0
        for number, row in enumerate(values[:-horizon]):
            past.push(row)
            if follows:
                swing.look(past)
            group.observe(past)
            group.forecast(past, out)
            if CHANGE + DAY <= number < CHANGE + 4 * DAY:
                total += float(np.abs(out[0] - values[number + 1 : number + 1 + horizon]).mean())
        return total

    for shared in (False, True):
        assert error(True, shared) < 0.93 * error(False, shared)
