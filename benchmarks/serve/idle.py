"""Memory with a thousand series, most of them idle: `python -m benchmarks.serve.idle`.

One learner is brought past its warm-up; its rows and its snapshot become those of a thousand series (the same rows with
the same seed make the same learner). Then every series is asked for a forecast at a level that is not kept, which
brings its learner into memory and sends another one out. Results go to `benchmarks/results/serve-idle.json`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from benchmarks.serve.harness import PATIENCE, Nursery, Served, keep, rows, value

from natsr.live import Live
from natsr.serve.admit import Layout, offered
from natsr.serve.service import checked
from natsr.serve.settings import Limits
from natsr.serve.store import LogRow, SeriesRow, Store

GIVEN: dict[str, Any] = {"columns": ["load"], "horizon": 24, "window": 60, "freq": "h", "method": "natsr", "seed": 0,
                         "protocol": "honest", "options": {}}  # fmt: skip
LENGTH = 150


def prepare(folder: Path, count: int) -> None:
    """A state with so many series, each with the same rows and the same snapshot."""
    settings = checked(GIVEN, Limits())
    live = Live(**settings)
    posted = rows(0, 0, LENGTH)
    for row, given in enumerate(posted):
        live.observe(given["time"], {"load": value(0, row)})
    first = folder / "snapshots" / f"{0:032x}"
    live.save(first)
    good, _ = offered([(given["time"], given["values"], None) for given in posted], Layout(["load"]))
    log = [LogRow(seq, row.time, row.row) for seq, row in enumerate(good, 1)]
    store = Store(str(folder))
    for number in range(count):
        owner = f"{number:032x}"
        with store.engine.begin() as connection:
            store.add_series(connection, SeriesRow(owner, f"s{number}", settings, 0, 0, {}, 0, None))
            store.add_rows(connection, owner, log)
            store.note_snapshot(connection, owner, LENGTH, "{}", 0)
        if number:
            (folder / "snapshots" / owner).mkdir()
            for file in first.iterdir():  # a snapshot's files are replaced, never changed
                os.link(file, folder / "snapshots" / owner / file.name)
    store.close()


def main() -> None:
    """Prepare, ask, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=1000)
    parser.add_argument("--resident", type=int, default=64)
    chosen = parser.parse_args()
    with Nursery() as nursery, tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), chosen.series)
        with Served(nursery, folder, "--resident", str(chosen.resident), "--max-rate", "1000000") as served:
            with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
                client.get("/readyz").raise_for_status()
                begin, peak, back, means = served.memory_mib(), 0.0, [], set()
                for number in range(chosen.series):
                    started = time.perf_counter()
                    answer = client.get(f"/v1/series/s{number}/forecast", params={"levels": "0.8"}).raise_for_status()
                    back.append(time.perf_counter() - started)
                    means.add(str(answer.json()["mean"]))
                    peak = max(peak, served.memory_mib())
            end = served.memory_mib()
            served.stop()
    result = {
        "series": chosen.series,
        "resident": chosen.resident,
        "memory_mib_begin": round(begin),
        "memory_mib_peak": round(peak),
        "memory_mib_end": round(end),
        "back_ms_p50": round(1000 * statistics.median(back), 1),
        "back_ms_p99": round(1000 * statistics.quantiles(back, n=100)[98], 1),
        "different_forecasts": len(means) - 1,
        "load_average": [round(load, 1) for load in os.getloadavg()],
    }
    sys.stderr.write(f"{result}\n")
    keep("idle", result)


if __name__ == "__main__":
    main()
