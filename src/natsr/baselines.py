"""What can be set of a network; and FSNet and OneNet, put together from the parts that the published code has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from natsr.forecasters.base import Forecaster
from natsr.forecasters.frame import Anchor, Frame
from natsr.forecasters.fsnet import FSNetLearner
from natsr.forecasters.losses import LOSSES, LossName
from natsr.forecasters.mixing import Mixing
from natsr.forecasters.onenet import OneNetLearner
from natsr.forecasters.stepping import Learner, SteppingForecaster
from natsr.forecasters.warm import WarmUp
from natsr.nets.adapted import Scaled
from natsr.nets.adapters import Recall
from natsr.nets.columns import over_variables
from natsr.nets.fsnet import AdaptedTCN
from natsr.nets.native import tcn
from natsr.nets.runs import runs
from natsr.nets.tcn import ConeTCN
from natsr.options import Range, Ranges, check_ranges
from natsr.types import Task


@dataclass(frozen=True)
class NetworkOptions:
    """What every method with a network has: its sizes, what it reads and is taught, its warm-up, the rate online."""

    rate: float = 1e-4
    labels: Literal["known", "fresh"] = "known"
    limit: float = 100.0
    anchor: Anchor = "none"
    width: int = 64
    depth: int = 10
    top: int = 320
    epochs: int = 6
    warm_rate: float = 1e-3
    dtype: Literal["float32", "float64"] = "float32"
    ranges: ClassVar[Ranges] = {
        **dict.fromkeys(("rate", "depth", "epochs", "warm_rate"), Range(0)),
        **dict.fromkeys(("width", "top"), Range(1)),
        "limit": Range(0, without=(0,)),
    }

    def __post_init__(self) -> None:
        check_ranges(self, self.ranges)

    def tcn(self, task: Task, generator: torch.Generator, device: torch.device) -> ConeTCN:
        """The network over time, freshly drawn, compiled where that is possible."""
        return tcn(task, generator, device, width=self.width, depth=self.depth, top=self.top, dtype=self.number)

    @property
    def number(self) -> torch.dtype:
        """The type that everything is computed in."""
        return torch.float64 if self.dtype == "float64" else torch.float32

    def frame(self, task: Task) -> Frame:
        """What the network reads, is taught and means."""
        return Frame(task, self.limit, self.anchor, self.labels)

    def warm(self) -> WarmUp:
        """The offline phase."""
        return WarmUp(epochs=self.epochs, rate=self.warm_rate)


@dataclass(frozen=True)
class BaselineOptions(NetworkOptions):
    """What FSNet and OneNet have beside that: a plain loss."""

    loss: LossName = "mse"

    def forecaster(self, task: Task, learner: Learner, generator: torch.Generator) -> Forecaster:
        """The learner behind the two verbs."""
        loss = LOSSES[self.loss]
        return SteppingForecaster(task, learner, self.frame(task), self.warm(), self.rate, loss, generator)


@dataclass(frozen=True)
class FsnetOptions(BaselineOptions):
    """FSNet, with the two readings of its memory."""

    rate: float = 1.8e-4
    recall: Recall = "attention"

    def make(self, task: Task, generator: torch.Generator, device: torch.device) -> Forecaster:
        """A fresh forecaster."""
        net = AdaptedTCN(self.tcn(task, generator, device), generator, self.recall).to(device)
        return self.forecaster(task, FSNetLearner(net, LOSSES[self.loss], generator), generator)


@dataclass(frozen=True)
class OnenetOptions(BaselineOptions):
    """OneNet: how its mixture learns."""

    rate: float = 1.05e-4
    mixing_rate: float = 1e-3
    mixing_dropout: float = 0.1
    ranges: ClassVar[Ranges] = {
        **BaselineOptions.ranges,
        "mixing_rate": Range(0),
        "mixing_dropout": Range(0, 1, without=(1,)),
    }

    def make(self, task: Task, generator: torch.Generator, device: torch.device) -> Forecaster:
        """A fresh forecaster."""
        loss, time = LOSSES[self.loss], self.tcn(task, generator, device)
        variables = over_variables(
            task, generator, device, width=self.width, depth=self.depth, top=self.top, dtype=self.number
        )
        mixing = Mixing(task, loss, self.mixing_dropout, self.mixing_rate, generator, self.number).to(device)
        learner = OneNetLearner(Scaled(variables, runs(variables)), Scaled(time, runs(time)), mixing, loss, generator)
        return self.forecaster(task, learner, generator)
