"""The page's figures, as SVG."""

from __future__ import annotations

from pathlib import Path

from benchmarks.speed.floor import STAGES
from benchmarks.speed.steps import number
from benchmarks.speed.store import Section
from matplotlib import rc_context
from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#999933")
LABELS = {
    "horizon": "horizon H",
    "channels": "columns C",
    "window": "window L",
    "buffer": "memory, examples",
    "learners": "learners in one step",
}


def draw(sections: dict[str, Section], folder: Path) -> list[Path]:
    """All that there are results for."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    # Text stays text, and the same results give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "natsr", "font.size": 8}):
        if "growth" in sections:
            found.append(_kept(_growth(sections["growth"]), folder / "speed-growth.svg"))
        if "stages" in sections:
            found.append(_kept(_stages(sections["stages"]), folder / "speed-stages.svg"))
    return found


def _kept(figure: Figure, path: Path) -> Path:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    return path


def _growth(section: Section) -> Figure:
    axes = list(dict.fromkeys(str(row["axis"]) for row in section.rows))
    cases = list(dict.fromkeys(str(row["case"]) for row in section.rows))
    colours, labelled = dict(zip(cases, COLOURS, strict=False)), set[str]()
    figure = Figure(figsize=(2.1 * len(axes), 2.8), layout="constrained")
    for place, axis in enumerate(axes, 1):
        plot = figure.add_subplot(1, len(axes), place)
        part = [row for row in section.rows if row["axis"] == axis]
        for case in dict.fromkeys(str(row["case"]) for row in part):
            line = [(number(row, "value"), number(row, "ms")) for row in part if row["case"] == case]
            label = None if case in labelled else case  # each once, below all panels
            labelled.add(case)
            plot.plot(*zip(*line, strict=True), marker="o", markersize=3, color=colours.get(case, "black"), label=label)
        plot.set_xscale("log")
        plot.set_yscale("log")
        plot.set_xlabel(LABELS.get(axis, axis))
        if place == 1:
            plot.set_ylabel("ms a step")
    figure.legend(loc="outside lower center", ncols=len(cases), frameon=False, fontsize=7)
    return figure


def _stages(section: Section) -> Figure:
    rows = [row for row in section.rows if row["case"] != "forecast"]
    cases = list(dict.fromkeys(str(row["case"]) for row in rows))
    figure = Figure(figsize=(7.5, 2.4), layout="constrained")
    plot = figure.add_subplot()
    left = dict.fromkeys(cases, 0.0)
    for colour, stage in zip(COLOURS, STAGES, strict=True):
        widths = {str(row["case"]): number(row, "ms") for row in rows if row["stage"] == stage}
        plot.barh(cases, [widths.get(case, 0.0) for case in cases], left=list(left.values()), color=colour, label=stage)
        left = {case: left[case] + widths.get(case, 0.0) for case in cases}
    whole = {str(row["case"]): number(row, "ms") for row in rows if row["stage"] == "step"}
    rest = [max(0.0, whole[case] - left[case]) for case in cases]
    plot.barh(cases, rest, left=list(left.values()), color="#dddddd", label="the rest")
    plot.invert_yaxis()
    plot.set_xlabel("ms")
    plot.legend(frameon=False, fontsize=7, ncols=2, loc="upper right")
    return figure
