"""The page of figures is what the committed results say; the pictures can be drawn from them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.figures import draw, measure

from natsr.data import synthetic


def test_the_page_is_what_the_results_say() -> None:
    page = draw.PAGE.read_text(encoding="utf-8")
    assert page == draw.rendered(), "docs/figures.md is stale; run `make figures`"
    for name, (file, *_) in draw.PICTURES.items():
        there = (draw.ASSETS / f"{name}.svg").is_file()
        assert there == (draw.loaded(file) is not None), f"docs/assets/{name}.svg is missing; run `make figures`"


def test_what_was_not_measured_is_said_to_be_missing(tmp_path: Path) -> None:
    page = draw.rendered(tmp_path)
    assert page.count("**Missing:**") == len(draw.PICTURES) and "assets" not in page


def test_scores_of_a_student_t_fade_and_those_of_a_gaussian_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    monkeypatch.setattr(draw, "ASSETS", tmp_path / "assets")
    measure.scores()
    found = json.loads((tmp_path / "figure-scores.json").read_text(encoding="utf-8"))
    errors = np.array(found["errors"])
    np.testing.assert_allclose(found["mean"]["Gaussian"], errors, rtol=1e-3)
    # With ν = 5 and s = 1 the natural score is (ν+3) e / (ν + e²), largest at e = √5.
    np.testing.assert_allclose(found["mean"]["s = 1"], 8 * errors / (5 + errors**2), rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(found["scale"]["ν = 5"], 5 * (errors**2 - 1) / (5 + errors**2), rtol=1e-3, atol=1e-9)
    draw.save(draw.scores(found), "scores")
    assert (tmp_path / "assets" / "scores.svg").stat().st_size > 1000


def test_a_toy_example_is_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "REPEATS", 2)
    monkeypatch.setattr(measure, "TOY_WINDOW", 8)
    monkeypatch.setattr(measure, "SMALL", {"width": 4, "depth": 2, "top": 8, "epochs": 1})
    monkeypatch.setattr(draw, "ASSETS", tmp_path)
    series = synthetic.sinusoid_with_outliers(np.random.default_rng(0), rows=100, outliers=1, period=12.0)
    shown = measure.toy(series, series.events[0])
    length = len(shown["truth"])
    assert shown["event"] < length and all(
        len(shown[f"{m} {k}"]) == length for m in measure.TOYS for k in ("forecast", "norm")
    )
    assert min(shown["natsr norm"]) > 0 and min(shown["natsr scale"]) > 0 and set(shown["ogd scale"]) == {1.0}
    # The outlier is the truth at the event, as the network sees it.
    assert abs(shown["truth"][shown["event"]]) == max(map(abs, shown["truth"]))
    draw.save(draw.toy(shown, "norms"), "norms")
    found = {"repeats": 2, "outliers": shown, "regimes": shown}
    assert "2 networks of each method" in draw.about_outliers(found) and "NatSR's scale" in draw.about_regimes(found)


def test_predictions_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draw, "ASSETS", tmp_path)
    shown = {"column": "OT", "truth": [1.0, 2.0], "paper": {"natsr": [1.0, 2.0]}, "honest": {"er": [0.0, 2.0]}}
    found = {"steps": 1500, "horizon": 24, "datasets": {"ETTh1": shown, "WTH": shown}}
    draw.save(draw.predictions(found), "predictions")
    assert (tmp_path / "predictions.svg").is_file() and "1,500 steps" in draw.about_predictions(found)
