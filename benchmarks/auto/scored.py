"""The one-step network of `auto` learned by the natural score-driven step, or from few windows: to be measured.

The network, its inputs and its forecast are those of `natsr.experts.network`. What differs is the step. The Student-t
has a scale that is tracked by its own score, the damping follows it by the law of the paper, each layer has a Kronecker
block (exact: one backward pass for each column), and no step is longer than the theorem allows. The last layer and the
linear path beside it are one block, for both end in the outputs.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from natsr.experts.layouts import Waves
from natsr.experts.network import COOLING, DECAYS, DRAWN, FEWEST, LIMIT, NEWEST, OneStep, Single, Style
from natsr.experts.past import Past
from natsr.likelihoods import paper_damping

FLOOR = 1e-4  # of the squared scale


class Step(NamedTuple):
    """The natural step: degrees of freedom, damping, the rate at first and in the end, and what is averaged."""

    dof: float = 5.0
    beta: float = 0.14
    rate: float = 0.01
    first: float = 0.1
    average: float = 1.0  # weight of the newest step in their mean; 1: no mean
    curvature: float = 0.05  # weight of the newest batch in the blocks
    every: int = 8  # steps from one inversion to the next
    scale_rate: float = 0.1
    finish: Literal["plain", "adam"] = "plain"
    curved: bool = True  # False: the gradient as it is, to see what the blocks add


class How(NamedTuple):
    """How a network is learned.

    Args:
        step: The natural step; none: Adam, as it is.
        windows: How many are remembered, a uniform sample of all; 0: all of them.
        seed: Of the first weights and of which windows are drawn.
    """

    step: Step | None = None
    windows: int = 0
    seed: int = 10  # none that `auto` has


class Block(NamedTuple):
    """A layer's Fisher information without the likelihood's: of what it reads, and of what follows it."""

    a: Single
    g: Single | None = None  # None: the identity

    def toward(self, new: Block, weight: float) -> Block:
        """A little nearer to a new one."""
        g = None if self.g is None or new.g is None else self.g + np.float32(weight) * (new.g - self.g)
        return Block(self.a + np.float32(weight) * (new.a - self.a), g)

    def inverse(self, damping: float) -> Block:
        """Under the factored rule of damping."""
        mean = 1.0 if self.g is None else float(np.trace(self.g)) / len(self.g)
        balance = math.sqrt(float(np.trace(self.a)) / len(self.a) / mean) if mean > 0 else 1.0
        root = math.sqrt(damping)
        g = None if self.g is None else _inverse(self.g, root / balance)
        return Block(_inverse(self.a, root * balance) / np.float32(1 if g is not None else 1 + root / balance), g)

    def solve(self, slope: Single) -> Single:
        """This, an inverse, times a gradient."""
        found: Single = self.a @ slope
        return found if self.g is None else np.asarray(found @ self.g, dtype=np.float32)


def _inverse(matrix: Single, shift: float) -> Single:
    found = np.linalg.inv(matrix + np.float32(shift) * np.eye(len(matrix), dtype=np.float32))
    return np.asarray(found, dtype=np.float32)


def _moment(rows: Single, count: int) -> Single:
    return np.asarray(rows.T @ rows / np.float32(count))


def _ones(rows: Single) -> Single:
    return np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], 1)


class Scored(OneStep):
    """The network as an expert that is to be measured.

    Args:
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.
        taps: The rows that it reads, as for the network.
        waves: The calendar.
        style: Its name, width, and Adam's rate.
        how: It is learned.
    """

    def __init__(
        self,
        channels: int,
        horizon: int,
        taps: tuple[int, ...],
        waves: Waves,
        style: Style,
        how: How,
    ) -> None:
        super().__init__(channels, horizon, taps, waves, style, seed=how.seed)
        self._natural, self._sample = how.step, np.zeros(how.windows, dtype=np.int64)
        self._sampled = 0
        self._blocks: tuple[Block, ...] = ()
        self._inverses: tuple[Block, ...] = ()
        self._mean = np.zeros_like(self._weights)
        self.variance = 1.0
        self.longest = 0.0  # the longest step, over the theorem's bound, before it was cut

    def observe(self, past: Past) -> None:
        """Keep the row, and take one step; as the network does."""
        rows, memory = int(self._counts[0]), len(self._values)
        self._values[rows % memory], self._known[rows % memory] = past.clean(1)[0], past.known_last(1)[0]
        self._counts[0] = rows = rows + 1
        oldest, newest = max(0, rows - memory) + self._reach, rows - 1
        draw = np.random.Generator(np.random.Philox(key=self._seed, counter=rows))
        if newest >= oldest:
            self._remember(newest)
        size = past.size()
        if newest - oldest < FEWEST or not (size > 0).any():
            return
        drawn = draw.integers(oldest, newest, DRAWN)
        if len(self._sample):
            drawn = self._sample[draw.integers(0, min(len(self._sample), self._sampled), DRAWN)]
        labels = np.concatenate([np.arange(newest, newest - NEWEST, -1), drawn])
        places = (labels[:, None] - np.append(1 + self._taps, 0)) % memory
        block = self._values[places]
        waves = self._waves.at((labels - 1).astype(np.float64) + past.seen - rows)
        change = (block[:, -1] - block[:, -2]) / np.maximum(size, 1e-9).astype(np.float32)
        target, known = np.clip(change, -LIMIT, LIMIT), self._known[labels % memory]
        self._step(self._read(block[:, :-1], waves), target, known)

    def _remember(self, label: int) -> None:
        """A uniform sample of all windows so far (Vitter 1985), by their labels' row numbers."""
        if len(self._sample):
            draw = np.random.Generator(np.random.Philox(key=self._seed + 1000, counter=label))
            place = self._sampled if self._sampled < len(self._sample) else int(draw.integers(0, self._sampled + 1))
            self._sampled += 1
            if place < len(self._sample):
                self._sample[place] = label

    def _step(self, inputs: Single, target: Single, known: npt.NDArray[np.bool_]) -> None:
        """Adam's step, or the natural one; refused if it is not finite."""
        if self._natural is None:
            super()._step(inputs, target, known)
            return
        knobs, (count, outputs) = self._natural, target.shape
        output, (one, two), (slope_one, slope_two) = self._forward(inputs)
        error = np.where(known, output - target, np.float32(0))
        spread = knobs.dof * self.variance + error * error
        pull: Single = (error * (knobs.dof + 1) / (spread * (count * math.sqrt(outputs)))).astype(np.float32)
        hidden, last = self._layers[1][:-1], self._layers[2][:-1]
        flow_two: Single = (pull @ last.T) * slope_two
        flow_one: Single = (flow_two @ hidden.T) * slope_one
        for part, source, flow in ((2, two, pull), (3, inputs, pull), (1, one, flow_two), (0, inputs, flow_one)):
            self._put(part, source, flow)
        steps = int(self._counts[1])
        kappa = (knobs.dof + 1) / ((knobs.dof + 3) * self.variance)
        damping = paper_damping(knobs.beta)(self.variance)
        if knobs.curved and steps % knobs.every == 0:
            self._look(_ones(inputs), (one, two), (slope_one, slope_two), damping / kappa)
        slopes: list[Single] = [*self._slopes[:2], np.concatenate(self._slopes[2:])]
        if knobs.curved:
            pairs = zip(self._inverses, slopes, strict=True)
            slopes = [np.asarray(block.solve(slope) / kappa, dtype=np.float32) for block, slope in pairs]
        delta = np.concatenate([part.ravel() for part in slopes])
        length = float(np.linalg.norm(delta))
        if not math.isfinite(length):
            self._counts[2] += 1
            return
        bound = 0.25 * math.sqrt((knobs.dof + 1) * (knobs.dof + 3) / (damping * knobs.dof))
        self.longest = max(self.longest, length / bound)
        self._counts[1] += 1
        delta *= np.float32(min(1.0, bound / max(length, 1e-30)))
        self._mean += np.float32(knobs.average) * (delta - self._mean)
        self._move(knobs, steps)
        square = error[known].astype(np.float64) ** 2
        if len(square):
            score = (square - self.variance) / (square / (knobs.dof * self.variance) + 1)
            self.variance = max(FLOOR, self.variance + knobs.scale_rate * float(score.mean()))

    def _look(
        self, inputs: Single, hidden: tuple[Single, Single], slopes: tuple[Single, Single], damping: float
    ) -> None:
        """Take the batch into the blocks, with one backward pass for each column, and invert them."""
        count, steps, knobs = len(inputs), int(self._counts[1]), self._natural or Step()
        between, last = self._layers[1][:-1], self._layers[2][:-1]
        two: Single = last.T[:, None] * slopes[1]  # (C, B, W)
        one: Single = (two @ between.T) * slopes[0]
        new = (
            Block(_moment(inputs, count), _moment(one.reshape(-1, len(between)), count)),
            Block(_moment(_ones(hidden[0]), count), _moment(two.reshape(-1, len(last)), count)),
            Block(_moment(np.concatenate([_ones(hidden[1]), inputs[:, :-1]], 1), count)),
        )
        weight = max(knobs.curvature, 1 / (1 + steps / knobs.every))
        self._blocks = tuple(old.toward(block, weight) for old, block in zip(self._blocks or new, new, strict=True))
        self._inverses = tuple(block.inverse(damping) for block in self._blocks)

    def _move(self, knobs: Step, steps: int) -> None:
        """Along the mean step, by its rate, or by that rate as Adam takes it."""
        rate = max(knobs.rate, knobs.first / (1 + steps / COOLING))
        if knobs.finish == "plain":
            self._weights -= np.float32(rate) * self._mean
            return
        slow, fast = DECAYS
        self._first += np.float32(1 - slow) * (self._mean - self._first)
        self._second += np.float32(1 - fast) * (np.square(self._mean) - self._second)
        rate *= math.sqrt(1 - fast ** (steps + 1)) / (1 - slow ** (steps + 1))
        self._weights -= np.float32(rate) * self._first / (np.sqrt(self._second) + np.float32(1e-8))
