"""What `benchmarks.speed.gpu` measured, for the page of speed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed.claims import Claim

ONE_S, MANY, RATIO, HELD = 15.0, 64, 3.0, 512
NAMES = (
    "learners",
    "steps",
    "s",
    "ms a step",
    "µs a step and learner",
    "refreshes of each",
    "MASE",
    "GiB",
    "warm-up, s",
)
COMMAND = "python -m benchmarks.speed.gpu"


def content(path: Path) -> dict[str, Any] | None:
    """The file, if there is one."""
    found: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def claims(found: dict[str, Any] | None) -> Iterator[Claim]:
    """What was asked of a GPU."""
    if found is None:
        return
    rows, gpu = {row["learners"]: row for row in found["along"]}, found["machine"]["gpu"]
    if 1 in rows:
        one = rows[1]
        what = f"{gpu}: {one['steps']:,} steps of NatSR, one learner"
        yield Claim(what, f"at most {ONE_S:g} s", f"{one['seconds']:.1f} s", one["seconds"] <= ONE_S)
    if 1 in rows and MANY in rows:
        ratio = rows[MANY]["seconds"] / rows[1]["seconds"]
        text = f"{ratio:.2f} × ({rows[MANY]['seconds']:.1f} s)"
        yield Claim(f"{gpu}: {MANY} learners", f"at most {RATIO:g} × the time of one", text, ratio <= RATIO)
    many = found["many"]
    yield Claim(
        f"{gpu}: {many['learners']} learners", "in memory", f"{many['peak_gib']:.1f} GiB", many["learners"] >= HELD
    )


def section(found: dict[str, Any] | None) -> list[str]:
    """The part of the page."""
    lines = ["## On a GPU", ""]
    if found is None:
        return [*lines, "**Missing:** there are no such results yet.", ""]
    machine = found["machine"]
    kind = "compiled by `nvcc` at first use" if found["compiled"] else "without an `nvcc`: the host looks at every step"
    lines += [
        f"NatSR on ETTh1, H = 24, C = 7, protocol of the paper, by `natsr.fleet.loop` ({kind}): rows, replay, trigger,",
        "scale, curvature and the loop itself are one CUDA graph, and the host waits for nothing till the stream ends.",
        f"`NATSR_DATA=<folder> {COMMAND}` on a machine with a GPU writes `benchmarks/results/speed-gpu.json`.",
        "",
        f"| {' | '.join(NAMES)} |",
        "|--:" * len(NAMES) + "|",
    ]
    for row in [*found["along"], found["many"]]:
        warm = "none" if row["warm_seconds"] is None else f"{row['warm_seconds']:.1f}"
        each = 1e3 * row["ms"] / row["learners"]
        cells = [f"{row['learners']}", f"{row['steps']:,}", f"{row['seconds']:.1f}", f"{row['ms']:.2f}", f"{each:.0f}"]
        cells += [
            f"{row['refreshes']:.0f}",
            f"{row['mase']:.3f} ± {row['mase_std']:.3f}",
            f"{row['peak_gib']:.1f}",
            warm,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    alone = found["alone"]
    lines += [
        "",
        f"The same learner, asked for every step from the host: {alone['cuda']:.1f} ms on the GPU, "
        f"{alone['cpu']:.1f} ms on one core beside it (compiled).",
        "",
        f"*{machine['gpu']}, beside {machine['cpu']}, torch {machine['torch']}, natsr {machine['natsr']}, "
        f"{machine['day']}.*",
        "",
    ]
    return lines
