"""The streams hold what they are said to hold, and nothing that changes goes unseen."""

from __future__ import annotations

import random

import numpy as np
import torch

from natsr.trials import TASK, contents, copied, differing, held, luck, shocked, stream, wave, with_gaps
from natsr.types import Example


def test_shocks_are_in_what_is_seen_and_in_what_is_learned() -> None:
    rows = shocked(150, 40)
    calm = wave(len(rows.truth))
    changed = (rows.truth != calm.truth).nonzero().tolist()
    assert changed == [[150, 0], [190, 1], [230, 0]]
    wild = torch.tensor([1e6, -1e6, 1e30])
    for values in (rows.truth, rows.inputs):
        assert torch.equal(values[[150, 190, 230], [0, 1, 0]], wild)


def test_gaps_are_unknown_to_the_learner_and_filled_from_the_past() -> None:
    rows, calm = with_gaps(wave(200), 50, 30), wave(200)
    missing = rows.truth.isnan()
    assert bool(missing[50:80].all()) and not bool(missing[:50].any() | missing[110:].any())
    assert int(missing[80:110].sum()) == 20  # every third of 60 values
    assert bool(rows.inputs.isfinite().all())
    assert torch.equal(rows.inputs[50:80, : TASK.channels], calm.inputs[49:50, : TASK.channels].expand(30, -1))
    assert torch.equal(rows.inputs[:, TASK.channels :], calm.inputs[:, TASK.channels :])
    known = ~missing
    assert torch.equal(rows.inputs[:, : TASK.channels][known], calm.truth[known])


def test_partial_labels_come_with_marks() -> None:
    fresh = [step.matured.fresh for step in stream(wave(110), "partial") if step.matured is not None]
    assert fresh and all(mask is not None and bool(mask.any()) for mask in fresh)


def test_a_single_bit_is_seen() -> None:
    state = {"weights": torch.tensor([0.0, torch.nan]), "counts": [1, 2], "rate": 0.1}
    before = contents(state)
    assert differing(before, contents(state)) == []
    state["weights"] = torch.tensor([-0.0, torch.nan])
    assert differing(before, contents(state)) == ["/weights"]
    state["counts"] = [1, 2, 3]
    assert differing(before, contents(state)) == ["/counts/2", "/weights"]
    assert differing(contents(torch.zeros(4)), contents(torch.zeros(2, 2))) == [""]


def test_a_copy_shares_nothing() -> None:
    example = Example(torch.zeros(1, 2, 3), torch.zeros(1, 1, 3), torch.ones(1, 1, dtype=torch.bool), torch.arange(1))
    other = copied(example)
    assert differing(contents(example._asdict()), contents(other._asdict())) == []
    memories = {part.data_ptr() for part in (*example, *other) if part is not None}
    assert len(memories) == 8


def test_every_global_random_state_is_watched() -> None:
    numpy, python = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        seen = {luck(), luck()}
        torch.rand(())
        seen.add(luck())
        np.random.random()
        seen.add(luck())
        random.random()
        seen.add(luck())
    np.random.set_state(numpy)
    random.setstate(python)
    assert len(seen) == 4


def test_memory_is_counted_once_and_code_is_not() -> None:
    tensor = torch.zeros(1000)
    assert held([tensor, tensor]) - held([tensor]) < 100
    assert held([tensor, tensor.view(10, 100)]) - held([tensor]) < 1000
    assert held([test_a_single_bit_is_seen, torch]) < 200
