"""States of a pool from before, as a pool of today has them.

Up to format 2 there was one mixture, and one network where there are several now. Experts are told by their names:
those that are new begin anew, with the rows that the network had kept; every mixture begins with the weights of the
only one.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from natsr.experts.panel import Panel
from natsr.types import State

#: The network as it was called when there was one, and what stands in its place.
NETWORK, NETWORKS = "network", ("network_day", "network_week", "network_short", "network_wide")


def of_today(state: State, panel: Panel) -> State:
    """The state with as many mixtures and networks as the panel has; as it is where it has them."""
    mixture, own = state.get("mixture"), state.get("panel")
    if not isinstance(mixture, dict) or not isinstance(own, dict) or "regret" not in mixture:
        return state
    mixed, waiting = own.get("mixed"), own.get("waiting")
    if not (isinstance(mixed, Tensor) and mixed.ndim == 4 and isinstance(waiting, Tensor) and waiting.ndim == 4):
        return state
    before = _names_before(panel)
    if waiting.shape[1] != len(before):
        return state  # of another budget: who reads it will say so
    places = torch.tensor([before.index(NETWORK if name in NETWORKS else name) for name in panel.names])
    several = mixed[:, :1].float().expand(-1, panel.mixture.kept, -1, -1)
    own = {**own, "waiting": waiting[:, places], "mixed": several, "guarded": mixed[:, -1].double()}
    return {**state, **_groups(state, panel), "mixture": _mixture(mixture, panel, places), "panel": own}


def _names_before(panel: Panel) -> list[str]:
    names = [NETWORK if name in NETWORKS else name for name in panel.names]
    return list(dict.fromkeys(names))


def _mixture(old: State, panel: Panel, places: Tensor) -> State:
    fresh: State = {}
    for name, values in panel.mixture.arrays().items():
        part = name.rsplit("_", 1)[-1]
        value, saved = torch.from_numpy(np.array(values)), old.get(part)
        if isinstance(saved, Tensor) and not name.startswith("second"):
            saved = saved[places] if saved.ndim == 3 else saved
            pooled = saved.ndim == 3 and tuple(value.shape) == (*saved.shape[:2], 1)
            saved = saved.mean(2, keepdim=True) if pooled else saved
            value = (saved / saved.sum(0) if part == "weights" else saved).to(value)
        fresh[name] = value
    return fresh


def _groups(state: State, panel: Panel) -> State:
    """Each group's arrays, by its number today; a network's are its own but for the rows."""
    found: State = {}
    number = -1
    for today, group in enumerate(panel.groups):
        number += group.names[0] not in NETWORKS[1:]  # all come from one
        saved = state.get(f"group_{number}")
        if group.names[0] not in NETWORKS or not isinstance(saved, dict):
            found[f"group_{today}"] = saved
            continue
        kept: State = {name: torch.from_numpy(np.array(values)) for name, values in group.arrays().items()}
        counts = saved.get("counts")
        if isinstance(counts, Tensor):
            kept |= {"values": saved.get("values"), "known": saved.get("known")}
            kept["counts"] = torch.cat([counts[:1], torch.zeros_like(counts[1:])])
        found[f"group_{today}"] = kept
    return found
