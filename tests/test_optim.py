"""The step against dense linear algebra, against itself written out by hand, and against wild input."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from natsr.kronecker import DampingRule
from natsr.likelihoods import DAMPING_LAWS, Gaussian, Reduction, StudentT
from natsr.optim import Information, NaturalGradient, Order
from natsr.precondition import WorstLosses
from natsr.state import on_device
from natsr.types import OptionError, ShapeError, State, StateError


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def seeded(model: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """The model with weights that are the same in every run."""
    generator = torch.Generator().manual_seed(1)
    for part in model.parameters():
        values = torch.randn(part.shape, generator=generator, dtype=torch.float64)
        part.data = (values / part[0].numel() ** 0.5).to(dtype)
    return model


def flat(model: nn.Module) -> Tensor:
    """All weights as one vector, in the order of a layer's matrix: weight transposed, then bias."""
    parts = [part.detach() for part in model.parameters()]
    return torch.cat([part.T.flatten() if part.ndim == 2 else part.flatten() for part in parts])


def tensors_of(state: State) -> list[Tensor | float | int | str | bool | None]:
    """The leaves of a state, in order."""
    found: list[Tensor | float | int | str | bool | None] = []
    for value in state.values():
        if isinstance(value, dict):
            found += tensors_of(value)
        elif not isinstance(value, list):
            found.append(value.clone() if isinstance(value, Tensor) else value)
    return found


def same(one: State, other: State) -> bool:
    pairs = list(zip(tensors_of(one), tensors_of(other), strict=True))
    return all(
        torch.equal(a, b) if isinstance(a, Tensor) and isinstance(b, Tensor) else a == b or (a != a and b != b)
        for a, b in pairs
    )


def snapshot(model: nn.Module, optimiser: NaturalGradient) -> tuple[State, State]:
    return {name: part.clone() for name, part in model.state_dict().items()}, copy.deepcopy(optimiser.state_dict())


# ---- against dense linear algebra -------------------------------------------------------------------------------


def dense_step(
    model: nn.Module, inputs: Tensor, targets: Tensor, likelihood: StudentT, damping: float
) -> tuple[Tensor, Tensor]:
    """Gradient of the summed loss, and the damped dense Fisher information, of a mean over examples."""
    parameters = list(model.parameters())
    gradient, fisher = torch.zeros(0), torch.zeros(0)
    for x, y in zip(inputs, targets, strict=True):
        output = model(x[None])[0]
        rows = []
        for one in output:
            grads = torch.autograd.grad(one, parameters, retain_graph=True)
            rows.append(torch.cat([g.T.flatten() if g.ndim == 2 else g.flatten() for g in grads]))
        jacobian = torch.stack(rows)
        own = jacobian.T @ likelihood.score(y - output.detach()) / len(inputs)
        information = likelihood.fisher * jacobian.T @ jacobian / len(inputs)
        gradient, fisher = (own, information) if not gradient.numel() else (gradient + own, fisher + information)
    return gradient, fisher + damping * torch.eye(len(fisher), dtype=fisher.dtype)


@pytest.mark.parametrize(("reduction", "factor"), [("root", 3**-0.5), ("mean", 1 / 3), ("sum", 1.0)])
@pytest.mark.parametrize("information", ["current", "stored"])
def test_one_step_is_the_dense_solve(reduction: Reduction, factor: float, information: Information) -> None:
    model, x, y = seeded(nn.Linear(4, 3)), normal(5, 4), 3 * normal(5, 3, seed=1)
    likelihood, errors = StudentT(5.0, 0.7), y - model(x).detach()
    tau = DAMPING_LAWS["paper"](0.3)(0.7)
    gradient, fisher = dense_step(model, x, y, likelihood, tau)
    update = factor * torch.linalg.solve(fisher, gradient)
    expected = flat(model) - 0.5 * update
    optimiser = NaturalGradient(
        model, likelihood, rate=0.5, damping=0.3, probes="exact", reduction=reduction, information=information
    )
    info = optimiser.step(x, y)
    assert_close(flat(model), expected, rtol=1e-10, atol=1e-10)
    assert info.loss == pytest.approx(float(likelihood.nll(errors).mean()), rel=1e-12)
    assert info.update_norm == pytest.approx(float(update.norm()), rel=1e-9)
    assert info.bound == pytest.approx(factor * likelihood.bound(3, tau))
    assert info.variance == pytest.approx(likelihood.adapted(errors, 0.1, 1e-4).variance, rel=1e-12)
    assert info.damping == pytest.approx(tau)
    assert info.refreshed and not info.refused


