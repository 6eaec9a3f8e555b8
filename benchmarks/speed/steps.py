"""A step of every method at every shape: as it is, as the textbook has it, and its floor."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.speed.cases import CASES, contestants, counted, shaped
from benchmarks.speed.store import Row, Unit
from benchmarks.speed.streams import streamed
from benchmarks.speed.timing import in_turns

HORIZONS, CHANNELS = (1, 24, 48), (7, 12, 321)
Shapes = Sequence[tuple[int, int]]  # horizon and columns
SHAPES: Shapes = [(horizon, channels) for channels in CHANNELS for horizon in HORIZONS]
#: Of a quick run.
FEWER: Shapes = [(24, 7), (1, 7), (48, 7), (24, 12), (24, 321)]
FORMS = ("fast", "torch", "textbook", "floor")
#: What a mean is made of besides the plain step, and the count on a stream that says how often.
RARE = {"natsr inverting": "inversions", "natsr refresh": "refreshes"}


def steps_at(horizon: int, channels: int, seconds: float, least_rounds: int) -> list[Row]:
    """One row for each case, all of them timed in turns."""
    task = shaped(horizon, channels)
    times = in_turns(contestants(task), seconds, least_rounds)
    rows: list[Row] = []
    for case in CASES:
        row: Row = {"case": case.name, "horizon": horizon, "channels": channels}
        for form in FORMS:
            if (time := times.get(f"{case.name}/{form}")) is not None:
                row |= {f"{form}_ms": round(time.least, 4), f"{form}_median_ms": round(time.median, 4)}
                row[f"{form}_calls"] = time.calls
        rows.append(row | counted(case, task))
    return rows


def timed(shapes: Shapes, quick: bool) -> list[Unit]:
    """What the section `steps` is made of."""

    def unit(h: int, c: int) -> Unit:
        return Unit(f"H = {h}, C = {c}", lambda: steps_at(h, c, *((0.05, 1) if quick else (0.4, 2))))

    return [unit(h, c) for h, c in shapes]


def rates(shapes: Shapes, quick: bool) -> list[Unit]:
    """What the section `streams` is made of: how often a refresh is due."""

    def count(c: int) -> int:
        usual = 500 if quick else 1500
        return usual if c < 100 else usual // 5

    def measure(h: int, c: int) -> list[Row]:
        return [dict(streamed(h, c, count(c))._asdict())]

    def unit(h: int, c: int) -> Unit:
        return Unit(f"H = {h}, C = {c}", lambda: measure(h, c))

    return [unit(h, c) for h, c in shapes]


def number(row: Row, name: str) -> float:
    """A figure of a row."""
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number")
    return float(value)


def long_run(rows: dict[str, Row], stream: Row) -> Row:
    """The mean step of NatSR: inversions and refreshes as often as they come on a stream."""
    plain, steps = rows["natsr plain"], number(stream, "steps")
    shares = {case: number(stream, count) / steps for case, count in RARE.items() if case in rows}
    shares["natsr plain"] = 1 - sum(shares.values())
    row: Row = {"case": "natsr mean", "horizon": plain["horizon"], "channels": plain["channels"]}
    for name in (*(f"{form}_ms" for form in FORMS), "mflop", "mib"):
        if name in plain:
            row[name] = round(sum(share * number(rows[case], name) for case, share in shares.items()), 4)
    # The textbook whose damping moves at every step, as the paper's does, inverts at each of them.
    inverting = rows.get("natsr inverting", plain)
    every = {"natsr plain": inverting, "natsr inverting": inverting, "natsr refresh": rows["natsr refresh"]}
    row["every_ms"] = round(sum(share * number(every[case], "textbook_ms") for case, share in shares.items()), 4)
    return row


def with_means(rows: list[Row], streams: list[Row]) -> list[Row]:
    """The rows with NatSR's long-run mean after its kinds of step, wherever it is known how often they come."""
    known = {(row["horizon"], row["channels"]): row for row in streams}
    found: list[Row] = []
    for row in rows:
        found.append(row)
        place = (row["horizon"], row["channels"])
        if row["case"] == "natsr refresh" and place in known:
            here = {str(r["case"]): r for r in rows if (r["horizon"], r["channels"]) == place}
            found.append(long_run(here, known[place]))
    return found
