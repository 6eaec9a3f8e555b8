"""What passes through a network's layers: inputs and output gradients, as matrices.

Works on any module. The layers that are understood are `Linear` and `Conv1d` (exactly these classes: a subclass may
compute something else). Such a layer, applied at `S` positions, multiplies inputs `(B, S, I)` by one matrix `(I, O)`;
the bias is the matrix's last row and an input that is always one. A layer that is called several times in one forward
pass is a layer with more positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from natsr.types import OptionError, ShapeError

#: Backward nodes that only move numbers: a layer behind nothing but these is the network's last.
MOVES = frozenset(
    {"View", "UnsafeView", "ReshapeAlias", "Alias", "Clone", "Transpose", "T", "Permute", "Squeeze", "Unsqueeze"}
    | {"Select", "Slice"}
)


class Tap(NamedTuple):
    """What one layer saw and got back."""

    inputs: Tensor  # (B, S, I)
    grads: Tensor  # (K, B, S, O): K probes of the output gradient (K = 1 for a plain gradient)


@dataclass(frozen=True)
class Layer:
    """A layer that is a matrix, and the way between the module's layout and the matrix's."""

    name: str
    module: nn.Linear | nn.Conv1d

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """What of it learns: the weight and, if it is there and not frozen, the bias."""
        weight, bias = self.module.weight, self.module.bias
        return (weight,) if bias is None or not bias.requires_grad else (weight, bias)

    @property
    def shape(self) -> tuple[int, int]:
        """`(I, O)` of its matrix."""
        weight = self.module.weight
        return weight[0].numel() + len(self.parameters) - 1, len(weight)

    def to_matrix(self, parts: Sequence[Tensor]) -> Tensor:
        """The matrix `(I, O)` of tensors that are shaped like `parameters`."""
        weight = parts[0].reshape(len(parts[0]), -1).T
        return torch.cat([weight, parts[1][None]]) if len(parts) == 2 else weight.contiguous()

    def from_matrix(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Tensors shaped like `parameters`, from a matrix `(I, O)`."""
        weight = self.module.weight
        rows = weight[0].numel()
        return matrix[:rows].T.reshape(weight.shape), *matrix[rows:]

    def inputs(self, seen: Tensor) -> Tensor:
        """What the matrix is multiplied by, `(B, S, I)`, from what the module was called with."""
        rows = _patches(self.module, seen) if isinstance(self.module, nn.Conv1d) else _positions(seen)
        if len(self.parameters) == 1:
            return rows
        return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], dim=2)

    def outputs(self, given: Tensor) -> Tensor:
        """`(B, S, O)` from something that is shaped like the module's output."""
        return given.transpose(1, 2) if isinstance(self.module, nn.Conv1d) else _positions(given)


def _positions(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1, values.shape[-1])


def _patches(module: nn.Conv1d, seen: Tensor) -> Tensor:
    """`(B, S, channels * taps)`, in the order of the weight's axes."""
    (taps,), (stride,), (dilation,) = module.kernel_size, module.stride, module.dilation
    span = (taps - 1) * dilation
    if module.padding == "same":
        left, right = span // 2, span - span // 2
    elif isinstance(module.padding, str):
        left = right = 0
    else:
        left = right = module.padding[0]
    rows = functional.pad(seen, (left, right)).unfold(2, span + 1, stride)[..., ::dilation]  # (B, channels, S, taps)
    return rows.transpose(1, 2).flatten(2)


def find_layers(model: nn.Module) -> list[Layer]:
    """The layers of a model that are matrices and learn.

    Raises:
        OptionError: A convolution has groups or pads with something other than zeros, or a layer shares its weight.
    """
    layers = [
        Layer(name, module)
        for name, module in model.named_modules()
        if type(module) in (nn.Linear, nn.Conv1d)
        # A weight that is computed (weight norm, another parametrisation) is no parameter of the layer.
        and isinstance(weight := module._parameters.get("weight"), nn.Parameter)
        and weight.requires_grad
        and isinstance(module, nn.Linear | nn.Conv1d)
    ]
    owners: dict[Tensor, list[str]] = {}
    for name, module in model.named_modules():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(parameter, []).append(name)
    for layer in layers:
        _check(layer, owners)
    return layers


