"""FSNet against its definition, written out here on its own: every row, every tap, autograd, layer after layer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu
from torch.testing import assert_close

from natsr.forecasters.fsnet import FSNetLearner
from natsr.forecasters.stepping import SteppingForecaster
from natsr.recipes import make
from natsr.state import on_device
from natsr.types import Example, Option, OptionError, StateError, Task

TASK = Task(window=8, horizon=2, channels=2, features=1)
SMALL: dict[str, Option] = {"width": 2, "depth": 3, "top": 4, "dtype": "float64", "rate": 0.01}


def fsnet(**options: Option) -> SteppingForecaster:
    forecaster = make("fsnet", TASK, seed=3, options=SMALL | options)
    assert isinstance(forecaster, SteppingForecaster)
    return forecaster


def learner(forecaster: SteppingForecaster) -> FSNetLearner:
    assert isinstance(forecaster.learner, FSNetLearner)
    return forecaster.learner


def stream(count: int) -> list[Example]:
    """Windows of noise, and targets that turn their sign every few steps, so that gradients turn too."""
    generator = torch.Generator().manual_seed(5)
    found = []
    for step in range(count):
        window = torch.randn(1, 8, 3, generator=generator, dtype=torch.float64)
        sign = 1.0 if (step // 9) % 2 == 0 else -1.0
        found.append(Example(window, sign * 5 + torch.randn(1, 2, 2, generator=generator, dtype=torch.float64)))
    return found


# ---- the definition ----------------------------------------------------------------------------------------------


class Convolution:
    """One calibrated convolution with same padding: weights `(o, c, 3)` and everything that FSNet keeps for it."""

    def __init__(self, weight: Tensor, bias: Tensor, controller: Tensor, heads: Tensor, memory: Tensor) -> None:
        self.weight, self.bias = weight.requires_grad_(), bias.requires_grad_()
        self.controller, self.heads = controller.requires_grad_(), heads.requires_grad_()
        self.memory = memory
        o, c, _ = weight.shape
        self.o, self.c, self.per = o, c, o // c
        self.slow, self.fast = torch.zeros(o * c * 3).double(), torch.zeros(o * c * 3).double()
        self.query: Tensor | None = None
        self.apart = False

    def parameters(self) -> list[Tensor]:
        return [self.weight, self.bias, self.controller, self.heads]

    def coefficients(self, recall: str) -> tuple[Tensor, Tensor, Tensor]:
        chunks = self.slow.view(self.c, -1)  # the flat gradient, cut into as many pieces as there are inputs
        hidden = silu(chunks @ self.controller[:-1] + self.controller[-1])
        given = hidden @ self.heads[:-1] + self.heads[-1]
        w, b, f = given[:, :3], given[:, 3 : 3 + self.per], given[:, 3 + self.per :]
        q = torch.cat([w.flatten(), b.flatten(), f.flatten()]).detach()
        if self.query is None:
            self.query = torch.zeros_like(q)
        else:
            q = self.query = 0.3 * self.query + 0.7 * q
        if self.apart:
            old = self.ask(q, recall)
            ends = (3 * self.c, 3 * self.c + self.o)
            w = 0.75 * w + 0.25 * old[: ends[0]].view_as(w)
            b = 0.75 * b + 0.25 * old[ends[0] : ends[1]].view_as(b)
            f = 0.75 * f + 0.25 * old[ends[1] :].view_as(f)
        return w, b.flatten(), f.flatten()

    def ask(self, q: Tensor, recall: str) -> Tensor:
        attention = torch.tensor([math.exp(float(q @ self.memory[:, j]) / 0.5) for j in range(32)]).double()
        attention = attention / attention.sum()
        best = sorted(range(32), key=lambda j: -float(attention[j]))[:2]
        old = sum(
            ((float(attention[j]) if recall == "attention" else j) * self.memory[:, j] for j in best),
            torch.zeros(len(q)).double(),
        )
        after = self.memory.clone()
        for j in best:
            written = (q if recall == "attention" else old) * attention[j]
            after[:, j] = 0.75 * self.memory[:, j] + 0.25 * written
        norm = float(after.square().sum()) ** 0.5
        self.memory = after / max(1.0, norm)
        return old

    def apply(self, x: Tensor, dilation: int, recall: str) -> Tensor:
        w, b, f = self.coefficients(recall)
        reach, count = dilation, x.shape[1]  # x is (c, L)
        padded = torch.nn.functional.pad(x, (reach, reach))
        total = (self.bias * b)[:, None].expand(-1, count)
        for tap in range(3):
            total = total + (self.weight[:, :, tap] * w[:, tap]) @ padded[:, tap * reach : tap * reach + count]
        return total * f[:, None]

    def keep(self) -> None:
        """Take the gradient into the averages."""
        assert self.weight.grad is not None
        grad = self.weight.grad.clone()
        for o in range(self.o):
            for tap in range(3):
                grad[o, :, tap] /= max(float(grad[o, :, tap].norm()), 1e-12)
        flat = grad.flatten()
        self.fast = 0.3 * self.fast + 0.7 * flat
        size = float(self.fast.norm()) * float(self.slow.norm())
        self.apart = size > 0 and float(self.fast @ self.slow) / size < -0.75
        self.slow = 0.9 * self.slow + 0.1 * flat


class Definition:
    """The whole network, dense, and AdamW by its formulas; takes its weights from ours."""

    def __init__(self, ours: FSNetLearner, recall: str, loss: str, rate: float) -> None:
        net, self.recall, self.loss, self.rate = ours.net, recall, loss, rate
        layers = {layer.name: layer.view(net.weights) for layer in net.body.layers}
        self.plain = {name: layers[name].clone().requires_grad_() for name in ("input", "block3.projection", "head")}
        self.convolutions = []
        generator = torch.Generator().manual_seed(1)
        for adapter, averages in zip(net.adapters, net.averages, strict=True):
            run, per, c, o = adapter.run, adapter.per, adapter.run.inputs, adapter.run.outputs
            for n in range(run.number):
                # Taps that never meet a row get weights all the same: they must not matter.
                weight = torch.randn(o, c, 3, generator=generator).double()
                matrix = run.view(net.weights)[n]
                controller = torch.randn(per, c, 3, 64, generator=generator).double()
                mine = adapter.controllers(net.weights)[n]
                for tap in range(run.taps):
                    weight[:, :, run.first + tap] = matrix[tap * c : (tap + 1) * c].T
                    controller[:, :, run.first + tap] = mine[:-1].view(per, run.taps, c, 64)[:, tap]
                controller = torch.cat([controller.view(-1, 64), mine[-1:]])
                memory = averages.memory[n].view(c, adapter.given, 32)
                parts = [memory[:, :3], memory[:, 3 : 3 + per], memory[:, 3 + per :]]
                self.convolutions.append(
                    Convolution(
                        weight,
                        matrix[-1].clone(),
                        controller,
                        adapter.head(net.weights)[n].clone(),
                        torch.cat([part.reshape(-1, 32) for part in parts]).clone(),
                    )
                )
        self.parameters = [*self.plain.values(), *(p for one in self.convolutions for p in one.parameters())]
        self.moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self.parameters]
        self.steps = self.asked = 0

    def forward(self, window: Tensor) -> Tensor:
        self.asked += sum(one.apart for one in self.convolutions)
        entry, projection, head = self.plain.values()
        x = (window @ entry[:-1] + entry[-1]).T  # (width, L)
        for block in range(4):
            y = self.convolutions[2 * block].apply(gelu(x), 2**block, self.recall)
            y = self.convolutions[2 * block + 1].apply(gelu(y), 2**block, self.recall)
            x = y + (x if block < 3 else (x.T @ projection[:-1] + projection[-1]).T)
        return x[:, -1] @ head[:-1] + head[-1]

    def pass_and_learn(self, example: Example) -> Tensor:
        """The published loop: one pass gives both the forecast and the gradient."""
        output = self.forward(example.window[0])
        error = example.target.flatten() - output
        loss = error.square().mean() if self.loss == "mse" else error.abs().mean()
        for parameter in self.parameters:
            parameter.grad = None
        torch.autograd.backward(loss)
        self.steps += 1
        for parameter, (m, v) in zip(self.parameters, self.moments, strict=True):
            grad = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            m.mul_(0.9).add_(0.1 * grad)
            v.mul_(0.999).add_(0.001 * grad.square())
            m_hat, v_hat = m / (1 - 0.9**self.steps), v / (1 - 0.999**self.steps)
            moved = parameter.detach() * (1 - self.rate * 0.01) - self.rate * m_hat / (v_hat.sqrt() + 1e-8)
            parameter.data.copy_(moved)
        for one in self.convolutions:
            one.keep()
        return output.detach()


@pytest.mark.parametrize(("recall", "loss"), [("attention", "mse"), ("index", "mse"), ("attention", "mae")])
def test_forecasts_are_those_of_the_definition(recall: str, loss: str) -> None:
    ours = fsnet(recall=recall, loss=loss)
    theirs = Definition(learner(ours), recall, loss, rate=0.01)
    assert {adapter.run.taps for adapter in learner(ours).net.adapters} == {1, 2, 3}
    for example in stream(30):
        expected = theirs.pass_and_learn(example)
        assert_close(ours.forecast(example.window).mean.flatten(), expected, rtol=1e-8, atol=1e-8)
        ours.learn(example)
    assert theirs.asked == learner(ours).asked > 1


# ---- what it does beside -----------------------------------------------------------------------------------------


def test_the_memory_is_asked_online_only() -> None:
    ours = fsnet()
    learner(ours).begin(0.01, online=False)
    for example in stream(30):
        ours.learn(example)
    assert learner(ours).asked == 0


def test_the_mae_variant_differs_in_the_loss_alone() -> None:
    by_name = make("fsnet_mae", TASK, seed=3, options=SMALL)
    by_option = fsnet(loss="mae")
    for example in stream(6):
        by_name.learn(example)
        by_option.learn(example)
    window = stream(1)[0].window
    assert torch.equal(by_name.forecast(window).mean, by_option.forecast(window).mean)
    assert by_option.info()["loss"] != fsnet().info()["loss"]


def flat(state: object, prefix: str = "") -> dict[str, object]:
    if isinstance(state, list):
        state = {str(index): part for index, part in enumerate(state)}
    if not isinstance(state, Mapping):
        return {prefix: state}
    return {key: value for name, part in state.items() for key, value in flat(part, f"{prefix}/{name}").items()}


def assert_same_state(one: SteppingForecaster, before: Mapping[str, object], but: tuple[str, ...] = ()) -> None:
    for name, value in flat(one.state_dict()).items():
        if name not in but:
            was = before[name]
            same = torch.equal(value, was) if isinstance(value, Tensor) and isinstance(was, Tensor) else value == was
            assert same, name


def test_a_step_that_is_not_finite_changes_nothing_but_the_count() -> None:
    ours = fsnet()
    for example in stream(12):
        ours.learn(example)
    before = flat(on_device(ours.state_dict(), torch.device("cpu")))
    example = stream(1)[0]
    window = example.window.clone()
    window[0, -1, 0] = math.nan
    ours.learn(Example(window, example.target))
    assert ours.refused == 1
    assert_same_state(ours, before, but=("/counts/refused", "/counts/steps"))
    ours.learn(Example(example.window, torch.full_like(example.target, math.nan)))
    assert_same_state(ours, before, but=("/counts/refused", "/counts/steps"))


def test_missing_labels_are_left_out() -> None:
    ours = fsnet()
    example = stream(1)[0]
    target = example.target.clone()
    target[0, 1] = math.nan
    error = (target - ours.forecast(example.window).mean)[0, 0]
    ours.learn(Example(example.window, target))
    assert ours.info()["loss"] == pytest.approx(float(error.square().mean()))


def test_a_network_astray_goes_back_to_its_sane_copy() -> None:
    ours = fsnet()
    for example in stream(12):
        ours.learn(example)
    net = learner(ours).net
    net.weights[: len(net.body.weights)] *= 1e6
    net.settle()
    ours.learn(stream(1)[0])
    assert ours.restored == 1
    assert float(ours.forecast(stream(1)[0].window).mean.abs().max()) < 10


def test_a_state_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    ours, window = fsnet(), stream(1)[0].window
    before = ours.forecast(window).mean
    state = fsnet(width=4).state_dict()
    with pytest.raises(StateError, match="same task and options"):
        ours.load_state_dict(state)
    good = fsnet().state_dict()
    for name in good:
        with pytest.raises(StateError):
            ours.load_state_dict({key: part for key, part in good.items() if key != name})
    with pytest.raises(StateError):
        ours.load_state_dict(make("ogd", TASK).state_dict())
    assert torch.equal(ours.forecast(window).mean, before)


def test_the_top_is_a_multiple_of_the_width() -> None:
    with pytest.raises(OptionError, match="multiple of the width"):
        fsnet(width=3)
