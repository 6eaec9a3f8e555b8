"""Hostile requests: no 5xx, errors in one form, the service lives on and what was kept is unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.serve.harness import inside
from benchmarks.serve.hostile import attacked, schema_fuzz

from natsr.serve.settings import Limits, ServeSettings


@pytest.mark.slow
def test_hostile_requests_do_no_harm(tmp_path: Path) -> None:
    with inside(ServeSettings(str(tmp_path), limits=Limits(rate=1e6))) as (_, client):
        found = attacked(str(client.base_url).rstrip("/"), count=250, raw_count=40, seed=5)
    assert found["wrong"] == 0, found["examples"]
    assert found["alive"] and found["unchanged"]
    assert sum(found["statuses"].values()) == 290 and found["statuses"]["422"] > 20


@pytest.mark.slow
def test_the_service_does_what_its_description_says(tmp_path: Path) -> None:
    with inside(ServeSettings(str(tmp_path), limits=Limits(rate=1e6))) as (_, client):
        found = schema_fuzz(str(client.base_url).rstrip("/"), examples=2, seed=1, phases="examples,fuzzing")
    assert found["status"] == 0, found["says"]
