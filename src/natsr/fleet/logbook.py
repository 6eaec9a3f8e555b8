"""What learners on a device forecast, brought to the host while they go on."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natsr.fleet.control import Mark

Floats = npt.NDArray[np.floating[Any]]


class _Page(NamedTuple):
    """The forecasts of a chunk of steps, still on the device."""

    means: Tensor  # (N, K, H, C)
    scales: Tensor  # (K, N)
    done: Mark


class Logbook:
    """The forecasts of every learner, in their order.

    A chunk stays on the device until it is done; then fetching it makes nobody wait, on the device or on the host.

    Args:
        stream: Where the forecasts are made, on a GPU.
    """

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._there: deque[_Page] = deque()
        self._here: list[tuple[Floats, Floats]] = []

    def write(self, means: Tensor, scales: Tensor) -> None:
        """Note the forecasts `(N, K, H, C)` of a chunk that was asked for, and the scales `(K, N)` they go with."""
        self._there.append(_Page(means, scales, Mark(self._stream)))

    def fetch(self) -> None:
        """Bring over what is done; not to be called on the stream where the forecasts are made."""
        while self._there and self._there[0].done.is_reached():
            page = self._there.popleft()
            # Alone and in the loop a variance is handed out as a float32.
            self._here.append((page.means.cpu().numpy(), page.scales.float().cpu().numpy()))

    def forecasts(self, number: int) -> tuple[Floats, Floats]:
        """One learner's forecasts `(T, H, C)`, and its scale `(T,)` at each."""
        means = np.concatenate([means[number] for means, _ in self._here])
        return means, np.concatenate([scales[:, number] for _, scales in self._here])
