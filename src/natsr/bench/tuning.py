"""Choosing a method's online rate, and NatSR's averages, by trial: Optuna's tree of Parzen estimators.

A trial is one set of options, run over some horizons and seeds; its cells are kept as results like any others. What was
tried is read from them, so a search goes on after a kill, and can be shown as a table. Optuna is needed here only.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from natsr.bench.cells import Cell, Result
from natsr.bench.fanout import Mapper, Run
from natsr.recipes import NETWORKS
from natsr.types import OptionError

TRIALS = 30
#: Between which rates is looked; plain steps along a natural gradient are longer than those of AdamW.
RATES = {"natsr": (1e-3, 0.3)}
USUAL_RATES = (1e-5, 1e-2)
#: Methods that average their updates and their curvature: the weight of a new one may be looked for too.
AVERAGING = ("natsr", "natsr_fast")
AVERAGES = {"average": (0.05, 1.0), "curvature_average": (0.01, 1.0)}
#: Options whose size is looked for, not their value.
LOGARITHMIC = ("rate", "curvature_average")
#: A trial that failed counts as this many times the worst that did not.
PENALTY = 2.0


class Trial(NamedTuple):
    """A set of options and what came of it."""

    options: dict[str, float]
    value: float | None  # the mean MASE over its cells; none if one of them failed


@dataclass(frozen=True)
class Search:
    """What is looked for, and on what.

    Args:
        cells: The experiments of one trial, without the options that are looked for: horizons and seeds.
        trials: How many, with those that were made before.
        seed: Of the proposals.
        over: The options that are looked for; the rate, and with NatSR the average of its updates, if none are named.
    """

    cells: tuple[Cell, ...]
    trials: int = TRIALS
    seed: int = 0
    over: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.cells or self.trials < 1:
            raise OptionError(f"got {len(self.cells)} cells and {self.trials} trials, expected at least one of each")
        if self.method not in NETWORKS or self.method == "frozen":
            names = ", ".join(name for name in NETWORKS if name != "frozen")
            raise OptionError(f"{self.method} has no online rate to tune, expected one of {names}")
        unknown = [name for name in self.over if name not in self.known]
        if unknown or len(set(self.over)) < len(self.over):
            names = ", ".join(self.known)
            raise OptionError(f"{', '.join(unknown or self.over)} cannot be tuned, expected some of {names}, each once")
        fixed = {name for cell in self.cells for name, _ in cell.options} & set(self.space)
        if fixed:
            raise OptionError(f"{', '.join(sorted(fixed))} is both set and to be tuned; leave the setting out")

    @property
    def method(self) -> str:
        """The one that is tuned."""
        return self.cells[0].method

    @property
    def known(self) -> dict[str, tuple[float, float]]:
        """What can be looked for, and between which values."""
        return {"rate": RATES.get(self.method, USUAL_RATES), **(AVERAGES if self.method in AVERAGING else {})}

    @property
    def space(self) -> dict[str, tuple[float, float]]:
        """What is looked for, and between which values."""
        usual = tuple(name for name in self.known if name != "curvature_average")
        return {name: self.known[name] for name in self.over or usual}

    def trial(self, options: dict[str, float]) -> list[Cell]:
        """The experiments of a trial."""
        return [replace(cell, options=(*cell.options, *options.items())) for cell in self.cells]

    def tried(self, results: Iterable[Result]) -> tuple[list[Trial], list[dict[str, float]]]:
        """The trials that are complete, in the order in which they began, and the options of those that are not."""
        known = {result.cell.key: result for result in results}
        seen: dict[tuple[tuple[str, float], ...], None] = {}
        for result in known.values():
            found = {name: float(value) for name, value in result.cell.options if name in self.space}
            plain = replace(result.cell, options=tuple(o for o in result.cell.options if o[0] not in self.space))
            if len(found) == len(self.space) and plain.key in {cell.key for cell in self.cells}:
                seen[tuple(sorted(found.items()))] = None
        complete, torn = [], []
        for place in seen:
            options = {name: dict(place)[name] for name in self.space}
            outcomes = [known[cell.key] for cell in self.trial(options) if cell.key in known]
            if len(outcomes) < len(self.cells):
                torn.append(options)
            else:
                complete.append(Trial(options, _value(outcomes)))
        return complete, torn


def _value(results: Sequence[Result]) -> float | None:
    figures = [result.numbers.get("mase") for result in results]
    known = [figure for figure in figures if figure is not None]
    return fmean(known) if len(known) == len(results) else None


class Proposals:
    """Asks Optuna what to try next, given what was tried."""

    def __init__(self, search: Search) -> None:
        self._optuna = _optuna()
        self._search = search
        self._space = {
            name: self._optuna.distributions.FloatDistribution(*ends, log=name in LOGARITHMIC)
            for name, ends in search.space.items()
        }

    def next(self, done: Sequence[Trial], count: int) -> list[dict[str, float]]:
        """Options for so many more trials, with few digits, none of which were tried."""
        study = self._study(done)
        tried = [trial.options for trial in done]
        found: list[dict[str, float]] = []
        for _ in range(20 * count):
            options = {name: few_digits(value) for name, value in study.ask(self._space).params.items()}
            if options not in tried and options not in found:
                found.append(options)
            if len(found) == count:
                break
        return found

    def _study(self, done: Sequence[Trial]) -> Any:
        sampler = self._optuna.samplers.TPESampler(seed=self._search.seed + len(done))
        study = self._optuna.create_study(sampler=sampler)
        known = [trial.value for trial in done if trial.value is not None and math.isfinite(trial.value)]
        worst = PENALTY * max(known, default=1.0)
        for trial in done:
            value = trial.value if trial.value is not None and math.isfinite(trial.value) else worst
            made = self._optuna.trial.create_trial(params=trial.options, distributions=self._space, value=value)
            study.add_trial(made)
        return study


def few_digits(value: float) -> float:
    """With three of them: a rate that nobody can read is not better for it.

    >>> few_digits(0.0123456), few_digits(1.0)
    (0.0123, 1.0)
    """
    return float(f"{value:.3g}")


def _optuna() -> Any:
    try:
        optuna = importlib.import_module("optuna")
    except ImportError as error:
        raise OptionError("Optuna is not installed, and natsr tune needs it; pip install 'natsr[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def tune(
    search: Search, place: Mapper, run: Run, known: Iterable[Result], keep: Callable[[Result], None], at_once: int = 1
) -> Iterator[Trial]:
    """Try options until there are enough trials; yields each that is complete.

    Args:
        search: What is looked for.
        place: Where cells run.
        run: Runs one.
        known: Results of before, of this search and of whatever else.
        keep: Called with each new result.
        at_once: Trials that are proposed together, for as many workers.
    """
    proposals = Proposals(search)
    results = list(known)
    while True:
        done, torn = search.tried(results)
        left = search.trials - len(done)
        if left <= 0:
            return
        batch = (torn + proposals.next(done, max(0, min(at_once, left) - len(torn))))[:left]
        if not batch:
            return
        there = {result.cell.key for result in results}
        for result in place(
            run, [cell for options in batch for cell in search.trial(options) if cell.key not in there]
        ):
            keep(result)
            results.append(result)
        yield from (trial for trial in search.tried(results)[0] if trial not in done)


def best(trials: Iterable[Trial]) -> Trial | None:
    """The one with the lowest error; none if all failed."""
    known = [trial for trial in trials if trial.value is not None]
    return min(known, key=lambda trial: trial.value or math.inf, default=None)
