"""What the service is told at its start: limits, and where it may listen."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path


def _refuse(message: str) -> None:
    # Here and not above: torch comes with it, and `natsr --help`, which shows these defaults, must not wait for torch.
    from natsr.types import OptionError

    raise OptionError(message)


@dataclass(frozen=True)
class Limits:
    """What one request, one series and one client may ask for.

    Args:
        body_bytes: In a request.
        rows: In a request.
        series: In all.
        pending: Rows of a series that are kept but not yet learned; beyond it, 429.
        rate: Requests in a second from one token, or one address where there are no tokens; twice that at once.
        columns: Of a series.
        inputs: `window * columns` of a series, which is what a learner's memory grows with.
        outputs: `horizon * columns` of a series.
    """

    body_bytes: int = 8 * 2**20
    rows: int = 10_000
    series: int = 10_000
    pending: int = 50_000
    rate: float = 1000.0
    columns: int = 256
    inputs: int = 4096
    outputs: int = 4096

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                _refuse(f"limit {name} is {value}, expected more than 0")


@dataclass(frozen=True)
class ServeSettings:
    """Everything but where it listens.

    Args:
        state: A folder (SQLite, made if missing), or `postgresql://…`.
        tokens: File of tokens; without it everyone who can connect may do everything.
        workers: Threads that learn, each with a process where `natsr serve` runs on Linux.
        resident: Learners kept in memory; those unused longest leave first and come back from their snapshots.
        snapshot_rows: A snapshot is taken after so many rows learned,
        snapshot_seconds: or so many seconds after the first row that the last snapshot has not seen.
        history: Forecasts kept for each series, to be compared with what came.
        limits: See there.
    """

    state: str
    tokens: Path | None = None
    workers: int = 2
    resident: int = 64
    snapshot_rows: int = 1000
    snapshot_seconds: float = 300.0
    history: int = 1000
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name in ("workers", "resident", "snapshot_rows", "snapshot_seconds", "history"):
            if not getattr(self, name) > 0:
                _refuse(f"{name} is {getattr(self, name)}, expected more than 0")


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_host(host: str, tokens: Path | None) -> None:
    """Refuse to listen where strangers can connect unless there are tokens."""
    if tokens is None and not is_loopback(host):
        _refuse(
            f"--host is {host} and there are no --tokens, expected a loopback address such as 127.0.0.1; anyone who "
            "can connect could read and write everything. Make a file of tokens with `natsr token`, or listen on "
            "127.0.0.1 behind a reverse proxy"
        )
