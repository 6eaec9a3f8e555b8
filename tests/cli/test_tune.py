"""`natsr tune` on a short series: trials are kept, gone on with, and the best is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.bench.results import read
from natsr.cli import app

TINY = ("--set", "width=4", "--set", "depth=2", "--set", "top=8", "--set", "epochs=1")


def natsr(*arguments: str | int | Path) -> tuple[int, str, str]:
    """Run the program here: exit code, standard output, standard error."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def series(tmp_path: Path) -> Path:
    times = np.datetime64("2024-01-01T00:00:00") + np.arange(400) * np.timedelta64(1, "h")
    values = np.sin(np.arange(400) / 24 * 2 * np.pi) + 0.1 * np.random.default_rng(0).normal(size=400)
    path = tmp_path / "series.csv"
    rows = [f"{when},{value:.5f}" for when, value in zip(times, values, strict=True)]
    path.write_text("\n".join(["time,x", *rows]) + "\n", encoding="utf-8")
    return path


def test_a_search_never_looks_at_the_stream_unless_told_to(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    usual = ("tune", "--method", "ogd", "--dataset", series, "--window", 12, "--horizons", 2, "--out", out, *TINY)
    code, text, remarks = natsr(*usual, "--trials", 2)
    assert code == 0 and "the best of 2 trials" in text and "--set ogd.rate=" in remarks
    assert "--tuned-on validation" in remarks
    code, text, remarks = natsr(*usual, "--trials", 3)
    assert code == 0 and "2 trials are in" in remarks and "the best of 3 trials" in text
    cells = [result.cell for result in read(out)]
    assert len({cell.options for cell in cells}) == len(cells) == 3
    assert {(cell.part, cell.protocol, cell.tuned_on, cell.intervals) for cell in cells} == {
        ("validation", "honest", "nothing", False)
    }
    published = tmp_path / "p.jsonl"
    code, _, _ = natsr(*usual, "--trials", 1, "--tuned-on", "test", "--max-steps", 5, "--out", published)
    (result,) = read(published)
    assert code == 0 and (result.cell.part, result.cell.protocol, result.cell.tuned_on) == ("online", "paper", "test")


def test_help_has_an_example() -> None:
    code, text, _ = natsr("tune", "--help")
    assert code == 0 and "Examples" in text and "--tuned-on" in text


def test_mistakes(series: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (("--method", "rls"), "no online rate"),
        (("--method", "ogd", "--tuned-on", "luck"), "expected validation or test"),
        (("--method", "ogd", "--trials", 0), "0 trials"),
        (("--method", "ogd", "--set", "depht=2"), "did you mean depth"),
    ):
        code, _, error = natsr("tune", "--dataset", series, "--out", tmp_path / "t.jsonl", *arguments)
        assert code == 2 and said in error, arguments
