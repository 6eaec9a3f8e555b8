"""Write the figures of `benchmarks/results/serve-*.json` into `docs/serve.md`: `python -m benchmarks.serve.page`.

What stands between the marks is a function of those files; `tests/serve/test_figures.py` fails when it is stale.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "serve.md"
RESULTS = ROOT / "benchmarks" / "results"
MARKS = ("<!-- figures -->", "<!-- /figures -->")


def table(head: list[str], lines: list[list[object]]) -> list[str]:
    """In Markdown."""
    shown = [head, ["---"] * len(head), *([str(cell) for cell in line] for line in lines)]
    return ["| " + " | ".join(line) + " |" for line in shown]


def machine(result: Mapping[str, Any]) -> str:
    """On what it was measured."""
    found = result["machine"]
    load = result.get("load_average")
    busy = f"; load average {load[0]:g} at the end, other programs included" if load else ""
    return f"Measured on {found['cores']} cores of {found['cpu']}, Python {found['python']}{busy}."


def crash(result: Mapping[str, Any]) -> list[str]:
    """Kills."""
    shown = {
        "kills": "kills", "acknowledged": "acknowledged rows", "lost": "lost", "doubled": "doubled",
        "forecasts_compared": "forecasts compared", "forecasts_different": "different",
        "forecasts_unanswered": "unanswered",
    }  # fmt: skip
    databases = result["databases"]
    lines = [[name, *(found.get(field, "not counted") for field in shown)] for name, found in databases.items()]
    kills = max(found["kills"] for found in databases.values())
    methods = result["methods"]
    options = f"--kills {kills} --longest {result['longest']:g} --methods {','.join(methods)}"
    said = f"Series of {', '.join(f'`{name}`' for name in methods)} in turn. {machine(result)}"
    command = f"`python -m benchmarks.serve.crash {options}`. {said}"
    return ["### Kills", "", command, "", *table(["database", *shown.values()], lines)]


def hostile(result: Mapping[str, Any]) -> list[str]:
    """Hostile requests."""
    attack, schema = result["attack"], result["schemathesis"]
    statuses = ", ".join(f"{status}: {count:,}" for status, count in attack["statuses"].items())
    cases = next((line.strip() for line in schema["summary"] if "generated" in line), "")
    verdict = "found nothing" if schema["status"] == 0 else "found something"
    options = f"--count {attack['requests']} --raw {attack['raw']} --examples {schema['examples']}"
    lived = "lived on" if attack["alive"] else "did not live on"
    kept = "unchanged" if attack["unchanged"] else "changed"
    return [
        "### Hostile requests",
        "",
        f"`python -m benchmarks.serve.hostile {options}`. {machine(result)}",
        "",
        f"schemathesis {verdict} ({cases}; {schema['examples']} examples for each operation). Of "
        f"{attack['requests']:,} hostile requests and {attack['raw']:,} that are no HTTP, {attack['wrong']} had a "
        f"wrong answer (5xx, or an error in another form); the service {lived} and what was kept before was {kept}. "
        f"Answers: {statuses}.",
    ]


def load(result: Mapping[str, Any]) -> list[str]:
    """Observations a second."""
    head = ["series", "rows in a request", "minutes", "rows learned a second", "acknowledged", "forecast"]
    head += ["processor ms a row: learning, answering", "memory"]
    lines: list[list[object]] = []
    for run in result["runs"]:
        ack, forecast, cpu = run["acknowledgement"], run["forecast"], run["cpu_ms_a_row"]
        lines.append([
            run["series"], run["rows_in_a_request"], f"{run['seconds'] / 60:.1f}", run["rows_per_second"],
            f"p50 {ack['p50_ms']:g}, p99 {ack['p99_ms']:g} ms",
            f"p50 {forecast['p50_ms']:g}, p99 {forecast['p99_ms']:g} ms",
            f"{cpu['learning']:g}, {cpu['answering']:g}",
            f"{run['memory_mib_first']} → {run['memory_mib_last']} MiB",
        ])  # fmt: skip
    title = f"### Load, method `{result['method']}`"
    return [title, "", f"{_load_command(result)}. {machine(result)}", "", *table(head, lines)]


def _load_command(result: Mapping[str, Any]) -> str:
    """What made it."""
    options = f"--minutes {result['minutes']:g}"
    usual = {"series": "1,10,100", "method": "auto", "workers": 2, "warm": 150, "name": "load", "pace": 0.0}
    for name, value in usual.items():
        found = result.get(name, value)
        options += f" --{name} {found}" if found != value else ""
    return f"`python -m benchmarks.serve.load {options}`"


def hour(result: Mapping[str, Any]) -> list[str]:
    """Memory while it goes on."""
    (run,) = result["runs"]
    title = f"### Memory over {result['minutes']:g} minutes, {run['series']} series of `{result['method']}`"
    rows = f"{run['rows_learned']:,} rows, {run['rows_per_second']} a second"
    rows += " (clients posted no more than that: this is about memory)" if result.get("pace") else ""
    line = ", ".join(map(str, run["memory_mib"]))
    return [title, "", f"{_load_command(result)}. {machine(result)}", "", f"{rows}; MiB, from first to last: {line}."]


def idle(result: Mapping[str, Any]) -> list[str]:
    """Many series."""
    return [
        "### Idle series",
        "",
        "`python -m benchmarks.serve.idle`. " + machine(result),
        "",
        f"{result['series']:,} series of `natsr` with {result['resident']} learners in memory: "
        f"{result['memory_mib_begin']} MiB after the start, {result['memory_mib_peak']} MiB at most while every series "
        f"was asked once. A learner came back from its snapshot in {result['back_ms_p50']:g} ms (p99 "
        f"{result['back_ms_p99']:g}); {result['different_forecasts']} of the forecasts differed from the others.",
    ]


def memory(result: Mapping[str, Any]) -> list[str]:
    """Many rows."""
    head = ["rows learned", *(f"{note['rows']:,}" for note in result["notes"])]
    line: list[object] = ["MiB", *(f"{note['memory_mib']:g}" for note in result["notes"])]
    title = f"### Memory over many rows, {result['series']} series of `{result['method']}`"
    rows = result["notes"][-1]["rows"]
    command = f"`python -m benchmarks.serve.memory --rows {rows} --method {result['method']}`"
    return [title, "", f"{command}. {machine(result)}", "", *table(head, [line])]


SECTIONS: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "serve-crash.json": crash,
    "serve-hostile.json": hostile,
    "serve-load.json": load,
    "serve-load-natsr.json": load,
    "serve-hour.json": hour,
    "serve-memory.json": memory,
    "serve-idle.json": idle,
}


def rendered(text: str, folder: Path = RESULTS) -> str:
    """The page with the figures of the results that are there."""
    before, mark, rest = text.partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    assert mark and end, "docs/serve.md has lost its marks"
    blocks = []
    for name, section in SECTIONS.items():
        if (folder / name).exists():
            blocks.append("\n".join(section(json.loads((folder / name).read_text(encoding="utf-8")))))
    return f"{before}{mark}\n" + "\n\n".join(blocks) + f"\n{end}{after}"


def main() -> None:
    """Write it."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
