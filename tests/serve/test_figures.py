"""The figures in docs/serve.md are those of the results, and what was promised of them holds."""

from __future__ import annotations

import json

from benchmarks.serve.page import PAGE, RESULTS, hour, rendered


def test_the_figures_are_not_stale() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == rendered(text), "docs/serve.md is stale; run `python -m benchmarks.serve.page`"


def test_a_kept_result_of_kills_shows_no_loss() -> None:
    databases = json.loads((RESULTS / "serve-crash.json").read_text(encoding="utf-8"))["databases"]
    for found in databases.values():
        assert found["kills"] > 0 and found["acknowledged"] > 0 and found["forecasts_compared"] > 0
        assert found["lost"] == found["doubled"] == found["strangers"] == found["forecasts_different"] == 0


def test_a_paced_hour_is_not_shown_as_what_the_service_can_do() -> None:
    run = {"series": 10, "rows_learned": 144_000, "rows_per_second": 40.0, "memory_mib": [300, 301]}
    result = {
        "machine": {"cores": 2, "cpu": "some", "python": "3.11"}, "method": "auto", "minutes": 60.0, "workers": 2,
        "warm": 150, "series": "10", "name": "hour", "pace": 40.0, "runs": [run],
    }  # fmt: skip
    shown = "\n".join(hour(result))
    assert "--pace 40" in shown and "posted no more than that" in shown
    assert "posted no more" not in "\n".join(hour({**result, "pace": 0.0}))
