"""Networks that are measured beside `auto`'s: the step is the one of the paper, and Adam's is `auto`'s own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from benchmarks.auto.leads import (
    KINDS,
    LEADS,
    SETS,
    Cone,
    Entry,
    Kept,
    OneRow,
    Scaled,
    Stream,
    alone,
    measured,
    one_row,
)
from benchmarks.auto.parts import heard
from benchmarks.auto.scored import How, Scored, Step
from benchmarks.auto.tables import calendars, chosen, leads
from torch import nn

from natsr import auto
from natsr.bench.cells import Cell, Result
from natsr.bench.results import to_line
from natsr.data.series import Borders, Series, prepare
from natsr.experts.layouts import Waves
from natsr.experts.network import Single, Style
from natsr.experts.past import Past
from natsr.likelihoods import StudentT
from natsr.optim import NaturalGradient
from natsr.streams import Rows, Windows
from natsr.types import Task

TASK = Task(window=30, horizon=3, channels=2, season=24)
VALUES = np.cumsum(np.random.default_rng(0).standard_normal((320, 2)), 0)


@pytest.mark.parametrize("like", KINDS)
def test_with_adam_and_all_windows_it_says_what_the_network_of_auto_says(like: str) -> None:
    panel, clock = auto.panel(TASK, "one"), auto.Clock(TASK)
    theirs = heard(VALUES, panel, 3)[:, panel.names.index(like)]
    seed = list(KINDS).index(like)
    same = alone(TASK, clock, one_row(TASK, clock, OneRow(How(seed=seed), like)))
    np.testing.assert_allclose(heard(VALUES, same, 3)[:, 1], theirs, atol=1e-3)
    clock = auto.Clock(TASK)
    few = alone(TASK, clock, one_row(TASK, clock, OneRow(How(windows=5, seed=seed), like)))
    assert np.abs(heard(VALUES, few, 3)[-1, 1] - theirs[-1]).max() > 1e-3


class Noted(Scored):
    """It remembers what its last step was made on, and the weights before it."""

    def _step(self, inputs: Single, target: Single, known: npt.NDArray[np.bool_]) -> None:
        self.batch, self.before, self.spread = (inputs, target), self._weights.copy(), self.variance
        super()._step(inputs, target, known)


class Joined(nn.Module):
    """The same network; its last layer reads the inputs too."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(inputs, width), nn.Linear(width, width)
        self.end = nn.Linear(width + inputs, outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.silu(self.two(nn.functional.silu(self.one(rows))))
        found: torch.Tensor = self.end(torch.cat([hidden, rows], 1))
        return found

    def fill(self, flat: Single, inputs: int, width: int) -> None:
        """The weights of an expert."""
        outputs = self.end.out_features
        shapes = ((inputs + 1, width), (width + 1, width), (width + 1, outputs), (inputs, outputs))
        ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
        one, two, last, path = (
            torch.from_numpy(part.reshape(shape).copy())
            for part, shape in zip(np.split(flat, ends), shapes, strict=True)
        )
        with torch.no_grad():
            for layer, matrix in ((self.one, one), (self.two, two)):
                layer.weight.copy_(matrix[:-1].T)
                layer.bias.copy_(matrix[-1])
            self.end.weight.copy_(torch.cat([last[:-1], path]).T)
            self.end.bias.copy_(last[-1])


@pytest.mark.parametrize("cut", [False, True])
def test_a_step_is_that_of_the_natural_gradient(cut: bool) -> None:
    clock, width = auto.Clock(TASK), 64
    waves, taps = Waves((clock.day, clock.week), (2, 1)), tuple(range(7, -1, -1))
    inputs = len(taps) * 2 + waves.size
    step = Step(dof=4.0, rate=0.5, first=0.5, curvature=1.0, every=1)
    expert, past = Noted(2, 3, taps, waves, Style("lead", width=width), How(step)), Past(2, 400, 3)
    rows = iter(VALUES)
    while expert.longest <= cut:  # up to its first step, or the first that is longer than the theorem allows
        past.push(next(rows))
        expert.observe(past)
    model, after = Joined(inputs, width, 2), Joined(inputs, width, 2)
    model.fill(expert.before, inputs, width)
    after.fill(np.asarray(expert.arrays()["weights"], dtype=np.float32), inputs, width)
    natural = NaturalGradient(
        model, StudentT(4.0, expert.spread), rate=0.5, damping=step.beta, rule="pi", average=1.0, probes="exact"
    )
    info = natural.step(*(torch.from_numpy(part) for part in expert.batch))
    assert (info.update_norm > info.bound) == cut
    assert expert.longest == pytest.approx(info.update_norm / info.bound, rel=1e-3)
    assert expert.variance == pytest.approx(info.variance, rel=1e-4)
    for theirs, ours in zip(model.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_every_lead_is_mixed_in_and_all_that_is_mixed_in_is_a_lead() -> None:
    assert {name for more, _ in SETS.values() for name in more} == set(LEADS)
    names = auto.panel(TASK, "one").names
    assert all(name in names for _, gone in SETS.values() for name in gone)


def test_what_is_missing_is_measured_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = np.datetime64("2024-01-01", "s") + np.arange(320) * np.timedelta64(3600, "s")
    series, borders = Series("walk", times, VALUES, ("a", "b"), 3600), Borders(200, 260, 320)
    ready = prepare(series, borders)
    stream = Stream(ready, borders, ready.rows.truth[:300].double().numpy())
    monkeypatch.setattr("benchmarks.auto.leads.opened", lambda *_: stream)
    wanted, entry = ("a fifth network, NatSR", "`network_day` anew, Adam", "cone"), Entry()
    kept = Kept(tmp_path / "said")
    while measured("walk", 2, 40, kept, entry, wanted):
        pass
    assert tuple(entry["with"]) == wanted and all(0.5 < ratio < 2 for ratio in entry["with"].values())
    assert set(entry["alone"]) == {"network_day", "stable", "adam", "natsr"}
    last = np.abs(stream.values[261:299] - stream.values[260:298]).mean()
    assert entry["alone"]["natsr"] != pytest.approx(last, rel=1e-3)  # it spoke
    before = json.dumps(entry)
    del entry["with"]["cone"]
    monkeypatch.setattr("benchmarks.auto.leads.heard", None)  # nothing is recorded twice
    assert measured("walk", 2, 40, kept, entry, wanted) and not measured("walk", 2, 40, kept, entry, wanted)
    assert json.dumps(entry) == before


def test_what_has_not_been_run_is_no_number(tmp_path: Path) -> None:
    file = tmp_path / "leads.json"
    one = {"pool": {"mae": 0.2}, "with": {"cone": 0.987}, "alone": {"network_day": 0.25, "natsr": 0.3}}
    two = {"pool": {"mae": 0.4}, "with": {"cone": 0.993, "four cones": 1.004}, "alone": {"network_day": 0.5}}
    file.write_text(json.dumps({"ETTh1, H = 1, 3000 rows": one, "ETTh2, H = 1, 3000 rows": two}))
    table = leads(file)
    assert "| the pool with | mean (cells) | ETTh1, H = 1 | ETTh2, H = 1 |" in table
    assert "| cone | -1.00 % (2) | -1.30 % | -0.70 % |" in table
    assert "| four cones | +0.40 % (1) | – | +0.40 % |" in table
    assert "| `natsr` | +20.0 % (1) | +20.0 % | – |" in table
    assert leads(tmp_path / "none.json") == ""


def test_what_was_tried_stands_beside_adam(tmp_path: Path) -> None:
    file = tmp_path / "chosen.json"
    found = {"adam": {"H = 1": 0.2, "H = 24": 0.4}, "beta 1": {"H = 1": 0.19, "H = 24": 0.44}}
    file.write_text(json.dumps({"ETTh1": found}))
    table = chosen(file)
    assert "| over Adam | ETTh1 |" in table and "| beta 1 | -5.0 %, +10.0 % |" in table


def test_a_calendar_whose_seed_has_failed_has_no_mean(tmp_path: Path) -> None:
    file = tmp_path / "calendar.jsonl"
    found = {"standardised": (1.0, 3.0), "bounded": (1.0, 2.0), "none": (0.5, None)}
    results = [
        Result(Cell("natsr", "ETTh1", 24, seed, options=(("calendar", kind),)), {"mase": mase} if mase else {})
        for kind, seeds in found.items()
        for seed, mase in enumerate(seeds)
    ]
    file.write_text("".join(f"{to_line(result)}\n" for result in results))
    published = tmp_path / "published.jsonl"
    others = [Result(Cell("natsr", "ETTh1", 24, seed), {"mase": 4.0}) for seed in (0, 1)]
    others += [Result(Cell("natsr", "ETTh1", 24, 0, options=(("rate", 0.1),)), {"mase": 9.0})]
    published.write_text("".join(f"{to_line(result)}\n" for result in others))
    wanted = "4.000 (4.000) | 2.000 (3.000) | -50.0 % | 1.500 (2.000) | -62.5 % | failed | failed |"
    assert f"| ETTh1, H = 24 | {wanted}" in calendars(file, [published])


def test_other_scales_of_a_row_are_of_rows_that_have_come() -> None:
    task = Task(window=8, horizon=3, channels=2, features=6, season=12)
    reader, past = Scaled(task, Cone({}, means=(5, 9), before=(20,))), Past(2, 80, task.horizon)
    for row in VALUES[:100]:
        past.push(row)
    window, end = reader.window(past)[0].numpy(), VALUES[:100]
    assert window.shape == (12, 8)
    np.testing.assert_allclose(window[-1], [*end[-1], *end[-5:].mean(0), *end[-9:].mean(0), *end[-21]], atol=1e-5)
    rows = Rows(torch.from_numpy(VALUES).float(), torch.from_numpy(VALUES).float())
    train, _ = reader.parts(
        Windows(rows, replace(task, features=0), 0, 120), Windows(rows, replace(task, features=0), 120, 140)
    )
    np.testing.assert_allclose(train.window(99)[0].numpy(), window, atol=1e-5)
    assert len(train) == len(Windows(rows, replace(task, features=0), 0, 120))
