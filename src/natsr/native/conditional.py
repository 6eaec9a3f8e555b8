"""Conditional nodes in CUDA graphs, which torch does not offer: compiled by `nvcc` where there is one.

A captured step can then decide on the device whether, and how often, a part of it runs. Where there is no `nvcc`, or
the CUDA runtime is too old, `library` says so by returning nothing, and whoever captures cuts the step at those places.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from natsr.native.build import cached

_FLAGS = ("-O2", "-shared", "-Xcompiler", "-fPIC", "-rdc=true", "-arch=native", "-cudart=shared", "-lcudadevrt")
_SOURCE = "when.cu"


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled functions of `when.cu`, or nothing where they cannot be had."""
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        return None
    texts = {_SOURCE: resources.files("natsr.native").joinpath(_SOURCE).read_text("utf-8")}
    try:
        return _typed(ctypes.CDLL(str(_built(nvcc, texts))))
    except (OSError, subprocess.SubprocessError):
        return None


def _built(nvcc: str, texts: dict[str, str]) -> Path:
    about = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return cached("when", [nvcc], list(_FLAGS), texts, about)


def _typed(found: ctypes.CDLL) -> ctypes.CDLL:
    pointer, handle = ctypes.c_void_p, ctypes.c_ulonglong
    found.when_open.argtypes = [pointer, pointer, ctypes.c_int, ctypes.POINTER(pointer), ctypes.POINTER(handle)]
    found.when_begin.argtypes = [pointer, pointer]
    found.when_end.argtypes = [pointer, handle, pointer, ctypes.c_int]
    return found