@pytest.mark.parametrize("rule", ["exact", "pi"])
def test_a_step_of_a_deep_net_on_one_example_solves_each_layer_densely(rule: DampingRule) -> None:
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    model = seeded(nn.Sequential(first, nn.Tanh(), last))
    x, y, likelihood, tau = normal(1, 3), normal(1, 2, seed=1), StudentT(50.0), 0.2
    gradient, fisher = dense_step(model, x, y, likelihood, 0.0)
    expected, one, start = flat(model), torch.ones(1, dtype=x.dtype), 0
    for seen, outputs in ((x[0], 4), (first(x).tanh()[0].detach(), 2)):
        a = torch.cat([seen, one])
        rows = slice(start, start + len(a) * outputs)
        damped = fisher[rows, rows] + tau * torch.eye(len(a) * outputs, dtype=a.dtype)
        if rule == "pi":  # the block is a aᵀ ⊗ G: any one of its (O, O) parts gives G
            g = fisher[rows, rows][-outputs:, -outputs:]
            pi = ((a.square().sum() / len(a)) / (g.trace() / outputs)).sqrt()
            damped = torch.kron(
                torch.outer(a, a) + pi * tau**0.5 * torch.eye(len(a), dtype=a.dtype),
                g + tau**0.5 / pi * torch.eye(outputs, dtype=a.dtype),
            )
        expected[rows] -= 0.1 * torch.linalg.solve(damped, gradient[rows])
        start = rows.stop
    optimiser = NaturalGradient(
        model, likelihood, rate=0.1, damping=tau, law="fixed", rule=rule, probes="exact", reduction="sum", clip="none"
    )
    optimiser.step(x, y)
    assert_close(flat(model), expected, rtol=1e-9, atol=1e-9)


# ---- against the method written out by hand ---------------------------------------------------------------------


def by_hand(weights: Tensor, xs: Tensor, ys: Tensor, order: Order, information: Information) -> tuple[Tensor, float]:
    """NatSR's steps on `y = W x`, with dense matrices: factors averaged at each refresh, two averages, one scale."""
    nu, beta, alpha, rate = 50.0, 0.14, 0.555, 0.1
    v, mean, spread, since = 1.0, math.nan, 0.0, 0
    m, eye = ys.shape[-1], torch.eye(weights.numel(), dtype=weights.dtype)
    a = g = average = torch.zeros(0)
    for x, y in zip(xs, ys, strict=True):
        e = y - x @ weights
        loss = float(((nu + 1) / 2 * torch.log1p(e**2 / (nu * v))).mean())
        kappa, tau = (nu + 1) / ((nu + 3) * v), 0.9 * beta / (1 + v) + 0.1 * beta / v
        gradient = -(x.T @ ((nu + 1) * e / (nu * v + e**2))).flatten() / len(x) / math.sqrt(m)
        since += 1
        if math.isnan(mean):
            due, mean, spread = True, loss, loss**2
        else:
            due = loss - mean > 2.326 * math.sqrt(spread) or since >= 100
            mean, spread = mean + 0.01 * (loss - mean), spread + 0.01 * ((loss - mean) ** 2 - spread)
        if due:
            stored = kappa if information == "stored" else 1.0
            new_a, new_g = x.T @ x / len(x), stored * torch.eye(m, dtype=x.dtype)
            a, g = (new_a, new_g) if not a.numel() else (a + alpha * (new_a - a), g + alpha * (new_g - g))
            since = 0
        damped = torch.kron(a, g) * (1.0 if information == "stored" else kappa) + tau * eye
        if order == "after":
            delta = torch.linalg.solve(damped, gradient)
            average = delta if not average.numel() else average + alpha * (delta - average)
            weights = weights - rate * average.reshape(weights.shape)
        else:
            average = gradient if not average.numel() else average + alpha * (gradient - average)
            weights = weights - rate * torch.linalg.solve(damped, average).reshape(weights.shape)
        v = max(1e-4, v + 0.1 * float((nu * v * (e**2 - v) / (nu * v + e**2)).mean()))
    return weights, v


