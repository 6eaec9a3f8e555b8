"""Three small streams that differ, for learners that run beside each other: waves, one with gaps, one with a shock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch

from natsr.fleet.base import Learners, Parts
from natsr.forecasters.base import Forecaster
from natsr.recipes import make
from natsr.streams import Rows, Step, Windows, steps
from natsr.types import Option, ProtocolName, State, Task

TASK = Task(window=12, horizon=3, channels=2, features=1)
WARM, START, ROWS = 60, 75, 115
SMALL: dict[str, Option] = {"width": 6, "depth": 3, "top": 7, "memory": 20, "epochs": 2}
NATURAL: tuple[dict[str, Option], ...] = (
    {"every": 7},
    {"dof": 5.0, "beta": 0.3, "rate": 0.02, "every": 11},
    {"clip": 0.0, "scale_rate": 0.05, "average": 0.3, "curvature_average": 0.9},
)
PLAIN: tuple[dict[str, Option], ...] = ({}, {"rate": 3e-3}, {"share": 0.5})


def wave(seed: int) -> Rows:
    """Two noisy waves; the second stream has gaps, the third a wild value."""
    times = torch.arange(float(ROWS))[:, None]
    noise = torch.randn(ROWS, TASK.channels, generator=torch.Generator().manual_seed(seed))
    truth = torch.sin(times * 0.5 + torch.arange(2.0) + seed) + 0.2 * noise
    if seed == 1:
        truth[80:84], truth[90, 0] = torch.nan, torch.nan
    if seed == 2:
        truth[85, 1] = 1e6
    filled = truth.clone()
    for row in range(1, ROWS):
        filled[row] = torch.where(filled[row].isnan(), filled[row - 1], filled[row])
    return Rows(torch.cat([filled, times % 12 / 12], 1), truth)


def parts(rows: Rows) -> Parts:
    """What comes before the stream."""
    return Windows(rows, TASK, 0, WARM), Windows(rows, TASK, WARM, START)


@cache
def moments(protocol: ProtocolName = "honest") -> list[tuple[Step, ...]]:
    """The three streams, moment by moment."""
    return list(zip(*(steps(wave(seed), TASK, protocol, START, ROWS) for seed in range(3)), strict=True))


def made(method: str, dtype: str = "float64", own: Sequence[dict[str, Option]] | None = None) -> list[Forecaster]:
    """Three forecasters of one shape with seeds and options of their own."""
    own = (NATURAL if method.startswith("natsr") else PLAIN) if own is None else own
    return [
        make(method, TASK, seed=seed, options={**SMALL, "dtype": dtype, **options}) for seed, options in enumerate(own)
    ]


def spoilt(state: State) -> State:
    """A learner whose network has gone astray."""
    weights = state["weights"]
    assert isinstance(weights, torch.Tensor)
    return {**state, "weights": weights * 1e6}


def taken(state: State) -> int:
    """How many steps AdamW remembers."""
    finish = state["finish"]
    assert isinstance(finish, dict)
    step = finish.get("step", torch.zeros(()))
    assert isinstance(step, torch.Tensor)
    return int(step)


def farthest(alone: Sequence[Forecaster], fleet: Learners, stream: Sequence[Sequence[Step]]) -> float:
    """Run both over the stream; the largest difference of any two forecasts of the same learner and origin."""
    worst = 0.0
    for moment in stream:
        for forecaster, step in zip(alone, moment, strict=True):
            if step.matured is not None:
                forecaster.learn(step.matured)
        fleet.learn([step.matured for step in moment])
        together = fleet.forecast([step.window for step in moment])
        for forecaster, step, forecast in zip(alone, moment, together, strict=True):
            assert forecast is not None
            own = forecaster.forecast(step.window)
            worst = max(worst, float((own.mean - forecast.mean).abs().max()))
            assert (own.variance is None) == (forecast.variance is None)
            if own.variance is not None and forecast.variance is not None:
                torch.testing.assert_close(own.variance, forecast.variance, rtol=1e-3, atol=1e-6)
    return worst
