"""A step of every method at every shape: as it is, as the textbook has it, and its floor."""

from __future__ import annotations

from benchmarks.speed.cases import CASES, contestants, counted, shaped
from benchmarks.speed.store import Row, Unit
from benchmarks.speed.streams import streamed
from benchmarks.speed.timing import in_turns

HORIZONS, CHANNELS = (1, 24, 48), (7, 12, 321)
FORMS = ("fast", "torch", "textbook", "kept", "floor")


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


def timed(horizons: tuple[int, ...], channels: tuple[int, ...], quick: bool) -> list[Unit]:
    """What the section `steps` is made of."""

    def unit(h: int, c: int) -> Unit:
        return Unit(f"H = {h}, C = {c}", lambda: steps_at(h, c, *((0.05, 1) if quick else (0.6, 2))))

    return [unit(h, c) for c in channels for h in horizons]


def rates(horizons: tuple[int, ...], channels: tuple[int, ...], quick: bool) -> list[Unit]:
    """What the section `streams` is made of: how often a refresh is due."""

    def count(c: int) -> int:
        usual = 200 if quick else 1500
        return usual if c < 100 else usual // 5

    def measure(h: int, c: int) -> list[Row]:
        found = streamed(h, c, count(c))
        row: Row = {**found._asdict(), "rate": round(found.rate, 4)}
        return [row]

    def unit(h: int, c: int) -> Unit:
        return Unit(f"H = {h}, C = {c}", lambda: measure(h, c))

    return [unit(h, c) for c in channels for h in horizons]


def number(row: Row, name: str) -> float:
    """A figure of a row."""
    value = row[name]
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number")
    return float(value)


def long_run(plain: Row, refresh: Row, rate: float) -> Row:
    """The mean step of NatSR: refreshes as often as they come."""
    row: Row = {"case": "natsr mean", "horizon": plain["horizon"], "channels": plain["channels"], "rate": rate}
    for form in ("fast", "torch", "textbook", "floor"):
        if f"{form}_ms" not in plain:
            continue
        usual, rare = number(plain, f"{form}_ms"), number(refresh, f"{form}_ms")
        row[f"{form}_ms"] = round((1 - rate) * usual + rate * rare, 4)
    row["kept_ms"] = round((1 - rate) * number(plain, "kept_ms") + rate * number(refresh, "textbook_ms"), 4)
    row["mflop"] = round((1 - rate) * number(plain, "mflop") + rate * number(refresh, "mflop"), 2)
    row["mib"] = round((1 - rate) * number(plain, "mib") + rate * number(refresh, "mib"), 2)
    return row


def with_means(rows: list[Row], streams: list[Row]) -> list[Row]:
    """The rows with NatSR's long-run mean after its two kinds of step, wherever its rate is known."""
    rates_at = {(row["horizon"], row["channels"]): number(row, "rate") for row in streams}
    plain = {(row["horizon"], row["channels"]): row for row in rows if row["case"] == "natsr plain"}
    found = []
    for row in rows:
        found.append(row)
        place = (row["horizon"], row["channels"])
        if row["case"] == "natsr refresh" and place in rates_at:
            found.append(long_run(plain[place], row, rates_at[place]))
    return found
