"""Columns of a file that are read and not forecast: `--exogenous` and `--known` of `natsr run FILE`.

They become the features that `natsr.Live` makes of them; a known column is its own plan, up to the file's end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from natsr.cli import given
from natsr.cli.run import Run
from natsr.data.series import Prepared, Series
from natsr.exogenous import Exogenous
from natsr.phases import WILD
from natsr.recipes import READERS
from natsr.streams import Rows
from natsr.types import OptionError


@dataclass(frozen=True)
class Beside:
    """What is read beside the columns that are forecast."""

    exogenous: tuple[str, ...] = ()
    known: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of all of them."""
        return (*self.exogenous, *self.known)

    def targets(self, asked: Sequence[str] | None) -> list[str] | None:
        """The columns to read from the file."""
        return None if asked is None else [*asked, *self.names]

    def forecast(self, series: Series) -> Series:
        """Without them."""
        return series.select([name for name in series.columns if name not in self.names]) if self.names else series

    def said(self, methods: Sequence[str]) -> str:
        """Who reads them, for people."""
        readers = [name for name in methods if name in READERS]
        others = [name for name in methods if name not in READERS]
        alone = f"; {', '.join(others)} read the values only" if others else ""
        return f"{', '.join(self.names)}, read by {', '.join(readers)} and not forecast{alone}"

    def added(self, data: Prepared, whole: Series, horizon: int) -> Prepared:
        """The stream with their features, scaled as the train part knows them.

        Args:
            data: Of the columns that are forecast.
            whole: The rows with all columns.
            horizon: Rows of a plan.
        """
        if not self.names:
            return data
        outside = Exogenous(data.series.columns, self.exogenous, self.known, horizon)
        features = outside.history(whole.select(self.names).values, np.full((horizon, len(self.known)), np.nan))
        scaled = outside.scaling(features[: data.borders.train]).held(features, WILD)
        inputs = torch.cat([data.rows.inputs, torch.from_numpy(scaled).to(data.rows.inputs.dtype)], dim=1)
        return replace(data, rows=Rows(inputs, data.rows.truth), outside=outside.width)


def beside(settings: Run, methods: Sequence[str]) -> Beside:
    """What was asked for.

    Raises:
        OptionError: No method would read it, or a name stands in two places.
    """
    told = {"exogenous": settings.exogenous, "known": settings.known}
    found = Beside(**{what: given.names(text, what) for what, text in told.items() if text})
    if found.names and not set(methods) & set(READERS):
        raise OptionError(
            f"methods are {', '.join(methods)}, which read the values only, expected one that reads exogenous and "
            f"known columns too, auto first of all; there are {', '.join(READERS)}"
        )
    asked = () if settings.target == "all" else given.names(settings.target, "target")
    Exogenous(asked, found.exogenous, found.known, settings.ahead)  # refuses a name in two of them
    return found
