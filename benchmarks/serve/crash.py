"""Kill the service at random moments under load, and count what was lost: `python -m benchmarks.serve.crash`.

Several clients post rows to several series, a few rows in each request, some requests twice. At random moments the
service gets SIGKILL and is started again; clients send again what was not answered. At the end the log must hold every
row that was acknowledged, once, and nothing else; and after every kill the forecast of one series, and at the end of
all, must be that of a learner in this process to which nothing ever happened, to the last bit. Results go to
`benchmarks/results/serve-crash.json`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from benchmarks.serve.harness import PATIENCE, Nursery, Postgres, Served, keep, moment, rows, uninterrupted

#: A learner with random numbers, memory and curvature, small so that a row takes little time.
NATSR: dict[str, Any] = {
    "columns": ["load"], "horizon": 3, "window": 8, "freq": "h", "method": "natsr",
    "options": {"width": 4, "depth": 2, "top": 8, "epochs": 1, "memory": 20},
}  # fmt: skip
RLS: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "freq": "h", "method": "rls"}
#: What a series is unless somebody says otherwise, but for its size.
AUTO: dict[str, Any] = {"columns": ["load"], "horizon": 3, "window": 8, "freq": "h"}
#: Rows that may wait to be learned before a client slows down.
AHEAD = 20
METHODS = {"auto": AUTO, "natsr": NATSR, "rls": RLS}
#: Snapshots often, so that kills fall into them too.
OPTIONS = ("--snapshot-rows", "7", "--snapshot-seconds", "0.2", "--resident", "2", "--log-level", "error")


@dataclass
class Crash:
    """One experiment.

    Args:
        nursery: Where services are born.
        state: Folder or URL.
        kills: How many.
        series: How many.
        rows: Of each series, at most.
        seed: Of moments and requests.
        longest: Seconds that a service lives at most.
        methods: Names in `METHODS`, which the series have in turn.
    """

    nursery: Nursery
    state: str
    kills: int
    series: int
    rows: int
    seed: int
    longest: float
    methods: Sequence[str] = ("natsr", "rls")
    acknowledged: list[set[int]] = field(default_factory=list)
    seen: list[list[tuple[str, list[float]]]] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    def settings(self, number: int) -> dict[str, Any]:
        """The methods in turn."""
        return METHODS[self.methods[number % len(self.methods)]]


def post(crash: Crash, number: int) -> None:
    """One client: its rows in order, again and again until they are acknowledged, and not far ahead of learning."""
    rng = random.Random(f"{crash.seed} {number}")
    place = 0
    with httpx.Client(timeout=30) as client:
        while place < crash.rows and not crash.stopping.is_set():
            last = min(crash.rows, place + rng.randint(1, 5))
            first = max(0, place - rng.choice((0, 0, 2)))  # some rows come twice on purpose
            pending = posted(client, crash, number, first, last)
            place = last if pending is not None else place
            time.sleep(0.02 if pending is None else 0.01 * max(0, pending - AHEAD))


def posted(client: httpx.Client, crash: Crash, number: int, first: int, last: int) -> int | None:
    """Rows that wait to be learned, if these rows were acknowledged."""
    try:
        url = f"{crash.url}/v1/series/s{number}/observations"
        answer = client.post(url, json={"rows": rows(number, first, last)})
    except httpx.TransportError:
        return None  # killed meanwhile; the rows may or may not be there
    if answer.status_code != 200:
        assert answer.status_code in (429, 503), answer.text
        return None
    body = answer.json()
    assert not body["refused"], body
    assert body["accepted"] + body["duplicates"] == last - first, body
    crash.acknowledged[number] |= set(range(first, last))
    return int(body["pending"])


def ask(crash: Crash, number: int) -> None:
    """The forecast now, to be compared at the end."""
    with httpx.Client(base_url=crash.url, timeout=PATIENCE) as client:
        answer = client.get(f"/v1/series/s{number}/forecast", params={"wait": 60})
        if answer.status_code == 200:
            body = answer.json()
            crash.seen[number].append((body["origin"], body["mean"]["load"]))
        else:
            crash.unanswered.append(f"{answer.status_code} {answer.json()['error']}")


def checked_crashes(crash: Crash) -> dict[str, Any]:
    """Run it, and count."""
    rng = random.Random(crash.seed)
    crash.acknowledged = [set() for _ in range(crash.series)]
    crash.seen = [[] for _ in range(crash.series)]
    with Served(crash.nursery, crash.state, *OPTIONS) as served:
        crash.url = served.url
        with httpx.Client(base_url=crash.url, timeout=PATIENCE) as client:
            for number in range(crash.series):
                client.put(f"/v1/series/s{number}", json=crash.settings(number)).raise_for_status()
        clients = [threading.Thread(target=post, args=(crash, number)) for number in range(crash.series)]
        for thread in clients:
            thread.start()
        try:
            for _ in range(crash.kills):
                time.sleep(rng.uniform(0.0, crash.longest))
                served.kill()
                served.start()
                crash.url = served.url
                ask(crash, rng.randrange(crash.series))
        finally:
            crash.stopping.set()
            for thread in clients:
                thread.join(PATIENCE)
        for number in range(crash.series):
            ask(crash, number)
        kept = [logged(crash.url, number) for number in range(crash.series)]
    return counted(crash, kept)


def logged(url: str, number: int) -> list[tuple[str, float]]:
    """Every row of the log, as it says itself, in pages from the end."""
    found: list[tuple[str, float]] = []
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        while True:
            params = {"count": "5000", **({"before": found[0][0]} if found else {})}
            answer = client.get(f"/v1/series/s{number}/observations", params=params).raise_for_status().json()
            if not answer["rows"]:
                return found
            found = [(row["time"], row["values"]["load"]) for row in answer["rows"]] + found


def counted(crash: Crash, kept: list[list[tuple[str, float]]]) -> dict[str, Any]:
    """What became of the rows, and whether the forecasts are those of an uninterrupted run."""
    found: dict[str, int] = {
        "kills": crash.kills,
        "series": crash.series,
        "acknowledged": 0,
        "kept": 0,
        "lost": 0,
        "doubled": 0,
    }
    found |= {"strangers": 0, "forecasts_compared": 0, "forecasts_different": 0}
    for number, log in enumerate(kept):
        truth = {row["time"]: row["values"]["load"] for row in rows(number, 0, crash.rows)}
        times = [time for time, _ in log]
        there = set(times)
        found["acknowledged"] += len(crash.acknowledged[number])
        found["kept"] += len(log)
        found["lost"] += sum(moment(row) not in there for row in crash.acknowledged[number])
        found["doubled"] += len(times) - len(there)
        found["strangers"] += sum(truth.get(time) != value for time, value in log)
        seen = crash.seen[number]
        asked = {times.index(origin) for origin, _ in seen}
        alone = uninterrupted(crash.settings(number), number, len(log), sorted(asked))
        found["forecasts_compared"] += len(seen)
        found["forecasts_different"] += sum(alone.get(origin) != mean for origin, mean in seen)
    return {**found, "forecasts_unanswered": len(crash.unanswered), "why": sorted(set(crash.unanswered))}


def main() -> None:
    """Over both databases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="for each database")
    parser.add_argument("--series", type=int, default=6)
    parser.add_argument("--rows", type=int, default=100_000, help="of a series at most")
    parser.add_argument("--longest", type=float, default=2.0, help="seconds that a service lives at most")
    parser.add_argument("--databases", default="sqlite,postgresql")
    parser.add_argument("--methods", default="auto,natsr,rls", help=f"of the series in turn: {', '.join(METHODS)}")
    chosen = parser.parse_args()
    methods, results = chosen.methods.split(","), dict[str, Mapping[str, Any]]()
    with Nursery() as nursery:
        for database in chosen.databases.split(","):
            with tempfile.TemporaryDirectory() as folder, _where(database, folder) as state:
                crash = Crash(nursery, state, chosen.kills, chosen.series, chosen.rows, 7, chosen.longest, methods)
                results[database] = checked_crashes(crash)
                sys.stderr.write(f"{database}: {results[database]}\n")
                keep("crash", {"longest": chosen.longest, "methods": methods, "databases": results})


@contextmanager
def _where(database: str, folder: str) -> Iterator[str]:
    if database == "sqlite":
        yield folder
    else:
        with Postgres() as server:
            yield server.url


if __name__ == "__main__":
    main()
