"""What other networks would add to the pool of `auto`: each alone, mixed in, and in place of one that is there.

python -m benchmarks.auto.leads --rows 3000 --out benchmarks/results/auto-leads.json [--horizons 1,24] [--keep FOLDER]
python -m benchmarks.auto.leads --choose --out benchmarks/results/auto-leads-chosen.json

As `benchmarks.auto.parts`: what every expert says is recorded once, and mixed again with one more, or without one, by
the same code. Scored are the first `--rows` of the online part. What is there already is kept; `--keep` keeps what was
said, too. With `--choose`, rates and damping on the warm-up parts alone, of which the last third is scored.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from benchmarks.auto.parts import DATASETS, ONE, WINDOW, Said, heard, mixed
from benchmarks.auto.scored import How, Scored, Step

from natsr import auto
from natsr.data.named import load
from natsr.data.series import Borders, Prepared, prepare
from natsr.experts.base import Group
from natsr.experts.layouts import Waves
from natsr.experts.network import Style
from natsr.experts.panel import Panel
from natsr.experts.past import Array, Past
from natsr.experts.plain import LastValue
from natsr.forecasters.base import silent
from natsr.forecasters.member import Member, Reader
from natsr.mixtures import Layers
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Option, Task

FARTHEST = 24  # rows ahead that a one-step network is recorded for; what it says of fewer is the beginning of that
DAY = "network_day"
#: Three other steps for a network like it: NatSR's, the same with Adam on top, and Adam at these rates. `--choose` has
#: what they were chosen from, by the lowest mean of all figures there.
STABLE = Step(beta=3.0, rate=0.1, first=0.3)
FAST = Step(beta=10.0, rate=1e-4, first=3e-4, finish="adam")
SLOWER = FAST._replace(curved=False)
#: The same where 500 windows are remembered.
STABLE_500 = Step(beta=1.0, rate=0.01, first=0.1)
FAST_500 = Step(beta=1.0, rate=2e-5, first=3e-4, finish="adam")
SLOWER_500 = FAST_500._replace(curved=False)
#: Rows back, whether a week before is read too, units in a hidden layer, and the last rate over that of the first one.
KINDS = {DAY: (20, False, 128, 1.0), "network_week": (20, True, 128, 2.5)}
KINDS |= {"network_short": (8, False, 128, 2.5), "network_wide": (20, False, 256, 1.0)}


class OneRow(NamedTuple):
    """A network that forecasts one row: how it is learned, and which of `auto`'s four it is like."""

    how: How
    like: str = DAY


class Cone(NamedTuple):
    """A method as `budget=all` has it: its options, its name, rows in its window, and what each of these rows has more.

    Means over so many rows up to it, and the rows so many before it.
    """

    options: Mapping[str, Option]
    method: str = "natsr"
    window: int = WINDOW
    means: tuple[int, ...] = ()
    before: tuple[int, ...] = ()


class Scaled(Reader):
    """Reads other scales beside each row, of the rows that there are by then.

    Args:
        task: With as many features.
        cone: Which.
    """

    def __init__(self, task: Task, cone: Cone) -> None:
        super().__init__(task)
        self._cone, self._longest = cone, max((*cone.means, *cone.before))

    def _beside(self, values: Array) -> Array:
        """`(T, F)`; at the beginning, of fewer rows, or the first row."""
        sums = np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, 0)])
        end = np.arange(1, len(values) + 1)
        parts = []
        for rows in self._cone.means:
            start = np.maximum(0, end - rows)
            parts.append((sums[end] - sums[start]) / (end - start)[:, None])
        parts += [values[np.maximum(0, end - 1 - rows)] for rows in self._cone.before]
        return np.concatenate(parts, 1)

    def _read(self, past: Past, back: int) -> torch.Tensor:
        values = past.last(min(self.task.reach + self._longest, past.keep - back), back)
        rows = np.concatenate([values, self._beside(values)], 1)[-self.task.reach :]
        return torch.from_numpy(rows).float()[None]

    def parts(self, train: Windows, valid: Windows) -> tuple[Windows, Windows]:
        """What to learn from offline."""
        values = train.rows.inputs[:, : self.task.channels].double().numpy()
        rows = Rows(torch.from_numpy(np.concatenate([values, self._beside(values)], 1)).float(), train.rows.truth)
        return self._part(rows, train), self._part(rows, valid)


