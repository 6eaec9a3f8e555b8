"""Any CSV file with a time column becomes a series; the only module here that needs pandas.

Rows in messages are counted from 1, the first row after the header.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from natsr.data.calendar import Floats, Times
from natsr.data.series import Series, unknown
from natsr.types import DataError, OptionError

Targets: TypeAlias = Sequence[str] | Literal["all"] | None

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"]
_PARTS = ("year", "month", "day", "hour", "minute", "second")
_TIME_NAME = re.compile(r"(^|[^a-z])(time|date|datetime|timestamp|ts|epoch|unix|unixtime|t)([^a-z]|$)")
_COUNTER_NAME = re.compile(r"no\.?|id|index|row|unnamed: \d+|#|")
_OFFSET = re.compile(r"\d:\d\d.*(Z|[+-]\d\d(:?\d\d)?)$")
_DAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y", "%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d %b %Y")
_CLOCKS = (" %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", "")
#: A grid of more than this many times the file's rows is not filled in: the step is then not what the file is about.
_LARGEST_GRID = 10


def read_csv(path: str | Path, time: str | None = None, targets: Targets = None) -> Series:
    """Read a table with one row for each moment.

    The time column is the one named, else the first column of dates, else the columns `year`, `month`, `day` (and
    `hour`, `minute`, `second`) together, else an epoch in seconds or milliseconds in a column named like a time.
    Missing rows of a regular grid are put back as missing values. What was decided is said in `Series.notes`.

    Args:
        path: The file; packed ones (`.gz`) are unpacked.
        time: Name of the time column.
        targets: Names of the columns to keep; every column of numbers unless said otherwise.

    Raises:
        DataError: The file cannot be used; the message says what was got, what was expected and what to do.
        OptionError: A named column does not exist.
    """
    path = Path(path)
    table = _read_table(path)
    notes: list[str] = []
    times, used = _find_times(table, time, notes)
    if targets is None or targets == "all":
        values = _cleaned(_numbers(table, _number_columns(table, used, notes)), notes)
    else:
        values = _cleaned(_numbers(table, _named_columns(table, used, targets)), notes, named=True)
    if values.shape[1] == 0:
        raise DataError(f"{path.name} has no column of numbers, expected at least one among {_listed(table)}")
    columns = tuple(str(column) for column in values.columns)
    step, regular, times, cells = _on_grid(times, values.to_numpy(np.float64), notes)
    return Series(path.name.split(".")[0], times, cells, columns, step, regular, notes=tuple(notes))


def read_matrix(path: str | Path, start: str, step_seconds: int) -> Series:
    """Read numbers without header or times, as the `.txt.gz` files of the LSTNet benchmark are.

    Args:
        path: The file, comma-separated.
        start: The time to give the first row; such files have none of their own.
        step_seconds: Seconds between rows.
    """
    path = Path(path)
    table = _read_table(path, header=None)
    table.columns = pd.Index([str(number) for number in range(table.shape[1])])
    values = _numbers(table, list(table.columns)).to_numpy(np.float64)
    times = np.datetime64(start, "s") + np.arange(len(values)) * np.timedelta64(step_seconds, "s")
    notes = (f"the file has no times; its first row was given {start}",)
    return Series(path.name.split(".")[0], times, values, tuple(map(str, table.columns)), step_seconds, notes=notes)


def _read_table(path: Path, header: Literal["infer"] | None = "infer") -> pd.DataFrame:
    """The file as it is, after the mistakes that can be made with a path."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, expected a CSV file; name a file in it")
    if not path.is_file():
        raise DataError(f"{path} does not exist, expected a CSV file; {_nearest_files(path)}")
    try:
        with warnings.catch_warnings():
            # Rows with more cells than the header would otherwise lose their last ones.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(
                path,
                sep=_separator(path),
                header=header,
                na_values=_MISSING,
                keep_default_na=False,
                skipinitialspace=True,
                low_memory=False,
                index_col=False,
            )
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} is empty, expected a header and rows; check how it was written") from None
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError, OSError, EOFError) as error:
        raise DataError(
            f"{path} cannot be read as a CSV file ({error}); expected UTF-8 text with as many cells in each row as in "
            "the header; save it again as CSV"
        ) from error
    if len(table) < 2:
        raise DataError(f"{path} has {len(table)} rows after its header, expected at least 2; use a longer file")
    table.columns = pd.Index([str(column).strip() for column in table.columns])
    return table


