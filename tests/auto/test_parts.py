"""Mixing again what experts said is what the panel did; streams that are made are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.auto.others import MADE, compared, made, read
from benchmarks.auto.parts import PARTS, heard, mixed
from benchmarks.auto.rules import compared as compared_rules

from natsr import auto
from natsr.aggregate import RULES
from natsr.data.series import Series
from natsr.types import Task

TASK = Task(window=8, horizon=3, channels=2, season=6)


def test_what_was_said_is_mixed_as_it_was() -> None:
    values = np.cumsum(np.random.default_rng(0).standard_normal((150, 2)), 0)
    panel, errors = auto.panel(TASK), []
    for row in range(147):
        panel.advance(values[row])
        errors.append(np.abs(panel.mean() - values[row + 1 : row + 4]).mean())
    again = auto.panel(TASK)
    said = heard(values, again, 3)
    assert mixed(values, said, again.names, auto.layers(3), 50) == pytest.approx(np.mean(errors[50:]), rel=1e-6)
    without = mixed(values, said, again.names, auto.layers(3), 50, word=False)
    assert without != pytest.approx(np.mean(errors[50:]), rel=1e-6)


def test_rules_learn_a_label_when_it_has_come() -> None:
    """One row ahead ML-Poly's error is that of a plain loop."""
    values = np.cumsum(np.random.default_rng(0).standard_normal((150, 2)), 0)
    task = Task(window=8, horizon=1, channels=2, season=6)
    found = compared_rules(values, task)
    panel = auto.panel(task)
    rule = RULES["mlpoly"](len(panel.names), (1, 2), 0.999, np.float32)
    errors = []
    for row in range(149):
        panel.advance(values[row])
        forecasts = panel.newest()
        mixture = (rule.weights * forecasts).sum(0)
        errors.append(np.abs(mixture - values[row + 1]).mean())
        rule.update(forecasts, mixture, values[row + 1 : row + 2])
    assert found["mlpoly"] == pytest.approx(np.mean(errors[50:]), rel=1e-6)
    assert set(found) == {*RULES, "auto"} and all(error < 1.5 for error in found.values())


def test_a_rule_never_sees_a_label_before_its_time() -> None:
    values = np.cumsum(np.random.default_rng(0).standard_normal((60, 2)), 0)
    changed = values.copy()
    changed[-1] += 1e3
    task = Task(window=8, horizon=3, channels=2, season=6)
    ends = [compared_rules(rows[-40:], task) for rows in (values, changed)]
    # The last row is the last label of one origin, which is one of 3 x 24 errors that are scored in each column.
    for name in ends[0]:
        assert ends[1][name] - ends[0][name] == pytest.approx(1e3 / 3 / 24, rel=0.02)


def test_every_part_is_there_and_leaves_the_last_value() -> None:
    names = auto.panel(TASK, "one").names
    for begins in PARTS.values():
        assert any(name.startswith(begins) for name in names)
        assert not names[0].startswith(begins)


@pytest.mark.parametrize("name", MADE)
def test_made_streams_are_the_same_each_time_and_none_like_another(name: str) -> None:
    first, again, other = made(name, 1), made(name, 1), made(name, 2)
    np.testing.assert_array_equal(first.values, again.values)
    assert not np.array_equal(first.values, other.values, equal_nan=True)
    assert np.isfinite(first.values).mean() > 0.8


def test_a_file_is_compared_and_what_is_no_series_is_left_out(tmp_path: Path) -> None:
    times = np.datetime64("2024-01-01", "h") + np.arange(120)
    lines = [f"{time},{np.sin(row / 3):.4f}" for row, time in enumerate(times)]
    (tmp_path / "waves.csv").write_text("\n".join(["time,x", *lines]))
    (tmp_path / "words.csv").write_text("a,b\none,two\n")
    assert read(tmp_path / "words.csv") is None
    series = read(tmp_path / "waves.csv")
    assert isinstance(series, Series)
    found = compared(series, 1, ("auto", "last_value"), {"auto": {"budget": "cheap"}})
    assert found["rows"] == 90 and found["auto"] < 0.5 * found["last_value"]
