"""`natsr bench GRID.toml` and `natsr table GRID.toml`: fill what is missing, go on after a stop, show what is there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.bench.cells import Cell, Result
from natsr.bench.results import read, to_line
from natsr.cli import app

GRID = """
title = "A small one"
protocols = ["honest", "partial"]
seeds = [0, 1]
out = "r.jsonl"
intervals = false

[methods]
last_value = {}
rls = { ridge = 2.0 }

[[part]]
datasets = [DATASETS]
horizons = [1, 3]
"""
ABLATION = """
title = "What a ridge does"
shows = "ablation"
protocols = ["paper"]
seeds = [0]
out = "ablation.jsonl"

[methods]
rls = {}

[[part]]
datasets = [DATASETS]
horizons = [2]

[[setting]]
group = "ridge"
name = "as it is"
options = {}

[[setting]]
group = "ridge"
name = "hard"
options = { ridge = 1e6 }
"""


def natsr(*arguments: str | int | Path) -> tuple[int, str, str]:
    """Run the program here: exit code, standard output, standard error."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def series(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    times = np.datetime64("2024-01-01T00:00:00") + np.arange(400) * np.timedelta64(1, "h")
    values = np.sin(np.arange(400) / 24 * 2 * np.pi) + 0.1 * rng.normal(size=400)
    path = tmp_path / "series.csv"
    rows = [f"{when},{value:.5f}" for when, value in zip(times, values, strict=True)]
    path.write_text("\n".join(["time,x", *rows]) + "\n", encoding="utf-8")
    return path


def grid(folder: Path, *datasets: str | Path, text: str = GRID) -> Path:
    path = folder / "grid.toml"
    path.write_text(text.replace("DATASETS", ", ".join(f'"{dataset}"' for dataset in datasets)), encoding="utf-8")
    return path


def test_a_grid_is_filled_and_gone_on_with(series: Path, tmp_path: Path) -> None:
    path, out = grid(tmp_path, series), tmp_path / "r.jsonl"
    code, text, remarks = natsr("bench", path, "--seeds", 0, "--methods", "rls")
    assert code == 0 and "MASE, protocol honest" in text and "MASE, protocol partial" in text
    assert "4 cells done, 0 failed, 0 left" in remarks
    assert len(read(out)) == 4
    results = read(out)
    # One horizon is the same under both protocols: computed once, kept twice.
    alike = [result.numbers["seconds"] for result in results if result.cell.horizon == 1]
    assert len(set(alike)) == 1 and len({result.cell.protocol for result in results}) == 2
    assert all("crps" not in result.numbers and not result.cell.intervals for result in results)
    # A kill in the middle of a line.
    out.write_text(out.read_text(encoding="utf-8")[:-50], encoding="utf-8")
    code, _, remarks = natsr("bench", path)
    assert code == 0 and "3 of 16 cells have a result" in remarks and "16 cells done, 0 failed, 0 left" in remarks
    before = out.read_bytes()
    code, _, remarks = natsr("bench", path)
    assert code == 0 and out.read_bytes() == before and "0 new results" in remarks


def test_failures_are_counted_and_data_that_is_not_there_is_left_out(
    series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from natsr.forecasters.naive import LastValue

    def broken(_self: LastValue, _window: object) -> object:
        raise FloatingPointError("it broke")

    monkeypatch.setattr(LastValue, "forecast", broken)
    monkeypatch.setenv("NATSR_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("urllib.request.urlopen", lambda *_a, **_k: (_ for _ in ()).throw(OSError("no network")))
    path = grid(tmp_path, series, "ECL")
    code, text, remarks = natsr("bench", path, "--seeds", 0, "--horizons", 3)
    assert code == 1 and "failed" in text
    assert "4 cells left out: ECL.csv" in remarks and "no network" in remarks
    assert "2 cells done, 2 failed, 4 left" in remarks


def test_a_grid_is_narrowed_and_nothing_else(series: Path, tmp_path: Path) -> None:
    path = grid(tmp_path, series)
    for arguments, said in (
        (("--methods", "er"), "no method er"),
        (("--datasets", "WTH"), "no dataset WTH"),
        (("--protocol", "paper"), "no protocol paper"),
        (("--set", "ridge=3"), "--set is given beside"),
        (("--window", "30"), "--window is given beside"),
        (("--max-steps", "5"), "--max-steps is given beside a grid without --out"),
    ):
        code, _, error = natsr("bench", path, *arguments)
        assert code == 2 and said in error, arguments
    code, _, error = natsr("bench")
    assert code == 2 and "--methods, --datasets and --out" in error
    short = tmp_path / "short.jsonl"
    code, _, _ = natsr("bench", path, "--max-steps", 5, "--out", short, "--seeds", 0, "--methods", "last_value")
    assert code == 0 and {result.cell.max_steps for result in read(short)} == {5}
    assert not (tmp_path / "r.jsonl").exists()


def test_the_table_of_a_grid(tmp_path: Path) -> None:
    path = grid(tmp_path, "ETTh1", text=GRID.replace('"honest", "partial"', '"paper"').replace("last_value", "ogd"))
    figures = {("ogd", 1): 0.9, ("ogd", 3): 1.0, ("rls", 1): 0.8, ("rls", 3): 1.2}
    results = [
        Result(
            Cell(method, "ETTh1", horizon, 0, "paper", options=(("ridge", 2.0),) if method == "rls" else ()),
            {"mase": x},
        )
        for (method, horizon), x in figures.items()
    ]
    other = Result(Cell("er", "ETTh1", 1, 0, "paper"), {"mase": 0.1})
    lines = "".join(to_line(result) + "\n" for result in [*results, other])
    (tmp_path / "r.jsonl").write_text(lines, encoding="utf-8")
    code, text, _ = natsr("table", path, "--against", "paper")
    assert code == 0 and "0.900 (0.87, +0.030)+" in text and "0.800*" in text
    assert (
        "1 of 1 figures (100%) are at most the larger of 0.05" in text and "er" not in text.split("1 of 1")[0].split()
    )
    code, text, _ = natsr("table", path, "--format", "markdown")
    assert code == 0 and "<u>0.900</u>" in text and "**0.800**" in text
    code, _, error = natsr("table", path, tmp_path / "r.jsonl")
    assert code == 2 and "expected it alone" in error


def test_the_table_of_a_study(series: Path, tmp_path: Path) -> None:
    path = grid(tmp_path, series, text=ABLATION)
    code, _, error = natsr("table", path)
    assert code == 2 and "no result to show" in error
    code, text, _ = natsr("bench", path)
    assert code == 0 and "What a ridge does" in text and "hard" in text
    found = {len(dict(r.cell.options)): r.numbers["mase"] for r in read(tmp_path / "ablation.jsonl")}
    loss = f"{100 * (found[1] / found[0] - 1):+.0f} %"
    code, text, _ = natsr("table", path, "--format", "markdown")
    assert code == 0 and f"| {loss} |" in text
    code, text, _ = natsr("table", path, "--format", "csv")
    assert code == 0 and text.startswith(f"setting,{series},loss")


def test_old_results_without_the_word_intervals_have_them(tmp_path: Path) -> None:
    fields = json.loads(to_line(Result(Cell("rls", "ETTh1", 1), {"mase": 1.0})))
    del fields["intervals"]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(fields) + "\n", encoding="utf-8")
    assert read(path)[0].cell.intervals
