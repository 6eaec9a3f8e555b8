"""States of a pool from before, as a pool of today has them.

Up to format 2 there was one mixture, and one network where there are several now; in format 3 there were four mixtures,
no regression that forgets fast on all channels, and no correction; in format 4 the waves of the calendar had one size;
in format 5 nobody watched for another regime; in format 6 there were no medians, no rows without jumps, and one mixture
by losses, of late; in format 7 there were no analogs, and the guard had five shares; in format 8 there was no ledger;
in format 9 nothing was lent by it, and there was no mixture by all that was lost; in format 10 it had no last word,
there were no mixtures by the losses of each step, and rows that are wild beyond all bounds were not counted; in format
11 nobody asked what the nearest steps and all columns together say of a gain; in format 12 rows without jumps were
never off for good.
Experts are told by their names: those that are new begin anew, the networks with the rows that the only one had kept,
and weigh what the one they stand beside weighed, medians and analogs nothing, these with the rows that
were kept; mixtures that are new begin with the weights of the only one, or with equal weights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from natsr.experts.analogs import Analogs
from natsr.experts.ledger import Ledger, near_of
from natsr.experts.panel import Panel
from natsr.experts.past import Array
from natsr.types import State, StateError

#: The network as it was called when there was one, and what stands in its place.
NETWORK, NETWORKS = "network", ("network_day", "network_week", "network_short", "network_wide")
#: An expert that was not there in format 3, and the one it is taken for.
QUICK, SLOW = "everything_quick_plain", "everything_plain"
#: Those that were not there in format 6, those that were not in format 7, and the one whose forecasts and losses they
#: are given.
MEDIANS, ANALOGS, MEAN = ("median_13", "median_97"), "analog_", "mean_0.1"
#: How many mixtures by regret there are: they come first. Which one is by all that was lost, and which are by the
#: losses of each step.
BY_REGRET = 4
TOTAL, LOCAL = (5,), (6, 7)


def of_today(state: State, panel: Panel) -> State:
    """The state with all that the panel has; as it is where it has it."""
    state = _worded(_mixed(_inserted(_inserted(state, panel, TOTAL), panel, LOCAL), panel), panel)
    state = _settled(_strayed(_accounted(_guarded(_evened(_swung(state, panel), panel), panel))))
    return state if "turn" in state or "correction" not in state else {**state, "turn": _fresh(panel.arrays()["turn"])}


def _swung(state: State, panel: Panel) -> State:
    """Up to format 4 the waves of the calendar had one size for ever."""
    fresh = panel.arrays()
    past, clock = state.get("past"), state.get("clock")
    if not isinstance(past, dict) or not isinstance(clock, dict) or "swing" in past:
        return state
    ones = torch.ones(fresh["past"]["swing"].shape, dtype=torch.float64)
    nothing: State = {name: torch.zeros(values.shape, dtype=torch.float64) for name, values in fresh["clock"].items()}
    return {**state, "past": {**past, "swing": ones}, "clock": {**nothing, **clock}}


def _evened(state: State, panel: Panel) -> State:
    """Up to format 6 nobody knew of jumps: as if there had been none."""
    fresh, past = _fresh(panel.arrays()["past"]), state.get("past")
    if not isinstance(past, dict) or "even" in past:
        return state
    return {**state, "past": {**fresh, **past, "even": past.get("clean"), "calm": past.get("square")}}


def _settled(state: State) -> State:
    """Up to format 12 a jump did not bound what is mixed, and even rows were moved by each that had stayed."""
    own, past = state.get("panel"), state.get("past")
    if not isinstance(own, dict) or not isinstance(past, dict):
        return state
    reach, jump = own.get("reach"), past.get("jump")
    if not isinstance(reach, Tensor) or not isinstance(jump, Tensor):
        return state
    past = {"offset": torch.zeros_like(jump), **past}
    return {**state, "panel": {"settled": reach.clone(), **own}, "past": past}


def _guarded(state: State, panel: Panel) -> State:
    """Up to format 7 the guard had no share that is ready: as if it had been 1, and had lost as much as that."""
    guard, own, fresh = state.get("guard"), state.get("panel"), panel.arrays()
    if not isinstance(guard, dict) or not isinstance(own, dict) or "ready" in guard:
        return state
    loss, recent = guard.get("loss"), torch.zeros(fresh["guard"]["recent"].shape, dtype=torch.float64)
    if isinstance(loss, Tensor):
        guard = {**guard, "loss": torch.cat([loss, loss[-1:]])}
    ready, by_origin = (
        torch.ones(part["ready"].shape, dtype=torch.float64) for part in (fresh["guard"], fresh["panel"])
    )
    return {**state, "guard": {**guard, "recent": recent, "ready": ready}, "panel": {**own, "ready": by_origin}}


def _accounted(state: State) -> State:
    """Up to format 8 nobody kept account of stakes, then nothing was lent, and then nobody asked how sure a gain is.

    As if a warm-up had just been over, and as if all gains so far had been sure. Up to format 11 nobody asked what the
    nearest steps say of that: as if they had said what all of them did, and the columns together nothing.
    """
    guard, bank = state.get("guard"), state.get("ledger")
    if isinstance(bank, dict) and "near" in bank:
        return state
    lost, gained = (bank.get(name) if isinstance(bank, dict) else None for name in ("lost", "gained"))
    if isinstance(bank, dict) and isinstance(lost, Tensor) and isinstance(gained, Tensor):
        squares, now = bank.get("squares", torch.zeros_like(lost)), state.get("panel")
        guarded = now.get("guarded") if isinstance(now, dict) else None
        horizon = guarded.shape[1] if isinstance(guarded, Tensor) and guarded.ndim == 3 else 1
        later: State = {"squares": squares, "shared": torch.zeros(2, dtype=torch.float64)}
        if isinstance(squares, Tensor):
            later["near"] = torch.from_numpy(near_of(gained.cpu().numpy(), squares.cpu().numpy(), horizon))
        return {**state, "ledger": {**later, **{name: value for name, value in bank.items() if name != "loan"}}}
    loss = guard.get("loss") if isinstance(guard, dict) else None
    if "ledger" in state or not isinstance(loss, Tensor) or loss.ndim != 3:
        return state
    return {**state, "ledger": _fresh(Ledger.of_losses(loss.cpu().double().numpy()))}


def _inserted(state: State, panel: Panel, places: tuple[int, ...]) -> State:
    """With mixtures by losses that there were not, where the one by losses of late was: they weigh nothing yet."""
    mixture, own, before = state.get("mixture"), state.get("panel"), f"first_{places[0]}"
    if not isinstance(mixture, dict) or not isinstance(own, dict) or panel.mixture.total < 0:
        return state
    mixed, loss, count = own.get("mixed"), mixture.get(f"{before}_loss"), len(places)
    if not (isinstance(loss, Tensor) and isinstance(mixed, Tensor) and f"{before}_pace" in mixture):
        return state
    today: State = {}
    for name, value in mixture.items():
        if name.startswith("second") and isinstance(value, Tensor) and value.ndim == 3:
            value = torch.cat([value[: places[0]], torch.zeros_like(value[:count]), value[places[0] :]])
        today[name.replace(before, f"first_{places[0] + count}")] = value
    today |= _nothing_lost(_fresh(panel.mixture.arrays()), len(loss), places)
    kept = 1 + places[0]
    mixed = torch.cat([mixed[:, :kept], *[mixed[:, :1]] * count, mixed[:, kept:]], 1)
    return {**state, "mixture": today, "panel": {**own, "mixed": mixed}}


def _nothing_lost(fresh: State, experts: int, places: tuple[int, ...]) -> State:
    """These mixtures by losses, before anything was lost."""
    made: State = {}
    for place in places:
        for part in ("loss", "lost", "weights", "size", "count"):
            value = fresh.get(f"first_{place}_{part}")
            if isinstance(value, Tensor):
                shape = value.shape if part in ("size", "count") else (experts, *value.shape[1:])
                made[f"first_{place}_{part}"] = value.new_full(shape, 1 / experts if part == "weights" else 0.0)
    return made


def _worded(state: State, panel: Panel) -> State:
    """Up to format 10 the mixture of all had the last word: it has it still, and nobody has lost anything yet."""
    mixture, own, last = state.get("mixture"), state.get("panel"), panel.mixture.last
    if not isinstance(mixture, dict) or not isinstance(own, dict) or last is None or "last_loss" in mixture:
        return state
    mixed = own.get("mixed")
    if not (isinstance(mixed, Tensor) and mixed.ndim == 4 and mixed.shape[1] == panel.mixture.kept - 1):
        return state
    nothing = {f"last_{name}": torch.from_numpy(np.zeros_like(values)) for name, values in last.arrays().items()}
    nothing["last_weights"][1] = 1.0
    own = {**own, "mixed": torch.cat([mixed, mixed[:, :1]], 1)}
    return {**state, "mixture": {**mixture, **nothing}, "panel": own}


def _strayed(state: State) -> State:
    """Up to format 10 nobody counted rows that were wild beyond all bounds: as if the newest had not been."""
    past = state.get("past")
    changes = past.get("changes") if isinstance(past, dict) else None
    if not isinstance(past, dict) or not isinstance(changes, Tensor) or "strays" in past:
        return state
    return {**state, "past": {**past, "strays": torch.zeros_like(changes)}}


def _mixed(state: State, panel: Panel) -> State:
    """As many experts and mixtures as the panel has."""
    mixture, own = state.get("mixture"), state.get("panel")
    if not isinstance(mixture, dict) or not isinstance(own, dict):
        return state
    mixed, waiting = own.get("mixed"), own.get("waiting")
    if not (isinstance(mixed, Tensor) and mixed.ndim == 4 and isinstance(waiting, Tensor) and waiting.ndim == 4):
        return state
    if waiting.shape[1] == len(panel.names):
        return state
    single, slow = "regret" in mixture, "correction" not in state
    new = [_added(name, state) for name in panel.names]
    names = [_before(name, added, single, slow) for name, added in zip(panel.names, new, strict=True)]
    before = list(dict.fromkeys(names))
    if waiting.shape[1] != len(before):
        return state  # of another budget: who reads it will say so
    places = torch.tensor([before.index(name) for name in names])
    own = {**own, "waiting": waiting[:, places]}
    layers = len(panel.mixture.rules)  # the answer, and those that it is made of
    missing = layers - mixed.shape[1]
    if single:
        own |= {"mixed": mixed[:, :1].float().expand(-1, layers, -1, -1), "guarded": mixed[:, -1].double()}
    elif missing > 0:
        kept = 1 + BY_REGRET
        more = mixed[:, :1].expand(-1, missing, -1, -1)
        own["mixed"] = torch.cat([mixed[:, :kept], more, mixed[:, kept:]], 1)
    today: State = {"mixture": _mixture(mixture, panel, places, torch.tensor(new)), "panel": own}
    if slow:
        today["correction"] = _fresh(panel.arrays()["correction"])
    return {**state, **_groups(state, panel, single, slow), **today}


def _added(name: str, state: State) -> bool:
    """Whether an expert of today that looks for nothing but values of the past was not there yet."""
    past = state.get("past")
    return name.startswith(ANALOGS) or (name in MEDIANS and isinstance(past, dict) and "even" not in past)


def _before(name: str, added: bool, single: bool, slow: bool) -> str:
    """Which expert of the state an expert of today is taken for."""
    if single and name in NETWORKS:
        return NETWORK
    if added:
        return MEAN
    return SLOW if slow and name == QUICK else name


def _fresh(arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> State:
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def _mixture(old: State, panel: Panel, places: Tensor, new: Tensor) -> State:
    fresh = {name: value for name, value in _fresh(panel.mixture.arrays()).items() if not name.startswith("last_")}
    if panel.mixture.total >= 0:
        fresh |= _nothing_lost(fresh, len(panel.names), TOTAL + LOCAL)
    for name, value in fresh.items():
        rule, part = name.rsplit("_", 1)
        if f"{rule}_lost" in fresh:
            continue
        by_losses = f"{rule}_loss" in fresh
        single = part in old and rule != "second" and not by_losses
        # The mixtures by losses are as the only one was that there has been, where there was only one.
        only = by_losses and f"first_{BY_REGRET + 1}_{part}" not in old
        saved = old.get(part) if single else old.get(f"first_{BY_REGRET}_{part}" if only else name)
        if not isinstance(saved, Tensor) or not isinstance(value, Tensor):
            continue
        if rule == "second":
            fresh[name] = _longer(saved, value)
            continue
        saved = saved[places] if saved.ndim == 3 or part == "loss" else saved
        pooled = saved.ndim == 3 and tuple(value.shape) == (*saved.shape[:2], 1)
        saved = saved.mean(2, keepdim=True) if pooled and single else saved
        if saved.ndim == 3 and not by_losses:
            saved = torch.where(new[:, None, None], torch.zeros_like(saved), saved)
        if saved.shape == value.shape:
            fresh[name] = (saved / saved.sum(0) if part == "weights" else saved).to(value)
    return fresh


def _longer(saved: Tensor, value: Tensor) -> Tensor:
    """For the mixtures that are new, nothing."""
    if saved.ndim != 3:
        return saved.to(value)
    saved, none = saved.to(value), torch.zeros_like(value[len(saved) :])
    return torch.cat([saved[:BY_REGRET], none, saved[BY_REGRET:]])


def _rows(state: State) -> Array:
    """The rows that a state has kept, newest last."""
    past = state.get("past")
    raw, counts = (past.get("raw"), past.get("counts")) if isinstance(past, dict) else (None, None)
    if not isinstance(raw, Tensor) or not isinstance(counts, Tensor) or raw.ndim != 2 or counts.numel() != 2:
        raise StateError("the state lacks its rows; it belongs to another method")
    return np.asarray(raw[: int(counts[0])].cpu().double().numpy())


def _groups(state: State, panel: Panel, single: bool, slow: bool) -> State:
    """Each group's arrays, by its number today; those of a network that was not there are its own but for the rows."""
    found: State = {}
    number = -1
    for today, group in enumerate(panel.groups):
        name = group.names[0]
        added = _added(name, state) or (slow and name == QUICK) or (single and name in NETWORKS[1:])
        number += not added
        saved = state.get(f"group_{number}")
        if not added and not (single and name in NETWORKS):
            found[f"group_{today}"] = saved
            continue
        kept = _fresh(group.of_rows(_rows(state)) if isinstance(group, Analogs) else group.arrays())
        counts = saved.get("counts") if isinstance(saved, dict) else None
        if name in NETWORKS and isinstance(saved, dict) and isinstance(counts, Tensor):
            kept |= {"values": saved.get("values"), "known": saved.get("known")}
            kept["counts"] = torch.cat([counts[:1], torch.zeros_like(counts[1:])])
        found[f"group_{today}"] = kept
    return found
