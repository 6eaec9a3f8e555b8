"""A search tries what was not tried, goes on after a kill, and knows which options were best."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from natsr.bench.cells import Cell, Result
from natsr.bench.fanout import Run, serial
from natsr.bench.tuning import Search, best, tune
from natsr.types import OptionError

CELLS = (Cell("natsr", "ETTh1", 1, part="validation"), Cell("natsr", "ETTh1", 24, part="validation"))


def valley(cell: Cell) -> Result:
    """Best at a rate of 0.03 and an average of 0.5; diverges above 0.2."""
    options = {name: float(value) for name, value in cell.options}
    if options["rate"] > 0.2:
        return Result(cell, error="FloatingPointError")
    return Result(cell, {"mase": 1 + math.log(options["rate"] / 0.03) ** 2 + (options["average"] - 0.5) ** 2})


def test_a_search_finds_the_valley_and_stops_after_its_trials() -> None:
    kept: list[Result] = []
    trials = list(tune(Search(CELLS, trials=30), serial, valley, [], kept.append))
    assert len(trials) == 30 and len(kept) == 60
    assert len({tuple(trial.options.items()) for trial in trials}) == 30
    leader = best(trials)
    assert leader is not None and 0.01 < leader.options["rate"] < 0.09
    assert leader.value == pytest.approx(min(trial.value for trial in trials if trial.value is not None))
    # What was found is in the results: there is nothing left to do.
    assert list(tune(Search(CELLS, trials=30), serial, valley, kept, kept.append)) == []


def test_a_search_goes_on_after_a_kill_in_the_middle_of_a_trial() -> None:
    kept: list[Result] = []
    list(tune(Search(CELLS, trials=3), serial, valley, [], kept.append))
    torn, ran = kept[:-1], []

    def counted(cell: Cell) -> Result:
        ran.append(cell)
        return valley(cell)

    other = Result(replace(CELLS[0], options=(("rate", 0.1), ("average", 0.5), ("dof", 5.0))), {"mase": 0.1})
    trials = list(tune(Search(CELLS, trials=4), serial, counted, [*torn, other], torn.append))
    assert len(trials) == 2 and len(ran) == 3  # what was left of the third, and the fourth
    assert ran[0] == kept[-1].cell
    assert len({result.cell.key for result in torn}) == 8


def test_several_trials_are_proposed_at_once() -> None:
    batches = []

    def place(run: Run, cells: Sequence[Cell]) -> Iterator[Result]:
        batches.append(len(cells))
        return serial(run, cells)

    trials = list(tune(Search(CELLS, trials=5), place, valley, [], lambda _result: None, at_once=3))
    assert batches == [6, 4] and len(trials) == 5


def test_all_may_fail() -> None:
    trials = list(tune(Search(CELLS[:1], 3), serial, lambda cell: Result(cell, error="no"), [], lambda _r: None))
    assert len(trials) == 3 and best(trials) is None


def test_only_the_rate_is_looked_for_where_nothing_is_averaged() -> None:
    assert set(Search((Cell("er", "ETTh1", 1),)).space) == {"rate"}
    assert set(Search((Cell("natsr_fast", "ETTh1", 1),)).space) == {"rate", "average"}


def test_what_is_looked_for_can_be_named() -> None:
    search = Search((Cell("natsr", "ETTh1", 1, options=(("average", 1),)),), over=("curvature_average", "rate"))
    assert list(search.space) == ["curvature_average", "rate"]
    (cell,) = search.trial({"curvature_average": 0.02, "rate": 0.05})
    assert dict(cell.options) == {"average": 1, "curvature_average": 0.02, "rate": 0.05}
    (trial,) = search.tried([Result(cell, {"mase": 0.9})])[0]
    assert trial.options == {"curvature_average": 0.02, "rate": 0.05} and trial.value == 0.9


@pytest.mark.parametrize("over", [("average",), ("momentum", "rate"), ("rate", "rate")])
def test_what_a_method_does_not_have_is_not_looked_for(over: tuple[str, ...]) -> None:
    with pytest.raises(OptionError, match="cannot be tuned, expected some of rate, each once"):
        Search((Cell("er", "ETTh1", 1),), over=over)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        (Cell("rls", "ETTh1", 1), "rls has no online rate to tune, expected one of"),
        (Cell("frozen", "ETTh1", 1), "frozen has no online rate"),
        (Cell("er", "ETTh1", 1, options=(("rate", 1e-3),)), "rate is both set and to be tuned"),
    ],
)
def test_what_cannot_be_tuned_is_refused(cell: Cell, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Search((cell,))


def test_without_optuna_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(OptionError, match=r"pip install 'natsr\[tune\]'"):
        next(tune(Search(CELLS), serial, valley, [], lambda _result: None))
