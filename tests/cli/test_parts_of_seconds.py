"""`natsr run` with rows that come more often than every second: standard input in both forms, and files."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.cli import app
from natsr.live import Live

STEPS = {"100ms": np.timedelta64(100, "ms"), "250us": np.timedelta64(250, "us")}
USUAL = ("--method", "rls", "--window", "6", "--horizon", "2")


def at(freq: str, row: int) -> str:
    return str(np.datetime64("2026-01-01T00:00:58.500000") + row * STEPS[freq])


def value(row: int) -> float:
    return round(5 + math.sin(row * math.tau / 9) + (row * 7 % 11) / 10, 3)


def as_csv(freq: str, rows: list[int]) -> str:
    return "\n".join(["time,load", *(f"{at(freq, row)},{value(row)}" for row in rows)]) + "\n"


def as_json(freq: str, rows: list[int]) -> str:
    return "".join(json.dumps({"time": at(freq, row), "load": value(row)}) + "\n" for row in rows)


def follow(text: str, *more: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(app, ["run", "-", *USUAL, *more], input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("freq", STEPS)
def test_the_frequency_is_found_in_the_first_rows(freq: str) -> None:
    rows = [row for row in range(30) if row not in (12, 13)]
    live = Live(["load"], horizon=2, window=6, method="rls", freq=freq)
    expected = []
    for row in rows:
        live.observe(at(freq, row), [value(row)])
        expected.append(live.forecast().plain() | {"drift": None})
    assert follow(as_csv(freq, rows)) == follow(as_json(freq, rows)) == expected
    assert follow(as_csv(freq, rows), "--freq", freq) == expected


@pytest.mark.parametrize("freq", STEPS)
def test_late_and_duplicate_rows_are_refused_and_the_stream_goes_on(freq: str) -> None:
    said = follow(as_csv(freq, [0, 1, 2, 2, 1, 3]))
    assert ["refused" in answer for answer in said] == [False, False, False, True, True, False]
    assert "is a duplicate" in said[3]["refused"] and "is late" in said[4]["refused"]
    assert said[3]["time"] == at(freq, 2)


@pytest.mark.parametrize("freq", STEPS)
def test_a_state_goes_on(freq: str, tmp_path: Path) -> None:
    whole = follow(as_csv(freq, list(range(40))))
    first = follow(as_csv(freq, list(range(25))), "--state", str(tmp_path))
    second = follow(as_json(freq, list(range(23, 40))), "--state", str(tmp_path))
    assert first == whole[:25] and second[2:] == whole[25:]
    assert all("refused" in answer for answer in second[:2])


def test_epochs_in_milliseconds_and_finer() -> None:
    start = 1767225600
    told = {
        "milliseconds": [str(start * 1000 + 100 * row) for row in range(4)],
        "microseconds": [str(start * 10**6 + 100_000 * row) for row in range(4)],
        "nanoseconds": [str(start * 10**9 + 10**8 * row) for row in range(4)],
        "decimals": [f"{start}.{row}" for row in range(4)],
    }
    for name, times in told.items():
        said = follow("time,load\n" + "".join(f"{time},{row}\n" for row, time in enumerate(times)))
        assert said[-1]["origin"] == "2026-01-01T00:00:00.300", name
    finer = follow(f"time,load\n{start * 10**9},1\n{start * 10**9 + 10**6},2\n{start * 10**9 + 10**6 + 7},3\n")
    assert "expected microseconds at most; round it" in finer[2]["refused"]


def test_rows_between_those_of_the_first_step_are_told_what_to_do() -> None:
    said = follow("time,load\n2026-01-01T00:00:00,1\n2026-01-01T00:00:01,2\n2026-01-01T00:00:01.5,3\n")
    assert "expected whole seconds; round it, or use a freq in parts of a second" in said[2]["refused"]


@pytest.mark.parametrize(("freq", "digits"), [("100ms", 3), ("250us", 6)])
def test_a_file_is_replayed(freq: str, digits: int, tmp_path: Path) -> None:
    rows = [row for row in range(400) if row not in (250, 251)]
    path, out = tmp_path / "fast.csv", tmp_path / "out"
    path.write_text(as_csv(freq, rows), encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(path), *USUAL, "--out", str(out)])
    assert done.exit_code == 0, done.output
    named = {"100ms": "100 milliseconds", "250us": "250 microseconds"}[freq]
    assert f"2 missing values, one row every {named}" in " ".join(done.output.split())
    with (out / "forecasts.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert all(len(line["time"].partition(".")[2]) == digits for line in found)
    told = {str(np.datetime64(at(freq, row)).astype(f"datetime64[{freq[-2:]}]")) for row in range(402)}
    assert {line["time"] for line in found} <= told and found[-1]["time"] == max(told)
    last = str(np.datetime64(at(freq, 398)).astype(f"datetime64[{freq[-2:]}]"))
    assert last in (out / "report.html").read_text(encoding="utf-8")
