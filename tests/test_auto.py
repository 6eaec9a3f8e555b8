"""`auto` as a whole: never far from the last value, ready from the first rows, the same under every way of asking."""

from __future__ import annotations

import copy
import math
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest
import torch
from benchmarks.auto import levels
from benchmarks.auto import wild as wildly
from tests.waves import TASK, rows_of, wave
from torch import Tensor

from natsr.auto import NETWORK_INPUTS, Budget, Clock, networks, panel
from natsr.evaluate import Moment, evaluate
from natsr.fleet.choice import beside
from natsr.forecasters.base import Forecaster
from natsr.forecasters.naive import LastValue
from natsr.forecasters.pool import Pool
from natsr.forecasters.whose import weights_of
from natsr.recipes import make, sees_no_parts
from natsr.streams import Rows, Windows, steps
from natsr.trials import contents, differing
from natsr.types import Example, Option, ProtocolName, State, StateError, Task

Array = npt.NDArray[np.float64]


def pool(task: Task = TASK, budget: Budget = "cheap") -> Pool:
    made = make("auto", task, options={"budget": budget})
    assert isinstance(made, Pool)
    return made


def ratio(values: Array, task: Task, warm: int) -> float:
    """The error of `auto` over that of the last value."""
    rows, auto = rows_of(values), pool(task)
    auto.warm_up(Windows(rows, task, 0, warm // 2), Windows(rows, task, warm // 2, warm))
    both = {"auto": auto, "last": LastValue(task)}
    scores = evaluate(both, rows, task, start=warm, stop=len(values), intervals=False)
    return float(scores["auto"].mae / scores["last"].mae) if scores["last"].mae else float(scores["auto"].mae)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_short_walk_from_a_cold_start_is_left_to_the_last_value_too(seed: int) -> None:
    values = np.cumsum(np.random.default_rng([seed, 77]).standard_normal((700, 1)), 0)
    assert wildly.beside(values, np.zeros(700, dtype=bool), 12, 60, 700, settled=-1) < 1.006


@pytest.mark.parametrize("horizon", [1, 6])
@pytest.mark.parametrize("size", [1e4, 1e7, 1e30])
def test_outliers_of_any_size_leave_the_other_rows_alone(horizon: int, size: float) -> None:
    generator = np.random.default_rng(0)
    values = np.sin(np.arange(1800) * np.pi / 12)[:, None] + 0.3 * generator.standard_normal((1800, 1))
    wild = generator.random(1800) < 0.01
    wild[:50] = False
    without = wildly.beside(values, np.zeros_like(wild), horizon, 600, len(values))
    values[wild] = size * generator.choice([-1.0, 1.0], (int(wild.sum()), 1))
    assert wildly.beside(values, wild, horizon, 600, len(values)) < 1.1 * without < 0.8


def test_a_few_codes_of_a_sensor_do_not_switch_the_pool_off() -> None:
    generator = np.random.default_rng(1)
    values = np.sin(np.arange(2000) * np.pi / 12)[:, None] + 0.3 * generator.standard_normal((2000, 1))
    wild = np.zeros(2000, dtype=bool)
    wild[generator.choice(np.arange(600, 1200), 12, replace=False)] = True
    values[wild] = -9999
    assert wildly.beside(values, wild, 1, 1200, len(values)) < 0.75


def test_a_level_of_thousands_of_usual_changes_is_met_at_once() -> None:
    generator = np.random.default_rng(1)
    values = np.sin(np.arange(1300) * np.pi / 12)[:, None] + 0.3 * generator.standard_normal((1300, 1))
    values[1000:] += 3000
    assert wildly.beside(values, np.zeros(1300, dtype=bool), 1, 1001, 1300) < 0.9


@pytest.mark.parametrize("size", [30, 66, 200])
@pytest.mark.parametrize("name", ["noise", "memory", "day"])
def test_a_new_level_is_paid_for_once(name: str, size: int) -> None:
    """24 rows ahead: the row in which it might be an outlier; and what was learned at the old level is right there."""
    values = levels.STREAMS[name](np.random.default_rng(7))[:2000, None]
    values[1200:] += size
    nothing = np.zeros(2000, dtype=bool)
    assert wildly.beside(values, nothing, 24, 600, 2000) < 1
    before, after = (wildly.beside(values, nothing, 24, *part) for part in ((800, 1200), (1300, 2000)))
    assert after < 1.1 * before + 0.02


def test_levels_again_and_again_are_no_reason_to_give_up() -> None:
    generator = np.random.default_rng(8)
    values = 50 * np.repeat(generator.standard_normal(14), 150)[:2000, None] + generator.standard_normal((2000, 1))
    for horizon, most in ((1, 0.9), (24, 1.0)):
        assert wildly.beside(values, np.zeros(2000, dtype=bool), horizon, 600, 2000) < most


def test_at_a_jump_nothing_is_mixed_that_lies_beyond_where_the_stream_had_gone_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mean of noise lies where the stream has been; it is judged by that, and mixed nearer to where it is."""
    values = np.random.default_rng(9).standard_normal((1240, 1))
    values[1200:] += 60
    for native in ("1", "0"):
        monkeypatch.setenv("NATSR_NATIVE", native)
        auto = panel(Task(60, 24, 1, season=24), "cheap")
        for row in values[:1201]:
            auto.advance(row)
        assert auto.mean().max() < 5, "one row may be an outlier"
        for row in values[1201:]:
            auto.advance(row)
        mean = auto.newest()[auto.names.index("mean_0.003")]
        most = (1 + 4 / 40) * auto.arrays()["panel"]["settled"].max()
        assert 4 < most < 8 < 40 < np.abs(mean - values[-1]).max()
        assert np.abs(auto.mean() - values[-1]).max() < most


def test_a_random_walk_is_left_to_the_last_value() -> None:
    values = np.cumsum(np.random.default_rng(1).standard_normal((1500, 2)), 0) / 10
    assert ratio(values, Task(window=8, horizon=2, channels=2, season=6), 600) < 1.01


def test_a_constant_is_forecast_exactly() -> None:
    values = np.stack([np.full(200, 3.0), np.zeros(200)], 1)
    assert ratio(values, TASK, 50) < 1e-6


def test_a_column_that_rarely_moves_is_left_to_the_last_value() -> None:
    generator = np.random.default_rng(2)
    values = np.cumsum((generator.random((1200, 2)) < 0.02) * generator.standard_normal((1200, 2)), 0)
    assert ratio(values, Task(window=8, horizon=2, channels=2, season=6), 400) < 1.02


def test_a_wave_is_forecast_much_better_than_by_the_last_value() -> None:
    assert ratio(wave(500), TASK, 200) < 0.4


def test_it_answers_from_the_first_window_without_any_warm_up() -> None:
    auto, rows = pool(), rows_of(wave(120))
    late = []
    for step in steps(rows, TASK, "honest", 8, 120):
        if step.matured is not None:
            auto.learn(step.matured)
        mean = auto.forecast(step.window).mean
        assert bool(mean.isfinite().all())
        if step.origin > 80 and step.target is not None:
            late.append(float((mean - step.target).abs().mean()))
    assert np.mean(late) < 0.3


def test_the_protocols_that_are_honest_come_to_the_same() -> None:
    """Experts take rows, and both bring each row at the same time."""
    rows, found = rows_of(wave(90)), {}
    for protocol in ("honest", "partial"):
        means: list[Array] = []

        def keep(moment: Moment, means: list[Array] = means) -> None:
            means.append(moment.means["auto"])

        auto = pool()
        auto.warm_up(Windows(rows, TASK, 0, 30), Windows(rows, TASK, 30, 40))
        evaluate({"auto": auto}, rows, TASK, start=40, stop=90, protocol=protocol, intervals=False, on_step=keep)
        found[protocol] = np.stack(means)
    np.testing.assert_array_equal(found["honest"], found["partial"])


@pytest.mark.parametrize("budget", ["cheap", "one"])
def test_a_forecast_knows_the_rows_of_its_window_before_they_are_learned(budget: Budget) -> None:
    """The first forecasts after the warm-up, for which no example has matured, are those of one who was told."""
    rows = rows_of(wave(120))
    told, asked = pool(budget=budget), pool(budget=budget)
    told.warm_up(Windows(rows, TASK, 0, 90), Windows(rows, TASK, 90, 112))
    asked.warm_up(Windows(rows, TASK, 0, 90), Windows(rows, TASK, 90, 110))
    windows = Windows(rows, TASK, 0, 120)
    first = asked.forecast(windows.window(110)).mean
    assert not torch.equal(first, asked.forecast(windows.window(109)).mean)
    assert torch.equal(asked.forecast(windows.window(111)).mean, told.forecast(windows.window(111)).mean)
    assert torch.equal(asked.forecast(windows.window(110)).mean, first)


@pytest.mark.parametrize("protocol", ["honest", "partial"])
def test_no_row_is_lost_where_the_stream_stands_still_when_the_warm_up_ends(protocol: ProtocolName) -> None:
    """Rows that all look alike were taken for others, and everything with a period was a few rows off from there on."""
    square = np.where(np.arange(900)[:, None] % 60 < 12, 1.0, 0.0) * np.array([1.0, -2.0])
    task = Task(window=8, horizon=5, channels=2, season=60)
    rows, auto = rows_of(square), pool(task)
    warm = 410  # 50 rows after the last change, 10 before the next
    auto.warm_up(Windows(rows, task, 0, 300), Windows(rows, task, 300, warm))
    carried = pool(task)
    carried.load_state_dict(auto.state_dict())
    for step in steps(rows, task, protocol, warm, len(square)):
        for learner in (auto, carried):
            if step.matured is not None:
                learner.learn(step.matured)
        if step.origin >= warm + task.horizon:
            assert np.abs(auto.forecast(step.window).mean[0].numpy() - square[step.origin + 1 :][:5]).max() < 0.01
    assert auto.state_dict()["row"] == carried.state_dict()["row"] == step.origin
    assert differing(contents(auto.state_dict()), contents(carried.state_dict())) == []


def test_rows_before_the_first_are_not_taken_for_rows() -> None:
    """Windows reach further back than a network sees, for a season: at first they repeat the first row."""
    values, task = wave(120), Task(window=8, horizon=3, channels=2, season=40)
    rows, auto, whole = rows_of(values), pool(task), pool(task)
    for step in steps(rows, task, "honest", task.window, len(values)):
        if step.matured is not None:
            auto.learn(step.matured)
        elif step.origin == task.window - 1:
            first = auto.forecast(step.window).mean
    assert auto.state_dict()["row"] == step.origin
    panel = whole._panel
    for row in values[: task.window].astype(np.float32).astype(np.float64):
        panel.advance(row)
    np.testing.assert_array_equal(first[0].numpy(), panel.mean().astype(np.float32))
    for row in values[task.window : step.origin + 1].astype(np.float32).astype(np.float64):
        panel.advance(row)
    np.testing.assert_array_equal(auto.forecast(step.window).mean[0].numpy(), panel.mean().astype(np.float32))


def test_a_counter_that_begins_anew_is_followed_at_once() -> None:
    """What is learned follows a jump slowly, for it may be an outlier; forecasts begin at the row that came."""
    steps_up = np.random.default_rng(3).uniform(0.5, 1.5, (900, 1))
    counter = np.cumsum(steps_up, 0) % 500
    values = (counter - 250) / 150
    resets = np.flatnonzero(np.diff(values[:, 0]) < 0) + 1
    task = Task(window=8, horizon=2, channels=1, season=6)
    panel_ = pool(task)._panel
    far = []
    for number, row in enumerate(values[:-2]):
        panel_.advance(row)
        far.append(np.abs(panel_.mean() - values[number + 1 : number + 3]).mean())
    assert len(resets) >= 1 and resets[0] > 400
    assert np.mean(far[resets[0] + 1 : resets[0] + 30]) < 0.03  # 0.08 where they begin at what is learned


def test_a_window_of_another_stream_is_answered_and_forgotten() -> None:
    rows, auto = rows_of(wave(60)), pool()
    auto.warm_up(Windows(rows, TASK, 0, 40), Windows(rows, TASK, 40, 60))
    usual = Windows(rows, TASK, 0, 60).window(59)
    before = auto.forecast(usual).mean
    assert bool(auto.forecast(torch.full((1, 8, 2), 7.0)).mean.isfinite().all())
    assert torch.equal(auto.forecast(usual).mean, before)


def test_an_example_that_is_known_already_changes_nothing() -> None:
    rows, auto = rows_of(wave(60)), pool()
    auto.warm_up(Windows(rows, TASK, 0, 40), Windows(rows, TASK, 40, 60))
    usual = Windows(rows, TASK, 0, 60)
    before = auto.forecast(usual.window(59)).mean
    auto.learn(usual.at(torch.tensor([56])))
    auto.learn(usual.at(torch.tensor([53])))
    assert torch.equal(auto.forecast(usual.window(59)).mean, before)


def test_rows_without_a_value_do_no_harm() -> None:
    values = wave(200)
    values[80:100] = math.nan
    values[::7, 1] = math.nan
    rows, auto = rows_of(values), pool()
    auto.warm_up(Windows(rows, TASK, 0, 40), Windows(rows, TASK, 40, 60))
    scores = evaluate({"auto": auto}, rows, TASK, start=60, stop=200, intervals=False)["auto"]
    assert scores.error is None and scores.mae < 0.7


def test_a_meter_that_begins_anew_and_a_code_for_errors_are_no_riddles() -> None:
    """Whatever the size of a jump: the last value knows nothing of the steps, and cut rows creep for many rows."""
    generator = np.random.default_rng(3)
    meter = np.cumsum(1 + 0.3 * generator.standard_normal((1200, 1)), 0) % 250
    sensor = np.sin(np.arange(1200.0) / 5)[:, None] + 0.05 * generator.standard_normal((1200, 1))
    for start in range(150, 1200, 130):
        sensor[start : start + 5] = -9999
    task = Task(window=8, horizon=1, channels=1, season=6)
    for values, most in ((meter, 0.62), (sensor, 1.005)):
        rows, auto = rows_of(values), pool(task)
        auto.warm_up(Windows(rows, task, 0, 500), Windows(rows, task, 500, 600))
        both = {"auto": auto, "last": LastValue(task)}
        scores = evaluate(both, rows, task, start=600, stop=1200, intervals=False)
        assert scores["auto"].mae < most * scores["last"].mae


def test_the_weights_say_who_forecasts() -> None:
    rows, auto = rows_of(wave(200)), pool()
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    weights = auto.weights()
    assert sum(weights.values()) == pytest.approx(1, abs=1e-4) and min(weights.values()) >= 0
    assert weights["last_value"] < 0.2
    top = max(weights.items(), key=lambda item: item[1])
    assert auto.info()[f"weight_{top[0]}"] == top[1]


def test_the_weights_of_each_step_and_column_are_those_of_the_mixture() -> None:
    rows, auto = rows_of(wave(200)), pool()
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    each = auto.weights_by_step()
    assert each.shape == (len(auto.kinds()), TASK.horizon, TASK.channels) and each.min() >= 0
    np.testing.assert_allclose(each.sum(0), 1, atol=1e-5)
    assert list(auto.weights()) == list(auto.kinds())
    np.testing.assert_allclose(list(auto.weights().values()), each.mean((1, 2)), atol=1e-12)
    kinds = auto.weights_by_kind()
    assert set(kinds) == set(auto.kinds().values()) and "others" not in kinds
    np.testing.assert_allclose(sum(kinds.values()), 1, atol=1e-5)
    names = [name for name, kind in auto.kinds().items() if kind == "least squares"]
    assert "lags60_plain" in names and "last_value" not in names
    found = sum(auto.weights()[name] for name in names)
    assert float(kinds["least squares"].mean()) == pytest.approx(found)


def test_the_weights_that_count_are_told_and_of_others_nothing() -> None:
    rows, auto = rows_of(wave(200)), pool()
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    told = weights_of(auto)
    assert told is not None and list(told.values()) == sorted(told.values(), reverse=True)
    assert told == {name: round(w, 4) for name, w in auto.weights().items() if w > 0.005}
    assert weights_of(LastValue(TASK)) is None


def test_the_variance_is_that_of_the_errors() -> None:
    rows, auto, errors = rows_of(wave(500)), pool(), []
    auto.warm_up(Windows(rows, TASK, 0, 200), Windows(rows, TASK, 200, 300))
    for step in steps(rows, TASK, "honest", 300, 500):
        if step.matured is not None:
            auto.learn(step.matured)
        found = auto.forecast(step.window)
        assert found.variance is not None and step.target is not None
        errors.append(((found.mean - step.target).square() / found.variance).numpy())
    assert 0.6 < np.mean(errors) < 1.6


@pytest.mark.parametrize("budget", ["one", "all"])
def test_networks_are_experts_and_are_carried_on(budget: Budget) -> None:
    task = Task(window=6, horizon=2, channels=2, season=6)
    small: dict[str, Option] = {"width": 4, "depth": 2, "top": 8, "epochs": 1}
    members = {"natsr": partial(make, "natsr", options=small)}
    first, second = (Pool(task, partial(panel, budget=budget, members=members)) for _ in range(2))
    rows = rows_of(wave(140))
    first.warm_up(Windows(rows, task, 0, 110), Windows(rows, task, 110, 130))
    assert "network_day" in first.weights() and ("natsr" in first.weights()) == (budget == "all")
    second.load_state_dict(first.state_dict())
    for step in steps(rows, task, "honest", 130, 140):
        for one in (first, second):
            if step.matured is not None:
                one.learn(step.matured)
        assert torch.equal(first.forecast(step.window).mean, second.forecast(step.window).mean)


def test_networks_that_are_loaded_anew_forget_what_was_read_for_them() -> None:
    """Though the rows that came since are as many as those that came before."""
    task = Task(window=6, horizon=2, channels=2, season=6)
    small: dict[str, Option] = {"width": 4, "depth": 2, "top": 8, "epochs": 1}
    members = {"natsr": partial(make, "natsr", options=small)}
    rows = rows_of(wave(160))

    def learned(auto: Pool, shift: float) -> Tensor:
        for step in steps(Rows(rows.inputs + shift, rows.truth + shift), task, "honest", 130, 134):
            if step.matured is not None:
                auto.learn(step.matured)
        return auto.forecast(Windows(rows, task, 0, 160).window(133)).mean

    used, fresh = (Pool(task, partial(panel, budget="all", members=members)) for _ in range(2))
    used.warm_up(Windows(rows, task, 0, 110), Windows(rows, task, 110, 130))
    state = copy.deepcopy(used.state_dict())
    learned(used, 1.0)
    for one in (used, fresh):
        one.load_state_dict(copy.deepcopy(state))
    assert torch.equal(learned(used, 0.0), learned(fresh, 0.0))


def test_if_one_network_does_not_fit_none_is_changed() -> None:
    task = Task(window=6, horizon=2, channels=2, season=6)
    small: dict[str, Option] = {"width": 4, "depth": 2, "top": 8}

    def made(seed: int) -> Pool:
        members = {name: partial(make, name, seed=seed, options=small) for name in ("natsr", "natsr_fast")}
        return Pool(task, partial(panel, budget="all", members=members))

    auto, state = made(0), made(1).state_dict()
    before = contents(auto.state_dict())
    spoilt: list[State] = [{**state, "member_natsr_fast": {}}, {**state, "member_natsr_fast": None}]
    for one in spoilt:
        with pytest.raises(StateError):
            auto.load_state_dict(one)
        assert not differing(before, contents(auto.state_dict()))


def test_a_foreign_state_is_refused_and_nothing_is_changed() -> None:
    auto = pool()
    auto.learn(Example(torch.zeros(1, 8, 2), torch.ones(1, 3, 2)))
    state, other = auto.state_dict(), pool(Task(window=8, horizon=4, channels=2, season=6)).state_dict()
    with pytest.raises(StateError, match="same task"):
        auto.load_state_dict(other)
    with pytest.raises(StateError, match="another method"):
        auto.load_state_dict({})
    past, gained = state["past"], torch.zeros(3, dtype=torch.float64)
    assert isinstance(past, dict)
    for name, value in (("counts", torch.tensor([10**6, 500])), ("known", torch.as_tensor(past["known"]).double())):
        with pytest.raises(StateError, match=f"past.{name} is"):
            auto.load_state_dict({**state, "past": {**past, name: value}})
    ledger = state["ledger"]
    assert isinstance(ledger, dict)
    with pytest.raises(StateError, match="ledger.gained is"):
        auto.load_state_dict({**state, "ledger": {**ledger, "gained": gained}})
    after = auto.state_dict()["past"]
    before = state["past"]
    assert isinstance(after, dict) and isinstance(before, dict)
    assert all(
        isinstance(value, Tensor) and torch.equal(value, torch.as_tensor(before[name])) for name, value in after.items()
    )


def test_the_example_of_the_row_before_is_a_hint_where_it_is_known_and_only_there() -> None:
    """Where the labels of the row before are handed over at once (`paper`); honest forecasts are the mixture's."""
    values = np.cumsum(np.random.default_rng(5).standard_normal((500, 2)), 0)
    rows, found = rows_of(values), {}
    for protocol in ("honest", "paper"):
        auto = pool()
        auto.warm_up(Windows(rows, TASK, 0, 180), Windows(rows, TASK, 180, 200))
        score = evaluate({"auto": auto}, rows, TASK, start=200, stop=500, protocol=protocol, intervals=False)
        found[protocol] = score["auto"].by_step()["mae"]
    assert found["paper"][2] < 0.8 * found["honest"][2]
    assert found["paper"][0] < 1.05 * found["honest"][0]
    auto = pool()
    auto.warm_up(Windows(rows, TASK, 0, 480), Windows(rows, TASK, 480, 500))
    now = auto._panel
    assert (now.mean() == now._guarded[(now.past.seen - 1) % 4]).all()


def test_wide_streams_get_fewer_lags() -> None:
    wide, narrow = panel(Task(8, 1, 400, 0, 24)), panel(Task(8, 1, 4, 0, 24))
    sizes = [max(a.size for a in part["group_14"].values()) for part in (wide.arrays(), narrow.arrays())]
    assert sizes[0] < 10 * sizes[1]


@pytest.mark.parametrize(
    ("channels", "season", "rows"), [(7, 24, (23, 26, 8, 23)), (7, 1, (20, 20, 8, 20)), (400, 24, (3,) * 4)]
)
def test_networks_read_the_last_rows_and_those_a_period_before_as_far_as_there_is_room(
    channels: int, season: int, rows: tuple[int, ...]
) -> None:
    task = Task(60, 1, channels, 0, season)
    for group, count in zip(networks(task, Clock(task)), rows, strict=True):
        width = 256 if group.names == ("network_wide",) else 128
        inputs = count * channels + 6  # and waves
        sizes = (inputs + 1) * width + (width + 1) * width + (width + 1) * channels + inputs * channels
        assert group.arrays()["weights"].size == sizes and count * channels <= NETWORK_INPUTS


def test_natsr_stable_and_fast_are_stepped_as_one_and_forecast_what_they_would_alone() -> None:
    task = Task(window=6, horizon=2, channels=2, season=6)
    small: dict[str, Option] = {"width": 4, "depth": 2, "top": 8, "epochs": 1, "every": 5}
    members = {name: partial(make, name, options=small) for name in ("natsr", "natsr_fast")}
    asked: list[int] = []

    def counted(forecasters: list[Forecaster]) -> list[Forecaster]:
        asked.append(len(forecasters))
        return beside(forecasters)

    together = Pool(task, partial(panel, budget="all", members=members, in_step=counted))
    alone = Pool(task, partial(panel, budget="all", members=members))
    assert asked == [2]
    rows = rows_of(wave(200))
    for one in (together, alone):
        one.warm_up(Windows(rows, task, 0, 110), Windows(rows, task, 110, 130))
    for step in steps(rows, task, "honest", 130, 200):
        for one in (together, alone):
            if step.matured is not None:
                one.learn(step.matured)
        torch.testing.assert_close(together.forecast(step.window).mean, alone.forecast(step.window).mean)
    again = Pool(task, partial(panel, budget="all", members=members, in_step=beside))
    again.load_state_dict(together.state_dict())
    assert torch.equal(again.forecast(step.window).mean, together.forecast(step.window).mean)
    state = together.state_dict()
    for name in members:
        own, other = state[f"member_{name}"], alone.state_dict()[f"member_{name}"]
        assert isinstance(own, dict) and isinstance(other, dict)
        assert own["counts"] == other["counts"]


@pytest.mark.parametrize("budget", ["cheap", "one"])
def test_examples_with_some_labels_change_nothing(budget: Budget) -> None:
    values = wave(260)
    rows = rows_of(values)
    totals = []
    for protocol in ("honest", "partial"):
        auto = pool(budget=budget)
        auto.warm_up(Windows(rows, TASK, 0, 100), Windows(rows, TASK, 100, 130))
        score = evaluate({"auto": auto}, rows, TASK, start=130, stop=260, protocol=protocol, intervals=False)["auto"]
        totals.append(score.mae)
    assert totals[0] == totals[1] and sees_no_parts("auto", {"budget": budget})
