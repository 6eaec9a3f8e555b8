"""The network over the variables against the one everybody writes: Conv1d with every tap, autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, gelu
from torch.testing import assert_close

from natsr.nets.base import Layer
from natsr.nets.variables import VariablesTCN, taps_of
from natsr.types import OptionError, Task


def dense(net: VariablesTCN, weights: Tensor, window: Tensor, keep: Tensor | None) -> Tensor:
    """The same function with convolutions of three taps, those that never meet a column zero."""
    parts = {layer.name: layer.view(weights) for layer in net.layers}
    x = nn.functional.linear(window[:, :, : net.task.channels].mT, parts["input"][:-1].T, parts["input"][-1]).mT
    last = len(net.dilations) - 1
    for i, dilation in enumerate(net.dilations):
        y = x
        for name in ("conv1", "conv2"):
            matrix = parts[f"block{i}.{name}"]
            taps = taps_of(dilation, net.task.channels)
            kernel = matrix[:-1].view(taps, -1, matrix.shape[1]).permute(2, 1, 0)
            if taps == 1:
                kernel = nn.functional.pad(kernel, (1, 1))
            y = conv1d(gelu(y), kernel, matrix[-1], padding=dilation, dilation=dilation)
        matrix = parts[f"block{last}.projection"]
        x = y + (x if i < last else conv1d(x, matrix[:-1].T[:, :, None], matrix[-1]))
    top = x.mT if keep is None else x.mT * keep.view(x.mT.shape)
    return nn.functional.linear(top, parts["head"][:-1].T, parts["head"][-1]).mT.flatten(1)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("dropped", [False, True])
def test_outputs_and_gradients_are_those_of_the_dense_network(channels: int, dropped: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    task = Task(window=6, horizon=3, channels=channels, features=2)
    net = VariablesTCN(task, generator, width=3, depth=3, top=4, dtype=torch.float64)
    window = torch.randn(4, 6, task.inputs, generator=generator, dtype=torch.float64)
    grad = torch.randn(4, task.outputs, generator=generator, dtype=torch.float64)
    keep = torch.rand(4, net.hidden, generator=generator, dtype=torch.float64) if dropped else None
    weights = net.weights.clone().requires_grad_()
    expected = dense(net, weights, window, keep)
    trace = net.trace(window, keep)
    assert_close(trace.output, expected.detach(), rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad((expected * grad).sum(), weights)
    assert_close(net.gradient(trace, grad), gradient, rtol=1e-11, atol=1e-12)


def test_features_are_not_read() -> None:
    task = Task(window=6, horizon=3, channels=2, features=2)
    net = VariablesTCN(task, torch.Generator().manual_seed(0), width=3, depth=1, top=4)
    window = torch.randn(1, 6, 4, generator=torch.Generator().manual_seed(1))
    other = window.clone()
    other[:, :, 2:] += 1
    assert torch.equal(net.forward(window), net.forward(other))


def test_many_windows_are_forecast_a_few_at_a_time() -> None:
    task = Task(window=3, horizon=1, channels=2000)
    net = VariablesTCN(task, torch.Generator().manual_seed(0), width=2, depth=1, top=2, dtype=torch.float64)
    window = torch.randn(5, 3, 2000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert_close(net.forward(window), net.trace(window).output, rtol=1e-12, atol=1e-12)


def test_layers_lie_one_after_the_other_and_are_named_once() -> None:
    net = VariablesTCN(Task(6, 3, 2), torch.Generator().manual_seed(0), width=3, depth=2, top=4)
    ends: list[Layer] = [*net.layers]
    assert ends[-1].start + ends[-1].inputs * ends[-1].outputs == len(net.weights)
    assert len({layer.name for layer in net.layers}) == len(net.layers)
    with pytest.raises(OptionError):
        VariablesTCN(Task(6, 3, 2), torch.Generator(), width=0)


@pytest.mark.parametrize("dropped", [False, True])
def test_several_networks_pass_as_each_does_alone(dropped: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    task = Task(window=6, horizon=3, channels=5, features=2)
    nets = [VariablesTCN(task, generator, width=3, depth=3, top=4, dtype=torch.float64) for _ in range(3)]
    window = torch.randn(3, 4, 6, task.inputs, generator=generator, dtype=torch.float64)
    grad = torch.randn(3, 4, task.outputs, generator=generator, dtype=torch.float64)
    keep = torch.rand(3, 4, nets[0].hidden, generator=generator, dtype=torch.float64) if dropped else None
    several = nets[0].over(torch.stack([net.weights for net in nets]))
    together = several.trace(window, keep)
    gradients = several.gradient(together, grad)
    for number, net in enumerate(nets):
        trace = net.trace(window[number], None if keep is None else keep[number])
        assert_close(together.output[number], trace.output, rtol=1e-12, atol=1e-12)
        assert_close(gradients[number], net.gradient(trace, grad[number]), rtol=1e-12, atol=1e-12)
