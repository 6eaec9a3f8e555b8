"""`natsr table`: results as a table, ours beside the reported figures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from natsr.cli.show import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from natsr.bench.cells import Result
    from natsr.bench.grids import Grid
    from natsr.bench.studies import Study
    from natsr.bench.tables import Table

#: What stands behind the best and the second best entry of a row in a terminal, besides bold and underlined.
MARKS = {1: ("*", "bold"), 2: ("+", "underline")}


@dataclass(frozen=True)
class ShowTable:
    """Show results: rows are dataset and horizon, columns are methods, entries mean ± deviation over seeds.

    Protocols and parts have tables of their own. `failed` is an experiment that has no number, `–` one that was not
    run; * is the best of a row, + the second best. With --against paper the reported figure stands in brackets with
    ours minus it, and below which share of ours is no worse; where ours was made under a protocol that does not
    leak and theirs was, no difference is shown. A grid's file shows what is there of it, as the paper's table does.

    Examples:
      natsr table benchmarks/paper/main.toml --against paper
      natsr table results.jsonl
      natsr table results.jsonl more.jsonl --against paper --protocol paper
      natsr table results.jsonl --metric ms_per_step --format markdown > speed.md
      natsr table results.jsonl --format csv > results.csv
    """

    files: Annotated[
        list[Path], typer.Argument(help="Files that natsr bench or natsr run wrote; or the file of one grid.")
    ]
    against: Annotated[str | None, typer.Option(metavar="paper", help="Reported figures to compare with.")] = None
    metric: Annotated[
        str | None,
        typer.Option(
            help="mase, mae, mse, crps, coverage_90, width_90, ms_per_step, seconds, peak_mib, refused, …",
            show_default="mase, or the grid's",
        ),
    ] = None
    protocol: Annotated[
        str | None,
        typer.Option(metavar="honest|partial|paper", help="Only this protocol.", show_default="each in its own table"),
    ] = None
    format: Annotated[str, typer.Option(metavar="text|markdown|csv", help="How to write it.")] = "text"


def show_table(settings: ShowTable) -> None:
    """Do what the settings say."""
    from natsr.bench.grids import STUDIES, read_grid
    from natsr.bench.results import read
    from natsr.bench.tables import FORMATS
    from natsr.types import OptionError

    if settings.against not in (None, "paper"):
        raise OptionError(f"--against is {settings.against!r}, expected paper")
    if settings.format not in FORMATS:
        raise OptionError(f"--format is {settings.format!r}, expected one of {', '.join(FORMATS)}")
    grids = [read_grid(path) for path in settings.files if path.suffix == ".toml"]
    if not grids:
        results = {result.cell.key: result for path in settings.files for result in read(path)}
        _show(settings, list(results.values()))
        return
    if len(settings.files) > 1:
        raise OptionError("got a grid among several files, expected it alone; its results are named in it")
    (grid,) = grids
    found = grid.found(grid.results())
    if grid.shows in STUDIES:
        _show_study(settings, grid, found)
    else:
        _show(settings, list(found.values()), grid)


def _show(settings: ShowTable, results: list[Result], grid: Grid | None = None) -> None:
    """Tables of results, one for each protocol and part."""
    from natsr.bench.tables import Statistic, as_csv, as_markdown, build, expected, verdict
    from natsr.streams import check_protocol
    from natsr.types import DataError

    if settings.protocol is not None:
        protocol = check_protocol(settings.protocol)
        results = [result for result in results if result.cell.protocol == protocol]
    if not results:
        raise DataError("there is no result to show; run natsr bench, or choose another --protocol")
    against = settings.against == "paper"
    shows = grid.shows if grid is not None else "mase"
    statistic: Statistic = "deviation" if shows == "deviation" and settings.metric is None else "mean"
    metric = settings.metric or ("seconds" if shows == "seconds" else "mase")
    tables = build(results, metric, against_paper=against, statistic=statistic)
    share = verdict(tables, expected(grid.unique()) if grid is not None else None)
    judged = against and any(entry.verdict is not None for table in tables for entry in table.entries.values())
    if settings.format == "csv":
        typer.echo(as_csv(tables), nl=False)
    elif settings.format == "markdown":
        text = "\n".join(as_markdown(table) for table in tables)
        typer.echo(f"{text}\n{share}" if judged else text, nl=judged)
    else:
        for table in tables:
            output().print(as_text(table))
        if judged:
            output().print(share)


def _show_study(settings: ShowTable, grid: Grid, found: Mapping[str, Result]) -> None:
    """The table of a study."""
    from natsr.bench.studies import as_csv, as_markdown, study
    from natsr.types import DataError

    if not found:
        raise DataError(f"there is no result to show; run natsr bench {grid.path}")
    table = study(grid, found, against_paper=settings.against == "paper")
    if settings.format == "csv":
        typer.echo(as_csv(table), nl=False)
    elif settings.format == "markdown":
        typer.echo(as_markdown(table), nl=False)
    else:
        output().print(_study_text(table))


def study_as_text(grid: Grid, found: Mapping[str, Result]) -> Group:
    """The table of a study for a terminal."""
    from natsr.bench.studies import study

    return _study_text(study(grid, found))


def _study_text(table: Study) -> Group:
    text = RichTable(title=Text(table.title), title_justify="left")
    for place, name in enumerate(table.head):
        text.add_column(Text(name), justify="right" if place else "left")
    for line in table.lines:
        text.add_row(*map(Text, line))
    return Group(text, *(Text(note, "dim") for note in table.notes))


def as_text(table: Table) -> Group:
    """For a terminal; the best entry of each row in bold with *, the second underlined with +, the notes below."""
    from natsr.bench.tables import ranks, shown

    text = RichTable(title=Text(table.title), title_justify="left")
    text.add_column("dataset")
    text.add_column("H", justify="right")
    for column in table.columns:
        text.add_column(Text(column.heading), justify="right")
    for row in table.rows:
        places = ranks(table, row)
        entries = []
        for column in table.columns:
            mark, style = MARKS.get(places.get(column, 0), ("", ""))
            entries.append(Text(shown(table.entries.get((row, column))) + mark, style))
        text.add_row(Text(row[0]), str(row[1]), *entries)
    return Group(text, *(Text(note, "dim") for note in table.notes))
