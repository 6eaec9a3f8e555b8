"""What natsr 0.5.0 wrote, which counted every time in seconds: its states go on, and what it said is still said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from natsr.cli import app
from natsr.live import Live

BEFORE = Path(__file__).parent / "states" / "natsr-0.5.0"
LIVE: dict[str, dict[str, Any]] = json.loads((BEFORE / "live.json").read_text(encoding="utf-8"))


def alike(found: object, expected: object, near: float = 1e-6) -> bool:
    """The same to the letter, but for the last digits of numbers, in which machines differ."""
    if isinstance(found, dict) and isinstance(expected, dict):
        return list(found) == list(expected) and all(alike(found[name], expected[name], near) for name in found)
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(alike(*pair, near) for pair in zip(found, expected, strict=True))
    if isinstance(found, float) and isinstance(expected, float):
        return found == pytest.approx(expected, rel=near, abs=1e-9)
    return found == expected


def answered(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """The same forecast; and about the same intervals, in which the factor now moves the inner quantiles less."""
    return alike(found.pop("intervals", None), expected.get("intervals"), 6e-2) and alike(
        found, {name: value for name, value in expected.items() if name != "intervals"}
    )


@pytest.mark.parametrize("name", LIVE)
def test_a_state_goes_on(name: str, tmp_path: Path) -> None:
    told, live = LIVE[name], Live.load(BEFORE / "live" / name)
    health = live.health()
    assert health.pop("crps") is None  # there was none then, and it begins anew
    assert alike(live.forecast().plain(), told["now"]) and alike(health, told["health"])
    live.save(tmp_path)
    for each in (live, Live.load(tmp_path)):  # and one that was written again since
        for row in told["next"]:
            each.observe(row["time"], [row["value"]])
            assert answered(each.forecast().plain(), row["forecast"]), row["time"]


@pytest.mark.parametrize("name", ["hours.csv", "seconds.jsonl", "quarters.jsonl", "zones.csv"])
def test_a_stream_is_answered_as_before(name: str) -> None:
    given, told = (BEFORE / "run" / file for file in (name, name + ".out"))
    asked = ["run", "-", "--method", "last_value", "--horizon", "2", "--window", "3"]
    done = CliRunner().invoke(app, asked, input=given.read_text(encoding="utf-8"))
    found, expected = done.stdout.splitlines(), told.read_text(encoding="utf-8").splitlines()
    assert len(found) == len(expected) > 3
    for one, other in zip(found, expected, strict=True):
        answer = json.loads(one)
        assert answer.pop("drift", None) is None  # which 0.5.0 did not tell
        assert answered(answer, json.loads(other))
