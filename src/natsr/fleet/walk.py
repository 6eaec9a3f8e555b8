"""FSNet and OneNet along their streams with nothing of a step on the host: what `natsr.fleet.loop` is for others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch

from natsr.fleet.control import Control
from natsr.fleet.fsnet import FSNets
from natsr.fleet.onenet import OneNets
from natsr.fleet.stepped import Stepped
from natsr.fleet.stream import Stream
from natsr.fleet.tables import Masks, Streams
from natsr.forecasters.base import Forecaster
from natsr.forecasters.fsnet import FSNetLearner
from natsr.forecasters.onenet import OneNetLearner
from natsr.forecasters.stepping import SteppingForecaster
from natsr.streams import Rows
from natsr.types import OptionError, ProtocolName


def kind_of(forecaster: Forecaster) -> Hashable | None:
    """What such learners must share to walk together; nothing for a forecaster of another kind.

    Rates, losses, seeds and epochs are each learner's own.
    """
    if not isinstance(forecaster, SteppingForecaster):
        return None
    learner, warm = forecaster.learner, forecaster.warm
    common = (forecaster.frame, learner.like.dtype, learner.like.device, warm.batch, warm.dropout, warm.patience)
    if isinstance(learner, FSNetLearner):
        return "fsnet", learner.net.body.layers, learner.net.recall, *common
    if isinstance(learner, OneNetLearner):
        layers = (learner.variables.net.body.layers, learner.time.net.body.layers)
        return "onenet", *layers, learner.mixing.dropout, *common
    return None


def walkers(forecasters: Sequence[Forecaster]) -> Stepped:
    """The forecasters as learners that walk together.

    Raises:
        OptionError: They are not of one kind and shape.
    """
    found = [one for one in forecasters if isinstance(one, SteppingForecaster)]
    kinds = {kind_of(one) for one in forecasters}
    if len(kinds) != 1 or None in kinds:
        raise OptionError("expected FSNets of one shape, or OneNets of one shape; walk each kind apart")
    return FSNets(found) if isinstance(found[0].learner, FSNetLearner) else OneNets(found)


class Walk(Stream):
    """Learners of one shape that bring their own step, on their way along a part of their streams.

    Args:
        walkers: The learners, warmed up or not. Their forecasters are stale until the walk has ended.
        rows: One stream for each; learners of one stream give the same object.
        part: The rows to be forecast, first and one past the last.
        protocol: Who may know what.
        max_steps: Stop after so many forecasts.
        keep: Whether the forecasts are kept, for `forecasts`.
    """

    def __init__(
        self,
        walkers: Stepped,
        rows: Sequence[Rows],
        part: tuple[int, int],
        protocol: ProtocolName = "honest",
        max_steps: int | None = None,
        keep: bool = False,
    ) -> None:
        walkers.check(rows)
        super().__init__(rows, walkers.frame, walkers.like, part, protocol, max_steps, keep)
        self.walkers, new = walkers, len(self._lags)
        self._room = walkers.room(new + 1)  # the program works in it: it must live as long
        self._streams = Streams(walkers.generators, self._device)
        self._masks = Masks(walkers.draws(new, 0.0), self._at_a_time, len(walkers), walkers.like)
        walkers.hold()

    def draw_ahead(self) -> None:
        self._masks.draw(self._streams)

    def _step(self, control: Control) -> None:
        window, target, _ = self._read_all()
        if self._hidden is not None:
            target = target.masked_fill(self._hidden, torch.nan)
        self._forecast(self.walkers.learn(control, window, target, self._masks.at(self._place)))

    def _settle_up(self) -> None:
        self.walkers.give_back()
