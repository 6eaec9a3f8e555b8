"""`natsr data`: which datasets there are, where they lie, and whether they are what they should be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from natsr.cli.show import fail, note, output

app = typer.Typer(
    no_args_is_help=True, help="The datasets that have a name: list them, find their files, verify their checksums."
)
#: Some file is missing or is not the published one.
UNVERIFIED = 1


@dataclass(frozen=True)
class ListData:
    """List the named datasets, their size, their borders, and whether their file is here.

    A file is looked for in $NATSR_DATA, then in the user's cache, then among those bundled; a dataset with an official
    address is downloaded when it is first used.

    Example:
      natsr data list
    """


@dataclass(frozen=True)
class FindData:
    """Print the path of a dataset's file.

    Example:
      head "$(natsr data path BeijingPM25)"
    """

    name: Annotated[str, typer.Argument(help="A name from natsr data list.")]


@dataclass(frozen=True)
class VerifyData:
    """Compare the files that are here with the published checksums.

    Examples:
      natsr data verify
      natsr data verify ETTh1 ETTh2
    """

    names: Annotated[list[str], typer.Argument(help="Names.", show_default="all whose file is here")] = field(
        default_factory=list
    )


def list_data(_settings: ListData) -> None:
    """Do what the settings say."""
    from natsr.data.named import DATASETS, locate

    table = Table(title="Named datasets")
    for heading in ("name", "rows × columns", "step", "train · valid · online end", "licence", "file"):
        table.add_column(heading)
    for name, known in DATASETS.items():
        path = locate(name)
        borders = f"{known.borders.train} · {known.borders.valid} · {known.borders.online}"
        step = f"{known.step_seconds // 60} min" if known.step_seconds < 3600 else f"{known.step_seconds // 3600} h"
        can = "can be downloaded" if any(file.url for file in known.files) else "not here"
        where = can if path is None else str(path)
        table.add_row(name, f"{known.rows} × {known.channels}", step, borders, known.licence, Text(where))
    output().print(table)


def find_data(settings: FindData) -> None:
    """Do what the settings say."""
    from natsr.data.named import dataset, locate
    from natsr.data.store import missing

    path = locate(settings.name)
    if path is None:
        raise missing(dataset(settings.name).files, "it was not to be downloaded")
    typer.echo(str(path))


def verify_data(settings: VerifyData) -> None:
    """Do what the settings say."""
    from natsr.data.named import DATASETS, locate, verify
    from natsr.types import DataError

    wanted = settings.names or [name for name in DATASETS if locate(name) is not None]
    wrong = 0
    for name in wanted:
        try:
            found = verify(name)
        except DataError as error:
            fail(f"{name}: {error}")
            wrong += 1
        else:
            verdict = "ok" if found.published else "no published checksum"
            typer.echo(f"{name}\t{verdict}\t{found.sha256}\t{found.path}")
    note(f"{len(wanted) - wrong} of {len(wanted)} verified")
    if wrong:
        raise typer.Exit(UNVERIFIED)
