"""The curvature of several learners: Kronecker blocks, when to look again, and the damped solve.

What `natsr.precondition` and `natsr.forecasters.natural` do for one learner, with a leading axis `N`. New estimates and
new inverses are for the learners that need them: gathered, computed as one batch, scattered. All else is the same
program at every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from natsr.fleet.control import Branches
from natsr.fleet.net import FleetTCN, FleetTrace, matrices
from natsr.fleet.shape import Own, Shape
from natsr.fleet.solve import Eigens, Inverses, Solvers, blank
from natsr.nets.tcn import FEW
from natsr.types import State


class Curvatures:
    """The running Fisher information of `N` learners, and the rule that says when it is estimated again."""

    def __init__(self, shape: Shape, own: Own, like: Tensor) -> None:
        n = len(like)
        self.shape, self.own = shape, own
        self.a, self.g = blank(shape.layers, n, like)  # for each layer (N, I, I) and (N, O, O); the head's G is (N,)
        self.drifting = shape.damped == "drift" and shape.rule == "pi"
        self.solvers: Solvers = (
            Inverses(shape.layers, n, like) if self.drifting else Eigens(shape.layers, n, like, shape.rule)
        )
        self.known = torch.zeros(n, dtype=torch.bool, device=like.device)
        self.smoothed = torch.zeros_like(like)  # (N, P), average of the updates
        self.has = torch.zeros_like(self.known)  # whether there is an average yet
        self.damping = torch.ones_like(own.beta)  # τ of the last refresh
        self.made = torch.full_like(own.beta, torch.nan)  # τ/κ that the inverses were made for
        self.mean = torch.full_like(own.beta, torch.nan)  # of recent losses
        self.variance = torch.zeros_like(own.beta)
        self.since = torch.zeros_like(own.beta)
        self.branches = Branches()

    def fork(self, branches: Branches) -> None:
        """Run what does not depend on each other in these."""
        self.branches = branches
        if isinstance(self.solvers, Inverses):
            self.solvers.branches = branches

    def trigger(self, loss: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Who is due, `(N,)`, and what the averages would be with these losses taken in; changes nothing."""
        own, first, deviation = self.own, self.mean.isnan(), loss - self.mean
        due = first | (deviation > own.worst * self.variance.sqrt()) | (self.since + 1 >= own.every)
        mean = torch.where(first, loss, self.mean + own.recent * deviation)
        spread = self.variance + own.recent * (deviation * deviation - self.variance)
        variance = torch.where(first, loss * loss, spread)
        return due, (mean, variance, torch.where(due, 0.0, self.since + 1))

    def damped(self, variance: Tensor, due: Tensor) -> Tensor:
        """`τ` of this step, `(N,)`."""
        tau = self.own.damping(self.shape.law, variance)
        return torch.where(due, tau, self.damping) if self.shape.damped == "refresh" else tau

    def drifted(self, damping: Tensor) -> Tensor:
        """Whose inverses must be made again for this `τ/κ`, `(N,)`."""
        if not self.drifting:
            return torch.zeros_like(self.known)
        reach = 1 + self.own.drift
        return ~((self.made / reach <= damping) & (damping <= self.made * reach))

    def estimated(
        self, net: FleetTCN, trace: FleetTrace, weights: Tensor, chosen: Tensor, probes: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New blocks for some learners, the old ones taken in; changes nothing. The arguments are those of `fresh`."""
        a, g = self.fresh(net, trace, weights, chosen, probes)
        blend = self.blend(chosen).to(weights)
        return self._blended(self.a, a, chosen, blend), self._blended(self.g, g, chosen, blend)

    def blend(self, chosen: Tensor) -> Tensor:
        """The weight of a new estimate against the old one, `(n,)`; the first one counts alone."""
        return torch.where(self.known, self.own.blend, 1.0)[chosen]

    def fresh(
        self,
        net: FleetTCN,
        trace: FleetTrace,
        weights: Tensor,
        chosen: Tensor,
        probes: Tensor,
        pairs: Tensor | None = None,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Blocks of some learners as this batch alone shows them; changes nothing.

        Args:
            net: The networks.
            trace: Their forward pass over the batch.
            weights: Of the examples, `(N, B)`, each learner's summing to one.
            chosen: Numbers of the learners, `(n,)`.
            probes: Their output directions, `(n, K, B, m)`; zero where there is no example.
            pairs: Where most probes are zero: the examples `(n, R)` that the others belong to; `probes` are then those,
                `(n, 1, R, m)`.
        """
        spread = weights[chosen]

        def pulled() -> list[Tensor]:
            roots = spread if pairs is None else spread.gather(1, pairs)
            return net.pulled(trace.of(chosen, pairs), probes * roots.sqrt()[:, None, :, None], chosen)

        def inputs() -> tuple[list[Tensor], dict[int, Tensor]]:  # and what needs no probe
            a = [_input_moment(part[chosen], spread) for part in trace.inputs]
            known = self._known_moments(matrices(net.layers, net.weights[chosen]), trace.befores[-1][chosen], spread)
            known[len(a) - 1] = torch.ones_like(spread[:, 0])  # the head's G is κ times one; the solve puts κ in
            return a, known

        joined = self.branches.aside(inputs)
        grads = pulled()
        a, known = joined()

        def job(index: int) -> Callable[[], Tensor]:
            return lambda: known[index] if index in known else _moment(grads[index], self.shape.probes)

        return a, self.branches.run([job(index) for index in range(len(a))])

    def _known_moments(self, weights: list[Tensor], before: Tensor, spread: Tensor) -> dict[int, Tensor]:
        """`G / κ` of the layers right below the head, without any probe: `ConeTCN.known_moments`."""
        layers, task = self.shape.layers, self.shape.task
        if not self.shape.closed or task.outputs > FEW * (layers[-1].inputs - 1):
            return {}
        last, head = len(layers) - 1, weights[-1][:, :-1]
        moment = torch.bmm(head, head.transpose(1, 2))
        known = {last - 1: moment, last - 2: moment}
        if before.shape[2] == 1:
            slopes = torch.ops.aten.gelu_backward(torch.ones_like(before), before)[:, :, 0]
            pulled = torch.bmm(weights[-3][:, :-1], head)
            seen = torch.bmm((slopes * spread[:, :, None]).transpose(1, 2), slopes)
            known[last - 3] = torch.bmm(pulled, pulled.transpose(1, 2)) * seen
        return known

    @staticmethod
    def _blended(old: list[Tensor], new: list[Tensor], chosen: Tensor, weight: Tensor) -> list[Tensor]:
        pairs = zip(old, new, strict=True)
        return [torch.lerp(was[chosen], one, weight.reshape(-1, *[1] * (one.ndim - 1))) for was, one in pairs]

    def rows(self, chosen: Tensor) -> list[Tensor]:
        """The whole curvature of some learners, as copies; `put` brings it back."""
        return [part[chosen] for part in self._parts()]

    def put(self, chosen: Tensor, rows: Sequence[Tensor]) -> None:
        """Make these the curvature of some learners."""
        for part, row in zip(self._parts(), rows, strict=True):
            part[chosen] = row

    def _parts(self) -> list[Tensor]:
        return [self.known, self.made, *self.a, *self.g, *self.solvers.parts()]

    def take_blocks(self, chosen: Tensor, a: Sequence[Tensor], g: Sequence[Tensor]) -> None:
        """Make these blocks those of some learners; their solvers are to be made next."""
        self.known[chosen] = True
        for part, row in zip([*self.a, *self.g], [*a, *g], strict=True):
            part[chosen] = row

    def make_solvers(self, chosen: Tensor, damping: Tensor) -> None:
        """Get some learners ready to solve, at their `τ/κ` `(n,)`."""
        rows = self.solvers.made([part[chosen] for part in self.a], [part[chosen] for part in self.g], damping)
        for part, row in zip(self.solvers.parts(), rows, strict=True):
            part[chosen] = row
        self.made[chosen] = damping

    def solved(self, trace: FleetTrace, pulled: Sequence[Tensor], damping: Tensor) -> Tensor:
        """`(F + damping)⁻¹` applied to every learner's gradient, flat `(N, P)`; `damping` is `τ/κ`, `(N,)`."""
        delta = torch.empty_like(self.smoothed)
        outs = matrices(self.shape.layers, delta)

        def job(index: int) -> Callable[[], None]:
            return lambda: self.solvers.solve(index, trace.inputs[index], pulled[index], damping, outs[index])

        self.branches.run([job(index) for index in range(len(outs))])
        return delta

    def state_dict(self, number: int) -> State:
        """One learner's curvature, refresh rule, damping and average, as `Natural` would write it."""
        blocks: State = {}
        if bool(self.known[number]):
            for index, (a, g) in enumerate(zip(self.a, self.g, strict=True)):
                blocks |= {f"{index}.a": a[number].clone(), f"{index}.g": g[number].clone()}
        trigger: State = {
            "mean": float(self.mean[number]),
            "variance": float(self.variance[number]),
            "since": int(self.since[number]),
        }
        return {
            "curvature": blocks,
            "trigger": trigger,
            "damping": float(self.damping[number]),
            "made": float(self.made[number]) if self.drifting else torch.nan,
            "smoothed": self.smoothed[number].clone() if bool(self.has[number]) else None,
        }

    def load(self, number: int, state: State) -> None:
        """Take over what `Natural` wrote."""
        blocks, trigger, smoothed = state["curvature"], state["trigger"], state["smoothed"]
        assert isinstance(blocks, dict) and isinstance(trigger, dict)
        self.has[number] = isinstance(smoothed, Tensor)
        if isinstance(smoothed, Tensor):
            self.smoothed[number] = smoothed
        for part, value in (
            (self.mean, trigger["mean"]),
            (self.variance, trigger["variance"]),
            (self.since, trigger["since"]),
            (self.damping, state["damping"]),
            (self.made, state.get("made", torch.nan)),
        ):
            assert isinstance(value, float | int)
            part[number] = value
        self.known[number] = bool(blocks)
        if blocks:
            a, g = ([_tensor(blocks, f"{index}.{side}") for index in range(len(self.a))] for side in "ag")
            chosen = torch.tensor([number], device=self.smoothed.device)
            self.take_blocks(chosen, a, g)
            self.make_solvers(chosen, self.made[chosen])


def _input_moment(inputs: Tensor, weights: Tensor) -> Tensor:
    """`A` from inputs `(n, B·S, I)`, the mean over positions, the examples weighed by `(n, B)`."""
    n, B = weights.shape
    roots = (weights * B / inputs.shape[1]).sqrt()[:, :, None]
    rows = (inputs.reshape(n, B, -1) * roots).view(inputs.shape)
    return torch.bmm(rows.transpose(1, 2), rows)


def _moment(grads: Tensor, probes: int) -> Tensor:
    """`G` from gradients `(n, K·B·S, O)`, the mean over the probes."""
    return torch.bmm(grads.transpose(1, 2), grads) / probes


def _tensor(blocks: State, name: str) -> Tensor:
    found = blocks[name]
    assert isinstance(found, Tensor)
    return found[None]
