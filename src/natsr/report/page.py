"""A report as one HTML file: no network, no dependency, light and dark, tables for whoever cannot see the charts.

The look is in `page.css`, the drawing in `chart.js` and `page.js`, the frame in `page.html`; this module fills them
in. Text from outside (column names, notes) is escaped here and set as text there, and the page's content policy runs no
script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import html
import math
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from natsr.report.contents import Fan, Numbers, Report, Score, Stretch, Track, Whose
from natsr.report.payload import embedded, payload, shortened
from natsr.types import DataError
from natsr.version import __version__

__all__ = ["Fan", "Report", "Score", "Stretch", "Track", "Whose", "render", "write"]

PROTOCOLS = {
    "honest": "learns from a row only once it is known",
    "partial": "learns from the known rows of younger windows too",
    "paper": "learns from rows that lie in the future",
}
#: Key, head, what it means, whether smaller is better (None: neither), how it is written.
COLUMNS: tuple[tuple[str, str, str, bool | None, Callable[[float], str]], ...] = (
    ("mase", "MASE", "Mean absolute error in units of the mean change from row to row", True, lambda v: _number(v, 3)),
    ("mae", "MAE", "Mean absolute error of standardised values", True, lambda v: _number(v, 4)),
    ("mse", "MSE", "Mean squared error of standardised values", True, lambda v: _number(v, 4)),
    (
        "crps",
        "CRPS",
        "Continuous ranked probability score: error of the whole distribution",
        True,
        lambda v: _number(v, 4),
    ),
    ("coverage_90", "Coverage", "Share of values inside the 90 % interval; 90 % is right", None, lambda v: _percent(v)),
    ("width_90", "Width", "Mean width of the 90 % interval, standardised", None, lambda v: _number(v, 3)),
    ("ms_per_step", "ms/step", "Milliseconds to learn from a row and forecast", None, lambda v: _number(v, 3)),
)
LEAK = (
    "Protocol paper hands out labels before their time, to reproduce published tables: nobody could have had these "
    "errors in operation."
)
TINTS = 8  # colours in page.css
TABLE_ROWS = 25  # of a fallback table for a curve over time
WHOSE_COLUMNS, WHOSE_EXPERTS = 8, 10  # columns and single experts whose shares are shown, at most


def write(path: str | Path, report: Report) -> Path:
    """Write the page, in one stroke; folders above it are made.

    Raises:
        DataError: The place cannot be written.
    """
    path = Path(path)
    temporary = path.with_name(path.name + ".tmp")
    text = render(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot write the report to {path}: {error}; choose a folder that can be written") from error
    return path


def render(report: Report) -> str:
    """The page as text."""
    scores = sorted(report.scores, key=_rank)
    # Colours go by the order given, so that a method keeps its own whatever its rank.
    tints = {score.method: place % TINTS for place, score in enumerate(report.scores)}
    data = embedded(payload(report, list(tints)))  # first, since it refuses what does not fit
    script = _asset("chart.js") + _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_asset("page.html")).substitute(
        title=html.escape(report.title),
        summary=_summary(scores),
        facts="\n".join(_fact(name, text) for name, text in _facts(report).items()),
        sections="\n".join(_sections(report, scores, tints)),
        version=html.escape(__version__),
        data=data,
        style=_asset("page.css"),
        script=script,
        script_hash=f"sha256-{digest}",
    )


def _asset(name: str) -> str:
    return resources.files("natsr.report").joinpath(name).read_text(encoding="utf-8")


def _rank(score: Score) -> tuple[bool, float]:
    """Best first, failed last."""
    figure = score.mase if score.mase is not None else score.mae
    return (figure is None or not math.isfinite(figure), 0.0 if figure is None else figure)


def _number(value: float, digits: int) -> str:
    """So many digits after the point, or an exponent where they would say nothing."""
    if value and not 10.0**-digits <= abs(value) < 1e5:
        return f"{value:.2e}"
    return f"{value:,.{digits}f}"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


# The head.


def _summary(scores: Sequence[Score]) -> str:
    ranked = [score for score in scores if _known(score.mase)]
    if not ranked:
        return "No method could be scored."
    best = ranked[0]
    text = f"<b>{html.escape(best.method)}</b> has the smallest error, MASE <b>{best.mase:.3f}</b>"
    last = next((score for score in ranked if score.method == "last_value"), None)
    if last is not None and last is not best and last.mase and best.mase is not None:
        text += f", {_percent(1 - best.mase / last.mase, 0)} below repeating the last value"
    if len(ranked) > 1:
        text += f", among {len(ranked)} methods"
    if best.coverage_90 is not None and _known(best.coverage_90):
        text += f". Its 90 % intervals held {_percent(best.coverage_90)} of what came"
    return text + "."


def _facts(report: Report) -> dict[str, str]:
    task = report.task
    return {
        "Dataset": report.dataset,
        "Protocol": f"{report.protocol}: {PROTOCOLS[report.protocol]}"
        if report.protocol in PROTOCOLS
        else report.protocol,
        "Ahead": f"{task.horizon} rows",
        "Window": f"{task.window} rows",
        "Columns": str(task.channels),
        **report.facts,
    }


def _fact(name: str, text: str) -> str:
    return f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd></div>"


# The body.


def _sections(report: Report, scores: Sequence[Score], tints: Mapping[str, int]) -> list[str]:
    sections = [
        _section("Scores", _scores(scores, tints), "Best first. Errors are those of standardised values.", "scores")
    ]
    if report.stretch is not None and report.stretch.fans:
        sections.append(_forecasts())
    track = report.track
    if track is not None:
        sections.append(_errors(report, track))
        if report.whose is not None:
            sections.append(_whose(report.whose, track))
    pair = []
    if report.by_step and report.task.horizon > 1:
        about = f"{report.unit} for each row ahead: how fast knowledge fades."
        pair.append(_figure("horizon", "Error by step", about, _step_table(report.by_step)))
    if track is not None and track.variance:
        about = "The squared scale of the errors that a method expects; it widens its loss when the stream grows wild."
        pair.append(_figure("variance", "Variance", about, _time_table(track, track.variance)))
    if track is not None and track.norms:
        about = (
            "The largest natural gradient in each piece of the stream, and the theorem's bound. The bound is proved "
            "for the exact Fisher; K-FAC estimates it and may rise above, where the step is cut down to the bound."
        )
        columns = {f"{m}: largest": v for m, v in track.norms.items()}
        columns |= {f"{m}: bound": v for m, v in track.bounds.items()}
        pair.append(_figure("norms", "Update norm against its bound", about, _time_table(track, columns)))
    if pair:
        sections.append(f'<div class="pair">\n{"".join(pair)}</div>')
    return [*sections, _notes(report)]


def _section(heading: str, body: str, about: str = "", key: str = "") -> str:
    anchor = f' id="{key}"' if key else ""
    text = f'<p class="about">{html.escape(about)}</p>\n' if about else ""
    return f"<section{anchor}>\n<h2>{html.escape(heading)}</h2>\n{text}{body}\n</section>"


def _scores(scores: Sequence[Score], tints: Mapping[str, int]) -> str:
    heads = "".join(
        f'<th scope="col"><abbr title="{html.escape(meaning)}">{head}</abbr></th>' for _, head, meaning, _, _ in COLUMNS
    )
    best: dict[str, float] = {}
    for key, _, _, smaller, _ in COLUMNS:
        values = [getattr(score, key) for score in scores if _known(getattr(score, key))]
        if smaller and len(values) > 1:
            best[key] = min(values)
    longest = max((score.mase for score in scores if score.mase is not None and _known(score.mase)), default=1.0)
    rows = "\n".join(_score(score, tints[score.method], best, longest) for score in scores)
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Scores">\n<table>\n'
        f'<thead><tr><th scope="col">Method</th>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>'
    )


def _score(score: Score, tint_number: int, best: Mapping[str, float], longest: float) -> str:
    tint = f'style="--mine:var(--m{tint_number})"'
    name = f'<th scope="row" {tint}><span class="dot"></span>{html.escape(score.method)}</th>'
    if score.error is not None:
        return f'<tr>{name}<td class="failed" colspan="{len(COLUMNS)}">failed: {html.escape(score.error)}</td></tr>'
    cells = []
    for key, _, _, _, written in COLUMNS:
        value = getattr(score, key)
        text = written(value) if _known(value) else "–"
        bar = ""
        if key == "mase" and _known(value):
            length = f"{100 * value / (longest or 1):.1f}%"
            bar = f'<span class="bar" aria-hidden="true" {tint}><i style="width:{length}"></i></span>'
        mark = ' class="best"' if key in best and value == best[key] else ""
        cells.append(f"<td{mark}>{bar}{text}</td>")
    return f"<tr>{name}{''.join(cells)}</tr>"


def _figure(key: str, heading: str, about: str, table: str, controls: str = "") -> str:
    """A chart's place, which the script fills, and its numbers as a table."""
    body = (
        f'<figure id="{key}" aria-label="{html.escape(heading)}">\n{controls}<div class="plot"></div>\n'
        f'<ul class="legend"></ul>\n<details><summary>The numbers</summary>'
        f'<div class="scroll" tabindex="0">{table}</div></details>\n</figure>'
    )
    return _section(heading, body, about)


