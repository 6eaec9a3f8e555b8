"""`natsr run`: a file through methods side by side, or rows as they arrive on standard input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from natsr.types import Option

#: Rows of the bundled sample that are taken by default: what two cores can do in a few minutes.
SAMPLE, SAMPLE_ROWS = "BeijingPM25", 15000
#: Rows ahead, and rows that a network sees, unless the user says otherwise; fewer where a file is too short for them.
HORIZON, WINDOW = 24, 60
#: What is run unless the user says otherwise; the first one is what the report is about.
DEFAULT_METHODS = ("auto", "natsr", "er", "rls", "seasonal", "last_value")


@dataclass(frozen=True)
class Run:
    """Replay a CSV row by row: forecast, then learn, as if the rows arrived one by one.

    Without FILE the bundled sample is used: hourly air quality in Beijing, seven columns with gaps, of which the first
    15,000 of 43,824 rows are taken so that it ends in a few minutes (`--rows 43824` takes them all). With `-` rows are
    read from standard input as they arrive, and each is answered with a forecast as one line of JSON.

    The first fifth of a file trains, a little more validates, and the rest is the stream. Written to --out:
    report.html, forecasts.csv (with 90 % intervals, in the data's units) and results.jsonl.

    Examples:
      natsr run                                             the bundled sample
      natsr run load.csv --time when --target load,temp     your own file
      natsr run load.csv --method rls --horizon 48          one method beside last_value
      natsr run load.csv --methods natsr,er --set er.rate=1e-4
      tail -f load.csv | natsr run - --horizon 6            live, JSON lines out
      natsr run - --state kept < rows.jsonl                 JSON lines in too; goes on where it was stopped
    """

    file: Annotated[
        str | None,
        typer.Argument(help="A CSV, the name of a dataset, or - for standard input.", show_default="the sample"),
    ] = None
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The time column.", show_default="found by its content")
    ] = None
    repeated: Annotated[
        str,
        typer.Option(
            metavar="refuse|first|last|mean",
            help="What becomes of rows of a file with the same time; unless they are refused, rows are sorted too.",
        ),
    ] = "refuse"
    target: Annotated[str, typer.Option(metavar="A,B|all", help="Columns to forecast.")] = "all"
    horizon: Annotated[int | None, typer.Option(help="Rows ahead.", show_default="24, fewer in a short file")] = None
    window: Annotated[
        int | None, typer.Option(help="Rows that a network sees.", show_default="60, fewer in a short file")
    ] = None
    method: Annotated[
        str | None,
        typer.Option(help="One method, beside last_value.", show_default="auto, beside five others"),
    ] = None
    methods: Annotated[str | None, typer.Option(metavar="A,B", help="Exactly these methods; the first leads.")] = None
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="cheap|one|all",
            help="What auto may spend: experts without a network; small networks beside them; NatSR too.",
            show_default="one",
        ),
    ] = None
    protocol: Annotated[
        str,
        typer.Option(
            metavar="honest|partial|paper",
            help="What may be learned when: honest uses only labels that are known; partial also those of younger "
            "windows as they come; paper leaks the future and is for reproducing published tables.",
        ),
    ] = "honest"
    rows: Annotated[
        int | None,
        typer.Option(help="End the stream after so many rows of the file.", show_default="all; sample: 15000"),
    ] = None
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where networks compute.")] = "cpu"
    set: Annotated[
        list[str],
        typer.Option(metavar="KEY=VALUE", help="Set an option of all methods that have it, or of one: er.rate=1e-4."),
    ] = field(default_factory=list)
    freq: Annotated[
        str | None,
        typer.Option(
            metavar="h|15min|100ms|M|…", help="Time between rows, with -.", show_default="from the first two rows"
        ),
    ] = None
    exogenous: Annotated[
        str, typer.Option(metavar="A,B", help="Columns to read and not to forecast; auto and networks read them.")
    ] = ""
    known: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="The same for columns whose future is known; with -, in columns A+1, A+2, … or future of a JSON line.",
        ),
    ] = ""
    levels: Annotated[
        str | None, typer.Option(metavar="P,Q", help="Levels of the intervals, with -.", show_default="0.5,0.9")
    ] = None
    quantiles: Annotated[
        str, typer.Option(metavar="P,Q", help="Probabilities of quantiles to answer, with -.", show_default="none")
    ] = ""
    state: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the state here and go on from it, with -.", show_default="none is kept"),
    ] = None
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write.", show_default="out/ and the file's name")
    ] = None

    @property
    def ahead(self) -> int:
        """Rows ahead that were asked for, or are usual."""
        return HORIZON if self.horizon is None else self.horizon

    @property
    def back(self) -> int:
        """Rows that a network sees, as asked for or usual."""
        return WINDOW if self.window is None else self.window

    def chosen(self) -> tuple[str, ...]:
        """The methods to run, the leading one first."""
        from natsr.cli.given import names
        from natsr.types import OptionError

        if self.method is not None and self.methods is not None:
            raise OptionError("--method and --methods were both given, expected one of them")
        if self.methods is not None:
            return names(self.methods, "methods")
        return DEFAULT_METHODS if self.method is None else tuple(dict.fromkeys((self.method, "last_value")))

    def settings(self, method: str, methods: Sequence[str]) -> dict[str, Option]:
        """The options that are meant for a method; `--budget` is one of `auto`."""
        from natsr.cli import given
        from natsr.types import OptionError

        found = given.settings(self.set, method, methods)
        if self.budget is not None and "auto" not in methods:
            raise OptionError(f"--budget is {self.budget!r}, but auto is not among the methods; leave one of them out")
        if method != "auto" or self.budget is None:
            return found
        if "budget" in found:
            raise OptionError("--budget and --set budget=… were both given, expected one of them")
        return found | {"budget": self.budget}


def run(settings: Run) -> None:
    """Do what the settings say."""
    if settings.file == "-":
        from natsr.cli.follow import follow

        follow(settings)
        return
    from natsr.cli.replay import replay

    replay(settings)
