"""The nouns that everything shares: a task, an example, and the errors.

Letters used in shapes everywhere: `B` batch, `R` rows handed to a forecaster (`Task.reach`), `L` window of a network,
`H` horizon, `C` channels (the values forecast), `F` known features of a row (calendar), `D = C + F`.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

ProtocolName: TypeAlias = Literal["honest", "partial", "paper"]
PROTOCOLS: tuple[ProtocolName, ...] = ("honest", "partial", "paper")

#: What a state is made of; `natsr.state` writes tensors as safetensors and the rest as JSON.
State: TypeAlias = "dict[str, State | list[State] | Tensor | float | int | str | bool | None]"
#: An option of a recipe, as it can be written on a command line.
Option: TypeAlias = float | int | str | bool


class NatsrError(Exception):
    """The root of every error that natsr raises on purpose."""


class ShapeError(NatsrError, ValueError):
    """An array does not have the shape that was asked for."""


class DataError(NatsrError, ValueError):
    """A file, a row or a value cannot be used as it is."""


class OptionError(NatsrError, ValueError):
    """An argument, a name or a combination of them makes no sense."""


class StateError(NatsrError, ValueError):
    """A saved state is damaged, or belongs to something else."""


@dataclass(frozen=True)
class Task:
    """What is to be forecast: `horizon` rows of `channels` values, from the last `window` rows.

    Args:
        window: Rows that a network sees, `L`.
        horizon: Rows ahead, `H`.
        channels: Values to forecast in each row, `C`; the first `C` inputs of a row are these values.
        features: Inputs of a row that are known in advance (calendar), `F`; they follow the values.
        season: Rows in the stream's main period, for seasonal methods (24 for hourly data).
        outside: How many of the features came with the row (exogenous columns and plans) rather than from its time.
    """

    window: int
    horizon: int
    channels: int
    features: int = 0
    season: int = 1
    outside: int = 0

    def __post_init__(self) -> None:
        for name in ("window", "horizon", "channels", "season"):
            value = getattr(self, name)
            if not isinstance(value, Integral):
                raise OptionError(f"{name} is {value!r}, expected a whole number")
            if value < 1:
                raise OptionError(f"{name} is {value}, expected at least 1")
        if self.features < 0:
            raise OptionError(f"features is {self.features}, expected 0 or more")
        if not 0 <= self.outside <= self.features:
            raise OptionError(f"outside is {self.outside}, expected 0 or more, and at most features, {self.features}")

    @property
    def reach(self) -> int:
        """Rows in the windows that are handed over, `R`: enough for the network and for one season."""
        return max(self.window, self.season)

    @property
    def inputs(self) -> int:
        """Inputs of one row, `D`."""
        return self.channels + self.features

    @property
    def outputs(self) -> int:
        """Numbers in one forecast, `m = H * C`."""
        return self.horizon * self.channels


class Example(NamedTuple):
    """Windows and the rows that followed them. NaN in `target` means: not known (missing, or not yet there).

    `fresh` marks the target rows that became known since the last call; `None` means that all did. A learner that must
    count each label once (recursive least squares) uses fresh rows only; one that may see a label twice uses them all.

    `origins` are the numbers of the rows that the windows end with, where who hands the example over counts the rows of
    the stream, those of the warm-up included. Rows that stand still look alike: only numbers tell them apart.
    """

    window: Tensor  # (B, R, D), no NaN
    target: Tensor  # (B, H, C), NaN = unknown
    fresh: Tensor | None = None  # (B, H) bool
    origins: Tensor | None = None  # (B,) int64, on the host
