"""Write `docs/speed.md` and its figures from the stored results: `make bench-speed-page`.

The page is a function of `speed.json`, `curvature.json`, `fleet-*.json` and `speed-gpu.json` in `benchmarks/results`;
`tests/speed/test_page.py` fails when it is stale.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.speed import gpu_page
from benchmarks.speed.claims import Claim, claims
from benchmarks.speed.curved import curvature
from benchmarks.speed.fleet import machines
from benchmarks.speed.floor import STAGES
from benchmarks.speed.growth import AXES
from benchmarks.speed.steps import RARE, number, with_means
from benchmarks.speed.store import RESULTS, ROOT, Row, Section, read

PAGE = ROOT / "docs" / "speed.md"
ASSETS = ROOT / "docs" / "assets"
CURVATURE = RESULTS.with_name("curvature.json")
MISSING = ["**Missing:** there are no such results yet.", ""]

HEAD = """# Speed

What one online step costs, and what of that could still go. Written by `make bench-speed-page` from
`benchmarks/results/speed.json`, and `curvature.json`, `fleet-cpu.json`, `fleet-h200.json` and `speed-gpu.json` beside
it; nothing here is edited by hand.

Every step is timed in one process beside two references, in turns, so that the machine's noise falls on all of them:

- the **textbook**: the dense network with autograd, PyTorch's optimisers, K-FAC with hooks, 100 Monte-Carlo samples at
  each refresh and `torch.linalg.inv`. It has the recipe's mathematics, and inverts when the recipe's damping asks for
  new inverses;
- the **floor**: the step's own multiplications as plain `torch.mm` of the same shapes, and nothing else: no activation,
  no copy, no optimiser; a plain step's inverses are known, and a symmetric inverse counts as one product of `n³`
  operations.

