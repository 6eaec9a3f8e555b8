"""The step that everyone would write first, with the mathematics of the recipes `ogd`, `er` and `natsr`.

The dense network (every time step, every tap) with autograd; PyTorch's optimisers; a list as memory; and for NatSR
K-FAC with hooks: inputs and output gradients of every Linear and Conv1d, 100 Monte-Carlo samples at each refresh, one
backward pass for each, and inverses by `torch.linalg.inv`, made again when the recipe's damping asks for it.

Where there was a choice that does not change the numbers, the faster one was taken: the head's output factor is the
identity and needs no samples, and a sample's backward pass computes no weight gradients. What of a dense network can
not reach its output (time steps that nothing reads, taps that only ever meet padding) counts for nothing, as on the
cone: a pass over noise finds it out, once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from natsr.fisher import hadamard, rademacher
from natsr.forecasters.natural import NaturalOptions
from natsr.likelihoods import Gaussian, StudentT
from natsr.nets.dense import DenseTCN
from natsr.nets.tcn import ConeTCN
from natsr.recipes import NatsrOptions, PlainOptions
from natsr.types import Example

Method = Literal["ogd", "er", "natsr"]


@dataclass
class Draws:
    """Where the random numbers come from; with the generator of a recipe, they are those that the recipe draws."""

    generator: torch.Generator

    def replayed(self, kept: int, count: int) -> list[int]:
        """Places of `count` different examples."""
        chosen: list[int] = torch.randperm(kept, generator=self.generator)[:count].tolist()
        return chosen

    def place(self, seen: int) -> int:
        """Where the next example goes, if that is below the capacity."""
        return int(torch.randint(0, seen + 1, (), generator=self.generator))

    def probes(self, weights: Tensor, outputs: int, likelihood: StudentT, options: NaturalOptions) -> Tensor:
        """Output gradients `(K, B, m)` whose second moment is the identity."""
        count, shape = options.probes, (options.probes, len(weights), outputs)
        if options.probe == "sampled":
            drawn = likelihood.sample_score(shape, self.generator) / math.sqrt(likelihood.fisher)
        else:
            drawn = (hadamard if options.probe == "hadamard" else rademacher)(shape, self.generator)
        if not getattr(options, "allotted", False):
            return drawn.to(weights)
        share = (weights / weights.max() * count).ceil().clamp(1, count)  # probes of each example
        used = torch.arange(count)[:, None] < share
        return drawn.to(weights) * (used * (count / share).sqrt())[:, :, None]


@dataclass(eq=False)
class Watched:
    """One layer: what passes through it, its two factors and their inverses."""

    module: nn.Linear | nn.Conv1d
    is_head: bool
    seen: Tensor | None = None
    gave: Tensor | None = None
    live: Tensor | None = None  # (S,), one where a position reaches the output
    live_inputs: int = 0  # inputs that ever meet data, the bias among them
    a: Tensor | None = None
    g: Tensor | None = None
    inverses: tuple[Tensor, Tensor] | None = None

    def __post_init__(self) -> None:
        self.module.register_forward_hook(self._note)

    def _note(self, _: nn.Module, given: tuple[Tensor, ...], result: Tensor) -> None:
        self.seen, self.gave = given[0].detach(), result

    @property
    def output(self) -> Tensor:
        """Of the last forward pass."""
        assert self.gave is not None
        return self.gave

    def positions(self, values: Tensor) -> Tensor:
        """`(B, S, O)` from something shaped like the layer's output."""
        if isinstance(self.module, nn.Conv1d):
            return values.transpose(1, 2)
        return values.reshape(len(values), -1, values.shape[-1])

    def inputs(self) -> Tensor:
        """What the layer's matrix was multiplied by, a one last: `(B, S, I)`."""
        assert self.seen is not None
        if isinstance(self.module, nn.Conv1d):
            (taps,), (dilation,) = self.module.kernel_size, self.module.dilation
            reach = dilation * (taps // 2)
            rows = functional.unfold(self.seen[:, :, None], (1, taps), (1, dilation), (0, reach)).transpose(1, 2)
        else:
            rows = self.seen.reshape(len(self.seen), -1, self.seen.shape[-1])
        return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], 2)

    def gradient(self) -> Tensor:
        """The matrix `(O, I)` of the gradient that autograd left."""
        weight, bias = self.module.weight.grad, self.module.bias.grad if self.module.bias is not None else None
        assert weight is not None and bias is not None
        return torch.cat([weight.flatten(1), bias[:, None]], 1)

    def put(self, matrix: Tensor) -> None:
        """Make a matrix `(O, I)` the gradient that the optimiser will see."""
        assert self.module.bias is not None
        self.module.weight.grad = matrix[:, :-1].reshape(self.module.weight.shape)
        self.module.bias.grad = matrix[:, -1].clone()

    def average(self, a: Tensor, g: Tensor, weight: float) -> None:
        """Take a new estimate into the factors."""
        self.a = a if self.a is None else torch.lerp(self.a, a, weight)
        self.g = g if self.g is None else torch.lerp(self.g, g, weight)

    def invert(self, damping: float) -> tuple[Tensor, Tensor]:
        """`(A + π√τ)⁻¹` and `(G + √τ/π)⁻¹`, the factored rule of Martens and Grosse."""
        assert self.a is not None and self.g is not None
        ratio = float((self.a.trace() / self.live_inputs) / (self.g.trace() / len(self.g)))
        balance = math.sqrt(ratio) if 0 < ratio < math.inf else 1.0
        root = math.sqrt(damping)
        return _damped_inverse(self.a, balance * root), _damped_inverse(self.g, root / balance)


