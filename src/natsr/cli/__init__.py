"""The command line: parses and calls. What is slow to import is imported when a command runs."""

from __future__ import annotations

import os

import typer

from natsr.cli import bench, checks, data, run, serve, table, tune
from natsr.cli.command import Command

app = typer.Typer(
    name="natsr",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    help="Forecast many values ahead on every new row, with models that learn from every row.",
    epilog="Start with: natsr run",
)
app.command("run")(Command(run.Run, run.run))
app.command("bench")(Command(bench.Bench, bench.bench))
app.command("table")(Command(table.ShowTable, table.show_table))
app.command("tune")(Command(tune.Tune, tune.tune))
app.command("serve")(Command(serve.Serve, serve.serve))
app.command("token")(Command(serve.NewToken, serve.new_token))
app.command("backup")(Command(serve.Backup, serve.backup))
app.command("checks")(Command(checks.Checks, checks.checks))
data.app.command("list")(Command(data.ListData, data.list_data))
data.app.command("path")(Command(data.FindData, data.find_data))
data.app.command("verify")(Command(data.VerifyData, data.verify_data))
app.add_typer(data.app, name="data")


def main() -> None:
    """The entry point of the program `natsr`.

    One thread for NumPy's products, unless the user says otherwise: the matrices are small, more threads only wait for
    each other, and the last bit of a product depends on their number. It must be said before NumPy is imported.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    app()
