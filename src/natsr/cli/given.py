"""What was given on the command line, as values: lists, whole numbers and ranges, settings of methods."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from natsr.types import Option, OptionError

#: Options of a whole run, whatever its methods are.
WHOLE = ("calendar",)


def names(text: str, what: str) -> tuple[str, ...]:
    """A list with commas.

    >>> names("natsr, er", "methods")
    ('natsr', 'er')
    """
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise OptionError(f"{what} is {text!r}, expected one name or several with commas between them")
    return found


def whole_numbers(text: str, what: str) -> tuple[int, ...]:
    """A list with commas, in which `0-2` stands for 0, 1 and 2.

    >>> whole_numbers("1,24-26", "horizons")
    (1, 24, 25, 26)
    """
    found: list[int] = []
    for part in names(text, what):
        low, dash, high = part.partition("-")
        try:
            found += range(int(low), int(high) + 1) if dash and low else [int(part)]
        except ValueError as error:
            raise OptionError(f"{what} is {text!r}, expected whole numbers such as 1,24 or 0-2") from error
    if not found:
        raise OptionError(f"{what} is {text!r}, which holds no number; expected whole numbers such as 1,24 or 0-2")
    return tuple(dict.fromkeys(found))


def value(text: str) -> Option:
    """A number if it looks like one, true or false, or else text.

    >>> [value(text) for text in ("3", "1e-4", "true", "pi")]
    [3, 0.0001, True, 'pi']
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def settings(given: Sequence[str], method: str, methods: Sequence[str]) -> dict[str, Option]:
    """The `--set` settings that are meant for a method: those with its name, and those without any that it has.

    >>> settings(["width=30", "er.rate=0.1", "ogd.rate=0.2"], "er", ["er", "ogd", "last_value"])
    {'width': 30, 'rate': 0.1}
    """
    found: dict[str, Option] = {}
    for text in given:
        key, equals, written = text.partition("=")
        key = key.strip()
        if not equals or not key or not written.strip():
            raise OptionError(f"--set is {text!r}, expected key=value or method.key=value, such as rate=0.01")
        owner, dot, rest = key.partition(".")
        if dot and owner not in methods:
            raise OptionError(f"--set {text!r} is for {owner!r}, expected one of the methods run: {', '.join(methods)}")
        if dot and owner == method:
            found[rest] = value(written.strip())
        elif not dot and method in _takers(text, key, methods):
            found[key] = value(written.strip())
    return found


def _takers(text: str, key: str, methods: Sequence[str]) -> tuple[str, ...]:
    """The methods that have this option.

    Raises:
        OptionError: None has; says what each has.
    """
    from natsr.recipes import options_of  # torch comes with it

    told = {method: options_of(method) for method in methods}
    takers = tuple(method for method, has in told.items() if has is None or key in (*has, *WHOLE))
    if takers:
        return takers
    known = sorted({name for has in told.values() for name in has or ()})
    near = get_close_matches(key, known, n=3, cutoff=0.5)
    hint = f", did you mean {', '.join(near)}?" if near else ";"
    each = "; ".join(f"{method} has {', '.join(has or ()) or 'none'}" for method, has in told.items())
    raise OptionError(f"--set {text!r}: no method that runs has the option {key!r}{hint} {each}")
