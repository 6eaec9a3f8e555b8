"""What was asked of the step, and what the results say to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed.curved import effect
from benchmarks.speed.memory import LONG
from benchmarks.speed.steps import number, with_means
from benchmarks.speed.store import Row, Section

#: Ratio to the textbook that was asked for, by case.
TEXTBOOK = {"ogd": 15.0, "er": 20.0, "natsr mean": 40.0}
FLOOR, REFRESH, PEAK_GIB, FLAT_MIB = 3.0, 6.0, 4.0, 5.0
LEARNERS, TOGETHER = 32, 6.0
IMPORT_S, HELP_S, COMPILE_S, MASE = 2.0, 1.0, 5.0, 0.005


class Claim(NamedTuple):
    """One of them."""

    what: str
    asked: str
    measured: str
    reached: bool | None  # unknown while nothing was measured


def claims(sections: dict[str, Section], curved: Path, fleets: Sequence[dict[str, Any]] = ()) -> list[Claim]:
    """All of them, in the order they were asked in; `fleets` is what `benchmarks.speed.fleet` wrote, by machine."""
    together = [claim for fleet in fleets for claim in _one_call(fleet)] or _fleet(sections)
    found = [*_steps(sections), *_same(sections), *together, *_memory(sections), *_start(sections)]
    if (seen := effect(curved)) is not None:
        worse, over = seen
        text = f"{worse:+.4f} ({over})"
        found.append(Claim("MASE, few probes against exact", f"at most {MASE} worse", text, worse <= MASE))
    return found


def _steps(sections: dict[str, Section]) -> Iterator[Claim]:
    if "steps" not in sections:
        return
    rows = with_means(sections["steps"].rows, sections["streams"].rows if "streams" in sections else [])
    usual: dict[str, Row] = {str(r["case"]): r for r in rows if r["horizon"] == 24 and r["channels"] == 7}
    for case, least in TEXTBOOK.items():
        if case in usual:
            ratio = number(usual[case], "textbook_ms") / number(usual[case], "fast_ms")
            yield Claim(f"{case}: faster than the textbook", f"{least:g} ×", f"{ratio:.1f} ×", ratio >= least)
    for case in TEXTBOOK:
        if case in usual:
            ratio = number(usual[case], "fast_ms") / number(usual[case], "floor_ms")
            yield Claim(f"{case}: of its floor", f"within {FLOOR:g} ×", f"{ratio:.2f} ×", ratio <= FLOOR)
    if "natsr refresh" in usual and "natsr plain" in usual:
        ratio = number(usual["natsr refresh"], "fast_ms") / number(usual["natsr plain"], "fast_ms")
        yield Claim("a refresh", f"at most {REFRESH:g} plain steps", f"{ratio:.1f}", ratio <= REFRESH)


def _same(sections: dict[str, Section]) -> Iterator[Claim]:
    if "same" in sections:
        row = sections["same"].rows[0]
        apart, typical = number(row, "largest_difference"), number(row, "typical_forecast")
        steps = f"{row['steps']} steps of {row['stream']}"
        yield Claim(f"the same forecasts, {steps}", "as float32 allows", f"{apart:.1e} apart", apart < 1e-2 * typical)


def _fleet(sections: dict[str, Section]) -> Iterator[Claim]:
    rows = sections["growth"].rows if "growth" in sections else []
    ms = {str(r["case"]): number(r, "ms") for r in rows if r["axis"] == "learners" and r["value"] == LEARNERS}
    if ms:
        ratio = ms["one by one"] / ms["in one step"]
        what = f"{LEARNERS} learners, C = 1, width 32, together"
        yield Claim(what, f"{TOGETHER:g} × the rate of one by one", f"{ratio:.1f} ×", ratio >= TOGETHER)


def _one_call(content: dict[str, Any]) -> Iterator[Claim]:
    """Each method's, by the time that passed, with every core of the machine against one core one by one."""
    cores = content["machine"]["cores"]
    for row in content["rows"]:
        if row["way"] == f"one call, {cores} threads":
            ratio = row["over_compiled_passed"]
            what = f"{row['method']}: {content['learners']} learners, C = 1, width 32, together on {cores} cores"
            text = f"{ratio:.1f} × compiled, {row['over_torch_passed']:.0f} × in torch"
            yield Claim(what, f"{TOGETHER:g} × the rate of one by one", text, ratio >= TOGETHER)


def _memory(sections: dict[str, Section]) -> Iterator[Claim]:
    wide = [row for row in sections["memory"].rows if row["channels"] == 862] if "memory" in sections else []
    for row in wide:
        gib = number(row, "peak_mib") / 1024
        yield Claim("peak memory, C = 862", f"under {PEAK_GIB:g} GiB", f"{gib:.2f} GiB", gib < PEAK_GIB)
    if "flat" in sections:
        rows = sections["flat"].rows
        more = number(rows[-1], "mib") - number(rows[0], "mib")
        steps = number(rows[-1], "step")
        reached = abs(more) < FLAT_MIB if steps >= LONG else None  # a quick run is too short to tell
        asked = f"flat over {LONG:,} steps"
        yield Claim("memory along a stream", asked, f"{more:+.1f} MiB over {steps:,.0f} steps", reached)


def _start(sections: dict[str, Section]) -> Iterator[Claim]:
    if "start" not in sections:
        return
    row = sections["start"].rows[0]
    for what, name, most in (
        ("`import natsr` beyond torch", "import_natsr_beyond_torch_s", IMPORT_S),
        ("`natsr --help`", "help_s", HELP_S),
        ("first use: compiling the step, once", "compile_s", COMPILE_S),
    ):
        if name not in row or (seconds := number(row, name)) < 0:
            continue  # there is no compiler
        yield Claim(what, f"under {most:g} s", f"{seconds:.2f} s", seconds < most)
