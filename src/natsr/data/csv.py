"""Any CSV file with a time column becomes a series; with `natsr.data.times` the only module here that needs pandas.

Rows in messages are counted from 1, the first row after the header.
"""

from __future__ import annotations

import gzip
import re
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from natsr.data.calendar import CalendarKind, Floats, Times
from natsr.data.grids import Even, grid_between
from natsr.data.series import Repeated, Series, check_repeated, unknown
from natsr.data.ticks import PER_SECOND, times_of, unit_of
from natsr.data.times import cell, each, find_times, in_order, is_number, listed
from natsr.data.written import MISSING, Style, check_names, fits, plain, separator, style_of
from natsr.types import DataError, OptionError

Targets: TypeAlias = Sequence[str] | Literal["all"] | None

_MISSING = [form for name in MISSING for form in {name, name.upper(), name.capitalize(), name.replace("nan", "NaN")}]
_COUNTER_NAME = re.compile(r"no\.?|id|index|row|unnamed: \d+|#|")
#: A grid of more than this many times the file's rows is not filled in: the step is then not what the file is about.
_LARGEST_GRID = 10
_HEAD = 65536  # bytes that tell how a file is written


def read_csv(
    path: str | Path, time: str | None = None, targets: Targets = None, repeated: Repeated = "refuse"
) -> Series:
    """Read a table with one row for each moment.

    The time column is the one named, else the first column of dates (with a column `time` or `hour` beside it, where
    dates come again), else the columns `year`, `month`, `day`, `hour`, … together, else an epoch in seconds or finer in
    a column named like a time. Missing rows of a regular grid are put back as missing values. Cells are separated by
    commas, semicolons, tabs or bars; decimal commas are read where they can be told from marks between thousands. What
    was decided is said in `Series.notes`. Times are kept to the second or, where rows come more often, down to a
    microsecond; `Series.calendar` is then `bounded`, for few of such files see a whole hour.

    Args:
        path: The file; packed ones (`.gz`) are unpacked.
        time: Name of the time column.
        targets: Names of the columns to keep; every column of numbers unless said otherwise.
        repeated: What becomes of rows that have the same time: they are refused, or the first value of each column
            counts, the last one, or their mean. Unless they are refused, rows may also stand in any order.

    Raises:
        DataError: The file cannot be used; the message says what was got, what was expected and what to do.
        OptionError: A named column does not exist, or `repeated` is none of these.
    """
    check_repeated(repeated)
    path = Path(path)
    notes: list[str] = []
    table = _once(_read_table(path, notes), notes)
    found, used = find_times(table, time, notes)
    if len(found) > 1 and (np.diff(found) < np.timedelta64(0, "us")).all():
        table, found = table.iloc[::-1].reset_index(drop=True), found[::-1]
        notes.append("the newest row came first; the order was turned round")
    times = in_order(found, table, used) if repeated == "refuse" else each(found, table, used)
    if targets is None or targets == "all":
        values = _cleaned(_numbers(table, _number_columns(table, used, notes)), notes)
    else:
        values = _cleaned(_numbers(table, _named_columns(table, used, targets)), notes, named=True)
    if values.shape[1] == 0:
        raise DataError(
            f"{path.name} has no column of numbers, expected at least one among {listed(table)}{_first(table, used)}"
        )
    columns = tuple(str(column) for column in values.columns)
    if repeated != "refuse":
        times, values = _together(times, values, repeated, notes)
    step, regular, times, cells = _on_grid(times, values.to_numpy(np.float64), notes)
    calendar: CalendarKind = "standardised" if unit_of(times) == "s" else "bounded"
    return Series(path.name.split(".")[0], times, cells, columns, step, regular, calendar, tuple(notes))


