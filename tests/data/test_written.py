"""Text of tables: what separates cells, how numbers are written, what an epoch counts."""

from __future__ import annotations

import pytest

from natsr.data.written import check_names, fits, is_moment, moment, plain, separator, style_of
from natsr.types import DataError


def test_a_mark_inside_quotes_separates_nothing() -> None:
    assert separator('time;"load, total"') == ";"
    assert separator("time\tload") == "\t" and separator("time|load") == "|"


@pytest.mark.parametrize(
    ("cells", "between", "style"),
    [
        (["1,5", "2"], ";", "comma"),
        (["1,5", "2"], ",", "comma"),
        (["1.234,5"], ",", "comma"),
        (["1,234", "5,678"], ";", "comma"),
        (["1,234,567"], ",", "point"),
        (["1,234.5", "7"], ",", "point"),
        (["Berlin, Mitte", "Bonn"], ",", None),
        (["1.5", "2"], ";", None),
        ([], ";", None),
    ],
)
def test_how_numbers_are_written(cells: list[str], between: str, style: str | None) -> None:
    assert style_of(cells, between) == style


def test_two_ways_to_read_a_number() -> None:
    with pytest.raises(DataError, match="1,234 can be read as 1234 or as 1.234"):
        style_of(["1,234", "5,678"], ",")


def test_a_number_in_the_other_form_counts_against_one() -> None:
    assert fits(["1.234", "7"], "comma") and not fits(["1.234", "0.5"], "comma")
    assert plain("0.500", "comma") == "0.500", "no thousands begin with a zero"


def test_an_epoch_keeps_what_is_finer_than_a_second() -> None:
    assert moment("1767225600.5").startswith("2026-01-01T00:00:00.5")
    assert moment("1767225600500").startswith("2026-01-01T00:00:00.5")
    assert moment("1767225600000000000") == "2026-01-01T00:00:00+00:00"
    assert moment("12") == "12"


def test_a_header_is_no_row() -> None:
    check_names(["time", "2024"], "it")
    check_names(["2024-01-01", "name"], "it")  # odd, but no number beside it
    with pytest.raises(DataError, match="it begins with 2024-01-01, 5, which is a row"):
        check_names(["2024-01-01", "5"], "it")
    assert is_moment("31.1.2026 15:00") and not is_moment("5.5")
