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

`natsr.mixtures` runs several of these beside each other.
"""

from __future__ import annotations

import abc
from typing import Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating]
Arrays = dict[str, npt.NDArray[np.generic]]

TINY, HUGE = 1e-12, 1e30
#: Regrets are cut at so many times the usual size of the largest in a row.
WILD = 6.0
SIZE_RATE = 0.01
YOUNG = 20
ROUNDING = 16  # a mixture's rounding error, in those of one number
#: Which regrets an expert's weight for one step and channel is learned from: its own; the mean of those of the steps
#: around it; the mean over channels, in units of each; the mean over steps and channels. Those of all steps of its
#: channel are for `natsr.mixtures.Total` alone.
Pooling = Literal["none", "near", "channels", "all", "steps"]
NEAR = 2  # steps to either side


def mean_of_near(values: Floats) -> Floats:
    """The mean over the steps around each, `(E, H, C)`; the first and the last step count for those beyond them."""
    steps = values.shape[1]
    if steps == 1:
        return values
    wide = np.concatenate([values[:, :1]] * NEAR + [values] + [values[:, -1:]] * NEAR, 1)
    total = wide[:, :steps] + wide[:, 1 : steps + 1]
    for first in range(2, 2 * NEAR + 1):
        total += wide[:, first : first + steps]
    total *= 1 / (2 * NEAR + 1)
    return total


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
        largest = np.minimum(largest, np.where(self.count < YOUNG, HUGE, np.minimum(HUGE, WILD**2 * self.size)))
        self.count += largest > 0
        self.size += np.maximum(SIZE_RATE, 1 / np.maximum(self.count, 1)) * (largest - self.size)
        limit = np.sqrt(largest).astype(gained.dtype)
        return np.clip(gained, -limit, limit, out=gained)

    def _pooled(self, gained: Floats) -> Floats:
        """Regrets `(E, H, C)` as the weights see them."""
        if self.pooling == "none":
            return gained
        if self.pooling == "near":
            return mean_of_near(gained)
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


RULES: dict[str, type[Aggregator]] = {"mlpoly": MLPoly, "boa": BOA, "ewa": EWA}
