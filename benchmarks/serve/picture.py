"""The picture of the service's page in the README: the bundled sample, streamed through a real service.

    python -m benchmarks.serve.picture docs/serve.png
    python -m benchmarks.serve.picture docs/serve.png --check FOLDER     and the same dark, on a phone, and the list

Needs chromium, and the extra `dev`. What is drawn wider than its page, and texts that lie on each other, are an error.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from benchmarks.serve.harness import inside
from playwright.sync_api import Browser, sync_playwright

from natsr.data.named import load
from natsr.serve.settings import ServeSettings

ROWS = slice(9000, 10_400)
COLUMNS = ("TEMP", "DEWP", "pm2.5")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


#: Name, width, height, colour scheme and path of each picture to look at.
VIEWS = (
    ("light", 1100, 900, "light", "#/series/beijing"),
    ("dark", 1100, 900, "dark", "#/series/beijing"),
    ("phone", 375, 700, "light", "#/series/beijing"),
    ("phone-dark", 320, 640, "dark", "#/series/beijing"),
    ("list", 1100, 700, "light", ""),
    ("list-phone", 375, 700, "dark", ""),
)
#: In the page: what reaches over its right edge, and texts of a drawing that lie on each other.
DEFECTS = """() => {
    const found = [];
    const wide = document.documentElement.scrollWidth - window.innerWidth;
    if (wide > 0) found.push(`the page is ${wide} pixels too wide`);
    for (const drawing of document.querySelectorAll("svg")) {
        const texts = [...drawing.querySelectorAll("text")].filter((text) => text.textContent.trim());
        const boxes = texts.map((text) => text.getBoundingClientRect());
        for (let i = 0; i < boxes.length; i++)
            for (let j = 0; j < i; j++) {
                const [a, b] = [boxes[i], boxes[j]];
                const x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const y = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (x > 1 && y > 3) found.push(`"${texts[i].textContent}" lies on "${texts[j].textContent}"`);
            }
    }
    return found;
}"""


def rows_of_sample() -> list[dict[str, Any]]:
    """Rows of the bundled sample, as they are posted."""
    series, _ = load("BeijingPM25")
    places = [series.columns.index(name) for name in COLUMNS]
    return [
        {
            "time": str(time.astype("datetime64[s]")),
            "values": {
                name: float(row[place]) for name, place in zip(COLUMNS, places, strict=True) if np.isfinite(row[place])
            },
        }
        for time, row in zip(series.times[ROWS], series.values[ROWS], strict=True)
    ]


def drawn(browser: Browser, url: str, view: tuple[str, int, int, str, str], path: Path) -> list[str]:
    """A picture of a view, and what is wrong with it."""
    name, width, height, scheme, place = view
    dark: Literal["dark", "light"] = "dark" if scheme == "dark" else "light"
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=dark)
    page.goto(f"{url}/{place}")
    page.wait_for_selector("#errors svg path.line" if place else "svg path")
    page.screenshot(path=path, full_page=True)
    found = [f"{name}: {defect}" for defect in page.evaluate(DEFECTS)]
    page.close()
    return found


def main() -> None:
    """Stream, look, and keep the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--check", type=Path, help="folder for pictures of every view")
    chosen = parser.parse_args()
    settings = {"horizon": 24, "freq": "h"}
    with tempfile.TemporaryDirectory() as state, inside(ServeSettings(state)) as (_, client):
        client.put("/v1/series/beijing", json={"columns": list(COLUMNS), **settings}).raise_for_status()
        client.put("/v1/series/a-series-with-a-long-name.and-no-rows", json={"columns": ["x"]}).raise_for_status()
        client.post("/v1/series/beijing/observations", json={"rows": rows_of_sample()}).raise_for_status()
        while client.get("/v1/series/beijing").json()["pending"]:
            client.get("/v1/series/beijing/forecast", params={"wait": 60})
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            url = str(client.base_url)
            defects = drawn(browser, url, VIEWS[0], chosen.out)
            if chosen.check is not None:
                chosen.check.mkdir(parents=True, exist_ok=True)
                for view in VIEWS[1:]:
                    defects += drawn(browser, url, view, chosen.check / f"{view[0]}.png")
            browser.close()
    if defects:
        sys.exit("\n".join(defects))


if __name__ == "__main__":
    main()
