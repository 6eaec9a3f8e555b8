"""What a plain network is trained on: squared or absolute errors.

The MSE and MAE variants of FSNet and OneNet differ in this and in nothing else.
"""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor

from natsr.likelihoods import LARGEST_ERROR

LossName = Literal["mse", "mae"]


class Loss(Protocol):
    """A function of the error `target - output`."""

    def value(self, error: Tensor) -> Tensor:
        """The loss of each error."""

    def slope(self, error: Tensor) -> Tensor:
        """Its derivative by the output."""


class Squared:
    """`e²`.

    >>> import torch
    >>> Squared().value(torch.tensor([3.0])).item(), Squared().slope(torch.tensor([3.0])).item()
    (9.0, -6.0)
    """

    def value(self, error: Tensor) -> Tensor:
        return error.clamp(-LARGEST_ERROR, LARGEST_ERROR).square()

    def slope(self, error: Tensor) -> Tensor:
        return error.clamp(-LARGEST_ERROR, LARGEST_ERROR) * -2.0


class Absolute:
    """`|e|`, whose slope is the same for every error but 0.

    >>> import torch
    >>> Absolute().value(torch.tensor([-3.0])).item(), Absolute().slope(torch.tensor([-3.0])).item()
    (3.0, 1.0)
    """

    def value(self, error: Tensor) -> Tensor:
        return error.abs()

    def slope(self, error: Tensor) -> Tensor:
        return -error.sign()


LOSSES: dict[LossName, Loss] = {"mse": Squared(), "mae": Absolute()}
#: The losses that compiled code knows.
LOSS_NAMES: dict[type, LossName] = {type(loss): name for name, loss in LOSSES.items()}
