"""The page of speed is what the stored results say, no more and no less."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.speed.claims import claims
from benchmarks.speed.fleet import machines
from benchmarks.speed.machine import Machine
from benchmarks.speed.page import ASSETS, CURVATURE, PAGE, rendered
from benchmarks.speed.store import RESULTS, ROOT, Row, Section, read, write

MACHINE: Machine = {
    "cpu": "Some CPU",
    "vectors": "AVX2",
    "cores": 2,
    "load": 0.5,
    "threads": 1,
    "torch": "2.0",
    "compiler": "cc 1",
    "compiled": True,
    "natsr": "0.1.0",
    "day": "2026-01-01",
}


def section(rows: list[Row], quick: bool = False) -> Section:
    return Section(dict(MACHINE), quick, rows)


def step(case: str, fast: float, textbook: float, floor: float) -> Row:
    times: Row = {"fast_ms": fast, "textbook_ms": textbook, "floor_ms": floor}
    return {"case": case, "horizon": 24, "channels": 7, **times, "mflop": 10.0, "mib": 1.0}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "speed.json"
    steps = [
        step("ogd", 1.0, 20.0, 0.5),
        step("er", 2.0, 30.0, 0.5),
        step("natsr plain", 4.0, 100.0, 2.0),
        step("natsr refresh", 20.0, 5000.0, 10.0),
    ]
    stream: Row = {"stream": "ETTh1", "horizon": 24, "channels": 7, "steps": 100, "ms": 6}
    stream |= {"refreshes": 10, "inversions": 0}
    flat: list[Row] = [{"step": 5000, "mib": 240.0}, {"step": 50000, "mib": 260.0}]
    write({"steps": section(steps), "streams": section([stream]), "flat": section(flat, quick=True)}, path)
    return path


def test_the_page_is_not_stale() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "docs/speed.md is stale; run `make bench-speed-page`"


def test_what_the_page_shows_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"\]\(assets/([^)]+)\)", text):
        assert (ASSETS / name).is_file(), f"{name} is missing; run `make bench-speed-page`"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert f"\n{target}: " in makefile
    for module in re.findall(r"`python -m ([a-z.]+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").is_file()
    for name in re.findall(r"`(benchmarks/results/[^`]+|tests/[^`]+)`", text):
        assert (ROOT / name).is_file()


def test_ratios_are_judged(results: Path) -> None:
    found = {claim.what: claim for claim in claims(read(results), results.with_name("none.json"))}
    assert found["ogd: faster than the textbook"].measured == "20.0 ×"
    assert found["ogd: faster than the textbook"].reached is True
    assert found["er: faster than the textbook"].reached is False  # 15 of 20
    mean = found["natsr mean: faster than the textbook"]  # (0.9 · 100 + 0.1 · 5000) / (0.9 · 4 + 0.1 · 20)
    assert mean.measured == f"{590 / 5.6:.1f} ×" and mean.reached is True
    assert found["er: of its floor"].measured == "4.00 ×" and found["er: of its floor"].reached is False
    assert found["a refresh"].measured == "5.0" and found["a refresh"].reached is True
    assert found["memory along a stream"].reached is False  # 20 MiB more


def test_a_fleet_is_judged_by_the_time_that_passed_on_every_core(results: Path) -> None:
    fleet = results.with_name("fleet-cpu.json")
    row = {"over_compiled": 9.0, "over_torch": 9.0, "over_compiled_passed": 4.25, "over_torch_passed": 12.4}
    rows = [
        {"method": name, "way": way, **row} for name in ("er", "ogd") for way in ("one call", "one call, 2 threads")
    ]
    rows[-1] |= {"over_compiled_passed": 6.5}
    fleet.write_text(json.dumps({"machine": {"cores": 2}, "learners": 32, "rows": rows}), encoding="utf-8")
    found = {
        claim.what.split(":")[0]: claim
        for claim in claims({}, results.with_name("none.json"), machines(results.parent))
    }
    assert set(found) == {"er", "ogd"}
    assert found["er"].measured == "4.2 × compiled, 12 × in torch" and found["er"].reached is False
    assert found["ogd"].reached is True
    assert "6.5 × compiled, 12 × in torch" in rendered(results, results.with_name("none.json"))


def test_the_page_says_what_was_measured_where(results: Path) -> None:
    page = rendered(results, results.with_name("none.json"))
    assert "| er | 24 | 7 | 2.000 |  | 30.0 | 0.500 | 15.0 | 4.00 | 10.0 | 1.0 |" in page
    assert "| er: faster than the textbook | 20 × | 15.0 × | **no** |" in page
    assert "Some CPU (AVX2), 2 cores, load 0.5 at the start, 1 thread(s), torch 2.0" in page
    assert "| ETTh1 | 24 | 7 | 100 | 10 (10.0 %) | 0 (0.0 %) | 6.00 |" in page
    assert page.count("**Missing:**") == 5  # stages, growth, GPU, same, curvature


def test_curvature_is_shown_by_layer_and_judged(results: Path) -> None:
    curved = results.with_name("curvature.json")
    found = {"machine": MACHINE, "dataset": "ETTh1", "protocol": "honest", "horizon": 24, "steps": 100, "moments": 2}
    found |= {"reference_samples": 1000, "recipe": "signs, 8"}
    found["layers"] = [
        {"way": way, "layer": layer, "error": error}
        for way, error in (("exact", 0.1), ("signs, 8", 0.9))
        for layer in ("input", "block0.conv1")
    ]
    found["mase"] = [
        {"way": way, "seed": seed, "mase": mase + 0.1 * seed, "refreshes": 3}
        for way, mase in (("exact", 1.0), ("signs, 8", 1.02))
        for seed in (0, 1)
    ]
    curved.write_text(json.dumps(found), encoding="utf-8")
    page = rendered(results, curved)
    assert "| block0.conv1 | 0.100 | 0.900 |" in page and "| mean | 1.0500 | 1.0700 |" in page
    judged = {claim.what: claim for claim in claims(read(results), curved)}
    assert judged["MASE, few probes against exact"].measured == "+0.0200 (100 steps, 2 seed(s))"
    assert judged["MASE, few probes against exact"].reached is False


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.json"
    assert claims(read(nowhere), nowhere) == []
    assert rendered(nowhere, nowhere).count("**Missing:**") == 7


def test_figures_are_drawn_from_results(tmp_path: Path) -> None:
    figures = pytest.importorskip("benchmarks.speed.figures")
    growth: list[Row] = [
        {"axis": axis, "value": value, "case": case, "ms": value * 0.1, "mflop": 1.0}
        for axis in ("horizon", "window")
        for value in (1, 24)
        for case in ("ogd", "er")
    ]
    stages: list[Row] = [
        {"case": "er", "stage": stage, "horizon": 24, "channels": 7, "ms": ms, "mflop": 1.0}
        for stage, ms in (("step", 3.0), ("forward", 1.0), ("backward", 0.5))
    ]
    drawn = figures.draw({"growth": section(growth), "stages": section(stages)}, tmp_path)
    assert [path.name for path in drawn] == ["speed-growth.svg", "speed-stages.svg"]
    for path in drawn:
        text = path.read_text(encoding="utf-8")
        assert "<svg" in text and len(text) < 100_000
    assert "window L" in drawn[0].read_text(encoding="utf-8") and "the rest" in drawn[1].read_text(encoding="utf-8")
    assert CURVATURE.parent == RESULTS.parent
