"""States of a pool from before, as a pool of today has them.

Up to format 2 there was one mixture, and one network where there are several now; in format 3 there were four mixtures,
no regression that forgets fast on all channels, and no correction; in format 4 the waves of the calendar had one size;
in format 5 nobody watched for another regime.
Experts are told by their names: those that are new begin anew, the networks with the rows that the only one had kept,
and weigh what the one they stand beside weighed; mixtures that are new begin with the weights of the only one, or with
equal weights.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from natsr.experts.panel import Panel
from natsr.types import State

#: The network as it was called when there was one, and what stands in its place.
NETWORK, NETWORKS = "network", ("network_day", "network_week", "network_short", "network_wide")
#: An expert that was not there in format 3, and the one it is taken for.
QUICK, SLOW = "everything_quick_plain", "everything_plain"


def of_today(state: State, panel: Panel) -> State:
    """The state with all that the panel has; as it is where it has it."""
    state = _swung(_mixed(state, panel), panel)
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


def _mixed(state: State, panel: Panel) -> State:
    """As many experts and mixtures as the panel has."""
    mixture, own = state.get("mixture"), state.get("panel")
    if not isinstance(mixture, dict) or not isinstance(own, dict) or "correction" in state:
        return state
    mixed, waiting = own.get("mixed"), own.get("waiting")
    if not (isinstance(mixed, Tensor) and mixed.ndim == 4 and isinstance(waiting, Tensor) and waiting.ndim == 4):
        return state
    single = "regret" in mixture
    names = [_before(name, single) for name in panel.names]
    before = list(dict.fromkeys(names))
    if waiting.shape[1] != len(before):
        return state  # of another budget: who reads it will say so
    places = torch.tensor([before.index(name) for name in names])
    own = {**own, "waiting": waiting[:, places]}
    missing = panel.mixture.kept - mixed.shape[1]
    if single:
        own |= {"mixed": mixed[:, :1].float().expand(-1, panel.mixture.kept, -1, -1), "guarded": mixed[:, -1].double()}
    elif missing > 0:
        own["mixed"] = torch.cat([mixed, mixed[:, :1].expand(-1, missing, -1, -1)], 1)
    today: State = {"mixture": _mixture(mixture, panel, places), "panel": own}
    today["correction"] = _fresh(panel.arrays()["correction"])
    return {**state, **_groups(state, panel, single), **today}


def _before(name: str, single: bool) -> str:
    """Which expert of the state an expert of today is taken for."""
    if single and name in NETWORKS:
        return NETWORK
    return SLOW if name == QUICK else name


def _fresh(arrays: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> State:
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def _mixture(old: State, panel: Panel, places: Tensor) -> State:
    fresh = _fresh(panel.mixture.arrays())
    for name, value in fresh.items():
        rule, part = name.rsplit("_", 1)
        single = part in old and rule != "second" and f"{rule}_loss" not in fresh
        saved = old.get(part) if single else old.get(name)
        if not isinstance(saved, Tensor) or not isinstance(value, Tensor):
            continue
        if rule == "second":
            fresh[name] = _longer(saved, value)
            continue
        saved = saved[places] if saved.ndim == 3 else saved
        pooled = saved.ndim == 3 and tuple(value.shape) == (*saved.shape[:2], 1)
        saved = saved.mean(2, keepdim=True) if pooled and single else saved
        if saved.shape == value.shape:
            fresh[name] = (saved / saved.sum(0) if part == "weights" else saved).to(value)
    return fresh


def _longer(saved: Tensor, value: Tensor) -> Tensor:
    """For the mixtures that are new, nothing."""
    if saved.ndim != 3:
        return saved.to(value)
    return torch.cat([saved.to(value), torch.zeros_like(value[len(saved) :])])


def _groups(state: State, panel: Panel, single: bool) -> State:
    """Each group's arrays, by its number today; those of a network that was not there are its own but for the rows."""
    found: State = {}
    number = -1
    for today, group in enumerate(panel.groups):
        name = group.names[0]
        added = name == QUICK or (single and name in NETWORKS[1:])
        number += not added
        saved = state.get(f"group_{number}")
        if not added and not (single and name in NETWORKS):
            found[f"group_{today}"] = saved
            continue
        kept = _fresh(group.arrays())
        counts = saved.get("counts") if isinstance(saved, dict) else None
        if name in NETWORKS and isinstance(saved, dict) and isinstance(counts, Tensor):
            kept |= {"values": saved.get("values"), "known": saved.get("known")}
            kept["counts"] = torch.cat([counts[:1], torch.zeros_like(counts[1:])])
        found[f"group_{today}"] = kept
    return found
