"""FSNet's adapters: what a layer's recent gradients say becomes coefficients of its weights, bias and output.

Each convolution keeps a slow and a fast average of its normalised weight gradient. The slow one, cut into as many
chunks as the layer has inputs, goes through a small network (a hidden layer of 64, SiLU) that all chunks share, and
each chunk gives three numbers for the taps of one input and some for bias and output. When the two averages point
apart, the layer asks its associative memory: the columns most like its recent coefficients are blended into the
coefficients and written over with them.

Taps that never meet a row have no gradient: their share of the averages is zero, and the weights that would read it
have no effect. So the averages and the controller are kept on the live taps only. The coefficients of dead taps do
enter the memory, and are kept.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

from natsr.nets.base import Layer
from natsr.nets.runs import Run

HIDDEN = 64
COLUMNS, CHOSEN, TEMPERATURE = 32, 2, 0.5
SLOW, FAST = 0.9, 0.3
#: The averages point apart when their cosine is below minus this; the share of a layer's own coefficients in a blend.
APART = 0.75
#: How a column counts when the memory is read, and what is written (docs/decisions/0011).
Recall = Literal["attention", "index"]


class Adapter(NamedTuple):
    """The sizes of the adapters of a run of convolutions, and where their weights lie."""

    run: Run
    controller: int  # first number of the controllers, (n, live chunk + 1, 64)
    heads: int  # first number of the heads, (n, 65, 3 + 2·per)

    @property
    def per(self) -> int:
        """Outputs for each input."""
        return self.run.outputs // self.run.inputs

    @property
    def chunk(self) -> int:
        """Live numbers of the gradient in a chunk."""
        return self.run.taps * self.run.outputs

    @property
    def given(self) -> int:
        """Coefficients from a chunk: three taps, biases, outputs."""
        return 3 + 2 * self.per

    def controllers(self, flat: Tensor) -> Tensor:
        """Their part of a flat vector, biases last."""
        return _stacked(flat, self.controller, (self.run.number, self.chunk + 1, HIDDEN))

    def head(self, flat: Tensor) -> Tensor:
        """The part of the heads, biases last."""
        return _stacked(flat, self.heads, (self.run.number, HIDDEN + 1, self.given))


def _stacked(flat: Tensor, start: int, shape: tuple[int, int, int]) -> Tensor:
    return flat[start : start + shape[0] * shape[1] * shape[2]].view(shape)


def laid_out(convolutions: tuple[Run, ...], start: int) -> tuple[tuple[Adapter, ...], tuple[Layer, ...]]:
    """The adapters of a network's convolutions with their weights from `start` on, and these as layers to draw."""
    found, layers = [], []
    for index, run in enumerate(convolutions):
        adapter = Adapter(run, start, 0)
        rows = adapter.chunk + 1
        for n in range(run.number):
            layers.append(Layer(f"controller{index}.{n}", start, rows, HIDDEN, 3 * run.outputs))
            start += rows * HIDDEN
        found.append(adapter._replace(heads=start))
        for n in range(run.number):
            layers.append(Layer(f"heads{index}.{n}", start, HIDDEN + 1, adapter.given, HIDDEN))
            start += (HIDDEN + 1) * adapter.given
    return tuple(found), tuple(layers)


class Averages(NamedTuple):
    """What a run of layers remembers, changed in place."""

    slow: Tensor  # (n, o, taps·c)
    fast: Tensor
    query: Tensor  # (n, c, given), the average of the coefficients
    memory: Tensor  # (n, c·given, columns)
    apart: Tensor  # (n,) bool: the memory is asked at the next pass


class Calibration(NamedTuple):
    """Coefficients of a run of layers, with what the chain rule needs, and what the pass leaves behind."""

    taps: Tensor  # (n, taps·c), of the live ones
    biases: Tensor  # (n, o)
    outputs: Tensor  # (n, o)
    hidden: Tensor  # (n, c, 64), before SiLU
    active: Tensor  # after it
    own: Tensor  # (n, 1, 1): the share of the layer's own coefficients, 1 where the memory was not asked
    query: Tensor  # the averages as they will be after the pass
    memory: Tensor | None  # None: as it was


def fresh(adapter: Adapter, generator: torch.Generator, like: Tensor) -> Averages:
    """No gradients yet, and a memory of small random columns."""
    run, n = adapter.run, adapter.run.number
    slow = torch.zeros(n, run.outputs, run.taps * run.inputs).to(like)
    size = run.inputs * adapter.given
    reach = (6 / (size + COLUMNS)) ** 0.5
    memory = torch.empty(n, size, COLUMNS, dtype=like.dtype).uniform_(-reach, reach, generator=generator)
    memory = torch.stack([limited(one) for one in memory]).to(like)
    query = torch.zeros(n, run.inputs, adapter.given).to(like)
    return Averages(slow, slow.clone(), query, memory, torch.zeros(n, dtype=torch.bool))


def limited(memory: Tensor) -> Tensor:
    """A memory of at most unit norm."""
    small: Tensor = memory / memory.norm().clamp(min=1.0)
    return small


