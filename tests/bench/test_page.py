"""The page of benchmarks is what the committed results say, no more and no less."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.page import PAGE, README, RESULTS, ROOT, SECTIONS, Section, compact, rendered, with_tables

from natsr.bench.cells import NUMBERS, Cell, Result, TunedOn
from natsr.bench.grids import read_grid
from natsr.bench.results import to_line
from natsr.types import DataError, ProtocolName

#: NatSR as it is in the tables against the paper.
PLAIN = next(
    cell.options for _, cell in read_grid(ROOT / "benchmarks/paper/complete.toml").cells if cell.method == "natsr"
)


def cells(
    method: str, protocol: ProtocolName, tuned_on: TunedOn = "nothing", horizons: tuple[int, ...] = (1, 24)
) -> list[Cell]:
    return [
        Cell(method, "ETTh1", horizon, seed, protocol, tuned_on=tuned_on) for horizon in horizons for seed in range(3)
    ]


def measured(cell: Cell, mase: float) -> Result:
    """Seeds 0, 1 and 2 scatter by 0.1 around the figure; everything else is 0.5."""
    return Result(cell, {**dict.fromkeys(NUMBERS, 0.5), "mase": mase + 0.1 * (cell.seed - 1)})


def keep(path: Path, results: list[Result]) -> None:
    path.write_text("".join(to_line(result) + "\n" for result in results), encoding="utf-8")


def section(page: str, title: str) -> str:
    """The text below one heading."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1]


def line(text: str, start: str) -> list[str]:
    """The cells of the one line of a table that begins so."""
    (only,) = [row for row in text.splitlines() if row.startswith(f"| {start} |")]
    return [cell.strip() for cell in only.strip("|").split("|")]


def test_the_page_is_what_the_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(), "docs/benchmarks.md is stale; run `make bench-page`"


def test_the_readmes_tables_are_not_stale() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_tables(text, compact()), "the tables of README.md are stale; run `make bench-page`"


def test_the_readmes_tables_have_both_protocols_and_the_papers_figure(tmp_path: Path) -> None:
    leaking = [replace(c, options=PLAIN) for c in cells("natsr", "paper", "test")]
    keep(tmp_path / "etth1-paper.jsonl", [measured(cell, 1.0) for cell in leaking])
    honest = cells("natsr", "honest", "validation", horizons=(24,))
    keep(tmp_path / "honest-complete.jsonl", [measured(cell, 2.0) for cell in honest])
    keep(tmp_path / "auto-paper.jsonl", [Result(Cell("auto", "ETTh1", 24, 0, "paper"), {"mase": 0.8})])
    keep(tmp_path / "auto-honest.jsonl", [Result(Cell("auto", "ETTh1", 1), {"mase": 0.7})])
    text = compact(tmp_path)
    assert line(text, "natsr") == ["natsr", "1.000 (0.79)", "1.000 (0.97)", "–", "–", "2.000", "–"]
    assert line(text, "auto") == ["auto", "0.700", "0.800", "–", "0.700", "–", "–"]
    assert line(text, "ETTh1, H = 24") == ["ETTh1, H = 24", "1.000 natsr", "2.000 natsr", "–", "–", "–"]


def test_every_file_of_results_is_on_the_page() -> None:
    shown = {path.name for part in SECTIONS for path in part.found(RESULTS)}
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    files = {path.name for path in RESULTS.glob("*") if not path.name.startswith(".")}
    left_out = {name for name in files - shown if name not in pages}
    assert not left_out, f"{sorted(left_out)} are in no section of benchmarks/page.py, and on no other page"


@pytest.mark.parametrize("part", SECTIONS, ids=lambda part: part.files)
def test_every_command_exists(part: Section) -> None:
    command = part.command
    if command.startswith("make "):
        assert f"\n{command.removeprefix('make ')}: " in (ROOT / "Makefile").read_text(encoding="utf-8")
    else:
        assert (ROOT / command.removeprefix("natsr bench ")).is_file()


