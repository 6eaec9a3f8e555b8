"""Mixing experts online: the weights of a mean, learned from how each expert did, with a bound on the regret.

All rules share one interface and work on many problems at once: one for each step ahead and channel, `(H, C)`, with `E`
experts each. `weights` says how to mix; `update` takes the experts' forecasts, the mixture that was given and the value
that came. The loss is the absolute error. With the *gradient trick* an expert is not charged its own loss but the
linear function `g · f_i`, where `g` is the sign of the mixture's error; a small regret for these linear losses is a
small regret against the best fixed *mixture*, not only against the best single expert.

With `r_i = g (ŷ - f_i)` (what would have been gained by going to expert `i`), the sums below discounted by `discount` a
row, and `N` experts:

- **ML-Poly** (Gaillard, Stoltz, van Erven 2014): `R_i = Σ r_i`, weights proportional to `max(R_i, 0) / (1 + Σ r_i²)`.
  No rate to tune. Regret without discounting, of losses that come at once: `R_i ≤ sqrt(N (1 + ln(1 + T)) (1 + Σ r_i²))`
  for `|r| ≤ 1`; of losses `h` rows late about `sqrt(h)` times that. Cut or pooled regrets are outside it.
- **BOA** (Wintenberger 2017): weights proportional to `η_i exp(η_i R_i - η_i² Σ r_i²)`, with a rate for each expert
  that falls as its `Σ r_i²` grows.
- **EWA**: weights proportional to `exp(η R_i)`, `η = sqrt(ln N / Σ max_i r_i²)`.
- **Power**: weights proportional to `L_i^-p`, with the losses `L_i` of late, over all steps and channels. It has no
  bound and cannot do better than the best expert by much, but it leaves those who have become worse within days, where
  rules that add up regrets must first see the old ones fade.
- **Total**: weights proportional to `L_i^-p`, with all that each has lost, over all steps of a column. All others hold
  a row to what is usual, so that an outlier does not outweigh the rest; where a stream is a matter of few rows (a
  battery that is full again at once, a counter that begins anew) it is these that count.

One discount cannot be right before a change and after it, and what is learned for one step and channel alone is learned
from few rows. `Layers` therefore runs ML-Poly several times, with other discounts and with regrets *pooled* over steps
or channels, and Power beside them, and mixes the mixtures by one more ML-Poly.
"""

from __future__ import annotations

import abc
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating]
Arrays = dict[str, npt.NDArray[np.generic]]

TINY, _HUGE = 1e-12, 1e30
#: Regrets are cut at so many times the usual size of the largest in a row.
WILD = 6.0
SIZE_RATE = 0.01
YOUNG = 20
ROUNDING = 16  # a mixture's rounding error, in those of one number
#: Which regrets an expert's weight for one step and channel is learned from: its own; the mean of those of the steps
#: around it; the mean over channels, in units of each; the mean over steps and channels. Those of all steps of its
#: channel are for `Total` alone.
Pooling = Literal["none", "near", "channels", "all", "steps"]
NEAR = 2  # steps to either side
#: Of `Power`: weight of the newest row in the mixture's loss of late; the most that a row counts in units of it; a loss
#: that is next to nothing.
PACE, FAR, BARELY = 0.1, 20.0, 1e-6
#: Of `Total`: an error counts as at most so many usual ones.
BEYOND = 30.0


