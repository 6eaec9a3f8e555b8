"""The page is one file that needs nothing, holds every number it was given, and trusts no text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from natsr.report import payload as payloads
from natsr.report.page import Fan, Report, Score, Stretch, Track, Whose, render, write
from natsr.types import DataError, OptionError, ShapeError, Task

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"&'<!--"
VOID = {"meta", "link", "img", "br", "input", "hr"}


class Page(HTMLParser):
    """The elements of a page with their attributes and text; complains of what is left open or closed twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self._stack: list[int] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(tag)
            self._stack.append(len(self.elements) - 1)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()
        self._stack.pop()

    def handle_data(self, data: str) -> None:
        for place in self._stack:
            self.elements[place][2].append(data)

    def find(self, tag: str, **attributes: str) -> list[str]:
        """The texts of the elements with this tag and these attributes."""
        wanted = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        return ["".join(t) for name, a, t in self.elements if name == tag and wanted.items() <= a.items()]

    def data(self) -> dict[str, Any]:
        """The embedded numbers; strict JSON."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} is not JSON")

        (text,) = self.find("script", id="data")
        found: dict[str, Any] = json.loads(text, parse_constant=refuse)
        return found


def times(rows: int) -> list[str]:
    start = np.datetime64("2024-01-30T22:00", "m")
    return [str(start + np.timedelta64(60 * row, "m")) for row in range(rows)]


def a_report(columns: tuple[str, ...] = ("load", "temperature"), rows: int = 50, horizon: int = 4) -> Report:
    """A page with everything on it; the truth and one forecast have gaps."""
    rng = np.random.default_rng(0)
    truth = 100 * rng.normal(size=(rows, len(columns))).cumsum(0)
    truth[10:14, 0] = math.nan
    fans = []
    for method in ("natsr", "last_value"):
        for step in (1, horizon):
            mean = truth + rng.normal(size=truth.shape)
            mean[3] = math.nan
            fans.append(Fan(method, step, mean, mean - 1, mean + 1, mean - 3, mean + 3))
    pieces = 30
    curve = rng.uniform(0.5, 1.5, pieces)
    track = Track(
        times=times(pieces),
        steps=np.arange(1, pieces + 1) * 10,
        errors={"natsr": curve, "last_value": 2 * curve, "er": np.where(np.arange(pieces) < 15, curve, math.nan)},
        weights=np.full(pieces, 80),
        variance={"natsr": curve},
        norms={"natsr": curve},
        bounds={"natsr": np.full(pieces, 2.0)},
    )
    share = np.linspace(0.0, 0.5, pieces)
    whose = Whose(
        "natsr",
        {"last value": 1 - share, "networks": np.where(np.arange(pieces) == 3, math.nan, share)},
        (1, horizon),
        {"last value": [0.25, 0.125], "networks": [0.75, 0.875]},
        columns,
        {"last value": np.full(len(columns), 0.1875), "networks": np.full(len(columns), 0.8125)},
        {"network_day": 0.6, "last_value": 0.1875},
    )
    return Report(
        title="Load, 4 hours ahead",
        dataset="load.csv",
        task=Task(window=8, horizon=horizon, channels=len(columns)),
        protocol="honest",
        scores=[
            Score("natsr", 0.31234, 0.2, 1.25, 0.1, 0.905, 1.5, 3.25),
            Score("last_value", 0.5, 0.4, 2.0, 0.2, 0.88, 1.75, 0.01),
            Score("er", error="FloatingPointError at origin 150: not finite"),
        ],
        stretch=Stretch(times(rows), columns, truth, fans),
        track=track,
        whose=whose,
        by_step={"natsr": np.linspace(0.5, 1.0, horizon), "last_value": np.linspace(1.0, 2.0, horizon)},
        facts={"Rows": "1,234"},
        notes=["4 missing values were filled from the past", "tuned_on: nothing"],
        command="natsr run load.csv --horizon 4",
    )


def test_page_is_well_formed_and_says_what_it_was_told() -> None:
    page = Page(render(a_report()))
    assert page.find("h1") == ["Load, 4 hours ahead"]
    assert page.find("title")[0] == "Load, 4 hours ahead"
    assert "natsr run load.csv --horizon 4" in page.find("pre")[0]
    protocol = "honest: learns from a row only once it is known"
    assert page.find("dd") == ["load.csv", protocol, "4 rows", "8 rows", "2", "1,234"]
    assert "tuned_on: nothing" in page.find("li")
    summary = page.find("p", class_="lead")[0]
    assert summary.startswith("natsr has the smallest error, MASE 1.250, 38\xa0% below repeating the last value")


def test_page_needs_nothing_from_outside() -> None:
    text = render(a_report())
    page = Page(text)
    for tag, attributes, _ in page.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:")), f"<{tag} {name}={target}>"
    assert re.findall(r"@import|url\(", text.split("<body>")[0]) == []
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a vocabulary, never fetched


def test_content_policy_names_the_one_script() -> None:
    page = Page(render(a_report()))
    (policy,) = [a["content"] for tag, a, _ in page.elements if tag == "meta" and "http-equiv" in a]
    scripts = ["".join(t) for tag, a, t in page.elements if tag == "script" and "type" not in a]
    assert policy is not None and len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_table_is_sorted_and_marks_the_best() -> None:
    report = a_report()
    page = Page(render(replace(report, scores=[*report.scores[1:], report.scores[0]])))
    heads = [t.strip() for t in page.find("th", scope="row")]
    assert heads[:3] == ["natsr", "last_value", "er"]
    cells = page.find("td")
    assert cells[:7] == ["1.250", "0.3123", "0.2000", "0.1000", "90.5\xa0%", "1.500", "3.250"]
    assert page.find("td", class_="best") == ["1.250", "0.3123", "0.2000", "0.1000"]
    assert page.find("td", class_="failed") == ["failed: FloatingPointError at origin 150: not finite"]
    assert page.data()["methods"] == ["last_value", "er", "natsr"]  # colours keep the order given


def decoded(whole: list[int | None], scale: dict[str, int]) -> np.ndarray[Any, Any]:
    return np.array([math.nan if k is None else (scale["base"] + k) * 10.0 ** -scale["digits"] for k in whole])


def test_stretch_comes_back_within_its_resolution_and_gaps_stay_gaps() -> None:
    report = a_report()
    stretch = Page(render(report)).data()["stretch"]
    assert report.stretch is not None
    truth = np.asarray(report.stretch.truth)
    for column in range(2):
        scale, extent = stretch["scales"][column], np.nanmax(truth[:, column]) - np.nanmin(truth[:, column])
        found = decoded(stretch["truth"][column], scale)
        np.testing.assert_allclose(found, truth[:, column], atol=extent / payloads.RESOLUTION)
    fan, given = stretch["fans"]["natsr"]["4"][1], report.stretch.fans[1]
    scale = stretch["scales"][1]
    mean = decoded(fan["mean"], scale)
    np.testing.assert_allclose(mean, np.asarray(given.mean)[:, 1], atol=10.0 ** -scale["digits"])
    low = mean + decoded(fan["low_90"], {"base": 0, "digits": scale["digits"]})
    np.testing.assert_allclose(low, np.asarray(given.low_90)[:, 1], atol=1.01 * 10.0 ** -scale["digits"])
    assert stretch["truth"][0][10:14] == [None] * 4
    assert fan["mean"][3] is None and fan["low_50"][3] is None
    assert stretch["steps"] == [1, 4] and stretch["methods"] == ["natsr", "last_value"]


@pytest.mark.parametrize("values", [[5.0, 5.0], [math.nan, math.nan], [1e12, 1e12 + 1], [-3e-9, 4e-9], [0.0, 1e300]])
def test_any_range_of_values_can_be_stored(values: list[float]) -> None:
    fan = Fan("natsr", 1, [[v] for v in values])
    report = replace(a_report(("x",)), stretch=Stretch(times(2), ("x",), [[v] for v in values], [fan]))
    stretch = Page(render(report)).data()["stretch"]
    found = decoded(stretch["fans"]["natsr"]["1"][0]["mean"], stretch["scales"][0])
    extent = max(values) - min(values) or abs(values[0])
    np.testing.assert_allclose(found, values, atol=extent / payloads.RESOLUTION)


def test_track_holds_every_number_to_five_digits() -> None:
    report = a_report()
    assert report.track is not None
    track = Page(render(report)).data()["track"]
    np.testing.assert_allclose(track["errors"]["natsr"], np.asarray(report.track.errors["natsr"]), rtol=1e-4)
    assert track["errors"]["er"][15:] == [None] * 15
    assert track["bounds"]["natsr"] == [2.0] * 30
    assert track["unit"] == "MASE" and track["steps"][-1] == 300


def test_every_chart_has_a_name_and_a_table() -> None:
    page = Page(render(a_report()))
    figures = [(a["id"], a["aria-label"]) for tag, a, _ in page.elements if tag == "figure"]
    assert [key for key, _ in figures] == ["forecasts", "errors", "whose", "horizon", "variance", "norms"]
    assert all(label for _, label in figures)
    assert len(page.find("details")) == len(figures)
    assert "4" in page.find("th", scope="row")  # the last row ahead, in the table of steps
    assert page.find("noscript") != []


def test_whose_forecast_it_is_over_time_and_at_the_end() -> None:
    page = Page(render(a_report()))
    found = page.data()["whose"]
    assert found["method"] == "natsr" and found["kinds"] == ["last value", "networks"]
    assert found["shares"][0][-1] == 500 and found["shares"][1][-1] == 500 and found["shares"][1][3] is None
    (steps,), (columns,) = (page.find("div", aria_label=name) for name in ("By rows ahead", "By column"))
    assert "1 ahead" in steps and "4 ahead" in steps and "87.5" in steps and "81.2" in steps
    assert steps.index("networks") < steps.index("last value")  # the largest share first
    assert "load" in columns and "temperature" in columns and "18.8" in columns
    assert any("Single experts at the end: network_day 60.0" in text for text in page.find("p"))


def test_where_nothing_is_mixed_nothing_is_said_of_it() -> None:
    text = render(replace(a_report(), whose=None))
    assert "whose" not in Page(text).data() and "Whose forecast it is" not in text
    assert Page(render(replace(a_report(), track=None))).find("figure", id="whose") == []


def test_of_a_wide_stream_the_shares_of_some_columns_are_shown() -> None:
    page = Page(render(a_report(tuple(f"c{number}" for number in range(20)))))
    (columns,) = page.find("div", aria_label="By column")
    assert "c7" in columns and "c8" not in columns
    assert any("The table shows 8 of 20 columns." in text for text in page.find("p"))


def test_text_from_outside_stays_text() -> None:
    report = replace(
        a_report((EVIL, "b")),
        title=EVIL,
        dataset=EVIL,
        scores=[Score(EVIL, mase=1.0), Score("er", error=EVIL)],
        facts={EVIL: EVIL},
        notes=[EVIL],
        command=EVIL,
        by_step={EVIL: [1.0, 1.0, 1.0, 1.0]},
    )
    page = Page(render(report))
    assert [tag for tag, _, _ in page.elements].count("script") == 2
    assert [tag for tag, _, _ in page.elements].count("img") == 0
    assert not any(name.startswith("on") for _, attributes, _ in page.elements for name in attributes)
    assert page.find("h1") == [EVIL]
    assert EVIL in page.find("pre")[0]
    assert page.data()["stretch"]["columns"][0] == EVIL
    assert page.data()["methods"][0] == EVIL


def test_protocol_paper_carries_its_warning() -> None:
    page = Page(render(replace(a_report(), protocol="paper")))
    assert any("before their time" in note for note in page.find("li"))
    assert not any("before their time" in note for note in Page(render(a_report())).find("li"))


def test_page_with_scores_alone() -> None:
    bare = replace(a_report(), stretch=None, track=None, by_step={}, notes=(), command="", facts={})
    page = Page(render(bare))
    assert page.find("figure") == []
    assert "Nothing was left out." in page.find("p")
    nothing = Page(render(replace(bare, scores=[Score("er", error="diverged")])))
    assert nothing.find("p", class_="lead") == ["No method could be scored."]


def test_wide_and_long_streams_are_cut_down_and_say_so() -> None:
    columns = tuple(f"c{number}" for number in range(400))
    text = render(a_report(columns, rows=300))
    page = Page(text)
    kept = len(page.data()["stretch"]["columns"])
    assert 1 <= kept < 400
    assert f"The chart of forecasts shows {kept} of 400 columns." in page.find("li")
    assert len(text.encode()) < 2_000_000
    tall = Page(render(a_report(("x",), rows=30_000)))
    rows = len(tall.data()["stretch"]["times"])
    assert rows < 30_000 and len(tall.data()["stretch"]["truth"][0]) == rows
    assert f"The chart of forecasts shows the last {rows} of 30000 rows." in tall.find("li")


def test_arrays_of_the_wrong_shape_are_refused() -> None:
    report = a_report()
    assert report.track is not None and report.stretch is not None
    with pytest.raises(ShapeError, match=r"by_step\['natsr'\] has shape \(3,\), expected \(4,\)"):
        render(replace(report, by_step={"natsr": [1.0, 2.0, 3.0]}))
    with pytest.raises(ShapeError, match=r"errors\['er'\]"):
        render(replace(report, track=replace(report.track, errors={"er": [1.0]})))
    assert report.whose is not None
    with pytest.raises(ShapeError, match=r"over_time\['networks'\]"):
        render(replace(report, whose=replace(report.whose, over_time={"networks": [1.0]})))
    with pytest.raises(ShapeError, match="mean of natsr"):
        render(replace(report, stretch=replace(report.stretch, fans=[Fan("natsr", 1, [[1.0]])])))
    with pytest.raises(OptionError, match=r"no fan for \('er', 4\)"):
        fans = [*report.stretch.fans, Fan("er", 1, report.stretch.truth)]
        render(replace(report, stretch=replace(report.stretch, fans=fans)))
    with pytest.raises(OptionError, match="3000 pieces, expected at most 2000"):
        render(replace(report, track=Track(times(3000), np.zeros(3000), {}, np.zeros(3000))))


def test_write_makes_folders_and_reports_what_it_cannot_write(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "b" / "report.html", a_report())
    assert path.read_text(encoding="utf-8") == render(a_report())
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(DataError, match="cannot write the report"):
        write(path / "below.html", a_report())


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no chromium to draw the page with")
def test_charts_are_drawn_by_a_browser(tmp_path: Path) -> None:
    assert BROWSER is not None
    path = write(tmp_path / "report.html", a_report((EVIL, "b")))
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'user'}"]
    command = [BROWSER, *flags, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()]
    drawn = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    lines = re.findall(r'<path class="line" d="([^"]+)"', drawn)
    assert len(lines) == 2 + 3 + 2 + 1 + 2  # forecasts, errors, steps, variance, norms
    truth, forecast = lines[:2]
    assert truth.count("M") == 2 and forecast.count("M") == 3  # a new line after each gap; the forecast has one more
    assert len(re.findall(r"<option[^>]*>", drawn)) == 4
    assert "alert(2)&gt;" in drawn and "<img" not in drawn
