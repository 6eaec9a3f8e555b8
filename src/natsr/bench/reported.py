"""The figures of the paper's tables, as data that comes with the package."""

from __future__ import annotations

import csv
import io
from importlib import resources
from typing import TypeAlias

#: Our names of the methods in the paper's tables.
REPORTED_AS = {"fsnet_mse": "fsnet", "onenet_mse": "onenet", "natsr_stable": "natsr"}

#: By dataset, horizon and our name of the method.
Reported: TypeAlias = dict[tuple[str, int, str], float]
#: By dataset and the name of a setting.
OfSettings: TypeAlias = dict[tuple[str, str], float]

#: The settings of the ablation by (dynamic scale, replay).
ABLATION = {
    ("yes", "yes"): "dynamic scale, replay",
    ("yes", "no"): "no replay",
    ("no", "yes"): "no dynamic scale",
    ("no", "no"): "neither",
}
#: What the paper calls its hyper-parameters, as the grid's groups do.
GROUPS = {"alpha_ema": "α", "tau": "τ", "replay_samples": "replayed", "nu": "ν"}


def _lines(name: str) -> list[dict[str, str]]:
    text = resources.files("natsr.bench").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def _figures(metric: str) -> Reported:
    return {
        (line["dataset"], int(line["horizon"]), REPORTED_AS.get(line["method"], line["method"])): float(line["value"])
        for line in _lines("reported.csv")
        if line["metric"] == metric
    }


def reported() -> Reported:
    """The MASE in the paper's complete table, means of three runs."""
    return _figures("MASE")


def deviations() -> Reported:
    """The standard deviations of the MASE over those three runs; not for every method.

    >>> deviations()["ETTh1", 24, "natsr"]
    0.0005
    """
    return {key: value / 100 for key, value in _figures("MASE_std_x100").items()}


def seconds() -> Reported:
    """The time of the whole online part at H = 24, on one V100."""
    return _figures("seconds")


def ablation() -> OfSettings:
    """The MASE of NatSR at H = 24 with parts left out.

    >>> ablation()["ETTh1", "no replay"]
    1.1
    """
    return {
        (line["dataset"], ABLATION[line["dynamic_scale"], line["replay"]]): float(line["MASE"])
        for line in _lines("reported_ablation.csv")
    }


def sensitivity() -> OfSettings:
    """By how much the MASE of NatSR at H = 24 changes with one hyper-parameter; infinite where it diverged.

    >>> sensitivity()["WTH", "τ = 1.5"]
    0.093
    """
    return {
        (line["dataset"], f"{GROUPS[line['hyperparameter']]} = {line['value']}"): float(line["delta_MASE"])
        for line in _lines("reported_sensitivity.csv")
    }
