"""The table of intervals is what the committed results say, and what makes it compares like with like."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.intervals.alternatives import Issued, alternatives
from benchmarks.intervals.page import DRIFT_MARKS, PAGE, RESULTS, drifts, rendered, with_table

from natsr.calibrate import PROBABILITIES

LOW, HIGH = PROBABILITIES.index(0.05), PROBABILITIES.index(0.95)


def test_the_table_is_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    fresh = with_table(with_table(text, rendered()), drifts(), DRIFT_MARKS)
    assert text == fresh, "docs/intervals.md is stale: python -m benchmarks.intervals.page"


def test_every_result_has_its_alternatives_beside_it() -> None:
    found: dict[tuple[str, str, int], set[str]] = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        found.setdefault((result["method"], result["dataset"], result["horizon"]), set()).add(result["intervals"])
    assert found and all(names == {"natsr", *alternatives((1, 1), 10)} for names in found.values())


def test_a_result_has_its_line_in_the_table(tmp_path: Path) -> None:
    names = ("coverage_90", "worst_coverage_90", "width_90", "crps", "ms_per_step")
    result = {"method": "rls", "dataset": "X", "horizon": 24, "intervals": "natsr", **dict.fromkeys(names, 0.5)}
    (tmp_path / "r.jsonl").write_text(json.dumps(result) + "\n", encoding="utf-8")
    table = rendered(tmp_path / "r.jsonl")
    assert table.splitlines()[-1] == "| rls | X | 24 | **natsr** | 50.0 % | 50.0 % | 0.500 | 0.5000 | 0.50 |"


@pytest.mark.parametrize("name", list(alternatives((1, 1), 10)))
def test_alternatives_hold_on_normal_errors(name: str) -> None:
    generator = np.random.default_rng(0)
    way = alternatives((2, 1), 2000)[name]
    issued, held = Issued((2, 1)), []
    values = generator.normal(size=(1502, 1))
    for row in range(1500):
        way.learn(issued.errors(values[row]))
        quantiles = way.quantiles()
        issued.push(np.zeros((2, 1)))
        assert (np.diff(quantiles, axis=0) >= 0).all()
        target = values[row + 1 : row + 3]
        held.append(((quantiles[LOW] <= target) & (target <= quantiles[HIGH])).mean())
    assert abs(float(np.mean(held[300:])) - 0.9) < 0.03
