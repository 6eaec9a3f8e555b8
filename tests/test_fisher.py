"""K-FAC against the dense Fisher information `Σ_b w_b JᵀJ` from `torch.func.jacrev`, in float64.

Where a layer's block is exact, and why:

- the last layer, any batch, also on a sequence: its output gradient is the same for every example and position;
- every layer of a network without nonlinearities, any batch, if it is applied at one position: the same reason;
- every layer of any network, for one example (or copies of it), if it is applied at one position: nothing is averaged.

Elsewhere it is an approximation: K-FAC takes inputs and output gradients to be independent, and positions to be
uncorrelated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev
from torch.testing import assert_close

from natsr.fisher import Estimate, estimate, gradient_factor, input_factor, one_hot, rademacher
from natsr.taps import Recorder, find_layers


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(model: nn.Module) -> nn.Module:
    """The model in float64, with weights that are the same in every run."""
    model = model.double()
    generator = torch.Generator().manual_seed(1)
    for part in model.parameters():
        part.data = torch.randn(part.shape, generator=generator, dtype=torch.float64) / part[0].numel() ** 0.5
    return model


def weights_of(batch: int) -> Tensor:
    weights = normal(batch, seed=7).exp()
    return weights / weights.sum()


def jacobian(model: nn.Module, inputs: Tensor) -> dict[str, Tensor]:
    """`(B, m, *shape)` for each parameter, by its name."""
    parameters = {name: part.detach() for name, part in model.named_parameters()}

    def outputs(values: dict[str, Tensor]) -> Tensor:
        found: Tensor = functional_call(model, values, (inputs,)).flatten(1)
        return found

    found: dict[str, Tensor] = jacrev(outputs)(parameters)
    return found


def dense_blocks(model: nn.Module, inputs: Tensor, weights: Tensor) -> list[Tensor]:
    """The dense Fisher information of each layer's matrix, `(I·O, I·O)`."""
    whole, found = jacobian(model, inputs), []
    for layer in find_layers(model):
        names = [f"{layer.name}.{part}".lstrip(".") for part in ("weight", "bias")[: len(layer.parameters)]]
        batch, outputs = whole[names[0]].shape[:2]
        rows = torch.stack(
            [
                layer.to_matrix([whole[name][b, o] for name in names]).flatten() * weights[b].sqrt()
                for b in range(batch)
                for o in range(outputs)
            ]
        )
        found.append(rows.T @ rows)
    return found


def exactly(model: nn.Module, inputs: Tensor, weights: Tensor) -> Estimate:
    with Recorder(find_layers(model), len(inputs)) as recorder:
        output = model(inputs)
    return estimate(recorder, output, one_hot(output.shape, output, apart=False), weights)


class Case(NamedTuple):
    model: Callable[[], nn.Module]
    inputs: Tensor
    exact: tuple[int, ...]  # layers whose block is exact


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3, bias=False), nn.GELU(), nn.Linear(3, 2))


def linear_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3, bias=False), nn.Linear(3, 2))


def conv(nonlinear: bool) -> nn.Module:
    middle = nn.Tanh() if nonlinear else nn.Identity()
    return nn.Sequential(nn.Conv1d(2, 3, 5, dilation=2), middle, nn.Flatten(), nn.Linear(3, 2))


