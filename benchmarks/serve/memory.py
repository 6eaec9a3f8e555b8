"""Memory of the service while it learns a hundred thousand rows: `python -m benchmarks.serve.memory`.

Ten series get their rows in large requests; whenever another tenth of all rows is learned, the memory of the process is
noted. Results go to `benchmarks/results/serve-memory.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time

import httpx
from benchmarks.serve.harness import PATIENCE, Nursery, Served, keep, rows
from benchmarks.serve.load import learned

SERIES = 10


def main() -> None:
    """Post, wait, note."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--method", default="auto")
    chosen = parser.parse_args()
    body = {"columns": ["load"], "horizon": 24, "window": 60, "method": chosen.method}
    part = chosen.rows // SERIES // 10
    notes: list[dict[str, float]] = []
    started = time.monotonic()
    with Nursery() as nursery, tempfile.TemporaryDirectory() as state, Served(nursery, state) as served:
        with httpx.Client(base_url=served.url, timeout=PATIENCE) as client:
            for number in range(SERIES):
                client.put(f"/v1/series/s{number}", json=body).raise_for_status()
            for step in range(10):
                for number in range(SERIES):
                    given = {"rows": rows(number, step * part, (step + 1) * part)}
                    client.post(f"/v1/series/s{number}/observations", json=given).raise_for_status()
                while (done := learned(served.url, SERIES)) < (step + 1) * part * SERIES:
                    time.sleep(0.5)
                notes.append({"rows": done, "memory_mib": round(served.memory_mib(), 1)})
                sys.stderr.write(f"{notes[-1]} {time.monotonic() - started:.0f} s\n")
        served.stop()
    load = [round(value, 1) for value in os.getloadavg()]
    seconds = round(time.monotonic() - started)
    keep(
        "memory", {"method": chosen.method, "series": SERIES, "seconds": seconds, "load_average": load, "notes": notes}
    )


if __name__ == "__main__":
    main()
