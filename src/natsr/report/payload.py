"""The numbers of a report as JSON small enough to live inside the page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natsr.report.contents import Fan, Numbers, Report, Stretch, Track, Whose
from natsr.types import OptionError, ShapeError

Array = npt.NDArray[np.float64]

#: At most so many numbers in the stretch: they take some five bytes each, and the page shall stay under 2 MB.
STRETCH_NUMBERS = 300_000
#: At most so many pieces in the track: more cannot be told apart on a screen.
TRACK_PIECES = 2_000
#: The stretch is stored in steps of about one part in 4,000 of its range, finer than a screen can show.
RESOLUTION = 4_000
SIDES = ("low_50", "high_50", "low_90", "high_90")


def payload(report: Report, methods: Sequence[str]) -> dict[str, Any]:
    """What the page's script draws.

    Args:
        report: Everything.
        methods: The methods in the order of the table, which is the order of the colours.
    """
    document: dict[str, Any] = {"methods": list(methods)}
    if report.stretch is not None and report.stretch.fans:
        document["stretch"] = _stretch(shortened(report.stretch))
    if report.track is not None:
        document["track"] = {"unit": report.unit, **_track(report.track)}
        if report.whose is not None:
            document["whose"] = _whose(report.whose, len(report.track.times))
    if report.by_step:
        H = report.task.horizon
        document["by_step"] = {
            method: rounded(_shaped(values, (H,), f"by_step[{method!r}]")) for method, values in report.by_step.items()
        }
    return document


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that can stand inside a `script` element: no text in it can end the element."""
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def rounded(values: Array, digits: int = 5) -> list[float | None]:
    """Plain numbers with so many significant digits; `None` for what is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values.tolist()]


def shortened(stretch: Stretch) -> Stretch:
    """As many columns as the page has room for, the first ones; with a single one, as many rows, the last ones."""
    rows, columns = len(stretch.times), len(stretch.columns)
    each = 1 + (1 + len(SIDES)) * len(stretch.fans)
    keep = min(columns, max(1, STRETCH_NUMBERS // (each * max(rows, 1))))
    last = min(rows, STRETCH_NUMBERS // each)
    if (keep, last) == (columns, rows):
        return stretch

    def cut(values: Numbers) -> Array:
        return np.asarray(values, dtype=np.float64)[rows - last :, :keep]

    fans = [
        Fan(fan.method, fan.step, cut(fan.mean), *(None if (v := getattr(fan, s)) is None else cut(v) for s in SIDES))
        for fan in stretch.fans
    ]
    return Stretch(stretch.times[rows - last :], stretch.columns[:keep], cut(stretch.truth), fans)


def _shaped(values: Numbers, shape: tuple[int, ...], what: str) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape:
        raise ShapeError(f"{what} has shape {array.shape}, expected {shape}")
    return array


def _track(track: Track) -> dict[str, Any]:
    pieces = len(track.times)
    if pieces > TRACK_PIECES:
        raise OptionError(f"the track has {pieces} pieces, expected at most {TRACK_PIECES}; average neighbouring ones")

    def table(name: str, curves: Mapping[str, Numbers]) -> dict[str, list[float | None]]:
        return {method: rounded(_shaped(v, (pieces,), f"{name}[{method!r}]")) for method, v in curves.items()}

    return {
        "times": list(track.times),
        "steps": [int(step) for step in _shaped(track.steps, (pieces,), "steps")],
        "weights": [int(weight) for weight in _shaped(track.weights, (pieces,), "weights")],
        "errors": table("errors", track.errors),
        "variance": table("variance", track.variance),
        "norms": table("norms", track.norms),
        "bounds": table("bounds", track.bounds),
    }


def _whose(whose: Whose, pieces: int) -> dict[str, Any]:
    """Shares over time in parts of a thousand: more cannot be told apart on a screen."""
    shares = {kind: _shaped(values, (pieces,), f"over_time[{kind!r}]") for kind, values in whose.over_time.items()}
    return {
        "method": whose.method,
        "kinds": list(shares),
        "shares": [_whole(values, 0, 3) for values in shares.values()],
    }


def _stretch(stretch: Stretch) -> dict[str, Any]:
    """The stretch in whole numbers: column by column, intervals as distances from the mean."""
    shape = (len(stretch.times), len(stretch.columns))
    truth = _shaped(stretch.truth, shape, "truth")
    steps = sorted({fan.step for fan in stretch.fans})
    methods = list(dict.fromkeys(fan.method for fan in stretch.fans))
    given = {(fan.method, fan.step) for fan in stretch.fans}
    lacking = [(method, step) for method in methods for step in steps if (method, step) not in given]
    if lacking:
        raise OptionError(f"no fan for {lacking[0]}, expected the steps {steps} for each of {', '.join(methods)}")
    scales = [_scale(truth[:, column]) for column in range(shape[1])]
    fans: dict[str, dict[int, list[dict[str, list[int | None]]]]] = {method: {} for method in methods}
    for fan in stretch.fans:
        mean = _shaped(fan.mean, shape, f"mean of {fan.method}")
        sides = {s: _shaped(v, shape, f"{s} of {fan.method}") for s in SIDES if (v := getattr(fan, s)) is not None}
        fans[fan.method][fan.step] = [
            _fan(mean[:, column], {side: ends[:, column] for side, ends in sides.items()}, *scales[column])
            for column in range(shape[1])
        ]
    return {
        "times": list(stretch.times),
        "columns": list(stretch.columns),
        "steps": steps,
        "methods": methods,
        "scales": [{"base": base, "digits": digits} for base, digits in scales],
        "truth": [_whole(truth[:, column], *scales[column]) for column in range(shape[1])],
        "fans": fans,
    }


def _scale(values: Array) -> tuple[int, int]:
    """`(base, digits)` such that `value = (base + k) / 10**digits` with a whole `k` is fine enough."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    extent = (high - low) or abs(high) or 1.0
    # No finer than a float can tell apart, however large the values.
    digits = min(
        math.ceil(math.log10(RESOLUTION / extent)), 15 - math.ceil(math.log10(max(abs(low), abs(high), extent)))
    )
    return round(_shifted(low, digits)), digits


def _shifted(value: float, digits: int) -> float:
    return value * 10.0**digits if digits >= 0 else value / 10.0**-digits


def _whole(values: Array, base: int, digits: int) -> list[int | None]:
    return [round(_shifted(value, digits)) - base if math.isfinite(value) else None for value in values.tolist()]


def _fan(mean: Array, sides: Mapping[str, Array], base: int, digits: int) -> dict[str, list[int | None]]:
    columns = {"mean": _whole(mean, base, digits)}
    for side, ends in sides.items():
        columns[side] = _whole(ends - mean, 0, digits)
    return columns
