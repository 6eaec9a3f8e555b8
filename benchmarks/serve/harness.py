"""A service in a process of its own, that can be killed; a PostgreSQL of one's own; and streams to feed them.

Used by the benchmarks of the service and by its tests.
"""

from __future__ import annotations

import contextlib
import grp
import json
import math
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import numpy as np
import uvicorn
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from natsr.live import Live
from natsr.serve.app import make_app
from natsr.serve.run import Server, listening
from natsr.serve.service import Service
from natsr.serve.settings import ServeSettings
from natsr.version import __version__

START = np.datetime64("2026-01-01T00:00:00")
RESULTS = Path(__file__).resolve().parent.parent / "results"
#: Seconds for a service to begin, on a slow and busy machine.
PATIENCE = 180.0
_POSTGRES = Path("/usr/lib/postgresql")


#: Run by the nursery: import once, then a copy of the process for each service that is asked for.
_NURSERY = """
import json, os, signal, sys
import natsr.cli, natsr.serve.run
natsr.Live(["any"], horizon=1, window=4, method="natsr")  # whatever is compiled or loaded when a learner is first made
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(asked["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, file in ((0, nothing), (1, nothing), (2, log)):
            os.dup2(file, number)
        os._exit(natsr.cli.app(asked["arguments"], standalone_mode=False) or 0)
    print(child, flush=True)
"""


class Nursery:
    """Where services are born quickly: torch is imported once, and every service is a fork of that process."""

    def __init__(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()

    def born(self, arguments: Sequence[str], log: Path) -> int:
        """A new process that runs the command line with these arguments; its number."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"arguments": list(arguments), "log": str(log)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class Served:
    """`natsr serve` in a process of its own; a context manager that always ends it.

    Args:
        nursery: Where it is born.
        state: Folder or URL.
        more: More options.
    """

    def __init__(self, nursery: Nursery, state: str | Path, *more: str) -> None:
        self._nursery = nursery
        self._arguments = ["serve", "--state", str(state), "--port", "0", *more]
        self._folder = tempfile.TemporaryDirectory(prefix="natsr-served-")
        self._log = Path(self._folder.name) / "log"
        self._starts = 0
        self.pid = 0
        self.url = ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._folder.cleanup()

    @property
    def output(self) -> str:
        """What it has said since it was started."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def start(self) -> None:
        """Start it, and wait until it listens and has found its state."""
        self._starts += 1
        self._log = Path(self._folder.name) / f"log-{self._starts}"
        self.pid = self._nursery.born(self._arguments, self._log)
        until = time.monotonic() + PATIENCE
        while "listening on " not in self.output:
            if not self.alive() or time.monotonic() > until:
                said = self.output
                self.kill()
                raise RuntimeError(f"the service did not start: {said}")
            time.sleep(0.01)
        self.url = self.output.split("listening on ")[1].split()[0]

    def alive(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """As a power cut does it: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As people do it: SIGTERM."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        until = time.monotonic() + PATIENCE
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, how)
            while self.alive() and time.monotonic() < until:
                time.sleep(0.005)
            os.kill(self.pid, signal.SIGKILL)

    def memory_mib(self) -> float:
        """Memory of the process, its own or shared with the nursery, and what its children have of their own."""
        fields = Path(f"/proc/{self.pid}/statm").read_text().split()
        own = sum(private_kib(child) for child in self.children()) / 2**10
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20 + own

    def children(self) -> list[int]:
        """The processes that learn."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # one that has just ended
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    found.append(int(path.parent.name))
        return found


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_kib(pid: int) -> int:
    """Memory that a process shares with nobody."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))


@contextmanager
def inside(settings: ServeSettings) -> Iterator[tuple[Service, httpx.Client]]:
    """The service in this process, with a real server in a thread: what is inside can be looked at, and broken."""
    app = make_app(settings)
    service: Service = app.state.service
    server = Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=5), service.bus.close)
    with listening("127.0.0.1", 0) as made:
        thread = threading.Thread(target=server.run, args=([made],))
        thread.start()
        try:
            url = f"http://127.0.0.1:{made.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=PATIENCE) as client:
                client.get("/healthz").raise_for_status()
                yield service, client
        finally:
            service.bus.close()
            server.should_exit = True
            thread.join(PATIENCE)
            assert not thread.is_alive(), "the server did not stop"


def postgres_binaries() -> Path | None:
    """Where initdb and postgres are, if they are installed."""
    found = sorted(_POSTGRES.glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


def _unprivileged() -> str | None:
    """Whom to be instead of root, as whom PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return None
    return "postgres" if any(entry.pw_name == "postgres" for entry in pwd.getpwall()) else "nobody"


def _started(command: Sequence[object], root: Path, user: str | None) -> subprocess.Popen[bytes]:
    """The command in the background, its output in a file."""
    group = grp.getgrgid(pwd.getpwnam(user).pw_gid).gr_name if user else None
    with (root / "log").open("ab") as log:
        return subprocess.Popen(
            list(map(str, command)), cwd=root, stdin=subprocess.DEVNULL, stdout=log, stderr=log, user=user, group=group,
            extra_groups=[] if user else None,
        )  # fmt: skip


class Postgres:
    """A server with an empty database, reached through a socket of its own; a context manager that always ends it."""

    def __init__(self) -> None:
        self._user = _unprivileged()
        self._server: subprocess.Popen[bytes] | None = None
        self._root = Path(tempfile.mkdtemp(prefix="pg"))  # short, for the path of a socket may have 107 bytes
        self.url = f"postgresql://natsr@/postgres?host={self._root}"

    def __enter__(self) -> Self:
        try:
            self._make()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._root, ignore_errors=True)

    def _command(self, name: str) -> list[object]:
        binaries = postgres_binaries()
        assert binaries is not None, "PostgreSQL is not installed"
        return [binaries / name, "-D", self._root / "data"]

    def _make(self) -> None:
        if self._user:
            shutil.chown(self._root, self._user)
        make = [*self._command("initdb"), "-A", "trust", "-U", "natsr", "-E", "UTF8", "--locale=C", "-N"]
        if _started(make, self._root, self._user).wait(PATIENCE):
            raise RuntimeError("initdb failed: " + (self._root / "log").read_text(errors="replace"))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        run = [*self._command("postgres"), "-k", self._root, "-c", "listen_addresses="]
        self._server = _started(run, self._root, self._user)
        _wait_for(self.url, self._server, self._root / "log")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, and every connection to it; with SIGQUIT as if its machine had lost power."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(how)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"), poolclass=NullPool)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            engine.connect().close()
            return
        except OperationalError as error:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("PostgreSQL did not start: " + log.read_text(errors="replace")) from error
            time.sleep(0.1)


