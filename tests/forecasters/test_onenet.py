"""OneNet against its definition, written out here on its own: dense convolutions, autograd, Adam by its formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, pad
from torch.testing import assert_close

from natsr.forecasters.onenet import OneNetLearner
from natsr.forecasters.stepping import SteppingForecaster
from natsr.nets.adapted import Scaled
from natsr.nets.base import Layer
from natsr.nets.tcn import ConeTCN, ConeTrace
from natsr.nets.variables import VariablesTCN, VariablesTrace
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Example, Option, State, StateError, Task

TASK = Task(window=8, horizon=2, channels=3, features=1)
SMALL: dict[str, Option] = {"width": 2, "depth": 3, "top": 3, "dtype": "float64", "rate": 0.01}
MIXING: dict[str, Option] = {"mixing_rate": 0.05, "mixing_dropout": 0.0}


def onenet(**options: Option) -> SteppingForecaster:
    forecaster = make("onenet", TASK, seed=2, options=SMALL | MIXING | options)
    assert isinstance(forecaster, SteppingForecaster)
    return forecaster


def learner(forecaster: SteppingForecaster) -> OneNetLearner:
    assert isinstance(forecaster.learner, OneNetLearner)
    return forecaster.learner


def stream(count: int) -> list[Example]:
    generator = torch.Generator().manual_seed(5)
    return [
        Example(
            torch.randn(1, 8, 4, generator=generator, dtype=torch.float64),
            torch.randn(1, 2, 3, generator=generator, dtype=torch.float64) + torch.tensor([2.0, 0.0, -2.0]),
        )
        for _ in range(count)
    ]


# ---- the definition ----------------------------------------------------------------------------------------------


class Adam:
    """Adam, or AdamW where something decays."""

    def __init__(self, parameters: list[Tensor], rate: float, decay: float) -> None:
        self.parameters, self.rate, self.decay, self.steps = parameters, rate, decay, 0
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]
        for parameter in parameters:
            parameter.requires_grad_()

    def step(self, loss: Tensor) -> None:
        grads = torch.autograd.grad(loss, self.parameters)
        self.steps += 1
        for parameter, grad, (m, v) in zip(self.parameters, grads, self.moments, strict=True):
            m.mul_(0.9).add_(0.1 * grad)
            v.mul_(0.999).add_(0.001 * grad.square())
            m_hat, v_hat = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            kept = parameter.detach() * (1 - self.rate * self.decay)
            parameter.data.copy_(kept - self.rate * m_hat / (v_hat.sqrt() + 1e-8))


class Branch:
    """A dilated network along the last axis, whose convolutions have factors, all of them learned."""

    def __init__(self, net: Scaled[ConeTrace] | Scaled[VariablesTrace], layers: tuple[Layer, ...]) -> None:
        raw = {layer.name: layer.view(net.weights[: len(net.body.weights)]) for layer in layers}
        self.entry, self.head = raw["input"].clone(), raw["head"].clone()
        self.projection = raw["block3.projection"].clone()
        generator = torch.Generator().manual_seed(1)
        self.convolutions = []
        for run in net.runs:
            for matrix in run.view(net.weights):
                o, c = run.outputs, run.inputs
                weight = torch.randn(o, c, 3, generator=generator).double()  # dead taps must not matter
                for tap in range(run.taps):
                    weight[:, :, run.first + tap] = matrix[tap * c : (tap + 1) * c].T
                zeros, ones = torch.zeros(o).double(), torch.ones(o).double()
                self.convolutions.append([weight, zeros, torch.ones(o, c, 1).double(), zeros.clone(), ones])
        self.parameters = [self.entry, self.head, self.projection, *(p for one in self.convolutions for p in one)]

    def convolved(self, x: Tensor, index: int, dilation: int) -> Tensor:
        weight, bias, by_weight, by_bias, by_output = self.convolutions[index]
        count, padded = x.shape[1], pad(x, (dilation, dilation))
        total = (bias * by_bias)[:, None].expand(-1, count)
        for tap in range(3):
            total = total + (weight * by_weight)[:, :, tap] @ padded[:, tap * dilation : tap * dilation + count]
        return total + by_output[:, None] * total

    def encoded(self, rows: Tensor) -> Tensor:
        """`(positions, inputs)` to `(positions, top)`."""
        x = (rows @ self.entry[:-1] + self.entry[-1]).T
        for block in range(4):
            y = self.convolved(gelu(x), 2 * block, 2**block)
            y = self.convolved(gelu(y), 2 * block + 1, 2**block)
            x = y + (x if block < 3 else (x.T @ self.projection[:-1] + self.projection[-1]).T)
        return x.T


class Definition:
    """Both branches, the mixture and their optimisers."""

    def __init__(self, ours: OneNetLearner, loss: str) -> None:
        self.loss = loss
        variables, time = ours.variables.net, ours.time.net
        assert isinstance(variables.body, VariablesTCN) and isinstance(time.body, ConeTCN)
        self.variables = Branch(variables, variables.body.layers)
        self.time = Branch(time, time.body.layers)
        self.decision = [layer.view(ours.mixing.weights).clone() for layer in ours.mixing.layers]
        self.lasting, self.passing = torch.zeros(3).double(), torch.zeros(3).double()
        both = [*self.variables.parameters, *self.time.parameters]
        self.adamw = Adam(both, 0.01, decay=0.01)
        self.adam_lasting = Adam([self.lasting], 0.05, decay=0.0)
        self.adam_decision = Adam(self.decision, 0.05, decay=0.0)

    def criterion(self, output: Tensor, target: Tensor) -> Tensor:
        error = target - output
        return error.square().mean() if self.loss == "mse" else error.abs().mean()

    def branches(self, window: Tensor) -> tuple[Tensor, Tensor]:
        over_variables = self.variables.encoded(window[:, :3].T)  # each series a token
        first = (over_variables @ self.variables.head[:-1] + self.variables.head[-1]).T  # (H, C)
        last = self.time.encoded(window)[-1]
        return first, (last @ self.time.head[:-1] + self.time.head[-1]).view(2, 3)

    def said(self, seen: Tensor) -> Tensor:
        for matrix in self.decision[:-1]:
            seen = torch.tanh(seen @ matrix[:-1] + matrix[-1])
        return (seen @ self.decision[-1][:-1] + self.decision[-1][-1]).squeeze(1)

    def pass_and_learn(self, example: Example) -> Tensor:
        """The published loop: forecast, then the branches, the correction and the weights, on what the pass gave."""
        target = example.target[0]
        first, second = self.branches(example.window[0])
        share = torch.sigmoid(self.lasting + self.passing).detach()
        mixed = (share * first + (1 - share) * second).detach()
        self.adamw.step(self.criterion(first, target) + self.criterion(second, target))
        first, second = first.detach(), second.detach()
        share = torch.sigmoid(self.lasting).detach()
        passing = self.said(torch.cat([share * first, (1 - share) * second, target]).T)
        quick = torch.sigmoid(self.lasting.detach() + passing)
        self.adam_decision.step(self.criterion(quick * first + (1 - quick) * second, target))
        slow = torch.sigmoid(self.lasting)
        self.adam_lasting.step(self.criterion(slow * first + (1 - slow) * second, target))
        self.passing = passing.detach()
        return mixed


@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_forecasts_are_those_of_the_definition(loss: str) -> None:
    ours = onenet(loss=loss)
    theirs = Definition(learner(ours), loss)
    for example in stream(20):
        expected = theirs.pass_and_learn(example)
        assert_close(ours.forecast(example.window).mean[0], expected, rtol=1e-8, atol=1e-8)
        ours.learn(example)
    assert float(theirs.lasting.detach().abs().min()) > 1e-3 < float(theirs.passing.abs().min())
    for branch in (theirs.variables, theirs.time):
        for _, bias, _, by_bias, _ in branch.convolutions:  # which is why ours has neither
            assert not bias.any() and not by_bias.any()


# ---- what it does beside -----------------------------------------------------------------------------------------


def test_what_is_not_known_is_left_out() -> None:
    ours = onenet()
    example = stream(1)[0]
    target = example.target.clone()
    target[0, 1], target[0, :, 2] = math.nan, math.nan
    first = learner(ours).forward(ours.frame.read(example.window, learner(ours).like)).view(2, 3)
    ours.learn(Example(example.window, target))
    error = (target[0] - first)[0, :2]
    assert ours.info()["loss"] == pytest.approx(float(error.square().mean()))
    mixing = learner(ours).mixing
    assert mixing.passing[:2].all() and mixing.lasting[:2].all()
    assert mixing.passing[2] == 0 and mixing.lasting[2] == 0  # nothing was told about this variable


def test_warm_up_keeps_the_correction_and_starts_with_equal_weights() -> None:
    values = torch.sin(torch.arange(120.0, dtype=torch.float64) / 3)[:, None] * torch.tensor([1.0, 2.0, -1.0])
    rows = Rows(torch.cat([values, values[:, :1]], 1), values)
    ours = onenet(epochs=2, warm_rate=0.01)
    before = learner(ours).mixing.weights.clone()
    ours.warm_up(Windows(rows, TASK, 0, 90), Windows(rows, TASK, 90, 120))
    mixing = learner(ours).mixing
    assert not mixing.lasting.any() and not mixing.passing.any()
    assert not torch.equal(mixing.weights, before)


def test_dropout_makes_the_correction_random_and_the_state_carries_the_draw() -> None:
    one, other = onenet(mixing_dropout=0.5), onenet(mixing_dropout=0.5)
    examples = stream(8)
    for example in examples[:4]:
        one.learn(example)
    other.load_state_dict(one.state_dict())
    for example in examples[4:]:
        one.learn(example)
        other.learn(example)
    assert torch.equal(learner(one).mixing.passing, learner(other).mixing.passing)
    still = onenet()
    for example in examples:
        still.learn(example)
    assert not torch.equal(learner(one).mixing.passing, learner(still).mixing.passing)


def test_a_network_astray_goes_back_to_its_sane_copy() -> None:
    ours = onenet()
    for example in stream(5):
        ours.learn(example)
    learner(ours).time.net.weights.mul_(1e3)
    learner(ours).settle()
    ours.learn(stream(1)[0])
    assert ours.restored == 1
    assert float(ours.forecast(stream(1)[0].window).mean.abs().max()) < 100


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    ours, window = onenet(), stream(1)[0].window
    before = ours.forecast(window).mean
    with pytest.raises(StateError, match="same task and options"):
        ours.load_state_dict(onenet(width=4).state_dict())
    with pytest.raises(StateError):
        ours.load_state_dict(make("fsnet", TASK, options={"width": 2, "depth": 1, "top": 4}).state_dict())
    state = onenet().state_dict()
    inner = state["learner"]
    assert isinstance(inner, dict)
    for name in inner:
        part: State = {key: value for key, value in inner.items() if key != name}
        with pytest.raises(StateError):
            ours.load_state_dict({**state, "learner": part})
    assert torch.equal(ours.forecast(window).mean, before)
