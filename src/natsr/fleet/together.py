"""Many learners in one step: a leading axis of learners through every part of it.

One step is three programs on tensors of fixed shape. `looked` runs the networks forward and says of each learner, in
one small tensor, whether its outputs are sane, its loss finite and its curvature due: the only thing that the host
waits for. `_refresh` estimates the curvature of those that are due. `_take` computes every learner's step and takes it
where it is in order. Who has no example, or is refused, is masked out, and its state stays as it was.

Random draws (replay, probes) are made on the host, each learner's from its own generator in the order in which it would
draw alone. That is what makes the results equal to those of learners that run one by one, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from natsr.fisher import hadamard, rademacher
from natsr.fleet.base import Learners, Parts
from natsr.fleet.curvature import Curvatures
from natsr.fleet.finish import Finishes
from natsr.fleet.likelihood import Likelihoods
from natsr.fleet.memory import Memories
from natsr.fleet.net import FleetTCN, FleetTrace
from natsr.fleet.shape import Own, learners, net_of
from natsr.fleet.stage import Staged, stacked, staged
from natsr.fleet.warm import train
from natsr.forecasters.base import Forecast, Forecaster, Progress, silent
from natsr.forecasters.finish import AdamW
from natsr.forecasters.guards import LARGEST, SANE_EVERY
from natsr.forecasters.natural import CHUNK, allotment
from natsr.native import cuda
from natsr.types import Example, State, StateError


class Looked(NamedTuple):
    """What a look at the batch found, all of it on the device."""

    trace: FleetTrace
    pull: Tensor  # (N, B, m)
    weights: Tensor  # (N, B), of the examples, each learner's summing to one
    loss: Tensor  # (N,)
    scale: Tensor  # (N,), after the step
    averages: tuple[Tensor, Tensor, Tensor] | None  # of the refresh rule, after the step
    tau: Tensor  # (N,), the damping of this step
    damping: Tensor  # (N,), τ/κ
    flags: Tensor  # (4, N) bool: see `Flags`


class Flags(NamedTuple):
    """What the host must know to go on, of each learner."""

    sane: list[bool]  # its outputs are what data could ask for
    sound: list[bool]  # the loss and the scale are numbers
    due: list[bool]  # its curvature
    drifted: list[bool]  # its inverses were made for another damping


class _Kept(NamedTuple):
    """The curvature of some learners before they were refreshed."""

    chosen: Tensor
    rows: list[Tensor]


class Together(Learners):
    """Learners of one shape, stepped as one.

    Args:
        forecasters: One for each learner, of one shape (`natsr.fleet.shape`). Their state is taken over; they are
            stale from then on, until `release` brings them up to date.

    Example:
        >>> from natsr import Task, make
        >>> task = Task(window=8, horizon=2, channels=1)
        >>> small = {"width": 4, "top": 4, "depth": 2}
        >>> fleet = Together([make("er", task, seed=seed, options=small) for seed in range(3)])
        >>> example = Example(torch.ones(1, 8, 1), torch.ones(1, 2, 1))
        >>> fleet.learn([example, example, None])
        >>> [forecast.mean.shape for forecast in fleet.forecast([torch.ones(1, 8, 1)] * 3) if forecast]
        [torch.Size([1, 2, 1]), torch.Size([1, 2, 1]), torch.Size([1, 2, 1])]
    """

    def __init__(self, forecasters: Sequence[Forecaster]) -> None:
        self.shape, found = learners(forecasters)
        self.task, self._alone = self.shape.task, found
        self.own = Own.of(self.shape, found)
        weights = torch.stack([learner.net.weights for learner in found])
        self.net = FleetTCN(net_of(found[0]), weights)
        self.generators = [learner.generator for learner in found]
        self.finish = Finishes([isinstance(one.finish, AdamW) for one in found], self.own.rate, weights)
        self.memory = Memories(self.shape.memory, self.generators) if self.shape.memory else None
        self.natural = Curvatures(self.shape, self.own, weights) if self.shape.natural else None
        self.scale = torch.ones_like(self.own.rate)
        self.loss, self.norm, self.bound, self.tau = (torch.full_like(self.scale, math.nan) for _ in range(4))
        self.sane = weights.clone()
        self.counts = {name: [0] * len(found) for name in ("steps", "refused", "refreshes", "restored")}
        for number, learner in enumerate(found):
            self._adopt(number, learner.state_dict())

    def __len__(self) -> int:
        return len(self._alone)

    @property
    def likelihood(self) -> Likelihoods:
        """Each learner's, as its scale is now."""
        return Likelihoods(self.own.dof if self.shape.student else None, self.scale)

    @property
    def _factor(self) -> float:
        return self.shape.learning.factor(self.task.outputs)

    # ---- the two verbs -------------------------------------------------------------------------------------------

    @torch.no_grad()
    def forecast(self, windows: Sequence[Tensor | None]) -> list[Forecast | None]:
        self.check(windows)
        for window in windows:
            if window is not None:
                self._alone[0].check_window(window)
        read = stacked(windows, lambda window: self.shape.frame.read(window, self.sane))
        output = self.net.trace(read).output
        moving = self.own.scale_rate.tolist()
        variances = self.scale.tolist()
        found: list[Forecast | None] = []
        for number, window in enumerate(windows):
            if window is None:
                found.append(None)
                continue
            variance = torch.tensor(variances[number]) if moving[number] > 0 else None
            found.append(Forecast(self.shape.frame.write(window, output[number]), variance))
        return found

    @torch.no_grad()
    def learn(self, examples: Sequence[Example | None]) -> None:
        self.check(examples)
        for example in examples:
            if example is not None:
                self._alone[0].check_window(example.window)
        if not self.shape.learning.online:
            return
        batch = staged(self.shape.frame, examples, self.sane)
        if batch is None:
            return
        for number, active in enumerate(batch.active):
            self.counts["steps"][number] += active
        new = batch.window.shape[1]
        drawn = self.memory.draw(self.shape.learning.draws, batch.active) if self.memory is not None else None
        whole = batch if drawn is None else batch.joined(drawn.fields[0], drawn.fields[1], drawn.there)
        stored = drawn.fields[2] if drawn is not None and self.shape.distil else None
        seen = self.looked(whole.window, whole.target, whole.there, new, stored)
        flags = Flags(*seen.flags.tolist())
        self._keep_sane(batch.active, flags.sane)
        good = [a and s and o for a, s, o in zip(batch.active, flags.sane, flags.sound, strict=True)]
        kept = self._refresh(seen, flags, whole.there, good)
        if any(good):
            self._take(seen, flags, good, kept)
        self._settle(whole, flags.sane, good)
        self._remember(batch, seen.trace.output[:, :new])

    @torch.no_grad()
    def warm_up(self, parts: Sequence[Parts], progress: Progress = silent) -> None:
        self.check(parts)
        train(self.net, self.likelihood, self.own.warm, parts, self.generators, self.shape.frame, progress)
        self.sane.copy_(self.net.weights)

    # ---- one step ------------------------------------------------------------------------------------------------

    def looked(self, window: Tensor, target: Tensor, there: Tensor, new: int, stored: Tensor | None) -> Looked:
        """Forward, the loss and its pull on the outputs, and what decides how to go on; changes nothing.

        Args:
            window: `(N, B, L, D)`, the new examples first.
            target: `(N, B, m)`, NaN where unknown.
            there: `(N, B)`, what is an example and not padding.
            new: How many are new.
            stored: `(N, B - new, m)`, for DER++, the outputs as they were when the replayed examples were new.
        """
        trace, likelihood, own = self.net.trace(window), self.likelihood, self.own
        output, factor = trace.output, self._factor
        known = target.isfinite()
        error = torch.where(known, target - output, 0.0)
        counts = known.sum(2)
        drawn = there[:, new:].any(1)
        whole = torch.where(drawn, 1 + own.share + own.distil, 1.0)[:, None]
        coefficient = torch.empty(counts.shape, dtype=torch.float64, device=counts.device)
        coefficient[:, :new] = 1 / whole / counts[:, :new].sum(1, keepdim=True).clamp(min=1)
        coefficient[:, new:] = own.share[:, None] / whole / counts[:, new:].sum(1, keepdim=True).clamp(min=1)
        coefficient = (coefficient * factor).to(output)
        loss = ((likelihood.nll(error).sum(2) * coefficient).sum(1) / factor).double()
        pull = likelihood.score(error).mul_(coefficient[:, :, None])
        if stored is not None:
            old = there[:, new:]
            drift = likelihood.score(torch.where(old[:, :, None], stored - output[:, new:], 0.0))
            size = old.sum(1).clamp(min=1) * self.task.outputs
            pull[:, new:] += drift * (factor * own.distil / whole[:, 0] / size).to(drift)[:, None, None]
        scale = likelihood.moved(self.scale, error, known, own.scale_rate, own.scale_floor)
        scale = torch.where(own.scale_rate > 0, scale, self.scale)
        farthest = torch.where(there[:, :, None], output, 0.0).abs().amax((1, 2))
        weights = coefficient * counts
        weights = weights / weights.sum(1, keepdim=True)
        due = drifted = torch.zeros_like(drawn)
        averages, tau, damping = None, self.scale, self.scale
        if self.natural is not None:
            due, averages = self.natural.trigger(loss)
            tau = self.natural.damped(self.scale, due)
            damping = tau / likelihood.fisher
            drifted = self.natural.drifted(damping)
        sound = loss.isfinite() & scale.isfinite()
        flags = torch.stack([farthest < self.shape.frame.farthest, sound, due, drifted])
        return Looked(trace, pull, weights, loss, scale, averages, tau, damping, flags)

    def _keep_sane(self, active: list[bool], sane: list[bool]) -> None:
        """Now and then keep a copy of weights that gave sane outputs."""
        for number, steps in enumerate(self.counts["steps"]):
            if active[number] and sane[number] and steps % SANE_EVERY == 0:
                self.sane[number].copy_(self.net.weights[number])

    def _refresh(self, seen: Looked, flags: Flags, there: Tensor, good: list[bool]) -> _Kept | None:
        """Estimate the curvature of those that are due, and get whoever needs it ready to solve.

        `good` loses who has no estimate that is finite. What the curvature was before comes back, since a step that is
        refused later takes its refresh back.
        """
        natural, device = self.natural, seen.weights.device
        if natural is None:
            return None
        due = [number for number, flag in enumerate(flags.due) if flag and good[number]]
        if due:
            chosen = torch.tensor(due, device=device)
            probes = self._probes(due, there)
            if self.shape.allotted:
                probes *= allotment(seen.weights[chosen], self.shape.probes).to(probes)[..., None]
            blocks = natural.estimated(self.net, seen.trace, seen.weights, chosen, probes)
            sums = torch.stack([part.flatten(1).sum(1) if part.ndim > 1 else part for side in blocks for part in side])
            finite = sums.isfinite().all(0)
            for number, flag in zip(due, finite.tolist(), strict=True):
                good[number] = flag
        again = [n for n, pair in enumerate(zip(flags.due, flags.drifted, strict=True)) if good[n] and any(pair)]
        if not again:
            return None
        remade = torch.tensor(again, device=device)
        before = natural.rows(remade)
        if due and bool(finite.any()):
            natural.take_blocks(chosen[finite], *([part[finite] for part in side] for side in blocks))
        natural.make_solvers(remade, seen.damping[remade])
        return _Kept(remade, before)

    def _probes(self, due: Sequence[int], there: Tensor) -> Tensor:
        """Output directions `(n, K, B, m)` from each learner's own stream; zero where it has no example."""
        places, count, m = there.cpu(), self.shape.probes, self.task.outputs
        draw = hadamard if self.shape.probe == "hadamard" else rademacher
        probes = torch.zeros(len(due), count, there.shape[1], m)
        for row, number in enumerate(due):
            size = int(places[number].sum())
            for start in range(0, count, CHUNK):
                chunk = min(CHUNK, count - start)
                probes[row, start : start + chunk, places[number]] = draw((chunk, size, m), self.generators[number])
        return probes.to(self.sane)

    def _take(self, seen: Looked, flags: Flags, good: list[bool], kept: _Kept | None) -> None:
        """Compute the steps and take those that are in order; `good` loses the others."""
        asked = torch.tensor(good, device=self.scale.device)
        if self.natural is None:
            gradient = self.net.gradient(seen.trace, seen.pull)
            mask = asked & (torch.linalg.vector_norm(gradient, dim=1) < LARGEST)
            good[:] = mask.tolist()
            self.finish.step(gradient, good)
        else:
            taps = self.net.pulled(seen.trace, seen.pull[:, None])
            mask = self.natural_step(self.natural, seen, taps, asked)
            good[:] = mask.tolist()
            self.finish.step(self.natural.smoothed, good)
        keep(mask, (self.scale, seen.scale), (self.loss, seen.loss))
        if self.natural is not None and seen.averages is not None:
            natural = self.natural
            keep(mask, *zip((natural.mean, natural.variance, natural.since), seen.averages, strict=True))
            for number, due in enumerate(flags.due):
                self.counts["refreshes"][number] += due and good[number]
            if kept is not None:
                undo = [place for place, number in enumerate(kept.chosen.tolist()) if not good[number]]
                if undo:
                    natural.put(kept.chosen[undo], [row[undo] for row in kept.rows])

    def natural_step(self, natural: Curvatures, seen: Looked, taps: Sequence[Tensor], asked: Tensor) -> Tensor:
        """Solve for every learner's update and average it; answers whose is in order. `taps` is the pulled-back loss.

        Tensors are changed in place, and the host waits for nothing but, on a CPU, whether all are in order.
        """
        own, likelihood = self.own, self.likelihood
        kappa, tau = likelihood.fisher, seen.tau
        delta = natural.solved(seen.trace, taps, seen.damping)
        norm = torch.linalg.vector_norm(delta, dim=1).double() / kappa
        bound = likelihood.bound(self.task.outputs, tau, self._factor)
        mask = torch.logical_and(asked, norm < LARGEST)
        longest = own.clip * bound
        length = torch.where(norm > longest, longest / norm, 1.0) / kappa
        weight = torch.where(mask, torch.where(natural.has, own.average, 1.0), 0.0)
        added = torch.where(mask, weight * length, 0.0)
        if not cuda.blend(natural.smoothed, delta, 1 - weight, added):
            if delta.is_cuda or not bool(mask.all()):  # a pass over all weights, which on a CPU is worth avoiding
                delta = torch.where(mask[:, None], delta, 0.0)
            natural.smoothed.mul_((1 - weight).to(delta)[:, None])
            natural.smoothed.addcmul_(delta, added.to(delta)[:, None])
        natural.has |= mask
        keep(mask, (natural.damping, tau), (self.norm, norm), (self.bound, bound), (self.tau, tau))
        return mask

    def _settle(self, batch: Staged, sane: list[bool], good: list[bool]) -> None:
        """Count what was refused, keep or restore sane weights; `sane` and `good` tell what came of the step."""
        counts = self.counts
        for number, active in enumerate(batch.active):
            if not active:
                continue
            if sane[number]:
                counts["refused"][number] += not good[number]
            elif bool(batch.window[number].isfinite().all()):
                counts["restored"][number] += 1
                self.net.weights[number].copy_(self.sane[number])
                self.finish.forget(number)
                if self.natural is not None:
                    self.natural.has[number] = False
            else:  # NaN in a window is not the network's fault
                counts["refused"][number] += 1

    def _remember(self, batch: Staged, output: Tensor) -> None:
        """Offer the examples whose last label has now arrived to the memories."""
        if self.memory is None:
            return
        farthest = self.shape.frame.farthest
        sound = output.abs() < farthest if self.shape.distil else output.isfinite()
        extra = (output,) if self.shape.distil else ()
        self.memory.add(batch.done & sound.all(2), batch.window, batch.taught, *extra)

    # ---- state ---------------------------------------------------------------------------------------------------

    def info(self, number: int) -> dict[str, float]:
        refused, restored = (self.counts[name][number] for name in ("refused", "restored"))
        found: dict[str, float] = {"refused": refused, "restored": restored, "loss": float(self.loss[number])}
        if float(self.own.scale_rate[number]) > 0:
            found["variance"] = float(self.scale[number])
        if self.natural is not None and not math.isnan(norm := float(self.norm[number])):
            bound, damping = float(self.bound[number]), float(self.tau[number])
            refreshes = self.counts["refreshes"][number]
            found |= {"update_norm": norm, "update_bound": bound, "damping": damping, "refreshes": refreshes}
        return found

    def state_dict(self, number: int) -> State:
        return {
            "weights": self.net.weights[number].clone(),
            "sane": self.sane[number].clone(),
            "scale": float(self.scale[number]),
            "generator": self.generators[number].get_state(),
            "finish": self.finish.state_dict(number),
            "replay": None if self.memory is None else self.memory.state_dict(number),
            "natural": None if self.natural is None else self.natural.state_dict(number),
            "counts": {name: counts[number] for name, counts in self.counts.items()},
        }

    def load_state_dict(self, number: int, state: State) -> None:
        self._alone[number].load_state_dict(state)  # whatever does not fit is refused there, before anything changes
        self._adopt(number, self._alone[number].state_dict())

    def release(self, number: int) -> Forecaster:
        """The learner as a forecaster of its own, with the state that it has now."""
        self._alone[number].load_state_dict(self.state_dict(number))
        return self._alone[number]

    def _adopt(self, number: int, state: State) -> None:
        weights, sane, scale, counts = (state[name] for name in ("weights", "sane", "scale", "counts"))
        finish, replay, natural = (state[name] for name in ("finish", "replay", "natural"))
        if not (isinstance(weights, Tensor) and isinstance(sane, Tensor) and isinstance(scale, float)):
            raise StateError("the state lacks weights or scale; it was not written by natsr")
        self.net.weights[number], self.sane[number], self.scale[number] = weights, sane, scale
        assert isinstance(finish, dict) and isinstance(counts, dict)
        self.finish.load(number, finish)
        if self.memory is not None and isinstance(replay, dict):
            self.memory.load(number, replay)
        if self.natural is not None and isinstance(natural, dict):
            self.natural.load(number, natural)
        for name, numbers in self.counts.items():
            value = counts[name]
            assert isinstance(value, int)
            numbers[number] = value


def keep(mask: Tensor, *pairs: tuple[Tensor, Tensor]) -> None:
    """Make the second of each pair `(N, …)` the first one, in place, for the learners in the mask `(N,)`."""
    for old, new in pairs:
        old.copy_(torch.where(mask.view(-1, *[1] * (old.ndim - 1)), new, old))
