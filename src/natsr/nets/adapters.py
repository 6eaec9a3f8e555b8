"""FSNet's adapters: what a layer's recent gradients say becomes coefficients of its weights, bias and output.

Each convolution keeps a slow and a fast average of its normalised weight gradient. The slow one, cut into as many
chunks as the layer has inputs, goes through a small network (a hidden layer of 64, SiLU) that all chunks share, and
each chunk gives three numbers for the taps of one input and some for bias and output. When the two averages point
apart, the layer asks its associative memory: the columns most like its recent coefficients are blended into the
coefficients and written over with them.

Taps that never meet a row have no gradient: their share of the averages is zero, and the weights that would read it
have no effect. So the averages and the controller are kept on the live taps only. The coefficients of dead taps do
enter the memory, and are kept.

Flat vectors, and with them everything else, may have an axis of several networks in front.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import silu

from natsr.nets.base import Layer
from natsr.nets.runs import Run, split

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
    return split(flat[..., start : start + shape[0] * shape[1] * shape[2]], *shape)


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
    return Averages(slow, slow.clone(), query, memory, torch.zeros(n, dtype=torch.bool, device=like.device))


def limited(memory: Tensor) -> Tensor:
    """A memory of at most unit norm."""
    norm: Tensor = torch.linalg.vector_norm(memory, dim=(-2, -1), keepdim=True)
    return memory / norm.clamp(min=1.0)


def calibrated(
    adapter: Adapter, flat: Tensor, averages: Averages, recall: Recall | None, begun: bool | Tensor
) -> Calibration:
    """The coefficients of the next pass; changes nothing.

    Args:
        adapter: Which layers.
        flat: The network's weights.
        averages: What the layers remember.
        recall: How the memory is read and written; `None`: no layer asks it.
        begun: Whether a pass has been learned from: the very first does not enter the average of coefficients. Of
            several networks, `(N,)`.
    """
    run, controllers, heads = adapter.run, adapter.controllers(flat), adapter.head(flat)
    hidden = _chunks(adapter, averages) @ controllers[..., :-1, :] + controllers[..., -1:, :]
    active = silu(hidden)
    given = active @ heads[..., :-1, :] + heads[..., -1:, :]
    query = FAST * averages.query + (1 - FAST) * given
    if isinstance(begun, Tensor):
        query = torch.where(begun[:, None, None, None], query, averages.query)
    elif not begun:
        query = averages.query
    asks, memory = averages.apart[..., None, None], None
    own = torch.where(asks, APART, 1.0).to(given)
    if recall is not None and (flat.ndim > 1 or bool(asks.any())):  # of several networks nobody looks
        read, after = recalled(averages.memory, query.flatten(-2), recall)
        given = torch.where(asks, torch.lerp(read.view_as(given), given, APART), given)
        memory = torch.where(asks, after, averages.memory)
    per = adapter.per
    return Calibration(
        given[..., run.first : run.first + run.taps].transpose(-2, -1).flatten(-2),
        given[..., 3 : 3 + per].flatten(-2),
        given[..., 3 + per :].flatten(-2),
        hidden,
        active,
        own,
        query,
        memory,
    )


def _chunks(adapter: Adapter, averages: Averages) -> Tensor:
    """The slow averages, cut into as many pieces as there are inputs, `(n, c, live chunk)`."""
    return averages.slow.view(*averages.slow.shape[:-2], adapter.run.inputs, adapter.chunk)


def recalled(memory: Tensor, key: Tensor, recall: Recall) -> tuple[Tensor, Tensor]:
    """What memories `(…, size, columns)` say to keys `(…, size)`, and the memories after they were asked.

    The two columns that attention likes best are read, as a sum weighted by attention, and move towards the key. The
    published code weighs them by their *numbers* instead, and writes what it read (`index`).
    """
    attention = torch.softmax((key.unsqueeze(-2) @ memory).squeeze(-2) / TEMPERATURE, -1)
    weights, chosen = torch.topk(attention, CHOSEN)
    places = chosen.unsqueeze(-2).expand(*memory.shape[:-1], CHOSEN)
    columns, weights = memory.gather(-1, places), weights.unsqueeze(-2)
    read = (columns * (weights if recall == "attention" else places.to(columns))).sum(-1)
    written = (key if recall == "attention" else read).unsqueeze(-1) * weights
    after = memory.scatter(-1, places, APART * columns + (1 - APART) * written)
    return read, limited(after)


def scale_(adapter: Adapter, effective: Tensor, coefficients: Calibration) -> None:
    """Turn a layer's weights, in place, into the effective ones."""
    matrices = adapter.run.view(effective)
    matrices[..., :-1, :].mul_(coefficients.taps.unsqueeze(-1))
    matrices[..., -1, :].mul_(coefficients.biases)
    matrices.mul_(coefficients.outputs.unsqueeze(-2))


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
    by_taps = (products[..., :-1, :] @ outputs.unsqueeze(-1)).squeeze(-1)
    by_biases = products[..., -1, :] * outputs
    by_outputs = (taps.unsqueeze(-2) @ products[..., :-1, :]).squeeze(-2).addcmul_(products[..., -1, :], biases)
    grads.mul_(outputs.unsqueeze(-2))
    grads[..., :-1, :].mul_(taps.unsqueeze(-1))
    grads[..., -1, :].mul_(biases)
    by_given = torch.zeros_like(coefficients.query)
    by_given[..., run.first : run.first + run.taps] = split(by_taps, run.taps, run.inputs).transpose(-2, -1)
    by_given[..., 3 : 3 + per] = split(by_biases, run.inputs, per)
    by_given[..., 3 + per :] = split(by_outputs, run.inputs, per)
    by_given.mul_(coefficients.own)
    heads, controllers = adapter.head(flat), adapter.controllers(flat)
    heads[..., :-1, :] = coefficients.active.transpose(-2, -1) @ by_given
    heads[..., -1, :] = by_given.sum(-2)
    by_active = by_given @ adapter.head(weights)[..., :-1, :].transpose(-2, -1)
    by_hidden = torch.ops.aten.silu_backward(by_active, coefficients.hidden)
    controllers[..., :-1, :] = _chunks(adapter, averages).transpose(-2, -1) @ by_hidden
    controllers[..., -1, :] = by_hidden.sum(-2)


def unit(adapter: Adapter, flat: Tensor) -> Tensor:
    """A gradient by the weights as the averages take it in: normalised over the inputs, `(n, o, taps·c)`."""
    grads = adapter.run.taps_of(flat)
    normed: Tensor = grads / torch.linalg.vector_norm(grads, dim=-2, keepdim=True).clamp(min=1e-12)
    return normed.flatten(-3, -2).transpose(-2, -1)


def point_apart(averages: Averages) -> Tensor:
    """Whether the two averages of each layer do, `(n,)`."""
    fast, slow = averages.fast.flatten(-2), averages.slow.flatten(-2)
    return torch.cosine_similarity(fast, slow, dim=-1, eps=1e-6) < -APART


def followed(adapter: Adapter, flat: Tensor, averages: Averages, online: bool) -> None:
    """Take a step's gradient into the averages, in place, and see whether they point apart.

    Args:
        adapter: Which layers.
        flat: The gradient by the weights.
        averages: What the layers remember.
        online: Off in the warm-up, where the memory is never asked.
    """
    new = unit(adapter, flat)
    averages.fast.mul_(FAST).add_(new, alpha=1 - FAST)
    averages.apart.copy_(point_apart(averages) if online else torch.zeros_like(averages.apart))
    averages.slow.mul_(SLOW).add_(new, alpha=1 - SLOW)
