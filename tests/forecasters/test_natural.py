"""The fused natural-gradient step is the readable one, and its shortcuts change nothing."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from natsr.fisher import hadamard
from natsr.forecasters.finish import Sgd
from natsr.forecasters.frame import Frame
from natsr.forecasters.natural import Damped, Natural, NaturalOptions, WeightedLoss, allotment, estimate
from natsr.forecasters.neural import Learning, NeuralForecaster, Slots
from natsr.kronecker import DampingRule
from natsr.likelihoods import Gaussian, StudentT, fixed_damping
from natsr.nets.dense import DenseTCN
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.optim import NaturalGradient
from natsr.precondition import Curvature, WorstLosses
from natsr.types import Example, Task

TASK = Task(window=1, horizon=3, channels=2, features=1)


def small_net(task: Task = TASK, seed: int = 0) -> ConeTCN:
    generator = torch.Generator().manual_seed(seed)
    return ConeTCN(task, generator, width=5, depth=2, top=6, dtype=torch.float64)


def forecaster(net: ConeTCN, options: NaturalOptions, rule: DampingRule) -> NeuralForecaster[ConeTrace]:
    natural = Natural[ConeTrace](options, Curvature(0.555, rule), WorstLosses(every=3))
    slots = Slots[ConeTrace](net, StudentT(8.0), Sgd(0.05), Frame(net.task), natural=natural)
    return NeuralForecaster(net.task, slots, Learning(scale_rate=0.1), torch.Generator().manual_seed(1))


Order = Literal["after", "before"]
Information = Literal["current", "stored"]


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("information", ["current", "stored"])
def test_the_fused_step_is_the_readable_step(order: Order, clip: float, information: Information) -> None:
    # One row of input: then the dense network has no positions that the cone leaves out of the input factors.
    net = small_net()
    dense = DenseTCN(net)
    options = NaturalOptions(probes=0, clip=clip, order=order, information=information)
    ours = forecaster(net, options, "exact")
    theirs = NaturalGradient(
        dense,
        StudentT(8.0),
        rate=0.05,
        rule="exact",
        probes="exact",
        refresh=WorstLosses(every=3),
        order=order,
        information=information,
        clip="bound" if clip else "none",
    )
    generator = torch.Generator().manual_seed(2)
    for _ in range(12):
        window = torch.randn(4, 1, TASK.inputs, generator=generator, dtype=torch.float64)
        target = 3 * torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
        target[0, 1, 0] = math.nan
        ours.learn(Example(window, target))
        info = theirs.step(window, target.flatten(1))
        assert not info.refused
        assert ours.info()["update_norm"] == pytest.approx(info.update_norm, rel=1e-9)
        assert ours.info()["update_bound"] == pytest.approx(info.bound)
        assert ours.info()["variance"] == pytest.approx(info.variance)
    twin = DenseTCN(net)
    for (name, mine), other in zip(twin.named_parameters(), dense.parameters(), strict=True):
        live = mine != 0  # dead taps keep their zeros in the cone's copy
        assert_close(mine[live], other[live], rtol=1e-8, atol=1e-10, msg=name)


def batch(net: ConeTCN, likelihood: StudentT, count: int = 4) -> tuple[ConeTrace, Tensor, WeightedLoss]:
    generator = torch.Generator().manual_seed(3)
    window = torch.randn(count, net.task.window, net.task.inputs, generator=generator, dtype=torch.float64)
    trace = net.trace(window)
    pull = torch.randn(count, net.task.outputs, generator=generator, dtype=torch.float64)
    weights = torch.full((count,), 1 / count, dtype=torch.float64)
    return trace, pull, WeightedLoss(1.0, likelihood, weights, math.sqrt(net.task.outputs))


def test_thin_factors_give_the_same_update_as_whole_gradients() -> None:
    task = Task(window=24, horizon=2, channels=1)
    net, generator = small_net(task), torch.Generator().manual_seed(0)
    trace, pull, loss = batch(net, StudentT(50.0), count=2)
    after = Natural[ConeTrace](NaturalOptions(clip=0.0), Curvature(rule="pi"), WorstLosses())
    thin = after.proposed(net, trace, pull, loss, generator)
    before = Natural[ConeTrace](NaturalOptions(clip=0.0, order="before"), Curvature(rule="pi"), WorstLosses())
    whole = before.proposed(net, trace, pull, loss, torch.Generator().manual_seed(0))
    assert thin is not None and whole is not None
    assert_close(thin.delta, whole.delta, rtol=1e-9, atol=1e-11)


def test_probes_estimate_what_all_outputs_give() -> None:
    task = Task(window=6, horizon=2, channels=2)
    net = small_net(task)
    trace, _, loss = batch(net, StudentT(50.0, variance=0.3))
    exact = estimate(net, trace, loss, NaturalOptions(probes=0), torch.Generator().manual_seed(0))
    many = estimate(net, trace, loss, NaturalOptions(probes=4000), torch.Generator().manual_seed(0))
    sampled = NaturalOptions(probes=4000, probe="sampled")
    drawn = estimate(net, trace, loss, sampled, torch.Generator().manual_seed(0))
    for true, signs, scores in zip(exact, many, drawn, strict=True):
        assert_close(true.a, signs.a)
        scale = float(true.g.norm())
        assert float((true.g - signs.g).norm()) < 0.1 * scale
        assert float((true.g - scores.g).norm()) < 0.1 * scale


def test_the_heads_block_is_exact_without_probes() -> None:
    net = small_net()
    trace, _, loss = batch(net, StudentT(50.0, variance=0.3))
    stored = NaturalOptions(probes=1, information="stored")
    head = estimate(net, trace, loss, stored, torch.Generator().manual_seed(0))[-1]
    top = torch.cat([trace.top, torch.ones(4, 1, dtype=torch.float64)], 1)
    jacobian = torch.kron(top.T @ top / 4, torch.eye(net.task.outputs, dtype=torch.float64))
    assert_close(head.dense(net.task.outputs), jacobian * loss.likelihood.fisher)


def test_updates_stay_within_the_bound_when_clipped() -> None:
    net, generator = small_net(), torch.Generator().manual_seed(0)
    trace, pull, loss = batch(net, StudentT(50.0))
    clipped = Natural[ConeTrace](NaturalOptions(clip=1.0), Curvature(), WorstLosses())
    proposal = clipped.proposed(net, trace, 1e6 * pull, loss, generator)
    assert proposal is not None
    assert proposal.info.norm > proposal.info.bound
    assert float(proposal.delta.norm()) == pytest.approx(proposal.info.bound)


def test_a_gaussian_has_no_bound() -> None:
    net = small_net()
    _, _, loss = batch(net, StudentT(50.0))
    assert dataclasses.replace(loss, likelihood=Gaussian()).bound(6, 0.1) == math.inf


def test_nothing_changes_until_a_proposal_is_taken() -> None:
    net, generator = small_net(), torch.Generator().manual_seed(0)
    trace, pull, loss = batch(net, StudentT(50.0))
    natural = Natural[ConeTrace](NaturalOptions(), Curvature(), WorstLosses())
    natural.proposed(net, trace, pull, loss, generator)
    assert not natural.curvature.known
    assert math.isnan(natural.trigger.mean)
    assert natural.smoothed is None


@pytest.mark.parametrize(("damped", "expected"), [("step", 7.0), ("refresh", 3.0)])
def test_damping_follows_the_scale_at_each_step_or_at_each_refresh(
    damped: Literal["step", "refresh"], expected: float
) -> None:
    net = small_net()
    options = NaturalOptions(law=lambda v: v, damped=damped)
    natural = Natural[ConeTrace](options, Curvature(), WorstLosses(quantile=1e9))
    trace, pull, loss = batch(net, StudentT(50.0, variance=3.0))
    first = natural.proposed(net, trace, pull, loss, torch.Generator().manual_seed(0))
    assert first is not None and first.info.refreshed and first.info.damping == 3.0
    later = dataclasses.replace(loss, likelihood=StudentT(50.0, variance=7.0))
    second = first.after.proposed(net, trace, pull, later, torch.Generator().manual_seed(0))
    assert second is not None and not second.info.refreshed and second.info.damping == expected


def test_a_fixed_law_does_not_open_the_bound() -> None:
    assert fixed_damping(0.5)(1.0) == fixed_damping(0.5)(100.0) == 0.5


def test_without_drift_inverses_are_the_eigenbasis() -> None:
    net = small_net(Task(window=24, horizon=2, channels=1))
    trace, pull, loss = batch(net, StudentT(50.0, variance=0.3), count=2)
    found = []
    ways: tuple[Damped, ...] = ("drift", "step")
    for damped in ways:
        options = NaturalOptions(damped=damped, drift=0.0, clip=0.0)
        natural = Natural[ConeTrace](options, Curvature(rule="pi"), WorstLosses())
        first = natural.proposed(net, trace, pull, loss, torch.Generator().manual_seed(0))
        assert first is not None
        later = dataclasses.replace(loss, likelihood=StudentT(50.0, variance=0.35))
        second = first.after.proposed(net, trace, pull, later, torch.Generator().manual_seed(0))
        assert second is not None
        found.append(second.delta)
    assert_close(found[0], found[1], rtol=1e-8, atol=1e-10)


def test_inverses_are_kept_until_the_damping_has_drifted() -> None:
    net = small_net()
    options = NaturalOptions(law=lambda v: v, information="stored", drift=0.2)
    natural = Natural[ConeTrace](options, Curvature(rule="pi"), WorstLosses(quantile=1e9))
    trace, pull, loss = batch(net, StudentT(50.0, variance=1.0))
    made = []
    for variance in (1.0, 1.19, 0.84, 1.21, 1.1, 0.9):
        now = dataclasses.replace(loss, likelihood=StudentT(50.0, variance=variance))
        proposal = natural.proposed(net, trace, pull, now, torch.Generator().manual_seed(0))
        assert proposal is not None and proposal.info.damping == variance
        natural = proposal.after
        made.append(natural.made)
    assert made == [1.0, 1.0, 1.0, 1.21, 1.21, 0.9]


@pytest.mark.parametrize(("window", "known"), [(1, 3), (6, 2)])
def test_closed_forms_are_what_every_output_gives(window: int, known: int) -> None:
    task = Task(window=window, horizon=2, channels=2)
    net = (
        small_net(task)
        if window == 1
        else ConeTCN(task, torch.Generator().manual_seed(0), width=5, depth=0, top=6, dtype=torch.float64)
    )
    trace, _, loss = batch(net, StudentT(50.0, variance=0.3))
    weights = torch.tensor([0.7, 0.1, 0.15, 0.05], dtype=torch.float64)
    loss = dataclasses.replace(loss, weights=weights)
    exact = estimate(net, trace, loss, NaturalOptions(probes=0), torch.Generator())
    moments = net.known_moments(trace, weights)
    assert len(moments) == known
    for index, moment in moments.items():
        assert_close(moment, exact[index].g)
    few = estimate(net, trace, loss, NaturalOptions(probes=1), torch.Generator())
    assert all(torch.equal(few[index].g, moment) for index, moment in moments.items())
    masked = net.trace(torch.randn(4, window, 2, dtype=torch.float64), torch.ones(4, 6, dtype=torch.float64))
    assert net.known_moments(masked, weights) == {}


def test_probes_are_allotted_by_weight() -> None:
    weights = torch.tensor([0.8, 0.4, 0.1, 0.0])
    factors = allotment(weights, 8)
    assert (factors > 0).sum(0).tolist() == [8, 4, 1, 1]
    assert_close(factors.square().mean(0), torch.ones(4))  # the second moment stays the identity
    assert (allotment(torch.full((3,), 1 / 3), 5) == 1).all()


def test_hadamard_probes_are_orthogonal_signs() -> None:
    probes = hadamard((8, 3, 16), torch.Generator().manual_seed(0))
    assert probes.shape == (8, 3, 16) and (probes.abs() == 1).all()
    for example in range(3):
        assert_close(probes[:, example] @ probes[:, example].T, 16 * torch.eye(8))
    assert not torch.equal(probes[:, 0], probes[:, 1])
    assert hadamard((5, 2, 1), torch.Generator().manual_seed(0)).shape == (5, 2, 1)
    odd = hadamard((4000, 1, 3), torch.Generator().manual_seed(0))[:, 0]
    assert_close(odd.T @ odd / 4000, torch.eye(3), atol=1e-3, rtol=0)
