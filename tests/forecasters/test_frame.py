from __future__ import annotations

import math

import pytest
import torch

from natsr.forecasters.frame import Anchor, Frame
from natsr.types import Example, Task

TASK = Task(window=3, horizon=2, channels=2, features=1, season=5)
LIKE = torch.zeros(1, dtype=torch.float64)


def example() -> Example:
    generator = torch.Generator().manual_seed(0)
    window = torch.randn(4, TASK.reach, TASK.inputs, generator=generator, dtype=torch.float64)
    return Example(window, torch.randn(4, 2, 2, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("anchor", ["none", "last", "output"])
def test_a_network_that_is_always_right_forecasts_the_truth(anchor: Anchor) -> None:
    frame, one = Frame(TASK, anchor=anchor), example()
    torch.testing.assert_close(frame.write(one.window, frame.teach(one, LIKE)), one.target)


def test_an_anchored_network_sees_no_level() -> None:
    frame, one = Frame(TASK, anchor="last"), example()
    higher = one.window.clone()
    higher[..., :2] += 7.0
    read = frame.read(one.window, LIKE)
    torch.testing.assert_close(read, frame.read(higher, LIKE))
    assert torch.equal(read[:, -1, :2], torch.zeros(4, 2, dtype=torch.float64))
    assert torch.equal(read[..., 2], one.window[:, -3:, 2])  # features are left as they are
    assert torch.equal(Frame(TASK).read(one.window, LIKE), one.window[:, -3:])


def test_wild_values_are_cut_and_wild_labels_unknown() -> None:
    frame, one = Frame(TASK, limit=5.0), example()
    one.window[0, -1, 0], one.target[0, 0, 0], one.target[1, 1, 1] = 1e30, 1e30, math.inf
    assert frame.read(one.window, LIKE).abs().max() == 5
    assert frame.teach(one, LIKE).isnan().sum() == 2
    wild = torch.tensor([[math.nan, math.inf, -math.inf, 1.0]])
    assert frame.write(one.window[:1], wild).flatten().tolist() == [0.0, 50.0, -50.0, 1.0]


def test_fresh_labels_only_or_all_that_is_known() -> None:
    one = example()
    fresh = torch.tensor([[True, False]]).expand(4, 2)
    masked = Example(one.window, one.target, fresh)
    assert Frame(TASK).teach(masked, LIKE).isfinite().all()
    only = Frame(TASK, labels="fresh")
    assert only.teach(masked, LIKE).view(4, 2, 2)[:, 1].isnan().all()
    assert only.teach(masked, LIKE, whole=True).isfinite().all()


def test_what_is_given_is_left_alone() -> None:
    one = example()
    before = one.window.clone(), one.target.clone()
    frame = Frame(TASK, limit=0.1, anchor="last")
    frame.write(one.window, frame.teach(one, LIKE))
    frame.read(one.window, LIKE).zero_()
    assert torch.equal(one.window, before[0]) and torch.equal(one.target, before[1])
