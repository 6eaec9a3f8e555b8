"""Another regime: when the stream has turned into another one, what was learned of it must count less.

As the scale of NatSR does for a network, the size of the mixture's own errors says so here. In units of what was usual
over the last hundred rows, the mean error of the last ten goes up and down by a half on real streams, whatever happens
in them; after a new level, another frequency or swapped columns it is several times as large, at once. From such a row
on

- the losses by which experts are weighed fade faster, as long as the errors are large (`Power`);
- regressions take rows in as they come and not in large blocks;
- and when the windows of all examples that come lie behind that row, and experts are still far worse than before it
  beside the last value, old rows count a fraction in every regression: its covariance is multiplied by `LOOSER`. Until
  then what is learned is of windows half of which are of the old regime, and would be taken for more than it is. For
  some time from there on half of the answer is that of the mixture by losses of late, for the others still add up
  regrets of before.

A few wild rows are not enough for the last one. Nor are rows in which everything moves more than before: there the last
value is as much further off as everybody else, and what was learned is still right. Nothing of this happens while
nothing happens.
"""

from __future__ import annotations

import numpy as np

from natsr.aggregate import TINY
from natsr.experts.past import Arrays, Past
from natsr.mixtures import Power

#: The mean error of late in units of the usual one from which on the stream may have turned.
ONSET = 1.8
#: Errors are large as long as they are so many times the usual ones of now.
LARGE = 1.2
#: The best expert's error beside that of the last value, `WINDOW + H` rows later: so many times as large as before says
#: that it has.
HOLD = 1.5
#: Rows that most regressions look back on.
WINDOW = 60
#: What the covariances are multiplied by then.
LOOSER = 4.0
#: What the mixture by losses of late weighs from then on, at least, and for how many rows.
LEANING, LATER = 0.5, 216
#: Rows that are taken in at once, at most, while the stream is turning.
HURRIED = 4
#: Labels of each step and channel, in the mean, before anything is usual.
YOUNG = 300.0
#: Rows until the next onset, after one that was no turn, and after a turn.
REST, LONG_REST = 50, 350
#: Weight of the newest in what was usual before.
RATE = 0.02


class Turn:
    """Watches the errors of one mixture.

    Args:
        past: Whose `turned` is kept up to date: rows since the stream turned, or -1.
        horizon: Rows ahead, `H`.
    """

    def __init__(self, past: Past, horizon: int) -> None:
        self._turned = past.turned
        self.wait = WINDOW + horizon
        self._usual = np.zeros(1)  # the best expert's error of late beside that of the last value, in the mean
        self._rest = np.zeros(1, dtype=np.int64)  # rows in which no turn begins

    def ease(self, power: Power) -> None:
        """Before a row is learned: what came before it counts less while the stream is turning."""
        large = float(power.pace[0]) / LARGE
        if self._turned[0] >= 0 and large > 1:
            power.fade(large**2 - 1)

    def look(self, power: Power) -> None:
        """After a row has been learned: has the stream turned?"""
        since, pace = int(self._turned[0]), float(power.pace[0])
        if since < 0:
            beside = _beside_last(power)
            self._usual += (RATE if self._usual[0] > 0 else 1.0) * (beside - self._usual)
            self._rest[0] = max(0, self._rest[0] - 1)
            if pace > ONSET and self._rest[0] == 0 and power.count.mean() >= YOUNG:
                self._turned[0] = 0
            return
        since += 1
        over = since == self.wait and _beside_last(power) <= HOLD * self._usual[0]
        done = since > self.wait + LATER
        if over or done:
            since, self._rest[0] = -1, LONG_REST if done else REST
        self._turned[0] = since

    @property
    def leaning(self) -> float:
        """What the mixture by losses weighs now, at least."""
        return LEANING if self._turned[0] >= self.wait else 0.0

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {"turned": self._turned, "usual": self._usual, "rest": self._rest}


def _beside_last(power: Power) -> float:
    """The loss of late of the best expert in units of that of the last value, which is the first of them."""
    return float(power.loss.min() / max(power.loss[0], TINY))
