"""Methods by name: each is a few lines that put parts into slots.

To add one, write a function of `(task, setting, options)`, decorate it with its name, and `natsr.checks` runs over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import torch

from natsr.auto import Budget, panel
from natsr.baselines import FsnetOptions, NetworkOptions, OnenetOptions
from natsr.fleet.choice import beside
from natsr.forecasters.base import Forecaster
from natsr.forecasters.finish import AdamW, Sgd
from natsr.forecasters.joint import Joint
from natsr.forecasters.linear import MultivariateRLS, RecursiveLeastSquares
from natsr.forecasters.naive import LastValue, RunningMean, Seasonal
from natsr.forecasters.natural import Damped, Natural, NaturalOptions, Probe
from natsr.forecasters.neural import Learning, NeuralForecaster, Slots
from natsr.forecasters.pool import Pool
from natsr.kronecker import DampingRule
from natsr.likelihoods import DAMPING_LAWS, Gaussian, Reduction, StudentT
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.options import Range, Ranges, nearest, parsed
from natsr.precondition import Curvature, WorstLosses
from natsr.replay import Reservoir
from natsr.types import Option, OptionError, Task

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = Mapping[str, Option]


class Setting(NamedTuple):
    """What a forecaster is made with besides its options."""

    seed: int = 0
    device: str = "cpu"

    def generator(self) -> torch.Generator:
        """The one source of everything random in it; on the CPU, so that a seed means the same everywhere."""
        return torch.Generator().manual_seed(self.seed)


Recipe = Callable[[Task, Setting, Options], Forecaster]
RECIPES: dict[str, Recipe] = {}


def make(name: str, task: Task, *, seed: int = 0, options: Options | None = None, device: str = "cpu") -> Forecaster:
    """A fresh forecaster.

    Args:
        name: One of `RECIPES`.
        task: What is forecast.
        seed: Of everything random in it.
        options: Settings that differ from the method's defaults, by name.
        device: Where a network lives.

    Raises:
        OptionError: If the name or an option is not known; the nearest ones are named.
    """
    if name not in RECIPES:
        raise OptionError(f"method {name!r} is not known; {nearest(name, list(RECIPES))}")
    if not isinstance(seed, Integral):
        raise OptionError(f"seed is {seed!r}, expected a whole number")
    return RECIPES[name](task, Setting(seed, device), options or {})


def recipe(function: Recipe) -> Recipe:
    """Make the function a method under its own name."""
    RECIPES[function.__name__] = function
    return function


# ---- what needs no network ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoOptions:
    """Nothing to set."""


@dataclass(frozen=True)
class RlsOptions:
    """Recursive least squares."""

    forgetting: float = 0.9999
    ridge: float = 1.0


@recipe
def last_value(task: Task, setting: Setting, options: Options) -> Forecaster:
    """The last value, for every step."""
    del setting
    parsed(NoOptions(), options)
    return LastValue(task)


@recipe
def seasonal(task: Task, setting: Setting, options: Options) -> Forecaster:
    """The value one season before."""
    del setting
    parsed(NoOptions(), options)
    return Seasonal(task)


@recipe
def mean(task: Task, setting: Setting, options: Options) -> Forecaster:
    """The running mean."""
    del setting
    parsed(NoOptions(), options)
    return RunningMean(task)


@recipe
def rls(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Each channel from its own lags, by recursive least squares."""
    del setting
    chosen = parsed(RlsOptions(), options)
    return RecursiveLeastSquares(task, chosen.forgetting, chosen.ridge)


