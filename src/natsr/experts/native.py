"""Experts in C: what they hand over to `natsr.native`, and when.

An expert's arrays never move, so their addresses are put into a structure once. A copy of an expert has arrays of its
own and makes its own structure.
"""

from __future__ import annotations

import ctypes
import functools
from typing import ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from natsr.native import build

_P, _I, _D = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
Fields: TypeAlias = list[tuple[str, type]]
MOST = 4  # kinds of waves
#: As `enum kind` in experts.h.
KINDS = ("last value", "seasonal", "means", "medians", "analogs", "smooth", "least squares")
#: One of these and where C finds it.
Place: TypeAlias = tuple[str, int]
T = TypeVar("T")
address = ctypes.addressof
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "rls_room": (_I, [_P, _I]),
    "rls_observe": (None, [_P, _P]),
    "rls_forecast": (None, [_P, _P, _P]),
    "onestep_room": (_I, [_P]),
    "onestep_learn": (ctypes.c_int, [_P, _P, _P, _I, _D]),
    "onestep_forecast": (None, [_P, _P, _P]),
    "past_push": (None, [_P, _D, _D, _D, _D, _D, _D, _D]),
    "smooth_move": (None, [_P, _P]),
    "smooth_forecast": (None, [_P, _P, _P]),
    "seasonal_forecast": (None, [_P, _P, _P]),
    "blend_learn": (None, [_P, _P]),
    "blend_mix": (None, [_P, _P, _P]),
    "blend_forecast": (None, [_P, _P]),
    "medians_forecast": (None, [_P, _P, _P]),
    "groups_run": (None, [_P, _I, _P]),
    "swing_look": (None, [_P, _P]),
    "analogs_observe": (None, [_P, _P]),
    "analogs_forecast": (None, [_P, _P, _P]),
    "means_move": (None, [_P, _P]),
    "means_forecast": (None, [_P, _P, _P]),
}


def _fields(kind: type, names: str) -> Fields:
    return [(name, kind) for name in names.split()]


class Rows(ctypes.Structure):
    """`past` in experts.h."""

    end: int
    seen: int
    _fields_: ClassVar[Fields] = [
        *_fields(_P, "raw clean known swing square changes strays row even"),
        *_fields(_P, "calm cross drift jump offset start low high age away ended lasted"),
        *_fields(_P, "lift begin shift sorted stays turned"),
        *_fields(_I, "channels keep end seen horizon memory"),
    ]


class Calendar(ctypes.Structure):
    """`waves` in experts.h."""

    _fields_: ClassVar[Fields] = [("kinds", _I), ("periods", _P * MOST), ("harmonics", _I * MOST)]

    def describe(self, kinds: tuple[tuple[npt.NDArray[np.generic], int], ...]) -> None:
        """Periods, as arrays of one, and how many harmonics of each."""
        if len(kinds) > MOST:
            raise ValueError(f"{len(kinds)} kinds of waves, expected at most {MOST}")
        self.kinds = len(kinds)
        for number, (period, harmonics) in enumerate(kinds):
            self.periods[number], self.harmonics[number] = at(period), harmonics


class Regression(ctypes.Structure):
    """`rls` in experts.h, with the columns of its regressor at the end."""

    calendar: Calendar
    _fields_: ClassVar[Fields] = [
        *_fields(_I, "groups size heads outputs horizon shared even block"),
        *_fields(_D, "forgetting ridge strength"),
        *_fields(_P, "covariance weights rounded error errors clip lift counts due work plus minus sign"),
        *_fields(_I, "one at"),
        ("calendar", Calendar),
    ]


class Network(ctypes.Structure):
    """`onestep` in experts.h."""

    calendar: Calendar
    _fields_: ClassVar[Fields] = [
        *_fields(_I, "channels horizon window reach width inputs memory batch"),
        *_fields(_P, "taps weights gradient first second values known work"),
        *_fields(_D, "dof limit farthest slow fast"),
        ("calendar", Calendar),
    ]


class Smoothings(ctypes.Structure):
    """`smooth` in experts.h."""

    _fields_: ClassVar[Fields] = [
        *_fields(_I, "kinds horizon even"),
        *_fields(_P, "current alpha gamma beta phi dof sums level trend variance season rows count"),
    ]


class Season(ctypes.Structure):
    """`seasonal` in experts.h."""

    _fields_: ClassVar[Fields] = _fields(_I, "horizon cycles") + _fields(_P, "period")


class Running(ctypes.Structure):
    """`means` in experts.h."""

    _fields_: ClassVar[Fields] = _fields(_I, "kinds") + _fields(_P, "rates mean count")


class Middles(ctypes.Structure):
    """`medians` in experts.h."""

    _fields_: ClassVar[Fields] = _fields(_I, "kinds") + _fields(_P, "rows")


class Swings(ctypes.Structure):
    """`swings` in experts.h."""

    _fields_: ClassVar[Fields] = _fields(_P, "period usual since unit")


class Member(ctypes.Structure):
    """`group` in experts.h."""

    _fields_: ClassVar[Fields] = [*_fields(_I, "kind"), *_fields(_P, "of out")]


class Alike(ctypes.Structure):
    """`analogs` in experts.h."""

    _fields_: ClassVar[Fields] = [
        *_fields(_I, "kinds measures horizon lags"),
        *_fields(_P, "by_changes fade distance measure together near count periods moved work"),
        *_fields(_D, "largest"),
    ]


class Rule(ctypes.Structure):
    """`poly` in experts.h."""

    _fields_: ClassVar[Fields] = [
        *_fields(_I, "experts pooling"),
        *_fields(_P, "regret square weights lost size count loss pace"),
        *_fields(_D, "discount power handicap"),
    ]


class Blending(ctypes.Structure):
    """`blending` in experts.h."""

    kept: int
    _fields_: ClassVar[Fields] = [
        *_fields(_I, "experts horizon channels slots layers kept total choices near nearest"),
        *_fields(_P, "rules now waiting mixed guarded ready square errors reach settled loss share change changes"),
        *_fields(_P, "shares recent readiness hint_error hint_cross hint_square hint_loss hint_count"),
        *_fields(
            _P, "lost earned gained_of squares nears shared peak moves free forecasts answers gained singles work"
        ),
        *_fields(_D, "tiny noise mix_wild mix_rate mix_young power_pace power_far power_barely"),
        *_fields(_D, "total_beyond"),
        *_fields(_D, "fade proof doubt guard_wild guard_rate guard_young guard_recent guard_most guard_barely"),
        *_fields(_D, "error_rate error_wild error_young error_least far reach_fade doubted largest"),
        *_fields(_D, "hint_fade hint_wild hint_ridge hint_least"),
        *_fields(_D, "bank_allowed bank_start bank_fade bank_young bank_still bank_moving bank_trust"),
        *_fields(_D * 2, "bank_clear bank_sure bank_shared bank_beside bank_long bank_runs"),
        *_fields(_D, "bank_far bank_least bank_memory guard_tamed"),
    ]


def fill(structure: ctypes.Structure, **arrays: npt.NDArray[np.generic]) -> None:
    """Put the addresses of contiguous arrays in."""
    for name, values in arrays.items():
        if not values.flags.c_contiguous:
            raise ValueError(f"{name} is not contiguous")
        setattr(structure, name, at(values))


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