class Aggregator(abc.ABC):
    """Weights for `experts` forecasts of each of `shape` values.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        discount: What a regret weighs one row later; 1 never forgets.
        dtype: Of what is kept for each expert; a `float32` is enough, and half as much to go through.
        pooling: Whose regrets count; anything but `none` needs a shape `(H, C)`.
    """

    def __init__(
        self,
        experts: int,
        shape: tuple[int, ...],
        discount: float = 1.0,
        dtype: type[np.floating] = np.float64,
        pooling: Pooling = "none",
    ) -> None:
        self.discount, self.pooling = discount, pooling
        if pooling == "steps":
            raise ValueError("pooling is 'steps', which only Total has")
        kept = {"channels": (*shape[:1], 1), "all": (1, 1)}.get(pooling, shape)
        self.regret = np.zeros((experts, *kept), dtype)
        self.square = np.zeros((experts, *kept), dtype)
        self.size = np.zeros(shape)  # mean square of the largest regret in a row
        self.count = np.zeros(shape)  # rows in it
        self.weights = np.full((experts, *kept), 1 / experts, dtype)  # broadcasts to `(E, H, C)`

    def update(self, forecasts: Floats, mixture: Floats, truth: Array) -> None:
        """Learn what came.

        Args:
            forecasts: `(E, H, C)`.
            mixture: `(H, C)`, what was answered.
            truth: Broadcasts to `(H, C)`; NaN where unknown, and nothing is learned there.
        """
        sign = np.nan_to_num(np.sign(mixture - truth), nan=0.0).astype(forecasts.dtype)
        mixture = mixture.astype(forecasts.dtype, copy=False)
        self.learn(self._pooled(self._held((mixture - forecasts) * sign, mixture)))

    def _held(self, gained: Floats, mixture: Floats) -> Floats:
        """Regrets cut where they are far beyond the usual: one wild row must not outweigh all others for long.

        Where no expert differs from the mixture by more than rounding there are none: as long as all say the same, in
        the first rows, noise would be learned, and pooling would make it as large as what comes after it.
        """
        largest = np.abs(gained).max(0)
        noise = ROUNDING * np.finfo(gained.dtype).eps * np.abs(mixture)
        largest = np.where(largest > noise, np.square(largest, dtype=np.float64), 0.0)
        largest = np.minimum(largest, np.where(self.count < YOUNG, _HUGE, WILD**2 * self.size))
        self.count += largest > 0
        self.size += np.maximum(SIZE_RATE, 1 / np.maximum(self.count, 1)) * (largest - self.size)
        limit = np.sqrt(largest).astype(gained.dtype)
        return np.clip(gained, -limit, limit, out=gained)

    def _pooled(self, gained: Floats) -> Floats:
        """Regrets `(E, H, C)` as the weights see them."""
        if self.pooling == "none" or (self.pooling == "near" and gained.shape[1] == 1):
            return gained
        if self.pooling == "near":
            steps = gained.shape[1]
            wide = np.concatenate([gained[:, :1]] * NEAR + [gained] + [gained[:, -1:]] * NEAR, 1)
            total = wide[:, :steps] + wide[:, 1 : steps + 1]
            for first in range(2, 2 * NEAR + 1):
                total += wide[:, first : first + steps]
            total *= 1 / (2 * NEAR + 1)
            return total
        units = 1 / np.sqrt(self.size + TINY)
        units /= units.shape[1] if self.pooling == "channels" else units.size
        if self.pooling == "channels":
            return np.asarray(np.einsum("ehc,hc->eh", gained, units.astype(gained.dtype))[:, :, None])
        return np.asarray(np.einsum("ehc,hc->e", gained, units.astype(gained.dtype))[:, None, None])

    def learn(self, gained: Floats) -> None:
        """Learn instantaneous regrets: how much better than the mixture each expert was; pooled, if they are to be."""
        if self.discount < 1:
            self.regret *= self.discount
            self.square *= self.discount
        self.regret += gained
        self._take(gained)
        scores = self._scores()
        total = scores.sum(0)
        np.divide(scores, total, out=self.weights, where=total > TINY)

    def _take(self, gained: Floats) -> None:
        self.square += gained * gained

    @abc.abstractmethod
    def _scores(self) -> Floats:
        """Weights that need not sum to one; where they are all zero the weights stay as they are."""

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {
            "regret": self.regret,
            "square": self.square,
            "weights": self.weights,
            "size": self.size,
            "count": self.count,
        }


class MLPoly(Aggregator):
    """Weights by positive regret, each with its own rate.

    Example:
        >>> rule = MLPoly(2, (1,))
        >>> for _ in range(50):
        ...     rule.update(np.array([[1.0], [3.0]]), rule.weights.T @ np.array([1.0, 3.0]), np.array([1.0]))
        >>> bool(rule.weights[0, 0] > 0.99)
        True
    """

    def _scores(self) -> Floats:
        scores = np.maximum(self.regret, 0.0)
        scores /= 1.0 + self.square
        return scores


class BOA(Aggregator):
    """Bernstein online aggregation: exponential weights with a second-order correction and rates of their own."""

    def _scores(self) -> Floats:
        experts = len(self.regret)
        rate = np.minimum(0.5, np.sqrt(np.log(experts) / (1.0 + self.square)))
        exponent = rate * self.regret - rate**2 * self.square
        exponent -= exponent.max(0)
        return np.asarray(rate * np.exp(exponent))


class EWA(Aggregator):
    """Exponentially weighted averaging with one rate for all experts, which falls as regrets come in."""

    def _take(self, gained: Floats) -> None:
        self.square += (gained * gained).max(0)

    def _scores(self) -> Floats:
        rate = np.sqrt(np.log(len(self.regret)) / (1.0 + self.square))
        exponent = rate * self.regret
        exponent -= exponent.max(0)
        return np.asarray(np.exp(exponent))