# ---- streams -----------------------------------------------------------------------------------------------------


def value(series: int, row: int) -> float:
    """What a stream has at a row: a day's wave and some noise, the same wherever it is asked for."""
    noise = math.sin(12.9898 * row + 78.233 * series) * 43758.5453
    return 10 + series + math.sin(row * math.tau / 24) + 0.3 * (noise - math.floor(noise))


def moment(row: int) -> str:
    """The time of a row."""
    return str(START + row * np.timedelta64(1, "h"))


def rows(series: int, first: int, last: int) -> list[dict[str, Any]]:
    """Rows as they are posted."""
    return [{"time": moment(row), "values": {"load": value(series, row)}} for row in range(first, last)]


def uninterrupted(settings: Mapping[str, Any], series: int, last: int, at: Sequence[int]) -> dict[str, list[float]]:
    """The forecasts, by origin, of a learner in this process that nothing ever happened to."""
    live = Live(**settings)
    found = {}
    for row in range(last):
        live.observe(moment(row), {"load": value(series, row)})
        if row in at:
            found[moment(row)] = live.forecast().mean[:, 0].tolist()
    return found


def keep(name: str, result: Mapping[str, Any]) -> Path:
    """Write a result to `benchmarks/results`, with the machine it was measured on."""
    cpu = next((line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")), "unknown")
    machine = {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "natsr": __version__,
    }
    path = RESULTS / f"serve-{name}.json"
    path.write_text(json.dumps({"machine": machine, **result}, indent=1) + "\n", encoding="utf-8")
    return path


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
