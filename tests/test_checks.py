"""The checks can fail: each way of breaking the contract is found by the check that is meant to find it."""

from __future__ import annotations

import math
import mmap
import re
from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from natsr.checks import CHECKS, Factory, SkippedError, check_memory_is_bounded, run_check, run_checks
from natsr.forecasters.base import Forecast, Forecaster
from natsr.forecasters.linear import RecursiveLeastSquares
from natsr.forecasters.naive import LastValue
from natsr.types import Example, State, Task


class Sound(Forecaster):
    """Keeps the contract; what follows breaks it in one way each."""

    def __init__(self, task: Task, inner: Callable[[Task], Forecaster] = RecursiveLeastSquares) -> None:
        self.task = task
        self.inner = inner(task)
        self.learned = 0.0

    def forecast(self, window: Tensor) -> Forecast:
        return self.inner.forecast(window)

    def learn(self, example: Example) -> None:
        self.inner.learn(example)
        self.learned += 1

    def state_dict(self) -> State:
        return {"inner": self.inner.state_dict(), "learned": self.learned}

    def load_state_dict(self, state: State) -> None:
        inner, learned = state["inner"], state["learned"]
        assert isinstance(inner, dict) and isinstance(learned, float)
        self.inner.load_state_dict(inner)
        self.learned = learned

    def moved(self, window: Tensor, by: float | Tensor) -> Forecast:
        return Forecast(self.inner.forecast(window).mean + by)


class OneStepOnly(Sound):
    def forecast(self, window: Tensor) -> Forecast:
        return Forecast(self.inner.forecast(window).mean[:, :1])


class ForeignTask(Sound):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = Task(task.window, task.horizon, task.channels, task.features, task.season + 1)


class NegativeVariance(Sound):
    def forecast(self, window: Tensor) -> Forecast:
        return Forecast(self.inner.forecast(window).mean, torch.tensor(-1.0))


class VarianceOfAnotherShape(Sound):
    def forecast(self, window: Tensor) -> Forecast:
        mean = self.inner.forecast(window).mean
        return Forecast(mean, torch.ones(2, *mean.shape))


class Counting(Sound):
    """Forecasting is counted in the state."""

    def forecast(self, window: Tensor) -> Forecast:
        self.learned += 1
        return self.inner.forecast(window)


class Dicing(Sound):
    """Forecasting draws from the global random state."""

    def forecast(self, window: Tensor) -> Forecast:
        torch.rand(())
        return self.inner.forecast(window)


class Restless(Sound):
    """Each forecast is another one, and the state does not show it."""

    asked = 0

    def forecast(self, window: Tensor) -> Forecast:
        self.asked += 1
        return self.moved(window, 1e-3 * self.asked)


class Lingering(Sound):
    """A forecast leaves something behind that counts only when the next example has been learned."""

    asked, offset = 0, 0.0

    def forecast(self, window: Tensor) -> Forecast:
        self.asked += 1
        return self.moved(window, self.offset)

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.offset = 1e-3 * self.asked


class Clipping(Sound):
    """Forecasting cuts its window in place."""

    def forecast(self, window: Tensor) -> Forecast:
        return self.inner.forecast(window.clamp_(-0.5, 0.5))


class Comparing(Sound):
    """The windows of a batch see each other."""

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, window.mean())


class Filling(Sound):
    """Learning fills gaps in place."""

    def learn(self, example: Example) -> None:
        example.target.nan_to_num_()
        super().learn(example)


class Keeping(Sound):
    """A label is kept, not copied."""

    kept: Tensor | None = None

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.kept = example.target

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, 0.0 if self.kept is None else 1e-3 * self.kept.mean())


class Viewing(Sound):
    """The forecast is a view of the window."""

    def forecast(self, window: Tensor) -> Forecast:
        return Forecast(window[:, -self.task.horizon :, : self.task.channels])


class Forgetting(Sound):
    """The state lacks something that counts."""

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, 1e-3 * self.learned)

    def state_dict(self) -> State:
        return {"inner": self.inner.state_dict(), "learned": 0.0}


class Losing(Sound):
    """Loading leaves something out."""

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.learned = 0.0


