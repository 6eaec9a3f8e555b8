"""The loop on the device does what the fleet does when the host hands it the same examples and the same draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.fleet.streams import NATURAL, ROWS, SMALL, START, TASK, WARM, made, moments, parts, taken, wave
from torch import Tensor

from natsr.calibrate import PROBABILITIES
from natsr.evaluate import Forecasts, evaluate, score
from natsr.fleet import loop as loops
from natsr.fleet import stream
from natsr.fleet.control import AtOnce, Branches
from natsr.fleet.loop import Loop, loopable
from natsr.fleet.memory import Drawn, Memories
from natsr.fleet.school import School
from natsr.fleet.tables import Streams, choices, hadamard_rows, hadamard_table
from natsr.fleet.together import Together
from natsr.forecasters.base import Forecast, Forecaster
from natsr.forecasters.neural import NeuralForecaster
from natsr.metrics import Scores, naive_error
from natsr.recipes import make
from natsr.streams import Step, Windows
from natsr.types import PROTOCOLS, Example, Option, OptionError, ProtocolName, State

METHODS = ("ogd", "er", "derpp", "natsr", "natsr_fast")


class ScriptedMemories(Memories):
    """Draws what a loop's tables say."""

    def script(self, loop: Loop) -> None:
        self.loop, self.run = loop, 0

    def draw(self, count: int, active: Sequence[bool]) -> Drawn | None:
        if not self._fields:
            return None
        chosen = self.loop.tables["chosen"][self.run][:, :count]
        there = (chosen < torch.tensor(self.seen)[:, None]) & torch.tensor(active)[:, None]
        flat = (chosen.clamp(max=self.capacity - 1) + torch.arange(len(self.seen))[:, None] * self.capacity).flatten()
        fields = tuple(field.index_select(0, flat).view(*chosen.shape, *field.shape[1:]) for field in self._fields)
        return Drawn(fields, there)

    def _place(self, number: int) -> int:
        seen = self.seen[number]
        self.seen[number] += 1
        return seen if seen < self.capacity else int(self.loop.tables["kept"][self.run, number].double() * (seen + 1))


class Scripted(Together):
    """A fleet whose draws are those of a loop."""

    def __init__(self, forecasters: Sequence[Forecaster], loop: Loop) -> None:
        super().__init__(forecasters)
        self.script, self.run = loop, 0
        if self.memory is not None:
            self.memory = ScriptedMemories(self.shape.memory, self.generators)
            self.memory.script(loop)

    def at(self, run: int) -> None:
        self.run = run
        if isinstance(self.memory, ScriptedMemories):
            self.memory.run = run

    def _probes(self, due: Sequence[int], there: Tensor) -> Tensor:
        tables, chosen = self.script.tables, torch.tensor(due)
        signs = tables["signs"][self.run][chosen][:, : there.shape[1]]
        rows = hadamard_table(self.task.outputs, signs.device)[tables["rows"][self.run][chosen]]
        return (rows[:, :, None] * (signs * there[chosen][:, :, None])[:, None]).to(self.sane)


def warmed(method: str) -> Together:
    fleet = Together(made(method))
    fleet.warm_up([parts(wave(seed)) for seed in range(3)])
    return fleet


def loop_of(fleet: Together, protocol: ProtocolName = "honest", *, seeds: Sequence[int] = (0, 1, 2)) -> Loop:
    return Loop(fleet, [wave(seed) for seed in seeds], (START, ROWS), protocol, keep=True)


