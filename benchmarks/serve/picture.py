"""The picture of the service's page in the README: the bundled sample, streamed through a real service.

    python -m benchmarks.serve.picture docs/serve.png

Needs chromium, and the extra `dev`.
"""

from __future__ import annotations

import shutil
import sys
import tempfile

import numpy as np
from benchmarks.serve.harness import inside
from playwright.sync_api import sync_playwright

from natsr.data.named import load
from natsr.serve.settings import ServeSettings

ROWS = slice(9000, 10_400)
COLUMNS = ("TEMP", "DEWP", "pm2.5")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def main(out: str) -> None:
    """Stream, look, and keep the picture."""
    series, _ = load("BeijingPM25")
    times, values = series.times[ROWS], series.values[ROWS]
    places = [series.columns.index(name) for name in COLUMNS]
    rows = [
        {
            "time": str(time.astype("datetime64[s]")),
            "values": {
                name: float(row[place]) for name, place in zip(COLUMNS, places, strict=True) if np.isfinite(row[place])
            },
        }
        for time, row in zip(times, values, strict=True)
    ]
    with tempfile.TemporaryDirectory() as state, inside(ServeSettings(state)) as (_, client):
        client.put("/v1/series/beijing", json={"columns": list(COLUMNS), "horizon": 24, "freq": "h"}).raise_for_status()
        client.post("/v1/series/beijing/observations", json={"rows": rows}).raise_for_status()
        while client.get("/v1/series/beijing").json()["pending"]:
            client.get("/v1/series/beijing/forecast", params={"wait": 60})
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": 1100, "height": 900})
            page.goto(f"{client.base_url}/#/series/beijing")
            page.wait_for_selector("#errors svg path.line")
            page.screenshot(path=out, full_page=True)
            browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
