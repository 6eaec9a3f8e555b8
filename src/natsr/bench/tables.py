"""Tables of results: rows are dataset and horizon, columns are methods, entries are mean and deviation over seeds.

A table holds one protocol and one part, never two; a column holds one choice of `tuned_on`, window and length. Where a
method was run with several sets of options on the same row, each set has a column of its own.
"""

from __future__ import annotations

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Literal, NamedTuple, TypeAlias, get_args

from natsr.bench.cells import NUMBERS, Cell, Result
from natsr.bench.reported import Reported, deviations, reported, seconds
from natsr.types import OptionError

Format: TypeAlias = Literal["text", "markdown", "csv"]
FORMATS: tuple[Format, ...] = get_args(Format)
MISSING, FAILED = "–", "failed"
#: Our figure is near the reported one if it is at most so much above it, or so many reported deviations.
CLOSE, DEVIATIONS = 0.05, 3
#: Figures of which less is better.
LESS_IS_BETTER = ("mae", "mse", "mase", "crps", "seconds", "ms_per_step", "peak_mib", "warm_seconds")

Row: TypeAlias = tuple[str, int]  # dataset, horizon
#: What is shown of the seeds: their mean, or 100 times their standard deviation.
Statistic: TypeAlias = Literal["mean", "deviation"]


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
    reach: float = CLOSE  # how far above the reported figure ours still counts as near
    alike: bool = True  # a time on another machine, or the scatter of other seeds, is not the same kind of figure

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
        if self.mean is None or self.reported is None or not (self.comparable and self.alike):
            return None
        return self.mean - self.reported

    @property
    def verdict(self) -> Literal["near", "above", "below"] | None:
        """How ours compares with the reported figure; a failure is above, and there may be nothing to compare."""
        if self.reported is None or not (self.comparable and self.alike) or not (self.values or self.failed):
            return None
        if self.difference is None or self.difference > self.reach:
            return "above"
        return "below" if self.difference < -self.reach else "near"


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
    statistic: Statistic = "mean"

    @property
    def title(self) -> str:
        """What is shown, and under which protocol."""
        part = "" if self.part == "online" else f", {self.part} part"
        what = self.metric.upper() if self.statistic == "mean" else f"100 × standard deviation of {self.metric.upper()}"
        return f"{what}, protocol {self.protocol}{part}"


class Theirs(NamedTuple):
    """What the paper reports of one figure."""

    values: Reported
    deviations: Reported
    alike: bool = True  # as in `Entry`


def build(
    results: Iterable[Result], metric: str = "mase", *, against_paper: bool = False, statistic: Statistic = "mean"
) -> list[Table]:
    """One table for each protocol and part among the results.

    Args:
        results: In any order, the last one of each cell.
        metric: A name from `natsr.bench.cells.NUMBERS`.
        against_paper: Put the reported figures beside ours; there are such of the MASE and the seconds.
        statistic: What is shown of the seeds.
    """
    if metric not in NUMBERS:
        raise OptionError(f"metric is {metric!r}, expected one of {', '.join(NUMBERS)}")
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        groups[result.cell.protocol, result.cell.part].append(result)
    theirs = _theirs(metric, statistic) if against_paper else Theirs({}, {})
    return [_table(group, metric, theirs, statistic) for _, group in sorted(groups.items())]


def _theirs(metric: str, statistic: Statistic) -> Theirs:
    if (metric, statistic) == ("mase", "mean"):
        return Theirs(reported(), deviations())
    if (metric, statistic) == ("mase", "deviation"):
        return Theirs({key: 100 * value for key, value in deviations().items()}, {}, alike=False)
    if (metric, statistic) == ("seconds", "mean"):
        return Theirs(seconds(), {}, alike=False)
    raise OptionError(f"metric is {metric!r}, expected mase or seconds: the paper reports nothing else")


def _table(results: Sequence[Result], metric: str, theirs: Theirs, statistic: Statistic) -> Table:
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
        entries[row, column] = _entry(row, column, found, metric, theirs)
        if statistic == "deviation":
            entries[row, column] = _scatter(entries[row, column])
    rows = tuple(sorted({row for row, _ in entries}))
    columns = tuple(dict.fromkeys(column for _, column in entries))
    notes = _notes(placed, columns, entries, theirs)
    return Table(protocol, part, metric, rows, columns, entries, notes, statistic)


def _entry(row: Row, column: Column, found: Sequence[Result], metric: str, theirs: Theirs) -> Entry:
    cell, place = found[0].cell, (*row, column.method)
    values = tuple(float(result.numbers[metric]) for result in found if metric in result.numbers)
    failed = sum(result.error is not None for result in found)
    same = cell.part == "online" and column.max_steps is None and column.window == 60
    figure = theirs.values.get(place) if same else None
    comparable = cell.protocol == "paper" or row[1] == 1
    reach = max(CLOSE, DEVIATIONS * theirs.deviations.get(place, 0.0))
    return Entry(values, failed, figure, comparable, reach, theirs.alike)