def _forecasts() -> str:
    controls = (
        '<div class="controls"><label>Column <select data-control="column"></select></label>'
        '<label>Method <select data-control="method"></select></label>'
        '<span class="named" id="ahead">Rows ahead <span class="segments" role="group" aria-labelledby="ahead" '
        'data-control="step"></span></span></div>\n'
    )
    about = "What was expected of each row, so many rows before it came, and what came. Missing values are gaps."
    return _figure("forecasts", "Forecasts against truth", about, "", controls)


def _errors(report: Report, track: Track) -> str:
    controls = (
        '<div class="controls"><span class="segments" role="group" aria-label="Reading" data-control="reading"></span>'
        '<span class="named reading"></span></div>\n'
    )
    about = f"{report.unit} as the stream goes on; lower is better."
    return _figure("errors", "Error over time", about, _time_table(track, track.errors), controls)


def _whose(whose: Whose, track: Track) -> str:
    """Shares over time as a picture, and those at the end as a table."""
    about = (
        f"How much of the forecast of {whose.method} is whose, over all steps and columns, as the stream goes on; "
        "below, as it is at the end."
    )
    shown = whose.columns[:WHOSE_COLUMNS]
    by_column = {kind: np.asarray(shares, dtype=np.float64) for kind, shares in whose.by_column.items()}
    whole = {kind: float(shares.mean()) for kind, shares in by_column.items()}
    kinds = sorted(whole, key=lambda kind: -whole[kind])
    by_step = {kind: np.asarray(shares, dtype=np.float64).tolist() for kind, shares in whose.by_step.items()}
    steps = {f"{step} ahead": [by_step[kind][place] for kind in kinds] for place, step in enumerate(whose.steps)}
    columns = {name: [float(by_column[kind][place]) for kind in kinds] for place, name in enumerate(shown)}
    tables = {
        "By rows ahead": _table("Kind", kinds, {"all": [whole[kind] for kind in kinds], **steps}, _share),
        "By column": _table("Kind", kinds, columns, _share),
    }
    ends = "".join(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">{table}</div>'
        for name, table in tables.items()
    )
    experts = [f"{name} {_share(weight)}" for name, weight in list(whose.experts.items())[:WHOSE_EXPERTS]]
    text = f"Single experts at the end: {', '.join(experts)}." if experts else ""
    if len(shown) < len(whose.columns):
        text += f" The table shows {len(shown)} of {len(whose.columns)} columns."
    figure = _figure("whose", "Whose forecast it is", about, _time_table(track, whose.over_time, _share))
    note = f'<p class="about">{html.escape(text)}</p>\n' if text else ""
    return figure.removesuffix("</section>") + f'<div class="whose">{ends}</div>\n{note}</section>'


