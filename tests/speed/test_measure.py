"""Times, means and what is kept of a run."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from benchmarks.speed.cases import CASES, contestants, counted
from benchmarks.speed.steps import long_run, with_means
from benchmarks.speed.store import Row, Run, Unit, read
from benchmarks.speed.timing import in_turns

from natsr.types import Task


def test_things_take_turns_and_the_least_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    order = list[str]()
    now = 0.0
    lasts = {"short": itertools.cycle([0.5, 0.2, 0.9]), "long": itertools.cycle([3.0, 2.0])}

    def step(name: str) -> None:
        nonlocal now
        now += next(lasts[name])
        order.append(name)

    monkeypatch.setattr("time.process_time", lambda: now)
    found = in_turns({"short": lambda: step("short"), "long": lambda: step("long")}, seconds=1.0)
    assert found["short"].least == pytest.approx(200) and found["long"].least == pytest.approx(2000)
    assert order[:4] == ["short", "long", "short", "long"]
    assert found["long"].calls == 2 and found["short"].calls > 2  # the long one has had its share


def row(case: str, ms: float) -> Row:
    times: Row = {"fast_ms": ms, "textbook_ms": 10 * ms, "floor_ms": ms / 2}
    return {"case": case, "horizon": 24, "channels": 7, **times, "mflop": 100.0, "mib": 10.0}


STREAM: Row = {"horizon": 24, "channels": 7, "steps": 100, "refreshes": 10, "inversions": 20}


def test_the_long_run_mean_has_every_kind_of_step_as_often_as_it_comes() -> None:
    rows = {case: row(case, ms) for case, ms in (("natsr plain", 2.0), ("natsr refresh", 12.0))}
    mean = long_run(rows, STREAM)  # without an inverting step, the others are plain
    assert mean["fast_ms"] == pytest.approx(3.0) and mean["textbook_ms"] == mean["every_ms"] == pytest.approx(30.0)
    rows["natsr inverting"] = row("natsr inverting", 4.0)
    mean = long_run(rows, STREAM)
    assert mean["fast_ms"] == pytest.approx(0.7 * 2 + 0.2 * 4 + 0.1 * 12) and mean["mflop"] == pytest.approx(100.0)
    assert mean["every_ms"] == pytest.approx(0.9 * 40 + 0.1 * 120)


def test_means_stand_after_their_refreshes() -> None:
    rows = [row("ogd", 1.0), row("natsr plain", 2.0), row("natsr refresh", 12.0)]
    found = [str(row["case"]) for row in with_means(rows, [STREAM])]
    assert found == ["ogd", "natsr plain", "natsr refresh", "natsr mean"]
    assert with_means(rows, []) == rows


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.speed.store.describe", lambda: {"cpu": "Some CPU"})
    measured: list[str] = []

    def unit(name: str, fails: bool = False) -> Unit:
        def measure() -> list[Row]:
            if fails:
                raise KeyboardInterrupt
            measured.append(name)
            return [{"case": name}]

        return Unit(name, measure)

    results, partial = tmp_path / "speed.json", tmp_path / "out" / "partial.json"
    run = Run(quick=True, results=results, partial=partial)
    with pytest.raises(KeyboardInterrupt):
        run.section("steps", [unit("one"), unit("two", fails=True)], lambda _: None)
    assert not results.exists()
    rows = run.section("steps", [unit("one"), unit("two")], lambda _: None)
    assert measured == ["one", "two"] and rows == [{"case": "one"}, {"case": "two"}]
    assert not results.exists() and partial.exists()
    run.finished()
    assert not partial.exists()
    assert read(results)["steps"].rows == rows and read(results)["steps"].quick
    assert read(results)["steps"].machine == {"cpu": "Some CPU"}
    later = Run(results=results, partial=partial)
    later.section("growth", [unit("three")], lambda _: None)
    later.finished()
    assert set(read(results)) == {"steps", "growth"}


def test_a_partial_look_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.speed.store.describe", lambda: {"cpu": "Some CPU"})
    run = Run(results=None, partial=tmp_path / "partial.json")
    assert run.section("steps", [Unit("one", lambda: [{"case": "ogd"}])], lambda _: None) == [{"case": "ogd"}]
    assert list(tmp_path.iterdir()) == []


def test_every_case_has_a_step_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.speed import cases

    monkeypatch.setattr(cases, "SETTLED", 2)
    monkeypatch.setattr(cases, "MEMORY", 20)
    task = Task(window=8, horizon=2, channels=1, features=1)
    replay = tuple(case for case in CASES if case.kind == "er")
    found = contestants(task, replay)
    assert set(found) - {"er/torch"} == {f"er/{form}" for form in ("fast", "textbook", "floor")}
    for step in found.values():
        step()
    mflop, mib = (counted(replay[0], task)[name] for name in ("mflop", "mib"))
    assert isinstance(mflop, float) and isinstance(mib, float) and mflop > 1 and mib > 1
