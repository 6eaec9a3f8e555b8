"""The floor's products are those of the cone, no more and no fewer."""

from __future__ import annotations

import pytest
import torch
from benchmarks.speed.floor import REFRESH, STAGES, Batch, Product, applied, flops, mebibytes, products, runner
from torch import Tensor

from natsr.nets.tcn import ConeTCN
from natsr.types import Task

TASK = Task(window=20, horizon=3, channels=2, features=1)
BATCH = 4
GIVEN = Batch(BATCH, probes=12)


@pytest.fixture
def net() -> ConeTCN:
    return ConeTCN(TASK, torch.Generator().manual_seed(0), width=6, depth=3, top=10)


def stages(found: list[Product]) -> set[str]:
    return {product.stage for product in found}


def test_a_pass_has_a_product_for_each_layer(net: ConeTCN) -> None:
    found = products(net, "er", GIVEN)
    counts = {stage: sum(product.stage == stage for product in found) for stage in STAGES}
    layers = len(net.layers)
    assert counts["forward"] == counts["gradient"] == layers and counts["backward"] == layers - 1
    head = next(p for p in reversed(found) if p.stage == "forward")
    assert (head.rows, head.inner, head.columns) == (BATCH, 10, TASK.outputs)


def test_products_are_those_that_the_network_does(net: ConeTCN, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [(p.rows, p.inner, p.columns) for p in products(net, "er", GIVEN)]
    done: list[tuple[int, int, int]] = []
    mm, addmm = torch.mm, torch.addmm

    def multiply(left: Tensor, right: Tensor, out: Tensor | None = None) -> Tensor:
        done.append((*left.shape, right.shape[1]))
        return mm(left, right, out=out)

    def affine(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
        done.append((*left.shape, right.shape[1]))
        return addmm(bias, left, right)

    monkeypatch.setattr(torch, "mm", multiply)
    monkeypatch.setattr(torch, "addmm", affine)
    window = torch.randn(BATCH, TASK.window, TASK.inputs, generator=torch.Generator().manual_seed(0))
    net.gradient(net.trace(window), torch.ones(BATCH, TASK.outputs))
    assert sorted(done) == sorted(expected)


def test_kinds_of_step_add_up(net: ConeTCN) -> None:
    plain, inverting, refresh = (products(net, kind, GIVEN) for kind in ("plain", "inverting", "refresh"))
    assert stages(plain) == {"forward", "backward", "gradient", "precondition"}
    assert stages(inverting) - stages(plain) == {"inverses"}
    assert stages(refresh) - stages(plain) == set(REFRESH)
    assert flops(plain) < flops(inverting) < flops(refresh)
    assert 0 < mebibytes(plain) < mebibytes(refresh)


def test_a_thin_gradient_is_preconditioned_by_its_factors(net: ConeTCN) -> None:
    """The head sees one row for each example: with one of them, no product is as large as its matrix squared."""
    (head, positions), inner = applied(net)[-1], {p.rows for p in products(net, "plain", Batch(1))}
    assert positions == 1 and 1 in inner
    whole = 2 * head.inputs * head.inputs * head.outputs
    assert all(p.flops != whole for p in products(net, "plain", Batch(1)) if p.columns == head.outputs)


def test_closed_forms_take_the_place_of_probes(net: ConeTCN) -> None:
    probed, closed = (products(net, "refresh", GIVEN._replace(closed=known)) for known in (False, True))
    squares = [[p.inner for p in found if p.stage == "factors" and p.columns == 10] for found in (probed, closed)]
    # The last block's first convolution has two rows here, and needs its probes; the two layers above it share one.
    assert squares == [[24, 12, 12], [24, TASK.outputs]]


def test_an_inverse_takes_as_many_operations_as_its_size_cubed(net: ConeTCN) -> None:
    found = [p for p in products(net, "inverting", GIVEN) if p.stage == "inverses"]
    assert len(found) == 2 * len(net.layers) - 1  # the head's output factor is a number
    for product in found:
        assert product.rows**3 <= product.flops <= product.rows**3 + product.rows**2


def test_the_runner_runs_them_all(net: ConeTCN, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int, int]] = []
    plain = products(net, "plain", GIVEN)
    run = runner(plain)

    def noted(left: Tensor, right: Tensor, out: Tensor) -> None:
        seen.append((*left.shape, right.shape[1]))
        assert out.shape == (left.shape[0], right.shape[1])

    monkeypatch.setattr(torch, "mm", noted)
    run()
    assert seen == [(p.rows, p.inner, p.columns) for p in plain]
