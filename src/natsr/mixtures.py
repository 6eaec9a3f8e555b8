"""Several ways of mixing the same experts at once, and a mixture of these.

- **Power**: weights proportional to `L_i^-p`, with the losses `L_i` of late, over all steps and channels. It has no
  bound and cannot do better than the best expert by much, but it leaves those who have become worse within days, where
  rules that add up regrets must first see the old ones fade.
- **Total**: weights proportional to `L_i^-p`, with all that each has lost, over all steps of a column. All others hold
  a row to what is usual, so that an outlier does not outweigh the rest; where a stream is a matter of few rows (a
  battery that is full again at once, a counter that begins anew) it is these that count.

- **Local**: the same for each step of a column alone, with the steps around it. Who is good one row ahead is seldom who
  is good a day ahead; and losses as they are tell sooner than regrets, which must first outweigh those of before.

One discount cannot be right before a change and after it, and what is learned for one step and channel alone is learned
from few rows. `Layers` therefore runs ML-Poly several times, with other discounts and with regrets *pooled* over steps
or channels, and those by losses beside them, and mixes the mixtures by one more ML-Poly. Where Total is among them it
also has the last word: that ML-Poly goes by usual rows too, so what is answered lies between its mixture and Total's,
column by column, as far as either has lost less of late, whatever the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natsr.aggregate import (
    HUGE,
    SIZE_RATE,
    TINY,
    WILD,
    YOUNG,
    Array,
    Arrays,
    Floats,
    MLPoly,
    Pooling,
    mean_of_near,
)

#: Of `Power`: weight of the newest row in the mixture's loss of late; the most that a row counts in units of it; a loss
#: that is next to nothing.
PACE, FAR, BARELY = 0.1, 20.0, 1e-6
#: Of `Total` and `Local`: an error counts as at most so many usual ones.
BEYOND = 30.0
#: Of the last word: what a loss weighs one row later; how much more who lost less weighs; and how many times its losses
#: those of `Total` count, for without a clear lead it has more to lose from chance than the mixture of all.
LAST, SHARP, HANDICAP = 0.999, 60.0, 1.02


def _usual(size: Array, count: Array, wrong: Array, known: npt.NDArray[np.bool_], most: float) -> None:
    """Let a mean square follow errors, each of which counts as at most so many usual ones."""
    wild = np.where(count < YOUNG, HUGE, most**2 * size)
    count += known
    rate = known * np.maximum(SIZE_RATE, 1 / np.maximum(count, 1))
    size += rate * (np.minimum(np.square(wrong, dtype=np.float64), wild) - size)


def _held(forecasts: Floats, mixture: Floats, truth: Array, size: Array, count: Array) -> Floats:
    """What each expert has lost, `(E, H, C)`, each as at most so many usual errors of the mixture, which follow."""
    known = np.isfinite(truth) & np.ones(mixture.shape, dtype=bool)
    _usual(size, count, np.where(known, np.abs(mixture - truth), 0.0), known, BEYOND)
    return np.minimum(np.where(known, np.abs(forecasts - truth), 0.0), BEYOND * np.sqrt(size))


class Power:
    """Weights by a power of the losses of late, over all steps and channels, each in units of its usual error.

    Losses of a row count in units of the mixture's loss of late, or, where all are worse than that, of the least of
    the row: neither an outlier nor the first rows after a change outweigh the rows that follow them.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        discount: What a loss weighs one row later.
        power: How much more a better expert weighs.
        dtype: Of the weights.

    Example:
        >>> rule = Power(2, (1, 1), 0.98, 20)
        >>> forecasts = np.array([1.0, 3.0])[:, None, None]
        >>> for truth in [3.0] * 500 + [1.0] * 150:
        ...     rule.update(forecasts, (rule.weights * forecasts).sum(0), np.array([truth]))
        >>> bool(rule.weights[0, 0, 0] > 0.99)
        True
    """

    pooling: Pooling = "all"

    def __init__(
        self,
        experts: int,
        shape: tuple[int, ...],
        discount: float,
        power: float,
        dtype: type[np.floating] = np.float64,
    ) -> None:
        self.discount, self.power = discount, power
        self.loss = np.zeros(experts)
        self.pace = np.zeros(1)  # the mixture's loss of late
        self.size = np.zeros(shape)  # mean square of the mixture's errors
        self.count = np.zeros(shape)  # rows in it
        self.weights = np.full((experts, *(1 for _ in shape)), 1 / experts, dtype)

    def update(self, forecasts: Floats, mixture: Floats, truth: Array) -> None:
        """Learn what came; as `Aggregator.update`."""
        known = np.isfinite(truth) & np.ones(mixture.shape, dtype=bool)
        if not known.any():
            return
        wrong = np.where(known, np.abs(mixture - truth), 0.0)
        _usual(self.size, self.count, wrong, known, WILD)
        units = known / np.sqrt(self.size + TINY)
        units /= known.sum()
        losses = (np.where(known, np.abs(forecasts - truth), 0.0) * units).sum((1, 2))
        self._take(losses, float((wrong * units).sum()))

    def _take(self, losses: Array, mixed: float) -> None:
        unit = max(float(self.pace[0]), float(losses.min()), TINY)
        self.loss *= self.discount
        self.loss += np.minimum(losses / unit, FAR)
        self.pace += (PACE if self.pace[0] > 0 else 1.0) * (min(mixed, FAR * unit) - self.pace)
        ratio = (self.loss.min() + BARELY) / (self.loss + BARELY)
        scores = ratio**self.power
        self.weights[:] = (scores / scores.sum()).reshape(self.weights.shape)

    def fade(self, rows: float) -> None:
        """Let the losses so far count as they would so many rows later."""
        self.loss *= self.discount**rows

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "loss": self.loss,
            "pace": self.pace,
            "weights": self.weights,
            "size": self.size,
            "count": self.count,
        }


class Total:
    """Weights by a power of all that was lost, column by column, summed over the steps.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        discount: What a loss weighs one row later.
        power: How much more a better expert weighs.
        dtype: Of the weights.
        handicap: How many times its losses those of the first expert count.

    Example:
        >>> rule = Total(2, (1, 1), 0.999, 20)
        >>> forecasts = np.array([1.0, 3.0])[:, None, None]
        >>> for truth in ([1.1] * 49 + [9.0]) * 20:  # the first is right in the main, the second when it matters
        ...     rule.update(forecasts, (rule.weights * forecasts).sum(0), np.array([truth]))
        >>> bool(rule.weights[0, 0, 0] > 0.99)
        True
    """

    pooling: Pooling = "steps"

    def __init__(
        self,
        experts: int,
        shape: tuple[int, int],
        discount: float,
        power: float,
        dtype: type[np.floating] = np.float64,
        handicap: float = 1.0,
    ) -> None:
        self.discount, self.power, self.handicap = discount, power, handicap
        self.loss = np.zeros((experts, shape[1]))
        self.size = np.zeros(shape)  # mean square of the mixture's errors
        self.count = np.zeros(shape)  # rows in it
        self.weights = np.full((experts, 1, shape[1]), 1 / experts, dtype)

    def update(self, forecasts: Floats, mixture: Floats, truth: Array) -> None:
        """Learn what came; as `Aggregator.update`."""
        losses = _held(forecasts, mixture, truth, self.size, self.count)
        self.loss *= self.discount
        self.loss += losses.sum(1)
        loss = self.loss.copy()
        loss[0] *= self.handicap
        scores = ((loss.min(0) + TINY) / (loss + TINY)) ** self.power
        self.weights[:] = (scores / scores.sum(0))[:, None]

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {"loss": self.loss, "weights": self.weights, "size": self.size, "count": self.count}


class Local:
    """Weights by a power of the losses, for each step and column, over the steps around it.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        discount: What a loss weighs one row later.
        power: How much more a better expert weighs.
        dtype: Of what is kept for each expert.

    Example:
        >>> rule = Local(2, (12, 1), 0.995, 20)
        >>> forecasts = np.zeros((2, 12, 1))
        >>> forecasts[0, 6:], forecasts[1, :6] = 1, 1  # the first is right in six steps, the second further ahead
        >>> for _ in range(50):
        ...     rule.update(forecasts, (rule.weights * forecasts).sum(0), np.zeros(1))
        >>> bool((rule.weights[0, :4] > 0.99).all() and (rule.weights[1, 8:] > 0.99).all())
        True
    """

    pooling: Pooling = "near"

    def __init__(
        self,
        experts: int,
        shape: tuple[int, int],
        discount: float,
        power: float,
        dtype: type[np.floating] = np.float64,
    ) -> None:
        self.discount, self.power = discount, power
        self.lost = np.zeros((experts, *shape), dtype)
        self.size = np.zeros(shape)  # mean square of the mixture's errors
        self.count = np.zeros(shape)  # rows in it
        self.weights = np.full((experts, *shape), 1 / experts, dtype)

    def update(self, forecasts: Floats, mixture: Floats, truth: Array) -> None:
        """Learn what came; as `Aggregator.update`."""
        losses = _held(forecasts, mixture, truth, self.size, self.count)
        self.lost *= self.discount
        self.lost += losses
        lost = mean_of_near(self.lost)
        scores = ((lost.min(0) + TINY) / (lost + TINY)) ** self.power
        self.weights[:] = scores / scores.sum(0)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {"lost": self.lost, "weights": self.weights, "size": self.size, "count": self.count}


class Layer(NamedTuple):
    """One of several ways to mix the same experts.

    ML-Poly, or, with a power, `Power`, `Local` for the steps that are near, or `Total` for all of a column.
    """

    discount: float
    pooling: Pooling
    power: float = 0.0


Rule = MLPoly | Power | Total | Local
#: By whose losses count, of those with a power.
BY_LOSSES: dict[Pooling, type[Power] | type[Total] | type[Local]] = {"all": Power, "near": Local, "steps": Total}


def _rule(layer: Layer, experts: int, shape: tuple[int, int], dtype: type[np.floating]) -> Rule:
    if not layer.power:
        return MLPoly(experts, shape, layer.discount, dtype, layer.pooling)
    return BY_LOSSES[layer.pooling](experts, shape, layer.discount, layer.power, dtype)


class Layers:
    """Mixtures of the same experts by ML-Poly or by losses, and a mixture of these by ML-Poly.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        layers: The mixtures, `K` of them.
        discount: What a regret of a mixture weighs one row later.
        dtype: Of what is kept.
        word: Whether the one by all that was lost has the last word, if there is one.

    Example:
        >>> rule = Layers(2, (1, 1), (Layer(0.99, "none"), Layer(0.999, "none")))
        >>> forecasts = np.array([1.0, 3.0])[:, None, None]
        >>> for _ in range(50):
        ...     rule.update(forecasts, rule.mixed(forecasts), np.array([1.0]))
        >>> bool(rule.weights[0, 0, 0] > 0.99)
        True
    """

    def __init__(
        self,
        experts: int,
        shape: tuple[int, int],
        layers: tuple[Layer, ...],
        discount: float = 0.999,
        dtype: type[np.floating] = np.float64,
        word: bool = True,
    ) -> None:
        self._shape = (experts, *shape)
        self._first = [_rule(layer, experts, shape, dtype) for layer in layers]
        self._second = MLPoly(len(layers), shape, discount, dtype, "all")
        lost = [place for place, layer in enumerate(layers) if layer.pooling == "steps"]
        #: Which of the mixtures is by all that was lost, and who chooses between it and the mixture of all.
        self.total = lost[0] if word and lost else -1
        self.last = None if self.total < 0 else Total(2, shape, LAST, SHARP, dtype, HANDICAP)
        if self.last is not None:
            self.last.weights[:] = np.array([0.0, 1.0])[:, None, None]
        self.kept = 1 + len(layers) + (self.last is not None)  # numbers that `mixed` gives for each value

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The mixtures, and after them the one that mixes them; `blend.c` does with them as is done here."""
        return (*self._first, self._second)

    @property
    def weights(self) -> Floats:
        """What each expert weighs in the end, `(E, H, C)`."""
        total = np.zeros(self._shape, self._second.weights.dtype)
        for rule, share in zip(self._first, self._second.weights, strict=True):
            total += share * rule.weights
        if self.last is None:
            return total
        return np.asarray(self.last.weights[1] * total + self.last.weights[0] * self._first[self.total].weights)

    def lean(self, share: float) -> None:
        """Until the next row is learned, up to so much of the answer is the last mixture's, and the rest as ever."""
        weights = self._second.weights
        weights *= 1 - share
        weights[-1] += share
        if self.last is not None:
            self.last.weights[0] *= 1 - share
            self.last.weights[1] = 1 - self.last.weights[0]

    def mixed(self, forecasts: Floats) -> Floats:
        """The answer and the mixtures it is made of, `(1 + K, H, C)`, of forecasts `(E, H, C)`.

        Where one of them is by all that was lost, the mixture of all comes after them, `(2 + K, H, C)`.
        """
        found = np.empty((self.kept, *forecasts.shape[1:]), forecasts.dtype)
        layers = found[1 : 1 + len(self._first)]
        for rule, mixture in zip(self._first, layers, strict=True):
            weights = np.broadcast_to(rule.weights, forecasts.shape)
            np.einsum("ehc,ehc->hc", weights, forecasts, out=mixture, casting="same_kind")
        found[0] = (self._second.weights * layers).sum(0)
        if self.last is not None:
            found[-1] = found[0]
            found[0] = self.last.weights[0] * layers[self.total] + self.last.weights[1] * found[-1]
        return found

    def update(self, forecasts: Floats, mixed: Floats, truth: Array) -> None:
        """Learn what came.

        Args:
            forecasts: `(E, H, C)`.
            mixed: What `mixed` gave for them.
            truth: Broadcasts to `(H, C)`; NaN where unknown, and nothing is learned there.
        """
        layers = mixed[1 : 1 + len(self._first)]
        for rule, mixture in zip(self._first, layers, strict=True):
            rule.update(forecasts, mixture, truth)
        if self.last is None:
            self._second.update(layers, mixed[0], truth)
            return
        self._second.update(layers, mixed[-1], truth)
        self.last.update(np.stack([layers[self.total], mixed[-1]]), mixed[0], truth)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        rules: dict[str, Rule] = {f"first_{number}": rule for number, rule in enumerate(self._first)}
        rules["second"] = self._second
        if self.last is not None:
            rules["last"] = self.last
        return {f"{name}_{part}": values for name, rule in rules.items() for part, values in rule.arrays().items()}
