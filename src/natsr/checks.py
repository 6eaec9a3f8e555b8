"""The contract of a forecaster as code: what every method here keeps, and what yours should.

Each `check_…` takes a factory, a callable that makes a fresh forecaster for a task, and raises `AssertionError` with
what was got and what was expected if the contract is broken, or `SkippedError` if it cannot be tried. `run_checks` runs
them all; so does `natsr checks MODULE:CLASS`.

>>> from natsr.forecasters.naive import LastValue
>>> [result.name for result in run_checks(LastValue, quick=True) if not result.passed]
[]
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from natsr.forecasters.base import Forecaster
from natsr.forecasters.naive import LastValue
from natsr.state import load, save
from natsr.streams import Rows, Step, Windows, steps
from natsr.trials import (
    SETTLE,
    STRETCH,
    TASK,
    WARM,
    Verdict,
    apart,
    contents,
    copied,
    expect,
    expect_finite,
    expect_same,
    luck,
    shocked,
    stream,
    use,
    wave,
    windows,
    with_gaps,
)
from natsr.trials import SkippedError as SkippedError
from natsr.types import Task

Factory = Callable[[Task], Forecaster]
Check = Callable[[Factory], None]

_KIND = "natsr.checks"
#: How many times an error may be the one before the unusual, and the one with whole examples.
_NEAR, _AS_GOOD = 2.0, 1.5


class CheckResult(NamedTuple):
    """What came of one check."""

    name: str  # of the function
    passed: bool  # a check that was skipped has not failed
    error: str | None  # why it failed
    seconds: float
    skipped: str | None = None  # why it was not tried


# ---- what a forecast is ------------------------------------------------------------------------------------------


def check_forecast_shape(factory: Factory) -> None:
    """One row and channel or several, with features and without: `(B, H, C)`, finite; a variance that fits it."""
    for task in (TASK, Task(1, 1, 1), Task(6, 1, 3, features=2), Task(4, 7, 1, season=24)):
        forecaster = factory(task)
        expect(forecaster.task == task, f"task is {forecaster.task}, expected the one it was made for, {task}")
        for batch in (1, 4):
            mean, variance = forecaster.forecast(windows(task, batch))
            shape = (batch, task.horizon, task.channels)
            expect(mean.shape == shape, f"mean has shape {tuple(mean.shape)}, expected (B, H, C) = {shape} for {task}")
            expect(
                bool(mean.isfinite().all()), f"mean of a fresh forecaster is not finite, expected numbers for {task}"
            )
            if variance is None:
                continue
            got = f"variance has shape {tuple(variance.shape)}"
            expect(
                np.broadcast_shapes(variance.shape, shape) == shape, f"{got}, expected one that broadcasts to {shape}"
            )
            expect(bool((variance > 0).all() and variance.isfinite().all()), "variance must be finite and above 0")


def check_forecast_is_pure(factory: Factory) -> None:
    """Forecasting, however often, changes no state, no random number to come, and no later forecast."""
    asked, silent = _started(factory), _started(factory)
    window = windows(TASK, 2)
    state, chance, kept = contents(asked.state_dict()), luck(), window.clone()
    first = asked.forecast(window).mean.clone()
    second = asked.forecast(window).mean
    asked.info()
    expect_same(state, contents(asked.state_dict()), "forecast() changed the state")
    expect(luck() == chance, "forecast() drew from a global random state, expected a function of state and window")
    expect(torch.equal(first, second), f"two forecasts from one window differ by {apart(first, second)}, expected 0")
    expect(torch.equal(window, kept), "forecast() changed its window, expected it as it was; work on a copy")
    for step in stream(wave(WARM + 40)):
        if step.matured is not None:
            asked.learn(step.matured)
            silent.learn(step.matured)
        asked.forecast(step.window)
    first, second = asked.forecast(window).mean, silent.forecast(window).mean
    expect(
        torch.equal(first, second),
        f"having been asked for forecasts on the way moves a later one by {apart(first, second)}, expected 0: "
        "forecast() leaves something behind",
    )


def check_batch_equals_one_by_one(factory: Factory) -> None:
    """Several windows at once are answered as each on its own, to rounding."""
    forecaster, several = _started(factory), windows(TASK, 5)
    together = forecaster.forecast(several).mean
    alone = torch.cat([forecaster.forecast(window[None]).mean for window in several])
    expect(
        torch.allclose(together, alone, rtol=1e-5, atol=1e-5),
        f"a batch of windows is answered differently from each on its own, by {apart(together, alone)}, expected at "
        "most 1e-5: the windows of a batch must not see each other",
    )


# ---- what learning leaves alone ----------------------------------------------------------------------------------


def check_learn_leaves_its_example_alone(factory: Factory) -> None:
    """Windows, targets and masks are as they were, bit for bit, after they were learned."""
    rows = with_gaps(wave(WARM + 60), WARM + 20, 20)
    for protocol in ("honest", "partial"):
        forecaster = factory(TASK)
        for step in stream(rows, protocol):
            if step.matured is not None:
                before = contents(step.matured._asdict())
                forecaster.learn(step.matured)
                expect_same(before, contents(step.matured._asdict()), "learn() changed its example")


def check_no_aliasing_with_input(factory: Factory) -> None:
    """What was handed in or out may be written over afterwards, as a caller that reuses its arrays does."""
    careful, careless = factory(TASK), factory(TASK)
    for step in stream(wave(WARM + 60)):
        if step.matured is not None:
            example = copied(step.matured)
            careful.learn(step.matured)
            careless.learn(example)
            example.window.fill_(1e3)
            example.target.fill_(-1e3)
        window = step.window.clone()
        first, second = careful.forecast(step.window).mean, careless.forecast(window).mean
        expect(
            torch.equal(first, second),
            "writing over a window, a target or a forecast after its use moves a later forecast by "
            f"{apart(first, second)}, expected 0: keep copies (tensor.clone()), and hand out copies",
        )
        second.fill_(1e3)
        expect(torch.equal(window, step.window), "the forecast shares memory with its window, expected a copy")
        window.fill_(1e3)


# ---- what is carried on ------------------------------------------------------------------------------------------


def check_state_round_trip(factory: Factory) -> None:
    """Saved at step 50 and loaded into a fresh forecaster, the next 20 steps are the same, bit for bit."""
    moments = list(stream(wave(WARM + 70 + TASK.horizon - 1)))
    forecaster, restored = _started(factory), factory(TASK)
    _play(forecaster, moments[:50])
    state = forecaster.state_dict()
    before = contents(state)
    with tempfile.TemporaryDirectory() as folder:
        save(folder, state, kind=_KIND)
        restored.load_state_dict(load(folder, kind=_KIND).state)
    expect_same(before, contents(restored.state_dict()), "the state after load_state_dict() is not the one saved")
    first, second = _play(forecaster, moments[50:]), _play(restored, moments[50:])
    expect_same(before, contents(state), "learning changed a state that state_dict() had handed out")
    expect(
        torch.equal(first, second),
        f"within 20 steps the restored forecaster is {apart(first, second)} away from the one saved, expected 0: "
        "something that matters is not in state_dict()",
    )
    after = contents(restored.state_dict())
    expect_same(contents(forecaster.state_dict()), after, "20 steps after loading, the two states differ")


def check_same_seed_same_numbers(factory: Factory) -> None:
    """Two fresh forecasters give the same numbers, and leave everybody else's random numbers alone."""
    before = luck()
    forecaster = _started(factory)
    first = _play(forecaster, stream(wave(WARM + 40)))
    expect(
        luck() == before,
        "a global random state was drawn from or seeded, expected it as it was: use a torch.Generator of your own",
    )
    other = _started(factory)
    second = _play(other, stream(wave(WARM + 40)))
    expect(
        torch.equal(first, second),
        f"two fresh forecasters differ by {apart(first, second)} on one stream, expected 0: is all randomness seeded?",
    )
    expect_same(contents(forecaster.state_dict()), contents(other.state_dict()), "two fresh forecasters' states differ")


