"""Networks whose convolutions carry coefficients: effective weights are products, and the chain rule goes through them.

A calibrated convolution computes `(conv(x; W·w) + bias·b) · f`. All three coefficients can be taken into the weights,
so that the network itself is any one of this package, on its cone, and only the *effective* weights and the way back
from their gradient are new. Layers of one shape that lie beside each other in the flat weights form a `Run` and are
handled at once.
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from natsr.native.calls import Move
from natsr.nets.base import Layer, Traced
from natsr.nets.factors import CompiledFactors, compiled_body
from natsr.nets.runs import Run, split
from natsr.types import StateError

T = TypeVar("T", bound=Traced)


class Body(Protocol[T]):
    """A network with convolutions in residual blocks, over flat weights."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Where each layer lies."""

    weights: Tensor

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer, for dropout masks."""

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)`."""

    def trace(self, window: Tensor, keep: Tensor | None = None) -> T:
        """Forward, keeping what the adjoint needs."""

    def gradient(self, trace: T, grad: Tensor) -> Tensor:
        """The flat gradient of `Σ grad · output`."""


class Part(NamedTuple):
    """The weights of a run and their factors in a flat vector, as views."""

    taps: Tensor  # (n, taps, c, o)
    pairs: Tensor  # `w`, (n, c, o)
    outputs: Tensor  # `f`, (n, 1, o)


class Scaled(Generic[T]):
    """A network whose convolutions have a learned factor for each pair of channels and each output, as OneNet's have.

    The effective weights of a convolution are `W[tap, c, o] · w[c, o] · (1 + f[o])`, with `w` and `f` one at first. Its
    bias is `bias · b`, both zero at first: each is the other's gradient, so that both stay zero for ever, and they are
    left out (docs/decisions/0011).

    Args:
        body: The network; from then on its weights are the effective ones.
        convolutions: Where its convolutions are, from `runs`.
    """

    def __init__(self, body: Body[T], convolutions: tuple[Run, ...]) -> None:
        self.body = body
        self.runs = convolutions
        for run in self.runs:
            run.view(body.weights)[:, -1].zero_()
        extra = sum(run.number * (run.inputs + 1) * run.outputs for run in self.runs)
        self.weights = torch.cat([body.weights, torch.ones(extra).to(body.weights)])
        self._views: Views | None = None
        self._compiled: CompiledFactors | None = None
        self.settle()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_views": None, "_compiled": None}

    @property
    def hidden(self) -> int:
        """Width of the last hidden layer."""
        return self.body.hidden

    def _in_torch(self) -> Views:
        if self._views is None:
            self._views = Views(self.weights, self.runs, len(self.body.weights))
        return self._views

    def _in_c(self) -> CompiledFactors | None:
        body = compiled_body(self.body)
        if body is None or body.compiled is None:
            return None
        if self._compiled is None or self._compiled.weights is not self.weights:
            start = len(self.body.weights)
            self._compiled = CompiledFactors(body.compiled, self.body.layers, self.runs, start, self.weights)
            self._compiled.settle(body)
        return self._compiled

    def settle(self) -> None:
        """Compute the effective weights again; call it whenever `weights` has been changed."""
        body, compiled = compiled_body(self.body), self._in_c()
        if body is not None and compiled is not None:
            compiled.settle(body)
            return
        self._in_torch().settle(self.body.weights)

    def pulled(self, effective: Tensor) -> Tensor:
        """The gradient by `weights` from the one by the effective weights; it stands until the next call."""
        return self._in_torch().pulled(effective)

    def within(self, trace: T, grad: Tensor, largest: float) -> bool:
        """Pull `grad` back in C, for `take`; whether that was done, and the gradient is surely not too long.

        Args:
            trace: A pass.
            grad: Of the loss by its outputs.
            largest: No gradient that may be longer is taken.
        """
        body, compiled = compiled_body(self.body), self._in_c()
        return body is not None and compiled is not None and compiled.within(body, trace, grad, largest)

    def take(self, move: Move) -> None:
        """Move the weights against the gradient that was found to be `within` bounds, and settle."""
        body, compiled = compiled_body(self.body), self._in_c()
        assert body is not None and compiled is not None
        compiled.step(body, move)


class Views:
    """Where weights, factors and their gradients lie, for torch: memory is costly to get, and so are views.

    Args:
        weights: Of network and factors, `(P,)`; or of several networks, `(N, P)`.
        runs: The convolutions.
        start: Where the factors begin.
    """

    def __init__(self, weights: Tensor, runs: tuple[Run, ...], start: int) -> None:
        self.weights, self.flat = weights, torch.zeros_like(weights)
        self._runs = runs
        self._mine, self._grads = _parts(weights, runs, start), _parts(self.flat, runs, start)
        self._scales = [torch.empty_like(part.pairs) for part in self._mine]
        scratch = weights.new_empty(max(part.taps.numel() for part in self._mine))
        self._products = [scratch[: part.taps.numel()].view(part.taps.shape) for part in self._mine]
        ends = [0, *(end for run in runs for end in (run.start, run.stop)), start]
        self._others = [slice(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]  # what is no convolution

    def settle(self, effective: Tensor) -> None:
        """Compute the effective weights."""
        for part in self._others:
            effective[..., part] = self.weights[..., part]
        for run, mine, scale in zip(self._runs, self._mine, self._scales, strict=True):
            torch.mul(mine.pairs, mine.outputs + 1, out=scale)
            torch.mul(mine.taps, scale.unsqueeze(-3), out=run.taps_of(effective))

    def pulled(self, effective: Tensor) -> Tensor:
        """The gradient by the weights from the one by the effective weights; it stands until the next call."""
        for part in self._others:
            self.flat[..., part] = effective[..., part]
        for run, mine, by, scale, product in zip(
            self._runs, self._mine, self._grads, self._scales, self._products, strict=True
        ):
            grads = run.taps_of(effective)
            torch.mul(mine.pairs, mine.outputs + 1, out=scale)
            torch.mul(grads, mine.taps, out=product)
            products = product[..., 0, :, :] if run.taps == 1 else product.sum(-3)
            torch.mul(products, mine.outputs + 1, out=by.pairs)
            torch.sum(products.mul_(mine.pairs), -2, keepdim=True, out=by.outputs)
            torch.mul(grads, scale.unsqueeze(-3), out=by.taps)
        return self.flat


def _parts(flat: Tensor, runs: tuple[Run, ...], start: int) -> list[Part]:
    """Where the runs lie in a flat vector."""
    found = []
    for run in runs:
        size = run.number * (run.inputs + 1) * run.outputs
        both = split(flat[..., start : start + size], run.number, run.inputs + 1, run.outputs)
        found.append(Part(run.taps_of(flat), both[..., :-1, :], both[..., -1:, :]))
        start += size
    return found


def fitting(name: str, part: object, like: Tensor) -> Tensor:
    """A tensor of a state, if it can stand for `like`."""
    if isinstance(part, Tensor) and (part.shape, part.dtype) == (like.shape, like.dtype):
        return part
    got = f"{part.dtype} of shape {tuple(part.shape)}" if isinstance(part, Tensor) else f"{part!r}"
    raise StateError(
        f"the state holds {name} {got}, expected {like.dtype} of shape {tuple(like.shape)}; load it into a forecaster "
        "for the same task and options"
    )
