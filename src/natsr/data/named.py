"""The datasets that have a name, with the borders that published tables use; and any CSV by its path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from natsr.data import store
from natsr.data.calendar import CalendarKind
from natsr.data.series import Borders, Repeated, Series, unknown
from natsr.data.store import File, Progress, silent
from natsr.types import DataError, OptionError

_ETT = "https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/"
_LSTNET = "https://raw.githubusercontent.com/laiguokun/multivariate-time-series-data/master/"
#: The benchmark's files carry this nominal first hour, not the one of the measurement.
_NOMINAL_START = "2016-07-01T02:00:00"


@dataclass(frozen=True)
class Dataset:
    """A dataset by name: what it is, where it comes from and how it is split.

    Args:
        name: What it is called here.
        files: The forms in which it is handed around, the preferred first.
        rows: Rows of the complete file.
        channels: Columns of values.
        step_seconds: Seconds between rows.
        borders: The split that published tables use.
        calendar: How its published loader treats calendar features.
        origin: Who made it.
        licence: Under which it may be used.
    """

    name: str
    files: tuple[File, ...]
    rows: int
    channels: int
    step_seconds: int
    borders: Borders
    calendar: CalendarKind
    origin: str
    licence: str

    @property
    def stem(self) -> str:
        """What its parsed copies are called; datasets that share a file share it."""
        return self.name.removesuffix("-full")

    @property
    def season(self) -> int:
        """Rows in a day."""
        return 86400 // self.step_seconds


def _ett(name: str, sha256: str, full: bool = False) -> Dataset:
    quarter_hours = name.startswith("ETTm")
    file = File(f"{name}.csv", sha256=sha256, url=f"{_ETT}{name}.csv")
    # The published loaders use the hourly borders for ETTm too, which leaves three quarters of it unused.
    borders = Borders(4 * 2880, 4 * 3600, 4 * 14400) if full else Borders(2880, 3600, 14400)
    rows, step = (69680, 900) if quarter_hours else (17420, 3600)
    origin, licence = "github.com/zhouhaoyi/ETDataset", "CC BY-ND 4.0"
    return Dataset(name + ("-full" if full else ""), (file,), rows, 7, step, borders, "standardised", origin, licence)


def _hourly(name: str, files: tuple[File, ...], rows: int, channels: int, about: tuple[str, str]) -> Dataset:
    calendar: CalendarKind = "standardised" if name == "BeijingPM25" else "raw"
    return Dataset(name, files, rows, channels, 3600, Borders.published(rows), calendar, *about)


_ECL_ABOUT = ("UCI ElectricityLoadDiagrams20112014, hourly, as prepared for LSTNet", "CC BY 4.0")
_TRAFFIC_ABOUT = ("Caltrans PeMS, as prepared for LSTNet", "none stated")
_ETTM1 = "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e"
_ETTM2 = "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd"

_ALL = (
    _ett("ETTh1", "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066"),
    _ett("ETTh2", "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b"),
    _ett("ETTm1", _ETTM1),
    _ett("ETTm2", _ETTM2),
    _ett("ETTm1", _ETTM1, full=True),
    _ett("ETTm2", _ETTM2, full=True),
    _hourly(
        "WTH",
        (File("WTH.csv", sha256="5635e7f2d8f947f9abc6bc7077c907fb760eef111855a6805f096e9acff581bc"),),
        35064,
        12,
        (
            "NOAA local climatological data, as prepared for Informer (github.com/zhouhaoyi/Informer2020)",
            "public domain (work of the US government)",
        ),
    ),
    _hourly(
        "ECL",
        (
            File("ECL.csv"),
            File("electricity.csv"),
            File(
                "electricity.txt.gz",
                git_blob="df158a9fff65428ece107200432a72c992d5e4e9",
                url=f"{_LSTNET}electricity/electricity.txt.gz",
            ),
        ),
        26304,
        321,
        _ECL_ABOUT,
    ),
    _hourly(
        "ECL7",
        (File("ECL7.csv", sha256="3c4915165a913c0d9dcc607c6649586806d0cb43f6c9b1b11bbb9f6a65b8ae9e"),),
        26304,
        7,
        (f"clients 0-5 and the last of ECL: {_ECL_ABOUT[0]}", _ECL_ABOUT[1]),
    ),
    _hourly(
        "Traffic",
        (
            File("Traffic.csv"),
            File("traffic.csv"),
            File(
                "traffic.txt.gz",
                git_blob="63ddb74bf7602568f36056a0b1a47aa407f0a6fe",
                url=f"{_LSTNET}traffic/traffic.txt.gz",
            ),
        ),
        17544,
        862,
        _TRAFFIC_ABOUT,
    ),
    _hourly(
        "Traffic20",
        (File("Traffic20.csv", sha256="bbc2388b930d98a00ef66b96327c297a2d41f5cd1007e4fe19213e6baecdf3cb"),),
        17544,
        20,
        (f"sensors 0-19 of Traffic: {_TRAFFIC_ABOUT[0]}", _TRAFFIC_ABOUT[1]),
    ),
    _hourly(
        "BeijingPM25",
        (File("BeijingPM25.csv", sha256="4127f868775e31b3956522adc0ec75af8937dde6a3896e8beed3a376c6d27f1c"),),
        43824,
        7,
        ("UCI Beijing PM2.5, Song Chen", "CC BY 4.0"),
    ),
)
DATASETS = {dataset.name: dataset for dataset in _ALL}


class Verified(NamedTuple):
    """What `verify` found; `published` says whether there was a published checksum to compare with."""

    path: Path
    sha256: str
    published: bool


def dataset(name: str) -> Dataset:
    """The dataset of this name.

    Raises:
        OptionError: There is none; names the nearest.
    """
    if name not in DATASETS:
        raise OptionError(unknown("dataset", name, tuple(DATASETS)) + " A file of your own needs its path.")
    return DATASETS[name]


def load(
    name: str | Path,
    *,
    time: str | None = None,
    targets: Sequence[str] | Literal["all"] | None = None,
    repeated: Repeated = "refuse",
    download: bool = True,
    progress: Progress = silent,
) -> tuple[Series, Borders]:
    """A named dataset, or a CSV by its path, with the borders of its parts: what `prepare` takes.

    A CSV of your own is split as the published ones are: the first fifth trains, the last three quarters are online.

    Args:
        name: One of `DATASETS`, or a path.
        time: The time column of a CSV; found if not named.
        targets: Columns to keep; all columns of numbers unless said otherwise.
        repeated: What becomes of rows of a CSV that have the same time; see `natsr.data.csv.read_csv`.
        download: Whether a dataset that is not there may be fetched from its official address.
        progress: Called while it is.

    Example:
        >>> series, borders = load("BeijingPM25", targets=["pm2.5"])
        >>> len(series), series.missing, borders
        (43824, 2067, Borders(train=8764, valid=10956, online=43824))
    """
    if str(name) not in DATASETS and _is_path(name):
        from natsr.data.csv import read_csv  # pandas only when a table is read

        series = read_csv(name, time, targets, repeated)
        return series, Borders.published(len(series))
    known = dataset(str(name))
    if time is not None:
        raise OptionError(f"time is {time!r}, but {name} is a named dataset whose time is known; leave it out")
    if repeated != "refuse":
        raise OptionError(
            f"repeated is {repeated!r}, but {name} is a named dataset whose times are distinct; leave it out"
        )
    series = _series(known, download, progress)
    return (series if targets is None or targets == "all" else series.select(targets)), known.borders


def _is_path(name: str | Path) -> bool:
    text = str(name)
    return isinstance(name, Path) or "/" in text or "." in text or Path(text).exists()


def _series(known: Dataset, download: bool, progress: Progress) -> Series:
    """The whole dataset, from a parsed copy if there is one."""
    found = store.find(known.files)
    if found is None:
        copies = (store.find_copy(known.stem, file.sha256) for file in known.files)
        copy = next((path for path in copies if path is not None), None)
        if copy is not None:
            return _described(store.read_copy(copy, known.name), known, copy)
        if not download:
            raise store.missing(known.files, "it was not to be downloaded")
        found = store.fetch(known.files, progress)
    file, path = found
    sha256 = store.checked(file, path)
    copy = store.find_copy(known.stem, sha256)
    if copy is not None:
        try:
            return _described(store.read_copy(copy, known.name), known, copy)
        except DataError:
            pass  # a damaged copy is no loss while the file itself is there
    series = _described(_parsed(path), known, path)
    store.keep_copy(series, known.stem, sha256)
    return series


def _parsed(path: Path) -> Series:
    from natsr.data.csv import read_csv, read_matrix  # pandas only when a table is read

    if not path.name.endswith(".txt.gz"):
        return read_csv(path)
    series = read_matrix(path, _NOMINAL_START, 3600)
    return replace(series, columns=(*series.columns[:-1], "OT"))  # as the last column is called in the CSV form


def _described(series: Series, known: Dataset, path: Path) -> Series:
    """The series under its own name, if it has the size that it must have."""
    if series.values.shape != (known.rows, known.channels):
        rows, channels = series.values.shape
        raise DataError(
            f"{path} has {rows} rows and {channels} columns of numbers, expected {known.rows} and {known.channels} for "
            f"{known.name}; replace it with the complete file, or pass its path to use it as your own"
        )
    return replace(series, name=known.name, calendar=known.calendar)


def locate(name: str) -> Path | None:
    """Where the file of a dataset lies, if it is there; nothing is downloaded."""
    found = store.find(dataset(name).files)
    return None if found is None else found[1]


def verify(name: str) -> Verified:
    """Compare the file of a dataset with its published checksum; nothing is downloaded.

    Raises:
        DataError: The file is not there, or is not the published one.
    """
    known = dataset(name)
    found = store.find(known.files)
    if found is None:
        raise store.missing(known.files, "so there is nothing to verify")
    file, path = found
    return Verified(path, store.checked(file, path), file.sha256 is not None or file.git_blob is not None)


def export_npz(name: str, folder: str | Path) -> Path:
    """Write the parsed copy of a dataset into a folder; with `NATSR_DATA` set to it, loading needs no pandas."""
    known = dataset(name)
    series = _series(known, download=True, progress=silent)
    found = store.find(known.files)
    if found is None:
        raise store.missing(known.files, "only a parsed copy of it is there")
    target = Path(folder) / store.copy_name(known.stem, store.checked(*found))
    store.write_copy(series, target)
    return target