def _separator(path: Path) -> str:
    """A comma, unless the header has none and has a semicolon or a tab."""
    if path.suffix not in (".csv", ".txt", ".tsv"):
        return ","  # packed: pandas unpacks it, and we do not look inside twice
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    return next((mark for mark in (",", ";", "\t") if mark in header), ",")


def _nearest_files(path: Path) -> str:
    """What else is there, for a path that is not."""
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    near = get_close_matches(path.name, names, n=3, cutoff=0.4) or [name for name in names if name.endswith(".csv")][:3]
    return f"did you mean {' or '.join(near)}?" if near else f"there is no CSV file in {folder}"


def _listed(table: pd.DataFrame) -> str:
    return ", ".join(map(str, table.columns[:20])) + (" …" if table.shape[1] > 20 else "")


# Times


def _find_times(table: pd.DataFrame, time: str | None, notes: list[str]) -> tuple[Times, list[str]]:
    """The checked times, to the second, and the columns that they were made of."""
    if time is not None:
        if time not in table.columns:
            raise OptionError(unknown("time column", time, [str(name) for name in table.columns], "the file"))
        times = _times_in(table, time, notes)
        if times is None:
            raise DataError(
                f"time column {time!r} begins with {table[time].iloc[0]!r}, expected dates such as 2024-01-31 15:00 "
                "or an epoch in seconds or milliseconds; name another column or rewrite this one"
            )
        return _in_order(times, table[[time]]), [time]
    lowered = {str(name).lower(): str(name) for name in table.columns}
    texts = [name for name in lowered.values() if not _is_number(table, name)]
    for name in texts:
        if (times := _times_in(table, name, notes)) is not None and np.isnat(times).mean() < 0.5:
            return _in_order(times, table[[name]]), [name]
    if all(part in lowered for part in _PARTS[:3]):
        used = [lowered[part] for part in _PARTS if part in lowered]
        parts = pd.DataFrame({name.lower(): pd.to_numeric(table[name], errors="coerce") for name in used})
        moments = pd.to_datetime(parts, errors="coerce")
        return _in_order(moments.to_numpy("datetime64[us]"), table[used]), used
    for name in lowered.values():
        named = name not in texts and _TIME_NAME.search(name.lower())
        if named and (times := _times_in(table, name, notes)) is not None:
            return _in_order(times, table[[name]]), [name]
    raise DataError(
        f"no time column was found among {_listed(table)}; expected one with dates such as 2024-01-31 15:00, or "
        "columns year, month, day; name it (time=..., --time COLUMN) or add one"
    )


def _is_number(table: pd.DataFrame, name: str) -> bool:
    return pd.api.types.is_numeric_dtype(table[name].dtype)


def _times_in(table: pd.DataFrame, name: str, notes: list[str]) -> Times | None:
    """The column as times, NaT where a cell is none; nothing if it is not a column of times."""
    if _is_number(table, name):
        return _from_numbers(table[name].to_numpy(np.float64))
    text = table[name].astype("string").str.strip()
    head = text.dropna().iloc[:100]
    if head.empty or not head.str.contains(r"\d.*[-/.: ].*\d", regex=True).iloc[0]:
        return None
    if pd.to_datetime(head.iloc[:1], format="ISO8601", utc=True, errors="coerce").notna().all():
        if head.map(lambda cell: bool(_OFFSET.search(cell))).any():
            notes.append(f"times in {name} carry a time zone; they were converted to UTC")
        moments = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
        return moments.dt.tz_localize(None).to_numpy("datetime64[us]")
    return _in_written_form(text, head, notes)