def calibrated(adapter: Adapter, flat: Tensor, averages: Averages, recall: Recall, first: bool) -> Calibration:
    """The coefficients of the next pass; changes nothing.

    Args:
        adapter: Which layers.
        flat: The network's weights.
        averages: What the layers remember.
        recall: How the memory is read and written.
        first: Whether it is the very first pass, which does not enter the average of coefficients.
    """
    run, controllers, heads = adapter.run, adapter.controllers(flat), adapter.head(flat)
    chunks = averages.slow.view(run.number, run.inputs, adapter.chunk)
    hidden = torch.baddbmm(controllers[:, -1:], chunks, controllers[:, :-1])
    active = silu(hidden)
    given = torch.baddbmm(heads[:, -1:], active, heads[:, :-1])
    query = averages.query if first else FAST * averages.query + (1 - FAST) * given
    own, memory = given.new_ones(run.number, 1, 1), None
    asking = averages.apart.nonzero().flatten().tolist()
    if asking:
        memory = averages.memory.clone()
        own[asking] = APART
        given = given * own
        for layer in asking:
            read, memory[layer] = recalled(memory[layer], query[layer].flatten(), recall)
            given[layer] += (1 - APART) * read.view_as(given[layer])
    per = adapter.per
    return Calibration(
        given[..., run.first : run.first + run.taps].transpose(1, 2).reshape(run.number, -1),
        given[..., 3 : 3 + per].reshape(run.number, -1),
        given[..., 3 + per :].reshape(run.number, -1),
        hidden,
        active,
        own,
        query,
        memory,
    )


def recalled(memory: Tensor, key: Tensor, recall: Recall) -> tuple[Tensor, Tensor]:
    """What a memory `(size, columns)` says to a key, and the memory after it was asked.

    The two columns that attention likes best are read, as a sum weighted by attention, and move towards the key. The
    published code weighs them by their *numbers* instead, and writes what it read (`index`).
    """
    attention = torch.softmax(key @ memory / TEMPERATURE, 0)
    weights, chosen = torch.topk(attention, CHOSEN)
    columns = memory[:, chosen]
    read = columns @ (weights if recall == "attention" else chosen.to(columns))
    written = torch.outer(key if recall == "attention" else read, weights)
    after = memory.clone()
    after[:, chosen] = APART * columns + (1 - APART) * written
    return read, limited(after)


def scale_(adapter: Adapter, effective: Tensor, coefficients: Calibration) -> None:
    """Turn a layer's weights, in place, into the effective ones."""
    matrices = adapter.run.view(effective)
    matrices[:, :-1].mul_(coefficients.taps[:, :, None])
    matrices[:, -1].mul_(coefficients.biases)
    matrices.mul_(coefficients.outputs[:, None])


def pull_(adapter: Adapter, flat: Tensor, weights: Tensor, averages: Averages, coefficients: Calibration) -> None:
    """Turn, in place, the gradient by effective weights into the one by weights, and add that of the adapter.

    Args:
        adapter: Which layers.
        flat: A flat gradient, whose part of these layers is by the effective weights.
        weights: The network's weights.
        averages: What the layers remembered when the coefficients were computed.
        coefficients: Those of the pass.
    """
    run, per = adapter.run, adapter.per
    grads, raw = run.view(flat), run.view(weights)
    taps, biases, outputs = coefficients.taps, coefficients.biases, coefficients.outputs
    products = grads * raw  # by the effective weights, times the weights
    by_taps = torch.bmm(products[:, :-1], outputs[:, :, None]).squeeze(2)
    by_biases = products[:, -1] * outputs
    by_outputs = torch.bmm(taps[:, None], products[:, :-1]).squeeze(1).addcmul_(products[:, -1], biases)
    grads.mul_(outputs[:, None])
    grads[:, :-1].mul_(taps[:, :, None])
    grads[:, -1].mul_(biases)
    by_given = flat.new_zeros(run.number, run.inputs, adapter.given)
    by_given[..., run.first : run.first + run.taps] = by_taps.view(run.number, run.taps, run.inputs).transpose(1, 2)
    by_given[..., 3 : 3 + per] = by_biases.view(run.number, run.inputs, per)
    by_given[..., 3 + per :] = by_outputs.view(run.number, run.inputs, per)
    by_given.mul_(coefficients.own)
    heads = adapter.head(flat)
    torch.bmm(coefficients.active.transpose(1, 2), by_given, out=heads[:, :-1])
    heads[:, -1] = by_given.sum(1)
    by_active = torch.bmm(by_given, adapter.head(weights)[:, :-1].transpose(1, 2))
    by_hidden = torch.ops.aten.silu_backward(by_active, coefficients.hidden)
    controllers = adapter.controllers(flat)
    chunks = averages.slow.view(run.number, run.inputs, adapter.chunk)
    torch.bmm(chunks.transpose(1, 2), by_hidden, out=controllers[:, :-1])
    controllers[:, -1] = by_hidden.sum(1)


def followed(adapter: Adapter, flat: Tensor, averages: Averages, online: bool) -> None:
    """Take a step's gradient into the averages, in place, and see whether they point apart.

    Args:
        adapter: Which layers.
        flat: The gradient by the weights.
        averages: What the layers remember.
        online: Off in the warm-up, where the memory is never asked.
    """
    run = adapter.run
    grads = run.view(flat)[:, :-1].view(run.number, run.taps, run.inputs, run.outputs)
    unit = grads / grads.norm(dim=2, keepdim=True).clamp(min=1e-12)
    unit = unit.view(run.number, -1, run.outputs).transpose(1, 2)
    averages.fast.mul_(FAST).add_(unit, alpha=1 - FAST)
    averages.apart.zero_()
    if online:
        fast, slow = averages.fast.view(run.number, -1), averages.slow.view(run.number, -1)
        cosine = torch.cosine_similarity(fast, slow, dim=1, eps=1e-6)
        averages.apart.copy_(cosine < -APART)
    averages.slow.mul_(SLOW).add_(unit, alpha=1 - SLOW)
