"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import torch

from natsr.native.build import library
from natsr.version import __version__

Machine = dict[str, str | int | float | bool]


def cpu() -> str:
    """The processor's name, as far as the system tells it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def compiler() -> str:
    """The first line of what the C compiler says of itself."""
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None:
        return "none"
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    return said.splitlines()[0] if said else "unknown"


def describe() -> Machine:
    """This machine, its software, and how busy it is."""
    return {
        "cpu": cpu(),
        "cores": os.cpu_count() or 1,
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "compiler": compiler(),
        "compiled": library() is not None,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "natsr": __version__,
        "day": datetime.now(UTC).strftime("%Y-%m-%d"),
    }