@recipe
def rls_mv(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Each channel from the lags of all, by ridge recursive least squares."""
    del setting
    chosen = parsed(RlsOptions(ridge=10.0), options)
    return MultivariateRLS(task, chosen.forgetting, chosen.ridge)


# ---- networks ----------------------------------------------------------------------------------------------------


def checked_device(name: str) -> torch.device:
    """The device, if there is one."""
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise OptionError(f"device is {name!r}, expected cpu, cuda, or one of several GPUs such as cuda:1")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    if int(number or 0) >= count:
        raise OptionError(f"device is {name!r}, but torch finds {count} GPUs here; use cpu, or a torch built for CUDA")
    return torch.device(name)


@dataclass(frozen=True)
class PlainOptions(NetworkOptions):
    """A network with AdamW online, and replay where the method has it."""

    share: float = 0.2
    draws: int = 8
    memory: int = 500
    dropout: float = 0.0
    ranges: ClassVar[Ranges] = {
        **NetworkOptions.ranges,
        **dict.fromkeys(("share", "draws", "memory"), Range(0)),
        "dropout": Range(0, 1, without=(1,)),
    }

    def net(self, task: Task, generator: torch.Generator, device: str) -> ConeTCN:
        """The network, freshly drawn."""
        return self.tcn(task, generator, checked_device(device))


def _plain(
    task: Task, setting: Setting, options: Options, *, replay: bool = False, distil: float = 0.0, online: bool = True
) -> Forecaster:
    """A Gaussian network with AdamW, and perhaps memory."""
    chosen, generator = parsed(PlainOptions(), options), setting.generator()
    slots = Slots[ConeTrace](
        chosen.net(task, generator, setting.device),
        Gaussian(),
        AdamW(chosen.rate),
        chosen.frame(task),
        replay=Reservoir(chosen.memory, generator) if replay else None,
    )
    learning = Learning(
        reduction="mean",
        share=chosen.share,
        draws=chosen.draws,
        distil=distil,
        dropout=chosen.dropout,
        online=online,
        warm=chosen.warm(),
    )
    return NeuralForecaster(task, slots, learning, generator)


@recipe
def frozen(task: Task, setting: Setting, options: Options) -> Forecaster:
    """The network as the warm-up left it."""
    return _plain(task, setting, options, online=False)


@recipe
def ogd(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Online gradient descent: one AdamW step on each new example."""
    return _plain(task, setting, options)


@recipe
def er(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Experience replay: as OGD, with 8 remembered examples beside each new one."""
    return _plain(task, setting, options, replay=True)


@recipe
def derpp(task: Task, setting: Setting, options: Options) -> Forecaster:
    """DER++: as ER, and the outputs on remembered examples stay near what they were."""
    return _plain(task, setting, options, replay=True, distil=0.2)


# ---- FSNet and OneNet --------------------------------------------------------------------------------------------


@recipe
def fsnet(task: Task, setting: Setting, options: Options) -> Forecaster:
    """FSNet: convolutions calibrated by what their own recent gradients say, with an associative memory."""
    return parsed(FsnetOptions(), options).make(task, setting.generator(), checked_device(setting.device))


@recipe
def fsnet_mae(task: Task, setting: Setting, options: Options) -> Forecaster:
    """FSNet on absolute errors."""
    return parsed(FsnetOptions(loss="mae"), options).make(task, setting.generator(), checked_device(setting.device))


@recipe
def onenet(task: Task, setting: Setting, options: Options) -> Forecaster:
    """OneNet: a network over time and one over the variables, mixed by weights that are learned online."""
    return parsed(OnenetOptions(), options).make(task, setting.generator(), checked_device(setting.device))


@recipe
def onenet_mae(task: Task, setting: Setting, options: Options) -> Forecaster:
    """OneNet on absolute errors."""
    return parsed(OnenetOptions(loss="mae"), options).make(task, setting.generator(), checked_device(setting.device))


# ---- NatSR -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NatsrOptions(PlainOptions):
    """NatSR, with each reading of the paper under a name (docs/decisions/0003)."""

    rate: float = 0.01
    dof: float = 50.0
    beta: float = 0.14
    average: float = 0.555
    curvature_average: float = 0.555
    law: Literal["paper", "box", "fixed"] = "paper"
    rule: DampingRule = "pi"
    reduction: Reduction = "root"
    finish: Literal["sgd", "adamw"] = "sgd"
    order: Literal["after", "before"] = "after"
    damped: Damped = "drift"
    drift: float = 0.1
    probes: int = 16
    probe: Probe = "hadamard"
    allotted: bool = True
    closed: bool = True
    information: Literal["current", "stored"] = "current"
    clip: float = 1.0
    worst: float = 2.326  # standard deviations above the mean of recent losses: the worst 1 % of a normal
    recent: float = 0.01  # weight of a new loss in what is recent
    every: int = 100
    scale_rate: float = 0.1
    scale_floor: float = 1e-4
    scale_reading: Literal["variance", "precursor"] = "variance"
    ranges: ClassVar[Ranges] = {
        **PlainOptions.ranges,
        **dict.fromkeys(("probes", "clip", "worst", "drift"), Range(0)),
        **dict.fromkeys(("dof", "beta", "scale_floor"), Range(0, without=(0,))),
        **dict.fromkeys(("average", "curvature_average", "recent"), Range(0, 1, without=(0,))),
        "scale_rate": Range(0, 1, without=(1,)),
        "every": Range(1),
    }

    def natural(self) -> Natural[ConeTrace]:
        """The curvature slot."""
        options = NaturalOptions(
            law=DAMPING_LAWS[self.law](self.beta),
            average=self.average,
            order=self.order,
            damped=self.damped,
            drift=self.drift,
            probes=self.probes,
            probe=self.probe,
            allotted=self.allotted,
            closed=self.closed,
            information=self.information,
            clip=self.clip,
        )
        return Natural(
            options, Curvature(self.curvature_average, self.rule), WorstLosses(self.worst, self.recent, self.every)
        )

    def learning(self) -> Learning:
        """How a step is put together."""
        return Learning(
            reduction=self.reduction,
            share=self.share,
            draws=self.draws,
            scale_rate=self.scale_rate,
            scale_floor=self.scale_floor,
            scale_reading=self.scale_reading,
            dropout=self.dropout,
            warm=self.warm(),
        )


def _natsr(task: Task, setting: Setting, chosen: NatsrOptions) -> Forecaster:
    generator = setting.generator()
    slots = Slots[ConeTrace](
        chosen.net(task, generator, setting.device),
        StudentT(chosen.dof),
        Sgd(chosen.rate) if chosen.finish == "sgd" else AdamW(chosen.rate),
        chosen.frame(task),
        replay=Reservoir(chosen.memory, generator) if chosen.memory else None,
        natural=chosen.natural(),
    )
    return NeuralForecaster(task, slots, chosen.learning(), generator)


@recipe
def natsr(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Natural Score-driven Replay, stable: 50 degrees of freedom, plain steps."""
    return _natsr(task, setting, parsed(NatsrOptions(), options))


@recipe
def natsr_fast(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Natural Score-driven Replay, fast: 500 degrees of freedom, AdamW on top of the natural gradient."""
    return _natsr(task, setting, parsed(NatsrOptions(dof=500.0, finish="adamw", rate=1e-4), options))


# ---- auto --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AutoOptions:
    """What `auto` may spend."""

    budget: Budget = "one"


@recipe
def auto(task: Task, setting: Setting, options: Options) -> Forecaster:
    """Many experts, mixed online by how each does: no choice to make, nothing to tune.

    They read the values. Where columns come beside them, NatSR, which reads those too, is mixed in.
    """
    members = {name: partial(make, name, seed=setting.seed, device=setting.device) for name in ("natsr", "natsr_fast")}
    chosen = parsed(AutoOptions(), options)
    pool = Pool(task, partial(panel, budget=chosen.budget, seed=setting.seed, members=members, in_step=beside))
    return Joint(task, pool, members["natsr"](task)) if task.outside else pool


METHODS = tuple(RECIPES)
#: What each method can be told: the fields of these.
TOLD: Mapping[str, type[DataclassInstance]] = {
    **dict.fromkeys(("last_value", "seasonal", "mean"), NoOptions),
    **dict.fromkeys(("rls", "rls_mv"), RlsOptions),
    **dict.fromkeys(("frozen", "ogd", "er", "derpp"), PlainOptions),
    **dict.fromkeys(("fsnet", "fsnet_mae"), FsnetOptions),
    **dict.fromkeys(("onenet", "onenet_mae"), OnenetOptions),
    **dict.fromkeys(("natsr", "natsr_fast"), NatsrOptions),
    "auto": AutoOptions,
}
#: Methods that train a network.
NETWORKS = ("frozen", "ogd", "er", "derpp", "fsnet", "fsnet_mae", "onenet", "onenet_mae", "natsr", "natsr_fast")
#: Methods that read columns beside the values.
READERS = ("auto", *NETWORKS)
#: Methods that learn nothing online, and so have the same forecasts under every protocol.
UNTAUGHT = ("last_value", "seasonal", "frozen")


def options_of(method: str) -> tuple[str, ...] | None:
    """The names of a method's options; nothing is known of those of a method that is not of this package.

    >>> options_of("rls"), options_of("last_value"), options_of("of your own")
    (('forgetting', 'ridge'), (), None)
    """
    return tuple(field.name for field in fields(TOLD[method])) if method in TOLD else None


def sees_no_parts(method: str, options: Options) -> bool:
    """Whether examples with some labels only change nothing: `auto` takes labels as they come, and examples whole."""
    return method == "auto" and options.get("budget") != "all"
