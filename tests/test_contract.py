"""Every method × every check of the contract: a new recipe is tested before its author writes a test."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pytest
import torch

from natsr.checks import CHECKS, check_memory_is_bounded, run_check
from natsr.recipes import RECIPES, Options, make
from natsr.streams import Windows
from natsr.trials import TASK, WARM, stream, wave

SMALL: Options = {"width": 4, "depth": 2, "top": 8, "epochs": 4, "warm_rate": 0.03}
#: A small network on a short stream needs a large rate, or there would be nothing for a shock to spoil.
QUICK_TO_LEARN: Options = {**SMALL, "rate": 0.002}
OPTIONS: Mapping[str, Options] = {
    "frozen": SMALL,
    "ogd": QUICK_TO_LEARN,
    "er": QUICK_TO_LEARN,
    "derpp": QUICK_TO_LEARN,
    "fsnet": {**QUICK_TO_LEARN, "depth": 1},
    "fsnet_mae": {**QUICK_TO_LEARN, "depth": 1},
    "onenet": {**QUICK_TO_LEARN, "depth": 1, "rate": 0.0005},  # two networks with factors learn faster
    "onenet_mae": {**QUICK_TO_LEARN, "depth": 1, "rate": 0.0005},
    "natsr": SMALL,
    "natsr_fast": QUICK_TO_LEARN,
    "auto": {"budget": "cheap"},
}
#: What a method cannot do by its nature.
CANNOT = {
    ("mean", "check_recovers_from_a_shock"): "in a mean, one value of 1e30 outweighs all others",
    ("mean", "check_learns_a_line"): "the mean of a wave is further from it than its last value",
}
LEARN_NOTHING = ("last_value", "seasonal")
#: Memory over 20,000 steps where a state is carried on in ways of its own; 2,000 for the others, which share theirs.
LONG = ("mean", "rls", "natsr")
#: Steps of many small parts; memory over 400 of them, in which a list that grows shows as well.
SLOW = ("fsnet", "fsnet_mae", "onenet", "onenet_mae", "auto")
#: These differ from the method before them in the loss alone, and are put to what may depend on it.
BY_LOSS = {
    method: (
        "check_forecast_shape",
        "check_state_round_trip",
        "check_survives_a_shock",
        "check_recovers_from_a_shock",
        "check_accepts_partial_labels",
        "check_learns_a_line",
    )
    for method in ("fsnet_mae", "onenet_mae")
}
TINY: Options = {"width": 2, "depth": 1, "top": 4, "draws": 2, "probes": 2}


def cases() -> list[object]:
    found: list[object] = []
    for method in RECIPES:
        for check in BY_LOSS.get(method, CHECKS):
            marks = []
            if (method, check) in CANNOT:
                marks.append(pytest.mark.xfail(strict=True, raises=AssertionError, reason=CANNOT[method, check]))
            if check in ("check_memory_is_bounded", "check_learns_a_line"):
                marks.append(pytest.mark.slow)
            found.append(pytest.param(method, check, id=f"{method}-{check}", marks=marks))
    return found


@pytest.mark.parametrize(("method", "check"), cases())
def test_every_method_keeps_the_contract(method: str, check: str) -> None:
    options, long = OPTIONS.get(method, {}), check == "check_memory_is_bounded" and method in LONG
    if long and method in OPTIONS:
        options = TINY
    factory = partial(make, method, options=options)
    if check == "check_memory_is_bounded" and method in SLOW:
        check_memory_is_bounded(factory, count=400)
        return
    result = run_check(check, factory, quick=not long)
    if result.skipped is not None:
        assert check == "check_cpu_equals_gpu" or (check == "check_learns_a_line" and method in LEARN_NOTHING)
        pytest.skip(result.skipped)
    assert result.passed, result.error


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("method", OPTIONS)
def test_a_network_on_a_gpu_learns_as_one_on_the_cpu(method: str) -> None:
    rows = wave(WARM + 40)
    forecasts = []
    for device in ("cpu", "cuda"):
        forecaster = make(method, TASK, options={**OPTIONS[method], "dtype": "float64"}, device=device)
        forecaster.warm_up(Windows(rows, TASK, 0, 70), Windows(rows, TASK, 70, WARM))
        for step in stream(rows):
            if step.matured is not None:
                forecaster.learn(step.matured)
        forecasts.append(forecaster.forecast(rows.inputs[None, -TASK.reach :]).mean)
    torch.testing.assert_close(forecasts[0], forecasts[1], rtol=1e-6, atol=1e-6)