Lead = OneRow | Cone
LEADS: Mapping[str, Lead] = {
    "adam": OneRow(How()),
    "slower": OneRow(How(SLOWER)),
    "stable": OneRow(How(STABLE)),
    "fast": OneRow(How(FAST)),
    "adam_500": OneRow(How(windows=500)),
    "slower_500": OneRow(How(SLOWER_500, windows=500)),
    "stable_500": OneRow(How(STABLE_500, windows=500)),
    "fast_500": OneRow(How(FAST_500, windows=500)),
    **{f"slower_{like[8:]}": OneRow(How(SLOWER, seed=number), like) for number, like in enumerate(KINDS)},
    **{f"fast_{like[8:]}": OneRow(How(FAST, seed=number), like) for number, like in enumerate(KINDS)},
    "natsr": Cone({}),
    "natsr_memory": Cone({"memory": 16384}),
    "natsr_120": Cone({}, window=120),
    "natsr_240": Cone({}, window=240),
    "natsr_scales": Cone({}, means=(24, 168)),
    "natsr_week": Cone({}, before=(144,)),
    "natsr_fast": Cone({}, "natsr_fast"),
    "natsr_tails": Cone({"dof": 5.0, "rate": 0.03}),
    "natsr_replay": Cone({"beta": 1.0, "share": 1.0}),
}
#: What is mixed in, and what goes for it.
SETS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "a fifth network, Adam": (("adam",), ()),
    "a fifth network, Adam slower": (("slower",), ()),
    "a fifth network, NatSR": (("stable",), ()),
    "a fifth network, NatSR fast": (("fast",), ()),
    "`network_day` anew, Adam": (("adam",), (DAY,)),
    "`network_day` anew, Adam slower": (("slower",), (DAY,)),
    "`network_day` anew, NatSR": (("stable",), (DAY,)),
    "`network_day` anew, NatSR fast": (("fast",), (DAY,)),
    "all four anew, Adam slower": (tuple(f"slower_{like[8:]}" for like in KINDS), tuple(KINDS)),
    "all four anew, NatSR fast": (tuple(f"fast_{like[8:]}" for like in KINDS), tuple(KINDS)),
    "a fifth, 500 windows, Adam": (("adam_500",), ()),
    "a fifth, 500 windows, Adam slower": (("slower_500",), ()),
    "a fifth, 500 windows, NatSR": (("stable_500",), ()),
    "a fifth, 500 windows, NatSR fast": (("fast_500",), ()),
    "cone": (("natsr",), ()),
    "cone, memory of 16,384": (("natsr_memory",), ()),
    "cone, window of 120": (("natsr_120",), ()),
    "cone, window of 240": (("natsr_240",), ()),
    "cone, means of 24 and 168 rows beside each": (("natsr_scales",), ()),
    "cone, the row 144 before beside each": (("natsr_week",), ()),
    "cone, stable and fast": (("natsr", "natsr_fast"), ()),
    "four cones": (("natsr", "natsr_fast", "natsr_tails", "natsr_replay"), ()),
}
Entry = dict[str, dict[str, float]]


class Stream(NamedTuple):
    """A dataset as far as it is looked at."""

    ready: Prepared
    borders: Borders
    values: Array

    def task(self, horizon: int, window: int = WINDOW) -> Task:
        """What is forecast, from values alone."""
        return replace(self.ready.task(window, horizon), features=0, outside=0)


def opened(dataset: str, rows: int) -> Stream:
    """The warm-up part, and so many rows after it."""
    series, borders = load(dataset)
    ready = prepare(series, borders)
    return Stream(ready, borders, ready.rows.truth[: borders.valid + rows].double().numpy())


