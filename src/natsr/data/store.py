"""Where the files of named datasets lie, how they get there, and whether they are what they should be.

A file is looked for in `$NATSR_DATA`, then in the user's cache, then among those that come with the package; then it is
downloaded into the cache. A parsed copy (`.npz`) spares the parsing, and the need for pandas.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, TypeAlias

import numpy as np

from natsr.data.series import Series
from natsr.types import DataError

#: Called with (bytes done, bytes in all or 0 if unknown, what) during a download.
Progress: TypeAlias = Callable[[int, int, str], None]
PACKAGED = Path(__file__).parent / "sample"
_CHUNK = 1 << 18
_TIMEOUT_SECONDS = 30
#: Raised when the same file is parsed into something else, so that older copies are made again.
_COPY_VERSION = 1


def silent(_done: int, _of: int, _what: str) -> None:
    """The progress display of those who want none."""


@dataclass(frozen=True)
class File:
    """One form in which a dataset is handed around.

    Args:
        name: File name.
        sha256: Checksum of the published file, where it is known.
        git_blob: Its name in the git repository that publishes it, where that is what is known.
        url: Its official address, if it can be fetched from there as it is.
    """

    name: str
    sha256: str | None = None
    git_blob: str | None = None
    url: str | None = None


def cache_folder() -> Path:
    """The user's cache: `$XDG_CACHE_HOME/natsr`, or `~/.cache/natsr`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "natsr"


def folders() -> list[Path]:
    """Where files are looked for, in this order."""
    given = os.environ.get("NATSR_DATA")
    return [*([Path(given)] if given else []), cache_folder(), PACKAGED]


def find(files: tuple[File, ...]) -> tuple[File, Path] | None:
    """The first of these files that is there, folder by folder."""
    for folder in folders():
        for file in files:
            if (folder / file.name).is_file():
                return file, folder / file.name
    return None


def checked(file: File, path: Path) -> str:
    """The SHA-256 of the file at `path`.

    Raises:
        DataError: It is not the published file.
    """
    size = path.stat().st_size
    sha256, blob = hashlib.sha256(), hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            sha256.update(chunk)
            blob.update(chunk)
    for expected, got in ((file.sha256, sha256.hexdigest()), (file.git_blob, blob.hexdigest())):
        if expected is not None and got != expected:
            raise DataError(
                f"{path} has checksum {got}, expected {expected}: it is not the published file; replace it, or pass "
                "its path instead of a dataset's name to use it as your own"
            )
    return sha256.hexdigest()


def fetch(files: tuple[File, ...], progress: Progress = silent) -> tuple[File, Path]:
    """Download the first of these files that has an official address into the user's cache.

    Raises:
        DataError: It cannot be had; says which file is meant, where it was looked for and where it can be found.
    """
    reason = "it has no official address to fetch it from"
    for file in files:
        if file.url is not None:
            try:
                return file, _download(file, file.url, progress)
            except (OSError, HTTPException) as error:  # no network, no such page, no room, not allowed to write
                reason = f"downloading it failed ({error})"
    raise missing(files, reason)


def missing(files: tuple[File, ...], reason: str) -> DataError:
    """The error about a file that is in none of the folders."""
    names = " or ".join(file.name for file in files)
    places = ", ".join(str(folder) for folder in folders() if folder != PACKAGED)
    sources = " or ".join(file.url for file in files if file.url is not None)
    return DataError(
        f"{names} was not found in {places}, and {reason}; get it{' from ' + sources if sources else ''} and put it "
        "into one of these folders (NATSR_DATA names one of your choice)"
    )


def _download(file: File, url: str, progress: Progress) -> Path:
    target = cache_folder() / file.name
    with atomic(target) as stream:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
            size, done = int(answer.headers.get("Content-Length") or 0), 0
            while chunk := answer.read(_CHUNK):
                stream.write(chunk)
                done += len(chunk)
                progress(done, size, file.name)
        stream.flush()
        checked(file, Path(stream.name))
    return target


@contextmanager
def atomic(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name only when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as stream:
        part = Path(stream.name)
        try:
            yield stream
            stream.close()
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


# Parsed copies


def copy_name(stem: str, sha256: str) -> str:
    """What the parsed copy of a file with this checksum is called."""
    return f"{stem}-{sha256[:12]}.npz"


def find_copy(stem: str, sha256: str | None) -> Path | None:
    """A parsed copy of the file with this checksum, or of any form of it where none is given."""
    for folder in folders():
        pattern = f"{stem}-{'?' * 12}.npz" if sha256 is None else copy_name(stem, sha256)
        for path in sorted(folder.glob(pattern)):
            return path
    return None


def write_copy(series: Series, path: Path) -> None:
    """Keep what was parsed."""
    with atomic(path) as stream:
        np.savez(
            stream,
            version=np.array(_COPY_VERSION),
            times=series.times.astype("datetime64[s]").astype(np.int64),
            values=series.values,
            columns=np.array(series.columns),
            step_seconds=np.array(series.step_seconds),
            notes=np.array(series.notes, dtype=np.str_),
        )


def read_copy(path: Path, name: str) -> Series:
    """Read what `write_copy` kept.

    Raises:
        DataError: The copy is damaged, or of another version.
    """
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as kept:
            if int(kept["version"]) != _COPY_VERSION:
                raise ValueError(f"version {int(kept['version'])}, not {_COPY_VERSION}")
            return Series(
                name,
                kept["times"].astype("datetime64[s]"),
                kept["values"],
                tuple(kept["columns"].tolist()),
                int(kept["step_seconds"]),
                notes=tuple(kept["notes"].tolist()),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be used ({error}), expected a parsed copy of {name}; delete it or export it again"
        ) from error


def keep_copy(series: Series, stem: str, sha256: str) -> None:
    """Write a parsed copy into the user's cache, if that can be written to."""
    with suppress(OSError):
        write_copy(series, cache_folder() / copy_name(stem, sha256))
