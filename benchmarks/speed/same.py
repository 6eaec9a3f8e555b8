"""The same forecasts: NatSR as it is and as the textbook has it, fed the same random numbers.

`python -m benchmarks.speed.same` runs both over the first 500 steps of ETTh1's online part, full size, in float32, and
keeps the largest difference in the section `same` of `benchmarks/results/speed.json`; a few minutes. The tests do the
same with a small network, also in float64.
"""

from __future__ import annotations

import argparse
import sys
from typing import NamedTuple

import torch
from benchmarks.speed.cases import WINDOW, network
from benchmarks.speed.machine import describe
from benchmarks.speed.store import Row, Section, read, write
from benchmarks.speed.textbook import Draws, Method, Textbook
from torch import Tensor

from natsr.bench.cells import warm_up
from natsr.data.named import load
from natsr.data.series import prepare
from natsr.evaluate import Moment, evaluate
from natsr.forecasters.base import Forecast, Forecaster
from natsr.forecasters.neural import NeuralForecaster
from natsr.nets.tcn import ConeTrace
from natsr.recipes import NatsrOptions, make
from natsr.streams import Rows
from natsr.types import Example, State, StateError


class Beside(Forecaster):
    """The textbook behind the two verbs, beginning where a forecaster is: its weights and its random numbers."""

    def __init__(self, other: NeuralForecaster[ConeTrace], method: Method, options: NatsrOptions) -> None:
        generator = torch.Generator()
        generator.set_state(other.generator.get_state())
        self.task = other.task
        natural = None if other.natural is None else other.natural.options
        self.book = Textbook(network(other), method, Draws(generator), options, natural)

    def forecast(self, window: Tensor) -> Forecast:
        self.check_window(window)
        return Forecast(self.book.forecast(window[:, -self.task.window :]))

    def learn(self, example: Example) -> None:
        self.book.learn(Example(example.window[:, -self.task.window :], example.target))

    def state_dict(self) -> State:
        weights = torch.cat([part.detach().flatten() for part in self.book.net.parameters()])
        return {"weights": weights}

    def load_state_dict(self, state: State) -> None:
        raise StateError(f"the textbook goes on from no state, got {sorted(state)}; begin with a fresh one")


class Agreement(NamedTuple):
    """How far two learners were apart."""

    steps: int
    largest: float  # difference of two forecasts, in standard deviations of the data
    typical: float  # size of a forecast: the root of its mean square
    refreshes: tuple[int, int]
    refused: int


def compared(
    fast: NeuralForecaster[ConeTrace], book: Beside, rows: Rows, part: tuple[int, int], steps: int | None = None
) -> Agreement:
    """Run both over the rows from `part[0]` up to `part[1]`, honestly."""
    apart, squares = [0.0], [0.0]

    def look(moment: Moment) -> None:
        mine, theirs = moment.means["fast"], moment.means["textbook"]
        apart.append(float(abs(mine - theirs).max()))
        squares.append(float((mine**2).mean()))

    scores = evaluate(
        {"fast": fast, "textbook": book},
        rows,
        fast.task,
        start=part[0],
        stop=part[1],
        max_steps=steps,
        intervals=False,
        on_step=look,
    )
    typical = (sum(squares) / (len(squares) - 1)) ** 0.5
    return Agreement(scores["fast"].steps, max(apart), typical, (fast.refreshes, book.book.refreshes), fast.refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="that learn")
    parser.add_argument("--horizon", type=int, default=24)
    given = parser.parse_args()
    torch.set_num_threads(1)
    machine = describe()
    series, borders = load("ETTh1")
    data = prepare(series, borders)
    fast = make("natsr", data.task(WINDOW, given.horizon))
    assert isinstance(fast, NeuralForecaster)
    warm_up(fast, data, borders)
    book = Beside(fast, "natsr", NatsrOptions())
    found = compared(fast, book, data.rows, (borders.valid, borders.online), given.steps + given.horizon)
    row: Row = {
        "stream": "ETTh1",
        "horizon": given.horizon,
        "steps": given.steps,
        "largest_difference": found.largest,
        "typical_forecast": round(found.typical, 4),
        "refreshes": found.refreshes[0],
        "textbook_refreshes": found.refreshes[1],
    }
    write(read() | {"same": Section(machine, False, [row])})
    sys.stdout.write(f"{row}\n")


if __name__ == "__main__":
    main()
