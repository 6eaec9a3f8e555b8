"""Who may know which row when: an oracle, a spy, and the feed against the loop."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from natsr.evaluate import evaluate
from natsr.forecasters.base import Forecast, Forecaster
from natsr.streams import Feed, Rows, Step, Windows, check_protocol, delay, matured, steps
from natsr.types import PROTOCOLS, Example, OptionError, ProtocolName, ShapeError, State, StateError, Task

SOURCE = Path(__file__).parents[1] / "src" / "natsr"
HORIZONS = (1, 3, 24)
NAN = float("nan")


class Spy(Forecaster):
    """Writes down every call, in order."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.calls: list[Example | Tensor] = []

    def forecast(self, window: Tensor) -> Forecast:
        self.calls.append(window.clone())
        return Forecast(window.new_zeros(len(window), self.task.horizon, self.task.channels))

    def learn(self, example: Example) -> None:
        fresh = None if example.fresh is None else example.fresh.clone()
        self.calls.append(Example(example.window.clone(), example.target.clone(), fresh))

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        assert not state


class Oracle(Forecaster):
    """Is handed the truth; reads the row it stands on from the window."""

    def __init__(self, task: Task, truth: Tensor) -> None:
        self.task = task
        self.truth = truth

    def forecast(self, window: Tensor) -> Forecast:
        origin = int(window[0, -1, -1])
        return Forecast(self.truth[None, origin + 1 : origin + 1 + self.task.horizon].nan_to_num())

    def learn(self, example: Example) -> None:
        pass

    def state_dict(self) -> State:
        return {}

    def load_state_dict(self, state: State) -> None:
        assert not state


def numbered(count: int, channels: int = 2) -> Rows:
    """Rows whose values and feature are their own numbers, so that a number says where it came from."""
    numbers = torch.arange(float(count))[:, None]
    return Rows(numbers.repeat(1, channels + 1), numbers.repeat(1, channels))


def noisy(count: int, task: Task, seed: int) -> Rows:
    """Random rows with missing values."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, task.inputs, generator=generator)
    missing = torch.rand(count, task.channels, generator=generator) < 0.2
    return Rows(inputs, torch.where(missing, torch.tensor(NAN), inputs[:, : task.channels]))


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Equal to the last bit, NaN in the same places."""
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def assert_same_calls(one: Sequence[Example | Tensor], other: Sequence[Example | Tensor]) -> None:
    assert len(one) == len(other)
    for here, there in zip(one, other, strict=True):
        if isinstance(here, Tensor):
            assert isinstance(there, Tensor) and same(here, there)
        else:
            assert isinstance(there, Example)
            assert all(same(mine, yours) for mine, yours in zip(here, there, strict=True))


def drive(spy: Spy, moments: Sequence[Step | None]) -> None:
    """What anyone does who is handed moments."""
    for moment in moments:
        if moment is None:
            continue
        if moment.matured is not None:
            spy.learn(moment.matured)
        spy.forecast(moment.window)


def spied(protocol: ProtocolName, horizon: int, count: int = 90) -> tuple[Task, list[tuple[int, list[Example]]]]:
    """For every forecast, its origin as its window tells it, and what was learned since the forecast before."""
    task = Task(window=4, horizon=horizon, channels=2, features=1)
    spy = Spy(task)
    evaluate({"spy": spy}, numbered(count), task, start=10, stop=count, protocol=protocol, intervals=False)
    story: list[tuple[int, list[Example]]] = []
    learned: list[Example] = []
    for call in spy.calls:
        if isinstance(call, Tensor):
            assert call.shape == (1, task.reach, task.inputs)
            story.append((int(call[0, -1, 0]), learned))
            learned = []
        else:
            learned.append(call)
    return task, story


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_an_oracle_scores_exactly_zero(protocol: ProtocolName, horizon: int) -> None:
    task = Task(window=4, horizon=horizon, channels=2, features=1)
    noise = noisy(120, Task(window=4, horizon=horizon, channels=2), seed=1).truth
    rows = Rows(numbered(120).inputs, noise)
    scores = evaluate({"oracle": Oracle(task, noise)}, rows, task, start=10, stop=120, protocol=protocol)["oracle"]
    assert scores.mae == 0 and scores.mse == 0
    assert scores.steps == 120 - 10 - horizon + 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_an_oracle_that_is_one_row_off_does_not(protocol: ProtocolName, horizon: int) -> None:
    task = Task(window=4, horizon=horizon, channels=2, features=1)
    rows = numbered(120)
    late = Oracle(task, torch.cat([rows.truth[:1], rows.truth]))
    assert evaluate({"late": late}, rows, task, start=10, stop=120, protocol=protocol)["late"].mae == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("horizon", HORIZONS)
