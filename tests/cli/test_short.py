"""Short files: sizes that were not given fit them, and those that were given need as many rows as is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from natsr.bench.results import read
from natsr.cli import app
from natsr.cli.run import DEFAULT_METHODS
from natsr.cli.sizes import fits, least
from natsr.data.series import Borders
from natsr.types import Task

QUICK = ("--methods", "last_value,rls")
TINY = [word for option in ("width=4", "depth=2", "top=8", "epochs=1") for word in ("--set", option)]


def months(folder: Path, rows: int) -> Path:
    path = folder / "air.csv"
    lines = (f"{1949 + row // 12}-{row % 12 + 1:02d},{100 + row + 10 * (row % 12)}\n" for row in range(rows))
    path.write_text("month,passengers\n" + "".join(lines))
    return path


def natsr(*arguments: str | int | Path) -> tuple[int, str]:
    """The program here: exit code, standard error."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stderr


@pytest.mark.parametrize("rows", [5, 30, 84])
def test_a_short_file_needs_no_options(tmp_path: Path, rows: int) -> None:
    code, said = natsr("run", months(tmp_path, rows), *TINY, "--out", tmp_path)
    assert code == 0 and f"{rows} rows are few: --horizon " in said
    results = read(tmp_path / "results.jsonl")
    assert {result.cell.method for result in results} == set(DEFAULT_METHODS)
    assert all(result.error is None and result.numbers["steps"] >= 1 for result in results)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((), "144 rows are few: --horizon 12 --window 24 in place of 24 and 60"),
        (("--horizon", 24), "144 rows are few: --window 24 in place of 60"),
        (("--window", 60), "144 rows are few: --horizon 12 in place of 24"),
    ],
)
def test_it_is_said_which_sizes_were_chosen(tmp_path: Path, given: tuple[str | int, ...], said: str) -> None:
    code, error = natsr("run", months(tmp_path, 144), *QUICK, *given, "--out", tmp_path)
    assert code == 0 and said in error.splitlines()
    assert said in (tmp_path / "report.html").read_text()


def test_a_file_that_is_long_enough_is_run_as_ever(tmp_path: Path) -> None:
    code, error = natsr("run", months(tmp_path, 168), *QUICK, "--out", tmp_path)
    assert code == 0 and "are few" not in error
    assert {(each.cell.horizon, each.cell.window) for each in read(tmp_path / "results.jsonl")} == {(24, 60)}


@pytest.mark.parametrize(
    "given",
    [("--horizon", 24, "--window", 60), ("--horizon", 30), ("--window", 40), ("--horizon", 24, "--window", 1)],
)
def test_the_number_of_rows_that_is_asked_for_is_enough_and_one_less_is_not(
    tmp_path: Path, given: tuple[str | int, ...]
) -> None:
    code, error = natsr("run", months(tmp_path, 40), *QUICK, *given, "--out", tmp_path)
    found = re.search(r"air has 40 rows, expected at least (\d+) for --", error)
    assert code == 2 and found is not None
    needed = int(found[1])
    code, error = natsr("run", months(tmp_path, needed - 1), *QUICK, *given, "--out", tmp_path)
    assert code == 2 and f"has {needed - 1} rows, expected at least {needed} for --" in error
    code, _ = natsr("run", months(tmp_path, needed), *QUICK, *given, "--out", tmp_path)
    assert code == 0


def test_more_rows_than_the_fewest_are_enough() -> None:
    for window in (1, 7, 60):
        for horizon in (1, 5, 24, 48):
            fewest, task = least(window, horizon), Task(window, horizon, channels=1)
            assert not fits(Borders.published(max(5, fewest - 1)), task) or fewest == 5
            assert all(fits(Borders.published(rows), task) for rows in range(fewest, 12 * fewest))
