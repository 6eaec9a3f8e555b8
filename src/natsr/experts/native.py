"""Experts in C: what they hand over to `natsr.native`, and when.

An expert's arrays never move, so their addresses are put into a structure once. A copy of an expert has arrays of its
own and makes its own structure.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from natsr.native import build

_P, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
T = TypeVar("T")
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "rls_room": (_I, [_P, _I]),
    "rls_take": (ctypes.c_int, [_P, _P, _I, _I, _I]),
    "rls_forecast": (None, [_P, _P, _P]),
}


class Rows(ctypes.Structure):
    """As `past` in C."""

    _fields_ = [
        *((name, _P) for name in ("raw", "clean", "known", "square", "changes")),
        *((name, _I) for name in ("channels", "keep", "end", "seen")),
    ]


class Regression(ctypes.Structure):
    """As `rls` in C, with the columns of its regressor at the end."""

    _fields_ = [
        *((name, _I) for name in ("groups", "size", "heads", "outputs", "horizon", "shared")),
        *((name, _D) for name in ("forgetting", "ridge", "strength")),
        *((name, _P) for name in ("covariance", "weights", "rounded", "error", "errors", "clip", "lift", "work")),
        *((name, _P) for name in ("plus", "minus", "sign")),
        *((name, _I) for name in ("one", "waves", "kinds")),
        ("periods", _P * 4),
        ("harmonics", _I * 4),
    ]


@functools.cache
def _typed(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Native(Generic[T]):
    """The library, where there is one, and what one expert has made for it.

    Args:
        wanted: Whether to look for the library.
    """

    def __init__(self, wanted: bool = True) -> None:
        found = build.library() if wanted else None
        self.library = None if found is None else _typed(found)
        self.made: T | None = None

    def __reduce__(self) -> tuple[type[Native[T]], tuple[bool]]:
        """A copy makes its own, from its own arrays."""
        return Native, (self.library is not None,)


def at(values: npt.NDArray[np.generic]) -> int:
    """Where the numbers of an array lie."""
    found: int = values.__array_interface__["data"][0]
    return found
