"""Peak memory and allocations, each in a process of its own; memory along a long stream; how long a start takes."""

from __future__ import annotations

from benchmarks.speed.children import ask
from benchmarks.speed.store import Row, Unit

#: Form, case, horizon, columns.
PEAKS = (
    ("fast", "ogd", 24, 7),
    ("fast", "er", 24, 7),
    ("fast", "natsr plain", 24, 7),
    ("fast", "natsr refresh", 24, 7),
    ("textbook", "er", 24, 7),
    ("textbook", "natsr refresh", 24, 7),
    ("fast", "natsr refresh", 24, 321),
    ("fast", "natsr refresh", 24, 862),
)
LONG = 50_000


def _peak(form: str, case: str, horizon: int, channels: int) -> list[Row]:
    found = ask("steady", form, case, horizon, channels)
    return [{"form": form, "case": case, "horizon": horizon, "channels": channels, **found}]


def peaks(quick: bool) -> list[Unit]:
    """What the section `memory` is made of."""
    del quick  # a peak is a peak

    def unit(place: tuple[str, str, int, int]) -> Unit:
        return Unit(f"{place[0]} {place[1]}, H = {place[2]}, C = {place[3]}", lambda: _peak(*place))

    return [unit(place) for place in PEAKS]


def flat(quick: bool) -> list[Unit]:
    """What the section `flat` is made of: a network of width 8, resident MiB after so many steps."""
    steps = LONG // 10 if quick else LONG

    def measure() -> list[Row]:
        return [{"step": int(step), "mib": mib} for step, mib in ask("flat", steps).items()]

    return [Unit(f"{steps:,} steps", measure)]


def starts(quick: bool) -> list[Unit]:
    """What the section `start` is made of."""
    del quick
    return [Unit("fresh processes", lambda: [dict(ask("start"))])]
