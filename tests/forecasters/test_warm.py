from __future__ import annotations

import math

import torch

from natsr.forecasters.frame import Frame
from natsr.forecasters.warm import WarmUp, dropout_mask, masked_error, train
from natsr.likelihoods import Gaussian
from natsr.nets.tcn import ConeTCN
from natsr.streams import Rows, Windows
from natsr.types import Task

TASK = Task(window=8, horizon=2, channels=1)
FRAME = Frame(TASK)


def parts(rows: int = 300, noise: float = 0.0) -> tuple[Windows, Windows]:
    generator = torch.Generator().manual_seed(0)
    values = torch.sin(torch.arange(rows) / 3)[:, None] + noise * torch.randn(rows, 1, generator=generator)
    data = Rows(values, values)
    return Windows(data, TASK, 0, rows * 4 // 5), Windows(data, TASK, rows * 4 // 5, rows)


def network() -> ConeTCN:
    return ConeTCN(TASK, torch.Generator().manual_seed(0), width=8, depth=2, top=12)


def mean_loss(net: ConeTCN, part: Windows) -> float:
    """Of each known output."""
    example = part.batch(torch.arange(len(part)))
    error, known = masked_error(net.forward(example.window), FRAME.teach(example, net.weights))
    return float(Gaussian().nll(error).sum()) / known


def test_a_warm_up_learns_and_keeps_the_best_weights() -> None:
    net, (learn, judge), seen = network(), parts(), []
    before = mean_loss(net, judge)
    train(
        net, Gaussian(), WarmUp(rate=5e-3), (learn, judge), torch.Generator().manual_seed(1), FRAME,
        lambda done, of, _: seen.append((done, of)),
    )  # fmt: skip
    after = mean_loss(net, judge)
    assert after < 0.1 * before
    assert len(seen) > 6 and seen[-1][0] == seen[-1][1]


def test_a_warm_up_that_only_gets_worse_keeps_the_first_epoch() -> None:
    net, (learn, judge) = network(), parts(noise=1.0)
    plan = WarmUp(epochs=6, rate=3.0)  # far too fast: every epoch ends worse than it began, or not finite
    losses = []
    for epochs in (1, 6):
        net = network()
        plan = WarmUp(epochs=epochs, rate=3.0)
        train(net, Gaussian(), plan, (learn, judge), torch.Generator().manual_seed(1), FRAME, lambda *_: None)
        losses.append(mean_loss(net, judge))
        assert net.weights.isfinite().all()
    assert losses[1] <= losses[0]


def test_missing_labels_do_not_reach_the_weights() -> None:
    learn, judge = parts()
    learn.rows.truth[50:60] = math.nan
    net = network()
    train(net, Gaussian(), WarmUp(epochs=1), (learn, judge), torch.Generator().manual_seed(1), FRAME, lambda *_: None)
    assert net.weights.isfinite().all()


def test_a_part_with_nothing_in_it_is_survived() -> None:
    rows = Rows(torch.zeros(10, 1), torch.zeros(10, 1))
    some, nothing = Windows(rows, TASK, 0, 10), Windows(rows, TASK, 10, 10)
    net = network()
    train(net, Gaussian(), WarmUp(epochs=2), (some, nothing), torch.Generator(), FRAME, lambda *_: None)
    assert net.weights.isfinite().all()


def test_masked_error_and_dropout_mask() -> None:
    error, known = masked_error(torch.tensor([[1.0, 2.0]]), torch.tensor([[math.nan, 5.0]]))
    assert error.tolist() == [[0.0, 3.0]] and known == 1
    assert dropout_mask((2, 2), 0.0, torch.Generator()) is None
    mask = dropout_mask((100, 100), 0.1, torch.Generator().manual_seed(0))
    assert mask is not None and abs(float(mask.mean()) - 1) < 0.02
    assert {round(value, 4) for value in mask.flatten().tolist()} == {0.0, round(1 / 0.9, 4)}
