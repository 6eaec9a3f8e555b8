"""The floor: a step's own multiplications as plain matrix products of the same shapes, and nothing else.

Shapes are read off the cone. No activation, no copy, no loss, no random number, no optimiser; inverses are taken to be
known in a plain step. Where the thin factors of a layer's gradient are cheaper to precondition than the whole, they
are. A symmetric inverse of size `n` takes `n³` operations and stands here as one product with as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import torch

from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN

Stage = Literal["forward", "backward", "gradient", "precondition", "probes", "factors", "inverses"]
#: In the order in which a step needs them.
STAGES: tuple[Stage, ...] = ("forward", "backward", "gradient", "precondition", "probes", "factors", "inverses")
#: What only a refresh has.
REFRESH: tuple[Stage, ...] = ("probes", "factors", "inverses")


class Product(NamedTuple):
    """`(rows, inner) @ (inner, columns)`."""

    stage: Stage
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.inner * self.columns

    @property
    def numbers(self) -> int:
        """Read and written, each once."""
        return self.rows * self.inner + self.inner * self.columns + self.rows * self.columns


class Rows(NamedTuple):
    """A layer and how often it is applied for one example."""

    layer: Layer
    positions: int


def applied(net: ConeTCN) -> list[Rows]:
    """Every layer of a cone."""
    task = net.task
    trace = net.trace(net.weights.new_zeros(1, task.window, task.inputs))
    taps = net.taps(trace, net.weights.new_zeros(1, 1, task.outputs))
    return [Rows(layer, tap.inputs.shape[1]) for layer, tap in zip(net.layers, taps, strict=True)]


def passes(layers: Sequence[Rows], batch: int) -> list[Product]:
    """Forward and back to the inputs of every layer but the first."""
    found = [Product("forward", batch * s, layer.inputs - 1, layer.outputs) for layer, s in layers]
    return found + [Product("backward", batch * s, layer.outputs, layer.inputs - 1) for layer, s in layers[1:]]


def gradients(layers: Sequence[Rows], batch: int) -> list[Product]:
    """Weight gradients."""
    return [Product("gradient", layer.inputs - 1, batch * s, layer.outputs) for layer, s in layers]


def preconditioned(layers: Sequence[Rows], batch: int) -> list[Product]:
    """Weight gradients between two known inverses, by whichever way takes fewer multiplications; the head's has one."""
    found: list[Product] = []
    for index, (layer, s) in enumerate(layers):
        i, o, n, head = layer.inputs, layer.outputs, batch * s, index == len(layers) - 1
        whole = [Product("gradient", i, n, o), Product("precondition", i, i, o)]
        thin = [Product("precondition", n, i, i), Product("gradient", i, n, o)]
        if not head:
            whole.append(Product("precondition", i, o, o))
            thin.append(Product("precondition", n, o, o))
        found += min(whole, thin, key=lambda way: sum(product.flops for product in way))
    return found


def inverses(layers: Sequence[Rows]) -> list[Product]:
    """One for each factor; the head's output factor is a number."""
    sizes = [layer.inputs for layer, _ in layers] + [layer.outputs for layer, _ in layers[:-1]]
    return [Product("inverses", n, (n + 1) // 2, n) for n in sizes]


def refreshed(layers: Sequence[Rows], batch: int, probes: int) -> list[Product]:
    """What a refresh adds: probes pulled back to every layer's output, the factors, and their inverses."""
    found = [Product("probes", probes * batch * s, layer.outputs, layer.inputs - 1) for layer, s in layers[1:]]
    found += [Product("factors", layer.inputs, batch * s, layer.inputs) for layer, s in layers]
    found += [Product("factors", layer.outputs, probes * batch * s, layer.outputs) for layer, s in layers[:-1]]
    return found + inverses(layers)


def products(net: ConeTCN, kind: str, probes: int, batch: int) -> list[Product]:
    """Of one step: `ogd`, `er`, `plain`, `inverting` or `refresh`."""
    layers = applied(net)
    if kind in ("ogd", "er"):
        return passes(layers, batch) + gradients(layers, batch)
    found = passes(layers, batch) + preconditioned(layers, batch)
    extra = {"plain": [], "inverting": inverses(layers), "refresh": refreshed(layers, batch, probes)}
    return found + extra[kind]


def flops(found: Iterable[Product]) -> int:
    """Of all of them."""
    return sum(product.flops for product in found)


def mebibytes(found: Iterable[Product], dtype: torch.dtype = torch.float32) -> float:
    """Read and written by all of them, each operand once for each product."""
    return sum(product.numbers for product in found) * dtype.itemsize / 2**20


def runner(found: Sequence[Product]) -> Callable[[], None]:
    """Does them one after the other, each with operands of its own, into memory that is there already."""
    generator = torch.Generator().manual_seed(0)
    operands = [
        (
            torch.randn(p.rows, p.inner, generator=generator),
            torch.randn(p.inner, p.columns, generator=generator),
            torch.empty(p.rows, p.columns),
        )
        for p in found
    ]

    def run() -> None:
        for left, right, out in operands:
            torch.mm(left, right, out=out)

    return run
