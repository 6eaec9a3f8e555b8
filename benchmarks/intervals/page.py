"""Write the table of `docs/intervals.md` from the committed results; a test fails when it is stale.

python -m benchmarks.intervals.page
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "intervals.jsonl"
PAGE = ROOT / "docs" / "intervals.md"
MARKS = ("<!-- intervals -->", "<!-- /intervals -->")
DRIFT = ROOT / "benchmarks" / "results" / "drift.json"
DRIFT_MARKS = ("<!-- drift -->", "<!-- /drift -->")
DRIFT_HEAD = (
    "| errors | detector | false alarms | found, errors x 2 | rows | found, errors x 4 | rows |",
    "|---|---|---|---|---|---|---|",
)
HEAD = (
    "| method | stream | H | intervals | coverage of 90 % | worst 500 rows | width | CRPS | ms a step |",
    "|---|---|---|---|---|---|---|---|---|",
)


def rendered(results: Path = RESULTS) -> str:
    """The table, one line for each result, as they stand in the file."""
    return "\n".join([*HEAD, *(_row(json.loads(line)) for line in results.read_text(encoding="utf-8").splitlines())])


def _row(result: dict[str, Any]) -> str:
    ours = result["intervals"] == "natsr"
    name = "**natsr**" if ours else result["intervals"]
    cells = [
        result["method"] if ours else "",
        result["dataset"] if ours else "",
        str(result["horizon"]) if ours else "",
        name,
        f"{100 * result['coverage_90']:.1f} %",
        f"{100 * result['worst_coverage_90']:.1f} %",
        f"{result['width_90']:.3f}",
        f"{result['crps']:.4f}",
        f"{result['ms_per_step']:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def drifts(results: Path = DRIFT) -> str:
    """The table of detectors."""
    rows = list(DRIFT_HEAD)
    for result in json.loads(results.read_text(encoding="utf-8")):
        cells = [result["errors"], result["detector"], f"{result['false_alarms']:.1f}"]
        for factor in (2, 4):
            delay = result[f"delay_{factor}"]
            cells += [f"{100 * result[f'found_{factor}']:.0f} %", "–" if delay is None else f"{delay:.0f}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def with_table(text: str, table: str, marks: tuple[str, str] = MARKS) -> str:
    """The page with this table between its marks."""
    before, _, rest = text.partition(marks[0])
    _, _, after = rest.partition(marks[1])
    return f"{before}{marks[0]}\n\n{table}\n\n{marks[1]}{after}"


def main() -> None:
    """Bring the page up to date."""
    text = with_table(PAGE.read_text(encoding="utf-8"), rendered())
    PAGE.write_text(with_table(text, drifts(), DRIFT_MARKS), encoding="utf-8")


if __name__ == "__main__":
    main()
