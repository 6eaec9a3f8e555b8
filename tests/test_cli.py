"""Every command once, on a short series; and every mistake that users make, answered in one message."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.bench.results import read
from natsr.cli import app
from natsr.cli.given import names, settings, whole_numbers
from natsr.cli.replay import command, dominated, planned
from natsr.cli.run import DEFAULT_METHODS, SAMPLE_ROWS, Run
from natsr.data.series import Borders
from natsr.live import Live
from natsr.types import OptionError

ROOT = Path(__file__).parent.parent
PLAIN = ("--methods", "rls,last_value", "--window", "12", "--horizon", "3")
COMMANDS = ("run", "bench", "table", "tune", "serve", "token", "backup", "checks")
#: Small enough for a test, and still every part of it is there.
TINY = ("--set", "natsr.width=4", "--set", "natsr.depth=2", "--set", "natsr.top=8", "--set", "natsr.epochs=1")


def natsr(*arguments: str | int | Path) -> tuple[int, str, str]:
    """Run the program here: exit code, standard output, standard error."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def start(*arguments: str | int | Path) -> subprocess.Popen[str]:
    """Run the program in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "natsr", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=_hears_ctrl_c,
    )


def _hears_ctrl_c() -> None:
    """A program started in the background of a shell would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def table(rows: int = 300) -> list[str]:
    rng = np.random.default_rng(0)
    hours = np.arange(rows)
    values = np.sin(hours / 24 * 2 * np.pi)[:, None] + 0.1 * rng.normal(size=(rows, 2)).cumsum(0)
    times = np.datetime64("2024-01-01T00:00:00") + hours * np.timedelta64(1, "h")
    return ["time,a,b", *(f"{when},{a:.5f},{b:.5f}" for when, (a, b) in zip(times, values, strict=True))]


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def series(tmp_path: Path) -> Path:
    return write(tmp_path / "series.csv", table())


# Help


def test_help_lists_every_command_and_waits_for_nothing_heavy() -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = ['natsr', '--help']\n"
        "try:\n    runpy.run_module('natsr', run_name='__main__', alter_sys=True)\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'pandas', 'numpy', 'scipy', 'fastapi', 'sqlalchemy', 'httpx', 'optuna', 'matplotlib'}\n"
        "print('threads:', __import__('os').environ['OMP_NUM_THREADS'])\n"
        "print('imported:', sorted(heavy & set(sys.modules)))\n"
    )
    plain = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain)
    assert all(re.search(rf"^│ {name} ", done.stdout, re.MULTILINE) for name in (*COMMANDS, "data"))
    assert done.stdout.splitlines()[-2:] == ["threads: 1", "imported: []"]


@pytest.mark.parametrize(
    "command_line",
    [("run",), ("bench",), ("table",), ("checks",), ("data", "list"), ("data", "path"), ("data", "verify")],
)
def test_help_of_every_command_has_an_example(command_line: tuple[str, ...]) -> None:
    code, text, _ = natsr(*command_line, "--help")
    assert code == 0
    assert re.search(rf"Examples?:\s+.*natsr {' '.join(command_line)}", text, re.DOTALL)


def test_help_of_run_says_how_much_of_the_sample_is_taken() -> None:
    _, text, _ = natsr("run", "--help")
    assert f"{SAMPLE_ROWS:,} of 43,824" in " ".join(text.split())


def test_the_page_shows_every_option_of_a_file_and_of_a_stream() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    of_file, of_stream = (page.split(f"\n## `natsr run{which}`\n")[1].split("```")[1] for which in ("", " -"))
    every = {f"--{item.name}" for item in fields(Run)} - {"--file"}
    assert every - set(re.findall("--[a-z]+", of_file)) == {"--freq", "--levels", "--quantiles", "--state"}
    assert every - set(re.findall("--[a-z]+", of_stream)) == {"--methods", "--rows", "--out", "--repeated", "--device"}


# Run