def _from_numbers(numbers: Floats) -> Times | None:
    """An epoch in seconds or milliseconds, or dates written as 20240131."""
    known = numbers[~np.isnan(numbers)]
    if len(known) == 0:
        return None
    low, high = known.min(), known.max()
    if low >= 1e8 and high < 1e11:
        return _from_epoch(numbers * 1e6)
    if low >= 1e11 and high < 1e14:
        return _from_epoch(numbers * 1e3)
    if low >= 1.8e7 and high < 2.2e7:
        text = pd.Series(numbers).astype("Int64").astype("string")
        return pd.to_datetime(text, format="%Y%m%d", errors="coerce").to_numpy("datetime64[us]")
    return None


def _from_epoch(microseconds: Floats) -> Times:
    known = ~np.isnan(microseconds)
    times = np.full(len(microseconds), np.datetime64("NaT"), dtype="datetime64[us]")
    times[known] = np.round(microseconds[known]).astype(np.int64).astype("datetime64[us]")
    return times


def _in_written_form(text: pd.Series[str], head: pd.Series[str], notes: list[str]) -> Times | None:
    """Dates such as 1/31/2010 0:00. Whether day or month comes first is decided by what gives times that increase."""
    found: list[tuple[str, Times]] = []
    for form in (day + clock for day in _DAYS for clock in _CLOCKS):
        if pd.to_datetime(head.iloc[:1], format=form, errors="coerce").notna().all():
            found.append((form, pd.to_datetime(text, format=form, errors="coerce").to_numpy("datetime64[us]")))
    whole = [(form, times) for form, times in found if not np.isnat(times).any()]
    rising = [(form, times) for form, times in whole if (np.diff(times) > np.timedelta64(0, "us")).all()]
    best = rising or whole or found
    if not best:
        return None
    if len(rising) > 1:
        forms = " or ".join(form for form, _ in rising)
        notes.append(f"the dates can be read as {forms}; the first was taken (ISO dates leave no doubt)")
    return best[0][1]


def _in_order(times: Times, cells: pd.DataFrame) -> Times:
    """The times, to the second, if each row has one and they increase."""
    none = np.flatnonzero(np.isnat(times))
    if len(none):
        got = ", ".join(f"{name} = {cells[name].iloc[none[0]]}" for name in cells.columns)
        raise DataError(
            f"row {none[0] + 1} has {got}, expected a time like those of the other rows; correct or remove the row"
        )
    seconds = times.astype("datetime64[s]")
    _, firsts, counts = np.unique(seconds, return_index=True, return_counts=True)
    if (counts > 1).any():
        first = int(firsts[counts > 1].min())
        second = int(np.flatnonzero(seconds == seconds[first])[1])
        finer = " (times are kept to the second)" if times[first] != times[second] else ""
        raise DataError(
            f"rows {first + 1} and {second + 1} both have time {seconds[first]}{finer}, expected each time once; "
            "remove one, average them, or write the times in UTC if the clock was put back"
        )
    back = np.flatnonzero(np.diff(seconds) < np.timedelta64(0, "s"))
    if len(back):
        row = int(back[0]) + 1
        raise DataError(
            f"row {row + 1} has time {seconds[row]}, before row {row} with {seconds[row - 1]}; expected increasing "
            "times; sort the file by its time column"
        )
    return seconds


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
        if not _is_number(table, name) and not _mostly_numbers(table[name]):
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


def _on_grid(times: Times, values: Floats, notes: list[str]) -> tuple[int, bool, Times, Floats]:
    """Step, whether it is kept, and the rows with the missing ones of the grid put back."""
    seconds = times.astype(np.int64)
    steps, counts = np.unique(np.diff(seconds), return_counts=True)
    step = int(steps[counts.argmax()])
    if len(steps) == 1:
        return step, True, times, values
    places = (seconds - seconds[0]) // step
    if (steps % step).any() or places[-1] + 1 > _LARGEST_GRID * len(times):
        notes.append(f"the times keep no regular step (most often {step} s); the rows were taken as they come")
        return step, False, times, values
    grid = times[0] + np.arange(places[-1] + 1) * np.timedelta64(step, "s")
    filled = np.full((len(grid), values.shape[1]), np.nan)
    filled[places] = values
    notes.append(f"{len(grid) - len(times)} missing rows were put back as missing values (the step is {step} s)")
    return step, True, grid, filled
