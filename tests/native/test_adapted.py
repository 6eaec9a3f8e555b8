"""FSNet and OneNet in C against the same in torch, over streams, batches, and steps that are too long."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from natsr.forecasters.fsnet import FSNetLearner
from natsr.forecasters.losses import Absolute, Loss, Squared
from natsr.forecasters.onenet import OneNetLearner
from natsr.forecasters.stepping import Labels, SteppingForecaster, judged
from natsr.native import build
from natsr.nets.adapted import Scaled
from natsr.nets.columns import NativeVariables, over_variables
from natsr.nets.fsnet import AdaptedTCN
from natsr.nets.variables import VariablesTCN
from natsr.recipes import make
from natsr.types import Example, Option, Task

pytestmark = pytest.mark.skipif(build.library() is None, reason="there is no C compiler here")

TASK = Task(window=12, horizon=3, channels=5, features=2)
#: None of the sizes is a multiple of a vector's; with `recall=index` and turning targets the memory is asked.
CASES: dict[str, tuple[str, dict[str, Option]]] = {
    "fsnet": ("fsnet", {"width": 3, "depth": 3, "top": 15, "rate": 0.01}),
    "fsnet by index": ("fsnet_mae", {"width": 2, "depth": 3, "top": 4, "rate": 0.01, "recall": "index"}),
    "fsnet wide": ("fsnet", {"width": 32, "depth": 2, "top": 64, "rate": 1e-3}),
    "onenet": ("onenet", {"width": 5, "depth": 4, "top": 7, "rate": 0.003}),
    "onenet mae": ("onenet_mae", {"width": 17, "depth": 1, "top": 33, "rate": 0.003}),
}


def made(case: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> SteppingForecaster:
    method, options = CASES[case]
    monkeypatch.setenv(build.SWITCH, "1" if native else "0")
    forecaster = make(method, TASK, seed=3, options=options)
    assert isinstance(forecaster, SteppingForecaster)
    return forecaster


def stream(count: int, batch: int = 1) -> list[Example]:
    """Windows of noise, and targets that turn their sign every few steps."""
    generator = torch.Generator().manual_seed(5)
    found = []
    for step in range(count):
        window = torch.randn(batch, 12, 7, generator=generator)
        target = torch.randn(batch, 3, 5, generator=generator) + (5.0 if (step // 9) % 2 == 0 else -5.0)
        found.append(Example(window, target))
    return found


def learned(forecaster: SteppingForecaster, examples: list[Example]) -> Tensor:
    means = []
    for example in examples:
        means.append(forecaster.forecast(example.window).mean)
        forecaster.learn(example)
    return torch.stack(means)


@pytest.mark.parametrize("case", CASES)
def test_a_stream_gives_the_same_forecasts(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = stream(30)
    inner = made(case, True, monkeypatch)
    in_c, info = learned(inner, examples), inner.info()
    outer = made(case, False, monkeypatch)
    assert_close(in_c, learned(outer, examples), rtol=1e-3, atol=1e-3)
    for name, value in outer.info().items():
        assert info[name] == pytest.approx(value, rel=1e-3, abs=1e-3)
    if case == "fsnet by index":
        assert info["asked"] > 0


@pytest.mark.parametrize("case", ["fsnet", "onenet"])
def test_batches_dropout_and_missing_labels_give_the_same_weights(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for native in (True, False):
        forecaster = made(case, native, monkeypatch)
        learner = forecaster.learner
        learner.begin(1e-3, online=False)
        for example in stream(6, batch=4):
            target = example.target.flatten(1).clone()
            target[0], target[1, ::2], target[:, 4::5] = math.nan, math.nan, math.nan
            with torch.no_grad():
                taken = learner.step(example.window, Labels.of(target), 0.3, math.inf)
            assert taken.verdict == "taken"
        found.append(learner.forward(stream(1, batch=40)[0].window))
    assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["fsnet", "onenet"])
def test_steps_that_may_be_too_long_are_judged_as_in_torch(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    example, verdicts = stream(1)[0], []
    for native in (True, False):
        mine = []
        for factor in (1.0, 30.0, 1e3, 1e5, 1e7):
            learner = made(case, native, monkeypatch).learner
            if isinstance(learner, FSNetLearner):
                learner.net.weights[: len(learner.net.body.weights)] *= factor
            else:
                assert isinstance(learner, OneNetLearner)
                learner.time.net.weights[: len(learner.time.net.body.weights)] *= factor
            learner.settle()
            before = learner.like.clone()
            with torch.no_grad():
                taken = learner.step(example.window, Labels.of(example.target.flatten(1)), 0.0, math.inf)
            assert torch.equal(learner.like, before) == (taken.verdict != "taken")
            mine.append(taken.verdict)
        verdicts.append(mine)
    assert verdicts[0] == verdicts[1]
    assert verdicts[0][0] == "taken" and "refused" in verdicts[0]


@pytest.mark.parametrize("case", ["fsnet", "fsnet by index", "onenet"])
def test_torch_can_take_single_steps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, mixed = stream(24), made(case, True, monkeypatch)
    expected, means = learned(made(case, True, monkeypatch), examples), []
    for index, example in enumerate(examples):
        with monkeypatch.context() as patch:
            if index % 3 == 1:  # as if the gradient might be too long
                patch.setattr(AdaptedTCN, "take", lambda *_: None)
                patch.setattr(Scaled, "within", lambda *_: False)
            means.append(learned(mixed, [example])[0])
    assert_close(torch.stack(means), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", ["fsnet by index", "onenet"])
def test_a_state_goes_on_in_the_other_form(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, one = stream(24), made(case, True, monkeypatch)
    learned(one, examples[:12])
    other = made(case, False, monkeypatch)
    other.load_state_dict(one.state_dict())
    back = made(case, True, monkeypatch)
    back.load_state_dict(other.state_dict())
    expected = learned(one, examples[12:])
    assert_close(learned(back, examples[12:]), expected)
    monkeypatch.setenv(build.SWITCH, "0")
    assert_close(learned(other, examples[12:]), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("case", ["fsnet", "onenet"])
def test_a_copy_goes_its_own_way(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made(case, True, monkeypatch)
    learned(one, stream(3))
    other = copy.deepcopy(one)
    window = stream(1)[0].window
    before = one.forecast(window).mean
    learned(other, stream(5))
    assert torch.equal(one.forecast(window).mean, before)
    twin = copy.deepcopy(one)
    assert_close(learned(one, stream(5)), learned(twin, stream(5)))


@pytest.mark.parametrize("columns", [1, 2, 7, 33])
def test_the_network_over_variables_has_the_same_outputs_and_gradients(columns: int) -> None:
    task = Task(window=9, horizon=4, channels=columns, features=1)
    cpu = torch.device("cpu")
    native = over_variables(task, torch.Generator().manual_seed(1), cpu, width=6, depth=4, top=11)
    assert isinstance(native, NativeVariables)
    plain = VariablesTCN(task, torch.Generator().manual_seed(1), width=6, depth=4, top=11)
    generator = torch.Generator().manual_seed(2)
    for batch in (3, 1):
        window = torch.randn(batch, 9, columns + 1, generator=generator)
        grad = torch.randn(batch, task.outputs, generator=generator)
        keep = (torch.rand(batch, native.hidden, generator=generator) > 0.3).float()
        for mask in (keep, None):
            one, other = native.trace(window, mask), plain.trace(window, mask)
            assert_close(one.output, other.output, rtol=1e-4, atol=1e-5)
            native.trace(2 * window)  # a pass in between: the first has to be made again
            assert_close(native.gradient(one, grad), plain.gradient(other, grad), rtol=1e-3, atol=1e-4)
        assert_close(native.forward(window), plain.forward(window), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", [Squared(), Absolute()])
def test_losses_are_judged_as_in_torch(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    output, target = torch.randn(3, 8, generator=generator), torch.randn(3, 8, generator=generator)
    target[0, 2:5], target[1, 0] = math.nan, output[1, 0]
    labels = Labels.of(target)
    in_c = judged(loss, output, labels)
    monkeypatch.setenv(build.SWITCH, "0")
    in_torch = judged(loss, output, labels)
    assert_close(in_c.pull, in_torch.pull)
    assert (in_c.farthest, in_c.loss) == pytest.approx((in_torch.farthest, in_torch.loss), rel=1e-5)
    output[2, 1] = math.nan
    assert math.isinf(judged(loss, output, labels).farthest)
    monkeypatch.setenv(build.SWITCH, "1")
    assert math.isinf(judged(loss, output, labels).farthest)