def test_windows_end_at_the_origin_and_every_origin_comes_once(protocol: ProtocolName, horizon: int) -> None:
    task, story = spied(protocol, horizon)
    assert [origin for origin, _ in story] == list(range(9, 90 - horizon))
    for origin, learned in story:
        for example in learned:
            assert (example.window[:, :, 0].diff() == 1).all()
            assert example.window[:, -1, 0].max() < origin


@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("horizon", HORIZONS)
def test_no_label_is_learned_before_its_row_is_known(protocol: ProtocolName, horizon: int) -> None:
    task, story = spied(protocol, horizon)
    assert any(learned for _, learned in story)
    for origin, learned in story:
        for example in learned:
            assert example.target.nan_to_num(-1).max() <= origin
            after = example.window[:, -1:, :1] + torch.arange(1, horizon + 1)[None, :, None]
            assert ((example.target == after) | example.target.isnan()).all()


@pytest.mark.parametrize("horizon", HORIZONS)
def test_honest_hands_out_each_example_once_as_soon_as_it_is_whole(horizon: int) -> None:
    _, story = spied("honest", horizon)
    for origin, learned in story:
        expected = [origin - horizon] if origin - horizon >= 9 else []
        assert [int(example.window[0, -1, 0]) for example in learned] == expected
        assert not any(example.target.isnan().any() for example in learned)
        assert all(example.fresh is None for example in learned)


@pytest.mark.parametrize("horizon", HORIZONS)
def test_paper_hands_out_the_example_of_the_origin_before_whole(horizon: int) -> None:
    _, story = spied("paper", horizon)
    for origin, learned in story:
        assert [int(example.window[0, -1, 0]) for example in learned] == ([origin - 1] if origin > 9 else [])
        for example in learned:
            assert example.target[0, :, 0].tolist() == list(range(origin, origin + horizon))


@pytest.mark.parametrize("horizon", HORIZONS)
def test_partial_delivers_every_known_label_as_fresh_exactly_once(horizon: int) -> None:
    _, story = spied("partial", horizon)
    delivered: set[tuple[int, int]] = set()
    for origin, learned in story:
        for example in learned:
            assert example.fresh is not None
            for place, step in example.fresh.nonzero().tolist():
                label = (int(example.window[place, -1, 0]), step + 1)
                assert label not in delivered
                assert sum(label) == origin  # as soon as it is known
                delivered.add(label)
    last = story[-1][0]
    assert delivered == {
        (origin, step) for origin in range(9, last) for step in range(1, horizon + 1) if origin + step <= last
    }


def test_partial_shows_every_known_label_and_no_other() -> None:
    _, story = spied("partial", 3)
    _, (example,) = story[10]  # origin 19
    assert example.window[:, -1, 0].tolist() == [18, 17, 16]
    shown = example.target[:, :, 0].nan_to_num(-1).tolist()
    assert shown == [[19, -1, -1], [18, 19, -1], [17, 18, 19]]


def test_at_horizon_one_the_protocols_make_the_same_calls() -> None:
    task = Task(window=4, horizon=1, channels=2, features=1, season=7)
    rows = noisy(60, task, seed=2)
    honest, partial, paper = (Spy(task) for _ in range(3))
    for spy, protocol in zip((honest, partial, paper), ("honest", "partial", "paper"), strict=True):
        evaluate({"spy": spy}, rows, task, start=5, stop=60, protocol=protocol, intervals=False)
    assert_same_calls(honest.calls, paper.calls)
    assert len(honest.calls) == 55 + 54
    # `partial` says in addition that the one label is fresh, which no mark says as well.
    fresh = [call.fresh for call in partial.calls if isinstance(call, Example)]
    assert all(mark is not None and mark.all() for mark in fresh)
    unmarked = [call._replace(fresh=None) if isinstance(call, Example) else call for call in partial.calls]
    assert_same_calls(honest.calls, unmarked)


