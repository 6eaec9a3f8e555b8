"""Everything that should not be sent, sent: `python -m benchmarks.serve.hostile`.

First schemathesis makes requests from the service's own OpenAPI document, right ones and wrong ones, and looks for
answers of 5xx and for answers that the document does not describe. Then come hostile bodies and headers of our own,
some over HTTP and some that are no HTTP at all. No answer may be 5xx, every answer of an error has the three fields,
the service lives on, and what was kept before is unchanged. Results go to `benchmarks/results/serve-hostile.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from benchmarks.serve.harness import PATIENCE, Nursery, Served, keep, rows

SERIES: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "method": "rls"}
PLANNED: dict[str, Any] = {
    "columns": ["load"], "horizon": 3, "window": 8, "method": "ogd", "exogenous": ["wind"], "known": ["plan"],
    "options": {"width": 2, "depth": 1, "epochs": 1},
}  # fmt: skip
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
#: Streams never end, so they are left to the tests.
STREAMS = ".*/events$"
PHASES = "examples,coverage,fuzzing,stateful"

_NUMBERS = (
    "0", "-0.0", "1e308", "1e999", "-1e999", "NaN", "Infinity", "9" * 400, "1" * 5000, "0x10", "1_000", "1.", ".5",
)  # fmt: skip
_TEXTS = (
    '""', '"\\ud800"', '"\\u0000"', '"' + "a" * 3000 + '"', '"\U0001f4a9"', '"2026-01-01"', '"\\x"', "'a'", '"%s%n"',
)  # fmt: skip
_OTHERS = (
    "null", "true", "[]", "{}", "[[[]]]", '{"load": {"load": 1}}', "", "undefined", '"load"', "\ufeff1", "//", "/**/1",
)  # fmt: skip
_TIMES = (
    '"2026-01-01T00:00:00"', '"0001-01-01T00:00:00+14:00"', '"9999-12-31T23:59:59-14:00"', '"2026-02-30"', '"now"',
    '"2026-01-01T00:00:00.5"', '"2026-W01-1"', '"20260101"', '"2026-01-01T24:00:00"', '"-2026-01-01"', "1e9", "[]",
)  # fmt: skip
_PATHS = (
    "/v1/series", "/v1/series/a", "/v1/series/a/observations", "/v1/series/a/forecast", "/v1/series/a/history",
    "/v1/series/%00", "/v1/series/..", "/v1/series/a%2Fb", "/v1//series", "/v1/series/" + "a" * 3000, "/%ff",
    "/v1/series/a/forecast?levels=nan", "/v1/series/a/forecast?levels=1e-400&wait=-1", "/v1/series/a/history?count=1e9",
    "/v1/series/a/history?before=%00", "/v1/series?after=%ff&count=0", "/v1/series/a/metrics?count=%D9%A1", "/metrics",
    "/page/..%2f", "/page/%00", "/",
)  # fmt: skip
_METHODS = {"POST": 70, "PUT": 8, "GET": 10, "DELETE": 4, "PATCH": 2, "OPTIONS": 2, "HEAD": 2, "NONSENSE": 2}
_HEADERS = (
    ("Content-Type", "text/plain"), ("Content-Type", "application/json; charset=utf-16"), ("Content-Type", ""),
    ("Authorization", "Bearer " + "a" * 4000), ("Host", "127.0.0.1:99999999"), ("Accept", "*/*;q=" + "9" * 500),
    ("Content-Encoding", "gzip"), ("Expect", "100-continue"), ("Origin", "null"), ("If-None-Match", '"'),
    ("Cookie", "=" * 3000),
    ("Last-Event-ID", "-1"), ("Range", "bytes=-1"), ("X-Forwarded-For", "' OR 1=1 --"), ("Connection", "upgrade"),
)  # fmt: skip


class Hostile(NamedTuple):
    """A request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def _cell(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if kind < 0.2 and depth < 4:
        inner = ",".join(_cell(rng, depth + 1) for _ in range(rng.randint(0, 3)))
        return f"[{inner}]" if rng.random() < 0.5 else "{" + f'"load": {_cell(rng, depth + 1)}' + "}"
    return rng.choice((_NUMBERS, _TEXTS, _OTHERS, _TIMES)[rng.randrange(4)])


def _body(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randint(0, 200))
    if kind < 0.15:
        return rng.choice((b"[", b'{"rows":', b'{"a":')) * rng.randint(1, 3000)
    if kind < 0.4:
        fields = ("columns", "horizon", "window", "freq", "method", "protocol", "seed", "options", "known", "more")
        cells = ",".join(f'"{rng.choice(fields)}": {_cell(rng)}' for _ in range(rng.randint(0, 4)))
        text = '{"columns": ["load"], ' + cells + "}"
    else:
        row = f'{{"time": {rng.choice(_TIMES)}, "values": {{"load": {_cell(rng)}}}}}'
        other = f'{{"time": {_cell(rng)}, "values": {_cell(rng)}}}'
        plan = f'{{"plan": [{_cell(rng)}, 1, {_cell(rng)}]}}'
        told = f'{{"time": {rng.choice(_TIMES)}, "values": {{"plan": 1}}, "future": {rng.choice((plan, _cell(rng)))}}}'
        text = f'{{"rows": [{rng.choice((row, other, told, _cell(rng)))}, {rng.choice((row, other, told))}]}}'
    body = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3 and body:  # a byte is wrong
        place = rng.randrange(len(body))
        body = body[:place] + rng.randbytes(1) + body[place + 1 :]
    return body


def requests(rng: random.Random) -> Iterator[Hostile]:
    """Hostile requests without end."""
    while True:
        headers = dict(rng.sample(_HEADERS, rng.choice((0, 0, 1, 2))))
        if rng.random() < 0.9:
            headers.setdefault("Content-Type", "application/json")
        method = rng.choices(
            ("POST", "PUT", "GET", "DELETE", "PATCH", "OPTIONS", "HEAD", "NONSENSE"), (60, 20, 10, 2, 2, 2, 2, 2)
        )[0]
        path = f"/v1/series/{rng.choice(('hostile', 'planned'))}/observations"
        if rng.random() < 0.3:
            path = rng.choice(_PATHS)
        if method in ("PUT", "DELETE") and rng.random() < 0.9:
            path = f"/v1/series/x{rng.randrange(50)}"
        yield Hostile(method, path, headers, _body(rng))


def raw(rng: random.Random) -> bytes:
    """What is hardly HTTP."""
    line = rng.choice(
        (b"GET / HTTP/1.1", b"GET / HTTP/9.9", b"\x16\x03\x01", b"POST /v1/series/a HTTP/1.1", b"GET", b"\r\n" * 50)
    )
    head = rng.choice((
        b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked\r\nContent-Length: 3", b"A" * 70_000 + b": b",
        b"Host: \xff\x00", b": empty", b"Host: a\r\n b", b"Upgrade: websocket\r\nConnection: Upgrade",
    ))  # fmt: skip
    return line + b"\r\n" + head + b"\r\n\r\n" + rng.randbytes(rng.randint(0, 100))


class Reply(NamedTuple):
    """An answer."""

    status: int
    kind: str
    body: bytes


class Line:
    """One connection, opened again when it is closed; plain `http.client`, which sends most of what it is told to."""

    def __init__(self, url: str) -> None:
        address = httpx.URL(url)
        self._connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE)

    def send(self, request: Hostile) -> Reply:
        """The answer."""
        for _ in range(2):
            try:
                self._connection.request(request.method, request.path, request.body, request.headers)
                answer = self._connection.getresponse()
                return Reply(answer.status, answer.headers.get("content-type", ""), answer.read())
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                self._connection.close()  # closed after the answer before
        raise RuntimeError(f"no answer to {request!r:.500}")

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def send_raw(url: str, content: bytes) -> int | None:
    """The status of the answer; `None` if the connection was closed without one."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 80), timeout=PATIENCE) as connection:
        try:
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            start = connection.recv(200)
        except OSError:
            return None
    parts = start.split(b" ")
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


def wrong(reply: Reply) -> bool:
    """Whether an answer is not as it should be."""
    if reply.status >= 500:
        return True
    if reply.status < 400 or not reply.body:
        return False
    if not reply.kind.startswith("application/json"):
        return reply.status != 400  # uvicorn itself says 400 in plain text to what is not HTTP
    return set(json.loads(reply.body)) != {"error", "expected", "hint"}


def attacked(url: str, count: int, raw_count: int, seed: int) -> dict[str, Any]:
    """Send so many hostile requests, and count the answers."""
    rng = random.Random(seed)
    statuses: Counter[str] = Counter()
    bad: list[str] = []
    with httpx.Client(base_url=url, timeout=PATIENCE) as client, contextlib.closing(Line(url)) as line:
        client.put("/v1/series/kept", json=SERIES).raise_for_status()
        client.put("/v1/series/hostile", json=SERIES).raise_for_status()
        client.put("/v1/series/planned", json=PLANNED).raise_for_status()
        client.post("/v1/series/kept/observations", json={"rows": rows(0, 0, 20)}).raise_for_status()
        before = client.get("/v1/series/kept/observations").content
        for request in itertools.islice(requests(rng), count):
            reply = line.send(request)
            statuses[str(reply.status)] += 1
            if wrong(reply):
                bad.append(f"{reply.status} {reply.body[:200]!r} to {request!r:.500}")
        for _ in range(raw_count):
            content = raw(rng)
            status = send_raw(url, content)
            statuses[str(status) if status is not None else "closed"] += 1
            if status is not None and status >= 500:
                bad.append(f"{status} to {content[:200]!r}")
        alive = client.get("/readyz").status_code == 200
        unchanged = client.get("/v1/series/kept/observations").content == before
    found = {"requests": count, "raw": raw_count, "statuses": dict(sorted(statuses.items()))}
    return {**found, "wrong": len(bad), "examples": bad[:5], "alive": alive, "unchanged": unchanged}


def schema_fuzz(
    url: str, examples: int, seed: int, phases: str = "examples,coverage,fuzzing,stateful"
) -> dict[str, Any]:
    """What schemathesis finds; `failed` must be 0."""
    program = shutil.which("schemathesis") or str(Path(sys.executable).parent / "schemathesis")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [program, "run", f"{url}/openapi.json", "--checks", CHECKS, "--exclude-path-regex", STREAMS]
        command += ["--max-examples", str(examples), "--seed", str(seed), "--phases", phases, "--continue-on-failure"]
        command += ["--report", "junit", "--report-junit-path", str(report), "--no-color", "--warnings", "off"]
        command += ["--request-timeout", str(PATIENCE), "--suppress-health-check", "all"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return {"examples": examples, "status": done.returncode, "says": done.stdout[-3000:]}


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--raw", type=int, default=5_000)
    parser.add_argument("--examples", type=int, default=200, help="of schemathesis, for each operation")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    with Nursery() as nursery, tempfile.TemporaryDirectory() as state:
        more = ("--max-rate", "1000000", "--log-level", "error")
        with Served(nursery, state, *more) as served:
            schema = schema_fuzz(served.url, chosen.examples, chosen.seed)
            sys.stderr.write(schema["says"] + "\n")
            attack = attacked(served.url, chosen.count, chosen.raw, chosen.seed)
            sys.stderr.write(json.dumps(attack, indent=1) + "\n" + served.output[-2000:])
    # What it says of itself, without where its report lay.
    said = schema["says"].strip().splitlines()
    summary = [line for line in said if line and "eport" not in line and "JUnit" not in line]
    keep("hostile", {"schemathesis": {"status": schema["status"], "examples": chosen.examples, "summary": summary[-4:]},
                     "attack": attack})  # fmt: skip


if __name__ == "__main__":
    main()
