"""`auto` beside other columns: near the pool where they tell nothing, better where they do; judged by what was said."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from natsr.checks import CHECKS, check_memory_is_bounded, run_check
from natsr.evaluate import evaluate
from natsr.forecasters.base import Forecast
from natsr.forecasters.joint import HEAD_START, READER, Joint
from natsr.forecasters.naive import LastValue
from natsr.forecasters.pool import Pool
from natsr.live import Live
from natsr.recipes import make
from natsr.streams import Rows, Windows, steps
from natsr.trials import contents, differing
from natsr.types import Example, Option, OptionError, State, StateError, Task

Array = npt.NDArray[np.float64]
SMALL: dict[str, Option] = {"width": 8, "depth": 2, "top": 16, "epochs": 2, "memory": 20}
CHEAP: dict[str, Option] = {"budget": "cheap"}
TASK = Task(window=8, horizon=3, channels=2, features=2, season=6, outside=1)
START, HOUR = np.datetime64("2024-01-01T00:00:00"), np.timedelta64(1, "h")


def small(task: Task) -> Joint:
    pool = make("auto", Task(task.window, task.horizon, task.channels, task.features, task.season), options=CHEAP)
    assert isinstance(pool, Pool)
    return Joint(task, pool, make("natsr", task, options=SMALL))


def rows_of(count: int, gaps: bool = False) -> Rows:
    generator = np.random.default_rng(7)
    values = np.sin(np.arange(count)[:, None] * np.pi / 3 + np.arange(2)) + 0.2 * generator.normal(size=(count, 2))
    truth = torch.from_numpy(values).float()
    inputs = torch.cat([truth, torch.from_numpy(generator.normal(size=(count, 2))).float()], 1)
    if gaps:
        truth = truth.clone()
        truth[count // 2 :: 5, 0] = math.nan
    return Rows(inputs, truth)


def started(rows: Rows, warm: int = 60) -> Joint:
    joint = small(TASK)
    joint.warm_up(Windows(rows, TASK, 0, warm - 15), Windows(rows, TASK, warm - 15, warm))
    return joint


def play(joint: Joint, rows: Rows, start: int, stop: int, protocol: Any = "honest") -> list[torch.Tensor]:
    found = []
    for step in steps(rows, TASK, protocol, 60, len(rows.inputs)):
        if start <= step.origin < stop:
            learned(joint, step.matured)
            found.append(joint.forecast(step.window).mean)
    return found


def learned(joint: Joint, example: Example | None) -> None:
    if example is not None:
        joint.learn(example)


# ---- who is who ------------------------------------------------------------------------------------------------------


def test_only_columns_from_outside_make_a_difference() -> None:
    plain = Task(window=8, horizon=3, channels=2, features=2, season=6)
    assert type(make("auto", plain, options=CHEAP)) is Pool
    made = make("auto", TASK, options=CHEAP)
    assert isinstance(made, Joint) and made.task == made.pool.task == made.reader.task == TASK
    assert set(made.weights()) == {*made.pool.weights(), READER}
    assert made.kinds()[READER] == "NatSR" and list(made.kinds()) == list(made.weights())
    assert made.weights_by_step().shape == (len(made.kinds()), TASK.horizon, TASK.channels)
    np.testing.assert_allclose(made.weights_by_step().sum(0), 1, atol=1e-5)
    whole = make("auto", TASK, options={"budget": "all"})
    assert isinstance(whole, Joint) and {"natsr", "natsr_fast", READER} <= set(whole.weights())
    with pytest.raises(OptionError, match="outside is 3, expected 0 or more, and at most features, 2"):
        Task(8, 3, 2, features=2, outside=3)


def errors(kind: str, seed: int) -> tuple[float, float, dict[str, float]]:
    """The error of the joint and of the pool alone on a stream with a column beside it, and the weights."""
    count, warm, horizon = 1000, 300, 3
    generator = np.random.default_rng(seed)
    beside = (generator.uniform(size=count + horizon) < 0.3).astype(float)
    walk, shocks = np.zeros(count), generator.normal(size=count)
    for row in range(1, count):
        walk[row] = 0.8 * walk[row - 1] + 0.25 * shocks[row]
    values = np.sin(np.arange(count) * np.pi / 12) + walk + (1.5 * beside[:count] if kind == "driven" else 0.0)
    values = (values - values[:warm].mean()) / values[:warm].std()
    features = np.stack([(beside - 0.3)[lead : lead + count] / 0.46 for lead in range(horizon + 1)], 1)
    truth = torch.from_numpy(values[:, None]).float()
    rows = Rows(torch.cat([truth, torch.from_numpy(features).float()], 1), truth)
    scores: dict[str, float] = {}
    for outside in (0, horizon + 1):
        task = Task(24, horizon, 1, horizon + 1, 24, outside)
        auto = make("auto", task, options=CHEAP)
        auto.warm_up(Windows(rows, task, 0, 240), Windows(rows, task, 240, warm))
        found = evaluate({"auto": auto}, rows, task, start=warm, stop=count, intervals=False)["auto"]
        scores["joint" if outside else "pool"] = float(found.mae)
    assert isinstance(auto, Joint)
    return scores["joint"], scores["pool"], auto.weights()


def test_noise_beside_the_values_costs_next_to_nothing() -> None:
    joint, pool, weights = errors("noise", seed=11)
    assert joint <= 1.01 * pool, joint / pool
    assert weights[READER] < 0.2


def test_a_plan_that_drives_the_values_is_read() -> None:
    joint, pool, weights = errors("driven", seed=12)
    assert joint < 0.7 * pool, joint / pool
    assert weights[READER] > 0.7 and sum(weights.values()) == pytest.approx(1)


# ---- what was said ---------------------------------------------------------------------------------------------------


class Teller(LastValue):
    """Says what it is told to."""

    says = 0.0

    def forecast(self, window: torch.Tensor) -> Forecast:
        mean, _ = super().forecast(window)
        return Forecast(torch.full_like(mean, self.says), torch.ones(()))


def told() -> tuple[Joint, Teller, Windows, Rows]:
    rows, joint = rows_of(120), small(TASK)
    teller = Teller(TASK)
    joint = Joint(TASK, joint.pool, teller)
    return joint, teller, Windows(rows, TASK, 0, 120), rows


def regret(joint: Joint) -> torch.Tensor:
    mixture = joint.state_dict()["mixture"]
    assert isinstance(mixture, dict) and isinstance(mixture["regret"], torch.Tensor)
    return mixture["regret"]


def test_it_is_judged_by_what_was_said_then() -> None:
    joint, teller, windows, _ = told()
    teller.says = 5.0
    joint.forecast(windows.window(50))
    teller.says = 0.0  # later it knows better, but was not asked then
    joint.forecast(windows.window(50))  # asked again: the first answer stands
    before = regret(joint)
    assert float(before[0].min()) == HEAD_START
    joint.learn(windows.at(torch.tensor([50])))
    first = regret(joint)

    def asked_once(says: float) -> torch.Tensor:
        other, teller, windows, _ = told()
        teller.says = says
        other.forecast(windows.window(50))
        other.learn(windows.at(torch.tensor([50])))
        return regret(other)

    assert torch.equal(first, asked_once(5.0)) and not torch.equal(first, asked_once(0.0))


def test_nothing_is_learned_about_an_origin_at_which_nobody_asked() -> None:
    joint, _, windows, _ = told()
    for origin in range(40, 50):
        joint.forecast(windows.window(origin))
    before = regret(joint)
    joint.learn(windows.at(torch.tensor([55])))  # never asked for
    joint.learn(windows.at(torch.tensor([44])))  # so long ago that it is forgotten
    assert torch.equal(regret(joint), before)
    joint.learn(windows.at(torch.tensor([48])))
    once = regret(joint)
    assert not torch.equal(once, before)
    joint.learn(windows.at(torch.tensor([48])))  # and each is judged once
    joint.learn(windows.at(torch.tensor([47])))
    assert torch.equal(regret(joint), once)


def test_labels_that_are_missing_or_not_yet_there_teach_no_weights() -> None:
    joint, _, windows, _ = told()
    joint.forecast(windows.window(50))
    before = regret(joint)
    example = windows.at(torch.tensor([50]))
    target = example.target.clone()
    target[:, 2] = math.nan
    joint.learn(Example(example.window, target, torch.tensor([[False, True, False]])))
    assert torch.equal(regret(joint), before)
    target[:, :, 0] = math.nan
    joint.learn(Example(example.window, torch.full_like(target, math.nan), torch.tensor([[False, False, True]])))
    assert torch.allclose(regret(joint), 0.999 * before)  # nothing but a row later
    joint.forecast(windows.window(51))
    example = windows.at(torch.tensor([51]))
    target = example.target.clone()
    target[:, :, 0] = math.nan
    before = regret(joint)
    joint.learn(Example(example.window, target, torch.tensor([[False, False, True]])))
    after = regret(joint)
    assert torch.allclose(after[:, :, 0], 0.999 * before[:, :, 0])
    assert not torch.allclose(after[:, :, 1], 0.999 * before[:, :, 1])


def test_a_reader_that_is_lost_is_left_out() -> None:
    joint, teller, windows, _ = told()
    joint._mixture.weights[:] = 0.5
    teller.says = math.nan
    mean, variance = joint.forecast(windows.window(50))
    assert torch.equal(mean, joint.pool.forecast(windows.window(50)).mean) and variance is not None
    joint.learn(windows.at(torch.tensor([50])))
    assert bool(joint.forecast(windows.window(51)).mean.isfinite().all())


# ---- the contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "check_forecast_is_pure"])
def test_it_keeps_the_contract(check: str) -> None:
    if check == "check_memory_is_bounded":
        check_memory_is_bounded(small, count=400)
        return
    result = run_check(check, small, quick=True)
    assert result.passed or result.skipped is not None, result.error


def test_a_forecast_leaves_only_a_note_of_what_was_said() -> None:
    joint = started(rows_of(120))
    windows = Windows(rows_of(120), TASK, 0, 120)
    before = contents(joint.state_dict())
    first = joint.forecast(windows.window(70)).mean
    once = contents(joint.state_dict())
    assert {name.split("/")[1] for name in differing(before, once)} == {"ends", "said"}
    assert torch.equal(joint.forecast(windows.window(70)).mean, first)
    assert not differing(once, contents(joint.state_dict()))
    joint.forecast(windows.at(torch.tensor([71, 72])).window)  # several at once are not a stream
    assert not differing(once, contents(joint.state_dict()))


@pytest.mark.parametrize("protocol", ["honest", "partial"])
def test_a_state_goes_on_bit_for_bit(protocol: str) -> None:
    rows = rows_of(200, gaps=True)
    joint = started(rows)
    play(joint, rows, 0, 130, protocol)
    again = small(TASK)
    again.load_state_dict(joint.state_dict())
    assert not differing(contents(joint.state_dict()), contents(again.state_dict()))
    pairs = [play(one, rows, 130, 196, protocol) for one in (joint, again)]
    assert all(torch.equal(a, b) for a, b in zip(*pairs, strict=True))
    assert joint.weights() == again.weights() and joint.info() == again.info()


def test_a_state_is_loaded_whole_or_not_at_all() -> None:
    rows = rows_of(150)
    joint, other = started(rows), started(rows)
    play(joint, rows, 0, 130)
    good, kept = joint.state_dict(), contents(other.state_dict())
    reader = good["reader"]
    assert isinstance(reader, dict)
    wrong: list[State] = [
        {**good, "reader": {**reader, "weights": torch.zeros(3)}},
        {**good, "pool": {}},
        {**good, "mixture": {}},
        {**good, "ends": torch.zeros(1, 2, 3)},
        {**good, "said": torch.zeros(9, 3, 3, 2)},
        {name: part for name, part in good.items() if name != "said"},
        joint.pool.state_dict(),
    ]
    for state in wrong:
        with pytest.raises(StateError):
            other.load_state_dict(state)
        assert not differing(kept, contents(other.state_dict()))
    with pytest.raises(StateError):
        joint.pool.load_state_dict(good)
    other.load_state_dict(good)
    assert not differing(contents(good), contents(other.state_dict()))


def test_what_is_shown() -> None:
    rows = rows_of(200)
    joint = started(rows)
    assert joint.weights()[READER] == 0.0  # the pool alone, to begin with
    play(joint, rows, 0, 190)
    info, weights = joint.info(), joint.weights()
    assert sum(weights.values()) == pytest.approx(1) and 0 <= weights[READER] <= 1
    assert info["variance"] > 0 and info["refused"] == 0
    shown = {name.removeprefix("weight_"): value for name, value in info.items() if name.startswith("weight_")}
    assert len(shown) == 8 and READER in shown and all(weights[name] == value for name, value in shown.items())


# ---- through Live ----------------------------------------------------------------------------------------------------


def table(count: int) -> Array:
    generator = np.random.default_rng(5)
    holiday = (generator.uniform(size=count) < 0.3).astype(float)
    wind = generator.normal(size=count)
    load = 50 + 10 * np.sin(np.arange(count) * np.pi / 12) + 20 * holiday + 3 * generator.normal(size=count)
    load[40::37] = math.nan
    return np.stack([load, wind, holiday], 1)


def fed(live: Live, values: Array, start: int, stop: int) -> list[Array]:
    found = []
    for row in range(start, stop):
        live.observe(START + row * HOUR, values[row], {"holiday": values[row + 1 : row + 3, 2]})
        found.append(live.forecast().mean)
    return found


def a_live(**more: Any) -> Live:
    beside: dict[str, Any] = {"exogenous": ["wind"], "known": ["holiday"], "options": CHEAP, **more}
    return Live(["load"], horizon=2, window=12, **beside)


@pytest.mark.parametrize("warm", [0, 100])
@pytest.mark.parametrize("protocol", ["honest", "partial"])
def test_live_takes_them_with_the_default_method(warm: int, protocol: str, tmp_path: Path) -> None:
    live, values = a_live(protocol=protocol), table(400)
    if warm:
        past = (START + np.arange(warm) * HOUR, values[:warm])
        live.warm_up(past, future={"holiday": values[warm : warm + 2, 2]})
    assert all(np.isfinite(mean).all() for mean in fed(live, values, warm, 200))
    assert live.method == "auto" and f"weight_{READER}" in live.health()
    live.save(tmp_path / "state")
    again = Live.load(tmp_path / "state")
    pairs = zip(fed(live, values, 200, 330), fed(again, values, 200, 330), strict=True)
    assert all((a == b).all() for a, b in pairs)
    assert live.health() == again.health()


def test_live_is_better_for_them() -> None:
    values, found = table(602), dict[str, float]()
    for name, live in (("beside", a_live()), ("alone", a_live(exogenous=[], known=[]))):
        ahead = []
        for row in range(600):
            if name == "alone":
                live.observe(START + row * HOUR, values[row, :1])
            else:
                fed(live, values, row, row + 1)
            ahead.append(live.forecast().mean[:, 0])
        truth = np.stack([values[row + 1 : row + 3, 0] for row in range(600)])
        found[name] = float(np.nanmean(np.abs(np.stack(ahead) - truth)[300:]))
    assert found["beside"] < 0.75 * found["alone"], found
