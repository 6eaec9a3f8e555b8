"""Write the table of `docs/auto.md` from the committed results; a test fails when it is stale.

python -m benchmarks.auto.page
"""

from __future__ import annotations

from pathlib import Path

from natsr.bench.results import read

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "auto-honest.jsonl"
PAGE = ROOT / "docs" / "auto.md"
MARKS = ("<!-- honest -->", "<!-- /honest -->")
HORIZONS = (1, 24, 48)
#: MASE of the best pool of cheap filters known before this one, one configuration for all, at H = 1, 24 and 48.
BEFORE = {
    "ETTh1": (0.761, 1.341, 1.477),
    "ETTh2": (0.874, 1.586, 1.902),
    "ETTm1": (0.905, 1.890, 2.244),
    "ETTm2": (0.969, 1.849, 2.065),
    "WTH": (0.932, 1.784, 2.096),
    "ECL7": (0.578, 0.843, 0.908),
    "Traffic20": (0.529, 0.661, 0.685),
}


def rendered(results: Path = RESULTS) -> str:
    """A line for each dataset: MASE (and that of the pool before), coverage, and its worst stretch."""
    found = {(result.cell.dataset, result.cell.horizon): result for result in read(results)}
    lines = [
        "| | " + " | ".join(f"H = {horizon} (before)" for horizon in HORIZONS) + " | inside 90 % | worst 500 rows |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    gains = []
    for dataset, before in BEFORE.items():
        cells, inside, worst = [], [], []
        for horizon, bar in zip(HORIZONS, before, strict=True):
            result = found.get((dataset, horizon))
            if result is None or "mase" not in result.numbers:
                cells.append(f"{'–' if result is None else 'failed'} ({bar:.3f})")
                continue
            numbers = result.numbers
            gains.append(1 - numbers["mase"] / bar)
            cells.append(f"{numbers['mase']:.3f} ({bar:.3f})")
            inside.append(f"{100 * numbers['coverage_90']:.1f}")
            worst.append(f"{100 * numbers['worst_coverage_90']:.1f}")
        lines.append(f"| {dataset} | {' | '.join(cells)} | {', '.join(inside) or '–'} | {', '.join(worst) or '–'} |")
    if gains:
        below = sum(gain >= 0 for gain in gains)
        mean = 100 * sum(gains) / len(gains)
        side = "below" if mean >= 0 else "above"
        lines += [
            "",
            f"{below} of {len(gains)} cells at or below the pool before; {abs(mean):.1f} % {side} it on average.",
        ]
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """The page with the table between its marks."""
    begin, end = (text.index(mark) for mark in MARKS)
    return f"{text[: begin + len(MARKS[0])]}\n{table}\n{text[end:]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), rendered()), encoding="utf-8")
