from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from natsr.options import Range, check_ranges, nearest, parsed
from natsr.types import Option, OptionError


@dataclass(frozen=True)
class Given:
    rate: float = 0.1
    draws: int = 8
    rule: Literal["pi", "exact"] = "pi"
    name: str = "x"
    on: bool = True


def test_values_are_converted_to_their_fields_types() -> None:
    found = parsed(Given(), {"rate": "1e-3", "draws": "4", "rule": "exact", "name": "y", "on": "no"})
    assert found == Given(0.001, 4, "exact", "y", False)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("rte", 1, "did you mean rate"),
        ("rate", "fast", "rate is 'fast', expected a number"),
        ("draws", "4.5", "expected a whole number"),
        ("rule", "both", "expected one of pi, exact"),
        ("on", "maybe", "expected true or false"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(name: str, value: Option, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parsed(Given(), {name: value})


@pytest.mark.parametrize("value", [0.0, 1.5, math.nan, math.inf])
def test_a_number_out_of_its_range_is_refused(value: float) -> None:
    check_ranges(Given(rate=1.0), {"rate": Range(0, 1, without=(0,))})
    with pytest.raises(OptionError, match="rate is .*, expected a finite number above 0 and at most 1"):
        check_ranges(Given(rate=value), {"rate": Range(0, 1, without=(0,))})


def test_where_nothing_is_near_all_names_are_shown() -> None:
    assert nearest("zzz", ["b", "a"]) == "expected one of a, b"
    assert nearest("zzz", []) == "there is none"