def scripted(host: Scripted, course: Sequence[Sequence[Step]]) -> list[list[Forecast]]:
    """What the fleet on the host forecasts, moment by moment."""
    found = []
    for run, moment in enumerate(course):
        host.at(run)
        host.learn([step.matured for step in moment])
        found.append([forecast for forecast in host.forecast([s.window for s in moment]) if forecast is not None])
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("method", METHODS)
def test_the_loop_is_the_fleet_with_the_same_draws(method: str, protocol: ProtocolName) -> None:
    fleet, twin = warmed(method), warmed(method)
    loop, script = loop_of(fleet, protocol), loop_of(twin, protocol)
    script.draw_ahead()
    host = Scripted([warmed(method).release(number) for number in range(3)], script)
    sums = np.zeros((2, 3, TASK.horizon, TASK.channels))
    forecasts = scripted(host, moments(protocol))
    for moment, some in zip(moments(protocol), forecasts, strict=True):
        for number, (step, forecast) in enumerate(zip(moment, some, strict=True)):
            assert step.target is not None
            error = (step.target - forecast.mean)[0].double().numpy()
            sums[0, number] += np.nan_to_num(np.abs(error))
            sums[1, number] += np.nan_to_num(error * error)
    loop.run()
    counts, *found = loop.sums()
    assert int(counts[0, 0, 0]) == loop.total == len(moments(protocol))
    np.testing.assert_allclose(found, sums, rtol=1e-6)
    for number in range(3):
        own, other = fleet.release(number), host.release(number)
        assert isinstance(own, NeuralForecaster) and isinstance(other, NeuralForecaster)
        torch.testing.assert_close(own.net.weights, other.net.weights, rtol=1e-5, atol=1e-6)
        assert (own.steps, own.refused, own.refreshes) == (other.steps, other.refused, other.refreshes)
        assert own.likelihood.variance == pytest.approx(other.likelihood.variance)
        check_forecasts(loop, number, [some[number] for some in forecasts])
    if fleet.memory is not None and host.memory is not None:
        assert fleet.memory.seen == host.memory.seen


def check_forecasts(loop: Loop, number: int, theirs: Sequence[Forecast]) -> None:
    """What the loop kept of a learner's forecasts is what they were."""
    means, variances = loop.forecasts(number)
    np.testing.assert_allclose(means, [forecast.mean[0].numpy() for forecast in theirs], rtol=1e-5, atol=1e-5)
    given = [float(forecast.variance) for forecast in theirs if forecast.variance is not None]
    assert (variances is None) == (not given)
    if variances is not None:
        np.testing.assert_allclose(variances, given, rtol=1e-5)


@pytest.mark.parametrize("labels", ["known", "fresh"])
def test_partly_known_examples_of_a_stream_without_gaps(labels: str) -> None:
    """Then the younger ones weigh less, and fewer probes are asked for; none may be lost."""
    own = tuple({**options, "labels": labels} for options in NATURAL)
    loop, script = (loop_of(Together(made("natsr", own=own)), "partial", seeds=(0, 0, 0)) for _ in range(2))
    script.draw_ahead()
    host = Scripted(made("natsr", own=own), script)
    forecasts = scripted(host, [(step,) * 3 for step, *_ in moments("partial")])
    loop.run()
    assert all(host.counts["refreshes"])
    for number in range(3):
        check_forecasts(loop, number, [some[number] for some in forecasts])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_loop_kept_is_scored_as_by_evaluate(protocol: ProtocolName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 16)
    loop = loop_of(warmed("natsr"), protocol)
    loop.run()
    for number in range(3):
        rows, kept = wave(number), Forecasts(loop.first, *loop.forecasts(number))
        assert kept.means.shape == (loop.total, TASK.horizon, TASK.channels)
        scores = Scores(TASK, naive_error(rows.truth, START, ROWS), None, PROBABILITIES)
        ours = score(scores, kept, rows.truth.double().numpy()).result()
        said = evaluate({"said": Said(kept)}, rows, TASK, start=START, stop=ROWS, protocol=protocol)["said"].result()
        assert ours["crps"] is not None
        timed = ("seconds", "ms_per_step", "peak_mib")
        assert {name: ours[name] for name in ours if name not in timed} == {
            name: said[name] for name in said if name not in timed
        }


