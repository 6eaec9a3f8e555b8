"""`natsr run FILE --exogenous --known`: columns that are read and not forecast, as `natsr.Live` reads them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from natsr.cli import app
from natsr.cli.beside import Beside
from natsr.data.csv import read_csv
from natsr.data.series import Borders, prepare
from natsr.exogenous import Exogenous
from natsr.phases import WILD

SMALL = ("--set", "er.width=8", "--set", "er.depth=2", "--set", "er.epochs=5", "--window", "8")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A load that is the wind an hour before and, at once, whether it is a holiday; some cells are missing."""
    generator = np.random.default_rng(0)
    wind, holiday = generator.normal(size=600), (generator.uniform(size=600) < 0.3).astype(float)
    load = 4 * holiday + 2 * np.roll(wind, 1)
    path = tmp_path / "plant.csv"
    with path.open("w") as file:
        file.write("time,load,wind,holiday\n")
        for row in range(600):
            time = np.datetime64("2026-01-01T00:00") + row * np.timedelta64(1, "h")
            file.write(f"{time},{load[row]},{wind[row] if row % 50 else ''},{holiday[row]}\n")
    return path


def run(path: Path, *arguments: str) -> tuple[int, str]:
    usual = ["--horizon", "1", "--out", str(path.parent), *(() if {"rls", "auto"} & set(arguments) else SMALL)]
    done = CliRunner().invoke(app, ["run", str(path), *usual, *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, " ".join(done.output.split())


def scores(folder: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    return {line["method"]: line for line in lines}


def test_what_is_known_helps_and_is_not_forecast(table: Path) -> None:
    asked = ("--target", "load", "--methods", "er,rls")
    found = {}
    for name, more in (
        ("alone", ()),
        ("wind", ("--exogenous", "wind")),
        ("both", ("--exogenous", "wind", "--known", "holiday")),
    ):
        code, said = run(table, *asked, *more)
        assert code == 0, said
        found[name] = {method: result["mase"] for method, result in scores(table.parent).items()}
        with (table.parent / "forecasts.csv").open() as file:
            assert next(csv.reader(file)) == ["origin", "step", "time", "load", "load_low", "load_high"]
    assert found["both"]["er"] < 0.75 * found["wind"]["er"] < 0.75 * 0.9 * found["alone"]["er"]
    assert found["both"]["rls"] == found["alone"]["rls"]
    assert "wind, holiday, read by er and not forecast; rls read the values only" in said


def test_auto_reads_them_and_says_so(table: Path) -> None:
    asked, found = ("--target", "load", "--methods", "auto", "--budget", "cheap", "--window", "8"), {}
    for name, more in (("alone", ()), ("both", ("--exogenous", "wind", "--known", "holiday"))):
        code, said = run(table, *asked, *more)
        assert code == 0, said
        found[name] = scores(table.parent)["auto"]["mase"]
    assert found["both"] < 0.8 * found["alone"]
    assert "auto is made of natsr_outside" in said and (table.parent / "report.html").exists()


def test_without_targets_all_others_are_forecast(table: Path) -> None:
    assert run(table, "--methods", "er", "--known", "holiday")[0] == 0
    with (table.parent / "forecasts.csv").open() as file:
        assert next(csv.reader(file))[3::3] == ["load", "wind"]


def test_the_features_are_those_of_a_live_stream(table: Path) -> None:
    whole, beside, horizon = read_csv(table), Beside(("wind",), ("holiday",)), 3
    data = prepare(beside.forecast(whole), Borders(100, 200, 600))
    added = beside.added(data, whole, horizon)
    plain = data.rows.inputs.shape[1]
    assert (added.rows.inputs[:, :plain] == data.rows.inputs).all()
    values, outside = whole.select(beside.names).values, Exogenous(["load"], ["wind"], ["holiday"], horizon)
    rows = []
    for row in range(500):  # one by one, each with what is planned after it
        rows.append(outside.extend(values[row], outside.plan({"holiday": values[row + 1 : row + 1 + horizon, 1]})))
    expected = outside.scaling(np.array(rows)[:100]).held(np.array(rows), WILD)
    np.testing.assert_allclose(added.rows.inputs[:500, plain:], expected, rtol=1e-5, atol=1e-6)
    assert added.task(8, horizon).features == added.rows.inputs.shape[1] - 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--methods", "rls", "--exogenous", "wind"), "methods are rls, which read the values only"),
        (("--method", "er", "--exogenous", "wnd"), "did you mean wind"),
        (("--method", "er", "--target", "load", "--known", "load"), "load comes more than once"),
        (("--method", "er", "--exogenous", "load,wind,holiday"), "no column was asked for"),
    ],
)
def test_what_cannot_be_read_beside(table: Path, arguments: tuple[str, ...], message: str) -> None:
    code, said = run(table, *arguments)
    assert code == 2 and message in said