def one_row(task: Task, clock: auto.Clock, lead: OneRow) -> Scored:
    """A network that reads what one of `auto`'s reads."""
    rows, weekly, width, pace = KINDS[lead.like]
    last = range(min(rows, task.window) - 1, -1, -1)
    days = () if rows < 20 else (clock.day, clock.week) if weekly else (clock.day,)
    lags = {lag for period in days for lag in range(int(period["period"][0]), 0, -1)[:3]}
    taps = (*sorted(lags.difference(last), reverse=True), *last)
    step, waves = lead.how.step, Waves((clock.day, clock.week), (2, 1))
    how = lead.how if step is None else lead.how._replace(step=step._replace(rate=pace * step.rate))
    return Scored(task.channels, task.horizon, taps, waves, Style("lead", pace * 2e-4, width), how)


def alone(task: Task, clock: auto.Clock, group: Group) -> Panel:
    """A panel of the last value and one other expert."""
    keep = max(task.reach, 4 * int(clock.week["period"][0]), 3 * clock.longest) + 64 + task.horizon
    mixture = Layers(2, (task.horizon, task.channels), ONE, dtype=np.float32)
    return Panel(Past(task.channels, keep, task.horizon), clock, [LastValue(), group], mixture, task.horizon)


def said_by(stream: Stream, lead: Lead, horizon: int) -> tuple[Said, float]:
    """What a network says after each row, `(T, 1, H, C)`, and its milliseconds for a row.

    A cone learns as in `auto`: on its own from the 512th row on, and offline at the end of the warm-up part.
    """
    values, first = stream.values, stream.borders.valid
    if isinstance(lead, OneRow):
        task = stream.task(FARTHEST)
        clock = auto.Clock(task)
        panel = alone(task, clock, one_row(task, clock, lead))
        began = time.perf_counter()
        said = heard(values, panel, FARTHEST)[:, 1:, :horizon]
        return said, 1e3 * (time.perf_counter() - began) / len(values)
    task = stream.task(horizon, lead.window)
    wider = replace(task, features=task.channels * len(lead.means + lead.before))
    reader = Scaled(wider, lead) if wider.features else Reader(task)
    member = Member("lead", reader, partial(make, lead.method, options=lead.options))
    panel = alone(task, auto.Clock(task), member)
    before = heard(values[:first], panel, horizon)
    borders, given = stream.borders, stream.ready.rows
    rows = Rows(given.inputs[:, : task.channels], given.truth)
    member.warm_up(Windows(rows, task, 0, borders.train), Windows(rows, task, borders.train, borders.valid), silent)
    began = time.perf_counter()
    after = heard(values[first:], panel, horizon)
    milliseconds = 1e3 * (time.perf_counter() - began) / max(1, len(values) - first)
    return np.concatenate([before, after])[:, 1:], milliseconds


def error_of(values: Array, said: Said, first: int) -> float:
    """The MAE of one expert from row `first` on."""
    horizon = said.shape[2]
    errors = [np.abs(said[row, 0] - values[row + 1 : row + 1 + horizon]) for row in range(first, len(said) - horizon)]
    return float(np.nanmean(np.stack(errors)))