def _share(value: float) -> str:
    return _percent(value) if math.isfinite(value) else "–"


def _table(
    first: str,
    labels: Sequence[str],
    columns: Mapping[str, Sequence[float]],
    written: Callable[[float], str] | None = None,
) -> str:
    written = written or _short
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    rows = []
    for place, label in enumerate(labels):
        cells = "".join(f"<td>{written(values[place])}</td>" for values in columns.values())
        rows.append(f'<tr><th scope="row">{html.escape(label)}</th>{cells}</tr>')
    head = f'<thead><tr><th scope="col">{html.escape(first)}</th>{heads}</tr></thead>'
    return f"<table>{head}<tbody>{''.join(rows)}</tbody></table>"


def _short(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "–"


def _step_table(by_step: Mapping[str, Numbers]) -> str:
    columns: dict[str, Sequence[float]] = {m: np.asarray(v, dtype=np.float64).tolist() for m, v in by_step.items()}
    longest = max(len(values) for values in columns.values())
    return _table("Rows ahead", [str(step + 1) for step in range(longest)], columns)


def _time_table(track: Track, curves: Mapping[str, Numbers], written: Callable[[float], str] | None = None) -> str:
    """A few of the pieces, evenly spread; the page's data hold them all."""
    pieces = len(track.times)
    places = np.unique(np.linspace(0, max(0, pieces - 1), min(pieces, TABLE_ROWS)).round().astype(int))
    columns: dict[str, Sequence[float]] = {
        m: np.asarray(v, dtype=np.float64)[places].tolist() for m, v in curves.items()
    }
    return _table("Until", [track.times[place].replace("T", " ") for place in places], columns, written)


def _notes(report: Report) -> str:
    notes = list(report.notes)
    if report.protocol == "paper":
        notes.insert(0, LEAK)
    stretch = report.stretch
    if stretch is not None and stretch.fans:
        kept = shortened(stretch)
        if len(kept.columns) < len(stretch.columns):
            notes.append(f"The chart of forecasts shows {len(kept.columns)} of {len(stretch.columns)} columns.")
        if len(kept.times) < len(stretch.times):
            notes.append(f"The chart of forecasts shows the last {len(kept.times)} of {len(stretch.times)} rows.")
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    body = f'<ul class="notes">{items}</ul>' if notes else '<p class="about">Nothing was left out.</p>'
    if report.command:
        body += (
            f'\n<div class="command"><pre tabindex="0">{html.escape(report.command)}</pre>'
            '<button type="button" class="copy">Copy</button></div>'
        )
    return _section("Notes", body)