def _check(layer: Layer, owners: dict[Tensor, list[str]]) -> None:
    if isinstance(layer.module, nn.Conv1d):
        if layer.module.groups != 1:
            raise OptionError(
                f"Conv1d {layer.name!r} has groups={layer.module.groups}, expected groups=1; write it as one Conv1d "
                "for each group, or freeze its weight (requires_grad_(False))"
            )
        if layer.module.padding_mode != "zeros":
            raise OptionError(
                f"Conv1d {layer.name!r} has padding_mode={layer.module.padding_mode!r}, expected 'zeros'; pad with "
                "torch.nn.functional.pad before it and give it padding=0"
            )
    for parameter in layer.parameters:
        if len(names := owners[parameter]) > 1:
            raise OptionError(
                f"a parameter is shared by the modules {', '.join(map(repr, names))}, expected each in one module; "
                "call the same module several times instead, or freeze the parameter"
            )


def read_weights(layers: Sequence[Layer], others: Sequence[Tensor] = ()) -> list[Tensor]:
    """A matrix for each layer, then the other parameters, detached."""
    parts = [layer.to_matrix([part.detach() for part in layer.parameters]) for layer in layers]
    return parts + [other.detach() for other in others]


@torch.no_grad()
def write_weights(parts: Sequence[Tensor], layers: Sequence[Layer], others: Sequence[Tensor] = ()) -> None:
    """Put back what `read_weights` gave, or something of its shapes."""
    targets = [parameter for layer in layers for parameter in layer.parameters]
    values = [part for layer, matrix in zip(layers, parts, strict=False) for part in layer.from_matrix(matrix)]
    for parameter, part in zip([*targets, *others], [*values, *parts[len(layers) :]], strict=True):
        parameter.copy_(part)


def _filled(parameter: Tensor, grad: Tensor | None) -> Tensor:
    return torch.zeros_like(parameter) if grad is None else grad


class _Use(NamedTuple):
    seen: Tensor
    edge: GradientEdge
    shape: torch.Size