def _scatter(entry: Entry) -> Entry:
    """The entry's deviation over seeds in the place of its mean."""
    return replace(entry, values=() if entry.std is None else (100 * entry.std,))


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
    theirs: Theirs,
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
        difference = " and ours minus it" if theirs.alike else ", from another machine or other seeds"
        notes.append(f"in brackets: the paper's figure{difference}")
    if any(entry.alike and entry.reported is not None and not entry.comparable for entry in entries.values()):
        notes.append(
            "† reported under the protocol `paper`, which learns labels from the future for H > 1: not comparable"
        )
    return tuple(notes)


def number(value: float) -> str:
    """With three decimals, or four digits where it is large."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def shown(entry: Entry | None) -> str:
    """An entry as text; the dagger is put to a reported figure that ours must not be compared with.

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
        return f"{text} ({entry.reported:g}{'†' if entry.alike and not entry.comparable else ''})"
    return f"{text} ({entry.reported:g}, {entry.difference:+.3f})"


def as_markdown(table: Table) -> str:
    """For a page; the best of each row is bold, the second best underlined, as in the paper."""
    lines = [f"**{table.title}**", "", "| dataset | H | " + " | ".join(c.heading for c in table.columns) + " |"]
    lines.append("|---|--:|" + "--:|" * len(table.columns))
    for row in table.rows:
        places = ranks(table, row)
        cells = [marked(shown(table.entries.get((row, column))), places.get(column)) for column in table.columns]
        lines.append(f"| {row[0]} | {row[1]} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def marked(text: str, rank: int | None) -> str:
    """Bold for the first, underlined for the second, in Markdown.

    >>> marked("0.97", 1), marked("1.05", 2), marked("1.5", None)
    ('**0.97**', '<u>1.05</u>', '1.5')
    """
    return f"**{text}**" if rank == 1 else f"<u>{text}</u>" if rank == 2 else text


def ranks(table: Table, row: Row) -> dict[Column, int]:
    """The columns with the lowest mean (1) and the one after it (2), those that look the same sharing a place.

    A row with one figure has no best, nor has one of figures of which less is not better.
    """
    if table.metric not in LESS_IS_BETTER or table.statistic != "mean":
        return {}
    means = {column: table.entries[row, column].mean for column in table.columns if (row, column) in table.entries}
    looks = {column: float(number(mean)) for column, mean in means.items() if mean is not None and math.isfinite(mean)}
    order = sorted(set(looks.values()))[:2]
    return {column: order.index(look) + 1 for column, look in looks.items() if look in order} if len(looks) > 1 else {}


def verdict(tables: Iterable[Table], of: int | None = None) -> str:
    """How many of the reported figures we come near to, and which not.

    Args:
        tables: Against the paper.
        of: How many figures there will be when all is measured; said if it is more than there are.
    """
    compared = {
        f"{column.heading} on {row[0]} at H = {row[1]}": entry
        for table in tables
        for (row, column), entry in table.entries.items()
        if entry.verdict is not None
    }
    if not compared:
        return "None of these figures can be compared with a reported one yet."
    far = {name: entry for name, entry in compared.items() if entry.verdict == "above"}
    better = {name: entry for name, entry in compared.items() if entry.verdict == "below"}
    rule = f"at most the larger of {CLOSE} and {DEVIATIONS} reported standard deviations above the reported one"
    share = f" ({(len(compared) - len(far)) / len(compared):.0%})"
    text = f"{len(compared) - len(far)} of {len(compared)} figures{share} are {rule}"
    text += f"; {of - len(compared)} more are not measured yet" if of is not None and of > len(compared) else ""
    text += f". Further above: {_named(far)}" if far else ""
    return f"{text}. As far below: {_named(better)}." if better else f"{text}."


def expected(cells: Iterable[Cell]) -> int:
    """How many entries of a table of these cells have a reported figure to be compared with."""
    theirs = reported()
    places = {(cell.dataset, cell.horizon, cell.method) for cell in cells if _is_published(cell)}
    return sum(place in theirs for place in places)


def _is_published(cell: Cell) -> bool:
    whole = cell.part == "online" and cell.max_steps is None and cell.window == 60
    return whole and (cell.protocol == "paper" or cell.horizon == 1)


def _named(entries: Mapping[str, Entry]) -> str:
    return ", ".join(
        f"{name} ({FAILED if entry.difference is None else f'{entry.difference:+.3f}'})"
        for name, entry in entries.items()
    )


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
