"""A table says what was measured, under which protocol, and never hides a failure."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from natsr.bench.cells import Cell, Result
from natsr.bench.reported import reported
from natsr.bench.tables import Table, as_csv, as_markdown, build, ranks, shown, verdict
from natsr.types import OptionError, ProtocolName

NATSR = Cell("natsr", "ETTh1", 24, protocol="paper")


def result(cell: Cell, mase: float | None) -> Result:
    return Result(cell, error="it fell over") if mase is None else Result(cell, {"mase": mase, "coverage_90": 0.9})


def seeds(cell: Cell, *values: float | None) -> list[Result]:
    return [result(replace(cell, seed=seed), value) for seed, value in enumerate(values)]


def entry(table: Table, heading: str, dataset: str = "ETTh1", horizon: int = 24) -> str:
    column = next(column for column in table.columns if column.heading == heading)
    return shown(table.entries.get(((dataset, horizon), column)))


def test_mean_and_sample_deviation_over_seeds() -> None:
    (table,) = build(seeds(NATSR, 1.0, 1.1, 1.2))
    assert entry(table, "natsr") == "1.100 ± 0.100"
    assert "over 3 seed(s)" in table.notes[-1]


def test_single_seed_has_no_deviation() -> None:
    (table,) = build(seeds(NATSR, 1.0))
    assert entry(table, "natsr") == "1.000"


def test_failures_show_and_are_not_averaged_away() -> None:
    (table,) = build([*seeds(NATSR, 0.5, None, 0.5), *seeds(replace(NATSR, method="er"), None)])
    assert entry(table, "natsr") == "failed 1 of 3"
    assert entry(table, "er") == "failed"
    assert ranks(table, ("ETTh1", 24)) == {}


def test_what_was_not_run_is_a_dash() -> None:
    (table,) = build([*seeds(NATSR, 1.0), *seeds(replace(NATSR, method="er", horizon=1), 1.0)])
    assert entry(table, "er") == "–"
    assert table.rows == (("ETTh1", 1), ("ETTh1", 24))


def test_protocols_and_parts_have_tables_of_their_own() -> None:
    names: tuple[ProtocolName, ...] = ("honest", "paper")
    results = [found for name in names for found in seeds(replace(NATSR, protocol=name), 1.0)]
    tables = build([*results, *seeds(replace(NATSR, part="validation"), 2.0)])
    assert [(table.protocol, table.part) for table in tables] == [
        ("honest", "online"),
        ("paper", "online"),
        ("paper", "validation"),
    ]
    assert [table.title for table in tables] == [
        "MASE, protocol honest",
        "MASE, protocol paper",
        "MASE, protocol paper, validation part",
    ]
    assert [entry(table, "natsr") for table in tables] == ["1.000", "1.000", "2.000"]


def test_tuned_on_is_in_the_heading() -> None:
    (table,) = build([*seeds(NATSR, 1.0), *seeds(replace(NATSR, tuned_on="test"), 0.9)])
    assert [column.heading for column in table.columns] == ["natsr", "natsr (tuned on test)"]


def test_other_windows_and_lengths_are_other_columns() -> None:
    (table,) = build([*seeds(NATSR, 1.0), *seeds(replace(NATSR, window=30, max_steps=400), 2.0)])
    assert entry(table, "natsr (window 30, first 400 steps)") == "2.000"


def test_two_sets_of_options_on_one_row_are_two_columns() -> None:
    fast = replace(NATSR, options=(("rate", 0.1),))
    (table,) = build([*seeds(NATSR, 1.0), *seeds(fast, 3.0)])
    assert entry(table, "natsr (default options)") == "1.000"
    assert entry(table, "natsr (rate=0.1)") == "3.000"


def test_options_that_differ_by_row_share_a_column_and_are_noted() -> None:
    near, far = replace(NATSR, horizon=1, options=(("rate", 0.1),)), replace(NATSR, options=(("rate", 0.2),))
    (table,) = build([*seeds(near, 1.0), *seeds(far, 2.0)])
    assert [column.heading for column in table.columns] == ["natsr"]
    assert table.notes[0] == "natsr: H=1 rate=0.1; H=24 rate=0.2"


def test_reported_figures_have_our_names() -> None:
    theirs = reported()
    assert theirs["ETTh1", 24, "natsr"] == 0.97
    assert theirs["ETTh1", 1, "ogd"] == 0.87
    assert {method for _, _, method in theirs} == {
        "ogd", "er", "derpp", "fsnet", "fsnet_mae", "onenet", "onenet_mae", "natsr", "natsr_fast",
    }  # fmt: skip


def test_against_the_paper() -> None:
    (table,) = build(seeds(NATSR, 0.99), against_paper=True)
    assert entry(table, "natsr") == "0.990 (0.97, +0.020)"


def test_honest_figures_are_not_subtracted_from_leaking_ones() -> None:
    honest = replace(NATSR, protocol="honest")
    (table,) = build([*seeds(honest, 1.6), *seeds(replace(honest, horizon=1), 0.79)], against_paper=True)
    assert entry(table, "natsr") == "1.600 (0.97†)"
    assert entry(table, "natsr", horizon=1) == "0.790 (0.79, +0.000)"
    assert any(note.startswith("†") for note in table.notes)


@pytest.mark.parametrize(
    "cell", [replace(NATSR, max_steps=100), replace(NATSR, part="validation"), replace(NATSR, dataset="ECL7")]
)
def test_what_the_paper_did_not_measure_is_not_compared(cell: Cell) -> None:
    (table,) = build(seeds(cell, 1.0), against_paper=True)
    (only,) = table.entries.values()
    assert only.reported is None


def test_other_metrics() -> None:
    (table,) = build(seeds(NATSR, 1.0), "coverage_90")
    assert entry(table, "natsr") == "0.900"
    with pytest.raises(OptionError, match="metric is 'rmse'"):
        build(seeds(NATSR, 1.0), "rmse")
    with pytest.raises(OptionError, match="expected mase or seconds"):
        build(seeds(NATSR, 1.0), "mae", against_paper=True)


def test_markdown_marks_the_best_two_as_the_paper_does() -> None:
    figures = {"natsr": 1.0, "er": 2.0, "ogd": 3.0, "derpp": 2.00004}
    (table,) = build([found for method, x in figures.items() for found in seeds(replace(NATSR, method=method), x)])
    lines = as_markdown(table).splitlines()
    assert lines[2] == "| dataset | H | natsr | er | ogd | derpp |"
    # What looks the same shares a place.
    assert lines[4] == "| ETTh1 | 24 | **1.000** | <u>2.000</u> | 3.000 | <u>2.000</u> |"


def test_near_is_the_larger_of_a_twentieth_and_three_reported_deviations() -> None:
    # Reported for ETTm1 at H = 48: DER++ 1.81 with a deviation of 0.0708, NatSR 1.33 with 0.0287, OGD 2.19 with 0.0225.
    far = replace(NATSR, dataset="ETTm1", horizon=48)
    results = [
        *seeds(replace(far, method="derpp"), 1.81 + 0.2),
        *seeds(far, 1.33 + 0.09),
        *seeds(replace(far, method="ogd"), 2.19 - 0.3),
        *seeds(replace(far, method="er"), None),
    ]
    (table,) = build(results, against_paper=True)
    verdicts = {column.method: table.entries[row, column].verdict for row in table.rows for column in table.columns}
    assert verdicts == {"derpp": "near", "natsr": "above", "ogd": "below", "er": "above"}
    text = verdict([table], of=7)
    assert text.startswith("2 of 4 figures (50%) are") and "3 more are not measured yet" in text
    assert "Further above: natsr on ETTm1 at H = 48 (+0.090), er on ETTm1 at H = 48 (failed)" in text
    assert text.endswith("As far below: ogd on ETTm1 at H = 48 (-0.300).")


def test_scatter_and_time_stand_beside_the_papers_without_a_verdict() -> None:
    (scatter,) = build(seeds(NATSR, 0.9, 1.0, 1.1), against_paper=True, statistic="deviation")
    assert scatter.title.startswith("100 × standard deviation of MASE")
    assert entry(scatter, "natsr") == "10.000 (0.05)"
    (time,) = build([Result(NATSR, {"seconds": 60.0})], "seconds", against_paper=True)
    assert entry(time, "natsr") == "60.000 (588)"


def test_csv_is_one_line_for_each_entry() -> None:
    tables = build([*seeds(NATSR, 1.0, 1.2), *seeds(replace(NATSR, method="er"), None)], against_paper=True)
    lines = list(csv.DictReader(io.StringIO(as_csv(tables))))
    by_method = {line["method"]: line for line in lines}
    assert float(by_method["natsr"]["mean"]) == pytest.approx(1.1)
    assert float(by_method["natsr"]["difference"]) == pytest.approx(0.13)
    assert (by_method["er"]["mean"], by_method["er"]["failed"], by_method["er"]["protocol"]) == ("", "1", "paper")
