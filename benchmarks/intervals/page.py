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


def with_table(text: str, table: str) -> str:
    """The page with this table between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{after}"


def main() -> None:
    """Bring the page up to date."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rendered()), encoding="utf-8")


if __name__ == "__main__":
    main()
