"""Rows on standard input as other programs write them; a bad line spoils no other, and is answered at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from natsr.cli import app
from natsr.cli.lines import cell, is_number
from natsr.types import DataError

SRC = Path(__file__).parents[2] / "src"
USUAL = ["run", "-", "--method", "last_value", "--window", "3", "--horizon", "1"]
HOURS = [f"2026-01-01T{hour:02d}:00" for hour in range(5)]
EPOCH = 1767225600


def follow(text: str | bytes, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, answers, standard error."""
    done = CliRunner().invoke(app, [*USUAL, *arguments], input=text)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


PLAIN = "time,load\n" + "".join(f"{time},{row}.5\n" for row, time in enumerate(HOURS))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace(",", ";").replace(".", ","),
        "\ufeff" + PLAIN,
        PLAIN.replace("\n", "\r\n"),
        "# from a logger\n" + PLAIN,
        PLAIN.replace("\n", "\n\n"),
        "ts,load\n" + "".join(f"{EPOCH + 3600 * row},{row}.5\n" for row in range(5)),
        "".join(json.dumps({"ts": 1000 * (EPOCH + 3600 * row), "load": row + 0.5}) + "\n" for row in range(5)),
        "".join(json.dumps({"time": time, "values": {"load": row + 0.5}}) + "\n" for row, time in enumerate(HOURS)),
    ],
    ids=[
        "semicolons",
        "tabs",
        "decimal commas",
        "BOM",
        "CRLF",
        "remark",
        "empty lines",
        "epoch",
        "JSON ms",
        "as posted",
    ],
)
def test_the_same_rows_in_other_clothes(text: str) -> None:
    assert follow(text)[:2] == follow(PLAIN)[:2]


def test_points_between_thousands_once_a_decimal_comma_was_seen() -> None:
    text = "time;a;b\n" + "".join(f"{time};1.234;0,{row}\n" for row, time in enumerate(HOURS))
    assert follow(text)[1][0]["mean"] == {"a": [1234.0], "b": [0.0]}
    assert follow(text.replace("0,", "0."))[1][0]["mean"] == {"a": [1.234], "b": [0.0]}


def test_a_quote_that_is_never_closed_ends_with_its_line() -> None:
    lines = PLAIN.splitlines()
    lines[3] = lines[3].replace("2.5", '"2.5')
    assert len(follow("\n".join(lines) + "\n")[1]) == 5


def test_a_byte_that_is_no_text_spoils_its_own_cell() -> None:
    code, answers, _ = follow(PLAIN.encode().replace(b"2.5", b"\xff"))
    assert code == 0 and ["refused" in answer for answer in answers] == [False, False, True, False, False]


def test_a_row_with_too_many_cells_is_refused() -> None:
    answers = follow(PLAIN.replace("2.5", "2,5"))[1]
    assert answers[2]["refused"] == "line 4: it has 3 cells, expected 2: time,load"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN.split("\n", 1)[1], "begins with 2026-01-01T00:00, 0.5, which is a row, expected the names"),
        ('[{"time": 1}]\n', "begins with a list, expected CSV, or one JSON object on each line"),
        ("time,load\nsoon,1\n", "no row of it could be used"),
        ("", "ended before a header came"),
    ],
)
def test_what_cannot_be_followed_is_named(text: str, message: str) -> None:
    code, _, said = follow(text)
    assert code == 2 and message in " ".join(said.split())


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_row(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, answers, said = follow(PLAIN, "--state", str(tmp_path / "file"))
    assert code == 2 and not answers and "cannot be written" in said


def test_rows_whose_times_cannot_be_read_are_answered_while_the_stream_goes_on() -> None:
    """Without a step nothing can be forecast; whoever watches must see why, and not wait for the end of the stream."""
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "natsr", *USUAL]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        running.stdin.write("time,load\n31.01.2026 15:00,1\n")
        running.stdin.flush()
        assert "expected ISO 8601" in json.loads(running.stdout.readline())["refused"]
        running.stdin.close()
        assert running.wait() == 2


def test_cells() -> None:
    assert cell(" 5 ", "a") == 5 and cell("#N/A", "a") != cell("-", "a")  # both are NaN
    assert is_number("", "a") and not is_number("five", "a")
    with pytest.raises(DataError, match="a is 'five', expected a number"):
        cell("five", "a")
