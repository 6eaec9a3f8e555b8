"""What each part of `auto` adds: the error without it over the error with all, on each dataset.

python -m benchmarks.auto.parts --out benchmarks/results/auto-parts.json [--rows 6000] [--horizons 24,1]

No expert looks at what another one says. So all of them go through a stream once, and what they say is mixed again
without a part, by the same code, guard included. Scored are the first `--rows` of the online part. Entries that are
there already are kept.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from natsr import auto
from natsr.data.named import load
from natsr.data.series import prepare
from natsr.experts.native import Place
from natsr.experts.panel import Panel
from natsr.experts.past import Array, Arrays, Past
from natsr.mixtures import Layer, Layers

Said = npt.NDArray[np.float32]
DATASETS = ("ETTh1", "ETTh2", "ECL7", "WTH", "ETTm1", "ETTm2", "Traffic20")
WINDOW = 60
PERIODS, KINDS = ("day", "week", "found"), ("value", "mean", "change")
#: Experts by how their names begin.
PARTS: Mapping[str, tuple[str, ...]] = {
    "seasonal values and means": (
        "day_value",
        "day_mean",
        "day_change",
        "week_v",
        "week_m",
        "week_c",
        "found_",
        "mean_",
    ),
    "medians": ("median_",),
    "analogs": ("analog_",),
    "analogs of whole days and weeks": ("analog_day", "analog_week"),
    "Holt-Winters and scores": ("day_winters", "day_score", "week_winters", "week_score", "found_winters"),
    "60 lags and fewer": ("lags60", "lags25"),
    "200 and 400 lags": ("lags200", "lags400"),
    "seasons": ("seasons", "turned"),
    "other columns": ("neighbours", "everything"),
    "fast, all columns": ("everything_quick",),
    "networks": ("network",),
    "all networks but one": ("network_week", "network_short", "network_wide"),
}
ONE = (Layer(0.999, "near"),)
OF_LATE = (*auto.LAYERS[:4], *auto.LAYERS[5:])
NOT_BY_STEP = tuple(layer for layer in auto.FURTHER if not (layer.power and layer.pooling == "near"))


class Told:
    """Experts that say what they said."""

    def __init__(self, said: Said, names: tuple[str, ...]) -> None:
        self._said, self.names = said, names

    def observe(self, past: Past) -> None:
        """Nothing to learn."""

    def forecast(self, past: Past, out: Array) -> None:
        """As it was."""
        out[:] = self._said[past.seen - 1]

    def native(self, _: Past, /) -> Place | None:
        """It is asked from here."""
        return None

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


class Still:
    """No periods are looked for."""

    def look(self, _: Past, /) -> bool:
        """Nothing to look for."""
        return False

    def arrays(self) -> Arrays:
        """Nothing to carry on."""
        return {}


def heard(values: Array, panel: Panel, horizon: int) -> Said:
    """What every expert of a panel says after each row, `(T, E, H, C)`."""
    said = np.empty((len(values), len(panel.names), horizon, values.shape[1]), dtype=np.float32)
    for row, answer in zip(values, said, strict=True):
        panel.advance(row)
        answer[:] = panel.newest()
    return said


def mixed(
    values: Array, said: Said, names: tuple[str, ...], layers: tuple[Layer, ...], first: int, *, word: bool = True
) -> float:
    """The MAE of the mixture of these experts from row `first` on; `word` as `Layers` has it."""
    rows, experts, horizon, channels = said.shape
    rule = Layers(experts, (horizon, channels), layers, dtype=np.float32, word=word)
    panel = Panel(Past(channels, 4 * horizon + 64, horizon), Still(), [Told(said, names)], rule, horizon)
    total, count = 0.0, 0
    for row in range(rows - horizon):
        if row == first + 1:
            panel.settle()
        panel.advance(values[row])
        if row >= first:
            error = np.abs(panel.mean() - values[row + 1 : row + 1 + horizon])
            total, count = total + float(np.nansum(error)), count + int(np.isfinite(error).sum())
    return total / count


def parts(dataset: str, horizon: int, rows: int) -> dict[str, float]:
    """MAE with all, and over it that without each part."""
    series, borders = load(dataset)
    ready = prepare(series, borders)
    task = ready.task(WINDOW, horizon)
    values = ready.rows.truth[: borders.valid + rows].double().numpy()
    panel = auto.panel(task, "one")
    said, names, first = heard(values, panel, horizon), panel.names, borders.valid - 1

    def without(begins: tuple[str, ...]) -> float:
        there = [place for place, name in enumerate(names) if not name.startswith(begins)]
        kept = tuple(names[place] for place in there)
        return mixed(values, np.ascontiguousarray(said[:, there]), kept, auto.layers(horizon), first)

    whole = mixed(values, said, names, auto.layers(horizon), first)
    found = {"mae": whole}
    for name, begins in PARTS.items():
        found[name] = without(begins) / whole
    if horizon > 1:
        whose = mixed(values, said, names, auto.layers(horizon), first, word=False)
        found["the last word of all that was lost"] = whose / whole
        found["mixtures by the losses of each step"] = mixed(values, said, names, NOT_BY_STEP, first) / whole
    found["mixtures by losses"] = mixed(values, said, names, auto.LAYERS[:4], first) / whole
    found["the one of them that forgets slowly"] = mixed(values, said, names, OF_LATE, first) / whole
    found["all mixtures but one"] = mixed(values, said, names, ONE, first) / whole
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--horizons", default="24,1")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, dict[str, float]] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for horizon in map(int, given.horizons.split(",")):
        for dataset in given.datasets.split(","):
            key = f"{dataset}, H = {horizon}, {given.rows} rows"
            if key not in found:
                found[key] = parts(dataset, horizon, given.rows)
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
