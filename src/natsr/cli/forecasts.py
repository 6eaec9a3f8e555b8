"""The forecasts of one method as a CSV, written while the stream runs."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import torch

from natsr.calibrate import PROBABILITIES
from natsr.data.series import Prepared
from natsr.data.ticks import times_of
from natsr.evaluate import Moment
from natsr.forecasters.base import Forecaster
from natsr.streams import Windows
from natsr.types import Task

Array = npt.NDArray[np.float64]
LOW, HIGH = PROBABILITIES.index(0.05), PROBABILITIES.index(0.95)


class Forecasts:
    """One line for each origin and step: the mean and the ends of the 90 % interval, in the data's units.

    Lines are written whole, so that a file that was cut off by Ctrl-C can be read up to its end.
    """

    def __init__(self, path: Path, data: Prepared, method: str, task: Task) -> None:
        self._file = path.open("w", newline="", encoding="utf-8")
        self._lines = csv.writer(self._file, lineterminator="\n")
        self._data, self._method, self._task = data, method, task
        self._offsets: tuple[Array, Array] | None = None
        self._grid = data.series.pace
        names = [name + end for name in data.series.columns for end in ("", "_low", "_high")]
        self._lines.writerow(["origin", "step", "time", *names])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def on_step(self, moment: Moment) -> None:
        """Write the method's forecast of this moment; nothing if it has failed."""
        mean = moment.means.get(self._method)
        if mean is None:
            return
        quantiles = moment.quantiles[self._method]
        self._offsets = quantiles[LOW] - mean, quantiles[HIGH] - mean
        self._write(moment.step.origin, mean, quantiles[LOW], quantiles[HIGH])

    def beyond(self, forecaster: Forecaster) -> None:
        """Write the forecast of the rows after the file's end, with the intervals as they stood at the last step."""
        if self._offsets is None:
            return
        rows, task = self._data.rows, self._task
        last = len(rows.inputs) - 1
        window = Windows(rows, task, 0, len(rows.inputs)).window(last)
        found = forecaster.forecast_from(window, torch.tensor([last]))
        mean = found.mean[0].detach().cpu().double().numpy()
        low, high = self._offsets
        self._write(last, mean, mean + low, mean + high)

    def _write(self, origin: int, mean: Array, low: Array, high: Array) -> None:
        series, invert = self._data.series, self._data.scaling.invert
        ends = np.stack([invert(mean), invert(low), invert(high)], axis=-1)  # (H, C, 3)
        start = str(series.times[origin])
        self._lines.writerows(
            [start, step, self._time(origin + step), *(f"{value:.6g}" for value in row)]
            for step, row in enumerate(ends.reshape(len(ends), -1).tolist(), 1)
        )

    def _time(self, row: int) -> str:
        times = self._data.series.times
        if row < len(times):
            return str(times[row])
        beyond, unit = np.array([row - len(times) + 1]), self._grid.unit
        last = times[-1:].astype(f"datetime64[{unit}]").astype(np.int64)
        return str(times_of(self._grid.after(last, beyond), unit).astype(times.dtype)[0])
