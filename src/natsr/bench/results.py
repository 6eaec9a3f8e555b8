"""Results on disk: one line of JSON for each cell, safe against a kill at any moment.

Lines are only ever appended, by one writer at a time, and are on the disk before the next cell is asked for. If a cell
has several lines, the last one counts. A line that was cut off by a kill is the last one; it is ignored when reading
and removed when writing goes on.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Protocol

from natsr.bench.cells import NUMBERS, Cell, Result
from natsr.recipes import UNTAUGHT, sees_no_parts
from natsr.types import DataError, NatsrError

_CELL = ("method", "dataset", "horizon", "seed", "protocol", "part", "window", "max_steps", "tuned_on")


class Append(Protocol):
    """Keeps a result; it is on the disk when this returns."""

    def __call__(self, result: Result) -> None: ...


def to_line(result: Result) -> str:
    """The result as one line of JSON, without the line's end; figures that do not exist are null."""
    cell = result.cell
    fields: dict[str, Any] = {name: getattr(cell, name) for name in _CELL}
    fields["options"] = dict(cell.options)
    fields["intervals"] = cell.intervals
    fields |= {name: result.numbers.get(name) for name in NUMBERS}
    fields["weights"] = None if result.weights is None else dict(result.weights)
    fields |= {"device": cell.device, "threads": result.threads, "version": result.version, "torch": result.torch}
    fields["error"] = result.error
    return json.dumps(fields, allow_nan=False)


def from_line(line: str) -> Result:
    """The result that `to_line` wrote.

    Raises:
        DataError: If it is something else.
    """
    try:
        fields = json.loads(line)
        known = {name: fields[name] for name in _CELL}
        options, intervals = tuple(fields["options"].items()), fields.get("intervals", True)
        cell = Cell(**known, options=options, device=fields["device"], intervals=intervals)
        numbers = {name: fields[name] for name in NUMBERS if fields.get(name) is not None}
        made = fields["threads"], fields["version"], fields["torch"]
        return Result(cell, numbers, fields["error"], *made, fields.get("weights"))  # lines of 0.11.0 have no weights
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError, NatsrError) as error:
        shown = line if len(line) < 80 else line[:77] + "..."
        raise DataError(
            f"{shown!r} is not a result ({type(error).__name__}: {error}), expected a line that `natsr bench` wrote"
        ) from error


def read(path: Path) -> list[Result]:
    """The results in a file, the last one of each cell, in the order in which cells first appear.

    Raises:
        DataError: If the file is not there, or a line other than a torn last one is damaged.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file, expected results that `natsr bench --out {path.name}` wrote")
    *lines, torn = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found: dict[str, Result] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            result = from_line(line)
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}; delete the line to go on without it") from error
        found[result.cell.key] = result
    if torn.strip():
        # Without its line end the last line may be cut off anywhere: it counts only if it is whole.
        try:
            result = from_line(torn)
        except DataError:
            return list(found.values())
        found[result.cell.key] = result
    return list(found.values())


def missing(cells: Iterable[Cell], results: Iterable[Result], *, retry_failed: bool = False) -> list[Cell]:
    """The cells that have no result yet, each once; failed ones count as done unless they are to be retried.

    A result without intervals is none for a cell that asks for them.
    """
    done = {result.cell.key: result.cell.intervals for result in results if result.error is None or not retry_failed}
    waiting = {cell.key: cell for cell in cells}
    return [cell for key, cell in waiting.items() if key not in done or (cell.intervals and not done[key])]


def shared(cells: Iterable[Cell], results: Iterable[Result]) -> list[Result]:
    """Results that were measured under another protocol, for cells that it makes no difference to.

    At a horizon of 1 the protocols hand over the same examples, and a method that learns nothing online does not look
    at them: such a cell is the same computation, number for number (times aside). So are `honest` and `partial` to a
    method that makes nothing of examples with some labels only.
    """
    done = sorted((result for result in results if result.error is None), key=lambda result: result.cell.intervals)
    known = {whatever_protocol(result.cell): result for result in done}
    found = [(cell, known[key]) for cell in cells if (key := whatever_protocol(cell)) in known]
    return [as_result_of(cell, result) for cell, result in found if result.cell.intervals or not cell.intervals]


def as_result_of(cell: Cell, result: Result) -> Result:
    """What was measured for one cell, said of another that is the same computation."""
    return replace(result, cell=replace(cell, intervals=result.cell.intervals, device=result.cell.device))


def whatever_protocol(cell: Cell) -> str:
    """The key of the computation, wherever it is done, the same for cells that a protocol makes no difference to."""
    anywhere = replace(cell, device="cpu")
    if cell.horizon == 1 or cell.method in UNTAUGHT:
        return replace(anywhere, protocol="honest", tuned_on="nothing").key
    same = cell.protocol == "partial" and sees_no_parts(cell.method, dict(cell.options))
    return replace(anywhere, protocol="honest").key if same else anywhere.key


@contextmanager
def appending(path: Path) -> Iterator[Append]:
    """Open the file for one writer; gives a function that appends a result and returns when it is on the disk.

    Raises:
        DataError: If the folder cannot be written, or someone else writes to the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b")
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror}); choose another place with --out") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(f"{path} is being written by another process; wait for it, or use another --out") from error
        _mend(file)

        def append(result: Result) -> None:
            file.write(to_line(result).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        yield append


def _mend(file: IO[bytes]) -> None:
    """Make the file end with a whole line: finish the last one, or cut off what a kill left of it."""
    file.seek(0)
    content = file.read()
    if not content or content.endswith(b"\n"):
        return
    whole, _, torn = content.rpartition(b"\n")
    try:
        from_line(torn.decode(errors="replace"))
    except DataError:
        file.truncate(len(whole) + 1 if whole else 0)
    else:
        file.write(b"\n")
