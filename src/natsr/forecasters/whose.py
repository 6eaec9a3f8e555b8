"""Whose forecast it is: what methods that mix have to say about it."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import numpy as np

from natsr.experts.analogs import Analogs
from natsr.experts.base import Group
from natsr.experts.least_squares import LeastSquares
from natsr.experts.network import OneStep
from natsr.experts.past import Array
from natsr.experts.plain import LastValue, Means, Medians, Seasonal
from natsr.experts.smooth import Smooth
from natsr.forecasters.base import Forecaster
from natsr.forecasters.member import Member

#: What the experts of a group are, in the words of docs/auto.md; there are no more than a page has colours.
KINDS: Mapping[type, str] = {
    LastValue: "last value",
    Seasonal: "seasonal",
    Means: "means and medians",
    Medians: "means and medians",
    Analogs: "analogs",
    Smooth: "Holt-Winters",
    LeastSquares: "least squares",
    OneStep: "networks",
    Member: "NatSR",
}
OTHERS = "others"
#: Weights up to this are left out where only those that count are shown.
LITTLE = 0.005


def kind_of(group: Group) -> str:
    """What its experts are."""
    return KINDS.get(type(group), OTHERS)


class Mixed(Forecaster):
    """A method whose forecast is a mixture, and that tells how much of it is whose."""

    @abc.abstractmethod
    def kinds(self) -> dict[str, str]:
        """The experts by name, and what each of them is."""

    @abc.abstractmethod
    def weights_by_step(self) -> Array:
        """How much of the forecast is each expert's, `(E, H, C)`, in the order of `kinds`; together 1 everywhere."""

    def weights(self) -> dict[str, float]:
        """The same over all steps and channels, by name."""
        return dict(zip(self.kinds(), self.weights_by_step().mean((1, 2)).tolist(), strict=True))

    def weights_by_kind(self) -> dict[str, Array]:
        """The same for each kind of expert, `(H, C)`, in the order in which kinds first appear."""
        found: dict[str, Array] = {}
        for kind, weight in zip(self.kinds().values(), self.weights_by_step(), strict=True):
            found[kind] = found[kind] + weight if kind in found else np.array(weight)
        return found


def weights_of(forecaster: Forecaster) -> dict[str, float] | None:
    """The weights that count, the largest first, to four digits; `None` where nothing is mixed."""
    if not isinstance(forecaster, Mixed):
        return None
    order = sorted(forecaster.weights().items(), key=lambda item: -item[1])
    return {name: round(weight, 4) for name, weight in order if weight > LITTLE}
