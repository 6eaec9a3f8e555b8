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


class Batch(NamedTuple):
    """How many examples a step has, and how many probes a refresh pulls back through them, over all examples."""

    examples: int
    probes: int = 0
    closed: bool = False  # whether the layers right below the head need none


def refreshed(net: ConeTCN, layers: Sequence[Rows], batch: Batch) -> list[Product]:
    """What a refresh adds: probes pulled back to every layer's output, the factors, and their inverses."""
    n, k, known = batch.examples, batch.probes, closed_forms(net, layers) if batch.closed else {}
    found = [Product("probes", k * s, layer.outputs, layer.inputs - 1) for layer, s in layers[1:]]
    found += [Product("factors", layer.inputs, n * s, layer.inputs) for layer, s in layers]
    for index, (layer, s) in enumerate(layers[:-1]):
        found += known.get(index, [Product("factors", layer.outputs, k * s, layer.outputs)])
    return found + inverses(layers)


def closed_forms(net: ConeTCN, layers: Sequence[Rows]) -> dict[int, list[Product]]:
    """The products of the output factors that are known without probes, by layer; two layers share one."""
    m, top, window = net.task.outputs, net.hidden, net.weights.new_zeros(1, net.task.window, net.task.inputs)
    known = net.known_moments(net.trace(window), net.weights.new_ones(1))
    second = Product("factors", top, m, top)
    parts = {len(layers) - 2: [], len(layers) - 3: [second], len(layers) - 4: [Product("factors", top, top, m), second]}
    return {place: parts[place] for place in known}


def products(net: ConeTCN, kind: str, given: Batch) -> list[Product]:
    """Of one step: `ogd`, `er`, `plain`, `inverting` or `refresh`."""
    layers, batch = applied(net), given.examples
    if kind in ("ogd", "er"):
        return passes(layers, batch) + gradients(layers, batch)
    found = passes(layers, batch) + preconditioned(layers, batch)
    if kind == "refresh":
        return found + refreshed(net, layers, given)
    return found + (inverses(layers) if kind == "inverting" else [])


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
