"""The full width of ECL and Traffic: a file of their shape is read, and no method's state grows out of hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks import wide

from natsr.data import named
from natsr.data.named import DATASETS, load
from natsr.data.series import Borders
from natsr.forecasters.linear import MultivariateRLS
from natsr.types import Task


def test_a_synthetic_file_is_read_as_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(DATASETS["ECL"], rows=300, channels=5, borders=Borders(60, 75, 300))
    monkeypatch.setitem(named.DATASETS, "ECL", small)
    monkeypatch.setenv("NATSR_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    wide.write_like(small, tmp_path)
    series, borders = load("ECL")
    assert series.values.shape == (300, 5) and series.columns[-1] == "OT" and borders == small.borders
    assert series.missing == 0 and series.step_seconds == 3600


def test_least_squares_on_hundreds_of_channels_takes_the_newest_lags() -> None:
    channels = 862
    task = Task(window=60, horizon=1, channels=channels)
    forecaster = MultivariateRLS(task)
    bytes_held = sum(
        v.numel() * v.element_size() for v in forecaster.state_dict().values() if isinstance(v, torch.Tensor)
    )
    assert forecaster.lags == 1 and bytes_held < 100 * 2**20
    window = torch.randn(1, 60, channels, generator=torch.Generator().manual_seed(0))
    assert forecaster.forecast(window).mean.shape == (1, 1, channels)
    # What the paper's datasets have fits whole.
    assert MultivariateRLS(Task(window=60, horizon=24, channels=20)).lags == 60


def test_results_are_kept_in_the_order_of_the_methods(tmp_path: Path) -> None:
    row = {"dataset": "ECL", "horizon": 1, "columns": 321, "peak_mib": 1.0, "ms_per_step": 1.0, "error": None}
    wide.keep([{**row, "method": "er"}, {**row, "method": "last_value"}], tmp_path / "wide.json")
    found = json.loads((tmp_path / "wide.json").read_text(encoding="utf-8"))
    assert [row["method"] for row in found["rows"]] == ["last_value", "er"] and found["limit_mib"] == 4096