def test_grids_stand_beside_the_reported_figures(tmp_path: Path) -> None:
    base = [
        Cell("natsr", dataset, 24, seed, "paper", options=PLAIN, tuned_on="test")
        for dataset in ("ETTh1", "WTH")
        for seed in range(3)
    ]
    without = [replace(cell, options=tuple(sorted((*PLAIN, ("memory", 0))))) for cell in base]
    keep(tmp_path / "paper-complete.jsonl", [measured(cell, 1.0) for cell in base])
    keep(tmp_path / "paper-ablation.jsonl", [measured(cell, 1.25) for cell in without])
    page = rendered(tmp_path)
    table = section(page, "As published: every method on every dataset")
    assert "| WTH | 24 | 1.000 ± 0.100 (1.25, -0.250) |" in table and "6 of 540 experiments" in table
    assert "10.000 (0.68)" in section(page, "Scatter over seeds")
    assert "| WTH | 24 | 0.500 ± 0.000 (1268) |" in section(page, "Time of the online part")
    ablation = section(page, "Ablation")
    assert line(ablation, "no replay")[1:3] == ["1.250 ± 0.100 (1.1, +0.150)", "+25 % (+13 %)"]
    assert line(ablation, "no replay")[3:5] == ["–", "– (+11 %)"]
    assert "leaving a part out costs something in 2 of 2 measured places" in ablation
    assert "none of its experiments" in section(page, "Honest beside published")


def test_honest_figures_stand_beside_the_published_ones(tmp_path: Path) -> None:
    leaking = [replace(c, options=PLAIN) for c in cells("natsr", "paper", "test", (24,))]
    keep(tmp_path / "paper-complete.jsonl", [measured(cell, 1.0) for cell in leaking])
    honest = [*cells("natsr", "honest", "validation", (24,)), *cells("rls", "honest", horizons=(24,))]
    results = [measured(cell, 1.6 if cell.method == "natsr" else 1.5) for cell in honest]
    keep(tmp_path / "honest-complete.jsonl", [*results, *(measured(c, 1.55) for c in cells("rls", "partial"))])
    text = section(rendered(tmp_path), "Honest beside published")
    assert line(text, "natsr")[1:6] == ["0.97", "1.000 ± 0.100", "<u>1.600 ± 0.100</u>", "–", "**0.500 ± 0.000**"]
    # Nothing in it is random, so its first seed is all that is asked for.
    assert line(text, "rls")[1:5] == ["–", "–", "**1.400**", "1.450"]
    assert line(text, "ETTh1, H = 24")[1:] == ["1.000 natsr", "1.600 natsr", "–", "1.400 rls", "–"]
    partly = section(rendered(tmp_path), "Partly known labels")
    assert line(partly, "rls")[1:6] == ["1.450", "0.500", "0.500", "0.500", "0.500"] and "H = 1*" not in partly


def test_the_full_width_is_shown(tmp_path: Path) -> None:
    row = {"method": "er", "dataset": "ECL", "horizon": 1, "columns": 321, "peak_mib": 900.4, "ms_per_step": 21.5}
    rows = [{**row, "error": None}, {**row, "method": "rls_mv", "error": "MemoryError: too wide"}]
    found = {"natsr": "0", "limit_mib": 4096, "learned": 12, "epochs": 1, "rows": rows}
    (tmp_path / "wide.json").write_text(json.dumps(found), encoding="utf-8")
    text = section(rendered(tmp_path), "Full width")
    assert line(text, "er")[1] == "900 MiB, 22 ms" and line(text, "rls_mv")[1] == "failed: MemoryError: too wide"


def test_missing_results_are_said_to_be_missing(tmp_path: Path) -> None:
    page = rendered(tmp_path)
    for part in SECTIONS:
        text = section(page, part.title)
        assert "**Missing:**" in text and part.command in text and "|" not in text


def test_figures_stand_beside_the_reported_ones(tmp_path: Path) -> None:
    results = [measured(cell, 0.8) for cell in cells("natsr", "paper", "test")]
    results += [measured(cell, 1.6) for cell in cells("ogd", "paper", horizons=(24,))]
    keep(tmp_path / "etth1-paper.jsonl", results)
    text = section(rendered(tmp_path), "ETTh1, as published")
    # The paper has 0.79 and 0.97 for NatSR, and 1.50 for OGD at H = 24.
    _, *ours = line(text, "natsr (tuned on test)")
    assert ours == ["0.800 ± 0.100 (0.79, +0.010)", "**0.800 ± 0.100 (0.97, -0.170)**"]
    assert line(text, "ogd")[1:] == ["–", "<u>1.600 ± 0.100 (1.5, +0.100)</u>"]
    assert "2 of 3 figures (67%) are at most the larger of 0.05 and 3 reported standard deviations above" in text
    assert "Further above: ogd on ETTh1 at H = 24 (+0.100)." in text
    assert "As far below: natsr (tuned on test) on ETTh1 at H = 24 (-0.170)." in text


