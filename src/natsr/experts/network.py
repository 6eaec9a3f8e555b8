"""A small network that forecasts one row from all channels, and is rolled out for the rows after it.

Two hidden layers with a linear path beside them. It reads a window, which may leave rows out (the last few, and those
around the same time a day ago), as differences from the last row, that row, and the calendar's waves; it answers the
next change of each channel in units of the channel's usual change. The loss is a Student-t's, so that no error pulls
harder than a few others. Every row brings one step of Adam on a batch of the newest windows and of random ones from all
the rows kept. The arithmetic is written out: forward, backward and step are a dozen products of matrices.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from natsr.experts.layouts import Waves
from natsr.experts.native import Native, Network, Place, address, at, fill
from natsr.experts.past import Array, Arrays, Past

Single = npt.NDArray[np.float32]
DOF = 5.0
NEWEST, DRAWN = 4, 60  # windows in a batch
FIRST_RATE, COOLING = 1e-3, 200.0
DECAYS = (0.9, 0.999)
LIMIT = 20.0  # inputs, in standard deviations
FARTHEST = 8.0  # a change from one row to the next, in usual changes
FEWEST = 64  # windows before the first step


class Style(NamedTuple):
    """What networks differ in: a name, the rate that is left in the end, units in a hidden layer."""

    name: str = "network"
    rate: float = 5e-5
    width: int = 128


PLAIN = Style()


class OneStep:
    """The network as an expert.

    Args:
        channels: Values in a row, `C`.
        horizon: Rows ahead, `H`.
        taps: The rows that it reads, by how many rows each lies before the newest; falling to 0.
        waves: The calendar.
        style: Its name, rate and width.
        memory: Rows kept to learn from.
        seed: Of the first weights and of which windows are drawn.
    """

    def __init__(
        self,
        channels: int,
        horizon: int,
        taps: tuple[int, ...],
        waves: Waves,
        style: Style = PLAIN,
        memory: int = 16384,
        seed: int = 0,
    ) -> None:
        self.names: tuple[str, ...] = (style.name,)
        self._rate_left, width = style.rate, style.width
        self._taps, self._reach = np.array(taps, dtype=np.int64), taps[0] + 1
        self._waves, self._seed, self._horizon = waves, seed, horizon
        self._inputs = len(taps) * channels + waves.size
        draw = np.random.Generator(np.random.Philox(key=seed))
        # One flat vector of weights, and a view of it for each matrix; the last row of a matrix is its bias.
        shapes = ((self._inputs + 1, width), (width + 1, width), (width + 1, channels), (self._inputs, channels))
        self._shapes = shapes
        self._weights = np.zeros(sum(rows * columns for rows, columns in shapes), dtype=np.float32)
        self._gradient = np.zeros_like(self._weights)
        self._first, self._second = np.zeros_like(self._weights), np.zeros_like(self._weights)
        self._bind()
        for layer in self._layers[:2]:
            layer[:-1] = draw.standard_normal(layer[:-1].shape) / np.sqrt(len(layer))
        self._layers[2][:-1] = 0.1 * draw.standard_normal(self._layers[2][:-1].shape) / np.sqrt(width)
        self._values = np.zeros((memory, channels), dtype=np.float32)
        self._known = np.zeros((memory, channels), dtype=bool)
        self._counts = np.zeros(3, dtype=np.int64)  # rows, steps, refused steps
        self._native = Native[tuple[Network, Single]]()

    def _bind(self) -> None:
        """The matrices, as views of the flat vectors."""
        ends = np.cumsum([rows * columns for rows, columns in self._shapes])[:-1]
        self._layers, self._slopes = (
            [part.reshape(shape) for part, shape in zip(np.split(flat, ends), self._shapes, strict=True)]
            for flat in (self._weights, self._gradient)
        )

    def __deepcopy__(self, memo: dict[int, object]) -> OneStep:
        """A copy whose matrices are views of its own vectors."""
        twin = copy.copy(self)
        memo[id(self)] = twin
        for name, value in vars(self).items():
            if name not in ("_layers", "_slopes"):
                setattr(twin, name, copy.deepcopy(value, memo))
        twin._bind()
        return twin

    # ---- learning ------------------------------------------------------------------------------------------------

    def observe(self, past: Past) -> None:
        """Keep the row, and take one step."""
        rows, memory = int(self._counts[0]), len(self._values)
        self._values[rows % memory], self._known[rows % memory] = past.clean(1)[0], past.known_last(1)[0]
        self._counts[0] = rows = rows + 1
        place = self._address()  # room is made with the first row, not when there is enough to learn
        oldest, newest = max(0, rows - memory) + self._reach, rows - 1  # row numbers of labels
        if newest - oldest < FEWEST:
            return
        size = past.size()
        if not (size > 0).any():
            return
        draw = np.random.Generator(np.random.Philox(key=self._seed, counter=rows))
        labels = np.concatenate([np.arange(newest, newest - NEWEST, -1), draw.integers(oldest, newest, DRAWN)])
        library = self._native.library
        if library is not None:
            rate = self._rate(int(self._counts[1]) + 1)
            taken = library.onestep_learn(place, past.address(), at(labels), rows, rate)
            self._counts[1 if taken else 2] += 1
            return
        places = (labels[:, None] - np.append(1 + self._taps, 0)) % memory
        block = self._values[places]  # (B, L + 1, C)
        waves = self._waves.at((labels - 1).astype(np.float64) + past.seen - rows)
        inputs = self._read(block[:, :-1], waves)
        change = (block[:, -1] - block[:, -2]) / np.maximum(size, 1e-9).astype(np.float32)
        self._step(inputs, np.clip(change, -LIMIT, LIMIT), self._known[labels % memory])

    def _read(self, window: Single, waves: Array) -> Single:
        """`(B, n)`: differences from the last row, that row, waves."""
        count, rows, channels = window.shape
        inputs = np.empty((count, self._inputs), dtype=np.float32)
        last, wide = window[:, -1], (rows - 1) * channels
        np.subtract(window[:, :-1], last[:, None], out=inputs[:, :wide].reshape(count, rows - 1, channels))
        inputs[:, wide : wide + channels] = last
        inputs[:, wide + channels :] = waves
        return np.clip(inputs, -LIMIT, LIMIT, out=inputs)

    def _forward(self, inputs: Single) -> tuple[Single, list[Single], list[Single]]:
        """The outputs, what each hidden layer hands on, and its slope."""
        hidden, slopes, found = [], [], inputs
        for layer in self._layers[:2]:
            sums = found @ layer[:-1] + layer[-1]
            gate = 1 / (1 + np.exp(-np.clip(sums, -30, 30)))
            found = sums * gate
            hidden.append(found)
            slopes.append(gate * (1 + sums * (1 - gate)))
        last = self._layers[2]
        return found @ last[:-1] + last[-1] + inputs @ self._layers[3], hidden, slopes

    def _step(self, inputs: Single, target: Single, known: npt.NDArray[np.bool_]) -> None:
        """One step of Adam on the mean loss; refused if it is not finite."""
        output, (one, two), (slope_one, slope_two) = self._forward(inputs)
        error = np.where(known, output - target, np.float32(0))
        pull: Single = (error * (DOF + 1) / (len(inputs) * (DOF + error * error))).astype(np.float32)
        for part, source, flow in ((2, two, pull), (3, inputs, pull)):
            self._put(part, source, flow)
        flow = (pull @ self._layers[2][:-1].T) * slope_two
        self._put(1, one, flow)
        flow = (flow @ self._layers[1][:-1].T) * slope_one
        self._put(0, inputs, flow)
        if not np.isfinite(self._gradient.sum()):
            self._counts[2] += 1
            return
        self._counts[1] += 1
        steps = int(self._counts[1])
        slow, fast = np.float32(DECAYS[0]), np.float32(DECAYS[1])
        self._first *= slow
        self._first += (1 - slow) * self._gradient
        self._second *= fast
        self._second += (1 - fast) * np.square(self._gradient)
        self._weights -= np.float32(self._rate(steps)) * self._first / (np.sqrt(self._second) + np.float32(1e-8))

    def _rate(self, steps: int) -> float:
        """That of a step, by its number, with Adam's corrections for averages that began at zero."""
        rate = max(self._rate_left, FIRST_RATE / (1 + steps / COOLING))
        return rate * math.sqrt(1 - DECAYS[1] ** steps) / (1 - DECAYS[0] ** steps)

    def _put(self, part: int, source: Single, flow: Single) -> None:
        """The gradient of one matrix, into its place."""
        slope = self._slopes[part]
        if len(slope) > source.shape[1]:  # it has a bias
            slope[-1] = flow.sum(0)
            np.matmul(source.T, flow, out=slope[:-1])
        else:
            np.matmul(source.T, flow, out=slope)

    # ---- forecasting ---------------------------------------------------------------------------------------------

    def forecast(self, past: Past, out: Array) -> None:
        """Row after row, each from those before it."""
        if int(self._counts[1]) == 0:
            out[0] = past.jumps.begin
            return
        library = self._native.library
        if library is not None and out.flags.c_contiguous:
            library.onestep_forecast(self._address(), past.address(), at(out))
            return
        size = past.size().astype(np.float32)
        rows = np.empty((self._reach + self._horizon, past.channels), dtype=np.float32)
        rows[: self._reach] = past.clean(self._reach)
        waves = self._waves.at(np.arange(past.seen - 1, past.seen - 1 + self._horizon, dtype=np.float64))
        for step in range(self._horizon):
            window = rows[None, step + self._reach - 1 - self._taps]
            change = self._forward(self._read(window, waves[step]))[0][0]
            rows[step + self._reach] = window[0, -1] + size * np.clip(change, -FARTHEST, FARTHEST)
        out[0] = rows[self._reach :]
        out[0] += past.jumps.begin - past.clean(1)

    def _address(self) -> int:
        """Where compiled code finds all this, and room to work."""
        library, (memory, channels) = self._native.library, self._values.shape
        if self._native.made is None and library is not None:
            width, batch = self._shapes[1][1], NEWEST + DRAWN
            window, reach = len(self._taps), self._reach
            made = Network(channels, self._horizon, window, reach, width, self._inputs, memory, batch)
            fill(
                made,
                taps=self._taps,
                weights=self._weights,
                gradient=self._gradient,
                first=self._first,
                second=self._second,
            )
            fill(made, values=self._values, known=self._known)
            made.dof, made.limit, made.farthest = DOF, LIMIT, FARTHEST
            made.slow, made.fast = DECAYS
            made.calendar.describe(self._waves.kinds())
            room = np.zeros(library.onestep_room(address(made)), dtype=np.float32)
            fill(made, work=room)
            self._native.made = made, room
        return 0 if self._native.made is None else address(self._native.made[0])

    def native(self, _: Past, /) -> Place | None:
        """It is asked from here."""
        return None

    def arrays(self) -> Arrays:
        """Weights, Adam's averages, and the rows kept."""
        return {
            "weights": self._weights,
            "first": self._first,
            "second": self._second,
            "values": self._values,
            "known": self._known,
            "counts": self._counts,
        }
