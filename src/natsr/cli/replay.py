"""The work of `natsr run` on a file: load, warm up, one pass over the stream, and what is written about it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from natsr.bench.cells import WITHOUT_NETWORK, Cell, Result, calendar_of, make_for, result_of, warm_up
from natsr.bench.results import to_line
from natsr.bench.tables import FAILED, MISSING, number
from natsr.cli import given
from natsr.cli.beside import beside
from natsr.cli.drifts import Drifts
from natsr.cli.forecasts import Forecasts
from natsr.cli.run import SAMPLE, SAMPLE_ROWS, Run
from natsr.cli.show import Watch, note, output
from natsr.cli.sizes import roomy, sized
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, Series, check_repeated, prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.base import Forecaster
from natsr.forecasters.whose import Mixed, weights_of
from natsr.metrics import Scores
from natsr.report.page import write
from natsr.report.record import Recorder
from natsr.streams import check_protocol
from natsr.types import DataError, OptionError, Task

#: Some method failed on the way; the others are there.
INCOMPLETE = 1
#: A column that holds more than this share of all change from row to row is worth a remark.
DOMINANT = 0.6
#: A share below this is none in words.
LEAST = 0.005
#: What the table at the end shows, under which heading.
FIGURES = {
    "mase": "MASE",
    "mae": "MAE",
    "mse": "MSE",
    "crps": "CRPS",
    "coverage_90": "in 90 %",
    "ms_per_step": "ms/step",
    "warm_seconds": "warm-up s",
    "refused": "refused",
}


@dataclass(frozen=True)
class Plan:
    """A run that is ready to begin: everything that can be refused has been."""

    cells: Mapping[str, Cell]
    data: Prepared
    task: Task
    forecasters: Mapping[str, Forecaster]
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()


def replay(settings: Run) -> None:
    """Do what the settings say."""
    torch.set_num_threads(1)  # the matrices are small; more threads only wait for each other
    out = folder(settings)
    plan = planned(settings)
    for name, fact in plan.facts.items():
        note(f"{name}: {fact}")
    notes = (*plan.notes, *plan.data.series.notes, *dominated(plan.data))
    for remark in notes:
        note(remark)
    with Watch() as watch:
        warm_seconds = {name: _warm(name, plan, watch) for name in plan.cells}
        recorder = Recorder(plan.data, plan.task, plan.forecasters)
        drifts = Drifts(plan.data, leader := next(iter(plan.cells)))
        scores = _stream(plan, settings.protocol, out / "forecasts.csv", (recorder, drifts.on_step), watch)
    results = [
        result_of(plan.cells[name], scores[name], forecaster.info(), warm_seconds[name], weights_of(forecaster))
        for name, forecaster in plan.forecasters.items()
    ]
    _keep(out / "results.jsonl", results)
    report = recorder.report(
        scores,
        title=f"{plan.data.series.name}, {plan.task.horizon} rows ahead",
        dataset=next(iter(plan.cells.values())).dataset,
        protocol=settings.protocol,
        facts={**plan.facts, "Drift": f"{leader}: {drifts.said()}"},
        notes=notes,
        command=command(settings),
    )
    write(out / "report.html", report)
    output().print(as_text(results))
    for name, forecaster in plan.forecasters.items():
        if isinstance(forecaster, Mixed):
            note(f"{name} is made of {shares(forecaster.weights())}")
    note(f"drift in the errors of {leader}: {drifts.said()}")
    note(f"written: {out / 'report.html'}, {out / 'forecasts.csv'}, {out / 'results.jsonl'}")
    if any(result.error is not None for result in results):
        raise typer.Exit(INCOMPLETE)


def shares(weights: Mapping[str, float], count: int = 5) -> str:
    """The experts that count most, in words.

    >>> shares({"a": 0.25, "b": 0.748, "c": 0.002})
    'b 75 %, a 25 %'
    """
    top = [item for item in sorted(weights.items(), key=lambda item: -item[1])[:count] if item[1] >= LEAST]
    return ", ".join(f"{name} {weight:.0%}".replace("%", " %") for name, weight in top)


# Before the run


def folder(settings: Run) -> Path:
    """Where to write, made if it is not there."""
    out = settings.out or Path("out") / Path(settings.file or SAMPLE).stem
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / "forecasts.csv").touch()
    except OSError as error:
        raise DataError(f"{out} cannot be written ({error.strerror}); choose another folder with --out") from error
    return out


def planned(settings: Run) -> Plan:
    """Load the data and make the forecasters.

    Raises:
        NatsrError: Whatever is wrong with the file, the names or the options.
    """
    check(settings)
    protocol = check_protocol(settings.protocol)
    methods = settings.chosen()
    options = {method: settings.settings(method, methods) for method in methods}
    calendars = {calendar_of(options[method]) for method in methods}
    if len(calendars) > 1:
        raise OptionError("--set calendar differs between methods, expected the same for all of one run")
    targets = None if settings.target == "all" else given.names(settings.target, "target")
    outside = beside(settings, methods)
    with Watch() as watch:
        series, borders = load(
            settings.file or SAMPLE,
            time=settings.time,
            targets=outside.targets(targets),
            repeated=check_repeated(settings.repeated),
            progress=lambda done, of, what: watch.update({what: ""}, done, of, "download"),
        )
    whole, borders, name, taken = shortened(series, borders, settings)
    sizes, few = sized(settings, whole, borders)
    data = prepare(outside.forecast(whole), roomy(borders, sizes), calendar=calendars.pop())
    data = outside.added(data, whole, sizes.horizon)
    name += f" beside {','.join(outside.names)}" if outside.names else ""
    cells = {
        method: Cell(
            method,
            name,
            sizes.horizon,
            settings.seed,
            protocol,
            options=tuple(options[method].items()),
            window=sizes.window,
            device="cpu" if method in WITHOUT_NETWORK else settings.device,
        )
        for method in methods
    }
    task = data.task(sizes.window, sizes.horizon)
    forecasters = {method: make_for(cell, task) for method, cell in cells.items()}
    read = {"Beside": outside.said(methods)} if outside.names else {}
    return Plan(cells, data, task, forecasters, {"Rows": taken, **described(data), **read}, few)


def check(settings: Run) -> None:
    """Refuse what means nothing for a file, and sizes that cannot be, before it is read."""
    alone = "goes with - only; leave it out, or send the rows to natsr run -"
    if settings.freq is not None:
        raise OptionError(f"--freq is {settings.freq!r}, but a file's times tell it; it {alone}")
    if settings.levels is not None:
        raise OptionError(f"--levels is {settings.levels!r}, but of a file the 90 % intervals are written; it {alone}")
    if settings.quantiles:
        raise OptionError(f"--quantiles is {settings.quantiles!r}, but of a file forecasts are written; it {alone}")
    if settings.state is not None:
        raise OptionError(f"--state is {str(settings.state)!r}, but a file is begun anew each time; it {alone}")
    Task(settings.back, settings.ahead, channels=1)


def shortened(series: Series, borders: Borders, settings: Run) -> tuple[Series, Borders, str, str]:
    """The first rows, if not all are to be taken, with what to call them and what to say about it.

    The stream ends earlier; the parts before it stay as they are wherever that leaves a stream. Cutting them too would
    let a column that is rare at the beginning (rain in winter) have next to no deviation in the train part, and one
    shower would then outweigh all other columns in every pooled figure.
    """
    whole, name = len(series), settings.file or SAMPLE
    rows = settings.rows if settings.rows is not None or settings.file is not None else SAMPLE_ROWS
    if rows is None or rows >= borders.online:
        return series, borders, name, f"all {whole:,}"
    series = series.first(rows)
    kept = rows >= borders.valid + settings.ahead
    return (
        series,
        Borders(borders.train, borders.valid, rows) if kept else Borders.published(rows),
        f"{name}[:{rows}]",
        f"the first {rows:,} of {whole:,} (--rows {whole} takes them all)",
    )


def described(data: Prepared) -> dict[str, str]:
    """What there is to say about the data."""
    series, borders = data.series, data.borders
    columns = "1 column" if len(series.columns) == 1 else f"{len(series.columns)} columns"
    often = f"one row every {series.pace.named}" if series.regular else "rows at irregular times"
    values = f"{columns}, {series.missing:,} missing values, {often}"
    valid, stream = borders.valid - borders.train, borders.online - borders.valid
    return {"Values": values, "Parts": f"{borders.train:,} rows train, {valid:,} validate, {stream:,} are the stream"}


def dominated(data: Prepared) -> tuple[str, ...]:
    """A remark if one of several columns makes up most of every pooled figure: it then says little of the others."""
    truth = data.rows.truth[data.borders.valid - 1 : data.borders.online].double().numpy()
    changes = np.abs(np.diff(truth, axis=0))
    known = ~np.isnan(changes)
    mean = np.where(known, changes, 0.0).sum(0) / np.maximum(known.sum(0), 1)
    if len(mean) < 3 or mean.max() <= DOMINANT * mean.sum():
        return ()
    place = int(mean.argmax())
    name, share, std = data.series.columns[place], mean[place] / mean.sum(), data.scaling.std[place]
    return (
        f"column {name} makes up {share:.0%} of the pooled change (its deviation in the train part is {std:.3g}): "
        "MASE, MAE, MSE and CRPS here are mostly about that column; see the others with --target",
    )


def command(settings: Run) -> str:
    """What to type to get the same again."""
    words = ["natsr", "run", *([settings.file] if settings.file is not None else [])]
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.name not in ("file", "set") and value != item.default:
            words += [f"--{item.name}", str(value)]
    for text in settings.set:
        words += ["--set", text]
    return shlex.join(words)


# The run


def _warm(name: str, plan: Plan, watch: Watch) -> float:
    """Warm one method up and say how many seconds it took."""
    began = time.perf_counter()
    warm_up(
        plan.forecasters[name],
        plan.data,
        plan.data.borders,
        lambda done, of, what: watch.update({name: ""}, done, of, what),
    )
    return time.perf_counter() - began


def _stream(
    plan: Plan, protocol: str, path: Path, kept: Sequence[Callable[[Moment], None]], watch: Watch
) -> dict[str, Scores]:
    """The one pass, watched and recorded."""
    leader, borders = next(iter(plan.cells)), plan.data.borders
    with Forecasts(path, plan.data, leader, plan.task) as forecasts:

        def on_step(moment: Moment) -> None:
            for keep in kept:
                keep(moment)
            forecasts.on_step(moment)
            if watch.due(moment.done, moment.total):
                watch.update(remarks(moment.scores), moment.done, moment.total, "online")

        scores = evaluate(
            plan.forecasters,
            plan.data.rows,
            plan.task,
            start=borders.valid,
            stop=borders.online,
            protocol=protocol,
            std=torch.from_numpy(plan.data.scaling.std),
            on_step=on_step,
        )
        if scores[leader].error is None:
            forecasts.beyond(plan.forecasters[leader])
    return scores


def remarks(scores: Mapping[str, Scores]) -> dict[str, str]:
    """The error of each method so far, and what a step costs."""
    return {
        name: FAILED if found.error else f"MASE {_mase(found)}  {1e3 * found.seconds / found.steps:.2f} ms/step"
        for name, found in scores.items()
    }


def _mase(found: Scores) -> str:
    """A stream that never changes has none."""
    return number(found.mase) if np.isfinite(found.mase) else MISSING


# After the run


def _keep(path: Path, results: list[Result]) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(to_line(result) + "\n" for result in results), encoding="utf-8")
    temporary.replace(path)


def as_text(results: list[Result]) -> Table:
    """The results of one run, the best first."""
    first = results[0].cell
    title = f"{first.dataset}, {first.horizon} rows ahead, protocol {first.protocol}"
    table = Table(title=Text(title), box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    # Hardly ever is a step refused; a column of zeros would only take room.
    figures = [name for name in FIGURES if name != "refused" or any(r.numbers.get("refused") for r in results)]
    for name in figures:
        table.add_column(FIGURES[name], justify="right")
    order = sorted(results, key=lambda result: (result.error is not None, result.numbers.get("mase", float("inf"))))
    for place, result in enumerate(order):
        style = "bold" if place == 0 and len(order) > 1 and result.error is None else ""
        if result.error is not None:
            table.add_row(result.cell.method, Text(FAILED, "red"), Text(result.error, "red"))
        else:
            table.add_row(result.cell.method, *(_figure(result, name) for name in figures), style=style)
    return table


def _figure(result: Result, name: str) -> str:
    value = result.numbers.get(name)
    if value is None:
        return MISSING
    if name == "coverage_90":
        return f"{value:.1%}"
    return {"refused": f"{value:.0f}", "ms_per_step": f"{value:.2f}", "warm_seconds": f"{value:.1f}"}.get(
        name, number(value)
    )
