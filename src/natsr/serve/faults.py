"""Errors as people see them: what was got, what was expected, what to do; and what a database's error means."""

from __future__ import annotations

import errno
from collections.abc import Mapping

from natsr.types import NatsrError

#: PostgreSQL: disk full, and the class of errors that mean too little of something.
_FULL_CODE = "53100"
#: Of HTTP: what somebody may have mended by and by.
PASSING = (503, 507)


class ApiError(NatsrError):
    """A request that is answered with an error.

    Args:
        status: Of HTTP.
        error: What was got.
        expected: What was expected.
        hint: What to do.
        headers: More headers of the answer, such as `Retry-After`, which is 5 with what may be over by then.

    >>> ApiError(503, "the database does not answer").headers
    {'Retry-After': '5'}
    """

    def __init__(
        self, status: int, error: str, expected: str = "", hint: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error)
        self.status, self.error, self.expected, self.hint = status, error, expected, hint
        self.headers = ({"Retry-After": "5"} if status in PASSING else {}) | dict(headers or {})

    def body(self) -> dict[str, str]:
        """As it is sent."""
        return {"error": self.error, "expected": self.expected, "hint": self.hint}


class StorageError(ApiError):
    """The state could not be written or read; nothing that was asked for has been done, nothing kept is lost."""


def storage_error(error: Exception) -> StorageError:
    """What went wrong below, as an answer.

    >>> storage_error(OSError(errno.ENOSPC, "No space left on device")).status
    507
    """
    origin = getattr(error, "orig", None) or error
    text = " ".join(str(origin).split())[:300] or type(origin).__name__
    low = text.lower()
    code = getattr(origin, "sqlstate", None)
    kept = "nothing of this request was taken; what was acknowledged before is safe"
    if "disk is full" in low or code == _FULL_CODE or getattr(origin, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            507, f"the state cannot grow: {text}", "space on the disk of the state", f"{kept}; make room"
        )
    if "readonly" in low or "read-only" in low or "query_only" in low or "permission denied" in low:
        expected = "a state that can be written"
        hint = f"{kept}; check its permissions"
        return StorageError(503, f"the state cannot be written: {text}", expected, hint)
    expected = "a database that answers"
    return StorageError(503, f"the state cannot be used now: {text}", expected, f"{kept}; try again")
