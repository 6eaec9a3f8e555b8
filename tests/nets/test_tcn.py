"""The cone is the dense network: outputs and gradients, in float64, for every shape of cone."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from natsr.nets.dense import DenseTCN
from natsr.nets.tcn import ConeTCN, cone
from natsr.types import Task


@pytest.mark.parametrize(
    ("window", "depth"), [(60, 10), (60, 2), (60, 0), (1, 3), (2, 3), (7, 4), (33, 5), (64, 6), (96, 10)]
)
def test_outputs_and_gradients_equal_the_dense_network(window: int, depth: int) -> None:
    task = Task(window=window, horizon=3, channels=2, features=3)
    generator = torch.Generator().manual_seed(window + depth)
    net = ConeTCN(task, generator, width=6, depth=depth, top=10, dtype=torch.float64)
    dense = DenseTCN(net)
    x = torch.randn(4, window, task.inputs, generator=generator, dtype=torch.float64)
    pull = torch.randn(4, task.outputs, generator=generator, dtype=torch.float64)

    trace = net.trace(x)
    output = dense(x)
    (output * pull).sum().backward()

    assert_close(trace.output, output.detach(), atol=1e-12, rtol=1e-12)
    assert_close(net.gradient(trace, pull), dense.flat_gradient(net), atol=1e-10, rtol=1e-10)


def test_little_more_than_half_of_the_papers_network_is_alive() -> None:
    task = Task(window=60, horizon=24, channels=7, features=7)
    net = ConeTCN(task, torch.Generator().manual_seed(0))
    # One tap more is dead than the design counted: the right one of block 5's second convolution (64 x 64 weights).
    assert net.weights.numel() == 380_712 - 64 * 64
    assert sum(p.numel() for p in DenseTCN(net).parameters()) == 692_008


def test_dead_taps_have_no_gradient_in_the_dense_network() -> None:
    task = Task(window=9, horizon=2, channels=1)
    net = ConeTCN(task, torch.Generator().manual_seed(0), width=4, depth=5, top=5, dtype=torch.float64)
    dense = DenseTCN(net)
    dense(torch.randn(3, 9, 1, dtype=torch.float64)).square().sum().backward()
    live = dense.flat_gradient(net).square().sum()
    every = sum(p.grad.square().sum() for p in dense.parameters() if p.grad is not None)
    assert isinstance(every, torch.Tensor)
    assert_close(live, every)


def test_several_probes_are_pulled_back_at_once() -> None:
    task = Task(window=20, horizon=2, channels=2)
    generator = torch.Generator().manual_seed(1)
    net = ConeTCN(task, generator, width=5, depth=3, top=7, dtype=torch.float64)
    trace = net.trace(torch.randn(3, 20, 2, generator=generator, dtype=torch.float64))
    probes = torch.randn(4, 3, task.outputs, generator=generator, dtype=torch.float64)
    together = net.taps(trace, probes)
    for k in range(4):
        for whole, alone in zip(together, net.taps(trace, probes[k : k + 1]), strict=True):
            assert_close(whole.grads[k], alone.grads[0])


def test_the_cone_reads_only_rows_it_can_see() -> None:
    assert cone(window=60, blocks=1)[0][0].src == 3
    assert [second.dst for _, second in cone(window=60, blocks=11)] == [30, 15, 8, 4, 2, 1, 1, 1, 1, 1, 1]