def _damped_inverse(matrix: Tensor, damping: float) -> Tensor:
    inverse: Tensor = torch.linalg.inv(matrix + damping * torch.eye(len(matrix), dtype=matrix.dtype))
    return inverse


@dataclass
class Trigger:
    """The refresh rule: the loss is among the worst of late, or it has been too long."""

    options: NatsrOptions
    mean: float | None = None
    variance: float = 0.0
    since: int = 0

    def due(self, loss: float) -> bool:
        """Whether to estimate again; takes the loss into the averages."""
        if self.mean is None:
            self.mean, self.variance = loss, loss**2
            return True
        away = loss - self.mean
        due = away > self.options.worst * math.sqrt(self.variance) or self.since + 1 >= self.options.every
        self.mean += self.options.recent * away
        self.variance += self.options.recent * (away**2 - self.variance)
        self.since = 0 if due else self.since + 1
        return due


@dataclass
class Textbook:
    """One of three methods on the dense network.

    Args:
        cone: The network whose initial weights it starts from.
        method: Which.
        draws: Random numbers.
        options: The recipe's.
        natural: How it estimates and damps; by default as the recipe damps, with 100 samples.
    """

    cone: ConeTCN
    method: Method
    draws: Draws
    options: NatsrOptions = field(default_factory=NatsrOptions)
    natural: NaturalOptions | None = None

    def __post_init__(self) -> None:
        self.how = self.natural or sampled(self.options)
        self.net = DenseTCN(self.cone)
        self.memory: list[tuple[Tensor, Tensor]] = []
        self.seen = self.refreshes = 0
        self.likelihood: Gaussian | StudentT = Gaussian()
        self.optimiser: torch.optim.Optimizer
        if self.method == "natsr":
            self.likelihood = StudentT(self.options.dof)
            self.optimiser = torch.optim.SGD(self.net.parameters(), lr=self.options.rate)
            self.trigger = Trigger(self.options)
            self.made = math.nan  # the damping that the inverses are for
            self.smoothed: list[Tensor] = []
            self.layers = list(self._watched())
            self._find_what_is_live()
        else:
            self.optimiser = torch.optim.AdamW(self.net.parameters(), lr=PlainOptions().rate)

    def forecast(self, window: Tensor) -> Tensor:
        """`(B, H, C)`."""
        with torch.no_grad():
            output: Tensor = self.net(window)
        return output.view(len(window), self.cone.task.horizon, self.cone.task.channels)

    def learn(self, example: Example) -> None:
        """One step on one new example, all of whose labels are known, and on 8 of the memory's."""
        dtype = self.cone.weights.dtype
        window, target = example.window.to(dtype), example.target.to(dtype).flatten(1)
        batch = [(window, target), *self._replayed()]
        windows, targets = torch.cat([w for w, _ in batch]), torch.cat([t for _, t in batch])
        share = self.options.share if len(batch) > 1 else 0.0
        weights = torch.full((len(batch),), share / (1 + share) / max(1, len(batch) - 1), dtype=dtype)
        weights[0] = 1 / (1 + share)
        output: Tensor = self.net(windows)
        error = targets - output
        loss = self.likelihood.nll(error).mean(1) @ weights
        self.optimiser.zero_grad()
        if isinstance(self.likelihood, StudentT):
            self._natural(output, loss, weights)
            self.likelihood = self.likelihood.adapted(error.detach(), self.options.scale_rate, self.options.scale_floor)
        else:
            torch.autograd.backward(loss)
        self.optimiser.step()
        if self.method != "ogd":
            self._remember(window, target)

    # ---- memory --------------------------------------------------------------------------------------------------

    def _replayed(self) -> list[tuple[Tensor, Tensor]]:
        if not self.memory:
            return []
        return [self.memory[place] for place in self.draws.replayed(len(self.memory), self.options.draws)]

    def _remember(self, window: Tensor, target: Tensor) -> None:
        if len(self.memory) < self.options.memory:
            self.memory.append((window, target))
        elif (place := self.draws.place(self.seen)) < self.options.memory:
            self.memory[place] = (window, target)
        self.seen += 1

    # ---- natural gradient ----------------------------------------------------------------------------------------

    def _watched(self) -> Iterator[Watched]:
        for module in self.net.modules():
            if isinstance(module, nn.Linear | nn.Conv1d):
                yield Watched(module, module is self.net.head)

    def _find_what_is_live(self) -> None:
        """Positions that reach the output and inputs that meet data, from one pass over positive noise."""
        task, generator = self.cone.task, torch.Generator().manual_seed(0)
        for module in (layer.module for layer in self.layers):
            module.weight.data.fill_(1 / module.weight[0].numel())  # no zero by accident, and nothing grows
        noise = torch.rand(1, task.window, task.inputs, generator=generator).to(self.cone.weights)
        output = self.net(noise).sum()
        grads = torch.autograd.grad(output, [layer.output for layer in self.layers])
        for layer, grad in zip(self.layers, grads, strict=True):
            live = layer.positions(grad)[0].abs().amax(1) > 0
            layer.live = live.to(noise)
            layer.live_inputs = int((layer.inputs()[0, live].abs().amax(0) > 0).sum())
        self.net.load(self.cone)

    def _natural(self, output: Tensor, loss: Tensor, weights: Tensor) -> None:
        """Replace the gradient by the averaged natural one."""
        assert isinstance(self.likelihood, StudentT)
        m, kappa = output.shape[1], self.likelihood.fisher
        refresh = self.trigger.due(float(loss.detach()))
        tau = self.how.law(self.likelihood.variance)
        if refresh:
            self.refreshes += 1
            self._estimate(output, weights)
        torch.autograd.backward(loss * math.sqrt(m))
        if invert := refresh or self._has_moved(tau / kappa):
            self.made = tau / kappa
        found = []
        for layer in self.layers:
            if layer.inverses is None or invert:
                layer.inverses = layer.invert(tau / kappa)
            a, g = layer.inverses
            gradient = layer.gradient()
            found.append((gradient @ a * g if layer.is_head else g @ gradient @ a) / kappa)
        norm = math.sqrt(sum(float(part.square().sum()) for part in found))
        bound = self.options.clip * self.likelihood.bound(m, tau) / math.sqrt(m)
        if self.options.clip and norm > bound:
            found = [part * (bound / norm) for part in found]
        weight = self.options.average
        self.smoothed = [torch.lerp(old, new, weight) for old, new in zip(self.smoothed or found, found, strict=True)]
        for layer, part in zip(self.layers, self.smoothed, strict=True):
            layer.put(part)

    def _has_moved(self, damping: float) -> bool:
        """Whether the inverses are for another damping than this one."""
        reach = 1 + self.how.drift
        near = self.made / reach <= damping <= self.made * reach
        return {"step": True, "refresh": False, "drift": not near}[self.how.damped]

    def _estimate(self, output: Tensor, weights: Tensor) -> None:
        """New factors, for outputs of Fisher information one: a backward pass for each sample."""
        assert isinstance(self.likelihood, StudentT)
        below = [layer for layer in self.layers if not layer.is_head]
        sums = [torch.zeros(layer.module.weight.shape[0], layer.module.weight.shape[0]).to(weights) for layer in below]
        for probe in self.draws.probes(weights, output.shape[1], self.likelihood, self.how):
            pulled = probe * weights.sqrt()[:, None]
            grads = torch.autograd.grad(output, [layer.output for layer in below], pulled, retain_graph=True)
            for total, layer, grad in zip(sums, below, grads, strict=True):
                rows = layer.positions(grad).flatten(0, 1)
                total += rows.T @ rows
        factors = iter([total / self.how.probes for total in sums])
        known = self._exact(output, weights) if self.how.closed else {}
        for index, layer in enumerate(self.layers):
            inputs = layer.inputs()
            assert layer.live is not None
            spread = (weights[:, None] * layer.live / layer.live.sum()).sqrt()[:, :, None]
            rows = (inputs * spread).flatten(0, 1)
            g = torch.ones(1, 1).to(weights) if layer.is_head else next(factors)
            layer.average(rows.T @ rows, known.get(index, g), self.options.curvature_average)

    def _exact(self, output: Tensor, weights: Tensor) -> dict[int, Tensor]:
        """The output factors that the recipe has in closed form, here from every output in turn."""
        task = self.cone.task
        trace = self.cone.trace(torch.zeros(len(weights), task.window, task.inputs).to(weights))
        places = sorted(self.cone.known_moments(trace, weights))
        sums: dict[int, Tensor] = {}
        for one in torch.eye(output.shape[1]).to(weights):
            pulled = weights.sqrt()[:, None] * one
            tops = [self.layers[place].output for place in places]
            for place, grad in zip(places, torch.autograd.grad(output, tops, pulled, retain_graph=True), strict=True):
                rows = self.layers[place].positions(grad).flatten(0, 1)
                sums[place] = sums.get(place, torch.zeros(()).to(weights)) + rows.T @ rows
        return sums


def sampled(options: NatsrOptions, samples: int = 100) -> NaturalOptions:
    """As a recipe damps, with samples of the likelihood for probes and nothing in closed form."""
    found = options.natural().options
    plain: dict[str, Any] = {"allotted": False} if hasattr(found, "allotted") else {}
    return replace(found, probes=samples, probe="sampled", closed=False, **plain)
