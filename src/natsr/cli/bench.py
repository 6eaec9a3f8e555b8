"""`natsr bench`: a grid of experiments, each one line in a file; what is there already is not run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from natsr.bench.cells import Cell, Result
    from natsr.bench.fanout import Mapper
    from natsr.bench.results import Append

#: Some cells failed; the others are there.
INCOMPLETE = 1


@dataclass(frozen=True)
class Bench:
    """Run every method on every dataset, horizon and seed, and append the results to a file.

    A cell whose result is in the file is skipped, so an interrupted run goes on where it stopped. A cell that fails
    has an `error` and no numbers, and is tried again only with --retry-failed.

    Examples:
      natsr bench --methods natsr,er --datasets ETTh1 --horizons 1,24 --seeds 0-2 --out results.jsonl
      natsr bench --methods er --datasets load.csv --set rate=1e-4 --out mine.jsonl
      natsr bench --methods er --datasets ETTh1 --part validation --set rate=3e-4 --out tuning.jsonl
      natsr bench --methods natsr,ogd --datasets ETTh1,ETTh2 --on processes --workers 8 --out all.jsonl
    """

    methods: Annotated[str, typer.Option(metavar="A,B", help="Methods, with commas.")]
    datasets: Annotated[str, typer.Option(metavar="A,B", help="Named datasets (natsr data list) or paths of CSVs.")]
    out: Annotated[Path, typer.Option(metavar="FILE", help="Results, one line of JSON for each cell.")]
    horizons: Annotated[str, typer.Option(metavar="1,24", help="Rows ahead.")] = "1,24,48"
    seeds: Annotated[str, typer.Option(metavar="0-2", help="Seeds.")] = "0,1,2"
    protocol: Annotated[
        str, typer.Option(metavar="honest|partial|paper", help="What may be learned when; see natsr run --help.")
    ] = "honest"
    window: Annotated[int, typer.Option(help="Rows that a network sees.")] = 60
    max_steps: Annotated[int | None, typer.Option(help="Stop each cell after so many forecasts.")] = None
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where networks compute.")] = "cpu"
    set: Annotated[
        list[str],
        typer.Option(metavar="KEY=VALUE", help="Set an option of all methods, or of one: er.rate=1e-4."),
    ] = field(default_factory=list)
    part: Annotated[
        str,
        typer.Option(
            metavar="online|validation", help="The stream; or a rehearsal on the validation part, for tuning."
        ),
    ] = "online"
    tuned_on: Annotated[
        str, typer.Option(metavar="nothing|validation|test", help="What was looked at to choose the options.")
    ] = "nothing"
    on: Annotated[str, typer.Option(metavar="serial|processes|ray", help="Where cells run.")] = "serial"
    workers: Annotated[int | None, typer.Option(help="Processes, with --on processes.", show_default="cores")] = None
    same_as: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take from these results, of another protocol, the cells that are the same under both: those with a "
            "horizon of 1, and of methods that learn nothing online.",
            show_default=False,
        ),
    ] = None
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")] = False


def bench(settings: Bench) -> None:
    """Do what the settings say."""
    import torch

    from natsr.bench.fanout import mapper
    from natsr.bench.results import appending, missing, read, shared
    from natsr.cli.show import note

    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    cells = grid(settings)
    place = mapper(settings.on, settings.workers)
    with appending(settings.out) as append:
        known = read(settings.out)
        waiting = missing(cells, known, retry_failed=settings.retry_failed)
        if settings.same_as is not None:
            for result in shared(waiting, read(settings.same_as)):
                append(result)
            waiting = missing(waiting, read(settings.out))
        if len(waiting) < len(cells):
            note(f"{len(cells) - len(waiting)} of {len(cells)} cells have a result in {settings.out}")
        check(waiting)
        results = _run(place, settings.on == "serial", waiting, append) if waiting else []
    _summary(settings.out, cells, results)


def grid(settings: Bench) -> list[Cell]:
    """Every combination, the quick ones not first: datasets, then horizons, methods and seeds."""
    from natsr.bench.cells import WITHOUT_NETWORK, Cell, check_part, check_tuned_on
    from natsr.cli.given import names, whole_numbers
    from natsr.cli.given import settings as given
    from natsr.streams import check_protocol

    methods = names(settings.methods, "methods")
    options = {method: tuple(given(settings.set, method, methods).items()) for method in methods}
    return [
        Cell(
            method,
            dataset,
            horizon,
            seed,
            check_protocol(settings.protocol),
            check_part(settings.part),
            options[method],
            check_tuned_on(settings.tuned_on),
            settings.window,
            settings.max_steps,
            "cpu" if method in WITHOUT_NETWORK else settings.device,
        )
        for dataset in names(settings.datasets, "datasets")
        for horizon in whole_numbers(settings.horizons, "horizons")
        for method in methods
        for seed in whole_numbers(settings.seeds, "seeds")
    ]


def check(cells: list[Cell]) -> None:
    """Find mistakes in names, files and options before anything long begins."""
    from natsr.bench.cells import load_for, make_for

    tasks = {}
    for cell in cells:
        if (cell.dataset, cell.horizon) not in tasks:
            tasks[cell.dataset, cell.horizon] = load_for(cell).task(cell.window, cell.horizon)
    for cell in {(cell.method, cell.dataset, cell.horizon): cell for cell in cells}.values():
        make_for(cell, tasks[cell.dataset, cell.horizon])


def _run(place: Mapper, inner: bool, cells: list[Cell], append: Append) -> list[Result]:
    """Run the cells and keep each result as it comes; `inner` shows how far the current one is."""
    from natsr.bench.cells import run_cell
    from natsr.cli.show import Watch, fail

    results: list[Result] = []
    with Watch() as watch:

        def run_here(cell: Cell) -> Result:
            return run_cell(cell, lambda done, of, what: watch.update({"cell": cell.key}, done, of, what))

        watch.update({"cells": ""}, 0, len(cells))
        for result in place(run_here if inner else run_cell, cells):
            append(result)
            results.append(result)
            if result.error is not None:
                fail(f"{result.cell.key}: {result.error}")
            watch.update({"cells": result.cell.key}, len(results), len(cells))
    return results


def _summary(out: Path, cells: list[Cell], results: list[Result]) -> None:
    """Show what was asked for, new and old."""
    from natsr.bench.results import read
    from natsr.bench.tables import build
    from natsr.cli.show import note, output
    from natsr.cli.table import as_text

    keys = {cell.key for cell in cells}
    for table in build(result for result in read(out) if result.cell.key in keys):
        output().print(as_text(table))
    note(f"{len(results)} new results in {out}; see them again with: natsr table {out}")
    if any(result.error is not None for result in results):
        raise typer.Exit(INCOMPLETE)
