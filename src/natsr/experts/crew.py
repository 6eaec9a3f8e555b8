"""The experts of a panel in C: one call a row for all of them."""

from __future__ import annotations

import ctypes

from natsr.experts.base import Group
from natsr.experts.native import KINDS, Member, address, at
from natsr.experts.past import Array, Past


class Crew:
    """Where C finds the experts of one panel, with the periods of now.

    Args:
        library: Compiled; nothing where there is none.
        groups: The experts.
        past: Their rows.
        out: Where their forecasts go, `(E, H, C)`; stays where it is.

    Attributes:
        others: The groups that C does not have, and where their forecasts go.
    """

    def __init__(self, library: ctypes.CDLL | None, groups: list[Group], past: Past, out: Array) -> None:
        self._library, self._kept = library, out
        self.others: list[tuple[Group, Array]] = []
        members, first = [], 0
        for group in groups:
            answer = out[first : first + len(group.names)]
            first += len(group.names)
            found = None if library is None else group.native(past)
            if found is None:
                self.others.append((group, answer))
            else:
                members.append(Member(KINDS.index(found[0]), found[1], at(answer)))
        self._members = (Member * len(members))(*members)
        self._address = address(self._members)

    def run(self, past: Past) -> None:
        """Those that C has learn from the newest row, and forecast from it."""
        if self._library is not None:
            self._library.groups_run(self._address, len(self._members), past.address())