def test_a_failed_seed_is_no_success(tmp_path: Path) -> None:
    results = [measured(cell, 0.8) for cell in cells("natsr", "paper", horizons=(24,))]
    results[1] = Result(results[1].cell, error="FloatingPointError at origin 7")
    keep(tmp_path / "etth1-paper.jsonl", results)
    text = section(rendered(tmp_path), "ETTh1, as published")
    assert line(text, "natsr")[1].startswith("failed 1 of 3")
    assert "0 of 1 figures" in text and "natsr on ETTh1 at H = 24 (failed)" in text


def test_an_honest_run_is_shown_in_full(tmp_path: Path) -> None:
    results = [measured(cell, 1.7) for cell in cells("natsr", "honest", "validation")]
    results += [measured(cell, 1.4) for cell in cells("rls", "honest")]
    keep(tmp_path / "etth1-honest.jsonl", results)
    text = section(rendered(tmp_path), "ETTh1, honest")
    assert "(0.79" not in text  # nothing reported beside figures that do not leak
    _, at_one, at_24 = re.split(r"^\*\*ETTh1, H = \d+\*\*$", text, flags=re.MULTILINE)
    for part in (at_one, at_24):
        assert "| method | MASE | MAE | MSE | CRPS | coverage of 90 % | worst coverage | ms per step |" in part
        assert line(part, "rls")[1] == "**1.400 ± 0.100**"
        assert line(part, "natsr (tuned on validation)")[1:3] == [
            "<u>1.700 ± 0.100</u>",
            "**0.500 ± 0.000**",
        ]


def test_the_best_rates_of_a_rehearsal_are_named(tmp_path: Path) -> None:
    figures = {
        ("er", 1e-4): (0.7, 2.0),
        ("er", 3e-4): (0.8, 1.8),
        ("er", 1e-3): (0.9, None),
        ("ogd", 1e-4): (0.7, 1.9),
        ("ogd", 3e-4): (0.6, 2.5),
    }
    keep(
        tmp_path / "etth1-tuning.jsonl",
        [
            measured(Cell(method, "ETTh1", horizon, 1, part="validation", options=(("rate", rate),)), mase)
            for (method, rate), both in figures.items()
            for horizon, mase in zip((1, 24), both, strict=True)
            if mase is not None
        ],
    )
    text = section(rendered(tmp_path), "ETTh1, rehearsal")
    assert line(text, "er (rate=0.0003)")[1:] == ["0.800", "1.800"]
    assert line(text, "er")[1:] == ["rate=0.0001", "rate=0.0003", "rate=0.0003"]  # at H = 1, at H = 24, over both
    assert line(text, "ogd")[1:] == ["rate=0.0003", "rate=0.0001", "rate=0.0001"]


def test_several_files_of_readings_are_one_section(tmp_path: Path) -> None:
    protocols: tuple[tuple[ProtocolName, str], ...] = (("paper", "box"), ("honest", "fixed"))
    for protocol, law in protocols:
        plain = Cell("natsr", "ETTh1", 24, 1, protocol)
        keep(
            tmp_path / f"etth1-readings-{protocol}.jsonl",
            [measured(plain, 1.0), measured(replace(plain, options=(("law", law),)), 1.1)],
        )
    text = section(rendered(tmp_path), "ETTh1, readings of the paper")
    assert line(text, "natsr (law=box)")[1] == line(text, "natsr (law=fixed)")[1] == "1.100"


def test_the_order_of_the_lines_does_not_matter(tmp_path: Path) -> None:
    methods = ("last_value", "er", "natsr", "rls")
    results = [measured(cell, 1.0) for method in methods for cell in cells(method, "honest")]
    keep(tmp_path / "etth1-honest.jsonl", results)
    page = rendered(tmp_path)
    random.Random(0).shuffle(results)
    keep(tmp_path / "etth1-honest.jsonl", results)
    assert rendered(tmp_path) == page
    text = section(page, "ETTh1, honest")
    found = [row.split(" | ")[0] for row in text.splitlines() if "1.000 ± 0.100" in row]
    assert found[:4] == ["| natsr", "| er", "| rls", "| last_value"]  # networks first, whatever the file begins with


def test_damaged_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "etth1-paper.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 1"):
        rendered(tmp_path)
