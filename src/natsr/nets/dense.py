"""The same network as everyone writes it: every time step, every tap, autograd. The cone's oracle."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN, Conv


class DenseBlock(nn.Module):
    """GELU, convolution, GELU, convolution, and the way around them."""

    def __init__(self, inputs: int, outputs: int, dilation: int, project: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(inputs, outputs, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(outputs, outputs, 3, padding=dilation, dilation=dilation)
        self.projection = nn.Conv1d(inputs, outputs, 1) if project else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:  # (B, c, L)
        y = self.conv1(nn.functional.gelu(x))
        y = self.conv2(nn.functional.gelu(y))
        total: Tensor = self.projection(x) + y
        return total


class DenseTCN(nn.Module):
    """The dense twin of a `ConeTCN`, with the same weights; a tap that the cone left out is zero."""

    def __init__(self, cone: ConeTCN) -> None:
        super().__init__()
        width, top = cone.layers[0].outputs, cone.hidden
        last = len(cone.blocks) - 1
        self.input = nn.Linear(cone.task.inputs, width)
        self.blocks = nn.Sequential(
            *(DenseBlock(width, top if i == last else width, 2**i, project=i == last) for i in range(last + 1))
        )
        self.head = nn.Linear(top, cone.task.outputs)
        self.to(cone.weights.dtype)
        self.load(cone)

    def forward(self, window: Tensor) -> Tensor:
        """Outputs `(B, m)` of windows `(B, L, D)`."""
        x = self.blocks(self.input(window).transpose(1, 2))
        out: Tensor = self.head(x[:, :, -1])
        return out

    def load(self, cone: ConeTCN) -> None:
        """Take the cone's weights."""
        with torch.no_grad():
            for layer in cone.layers:
                matrix, module = layer.view(cone.weights), self.get_submodule(_path(layer))
                assert isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None
                module.bias.copy_(matrix[-1])
                module.weight.zero_()
                for tap, columns in _columns(cone, layer):
                    place = module.weight if module.weight.ndim == 2 else module.weight[:, :, tap]
                    place.copy_(matrix[columns].T)

    def flat_gradient(self, cone: ConeTCN) -> Tensor:
        """The gradients that autograd left, in the cone's layout."""
        flat = torch.zeros_like(cone.weights)
        for layer in cone.layers:
            matrix, module = layer.view(flat), self.get_submodule(_path(layer))
            assert isinstance(module, nn.Linear | nn.Conv1d) and module.bias is not None
            assert module.bias.grad is not None and module.weight.grad is not None
            matrix[-1] = module.bias.grad
            for tap, columns in _columns(cone, layer):
                grad = module.weight.grad
                matrix[columns] = (grad if grad.ndim == 2 else grad[:, :, tap]).T
        return flat


def _path(layer: Layer) -> str:
    return layer.name.replace("block", "blocks.")


def _columns(cone: ConeTCN, layer: Layer) -> list[tuple[int, slice]]:
    """For each live tap its place in the convolution and its rows of the matrix."""
    convs: dict[str, Conv] = {}
    for i, (first, second) in enumerate(cone.blocks):
        convs |= {f"block{i}.conv1": first, f"block{i}.conv2": second}
    if layer.name not in convs:
        return [(0, slice(0, layer.inputs - 1))]
    conv = convs[layer.name]
    c = (layer.inputs - 1) // conv.taps
    return [(conv.first + 1 + tap, slice(tap * c, (tap + 1) * c)) for tap in range(conv.taps)]
