"""Mixing again what experts said is what the panel did; streams that are made are the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.auto.others import MADE, compared, made, read
from benchmarks.auto.parts import PARTS, heard, mixed

from natsr import auto
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
    assert mixed(values, said, again.names, auto.LAYERS, 50) == pytest.approx(np.mean(errors[50:]), rel=1e-6)


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
