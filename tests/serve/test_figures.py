"""The figures in docs/serve.md are those of the results, and what was promised of them holds."""

from __future__ import annotations

import json

from benchmarks.serve.page import PAGE, RESULTS, rendered


def test_the_figures_are_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rendered(text), "docs/serve.md is stale; run `python -m benchmarks.serve.page`"


def test_a_kept_result_of_kills_shows_no_loss() -> None:
    databases = json.loads((RESULTS / "serve-crash.json").read_text(encoding="utf-8"))["databases"]
    for found in databases.values():
        assert found["kills"] > 0 and found["acknowledged"] > 0 and found["forecasts_compared"] > 0
        assert found["lost"] == found["doubled"] == found["strangers"] == found["forecasts_different"] == 0
