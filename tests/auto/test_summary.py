"""What is asked of `auto`, and what a folder of results says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.auto.summary import BEFORE, ELSEWHERE, HONEST, HORIZONS, summary
from benchmarks.auto.tables import OURS

from natsr.bench.cells import Cell, Result
from natsr.bench.results import appending


def _written(folder: Path, name: str, found: Any) -> None:
    (folder / f"{name}.json").write_text(json.dumps(found))


def _cells(folder: Path, name: str, results: list[Result]) -> None:
    with appending(folder / f"{name}.jsonl") as append:
        for result in results:
            append(result)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results in which something falls short everywhere."""
    auto = [
        Result(Cell("auto", name, h), {"mase": 0.9 * BEFORE[name][i]})
        for name in BEFORE
        for i, h in enumerate(HORIZONS)
    ]
    auto[0] = Result(auto[0].cell, {"mase": 1.1 * BEFORE["ETTh1"][0]})
    _cells(tmp_path, "auto-honest", auto)
    best = [Result(Cell("natsr", "ETTh1", 24, seed=seed), {"mase": mase}) for seed, mase in enumerate((1.0, 1.2))]
    best += [
        Result(Cell("er", "ETTh2", 24), {"mase": 1.5}),
        Result(Cell("er", "WTH", 48, part="validation"), {"mase": 0.1}),
    ]
    for name in HONEST:
        _cells(tmp_path, name, best if name == HONEST[0] else [])
    _cells(tmp_path, "auto-paper", [Result(Cell("auto", "ETTh1", 24, protocol="paper"), {"mase": 0.8})])
    for path in OURS:
        _cells(tmp_path, path.stem, [Result(Cell("natsr", "ETTh1", 24, protocol="paper"), {"mase": 0.7})])
    ways = {"natsr": (0.90, 0.84, 0.20), "empirical, all": (0.88, 0.7, 0.19)}
    lines = [
        {"method": "auto", "dataset": "WTH", "horizon": 1, "intervals": way, "coverage_90": inside, "crps": crps}
        | {"worst_coverage_90": worst}
        for way, (inside, worst, crps) in ways.items()
    ]
    (tmp_path / "intervals.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    _written(
        tmp_path,
        "auto-cold",
        {"WTH, H = 1": {"cold": 1.2, "warmed": 1.0}, "WTH, H = 24": {"cold": 1.05, "warmed": 1.0}},
    )
    outliers = {"auto": {"clean": 0.2, "dirty": 0.3}, "rls": {"clean": 0.2, "dirty": 0.4}}
    own = {"auto": (0.2, 40), "rls": (0.3, -1), "last_value": (0.9, 8)}
    methods = {name: {"before": before, "own": rows} for name, (before, rows) in own.items()}
    regimes = {"level": methods | {"behind": {"rows": 12}}, "swapped": methods | {"behind": {"rows": -5}}}
    guard = {"random walk, H = 1": 1.01, "constant, H = 1": 0.0}
    parts = {"guard": guard, "outliers": outliers, "regimes": regimes}
    _written(tmp_path, "auto-streams", {f"{name}, budget cheap": part for name, part in parts.items()})
    _written(
        tmp_path, "auto-kinds", {"meter, H = 1": [{"auto": 1.0, "last_value": 1.0}, {"auto": 1.02, "last_value": 1.0}]}
    )
    for name in ELSEWHERE:
        _written(tmp_path, name, {"a, H = 1": {"auto": 1.0, "last_value": 2.0, "rls": 0.9, "rows": 5}})
    sizes = {"without": {"1": 0.5, "24": 0.2}, "1 % are 1000": {"1": 0.6, "24": 0.2}, "10 codes": {"1": 9.0, "24": 9.0}}
    _written(tmp_path, "auto-wild", sizes)
    _written(tmp_path, "auto-walks", {"H = 1": {"0": [1.0, 1.03], "200": [0.99]}})
    both = {"1": [{"all": 0.9, "after": 0.8}], "24": [{"all": 1.04}]}
    _written(tmp_path, "auto-levels", {"noise, a level 10 higher": both})
    ms = {"auto, cheap": 1.0, "auto, one": 3.0, "natsr": 2.0}
    _written(tmp_path, "auto-cost", {name: {"mean": each} for name, each in ms.items()})
    return tmp_path


def test_what_falls_short_is_said_to(folder: Path) -> None:
    lines = dict(line.strip("| ").split(" | ") for line in summary(folder).splitlines()[2:])
    said = list(lines.values())
    assert said[0].startswith("20 of 21, ")
    assert said[1] == "1 of 2; ahead of all in 1"  # 1.207 beside a mean of 1.1, 1.427 beside 1.5
    assert lines["protocol `paper`, H = 1: at or below the best reported"] == "4 of 5"
    assert lines["protocol `paper`, H = 24 and 48: at or below the best of our own table"] == "0 of 1"
    assert "1 and 0 of 1; 90.0 to 90.0 %, worst 84.0 %" in said
    assert lines["CRPS below that of empirical quantiles"] == "0 of 1"
    assert "1 of 2; at most 1.200 times" in said
    assert "1 of 2; at most 1.00 % above" in said
    assert "1 of 2; at most 2.0 % above" in said
    assert lines["the same on streams from elsewhere"] == "3 of 3"
    assert lines["at most 1 % above the best single method there, picked in hindsight"] == "0 of 3"
    assert "0.300 (0.200 without); best single method 0.400 (rls)" in said
    assert "1 of 2: level 12 rows later, swapped 5 rows earlier" in said
    assert "level 40, never, 8; swapped 40, never, 8" in said
    assert "at most 1.200 times" in said and "2 of 3; at most 3.0 % above" in said
    assert "1 of 2; at most 4.0 % above" in said
    assert "1.50 times; 1.00 ms" in said
