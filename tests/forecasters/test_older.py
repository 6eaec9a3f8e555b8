"""States of a pool from before are carried on: they answer the same, and learn on as well."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from tests.waves import TASK, rows_of, wave
from torch import Tensor

from natsr.auto import Budget, panel
from natsr.evaluate import evaluate
from natsr.experts.jumps import Jumps
from natsr.experts.ledger import NEAREST
from natsr.forecasters.pool import Pool
from natsr.recipes import make
from natsr.streams import Windows, steps
from natsr.trials import contents, differing
from natsr.types import Option, State


@pytest.mark.parametrize("budget", ["cheap", "all"])
def test_a_state_from_before_there_were_several_mixtures_and_networks_is_carried_on(budget: Budget) -> None:
    small: dict[str, Option] = {"width": 4, "depth": 2, "top": 8, "epochs": 1}
    make_panel = partial(panel, budget=budget, members={"natsr": partial(make, "natsr", options=small)})
    rows, auto, other = rows_of(wave(160)), Pool(TASK, make_panel), Pool(TASK, make_panel)
    auto.warm_up(Windows(rows, TASK, 0, 110), Windows(rows, TASK, 110, 120))
    other.load_state_dict(of_before(auto.state_dict(), networks=budget == "all"))
    window = Windows(rows, TASK, 0, 160).window(119)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=120, stop=160, intervals=False)
    assert scores["as it was"].mae < 1.15 * scores["as it is"].mae


def test_a_state_from_before_there_was_a_fast_mixture_is_carried_on() -> None:
    rows, auto, other = rows_of(wave(160)), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 110), Windows(rows, TASK, 110, 120))
    other.load_state_dict(of_format_3(auto.state_dict()))
    window = Windows(rows, TASK, 0, 160).window(119)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    known = auto.weights()
    before = 1 - known["everything_quick_plain"]
    assert sum(other.weights().values()) == pytest.approx(1)
    assert other.weights()["last_value"] == pytest.approx(known["last_value"] / before, abs=0.05)
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=120, stop=160, intervals=False)
    assert scores["as it was"].mae < 1.15 * scores["as it is"].mae


def test_a_state_from_before_waves_followed_the_amplitude_is_carried_on() -> None:
    """As it was, bit for bit, until the amplitude changes; and then it follows."""
    values = wave(600)
    values[400:] *= 3
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 200), Windows(rows, TASK, 200, 300))
    state = of_format_6(auto.state_dict())
    without_swing(state)
    other.load_state_dict(state)
    auto.load_state_dict(of_format_6(auto.state_dict()))
    for step in steps(rows, TASK, "honest", 300, 600):
        for one in (auto, other):
            if step.matured is not None:
                one.learn(step.matured)
        if step.origin < 400:
            assert torch.equal(other.forecast(step.window).mean, auto.forecast(step.window).mean)
    for one in (auto, other):
        assert np.abs(one._panel.past.swing(1) / 3 - 1).max() < 0.3


def test_a_state_from_before_there_were_medians_and_jumps_is_carried_on() -> None:
    values = wave(400)
    values[300:] += 1000
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_6(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    known = other.weights()
    assert sum(known.values()) == pytest.approx(1) and known["median_13"] < 0.02
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=200, stop=300, intervals=False)
    assert scores["as it was"].mae < 1.05 * scores["as it is"].mae
    scores = evaluate(both, rows, TASK, start=301, stop=400, intervals=False)
    assert scores["as it was"].mae < 2, "it knows of jumps from now on"


def test_a_state_from_before_there_were_analogs_is_carried_on() -> None:
    values = wave(400)
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_7(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    before, known = auto.weights(), other.weights()
    analogs = [name for name in known if name.startswith("analog_")]
    assert len(analogs) == 9 and sum(known[name] for name in analogs) < 0.05 < sum(before[name] for name in analogs)
    assert sum(known.values()) == pytest.approx(1)
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=200, stop=400, intervals=False)
    assert scores["as it was"].mae < 1.05 * scores["as it is"].mae
    assert sum(weight for name, weight in other.weights().items() if name in analogs) > 0.02


def test_a_state_from_before_there_was_a_ledger_is_carried_on() -> None:
    """With what it has lost as its guard knows it; and nobody is known to stand still."""
    values = wave(400)
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_8(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    accounts = other.state_dict()["ledger"]
    assert isinstance(accounts, dict) and (torch.as_tensor(accounts["lost"]) > 0).all()
    assert torch.equal(torch.as_tensor(accounts["free"]), torch.ones(TASK.channels, dtype=torch.float64))
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=200, stop=400, intervals=False)
    assert scores["as it was"].mae == pytest.approx(scores["as it is"].mae, rel=0.01)


def test_a_state_from_before_there_was_a_mixture_by_all_that_was_lost_is_carried_on() -> None:
    values = wave(400)
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_9(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    assert sum(other.weights().values()) == pytest.approx(1)
    mixture = other._panel.mixture.arrays()
    second, first = (torch.as_tensor(mixture[name]) for name in ("second_weights", "first_5_loss"))
    assert float(second[5, 0, 0]) == 0 == float(first.abs().sum())
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=200, stop=400, intervals=False)
    assert scores["as it was"].mae < 1.02 * scores["as it is"].mae
    assert float(first.min()) > 0, "from now on it counts"


def test_a_state_from_before_the_nearest_steps_told_how_sure_a_gain_is_is_carried_on() -> None:
    """As sure as it was by all steps, and with no loan."""
    rows, auto, other = rows_of(wave(400)), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_11(auto.state_dict()))
    both = {"as it was": other, "as it is": auto}
    accounts = {name: np.asarray(values, np.float64) for name, values in other._panel._ledger.arrays().items()}
    gained, squares = accounts["gained"], accounts["squares"]
    deviations = gained / np.sqrt(TASK.horizon * squares)
    run = min(NEAREST, TASK.horizon)
    np.testing.assert_allclose(accounts["near"][0] / np.sqrt(run * accounts["near"][1]), deviations)
    assert "loan" not in accounts and not accounts["shared"].any() and deviations.min() > 0
    scores = evaluate(both, rows, TASK, start=200, stop=400, intervals=False)
    assert scores["as it was"].mae == pytest.approx(scores["as it is"].mae, rel=0.01)
    assert other._panel._ledger.arrays()["shared"].all(), "from now on they are asked"


def test_a_state_from_before_levels_were_left_out_for_good_is_carried_on() -> None:
    rows, auto, other = rows_of(wave(400)), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_12(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(auto.forecast(window).mean, other.forecast(window).mean)
    assert not differing(contents(auto.state_dict()), contents(other.state_dict()))


def test_a_state_from_before_all_that_was_lost_had_the_last_word_is_carried_on() -> None:
    values = wave(400)
    rows, auto, other = rows_of(values), Pool(TASK, panel), Pool(TASK, panel)
    auto.warm_up(Windows(rows, TASK, 0, 150), Windows(rows, TASK, 150, 200))
    other.load_state_dict(of_format_10(auto.state_dict()))
    window = Windows(rows, TASK, 0, 400).window(199)
    assert torch.equal(other.forecast(window).mean, auto.forecast(window).mean)
    last = other._panel.mixture.last
    assert last is not None and (last.weights[1] == 1).all() and not last.loss.any()
    mixture = other._panel.mixture.arrays()
    second = torch.as_tensor(mixture["second_weights"])
    assert second[6:8].tolist() == [[[0.0]]] * 2 and not any(mixture[f"first_{place}_lost"].any() for place in (6, 7))
    both = {"as it was": other, "as it is": auto}
    scores = evaluate(both, rows, TASK, start=200, stop=400, intervals=False)
    assert scores["as it was"].mae < 1.02 * scores["as it is"].mae
    assert last.loss.all() and all(mixture[f"first_{place}_lost"].any() for place in (6, 7)), "from now on they count"


def of_format_12(state: State) -> State:
    """A state as it was in format 12: even rows are never off for good, and nobody asks how far the stream had gone."""
    own, past = state["panel"], state["past"]
    assert isinstance(own, dict) and isinstance(past, dict)
    del own["settled"], past["offset"]
    return state


def of_format_11(state: State) -> State:
    """A state as it was in format 11: nobody asks the nearest steps how sure a gain is, and there are loans."""
    ledger = of_format_12(state)["ledger"]
    assert isinstance(ledger, dict)
    del ledger["shared"], ledger["near"]
    ledger["loan"] = 0.35 * torch.ones_like(torch.as_tensor(ledger["lost"]))
    return state


def of_format_10(state: State) -> State:
    """A state as it was in format 10: no mixtures by step, the one of all has the last word, no wild rows counted."""
    own, mixture, past = state["panel"], state["mixture"], state["past"]
    assert isinstance(own, dict) and isinstance(mixture, dict) and isinstance(past, dict)
    del past["strays"]
    ledger = of_format_11(state)["ledger"]
    assert isinstance(ledger, dict)
    del ledger["squares"]
    own["mixed"] = torch.as_tensor(own["mixed"])[:, :-1]
    for name in [name for name in mixture if name.startswith("last_")]:
        del mixture[name]
    without_mixtures(state, (6, 7))
    return state


def without_mixtures(state: State, gone: tuple[int, ...]) -> None:
    """As if these, and nobody in their place, had never been mixed; the one after them comes before its time."""
    own, mixture = state["panel"], state["mixture"]
    assert isinstance(own, dict) and isinstance(mixture, dict)
    mixed, after = torch.as_tensor(own["mixed"]), gone[-1] + 1
    there = [place for place in range(mixed.shape[1] - 1) if place not in gone]
    own["mixed"] = mixed[:, [0, *(1 + place for place in there)]]
    for name in [*mixture]:
        value = torch.as_tensor(mixture[name])
        if name.startswith(tuple(f"first_{place}" for place in gone)):
            del mixture[name]
        elif name.startswith("second") and value.ndim == 3:
            mixture[name] = normed(value[there]) if name.endswith("weights") else value[there]
    for name in [name for name in mixture if name.startswith(f"first_{after}")]:
        mixture[name.replace(f"first_{after}", f"first_{gone[0]}")] = mixture.pop(name)


def of_format_9(state: State) -> State:
    """A state as it was in format 9: nothing is lent, and there is no mixture by all that was lost."""
    of_format_10(state)
    ledger = state["ledger"]
    assert isinstance(ledger, dict)
    del ledger["loan"]
    without_mixtures(state, (5,))
    return state


def of_format_8(state: State) -> State:
    """A state as it was in format 8: without a ledger."""
    of_format_9(state)
    del state["ledger"]
    return state


def of_format_7(state: State) -> State:
    """A state as it was in format 7: without analogs, and five shares of the guard, which were always the same."""
    of_format_8(state)
    own, mixture, guard = state["panel"], state["mixture"], state["guard"]
    assert isinstance(own, dict) and isinstance(mixture, dict) and isinstance(guard, dict)
    for name in ("recent", "ready"):
        del guard[name]
    guard["loss"] = torch.as_tensor(guard["loss"])[:5]
    del own["ready"]
    there = [place for place in range(torch.as_tensor(own["waiting"]).shape[1]) if not 14 <= place < 23]
    own |= {"waiting": torch.as_tensor(own["waiting"])[:, there]}
    for name in [name for name in mixture if not name.startswith("second")]:
        value = torch.as_tensor(mixture[name])
        if value.ndim == 3 or name.endswith("loss"):
            value = value[there]
            mixture[name] = normed(value) if name.endswith("weights") else value
    without_group(state, 6)
    return state


def normed(weights: Tensor) -> Tensor:
    """So that they sum to one again after some were taken away; equal where nobody else had any."""
    return (weights / weights.sum(0)).nan_to_num(1 / len(weights))


def without_group(state: State, gone: int) -> None:
    last = max(int(name.removeprefix("group_")) for name in state if name.startswith("group_"))
    for number in range(gone, last):
        state[f"group_{number}"] = state[f"group_{number + 1}"]
    del state[f"group_{last}"]


def of_format_6(state: State) -> State:
    """A state as it was in format 6: without medians, one mixture by losses, nothing known of jumps."""
    of_format_7(state)
    own, mixture, past = state["panel"], state["mixture"], state["past"]
    assert isinstance(own, dict) and isinstance(mixture, dict) and isinstance(past, dict)
    count, layers = torch.as_tensor(own["waiting"]).shape[1], [0, 1, 2, 3, 5]
    there = [place for place in range(count) if place not in (12, 13)]
    own |= {"waiting": torch.as_tensor(own["waiting"])[:, there]}
    own |= {"mixed": torch.as_tensor(own["mixed"])[:, [0, *(1 + layer for layer in layers)]]}
    for name in [*mixture]:
        value = torch.as_tensor(mixture[name])
        if value.ndim == 3 or name.endswith("loss"):
            value = value[layers] if name.startswith("second") else value[there]
            mixture[name] = normed(value) if name.endswith("weights") else value
        if name.startswith("first_4"):
            del mixture[name]
    for name in [name for name in mixture if name.startswith("first_5")]:
        mixture[name.replace("5", "4")] = mixture.pop(name)
    for name in {"even", *Jumps(1, 1).arrays()} - {"offset"}:
        del past[name]
    without_group(state, 5)
    return state


def of_format_3(state: State) -> State:
    """A state as it was in format 3: four mixtures, without the expert that came last and without a correction."""
    of_format_6(state)
    own, mixture = state["panel"], state["mixture"]
    assert isinstance(own, dict) and isinstance(mixture, dict)
    count = torch.as_tensor(own["waiting"]).shape[1] - 1
    own |= {"mixed": torch.as_tensor(own["mixed"])[:, :5], "waiting": torch.as_tensor(own["waiting"])[:, :count]}
    for name in [*mixture]:
        value = torch.as_tensor(mixture[name])
        if name.startswith("first_4"):
            del mixture[name]
        elif value.ndim == 3:
            value = value[:4] if name.startswith("second") else value[:count]
            mixture[name] = normed(value) if name.endswith("weights") else value
    del state["correction"]
    without_swing(state)
    last = max(int(name.removeprefix("group_")) for name in state if name.startswith("group_"))
    del state[f"group_{last}"]
    return state


def without_swing(state: State) -> None:
    """As it was up to format 4."""
    past, clock = state["past"], state["clock"]
    assert isinstance(past, dict) and isinstance(clock, dict)
    for name in ("usual", "since", "unit"):
        del clock[name]
    del past["swing"], state["turn"]


def of_before(state: State, networks: bool) -> State:
    """A state as it was in format 2: one mixture, one network, and one member after it."""
    quick = 39
    of_format_6(state)
    del state["correction"]
    without_swing(state)
    own, mixture = state["panel"], state["mixture"]
    assert isinstance(own, dict) and isinstance(mixture, dict)
    mixed, guarded, waiting = (torch.as_tensor(own.pop(name)) for name in ("mixed", "guarded", "waiting"))
    count = waiting.shape[1]
    there = torch.tensor(
        [place for place in range(count) if place != quick and (not networks or not count - 4 <= place < count - 1)]
    )
    own |= {"mixed": torch.stack([mixed[:, 0].double(), guarded], 1), "waiting": waiting[:, there]}
    only = {name: torch.as_tensor(mixture[f"first_1_{name}"]) for name in ("regret", "square", "weights")}
    whole = {name: mixture[f"first_1_{name}"] for name in ("size", "count")}
    state["mixture"] = {**whole, **{name: value[there] for name, value in only.items()}}
    if networks:
        last = max(int(name.removeprefix("group_")) for name in state if name.startswith("group_"))
        for number in range(17, last - 3):  # without the group that was not there
            state[f"group_{number}"] = state[f"group_{number + 1}"]
        state[f"group_{last - 4}"] = state.pop(f"group_{last}")
    return state