class Kept:
    """What was said, in files of a folder, or nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(self, name: str, say: Callable[[], tuple[Said, float]]) -> tuple[Said, float]:
        """From the file, or anew."""
        if self._folder is None:
            return say()
        path = self._folder / f"{name}.npz"
        if not path.exists():
            said, milliseconds = say()
            self._folder.mkdir(parents=True, exist_ok=True)
            np.savez(path, said=said, milliseconds=milliseconds)
        with np.load(path) as found:
            return found["said"], float(found["milliseconds"])


def measured(dataset: str, horizon: int, rows: int, kept: Kept, entry: Entry, wanted: tuple[str, ...]) -> bool:
    """Put the first of the sets that is missing into the entry; whether there was one."""
    missing = [name for name in wanted if name not in entry.get("with", {})]
    if not missing:
        return False
    stream = opened(dataset, rows)
    values, first = stream.values, stream.borders.valid - 1
    panel = auto.panel(stream.task(horizon), "one")
    said, _ = kept.get(f"{dataset}-{horizon}-pool-{rows}", lambda: (heard(values, panel, horizon), 0.0))
    names = panel.names
    figures = entry.setdefault("pool", {})
    if "mae" not in figures:
        figures["mae"] = mixed(values, said, names, auto.LAYERS, first)
        place = names.index(DAY)
        entry.setdefault("alone", {})[DAY] = error_of(values, said[:, place : place + 1], first)
    more, gone = SETS[missing[0]]
    there = [place for place, name in enumerate(names) if name not in gone]
    parts = [said[:, there]]
    for name in more:
        lead = LEADS[name]
        ahead = FARTHEST if isinstance(lead, OneRow) else horizon
        answer, milliseconds = kept.get(f"{dataset}-{ahead}-{name}-{rows}", partial(said_by, stream, lead, ahead))
        parts.append(answer[:, :, :horizon])
        entry.setdefault("alone", {})[name] = error_of(values, parts[-1], first)
        entry.setdefault("milliseconds", {})[name] = milliseconds
    together = np.ascontiguousarray(np.concatenate(parts, 1))
    all_names = (*(names[place] for place in there), *more)
    ratio = mixed(values, together, all_names, auto.LAYERS, first) / figures["mae"]
    entry["with"] = _ordered(entry.get("with", {}) | {missing[0]: ratio}, SETS)
    for part in ("alone", "milliseconds"):
        entry[part] = _ordered(entry[part], (DAY, *LEADS))
    return True


def _ordered(figures: dict[str, float], names: Iterable[str]) -> dict[str, float]:
    return {name: figures[name] for name in names if name in figures}


def tried() -> dict[str, Step | None]:
    """Adam, and the natural steps that one was chosen from."""
    kinds: dict[str, Step | None] = {"adam": None}
    plain = ((0.14, 0.01, 0.1), (1.0, 0.01, 0.1), (3.0, 0.03, 0.3), (3.0, 0.1, 0.3), (10.0, 0.03, 0.3))
    for beta, rate, first in plain:
        kinds[f"beta {beta:g}, rate {rate:g} from {first:g}"] = Step(beta=beta, rate=rate, first=first)
    kinds |= {
        f"adam on top, beta {beta:g}, rate {rate:g} from {first:g}": Step(
            beta=beta, rate=rate, first=first, finish="adam"
        )
        for beta, rate, first in (
            (0.14, 5e-5, 3e-4),
            (1.0, 2e-5, 3e-4),
            (1.0, 5e-5, 3e-4),
            (1.0, 1e-4, 3e-4),
            (1.0, 2e-4, 3e-4),
            (10.0, 5e-5, 3e-4),
            (10.0, 1e-4, 3e-4),
        )
    }
    kinds |= {
        f"adam alone, rate {rate:g} from {first:g}": Step(rate=rate, first=first, finish="adam", curved=False)
        for rate, first in ((2e-5, 3e-4), (5e-5, 3e-4), (1e-4, 3e-4), (2e-4, 3e-4), (1e-4, 1e-3), (5e-4, 1e-3))
    }
    return kinds


def chosen(dataset: str, windows: int, found: dict[str, dict[str, float]]) -> None:
    """The MAE of each on the last third of the warm-up part, one row ahead and over 24 rows."""
    stream = opened(dataset, 0)
    first = 2 * len(stream.values) // 3
    for name, step in tried().items():
        if name not in found:
            said, _ = said_by(stream, OneRow(How(step, windows)), FARTHEST)
            near = error_of(stream.values, said[:, :, :1], first)
            found[name] = {"H = 1": near, f"H = {FARTHEST}": error_of(stream.values, said, first)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--horizons", default="1,24")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--sets", default=";".join(SETS), help="names, with ; between them")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--windows", type=int, default=0, help="that are remembered, with --choose; 0: all")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    kept = Kept(given.keep)
    for dataset in given.datasets.split(","):
        if given.choose:
            name = f"{dataset}, {given.windows} windows" if given.windows else dataset
            chosen(dataset, given.windows, found.setdefault(name, {}))
            given.out.write_text(json.dumps(found, indent=1) + "\n")
            continue
        for horizon in map(int, given.horizons.split(",")):
            entry = found.setdefault(f"{dataset}, H = {horizon}, {given.rows} rows", {})
            while measured(dataset, horizon, given.rows, kept, entry, tuple(given.sets.split(";"))):
                given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
