"""Tables of a study: one method with one thing changed at a time, ours beside the paper's."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from natsr.bench.cells import Result
from natsr.bench.grids import Grid, Setting
from natsr.bench.reported import OfSettings, ablation, sensitivity
from natsr.bench.tables import FAILED, MISSING, Entry, shown
from natsr.types import OptionError

#: The sensitivity study's group that is said to matter, and its value at which the published training diverged.
DAMPING, SMALLEST = "τ", "τ = 0.01"


class Study(NamedTuple):
    """A table, ready to be written in any form."""

    title: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


class _Measured(NamedTuple):
    """The entries of a study and the plain setting that the others are compared with."""

    settings: tuple[Setting, ...]
    datasets: tuple[str, ...]
    entries: Mapping[tuple[str, str], Entry]  # by dataset and setting
    base: str

    def mean(self, dataset: str, setting: str) -> float | None:
        entry = self.entries.get((dataset, setting))
        return None if entry is None else entry.mean

    def change(self, dataset: str, setting: str) -> float | None:
        """How much larger the MASE is than with the plain setting."""
        ours, plain = self.mean(dataset, setting), self.mean(dataset, self.base)
        return None if ours is None or plain is None else ours - plain


def study(grid: Grid, results: Mapping[str, Result], *, against_paper: bool = True) -> Study:
    """The table of a study.

    Args:
        grid: Whose `shows` is the name of a study.
        results: By the key of the cell, as `Grid.found` gives them.
        against_paper: Put the reported figures beside ours.
    """
    if grid.shows == "ablation":
        theirs = ablation() if against_paper else {}
        return _ablation(grid.title, _measured(grid, results, theirs), theirs)
    if grid.shows == "sensitivity":
        return _sensitivity(grid.title, _measured(grid, results, {}), sensitivity() if against_paper else {})
    raise OptionError(f"{grid.path.name} shows {grid.shows}, expected a study")


def _measured(grid: Grid, results: Mapping[str, Result], theirs: OfSettings) -> _Measured:
    placed: dict[tuple[str, str], list[Result]] = {}
    for setting, cell in grid.cells:
        if cell.key in results:
            placed.setdefault((cell.dataset, setting.name), []).append(results[cell.key])
    entries = {}
    for place, found in placed.items():
        values = tuple(result.numbers["mase"] for result in found if "mase" in result.numbers)
        failed = sum(result.error is not None for result in found)
        entries[place] = Entry(values, failed, theirs.get(place), comparable=True)
    settings = tuple({setting.name: setting for setting, _ in grid.cells}.values())
    plain = next((setting.name for setting in settings if not setting.options), settings[0].name)
    return _Measured(settings, tuple(dict.fromkeys(cell.dataset for _, cell in grid.cells)), entries, plain)


def _ablation(title: str, measured: _Measured, theirs: OfSettings) -> Study:
    head = ["setting", *(name for dataset in measured.datasets for name in (dataset, "loss"))]
    lines = []
    for setting in measured.settings:
        line = [setting.name]
        for dataset in measured.datasets:
            loss = _share(measured.change(dataset, setting.name), measured.mean(dataset, measured.base))
            reported = _reported_loss(theirs, dataset, setting.name, measured.base)
            line += [
                shown(measured.entries.get((dataset, setting.name))),
                loss + (f" ({reported})" if reported else ""),
            ]
        lines.append(tuple(line))
    return Study(title, tuple(head), tuple(lines), (_seeds(measured), *_signs(measured, theirs)))


def _share(change: float | None, whole: float | None) -> str:
    return MISSING if change is None or not whole else f"{100 * change / whole:+.0f} %"


def _reported_loss(theirs: OfSettings, dataset: str, setting: str, base: str) -> str:
    if (dataset, setting) not in theirs or setting == base:
        return ""
    return _share(theirs[dataset, setting] - theirs[dataset, base], theirs[dataset, base])


def _signs(measured: _Measured, theirs: OfSettings) -> list[str]:
    """Whether leaving something out costs, and whether the order of the settings is the paper's."""
    notes = []
    changed = [setting.name for setting in measured.settings if setting.name != measured.base]
    changes = [measured.change(dataset, name) for dataset in measured.datasets for name in changed]
    known = [change for change in changes if change is not None]
    notes.append(f"leaving a part out costs something in {sum(c > 0 for c in known)} of {len(known)} measured places")
    names = [setting.name for setting in measured.settings]
    ours = {place: entry.mean for place, entry in measured.entries.items() if entry.mean is not None}
    complete = [d for d in measured.datasets if all((d, name) in ours and (d, name) in theirs for name in names)]
    if complete:
        same = [d for d in complete if _order(names, d, ours) == _order(names, d, theirs)]
        notes.append(f"the settings stand in the paper's order on {len(same)} of {len(complete)} measured datasets")
    return notes


def _order(names: Sequence[str], dataset: str, figures: Mapping[tuple[str, str], float]) -> list[str]:
    return sorted(names, key=lambda name: figures[dataset, name])


def _sensitivity(title: str, measured: _Measured, theirs: OfSettings) -> Study:
    lines = []
    for setting in measured.settings:
        cells = []
        for dataset in measured.datasets:
            entry, change = measured.entries.get((dataset, setting.name)), measured.change(dataset, setting.name)
            text = FAILED if entry is not None and entry.failed else MISSING if change is None else f"{change:+.3f}"
            reported = theirs.get((dataset, setting.name))
            cells.append(text + (f" ({_signed(reported)})" if reported is not None else ""))
        lines.append((setting.name + (" *" if not setting.options else ""), *cells))
    plain = ", ".join(f"{d} {shown(measured.entries.get((d, measured.base)))}" for d in measured.datasets)
    notes = [f"change of the MASE against the setting with *, which has: {plain}"]
    notes += ["in brackets: the change that the paper reports"] if theirs else []
    return Study(title, ("setting", *measured.datasets), tuple(lines), (*notes, _seeds(measured), *_shape(measured)))


def _signed(value: float) -> str:
    return "diverged" if math.isinf(value) else f"{value:+.3g}" if abs(value) > 1 else f"{value:+.3f}"


def _shape(measured: _Measured) -> list[str]:
    """What the table says: how far each group spreads, and what became of the smallest damping."""
    notes = []
    for group in dict.fromkeys(setting.group for setting in measured.settings):
        names = [s.name for s in measured.settings if s.group == group and s.name != SMALLEST]
        spreads = []
        for dataset in measured.datasets:
            changes = [c for name in names if (c := measured.change(dataset, name)) is not None]
            if len(changes) == len(names):
                spreads.append(f"{dataset} {max(changes) - min(changes):.3f}")
        without = f" (without {SMALLEST})" if group == DAMPING else ""
        if spreads:
            notes.append(f"between the largest and the smallest change with {group}{without}: {', '.join(spreads)}")
    return notes


def _seeds(measured: _Measured) -> str:
    counts = {len(entry.values) + entry.failed for entry in measured.entries.values()} or {0}
    seeds = f"{counts.pop()}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    return f"mean ± sample standard deviation over {seeds} seed(s)"


def as_markdown(table: Study) -> str:
    """For a page."""
    lines = [f"**{table.title}**", "", f"| {' | '.join(table.head)} |", "|---|" + "--:|" * (len(table.head) - 1)]
    lines += [f"| {' | '.join(line)} |" for line in table.lines]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def as_csv(table: Study) -> str:
    """For other programs."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.head, *table.lines])
    return text.getvalue()
