"""Tables of results: rows are dataset and horizon, columns are methods, entries are mean and deviation over seeds.

A table holds one protocol and one part, never two; a column holds one choice of `tuned_on`, window and length. Where a
method was run with several sets of options on the same row, each set has a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from statistics import fmean, stdev
from typing import Literal, TypeAlias, get_args

from natsr.bench.cells import NUMBERS, Cell, Result
from natsr.types import OptionError

Format: TypeAlias = Literal["text", "markdown", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
MISSING, FAILED = "–", "failed"
#: Our names of the methods in the paper's tables.
REPORTED_AS = {"fsnet_mse": "fsnet", "onenet_mse": "onenet", "natsr_stable": "natsr"}

Row: TypeAlias = tuple[str, int]  # dataset, horizon
Reported: TypeAlias = dict[tuple[str, int, str], float]


@dataclass(frozen=True)
class Column:
    """What all entries below one heading have in common."""

    method: str
    tuned_on: str
    window: int
    max_steps: int | None
    variant: str = ""  # options and device, where one heading would otherwise hold two experiments

    @property
    def heading(self) -> str:
        """The method, what it was tuned on, and whatever else is unusual."""
        words = [] if self.tuned_on == "nothing" else [f"tuned on {self.tuned_on}"]
        words += [f"window {self.window}"] if self.window != 60 else []
        words += [f"first {self.max_steps} steps"] if self.max_steps is not None else []
        words += [self.variant] if self.variant else []
        return f"{self.method} ({', '.join(words)})" if words else self.method


@dataclass(frozen=True)
class Entry:
    """One place in a table: the seeds' values, how many failed, and the reported figure beside it."""

    values: tuple[float, ...] = ()
    failed: int = 0
    reported: float | None = None
    comparable: bool = False

    @property
    def mean(self) -> float | None:
        """Over all seeds; none if one of them failed, since the others alone would look better than the method is."""
        return fmean(self.values) if self.values and not self.failed else None

    @property
    def std(self) -> float | None:
        """Sample standard deviation over seeds."""
        return stdev(self.values) if len(self.values) > 1 and not self.failed else None

    @property
    def difference(self) -> float | None:
        """Ours minus the reported one, where the two measure the same thing."""
        if self.mean is None or self.reported is None or not self.comparable:
            return None
        return self.mean - self.reported


@dataclass(frozen=True)
class Table:
    """The results of one protocol and part, ready to be shown."""

    protocol: str
    part: str
    metric: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    entries: dict[tuple[Row, Column], Entry]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is shown, and under which protocol."""
        part = "" if self.part == "online" else f", {self.part} part"
        return f"{self.metric.upper()}, protocol {self.protocol}{part}"


def build(results: Iterable[Result], metric: str = "mase", *, against_paper: bool = False) -> list[Table]:
    """One table for each protocol and part among the results.

    Args:
        results: In any order, the last one of each cell.
        metric: A name from `natsr.bench.cells.NUMBERS`.
        against_paper: Put the reported MASE beside ours.
    """
    if metric not in NUMBERS:
        raise OptionError(f"metric is {metric!r}, expected one of {', '.join(NUMBERS)}")
    if against_paper and metric != "mase":
        raise OptionError(f"metric is {metric!r}, expected mase: the paper reports nothing else")
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.cell.protocol, result.cell.part].append(result)
    theirs = reported() if against_paper else None
    return [_table(group, metric, theirs) for _, group in sorted(groups.items())]


def _table(results: Sequence[Result], metric: str, theirs: Reported | None) -> Table:
    protocol, part = results[0].cell.protocol, results[0].cell.part
    split = _ambiguous(results)
    placed: dict[tuple[Row, Column], list[Result]] = defaultdict(list)
    for result in results:
        column = _column(result.cell)
        if column in split:
            column = _column(result.cell, variant=_variant(result.cell))
        placed[(result.cell.dataset, result.cell.horizon), column].append(result)
    entries = {}
    for (row, column), found in placed.items():
        values = tuple(float(result.numbers[metric]) for result in found if metric in result.numbers)
        failed = sum(result.error is not None for result in found)
        same = part == "online" and column.max_steps is None and column.window == 60
        figure = theirs.get((*row, column.method)) if theirs is not None and same else None
        entries[row, column] = Entry(values, failed, figure, comparable=protocol == "paper" or row[1] == 1)
    rows = tuple(sorted({row for row, _ in entries}))
    columns = tuple(dict.fromkeys(column for _, column in entries))
    return Table(protocol, part, metric, rows, columns, entries, _notes(placed, columns, entries))


def _column(cell: Cell, variant: str = "") -> Column:
    return Column(cell.method, cell.tuned_on, cell.window, cell.max_steps, variant)


def _variant(cell: Cell) -> str:
    words = [f"{name}={value}" for name, value in cell.options] or ["default options"]
    return " ".join(words if cell.device == "cpu" else [*words, f"on {cell.device}"])


def _ambiguous(results: Iterable[Result]) -> set[Column]:
    """The columns that would hold two experiments in one row."""
    variants: dict[tuple[Row, Column], set[str]] = defaultdict(set)
    for result in results:
        cell = result.cell
        variants[(cell.dataset, cell.horizon), _column(cell)].add(_variant(cell))
    return {column for (_, column), found in variants.items() if len(found) > 1}


def _notes(
    placed: dict[tuple[Row, Column], list[Result]],
    columns: Sequence[Column],
    entries: dict[tuple[Row, Column], Entry],
) -> tuple[str, ...]:
    """What a reader has to know about each column: its options where they are not the defaults, and its seeds."""
    notes = []
    for column in columns:
        mine = [(row, result.cell) for (row, other), found in placed.items() if other == column for result in found]
        options = dict.fromkeys((row[1], _variant(cell)) for row, cell in mine if cell.options)
        if options and not column.variant:
            notes.append(f"{column.heading}: " + "; ".join(f"H={horizon} {words}" for horizon, words in options))
    counts = {len(found) for found in placed.values()}
    seeds = f"{counts.pop()}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    notes.append(f"mean ± sample standard deviation over {seeds} seed(s)")
    if any(entry.reported is not None for entry in entries.values()):
        notes.append("in brackets: the paper's figure and ours minus it")
    if any(entry.reported is not None and not entry.comparable for entry in entries.values()):
        notes.append(
            "† reported under the protocol `paper`, which learns labels from the future for H > 1: not comparable"
        )
    return tuple(notes)


def reported() -> Reported:
    """The MASE in the paper's tables, by dataset, horizon and our name of the method."""
    text = resources.files("natsr.bench").joinpath("reported.csv").read_text(encoding="utf-8")
    return {
        (line["dataset"], int(line["horizon"]), REPORTED_AS.get(line["method"], line["method"])): float(line["value"])
        for line in csv.DictReader(io.StringIO(text))
        if line["metric"] == "MASE"
    }