class Sharing(Sound):
    """The state that is handed out goes on changing."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.total = torch.zeros(1)

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.total += 1

    def state_dict(self) -> State:
        return {**super().state_dict(), "total": self.total}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        total = state["total"]
        assert isinstance(total, Tensor)
        self.total = total.clone()


class Unseeded(Sound):
    """Two of them differ."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        generator = torch.Generator()
        generator.seed()
        self.offset = torch.rand((), generator=generator)

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, self.offset)


class SeedingAll(Sound):
    """Two of them are the same, because everybody's random numbers are."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        torch.manual_seed(0)


class Spoilt(Sound):
    """One wild label, and all is lost."""

    spoilt = 0.0

    def learn(self, example: Example) -> None:
        super().learn(example)
        if bool((example.target.abs() > 1e5).any()):
            self.spoilt = math.nan

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, self.spoilt)


class Shaken(Spoilt):
    """One wild label, and the forecasts are finite but useless."""

    def forecast(self, window: Tensor) -> Forecast:
        return self.moved(window, 3.0 if math.isnan(self.spoilt) else 0.0)


class Averaging(Sound):
    """Missing labels are not left out."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.level = torch.zeros(task.channels)

    def learn(self, example: Example) -> None:
        self.level = 0.9 * self.level + 0.1 * example.target[:, -1].mean(0)

    def forecast(self, window: Tensor) -> Forecast:
        return Forecast(self.level.repeat(len(window), self.task.horizon, 1))


class TakingUnknownForZero(Sound):
    """Labels that are not there yet are learned as zeros."""

    def learn(self, example: Example) -> None:
        self.inner.learn(Example(example.window, example.target.nan_to_num(0.0)))


class Stubborn(Sound):
    """Counts what it learned, and forecasts the last value."""

    def forecast(self, window: Tensor) -> Forecast:
        return LastValue(self.task).forecast(window)


class Unfinished(Sound):
    def learn(self, example: Example) -> None:
        raise KeyError(f"{len(example.window)} examples")


BROKEN: list[tuple[type[Sound], str, str]] = [
    (OneStepOnly, "check_forecast_shape", r"mean has shape \(1, 1, 2\), expected \(B, H, C\) = \(1, 3, 2\)"),
    (ForeignTask, "check_forecast_shape", "season=13.*expected the one it was made for"),
    (NegativeVariance, "check_forecast_shape", "variance must be finite and above 0"),
    (VarianceOfAnotherShape, "check_forecast_shape", r"variance has shape \(2, 1, 3, 2\), expected .* \(1, 3, 2\)"),
    (Counting, "check_forecast_is_pure", "forecast.. changed the state: /learned; expected every bit as it was"),
    (Dicing, "check_forecast_is_pure", "global random state"),
    (Restless, "check_forecast_is_pure", "two forecasts from one window differ by 0.001"),
    (Lingering, "check_forecast_is_pure", "forecast.. leaves something behind"),
    (Clipping, "check_forecast_is_pure", "changed its window"),
    (Comparing, "check_batch_equals_one_by_one", "must not see each other"),
    (Filling, "check_learn_leaves_its_example_alone", "learn.. changed its example: /target"),
    (Keeping, "check_no_aliasing_with_input", "keep copies"),
    (Viewing, "check_no_aliasing_with_input", "shares memory with its window"),
    (Forgetting, "check_state_round_trip", "something that matters is not in state_dict"),
    (Losing, "check_state_round_trip", "not the one saved: /learned"),
    (Sharing, "check_state_round_trip", "a state that state_dict.. had handed out: /total"),
    (Unseeded, "check_same_seed_same_numbers", "is all randomness seeded"),
    (SeedingAll, "check_same_seed_same_numbers", "use a torch.Generator of your own"),
    (Spoilt, "check_survives_a_shock", "the forecast from row .* is not finite"),
    (Shaken, "check_recovers_from_a_shock", "brought the mean error from 0.1.* to 3.* expected at most 2 times"),
    (Averaging, "check_survives_missing_rows", "is not finite after 100 rows without a value"),
    (TakingUnknownForZero, "check_accepts_partial_labels", "are the NaN in targets left out"),
    (Stubborn, "check_learns_a_line", "expected below the last value's, 0.33"),
    (Unfinished, "check_accepts_partial_labels", r"KeyError at .*test_checks.py:\d+: '1 examples'"),
]


