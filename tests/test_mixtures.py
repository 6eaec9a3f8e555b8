"""Mixtures by losses, several mixtures at once, and who has the last word."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.aggregate import MLPoly
from natsr.mixtures import HANDICAP, SHARP, Layer, Layers, Local, Power, Total

Array = npt.NDArray[np.float64]


def test_layers_follow_a_change_that_one_slow_mixture_takes_long_to_see() -> None:
    """The best expert becomes the worst: what matters is the error soon after, and that nothing is lost before."""
    layers = (Layer(0.99, "none"), Layer(0.9999, "none"))
    found = {}
    for name, kinds in {"slow": layers[1:], "quick": layers[:1], "both": layers}.items():
        rule, generator, errors = Layers(3, (2, 2), kinds), np.random.default_rng(8), []
        for row in range(1400):
            sizes = np.array([0.2, 0.25, 1.0] if row < 1000 else [1.0, 0.25, 0.2])
            truth = generator.standard_normal(2)
            forecasts = truth + sizes[:, None, None] * generator.standard_normal((3, 2, 2))
            mixed = rule.mixed(forecasts)
            errors.append(float(np.abs(mixed[0] - truth).mean()))
            rule.update(forecasts, mixed, truth)
        found[name] = (np.mean(errors[200:1000]), np.mean(errors[1000:]))
    assert found["both"][1] < 0.9 * found["slow"][1]
    assert found["both"][0] < 1.02 * min(found["slow"][0], found["quick"][0])


def test_a_power_of_the_losses_sees_who_is_good_after_a_change_before_regrets_do() -> None:
    """Sixty rows in which all are bad, and those worst who are best from there on; they err alike."""
    good, bad = np.repeat([0.2, 0.35], 5), np.repeat([2.0, 4.0], 5)
    found = {}
    for rule in (MLPoly(10, (2, 2), 0.99), Power(10, (2, 2), 0.98, 20.0)):
        generator, errors = np.random.default_rng(8), []
        for row in range(1300):
            sizes = good if row < 1000 else bad if row < 1060 else good[::-1]
            truth = generator.standard_normal(2)
            forecasts = truth + sizes[:, None, None] * generator.standard_normal((1, 2, 2))
            mixture = (rule.weights * forecasts).sum(0)
            errors.append(float(np.abs(mixture - truth).mean()))
            rule.update(forecasts, mixture, truth)
        found[type(rule)] = (np.mean(errors[200:1000]), np.mean(errors[1120:]))
    assert found[Power][1] < 0.8 * found[MLPoly][1]
    assert found[Power][0] < 1.01 * found[MLPoly][0]


def test_a_power_of_the_losses_outlives_outliers_gaps_and_experts_that_are_exact() -> None:
    rule, generator = Power(3, (2, 2), 0.98, 20.0), np.random.default_rng(3)
    sizes = np.array([0.2, 0.3, 1.0])[:, None, None]

    def play(truth: Array) -> None:
        forecasts = np.nan_to_num(truth) * (np.abs(np.nan_to_num(truth)) < 9) + sizes * generator.standard_normal(
            (3, 2, 2)
        )
        rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)

    for _ in range(200):
        play(generator.standard_normal(2))
    before = rule.weights.copy()
    play(np.array([np.nan, np.nan]))
    assert (rule.weights == before).all()
    play(np.array([1e6, -1e6]))
    assert before[0, 0, 0] > 0.9 and abs(rule.weights - before).max() < 0.1
    exact = Power(2, (1, 1), 0.98, 20.0)
    for _ in range(50):
        exact.update(np.array([0.0, 1.0])[:, None, None], np.array([[0.0]]), np.array([0.0]))
    assert exact.weights[:, 0, 0].tolist() == pytest.approx([1, 0])


def test_all_that_was_lost_counts_where_a_stream_is_a_matter_of_few_rows() -> None:
    """One expert is better in 49 rows of 50, and the other right in the fiftieth, which is thirty times as large."""
    found = {}
    for rule in (MLPoly(2, (2, 2), 0.999), Power(2, (2, 2), 0.999, 20.0), Total(2, (2, 2), 0.999, 20.0)):
        generator, errors = np.random.default_rng(4), []
        for row in range(1500):
            large = row % 50 == 49
            truth, noise = generator.standard_normal(2) + 30.0 * large, generator.standard_normal((2, 2, 2))
            forecasts = np.stack([(not large) * truth + 0.2 * noise[0], truth + 0.5 * noise[1]])
            mixture = (rule.weights * forecasts).sum(0)
            errors.append(float(np.abs(mixture - truth).mean()))
            rule.update(forecasts, mixture, truth)
        found[type(rule)] = float(np.mean(errors[500:]))
    assert found[Total] < 0.7 * found[MLPoly] and found[Total] < 0.6 * found[Power]


def test_all_that_was_lost_is_told_by_column_and_outlives_outliers_and_gaps() -> None:
    rule, generator = Total(2, (3, 2), 0.999, 20.0), np.random.default_rng(5)

    def play(truth: Array) -> None:
        errors = np.array([[0.2, 1.0], [1.0, 0.2]])[:, None] * generator.standard_normal((2, 3, 2))
        forecasts = np.where(np.abs(np.nan_to_num(truth)) < 9, np.nan_to_num(truth), 0.0) + errors
        rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)

    for _ in range(200):
        play(generator.standard_normal(2))
    before = rule.weights.copy()
    assert before.shape == (2, 1, 2) and before[0, 0, 0] > 0.99 < before[1, 0, 1]
    play(np.array([np.nan, np.nan]))
    np.testing.assert_allclose(rule.weights, before, atol=1e-9)
    play(np.array([1e30, -1e30]))
    for _ in range(50):
        play(generator.standard_normal(2))
    assert np.isfinite(rule.loss).all() and np.abs(rule.weights - before).max() < 0.01


def test_the_weights_of_layers_give_their_answer() -> None:
    fast, total = Layer(0.98, "all", power=20.0), Layer(0.999, "steps", power=20.0)
    kinds = (Layer(0.99, "near"), Layer(0.999, "channels"), total, fast)
    rule, generator = Layers(4, (3, 2), kinds), np.random.default_rng(9)
    for _ in range(30):
        forecasts = generator.standard_normal((4, 3, 2))
        mixed = rule.mixed(forecasts)
        np.testing.assert_allclose((rule.weights * forecasts).sum(0), mixed[0], rtol=1e-9, atol=1e-12)
        rule.update(forecasts, mixed, generator.standard_normal(2))


def test_losses_of_each_step_find_who_is_good_there() -> None:
    """One expert is good in the first half of the steps, the other in the second."""
    steps, found = 12, {}
    good = (np.arange(steps) < steps // 2)[:, None]
    sizes = np.stack([np.where(good, 0.2, 1.0), np.where(good, 1.0, 0.2)])
    for rule in (Local(2, (steps, 1), 0.995, 20.0), Total(2, (steps, 1), 0.995, 20.0), MLPoly(2, (steps, 1), 0.999)):
        generator, errors = np.random.default_rng(2), []
        for _ in range(500):
            truth = generator.standard_normal(1)
            forecasts = truth + sizes * generator.standard_normal((2, steps, 1))
            mixture = (rule.weights * forecasts).sum(0)
            errors.append(float(np.abs(mixture - truth).mean()))
            rule.update(forecasts, mixture, truth)
        found[type(rule)] = np.mean(errors[20:])
    assert found[Local] < 0.6 * found[Total] and found[Local] < 1.1 * found[MLPoly]


def test_losses_of_each_step_outlive_outliers_and_gaps() -> None:
    rule, generator = Local(2, (3, 2), 0.995, 20.0, np.float32), np.random.default_rng(5)

    def play(truth: Array) -> None:
        errors = np.array([[0.2, 1.0], [1.0, 0.2]])[:, None] * generator.standard_normal((2, 3, 2))
        forecasts = np.where(np.abs(np.nan_to_num(truth)) < 9, np.nan_to_num(truth), 0.0) + errors
        rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)

    for _ in range(200):
        play(generator.standard_normal(2))
    before = rule.weights.copy()
    assert (before[0, :, 0] > 0.99).all() and (before[1, :, 1] > 0.99).all()
    play(np.array([np.nan, np.nan]))
    np.testing.assert_allclose(rule.weights, before, atol=1e-6)
    play(np.array([1e30, -1e30]))
    for _ in range(50):
        play(generator.standard_normal(2))
    assert np.isfinite(rule.lost).all() and np.abs(rule.weights - before).max() < 0.01


#: By regret, by losses of late and, in the middle, by all that was lost.
ALL = (Layer(0.999, "near"), Layer(0.999, "steps", power=30.0), Layer(0.98, "all", power=20.0))


def few_rows(rows: int, every: int) -> tuple[Array, Array]:
    """Forecasts `(rows, 2, 2, 2)` and what came: one expert is the better in most rows, the other where it matters."""
    generator = np.random.default_rng(4)
    large = np.arange(rows) % every == every - 1
    truth = generator.standard_normal((rows, 2)) + 30.0 * large[:, None]
    noise = generator.standard_normal((rows, 2, 2, 2))
    good = np.stack([np.where(large[:, None], 0.0, truth), truth], 1)[:, :, None]
    return good + np.array([0.2, 0.5])[:, None, None] * noise, truth


def played(rule: Layers, forecasts: Array, truth: Array) -> Array:
    """The mean absolute errors of the answer and what it is made of, `(rows, kept)`."""
    errors = []
    for told, came in zip(forecasts, truth, strict=True):
        mixed = rule.mixed(told)
        errors.append(np.abs(mixed - came).mean((1, 2)))
        rule.update(told, mixed, came)
    return np.stack(errors)


def test_the_last_word_is_of_all_that_was_lost_where_few_rows_are_the_matter() -> None:
    rule = Layers(2, (2, 2), ALL)
    answer, _, total, _, mixture = played(rule, *few_rows(1500, 50))[500:].mean(0)
    assert total < 0.8 * mixture and answer < 1.05 * total


def test_the_last_word_is_of_the_mixture_of_all_where_neither_is_clearly_better() -> None:
    generator = np.random.default_rng(6)
    truth = generator.standard_normal((1500, 2))
    forecasts = truth[:, None, None] + generator.standard_normal((1500, 2, 2, 2))  # the mean of both is better
    rule = Layers(2, (2, 2), ALL)
    answer, *_, mixture = played(rule, forecasts, truth)[500:].mean(0)
    assert answer < 1.005 * mixture and rule.last is not None and (rule.last.weights[1] > 0.7).all()


def test_the_first_word_is_the_mixture_of_alls_and_without_all_that_was_lost_there_is_no_last_one() -> None:
    rule, plain = Layers(2, (2, 2), ALL), Layers(2, (2, 2), (ALL[0], ALL[2]))
    told = np.arange(8.0).reshape(2, 2, 2)
    mixed = rule.mixed(told)
    assert rule.kept == len(mixed) == 5 and (mixed[0] == mixed[-1]).all()
    silent = Layers(2, (2, 2), ALL, word=False)
    for other, kept in ((plain, 3), (silent, 4)):
        assert other.last is None and other.kept == len(other.mixed(told)) == kept and "last_loss" not in other.arrays()


def test_a_handicap_is_what_the_first_must_be_better_by() -> None:
    rule = Total(2, (1, 1), 1.0, SHARP, handicap=HANDICAP)
    for _ in range(100):
        rule.update(np.array([1.0, HANDICAP])[:, None, None], np.array([[1.0]]), np.array([0.0]))
    assert rule.weights[:, 0, 0].tolist() == pytest.approx([0.5, 0.5])


def test_whoever_leans_on_the_last_mixture_does_so_whoever_has_the_last_word() -> None:
    forecasts, truth = few_rows(600, 50)
    rule = Layers(2, (2, 2), ALL)
    played(rule, forecasts, truth)
    assert rule.last is not None and (rule.last.weights[0] > 0.99).all()
    before, told = rule.mixed(forecasts[0]), forecasts[0]
    rule.lean(0.5)
    mixed = rule.mixed(told)
    np.testing.assert_allclose((rule.weights * told).sum(0), mixed[0], rtol=1e-9, atol=1e-12)
    away = np.abs(before[0] - before[3])
    assert (np.abs(mixed[0] - before[3]) < 0.8 * away).all()
    np.testing.assert_allclose(rule.weights.sum(0), 1.0)
