"""How many observations a second the service holds, and how quickly it answers: `python -m benchmarks.serve.load`.

For each number of series a fresh service on SQLite, its learners past their warm-up and the restless rows after it.
Then, for the given minutes, clients post as fast as rows are learned: a series gets its next row when fewer than five
wait. A single series gets eight rows in a request, for one client that waits for each answer could not keep its learner
busy; more series get one. Beside them one client asks for forecasts, ten times a second. What is held is the number of
rows learned, not only kept. With `--pace` clients post no more rows a second than that, all series together: what is
then measured is memory and waiting, not what the service could do. Results go to `benchmarks/results/serve-load.json`,
or to another name.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
from benchmarks.serve.harness import PATIENCE, Nursery, Served, cpu_seconds, keep, rows

WAITING = 5
CLIENTS = 4
#: Seconds between two looks of a client at what waits to be learned, at most: the list of all series is long.
LOOK = 0.25


@dataclass
class Load:
    """One run.

    Args:
        url: Of the service.
        series: How many.
        seconds: How long.
        pace: Rows a second at most, all series together; 0 if there is no such limit.
    """

    url: str
    series: int
    seconds: float
    pace: float = 0.0
    acks: list[float] = field(default_factory=list)
    forecasts: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    ended: float = 0.0

    def running(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self.ended


def prepared(url: str, series: int, body: dict[str, Any], warm: int) -> None:
    """Create the series and bring them past their warm-up."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        for number in range(series):
            client.put(f"/v1/series/s{number}", json=body).raise_for_status()
            answer = client.post(f"/v1/series/s{number}/observations", json={"rows": rows(number, 0, warm)})
            answer.raise_for_status()
    while learned(url, series) < series * warm:
        time.sleep(0.2)


def post(load: Load, mine: Sequence[int], first: int) -> None:
    """One client: its series in turn, a row each, as long as few of them wait to be learned."""
    places, pending, looked = dict.fromkeys(mine, first), dict.fromkeys(mine, 0), 0.0
    sent, started = 0, time.monotonic()
    with httpx.Client(base_url=load.url, timeout=PATIENCE) as client:
        while load.running():
            free = [number for number in mine if pending[number] < WAITING]
            for number in free:
                body = {"rows": rows(number, places[number], places[number] + together(load.series))}
                asked = time.perf_counter()
                answer = client.post(f"/v1/series/s{number}/observations", json=body).raise_for_status().json()
                load.acks.append(time.perf_counter() - asked)
                places[number] += answer["accepted"]
                pending[number] = answer["pending"]
                sent += answer["accepted"]
                if load.pace:
                    due = started + sent * load.series / (load.pace * len(mine))
                    time.sleep(max(0.0, min(due, load.ended) - time.monotonic()))
            if not free:
                time.sleep(0.02)
            if len(free) < len(mine) and time.monotonic() > looked + min(LOOK, 0.01 * load.series):
                looked = time.monotonic()
                listed = client.get("/v1/series", params={"count": 1000}).raise_for_status().json()["series"]
                now = {one["key"]: one["pending"] for one in listed}
                pending = {number: now[f"s{number}"] for number in mine}


def together(series: int) -> int:
    """Rows in a request."""
    return 8 if series == 1 else 1


def ask(load: Load) -> None:
    """Forecasts, ten a second."""
    rng = random.Random(0)
    with httpx.Client(base_url=load.url, timeout=PATIENCE) as client:
        while load.running():
            started = time.perf_counter()
            client.get(f"/v1/series/s{rng.randrange(load.series)}/forecast").raise_for_status()
            load.forecasts.append(time.perf_counter() - started)
            time.sleep(0.1)


def learned(url: str, series: int) -> int:
    """Rows learned so far."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as client:
        found = client.get("/v1/series", params={"count": 1000}).raise_for_status().json()["series"]
    assert len(found) == series, f"there are {len(found)} series, expected {series}"
    return int(sum(one["observations"] - one["pending"] for one in found))


def spent_by(served: Served) -> tuple[float, float]:
    """Processor time of the process that answers, and of those that learn."""
    return cpu_seconds(served.pid), sum(cpu_seconds(child) for child in served.children())


def milliseconds(values: Sequence[float]) -> dict[str, float]:
    """Median and 99th percentile."""
    cuts = statistics.quantiles(values, n=100)
    return {"p50_ms": round(1000 * cuts[49], 2), "p99_ms": round(1000 * cuts[98], 2), "count": len(values)}


def held(served: Served, load: Load, warm: int) -> dict[str, Any]:
    """Run it."""
    series, seconds = load.series, load.seconds
    shares = [[number for number in range(series) if number % CLIENTS == turn] for turn in range(CLIENTS)]
    before, started = learned(load.url, series), time.monotonic()
    load.ended = started + seconds
    threads = [threading.Thread(target=post, args=(load, share, warm)) for share in shares if share]
    threads.append(threading.Thread(target=ask, args=(load,)))
    busy, begun = os.times(), spent_by(served)
    for thread in threads:
        thread.start()
    while load.running():
        load.memory.append(served.memory_mib())
        time.sleep(max(1.0, seconds / 60))
    for thread in threads:
        thread.join(PATIENCE)
    after, elapsed, spent = learned(load.url, series), time.monotonic() - started, os.times()
    answering, learning = (
        1000 * (now - then) / (after - before) for now, then in zip(spent_by(served), begun, strict=True)
    )
    return {
        "series": series,
        "rows_in_a_request": together(series),
        "seconds": round(elapsed, 1),
        "rows_learned": after - before,
        "rows_per_second": round((after - before) / elapsed, 1),
        "cpu_ms_a_row": {"learning": round(learning, 2), "answering": round(answering, 2)},
        "acknowledgement": milliseconds(load.acks),
        "forecast": milliseconds(load.forecasts),
        "memory_mib_first": round(load.memory[0]),
        "memory_mib_last": round(load.memory[-1]),
        "memory_mib": [round(value) for value in load.memory[:: max(1, len(load.memory) // 12)]],
        "client_cpu_share": round((spent.user + spent.system - busy.user - busy.system) / elapsed, 2),
    }


def main() -> None:
    """For each number of series."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", default="1,10,100")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--warm", type=int, default=150, help="rows that each series has learned before it begins")
    parser.add_argument("--pace", type=float, default=0.0, help="rows a second at most, of all series; 0: no limit")
    parser.add_argument("--name", default="load", help="of the file of results")
    chosen = parser.parse_args()
    body = {"columns": ["load"], "horizon": 24, "window": 60, "method": chosen.method}
    names = ("method", "minutes", "workers", "warm", "series", "name", "pace")
    told: dict[str, Any] = {name: getattr(chosen, name) for name in names}
    results = []
    with Nursery() as nursery:
        for series in map(int, chosen.series.split(",")):
            more = ("--resident", "128", "--workers", str(chosen.workers), "--max-rate", "1000000")
            with tempfile.TemporaryDirectory() as state, Served(nursery, state, *more) as served:
                prepared(served.url, series, body, chosen.warm)
                load = Load(served.url, series, 60 * chosen.minutes, chosen.pace)
                results.append(held(served, load, chosen.warm))
                served.stop()
            sys.stderr.write(f"{results[-1]}\n")
            told["load_average"] = [round(value, 1) for value in os.getloadavg()]
            keep(chosen.name, {**told, "runs": results})


if __name__ == "__main__":
    main()
