"""Experts at work on one stream: each new row is a label for what was forecast, and the origin of new forecasts.

The forecasts of the last `H` origins wait here until their rows come. A row is step 1 of the newest of them, step 2 of
the one before, and so on: the mixture learns from all of these at once, and so each label as soon as it is known.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from natsr.experts.base import Group
from natsr.experts.blend import Blend
from natsr.experts.correct import Correction
from natsr.experts.crew import Crew
from natsr.experts.guard import Guard, part_of_the_way
from natsr.experts.ledger import Ledger
from natsr.experts.native import Native
from natsr.experts.past import LARGEST, Array, Arrays, Past
from natsr.experts.turn import Turn
from natsr.mixtures import Layers, Power

SIZE_RATE = 0.01  # weight of the newest error in its mean square
WILD = 25.0  # times that mean square, at most
YOUNG = 20  # errors before any is cut
FLOOR = 1e-8
#: Forecasts are held to this many times the largest distance of late from the last value.
FAR = 4.0
FADE = 0.999
#: At a jump, to what the stream had done before it, and so many times that over the rows that it has lasted.
DOUBTED = 4.0


class Clock(Protocol):
    """Periods that experts share."""

    def look(self, past: Past, /) -> bool:
        """A row has come: perhaps look for periods anew. Whether one is another now."""

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""


class Panel:
    """Groups of experts, the mixture of their forecasts, and how far off it is.

    Args:
        past: The rows; fresh.
        clock: The periods; shared with the groups.
        groups: The experts; the first is the last value.
        mixture: Of all experts, for `(H, C)`.
        horizon: Rows ahead, `H`.
    """

    def __init__(self, past: Past, clock: Clock, groups: list[Group], mixture: Layers, horizon: int) -> None:
        if len(past.jumps.lift) != horizon:
            raise ValueError(f"the past is one for {len(past.jumps.lift)} rows ahead, expected {horizon}")
        self.past, self.clock, self.groups, self.mixture = past, clock, groups, mixture
        self.names = tuple(name for group in groups for name in group.names)
        channels = past.channels
        self._steps = np.arange(horizon)
        self._slots = horizon + 1
        shape = (len(self.names), horizon, channels)
        self._now = np.zeros(shape)
        self._waiting = np.zeros((self._slots, *shape), dtype=np.float32)  # by origin
        self._mixed = np.zeros((self._slots, mixture.kept, horizon, channels), dtype=np.float32)  # what is mixed
        self._guarded = np.zeros((self._slots, horizon, channels))  # the answer after the guard
        self._ready = np.ones((self._slots, channels))  # the guard's, by origin
        self._guard = Guard((horizon, channels))
        self._ledger = Ledger((horizon, channels))
        self._correction = Correction((horizon, channels))
        self._square = np.zeros((horizon, channels))  # mean square of the errors
        self._errors = np.zeros((horizon, channels))  # how many are in it
        self._reach = np.zeros((horizon, channels))  # the largest changes of late
        self._settled = np.zeros((horizon, channels))  # the same before the jump that the stream is at
        last = mixture.rules[-2]
        self._power = last if isinstance(last, Power) else None
        self._turn = Turn(past, horizon)
        self._native = Native[Blend](Blend.fits(mixture))
        self._crew = Native[Crew]()

    def advance(self, row: Array) -> None:
        """Take the next row `(C,)`, NaN where missing: learn from it, then forecast from it."""
        past, slot = self.past, self.past.seen % self._slots
        past.push(row)
        if past.seen > 1:
            if self._power is not None:
                self._turn.ease(self._power)
            self._learn(row)
            if self._power is not None:
                self._turn.look(self._power)
            if self._turn.leaning:
                self.mixture.lean(self._turn.leaning)
        if self.clock.look(past):
            self._crew.made = None
        out = self._now
        for group, answer in self._ask(past):
            group.observe(past)
            group.forecast(past, answer)
        blend = self._blend()
        if blend is not None:
            blend.forecast(past)
            return
        self._hold(out)
        self._waiting[slot], self._ready[slot] = out, self._guard.ready
        self._mixed[slot] = self.mixture.mixed(self._here(self._waiting[slot]))
        wanted = part_of_the_way(past.last(1), self._mixed[slot, 0].astype(np.float64), self._guard.share)
        self._ledger.stake(past, wanted, self._guarded)
        self._guarded[slot] = part_of_the_way(past.last(1), wanted, self._ledger.free)

    def _ask(self, past: Past) -> list[tuple[Group, Array]]:
        """Let the experts that C has take the row in and forecast; the others, and where their forecasts go."""
        crew = self._crew.made
        if crew is None:
            crew = self._crew.made = Crew(self._crew.library, self.groups, past, self._now)
        crew.run(past)
        return crew.others

    def _hold(self, out: Array) -> None:
        """Nothing that is not a number, nothing far beyond what the stream has done of late."""
        far = FAR * np.maximum.accumulate(self._reach, axis=0) + 1e-6 if self.past.seen > self._slots else np.inf
        np.clip(out[0], -1e30, 1e30, out=out[0])  # the last value stays what it is, as far as it can be multiplied
        begin, others = self.past.jumps.begin, out[1:]
        np.nan_to_num(others, copy=False, nan=0.0, posinf=1e30, neginf=-1e30)
        np.clip(others, -1e30, 1e30, out=others)
        np.clip(others, begin - far, begin + far, out=others)

    def _here(self, said: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What the experts say, as it is mixed.

        While the stream is at a jump that is taken to stay until the row that is forecast, nothing is mixed that lies
        much further from there than it had gone before: whoever says so goes by rows from before the jump. The longer
        it has lasted the surer that is. What experts are judged by is what they said.
        """
        jumps = self.past.jumps
        if self.past.seen <= self._slots or not jumps.stays.any():
            return said
        most = (1 + DOUBTED / np.maximum(jumps.age, 1)) * np.maximum.accumulate(self._settled, axis=0) + 1e-6
        far = np.where(jumps.stays, most, np.inf)
        return np.clip(said, jumps.begin - far, jumps.begin + far).astype(np.float32)

    def _learn(self, row: Array) -> None:
        """The row is a label of each of the last `H` origins."""
        blend = self._blend()
        if blend is not None:
            blend.learn(self.past)
            return
        newest = self.past.seen - 1
        made = self._steps < newest  # origins that there were
        origins = (newest - 1 - self._steps) % self._slots
        truth = np.where(made[:, None], row, np.nan)
        forecasts = self._waiting[origins, :, self._steps].transpose(1, 0, 2)
        mixed = self._mixed[origins, :, self._steps].transpose(1, 0, 2)
        self.mixture.update(forecasts, mixed, truth)
        mixture, given = mixed[0].astype(np.float64), self._guarded[origins, self._steps]
        self._guard.update(forecasts[0].astype(np.float64), mixture, truth, self._ready[origins])
        self._ledger.take(self.past, mixture, given, truth)
        self._measure(given, forecasts[0], truth)
        self._complete()

    def _complete(self) -> None:
        """The row is the last label of the oldest of the forecasts that wait."""
        horizon, past = len(self._steps), self.past
        if past.seen <= horizon or horizon == 1:  # one row ahead there is never an example that is younger than usual
            return
        truth = np.where(past.known_last(horizon), past.last(horizon), np.nan)
        error = np.clip(truth - self._guarded[(past.seen - 1 - horizon) % self._slots], -LARGEST, LARGEST)
        self._correction.learn(error, self.variance())

    def _measure(self, mean: Array, base: Array, truth: Array) -> None:
        known = np.isfinite(truth)
        square = np.where(known, np.clip(truth - mean, -LARGEST, LARGEST) ** 2, 0.0)
        young = self._errors < YOUNG
        square = np.where(young, square, np.minimum(square, WILD * self._square))
        self._errors += known
        rate = known * np.maximum(SIZE_RATE, 1 / np.maximum(self._errors, 1))
        self._square += rate * (square - self._square)
        change = np.where(known, np.abs(np.clip(truth - base, -LARGEST, LARGEST)), 0.0)
        # One wild row must not lift the bound for all that come after it, and many that are wild beyond all must not.
        wild = self.past.wild(1) | self.past.wild(len(self._steps), 1)[::-1]
        change = np.where(self._reach > 0, np.minimum(change, 2 * self._reach + 1e-12), change)
        change = np.where(wild & (self._reach > 0), 0.0, change)
        np.maximum(FADE * self._reach, change, out=self._reach)
        np.copyto(self._settled, self._reach, where=self.past.jumps.age == 0)

    def _blend(self) -> Blend | None:
        """Learning and mixing in C, where it can be had."""
        library = self._native.library
        if self._native.made is None and library is not None:
            held = self._guard.arrays()
            own = ("now", "waiting", "mixed", "guarded", "ready", "square", "errors", "reach", "settled")
            arrays: Arrays = {name: getattr(self, f"_{name}") for name in own}
            arrays |= {"loss": held["loss"], "share": held["share"], "change": held["square"], "changes": held["count"]}
            arrays |= {"recent": held["recent"], "readiness": held["ready"]}
            bank = self._ledger.arrays()
            arrays |= {"gained_of": bank["gained"], "moves": bank["changes"], "nears": bank["near"]}
            arrays |= {name: bank[name] for name in ("lost", "earned", "squares", "shared", "peak", "free")}
            arrays |= {f"hint_{name}": values for name, values in self._correction.arrays().items()}
            limits = {"error_rate": SIZE_RATE, "error_wild": WILD, "error_young": YOUNG, "error_least": FLOOR}
            limits |= {"far": FAR, "reach_fade": FADE, "doubted": DOUBTED}
            self._native.made = Blend(library, self.mixture, arrays, limits)
        return self._native.made

    def mean(self, back: int = 0) -> Array:
        """The forecast from the newest row, `(H, C)`, or from the one `back` rows before, at most `H`."""
        slot = (self.past.seen - 1 - back) % self._slots
        if back == 0:
            return np.array(self._guarded[slot])
        mixed = (self._blend() or self.mixture).mixed(self._waiting[slot])[0]
        share = self._guard.shares(self._ready[slot])  # the ready one as it was there
        mean = part_of_the_way(self.past.last(1, back), mixed.astype(np.float64), share)
        # Where the labels of the row before have all come, its example is a hint.
        return mean + self._correction.change() if back == len(self._steps) - 1 else mean

    def newest(self) -> npt.NDArray[np.float32]:
        """What each expert says of the rows after the newest, `(E, H, C)`."""
        return np.array(self._waiting[(self.past.seen - 1) % self._slots])

    def variance(self) -> Array:
        """Mean square of the forecast's errors, `(H, C)`; those of the steps before where there are none yet."""
        square = np.where(self._errors > 0, self._square, np.maximum(self._square.max(0), FLOOR))
        return np.maximum(square, FLOOR)

    def weights(self) -> dict[str, float]:
        """How much of the forecast is each expert's, over all steps and channels."""
        return dict(zip(self.names, self.weights_by_step().mean((1, 2)).tolist(), strict=True))

    def weights_by_step(self) -> Array:
        """How much of it is each expert's, `(E, H, C)`; what is kept back is last value's."""
        share = self._guard.share * self._ledger.free
        weights: Array = share * self.mixture.weights
        weights[0] += 1 - share
        return weights

    def settle(self) -> None:
        """A warm-up is over."""
        self._ledger.settle(self.past.seen)

    def reload(self) -> None:
        """The arrays have been written to."""
        self.past.reload()
        self._crew.made = None  # periods may be others

    def arrays(self) -> dict[str, Arrays]:
        """What must be carried on, part by part, to be written to in place; `reload` after that."""
        own: Arrays = {
            "waiting": self._waiting,
            "mixed": self._mixed,
            "guarded": self._guarded,
            "ready": self._ready,
            "square": self._square,
            "errors": self._errors,
            "reach": self._reach,
            "settled": self._settled,
        }
        parts = {"panel": own, "past": self.past.arrays(), "clock": self.clock.arrays()}
        parts |= {"mixture": self.mixture.arrays(), "guard": self._guard.arrays()}
        parts |= {"correction": self._correction.arrays(), "turn": self._turn.arrays(), "ledger": self._ledger.arrays()}
        return parts | {f"group_{number}": group.arrays() for number, group in enumerate(self.groups)}
