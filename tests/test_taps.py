"""Taps are right if a layer's inputs and output gradients give back autograd's own weight gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations
from torch.testing import assert_close

from natsr.taps import Layer, Recorder, Tap, find_layers, read_weights, write_weights
from natsr.types import OptionError, ShapeError

CONVS: dict[str, Callable[[], nn.Conv1d]] = {
    "plain": lambda: nn.Conv1d(2, 5, 3),
    "no bias": lambda: nn.Conv1d(2, 5, 3, bias=False),
    "stride": lambda: nn.Conv1d(2, 5, 3, stride=2),
    "dilation": lambda: nn.Conv1d(2, 5, 3, dilation=4),
    "padding": lambda: nn.Conv1d(2, 5, 4, padding=3),
    "everything": lambda: nn.Conv1d(2, 5, 3, stride=3, dilation=2, padding=5),
    "same": lambda: nn.Conv1d(2, 5, 3, dilation=2, padding="same"),
    "same, even": lambda: nn.Conv1d(2, 5, 4, dilation=3, padding="same"),
    "valid": lambda: nn.Conv1d(2, 5, 2, padding="valid", bias=False),
    "one tap": lambda: nn.Conv1d(2, 5, 1),
    "one position": lambda: nn.Conv1d(2, 5, 11),
}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradient_of(tap: Tap) -> Tensor:
    """`Σ_b Σ_s a gᵀ`: what the weight gradient must be."""
    return torch.einsum("bsi,kbso->io", tap.inputs, tap.grads)


def tapped(model: nn.Module, inputs: Tensor) -> tuple[list[Tap], list[Tensor]]:
    """Taps of one random gradient of the outputs, and autograd's weight gradients as matrices."""
    layers = find_layers(model)
    with Recorder(layers, len(inputs)) as recorder:
        output = model(inputs)
    pull = normal(*output.shape, seed=9)
    return recorder.taps(output, pull[None])[0], recorder.gradient(output, pull)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch says that it copies
@pytest.mark.parametrize("name", CONVS)
def test_conv_taps_give_autograds_gradient(name: str) -> None:
    taps, grads = tapped(CONVS[name]().double(), normal(3, 2, 11))
    assert_close(gradient_of(taps[0]), grads[0], rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch says that it copies
@pytest.mark.parametrize("name", CONVS)
def test_conv_patches_give_the_output_and_equal_unfold(name: str) -> None:
    module, seen = CONVS[name]().double(), normal(3, 2, 11)
    layer = Layer(name, module)
    patches = layer.inputs(seen)
    assert_close(patches @ layer.to_matrix(layer.parameters), module(seen).transpose(1, 2), rtol=1e-12, atol=1e-12)
    if not isinstance(module.padding, str):
        (taps,), (stride,), (dilation,), (pad,) = module.kernel_size, module.stride, module.dilation, module.padding
        unfolded = functional.unfold(
            seen[:, :, None], (1, taps), dilation=(1, dilation), padding=(0, pad), stride=(1, stride)
        )
        assert torch.equal(patches[..., : 2 * taps], unfolded.transpose(1, 2))


def test_linear_taps_give_autograds_gradient_in_a_deep_net_and_on_sequences() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5, bias=False), nn.GELU(), nn.Linear(5, 2)).double()
    for inputs in (normal(6, 3), normal(6, 7, 3), normal(6, 2, 3, 3)):
        taps, grads = tapped(model, inputs)
        positions = inputs[0].numel() // 3
        assert [tap.inputs.shape for tap in taps] == [(6, positions, 4), (6, positions, 4), (6, positions, 6)]
        for tap, grad in zip(taps, grads, strict=True):
            assert_close(gradient_of(tap), grad, rtol=1e-12, atol=1e-12)


def test_conv_net_taps_give_autograds_gradient() -> None:
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same"), nn.ReLU(), nn.Conv1d(4, 3, 3, stride=2), nn.Flatten(), nn.Linear(15, 2)
    ).double()
    for tap, grad in zip(*tapped(model, normal(4, 2, 11)), strict=True):
        assert_close(gradient_of(tap), grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("middle", [nn.ReLU(inplace=True), nn.ReLU()])
def test_operations_in_place_after_a_layer_change_nothing(middle: nn.Module) -> None:
    torch_rng = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), middle, nn.Linear(4, 2)).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch_rng, dtype=torch.float64)
    for inputs in (normal(5, 3), normal(5, 6, 3)):  # on sequences a linear layer returns a view
        for tap, grad in zip(*tapped(model, inputs), strict=True):
            assert_close(gradient_of(tap), grad, rtol=1e-12, atol=1e-12)


def test_the_gradient_is_the_one_that_backward_accumulates() -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(36, 2)).double()
    layers, inputs = find_layers(model), normal(3, 2, 11)
    with Recorder(layers, 3) as recorder:
        output = model(inputs)
    grads = recorder.gradient(output, 2 * output.detach())
    model(inputs).square().sum().backward()
    for layer, grad in zip(layers, grads, strict=True):
        found = [part.grad for part in layer.parameters]
        for part, own in zip(layer.from_matrix(grad), found, strict=True):
            assert own is not None
            assert_close(part, own)


def test_matrix_and_module_layout_are_inverse() -> None:
    for module in (nn.Linear(3, 4), nn.Linear(3, 4, bias=False), nn.Conv1d(2, 5, 3), nn.Conv1d(2, 5, 3, bias=False)):
        layer = Layer("", module)
        matrix = layer.to_matrix(layer.parameters)
        assert matrix.shape == layer.shape
        for there, back in zip(layer.parameters, layer.from_matrix(matrix), strict=True):
            assert torch.equal(there, back)


