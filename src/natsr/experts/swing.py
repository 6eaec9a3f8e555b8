"""How far each channel swings: what the waves of the calendar are multiplied by.

A regression with waves learns how large they are from thousands of rows. When the amplitude of a stream doubles its
lags double with it, and waves of a fixed size are wrong until they have been learned anew. In units of what the stream
does now they are right as soon as that is known.

Two numbers say what it does: over the last season, the mean distance from the median, and the mean change from row to
row. Both go up and down by themselves, and waves that went along would be worse for it. So as long as nothing happens
waves stay what they are. Only when both numbers are far more, or both far less, than their means of late is it another
amplitude: after a new level only the distance is more, in more noise only the changes. Then these means begin anew, and
the waves follow for a few seasons. No row counts as more than three usual ones, so that an outlier opens nothing.
"""

from __future__ import annotations

import numpy as np

from natsr.experts.native import Native, Swings, address, fill
from natsr.experts.past import Arrays, Past

#: Rows that both are measured over, at least: whole seasons.
SPAN = 24
#: So many times more or less than the mean of late is another amplitude.
BAND = 1.5
#: A row counts as at most so many times the mean.
WILD = 3.0
#: Rows in these means, when nothing happens.
ROWS = 1000
#: For so many times as long nothing follows at first: the first means are those of few rows.
YOUNG = 7
#: For so many times as long the waves follow.
FOLLOWED = 4
#: Waves become at most so many times larger or smaller.
MOST = 10.0
#: A channel that does less than this in a season stands still, and has no amplitude.
STILL = 1e-3


class Swing:
    """Follows one stream.

    Args:
        channels: Values in a row, `C`.
        period: Rows of a season, an array of one; shared with whoever may change it.
    """

    def __init__(self, channels: int, period: Arrays) -> None:
        self._period = period["period"]
        self._usual = np.zeros((2, channels))  # both numbers' means of late
        self._since = np.zeros(channels)  # rows since they began
        self._unit = np.zeros(channels)  # the distance that waves of size 1 belong to; 0 if never needed
        self._native = Native[Swings]()

    def look(self, past: Past) -> None:
        """A row has come: write down by what the waves of this origin are multiplied, if not as the row before."""
        native = self._native
        if native.library is not None:
            if native.made is None:
                native.made = Swings()
                fill(native.made, period=self._period, **self.arrays())
            native.library.swing_look(address(native.made), past.address())
            return
        season = int(self._period[0])
        span = season * -(-SPAN // season)
        if season < 2 or past.seen < span:
            return
        rows, swing = past.clean(span), past.swing(1)[0]
        limit = np.where(self._usual > 0, WILD * self._usual, np.inf)
        found = np.stack(
            [
                np.minimum(np.abs(rows - np.partition(rows, span // 2, 0)[span // 2]), limit[0]).mean(0),
                np.minimum(np.abs(rows[1:] - rows[:-1]), limit[1]).mean(0),
            ]
        )
        there = past.known_last(1)[0] & (found > STILL).all(0)
        np.copyto(self._usual, found, where=there & (self._usual == 0))
        other = there & ((found > BAND * self._usual).all(0) | (self._usual > BAND * found).all(0))
        stays = (self._since > FOLLOWED * span) | (self._unit == 0)
        stays &= past.seen > YOUNG * span
        inside = (swing > 1 / MOST) & (swing < MOST)  # what has been held tells nothing
        np.copyto(self._unit, self._usual[0] / swing, where=other & stays & inside)
        np.copyto(self._since, np.where(other, 0, self._since + 1), where=there)
        # At once in the first of these spans, the mean of all rows after that.
        self._usual += there / np.clip(self._since - span, 1, ROWS) * (found - self._usual)
        follows = there & (self._unit > 0) & (self._since <= FOLLOWED * span)
        if follows.any():
            wanted = self._usual[0] / np.where(follows, self._unit, 1.0)
            np.copyto(swing, np.clip(wanted, 1 / MOST, MOST), where=follows)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {"usual": self._usual, "since": self._since, "unit": self._unit}