@pytest.mark.parametrize("order", ["after", "before"])
@pytest.mark.parametrize("information", ["current", "stored"])
def test_three_hundred_steps_equal_the_method_written_out_by_hand(order: Order, information: Information) -> None:
    model = nn.Linear(4, 3, bias=False)
    seeded(model)
    xs, truth = normal(300, 5, 4), normal(4, 3, seed=1)
    ys = xs @ truth + 0.3 * normal(300, 5, 3, seed=2)
    ys[200:] += 5 * normal(300, 5, 3, seed=3)[200:]  # a new regime
    optimiser = NaturalGradient(model, rate=0.1, probes="exact", order=order, information=information, clip="none")
    weights, variance = by_hand(model.weight.detach().T.clone(), xs, ys, order, information)
    refreshed = [optimiser.step(x, y).refreshed for x, y in zip(xs, ys, strict=True)]
    assert_close(model.weight.T, weights, rtol=1e-8, atol=1e-9)
    assert optimiser.likelihood.variance == pytest.approx(variance, rel=1e-9)
    assert refreshed[0] and refreshed[200] and 3 <= sum(refreshed) < 60
    assert (optimiser.steps, optimiser.refused) == (300, 0)


def test_a_stored_kappa_makes_the_step_too_long_when_the_variance_has_fallen() -> None:
    """Why `information="current"` is the default: the same model and data, first estimate at variance 1, now 0.01."""
    norms = {}
    for information in ("current", "stored"):
        model, x = seeded(nn.Linear(2, 1)), normal(64, 2)
        chosen: Information = "current" if information == "current" else "stored"
        never = WorstLosses(quantile=1e9)  # only the first estimate
        optimiser = NaturalGradient(
            model, rate=1e-9, scale_rate=0.0, information=chosen, clip="none", damping=1e-3, refresh=never
        )
        targets = model(x).detach() + 0.05 * normal(64, 1, seed=1)
        optimiser.step(x, targets)
        optimiser.likelihood = optimiser.likelihood.with_variance(0.01)
        norms[information] = optimiser.step(x, targets).update_norm
    assert 20 < norms["stored"] / norms["current"] < 100


class Raw(nn.Module):
    """A polynomial: parameters that belong to no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.coefficients = nn.Parameter(torch.zeros(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        powers = torch.stack([torch.ones_like(x), x, x**2], dim=-1)
        return (powers * self.coefficients).sum(-1)


def test_adamw_finishing_is_torchs_adamw() -> None:
    model, other = seeded(Raw()), seeded(Raw())
    optimiser = NaturalGradient(
        model,
        Gaussian(),
        rate=0.03,
        finish="adamw",
        decay=0.1,
        fallback="identity",
        average=1.0,
        scale_rate=0.0,
        reduction="mean",
    )
    reference = torch.optim.AdamW(other.parameters(), lr=0.03, weight_decay=0.1)
    for step in range(50):
        x = normal(8, 2, seed=step)
        y = 1 + 2 * x - x**2
        optimiser.step(x, y)
        reference.zero_grad()
        (0.5 * (y - other(x)).square().mean()).backward()
        reference.step()
        assert_close(flat(model), flat(other), rtol=1e-9, atol=1e-9)


# ---- parameters outside of layers -------------------------------------------------------------------------------


@pytest.mark.parametrize("fallback", ["identity", "diagonal"])
def test_other_parameters_fall_back_as_documented(fallback: Literal["identity", "diagonal"]) -> None:
    model, x, y = seeded(Raw()), normal(6, 2), normal(6, 2, seed=1)
    likelihood, tau = StudentT(5.0, 0.7), 0.4
    powers = torch.stack([torch.ones_like(x), x, x**2], dim=-1)  # the Jacobian, (B, m, 3)
    score = likelihood.score(y - model(x).detach())
    gradient = torch.einsum("bmi,bm->i", powers, score) / 6 / math.sqrt(2)
    diagonal = likelihood.fisher * powers.square().sum((0, 1)) / 6
    expected = flat(model) - 0.1 * (gradient if fallback == "identity" else gradient / (diagonal + tau))
    optimiser = NaturalGradient(
        model, likelihood, rate=0.1, damping=tau, law="fixed", probes="exact", fallback=fallback, clip="none"
    )
    assert optimiser.layers == []
    optimiser.step(x, y)
    assert_close(flat(model), expected, rtol=1e-10, atol=1e-10)


class Mixed(nn.Module):
    """Layers of every kind that has no block, between two that have one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.conv = nn.Conv1d(3, 4, 3, padding="same")
        self.norm = nn.LayerNorm(4)
        self.cell = nn.GRU(4, 4, batch_first=True)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor, kind: Tensor) -> Tensor:
        hidden = self.norm(self.conv(x).transpose(1, 2) + self.embedding(kind)[:, None])
        found: Tensor = self.head(self.cell(hidden)[0][:, -1])
        return found


