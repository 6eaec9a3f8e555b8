"""How good NatSR's Fisher information is: `make bench-curvature`, several minutes.

Two questions, on ETTh1, honest protocol, H = 24. How far each way of estimating a layer's output factor `G` is from
1,000 Monte-Carlo samples on the same nine examples (relative Frobenius norm, mean over moments of the stream): every
output in turn (exact), few probes of each kind, and the paper's 100 samples. And what it does to the error of the
forecasts: MASE over the first steps of the online part, for several seeds, all ways beginning with the same weights.
Writes `benchmarks/results/curvature.json`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

import torch
from benchmarks.speed.machine import describe
from torch import Tensor

from natsr.bench.cells import warm_up
from natsr.data.named import load
from natsr.data.series import Prepared, prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.natural import NaturalOptions, Probe, WeightedLoss, estimate
from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.tcn import ConeTrace
from natsr.recipes import NatsrOptions, make
from natsr.streams import Windows

RESULTS = Path(__file__).resolve().parent / "results" / "curvature.json"
PROBES, SAMPLES, REFERENCE = 8, 100, 1000
WINDOW, HORIZON, REPLAYED, SHARE = 60, 24, 8, 0.2


class Way(NamedTuple):
    """A way to estimate."""

    probes: int  # 0: every output
    probe: Probe
    allotted: bool = False  # light examples get fewer
    closed: bool = False  # the layers right below the head in closed form

    @property
    def name(self) -> str:
        """What it is called in tables."""
        if not self.probes:
            return "exact"
        more = [name for name, is_so in (("allotted", self.allotted), ("closed forms", self.closed)) if is_so]
        return ", ".join([self.probe, str(self.probes), *more])

    def on(self, options: NaturalOptions) -> NaturalOptions:
        """The same method with this estimate."""
        return replace(options, **self._asdict())


RECIPE = NatsrOptions().natural().options
USUAL = Way(RECIPE.probes, RECIPE.probe, RECIPE.allotted, RECIPE.closed)


def ways() -> list[Way]:
    """Exact, eight probes of every kind there is, the recipe's own way, and a hundred samples."""
    kinds: tuple[Probe, ...] = get_args(Probe)
    few = [Way(PROBES, kind) for kind in kinds]
    return list(dict.fromkeys([Way(0, "rademacher"), *few, USUAL, Way(SAMPLES, "sampled")]))


def warmed(data: Prepared, seed: int, epochs: int) -> NeuralForecaster[ConeTrace]:
    """NatSR after its offline phase."""
    found = make("natsr", data.task(WINDOW, HORIZON), seed=seed, options={"epochs": epochs})
    assert isinstance(found, NeuralForecaster)
    warm_up(found, data, data.borders)
    return found


# ---- the estimate ------------------------------------------------------------------------------------------------


def factors(
    forecaster: NeuralForecaster[ConeTrace], window: Tensor, weights: Tensor, way: Way, generator: torch.Generator
) -> list[Tensor]:
    """`G` of every layer but the head, whose own is exact."""
    assert forecaster.natural is not None
    options = way.on(forecaster.natural.options)
    trace = forecaster.net.trace(forecaster.frame.read(window, forecaster.net.weights))
    batch = WeightedLoss(0.0, forecaster.likelihood, weights, 1.0)
    return [block.g for block in estimate(forecaster.net, trace, batch, options, generator)[:-1]]


def errors(forecaster: NeuralForecaster[ConeTrace], data: Prepared, moments: int) -> list[dict[str, str | float]]:
    """Relative error of each layer's factor against many samples, for every way; a mean over moments."""
    generator = torch.Generator().manual_seed(7)
    stream = Windows(data.rows, forecaster.task, data.borders.valid, data.borders.online)
    weights = torch.tensor([1.0] + [SHARE / REPLAYED] * REPLAYED) / (1 + SHARE)
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(moments):
        window = stream.batch(torch.randint(0, len(stream), (1 + REPLAYED,), generator=generator)).window
        truth = factors(forecaster, window, weights, Way(REFERENCE, "sampled"), generator)
        for way in ways():
            guess = factors(forecaster, window, weights, way, generator)
            for layer, mine, other in zip(forecaster.net.layers, guess, truth, strict=False):
                found.setdefault((way.name, layer.name), []).append(float((mine - other).norm() / other.norm()))
    return [
        {"way": way, "layer": layer, "error": round(statistics.fmean(values), 4)}
        for (way, layer), values in found.items()
    ]


# ---- its effect --------------------------------------------------------------------------------------------------


def effects(warm: NeuralForecaster[ConeTrace], data: Prepared, seed: int, steps: int) -> list[dict[str, str | float]]:
    """MASE of every way over the first steps, all from the same weights."""
    learners: dict[str, NeuralForecaster[ConeTrace]] = {}
    for way in ways():
        learner = make("natsr", warm.task)
        assert isinstance(learner, NeuralForecaster) and learner.natural is not None
        learner.natural.options = way.on(learner.natural.options)
        learner.load_state_dict(warm.state_dict())
        learners[way.name] = learner

    def look(moment: Moment) -> None:
        if moment.done % 100 == 0:
            sys.stderr.write(f"\rseed {seed}: {moment.done} of {moment.total} ")

    scores = evaluate(
        learners,
        data.rows,
        warm.task,
        start=data.borders.valid,
        stop=data.borders.online,
        max_steps=steps,
        intervals=False,
        on_step=look,
    )
    found: list[dict[str, str | float]] = []
    for name, score in scores.items():
        mase = score.result()["mase"]
        assert isinstance(mase, float)
        refreshes = learners[name].info()["refreshes"]
        found.append({"way": name, "seed": seed, "mase": round(mase, 4), "refreshes": refreshes})
    return found


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--moments", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    machine = describe()
    series, borders = load("ETTh1")
    data = prepare(series, borders)
    layers: list[dict[str, str | float]] = []
    mases: list[dict[str, str | float]] = []
    for seed in range(given.seeds):
        warm = warmed(data, seed, given.epochs)
        if not seed:
            layers = errors(warm, data, given.moments)
        mases += effects(warm, data, seed, given.steps)
    kept: dict[str, Any] = {"machine": machine, "dataset": "ETTh1", "protocol": "honest", "horizon": HORIZON}
    kept |= {"steps": given.steps, "moments": given.moments, "reference_samples": REFERENCE}
    kept["recipe"] = USUAL.name
    given.out.write_text(json.dumps(kept | {"layers": layers, "mase": mases}, indent=1) + "\n", encoding="utf-8")
    for way in ways():
        off = [float(row["error"]) for row in layers if row["way"] == way.name]
        mase = [float(row["mase"]) for row in mases if row["way"] == way.name]
        text = f"{way.name:16} error of G {statistics.fmean(off):.3f}, largest {max(off):.3f}, MASE {mase}"
        sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