One thread, its processor time, the least of many blocks of calls. A *refresh* estimates the Fisher information again;
an *inverting* step makes new inverses because the damping has drifted; the *mean* has both as often as they come on the
stream that is named.
"""


def head(names: Sequence[str]) -> str:
    """The first two lines of a table."""
    return f"| {' | '.join(names)} |\n|---|{'--:|' * (len(names) - 1)}"


def line(cells: Iterable[str]) -> str:
    """One more."""
    return f"| {' | '.join(cells)} |"


def on(section: Section) -> str:
    """What it was measured on, and how busy that was."""
    m = section.machine
    step = "compiled step" if m.get("compiled") else "step in torch"
    rough = " A quick, rough run." if section.quick else ""
    return (
        f"*{m['cpu']} ({m['vectors']}), {m['cores']} cores, load {m['load']} at the start, {m['threads']} thread(s), "
        f"torch {m['torch']}, {m['compiler']}, natsr {m['natsr']}, {step}, {m['day']}.{rough}*"
    )


def made_by(command: str) -> str:
    """The command that measures it again."""
    return f"Measured by `{command}`."


# ---- parts of the page -------------------------------------------------------------------------------------------


def asked(found: Sequence[Claim]) -> list[str]:
    """What was asked for beside what was measured."""
    lines = ["## Asked for, and measured", "", head(["", "asked for", "measured", "reached"])]
    for claim in found:
        reached = "–" if claim.reached is None else "yes" if claim.reached else "**no**"
        lines.append(line([claim.what, claim.asked, claim.measured, reached]))
    return [*lines, "", "All at H = 24 and C = 7 (ETTh1's shape) unless said otherwise.", ""]


def every_step(sections: dict[str, Section]) -> list[str]:
    """The large table."""
    lines = ["## A step at every shape", "", made_by("make bench-speed"), ""]
    if "steps" not in sections:
        return lines + MISSING
    names = ["step", "H", "C", "ms", "without a compiler", "textbook", "floor", "textbook / ours", "ours / floor"]
    lines.append(head([*names, "MFLOP", "MiB"]))
    streams = sections["streams"].rows if "streams" in sections else []
    for row in sorted(with_means(sections["steps"].rows, streams), key=_shape):
        ours, book, floor = (number(row, f"{form}_ms") for form in ("fast", "textbook", "floor"))
        shape = [str(row["horizon"]), str(row["channels"])]
        plain = f"{number(row, 'torch_ms'):.3f}" if "torch_ms" in row else ""
        times = [f"{ours:.3f}", plain, f"{book:.1f}", f"{floor:.3f}", f"{book / ours:.1f}", f"{ours / floor:.2f}"]
        counts = [f"{number(row, 'mflop'):.1f}", f"{number(row, 'mib'):.1f}"]
        lines.append(line([str(row["case"]), *shape, *times, *counts]))
    lines += [
        "",
        "Times in ms. MFLOP and MiB are the products' own: operations, and numbers read and written once each.",
        "",
    ]
    return [*lines, on(sections["steps"]), "", *at_every_step(sections), *refresh_rates(sections)]


def _shape(row: Row) -> tuple[float, float]:
    return number(row, "channels"), number(row, "horizon")


def at_every_step(sections: dict[str, Section]) -> list[str]:
    """The dearer textbook."""
    rows = with_means(sections["steps"].rows, sections["streams"].rows if "streams" in sections else [])
    found = [
        f"H = {row['horizon']}, C = {row['channels']}: {number(row, 'every_ms') / number(row, 'fast_ms'):.1f}"
        for row in rows
        if row["case"] == "natsr mean"
    ]
    if not found:
        return []
    return [
        f"A textbook that inverts at every step, as the paper's damping has it, over our mean: {'; '.join(found)}.",
        "",
    ]


def refresh_rates(sections: dict[str, Section]) -> list[str]:
    """How often a refresh comes."""
    if "streams" not in sections:
        return []
    lines = ["How often curvature and inverses are made again, and the mean step as it came on the stream:", ""]
    lines.append(
        head(["stream", "H", "C", "steps", "refreshes", "inversions besides", "ms a step, forecast and score included"])
    )
    for row in sorted(sections["streams"].rows, key=_shape):
        sizes = [str(row[name]) for name in ("horizon", "channels", "steps")]
        counts = [f"{row[name]} ({100 * number(row, name) / number(row, 'steps'):.1f} %)" for name in RARE.values()]
        lines.append(line([str(row["stream"]), *sizes, *reversed(counts), f"{number(row, 'ms'):.2f}"]))
    return [*lines, "", on(sections["streams"]), ""]


def where(sections: dict[str, Section]) -> list[str]:
    """The time of a step, by stage."""
    lines = ["## Where the time goes", "", made_by("python -m benchmarks.speed.measure --only stages"), ""]
    if "stages" not in sections:
        return lines + MISSING
    rows = sections["stages"].rows
    cases = list(dict.fromkeys(str(row["case"]) for row in rows if row["case"] != "forecast"))
    found = {(str(row["case"]), str(row["stage"])): number(row, "ms") for row in rows}
    lines += ["![where the time goes](assets/speed-stages.svg)", "", head(["ms at H = 24, C = 7", *cases])]
    for stage in STAGES:
        cells = [f"{found[case, stage]:.3f}" if (case, stage) in found else "" for case in cases]
        lines.append(line([stage, *cells]))
    sums = [sum(found.get((case, stage), 0.0) for stage in STAGES) for case in cases]
    whole = [found[case, "step"] for case in cases]
    lines.append(line(["all products", *(f"{total:.3f}" for total in sums)]))
    lines.append(line(["the whole step", *(f"{total:.3f}" for total in whole)]))
    rest = [f"{step - total:.3f}" for step, total in zip(whole, sums, strict=True)]
    lines.append(line(["the rest", *rest]))
    return [
        *lines,
        "",
        "The stages are the floor's products, each group timed on its own. The rest is everything else: activations,",
        "copies, the loss, random numbers, the optimiser and Python; where the step's own products are faster than",
        f"`torch.mm`, it is less than nothing. A forecast takes {found['forecast', 'step']:.3f} ms.",
        "",
        on(sections["stages"]),
        "",
    ]


def grows(sections: dict[str, Section]) -> list[str]:
    """Cost along each size."""
    lines = ["## How cost grows", "", made_by("python -m benchmarks.speed.measure --only growth"), ""]
    if "growth" not in sections:
        return lines + MISSING
    lines += ["![how cost grows](assets/speed-growth.svg)", ""]
    rows = sections["growth"].rows
    for axis in dict.fromkeys([*AXES, *(str(row["axis"]) for row in rows)]):
        part = [row for row in rows if row["axis"] == axis]
        values = list(dict.fromkeys(str(row["value"]) for row in part))
        if not part:
            continue
        lines.append(head([f"{axis}: ms", *values]))
        for case in dict.fromkeys(str(row["case"]) for row in part):
            cells = {str(row["value"]): f"{number(row, 'ms'):.2f}" for row in part if row["case"] == case}
            lines.append(line([case, *(cells.get(value, "") for value in values)]))
        lines.append("")
    lines += [
        "Everything else is as on ETTh1: H = 24, C = 7, a window of 60, a memory of 500.",
        "",
    ]
    return [*lines, on(sections["growth"]), ""]


def remembers(sections: dict[str, Section]) -> list[str]:
    """Memory, allocations and start-up."""
    lines = ["## Memory, allocations and start-up", ""]
    lines += [made_by("python -m benchmarks.speed.measure --only memory,flat,start"), ""]
    if "memory" in sections:
        lines.append(
            head(["in a process of its own", "H", "C", "peak, MiB", "before, MiB", "allocations", "MiB of them"])
        )
        for row in sections["memory"].rows:
            sizes = [str(row["horizon"]), str(row["channels"])]
            mib = [f"{number(row, name):.0f}" for name in ("peak_mib", "base_mib")]
            counts = [f"{number(row, 'allocations'):.0f}", f"{number(row, 'allocated_mib'):.2f}"]
            lines.append(line([f"{row['case']}, {row['form']}", *sizes, *mib, *counts]))
        lines += [
            "",
            "*Before* is Python, torch and natsr. Allocations are one step's requests to torch for memory.",
            "",
        ]
        lines += [on(sections["memory"]), ""]
    if "flat" in sections:
        rows = sections["flat"].rows
        seen = "; ".join(f"{number(row, 'step'):,.0f}: {number(row, 'mib'):.1f}" for row in rows)
        lines += [f"Resident MiB of a NatSR of width 8 after so many steps: {seen}.", ""]
    if "start" in sections:
        row = sections["start"].rows[0]
        lines += [
            f"`import natsr` and its first use take {number(row, 'import_natsr_beyond_torch_s'):.2f} s beyond torch "
            f"(torch itself {number(row, 'import_torch_s'):.2f} s); `natsr --help` {number(row, 'help_s'):.2f} s; "
            "processor time, in fresh processes.",
            "",
            on(sections["start"]),
            "",
        ]
    return lines if len(lines) > 4 else lines + MISSING


def agrees(sections: dict[str, Section]) -> list[str]:
    """The same forecasts."""
    lines = ["## The same forecasts", "", made_by("python -m benchmarks.speed.same"), ""]
    if "same" not in sections:
        return lines + MISSING
    for row in sections["same"].rows:
        lines.append(
            f"NatSR and the textbook, fed the same random numbers, over {row['steps']} steps of {row['stream']} at "
            f"H = {row['horizon']} in float32: the largest difference of any forecast is "
            f"{number(row, 'largest_difference'):.1e} standard deviations of the data, where a forecast is typically "
            f"{number(row, 'typical_forecast'):.2f}; {row['refreshes']} and {row['textbook_refreshes']} refreshes."
        )
    return [
        *lines,
        "`tests/speed/test_same.py` holds both to 1e-8 in float64, with a small network.",
        "",
        on(sections["same"]),
        "",
    ]


def rendered(results: Path = RESULTS, curved: Path = CURVATURE) -> str:
    """The page, from results."""
    sections = read(results)
    gpu = gpu_page.content(results.with_name("speed-gpu.json"))
    found = [*claims(sections, curved, machines(results.parent) if sections else ()), *gpu_page.claims(gpu)]
    parts = [HEAD, *asked(found), *every_step(sections), *where(sections), *grows(sections), *gpu_page.section(gpu)]
    parts += [*remembers(sections), *agrees(sections), *curvature(curved)]
    return "\n".join(parts).rstrip() + "\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from benchmarks.speed.figures import draw  # matplotlib only where something is drawn

    PAGE.write_text(rendered(), encoding="utf-8")
    drawn = draw(read(), ASSETS)
    names = ", ".join(str(path.relative_to(ROOT)) for path in [PAGE, *drawn])
    sys.stdout.write(f"written: {names}\n")


if __name__ == "__main__":
    main()