@pytest.fixture(autouse=True)
def same_random_numbers_afterwards() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


@pytest.mark.parametrize(("factory", "check", "message"), BROKEN, ids=[broken.__name__ for broken, _, _ in BROKEN])
def test_a_broken_contract_is_found(factory: Factory, check: str, message: str) -> None:
    result = run_check(check, factory)
    assert not result.passed and result.skipped is None and result.error is not None
    assert re.search(message, result.error), result.error


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "check_cpu_equals_gpu"])
def test_a_sound_forecaster_passes(check: str) -> None:
    result = run_check(check, Sound, quick=True)
    assert result.passed and result.skipped is None, result.error
    assert result.name == check and result.seconds > 0


# Memory: each leak shows on one side only.


class Cheap(Sound):
    def __init__(self, task: Task) -> None:
        super().__init__(task, LastValue)


class GrowingState(Cheap):
    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.errors: list[float] = []

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.errors.append(float(example.target.mean()))

    def state_dict(self) -> State:
        return {**super().state_dict(), "errors": torch.tensor(self.errors)}


class GrowingList(GrowingState):
    """The list is not in the state."""

    def state_dict(self) -> State:
        return Cheap.state_dict(self)


class GrowingElsewhere(Cheap):
    """It is not even in the forecaster."""

    everywhere: ClassVar[list[Tensor]] = []

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.everywhere.append(example.target.mean())


class GrowingGraph(Cheap):
    """The forecaster holds one tensor; the graph behind it holds those of every step."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.weight = torch.ones(10, requires_grad=True)
        self.total = torch.zeros(())

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.total = self.total + (self.weight * example.target[0, 0, 0]).square().sum()


class GrowingOutOfSight(Cheap):
    """Memory that Python does not count as objects, outside of the forecaster.

    From the system, page by page: what other tests have left free in this process would hide it.
    """

    step: ClassVar[int] = 20_480
    everywhere: ClassVar[mmap.mmap] = mmap.mmap(-1, 2_000 * step)

    def learn(self, example: Example) -> None:
        super().learn(example)
        self.everywhere.write(b"x" * self.step)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (GrowingState, r"[\d,]+ more bytes in state_dict"),
        (GrowingList, r"[\d,]+ more bytes held by it after 2,000 steps than after 1,000, expected at most 12,096 more"),
        (GrowingElsewhere, r"[\d,]+ more Python objects"),
        (GrowingGraph, r"[\d,]+ more Python objects"),
        (GrowingOutOfSight, r"[\d,]+ more bytes in the process"),
    ],
)
def test_growing_memory_is_found(factory: Factory, message: str) -> None:
    result = run_check("check_memory_is_bounded", factory, quick=True)
    GrowingElsewhere.everywhere.clear()
    assert result.error is not None and re.match(message, result.error), result.error


def test_memory_is_watched_for_20_000_steps_unless_in_a_hurry() -> None:
    made: list[Cheap] = []

    def factory(task: Task) -> Cheap:
        made.append(Cheap(task))
        return made[-1]

    run_check("check_memory_is_bounded", factory)
    run_check("check_memory_is_bounded", factory, quick=True)
    assert [forecaster.learned for forecaster in made] == [20_000 - 3, 2_000 - 3]  # the first three have no labels yet


# Results


def test_run_checks_tells_of_all_of_them() -> None:
    results = run_checks(Stubborn, quick=True)
    assert [result.name for result in results] == list(CHECKS)
    assert [result.name for result in results if not result.passed] == ["check_learns_a_line"]


def test_one_that_does_not_learn_is_not_asked_to() -> None:
    result = run_check("check_learns_a_line", LastValue)
    assert result.passed and result.error is None
    assert result.skipped is not None and "changes nothing" in result.skipped
    with pytest.raises(SkippedError):
        CHECKS["check_learns_a_line"](LastValue)


def test_called_on_its_own_a_check_raises() -> None:
    with pytest.raises(AssertionError, match="expected at most 12,096 more"):
        check_memory_is_bounded(GrowingList, count=2_000)


def test_the_user_can_stop_it() -> None:
    def factory(task: Task) -> Forecaster:
        raise KeyboardInterrupt(task)

    with pytest.raises(KeyboardInterrupt):
        run_checks(factory)
