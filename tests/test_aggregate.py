"""Mixing rules: they find the best expert, and no sequence of losses makes them regret more than they promise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from natsr.aggregate import RULES, Aggregator, Layer, Layers, MLPoly, Pooling, Power, Total

Array = npt.NDArray[np.float64]
EXPERTS, ROWS = 8, 1500
DELAY, LONG = 24, 6000  # rows until a loss comes, and of a game in which they come late
every_rule = pytest.mark.parametrize("name", RULES)


def losses(kind: str, weights: Array, row: int, generator: np.random.Generator) -> Array:
    """Losses of the experts in [0, 1], chosen against the weights."""
    # Of experts that weigh the same the first counts as the better one: even weights must not lose alike.
    if kind == "against the leader":
        return np.asarray(np.arange(EXPERTS) == weights.argmax(), dtype=np.float64)
    if kind == "against the better half":
        return np.asarray((-weights).argsort(kind="stable").argsort() < EXPERTS // 2, dtype=np.float64)
    if kind == "turning":
        return ((np.arange(EXPERTS) + row // 100) % EXPERTS) / (EXPERTS - 1)
    if kind == "one good":
        return np.where(np.arange(EXPERTS) == 3, 0.4, generator.random(EXPERTS))
    return generator.random(EXPERTS)


KINDS = ("against the leader", "against the better half", "turning", "one good", "chance")


def played(rules: Sequence[Aggregator], kind: str, rows: int = ROWS, delay: int = 1) -> tuple[Array, Array]:
    """Cumulated regrets and their squares after a game of rules that take turns and learn a row `delay` rows later."""
    generator = np.random.default_rng(0)
    regret, square = np.zeros(EXPERTS), np.zeros(EXPERTS)
    late: list[Array] = []
    for row in range(rows):
        if row >= delay:
            rules[(row - delay) % len(rules)].learn(late[row - delay][:, None])
        weights = rules[row % len(rules)].weights[:, 0]
        loss = losses(kind, weights, row, generator)
        gained = weights @ loss - loss
        regret, square = regret + gained, square + gained**2
        late.append(gained)
    return regret, square


@pytest.mark.parametrize("kind", ["against the leader", "against the better half"])
def test_losses_against_the_weights_hurt(kind: str) -> None:
    """Even weights must not lose alike: nothing would ever be regretted."""
    regret, _ = played([MLPoly(EXPERTS, (1,))], kind)
    assert regret.max() > 5


@pytest.mark.parametrize("kind", KINDS)
def test_ml_poly_keeps_its_bound_against_any_losses(kind: str) -> None:
    regret, square = played([MLPoly(EXPERTS, (1,))], kind)
    assert (regret <= np.sqrt(EXPERTS * (1 + math.log(1 + ROWS)) * (1 + square))).all()


@pytest.mark.parametrize("copies", [1, DELAY])
@pytest.mark.parametrize("kind", KINDS)
def test_ml_poly_keeps_the_bound_of_copies_where_losses_come_late(kind: str, copies: int) -> None:
    """Labels of `h` rows later.

    With `h` copies that take turns each has learned its last row before its next one comes, so the bound holds for each
    over its `ceil(T / h)` rows: `R_c <= sqrt(a (1 + S_c))` with `a = N (1 + ln(1 + ceil(T / h)))`. Regrets add up, and
    by Cauchy and Schwarz `sum_c sqrt(a (1 + S_c)) <= sqrt(h a (h + S))`, where `S` is the sum of all `S_c`.

    One rule that learns late, as `auto` has it, is held to the same; for it this is measured, not proved. It regrets a
    quarter of the bound at most, and of losses against the weights five to six times what it does of those at once.
    """
    regret, square = played([MLPoly(EXPERTS, (1,)) for _ in range(copies)], kind, LONG, DELAY)
    a = EXPERTS * (1 + math.log(1 + math.ceil(LONG / DELAY)))
    assert (regret <= np.sqrt(DELAY * a * (DELAY + square))).all()


def test_the_bound_for_losses_at_once_is_not_kept_where_they_come_late() -> None:
    regret, square = played([MLPoly(EXPERTS, (1,))], "turning", LONG, DELAY)
    assert (regret > np.sqrt(EXPERTS * (1 + math.log(1 + LONG)) * (1 + square))).any()


@every_rule
@pytest.mark.parametrize("kind", KINDS)
def test_no_rule_regrets_more_than_a_root_of_the_rows(name: str, kind: str) -> None:
    regret, square = played([RULES[name](EXPERTS, (1,))], kind)
    assert regret.max() <= 4 * math.sqrt(EXPERTS * (1 + square.max()))


@every_rule
def test_weights_are_shares(name: str) -> None:
    rule, generator = RULES[name](5, (3, 2), 0.99), np.random.default_rng(1)
    for _ in range(50):
        forecasts = generator.standard_normal((5, 3, 2))
        rule.update(forecasts, (rule.weights * forecasts).sum(0), generator.standard_normal(2))
        assert (rule.weights >= 0).all()
        np.testing.assert_allclose(rule.weights.sum(0), 1.0, rtol=1e-9)


@every_rule
def test_the_better_expert_is_found_in_each_channel(name: str) -> None:
    rule, generator = RULES[name](2, (1, 2), 0.999), np.random.default_rng(2)
    for _ in range(600):
        truth = generator.standard_normal(2)
        good, bad = truth + 0.1 * generator.standard_normal(2), truth + 2 * generator.standard_normal(2)
        forecasts = np.stack([[good[0], bad[1]], [bad[0], good[1]]])[:, None]
        rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)
    assert rule.weights[0, 0, 0] > 0.8 and rule.weights[1, 0, 1] > 0.8


@every_rule
def test_the_gradient_trick_finds_a_mixture_better_than_any_expert(name: str) -> None:
    """The truth lies between two experts: the best mixture is even, although neither is ever right."""
    rule, generator = RULES[name](2, (1, 1), 1.0), np.random.default_rng(3)
    errors = []
    for _ in range(2000):
        truth = generator.standard_normal((1, 1))
        forecasts = np.stack([truth + 1, truth - 1])
        mixture = (rule.weights * forecasts).sum(0)
        errors.append(abs(float((mixture - truth)[0, 0])))
        rule.update(forecasts, mixture, truth)
    assert np.mean(errors[1000:]) < 0.2


@every_rule
def test_an_unknown_truth_teaches_nothing(name: str) -> None:
    rule = RULES[name](3, (2, 2))
    forecasts = np.random.default_rng(4).standard_normal((3, 2, 2))
    rule.update(forecasts, forecasts.mean(0), np.array([1.0, np.nan]))
    assert (rule.regret[:, :, 1] == 0).all() and (rule.regret[:, :, 0] != 0).any()


def test_one_wild_row_is_not_remembered_for_long() -> None:
    generator = np.random.default_rng(5)
    weights = {}
    for wild in (False, True):
        rule = MLPoly(3, (1, 1), 0.999)
        for row in range(1000):
            truth = generator.standard_normal((1, 1))
            forecasts = truth + np.array([0.1, 1.0, 3.0])[:, None, None] * generator.standard_normal((3, 1, 1))
            if wild and row == 500:
                forecasts[0] = 1e12  # the best expert fails once
            rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)
        weights[wild] = rule.weights[0, 0, 0]
    assert weights[False] > 0.8 and weights[True] > 0.8


@pytest.mark.parametrize("pooling", ["none", "near", "channels", "all"])
def test_pooled_weights_are_shares_and_find_the_better_expert(pooling: Pooling) -> None:
    rule, generator = MLPoly(3, (7, 2), 0.999, pooling=pooling), np.random.default_rng(6)
    for _ in range(200):
        truth = generator.standard_normal(2) * np.array([1.0, 100.0])  # neither channel drowns the other
        noise = np.array([0.1, 1.0, 3.0])[:, None, None] * generator.standard_normal((3, 7, 2))
        forecasts = truth + noise * np.array([1.0, 100.0])
        rule.update(forecasts, (rule.weights * forecasts).sum(0), truth)
        np.testing.assert_allclose(rule.weights.sum(0), 1.0, rtol=1e-9)
    assert (rule.weights[0] > 0.7).all()


def test_pooling_over_channels_learns_from_few_rows_what_all_have_in_common() -> None:
    lost = {}
    poolings: tuple[Pooling, ...] = ("none", "channels")
    for pooling in poolings:
        rule, generator, errors = MLPoly(10, (1, 20), 0.999, pooling=pooling), np.random.default_rng(7), []
        for _ in range(40):
            truth = generator.standard_normal(20)
            sizes = np.linspace(0.5, 2.0, 10)[:, None, None]
            forecasts = truth + sizes * generator.standard_normal((10, 1, 20))
            mixture = (rule.weights * forecasts).sum(0)
            errors.append(float(np.abs(mixture - truth).mean()))
            rule.update(forecasts, mixture, truth)
        lost[pooling] = np.mean(errors)
    assert lost["channels"] < 0.97 * lost["none"]


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
    with pytest.raises(ValueError, match="only Total"):
        MLPoly(2, (3, 2), pooling="steps")


def test_the_weights_of_layers_give_their_answer() -> None:
    fast, total = Layer(0.98, "all", power=20.0), Layer(0.999, "steps", power=20.0)
    kinds = (Layer(0.99, "near"), Layer(0.999, "channels"), total, fast)
    rule, generator = Layers(4, (3, 2), kinds), np.random.default_rng(9)
    for _ in range(30):
        forecasts = generator.standard_normal((4, 3, 2))
        mixed = rule.mixed(forecasts)
        np.testing.assert_allclose((rule.weights * forecasts).sum(0), mixed[0], rtol=1e-9, atol=1e-12)
        rule.update(forecasts, mixed, generator.standard_normal(2))
