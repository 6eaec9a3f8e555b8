"""An experiment is a value, and running it is a function: `Cell` in, `Result` out, nothing printed or written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import torch

from natsr.data.calendar import CALENDARS, CalendarKind
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.base import Forecaster, Progress, silent
from natsr.forecasters.whose import weights_of
from natsr.metrics import LEVELS, Scores
from natsr.recipes import METHODS, NETWORKS, make
from natsr.streams import Windows, check_protocol
from natsr.types import DataError, NatsrError, Option, OptionError, ProtocolName, Task
from natsr.version import __version__

Part: TypeAlias = Literal["online", "validation"]
TunedOn: TypeAlias = Literal["nothing", "validation", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
TUNED_ON: tuple[TunedOn, ...] = get_args(TunedOn)
#: What is measured. A failed cell has none of them; a figure that does not exist (the MASE of a constant) is left out.
NUMBERS = (
    "steps",
    "mae",
    "mse",
    "mase",
    "crps",
    *(f"coverage_{level}" for level in LEVELS),
    *(f"width_{level}" for level in LEVELS),
    "worst_coverage_90",
    "seconds",
    "ms_per_step",
    "steps_per_second",
    "warm_seconds",
    "peak_mib",
    "refused",
)
#: Methods that have no network; they compute here whatever the device.
WITHOUT_NETWORK = tuple(method for method in METHODS if method not in NETWORKS)
#: Share of the train part that trains when the validation part plays the stream; the rest of it stops the training.
TUNING_TRAIN = 0.8


def check_part(part: str) -> Part:
    """The name, if it is one of the two."""
    for name in PARTS:
        if part == name:
            return name
    raise OptionError(f"part is {part!r}, expected one of {', '.join(PARTS)}")


def check_tuned_on(tuned_on: str) -> TunedOn:
    """The name, if it is one of the three."""
    for name in TUNED_ON:
        if tuned_on == name:
            return name
    raise OptionError(f"tuned_on is {tuned_on!r}, expected one of {', '.join(TUNED_ON)}")


@dataclass(frozen=True)
class Cell:
    """One experiment: a method on a dataset, with everything that decides its numbers.

    Args:
        method: A name from `natsr.recipes`.
        dataset: A named dataset, or the path of a CSV.
        horizon: Rows ahead.
        seed: Of the network's weights, the batches and the replay.
        protocol: Who may know which row when.
        part: `online`, the test stream; or `validation`, a rehearsal that never looks at it, for tuning.
        options: Settings of the method that differ from its defaults, by name.
        tuned_on: What was looked at to choose `options`.
        window: Rows that a network sees.
        max_steps: Stop after so many forecasts.
        device: Where torch computes.
        intervals: Whether intervals are made and scored too. They change no forecast, so the key does not name them.

    Example:
        >>> Cell("er", "ETTh1", 24, seed=1, options=(("rate", 1e-4),), tuned_on="validation").key
        'er ETTh1 H=24 seed=1 honest tuned_on=validation rate=0.0001'
    """

    method: str
    dataset: str
    horizon: int
    seed: int = 0
    protocol: ProtocolName = "honest"
    part: Part = "online"
    options: tuple[tuple[str, Option], ...] = ()
    tuned_on: TunedOn = "nothing"
    window: int = 60
    max_steps: int | None = None
    device: str = "cpu"
    intervals: bool = True

    def __post_init__(self) -> None:
        check_protocol(self.protocol)
        for name, least in (("horizon", 1), ("window", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}, expected at least {least}")
        if self.max_steps is not None and self.max_steps < 1:
            raise OptionError(f"max_steps is {self.max_steps}, expected at least 1, or none for all of them")
        check_part(self.part)
        check_tuned_on(self.tuned_on)
        if len(dict(self.options)) < len(self.options):
            raise OptionError(f"options are {self.options}, expected each name once")
        object.__setattr__(self, "options", tuple(sorted(self.options, key=lambda option: option[0])))

    @property
    def key(self) -> str:
        """What it is, in words that stay the same: equal keys, equal experiments."""
        words = [self.method, self.dataset, f"H={self.horizon}", f"seed={self.seed}", self.protocol]
        for name, usual in (("part", "online"), ("tuned_on", "nothing"), ("max_steps", None), ("device", "cpu")):
            if getattr(self, name) != usual:
                words.append(f"{name}={getattr(self, name)}")
        if self.window != 60:
            words.append(f"window={self.window}")
        return " ".join([*words, *(f"{name}={value}" for name, value in self.options)])


@dataclass(frozen=True)
class Result:
    """What came of a cell: numbers, or the error that prevented them.

    `weights` are those of the experts of a method that mixes, by name, as they are at the end of the stream.
    """

    cell: Cell
    numbers: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None
    threads: int = 1
    version: str = __version__
    torch: str = torch.__version__
    weights: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if self.numbers and self.error is not None:
            raise DataError(f"cell {self.cell.key!r} has numbers and the error {self.error!r}, expected one of the two")


def run_cell(cell: Cell, progress: Progress = silent) -> Result:
    """Load the data, make the forecaster, warm it up, run it over the stream and measure.

    Failures that belong to the experiment (divergence, an option that the method refuses, memory) become a result with
    `error`; mistakes in the program itself are raised.
    """
    try:
        return run_on(cell, load_for(cell), progress)
    except (NatsrError, ArithmeticError, RuntimeError, MemoryError) as error:
        return Result(cell, error=f"{type(error).__name__}: {error}", threads=torch.get_num_threads())


def load_for(cell: Cell) -> Prepared:
    """The cell's dataset, standardised on its train part; the option `calendar` says with which calendar features."""
    series, borders = load(cell.dataset)
    return prepare(series, borders, calendar=calendar_of(dict(cell.options)))