class Recorder:
    """Watches one forward pass, so that output gradients can be asked for after it.

    The first axis of whatever a layer sees must be the batch.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    >>> with Recorder(find_layers(model), batch=5) as recorder:
    ...     output = model(torch.ones(5, 3))
    >>> taps, _ = recorder.taps(output, probes=torch.ones(7, 5, 2))
    >>> [(tuple(tap.inputs.shape), tuple(tap.grads.shape)) for tap in taps]
    [((5, 1, 4), (7, 5, 1, 4)), ((5, 1, 5), (7, 5, 1, 2))]

    Args:
        layers: The layers to watch.
        batch: Examples in the pass, `B`.
    """

    def __init__(self, layers: Sequence[Layer], batch: int) -> None:
        self.layers = list(layers)
        self.batch = batch
        self._uses: list[list[_Use]] = [[] for _ in self.layers]
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for index, layer in enumerate(self.layers):
            self._handles.append(layer.module.register_forward_hook(self._hook(index), with_kwargs=True))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _hook(self, index: int) -> Any:  # torch types hooks as callables of anything
        def see(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor) -> Tensor:
            seen = args[0] if args else kwargs["input"]
            self._check_batch(self.layers[index], seen, output)
            if output._is_view():
                # An operation in place (ReLU) on a view rewrites the graph behind it and the edge would lead nowhere.
                output = output.clone()
            if output.requires_grad:
                self._uses[index].append(_Use(seen.detach(), get_gradient_edge(output), output.shape))
            return output

        return see

    def _check_batch(self, layer: Layer, seen: Tensor, output: Tensor) -> None:
        expected = 3 if isinstance(layer.module, nn.Conv1d) else max(2, output.ndim)
        if seen.ndim != expected or len(seen) != self.batch:
            raise ShapeError(
                f"layer {layer.name!r} was called with shape {tuple(seen.shape)}, expected {expected} axes of which "
                f"the first is the batch of {self.batch}; keep the batch first and unmerged in the model"
            )

    def gradient(self, output: Tensor, pull: Tensor, others: Sequence[Tensor] = ()) -> list[Tensor]:
        """The gradient of `(output · pull).sum()`: a matrix for each layer, then the other parameters' as they are.

        Raises:
            OptionError: A layer's weight was used behind the layer's back.
        """
        parts = [part for layer in self.layers for part in layer.parameters]
        found = torch.autograd.grad(output, [*parts, *others], pull, retain_graph=True, allow_unused=True)
        whole = iter(zip([*parts, *others], found, strict=True))
        grads = []
        for layer, uses in zip(self.layers, self._uses, strict=True):
            own = [next(whole) for _ in layer.parameters]
            if not uses and any(grad is not None for _, grad in own):
                raise OptionError(
                    f"layer {layer.name!r} has a gradient but was never called, expected its weight to be used by its "
                    "own forward only; call the layer, or freeze its weight"
                )
            grads.append(layer.to_matrix([_filled(*pair) for pair in own]))
        return grads + [_filled(*pair) for pair in whole]

    def taps(self, output: Tensor, probes: Tensor, others: Sequence[Tensor] = ()) -> tuple[list[Tap], list[Tensor]]:
        """What each layer saw, and what `K` gradients by the network's output give at its outputs.

        Args:
            output: What the watched pass returned.
            probes: `(K, *output.shape)`.
            others: Parameters that belong to no layer.

        Returns:
            A tap for each layer, zero for one that was not used; and for each of `others` the mean over the probes of
            its squared gradient.
        """
        edges = [use.edge for uses in self._uses for use in uses] + [get_gradient_edge(other) for other in others]
        count = len(edges) - len(others)
        columns: list[list[Tensor | None]] = []
        squares = [torch.zeros_like(other) for other in others]
        for probe in probes if edges else ():
            grads = torch.autograd.grad(output, edges, probe, retain_graph=True, allow_unused=True)
            columns.append(list(grads[:count]))
            for square, grad in zip(squares, grads[count:], strict=True):
                if grad is not None:
                    square.addcmul_(grad, grad, value=1 / len(probes))
        flat = iter(zip(*columns, strict=True))
        return [
            self._tap(layer, uses, [next(flat) for _ in uses], len(probes))
            for layer, uses in zip(self.layers, self._uses, strict=True)
        ], squares

    def _tap(self, layer: Layer, uses: list[_Use], columns: list[tuple[Tensor | None, ...]], probes: int) -> Tap:
        if not uses:
            inputs, outputs = layer.shape
            empty = layer.module.weight.new_zeros
            return Tap(empty(self.batch, 1, inputs), empty(probes, self.batch, 1, outputs))
        rows, grads = [], []
        for use, column in zip(uses, columns, strict=True):
            rows.append(layer.inputs(use.seen))
            whole = [use.seen.new_zeros(use.shape) if grad is None else grad for grad in column]
            grads.append(torch.stack([layer.outputs(grad) for grad in whole]))
        return Tap(torch.cat(rows, dim=1), torch.cat(grads, dim=2))

    def outermost(self, output: Tensor, values: Tensor) -> dict[int, Tensor]:
        """The layers behind which numbers are only moved, and `values` moved back to their outputs.

        For such a layer nothing has to be estimated: an output of the layer is an output of the network, or unread.

        Args:
            output: What the watched pass returned.
            values: One number for each output, `output.shape`.

        Returns:
            By the layer's index, `(B, S, O)`.
        """
        found = {}
        for index, uses in enumerate(self._uses):
            if len(uses) == 1 and _only_moves(output.grad_fn, uses[0].edge.node):
                (moved,) = torch.autograd.grad(output, [uses[0].edge], values, retain_graph=True)
                found[index] = self.layers[index].outputs(moved)
        return found


def _only_moves(node: Node | None, goal: Node) -> bool:
    while node is not None and node is not goal and node.name().partition("Backward")[0] in MOVES:
        node = node.next_functions[0][0]
    return node is goal
