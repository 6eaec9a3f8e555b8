"""`natsr run -`: JSON lines in, chosen levels, and a state that the next run goes on from."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.cli import app

SRC = Path(__file__).parents[2] / "src"
USUAL = ("run", "-", "--method", "rls", "--window", "6", "--horizon", "2", "--freq", "h")


def rows(start: int, stop: int) -> list[dict[str, Any]]:
    return [
        {"time": f"2024-01-{1 + row // 24:02}T{row % 24:02}:00:00", "a": (row * 7) % 11} for row in range(start, stop)
    ]


def as_csv(given: Sequence[dict[str, Any]]) -> list[str]:
    return ["time,a", *(f"{row['time']},{row['a']}" for row in given)]


def follow(lines: Sequence[str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, answers, standard error."""
    done = CliRunner().invoke(app, [*USUAL, *arguments], input="\n".join(lines) + "\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_json_lines_are_as_good_as_csv() -> None:
    given = rows(0, 30)
    assert follow([json.dumps(row) for row in given])[1] == follow(as_csv(given))[1]


def test_lines_that_are_no_row_are_refused_and_the_stream_goes_on() -> None:
    given = [json.dumps(row) for row in rows(0, 12)]
    given[5:5] = ["{broken", "[1, 2]", '{"time": "soon", "a": 1}']
    given[10] = given[10].replace('"a"', '"b"')  # the value is missing then
    code, answers, _ = follow(given)
    assert code == 0 and len(answers) == 15
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    assert ["no JSON" in refused[0], "a list" in refused[1], "ISO 8601" in refused[2]] == [True] * 3
    assert len(refused) == 3 and refused[0].startswith("line 6:")


def test_quantiles_are_answered_where_they_are_asked_for() -> None:
    given = as_csv(rows(0, 12))
    _, plain, _ = follow(given)
    _, answers, _ = follow(given, "--quantiles", "0.95,0.05")
    assert not any("quantiles" in answer for answer in plain)
    last = answers[-1]["quantiles"]
    assert list(last) == ["0.05", "0.95"]
    for name, ends in answers[-1]["intervals"]["0.9"].items():
        np.testing.assert_allclose(np.transpose([last["0.05"][name], last["0.95"][name]]), ends, rtol=1e-12)
    for wrong in ("1.5", "0", "high", "nan"):
        code, _, said = follow(given, "--quantiles", wrong)
        assert code == 2 and "quantiles is" in said


def test_levels_are_those_asked_for() -> None:
    _, answers, _ = follow(as_csv(rows(0, 12)), "--levels", "0.8,0.99")
    assert set(answers[-1]["intervals"]) == {"0.8", "0.99"}
    for wrong in ("1.5", "high"):
        code, _, said = follow(as_csv(rows(0, 12)), "--levels", wrong)
        assert code == 2 and "levels is" in said


def test_a_state_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = follow(as_csv(rows(0, 60)))[1]
    kept = str(tmp_path / "kept")
    first = follow(as_csv(rows(0, 35)), "--state", kept)[1]
    code, second, said = follow(as_csv(rows(30, 60)), "--state", kept)
    assert code == 0 and "going on with rls after 35 rows" in said
    assert [list(answer) for answer in second[:5]] == [["time", "refused"]] * 5  # those it has had
    assert first + second[5:] == whole


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
def test_sigterm_keeps_what_was_learned(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    kept = str(tmp_path / "kept")
    with subprocess.Popen(
        [sys.executable, "-m", "natsr", *USUAL, "--state", kept],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("\n".join(as_csv(rows(0, 20))) + "\n")
        program.stdin.flush()
        for _ in range(20):
            assert "origin" in json.loads(program.stdout.readline())
        program.send_signal(signal.SIGTERM)
        assert program.wait(timeout=120) == 128 + signal.SIGTERM
    _, answers, said = follow(as_csv(rows(20, 24)), "--state", kept)
    assert "after 20 rows" in said and all("origin" in answer for answer in answers)


def test_columns_that_are_read_only_and_plans() -> None:
    small = ("--method", "ogd", "--set", "width=2", "--set", "depth=1", "--set", "epochs=1")
    asked = (*small, "--exogenous", "wind", "--known", "holiday")
    given = [{**row, "wind": row["a"] % 3, "holiday": place % 5 == 0} for place, row in enumerate(rows(0, 20))]
    plans = [[(place + ahead) % 5 == 0 for ahead in (1, 2)] for place in range(20)]
    told = [json.dumps({**row, "future": {"holiday": plan}}) for row, plan in zip(given, plans, strict=True)]
    head = "time,a,wind,holiday,holiday+1,holiday+2"
    table = [
        ",".join(str(float(cell)) if not isinstance(cell, str) else cell for cell in (*row.values(), *plan))
        for row, plan in zip(given, plans, strict=True)
    ]
    code, answers, _ = follow(told, *asked)
    assert code == 0 and all(list(answer["mean"]) == ["a"] for answer in answers)
    assert follow([head, *table], *asked)[1] == answers
    unplanned = follow([json.dumps(row) for row in given], *asked)[1]
    assert len(unplanned) == 20 and unplanned[-1] != answers[-1]
    refused = follow([*told[:-1], told[-1].replace("[true, false]", "[true]").replace("[false, false]", "[1]")], *asked)
    assert "expected 2" in refused[1][-1]["refused"]
    code, _, said = follow(told, *small, "--known", "holidays")
    assert code == 2 and "did you mean holiday" in said
    code, _, said = follow(told, "--method", "rls", "--known", "holiday")
    assert code == 2 and "reads the values only" in said


def test_auto_reads_them_and_goes_on(tmp_path: Path) -> None:
    asked = ("--method", "auto", "--set", "budget=cheap", "--exogenous", "wind", "--known", "holiday")
    given = [{**row, "wind": row["a"] % 3, "holiday": place % 5 == 0} for place, row in enumerate(rows(0, 40))]
    plans = [[(place + ahead) % 5 == 0 for ahead in (1, 2)] for place in range(40)]
    told = [json.dumps({**row, "future": {"holiday": plan}}) for row, plan in zip(given, plans, strict=True)]
    code, answers, _ = follow(told, *asked)
    assert code == 0 and len(answers) == 40 and all(list(answer["mean"]) == ["a"] for answer in answers)
    state = ("--state", str(tmp_path / "state"))
    assert follow(told[:25], *asked, *state)[1] == answers[:25]
    assert follow(told[25:], *asked, *state)[1] == answers[25:]


def test_a_drift_is_in_the_line_with_its_time() -> None:
    given = rows(0, 700)
    for row in given[500:]:
        row["a"] = 40 * ((row["a"] * row["a"]) % 7)
    _, answers, _ = follow(as_csv(given), "--method", "last_value")
    told = [answer["drift"] for answer in answers]
    assert told[:500] == [None] * 500
    assert told[560] is not None and answers[490]["origin"] <= told[560]["since"] <= answers[510]["origin"]
