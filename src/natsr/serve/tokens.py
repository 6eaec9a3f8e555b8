"""Who may do what: tokens in a TOML file, of which only hashes are kept.

A token is 32 random bytes, so its SHA-256 can be kept without salt or stretching. The hash of what came is compared
with every hash of the file, each in constant time. The file is read again when it changes; one that cannot be read
leaves the tokens as they were.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import time as clock
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from natsr.types import OptionError

log = logging.getLogger(__name__)

#: What a token may allow: look, post observations, create and delete series (and all the rest).
SCOPES = ("read", "write", "admin")
_HASH = re.compile(r"[0-9a-f]{64}")
_EVERY = 1.0  # seconds between two looks at the file


class Token(NamedTuple):
    """What one token allows."""

    name: str
    sha256: str
    scopes: tuple[str, ...]
    series: tuple[str, ...]

    def may(self, scope: str, key: str | None = None) -> bool:
        """Whether it allows this, for this series; without a key, for any.

        >>> Token("plant", "", ("read",), ("plant-*",)).may("read", "plant-7")
        True
        """
        allowed = scope in self.scopes or "admin" in self.scopes
        return allowed and (key is None or any(fnmatchcase(key, pattern) for pattern in self.series))


def hashed(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tokens = read(path)
        self._looked = clock.monotonic()
        self._seen: tuple[int, int, int] | None = None  # so that the first look reads it once more

    def find(self, token: str) -> Token | None:
        """The token, if it is one of the file's; as many comparisons whether it is or not."""
        self._refresh()
        given, found = hashed(token), None
        for known in self._tokens:
            if hmac.compare_digest(known.sha256, given):
                found = known
        return found

    def _mark(self) -> tuple[int, int, int]:
        status = os.stat(self._path)
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _refresh(self) -> None:
        now = clock.monotonic()
        if now - self._looked < _EVERY:
            return
        self._looked = now
        try:
            mark = self._mark()
            if mark != self._seen:
                self._seen, self._tokens = mark, read(self._path)
                log.info("read %d tokens from %s", len(self._tokens), self._path)
        except (OSError, OptionError) as error:
            log.error("the tokens stay as they were: %s", error)


def read(path: Path) -> tuple[Token, ...]:
    """The tokens of a file.

    Raises:
        OptionError: It cannot be read, or says something else than tokens.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"cannot read the tokens in {path}: {error}; make one with `natsr token`") from error
    entries = content.get("token")
    if not isinstance(entries, list) or not entries or set(content) != {"token"}:
        raise OptionError(f"{path} holds no [[token]], expected at least one; make one with `natsr token`")
    return tuple(_entry(entry, path) for entry in entries)


def _entry(entry: Any, path: Path) -> Token:
    expected = "expected name, sha256, scopes and series; make one with `natsr token`"
    if not isinstance(entry, dict) or set(entry) != {"name", "sha256", "scopes", "series"}:
        raise OptionError(f"a token in {path} has the wrong fields, {expected}")
    name, digest, scopes, series = entry["name"], entry["sha256"], entry["scopes"], entry["series"]
    if not isinstance(name, str) or not isinstance(digest, str) or not _HASH.fullmatch(digest):
        raise OptionError(f"a token in {path} has no name, or a sha256 that is not 64 hexadecimal digits; {expected}")
    for given in (scopes, series):
        if not isinstance(given, list) or not given or not all(isinstance(item, str) for item in given):
            raise OptionError(f"token {name!r} in {path} has {given!r}, expected a list of text")
    if not set(scopes) <= set(SCOPES):
        raise OptionError(f"token {name!r} in {path} has the scopes {scopes}, expected some of {', '.join(SCOPES)}")
    return Token(name, digest, tuple(scopes), tuple(series))


def add(path: Path, name: str, scopes: Sequence[str], series: Sequence[str]) -> str:
    """Make a token, add its hash to a file, and give it back: it is not kept anywhere else."""
    token = "natsr_" + secrets.token_urlsafe(32)
    fields = {"name": name, "sha256": hashed(token), "scopes": list(scopes), "series": list(series)}
    _entry(fields, path)
    if path.exists():
        read(path)
    # JSON's text and lists are TOML's too.
    lines = ["[[token]]", *(f"{field} = {json.dumps(value)}" for field, value in fields.items()), ""]
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error}") from error
    return token
