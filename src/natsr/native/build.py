"""Compiles the C sources when they are first needed, once for each machine, and loads them.

The library lies in the user's cache under a name made of everything that decides what is in it: sources, flags,
compiler and processor. It is put there in one stroke, so processes that compile at the same time do not disturb one
another. The sources are read when this module is: where another version of them is installed meanwhile, a process goes
on with the C that its own Python was written for.

Where there is no compiler the same work is done in torch; `NATSR_NATIVE=0` asks for that, and `NATSR_NATIVE=1` makes a
missing compiler an error.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path

from natsr.types import NatsrError

SWITCH = "NATSR_NATIVE"
#: Neither `-ffast-math` nor anything else that lets the compiler assume that numbers are finite: steps are refused by
#: looking at them.
FLAGS = (
    *("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread"),
    *("-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math"),
)
#: The interface between Python and C, as `NATSR_ABI` in kernels.h has it: one more whenever a structure or a function
#: changes what it takes.
ABI = 5
_SECONDS = 600


class NativeError(NatsrError, RuntimeError):
    """The native step was asked for and cannot be had."""


def sources(*endings: str) -> dict[str, str]:
    """The files of this package with these endings, by name."""
    files = sorted(resources.files("natsr.native").iterdir(), key=lambda file: file.name)
    return {file.name: file.read_text("utf-8") for file in files if file.name.endswith(endings)}


#: The C that this module and its neighbours speak to.
SOURCES = sources(".c", ".h")


def library() -> ctypes.CDLL | None:
    """The compiled step, or nothing where torch is to do the work.

    Raises:
        NativeError: `NATSR_NATIVE` is 1 and there is no compiler, or it failed; or the variable is neither 0 nor 1.
    """
    wish = os.environ.get(SWITCH, "")
    if wish not in ("", "0", "1"):
        raise NativeError(f"{SWITCH} is {wish!r}, expected 0 (torch), 1 (C, or an error) or nothing (C if it can be)")
    if wish == "0":
        return None
    found, problem = _loaded()
    if found is None and wish == "1":
        raise NativeError(
            f"{SWITCH} is 1, but the step cannot be compiled: {problem}; install a C compiler or unset it"
        )
    return found


@functools.cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none; tried once in a process."""
    command = compiler()
    if command is None:
        return None, "no C compiler (CC, cc, gcc, clang) is on the PATH"
    flags = [*FLAGS, *_tuning(command)]
    try:
        place = _built(command, flags)
        try:
            return _opened(place), ""
        except OSError:  # damaged, or not what its name says: once more
            place.unlink(missing_ok=True)
            return _opened(_built(command, flags)), ""
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or ""
        return None, f"{error}{': ' + said.strip()[-500:] if said else ''}"


def _opened(place: Path) -> ctypes.CDLL:
    """The library in a file, if it has the interface that Python expects."""
    found = ctypes.CDLL(str(place))
    spoken = found.natsr_abi() if hasattr(found, "natsr_abi") else 0
    if spoken != ABI:
        raise OSError(f"{place} has interface {spoken}, expected {ABI}")
    return found


def compiler() -> list[str] | None:
    """The command of a C compiler: what `CC` says, or the first of the usual names that is there."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(name)
        if words and (path := shutil.which(words[0])):
            return [path, *words[1:]]
    return None


def _tuning(command: list[str]) -> list[str]:
    """Flags for this very processor, where the compiler knows them."""
    native = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    probe = [*command, native, "-x", "c", "-E", os.devnull, "-o", os.devnull]
    done = subprocess.run(probe, capture_output=True, timeout=_SECONDS, check=False)
    return [native] if done.returncode == 0 else []


def _built(command: list[str], flags: list[str]) -> Path:
    """The path of the library, compiled if it is not there yet."""
    return cached("step", [*command], [*flags, "-lm"], SOURCES)


def cached(stem: str, command: list[str], flags: list[str], texts: dict[str, str], about: str = "") -> Path:
    """The path of a library made of these sources, compiled if it is not there yet.

    Args:
        stem: What its name begins with.
        command: The compiler.
        flags: What it is told, libraries last.
        texts: The sources, by name; those that are no headers are compiled.
        about: What else decides what is in it.

    Raises:
        OSError: There is no folder to put it in.
        subprocess.SubprocessError: The compiler failed.
    """
    name = f"{stem}-{_key(command, [*flags, about], texts)}.so"
    problem = OSError("there is no folder to put the library in")
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = folder / name
            if not place.exists():
                _compile(command, flags, texts, place)
            return place
        except OSError as error:  # not writable, or full: the next one may do
            problem = error
    raise problem


def _key(command: list[str], flags: list[str], texts: dict[str, str]) -> str:
    parts = [*command, *flags, _processor(), *(f"{name}\n{text}" for name, text in texts.items())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


def _processor() -> str:
    """What the processor can do: a home folder may be shared by machines that differ."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.system(), platform.machine(), *(named.get(name, "") for name in wanted)])


def _folders() -> Iterator[Path]:
    """Where the library may lie: the user's cache, or a folder that only this process uses."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(cache):
        yield Path(cache) / "natsr" / "native"
    else:
        home = os.path.expanduser("~")
        if os.path.isabs(home):
            yield Path(home) / ".cache" / "natsr" / "native"
    yield _temporary()


@functools.cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="natsr-native-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _compile(command: list[str], flags: list[str], texts: dict[str, str], place: Path) -> None:
    """Compile each source by itself, as many at a time as there are processors, and link them."""
    libraries = [flag for flag in flags if flag.startswith("-l")]
    others = [flag for flag in flags if flag not in libraries]
    units = sorted((name for name in texts if not name.endswith(".h")), key=lambda name: -len(texts[name]))
    with tempfile.TemporaryDirectory(prefix=".build-", dir=place.parent) as work:
        for name, text in texts.items():
            (Path(work) / name).write_text(text, "utf-8")

        def run(*words: str) -> None:
            told = [*command, *words]
            subprocess.run(told, cwd=work, capture_output=True, text=True, timeout=_SECONDS, check=True)

        apart = [flag for flag in others if flag != "-shared"]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:  # the largest first
            list(pool.map(lambda unit: run(*apart, "-c", unit, "-o", f"{unit}.o"), units))
        run(*others, *(f"{unit}.o" for unit in units), "-o", "made.so", *libraries)
        os.replace(Path(work) / "made.so", place)
