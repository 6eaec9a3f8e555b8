"""Grids of experiments as files: `benchmarks/paper/complete.toml` says what is run, with what, and where it is kept.

title = "Every method on every dataset"
shows = "mase"                             # one of SHOWS
protocols = ["paper"]
seeds = [0, 1, 2]
out = "../results/paper-complete.jsonl"    # beside the grid's file, as are those of `also`
also = ["../results/etth1-paper.jsonl"]    # results that count too; never written to
intervals = false

[methods]
natsr = { tuned_on = "test", rate = 0.05 } # everything but tuned_on is an option of the method
er = {}

[[part]]
datasets = ["ETTh1", "WTH"]
horizons = [1, 24, 48]

[[setting]]                                # a study: each method is run once with each of these
group = "replay"
name = "no replay"
options = { memory = 0 }
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args

from natsr.bench.cells import WITHOUT_NETWORK, Cell, Result, check_tuned_on
from natsr.bench.results import missing, read
from natsr.options import nearest
from natsr.streams import check_protocol
from natsr.types import Option, OptionError

#: What the table of a grid is about: a figure of each cell, the scatter over seeds, or the settings of a study.
Shows: TypeAlias = Literal["mase", "deviation", "seconds", "ablation", "sensitivity"]
SHOWS: tuple[Shows, ...] = get_args(Shows)
STUDIES: tuple[Shows, ...] = ("ablation", "sensitivity")
_KEYS = {"title", "shows", "protocols", "seeds", "out", "also", "intervals", "methods", "part", "setting"}
T = TypeVar("T")


class Setting(NamedTuple):
    """One variant in a study."""

    group: str
    name: str
    options: Mapping[str, Option]


#: The one setting of a grid that is no study.
PLAIN = Setting("", "", {})


@dataclass(frozen=True)
class Grid:
    """Experiments that belong together.

    Args:
        path: Its file.
        title: What it is, in a few words.
        shows: What its table is about.
        cells: The experiments with the setting that each is for, in the order in which they are run.
        out: Where results go.
        also: Files whose results count too.
    """

    path: Path
    title: str
    shows: Shows
    cells: tuple[tuple[Setting, Cell], ...]
    out: Path
    also: tuple[Path, ...] = field(default=())

    def unique(self) -> list[Cell]:
        """The cells, each once: two settings may be the same experiment."""
        return list({cell.key: cell for _, cell in self.cells}.values())

    def results(self) -> list[Result]:
        """What is on the disk, of this grid and of whatever else is in its files."""
        return [result for path in (*self.also, self.out) if path.is_file() for result in read(path)]

    def found(self, results: Iterable[Result]) -> dict[str, Result]:
        """The result of each cell that has one, by the cell's key; the device does not matter.

        One with intervals goes before one without, one with numbers before a failure, a later one before an earlier.
        """
        known: dict[str, Result] = {}
        for result in results:
            key = anywhere(result.cell).key
            if key not in known or _worth(result) >= _worth(known[key]):
                known[key] = result
        return {cell.key: known[key] for cell in self.unique() if (key := anywhere(cell).key) in known}

    def missing(self, results: Iterable[Result], *, retry_failed: bool = False) -> list[Cell]:
        """The cells without a result, as `natsr.bench.results.missing` says, wherever the others were computed."""
        found = [replace(result, cell=anywhere(result.cell)) for result in self.found(results).values()]
        waiting = {cell.key for cell in missing(map(anywhere, self.unique()), found, retry_failed=retry_failed)}
        return [cell for cell in self.unique() if anywhere(cell).key in waiting]

    def narrowed(self, wanted: Mapping[str, Sequence[object]]) -> Grid:
        """Only the cells whose fields have one of these values.

        Raises:
            OptionError: No cell has such a value.
        """
        for name, values in wanted.items():
            there = dict.fromkeys(str(getattr(cell, name)) for _, cell in self.cells)
            for value in values:
                if str(value) not in there:
                    hint = nearest(str(value), list(there))
                    raise OptionError(f"{self.path.name} has no {name} {value}; {hint}")
        kept = (
            (setting, cell)
            for setting, cell in self.cells
            if all(getattr(cell, name) in values for name, values in wanted.items())
        )
        return self.changed(kept)

    def changed(self, cells: Iterable[tuple[Setting, Cell]]) -> Grid:
        """The same with other cells."""
        return replace(self, cells=tuple(cells))

    def on(self, device: str) -> Grid:
        """The same with its networks elsewhere."""
        return self.each(lambda cell: cell if cell.method in WITHOUT_NETWORK else replace(cell, device=device))

    def each(self, change: Callable[[Cell], Cell]) -> Grid:
        """The same with every cell changed."""
        return self.changed((setting, change(cell)) for setting, cell in self.cells)


def anywhere(cell: Cell) -> Cell:
    """The cell, wherever it is computed."""
    return replace(cell, device="cpu")


def _worth(result: Result) -> tuple[bool, bool]:
    return result.error is None, result.cell.intervals


def read_grid(path: Path) -> Grid:
    """The grid in a file.

    Raises:
        OptionError: It is not there, or not a grid; says what was expected.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(
            f"{path} cannot be read ({error.strerror}), expected a grid such as those in benchmarks/paper/"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(
            f"{path} is not TOML ({error}), expected a grid such as those in benchmarks/paper/"
        ) from error
    try:
        return _grid(path, found)
    except OptionError as error:
        raise OptionError(f"{path}: {error}") from error


def _grid(path: Path, found: dict[str, Any]) -> Grid:
    for key in found:
        if key not in _KEYS:
            raise OptionError(f"{key!r} is no part of a grid; {nearest(key, sorted(_KEYS))}")
    settings = [_setting(entry) for entry in _listed(found, "setting", dict, [])] or [PLAIN]
    methods = _taken(found, "methods", dict)
    protocols = [check_protocol(name) for name in _listed(found, "protocols", str)]
    cells = []
    for seed in _listed(found, "seeds", int):  # the first seed of everything before the second of anything
        for part in _listed(found, "part", dict):
            names = [m for m in _listed(part, "methods", str, list(methods)) if _has(methods, m, seed)]
            for dataset in _listed(part, "datasets", str):
                for horizon in _listed(part, "horizons", int):
                    for protocol in protocols:
                        base = Cell("", dataset, horizon, seed, protocol, intervals=found.get("intervals", True))
                        cells += [(s, _cell(base, name, methods, s)) for name in names for s in settings]
    shows = found.get("shows", "mase")
    if shows not in SHOWS:
        raise OptionError(f"shows is {shows!r}, expected one of {', '.join(SHOWS)}")
    if (shows in STUDIES) != (settings != [PLAIN]):
        raise OptionError(f"shows is {shows!r}; expected settings with {' and '.join(STUDIES)}, and only there")
    also = tuple(path.parent / name for name in _listed(found, "also", str, []))
    return Grid(path, _taken(found, "title", str), shows, tuple(cells), path.parent / _taken(found, "out", str), also)


def _setting(entry: dict[str, Any]) -> Setting:
    return Setting(_taken(entry, "group", str), _taken(entry, "name", str), _taken(entry, "options", dict))


def _has(methods: Mapping[str, dict[str, Any]], method: str, seed: int) -> bool:
    """Whether the method is run with this seed."""
    if method not in methods:
        raise OptionError(f"method {method!r} has no line under [methods]; {nearest(method, list(methods))}")
    return seed in _listed(methods[method], "seeds", int, [seed])


def _cell(base: Cell, method: str, methods: Mapping[str, dict[str, Option]], setting: Setting) -> Cell:
    options = {**methods[method], **setting.options}
    options.pop("seeds", None)
    tuned_on = check_tuned_on(str(options.pop("tuned_on", "nothing")))
    return replace(base, method=method, tuned_on=tuned_on, options=tuple(options.items()))


def _taken(found: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = found.get(key)
    if not isinstance(value, kind):
        raise OptionError(f"{key} is {value!r}, expected {_WORDS[kind]}")
    return value


def _listed(found: Mapping[str, Any], key: str, kind: type[T], default: list[T] | None = None) -> list[T]:
    values = found.get(key, default)
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise OptionError(f"{key} is {values!r}, expected a list, each entry {_WORDS[kind]}")
    if not values and default is None:
        raise OptionError(f"{key} is empty, expected at least one entry, {_WORDS[kind]}")
    return values


_WORDS: dict[type, str] = {str: "text", int: "a whole number", dict: "a table"}
