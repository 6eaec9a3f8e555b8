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
    from natsr.bench.tables import Table


@dataclass(frozen=True)
class ShowTable:
    """Show results: rows are dataset and horizon, columns are methods, entries mean ± deviation over seeds.

    Protocols and parts have tables of their own. `failed` is an experiment that has no number, `–` one that was not
    run. With --against paper the reported MASE stands in brackets with ours minus it; where ours was made under a
    protocol that does not leak and theirs was, no difference is shown.

    Examples:
      natsr table results.jsonl
      natsr table results.jsonl more.jsonl --against paper --protocol paper
      natsr table results.jsonl --metric ms_per_step --format markdown > speed.md
      natsr table results.jsonl --format csv > results.csv
    """

    files: Annotated[list[Path], typer.Argument(help="Files that natsr bench or natsr run wrote.")]
    against: Annotated[str | None, typer.Option(metavar="paper", help="Reported figures to compare with.")] = None
    metric: Annotated[
        str,
        typer.Option(help="mase, mae, mse, crps, coverage_90, width_90, ms_per_step, seconds, peak_mib, refused, …"),
    ] = "mase"
    protocol: Annotated[
        str | None,
        typer.Option(metavar="honest|partial|paper", help="Only this protocol.", show_default="each in its own table"),
    ] = None
    format: Annotated[str, typer.Option(metavar="text|markdown|csv", help="How to write it.")] = "text"


def show_table(settings: ShowTable) -> None:
    """Do what the settings say."""
    from natsr.bench.results import read
    from natsr.bench.tables import FORMATS, as_csv, as_markdown, build
    from natsr.streams import check_protocol
    from natsr.types import DataError, OptionError

    if settings.against not in (None, "paper"):
        raise OptionError(f"--against is {settings.against!r}, expected paper")
    if settings.format not in FORMATS:
        raise OptionError(f"--format is {settings.format!r}, expected one of {', '.join(FORMATS)}")
    results = {result.cell.key: result for path in settings.files for result in read(path)}
    if settings.protocol is not None:
        protocol = check_protocol(settings.protocol)
        results = {key: result for key, result in results.items() if result.cell.protocol == protocol}
    if not results:
        raise DataError("there is no result to show; run natsr bench, or choose another --protocol")
    tables = build(results.values(), settings.metric, against_paper=settings.against == "paper")
    if settings.format == "csv":
        typer.echo(as_csv(tables), nl=False)
    elif settings.format == "markdown":
        typer.echo("\n".join(as_markdown(table) for table in tables), nl=False)
    else:
        for table in tables:
            output().print(as_text(table))


def as_text(table: Table) -> Group:
    """For a terminal; the best entry of each row in bold, and the notes below."""
    from natsr.bench.tables import best, shown

    text = RichTable(title=Text(table.title), title_justify="left")
    text.add_column("dataset")
    text.add_column("H", justify="right")
    for column in table.columns:
        text.add_column(Text(column.heading), justify="right")
    for row in table.rows:
        leader = best(table, row)
        entries = (
            Text(shown(table.entries.get((row, column))), "bold" if column == leader else "")
            for column in table.columns
        )
        text.add_row(Text(row[0]), str(row[1]), *entries)
    return Group(text, *(Text(note, "dim") for note in table.notes))
