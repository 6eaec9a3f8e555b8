"""`natsr bench`: a grid of experiments, each one line in a file; what is there already is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from natsr.bench.cells import Cell, Result
    from natsr.bench.fanout import Mapper
    from natsr.bench.grids import Grid
    from natsr.bench.results import Append

#: Some cells failed; the others are there.
INCOMPLETE = 1


@dataclass(frozen=True)
class Bench:
    """Run every method on every dataset, horizon and seed, and append the results to a file.

    What is run is said by options, or by a file: benchmarks/paper/*.toml are the tables of the paper. Beside a file
    the options only narrow it, and choose where it runs. A cell whose result is there is skipped, so an interrupted run
    goes on where it stopped. A cell that fails has an `error` and no numbers, and is tried again only with
    --retry-failed. A dataset of a file that is not on this machine and cannot be fetched is left out, and named.

    Examples:
      natsr bench benchmarks/paper/complete.toml --datasets ETTh1,ETTh2 --seeds 0 --on processes
      natsr bench benchmarks/paper/ablation.toml --device cuda
      natsr bench --methods natsr,er --datasets ETTh1 --horizons 1,24 --seeds 0-2 --out results.jsonl
      natsr bench --methods er --datasets load.csv --set rate=1e-4 --out mine.jsonl
      natsr bench --methods er --datasets ETTh1 --part validation --set rate=3e-4 --out tuning.jsonl
    """

    grid: Annotated[
        Path | None, typer.Argument(metavar="[GRID.toml]", help="A file that says what to run.", show_default=False)
    ] = None
    methods: Annotated[str | None, typer.Option(metavar="A,B", help="Methods, with commas.")] = None
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B", help="Named datasets (natsr data list) or paths of CSVs.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Results, one line of JSON for each cell.", show_default="the grid's"),
    ] = None
    horizons: Annotated[
        str | None, typer.Option(metavar="1,24", help="Rows ahead.", show_default="1,24,48, or the grid's")
    ] = None
    seeds: Annotated[str | None, typer.Option(metavar="0-2", help="Seeds.", show_default="0-2, or the grid's")] = None
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="honest|partial|paper",
            help="What may be learned when; see natsr run --help.",
            show_default="honest, or the grid's",
        ),
    ] = None
    window: Annotated[int, typer.Option(help="Rows that a network sees.")] = 60
    max_steps: Annotated[int | None, typer.Option(help="Stop each cell after so many forecasts.")] = None
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where networks compute.")] = "cpu"
    set: Annotated[
        list[str],
        typer.Option(metavar="KEY=VALUE", help="Set an option of all methods that have it, or of one: er.rate=1e-4."),
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
    on: Annotated[
        str,
        typer.Option(
            metavar="serial|together|processes|ray",
            help="Where cells run: one by one; those of one shape stepped as one (so on a GPU); in processes; on a Ray "
            "cluster.",
        ),
    ] = "serial"
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
    from natsr.bench.results import appending, read, shared
    from natsr.cli.show import note

    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    grid = from_file(settings) if settings.grid is not None else from_options(settings)
    # On a GPU one cell alone would leave nearly all of it idle.
    on = "together" if settings.on == "serial" and settings.device != "cpu" else settings.on
    place = mapper(on, settings.workers)
    with appending(grid.out) as append:
        known = grid.results()
        twins = [*known, *(read(settings.same_as) if settings.same_as is not None else [])]
        for result in shared(grid.missing(known, retry_failed=settings.retry_failed), twins):
            append(result)
        waiting = grid.missing(grid.results(), retry_failed=settings.retry_failed)
        total = len(grid.unique())
        if len(waiting) < total:
            note(f"{total - len(waiting)} of {total} cells have a result in {grid.out}")
        absent = without_data(waiting) if settings.grid is not None else set()
        cells = [cell for cell in waiting if cell.dataset not in absent]
        check(cells)
        results = _run(place, on == "serial", cells, append) if cells else []
    _summary(grid, results)


def from_options(settings: Bench) -> Grid:
    """Every combination, the quick ones not first: datasets, then horizons, methods and seeds."""
    from natsr.bench.cells import Cell, check_part, check_tuned_on
    from natsr.bench.grids import PLAIN, Grid
    from natsr.cli.given import names, whole_numbers
    from natsr.cli.given import settings as given
    from natsr.streams import check_protocol
    from natsr.types import OptionError

    if settings.methods is None or settings.datasets is None or settings.out is None:
        raise OptionError(
            "expected the file of a grid, such as benchmarks/paper/main.toml, or --methods, --datasets and --out"
        )
    methods = names(settings.methods, "methods")
    options = {method: tuple(given(settings.set, method, methods).items()) for method in methods}
    cells = [
        Cell(
            method,
            dataset,
            horizon,
            seed,
            check_protocol(settings.protocol or "honest"),
            check_part(settings.part),
            options[method],
            check_tuned_on(settings.tuned_on),
            settings.window,
            settings.max_steps,
        )
        for dataset in names(settings.datasets, "datasets")
        for horizon in whole_numbers(settings.horizons or "1,24,48", "horizons")
        for method in methods
        for seed in whole_numbers(settings.seeds or "0-2", "seeds")
    ]
    return Grid(settings.out, "", "mase", tuple((PLAIN, cell) for cell in cells), settings.out).on(settings.device)


def from_file(settings: Bench) -> Grid:
    """The grid of a file, narrowed by what else was given."""
    from natsr.bench.grids import read_grid
    from natsr.cli.given import names, whole_numbers
    from natsr.streams import check_protocol
    from natsr.types import OptionError

    assert settings.grid is not None
    for name, given, usual in (
        ("set", settings.set, []),
        ("window", settings.window, 60),
        ("part", settings.part, "online"),
        ("tuned-on", settings.tuned_on, "nothing"),
    ):
        if given != usual:
            raise OptionError(f"--{name} is given beside {settings.grid}, which says it itself; change it there")
    if settings.max_steps is not None and settings.out is None:
        raise OptionError("--max-steps is given beside a grid without --out: shorter runs need a file of their own")
    wanted: dict[str, Sequence[object]] = {}
    if settings.methods is not None:
        wanted["method"] = names(settings.methods, "methods")
    if settings.datasets is not None:
        wanted["dataset"] = names(settings.datasets, "datasets")
    if settings.horizons is not None:
        wanted["horizon"] = whole_numbers(settings.horizons, "horizons")
    if settings.seeds is not None:
        wanted["seed"] = whole_numbers(settings.seeds, "seeds")
    if settings.protocol is not None:
        wanted["protocol"] = (check_protocol(settings.protocol),)
    grid = read_grid(settings.grid).narrowed(wanted).on(settings.device)
    if settings.max_steps is not None:
        grid = grid.each(lambda cell: replace(cell, max_steps=settings.max_steps))
    # What the grid's own file has need not be run again because the new results go elsewhere.
    return grid if settings.out is None else replace(grid, out=settings.out, also=(*grid.also, grid.out))


def without_data(cells: list[Cell]) -> set[str]:
    """The datasets that are not on this machine and cannot be fetched, each with a remark."""
    from natsr.bench.cells import load_for
    from natsr.cli.show import note
    from natsr.types import DataError

    absent = set()
    for cell in {cell.dataset: cell for cell in cells}.values():
        try:
            load_for(cell)
        except DataError as error:
            absent.add(cell.dataset)
            count = sum(other.dataset == cell.dataset for other in cells)
            note(f"{count} cell{'s' if count > 1 else ''} left out: {error}")
    return absent


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
    from natsr.bench.results import as_result_of, whatever_protocol
    from natsr.cli.show import Watch, fail

    twins: dict[str, list[Cell]] = {}
    for cell in cells:
        twins.setdefault(whatever_protocol(cell), []).append(cell)
    results: list[Result] = []
    with Watch() as watch:

        def run_here(cell: Cell) -> Result:
            return run_cell(cell, lambda done, of, what: watch.update({"cell": cell.key}, done, of, what))

        watch.update({"cells": ""}, 0, len(cells))
        for result in place(run_here if inner else run_cell, [first for first, *_ in twins.values()]):
            same = [as_result_of(cell, result) for cell in twins[whatever_protocol(result.cell)]]
            for one in same:
                append(one)
            results += same
            if result.error is not None:
                fail(f"{result.cell.key}: {result.error}")
            failed = sum(result.error is not None for result in results)
            counts = f"{len(results) - failed} done, {failed} failed, {len(cells) - len(results)} left"
            watch.update({"cells": f"{counts} · {result.cell.key}"}, len(results), len(cells))
    return results


def _summary(grid: Grid, results: list[Result]) -> None:
    """Show what was asked for, new and old."""
    from natsr.bench.grids import STUDIES
    from natsr.bench.tables import build
    from natsr.cli.show import note, output
    from natsr.cli.table import as_text, study_as_text

    found = grid.found(grid.results())
    if grid.shows in STUDIES:
        output().print(study_as_text(grid, found))
    else:
        for table in build(found.values()):
            output().print(as_text(table))
    failed = sum(result.error is not None for result in found.values())
    left = len(grid.unique()) - len(found)
    note(f"{len(found) - failed} cells done, {failed} failed, {left} left")
    again = grid.path if grid.path.suffix == ".toml" else grid.out
    note(f"{len(results)} new results in {grid.out}; see them again with: natsr table {again}")
    if any(result.error is not None for result in results):
        raise typer.Exit(INCOMPLETE)