def test_run_writes_forecasts_results_and_a_report(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    code, text, remarks = natsr("run", series, *PLAIN, "--out", out)
    assert code == 0
    assert "MASE" in text and "rls" in text and "last_value" in text
    assert "online 223/223" in remarks and "MASE" in remarks
    results = {result.cell.method: result for result in read(out / "results.jsonl")}
    assert set(results) == {"rls", "last_value"}
    assert results["rls"].numbers["steps"] == 223
    assert f"{results['rls'].numbers['mase']:.3f}" in text
    assert (out / "report.html").read_text().startswith("<!doctype html>")


def test_run_forecasts_every_origin_and_beyond_the_end(series: Path, tmp_path: Path) -> None:
    natsr("run", series, *PLAIN, "--out", tmp_path)
    with (tmp_path / "forecasts.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == (223 + 1) * 3
    assert list(lines[0]) == ["origin", "step", "time", "a", "a_low", "a_high", "b", "b_low", "b_high"]
    assert all(float(line["a_low"]) <= float(line["a_high"]) for line in lines)
    assert [line["time"] for line in lines[-3:]] == [f"2024-01-13T{hour}:00:00" for hour in ("12", "13", "14")]
    # One row ahead the forecast is in the data's own units: near the truth, and far from the other column.
    truth = {line.split(",")[0]: float(line.split(",")[1]) for line in table()[1:]}
    errors = [abs(float(line["a"]) - truth[line["time"]]) for line in lines[:-3] if line["step"] == "1"]
    assert float(np.mean(errors)) < 0.15


def test_run_with_a_network(series: Path, tmp_path: Path) -> None:
    code, _, _ = natsr("run", series, "--method", "natsr", *TINY, "--window", 12, "--horizon", 3, "--out", tmp_path)
    assert code == 0
    assert [result.cell.method for result in read(tmp_path / "results.jsonl")] == ["natsr", "last_value"]


def test_run_takes_columns_rows_and_a_protocol(series: Path, tmp_path: Path) -> None:
    code, _, remarks = natsr(
        "run", series, *PLAIN, "--target", "b", "--rows", 200, "--protocol", "partial", "--out", tmp_path
    )
    assert code == 0 and "the first 200 of 300" in remarks
    (first, *_) = read(tmp_path / "results.jsonl")
    assert first.cell.protocol == "partial" and first.cell.dataset.endswith("series.csv[:200]")
    assert (tmp_path / "forecasts.csv").read_text().startswith("origin,step,time,b,b_low,b_high\n")


def test_run_without_a_file_is_the_bundled_sample(tmp_path: Path) -> None:
    code, _, remarks = natsr("run", "--methods", "last_value", "--rows", 400, "--out", tmp_path)
    assert code == 0 and "the first 400 of 43,824" in remarks and "7 columns" in remarks


def test_rows_end_the_stream_and_leave_the_parts_before_it() -> None:
    data = planned(Run(methods="last_value", rows=15000)).data
    assert data.borders == Borders(8764, 10956, 15000)
    # A year trains, so that it has rained in it: no column's unit is a rare event.
    assert float(data.rows.truth.nan_to_num().abs().max()) < 50
    assert planned(Run(methods="last_value", rows=2000)).data.borders == Borders.published(2000)


def test_column_that_outweighs_all_others_is_said() -> None:
    assert dominated(planned(Run(methods="last_value")).data) == ()
    (remark,) = dominated(planned(Run(methods="last_value", rows=8000)).data)
    assert "column Ir makes up 9" in remark and "--target" in remark


def test_run_defaults() -> None:
    assert Run().chosen() == DEFAULT_METHODS and DEFAULT_METHODS[0] == "auto"
    assert set(DEFAULT_METHODS) == {"auto", "natsr", "er", "rls", "seasonal", "last_value"}
    assert Run(method="rls").chosen() == ("rls", "last_value")
    assert Run(method="last_value").chosen() == ("last_value",)


def test_command_can_be_typed_again(tmp_path: Path) -> None:
    given = Run("my file.csv", horizon=3, method="rls", set=["rls.ridge=2"], out=tmp_path)
    assert command(given) == f"natsr run 'my file.csv' --horizon 3 --method rls --out {tmp_path} --set rls.ridge=2"
    assert command(Run()) == "natsr run"


def test_run_with_a_constant_column_works(tmp_path: Path) -> None:
    lines = table()
    path = write(tmp_path / "c.csv", [lines[0] + ",c", *(line + ",5" for line in lines[1:])])
    code, _, _ = natsr("run", path, *PLAIN, "--out", tmp_path / "o")
    assert code == 0
    with (tmp_path / "o" / "forecasts.csv").open() as file:
        assert {float(line["c"]) for line in csv.DictReader(file)} == {5.0}


def test_run_with_an_all_missing_column_leaves_it_out_and_says_so(tmp_path: Path) -> None:
    lines = table()
    path = write(tmp_path / "m.csv", [lines[0] + ",gone", *(line + "," for line in lines[1:])])
    code, _, remarks = natsr("run", path, *PLAIN, "--out", tmp_path / "o")
    assert code == 0 and "gone" in remarks
    code, _, error = natsr("run", path, *PLAIN, "--target", "gone", "--out", tmp_path / "o")
    assert code == 2 and "gone" in error


# Standard input


def follow(lines: Sequence[str], *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run `natsr run -` here: exit code, what it answered, standard error."""
    usual = ["run", "-", "--method", "rls", "--window", "6", "--horizon", "2"]
    done = CliRunner().invoke(app, [*usual, *arguments], input="\n".join(lines) + "\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_stream_answers_every_row() -> None:
    lines = table(60)
    code, answers, _ = follow(lines)
    assert code == 0 and len(answers) == 60
    assert [answer["origin"] for answer in answers] == [line.split(",")[0] for line in lines[1:]]
    last = answers[-1]
    assert last["times"] == ["2024-01-03T12:00:00", "2024-01-03T13:00:00"]
    assert set(last["mean"]) == {"a", "b"} and set(last["intervals"]) == {"0.5", "0.9"}
    for low, high in last["intervals"]["0.9"]["a"]:
        assert low < high


def test_stream_says_what_live_says() -> None:
    lines = table(60)
    _, answers, _ = follow(lines, "--target", "b")
    live = Live(["b"], horizon=2, freq="h", method="rls", window=6)
    for line in lines[1:]:
        live.observe(line.split(",")[0], [float(line.split(",")[2])])
    assert answers[-1]["mean"]["b"] == live.forecast().mean[:, 0].tolist()


def test_stream_goes_on_after_rows_that_cannot_be_used() -> None:
    lines = table(40)
    damaged = [*lines[:20], "yesterday,1,2", lines[20].rsplit(",", 1)[0] + ",much", lines[19], *lines[21:]]
    code, answers, _ = follow(damaged)
    assert code == 0 and len(answers) == 42
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    assert len(refused) == 3
    assert "line 21: time is 'yesterday'" in refused[0] and "'much'" in refused[1] and "duplicate" in refused[2]
    assert answers[-1]["origin"] == lines[-1].split(",")[0]


def test_stream_takes_gaps_text_columns_and_its_time_column_by_name() -> None:
    lines = ["wind,a,when", *(f"NW,{'' if row % 5 == 0 else row},2024-01-01 {row:02}:00" for row in range(1, 20))]
    code, answers, remarks = follow(lines, "--time", "when")
    assert code == 0 and len(answers) == 19 and "left out, for they hold text: wind" in remarks
    assert set(answers[-1]["mean"]) == {"a"} and "refused" not in answers[-1]


def test_stream_answers_before_the_next_row_comes() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    arguments = ["run", "-", "--method", "last_value", "--window", "3", "--horizon", "1", "--freq", "h"]
    with subprocess.Popen(
        [sys.executable, "-m", "natsr", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("time,a\n")
        for hour in range(4):
            program.stdin.write(f"2024-01-01T{hour:02}:00:00,{hour}\n")
            program.stdin.flush()
            assert json.loads(program.stdout.readline())["mean"]["a"] == [pytest.approx(hour, abs=1e-5)]


@pytest.mark.parametrize(
    ("lines", "arguments", "said"),
    [
        ([], (), "before a header came"),
        (["time,a"], (), "ended after its header"),
        (["time,a,a"], (), "each name once"),
        (["time,a", "2024-01-01,1"], (), "say it with --freq"),
        (["time,a", "2024-01-01,x"], (), "expected a column of numbers"),
        (["time,a"], ("--target", "b"), "target 'b' is unknown"),
        (["time,a"], ("--time", "b"), "time column 'b' is unknown"),
        (["time,a"], ("--freq", "month"), "freq is 'month'"),
        (["time,a"], ("--horizon", "0"), "horizon is 0"),
        (["time,a"], ("--protocol", "paper"), "honest or partial"),
        (["time,a"], ("--rows", "5"), "--rows was given with -"),
        (["time,a"], ("--device", "cuda"), "expected cpu"),
    ],
)
def test_stream_mistakes(lines: list[str], arguments: tuple[str, ...], said: str) -> None:
    code, answers, error = follow(lines, *arguments)
    assert code == 2 and answers == [] and said in error


# Mistakes


def swapped(lines: list[str]) -> list[str]:
    return [*lines[:50], lines[51], lines[50], *lines[52:]]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: [line.split(",", 1)[1] for line in lines], "time"),
        (lambda lines: [*lines[:50], lines[50].rsplit(",", 1)[0] + ",broken", *lines[51:]], "broken"),
        (lambda lines: [*lines[:50], lines[49] + "1", *lines[50:]], "each time once"),
        (swapped, "order|before|sort"),
        (lambda lines: lines[:5], "has 4 rows, expected at least 5"),
    ],
    ids=["no time column", "text among numbers", "duplicate times", "unsorted times", "too short"],
)
def test_damaged_files_are_refused_with_one_message(
    tmp_path: Path, damage: Callable[[list[str]], list[str]], said: str
) -> None:
    path = write(tmp_path / "d.csv", damage(table()))
    code, _, error = natsr("run", path, "--methods", "last_value", "--out", tmp_path / "o")
    assert code == 2
    assert error.startswith("error: ") and "Traceback" not in error
    assert re.search(said, error.lower())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--horizon", "0"), "horizon is 0, expected at least 1"),
        (("--window", "0"), "window is 0"),
        (("--rows", "0"), "rows is 0"),
        (("--seed", "-1"), "seed is -1"),
        (("--time", "tme"), "did you mean time"),
        (("--target", "aa"), "did you mean a"),
        (("--target", ","), "target is ','"),
        (("--method", "natssr"), "natsr"),
        (("--methods", "rls,lastvalue"), "last_value"),
        (("--method", "rls", "--methods", "er"), "both given"),
        (("--freq", "h"), "--freq is 'h', but a file's times tell it; it goes with - only"),
        (("--levels", "0.5"), "--levels is '0.5', but of a file the 90 % intervals are written; it goes with - only"),
        (("--state", "kept"), "--state is 'kept', but a file is begun anew each time; it goes with - only"),
        (("--repeated", "both"), "expected one of refuse, first, last, mean"),
        (("--protocol", "honst"), "expected one of honest, partial, paper"),
        (("--methods", "rls", "--set", "ridge"), "expected key=value"),
        (("--methods", "rls", "--set", "rigde=1"), "did you mean ridge"),
        (("--methods", "rls", "--set", "rls.rigde=1"), "did you mean ridge"),
        (("--methods", "last_value", "--set", "last_value.ridge=1"), "option 'ridge' is not known; there is none"),
        (("--method", "rls", "--set", "budget=all"), "rls has forgetting, ridge; last_value has none"),
        (("--method", "auto", "--budget", "cheap", "--set", "budget=one"), "both given, expected one of them"),
        (("--methods", "rls", "--set", "ridge=much"), "expected a number"),
        (("--methods", "rls", "--set", "er.rate=1"), "expected one of the methods run: rls"),
        (("--methods", "rls", "--set", "calendar=lunar"), "calendar is 'lunar'"),
    ],
)
def test_wrong_arguments_are_refused_with_one_message(
    series: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, _, error = natsr("run", series, *arguments, "--out", tmp_path / "o")
    assert code == 2
    assert error.startswith("error: ") and said in error


def test_missing_file_is_refused_and_the_nearest_named(series: Path, tmp_path: Path) -> None:
    code, _, error = natsr("run", series.with_name("serie.csv"), "--out", tmp_path / "o")
    assert code == 2 and "does not exist" in error and "series.csv" in error


def test_unknown_dataset_is_refused_and_the_nearest_named(tmp_path: Path) -> None:
    code, _, error = natsr("run", "ETTh3", "--out", tmp_path / "o")
    assert code == 2 and "ETTh1" in error


def test_unwritable_folder_is_refused_before_any_work(series: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, error = natsr("run", series, "--out", tmp_path / "file" / "out")
    assert code == 2 and "cannot be written" in error and "--out" in error


# Bench and table


def bench(series: Path, out: Path, *more: str | Path) -> tuple[int, str, str]:
    usual = ("--methods", "last_value,rls", "--horizons", "1,3", "--seeds", "0-1", "--window", "12")
    return natsr("bench", *usual, "--datasets", series, "--out", out, *more)


def test_bench_runs_the_grid_once(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    code, text, _ = bench(series, out)
    assert code == 0 and "MASE, protocol honest" in text
    results = read(out)
    assert {(r.cell.method, r.cell.horizon, r.cell.seed) for r in results} == {
        (method, horizon, seed) for method in ("last_value", "rls") for horizon in (1, 3) for seed in (0, 1)
    }
    before = out.read_bytes()
    code, _, remarks = bench(series, out)
    assert code == 0 and out.read_bytes() == before and "8 of 8 cells have a result" in remarks


def test_bench_passes_on_what_it_was_given(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    more = ("--protocol", "partial", "--max-steps", "20", "--set", "rls.ridge=2", "--tuned-on", "validation")
    code, _, _ = bench(series, out, *more, "--part", "validation")
    assert code == 0
    cells = [result.cell for result in read(out)]
    assert {(c.protocol, c.max_steps, c.tuned_on, c.part) for c in cells} == {
        ("partial", 20, "validation", "validation")
    }
    assert {c.method: dict(c.options) for c in cells} == {"last_value": {}, "rls": {"ridge": 2}}


def test_bench_in_processes(series: Path, tmp_path: Path) -> None:
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    bench(series, here)
    code, _, _ = bench(series, there, "--on", "processes", "--workers", "2")
    assert code == 0
    assert {r.cell.key: r.numbers["mase"] for r in read(here)} == {r.cell.key: r.numbers["mase"] for r in read(there)}


def test_failed_cells_show_and_are_retried_only_if_asked(
    series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from natsr.forecasters.naive import LastValue

    def broken(_self: LastValue, _window: object) -> object:
        raise FloatingPointError("it broke")

    out = tmp_path / "r.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(LastValue, "forecast", broken)
        code, text, error = bench(series, out)
    assert code == 1 and "failed" in text and "it broke" in error
    assert sum(result.error is not None for result in read(out)) == 4
    code, _, _ = bench(series, out)
    assert code == 0 and sum(result.error is not None for result in read(out)) == 4
    code, _, _ = bench(series, out, "--retry-failed")
    assert code == 0 and [result.error for result in read(out)] == [None] * 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--on", "threads"), "serial, processes, ray"),
        (("--workers", "0"), "workers is 0"),
        (("--part", "test"), "online, validation"),
        (("--tuned-on", "luck"), "nothing, validation, test"),
        (("--horizons", "one"), "horizons is 'one'"),
        (("--seeds", "2-0"), "seeds is '2-0'"),
        (("--max-steps", "0"), "max_steps is 0"),
        (("--methods", "rls,rsl"), "rls"),
        (("--set", "rate=1"), "last_value has none; rls has forgetting, ridge"),
        (("--datasets", "ETTh3"), "ETTh1"),
    ],
)
def test_bench_finds_mistakes_before_it_begins(
    series: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, _, error = bench(series, tmp_path / "r.jsonl", *arguments)
    assert code == 2 and said in error
    assert not (tmp_path / "r.jsonl").exists() or read(tmp_path / "r.jsonl") == []


def test_ctrl_c_leaves_results_that_can_be_gone_on_with(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    arguments = ("--methods", "rls", "--datasets", str(series), "--horizons", "3", "--window", "12", "--out", str(out))
    program = start("bench", *arguments, "--seeds", "0-999")
    deadline = time.monotonic() + 60
    while not (out.exists() and out.read_bytes().count(b"\n") >= 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    _, remarks = program.communicate(timeout=60)
    assert program.returncode == 130 and "stopped" in remarks and "Traceback" not in remarks
    done = len(read(out))
    assert 2 <= done < 1000
    assert out.read_bytes().endswith(b"\n")
    code, _, remarks = natsr("bench", *arguments, "--seeds", f"0-{done}")
    assert code == 0 and f"{done} of {done + 1} cells have a result" in remarks


def test_table_formats(series: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    bench(series, out)
    code, text, _ = natsr("table", out)
    assert code == 0 and "rls" in text and "protocol honest" in text
    code, text, _ = natsr("table", out, "--format", "markdown", "--metric", "mae")
    assert code == 0 and text.startswith("**MAE, protocol honest**") and "| dataset | H |" in text
    code, text, _ = natsr("table", out, "--format", "csv")
    assert code == 0 and len(list(csv.DictReader(text.splitlines()))) == 4


def test_table_against_the_paper(tmp_path: Path) -> None:
    line = {
        "method": "natsr", "dataset": "ETTh1", "horizon": 24, "seed": 0, "protocol": "paper", "part": "online",
        "window": 60, "max_steps": None, "tuned_on": "nothing", "options": {}, "mase": 0.99, "device": "cpu",
        "threads": 1, "version": "0", "torch": "0", "error": None,
    }  # fmt: skip
    path = write(tmp_path / "r.jsonl", [json.dumps(line)])
    code, text, _ = natsr("table", path, "--against", "paper")
    assert code == 0 and "0.990 (0.97, +0.020)" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--against", "rumour"), "expected paper"),
        (("--format", "xml"), "text, markdown, csv"),
        (("--metric", "rmse"), "metric is 'rmse'"),
        (("--protocol", "papr"), "honest, partial, paper"),
        (("--protocol", "paper"), "no result to show"),
    ],
)
def test_table_mistakes(series: Path, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    out = tmp_path / "r.jsonl"
    natsr("bench", "--methods", "last_value", "--datasets", series, "--horizons", 1, "--seeds", 0, "--out", out)
    code, _, error = natsr("table", out, *arguments)
    assert code == 2 and said in error


def test_table_of_nothing(tmp_path: Path) -> None:
    code, _, error = natsr("table", tmp_path / "gone.jsonl")
    assert code == 2 and "is not a file" in error


# Data


def test_data_list() -> None:
    code, text, _ = natsr("data", "list")
    assert code == 0 and "ETTh1" in text and "43824 × 7" in text


def test_data_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NATSR_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code, text, _ = natsr("data", "path", "BeijingPM25")
    assert code == 0 and Path(text.strip()).is_file()
    code, _, error = natsr("data", "path", "ETTh1")
    assert code == 2 and "ETTh1.csv was not found" in error
    code, _, error = natsr("data", "path", "beijing")
    assert code == 2 and "BeijingPM25" in error


def test_data_verify(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NATSR_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, text, _ = natsr("data", "verify")
    assert code == 0 and text.startswith("BeijingPM25\tok\t")
    (tmp_path / "ETTh1.csv").write_text("date,OT\n")
    code, text, error = natsr("data", "verify", "BeijingPM25", "ETTh1")
    assert code == 1 and "BeijingPM25\tok" in text and "not the published file" in error


# Checks


def test_checks_pass_for_a_forecaster_that_keeps_the_contract() -> None:
    code, text, _ = natsr("checks", "natsr.forecasters.naive:LastValue", "--quick")
    assert code == 0 and "passed   check_forecast_is_pure" in text and "FAILED" not in text


def test_checks_find_a_forecaster_that_breaks_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(
        tmp_path / "restless.py",
        [
            "from natsr.forecasters.naive import LastValue",
            "class Restless(LastValue):",
            "    count = 0",
            "    def forecast(self, window):",
            "        self.count += 1",
            "        found = super().forecast(window)",
            "        return found._replace(mean=found.mean + self.count)",
        ],
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, text, _ = natsr("checks", "restless:Restless", "--quick")
    assert code == 1 and re.search("FAILED +check_forecast_is_pure", text)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("LastValue", "expected MODULE:CLASS"),
        ("no_such_module:X", "cannot be imported"),
        ("broken.py:X", "write broken:X"),
        ("broken:X", "cannot be imported (SyntaxError: "),
        ("natsr.forecasters.naive:Last", "LastValue"),
        ("natsr.recipes:rls", "cannot be called with a task (TypeError: "),
        ("natsr.trials:held", "made a int, expected a natsr.Forecaster"),
    ],
)
def test_checks_mistakes(what: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "broken.py", ["class X"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, error = natsr("checks", what)
    assert code == 2 and said in error


# What is given


def test_lists_and_ranges() -> None:
    assert names("b, a,b", "x") == ("b", "a")
    assert whole_numbers("0-2,7", "x") == (0, 1, 2, 7)
    with pytest.raises(OptionError):
        whole_numbers("1.5", "x")


def test_settings_without_a_method_go_to_those_that_have_them() -> None:
    methods = ("auto", "rls", "last_value")
    given = ["budget=cheap", "ridge=2", "calendar=raw"]
    assert settings(given, "auto", methods) == {"budget": "cheap", "calendar": "raw"}
    assert settings(given, "rls", methods) == {"ridge": 2, "calendar": "raw"}
    assert settings(given, "last_value", methods) == {"calendar": "raw"}
    assert settings(["anything=1"], "of_your_own", ("of_your_own", "last_value")) == {"anything": 1}


def test_an_option_that_last_value_lacks_is_auto_s(series: Path, tmp_path: Path) -> None:
    code, _, _ = natsr("run", series, "--method", "auto", "--set", "budget=cheap", *PLAIN[2:], "--out", tmp_path)
    assert code == 0
    cells = [result.cell for result in read(tmp_path / "results.jsonl")]
    assert {cell.method: dict(cell.options) for cell in cells} == {"auto": {"budget": "cheap"}, "last_value": {}}


def test_settings_go_to_the_method_that_is_named() -> None:
    given = ["rate=1e-3", "er.draws=4", "er.labels=fresh", "ogd.rate=2"]
    assert settings(given, "er", ("er", "ogd")) == {"rate": 1e-3, "draws": 4, "labels": "fresh"}
    assert settings(given, "ogd", ("er", "ogd")) == {"rate": 2}


def test_a_stream_that_never_changes_has_no_mase(tmp_path: Path) -> None:
    path = tmp_path / "still.csv"
    path.write_text("time,x\n" + "".join(f"2026-01-{1 + hour // 24:02d} {hour % 24:02d}:00,5\n" for hour in range(200)))
    given = ("--methods", "last_value", "--horizon", 2, "--window", 6, "--out", tmp_path / "o")
    code, _, error = natsr("run", path, *given)
    assert code == 0 and "nan" not in error and "MASE –" in error and "1 column," in error


def test_forecasts_of_months_fall_on_months(tmp_path: Path) -> None:
    path = tmp_path / "sales.csv"
    path.write_text("month,x\n" + "".join(f"{2010 + n // 12}-{n % 12 + 1:02d},{n % 12}\n" for n in range(120)))
    given = ("--methods", "last_value", "--horizon", 3, "--window", 6, "--out", tmp_path / "o")
    assert natsr("run", path, *given)[0] == 0
    with (tmp_path / "o" / "forecasts.csv").open() as file:
        last = list(csv.DictReader(file))[-3:]
    assert [row["time"][:10] for row in last] == ["2020-01-01", "2020-02-01", "2020-03-01"]


def test_a_run_says_when_its_leader_drifted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=1200)
    values[900:] += 20.0
    hours = np.datetime64("2024-01-01T00:00:00") + np.arange(1200) * np.timedelta64(1, "h")
    file = write(tmp_path / "t.csv", ["time,a", *(f"{at},{a:.5f}" for at, a in zip(hours, values, strict=True))])
    asked = ("--methods", "last_value", "--window", "6", "--horizon", "1", "--out", tmp_path / "out")
    code, _, said = natsr("run", file, *asked)
    since = str(hours[900].astype("datetime64[m]"))
    assert code == 0 and f"drift in the errors of last_value: once: since {since} (told at " in said
    assert f"last_value: once: since {since}" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "drift in the errors of last_value: none was seen" in natsr("run", file, *asked, "--rows", "890")[2]
