"""When one method's stream drifted, gathered while it runs, and said in words."""

from __future__ import annotations

from natsr.data.series import Prepared
from natsr.evaluate import Moment
from natsr.report.record import iso

#: So many are named, the last ones.
NAMED = 3


class Drifts:
    """Hand it each moment of the loop, then ask it what there is to say.

    Args:
        data: The stream, for its times.
        method: Whose forecasts are looked at.
    """

    def __init__(self, data: Prepared, method: str) -> None:
        self._data, self._method = data, method
        self._found: list[tuple[int, int]] = []  # rows: when a drift was told, and since when
        self._lasts = False

    def on_step(self, moment: Moment) -> None:
        """Take one moment."""
        drift = moment.drifts.get(self._method)
        if drift is None:
            return
        self._lasts = drift.since is not None
        if drift.since is not None and drift.alarms > len(self._found):
            self._found.append((moment.step.origin, drift.since))

    def said(self) -> str:
        """In words."""
        if not self._found:
            return "none was seen"
        named = self._found[-NAMED:]
        times = iso(self._data.series.times[[row for pair in named for row in pair]])
        told = [f"since {since} (told at {row})" for row, since in zip(times[::2], times[1::2], strict=True)]
        often = "once" if len(self._found) == 1 else f"{len(self._found)} times"
        last = ", the last ones" if len(self._found) > NAMED else ""
        return f"{often}{last}: {'; '.join(told)}{', and lasts' if self._lasts else ''}"
