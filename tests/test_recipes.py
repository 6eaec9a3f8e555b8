from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch

from natsr.baselines import FsnetOptions, NetworkOptions, OnenetOptions
from natsr.forecasters.finish import AdamW, Sgd
from natsr.forecasters.neural import NeuralForecaster
from natsr.likelihoods import Gaussian, StudentT
from natsr.precondition import WorstLosses
from natsr.recipes import METHODS, RECIPES, NatsrOptions, make, options_of
from natsr.types import OptionError, Task

TASK = Task(window=8, horizon=3, channels=2, features=1, season=4)
SMALL = {"width": 4, "depth": 2, "top": 6}


def test_every_method_of_the_design_that_this_version_has() -> None:
    plain = {"last_value", "seasonal", "mean", "frozen", "rls", "rls_mv", "ogd", "er", "derpp"}
    baselines = {"fsnet", "fsnet_mae", "onenet", "onenet_mae"}
    assert set(METHODS) == plain | baselines | {"natsr", "natsr_fast", "auto"}


def test_every_method_says_what_it_is() -> None:
    assert all(recipe.__doc__ for recipe in RECIPES.values())


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="did you mean natsr"):
        make("natrs", TASK)


@pytest.mark.parametrize("method", METHODS)
def test_an_unknown_option_is_refused_by_every_method(method: str) -> None:
    with pytest.raises(OptionError, match="'speed' is not known"):
        make(method, TASK, options={"speed": 1})


@pytest.mark.parametrize("method", METHODS)
def test_the_options_that_a_method_is_said_to_have_are_those_it_takes(method: str) -> None:
    names = options_of(method)
    assert names is not None
    with pytest.raises(OptionError, match=f"expected one of {', '.join(sorted(names))}$" if names else "there is none"):
        make(method, TASK, options={"zzzzzzzz": 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("rate", bad) for bad in (-1, math.nan)),
        *((name, -1) for name in ("share", "draws", "epochs", "warm_rate", "probes", "clip", "scale_rate", "beta")),
        *((name, 0) for name in ("limit", "average", "curvature_average", "recent", "every", "dof", "scale_floor")),
        *((name, 1) for name in ("dropout", "scale_rate")),
    ],
)
def test_a_senseless_option_is_refused_before_anything_is_made(name: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"option {name} is .*, expected a finite number"):
        make("natsr", TASK, options=SMALL | {name: value})


@pytest.mark.parametrize("options", [NatsrOptions, FsnetOptions, OnenetOptions])
def test_every_option_that_is_a_number_has_a_range(options: type[NetworkOptions]) -> None:
    numbers = {field.name for field in fields(options) if type(field.default) in (int, float)}
    assert numbers == set(options.ranges)


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "cuda:999", "mps"])
def test_a_device_that_is_not_there_is_refused(device: str) -> None:
    with pytest.raises(OptionError, match=f"device is '{device}'"):
        make("ogd", TASK, options=SMALL, device=device)


def test_the_refresh_rule_can_be_set() -> None:
    natsr = make("natsr", TASK, options=SMALL | {"worst": 3.0, "recent": 0.05, "every": 7})
    assert isinstance(natsr, NeuralForecaster) and natsr.natural is not None
    assert natsr.natural.trigger == WorstLosses(3.0, 0.05, 7)


def test_stable_and_fast_differ_as_the_paper_says() -> None:
    stable, fast = (make(name, TASK, options=SMALL) for name in ("natsr", "natsr_fast"))
    assert isinstance(stable, NeuralForecaster) and isinstance(fast, NeuralForecaster)
    assert stable.likelihood == StudentT(50.0) and isinstance(stable.finish, Sgd)
    assert fast.likelihood == StudentT(500.0) and isinstance(fast.finish, AdamW)
    assert stable.replay is not None and stable.replay.capacity == 500


def test_slots_of_the_plain_methods() -> None:
    ogd, er, derpp = (make(name, TASK, options=SMALL) for name in ("ogd", "er", "derpp"))
    for forecaster in (ogd, er, derpp):
        assert isinstance(forecaster, NeuralForecaster)
        assert forecaster.likelihood == Gaussian() and forecaster.natural is None
    assert isinstance(ogd, NeuralForecaster) and ogd.replay is None
    assert isinstance(er, NeuralForecaster) and er.replay is not None and er.learning.distil == 0
    assert isinstance(derpp, NeuralForecaster) and derpp.learning.distil == 0.2


def test_a_seed_decides_the_weights() -> None:
    nets = [make("ogd", TASK, seed=seed, options=SMALL) for seed in (0, 0, 1)]
    weights = [net.net.weights for net in nets if isinstance(net, NeuralForecaster)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