def _together(times: Times, values: pd.DataFrame, repeated: Repeated, notes: list[str]) -> tuple[Times, pd.DataFrame]:
    """One row for each time, in order; values that are missing do not count."""
    back = int(np.count_nonzero(np.diff(times) < np.timedelta64(0, "s")))
    if back:
        notes.append(f"{back} row(s) came after one with a later time; rows were put in order")
    distinct, places = np.unique(times, return_inverse=True)
    if len(distinct) == len(times):
        return distinct, values.iloc[np.argsort(times)]
    notes.append(f"{len(times) - len(distinct):,} row(s) had the time of another; {repeated} of each column was taken")
    rows = values.groupby(places)
    if repeated == "mean":
        return distinct, rows.mean()
    return distinct, rows.first() if repeated == "first" else rows.last()


def read_matrix(path: str | Path, start: str, step_seconds: int) -> Series:
    """Read numbers without header or times, as the `.txt.gz` files of the LSTNet benchmark are.

    Args:
        path: The file, comma-separated.
        start: The time to give the first row; such files have none of their own.
        step_seconds: Seconds between rows.
    """
    path = Path(path)
    notes: list[str] = []
    table = _read_table(path, notes, header=None)
    table.columns = pd.Index([str(number) for number in range(table.shape[1])])
    values = _numbers(table, list(table.columns)).to_numpy(np.float64)
    times = np.datetime64(start, "s") + np.arange(len(values)) * np.timedelta64(step_seconds, "s")
    notes.append(f"the file has no times; its first row was given {start}")
    names = tuple(map(str, table.columns))
    return Series(path.name.split(".")[0], times, values, names, step_seconds, notes=tuple(notes))


class _Form(NamedTuple):
    """How a file is written: its encoding, remarks before its header, and what separates cells."""

    encoding: str = "utf-8"
    remarks: int = 0
    between: str = ","


def _read_table(path: Path, notes: list[str], header: Literal["infer"] | None = "infer") -> pd.DataFrame:
    """The file as it is, after the mistakes that can be made with a path."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, expected a CSV file; name a file in it")
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a CSV file; {_nearest_files(path)}")
    try:
        form = _form(path)
        try:
            table = _parsed(path, form, header)
        except UnicodeDecodeError:
            raw = _head(path)
            if b"\0" in raw or sum(byte > 127 for byte in raw) > len(raw) // 3:
                raise  # no text at all
            form = form._replace(encoding="cp1252")
            table = _parsed(path, form, header)
            notes.append("the file is not UTF-8; it was read as Windows-1252")
        if header is not None:
            check_names([str(name) for name in table.columns], path.name)
            table = _as_numbers(table, path, form, notes)
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty, expected a header and rows; check how it was written") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError, OSError, EOFError) as error:
        said = " ".join(str(error).split())
        raise DataError(
            f"{path} cannot be read as a CSV file ({said}); expected UTF-8 text, the names of the columns in the first "
            "line, and as many cells in each row as there are names; save it again as CSV"
        ) from error
    if len(table) < 2:
        raise DataError(f"{path} has {len(table)} rows after its header, expected at least 2; use a longer file")
    table.columns = pd.Index([str(column).strip() for column in table.columns])
    return table


def _head(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        return bytes(file.read(_HEAD))


def _form(path: Path) -> _Form:
    """What can be told from the file's bytes; of a packed one that is not `.gz` pandas knows more than we do."""
    if path.suffix not in (".csv", ".txt", ".tsv", ".gz"):
        return _Form()
    raw = _head(path)
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    lines = raw.decode(encoding, "replace").lstrip("\ufeff").splitlines()
    names = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    between = separator(names)
    cells = names.count(between)
    remarks = next((n for n, line in enumerate(lines) if not line.startswith("#") or line.count(between) == cells), 0)
    return _Form(encoding, remarks, between)


def _parsed(path: Path, form: _Form, header: Literal["infer"] | None, dtype: type[str] | None = None) -> pd.DataFrame:
    with warnings.catch_warnings():
        # Rows with more cells than the header would otherwise lose their last ones.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return pd.read_csv(
            path,
            sep=form.between,
            header=header,
            skiprows=form.remarks,
            encoding=form.encoding,
            dtype=dtype,
            na_values=_MISSING,
            keep_default_na=False,
            skipinitialspace=True,
            low_memory=False,
            index_col=False,
        )