def test_a_mixed_module_with_several_inputs_learns() -> None:
    model = seeded(Mixed(), torch.float32)
    optimiser = NaturalGradient(model, rate=0.05)
    assert [layer.name for layer in optimiser.layers] == ["conv", "head"]
    assert len(optimiser.others) == 1 + 2 + 4
    x, kind = normal(32, 3, 9, dtype=torch.float32), torch.arange(32) % 5
    y = torch.stack([kind / 5.0, x[:, 0, -1]], dim=1)
    losses = [optimiser.step((x, kind), y).loss for _ in range(150)]
    assert optimiser.refused == 0
    errors = (model(x, kind) - y).detach().square().mean()
    assert float(errors) < 0.2 * float(y.var())
    assert all(math.isfinite(loss) for loss in losses)


def test_frozen_parameters_and_gradients_and_mode_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    seeded(model).eval()
    frozen = model[0].requires_grad_(False)
    before = [part.clone() for part in frozen.parameters()]
    optimiser = NaturalGradient(model, rate=0.1)
    after = flat(model)
    optimiser.step(normal(5, 3), normal(5, 2, seed=1))
    assert all(torch.equal(a, b) for a, b in zip(before, frozen.parameters(), strict=True))
    assert not torch.equal(after, flat(model))
    assert all(part.grad is None for part in model.parameters())
    assert not model.training


# ---- unknown targets and weights --------------------------------------------------------------------------------


def stepped(targets: Tensor, weights: Tensor | None = None, rows: int = 6) -> tuple[Tensor, float]:
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)))
    optimiser = NaturalGradient(model, rate=0.1, probes="exact")
    info = optimiser.step(normal(6, 3)[:rows], targets, weights)
    assert not info.refused
    return flat(model), info.variance


def test_an_example_of_which_nothing_is_known_is_as_if_it_were_not_there() -> None:
    targets = normal(6, 2, seed=1)
    masked = targets.clone()
    masked[4:] = math.nan
    for found, expected in zip(stepped(masked), stepped(targets[:4], rows=4), strict=True):
        assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_an_unknown_target_is_left_out_of_the_mean() -> None:
    model, x, y = seeded(nn.Linear(3, 2)), normal(4, 3), normal(4, 2, seed=1)
    y[0, 1] = y[2, 0] = math.nan
    likelihood, tau = StudentT(5.0), 0.3
    score = likelihood.score(y - model(x).detach()).nan_to_num()
    rows = torch.cat([x, torch.ones(4, 1, dtype=x.dtype)], dim=1)
    gradient = rows.T @ score / 6 * math.sqrt(2)  # the mean over the six known targets, times √m
    weights = torch.tensor([1.0, 2.0, 1.0, 2.0], dtype=x.dtype) / 6  # each known target counts the same
    fisher = torch.kron(torch.einsum("b,bi,bj->ij", weights, rows, rows), likelihood.fisher * torch.eye(2).double())
    damped = fisher + tau * torch.eye(8, dtype=x.dtype)
    expected = flat(model) - 0.1 * torch.linalg.solve(damped, gradient.flatten())
    optimiser = NaturalGradient(model, likelihood, rate=0.1, damping=tau, law="fixed", probes="exact", clip="none")
    optimiser.step(x, y)
    assert_close(flat(model), expected, rtol=1e-9, atol=1e-9)


def test_nothing_known_changes_nothing() -> None:
    model = seeded(nn.Linear(3, 2))
    optimiser = NaturalGradient(model)
    optimiser.step(normal(5, 3), normal(5, 2))
    before = snapshot(model, optimiser)
    info = optimiser.step(normal(5, 3), torch.full((5, 2), math.nan))
    assert math.isnan(info.loss) and info.update_norm == 0 and not info.refused and not info.refreshed
    assert all(map(same, before, snapshot(model, optimiser)))


