"""Calibrated networks: gradients through the coefficients against autograd, runs of layers, and the memory."""

from __future__ import annotations

from typing import Protocol

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from natsr.nets.adapted import Scaled
from natsr.nets.adapters import COLUMNS, limited, recalled
from natsr.nets.fsnet import AdaptedTCN
from natsr.nets.runs import runs
from natsr.nets.tcn import ConeTCN
from natsr.nets.variables import VariablesTCN
from natsr.types import Task

TASK = Task(window=8, horizon=2, channels=3, features=1)


def body(generator: torch.Generator) -> ConeTCN:
    return ConeTCN(TASK, generator, width=2, depth=3, top=4, dtype=torch.float64)


def pairs(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Windows, and what to pull their outputs by."""
    window = torch.randn(3, 8, 4, generator=generator, dtype=torch.float64)
    return window, torch.randn(3, TASK.outputs, generator=generator, dtype=torch.float64)


def assert_slopes(net: Settled, window: Tensor, grad: Tensor, gradient: Tensor, places: Tensor) -> None:
    """The gradient of `Σ grad · output` is what central differences say, at these weights."""
    for i in places.tolist():
        ends = []
        for change in (1e-5, -1e-5):
            before = net.weights[i].clone()
            net.weights[i] += change
            net.settle()
            ends.append(float((net.body.forward(window) * grad).sum()))
            net.weights[i] = before
        assert abs((ends[0] - ends[1]) / 2e-5 - float(gradient[i])) < 1e-7, i
    net.settle()


class Forward(Protocol):
    def forward(self, window: Tensor) -> Tensor: ...


class Settled(Protocol):
    """What both kinds of calibrated networks have."""

    weights: Tensor

    @property
    def body(self) -> Forward: ...

    def settle(self) -> None: ...


def test_gradients_go_through_controllers_heads_and_memory() -> None:
    generator = torch.Generator().manual_seed(0)
    net = AdaptedTCN(body(generator), generator, recall="index")  # what is read does not depend on the weights
    window, grad = pairs(generator)
    for sign in (1, 1, 1, -1):
        net.follow(sign * net.gradient(net.trace(window), grad), online=True)
    for averages in net.averages[:2]:
        averages.apart[0] = True  # whatever the gradients said
    net.weights.add_(0.3 * torch.randn(len(net.weights), generator=generator, dtype=torch.float64))
    net.settle()
    places = torch.randperm(len(net.weights), generator=generator)[:150]
    assert_slopes(net, window, grad, net.gradient(net.trace(window), grad), places)


def test_gradients_go_through_the_factors() -> None:
    generator = torch.Generator().manual_seed(0)
    window, grad = pairs(generator)
    variables = VariablesTCN(TASK, generator, width=2, depth=3, top=4, dtype=torch.float64)
    time = body(generator)
    for net in (Scaled(variables, runs(variables)), Scaled(time, runs(time))):
        still = torch.cat([run.view(torch.arange(len(net.weights)))[:, -1].flatten() for run in net.runs])
        noise = 0.3 * torch.randn(len(net.weights), generator=generator, dtype=torch.float64)
        noise[still] = 0  # biases have no factor here: they stay zero
        net.weights.add_(noise)
        net.settle()
        if isinstance(net.body, ConeTCN):
            effective = net.body.gradient(net.body.trace(window), grad)
        else:
            assert isinstance(net.body, VariablesTCN)
            effective = net.body.gradient(net.body.trace(window), grad)
        gradient = net.pulled(effective)
        assert not gradient[still].any()
        moving = torch.ones(len(gradient), dtype=torch.bool)
        moving[still] = False
        assert_slopes(net, window, grad, gradient, moving.nonzero().flatten()[::2])


def test_runs_cover_every_convolution_once() -> None:
    generator = torch.Generator().manual_seed(0)
    for net in (body(generator), VariablesTCN(TASK, generator, width=2, depth=3, top=4)):
        places = torch.arange(len(net.weights))
        covered = torch.cat([run.view(places).flatten() for run in runs(net)])
        expected = torch.cat([layer.view(places).flatten() for layer in net.layers if ".conv" in layer.name])
        assert torch.equal(covered, expected)
    assert [(run.number, run.taps) for run in runs(ConeTCN(Task(60, 1, 1), generator))] == [
        (11, 3),
        (1, 2),
        (8, 1),
        (1, 1),
        (1, 1),
    ]


def test_a_memory_is_read_by_attention_and_moves_towards_the_key() -> None:
    generator = torch.Generator().manual_seed(0)
    memory = 0.01 * torch.randn(6, COLUMNS, generator=generator, dtype=torch.float64)
    key = torch.randn(6, generator=generator, dtype=torch.float64)
    read, after = recalled(memory, key, "attention")
    attention = torch.softmax(2 * key @ memory, 0)
    (one, other), weights = attention.topk(2).indices.tolist(), attention.topk(2).values
    assert_close(read, weights[0] * memory[:, one] + weights[1] * memory[:, other])
    assert_close(after[:, one], 0.75 * memory[:, one] + 0.25 * weights[0] * key)
    assert set((after - memory).norm(dim=0).nonzero().flatten().tolist()) == {one, other}
    assert limited(100 * memory).norm() == pytest.approx(1.0)
    by_number, _ = recalled(memory, key, "index")
    assert_close(by_number, one * memory[:, one] + other * memory[:, other])
