"""`natsr tune`: the online rate of a method, and NatSR's averages, chosen by trial."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from natsr.bench.cells import Cell, Result
    from natsr.bench.tuning import Search, Trial

_AT_ONCE = {"together": 6}  # trials that are proposed at once where they are one step for all; five times for 30


@dataclass(frozen=True)
class Tune:
    """Choose the online rate of a method (and, for NatSR, the weight of a new update in their average) by trial.

    By default the validation part plays the stream and the online part is never looked at: what comes out may be used
    for honest figures, with --tuned-on validation. With --tuned-on test the trials run on the very stream that is
    scored, under the protocol paper, as the published tables were tuned; whatever uses that must say so. Trials are
    kept as results, so a search goes on where it stopped. Needs Optuna: install the extra `tune` of natsr.

    Examples:
      natsr tune --method natsr --dataset ETTh1 --out natsr-etth1.jsonl
      natsr tune --method er --dataset load.csv --horizons 1,24 --trials 20 --on processes --out er.jsonl
      natsr tune --method natsr_fast --dataset ETTh1 --tuned-on test --max-steps 2500 --out published.jsonl
      natsr tune --method natsr --dataset ETTh1 --over rate,curvature_average --out curvature.jsonl
    """

    method: Annotated[str, typer.Option(help="One that learns a network online.")]
    dataset: Annotated[str, typer.Option(help="A named dataset (natsr data list) or the path of a CSV.")]
    out: Annotated[Path, typer.Option(metavar="FILE", help="Results of the trials, one line of JSON for each cell.")]
    horizons: Annotated[str, typer.Option(metavar="1,24", help="Rows ahead; a trial is their mean MASE.")] = "24"
    seeds: Annotated[str, typer.Option(metavar="0-2", help="Seeds; a trial is the mean over them too.")] = "0"
    trials: Annotated[int, typer.Option(help="How many, with those that are in the file.")] = 30
    over: Annotated[
        str | None,
        typer.Option(
            metavar="rate,average",
            help="What is tried: rate; and of NatSR average and curvature_average, the weights of a new update and of "
            "new curvature.",
            show_default="rate; rate,average for NatSR",
        ),
    ] = None
    tuned_on: Annotated[
        str, typer.Option(metavar="validation|test", help="The part before the stream; or the stream itself.")
    ] = "validation"
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="honest|partial|paper", help="As in natsr bench.", show_default="honest; paper with --tuned-on test"
        ),
    ] = None
    window: Annotated[int, typer.Option(help="Rows that a network sees.")] = 60
    max_steps: Annotated[int | None, typer.Option(help="Stop each cell after so many forecasts.")] = None
    set: Annotated[
        list[str], typer.Option(metavar="KEY=VALUE", help="Set another option of the method, the same in every trial.")
    ] = field(default_factory=list)
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where networks compute.")] = "cpu"
    on: Annotated[str, typer.Option(metavar="serial|together|processes|ray", help="Where cells run.")] = "serial"
    workers: Annotated[int | None, typer.Option(help="Processes, with --on processes.", show_default="cores")] = None


def tune(settings: Tune) -> None:
    """Do what the settings say."""
    import torch

    from natsr.bench.cells import run_cell
    from natsr.bench.fanout import mapper
    from natsr.bench.results import appending, read
    from natsr.bench.tuning import best
    from natsr.bench.tuning import tune as search_on
    from natsr.cli.bench import check
    from natsr.cli.show import Watch, note

    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    search = wanted(settings)
    on = "together" if settings.on == "serial" and settings.device != "cpu" else settings.on  # as in natsr bench
    place = mapper(on, settings.workers)
    at_once = 1 if on == "serial" else (settings.workers or _AT_ONCE.get(on) or os.cpu_count() or 1)
    check(list(search.cells))
    with appending(settings.out) as append, Watch() as watch:
        known = read(settings.out)
        trials = search.tried(known)[0]
        if trials:
            note(f"{len(trials)} trials are in {settings.out}")

        def run_here(cell: Cell) -> Result:
            return run_cell(cell, lambda done, of, what: watch.update({"cell": cell.key}, done, of, what))

        run = run_here if on == "serial" else run_cell
        for trial in search_on(search, place, run, known, append, at_once):
            trials.append(trial)
            leader = best(trials)
            remark = f"{worded(trial)}; best {worded(leader)}" if leader is not None else worded(trial)
            watch.update({"trials": remark}, len(trials), search.trials)
    _summary(settings, trials)


def wanted(settings: Tune) -> Search:
    """The search that the settings ask for."""
    from natsr.bench.cells import Cell
    from natsr.bench.tuning import Search
    from natsr.cli.given import names, whole_numbers
    from natsr.cli.given import settings as given
    from natsr.streams import check_protocol
    from natsr.types import OptionError

    if settings.tuned_on not in ("validation", "test"):
        raise OptionError(f"--tuned-on is {settings.tuned_on!r}, expected validation or test")
    published = settings.tuned_on == "test"
    options = tuple(given(settings.set, settings.method, [settings.method]).items())
    cells = tuple(
        Cell(
            settings.method,
            settings.dataset,
            horizon,
            seed,
            check_protocol(settings.protocol or ("paper" if published else "honest")),
            "online" if published else "validation",
            options,
            "test" if published else "nothing",
            settings.window,
            settings.max_steps,
            settings.device,
            intervals=False,
        )
        for horizon in whole_numbers(settings.horizons, "horizons")
        for seed in whole_numbers(settings.seeds, "seeds")
    )
    over = () if settings.over is None else tuple(names(settings.over, "over"))
    return Search(cells, settings.trials, over=over)


def worded(trial: Trial) -> str:
    """A trial in a few words."""
    options = " ".join(f"{name}={value:g}" for name, value in trial.options.items())
    return f"{options}: {'failed' if trial.value is None else f'{trial.value:.4f}'}"


def _summary(settings: Tune, trials: Sequence[Trial]) -> None:
    from natsr.bench.tuning import best
    from natsr.cli.show import note

    leader = best(trials)
    if leader is None:
        note(f"all {len(trials)} trials failed; natsr table {settings.out} shows them")
        raise typer.Exit(1)
    ranked = sorted((trial for trial in trials if trial.value is not None), key=lambda trial: trial.value or 0.0)
    typer.echo(f"MASE of {settings.method} on {settings.dataset}, the best of {len(trials)} trials:")
    for trial in ranked[:5]:
        typer.echo(f"  {worded(trial)}")
    chosen = " ".join(f"--set {settings.method}.{name}={value:g}" for name, value in leader.options.items())
    note(f"to use it: natsr bench … {chosen} --tuned-on {settings.tuned_on}")
