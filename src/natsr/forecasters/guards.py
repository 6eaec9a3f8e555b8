"""What holds for the steps of every network, alone or in a fleet (docs/decisions/0006)."""

from __future__ import annotations

from natsr.types import State, StateError

#: A gradient or a direction longer than this overflows when AdamW squares it.
LARGEST = 1e15
#: Steps between copies of weights that gave sane outputs.
SANE_EVERY = 100


def whole(counts: State, name: str) -> int:
    """One of the counts in a state."""
    value = counts.get(name)
    if not isinstance(value, int):
        raise StateError(f"the state's count of {name} is {value!r}, expected a whole number")
    return value