def _usual(size: Array, count: Array, wrong: Array, known: npt.NDArray[np.bool_], most: float) -> None:
    """Let a mean square follow errors, each of which counts as at most so many usual ones."""
    wild = np.where(count < YOUNG, _HUGE, most**2 * size)
    count += known
    rate = known * np.maximum(SIZE_RATE, 1 / np.maximum(count, 1))
    size += rate * (np.minimum(np.square(wrong, dtype=np.float64), wild) - size)


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
    ) -> None:
        self.discount, self.power = discount, power
        self.loss = np.zeros((experts, shape[1]))
        self.size = np.zeros(shape)  # mean square of the mixture's errors
        self.count = np.zeros(shape)  # rows in it
        self.weights = np.full((experts, 1, shape[1]), 1 / experts, dtype)

    def update(self, forecasts: Floats, mixture: Floats, truth: Array) -> None:
        """Learn what came; as `Aggregator.update`."""
        known = np.isfinite(truth) & np.ones(mixture.shape, dtype=bool)
        _usual(self.size, self.count, np.where(known, np.abs(mixture - truth), 0.0), known, BEYOND)
        limit = BEYOND * np.sqrt(self.size)
        self.loss *= self.discount
        self.loss += np.minimum(np.where(known, np.abs(forecasts - truth), 0.0), limit).sum(1)
        scores = ((self.loss.min(0) + TINY) / (self.loss + TINY)) ** self.power
        self.weights[:] = (scores / scores.sum(0))[:, None]

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        return {"loss": self.loss, "weights": self.weights, "size": self.size, "count": self.count}


class Layer(NamedTuple):
    """One of several ways to mix the same experts: ML-Poly, or, with a power, `Power`, or `Total` for all steps."""

    discount: float
    pooling: Pooling
    power: float = 0.0


Rule = MLPoly | Power | Total


def _rule(layer: Layer, experts: int, shape: tuple[int, int], dtype: type[np.floating]) -> Rule:
    if not layer.power:
        return MLPoly(experts, shape, layer.discount, dtype, layer.pooling)
    kind = Total if layer.pooling == "steps" else Power
    return kind(experts, shape, layer.discount, layer.power, dtype)


class Layers:
    """Mixtures of the same experts by ML-Poly, `Power` or `Total`, and a mixture of these by ML-Poly.

    Args:
        experts: How many, `N`.
        shape: Of what is forecast, `(H, C)`.
        layers: The mixtures, `K` of them.
        discount: What a regret of a mixture weighs one row later.
        dtype: Of what is kept.

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
    ) -> None:
        self._shape = (experts, *shape)
        self.kept = 1 + len(layers)  # numbers that `mixed` gives for each value that is forecast
        self._first = [_rule(layer, experts, shape, dtype) for layer in layers]
        self._second = MLPoly(len(layers), shape, discount, dtype, "all")

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The mixtures, and last the one that mixes them; `blend.c` does with them as is done here."""
        return (*self._first, self._second)

    @property
    def weights(self) -> Floats:
        """What each expert weighs in the end, `(E, H, C)`."""
        total = np.zeros(self._shape, self._second.weights.dtype)
        for rule, share in zip(self._first, self._second.weights, strict=True):
            total += share * rule.weights
        return total

    def lean(self, share: float) -> None:
        """Until the next row is learned, so much of the answer is the last mixture's, and the rest as ever."""
        weights = self._second.weights
        weights *= 1 - share
        weights[-1] += share

    def mixed(self, forecasts: Floats) -> Floats:
        """The answer and the mixtures it is made of, `(1 + K, H, C)`, of forecasts `(E, H, C)`."""
        found = np.empty((self.kept, *forecasts.shape[1:]), forecasts.dtype)
        for rule, mixture in zip(self._first, found[1:], strict=True):
            weights = np.broadcast_to(rule.weights, forecasts.shape)
            np.einsum("ehc,ehc->hc", weights, forecasts, out=mixture, casting="same_kind")
        found[0] = (self._second.weights * found[1:]).sum(0)
        return found

    def update(self, forecasts: Floats, mixed: Floats, truth: Array) -> None:
        """Learn what came.

        Args:
            forecasts: `(E, H, C)`.
            mixed: What `mixed` gave for them.
            truth: Broadcasts to `(H, C)`; NaN where unknown, and nothing is learned there.
        """
        for rule, mixture in zip(self._first, mixed[1:], strict=True):
            rule.update(forecasts, mixture, truth)
        self._second.update(mixed[1:], mixed[0], truth)

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
        rules: dict[str, Rule] = {f"first_{number}": rule for number, rule in enumerate(self._first)}
        rules["second"] = self._second
        return {f"{name}_{part}": values for name, rule in rules.items() for part, values in rule.arrays().items()}


RULES: dict[str, type[Aggregator]] = {"mlpoly": MLPoly, "boa": BOA, "ewa": EWA}