@pytest.mark.parametrize("protocol", ["honest", "partial"])
@pytest.mark.parametrize("horizon", HORIZONS)
@pytest.mark.parametrize(("window", "season"), [(5, 12), (5, 1), (1, 1)])
def test_a_feed_makes_the_same_calls_as_the_loop(
    protocol: ProtocolName, horizon: int, window: int, season: int
) -> None:
    task = Task(window=window, horizon=horizon, channels=2, features=1, season=season)
    rows = noisy(70, task, seed=3)
    looped, fed = Spy(task), Spy(task)
    evaluate({"spy": looped}, rows, task, start=0, stop=70, protocol=protocol, intervals=False)
    feed = Feed(task, protocol)
    moments = [feed.push(*row) for row in zip(rows.inputs, rows.truth, strict=True)]
    assert moments[: window - 1] == [None] * (window - 1)
    # The loop stops where targets end; the feed, which needs none, goes on.
    drive(fed, moments[: len(moments) - horizon])
    assert sum(isinstance(call, Example) for call in looped.calls) > 15
    assert_same_calls(looped.calls, fed.calls)


@pytest.mark.parametrize("protocol", ["honest", "partial"])
def test_a_feed_goes_on_from_its_state(protocol: ProtocolName) -> None:
    task = Task(window=5, horizon=3, channels=2, features=1, season=8)
    rows = noisy(60, task, seed=4)
    whole = Feed(task, protocol)
    moments = [whole.push(*row) for row in zip(rows.inputs, rows.truth, strict=True)]
    for stop in (0, 1, 4, 5, 7, 30):
        before, after = Feed(task, protocol), Feed(task, protocol)
        for row in zip(rows.inputs[:stop], rows.truth[:stop], strict=True):
            before.push(*row)
        state = before.state_dict()
        before.push(rows.inputs[0], rows.truth[0])  # must not reach into the state
        after.load_state_dict(state)
        spied_whole, spied_after = Spy(task), Spy(task)
        drive(spied_whole, moments[stop:])
        drive(spied_after, [after.push(*row) for row in zip(rows.inputs[stop:], rows.truth[stop:], strict=True)])
        assert_same_calls(spied_whole.calls, spied_after.calls)


def test_a_feed_refuses_the_state_of_another_task_and_stays_as_it_was() -> None:
    feed, other = Feed(Task(2, 3, 1)), Feed(Task(3, 3, 1))
    for row in torch.arange(8.0)[:, None]:
        feed.push(row, row)
        other.push(row, row)
    with pytest.raises(StateError, match=r"inputs of the feed is \(6, 1\), expected \(5, 1\)"):
        feed.load_state_dict(other.state_dict())
    with pytest.raises(StateError, match="lacks seen, inputs or truth"):
        feed.load_state_dict({"seen": 8})
    step = feed.push(torch.tensor([8.0]), torch.tensor([8.0]))
    assert step is not None and step.window[0, :, 0].tolist() == [7.0, 8.0]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_handed_out_lies_where_the_rows_lie(protocol: ProtocolName) -> None:
    """`meta` stands in for a GPU: whatever is made on the CPU on the way fails."""
    task = Task(2, 3, 1)
    rows = Rows(torch.zeros(12, 1, device="meta"), torch.zeros(12, 1, device="meta"))
    handed = [step.matured for step in steps(rows, task, protocol, 2, 12) if step.matured is not None]
    if protocol != "paper":
        feed = Feed(task, protocol)
        moments = [feed.push(inputs, truth) for inputs, truth in zip(*rows, strict=True)]
        handed += [step.matured for step in moments if step is not None and step.matured is not None]
    assert len(handed) > 5
    for example in handed:
        assert all(part.is_meta for part in example[:3] if part is not None)  # row numbers are on the host


def test_a_feed_refuses_what_needs_the_future() -> None:
    with pytest.raises(OptionError, match="paper.*expected honest or partial"):
        Feed(Task(window=2, horizon=2, channels=1), "paper")
    Feed(Task(window=2, horizon=1, channels=1), "paper")


