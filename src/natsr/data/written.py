"""How people write tables: what separates cells, which mark stands before decimals, what an epoch counts.

Pure text, without pandas, so that files and pipes are read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from natsr.types import DataError

#: `point`: 1,234.5; `comma`: 1.234,5.
Style: TypeAlias = Literal["point", "comma"]
STYLES: tuple[Style, ...] = ("point", "comma")

SEPARATORS = (",", ";", "\t", "|")
MISSING = ("", "na", "n/a", "nan", "null", "none", "?", "-", "--", "#n/a", "<na>")
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_GROUPED = {"point": r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", "comma": r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?"}
_FORMS = {
    "point": re.compile(rf"{_GROUPED['point']}|{_PLAIN.pattern}"),
    "comma": re.compile(rf"{_GROUPED['comma']}|[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?"),
}
_DATE = re.compile(r"\d{4}-\d\d?(-\d\d?)?([T ].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?|\d{4}[/.]\d\d?[/.]\d\d?( .*)?")
#: A quarter, its year and its number.
QUARTER = r"(\d{4})[ -]?[qQ]([1-4])"
_PERIOD = re.compile(rf"(?P<year>\d{{4}})(-(?P<month>\d\d?))?|{QUARTER}")
_DIGITS = re.compile(r"\d{9,19}(\.\d*)?")
#: The least and the most of an epoch (years 1973 to 5138) counted in seconds, and how often it ticks in a second.
_EPOCH = (1e8, 1e11)
_TICKS = (1, 10**3, 10**6, 10**9)


def separator(header: str) -> str:
    """What stands between the cells of a table with this first line: a comma if there is one, else another mark.

    >>> separator("time;load"), separator("a,b;c"), separator("alone")
    (';', ',', ',')
    """
    bare = re.sub(r'"[^"]*"', "", header)
    return next((mark for mark in SEPARATORS if mark in bare), ",")


def style_of(cells: Sequence[str], between: str) -> Style | None:
    """How the numbers of a column are written, if most of its cells are numbers and Python would not read them.

    Args:
        cells: Those that are not missing.
        between: What separates cells. Where it is no comma, the comma stands before decimals.

    Raises:
        DataError: They can be read in two ways.

    Example:
        >>> style_of(["1.234,5", "99"], ";"), style_of(["1,234.5", "99"], ","), style_of(["1.5"], ";")
        ('comma', 'point', None)
    """
    commas = [cell.strip() for cell in cells if "," in cell]
    told = [style for style in STYLES if commas and fits(cells, style)]
    if len(told) > 1 and between == ",":
        whole, decimal = commas[0].replace(",", ""), commas[0].replace(",", ".")
        raise DataError(
            f"{commas[0]} can be read as {whole} or as {decimal}, expected numbers with a point before decimals and "
            "nothing between thousands; write them so"
        )
    return None if not told else "comma" if "comma" in told else "point"


def fits(cells: Sequence[str], style: Style) -> bool:
    """Whether most cells are numbers in this style, and none is a number in the other one only.

    >>> fits(["1.234", "5,5", "ERR"], "comma"), fits(["1.234", "5.5"], "comma")
    (True, False)
    """
    good = [bool(_FORMS[style].fullmatch(cell.strip())) for cell in cells]
    others = (cell for cell, taken in zip(cells, good, strict=True) if not taken)
    return 2 * sum(good) > len(good) and not any(
        form.fullmatch(cell.strip()) for cell in others for form in _FORMS.values()
    )


def plain(cell: str, style: Style) -> str:
    """A number as Python reads it; whatever is no number in this style stays as it is.

    >>> plain("1.234,5", "comma"), plain("1,234.5", "point"), plain("about 7", "point")
    ('1234.5', '1234.5', 'about 7')
    """
    text = cell.strip()
    if not _FORMS[style].fullmatch(text):
        return cell
    return text.replace(",", "") if style == "point" else text.replace(".", "").replace(",", ".")


def ticks(low: float, high: float) -> int | None:
    """How often an epoch with these values ticks in a second: 1, a thousand, a million or a billion times.

    >>> ticks(1.7e9, 1.8e9), ticks(1.7e12, 1.8e12), ticks(5, 7)
    (1, 1000, None)
    """
    return next((rate for rate in _TICKS if low >= _EPOCH[0] * rate and high < _EPOCH[1] * rate), None)


def moment(text: str) -> str:
    """A cell of times as `natsr.intake` reads it: an epoch becomes ISO 8601, everything else stays as it is.

    One in nanoseconds keeps them, so that they can be refused; one with decimals, a float, is taken to the microsecond.

    >>> moment("1767225600"), moment("1767225600000"), moment("2026-01-01")
    ('2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', '2026-01-01')
    >>> moment("1767225600.1"), moment("1767225600000000001")
    ('2026-01-01T00:00:00.100000+00:00', '2026-01-01T00:00:00.000000001+00:00')
    """
    if not _DIGITS.fullmatch(text.strip()):
        return text
    number = float(text)
    rate = ticks(number, number)
    if rate is None:
        return text
    if "." in text:
        return datetime.fromtimestamp(number / rate, UTC).isoformat()
    whole, rest = divmod(int(text), rate)
    microseconds, finer = divmod(rest * 10**9 // rate, 1000)
    found = datetime.fromtimestamp(whole, UTC).replace(microsecond=microseconds)
    return found.isoformat() if not finer else f"{found:%Y-%m-%dT%H:%M:%S.%f}{finer:03d}+00:00"


def period(text: str) -> datetime | None:
    """The beginning of a month, a quarter or a year that is written as one.

    >>> period("2026-03"), period("2026Q3"), period("2026-03-31")
    (datetime.datetime(2026, 3, 1, 0, 0), datetime.datetime(2026, 7, 1, 0, 0), None)

    Raises:
        ValueError: There is no such month.
    """
    found = _PERIOD.fullmatch(text.strip())
    if found is None:
        return None
    year, quarter = found["year"] or found[4], found[5]
    return datetime(int(year), 3 * int(quarter) - 2 if quarter else int(found["month"] or 1), 1)


def is_moment(text: str) -> bool:
    """Whether a cell is a time, so that a line that begins with it is no header.

    >>> is_moment("2026-01-01 00:00"), is_moment("1.2.2026"), is_moment("1767225600"), is_moment("2026Q1")
    (True, True, True, True)
    >>> is_moment("time"), is_moment("7")
    (False, False)
    """
    return bool(_DATE.fullmatch(text.strip()) or re.fullmatch(QUARTER, text.strip())) or moment(text) != text


def check_names(names: Sequence[str], what: str) -> None:
    """Refuse a first line of a table that is a row already.

    Args:
        names: Its cells.
        what: Where they stand, for the message.

    Raises:
        DataError: A cell is a time, and another one a number.
    """
    others = [name for name in names if not is_moment(name)]
    if len(others) < len(names) and (not others or any(_FORMS["point"].fullmatch(name.strip()) for name in others)):
        raise DataError(
            f"{what} begins with {', '.join(names[:3])}, which is a row, expected the names of the columns in its "
            "first line, such as time,load; add them"
        )
