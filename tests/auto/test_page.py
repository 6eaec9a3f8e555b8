"""The table of `auto` is what the committed results say."""

from __future__ import annotations

from pathlib import Path

from benchmarks.auto.page import PAGE, rendered, with_table

from natsr.bench.cells import Cell, Result
from natsr.bench.results import appending


def test_the_table_is_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text, rendered()), "docs/auto.md is stale: python -m benchmarks.auto.page"


def test_a_result_stands_beside_the_pool_before_it(tmp_path: Path) -> None:
    numbers = {"mase": 0.75, "coverage_90": 0.9, "worst_coverage_90": 0.88}
    with appending(tmp_path / "r.jsonl") as append:
        append(Result(Cell("auto", "ETTh1", 1), numbers))
        append(Result(Cell("auto", "ETTh2", 24), error="it broke"))
    table = rendered(tmp_path / "r.jsonl")
    assert "| ETTh1 | 0.750 (0.761) | – (1.341) | – (1.477) | 90.0 | 88.0 |" in table
    assert "| ETTh2 | – (0.874) | failed (1.586) | – (1.902) | – | – |" in table
    assert table.endswith("1 of 1 cells at or below the pool before; 1.4 % below it on average.")
