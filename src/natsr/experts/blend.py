"""Learning and mixing of a panel in C: `blend.c` on the arrays of a panel, its guard and its mixtures."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from natsr import aggregate, mixtures
from natsr.aggregate import MLPoly
from natsr.experts import correct, guard, ledger
from natsr.experts.native import Blending, Rule, address, at, fill
from natsr.experts.past import FAR, LARGEST, TAMED, Arrays, Past
from natsr.mixtures import Layers, Local, Power, Total

#: As `enum pooling` in C.
POOLINGS = ("none", "near", "channels", "all", "steps")


class Blend:
    """The addresses of one panel, and room to work.

    Args:
        library: Compiled.
        mixture: In float32.
        arrays: The panel's and its guard's, by the names that C knows them by.
        limits: Of what counts as an error and as a change, by the same.
    """

    def __init__(self, library: ctypes.CDLL, mixture: Layers, arrays: Arrays, limits: dict[str, float]) -> None:
        self._library, self._kept = library, [*arrays.values()]
        experts, horizon, channels = self._shape = arrays["now"].shape
        rules, layers = mixture.rules, len(mixture.rules) - 1
        if mixture.last is not None:
            rules = (*rules, mixture.last)
        self._rules = (Rule * len(rules))(*(_rule(rule) for rule in rules))
        made = self._made = Blending(experts, horizon, channels, len(arrays["waiting"]), layers)
        made.rules = address(self._rules)
        made.choices, made.near, made.total = len(guard.SHARES), aggregate.NEAR, mixture.total
        made.kept, made.nearest = mixture.kept, min(ledger.NEAREST, horizon)
        room = {
            "forecasts": (experts, horizon, channels),
            "answers": (mixture.kept, horizon, channels),
            "gained": (max(experts, layers), horizon, channels),
            "singles": (6, horizon + 2 * aggregate.NEAR, channels),
        }
        own: Arrays = {name: np.zeros(shape, dtype=np.float32) for name, shape in room.items()}
        own |= {"work": np.zeros((7, horizon, channels)), "shares": guard.SHARES}
        fill(made, **arrays, **own)
        self._kept += own.values()
        numbers = limits | {
            "tiny": aggregate.TINY,
            "noise": aggregate.ROUNDING * float(np.finfo(np.float32).eps),
            "mix_wild": aggregate.WILD**2,
            "mix_rate": aggregate.SIZE_RATE,
            "mix_young": aggregate.YOUNG,
            "power_pace": mixtures.PACE,
            "power_far": mixtures.FAR,
            "power_barely": mixtures.BARELY,
            "total_beyond": mixtures.BEYOND,
            "fade": guard.DISCOUNT,
            "proof": guard.PROOF,
            "doubt": guard.doubt(horizon),
            "guard_wild": guard.WILD**2,
            "guard_rate": guard.SIZE_RATE,
            "guard_tamed": TAMED**2,
            "guard_young": guard.YOUNG,
            "guard_recent": guard.RECENT,
            "guard_most": guard.MOST,
            "guard_barely": guard.BARELY,
            "largest": LARGEST,
            "hint_fade": correct.FADE,
            "hint_wild": correct.WILD,
            "hint_ridge": correct.RIDGE,
            "hint_least": correct.LEAST,
            "bank_allowed": ledger.ALLOWED,
            "bank_start": ledger.by_horizon(ledger.START, horizon),
            "bank_fade": ledger.FADE,
            "bank_young": ledger.by_horizon(ledger.YOUNG, horizon),
            "bank_still": ledger.by_horizon(ledger.STILL, horizon),
            "bank_moving": ledger.by_horizon(ledger.MOVING, horizon),
            "bank_trust": ledger.TRUST,
            "bank_far": FAR,
            "bank_least": ledger.LEAST,
            "bank_memory": ledger.MEMORY,
        }
        ramps = ("clear", "sure", "shared", "beside", "long", "runs")
        ends = {f"bank_{name}": getattr(ledger, name.upper()) for name in ramps}
        for name, number in {**numbers, **ends}.items():
            setattr(made, name, number)
        self._address = address(made)

    @staticmethod
    def fits(mixture: Layers) -> bool:
        """Whether C has all of it."""
        known = all(type(rule) in (MLPoly, Power, Total, Local) and rule.pooling in POOLINGS for rule in mixture.rules)
        return known and all(rule.weights.dtype == np.float32 for rule in mixture.rules)

    def learn(self, past: Past) -> None:
        """The newest row is a label of each of the last `H` origins."""
        self._library.blend_learn(self._address, past.address())

    def forecast(self, past: Past) -> None:
        """Hold, keep and mix what the experts say of the rows after the newest."""
        self._library.blend_forecast(self._address, past.address())

    def mixed(self, forecasts: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """As `Layers.mixed`."""
        found = np.empty((self._made.kept, *self._shape[1:]), dtype=np.float32)
        self._library.blend_mix(self._address, at(forecasts), at(found))
        return found


def _rule(rule: MLPoly | Power | Total | Local) -> Rule:
    power = 0.0 if isinstance(rule, MLPoly) else rule.power
    made = Rule(len(rule.weights), POOLINGS.index(rule.pooling), discount=rule.discount, power=power)
    made.handicap = rule.handicap if isinstance(rule, Total) else 1.0
    fill(made, **rule.arrays())
    return made
