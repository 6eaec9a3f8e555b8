"""Where the time of a step goes: its products by stage, timed on their own, and the rest of the step."""

from __future__ import annotations

from benchmarks.speed.cases import CASES, SETTLED, examples, fast, multiplications, shaped, stepper
from benchmarks.speed.floor import STAGES, flops, runner
from benchmarks.speed.store import Row, Unit
from benchmarks.speed.timing import in_turns


def split(horizon: int, channels: int, seconds: float) -> list[Row]:
    """For each case its products' time by stage, the whole step's, and a forecast's."""
    task = shaped(horizon, channels)
    window = examples(task, 1).window
    steps = {}
    needed = {case.name: multiplications(case, task) for case in CASES}
    for case in CASES:
        forecaster = fast(case.method, task, case.options)
        steps[f"{case.name}/step"] = stepper(forecaster, task, SETTLED)
        for stage in STAGES:
            if part := [product for product in needed[case.name] if product.stage == stage]:
                steps[f"{case.name}/{stage}"] = runner(part)
    forecaster = fast("ogd", task)
    steps["forecast/step"] = lambda: forecaster.forecast(window)
    times = in_turns(steps, seconds)
    rows: list[Row] = []
    for name, time in times.items():
        case_name, stage_name = name.split("/")
        part = [product for product in needed.get(case_name, []) if stage_name in ("step", product.stage)]
        row: Row = {"case": case_name, "stage": stage_name, "horizon": horizon, "channels": channels}
        rows.append(row | {"ms": round(time.least, 4), "mflop": round(flops(part) / 1e6, 2)})
    return rows


def staged(quick: bool) -> list[Unit]:
    """What the section `stages` is made of."""
    return [Unit("H = 24, C = 7", lambda: split(24, 7, 0.05 if quick else 0.4))]
