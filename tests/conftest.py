"""One thread: the matrices are small, and on a shared machine more threads only wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
