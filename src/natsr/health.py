"""How a live forecaster is doing: its error beside that of the last value, how often its intervals held, its CRPS.

Every figure is a mean over the past in which a row counts a thousandth less than the one after it, so that it tells
about the last thousand rows or so.

The CRPS is twice the mean pinball loss over the quantiles at 0.05, 0.10, … 0.95, as in `natsr.metrics`. To keep all of
these quantiles of every forecast that waits would cost more than all else here: where the horizon is longer than
`WHOLE` rows they are kept of one forecast in so many only, and each of its steps is scored.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from natsr.calibrate import PROBABILITIES
from natsr.state import into_arrays, of_arrays
from natsr.types import State, StateError, Task

Array = npt.NDArray[np.float64]

FORGET = 0.999
#: Sums kept, each with its count.
SUMS = ("error", "last_error", "change", "covered", "crps")
#: Those that the CRPS is made of, as places among the usual ones.
SCORED = slice(PROBABILITIES.index(0.05), PROBABILITIES.index(0.95) + 1)
#: Forecasts that wait and are kept with all their quantiles, about.
WHOLE = 8


class Tally:
    """Score every forecast as its rows come: step `h` of the one made `h` rows ago. All in standardised units.

    Args:
        task: Gives the horizon and the channels.
    """

    def __init__(self, task: Task) -> None:
        H, C = task.horizon, task.channels
        self._sums = dict.fromkeys(SUMS, 0.0)
        self._counts = dict.fromkeys(SUMS, 0.0)
        self._rows = 0
        self._steps = np.arange(H)
        self._row = np.full(C, math.nan)  # the newest
        # Forecasts that are not wholly scored, by the row that they were made at, modulo H.
        self._mean, self._low, self._high = (np.full((H, H, C), math.nan) for _ in range(3))
        self._last = np.full((H, C), math.nan)
        levels = np.array(PROBABILITIES[SCORED])
        self._levels = levels[:, None]
        self._every = -(-H // WHOLE)
        self._back = np.arange(-(-H // self._every))  # the newest forecast that is kept whole, the one before, …
        self._whole = np.full((len(self._back), len(levels), H, C), math.nan)

    def reveal(self, row: Array) -> None:
        """Score what was said of the row `(C,)`, NaN where missing."""
        self._rows += 1
        horizon = len(self._steps)
        places = (self._rows - 1 - self._steps) % horizon
        mean, low, high = (part[places, self._steps] for part in (self._mean, self._low, self._high))
        self._add("error", np.abs(row - mean))
        self._add("last_error", np.abs(row - self._last[places]))
        self._add("change", np.abs(row - self._row))
        inside = ((low <= row) & (row <= high)).astype(np.float64)
        self._add("covered", np.where(np.isnan(row - low), math.nan, inside))
        self._add("crps", self._crps(row))
        self._row = row.copy()
        place = self._rows % horizon
        self._mean[place] = self._low[place] = self._high[place] = self._last[place] = math.nan
        self._keep(math.nan)

    def _crps(self, row: Array) -> Array:
        """That of what was said of the row, `(N, C)`."""
        newest = (self._rows - 1) // self._every
        steps = self._rows - 1 - self._every * (newest - self._back)
        waits = steps < len(self._steps)
        said = self._whole[(newest - self._back[waits]) % len(self._back), :, steps[waits]]
        off = row - said
        scores: Array = 2 * np.maximum(self._levels * off, (self._levels - 1) * off).mean(1)
        return scores

    def _keep(self, quantiles: Array | float) -> None:
        if self._rows % self._every == 0:
            self._whole[self._rows // self._every % len(self._back)] = quantiles

    def push(self, mean: Array, quantiles: Array, last: Array) -> None:
        """Remember the forecast from the newest row.

        Args:
            mean: `(H, C)`.
            quantiles: `(Q, H, C)`, at `natsr.calibrate.PROBABILITIES`.
            last: The last values, `(C,)`.
        """
        place = self._rows % len(self._steps)
        low, high = quantiles[SCORED][[0, -1]]
        self._mean[place], self._low[place], self._high[place], self._last[place] = mean, low, high, last
        self._keep(quantiles[SCORED])

    def _add(self, name: str, values: Array) -> None:
        known = ~np.isnan(values)
        self._sums[name] = FORGET * self._sums[name] + float(values[known].sum())
        self._counts[name] = FORGET * self._counts[name] + int(np.count_nonzero(known))

    def _mean_of(self, name: str) -> float | None:
        count = self._counts[name]
        return self._sums[name] / count if count else None

    def figures(self) -> dict[str, float | None]:
        """MASE, that of the last value, the CRPS in the same unit, and the coverage of the 90 % interval.

        `None` before there is any. The unit is the mean change from row to row.
        """
        change = self._mean_of("change")
        error, last_error, crps = (self._mean_of(name) for name in ("error", "last_error", "crps"))
        return {
            "mase": error / change if error is not None and change else None,
            "mase_last_value": last_error / change if last_error is not None and change else None,
            "crps": crps / change if crps is not None and change else None,
            "coverage_90": self._mean_of("covered"),
        }

    def _arrays(self) -> dict[str, Array]:
        held = {"row": self._row, "mean": self._mean, "low": self._low, "high": self._high, "last": self._last}
        return held | {"whole": self._whole}

    def state_dict(self) -> State:
        """Everything that must be carried on."""
        sums: State = {name: self._sums[name] for name in SUMS}
        counts: State = {name: self._counts[name] for name in SUMS}
        return {"rows": self._rows, "sums": sums, "counts": counts, **of_arrays(self._arrays())}

    def load_state_dict(self, state: State) -> None:
        """Go on, bit for bit, from what `state_dict` gave; in a state of 0.11.0 or before the CRPS begins anew."""
        state = {**of_arrays({"whole": np.full_like(self._whole, math.nan)}), **state}
        rows, sums, counts = state.get("rows"), state.get("sums"), state.get("counts")
        if not (isinstance(rows, int) and isinstance(sums, dict) and isinstance(counts, dict)):
            raise StateError("the tally lacks its counts, expected rows, sums and counts; it belongs to something else")
        numbers = [{name: _real({"crps": 0.0, **part}, name) for name in SUMS} for part in (sums, counts)]
        into_arrays(state, self._arrays(), "tally")
        self._rows, (self._sums, self._counts) = rows, numbers


def _real(state: State, name: str) -> float:
    value = state.get(name)
    if not isinstance(value, float):
        raise StateError(f"{name} of the tally is {value!r}, expected a number; it belongs to something else")
    return value
