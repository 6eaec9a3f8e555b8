"""Results in one file, section by section, each with the machine that it was measured on.

A run keeps what it has so far in `out/speed.partial.json`, and goes on from there if it was interrupted; when it is
finished, its sections take the places of those in the results.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.speed.machine import Machine, describe

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "speed.json"
PARTIAL = ROOT / "out" / "speed.partial.json"

Value = str | int | float | bool | None
Row = dict[str, Value]


class Section(NamedTuple):
    """Rows of one kind, and what they were measured on."""

    machine: Machine
    quick: bool
    rows: list[Row]


class Unit(NamedTuple):
    """Something to be measured in one go."""

    name: str
    measure: Callable[[], list[Row]]


def read(path: Path = RESULTS) -> dict[str, Section]:
    """The sections of a file; none if there is no file."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {name: Section(part["machine"], part["quick"], part["rows"]) for name, part in found.items()}


def write(sections: dict[str, Section], path: Path = RESULTS) -> None:
    """Keep sections; a file is replaced as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".tmp")
    text = json.dumps({name: sections[name]._asdict() for name in sorted(sections)}, indent=1)
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(path)


@dataclass
class Run:
    """One run of the benchmark.

    Args:
        quick: Whether times are short and rough.
        results: Where the sections go in the end; nowhere if `None`.
        partial: Where they wait.
    """

    quick: bool = False
    results: Path | None = RESULTS
    partial: Path = PARTIAL
    complete: dict[str, Section] = field(default_factory=dict)

    def section(self, name: str, units: Sequence[Unit], said: Callable[[str], None]) -> list[Row]:
        """Measure what has not been measured yet, and keep it all; `said` is told what is going on."""
        waiting = read(self.partial) if self.results is not None else {}
        rows: list[Row] = []
        for unit in units:
            place = f"{'quick' if self.quick else 'full'} {name} {unit.name}"
            if place not in waiting:
                said(f"{name}: {unit.name}")
                machine = describe()  # before it is busy with us
                waiting[place] = Section(machine, self.quick, unit.measure())
                if self.results is not None:
                    write(waiting, self.partial)
            else:
                said(f"{name}: {unit.name} (measured before)")
            rows += waiting[place].rows
            first = waiting[f"{'quick' if self.quick else 'full'} {name} {units[0].name}"].machine
        self.complete[name] = Section(first, self.quick, rows)
        return rows

    def finished(self) -> None:
        """Put the sections into the results, and forget what was waiting."""
        if self.results is not None:
            write(read(self.results) | self.complete, self.results)
            self.partial.unlink(missing_ok=True)
