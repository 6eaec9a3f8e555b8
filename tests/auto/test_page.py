"""The tables of `auto` are what the committed results say."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
from benchmarks.auto.page import METHODS, PAGES, ROOT, rendered, streams, tables, with_tables
from benchmarks.auto.tables import cold, cost, elsewhere, kinds, outside, parts, published, rules

from natsr.bench.cells import Cell, Result
from natsr.bench.results import appending


def test_the_tables_are_not_stale_and_each_is_on_one_page() -> None:
    found, pages = tables(), {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    for name, text in pages.items():
        assert text == with_tables(text, found), f"docs/{name} is stale: python -m benchmarks.auto.page"
    for table in found:
        assert [text.count(f"<!-- {table} -->") for text in pages.values()].count(1) == 1, table


@pytest.mark.parametrize(
    "script",
    [
        "auto/page",
        "auto/packages",
        "auto/rules",
        "auto/wild",
        "auto/levels",
        "intervals/page",
        "intervals/drift",
        "cold",
        "fault",
        "page",
    ],
)
def test_help_does_no_work(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "benchmarks" / f"{script}.py"), run_name="__main__")
    assert ended.value.code == 0 and capsys.readouterr().out.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


def test_a_result_stands_beside_the_pool_before_it(tmp_path: Path) -> None:
    numbers = {"mase": 0.75, "coverage_90": 0.9, "worst_coverage_90": 0.88}
    with appending(tmp_path / "r.jsonl") as append:
        append(Result(Cell("auto", "ETTh1", 1), numbers))
        append(Result(Cell("auto", "ETTh2", 24), error="it broke"))
    table = rendered(tmp_path / "r.jsonl")
    assert "| ETTh1 | 0.750 (0.761) | – (1.341) | – (1.477) | 90.0 | 88.0 |" in table
    assert "| ETTh2 | – (0.874) | failed (1.586) | – (1.902) | – | – |" in table
    assert table.endswith("1 of 1 cells at or below the pool before; 1.4 % below it on average.")


def test_streams_whose_truth_is_known_have_their_tables(tmp_path: Path) -> None:
    regimes = {name: {"before": 0.2, "own": 100, "best": -1, "later": 1.5} for name in METHODS}
    regimes["auto"]["later"] = 1.25
    regimes["behind"] = {"rows": 12.0, "low": -3.0, "high": 40.0}
    found = {
        "guard": {f"{name}, H = {h}": 0.0 for name in ("random walk", "constant", "mostly flat") for h in (1, 24)},
        "outliers": {name: {"clean": 0.25, "dirty": 0.5} for name in METHODS},
        "cold": {"H = 1": 1.016, "H = 24": 1.076},
        "regimes": {"level": regimes},
    }
    file = tmp_path / "streams.json"
    file.write_text(json.dumps({f"{part}, budget cheap": values for part, values in found.items()}))
    text = streams(file)
    assert "| constant | both exact | both exact |" in text
    assert "| with outliers | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 |" in text
    assert "| level: rows until within 10 % of its own error before | 100 | 100 | 100 | 100 | 100 |" in text
    assert "| level: and of the best single's | never | never | never | never | never |" in text
    assert "| level | 12 | -3 to 40 | 1.25 | 1.50 |" in text


def test_auto_stands_beside_the_best_of_ours_and_the_best_reported(tmp_path: Path) -> None:
    with appending(tmp_path / "auto.jsonl") as append:
        append(Result(Cell("auto", "ETTh1", 24, protocol="paper"), {"mase": 0.786}))
        append(Result(Cell("auto", "ETTh2", 24, protocol="paper"), error="it broke"))
    with appending(tmp_path / "honest.jsonl") as append:
        append(Result(Cell("auto", "ETTh1", 1), {"mase": 0.722}))
        append(Result(Cell("auto", "ETTh1", 48), {"mase": 9.0}))  # honest at 48 is another thing
    with appending(tmp_path / "ours.jsonl") as append:
        for seed, mase in enumerate((0.9, 1.1)):
            append(Result(Cell("natsr", "ETTh1", 24, seed=seed, protocol="paper"), {"mase": mase}))
        append(Result(Cell("er", "ETTh1", 24, protocol="paper"), {"mase": 1.4}))
    table = published(tmp_path / "auto.jsonl", tmp_path / "honest.jsonl", [tmp_path / "ours.jsonl"])
    assert "| ETTh1 | 0.722 · 0.79 | 0.786 · 1.000 · 0.97 | – · 1.12 |" in table
    assert "failed · 1.23" in table


def test_streams_where_a_single_method_is_better_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    found = {"a, b, H = 1": {"rows": 90, "auto": 1.0, "last_value": 2.0, "rls": 1.25}}
    found["a, b, H = 24"] = {"rows": 67, "auto": 1.02, "last_value": 2.0, "rls_mv": 1.0}
    found["a, b, H = 24"] |= {"coverage_90": 0.912, "worst_coverage_90": 0.855}
    found["c, H = 1"] = {"rows": 80, "last_value": 2.0, "rls": 1.0}
    found["still, H = 1"] = {"rows": 80, "auto": 1e-7, "last_value": 0.0, "rls": 0.0}
    found["off, H = 1"] = {"rows": 80, "auto": 0.1, "last_value": 2.0, "seasonal": 0.0}
    file.write_text(json.dumps(found))
    table = elsewhere(file)
    assert "over the best single one, H = 1 and H = 24 |" in table
    assert "| a, b | 90 | 0.800, 1.020 | rls, rls mv | 0.500, 0.510 | –, 91.2 | –, 85.5 |" in table
    assert "| c | 80 | failed | rls | failed | – | – |" in table
    assert "| still | 80 | exact | last value | exact | – | – |" in table
    assert table.endswith("2 of 5: at most 1 % above the best single method, and 0.5 % above the last value.")


def test_kinds_are_beside_the_last_value_and_the_best_expert(tmp_path: Path) -> None:
    file = tmp_path / "kinds.json"
    several = [
        {"auto": 1.0, "last_value": 2.0, "best expert": 1.0},
        {"auto": 3.0, "last_value": 2.0, "best expert": 2.0},
    ]
    file.write_text(json.dumps({"meter, H = 1": several, "meter, H = 24": several[:1]}))
    lines = kinds(file).splitlines()
    assert lines[2] == "| meter | 1.000, 1.500 | 0.500, 0.500 | 1.250 | 1.000 |"
    assert lines[-1] == "2 of 3 streams: at most 0.5 % above the last value."


def test_what_a_row_costs_is_beside_what_natsr_does(tmp_path: Path) -> None:
    file = tmp_path / "cost.json"
    file.write_text(json.dumps({"auto, cheap": dict.fromkeys(("mean", "median", "fastest", "quiet"), 1.064)}))
    assert cost(file).splitlines()[2] == "| mean | 1.06 | – | – |"


def test_a_cold_start_is_measured_beside_a_warm_one(tmp_path: Path) -> None:
    file = tmp_path / "cold.json"
    file.write_text(json.dumps({"ETTh1, H = 24": {"warmed": 0.5, "cold": 0.52}}))
    assert cold(file).splitlines()[-1] == "| ETTh1 | – | 1.040 | – |"


def test_a_part_is_what_the_error_is_without_it(tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    file.write_text(json.dumps({"ETTh1, H = 24, 3000 rows": {"mae": 0.4, "networks": 1.021}}))
    assert "| without | ETTh1, H = 24 |" in parts(file) and "| networks | +2.1 % |" in parts(file)


def test_rules_are_beside_ml_poly(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"WTH, H = 24, 3000 rows": {"mlpoly": 0.4, "boa": 0.402, "ewa": 0.41, "auto": 0.396}}))
    lines = rules(file).splitlines()
    assert lines[0] == "| | ML-Poly | BOA | EWA | all together |"
    assert lines[2:] == ["| WTH, H = 24 | 0.400 | +0.5 % | +2.5 % | -1.0 % |", "| mean | | +0.5 % | +2.5 % | -1.0 % |"]


def test_columns_beside_the_values_have_a_line_each(tmp_path: Path) -> None:
    figures = {"pool": 0.3155, "natsr": 0.9326, "auto": 0.8957, "without head start": 0.8971}
    (tmp_path / "found.json").write_text(json.dumps({"weak plan, H = 1, 84 rows before it": figures}))
    last = outside(tmp_path / "found.json").splitlines()[-1]
    assert last == "| a plan that adds 0.3 in three rows of ten, H = 1 | 84 | 0.316 | 0.933 | 0.896 | 0.897 |"
