"""Options by name: from `key=value` to the fields of a frozen dataclass, with errors that help."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from natsr.types import Option, OptionError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Chosen = TypeVar("Chosen", bound="DataclassInstance")


class Range(NamedTuple):
    """Which finite numbers make sense.

    >>> print(Range(0, 1, without=(1,)), "·", Range(1))
    at least 0 and below 1 · at least 1
    """

    low: float
    high: float = math.inf
    without: tuple[float, ...] = ()  # ends that are left out

    def allows(self, value: float) -> bool:
        """Whether the number is one of them."""
        return math.isfinite(value) and self.low <= value <= self.high and value not in self.without

    def __str__(self) -> str:
        text = f"{'above' if self.low in self.without else 'at least'} {self.low:g}"
        if self.high < math.inf:
            text += f" and {'below' if self.high in self.without else 'at most'} {self.high:g}"
        return text


#: By the name of the option.
Ranges = Mapping[str, Range]


def check_ranges(options: DataclassInstance, ranges: Ranges) -> None:
    """Refuse a number that makes no sense, before anything is made with it."""
    for field in fields(options):
        value = getattr(options, field.name)
        if field.name in ranges and not ranges[field.name].allows(value):
            raise OptionError(f"option {field.name} is {value}, expected a finite number {ranges[field.name]}")


def nearest(name: str, names: list[str]) -> str:
    """`did you mean …` for a name that is not there, the whole list where nothing is near, or that there is none."""
    if not names:
        return "there is none"
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"expected one of {', '.join(sorted(names))}"


def parsed(defaults: Chosen, given: Mapping[str, Option]) -> Chosen:
    """The defaults with what was given put in, each value checked against its field's type.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Options:
    ...     rate: float = 0.1
    >>> parsed(Options(), {"rate": "0.5"})
    Options(rate=0.5)
    >>> parsed(Options(), {"rat": 1})
    Traceback (most recent call last):
    natsr.types.OptionError: option 'rat' is not known; did you mean rate?
    """
    hints = get_type_hints(type(defaults))
    names = [field.name for field in fields(defaults)]
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in names:
            raise OptionError(f"option {name!r} is not known; {nearest(name, names)}")
        values[name] = _converted(name, value, hints[name])
    return replace(defaults, **values)


def _converted(name: str, value: Option, kind: object) -> object:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        if value not in choices:
            raise OptionError(f"option {name} is {value!r}, expected one of {', '.join(map(str, choices))}")
        return value
    if kind is str:
        return str(value)
    if kind is bool:
        return _switch(name, value)
    try:
        number = float(value)
    except ValueError:
        raise OptionError(f"option {name} is {value!r}, expected a number") from None
    if kind is int:
        if not number.is_integer():
            raise OptionError(f"option {name} is {value!r}, expected a whole number")
        return int(number)
    return number


def _switch(name: str, value: Option) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    word = str(value).lower()
    if word not in words:
        raise OptionError(f"option {name} is {value!r}, expected true or false")
    return words[word]