def _as_numbers(table: pd.DataFrame, path: Path, form: _Form, notes: list[str]) -> pd.DataFrame:
    """The table with its numbers as Python writes them, where they had decimal commas or marks between thousands."""
    styles: dict[str, Style] = {}
    for name in (str(name) for name in table.columns if not is_number(table, str(name))):
        try:
            style = style_of([str(cell) for cell in table[name].dropna()], form.between)
        except DataError as error:
            raise DataError(f"column {name!r}: {error}") from None
        styles |= {name: style} if style else {}
    if not styles:
        return table
    if "comma" in styles.values():
        notes.append(f"numbers have decimal commas ({', '.join(styles)})")
        # A point then stands between thousands, also in columns where pandas took it for a decimal one.
        texts = _parsed(path, form, "infer", str)
        styles |= {
            str(name): "comma" for name in texts.columns if fits([str(cell) for cell in texts[name].dropna()], "comma")
        }
        table = table.assign(**{name: texts[name] for name in styles})
    return table.assign(**{name: _plain(table[name], style) for name, style in styles.items()})


def _plain(column: pd.Series[str], style: Style) -> pd.Series[Any]:
    cells = column.map(lambda cell: plain(str(cell), style), na_action="ignore")
    numbers = pd.to_numeric(cells, errors="coerce")
    return numbers if (numbers.notna() | cells.isna()).all() else cells


def _nearest_files(path: Path) -> str:
    """What else is there, for a path that is not."""
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    near = get_close_matches(path.name, names, n=3, cutoff=0.4) or [name for name in names if name.endswith(".csv")][:3]
    return f"did you mean {' or '.join(near)}?" if near else f"there is no CSV file in {folder}"


