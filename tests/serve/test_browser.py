"""The page in a real browser: it loads, follows the stream, says when the server is gone, and is accessible."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from importlib import resources
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no chromium to look at the page with"),
    pytest.mark.xdist_group("browser"),
]
PATIENCE = 90_000.0  # milliseconds
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
START = datetime(2026, 1, 1)


@dataclass
class Served:
    """A service in a process of its own, on a port that it keeps over a restart."""

    state: Path
    port: int = 0
    tokens: Path | None = None
    process: subprocess.Popen[str] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "natsr", "serve", "--state", str(self.state), "--port", str(self.port)]
        command += ["--tokens", str(self.tokens)] if self.tokens else []
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "http://127.0.0.1:" in line:
                self.port = int(line.partition("http://127.0.0.1:")[2].split()[0].strip(" /.;,"))
                return self._wait()
        raise AssertionError(f"natsr serve ended with {self.process.wait()}")

    def _wait(self) -> None:
        """Until it answers."""
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/readyz", timeout=10).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("natsr serve does not get ready")

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()
            self.process = None


def rows(first: int, count: int) -> list[dict[str, object]]:
    """A wave with a period of 12 rows."""
    return [
        {
            "time": (START + timedelta(hours=i)).isoformat(),
            "values": {"load": 10 + 3 * math.sin(2 * math.pi * i / 12), "heat": float(i % 5)},
        }
        for i in range(first, first + count)
    ]


def post(served: Served, first: int, count: int) -> None:
    answer = httpx.post(f"{served.url}/v1/series/plant/observations", json={"rows": rows(first, count)}, timeout=60)
    assert answer.json()["accepted"] == count


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("state"))
    made.start()
    try:
        settings = {"columns": ["load", "heat"], "horizon": 6, "window": 12, "freq": "h", "method": "rls"}
        assert httpx.put(f"{made.url}/v1/series/plant", json=settings, timeout=60).status_code == 201
        post(made, 0, 90)
        answer = httpx.get(f"{made.url}/v1/series/plant/forecast", params={"wait": 60}, timeout=90)
        assert answer.json()["pending"] == 0
        yield made
    finally:
        made.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=BROWSER, args=FLAGS, env=dict(environment), timeout=PATIENCE
        )
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


def one(page: Page, served: Served) -> None:
    """Open the page of the one series and wait until it is drawn."""
    page.goto(f"{served.url}/#/series/plant")
    page.wait_for_selector("#forecasts svg path.line")


def test_every_series_is_shown_with_its_health(page: Page, served: Served) -> None:
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(served.url)
    card = page.locator(".card", has_text="plant")
    expect(card.locator("path.spark")).to_have_count(1, timeout=PATIENCE)
    expect(card).to_contain_text("2 columns · 6 ahead · every hour · rls")
    expect(card).to_contain_text("lower")  # than the last value's error: a wave is easy
    expect(page.locator("#token")).to_be_hidden()
    page.fill("#search", "nothing like it")
    expect(page.locator(".card")).to_have_count(0)
    page.fill("#search", "PLA")
    card.locator("a").click()
    page.wait_for_selector("#forecasts svg path.line")
    assert page.title() == "plant · natsr"
    assert problems == []


def test_a_row_that_is_posted_appears_by_itself(page: Page, served: Served) -> None:
    one(page, served)
    before = httpx.get(f"{served.url}/v1/series/plant", timeout=60).json()["observations"]
    expect(page.locator("dl.facts")).to_contain_text(str(before), timeout=PATIENCE)
    drawn = page.locator("#forecasts svg path.line").first.get_attribute("d")
    post(served, before, 1)
    expect(page.locator("dl.facts")).to_contain_text(str(before + 1), timeout=PATIENCE)
    assert page.locator("#forecasts svg path.line").first.get_attribute("d") != drawn


def test_the_controls_change_what_is_drawn(page: Page, served: Served) -> None:
    one(page, served)
    title = page.locator("#forecasts svg title")
    expect(title).to_contain_text("load")
    page.locator("#forecasts select").select_option(label="heat")
    expect(title).to_contain_text("heat", timeout=PATIENCE)
    page.get_by_role("button", name="6", exact=True).click()
    expect(title).to_contain_text("6 rows before", timeout=PATIENCE)
    page.locator("summary").click()
    expect(page.locator("details tbody tr")).to_have_count(6, timeout=PATIENCE)


def test_a_change_of_unit_is_marked(page: Page, served: Served) -> None:
    settings = {"columns": ["load"], "horizon": 2, "window": 6, "freq": "h", "method": "rls"}
    assert httpx.put(f"{served.url}/v1/series/unit", json=settings, timeout=60).status_code == 201
    loads = [(10 + 3 * math.sin(2 * math.pi * i / 12)) * (1 if i < 100 else 1000) for i in range(180)]
    given = [
        {"time": (START + timedelta(hours=i)).isoformat(), "values": {"load": load}} for i, load in enumerate(loads)
    ]
    posted = httpx.post(f"{served.url}/v1/series/unit/observations", json={"rows": given}, timeout=60)
    assert posted.json()["accepted"] == 180
    httpx.get(f"{served.url}/v1/series/unit/forecast", params={"wait": 60}, timeout=90)
    assert httpx.get(f"{served.url}/v1/series/unit", timeout=60).json()["health"]["rescaled"] == 1
    page.goto(f"{served.url}/#/series/unit")
    expect(page.locator("dl.facts")).to_contain_text("New scale since", timeout=PATIENCE)
    expect(page.locator("#errors svg text", has_text="new scale")).to_have_count(1, timeout=PATIENCE)
    httpx.delete(f"{served.url}/v1/series/unit", timeout=60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_accessible(browser: Browser, served: Served, scheme: str) -> None:
    context = browser.new_context(color_scheme="dark" if scheme == "dark" else "light", bypass_csp=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector(".card path.spark")
    assert violations(page) == []
    one(page, served)
    page.locator("summary").click()
    page.wait_for_selector("details tbody tr")
    assert violations(page) == []
    context.close()


def violations(page: Page) -> list[tuple[str, str]]:
    page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    return [(found["id"], found["help"]) for found in page.evaluate("axe.run()")["violations"]]


def test_it_fits_a_phone(browser: Browser, served: Served) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(served.url)
    page.wait_for_selector(".card")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    one(page, served)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


def test_months_are_called_months(page: Page, served: Served) -> None:
    settings = {"columns": ["sales"], "horizon": 3, "window": 6, "freq": "ME", "method": "rls"}
    assert httpx.put(f"{served.url}/v1/series/shop", json=settings, timeout=60).status_code == 201
    ends = [date(2020 + month // 12, month % 12 + 1, 1) - timedelta(days=1) for month in range(1, 31)]
    given = [{"time": end.isoformat(), "values": {"sales": float(end.month)}} for end in ends]
    answer = httpx.post(f"{served.url}/v1/series/shop/observations", json={"rows": given}, timeout=60)
    assert answer.json()["accepted"] == 30
    httpx.get(f"{served.url}/v1/series/shop/forecast", params={"wait": 60}, timeout=90)
    page.goto(served.url)
    card = page.locator(".card", has_text="shop")
    expect(card).to_contain_text("sales · 3 ahead · every month · rls", timeout=PATIENCE)
    expect(card).to_contain_text("30 Jun 2022")
    expect(card).not_to_contain_text("00:00")
    card.locator("a").click()
    page.wait_for_selector("#forecasts svg path.line")
    page.locator("summary").click()
    expect(page.locator("tbody th")).to_have_text(["31 Jul 2022", "31 Aug 2022", "30 Sep 2022"])
    assert httpx.delete(f"{served.url}/v1/series/shop", timeout=60).status_code == 204


#: Microseconds between rows, how that is said, the last of thirty rows, the one after it, and what the axis may say.
FINE = {
    "100ms": (100_000, "100 milliseconds", "00:00:02.900", "00:00:03.000", r"^(\d\d\.\d|00:00:0\d)$"),
    "250us": (250, "250 microseconds", "00:00:00.007250", "00:00:00.007500", r"^00\.\d{3}$"),
}


@pytest.mark.parametrize("freq", FINE)
def test_parts_of_a_second_are_shown(page: Page, served: Served, freq: str) -> None:
    step, every, last, following, label = FINE[freq]
    settings = {"columns": ["g"], "horizon": 2, "window": 6, "freq": freq, "method": "rls"}
    assert httpx.put(f"{served.url}/v1/series/{freq}", json=settings, timeout=60).status_code == 201
    times = [(START + timedelta(microseconds=step * row)).isoformat() for row in range(30)]
    given = [{"time": time, "values": {"g": float(row % 7)}} for row, time in enumerate(times)]
    answer = httpx.post(f"{served.url}/v1/series/{freq}/observations", json={"rows": given}, timeout=60)
    assert answer.json()["accepted"] == 30
    httpx.get(f"{served.url}/v1/series/{freq}/forecast", params={"wait": 60}, timeout=90)
    page.goto(served.url)
    card = page.locator(".card", has_text=freq)
    expect(card).to_contain_text(f"g · 2 ahead · every {every} · rls", timeout=PATIENCE)
    expect(card).to_contain_text(f"1 Jan 2026, {last}")
    expect(card.locator("path.spark")).to_have_count(1)
    card.locator("a").click()
    page.wait_for_selector("#forecasts svg path.line")
    page.locator("summary").click()
    expect(page.locator("tbody th").first).to_have_text(f"1 Jan 2026, {following}")
    texts = page.locator("#forecasts svg text").all_text_contents()
    labels = [text for text in texts if re.match(label, text)]
    assert len(labels) > 2 and len(set(labels)) == len(labels)  # the axis of time
    page.locator("#forecasts .plot").press("End")
    expect(page.locator("#forecasts .tip strong")).to_contain_text("1 Jan 2026, 00:00:0")
    assert httpx.delete(f"{served.url}/v1/series/{freq}", timeout=60).status_code == 204


def test_a_series_that_is_not_there_is_said_to_be_missing(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/#/series/nobody")
    expect(page.locator("#content")).to_contain_text("nobody", timeout=PATIENCE)
    expect(page.get_by_role("link", name="All series")).to_be_visible()


def test_it_says_when_the_server_is_gone_and_when_it_is_back(page: Page, tmp_path: Path) -> None:
    served = Served(tmp_path / "state")
    served.start()
    try:
        page.goto(served.url)
        expect(page.locator("#link")).to_have_text("0 series", timeout=PATIENCE)
        expect(page.get_by_role("heading", name="No series yet")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#gone")).to_be_hidden()
        served.kill()
        expect(page.get_by_role("alert")).to_contain_text("does not answer", timeout=PATIENCE)
        expect(page.locator("#link")).to_have_text("Not connected")
        served.start()
        expect(page.locator("#gone")).to_be_hidden(timeout=PATIENCE)
        expect(page.locator("#link")).to_have_text("0 series", timeout=PATIENCE)
    finally:
        served.kill()


def test_it_asks_for_a_token_where_one_is_needed(page: Page, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.toml"
    made = subprocess.run(
        [sys.executable, "-m", "natsr", "token", str(tokens), "--name", "me", "--scopes", "read"],
        capture_output=True,
        text=True,
        check=True,
    )
    served = Served(tmp_path / "state", tokens=tokens)
    served.start()
    try:
        page.goto(served.url)
        expect(page.locator("#token")).to_be_visible(timeout=PATIENCE)
        page.fill("#secret", "wrong")
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#denied")).to_contain_text("does not open", timeout=PATIENCE)
        page.fill("#secret", made.stdout.split()[-1])
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("#link")).to_have_text("0 series", timeout=PATIENCE)
        expect(page.locator("#token")).to_be_hidden()
    finally:
        served.kill()
