"""Factors and inverses in C against those in torch."""

from __future__ import annotations

import ctypes
import dataclasses

import pytest
import torch
from torch import Tensor

from natsr.forecasters.curved import Matrices, NativeCurvature
from natsr.forecasters.natural import Natural, NaturalOptions, WeightedLoss, estimate
from natsr.likelihoods import StudentT
from natsr.native.calls import Move, library
from natsr.nets.native import NativeTCN, NativeTrace
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.precondition import Curvature, WorstLosses
from natsr.types import Task

LIKELIHOOD = StudentT(20.0, variance=0.4)


def pair(window: int = 20, depth: int = 3) -> tuple[NativeTCN, ConeTCN]:
    compiled = library()
    if compiled is None:
        pytest.skip("there is no C compiler here, or NATSR_NATIVE is 0")
    task = Task(window=window, horizon=3, channels=2, features=1)
    native = NativeTCN(task, torch.Generator().manual_seed(0), compiled, width=12, depth=depth, top=40)
    return native, ConeTCN(task, torch.Generator().manual_seed(0), width=12, depth=depth, top=40)


def batch(net: ConeTCN, size: int = 5) -> tuple[Tensor, Tensor, WeightedLoss]:
    generator = torch.Generator().manual_seed(1)
    window = torch.randn(size, net.task.window, net.task.inputs, generator=generator)
    pull = torch.randn(size, net.task.outputs, generator=generator)
    weights = torch.tensor([0.8, *[0.2 / (size - 1)] * (size - 1)])
    return window, pull, WeightedLoss(1.0, LIKELIHOOD, weights, 2.0)


def near(ours: Tensor, theirs: Tensor, tolerance: float = 1e-3) -> bool:
    return float((ours - theirs).norm()) <= tolerance * float(theirs.norm())


@pytest.mark.parametrize(("window", "depth"), [(20, 3), (4, 0), (1, 2)])
@pytest.mark.parametrize(
    "options",
    [
        NaturalOptions(),
        NaturalOptions(probes=0),
        NaturalOptions(probes=40, closed=False, probe="rademacher"),
        NaturalOptions(probe="sampled", allotted=False, information="stored"),
    ],
    ids=["default", "exact", "many", "sampled"],
)
def test_two_refreshes_and_their_steps_equal_those_in_torch(options: NaturalOptions, window: int, depth: int) -> None:
    ours, theirs = pair(window, depth)
    rows, pull, loss = batch(ours)
    engine = NativeCurvature(ours)
    one, other = (Natural[ConeTrace](options, Curvature(0.6, "pi"), WorstLosses(every=1)) for _ in range(2))
    generators = [torch.Generator().manual_seed(2) for _ in range(2)]
    for variance in (0.4, 0.6):
        now = dataclasses.replace(loss, likelihood=StudentT(20.0, variance))
        trace = ours.trace(rows)
        assert isinstance(trace, NativeTrace)
        step = engine.proposed(one, trace, pull, now, generators[0])
        proposal = other.proposed(theirs, theirs.trace(rows), pull, now, generators[1])
        assert step is not None and proposal is not None
        for mine, reference in zip(step.after.curvature.blocks, proposal.after.curvature.blocks, strict=True):
            assert near(mine.a, reference.a) and near(mine.g, reference.g)
        assert step.info.norm == pytest.approx(proposal.info.norm, rel=1e-2)
        before = ours.weights.clone()
        engine.take(step, Move(1.0))
        theirs.weights.sub_(other.direction(proposal))
        assert near(before - ours.weights, before - theirs.weights, 1e-2)
        one, other = step.after, proposal.after


def test_closed_forms_serve_the_readable_path_too() -> None:
    ours, theirs = pair()
    rows, _, loss = batch(ours)
    options = NaturalOptions()
    mine = estimate(ours, ours.trace(rows), loss, options, torch.Generator().manual_seed(0))
    reference = estimate(theirs, theirs.trace(rows), loss, options, torch.Generator().manual_seed(0))
    for one, other in zip(mine, reference, strict=True):
        assert near(one.a, other.a) and near(one.g, other.g)


def test_a_proposal_that_is_not_taken_changes_nothing() -> None:
    ours, _ = pair()
    rows, pull, loss = batch(ours)
    engine, weights = NativeCurvature(ours), ours.weights.clone()
    natural = Natural[ConeTrace](NaturalOptions(), Curvature(0.6, "pi"), WorstLosses(every=1))
    trace = ours.trace(rows)
    assert isinstance(trace, NativeTrace)
    first = engine.proposed(natural, trace, pull, loss, torch.Generator().manual_seed(0))
    assert first is not None and not natural.curvature.known and natural.smoothed is None
    engine.take(first, Move(0.0))
    assert torch.equal(ours.weights, weights)
    kept = [(block.a.clone(), block.g.clone()) for block in first.after.curvature.blocks]
    assert engine.proposed(first.after, trace, pull, loss, torch.Generator().manual_seed(1)) is not None
    assert engine.proposed(first.after, trace, pull * torch.nan, loss, torch.Generator()) is None
    for (a, g), block in zip(kept, first.after.curvature.blocks, strict=True):
        assert torch.equal(a, block.a) and torch.equal(g, block.g)


@pytest.mark.parametrize("size", [1e-3, 1.0, 3e4])
def test_inverses_are_those_in_float64_and_exist_even_where_float32_has_none(size: float) -> None:
    ours, _ = pair()
    generator, context = torch.Generator().manual_seed(0), ours.context()
    factors, inverses, head = Matrices(ours.layers), Matrices(ours.layers), ctypes.c_double()
    for block in factors.blocks:
        for part in block:
            rows = size * torch.randn(3, len(part) if part.ndim else 1, generator=generator)
            part.copy_(rows.T @ rows if part.ndim else rows.square().sum())
    # So little damping that, beside the largest factors, it is lost in float32's rounding.
    damping = 1e-4
    arguments = (factors.a, factors.g, factors.head, damping, inverses.a, inverses.g, ctypes.byref(head))
    assert context.library.curve_invert(context.address, *arguments)
    for block, inverse in zip(factors.blocks, inverses.blocks, strict=True):
        assert inverse.a.isfinite().all() and inverse.g.isfinite().all()
        assert torch.equal(inverse.a, inverse.a.T) and (inverse.a.diagonal() > 0).all()
        if size <= 1:
            reference = block._replace(a=block.a.double(), g=block.g.double()).inverse(damping)
            assert near(inverse.a.double(), reference.a, 1e-2)
    factors.blocks[0].a.fill_(torch.nan)
    assert not context.library.curve_invert(context.address, *arguments)