CASES = {
    "one layer, any batch": Case(lambda: nn.Sequential(nn.Linear(3, 2)), normal(6, 3), (0,)),
    "last layer, any batch": Case(mlp, normal(6, 3), (2,)),
    "last layer on a sequence": Case(mlp, normal(4, 5, 3), (2,)),
    "last layer a convolution": Case(lambda: nn.Sequential(nn.Conv1d(2, 3, 3, padding=1)), normal(4, 2, 7), (0,)),
    "no nonlinearity, any batch": Case(linear_mlp, normal(6, 3), (0, 1, 2)),
    "one example": Case(mlp, normal(1, 3), (0, 1, 2)),
    "one example, copied": Case(mlp, normal(1, 3).expand(5, 3), (0, 1, 2)),
    "convolution at one position, one example": Case(lambda: conv(True), normal(1, 2, 9), (0, 1)),
    "convolution at one position, no nonlinearity": Case(lambda: conv(False), normal(6, 2, 9), (0, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_blocks_equal_the_dense_fisher_where_they_are_exact(name: str) -> None:
    case = CASES[name]
    model, weights = seeded(case.model()), weights_of(len(case.inputs))
    found, truth = exactly(model, case.inputs, weights).blocks, dense_blocks(model, case.inputs, weights)
    for index in case.exact:
        assert_close(found[index].dense(len(found[index].g)), truth[index], rtol=1e-10, atol=1e-12)


def distance(model: nn.Module, inputs: Tensor, layer: int) -> float:
    weights = weights_of(len(inputs))
    found, truth = exactly(model, inputs, weights).blocks[layer], dense_blocks(model, inputs, weights)[layer]
    return float((found.dense(len(found.g)) - truth).norm() / truth.norm())


def test_blocks_differ_from_the_dense_fisher_elsewhere() -> None:
    """So that the test above can fail: the same networks, one assumption less."""
    generous = normal(6, 3) * 3  # far enough to leave the linear part of tanh
    assert distance(seeded(mlp()), generous, 0) > 0.01
    assert distance(seeded(conv(True)), normal(6, 2, 9) * 3, 0) > 0.01
    several = seeded(nn.Sequential(nn.Conv1d(2, 3, 3), nn.Flatten(), nn.Linear(21, 2)))
    assert distance(several, normal(1, 2, 9), 0) > 0.01


def test_random_probes_estimate_what_one_hot_probes_give() -> None:
    model, inputs, weights = seeded(mlp()), normal(6, 3), weights_of(6)
    truth = exactly(model, inputs, weights)
    with Recorder(find_layers(model), 6) as recorder:
        output = model(inputs)
    generator = torch.Generator().manual_seed(0)
    many = estimate(recorder, output, rademacher((4000, 6, 2), generator).double(), weights)
    single = estimate(recorder, output, rademacher((1, 6, 2), generator).double(), weights)
    for index in range(3):
        assert torch.equal(many.blocks[index].a, truth.blocks[index].a)
        error = (many.blocks[index].g - truth.blocks[index].g).norm() / truth.blocks[index].g.norm()
        assert float(error) < 0.05
    assert torch.equal(single.blocks[2].g, truth.blocks[2].g)  # the last layer needs no probes


@pytest.mark.parametrize("shape", [(6, 3), (6, 5, 3)])
def test_diagonal_of_other_parameters(shape: tuple[int, ...]) -> None:
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)))
    inputs, weights = normal(*shape), weights_of(6)
    names = ("1.weight", "1.bias")
    others = [dict(model.named_parameters())[name] for name in names]
    with Recorder(find_layers(model), 6) as recorder:
        output = model(inputs)
    whole = jacobian(model, inputs)
    truth = [torch.einsum("bmi,b->i", whole[name].square(), weights) for name in names]
    exact = estimate(recorder, output, one_hot(output.shape, output, apart=True), weights, others)
    probes = rademacher((3000, *output.shape), torch.Generator().manual_seed(0)).double()
    sampled = estimate(recorder, output, probes, weights, others)
    for expected, found, near in zip(truth, exact.diagonal, sampled.diagonal, strict=True):
        assert_close(found, expected, rtol=1e-10, atol=1e-12)
        assert_close(near, expected, rtol=0.15, atol=1e-12)


def test_scaled_multiplies_the_whole_block_once() -> None:
    model, inputs, weights = seeded(linear_mlp()), normal(6, 3), weights_of(6)
    estimated = exactly(model, inputs, weights)
    for one, other in zip(estimated.blocks, estimated.scaled(0.3).blocks, strict=True):
        assert_close(other.dense(len(other.g)), 0.3 * one.dense(len(one.g)))


def test_factors_by_their_definition() -> None:
    inputs, grads, weights = normal(4, 3, 5), normal(2, 4, 3, 6), weights_of(4)
    a = sum(weights[b] / 3 * torch.outer(inputs[b, s], inputs[b, s]) for b in range(4) for s in range(3))
    g = sum(torch.outer(row, row) / 2 for row in grads.reshape(-1, 6))
    assert_close(input_factor(inputs, weights), a)
    assert_close(gradient_factor(grads), g)


def test_rademacher_probes_are_signs_that_a_seed_repeats() -> None:
    one, other = (rademacher((1000, 20), torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, other)
    assert torch.equal(one.abs(), torch.ones(1000, 20))
    assert float((one.T @ one / 1000 - torch.eye(20)).abs().max()) < 0.15
