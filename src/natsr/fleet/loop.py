"""A fleet along its streams with nothing of a step on the host: one program, run over and over where the networks are.

The rows are there (`natsr.fleet.course`), the random numbers of many steps too (`natsr.fleet.tables`), and what a step
does next it decides for itself (`natsr.fleet.control`). On a GPU the program is a CUDA graph that loops by itself, and
a chunk of steps is one launch that nobody waits for.

The step is that of `natsr.fleet.together`, but for two things. Draws come from streams on the device. And where a step
is refused although its new curvature was in order, the curvature stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from natsr.fleet.control import Branches, Control
from natsr.fleet.finish import Moments
from natsr.fleet.renewal import Renewal
from natsr.fleet.shape import Shape
from natsr.fleet.shelf import Shelf
from natsr.fleet.stream import Stream
from natsr.fleet.tables import Streams, choices, hadamard_rows, hadamard_table
from natsr.fleet.together import Looked, Together, keep
from natsr.forecasters.guards import LARGEST, SANE_EVERY
from natsr.forecasters.natural import allotted
from natsr.streams import Rows
from natsr.types import OptionError, ProtocolName

_FEW = 8  # learners whose curvature is estimated at once, or a sixth of all


def loopable(shape: Shape) -> bool:
    """Whether learners of this shape can go through their streams on the device alone."""
    if not shape.learning.online:
        return False
    return not shape.natural or (shape.damped == "drift" and shape.rule == "pi" and shape.probe == "hadamard")


class Loop(Stream):
    """Learners of one shape on their way along a part of their streams.

    Args:
        fleet: The learners, warmed up or not. It is stale until the loop has ended; then it goes on from there.
        rows: One stream for each; learners of one stream give the same object.
        part: The rows to be forecast, first and one past the last.
        protocol: Who may know what.
        max_steps: Stop after so many forecasts.
        keep: Whether the forecasts are kept, for `forecasts`.

    Example:
        >>> from natsr import Task, make
        >>> task = Task(window=8, horizon=2, channels=1)
        >>> small = {"width": 4, "top": 4, "depth": 2}
        >>> fleet = Together([make("er", task, seed=seed, options=small) for seed in range(3)])
        >>> values = torch.arange(60.0)[:, None].sin()
        >>> loop = Loop(fleet, [Rows(values, values)] * 3, (20, 60))
        >>> loop.run()
        >>> counts, absolute, square = loop.sums()
        >>> absolute.shape, int(counts[0, 0, 0]) == loop.total == 39
        ((3, 2, 1), True)
    """

    def __init__(
        self,
        fleet: Together,
        rows: Sequence[Rows],
        part: tuple[int, int],
        protocol: ProtocolName = "honest",
        max_steps: int | None = None,
        keep: bool = False,
    ) -> None:
        fleet.check(rows)
        if not loopable(fleet.shape):
            raise OptionError("the method's options cannot be run on the device alone; step the fleet instead")
        self.fleet = fleet
        super().__init__(rows, fleet.shape.frame, fleet.net.weights, part, protocol, max_steps, keep)
        self._prepare()

    def _prepare(self) -> None:
        """Everything that a step works on, at its place."""
        fleet, shape, device = self.fleet, self.fleet.shape, self._device
        n, m, new, like = len(fleet), fleet.task.outputs, len(self._lags), fleet.net.weights
        self._draws = shape.learning.draws if fleet.memory is not None else 0
        B = new + self._draws + 1  # the new examples, those that are replayed, and the window to forecast from
        self._room = fleet.net.room(B)  # the recorded program works in it: it must live as long
        self._window = like.new_zeros(n, B, fleet.task.window, fleet.task.inputs)
        self._target = like.new_full((n, B, m), torch.nan)
        self._there = torch.zeros(n, B, dtype=torch.bool, device=device)
        self._there[:, :new] = True
        self._shelf: Shelf | None = None
        if fleet.memory is not None:
            stored = (self._target[:, 0],) if shape.distil else ()
            self._shelf = Shelf(fleet.memory, (self._window[:, 0], self._target[:, 0], *stored))
        self._stored = like.new_zeros(n, B - new, m) if shape.distil else None
        self._moments = Moments(fleet.finish, fleet.own.rate, fleet.net.weights)
        self._counts = {name: torch.tensor(numbers, device=device) for name, numbers in fleet.counts.items()}
        self._streams = Streams(fleet.generators, device)
        self._seen = torch.tensor([0] * n if fleet.memory is None else fleet.memory.seen, device=device)
        self._good, self._todo = (torch.zeros(n, dtype=torch.bool, device=device) for _ in range(2))
        no = torch.zeros((), dtype=torch.bool, device=device)
        self._more, self._astray, self._keeps = (no.clone() for _ in range(3))
        self._branches, self._renewal = Branches(device.type == "cuda"), None
        if fleet.natural is not None:
            fleet.natural.fork(self._branches)
            self._renewal = Renewal(fleet.natural, self._branches)
            self._table = hadamard_table(m, device)
            self._pairs = self._most_pairs(new)
        self.tables: dict[str, Tensor] = {}

    def _most_pairs(self, new: int) -> int:
        """How many pairs of probe and example there may be: every probe of the heaviest example, fewer of the others.

        In units of the heaviest of them the new examples weigh `new` together at most. Where no label is missing it is
        less: the younger a partly known example, the fewer labels it has. The replayed ones have a share of that.
        """
        probes, share = self.fleet.shape.probes, float(self.fleet.own.share.max())
        falling = self.fleet.shape.frame.labels == "known" and self.course.is_whole()
        weight = (new + 1) / 2 if falling else new
        most = math.ceil(probes * weight) + math.ceil(probes * share * weight) + new - 1 + self._draws
        return min(probes * (new + self._draws), most)

    def _gives_scale(self, number: int) -> bool:
        return float(self.fleet.own.scale_rate[number]) > 0

    # ---- chunks of steps -----------------------------------------------------------------------------------------

    def draw_ahead(self) -> None:
        """The random numbers of the next chunk; the tables stay at their place."""
        fleet, shape, streams, K = self.fleet, self.fleet.shape, self._streams, self._at_a_time
        found: dict[str, Tensor] = {}
        if self._shelf is not None:
            # Nothing is brought here from the host: that would make it wait for the chunk before.
            capacity, runs = self._shelf.capacity, torch.arange(self.done, self.done + K, device=self._device)
            learned = (runs - self.delay).clamp(min=0)  # examples that each will have learned by then
            sizes = (self._seen + learned[:, None]).clamp(max=capacity)
            found["chosen"] = choices(streams.uniform(K, capacity), sizes, self._draws)
            found["kept"] = streams.uniform(K)
        if shape.natural:
            found["rows"] = hadamard_rows(streams, K, len(self._table), shape.probes)
            found["signs"] = streams.signs(K, len(self._lags) + self._draws, fleet.task.outputs)
        for name, table in found.items():
            self.tables.setdefault(name, torch.empty_like(table)).copy_(table)

    def _drawn(self, name: str) -> Tensor:
        """This step's row of a table, `(N, …)`."""
        return self.tables[name].index_select(0, self._place)[0]

    def _settle_up(self) -> None:
        for name, numbers in self._counts.items():
            self.fleet.counts[name][:] = numbers.tolist()
        if self._shelf is not None:
            self._shelf.give_back()
        self._moments.give_back()
        if self.fleet.natural is not None:
            self.fleet.natural.fork(Branches())

    # ---- one step ------------------------------------------------------------------------------------------------

    def _step(self, control: Control) -> None:
        fleet, counts = self.fleet, self._counts
        active, whole = self._find()
        if self._logbook is not None:
            self._scales.index_copy_(0, self._place, fleet.scale[None])  # the step will change it
        seen = fleet.looked(self._window, self._target, self._there, len(self._lags), self._stored)
        output = seen.trace.output
        learned = output.shape[1] - 1  # nothing is learned from the window that is forecast from
        trace, pull, weights = seen.trace.first(learned), seen.pull[:, :learned], seen.weights[:, :learned]
        seen = seen._replace(trace=trace, pull=pull, weights=weights)
        sane, sound, due, drifted = seen.flags
        counts["steps"] += active
        sane_now = sane & active
        self._keeps.copy_((sane_now & (counts["steps"] % SANE_EVERY == 0)).any())
        control.when(self._keeps, lambda: keep(sane_now, (fleet.sane, fleet.net.weights)))
        self._good.copy_(sane_now & sound)
        if fleet.natural is not None:
            branches = self._branches if control.is_whole else Branches()
            pulled = branches.aside(lambda: fleet.net.pulled(trace, pull[:, None]))
            self._refresh(control, seen)
            mask = fleet.natural_step(fleet.natural, seen, pulled(), self._good)
            direction = fleet.natural.smoothed
        else:
            direction = fleet.net.gradient(seen.trace, seen.pull)
            mask = self._good & (torch.linalg.vector_norm(direction, dim=1) < LARGEST)
        self._moments.step(direction, mask)
        keep(mask, (fleet.scale, seen.scale), (fleet.loss, seen.loss))
        if fleet.natural is not None and seen.averages is not None:
            natural = fleet.natural
            keep(mask, *zip((natural.mean, natural.variance, natural.since), seen.averages, strict=True))
            counts["refreshes"] += due & mask
        self._settle(control, active, sane, mask)
        self._remember(active, whole, output[:, len(self._lags) - 1])
        self._forecast(output[:, -1])

    def _find(self) -> tuple[Tensor, Tensor]:
        """Put the step's examples into place; answers who has a label `(N,)`, and all labels of the oldest `(N, m)`."""
        new, (read, taught, there) = len(self._lags), self._read_all()
        self._window[:, :new], self._window[:, -1] = read[:, :-1], read[:, -1]
        self._target[:, :new] = taught
        if self._hidden is not None:
            self._target[:, :new].masked_fill_(self._hidden, torch.nan)
            self._there[:, :new] = there
        if self._shelf is not None:
            chosen = self._drawn("chosen")
            old = self._shelf.there(chosen)
            self._there[:, new:-1] = old
            self._window[:, new:-1] = self._shelf.read(0, chosen)
            self._target[:, new:-1] = torch.where(old[:, :, None], self._shelf.read(1, chosen), torch.nan)
            if self._stored is not None:
                self._stored[:, :-1] = self._shelf.read(2, chosen)
        return self._target[:, :new].isfinite().flatten(1).any(1), taught[:, -1]

    def _refresh(self, control: Control, seen: Looked) -> None:
        """New curvature for those that are due, new inverses for those whose damping has drifted.

        Few learners are seldom due, and then one after the other: whoever has only drifted is spared the estimate. Of
        many some are due and some have drifted at nearly every step, and go through the same inversion.
        """
        _, _, due, drifted = seen.flags
        if len(self.fleet) >= _FEW:
            self._wait_for(control, seen, (due | drifted) & self._good, estimate=True)
            return
        self._wait_for(control, seen, due & self._good, estimate=True)
        self._wait_for(control, seen, drifted & ~due & self._good, estimate=False)

    def _wait_for(self, control: Control, seen: Looked, asked: Tensor, estimate: bool) -> None:
        self._todo.copy_(asked)
        self._more.copy_(asked.any())
        control.repeat(self._more, lambda: self._renew(seen, estimate))

    def _renew(self, seen: Looked, estimate: bool) -> None:
        """The next few that wait get what they wait for; whoever gets nothing that is finite loses its step."""
        natural, renewal = self.fleet.natural, self._renewal
        assert natural is not None and renewal is not None
        values, chosen = self._todo.float().topk(min(max(_FEW, len(self.fleet) // 6), len(self.fleet)))
        valid, factors = values > 0, renewal.kept(chosen)
        if estimate:
            a, g = natural.fresh(self.fleet.net, seen.trace, seen.weights, chosen, *self._probes(seen, chosen))
            factors = renewal.blended(factors, [*a, *g[:-1]], natural.blend(chosen) * seen.flags[2][chosen])
        fine = renewal.put(chosen, valid, factors, seen.damping[chosen])
        self._good.index_copy_(0, chosen, self._good[chosen] & (fine | ~valid))
        self._todo.index_fill_(0, chosen, False)
        self._more.copy_(self._todo.any())

    def _probes(self, seen: Looked, chosen: Tensor) -> tuple[Tensor, Tensor | None]:
        """Output directions, and the examples that they belong to, as `Curvatures.fresh` wants them.

        An example gets as many probes as its weight asks for (`natsr.forecasters.natural.allotment`), and few get more
        than one: the pairs of probe and example that there are, one after the other, are a fraction of all.
        """
        rows, signs = self._drawn("rows")[chosen], self._drawn("signs")[chosen]
        signs = signs * self._there[chosen][:, :-1, None]
        if not self.fleet.shape.allotted:
            return (self._table[rows][:, :, None] * signs[:, None]).to(seen.weights), None
        asked = allotted(seen.weights[chosen], self.fleet.shape.probes).long()
        ends = asked.cumsum(1)
        place = torch.arange(self._pairs, device=self._device)
        example = (ends[:, None] <= place[:, None]).sum(-1).clamp(max=asked.shape[1] - 1)
        probe = place - (ends - asked).gather(1, example)
        meant = (place < ends[:, -1:]) & (probe < rows.shape[1])
        row = rows.gather(1, probe.clamp(0, rows.shape[1] - 1))
        scale = torch.where(meant, (self.fleet.shape.probes / asked.gather(1, example)).sqrt(), 0.0).to(seen.weights)
        directions = self._table[row] * signs.gather(1, example[..., None].expand(-1, -1, signs.shape[-1]))
        return (directions * scale[..., None])[:, None], example

    def _settle(self, control: Control, active: Tensor, sane: Tensor, mask: Tensor) -> None:
        """Count what was refused; whose network has gone astray gets its sane weights back."""
        fleet, counts = self.fleet, self._counts
        readable = self._window.flatten(1).isfinite().all(1)  # NaN in a window is not the network's fault
        astray = active & ~sane & readable
        counts["refused"] += active & ~mask & ~astray
        counts["restored"] += astray
        self._astray.copy_(astray.any())

        def restore() -> None:
            keep(astray, (fleet.net.weights, fleet.sane))
            self._moments.forget(astray)
            if fleet.natural is not None:
                fleet.natural.has.logical_and_(~astray)

        control.when(self._astray, restore)

    def _remember(self, active: Tensor, whole: Tensor, output: Tensor) -> None:
        """Offer the oldest of the new examples, whose labels `(N, m)` have all come, to the memories."""
        if self._shelf is None:
            return
        distil = self._stored is not None
        sound = (output.abs() < self.fleet.shape.frame.farthest if distil else output.isfinite()).all(1)
        if self._hidden is not None:  # who has something to learn may have it from a younger one
            sound = sound & whole.isfinite().any(1)
        extra = (output,) if distil else ()
        self._shelf.add(active & sound, self._drawn("kept"), self._window[:, len(self._lags) - 1], whole, *extra)