def _once(table: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Without rows that are there twice, cell by cell."""
    again = table.duplicated()
    if not again.any():
        return table
    some = "1 row was" if again.sum() == 1 else f"{again.sum()} rows were"
    notes.append(f"{some} there twice, cell by cell, and taken once")
    return table[~again].reset_index(drop=True)


def _first(table: pd.DataFrame, used: Sequence[str]) -> str:
    """The first cell that was taken for text, for a message."""
    others = [name for name in table.columns if name not in used and table[name].notna().any()]
    return f"; {others[0]} begins with {cell(table[others[0]].dropna().iloc[0])}" if others else ""


# Values


def _named_columns(table: pd.DataFrame, used: Sequence[str], targets: Sequence[str]) -> list[str]:
    """The columns asked for, all of which exist."""
    wanted = [targets] if isinstance(targets, str) else list(targets)
    known = [str(name) for name in table.columns if name not in used]
    for name in wanted:
        if name not in known:
            raise OptionError(unknown("target", name, known, "the file"))
    if not wanted:
        raise OptionError(f"no target was named, expected some of {', '.join(known)}, or 'all'")
    return list(dict.fromkeys(wanted))


def _number_columns(table: pd.DataFrame, used: Sequence[str], notes: list[str]) -> list[str]:
    """The columns that hold numbers; text and row counters are left out, with a note."""
    kept = []
    for name in map(str, table.columns):
        if name in used:
            continue
        if not is_number(table, name) and not _mostly_numbers(table[name]):
            notes.append(f"column {name} holds text and was left out")
        elif _counts_rows(table, name):
            notes.append(f"column {name} counts the rows and was left out")
        else:
            kept.append(name)
    return kept


def _mostly_numbers(column: pd.Series[str]) -> bool:
    """Whether a text column is a number column with mistakes in it, which are then reported and not hidden."""
    cells = column.dropna().iloc[:1000]
    return bool(pd.to_numeric(cells, errors="coerce").notna().mean() > 0.5)


def _counts_rows(table: pd.DataFrame, name: str) -> bool:
    if not _COUNTER_NAME.fullmatch(name.lower()) or not pd.api.types.is_integer_dtype(table[name].dtype):
        return False
    return bool((np.diff(table[name].to_numpy(np.int64)) == 1).all())


def _numbers(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The columns as floats; text in one of them is refused, with its place."""
    numbers: dict[str, npt.NDArray[np.float64]] = {}
    for name in columns:
        cells = pd.to_numeric(table[name], errors="coerce")
        wrong = np.flatnonzero(cells.isna() & table[name].notna())
        if len(wrong):
            raise DataError(
                f"column {name!r} has {table[name].iloc[wrong[0]]!r} in row {wrong[0] + 1} ({len(wrong)} such cells), "
                "expected a number or an empty cell; correct it, or choose other columns (targets=..., --target A,B)"
            )
        numbers[name] = cells.to_numpy(np.float64)
    return pd.DataFrame(numbers)


def _cleaned(values: pd.DataFrame, notes: list[str], named: bool = False) -> pd.DataFrame:
    """Infinite values become missing ones, columns without any value are left out or, if named, refused."""
    kept = []
    for name in map(str, values.columns):
        cells = values[name].to_numpy(np.float64, copy=True)
        infinite = np.isinf(cells)
        if infinite.any():
            cells[infinite] = np.nan
            values[name] = cells
            notes.append(f"column {name} had {infinite.sum()} infinite values, which count as missing")
        known = cells[~np.isnan(cells)]
        if len(known) == 0 and named:
            raise DataError(f"target {name!r} has no value in any row, expected some; choose another target")
        if len(known) == 0:
            notes.append(f"column {name} has no values and was left out")
            continue
        if known.min() == known.max():
            notes.append(f"column {name} is constant ({known[0]:g})")
        kept.append(name)
    return values[kept]


def _on_grid(times: Times, values: Floats, notes: list[str]) -> tuple[float, bool, Times, Floats]:
    """Step in seconds, whether it is kept, and the rows with the missing ones of the grid put back."""
    ticks, unit = times.astype(np.int64), unit_of(times)
    steps, counts = np.unique(np.diff(ticks), return_counts=True)
    step = int(steps[counts.argmax()])
    seconds = step if unit == "s" else step / PER_SECOND[unit]
    grid = grid_between(times)
    places = None if grid is None else grid.places(ticks)
    if grid is None or places is None or places[-1] + 1 > _LARGEST_GRID * len(times):
        notes.append(_irregular(np.diff(ticks) / PER_SECOND[unit], seconds))
        return seconds, False, times, values
    whole = np.arange(places[-1] + 1)
    gone = f"{len(whole) - len(times)} missing rows were put back as missing values"
    if not isinstance(grid, Even):
        notes.append(f"one row every {grid.named}" + (f"; {gone}" if len(whole) > len(times) else ""))
    elif len(whole) > len(times):
        notes.append(f"{gone} (the step is {step} {unit})")
    return seconds, True, times_of(grid.after(ticks[:1], whole), unit), _spread(values, places, len(whole))


def _irregular(gaps: Floats, step: float) -> str:
    """What is said of times that keep no step."""
    middle, mean = float(np.median(gaps)), float(gaps.mean())
    return (
        f"the times keep no regular step ({_span(middle)} from row to row in the median, {_span(mean)} in the mean, "
        f"most often {_span(step)}); the rows were taken as they come, as if {_span(step)} apart"
    )


def _span(seconds: float) -> str:
    """A time in the largest unit of which it has one, to three digits.

    >>> _span(24), _span(3600), _span(5400), _span(0.25), _span(86400 * 3650)
    ('24 seconds', '1 hour', '1.5 hours', '250 milliseconds', '3,650 days')
    """
    units = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0, "millisecond": 1e-3}
    name, size = next(((name, size) for name, size in units.items() if seconds >= size), ("microsecond", 1e-6))
    number = f"{seconds / size:.3g}" if seconds < 999 * size else f"{seconds / size:,.0f}"
    return f"{number} {name}" if number == "1" else f"{number} {name}s"


def _spread(values: Floats, places: npt.NDArray[np.int64], rows: int) -> Floats:
    """The rows at their places, and missing ones between them."""
    filled = np.full((rows, values.shape[1]), np.nan)
    filled[places] = values
    return filled
