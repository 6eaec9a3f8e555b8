"""One learner's state in places where compiled code finds it."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from natsr.fleet.shape import Learner, Own, Shape
from natsr.forecasters.curved import Matrices, NativeCurvature, weighted
from natsr.forecasters.finish import MOMENTS, AdamW
from natsr.forecasters.guards import LARGEST
from natsr.forecasters.natural import draws
from natsr.likelihoods import StudentT
from natsr.native.calls import SLACK, at
from natsr.native.many import Finish, Losses, Pair, Record
from natsr.nets.base import Layer
from natsr.nets.native import NativeTCN
from natsr.nets.tcn import FEW
from natsr.precondition import Curvature
from natsr.types import State

_BYTES = 4  # of a number
_LAWS = ("paper", "box", "fixed")  # as many.c numbers them
_COUNTS = ("steps", "refused", "refreshes", "restored")


def fits(learner: Learner) -> bool:
    """Whether its whole step is compiled."""
    native = isinstance(learner.net, NativeTCN) and learner.net.is_native
    return native and (learner.natural is None or NativeCurvature.fits(learner.natural))


def footprint(learner: Learner) -> int:
    """Bytes that its state takes, about: weights and what is kept beside them, memory, factors and their inverses."""
    task, memory = learner.task, 0 if learner.replay is None else learner.replay.capacity
    vectors = 2 + 2 * isinstance(learner.finish, AdamW) + (learner.natural is not None)
    numbers = vectors * learner.net.weights.numel()
    numbers += memory * (task.window * task.inputs + task.outputs * (1 + (learner.learning.distil > 0)))
    if learner.natural is not None:
        numbers += 4 * sum(layer.inputs**2 + layer.outputs**2 for layer in learner.net.layers[:-1])
        numbers += 4 * learner.net.layers[-1].inputs ** 2
    return _BYTES * numbers


class Berth:
    """A learner's weights, history, memory and curvature. Its numbers are in its `Record`, which C changes too.

    Args:
        shape: What it has in common with the others.
        learner: The forecaster whose state this is; it gives settings and random draws, and is stale meanwhile.
    """

    def __init__(self, shape: Shape, learner: Learner) -> None:
        self.shape, self.learner = shape, learner
        self.generator, self.capacity = learner.generator, shape.memory
        self.own = Own.of(shape, [learner])
        size = learner.net.weights.numel()
        self.weights, self.sane = torch.zeros(size + SLACK)[:size], torch.zeros(size)
        self.moments = (torch.zeros(size), torch.zeros(size)) if shape.adaptive else ()
        self.taken = torch.zeros(())
        self.smoothed = torch.zeros(size if shape.natural else 0)
        self.seen = 0
        self.fields: tuple[Tensor, ...] = ()
        self.places: dict[int, Matrices] = {}  # by where C has them

    # ---- what C reads --------------------------------------------------------------------------------------------

    def settle(self, record: Record) -> None:
        """Write settings and addresses; the state comes by `adopt`."""
        learner, learning, natural = self.learner, self.learner.learning, self.learner.natural
        dof = learner.likelihood.dof if isinstance(learner.likelihood, StudentT) else 0.0
        factor = learning.factor(self.shape.task.outputs)
        record.loss = Losses(float(dof > 0), dof, 1.0, 1.0, learning.share, learning.distil, factor)
        record.move = Finish(self._own("rate"))
        if self.shape.adaptive:
            move = learner.finish.move(learner.net.weights)
            record.move = Finish(move.rate, 1.0, *move.betas, move.eps, move.decay, 0.0)
        for name in ("scale_rate", "scale_floor", "beta", "average", "drift", "blend", "worst", "recent", "every"):
            setattr(record, name, self._own(name))
        record.farthest, record.largest = self.shape.frame.farthest, LARGEST
        record.w, record.sane, record.taken = at(self.weights), at(self.sane), at(self.taken)
        if self.moments:
            record.m, record.v = at(self.moments[0]), at(self.moments[1])
        record.natural = self.shape.natural
        if natural is not None:
            few = self.shape.task.outputs <= FEW * learner.net.hidden
            record.law, record.clip = float(_LAWS.index(self.shape.law)), natural.options.clip
            record.closed = self.shape.closed and few
            record.smoothed = at(self.smoothed)
            record.factors = self._pairs(learner.net.layers)
            record.inverses = self._pairs(learner.net.layers)

    def _own(self, name: str) -> float:
        value: Tensor = getattr(self.own, name)
        return float(value)

    def _pairs(self, layers: tuple[Layer, ...]) -> ctypes.Array[Pair]:
        pairs = []
        for _ in range(2):
            made = Matrices(layers)
            place = ctypes.addressof(made.a)
            self.places[place] = made
            pairs.append(Pair(place, ctypes.addressof(made.g), at(made.blocks[-1].g)))
        return (Pair * 2)(*pairs)

    def _factors(self, record: Record) -> Matrices:
        """The factors in use."""
        place = record.factors[0].a
        assert place is not None
        return self.places[place]

    # ---- random draws, in the order in which the learner would draw alone ----------------------------------------

    def order(self) -> Tensor:
        """The memory's examples in random order: the first few are replayed."""
        return torch.randperm(min(self.seen, self.capacity), generator=self.generator)

    def place(self) -> int:
        """Where the next example goes; beyond the last place it is not kept."""
        place = self.seen
        if place >= self.capacity:
            place = int(torch.randint(0, place + 1, (), generator=self.generator))
        self.seen += 1
        return place

    def probes(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Output directions for examples of these weights, as rows, and the example of each."""
        assert self.learner.natural is not None
        options, outputs = self.learner.natural.options, self.shape.task.outputs
        drawn = draws(options, weights, outputs, self.learner.likelihood, self.generator)
        parts = [weighted(chunk, weights, 1 / options.probes) for chunk in drawn]
        return torch.cat([rows for rows, _ in parts]), torch.cat([owner for _, owner in parts])

    def keep(self, record: Record) -> None:
        """Make room for examples; once, when the first one comes."""
        task, rows = self.shape.task, self.capacity
        outputs = [torch.zeros(rows, task.outputs) for _ in range(1 + self.shape.distil)]
        self._take_fields((torch.zeros(rows, task.window, task.inputs), *outputs), record)

    def _take_fields(self, fields: tuple[Tensor, ...], record: Record) -> None:
        self.fields = fields
        for index, field in enumerate(fields):
            record.memory[index] = at(field)

    # ---- state ---------------------------------------------------------------------------------------------------

    def state_dict(self, record: Record) -> State:
        """As its forecaster alone would write it."""
        history = self._history() if float(self.taken) else {}
        count = min(self.seen, self.capacity)
        fields: State = {str(index): field[:count].clone() for index, field in enumerate(self.fields)}
        return {
            "weights": self.weights.clone(),
            "sane": self.sane.clone(),
            "scale": record.loss.tracked,
            "generator": self.generator.get_state(),
            "finish": {name: part.clone() for name, part in history.items()},
            "replay": {"seen": self.seen, "fields": fields} if self.capacity else None,
            "natural": self._natural(record) if self.shape.natural else None,
            "counts": {name: getattr(record, name) for name in _COUNTS},
        }

    def _history(self) -> dict[str, Tensor]:
        """AdamW's."""
        return dict(zip(MOMENTS, (*self.moments, self.taken), strict=True)) if self.moments else {}

    def _natural(self, record: Record) -> State:
        curvature = Curvature()
        if record.known:
            curvature.blocks = self._factors(record).blocks
        return {
            "curvature": curvature.state_dict(),
            "trigger": {"mean": record.mean, "variance": record.spread, "since": int(record.since)},
            "damping": record.tau,
            "made": record.made,
            "smoothed": self.smoothed.clone() if record.smooth else None,
        }

    def adopt(self, state: State, record: Record) -> None:
        """Take over what a forecaster wrote, and has found to be in order."""
        for name, mine in (("weights", self.weights), ("sane", self.sane)):
            mine.copy_(_tensor(state[name]))
        scale, counts, finish, replay, natural = (
            state[name] for name in ("scale", "counts", "finish", "replay", "natural")
        )
        assert isinstance(scale, float) and isinstance(counts, dict) and isinstance(finish, dict)
        record.loss.variance = record.loss.tracked = scale
        record.last, record.moved = math.nan, 0
        for name in _COUNTS:
            setattr(record, name, counts[name])
        for name, part in self._history().items():
            part.copy_(_tensor(finish[name]) if finish else torch.zeros(()))
        if isinstance(replay, dict):
            self._adopt_memory(replay, record)
        if isinstance(natural, dict):
            self._adopt_natural(natural, record)

    def _adopt_memory(self, state: State, record: Record) -> None:
        seen, fields = state["seen"], state["fields"]
        assert isinstance(seen, int) and isinstance(fields, dict)
        self.seen, parts = seen, [_tensor(fields[str(index)]) for index in range(len(fields))]
        whole = [part.new_zeros(self.capacity, *part.shape[1:]) for part in parts]
        for field, part in zip(whole, parts, strict=True):
            field[: len(part)] = part
        self._take_fields(tuple(whole), record)

    def _adopt_natural(self, state: State, record: Record) -> None:
        curvature, trigger, smoothed = (state[name] for name in ("curvature", "trigger", "smoothed"))
        assert isinstance(curvature, dict) and isinstance(trigger, dict)
        record.known, record.smooth = bool(curvature), smoothed is not None
        for index, block in enumerate(self._factors(record).blocks if curvature else ()):
            block.a.copy_(_tensor(curvature[f"{index}.a"]))
            block.g.copy_(_tensor(curvature[f"{index}.g"]))
        if smoothed is not None:
            self.smoothed.copy_(_tensor(smoothed))
        record.mean, record.spread, record.since = (_number(trigger[name]) for name in ("mean", "variance", "since"))
        record.tau, record.made = _number(state["damping"]), _number(state["made"])
        record.made_for = record.norm = record.bound = math.nan


def _tensor(part: object) -> Tensor:
    assert isinstance(part, Tensor)
    return part


def _number(part: object) -> float:
    assert isinstance(part, float | int)
    return float(part)