def check_memory_is_bounded(factory: Factory, count: int = 20_000) -> None:
    """Neither the state nor anything else grows in the second half of a long stream.

    Args:
        factory: Makes a fresh forecaster.
        count: Steps. A memory that is not full after half of them looks like one that grows.
    """
    forecaster, moments, half = factory(TASK), stream(wave(WARM + count + TASK.horizon - 1)), count // 2
    _advance(forecaster, islice(moments, half))
    before = use(forecaster)
    _advance(forecaster, moments)
    after = use(forecaster)
    # A float in a list takes 32 bytes a step, a tensor in a list is one object, a graph kept alive several KiB.
    limits = (before.state // 100 + 64, 4096 + 8 * half, half // 4, 2**23 + 512 * half)
    units = ("bytes in state_dict()", "bytes held by it", "Python objects", "bytes in the process")
    for was, now, limit, unit in zip(before, after, limits, units, strict=True):
        expect(
            now - was <= limit,
            f"{now - was:,} more {unit} after {count:,} steps than after {half:,}, expected at most {limit:,} more",
        )


# ---- what it survives, and what it learns ------------------------------------------------------------------------


def check_survives_a_shock(factory: Factory) -> None:
    """Single values of 1e6, -1e6 and 1e30 leave every forecast finite."""
    forecaster = _started(factory)
    for step in stream(shocked(WARM + 20, 40)):
        expect_finite(_taken(forecaster, step), step.origin, "after a single value of 1e6, -1e6 or 1e30")


def check_recovers_from_a_shock(factory: Factory) -> None:
    """Some time after single values of 1e6, -1e6 and 1e30 the error is near what it was before them."""
    first = WARM + STRETCH
    _expect_recovers(factory, shocked(first, 40), first, first + 80, "single values of 1e6, -1e6 and 1e30")


def check_survives_missing_rows(factory: Factory) -> None:
    """A hundred rows without a value, and then every third value missing: finite forecasts, and no harm done."""
    first = WARM + STRETCH
    rows = with_gaps(wave(first + 200 + SETTLE + STRETCH), first, 100)
    _expect_recovers(factory, rows, first, first + 200, "100 rows without a value and 100 with gaps")


def check_accepts_partial_labels(factory: Factory) -> None:
    """Batches of examples whose labels arrive row by row, with `fresh` marks, do no less good than whole ones."""
    rows, errors = wave(WARM + SETTLE + STRETCH), dict[str, float]()
    for protocol in ("honest", "partial"):
        forecaster = _started(factory)
        moments = list(stream(rows, protocol))
        means = _play(forecaster, moments)
        expect_finite(means, WARM, f"or one of those that follow it under the protocol {protocol}")
        found = [_error(mean, step) for mean, step in zip(means, moments, strict=True)]
        errors[protocol] = float(np.mean(found[-STRETCH:]))
    expect(
        errors["partial"] <= _AS_GOOD * errors["honest"],
        f"the error is {errors['partial']:.3g} with labels that arrive row by row and {errors['honest']:.3g} with "
        f"whole examples, expected at most {_AS_GOOD:g} times as much: are the NaN in targets left out?",
    )
    whole = Windows(rows, TASK, WARM, len(rows.inputs)).batch(torch.arange(4))
    forecaster.learn(whole)
    expect_finite(forecaster.forecast(whole.window).mean, WARM, "after a batch of four whole examples")


def check_learns_a_line(factory: Factory) -> None:
    """On a stream that two values determine, `y_t = a y_{t-1} - y_{t-2}`, it beats the last value."""
    task = Task(window=8, horizon=3, channels=1)
    values = torch.sin(torch.arange(1400.0) * (torch.pi / 12))[:, None]
    rows = Rows(values, values)
    forecaster, naive = factory(task), LastValue(task)
    before = contents(forecaster.state_dict())
    forecaster.warm_up(Windows(rows, task, 0, 900), Windows(rows, task, 900, 1000))
    moments = list(steps(rows, task, "honest", 1000, len(values)))
    pairs = [(_error(_taken(forecaster, step), step), _error(_taken(naive, step), step)) for step in moments]
    got, expected = np.mean(pairs[-200:], axis=0).tolist()
    if got >= expected and contents(forecaster.state_dict()) == before:
        raise SkippedError("learning 1,400 rows changes nothing: it is not meant to learn, or it never does")
    expect(
        got < expected,
        f"the error after 1,200 rows of a noiseless wave is {got:.3g}, expected below the last value's, {expected:.3g}",
    )


def check_cpu_equals_gpu(factory: Factory) -> None:
    """Fed from a GPU it gives the answers that it gives on the CPU, and gives them on the GPU."""
    if not torch.cuda.is_available():
        raise SkippedError("there is no GPU here")
    here, there = _started(factory), _started(factory)
    for step in stream(wave(WARM + 40), "partial"):
        window = step.window.cuda()
        if step.matured is not None:
            here.learn(step.matured)
            there.learn(copied(step.matured, "cuda"))
        first, second = here.forecast(step.window).mean, there.forecast(window).mean
        expect(second.device == window.device, f"the forecast is on {second.device}, expected {window.device}")
        expect(
            torch.allclose(first, second.cpu(), rtol=1e-3, atol=1e-3),
            f"fed from a GPU, the forecast differs by {apart(first, second.cpu())}, expected at most 0.001",
        )


# ---- running them ------------------------------------------------------------------------------------------------

CHECKS: dict[str, Check] = {
    check.__name__: check
    for check in (
        check_forecast_shape,
        check_forecast_is_pure,
        check_batch_equals_one_by_one,
        check_learn_leaves_its_example_alone,
        check_no_aliasing_with_input,
        check_state_round_trip,
        check_same_seed_same_numbers,
        check_survives_a_shock,
        check_recovers_from_a_shock,
        check_survives_missing_rows,
        check_accepts_partial_labels,
        check_learns_a_line,
        check_cpu_equals_gpu,
        check_memory_is_bounded,
    )
}


def run_checks(factory: Factory, *, quick: bool = False) -> list[CheckResult]:
    """Run every check.

    Args:
        factory: Makes a fresh forecaster for a task, each time the same one.
        quick: Watch memory over 2,000 steps instead of 20,000.
    """
    return [run_check(name, factory, quick=quick) for name in CHECKS]


def run_check(name: str, factory: Factory, *, quick: bool = False) -> CheckResult:
    """Run one of `CHECKS`; whatever is raised becomes the result."""
    check = CHECKS[name]
    if quick and check is check_memory_is_bounded:
        check = partial(check_memory_is_bounded, count=2_000)
    with Verdict() as verdict:
        check(factory)
    return CheckResult(name, verdict.error is None, verdict.error, verdict.seconds, verdict.skipped)


# ---- what they share ---------------------------------------------------------------------------------------------


def _started(factory: Factory) -> Forecaster:
    """A fresh forecaster after its warm-up."""
    forecaster, rows = factory(TASK), wave(WARM)
    forecaster.warm_up(Windows(rows, TASK, 0, 70), Windows(rows, TASK, 70, WARM))
    return forecaster


def _taken(forecaster: Forecaster, step: Step) -> Tensor:
    """One moment: learn, then forecast."""
    if step.matured is not None:
        forecaster.learn(step.matured)
    return forecaster.forecast(step.window).mean


def _play(forecaster: Forecaster, moments: Iterable[Step]) -> Tensor:
    return torch.cat([_taken(forecaster, step) for step in moments])


def _advance(forecaster: Forecaster, moments: Iterable[Step]) -> None:
    for step in moments:
        _taken(forecaster, step)


def _error(mean: Tensor, step: Step) -> float:
    return float("nan") if step.target is None else float((mean - step.target).abs().nanmean())


def _expect_recovers(factory: Factory, rows: Rows, first: int, last: int, what: str) -> None:
    """The error after rows `first … last` is near what it was before them, and every forecast is finite."""
    forecaster, errors = _started(factory), dict[int, float]()
    for step in stream(rows):
        mean = _taken(forecaster, step)
        expect_finite(mean, step.origin, f"after {what}")
        errors[step.origin] = _error(mean, step)
    before = np.mean([error for origin, error in errors.items() if origin + TASK.horizon < first])
    after = np.mean([error for origin, error in errors.items() if origin >= last + SETTLE])
    expect(
        bool(after <= _NEAR * before),
        f"{what} brought the mean error from {before:.3g} to {after:.3g}, expected at most {_NEAR:g} times as much",
    )
