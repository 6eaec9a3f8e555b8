"""What a group of experts is: several forecasts that are computed together, over all channels and steps at once."""

from __future__ import annotations

from typing import Protocol

from natsr.experts.native import Place
from natsr.experts.past import Array, Arrays, Past


class Group(Protocol):
    """Experts that share their arithmetic. `observe` learns, `forecast` changes nothing."""

    names: tuple[str, ...]

    def observe(self, past: Past) -> None:
        """A row has been pushed: learn from it, and from every label that it is."""

    def forecast(self, past: Past, out: Array) -> None:
        """Write the forecasts of the rows after the newest into `out`, `(E, H, C)`."""

    def native(self, past: Past, /) -> Place | None:
        """What C calls it and where it finds it, if it can do both of the above; asked again when a period changes."""

    def arrays(self) -> Arrays:
        """What must be carried on, to be written to in place."""