def number(value: float) -> str:
    """With three decimals, or four digits where it is large."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def shown(entry: Entry | None) -> str:
    """An entry as text.

    >>> shown(Entry((0.97, 0.99), reported=0.97, comparable=True)), shown(Entry(failed=1)), shown(None)
    ('0.980 ± 0.014 (0.97, +0.010)', 'failed', '–')
    """
    if entry is None or not (entry.values or entry.failed):
        text = MISSING
    elif entry.failed:
        total = entry.failed + len(entry.values)
        text = FAILED if total == 1 else f"{FAILED} {entry.failed} of {total}"
    else:
        assert entry.mean is not None
        text = number(entry.mean) + (f" ± {number(entry.std)}" if entry.std is not None else "")
    if entry is None or entry.reported is None:
        return text
    if entry.difference is None:
        return f"{text} ({entry.reported:g}{'' if entry.comparable else '†'})"
    return f"{text} ({entry.reported:g}, {entry.difference:+.3f})"


def as_markdown(table: Table) -> str:
    """For a page."""
    lines = [f"**{table.title}**", "", "| dataset | H | " + " | ".join(c.heading for c in table.columns) + " |"]
    lines.append("|---|--:|" + "--:|" * len(table.columns))
    for row in table.rows:
        leader = best(table, row)
        cells = [(column == leader, shown(table.entries.get((row, column)))) for column in table.columns]
        marked = [f"**{cell}**" if leads else cell for leads, cell in cells]
        lines.append(f"| {row[0]} | {row[1]} | " + " | ".join(marked) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def best(table: Table, row: Row) -> Column | None:
    """The column with the lowest mean; figures of which less is not better have no best."""
    if table.metric not in ("mae", "mse", "mase", "crps", "seconds", "ms_per_step", "peak_mib", "warm_seconds"):
        return None
    means = {column: table.entries[row, column].mean for column in table.columns if (row, column) in table.entries}
    finite = {column: mean for column, mean in means.items() if mean is not None and math.isfinite(mean)}
    return min(finite, key=lambda column: finite[column]) if len(finite) > 1 else None


def as_csv(tables: Iterable[Table]) -> str:
    """For other programs: one line for each entry of all tables."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    names = ("dataset", "horizon", "method", "protocol", "part", "tuned_on", "window", "max_steps", "variant")
    writer.writerow([*names, "metric", "seeds", "failed", "mean", "std", "reported", "difference"])
    for table in tables:
        for (row, column), entry in sorted(table.entries.items(), key=lambda item: (item[0][0], item[0][1].heading)):
            what = [*row, column.method, table.protocol, table.part, column.tuned_on]
            how = [column.window, column.max_steps, column.variant, table.metric]
            counts = [len(entry.values) + entry.failed, entry.failed]
            writer.writerow([*what, *how, *counts, entry.mean, entry.std, entry.reported, entry.difference])
    return lines.getvalue()
