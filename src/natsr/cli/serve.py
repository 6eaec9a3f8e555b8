"""`natsr serve`: many series over HTTP; and `natsr token`, who may use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from natsr.cli.show import note
from natsr.serve.settings import Limits


@dataclass(frozen=True)
class Serve:
    """Serve forecasts of many series over HTTP, learning from every row that is posted.

    A row is on the disk before it is acknowledged, and learned after that. Stop it with Ctrl-C or SIGTERM, or pull the
    plug: the next start goes on where it was.

    Examples:
      natsr serve
      natsr serve --state /var/lib/natsr --port 9000
      natsr serve --host 0.0.0.0 --tokens tokens.toml --state postgresql://natsr@db/natsr
    """

    state: Annotated[str, typer.Option(metavar="DIR|URL", help="A folder (SQLite), or postgresql://…")] = "natsr-state"
    host: Annotated[str, typer.Option(help="Address to listen on; only loopback without --tokens.")] = "127.0.0.1"
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000
    tokens: Annotated[Path | None, typer.Option(metavar="FILE", help="Who may do what; see natsr token.")] = None
    workers: Annotated[int, typer.Option(min=1, help="Processes that learn.")] = 2
    resident: Annotated[int, typer.Option(min=1, help="Learners kept in memory.")] = 64
    snapshot_rows: Annotated[int, typer.Option(min=1, help="Rows after which a learner is written to disk.")] = 1000
    snapshot_seconds: Annotated[float, typer.Option(min=0.1, help="Or seconds.")] = 300.0
    history: Annotated[int, typer.Option(min=1, help="Forecasts kept for each series, to look back.")] = 1000
    max_body: Annotated[int, typer.Option(min=1, help="Bytes in a request.")] = Limits.body_bytes
    max_rows: Annotated[int, typer.Option(min=1, help="Rows in a request.")] = Limits.rows
    max_series: Annotated[int, typer.Option(min=1, help="Series in all.")] = Limits.series
    max_pending: Annotated[int, typer.Option(min=1, help="Rows of a series not yet learned.")] = Limits.pending
    max_rate: Annotated[float, typer.Option(min=0.001, help="Requests a second of one client.")] = Limits.rate
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "warning"


@dataclass(frozen=True)
class NewToken:
    """Make a token for the service, add its hash to a file, and print it. It cannot be shown again.

    Examples:
      natsr token tokens.toml --name plant --scopes read,write --series 'plant-*'
      natsr token tokens.toml --name dashboard --scopes read
    """

    file: Annotated[Path, typer.Argument(metavar="FILE", help="Of tokens; made if missing.")]
    name: Annotated[str, typer.Option(help="Whose it is.")]
    scopes: Annotated[str, typer.Option(metavar="A,B", help="read, write (rows), admin (everything).")] = "read"
    series: Annotated[str, typer.Option(metavar="A,B", help="Keys it is for; * and ? stand for any.")] = "*"


@dataclass(frozen=True)
class Backup:
    """Copy the database of a SQLite state, also while it is served; PostgreSQL has pg_dump.

    To restore, put the copy into an empty folder as natsr.db and serve that folder: learners are made again from it.

    Examples:
      natsr backup natsr-state copy.db
    """

    state: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that is served.")]
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to; a new file.")]


def backup(settings: Backup) -> None:
    """Do what the settings say."""
    from natsr.serve.store import backup as copy

    copy(settings.state, settings.file)
    note(f"{settings.file} holds every row of {settings.state}; as natsr.db in a folder of its own it can be served")


def serve(settings: Serve) -> None:
    """Do what the settings say."""
    note("starting; the first time on a machine takes longer, for the step is compiled")
    from natsr.types import OptionError

    try:
        from natsr.serve.run import serve as run
    except ImportError as error:
        raise OptionError(f"{error.name} is not installed, expected it: pip install 'natsr[serve]'") from error
    from natsr.serve.settings import ServeSettings

    if settings.log_level not in ("debug", "info", "warning", "error"):
        raise OptionError(f"--log-level is {settings.log_level!r}, expected debug, info, warning or error")
    limits = Limits(
        body_bytes=settings.max_body,
        rows=settings.max_rows,
        series=settings.max_series,
        pending=settings.max_pending,
        rate=settings.max_rate,
    )
    chosen = ServeSettings(
        settings.state,
        settings.tokens,
        workers=settings.workers,
        resident=settings.resident,
        snapshot_rows=settings.snapshot_rows,
        snapshot_seconds=settings.snapshot_seconds,
        history=settings.history,
        limits=limits,
    )
    run(chosen, settings.host, settings.port, lambda address: note(f"listening on {address}"), settings.log_level)


def new_token(settings: NewToken) -> None:
    """Do what the settings say."""
    from natsr.cli import given
    from natsr.serve.tokens import add

    scopes, series = given.names(settings.scopes, "scopes"), given.names(settings.series, "series")
    token = add(settings.file, settings.name, scopes, series)
    note(f"added {settings.name} to {settings.file}; the token is shown this once")
    typer.echo(token)