def test_weights_count_examples() -> None:
    targets = normal(6, 2, seed=1)
    equal = stepped(targets, torch.full((6,), 3.0))
    assert_close(equal[0], stepped(targets)[0], rtol=1e-12, atol=1e-12)
    alone = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    assert_close(stepped(targets, alone)[0], stepped(targets[:4], rows=4)[0], rtol=1e-12, atol=1e-12)
    assert not torch.allclose(stepped(targets, torch.arange(1.0, 7.0))[0], equal[0])


# ---- refusal ----------------------------------------------------------------------------------------------------


def network(dtype: torch.dtype) -> nn.Module:
    return seeded(
        nn.Sequential(
            nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Tanh(), nn.Flatten(), nn.Linear(28, 6), nn.GELU(), nn.Linear(6, 3)
        ).to(dtype),
        dtype,
    )


def spoilt(name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x, y = x.clone(), y.clone()
    match name:
        case "nan input":
            x[1, 0, 3] = math.nan
        case "inf input":
            x[0, 1, 0] = -math.inf
        case "inf target":
            y[2, 1] = math.inf
        case "huge input":
            x[1] = 1e30
        case "huge everything":
            x, y = x * 1e37, y * 1e37
    return x, y


WILD = ("nan input", "inf input", "inf target")


@pytest.mark.parametrize("name", WILD)
@pytest.mark.parametrize("finish", ["sgd", "adamw"])
def test_a_refused_step_leaves_everything_bit_for_bit(name: str, finish: Literal["sgd", "adamw"]) -> None:
    model = network(torch.float32)
    # Refreshing at each step makes sure that a refusal comes after curvature and random numbers were touched, too.
    optimiser = NaturalGradient(model, rate=0.01, finish=finish, refresh=WorstLosses(every=1))
    x, y = normal(4, 2, 9, dtype=torch.float32), normal(4, 3, seed=1, dtype=torch.float32)
    for _ in range(3):
        optimiser.step(x, y)
    before = snapshot(model, optimiser)
    info = optimiser.step(*spoilt(name, x, y))
    after = snapshot(model, optimiser)
    assert info.refused == ("targets" if "target" in name else "inputs")
    assert after[1].pop("refused") == 1 and before[1].pop("refused") == 0
    assert all(map(same, before, after))


@pytest.mark.parametrize("what", ["outputs", "curvature"])
def test_what_overflows_on_the_way_is_refused_too(what: str) -> None:
    """Finite inputs, but something between them and the new weights is not."""
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    model = seeded(nn.Sequential(first, nn.ReLU(), last), torch.float32)
    optimiser = NaturalGradient(model, rate=0.01, refresh=WorstLosses(every=1))
    x, y = normal(4, 3, dtype=torch.float32), normal(4, 2, seed=1, dtype=torch.float32)
    optimiser.step(x, y)
    with torch.no_grad():
        if what == "outputs":
            last.weight.fill_(3e38)
        else:  # the outputs are fine, the outer product of the inputs is not
            first.weight.zero_()
            x *= 1e25
    before = snapshot(model, optimiser)
    info = optimiser.step(x, y)
    after = snapshot(model, optimiser)
    assert info.refused == what
    assert after[1].pop("refused") == 1 and before[1].pop("refused") == 0
    assert all(map(same, before, after))
    assert not info.refreshed and info.update_norm == 0


@pytest.mark.parametrize("finish", ["sgd", "adamw"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_stream_however_wild_makes_it_emit_anything_that_is_not_finite(
    finish: Literal["sgd", "adamw"], dtype: torch.dtype
) -> None:
    model = network(dtype).eval()
    optimiser = NaturalGradient(model, rate=0.01, finish=finish)
    names = (*WILD, "huge input", "huge everything", "fine", "fine")
    for step in range(200):
        x, y = normal(4, 2, 9, seed=step, dtype=dtype), normal(4, 3, seed=step + 1, dtype=dtype)
        optimiser.step(*spoilt(names[step % len(names)], x, y))
        assert flat(model).isfinite().all()
        assert model(x).isfinite().all()
        assert math.isfinite(optimiser.likelihood.variance)
    assert 200 * 3 // 7 <= optimiser.refused < 200
    assert optimiser.steps + optimiser.refused == 200


def test_a_stream_with_refused_steps_goes_on_as_if_they_had_not_been() -> None:
    found = []
    for wild in (False, True):
        model = network(torch.float64)
        optimiser = NaturalGradient(model, rate=0.01)
        for step in range(30):
            x, y = normal(4, 2, 9, seed=step), normal(4, 3, seed=step + 1)
            if wild:
                assert optimiser.step(*spoilt(WILD[step % 3], x, y)).refused
            optimiser.step(x, y)
        found.append(flat(model))
    assert torch.equal(*found)


# ---- the bound --------------------------------------------------------------------------------------------------


def test_clip_cuts_an_update_back_to_the_bound() -> None:
    for clip in ("bound", "none"):
        model = seeded(Raw())  # the plain gradient, which nothing holds back
        before = flat(model)
        chosen: Literal["bound", "none"] = "bound" if clip == "bound" else "none"
        optimiser = NaturalGradient(model, StudentT(5.0), rate=1.0, fallback="identity", average=1.0, clip=chosen)
        info = optimiser.step(1e3 * normal(1, 2), normal(1, 2))
        moved = float((flat(model) - before).norm())
        assert info.update_norm > 2 * info.bound
        assert moved == pytest.approx(info.bound if clip == "bound" else info.update_norm, rel=1e-9)


def test_a_gaussian_has_no_bound() -> None:
    model = seeded(nn.Linear(3, 2))
    assert NaturalGradient(model, Gaussian()).step(normal(5, 3), normal(5, 2)).bound == math.inf


# ---- life cycle -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("finish", ["sgd", "adamw"])
@pytest.mark.parametrize("probe", ["rademacher", "sampled"])
def test_a_saved_state_goes_on_bit_for_bit(
    finish: Literal["sgd", "adamw"], probe: Literal["rademacher", "sampled"]
) -> None:
    def made(model: nn.Module) -> NaturalGradient:
        return NaturalGradient(model, rate=0.01, finish=finish, probe=probe, refresh=WorstLosses(every=7))

    def run(optimiser: NaturalGradient, steps: range) -> None:
        for step in steps:
            x, y = normal(4, 2, 9, seed=step, dtype=torch.float32), normal(4, 3, seed=step + 1, dtype=torch.float32)
            assert not optimiser.step(x, y).refused

    model = network(torch.float32)
    optimiser = made(model)
    run(optimiser, range(25))
    weights, state = snapshot(model, optimiser)
    run(optimiser, range(25, 50))
    other = network(torch.float32)
    other.load_state_dict({name: part for name, part in weights.items() if isinstance(part, Tensor)})
    again = made(other)
    again.load_state_dict(state)
    assert (again.steps, again.likelihood) == (25, StudentT(50.0, again.likelihood.variance))
    run(again, range(25, 50))
    assert torch.equal(flat(model), flat(other))
    assert same(optimiser.state_dict(), again.state_dict())


def test_a_state_that_does_not_fit_is_refused() -> None:
    optimiser = NaturalGradient(seeded(nn.Linear(3, 2)))
    optimiser.step(normal(5, 3), normal(5, 2))
    state = optimiser.state_dict()
    with pytest.raises(StateError, match="'average' in the state does not fit the model"):
        NaturalGradient(nn.Linear(4, 2)).load_state_dict(state)
    with pytest.raises(StateError, match="'variance' in the state is a str, expected a float"):
        optimiser.load_state_dict({**state, "variance": "wide"})
    with pytest.raises(StateError, match="'curvature' in the state is a NoneType"):
        optimiser.load_state_dict({name: part for name, part in state.items() if name != "curvature"})


def test_the_same_seed_gives_the_same_weights_and_another_does_not() -> None:
    found = []
    for seed in (0, 0, 1):
        model = network(torch.float64)
        optimiser = NaturalGradient(model, rate=0.01, probes=1, generator=torch.Generator().manual_seed(seed))
        for step in range(5):
            optimiser.step(normal(4, 2, 9, seed=step), normal(4, 3, seed=step + 1))
        found.append(flat(model))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def chosen(name: str, value: str) -> dict[str, Any]:
    """An option that its type forbids."""
    return {name: value}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: NaturalGradient(m, rate=0.0), "rate is 0.0, expected a finite number above 0"),
        (lambda m: NaturalGradient(m, damping=math.nan), "damping is nan"),
        (lambda m: NaturalGradient(m, average=1.5), "average is 1.5, expected a finite number above 0, at most 1"),
        (lambda m: NaturalGradient(m, scale_rate=1.0), "scale_rate is 1.0, expected 0"),
        (lambda m: NaturalGradient(m, probes=0), "probes is 0, expected a positive integer or 'exact'"),
        (lambda m: NaturalGradient(m, **chosen("rule", "phi")), "rule is 'phi', expected one of exact, pi"),
        (lambda m: NaturalGradient(m, **chosen("law", "x")), "law is 'x', expected one of paper, box, fixed"),
        (lambda m: NaturalGradient(m.requires_grad_(False)), "no parameter that requires a gradient"),
    ],
)
def test_senseless_options_are_refused(make: Callable[[nn.Module], NaturalGradient], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make(nn.Linear(3, 2))


def test_wrong_shapes_are_refused_with_a_remedy() -> None:
    model = seeded(nn.Linear(3, 2))
    optimiser = NaturalGradient(model)
    before = snapshot(model, optimiser)
    with pytest.raises(ShapeError, match=r"targets have shape \(5, 3\), expected \(5, 2\)"):
        optimiser.step(normal(5, 3), normal(5, 3))
    with pytest.raises(ShapeError, match="single number"):
        optimiser.step(normal(5, 3), torch.tensor(1.0))
    with pytest.raises(ShapeError, match="expected 5 numbers, none below zero"):
        optimiser.step(normal(5, 3), normal(5, 2), torch.tensor([1.0, -1.0]))
    with pytest.raises(OptionError, match="has weight 0"):
        optimiser.step(normal(5, 3), normal(5, 2), torch.zeros(5))
    assert all(map(same, before, snapshot(model, optimiser)))


# ---- does it learn ----------------------------------------------------------------------------------------------


def test_it_learns_faster_than_plain_gradient_descent_at_its_best_rate() -> None:
    """An ill-conditioned line: features whose scales differ by a hundred."""
    scales = torch.tensor([10.0, 1.0, 0.1], dtype=torch.float64)
    x = normal(400, 8, 3) * scales
    y = x @ (torch.ones(3, dtype=torch.float64) / scales)[:, None]

    def error(learn: Callable[[nn.Module], Callable[[Tensor, Tensor], object]]) -> float:
        model = seeded(nn.Linear(3, 1))
        step = learn(model)
        for one, target in zip(x, y, strict=True):
            step(one, target)
        return float((model(x) - y).detach().square().mean())

    def plain(rate: float) -> Callable[[nn.Module], Callable[[Tensor, Tensor], object]]:
        def learn(model: nn.Module) -> Callable[[Tensor, Tensor], object]:
            optimiser = torch.optim.SGD(model.parameters(), lr=rate)

            def step(one: Tensor, target: Tensor) -> None:
                optimiser.zero_grad()
                (0.5 * (model(one) - target).square().mean()).backward()
                optimiser.step()

            return step

        return learn

    best = min(value for rate in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2) if math.isfinite(value := error(plain(rate))))
    natural = error(lambda model: NaturalGradient(model, rate=0.1, damping=1e-3).step)
    assert natural < 0.01 * best


@pytest.mark.gpu
@pytest.mark.parametrize("finish", ["sgd", "adamw"])
def test_an_optimiser_on_a_gpu_goes_on_from_a_state_on_the_cpu(finish: Literal["sgd", "adamw"]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    model = seeded(nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))).cuda()
    twin = copy.deepcopy(model)
    optimiser, again = NaturalGradient(model, finish=finish), NaturalGradient(twin, finish=finish)
    batches = [normal(2, 5, 3, seed=seed).cuda() for seed in range(6)]
    for x in batches[:3]:
        optimiser.step(x[0], x[1, :, :2])
    twin.load_state_dict(model.state_dict())
    again.load_state_dict(on_device(optimiser.state_dict(), torch.device("cpu")))
    for x in batches[3:]:
        assert optimiser.step(x[0], x[1, :, :2]).refused == again.step(x[0], x[1, :, :2]).refused == ""
    assert_close(flat(twin), flat(model))
