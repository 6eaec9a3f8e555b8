"""A step that is taken over and over on a device, in chunks: what the warm-up and the stream have in common."""

from __future__ import annotations

import abc
from collections.abc import Callable

import torch

from natsr.fleet.control import AtOnce, Control, Mark, new_stream, recorded

_AT_ONCE = 2  # steps of the usual kind before the program is recorded; the libraries make what they need in them


class Journey(abc.ABC):
    """Chunks of steps; on a GPU in a stream of its own, recorded, and without waiting for any of them.

    Args:
        device: Where the steps are taken.
        idle: Steps at the beginning in which not everything happens that happens later.
    """

    def __init__(self, device: torch.device, idle: int = 0) -> None:
        self.done = 0  # steps that were asked for
        self._device, self._at_once = device, idle + _AT_ONCE
        self._stream = new_stream() if device.type == "cuda" else None
        self._program: Callable[[int], None] | None = None
        self._place, self._until = (torch.zeros(1, dtype=torch.long, device=device) for _ in range(2))
        self._going = torch.zeros((), dtype=torch.bool, device=device)

    @abc.abstractmethod
    def _chunk(self) -> bool:
        """Ask for the next chunk; false if there was none left."""

    @abc.abstractmethod
    def _step(self, control: Control) -> None:
        """One step; ends with `_next`."""

    @abc.abstractmethod
    def _settle_up(self) -> None:
        """Bring the fleet up to date, when all is done."""

    @torch.no_grad()
    def run(self) -> None:
        """Go to the end and wait for it."""
        while self.advance():
            pass
        self.finish()

    @torch.no_grad()
    def advance(self) -> bool:
        """Have the next chunk done, and on a GPU do not wait for it; false if there was none left."""
        if self._stream is None:
            return self._chunk()
        with torch.cuda.stream(self._stream):
            return self._chunk()

    def mark(self) -> Mark:
        """What is reached when all that was asked for so far is done."""
        return Mark(self._stream)

    def finish(self) -> None:
        """Wait, and bring the fleet up to date."""
        if self._stream is not None:
            self._stream.synchronize()
        self._settle_up()
        self._program = None

    def _take(self, size: int) -> None:
        """So many steps: the first ones of all at once, the others as a program."""
        self._place.zero_()
        self._until.fill_(size)
        first = 0
        while first < size and (self._stream is None or self.done + first < self._at_once):
            self._step(AtOnce())
            first += 1
        if first < size and self._stream is not None:
            if self._program is None:
                self._program = recorded(self._step, self._going, self._stream)
            self._going.fill_(True)
            self._program(size - first)

    def _next(self) -> None:
        """To the next place of the chunk, if there is one."""
        self._place += 1
        self._going.copy_((self._place < self._until)[0])