def test_weights_are_read_and_written_back() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Conv1d(1, 2, 3))
    layers, others = find_layers(model), list(model[1].parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    parts = read_weights(layers, others)
    assert [part.shape for part in parts] == [(4, 4), (4, 2), (4,), (4,)]
    write_weights([part + 1 for part in parts], layers, others)
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old + 1, new)


class Twice(nn.Module):
    """Calls one layer two times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.alias = self.layer

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.layer(x)
        second: Tensor = self.alias(input=first.tanh())
        return second


def test_a_layer_called_twice_is_a_layer_with_two_positions() -> None:
    model = Twice().double()
    assert len(find_layers(model)) == 1
    (tap,), (grad,) = tapped(model, normal(5, 3))
    assert tap.inputs.shape == (5, 2, 4)
    assert_close(gradient_of(tap), grad, rtol=1e-12, atol=1e-12)


def test_a_layer_that_was_not_called_is_zero() -> None:
    model = Twice().double()
    layers = find_layers(model)
    with Recorder(layers, 5) as recorder:
        output = normal(5, 3).requires_grad_()
    (tap,), _ = recorder.taps(output, normal(2, 5, 3))
    assert not tap.inputs.any() and not tap.grads.any()
    assert (tap.inputs.shape, tap.grads.shape) == ((5, 1, 4), (2, 5, 1, 3))


class BehindItsBack(nn.Module):
    """Uses a layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.layer.weight


def test_a_weight_used_behind_the_layers_back_is_refused() -> None:
    with pytest.raises(OptionError, match=r"'layer' has a gradient but was never called.*freeze"):
        tapped(BehindItsBack().double(), normal(5, 3))


def test_shared_parameters_are_refused() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    with pytest.raises(OptionError, match="shared by the modules '0', '2'.*call the same module"):
        find_layers(model)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Conv1d(4, 4, 3, groups=2), "groups=2, expected groups=1; write it as one Conv1d for each group"),
        (nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"), "padding_mode='circular', expected 'zeros'; pad with"),
    ],
)
def test_unsupported_convolutions_are_refused(module: nn.Module, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        find_layers(nn.Sequential(module))
    assert find_layers(nn.Sequential(module.requires_grad_(False))) == []


@pytest.mark.parametrize("shape", [(6, 3), (3,)])
def test_a_merged_or_missing_batch_is_refused(shape: tuple[int, ...]) -> None:
    model = nn.Linear(3, 2).double()
    with pytest.raises(ShapeError, match=r"the first is the batch of 4"), Recorder(find_layers(model), 4):
        model(normal(*shape))


def test_hooks_are_gone_afterwards_even_if_the_pass_fails() -> None:
    model = nn.Linear(3, 2).double()
    with pytest.raises(ShapeError), Recorder(find_layers(model), 4):
        model(normal(6, 3))
    assert not model._forward_hooks
    assert model(normal(6, 3)).shape == (6, 2)


def test_only_what_learns_is_found() -> None:
    frozen = nn.Linear(3, 3).requires_grad_(False)
    computed = parametrizations.weight_norm(nn.Linear(3, 3))
    assert find_layers(nn.Sequential(frozen, computed, nn.LayerNorm(3), nn.Embedding(2, 3), nn.LSTM(3, 3))) == []
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad_(False)
    assert find_layers(layer)[0].shape == (3, 2)


def test_other_parameters_give_mean_squared_gradients() -> None:
    norm = nn.LayerNorm(4)
    model = nn.Sequential(nn.Linear(3, 4), norm, nn.Linear(4, 2)).double()
    layers, gain = find_layers(model), norm.weight
    with Recorder(layers, 5) as recorder:
        output = model(normal(5, 3))
    probes = normal(6, 5, 2, seed=4)
    _, (square,) = recorder.taps(output, probes, [gain])
    grads = [torch.autograd.grad(output, gain, probe, retain_graph=True)[0] for probe in probes]
    assert_close(square, torch.stack(grads).square().mean(0))


class Head(nn.Module):
    """A network that moves its last layer's numbers about."""

    def __init__(self, move: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.move = nn.Linear(3, 3), nn.Linear(3, 6), move

    def forward(self, x: Tensor) -> Tensor:
        return self.move(self.head(self.body(x).tanh()))


def test_the_last_layer_is_recognised_through_moves_only() -> None:
    moves: list[tuple[Callable[[Tensor], Tensor], tuple[int, ...], bool]] = [
        (lambda y: y, (5, 3), True),
        (lambda y: y.view(-1, 2, 3), (5, 3), True),
        (lambda y: y.reshape(-1, 2, 3).transpose(1, 2).flatten(1), (5, 3), True),
        (lambda y: y[:, -1], (5, 7, 3), True),
        (lambda y: y[:, 1:3].permute(2, 0, 1).permute(1, 2, 0), (5, 7, 3), True),
        (lambda y: y * 2, (5, 3), False),
        (lambda y: y.tanh(), (5, 3), False),
        (lambda y: y.cumsum(1), (5, 3), False),
    ]
    for move, shape, last in moves:
        model = Head(move).double()
        with Recorder(find_layers(model), 5) as recorder:
            output = model(normal(*shape))
        values = normal(*output.shape, seed=2)
        found = recorder.outermost(output, values)
        assert list(found) == ([1] if last else [])
        if last:  # moved back, nothing is lost and nothing is added
            assert_close(found[1][found[1] != 0].sort()[0], values.flatten().sort()[0])