def test_a_feed_refuses_a_row_of_the_wrong_shape() -> None:
    feed = Feed(Task(window=2, horizon=2, channels=1, features=1))
    with pytest.raises(ShapeError, match=r"expected \(2,\) and \(1,\)"):
        feed.push(torch.zeros(3), torch.zeros(1))


def test_a_feed_keeps_a_bounded_number_of_rows() -> None:
    task = Task(window=5, horizon=3, channels=1, season=9)
    feed = Feed(task)
    for value in range(500):
        feed.push(torch.tensor([float(value)]), torch.tensor([float(value)]))
    kept = feed.state_dict()["inputs"]
    assert isinstance(kept, Tensor) and len(kept) == task.reach + task.horizon


def test_steps_show_the_scorer_the_rows_after_the_origin() -> None:
    task = Task(window=4, horizon=3, channels=2, features=1)
    for step in steps(numbered(40), task, "honest", 10, 40):
        assert step.target is not None
        assert step.target[0, :, 0].tolist() == [step.origin + 1, step.origin + 2, step.origin + 3]


def test_the_first_window_of_a_part_reaches_back() -> None:
    task = Task(window=4, horizon=2, channels=2, features=1, season=6)
    examples = Windows(numbered(40), task, 20, 30)
    assert len(examples) == 9
    assert examples[0].window[0, :, 0].tolist() == [14, 15, 16, 17, 18, 19]
    assert examples[0].target[0, :, 0].tolist() == [20, 21]
    assert examples[8].target[0, :, 0].tolist() == [28, 29]
    early = Windows(numbered(40), task, 0, 30)[0]
    assert early.window[0, :, 0].tolist() == [0, 0, 0, 1, 2, 3]
    both = examples.batch(torch.tensor([0, 8]))
    assert both.window.shape == (2, 6, 3) and both.target[1, :, 0].tolist() == [28, 29]


@pytest.mark.parametrize(("start", "stop"), [(-1, 10), (5, 3), (0, 41)])
def test_a_part_that_is_not_there_is_refused(start: int, stop: int) -> None:
    with pytest.raises(OptionError, match="expected 0 <= start <= stop <= 40"):
        Windows(numbered(40), Task(window=4, horizon=2, channels=2, features=1), start, stop)


def test_rows_that_do_not_fit_are_refused() -> None:
    task = Task(window=4, horizon=2, channels=2, features=1)
    rows = numbered(40)
    with pytest.raises(ShapeError, match=r"inputs have shape \(40, 2\), expected \(T, 3\)"):
        Windows(Rows(rows.inputs[:, :2], rows.truth), task, 0, 40)
    with pytest.raises(ShapeError, match="truth has shape"):
        Windows(Rows(rows.inputs, rows.truth[:, :1]), task, 0, 40)
    with pytest.raises(ShapeError, match="shorter window"):
        Windows(Rows(rows.inputs[:5], rows.truth[:5]), task, 0, 5)


def test_delay_is_one_integer() -> None:
    assert [delay("honest", 24), delay("partial", 24), delay("paper", 24)] == [24, 1, 1]
    assert {delay(protocol, 1) for protocol in PROTOCOLS} == {1}
    origins, known = matured(10, 0, Task(window=1, horizon=3, channels=1), "honest")
    assert origins.tolist() == [7] and known is None


def test_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(OptionError, match="expected one of honest, partial, paper"):
        check_protocol("leaky")


def calls(function: ast.AST) -> set[str]:
    """The names of the methods that a function calls."""
    nodes = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_exactly_one_function_alternates_learning_and_forecasting() -> None:
    """Left out: `checks`, which looks at what the two verbs do, and `fleet.choice`, which times them on noise.

    `keyed` is the same for many series at once: their moments come from the same feed, and `tests/fleet` holds each of
    them to `Live` alone.
    """
    found = []
    for path in sorted(set(SOURCE.rglob("*.py")) - {SOURCE / "checks.py", SOURCE / "fleet" / "choice.py"}):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            called = calls(node)
            if "learn" in called and called & {"forecast", "forecast_from"}:
                found.append(f"{path.relative_to(SOURCE).as_posix()}:{node.name}")
    assert found == ["evaluate.py:_learn_and_forecast", "keyed.py:_advance"]
