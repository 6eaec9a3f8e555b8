from __future__ import annotations

import pytest
import torch

from natsr.forecasters.finish import AdamW, Sgd
from natsr.types import StateError


def test_sgd_goes_against_the_direction() -> None:
    weights = torch.tensor([1.0, 2.0])
    Sgd(0.125).step(weights, torch.tensor([8.0, -8.0]))
    assert weights.tolist() == [0.0, 3.0]
    with pytest.raises(StateError):
        Sgd(0.1).load_state_dict({"step": 1})


def test_adamw_is_the_librarys_on_the_vector_itself() -> None:
    ours, theirs = torch.ones(3), torch.nn.Parameter(torch.ones(3))
    finish, optimizer = AdamW(0.01), torch.optim.AdamW([theirs], lr=0.01)
    for step in range(5):
        direction = torch.tensor([1.0, -2.0, 0.5]) * (step + 1)
        finish.step(ours, direction)
        theirs.grad = direction.clone()
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach())


def test_a_restored_adamw_goes_on_alike() -> None:
    one, finish = torch.ones(3), AdamW(0.01)
    for _ in range(4):
        finish.step(one, torch.tensor([1.0, -2.0, 0.5]))
    twin, other = AdamW(0.01), one.clone()
    twin.load_state_dict(finish.state_dict())
    assert set(twin.state_dict()) == set(finish.state_dict())
    for _ in range(4):
        finish.step(one, torch.tensor([0.3, 0.1, 0.2]))
        twin.step(other, torch.tensor([0.3, 0.1, 0.2]))
    assert torch.equal(one, other)


def test_after_forgetting_a_step_is_the_first() -> None:
    weights, finish = torch.ones(2), AdamW(0.01)
    finish.step(weights, torch.tensor([1e12, -1e12]))
    finish.forget()
    assert finish.state_dict() == {}
    fresh, other = AdamW(0.01), weights.clone()
    for direction in (torch.tensor([1.0, 2.0]), torch.tensor([-3.0, 0.5])):
        finish.step(weights, direction)
        fresh.step(other, direction)
    assert torch.equal(weights, other)


def test_what_is_loaded_is_a_copy_and_is_adamws() -> None:
    finish, weights = AdamW(0.1), torch.zeros(1)
    finish.step(weights, torch.ones(1))
    state, twin = finish.state_dict(), AdamW(0.1)
    twin.load_state_dict(state)
    for part in (state["exp_avg"], twin.state_dict()["exp_avg"]):
        assert isinstance(part, torch.Tensor)
        part.fill_(9.0)
    assert twin.state_dict() == finish.state_dict()
    with pytest.raises(StateError, match="has momentum, expected the tensors exp_avg, exp_avg_sq, step"):
        twin.load_state_dict({"momentum": 1.0})


def test_the_rate_can_change_with_the_history_kept() -> None:
    weights, finish = torch.zeros(1), AdamW(0.1, decay=0.0)
    finish.step(weights, torch.ones(1))
    finish.set_rate(0.0)
    before = weights.clone()
    finish.step(weights, torch.ones(1))
    assert torch.equal(weights, before)
