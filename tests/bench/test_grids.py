"""A grid's file says what is run; what is there already is found, wherever it was computed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from natsr.bench.cells import Cell, Result
from natsr.bench.grids import Grid, read_grid
from natsr.bench.reported import ablation, deviations, reported, sensitivity
from natsr.bench.results import to_line
from natsr.bench.studies import as_csv, as_markdown, study
from natsr.data.named import DATASETS
from natsr.recipes import METHODS
from natsr.types import OptionError

ROOT = Path(__file__).resolve().parents[2]
GRIDS = sorted([*(ROOT / "benchmarks" / "paper").glob("*.toml"), *(ROOT / "benchmarks" / "honest").glob("*.toml")])
SMALL = """
title = "A small one"
protocols = ["honest", "paper"]
seeds = [0, 1]
out = "results/r.jsonl"
also = ["other.jsonl"]
intervals = false

[methods]
natsr = { tuned_on = "test", rate = 0.05 }
rls = {}

[[part]]
datasets = ["ETTh1"]
horizons = [1, 24]

[[part]]
datasets = ["WTH"]
horizons = [48]
methods = ["rls"]
"""


def grid(tmp_path: Path, text: str = SMALL) -> Grid:
    path = tmp_path / "g.toml"
    path.write_text(text, encoding="utf-8")
    return read_grid(path)


def test_every_combination_is_a_cell_and_the_first_seed_comes_first(tmp_path: Path) -> None:
    found = grid(tmp_path)
    cells = found.unique()
    assert len(cells) == 2 * (2 * 2 * 2 + 2)  # seeds × (horizons × methods × protocols, and one more part)
    assert [cell.seed for cell in cells] == [0] * 10 + [1] * 10
    assert Cell("natsr", "ETTh1", 24, 1, "paper", options=(("rate", 0.05),), tuned_on="test", intervals=False) in cells
    assert {cell.method for cell in cells if cell.dataset == "WTH"} == {"rls"}
    assert found.out == tmp_path / "results" / "r.jsonl" and found.also == (tmp_path / "other.jsonl",)


def test_a_method_may_have_fewer_seeds(tmp_path: Path) -> None:
    cells = grid(tmp_path, SMALL.replace("rls = {}", "rls = { seeds = [1], ridge = 2.0 }")).unique()
    assert {(cell.method, cell.seed) for cell in cells} == {("natsr", 0), ("natsr", 1), ("rls", 1)}
    assert {cell.options for cell in cells if cell.method == "rls"} == {(("ridge", 2.0),)}


def test_results_count_wherever_they_are_and_were_computed(tmp_path: Path) -> None:
    found = grid(tmp_path)
    first, second, *_ = found.unique()
    elsewhere = Result(replace(first, device="cuda", intervals=True), {"mase": 1.0})
    (tmp_path / "other.jsonl").write_text(to_line(elsewhere) + "\n", encoding="utf-8")
    assert found.found(found.results()) == {first.key: elsewhere}
    assert [cell.key for cell in found.missing(found.results())] == [cell.key for cell in found.unique()[1:]]
    # On a GPU the same cells are missing, and those without a network stay where they are.
    there = found.on("cuda")
    assert {(cell.method, cell.device) for cell in there.unique()} == {("natsr", "cuda"), ("rls", "cpu")}
    assert len(there.missing(found.results())) == 19
    # A failure counts as done unless it is to be tried again, and never hides a number.
    failed = [Result(first, error="it broke"), Result(second, error="it broke")]
    results = [elsewhere, *failed]
    assert found.found(results)[first.key].error is None
    assert len(found.missing(results)) == 18 and len(found.missing(results, retry_failed=True)) == 19


def test_a_result_without_intervals_is_none_where_they_are_asked_for(tmp_path: Path) -> None:
    without = grid(tmp_path)
    with_them = grid(tmp_path, SMALL.replace("intervals = false\n", ""))
    results = [Result(cell, {"mase": 1.0}) for cell in without.unique()]
    assert without.missing(results) == [] and len(with_them.missing(results)) == 20
    assert without.missing([Result(cell, {"mase": 1.0}) for cell in with_them.unique()]) == []


def test_narrowing(tmp_path: Path) -> None:
    found = grid(tmp_path).narrowed({"method": ("rls",), "horizon": (24, 48), "seed": (1,), "protocol": ("paper",)})
    assert [(cell.dataset, cell.horizon) for cell in found.unique()] == [("ETTh1", 24), ("WTH", 48)]
    with pytest.raises(OptionError, match=r"g.toml has no method natrs; did you mean natsr"):
        grid(tmp_path).narrowed({"method": ("natrs",)})
    with pytest.raises(OptionError, match=r"no horizon 12"):
        grid(tmp_path).narrowed({"horizon": (12,)})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "A small one"', "title = 3", "title is 3, expected text"),
        ("seeds = [0, 1]", 'seeds = ["0"]', "seeds is .*expected a list, each entry a whole number"),
        ("seeds = [0, 1]", "seeds = []", "seeds is empty"),
        ("seeds = [0, 1]", "seed = [0, 1]", "'seed' is no part of a grid; did you mean seeds"),
        ('"honest", "paper"', '"honset"', "honest"),
        ('methods = ["rls"]', 'methods = ["er"]', "method 'er' has no line under"),
        ("intervals = false", 'shows = "rmse"', "shows is 'rmse', expected one of mase"),
        ("intervals = false", 'shows = "ablation"', "expected settings with ablation"),
        ("[methods]", "[methods", "is not TOML"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(OptionError, match=f"g.toml.*{said}"):
        grid(tmp_path, SMALL.replace(old, new))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be read"):
        read_grid(tmp_path / "none.toml")


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_grids_of_the_repository(path: Path) -> None:
    found = read_grid(path)
    known = {*METHODS, *(method for _, _, method in reported())}
    assert all(cell.method in known and cell.dataset in DATASETS for cell in found.unique())
    assert found.out.parent == path.parent / ".." / "results"
    # Whoever leaks says so, and nobody else does.
    leaks = {cell.protocol for cell in found.unique()} == {"paper"}
    assert leaks == (path.parent.name == "paper")


def test_the_complete_grid_is_the_papers_table() -> None:
    complete = read_grid(ROOT / "benchmarks" / "paper" / "complete.toml")
    assert {(cell.dataset, cell.horizon, cell.method) for cell in complete.unique()} == set(reported())
    assert len(complete.unique()) == 9 * 20 * 3
    main = read_grid(ROOT / "benchmarks" / "paper" / "main.toml")
    assert {cell.key for cell in main.unique()} < {cell.key for cell in complete.unique()}
    assert {cell.method for cell in main.unique()} == {method for _, _, method in deviations()}


@pytest.mark.parametrize(("name", "theirs"), [("ablation", ablation), ("sensitivity", sensitivity)])
def test_the_studies_have_the_papers_settings(name: str, theirs: object) -> None:
    found = read_grid(ROOT / "benchmarks" / "paper" / f"{name}.toml")
    assert callable(theirs)
    ours = {(cell.dataset, setting.name) for setting, cell in found.cells if "alone" not in setting.group}
    assert ours == set(theirs())


def test_the_sensitivity_table() -> None:
    found = read_grid(ROOT / "benchmarks" / "paper" / "sensitivity.toml")
    mase = {"τ = 0.01": 1.4, "τ = 0.5": 1.05, "τ = 0.9": 1.1, "τ = 1.5": 1.2, "α = 0.1": 1.01}
    results = {
        cell.key: Result(cell, {"mase": mase.get(setting.name, 1.0)})
        for setting, cell in found.cells
        if cell.dataset == "WTH"
    }
    broken = next(cell for setting, cell in found.cells if setting.name == "ν = 500" and cell.dataset == "WTH")
    results[broken.key] = Result(broken, error="FloatingPointError")
    table = study(found, results)
    lines = {line[0]: line[1:] for line in table.lines}
    assert len(lines) == 20 + 5 and table.head == ("setting", "ETTh1", "ETTm1", "WTH")
    assert lines["τ = 1.5"] == ("– (+0.098)", "– (+0.154)", "+0.200 (+0.093)")
    assert lines["τ = 0.01"] == ("– (+9.7e+08)", "– (diverged)", "+0.400 (diverged)")
    assert lines["τ = 0.14 *"][2] == "+0.000 (+0.000)" and lines["ν = 500"][2] == "failed (+0.030)"
    assert "between the largest and the smallest change with τ (without τ = 0.01): WTH 0.200" in table.notes
    assert not any("with ν" in note for note in table.notes)  # a group with a failure has no spread
    assert "| τ = 1.5 | – (+0.098) |" in as_markdown(table) and "τ = 1.5,– (+0.098)," in as_csv(table)


def test_the_order_of_an_ablation() -> None:
    found = read_grid(ROOT / "benchmarks" / "paper" / "ablation.toml")
    figures = {"dynamic scale, replay": 1.0, "no replay": 1.2, "no dynamic scale": 1.1, "neither": 1.3}
    worse = {**figures, "no dynamic scale": 0.9}
    results = {
        cell.key: Result(cell, {"mase": (worse if cell.dataset == "WTH" else figures)[setting.name]})
        for setting, cell in found.cells
        if cell.dataset != "ETTm1"
    }
    notes = study(found, results).notes
    assert "leaving a part out costs something in 5 of 6 measured places" in notes
    assert "the settings stand in the paper's order on 1 of 2 measured datasets" in notes
