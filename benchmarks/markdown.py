"""Parts of the generated pages: results in, lines of Markdown out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from natsr.bench.cells import Cell, Result
from natsr.bench.grids import STUDIES, Grid
from natsr.bench.results import read
from natsr.bench.studies import as_markdown as study_as_markdown
from natsr.bench.studies import study
from natsr.bench.tables import (
    FAILED,
    MISSING,
    Column,
    Entry,
    Row,
    Statistic,
    Table,
    as_markdown,
    build,
    expected,
    marked,
    ranks,
    shown,
    verdict,
)
from natsr.recipes import METHODS, NETWORKS, UNTAUGHT

#: What is shown of an honest run besides its MASE, under which heading.
FIGURES = {
    "mase": "MASE",
    "mae": "MAE",
    "mse": "MSE",
    "crps": "CRPS",
    "coverage_90": "coverage of 90 %",
    "worst_coverage_90": "worst coverage",
    "ms_per_step": "ms per step",
}

Paths = Sequence[Path]


def results_in(paths: Paths) -> list[Result]:
    """All of them, in an order that does not depend on which worker was faster."""
    return in_order(result for path in paths for result in read(path))


def in_order(results: Iterable[Result]) -> list[Result]:
    """Networks first, then by options."""
    place = {method: -index for index, method in enumerate(METHODS)}

    def key(cell: Cell) -> tuple[object, ...]:
        options = tuple((name, isinstance(value, str), value) for name, value in cell.options)
        return place.get(cell.method, 1), cell.method, cell.tuned_on, options, cell.dataset, cell.horizon, cell.seed

    return sorted(results, key=lambda result: key(result.cell))


# ---- tables ------------------------------------------------------------------------------------------------------


def by_method(table: Table, *, leaders: bool = True) -> list[str]:
    """A table with a line for each method, and a column for each dataset and horizon.

    Args:
        table: Of one metric.
        leaders: Whether the lowest of each column is marked.
    """
    names = {row: f"{row[0]}, H = {row[1]}" for row in table.rows}
    places = {row: ranks(table, row) if leaders else {} for row in table.rows}
    lines = [f"**{table.title}**", "", head("method", names.values())]
    for column in table.columns:
        cells = [cell(table.entries.get((row, column)), places[row].get(column)) for row in table.rows]
        lines.append(f"| {column.heading} | {' | '.join(cells)} |")
    return [*lines, "", *(f"- {note}" for note in table.notes)]


def by_figure(tables: Sequence[Table], row: Row) -> list[str]:
    """A table for one dataset and horizon: a line for each method, a column for each metric."""
    places = [ranks(table, row) for table in tables]
    lines = [f"**{row[0]}, H = {row[1]}**", "", head("method", [FIGURES[table.metric] for table in tables])]
    for column in tables[0].columns:
        if (row, column) not in tables[0].entries:
            continue
        found = [
            cell(table.entries.get((row, column)), place.get(column))
            for table, place in zip(tables, places, strict=True)
        ]
        lines.append(f"| {column.heading} | {' | '.join(found)} |")
    return lines


def head(first: str, names: Iterable[str]) -> str:
    """The first two lines of a Markdown table."""
    columns = list(names)
    return f"| {first} | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}"


def cell(entry: Entry | None, rank: int | None) -> str:
    """One place of it."""
    return marked(shown(entry), rank)


def made_with(results: Sequence[Result]) -> str:
    """Software, device and threads, as the results say."""
    versions = sorted({f"natsr {result.version}" for result in results})
    torches = sorted({f"torch {result.torch}" for result in results})
    devices = sorted({f"{result.cell.device} with {result.threads} thread(s)" for result in results})
    return f"- made with {', '.join([*versions, *torches])}, on {', '.join(devices)}"


# ---- sections ----------------------------------------------------------------------------------------------------


def against_paper(paths: Paths) -> list[str]:
    """MASE beside the reported one."""
    results = results_in(paths)
    tables = build(results, against_paper=True)
    lines = [line for table in tables for line in [*by_method(table), ""]]
    return [*lines[:-1], made_with(results), "", verdict(tables)]


def in_full(paths: Paths) -> list[str]:
    """MASE at all horizons, then every figure at each horizon."""
    results = results_in(paths)
    every = {metric: build(results, metric) for metric in FIGURES}
    lines: list[str] = []
    for place, table in enumerate(every["mase"]):
        lines += [*by_method(table), made_with(results), ""]
        for row in table.rows:
            lines += [*by_figure([every[metric][place] for metric in FIGURES], row), ""]
    return lines[:-1]


def variants(paths: Paths) -> list[str]:
    """MASE of each set of options."""
    results = results_in(paths)
    lines = [line for table in build(results) for line in [*by_method(table, leaders=False), ""]]
    return [*lines[:-1], made_with(results)]


def choices(paths: Paths) -> list[str]:
    """MASE of each set of options, and which is best for each method and horizon."""
    return [*variants(paths), "", *(line for table in build(results_in(paths)) for line in chosen(table))]


def chosen(table: Table) -> list[str]:
    """The best of each method at each horizon, and the one with the lowest mean over all of them."""
    methods = dict.fromkeys(column.method for column in table.columns)
    names = [*(f"{row[0]}, H = {row[1]}" for row in table.rows), "lowest mean over all"]
    lines = [head("best of", names)]
    for method in methods:
        columns = [column for column in table.columns if column.method == method]
        found = [_lowest(table, rows, columns) for rows in [*([row] for row in table.rows), table.rows]]
        lines.append(f"| {method} | {' | '.join(found)} |")
    return lines


def _lowest(table: Table, rows: Sequence[Row], columns: Iterable[Column]) -> str:
    """The options with the lowest mean over these rows, among those that have a figure in each of them."""
    means: dict[str, float] = {}
    for column in columns:
        entries = [table.entries.get((row, column)) for row in rows]
        figures = [entry.mean for entry in entries if entry is not None and entry.mean is not None]
        if len(figures) == len(rows):
            means[column.variant] = fmean(figures)
    return min(means, key=lambda variant: means[variant]) or "as it is" if means else MISSING


def bounds(paths: Paths) -> list[str]:
    """Lengths of updates, in bounds."""
    rows = json.loads(paths[0].read_text(encoding="utf-8"))["rows"]
    names = [name for name in rows[0] if name != "horizon"]
    lines = [head("H", names)]
    return lines + [f"| {row['horizon']} | {' | '.join(f'{row[name]:g}' for name in names)} |" for row in rows]


def of_grid(grid: Grid, paths: Paths) -> list[str]:
    """The table of a grid as the paper has it, ours beside theirs, and how much of it there is."""
    found = grid.found(results_in(paths))
    if not found:
        return ["**Missing:** none of its experiments has been run yet."]
    counted = [f"- {len(found)} of {len(grid.unique())} experiments have been run", made_with(list(found.values()))]
    if grid.shows in STUDIES:
        return [*study_as_markdown(study(grid, found)).splitlines(), *counted]
    metric = "seconds" if grid.shows == "seconds" else "mase"
    statistic: Statistic = "deviation" if grid.shows == "deviation" else "mean"
    tables = build(in_order(found.values()), metric, against_paper=True, statistic=statistic)
    lines = [line for table in tables for line in [*as_markdown(table).splitlines(), ""]]
    judged = any(entry.verdict is not None for table in tables for entry in table.entries.values())
    return [*lines[:-1], *counted, *(["", verdict(tables, expected(grid.unique()))] if judged else [])]


#: What stands beside the MASE of the protocols for each dataset and horizon.
HONEST = ("mae", "mse", "crps", "coverage_90", "worst_coverage_90", "ms_per_step")
#: Methods that have no network, and cost next to nothing.
PLAIN = ("last_value", "seasonal", "mean", "rls", "rls_mv")


def side_by_side(published: Sequence[Grid], honest: Grid, paths: Paths) -> list[str]:
    """The best of each kind for each dataset and horizon; then every method under all protocols, with its figures."""
    results = results_in(paths)
    ours, leaking = in_order(honest.found(results).values()), leaked(published, results)
    if not ours:
        return ["**Missing:** none of its experiments has been run yet."]
    mase = {table.protocol: table for table in build([*ours, *leaking], against_paper=True)}
    figures = [table for metric in HONEST for table in build(ours, metric) if table.protocol == "honest"]
    lines = [*glance(mase), ""]
    for row in mase["honest"].rows:
        lines += [*_beside(row, mase, figures), ""]
    counted = f"- {len(ours)} of {len(honest.unique())} experiments have been run"
    tuned = {(r.cell.method, r.cell.protocol, r.cell.tuned_on) for r in [*ours, *leaking]}
    looked = [f"{m} ({p}) on {t}" for m, p, t in sorted(tuned) if t != "nothing" and p != "partial"]
    return [*lines, counted, f"- options were tuned: {', '.join(looked)}", made_with(ours)]


def leaked(published: Sequence[Grid], results: Sequence[Result]) -> list[Result]:
    """What was measured under the protocol `paper`: the cells of the grids, and methods that the paper lacks."""
    found = [result for grid in published for result in grid.found(results).values()]
    theirs = {cell.method for grid in published for _, cell in grid.cells}
    others = {
        result.cell.key: result
        for result in results
        if result.cell.protocol == "paper" and result.cell.method not in theirs and not result.cell.options
    }
    return in_order([*found, *others.values()])


def glance(mase: dict[str, Table], horizons: Sequence[int] | None = None) -> list[str]:
    """For each dataset and horizon the lowest MASE of a network under each protocol, and of what has none."""
    networks = [method for method in NETWORKS if method not in UNTAUGHT]
    kinds = (("paper", networks), ("honest", networks), ("partial", networks), ("honest", PLAIN), ("honest", ("auto",)))
    names = ["a network, published", "honest", "partial", "no network", "auto"]
    lines = [head("lowest MASE", names)]
    for row in mase["honest"].rows:
        if horizons is not None and row[1] not in horizons:
            continue
        found = [_best(mase.get(protocol), row, methods) for protocol, methods in kinds]
        lines.append(f"| {row[0]}, H = {row[1]} | {' | '.join(found)} |")
    return lines


def _best(table: Table | None, row: Row, methods: Sequence[str]) -> str:
    """The lowest mean of these methods, and whose it is."""
    entries = {} if table is None else {c.method: e for (r, c), e in table.entries.items() if r == row}
    means = {name: e.mean for name, e in entries.items() if name in methods and e.mean is not None}
    if not means:
        return MISSING
    name = min(means, key=lambda method: means[method])
    return f"{means[name]:.3f}" if len(methods) == 1 else f"{means[name]:.3f} {name}"


def partly(honest: Grid, paths: Paths) -> list[str]:
    """Every figure under `partial`, where it is not the same as `honest`."""
    found = honest.found(results_in(paths)).values()
    results = in_order(r for r in found if r.cell.protocol == "partial" and r.cell.horizon > 1)
    if not results:
        return ["**Missing:** none of its experiments has been run yet."]
    tables = [build(results, metric)[0] for metric in FIGURES]
    lines = [line for row in tables[0].rows for line in [*by_figure(tables, row), ""]]
    return [*lines, made_with(results)]


def _beside(row: Row, mase: dict[str, Table], figures: Sequence[Table]) -> list[str]:
    """One dataset and horizon."""
    there = {c.method for t in mase.values() for (r, c) in t.entries if r == row}
    methods = [method for method in reversed(METHODS) if method in there]
    names = ["published, reported", "published, ours", "honest", "partial", *(FIGURES[t.metric] for t in figures)]
    lines = [f"**{row[0]}, H = {row[1]}**", "", head("method", names)]
    for method in methods:
        leaking = _of(mase.get("paper"), row, method)
        reported = MISSING if leaking is None or leaking.reported is None else f"{leaking.reported:.2f}"
        first = [reported, shown(None if leaking is None else replace(leaking, reported=None))]
        tables = [mase["honest"], mase.get("partial"), *figures]
        lines.append(f"| {method} | {' | '.join([*first, *(_plain(table, row, method) for table in tables)])} |")
    return lines


def _of(table: Table | None, row: Row, method: str) -> Entry | None:
    """The entry of a method, where it has only one."""
    if table is None:
        return None
    return next((e for (r, c), e in table.entries.items() if r == row and c.method == method), None)


def _plain(table: Table | None, row: Row, method: str) -> str:
    """The same as text, marked, without the reported figure."""
    entry = _of(table, row, method)
    if table is None or entry is None:
        return MISSING
    places = {column.method: rank for column, rank in ranks(table, row).items()}
    return marked(shown(replace(entry, reported=None)), places.get(method))


def wide(paths: Paths) -> list[str]:
    """Memory and time at the full width of ECL and Traffic."""
    found = json.loads(paths[0].read_text(encoding="utf-8"))
    shapes = {(row["dataset"], row["horizon"]): row["columns"] for row in found["rows"]}
    names = [f"{dataset} ({columns} columns), H = {h}" for (dataset, h), columns in shapes.items()]
    lines = [head("method", names)]
    for method in dict.fromkeys(row["method"] for row in found["rows"]):
        mine = {(row["dataset"], row["horizon"]): row for row in found["rows"] if row["method"] == method}
        lines.append(f"| {method} | {' | '.join(_wide(mine.get(shape)) for shape in shapes)} |")
    versions = ", ".join(sorted({str(row["torch"]) for row in found["rows"] if row.get("torch")}))
    limit = f"- peak memory of the whole process and time of a step after it; the limit is {found['limit_mib']} MiB"
    learned, epochs = found["learned"], found["epochs"]
    steps = (
        f"- H + {learned} steps, of which {learned} learn, after {epochs} epoch(s) of warm-up, in a process of its own"
    )
    return [
        *lines,
        "",
        limit,
        steps,
        f"- torch {versions}, natsr {found['natsr']}, one thread each; torch with CUDA takes 250 MiB more",
    ]


def _wide(row: dict[str, float | str | None] | None) -> str:
    if row is None:
        return MISSING
    if row["error"] is not None:
        return f"{FAILED}: {row['error']}"
    return f"{row['peak_mib']:.0f} MiB, {row['ms_per_step']:.0f} ms"
