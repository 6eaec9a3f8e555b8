"""Results on disk survive a kill at any moment, and what is there is not run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from natsr.bench.cells import NUMBERS, Cell, Result
from natsr.bench.results import appending, from_line, missing, read, shared, to_line
from natsr.types import DataError

#: The fields that scripts rely on.
CONTRACT = [
    "method",
    "dataset",
    "horizon",
    "seed",
    "protocol",
    "tuned_on",
    "options",
    "steps",
    "mae",
    "mse",
    "mase",
    "crps",
    "coverage_90",
    "width_90",
    "seconds",
    "ms_per_step",
    "peak_mib",
    "device",
    "threads",
    "version",
    "weights",
    "error",
]

CELL = Cell("er", "ETTh1", 24, seed=1, options=(("labels", "fresh"), ("rate", 1e-4)), tuned_on="validation", window=30)
DONE = Result(CELL, {"steps": 10, "mase": 1.25, "mae": 0.5, "refused": 0})
FAILED = Result(replace(CELL, seed=2), error="FloatingPointError: not finite")


def write(path: Path, *results: Result) -> None:
    with appending(path) as append:
        for result in results:
            append(result)


def test_line_holds_every_field_of_the_contract() -> None:
    fields = json.loads(to_line(DONE))
    assert [name for name in CONTRACT if name not in fields] == []
    assert fields["options"] == {"labels": "fresh", "rate": 1e-4}
    assert fields["crps"] is None and fields["error"] is None


def test_failed_line_has_no_numbers() -> None:
    fields = json.loads(to_line(FAILED))
    assert fields["error"] == "FloatingPointError: not finite"
    assert [fields[name] for name in NUMBERS] == [None] * len(NUMBERS)


@pytest.mark.parametrize("result", [DONE, FAILED, Result(replace(CELL, max_steps=7, part="validation"), {"mae": 1.0})])
def test_line_round_trip(result: Result) -> None:
    assert from_line(to_line(result)) == result


def test_weights_are_kept_and_a_line_from_before_there_were_any_is_read() -> None:
    mixed = replace(DONE, weights={"lags60": 0.625, "last_value": 0.25})
    assert json.loads(to_line(mixed))["weights"] == {"lags60": 0.625, "last_value": 0.25}
    assert from_line(to_line(mixed)) == mixed
    old = json.loads(to_line(DONE))
    assert old.pop("weights") is None
    assert from_line(json.dumps(old)) == DONE


def test_numbers_and_an_error_exclude_each_other() -> None:
    with pytest.raises(DataError, match="expected one of the two"):
        Result(CELL, {"mae": 1.0}, error="x")


def test_not_a_number_is_not_written() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_line(Result(CELL, {"mase": float("nan")}))


def test_append_and_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    write(path, DONE)
    write(path, FAILED)
    assert read(path) == [DONE, FAILED]


def test_last_line_of_a_cell_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    again = replace(FAILED, error=None, numbers={"mae": 1.0})
    write(path, FAILED, DONE, again)
    assert read(path) == [again, DONE]


@pytest.mark.parametrize("kept", [1, 40, -1])
def test_torn_last_line_is_ignored_and_then_removed(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "r.jsonl"
    write(path, DONE)
    whole = path.read_bytes()
    path.write_bytes(whole + to_line(FAILED).encode()[:kept])
    assert read(path) == [DONE]
    write(path, FAILED)
    assert path.read_bytes() == whole + to_line(FAILED).encode() + b"\n"


def test_torn_only_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"method"')
    assert read(path) == []
    write(path, DONE)
    assert read(path) == [DONE]


def test_whole_last_line_without_its_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(to_line(DONE))
    assert read(path) == [DONE]
    write(path, FAILED)
    assert read(path) == [DONE, FAILED]


def test_damage_in_the_middle_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(to_line(DONE) + "\nnonsense\n" + to_line(FAILED) + "\n")
    with pytest.raises(DataError, match="line 2.*'nonsense' is not a result"):
        read(path)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a file"):
        read(tmp_path / "gone.jsonl")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with appending(path) as append:
        append(DONE)
        with pytest.raises(DataError, match="another process"), appending(path):
            pass
    assert read(path) == [DONE]


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"), appending(tmp_path / "file" / "r.jsonl"):
        pass


def test_every_line_is_there_before_the_next_cell(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with appending(path) as append:
        append(DONE)
        assert read(path) == [DONE]


def test_missing_skips_what_is_done_and_retries_failures_only_if_asked() -> None:
    new = replace(CELL, seed=3)
    cells = [CELL, FAILED.cell, new, new]
    assert missing(cells, [DONE, FAILED]) == [new]
    assert missing(cells, [DONE, FAILED], retry_failed=True) == [FAILED.cell, new]


def test_cells_that_no_protocol_changes_share_their_results() -> None:
    measured = [
        Result(Cell("er", "ETTh1", 1, 0, "paper", tuned_on="test"), {"mase": 0.9}),
        Result(Cell("er", "ETTh1", 24, 0, "paper", tuned_on="test"), {"mase": 1.5}),
        Result(Cell("frozen", "ETTh1", 24, 0, "paper"), {"mase": 2.9}),
        Result(Cell("ogd", "ETTh1", 1, 0, "paper", options=(("rate", 1e-4),)), {"mase": 0.8}),
        Result(Cell("natsr", "ETTh1", 1, 0, "paper"), error="died"),
    ]
    wanted = [
        Cell("er", "ETTh1", 1, 0, "honest", tuned_on="validation"),
        Cell("er", "ETTh1", 24, 0, "honest"),  # another protocol is another computation here
        Cell("er", "ETTh1", 1, 1, "honest"),  # another seed
        Cell("frozen", "ETTh1", 24, 0, "honest"),
        Cell("ogd", "ETTh1", 1, 0, "honest"),  # other options
        Cell("natsr", "ETTh1", 1, 0, "honest"),  # nothing was measured
    ]
    found = shared(wanted, measured)
    assert [(result.cell, result.numbers["mase"]) for result in found] == [(wanted[0], 0.9), (wanted[3], 2.9)]


def test_a_shared_result_counts_wherever_it_was_computed() -> None:
    there = Cell("er", "ETTh1", 1, 0, "honest", device="cuda")
    (found,) = shared([replace(there, protocol="partial", device="cpu")], [Result(there, {"mase": 0.9})])
    assert (found.cell.protocol, found.cell.device, found.numbers) == ("partial", "cuda", {"mase": 0.9})


def test_a_result_with_intervals_is_shared_before_one_without() -> None:
    cell = Cell("er", "ETTh1", 1)
    both = [Result(cell, {"mase": 0.9, "crps": 0.2}), Result(replace(cell, intervals=False), {"mase": 0.9})]
    (found,) = shared([replace(cell, protocol="partial")], both)
    assert "crps" in found.numbers


def test_auto_is_the_same_where_some_labels_are_known() -> None:
    honest = Result(Cell("auto", "ETTh1", 24), {"mase": 1.3})
    whole = Result(Cell("auto", "ETTh1", 24, options=(("budget", "all"),)), {"mase": 1.2})
    wanted = [replace(result.cell, protocol="partial") for result in (honest, whole)]
    assert [result.cell for result in shared(wanted, [honest, whole])] == wanted[:1]
    assert not shared([replace(honest.cell, protocol="paper")], [honest])