class Said(Forecaster):
    """Says what was said before."""

    def __init__(self, forecasts: Forecasts) -> None:
        self.task, self._forecasts, self._next = TASK, forecasts, 0

    def forecast(self, window: Tensor) -> Forecast:
        del window
        place, self._next = self._next, self._next + 1
        _, means, variances = self._forecasts
        return Forecast(torch.tensor(means[place])[None], None if variances is None else torch.tensor(variances[place]))

    def learn(self, example: Example) -> None:
        del example

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        assert not state


def test_forecasts_that_were_not_kept_cannot_be_had() -> None:
    loop = Loop(warmed("ogd"), [wave(0)] * 3, (START, ROWS))
    with pytest.raises(OptionError, match="keep=True"):
        loop.forecasts(0)


def test_many_learners_are_renewed_in_turns_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = loop_of(warmed("natsr")), loop_of(warmed("natsr"))
    few.run()
    monkeypatch.setattr(loops, "_FEW", 2)
    many.run()
    for one, other in zip(few.sums(), many.sums(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_stable_and_fast_go_side_by_side() -> None:
    """Two methods that differ in the last word of a step only are one fleet, and each is what it is alone."""

    def learner(method: str) -> Forecaster:
        return make(method, TASK, seed=1, options={**SMALL, "dtype": "float64", "every": 5})

    both = Together([learner("natsr"), learner("natsr_fast")])
    loop = Loop(both, [wave(0)] * 2, (START, ROWS))
    loop.run()
    for number, method in enumerate(("natsr", "natsr_fast")):
        alone = Loop(Together([learner(method)]), [wave(0)], (START, ROWS))
        alone.run()
        np.testing.assert_allclose(alone.sums()[1][0], loop.sums()[1][number], rtol=1e-6)
    moment = moments()[-1][0]
    both.learn([moment.matured] * 2)
    assert [bool(both.finish.state_dict(number)) for number in range(2)] == [False, True]


@pytest.mark.parametrize("method", ["er", "natsr"])
def test_learners_in_a_loop_do_not_see_each_other(method: str) -> None:
    all_three = loop_of(warmed(method))
    all_three.run()
    whole = all_three.sums()
    for number in range(3):
        alone = Together([made(method)[number]])
        alone.warm_up([parts(wave(number))])
        loop = Loop(alone, [wave(number)], (START, ROWS))
        loop.run()
        for own, of_all in zip(loop.sums(), whole, strict=True):
            np.testing.assert_allclose(own[0], of_all[number], rtol=1e-6)


def test_a_fleet_goes_on_after_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 16)  # several chunks, the last one short
    fleet = warmed("natsr")
    loop = loop_of(fleet)
    loop.run()
    assert fleet.info(0)["refreshes"] >= 1
    moment = moments()[-1]
    fleet.learn([step.matured for step in moment])
    assert all(forecast is not None for forecast in fleet.forecast([step.window for step in moment]))
    forecaster = fleet.release(1)
    assert isinstance(forecaster, NeuralForecaster)
    assert forecaster.steps == fleet.counts["steps"][1]


def test_a_learner_that_goes_astray_is_restored_alone() -> None:
    own: tuple[dict[str, Option], ...] = ({"rate": 1e-3}, {"rate": 50.0}, {"rate": 1e-3})
    fleet = Together(made("ogd", own=own))
    Loop(fleet, [wave(0)] * 3, (START, ROWS)).run()
    assert fleet.counts["restored"][1] > 0
    assert fleet.counts["restored"][0] == fleet.counts["restored"][2] == 0
    steps = [fleet.counts["steps"][n] - fleet.counts["refused"][n] - fleet.counts["restored"][n] for n in range(3)]
    remembered = [taken(fleet.state_dict(number)) for number in range(3)]
    assert remembered[1] < steps[1] and (remembered[0], remembered[2]) == (steps[0], steps[2])


def test_max_steps_ends_the_loop() -> None:
    loop = Loop(warmed("er"), [wave(0)] * 3, (START, ROWS), "honest", 7)
    loop.run()
    assert loop.sums()[0].max() == 7 == loop.total
    assert not loop.advance()


def test_what_a_loop_cannot_do_is_refused() -> None:
    eigen = Together([make("natsr", TASK, options={**SMALL, "damped": "step"})])
    assert not loopable(eigen.shape)
    with pytest.raises(OptionError, match="step the fleet instead"):
        Loop(eigen, [wave(0)], (START, ROWS))


def test_choices_are_different_and_equally_likely() -> None:
    keys = torch.rand(4000, 1, 6, generator=torch.Generator().manual_seed(0))
    sizes = torch.full((4000, 1), 5)
    chosen = choices(keys, sizes, 3)[:, 0]
    assert chosen.max() == 4 and all(len(set(row)) == 3 for row in chosen.tolist())
    assert torch.bincount(chosen.flatten()).float().div(4000 * 3 / 5).sub(1).abs().max() < 0.1
    few = choices(keys[:1], torch.full((1, 1), 2), 8)[0, 0]
    assert sorted(few[:2].tolist()) == [0, 1] and (few[2:] == 6).all()


def test_probes_of_a_table_are_orthogonal() -> None:
    table = hadamard_table(8, torch.device("cpu")).float()
    torch.testing.assert_close(table @ table.T, 8 * torch.eye(8))
    rows = hadamard_rows(Streams([torch.Generator().manual_seed(0)], torch.device("cpu")), 5, 8, 16)
    assert rows.shape == (5, 1, 16) and all(sorted(row) == list(range(8)) for row in rows[:, 0, :8].tolist())


def test_branches_on_a_cpu_are_one_after_the_other() -> None:
    assert Branches().run([lambda: 1, lambda: 2]) == [1, 2]


def test_a_body_runs_if_or_while_its_flag_is_set() -> None:
    left, flag, runs = torch.tensor(3), torch.tensor(True), list[int]()

    def body() -> None:
        left.sub_(1)
        flag.copy_(left > 0)
        runs.append(int(left))

    AtOnce().repeat(flag, body)
    assert runs == [2, 1, 0]
    AtOnce().when(flag, body)
    assert len(runs) == 3


def test_school_teaches_what_a_warm_up_teaches() -> None:
    """Where a batch holds all examples and nothing is dropped there is nothing random: the weights must be equal."""
    rows, train = wave(0), TASK.window + TASK.horizon + 31
    taught, trained = (Together([_plain(seed) for seed in range(3)]) for _ in range(2))
    fresh = taught.net.weights.clone()
    school = School(taught, [rows] * 3, (train, START))
    assert (school.batches, school.epochs) == (1, 9)
    school.run()
    trained.warm_up([(Windows(rows, TASK, 0, train), Windows(rows, TASK, train, START))] * 3)
    torch.testing.assert_close(taught.net.weights, trained.net.weights, rtol=1e-5, atol=1e-6)
    assert torch.equal(taught.sane, taught.net.weights)
    assert all((taught.net.weights[number] - fresh[number]).abs().max() > 1e-3 for number in range(3))


def _plain(seed: int) -> Forecaster:
    """A learner whose warm-up drops nothing; each has a number of epochs and a rate of its own."""
    options: dict[str, Option] = {**SMALL, "epochs": 3 * (seed + 1), "warm_rate": 1e-3 * (seed + 1), "dtype": "float64"}
    forecaster = make("er", TASK, seed=seed, options=options)
    assert isinstance(forecaster, NeuralForecaster)
    forecaster.learning = replace(forecaster.learning, warm=replace(forecaster.learning.warm, dropout=0.0))
    return forecaster


def test_school_is_the_same_for_a_learner_alone() -> None:
    both, alone = Together(made("natsr")[:2]), Together(made("natsr")[1:2])
    School(both, [wave(0)] * 2, (WARM, START)).run()
    School(alone, [wave(0)], (WARM, START)).run()
    torch.testing.assert_close(both.net.weights[1], alone.net.weights[0], rtol=1e-5, atol=1e-6)
