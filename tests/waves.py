"""A wave in two columns, and a task for it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from natsr.streams import Rows
from natsr.types import Task

Array = npt.NDArray[np.float64]
TASK = Task(window=8, horizon=3, channels=2, season=6)


def rows_of(values: Array) -> Rows:
    tensor = torch.from_numpy(values).float()
    return Rows(tensor.nan_to_num(), tensor)


def wave(count: int, channels: int = 2) -> Array:
    generator = np.random.default_rng(0)
    waves = np.sin(2 * np.pi * np.arange(count)[:, None] / 6 + np.arange(channels))
    return np.asarray(waves + 0.1 * generator.standard_normal((count, channels)))
