"""The C functions as Python sees them, and the context that holds a network's buffers."""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.native import build

#: Numbers beyond the end of the weights that are read, though never used.
SLACK = 64
_P, _I, _D = ctypes.c_void_p, ctypes.c_int32, ctypes.c_double
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "cone_new": (_P, [_P, _P]),
    "cone_free": (None, [_P]),
    "cone_weights": (ctypes.c_int64, [_P]),
    "cone_forward": (_I, [_P, _P, _P, _I, _P, _P]),
    "cone_backward": (_I, [_P, _P, _P, _P, _I]),
    "cone_gradient": (None, [_P, _P]),
    "cone_tap": (None, [_P, _I, _P, _P]),
    "step_judge": (None, [_P, _P, _P, _P, _I, _I, _I, _P, _P, _P]),
    "step_bound": (_D, [_P]),
    "step_descend": (None, [_P, _P, _P, _P, _P]),
    "curve_known": (_I, [_P, _P, _P, _D, _P]),
    "curve_probe": (_I, [_P, _P, _P, _P, _I, _I, _I, _P]),
    "curve_blend": (_I, [_P, _P, _D, _P, _P, _P, _P]),
    "curve_invert": (_I, [_P, _P, _P, _D, _D, _P, _P, _P]),
    "curve_solve": (_D, [_P, _P, _P, _D]),
    "curve_take": (None, [_P, _P, _D, _D, _P, _P, _P, _P]),
    "step_move": (None, [_P, _P, _P, _P, _P, ctypes.c_int64]),
    "desk_new": (_P, [_P, _P]),
    "desk_free": (None, [_P]),
    "many_sizes": (None, [_P]),
    "many_read": (None, [_P, _P, _P, ctypes.c_int64]),
    "crew_new": (_P, [ctypes.c_int64]),
    "crew_free": (None, [_P]),
    "many_learn": (None, [_P, _P, ctypes.c_int64, _P, _P, ctypes.c_int64]),
    "many_remember": (None, [_P, _P, _P, _P, ctypes.c_int64]),
    "many_forecast": (None, [_P, _P, ctypes.c_int64, _P, _P, _P, ctypes.c_int64]),
    "adapters_new": (_P, [_P, ctypes.c_int64]),
    "adapters_free": (None, [_P]),
    "adapters_settle": (None, [_P, _P, _P, _I, _I, _P]),
    "adapters_bound": (_D, [_P, _P]),
    "adapters_step": (ctypes.c_int64, [_P, _P, _P, _I, _I, _P, _P, _P, _P]),
    "layers_judge": (None, [_P, _P, ctypes.c_int64, _I, _P, _P]),
    "cone_passed": (None, [_P, _P]),
    "variables_new": (_P, [_P]),
    "variables_free": (None, [_P]),
    "variables_weights": (ctypes.c_int64, [_P]),
    "variables_passed": (None, [_P, _P]),
    "variables_forward": (_I, [_P, _P, _P, _I, _P, _P]),
    "variables_backward": (None, [_P, _P, _P]),
    "variables_gradient": (None, [_P, _P]),
    "scaled_new": (_P, [_P, ctypes.c_int64]),
    "scaled_free": (None, [_P]),
    "scaled_settle": (None, [_P, _P, _P, _P]),
    "scaled_bound": (_D, [_P, _P]),
    "scaled_step": (None, [_P, _P, _P, _P, _P, _P, _P]),
    "mixing_propose": (_I, [_P]),
}


@functools.cache
def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def library() -> ctypes.CDLL | None:
    """The compiled step with its functions' types, or nothing where torch is to do the work."""
    found = build.library()
    return None if found is None else _typed(found)


def at(tensor: Tensor | None) -> int | None:
    """Where a tensor's numbers lie."""
    return None if tensor is None else tensor.data_ptr()


def with_room(flat: Tensor) -> Tensor:
    """A copy with numbers to spare behind it, which C may read."""
    room = flat.new_zeros(flat.numel() + SLACK)
    room[:-SLACK] = flat
    return room[:-SLACK]


def square(n: int) -> Tensor:
    """Zeros `(n, n)`, with rows as far apart as C has them in a symmetric matrix."""
    step = -(-n // 16) * 16
    return torch.zeros(n * step + SLACK)[: n * step].view(n, step)[:, :n]


class Moments(NamedTuple):
    """AdamW's history of the directions; compiled code changes it in place."""

    mean: Tensor
    square: Tensor
    taken: Tensor  # steps


class Move(NamedTuple):
    """A finish as numbers, for compiled code."""

    rate: float
    moments: Moments | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    decay: float = 0.0


def counted(move: Move) -> ctypes.Array[ctypes.c_double]:
    """A move as C reads it; it counts as one more step."""
    if move.moments is None:
        return (ctypes.c_double * 7)(move.rate)
    step = move.moments.taken.add_(1).item()
    return (ctypes.c_double * 7)(move.rate, 1.0, *move.betas, move.eps, move.decay, step)


class Context:
    """A network's buffers in C, freed with this object."""

    def __init__(self, library: ctypes.CDLL, sizes: Sequence[int], convs: Sequence[int]) -> None:
        self.library = library
        address = library.cone_new((_I * len(sizes))(*sizes), (_I * len(convs))(*convs))
        if not address:
            raise MemoryError("no memory for the network's buffers")
        self.address = address
        weakref.finalize(self, library.cone_free, address)

    def forward(self, weights: int, window: Tensor, keep: Tensor | None, output: Tensor) -> None:
        """Outputs of windows `(B, L, D)`, all of them contiguous."""
        if not self.library.cone_forward(self.address, weights, at(window), window.shape[0], at(keep), at(output)):
            raise MemoryError(f"no memory for a batch of {len(window)}")

    def backward(self, weights: int, pull: Tensor) -> None:
        """Pull `(N, m)` back through the last forward pass, whose batch repeats until `N` is reached."""
        if not self.library.cone_backward(self.address, weights, at(pull), None, pull.shape[0]):
            raise MemoryError(f"no memory for the gradients of {len(pull)} examples")
