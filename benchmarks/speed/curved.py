"""The page's part on the Fisher estimate, from `benchmarks/results/curvature.json`."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def effect(path: Path) -> tuple[float, str] | None:
    """Mean MASE of the recipe's own estimate less that of the exact one, and over what; nothing without results."""
    found = _read(path)
    if found is None:
        return None
    means, seeds = _means(found), len({row["seed"] for row in found["mase"]})
    return means[found["recipe"]] - means["exact"], f"{found['steps']:,} steps, {seeds} seed(s)"


def _means(found: dict[str, Any]) -> dict[str, float]:
    ways = dict.fromkeys(row["way"] for row in found["mase"])
    return {way: fmean(row["mase"] for row in found["mase"] if row["way"] == way) for way in ways}


def curvature(path: Path) -> list[str]:
    """Errors by layer, and MASE by seed."""
    lines = ["## The Fisher estimate", "", "Measured by `make bench-curvature`.", ""]
    found = _read(path)
    if found is None:
        return [*lines, "**Missing:** there are no such results yet.", ""]
    means = _means(found)
    ways, seeds = list(means), sorted({row["seed"] for row in found["mase"]})
    lines += [
        f"Relative error of each layer's output factor `G` against {found['reference_samples']:,} Monte-Carlo samples, "
        f"which are as far from the truth as `exact` is from them; a mean over {found['moments']} moments of "
        f"{found['dataset']}, H = {found['horizon']}. The head's factor is exact in every case.",
        "",
        f"| layer | {' | '.join(ways)} |\n|---|{'--:|' * len(ways)}",
    ]
    errors = {(row["way"], row["layer"]): row["error"] for row in found["layers"]}
    for layer in dict.fromkeys(row["layer"] for row in found["layers"]):
        lines.append(f"| {layer} | {' | '.join(f'{errors[way, layer]:.3f}' for way in ways)} |")
    lines += [
        "",
        f"What it does to the forecasts: MASE over the first {found['steps']:,} steps of the online part, "
        f"{found['protocol']}, all ways beginning with the same weights.",
        "",
        f"| MASE | {' | '.join(ways)} |\n|---|{'--:|' * len(ways)}",
    ]
    mase = {(row["way"], row["seed"]): row["mase"] for row in found["mase"]}
    for seed in seeds:
        lines.append(f"| seed {seed} | {' | '.join(f'{mase[way, seed]:.4f}' for way in ways)} |")
    lines.append(f"| mean | {' | '.join(f'{means[way]:.4f}' for way in ways)} |")
    m = found["machine"]
    return [*lines, "", f"*torch {m['torch']}, natsr {m['natsr']}, {m['day']}.*", ""]
