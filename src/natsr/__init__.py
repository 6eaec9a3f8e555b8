"""Online time-series forecasting that keeps learning.

Three doors, one core: `natsr.Live` for a stream of your own, `natsr.NaturalGradient` for a model of your own, and the
command line `natsr`. The names below are imported when they are first used, so that `natsr --help` need not wait for
torch; none of them needs more than torch and numpy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from natsr.version import __version__ as __version__

if TYPE_CHECKING:
    from natsr.client import Client as Client
    from natsr.client import ServiceError as ServiceError
    from natsr.forecasters.base import Forecast as Forecast
    from natsr.forecasters.base import Forecaster as Forecaster
    from natsr.keyed import Fleet as Fleet
    from natsr.likelihoods import Gaussian as Gaussian
    from natsr.likelihoods import StudentT as StudentT
    from natsr.live import Live as Live
    from natsr.live import LiveForecast as LiveForecast
    from natsr.optim import NaturalGradient as NaturalGradient
    from natsr.optim import StepInfo as StepInfo
    from natsr.recipes import METHODS as METHODS
    from natsr.recipes import make as make
    from natsr.types import DataError as DataError
    from natsr.types import Example as Example
    from natsr.types import NatsrError as NatsrError
    from natsr.types import OptionError as OptionError
    from natsr.types import ShapeError as ShapeError
    from natsr.types import StateError as StateError
    from natsr.types import Task as Task

_HOMES = {
    "Client": "client",
    "ServiceError": "client",
    "Forecast": "forecasters.base",
    "Forecaster": "forecasters.base",
    "Fleet": "keyed",
    "Gaussian": "likelihoods",
    "StudentT": "likelihoods",
    "Live": "live",
    "LiveForecast": "live",
    "NaturalGradient": "optim",
    "StepInfo": "optim",
    "METHODS": "recipes",
    "make": "recipes",
    "DataError": "types",
    "Example": "types",
    "NatsrError": "types",
    "OptionError": "types",
    "ShapeError": "types",
    "StateError": "types",
    "Task": "types",
}
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'natsr' has no attribute {name!r}; it has {', '.join(sorted(_HOMES))}")
    return getattr(importlib.import_module(f"natsr.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
