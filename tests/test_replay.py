from __future__ import annotations

import pytest
import torch

from natsr.replay import Reservoir
from natsr.types import OptionError, StateError


def test_every_example_is_kept_equally_often() -> None:
    generator, kept = torch.Generator().manual_seed(0), torch.zeros(20)
    for _ in range(2000):
        memory = Reservoir(5, generator)
        for value in range(20):
            memory.add(torch.tensor([float(value)]))
        kept[memory.draw(5)[0].long()] += 1
    # Each is kept with probability 1/4: 500 times of 2000, give or take four standard deviations.
    assert (kept - 500).abs().max() < 4 * (2000 * 0.25 * 0.75) ** 0.5


def test_draws_are_different_examples_and_no_more_than_there_are() -> None:
    memory = Reservoir(500, torch.Generator().manual_seed(0))
    memory.add(torch.arange(6.0), torch.arange(6.0)[:, None])
    first, second = memory.draw(8)
    assert sorted(first.tolist()) == [0, 1, 2, 3, 4, 5]
    assert torch.equal(first, second[:, 0])
    assert len(set(memory.draw(4)[0].tolist())) == 4


def test_what_is_kept_is_a_copy() -> None:
    memory, value = Reservoir(3, torch.Generator().manual_seed(0)), torch.zeros(1)
    memory.add(value)
    value += 1
    assert memory.draw(1)[0].item() == 0


def test_a_restored_memory_goes_on_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    memory = Reservoir(4, generator)
    memory.add(torch.arange(9.0))
    twin_generator = torch.Generator().manual_seed(5)
    twin = Reservoir(4, twin_generator)
    twin.load_state_dict(memory.state_dict())
    twin_generator.set_state(generator.get_state())
    for value in range(50):
        memory.add(torch.tensor([float(value)]))
        twin.add(torch.tensor([float(value)]))
        assert torch.equal(memory.draw(2)[0], twin.draw(2)[0])


def test_the_state_of_a_memory_of_another_size_is_refused() -> None:
    """Loaded into a larger memory, the places that are not filled would be drawn as examples of zeros."""
    small, large = (Reservoir(size, torch.Generator().manual_seed(0)) for size in (3, 5))
    for memory in (small, large):
        memory.add(torch.arange(9.0))
    before = large.draw(5)[0].sort().values
    with pytest.raises(StateError, match="3 examples of 9 seen, expected 5 for a memory of 5"):
        large.load_state_dict(small.state_dict())
    with pytest.raises(StateError, match="holds no examples"):
        large.load_state_dict({})
    assert torch.equal(large.draw(5)[0].sort().values, before)


def test_a_memory_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="expected at least 1"):
        Reservoir(0, torch.Generator())
