"""Intervals: they hold, they never cross, they use each error when its row is known and not before."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from natsr.calibrate import LATER, PROBABILITIES, Calibrator
from natsr.types import OptionError, ShapeError, State, StateError, Task

Array = npt.NDArray[np.float64]
LOW, HIGH = PROBABILITIES.index(0.05), PROBABILITIES.index(0.95)


def covered(rows: Array, horizon: int = 1) -> npt.NDArray[np.bool_]:
    """Whether the 90 % interval around a forecast of zero held, `(N, H, C)`, for the forecasts whose rows are there."""
    calibrator = Calibrator(Task(window=1, horizon=horizon, channels=rows.shape[1]))
    zero = np.zeros((horizon, rows.shape[1]))
    held = []
    for origin in range(len(rows) - horizon):
        calibrator.reveal(rows[origin])
        quantiles = calibrator.quantiles(zero)
        assert (np.diff(quantiles, axis=0) >= 0).all()
        target = rows[origin + 1 : origin + 1 + horizon]
        held.append((quantiles[LOW] <= target) & (target <= quantiles[HIGH]))
        calibrator.push(zero)
    return np.array(held)


@pytest.mark.parametrize("horizon", [1, 3, 24])
def test_tails_are_never_flat(horizon: int) -> None:
    """With few errors an outer quantile may come past those beyond it; these are not all the same then."""
    wanted = (0.0001, 0.005, 0.01, 0.025, 0.05, 0.5, 0.95, 0.975, 0.99, 0.995, 0.9999)
    for seed in range(3):
        generator = np.random.default_rng(seed)
        calibrator, zero = Calibrator(Task(window=1, horizon=horizon, channels=2)), np.zeros((horizon, 2))
        for row in generator.standard_normal((250, 2)):
            calibrator.reveal(row)
            assert (np.diff(calibrator.quantiles(zero, probabilities=wanted), axis=0) > 1e-9).all()
            calibrator.push(zero)


@pytest.mark.parametrize("horizon", [1, 12])
def test_intervals_hold_whatever_the_errors_look_like(horizon: int) -> None:
    generator = np.random.default_rng(0)
    count = 4000
    rows = np.stack(
        [
            generator.normal(size=count),
            generator.standard_t(2, size=count),  # heavy tails
            generator.exponential(size=count),  # all on one side of the forecast
            generator.normal(size=count) * np.repeat([1.0, 30.0, 0.1, 5.0], count // 4),  # sudden changes of size
            3 + generator.normal(size=count),  # a forecast that is always off
        ],
        axis=1,
    )
    share = covered(rows, horizon)[500:].mean((0, 1))
    assert (np.abs(share - 0.9) < 0.03).all()


def test_no_stretch_is_left_alone_when_the_size_changes() -> None:
    generator = np.random.default_rng(1)
    rows = generator.normal(size=(6000, 8)) * np.repeat(2.0 ** generator.integers(-3, 4, size=12), 500)[:, None]
    held = covered(rows).mean((1, 2))
    stretches = np.convolve(held, np.ones(500) / 500, mode="valid")
    assert stretches.min() > 0.82
    assert abs(held.mean() - 0.9) < 0.015


def test_every_quantile_is_where_it_says() -> None:
    generator = np.random.default_rng(2)
    calibrator = Calibrator(Task(window=1, horizon=1, channels=1))
    below = np.zeros(len(PROBABILITIES))
    for step, value in enumerate(generator.gumbel(size=6000)):
        row = np.array([value])
        if step > 1000:
            below += row <= calibrator.quantiles(np.zeros((1, 1)))[:, 0, 0]
        calibrator.reveal(row)
        calibrator.push(np.zeros((1, 1)))
    assert below / 4999 == pytest.approx(PROBABILITIES, abs=0.015)


def test_an_error_counts_as_soon_as_its_row_is_known_and_for_its_own_step() -> None:
    task = Task(window=1, horizon=3, channels=2)
    calibrator = Calibrator(task)
    generator = np.random.default_rng(3)
    forecasts: dict[int, Array] = {}
    expected: dict[tuple[int, int], list[float]] = {(step, channel): [] for step in range(3) for channel in range(2)}
    for row_number in range(12):
        row = generator.normal(size=2)
        calibrator.reveal(row)
        for step in range(3):
            made = forecasts.get(row_number - 1 - step)
            if made is not None:
                for channel in range(2):
                    expected[step, channel].append(abs(row[channel] - made[step, channel]))
        size = calibrator.state_dict()["size"]
        assert isinstance(size, Tensor)
        for (step, channel), errors in expected.items():
            if errors:  # while there are few, the running size is their plain mean
                assert float(size[step, channel]) == pytest.approx(np.mean(errors), rel=1e-12)
        if row_number != 4:  # a row without a forecast leaves a hole, and nothing slips into it
            forecasts[row_number] = generator.normal(size=(3, 2))
            calibrator.push(forecasts[row_number])


def test_missing_values_teach_nothing() -> None:
    both, alone = (Calibrator(Task(window=1, horizon=2, channels=channels)) for channels in (2, 1))
    generator = np.random.default_rng(4)
    for _ in range(50):
        row = generator.normal(size=1)
        both.reveal(np.array([row[0], math.nan]))
        both.push(np.zeros((2, 2)))
        alone.reveal(row)
        alone.push(np.zeros((2, 1)))
    # A channel without values takes no part in what channels share.
    assert (both.quantiles(np.zeros((2, 2)))[:, :, :1] == alone.quantiles(np.zeros((2, 1)))).all()
    blind, fresh = both.state_dict(), Calibrator(Task(window=1, horizon=2, channels=2)).state_dict()
    for name in ("count", "size", "fast", "power", "knots", "factor"):
        found, before = blind[name], fresh[name]
        assert isinstance(found, Tensor) and isinstance(before, Tensor)
        assert torch.equal(found[..., 1], before[..., 1]) and not torch.equal(found[..., 0], before[..., 0]), name


def test_misses_of_one_channel_widen_the_others_too() -> None:
    task = Task(window=1, horizon=2, channels=3)
    calibrators = [Calibrator(task) for _ in range(2)]
    generator = np.random.default_rng(8)
    for step in range(1300):
        row = generator.normal(size=3)
        for calibrator, size in zip(calibrators, (1.0, 6.0), strict=True):
            calibrator.reveal(row * [size if step >= 1290 else 1.0, size if step >= 1290 else 1.0, 1.0])
            calibrator.push(np.zeros((2, 3)))
    calm, rough = (np.ptp(each.quantiles(np.zeros((2, 3)))[[LOW, HIGH]], axis=0).mean(0) for each in calibrators)
    assert (rough[:2] > 1.5 * calm[:2]).all()
    assert 1.02 * calm[2] < rough[2] < 1.5 * calm[2]


def test_after_misses_the_ends_stay_wider_for_a_while_and_the_median_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task, zero = Task(window=1, horizon=4, channels=2), np.zeros((4, 2))
    generator = np.random.default_rng(9)
    calibrator = Calibrator(task)

    def wider(rows: Array) -> Array:
        """How much wider the 90 % interval is for the debt, after these rows."""
        for row in rows:
            calibrator.reveal(row)
            calibrator.push(zero)
        owing = calibrator.quantiles(zero)
        with monkeypatch.context() as without:
            without.setattr("natsr.calibrate.INTEREST", 0.0)
            plain = calibrator.quantiles(zero)
        middle = PROBABILITIES.index(0.5)
        assert (owing[middle] == plain[middle]).all()
        ratio: Array = np.ptp(owing[[LOW, HIGH]], axis=0) / np.ptp(plain[[LOW, HIGH]], axis=0)
        return ratio

    calm = wider(generator.normal(size=(1000, 2)))
    burst = wider(8 * generator.normal(size=(25, 2)))
    later = wider(8 * generator.normal(size=(1000, 2)))
    assert (np.abs(calm - 1) < 0.05).all() and (burst > 1.04).all() and (np.abs(later - 1) < 0.05).all()
    for row in range(200):  # nothing ever holds
        burst = wider(np.full((1, 2), 10.0 ** (row // 2) * (-1) ** row))
    assert (burst < 1.83).all()  # exp(0.6)


def test_trouble_in_other_channels_leaves_the_interval_of_a_forecast_that_is_always_off_narrow() -> None:
    """Both its ends lie on one side of the forecast: widened around the forecast they would move, and hold too much."""
    generator = np.random.default_rng(11)
    size = np.where(np.arange(2500) % 300 > 250, 6.0, 1.0)
    rows = np.stack([3 + 0.1 * generator.normal(size=2500), *(size * generator.normal(size=(3, 2500)))], axis=1)
    held = covered(rows, horizon=4)[500:, :, 0].mean(1)
    stretches = np.convolve(held, np.ones(500) / 500, mode="valid")
    assert stretches.min() > 0.86 and held.mean() < 0.94


def test_a_state_from_before_there_was_a_debt_goes_on_without() -> None:
    task = Task(window=1, horizon=3, channels=2)
    generator = np.random.default_rng(10)
    older, newer = Calibrator(task), Calibrator(task)
    for _ in range(40):
        older.reveal(generator.normal(size=2))
        older.push(np.zeros((3, 2)))
    state = older.state_dict()
    debt = state.pop("debt")
    assert isinstance(debt, Tensor) and debt.item() != 0
    newer.load_state_dict(state)
    assert same(newer.state_dict(), {**state, "debt": torch.zeros(1, dtype=torch.float64)})


def test_before_the_first_error_the_variance_of_the_forecaster_speaks() -> None:
    task = Task(window=1, horizon=2, channels=1)
    calibrator = Calibrator(task)
    mean = np.array([[1.0], [2.0]])
    quantiles = calibrator.quantiles(mean, np.array([[4.0], [0.25]]))
    # 2.1318 is the 95 % quantile of Student's t with four degrees of freedom, the square root of 2 its deviation.
    expected = np.array([2.0, 0.5]) * 2.13184679 / math.sqrt(2)
    assert quantiles[HIGH, :, 0] - mean[:, 0] == pytest.approx(expected, rel=1e-6)
    assert quantiles[PROBABILITIES.index(0.5), :, 0] == pytest.approx(mean[:, 0])


def test_steps_without_errors_borrow_the_size_of_the_step_before() -> None:
    calibrator = Calibrator(Task(window=1, horizon=3, channels=1))
    calibrator.push(np.zeros((3, 1)))
    calibrator.reveal(np.array([100.0]))
    width = np.ptp(calibrator.quantiles(np.zeros((3, 1)))[[LOW, HIGH], :, 0], axis=0)
    # Student-t with a mean absolute error of 100, growing as that of a random walk does.
    assert width[1:] == pytest.approx(100 * 2 * 2.13184679 * np.sqrt([2, 3]), rel=0.07)


def test_one_outlier_does_not_blow_the_intervals_up() -> None:
    widths = []
    for odd in (0.0, 1e6):
        generator = np.random.default_rng(5)
        calibrator = Calibrator(Task(window=1, horizon=1, channels=1))
        for step in range(800):
            calibrator.reveal(generator.normal(size=1) + odd * (step == 600))
            calibrator.push(np.zeros((1, 1)))
            widths.append(float(np.ptp(calibrator.quantiles(np.zeros((1, 1)))[[LOW, HIGH]])))
    ratio = np.array(widths[800:]) / np.array(widths[:800])
    assert (ratio[:600] == 1).all() and ratio.max() < 1.5 and ratio[-1] < 1.1


def test_a_channel_without_error_keeps_intervals_of_no_width() -> None:
    calibrator = Calibrator(Task(window=1, horizon=1, channels=1))
    for _ in range(3000):
        calibrator.reveal(np.array([7.0]))
        calibrator.push(np.array([[7.0]]))
    quantiles = calibrator.quantiles(np.array([[7.0]]))
    assert np.isfinite(quantiles).all() and np.ptp(quantiles) < 1e-6


def test_quantiles_change_nothing() -> None:
    calibrator = Calibrator(Task(window=1, horizon=2, channels=2))
    generator = np.random.default_rng(6)
    for _ in range(5):
        calibrator.reveal(generator.normal(size=2))
        calibrator.push(generator.normal(size=(2, 2)))
    before = calibrator.state_dict()
    mean = generator.normal(size=(2, 2))
    kept = mean.copy()
    first = calibrator.quantiles(mean)
    first += 1  # what comes out is the caller's
    assert (mean == kept).all() and same(before, calibrator.state_dict())


def same(one: State, other: State) -> bool:
    for name, value in one.items():
        match = other[name]
        if isinstance(value, Tensor):
            if not isinstance(match, Tensor) or not torch.equal(value.nan_to_num(9e9), match.nan_to_num(9e9)):
                return False
        elif value != match:
            return False
    return one.keys() == other.keys()


def test_a_state_goes_on_bit_for_bit() -> None:
    task = Task(window=1, horizon=3, channels=2)
    generator = np.random.default_rng(7)
    rows, means = generator.normal(size=(40, 2)), generator.normal(size=(40, 3, 2))
    whole, after = Calibrator(task), Calibrator(task)
    for place in range(20):
        whole.reveal(rows[place])
        whole.push(means[place])
    state = whole.state_dict()
    after.load_state_dict(state)
    for place in range(20, 40):
        for calibrator in (whole, after):
            calibrator.reveal(rows[place])
            calibrator.push(means[place])
        assert (whole.quantiles(means[place]) == after.quantiles(means[place])).all()
    assert same(whole.state_dict(), after.state_dict()) and not same(state, after.state_dict())


def test_a_state_of_something_else_is_refused() -> None:
    calibrator = Calibrator(Task(window=1, horizon=3, channels=2))
    with pytest.raises(StateError, match="rows is None"):
        calibrator.load_state_dict({})
    with pytest.raises(StateError, match=r"count of the calibrator is \(2, 2\), expected an array of shape \(3, 2\)"):
        calibrator.load_state_dict(Calibrator(Task(window=1, horizon=2, channels=2)).state_dict())


def test_a_state_that_does_not_fit_leaves_everything_as_it_was() -> None:
    calibrator, moved = (Calibrator(Task(window=1, horizon=1, channels=1)) for _ in range(2))
    before = calibrator.state_dict()
    for value in (0.0, 1.0):
        moved.reveal(np.array([value]))
        moved.push(np.zeros((1, 1)))
    with pytest.raises(StateError, match="unit of the calibrator is None"):
        calibrator.load_state_dict({**moved.state_dict(), "unit": None})
    assert same(before, calibrator.state_dict())


def test_an_infinite_value_teaches_nothing() -> None:
    calibrators = [Calibrator(Task(window=1, horizon=1, channels=1)) for _ in range(2)]
    for calibrator, odd in zip(calibrators, (math.nan, math.inf), strict=True):
        for value in (1.0, 2.0, odd, 1.0):
            calibrator.reveal(np.array([value]))
            calibrator.push(np.zeros((1, 1)))
    assert same(calibrators[0].state_dict(), calibrators[1].state_dict())


def test_wrong_arguments_are_refused() -> None:
    task = Task(window=1, horizon=3, channels=2)
    with pytest.raises(OptionError, match="expected rising numbers"):
        Calibrator(task, (0.5, 0.1))
    with pytest.raises(OptionError, match="memory is 0, expected at least 1"):
        Calibrator(task, memory=0)
    with pytest.raises(ShapeError, match=r"mean has shape \(2, 3\), expected \(3, 2\)"):
        Calibrator(task).quantiles(np.zeros((2, 3)))
    with pytest.raises(ShapeError, match=r"row has shape \(3,\), expected \(2,\)"):
        Calibrator(task).reveal(np.zeros(3))


def loss(quantiles: Array, target: Array) -> float:
    """Mean pinball loss of quantiles `(19, H, C)` at 0.05, 0.10, … 0.95."""
    levels = np.array(PROBABILITIES[1:-1])[:, None, None]
    off = target - quantiles
    return float(np.maximum(levels * off, (levels - 1) * off).mean())


def beside_the_last_errors(rows: Array, means: Array, begin: int) -> tuple[float, float]:
    """The loss of the calibrator, and of the quantiles of the last 500 errors, refreshed every 24 rows, from `begin`.

    Args:
        rows: `(T,)`.
        means: `(T, H)`.
        begin: The first row whose forecast counts.
    """
    horizon = means.shape[1]
    calibrator = Calibrator(Task(window=1, horizon=horizon, channels=1))
    plain, found, other = np.zeros((19, horizon, 1)), 0.0, 0.0
    for origin in range(len(rows) - horizon):
        calibrator.reveal(rows[origin : origin + 1])
        mean = means[origin, :, None]
        quantiles = calibrator.quantiles(mean)
        assert (np.diff(quantiles, axis=0) >= 0).all()
        calibrator.push(mean)
        if origin < begin:
            continue
        if (origin - begin) % 24 == 0:
            for step in range(horizon):
                known = np.arange(max(origin - 500 - step, 0), origin - step)
                errors = rows[known + step + 1] - means[known, step]
                plain[:, step, 0] = np.quantile(errors, PROBABILITIES[1:-1])
        target = rows[origin + 1 : origin + 1 + horizon, None]
        found, other = found + loss(quantiles[1:-1], target), other + loss(mean + plain, target)
    return found, other


def levels(generator: np.random.Generator, count: int) -> Array:
    """A whole number that is another one now and then."""
    rows, level = np.zeros(count), 0.0
    for row in range(count):
        if generator.random() < 1 / 60:
            level = round(10 * generator.normal())
        rows[row] = level
    return rows


def on_and_off(generator: np.random.Generator, count: int) -> Array:
    return np.asarray(np.cumsum(generator.random(count) < 1 / 40) % 2, dtype=np.float64)


def sparse_walk(generator: np.random.Generator, count: int) -> Array:
    return np.asarray(np.cumsum(np.where(generator.random(count) < 0.02, generator.normal(size=count), 0.0)))


@pytest.mark.parametrize("stream", [levels, on_and_off, sparse_walk])
def test_where_most_errors_are_zero_the_last_ones_are_believed(
    stream: Callable[[np.random.Generator, int], Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = stream(np.random.default_rng(12), 2500)
    last = np.repeat(rows[:, None], 24, axis=1)
    found, other = beside_the_last_errors(rows, last, 300)
    assert found < 1.015 * other
    monkeypatch.setattr("natsr.empirical.Trust.learn", lambda *_: None)
    alone, _ = beside_the_last_errors(rows, last, 300)
    assert alone > 1.04 * other


def test_where_the_size_of_errors_changes_the_last_ones_are_not_believed() -> None:
    generator = np.random.default_rng(13)
    rows = generator.normal(size=4000) * np.repeat(2.0 ** generator.integers(-3, 4, size=40), 100)
    found, other = beside_the_last_errors(rows, np.zeros((4000, 1)), 1000)
    assert found < 0.97 * other


def trained(task: Task, count: int) -> tuple[Calibrator, Array]:
    """A calibrator of last values that believes its second opinion, at least in part, and the rows it has seen."""
    generator = np.random.default_rng(14)
    rows = np.stack([levels(generator, count) for _ in range(task.channels)], axis=1)
    rows[:, -1] += 0.3 * generator.normal(size=count)
    rows[generator.random(size=rows.shape) < 0.02] = math.nan
    calibrator = Calibrator(task)
    feed([calibrator], rows)
    return calibrator, rows


def feed(calibrators: list[Calibrator], rows: Array) -> None:
    for row in rows:
        for calibrator in calibrators:
            calibrator.reveal(row)
            calibrator.push(np.tile(np.nan_to_num(row), (calibrator.task.horizon, 1)))


def share(calibrator: Calibrator) -> Tensor:
    found = calibrator.state_dict()["share"]
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("stop", [803, 804, 805, 806, 811])  # whatever is due next
def test_a_state_with_a_second_opinion_goes_on_bit_for_bit(stop: int) -> None:
    task, zero = Task(window=1, horizon=7, channels=3), np.zeros((7, 3))
    whole, rows = trained(task, stop)
    assert (share(whole) > 0).any()
    after = Calibrator(task)
    after.load_state_dict(whole.state_dict())
    for row in rows[:60]:
        feed([whole, after], row[None])
        assert (whole.quantiles(zero) == after.quantiles(zero)).all()
    assert same(whole.state_dict(), after.state_dict())


def test_a_state_from_before_there_was_a_second_opinion_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    task, zero = Task(window=1, horizon=7, channels=3), np.zeros((7, 3))
    with monkeypatch.context() as before:
        before.setattr("natsr.empirical.Trust.learn", lambda *_: None)
        older, rows = trained(task, 700)
    newer = Calibrator(task)
    kept = older.state_dict()
    newer.load_state_dict({name: value for name, value in kept.items() if name not in LATER or name == "debt"})
    assert (newer.quantiles(zero) == older.quantiles(zero)).all()
    feed([newer], rows[:40])  # too few errors to say anything
    assert not share(newer).any()
    feed([newer], rows)
    assert share(newer).any()


@pytest.mark.parametrize("stop", [300, 503, 700])  # before the shorter ring was full, and after
def test_a_state_from_before_that_kept_fewer_errors_goes_on_with_those(
    stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, zero = Task(window=1, horizon=7, channels=3), np.zeros((7, 3))
    with monkeypatch.context() as before:
        before.setattr("natsr.empirical.ROWS", 500)
        older, rows = trained(task, stop)
    whole, newer = trained(task, stop)[0], Calibrator(task)
    newer.load_state_dict(older.state_dict())
    assert (newer.quantiles(zero) == older.quantiles(zero)).all()
    feed([whole, newer], rows[:290])
    errors = [np.sort(calibrator._empirical.errors)[..., : min(500, stop) + 290] for calibrator in (whole, newer)]
    if stop < 500:
        np.testing.assert_array_equal(errors[0], errors[1])
    feed([whole, newer], rows[:600])
    np.testing.assert_array_equal(np.sort(whole._empirical.errors), np.sort(newer._empirical.errors))


@pytest.mark.parametrize("seed", range(12))
def test_quantiles_never_cross_on_any_stream(seed: int) -> None:
    generator = np.random.default_rng([15, seed])
    horizon, channels = int(generator.integers(1, 14)), int(generator.integers(1, 5))
    calibrator = Calibrator(Task(window=1, horizon=horizon, channels=channels, season=int(generator.integers(1, 25))))
    size = 10.0 ** np.cumsum(generator.normal(size=channels) * 0.1)
    row = np.zeros(channels)
    levels = [0.005, 0.02, *PROBABILITIES[1:], 0.999]
    for step in range(900):
        jump = generator.random(size=channels) < (0.02, 0.3, 1.0)[seed % 3]
        row = np.where(jump, size * generator.standard_t(1.5, size=channels), row)
        size = size * 10.0 ** (0.05 * generator.normal(size=channels))
        shown = np.where(generator.random(size=channels) < 0.1, math.nan, row)
        calibrator.reveal(shown)
        mean = row + size * generator.normal(size=(horizon, channels)) * (seed % 2)
        for quantiles in (calibrator.quantiles(mean), calibrator.quantiles(mean, probabilities=levels)):
            assert np.isfinite(quantiles).all() and (np.diff(quantiles, axis=0) >= 0).all(), step
        if generator.random() < 0.95:
            calibrator.push(mean)


def test_a_flat_column_is_covered_where_its_second_opinion_is_all_that_counts() -> None:
    """Nothing but zeros: a share of one leaves no rounding behind."""
    generator = np.random.default_rng(16)
    calibrator = Calibrator(Task(window=1, horizon=2, channels=1))
    held = []
    for step in range(1500):
        row = np.array([0.7 if step % 60 else generator.normal() + 5])
        calibrator.reveal(row)
        mean = np.full((2, 1), 0.7)
        if step > 1000:
            quantiles = calibrator.quantiles(mean)
            held.append((quantiles[LOW] <= 0.7) & (quantiles[HIGH] >= 0.7))
        calibrator.push(mean)
    assert np.all(held)