def calendar_of(options: Mapping[str, Option]) -> CalendarKind | None:
    """The calendar features that are asked for; none in particular unless the option is there."""
    if "calendar" not in options:
        return None
    for kind in CALENDARS:
        if options["calendar"] == kind:
            return kind
    raise OptionError(f"calendar is {options['calendar']!r}, expected one of {', '.join(CALENDARS)}")


def make_for(cell: Cell, task: Task) -> Forecaster:
    """The cell's forecaster, not warmed up."""
    options = {name: value for name, value in cell.options if name != "calendar"}
    try:
        return make(cell.method, task, seed=cell.seed, options=options, device=cell.device)
    except OptionError as error:
        if cell.method not in METHODS:
            raise
        raise OptionError(f"{cell.method}: {error}") from error


def run_on(cell: Cell, data: Prepared, progress: Progress = silent) -> Result:
    """Run the cell on data that is already there.

    Raises:
        NatsrError: Where the data or the options do not fit.
    """
    forecaster = make_for(cell, data.task(cell.window, cell.horizon))
    began = time.perf_counter()
    warm_up(forecaster, data, borders_of(cell, data), progress)
    warm_seconds = time.perf_counter() - began
    scores = evaluated({cell.method: forecaster}, cell, data, progress)[cell.method]
    return result_of(cell, scores, forecaster.info(), warm_seconds, weights_of(forecaster))


def evaluated(
    forecasters: Mapping[str, Forecaster], cell: Cell, data: Prepared, progress: Progress = silent
) -> dict[str, Scores]:
    """Run warmed-up forecasters along the cell's stream, side by side, and score them."""
    borders = borders_of(cell, data)

    def on_step(moment: Moment) -> None:
        progress(moment.done, moment.total, "online")

    return evaluate(
        forecasters,
        data.rows,
        data.task(cell.window, cell.horizon),
        start=borders.valid,
        stop=borders.online,
        protocol=cell.protocol,
        max_steps=cell.max_steps,
        intervals=cell.intervals,
        std=torch.from_numpy(data.scaling.std),
        on_step=on_step,
    )


def result_of(
    cell: Cell,
    scores: Scores,
    info: Mapping[str, float],
    warm_seconds: float,
    weights: Mapping[str, float] | None = None,
) -> Result:
    """What was measured, as a result; no numbers if the forecaster, whose `info` is given, failed on the way.

    Args:
        cell: What was run.
        scores: What came of it.
        info: What the forecaster says of itself at the end.
        warm_seconds: What its warm-up took.
        weights: Those of its experts at the end, if it has any.
    """
    threads = torch.get_num_threads()
    if scores.error is not None:
        return Result(cell, error=scores.error, threads=threads)
    figures = scores.result()
    figures["warm_seconds"] = warm_seconds
    figures["steps_per_second"] = scores.steps / scores.seconds if scores.seconds else None
    figures["refused"] = int(info.get("refused", 0))
    numbers = {name: value for name in NUMBERS if isinstance(value := figures[name], int | float)}
    return Result(cell, numbers, threads=threads, weights=weights)


def borders_of(cell: Cell, data: Prepared) -> Borders:
    """Where the cell's parts end."""
    return rehearsal(data.borders) if cell.part == "validation" else data.borders


def rehearsal(borders: Borders) -> Borders:
    """The borders that play the validation part as the stream, and keep the online part out of sight.

    >>> rehearsal(Borders(2880, 3600, 14400))
    Borders(train=2304, valid=2880, online=3600)
    """
    return Borders(int(TUNING_TRAIN * borders.train), borders.train, borders.valid)


def warm_up(forecaster: Forecaster, data: Prepared, borders: Borders, progress: Progress = silent) -> None:
    """Let the forecaster learn from the train part, with the validation part to stop it in time."""
    task: Task = forecaster.task
    train = Windows(data.rows, task, 0, borders.train)
    valid = Windows(data.rows, task, borders.train, borders.valid)
    if len(train) == 0:
        raise DataError(
            f"the train part of {data.series.name} has {borders.train} rows, expected at least window + horizon = "
            f"{task.window} + {task.horizon}; use a longer file, a shorter window or a shorter horizon"
        )
    forecaster.warm_up(train, valid, progress)
