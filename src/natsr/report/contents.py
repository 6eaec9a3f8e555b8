"""What is on a report page: plain numbers and text, nothing of how they are drawn.

Everything that runs over time is an array whose first axis is time; NaN is a gap, and is drawn as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy.typing as npt

from natsr.types import Task

#: Anything that `numpy.asarray` turns into numbers.
Numbers: TypeAlias = npt.ArrayLike


@dataclass(frozen=True)
class Score:
    """One line of the table; `None` where there is no figure, and none at all after a failure (`error`)."""

    method: str
    mae: float | None = None
    mse: float | None = None
    mase: float | None = None
    crps: float | None = None
    coverage_90: float | None = None
    width_90: float | None = None
    ms_per_step: float | None = None
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Fan:
    """What one method said of each row of a stretch, always the same number of rows ahead, in the data's units.

    Args:
        method: Its name, as in the table.
        step: How many rows before the row the forecast was made.
        mean: `(T, C)`.
        low_50: Ends of the intervals, `(T, C)` each; without them the line stands alone.
        high_50: See `low_50`.
        low_90: See `low_50`.
        high_90: See `low_50`.
    """

    method: str
    step: int
    mean: Numbers
    low_50: Numbers | None = None
    high_50: Numbers | None = None
    low_90: Numbers | None = None
    high_90: Numbers | None = None


@dataclass(frozen=True, eq=False)
class Stretch:
    """A stretch of the stream to look at closely.

    Args:
        times: `(T,)`, ISO 8601 without a zone.
        columns: `C` names.
        truth: `(T, C)` in the data's units, NaN where missing.
        fans: The same steps for each method; the first one is shown first.
    """

    times: Sequence[str]
    columns: Sequence[str]
    truth: Numbers
    fans: Sequence[Fan]


@dataclass(frozen=True, eq=False)
class Track:
    """The whole stream in `N` pieces, a few hundred: how the methods fared and what they did.

    Args:
        times: `(N,)`, the last time of each piece, ISO 8601 without a zone.
        steps: `(N,)`, forecasts made up to there.
        errors: For each method the mean error over each piece, `(N,)`, in the report's unit.
        weights: `(N,)`, how many targets were known in each piece.
        variance: For methods that keep one, the variance that they expect, `(N,)`.
        norms: For methods that bound their updates, the largest in each piece, `(N,)`.
        bounds: What they must stay below, `(N,)`.
    """

    times: Sequence[str]
    steps: Numbers
    errors: Mapping[str, Numbers]
    weights: Numbers
    variance: Mapping[str, Numbers] = field(default_factory=dict)
    norms: Mapping[str, Numbers] = field(default_factory=dict)
    bounds: Mapping[str, Numbers] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Whose:
    """Whose the forecasts of a method that mixes were; shares, together 1.

    Args:
        method: Its name, as in the table.
        over_time: For each kind of expert its share of the forecast at the end of each piece of the track, `(N,)`.
        steps: Rows ahead that are shown.
        by_step: For each kind its share at the end for these, `(S,)`.
        columns: `C` names.
        by_column: For each kind its share at the end for these, `(C,)`.
        experts: Single experts and their shares at the end, the largest first.
    """

    method: str
    over_time: Mapping[str, Numbers]
    steps: Sequence[int]
    by_step: Mapping[str, Numbers]
    columns: Sequence[str]
    by_column: Mapping[str, Numbers]
    experts: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Report:
    """All of a page.

    Args:
        title: The headline.
        dataset: What was forecast.
        task: Window, horizon and channels.
        protocol: Who knew which row when.
        scores: The table, in any order.
        unit: Of the errors over time and by step: `MASE`, or `MAE` where the stream never changes.
        stretch: Forecasts against truth.
        track: The stream as a whole.
        whose: Whose the forecasts were, beside the track; of the first method that mixes.
        by_step: For each method the error for each row ahead, `(H,)`.
        facts: More lines for the head, such as the number of rows.
        notes: What was left out, filled or tuned.
        command: What to type to get this page again.
    """

    title: str
    dataset: str
    task: Task
    protocol: str
    scores: Sequence[Score]
    unit: str = "MASE"
    stretch: Stretch | None = None
    track: Track | None = None
    whose: Whose | None = None
    by_step: Mapping[str, Numbers] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    command: str = ""
