"""What torch does not offer on a GPU, compiled by `nvcc` where there is one.

Conditional nodes (`when.cu`) let a captured step decide on the device whether, and how often, a part of it runs. Two
kernels (`patches.cu`) do what lies between a network's matrix products, which in torch are six; two more (`moves.cu`)
pass over all weights once where torch's operations would several times. `sweeps.cu` inverts many small matrices at
once. Where there is no `nvcc`, or the CUDA runtime is too old, `library` says so by returning nothing, and torch's own
operations do the work.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from natsr.native.build import SWITCH, cached, sources

_FLAGS = ("-O3", "-shared", "-Xcompiler", "-fPIC", "-rdc=true", "-arch=native", "-cudart=shared", "-lcudadevrt")
_SOURCES = sources(".cu")

#: Rows of the largest matrix that `invert` takes.
WIDEST = 224


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions, or nothing where they cannot be had or `NATSR_NATIVE` is 0."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None or os.environ.get(SWITCH) == "0":
        return None
    try:
        return _typed(ctypes.CDLL(str(_built(nvcc))))
    except (OSError, subprocess.SubprocessError):
        return None


def _built(nvcc: str) -> Path:
    about = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return cached("cuda", [nvcc], list(_FLAGS), _SOURCES, f"{about} {torch.cuda.get_device_name()}")


def _typed(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, handle = ctypes.c_void_p, ctypes.c_ulonglong
    found.when_open.argtypes = [pointer, pointer, ctypes.c_int, ctypes.POINTER(pointer), ctypes.POINTER(handle)]
    found.when_begin.argtypes = [pointer, pointer]
    found.when_end.argtypes = [pointer, handle, pointer, ctypes.c_int]
    found.patches_gather.argtypes = [pointer, pointer, pointer, ctypes.c_long, pointer]
    found.patches_scatter.argtypes = [pointer, pointer, pointer, pointer, pointer, pointer]
    found.moves_blend.argtypes = [pointer, pointer, pointer, pointer, pointer, ctypes.c_long, ctypes.c_long]
    found.moves_adamw.argtypes = [pointer, pointer, pointer, pointer, ctypes.c_long, ctypes.c_long]
    found.sweeps_invert.argtypes = [pointer, pointer, pointer, pointer, ctypes.c_int, ctypes.c_int, pointer]
    return found


def check(code: int) -> None:
    """Raise what the CUDA runtime has returned, unless it is nothing."""
    if code:
        raise RuntimeError(f"a CUDA program could not be made: error {code} of the CUDA runtime")


def gather(x: Tensor, patches: Tensor, shape: Sequence[int]) -> bool:
    """GELU of `x` `(n, B, rows, c)`, spread over `patches` `(n, B·outs, taps·c + 1)`; false if torch must do it.

    Args:
        x: On a GPU.
        patches: Its last column is left as it is.
        shape: Rows, outputs, taps, stride, start and channels of the convolution.
    """
    found = _ready(x, patches)
    if found is None or not x.is_contiguous():
        return False
    batch = x.shape[0] * x.shape[1]
    check(found.patches_gather(_stream(), x.data_ptr(), patches.data_ptr(), batch, (ctypes.c_int * 6)(*shape)))
    return True


def scatter(grads: Tensor, before: Tensor, shape: Sequence[int]) -> Tensor | None:
    """The adjoint: `(n, K, B, outs, taps·c)` to `(n, K, B, rows, c)`, through GELU at `before`; or nothing.

    Args:
        grads: On a GPU.
        before: What went into GELU, `(n, B, rows, c)`; the learners may lie further apart.
        shape: As for `gather`.
    """
    n, K, B = grads.shape[:3]
    found = _ready(grads, before)
    if found is None or not grads.is_contiguous() or not before[0].is_contiguous():
        return None
    out = grads.new_empty(n, K, B, shape[0], shape[-1])
    sizes = (ctypes.c_long * 4)(n, K, B, before.stride(0))
    asked = (grads.data_ptr(), before.data_ptr(), out.data_ptr(), sizes, (ctypes.c_int * 6)(*shape))
    check(found.patches_scatter(_stream(), *asked))
    return out


def blend(y: Tensor, x: Tensor, keep: Tensor, add: Tensor) -> bool:
    """`y = keep · y + add · x` for every learner, in place; false if torch must do it.

    Args:
        y: `(N, P)`.
        x: `(N, P)`; it is not looked at where `add` is zero.
        keep: `(N,)`.
        add: `(N,)`.
    """
    found = _ready(y, x)
    if found is None or not (y.is_contiguous() and x.is_contiguous()):
        return False
    keep, add = keep.float(), add.float()
    asked = (y.data_ptr(), x.data_ptr(), keep.data_ptr(), add.data_ptr())
    check(found.moves_blend(_stream(), *asked, *y.shape))
    return True


def adamw(state: tuple[Tensor, Tensor, Tensor], gradient: Tensor, how: Tensor) -> bool:
    """A step of AdamW for every learner, in place; false if torch must do it.

    Args:
        state: Weights and the two averages, `(N, P)` each.
        gradient: `(N, P)`; it is not looked at where the learner does not move.
        how: `(N, 7)`, see `moves.cu`.
    """
    found = _ready(*state, gradient)
    if found is None or not all(part.is_contiguous() for part in (*state, gradient)):
        return False
    how, places = how.float().contiguous(), (ctypes.c_void_p * 3)(*(part.data_ptr() for part in state))
    check(found.moves_adamw(_stream(), places, gradient.data_ptr(), how.data_ptr(), *gradient.shape))
    return True


def invert(matrices: Tensor, shift: Tensor, out: Tensor) -> bool:
    """`(matrix + shift)⁻¹` of symmetric positive matrices; NaN where there is none; false if torch must do it.

    Args:
        matrices: `(n, I, I)`, `I` at most `WIDEST`; matrices, and their rows, may lie further apart.
        shift: `(n,)`.
        out: `(n, I, I)`, likewise.
    """
    found = _ready(matrices, shift, out)
    dense = matrices.stride(2) == 1 and out.stride(2) == 1 and shift.is_contiguous()
    if found is None or not dense or matrices.shape[1] > WIDEST:
        return False
    strides = (ctypes.c_long * 4)(*matrices.stride()[:2], *out.stride()[:2])
    places = (matrices.data_ptr(), shift.data_ptr(), out.data_ptr())
    check(found.sweeps_invert(_stream(), *places, *matrices.shape[:2], strides))
    return True


def _ready(*tensors: Tensor) -> ctypes.CDLL | None:
    if any(not tensor.is_cuda or tensor.dtype != torch.float32 for tensor in tensors):
        return None
    return library()


def _stream() -> int:
    found: int = torch.cuda.current_stream().cuda_stream
    return found
