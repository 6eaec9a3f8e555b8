"""The speed benchmark: `make bench-speed`, a few minutes on a quiet machine.

Times every kind of step at every shape, in turns with the textbook and the floor (one thread, least of blocks), counts
refreshes on streams, follows the cost along horizon, columns, window and memory, and looks at memory and start-up in
processes of their own. Results go to `benchmarks/results/speed.json` at the end; a run that was interrupted
goes on where it was. With --horizons or --channels only steps are timed, and nothing is kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from benchmarks.speed.growth import grown
from benchmarks.speed.memory import flat, peaks, starts
from benchmarks.speed.stages import staged
from benchmarks.speed.steps import CHANNELS, FEWER, HORIZONS, SHAPES, Shapes, number, rates, timed, with_means
from benchmarks.speed.store import Row, Run, Unit
from rich.console import Console
from rich.table import Table

SECTIONS = ("steps", "streams", "stages", "growth", "memory", "flat", "start")


def plan(name: str, shapes: Shapes, quick: bool) -> list[Unit]:
    """What one section is made of."""
    if name == "steps":
        return timed(shapes, quick)
    if name == "streams":
        return rates(shapes, quick)
    plans = {"stages": staged, "growth": grown, "memory": peaks, "flat": flat, "start": starts}
    return plans[name](quick)


def table_of(rows: Sequence[Row]) -> Table:
    """Steps beside their two references."""
    table = Table(title="one step, ms (least of blocks, one thread)")
    names = ("step", "H", "C", "fast", "textbook", "floor", "textbook / fast", "fast / floor", "MFLOP", "MiB")
    for name in names:
        table.add_column(name, justify="left" if name == "step" else "right")
    for row in rows:
        fast, book, floor = (number(row, f"{form}_ms") for form in ("fast", "textbook", "floor"))
        figures = [f"{fast:.3f}", f"{book:.2f}", f"{floor:.3f}", f"{book / fast:.1f}", f"{fast / floor:.2f}"]
        counts = [f"{number(row, 'mflop'):.1f}", f"{number(row, 'mib'):.1f}"]
        table.add_row(str(row["case"]), str(row["horizon"]), str(row["channels"]), *figures, *counts)
    return table


def listed(title: str, rows: Sequence[Row]) -> Table:
    """Any other section."""
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    return table


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(int(part) for part in text.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="rough: fewer repeats and shapes, shorter streams")
    parser.add_argument("--only", default=",".join(SECTIONS), help="some of the sections")
    parser.add_argument("--horizons", type=numbers, help="time steps at these only, and keep nothing")
    parser.add_argument("--channels", type=numbers, help="time steps at these only, and keep nothing")
    given = parser.parse_args()
    torch.set_num_threads(1)
    console, began = Console(), time.perf_counter()
    partly = given.horizons is not None or given.channels is not None
    chosen = [(h, c) for c in given.channels or CHANNELS for h in given.horizons or HORIZONS]
    shapes = chosen if partly else FEWER if given.quick else SHAPES
    run = Run(given.quick, None) if partly else Run(given.quick)

    def said(what: str) -> None:
        console.print(f"[dim]{time.perf_counter() - began:5.0f} s  {what}[/dim]")

    found: dict[str, list[Row]] = {}
    for name in ("steps", "streams") if partly else given.only.split(","):
        found[name] = run.section(name, plan(name, shapes, given.quick), said)
    if "steps" in found:
        console.print(table_of(with_means(found.pop("steps"), found.get("streams", []))))
    for name, rows in found.items():
        console.print(listed(name, rows))
    run.finished()
    if not partly:
        console.print("written: benchmarks/results/speed.json; `make bench-speed-page` writes the page from it")


if __name__ == "__main__":
    main()
