"""Analogs against the plainest way to write them, and what they are there for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from natsr.auto import panel
from natsr.experts.analogs import WEARING, Analogs, Kind, Measure, Move
from natsr.experts.past import Arrays, Past
from natsr.types import Task

Array = npt.NDArray[np.float64]
HORIZON, LAGS = 3, 60


def day(rows: int) -> Arrays:
    return {"period": np.array([rows], dtype=np.int64)}


def played(kinds: tuple[Kind, ...], rows: Array, lags: int = LAGS) -> tuple[Analogs, Past, Array]:
    group, past = Analogs(kinds, rows.shape[1], HORIZON, lags), Past(rows.shape[1], 200, HORIZON)
    for row in rows:
        past.push(row)
        group.observe(past)
    out = np.zeros((len(kinds), HORIZON, rows.shape[1]))
    group.forecast(past, out)
    return group, past, out


def plainly(kind: Kind, rows: Array, lags: int = LAGS) -> Array:
    """The median of what followed the nearest stretches, each gone through row by row."""
    of = np.diff(rows, axis=0, prepend=rows[:1]) if kind.measure.changes else rows
    newest, count = len(rows) - 1, rows.shape[1]
    padded = np.concatenate([np.repeat(of[:1], lags, 0), of])  # before the first row, the first row
    weights = kind.measure.fade ** np.arange(newest, -1, -1)[:, None]
    sums = {lag: (weights * np.abs(of - padded[lags - lag :][: newest + 1])).sum(0) for lag in range(1, lags + 1)}
    period = 1 if kind.period is None else int(kind.period["period"][0])
    there = [
        lag
        for lag in range(HORIZON, min(lags, newest) + 1)
        if any(abs(lag - whole) <= kind.near for whole in range(period, lag + kind.near + 1, period))
    ]
    size = np.sqrt(np.mean(np.square(np.diff(rows, axis=0)), axis=0))
    moved = {"as it was": np.zeros(HORIZON), "wholly": np.ones(HORIZON)}.get(
        kind.move, WEARING ** np.arange(1, HORIZON + 1)
    )
    found = np.zeros((HORIZON, count))
    for channel in range(count):
        far = [float((sums[lag] / size).sum() if kind.together else sums[lag][channel]) for lag in there]
        best = [there[place] for place in np.argsort(far, kind="stable")[: kind.stretches]]
        for ahead in range(HORIZON):
            followed = [
                rows[newest - lag + 1 + ahead, channel]
                + moved[ahead] * (rows[newest, channel] - rows[newest - lag, channel])
                for lag in best
            ]
            found[ahead, channel] = np.median(followed)
    return found


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("period", [None, 5])
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize(("move", "count"), [("as it was", 1), ("wholly", 5), ("wearing off", 4)])
def test_the_median_of_what_followed_the_nearest_stretches(
    move: Move, count: int, changes: bool, period: int | None, together: bool
) -> None:
    rows = np.cumsum(np.random.default_rng(0).standard_normal((50, 2)), 0)
    where = None if period is None else day(period)
    kind = Kind("x", Measure(changes, 0.7), count, move, where, 1, together)
    for seen in (20, 49):
        np.testing.assert_allclose(played((kind,), rows[:seen])[2][0], plainly(kind, rows[:seen]), rtol=1e-9)


def test_a_burst_is_known_from_the_second_time_on() -> None:
    """What no regression finds in two times: it always has the same shape, and begins at any time."""
    rows, shape = np.zeros((150, 1)), [9.0, 4.0, 6.0, 1.0]
    for first in (40, 83):
        rows[first : first + 4, 0] = shape
    rows[120] = shape[0]
    kind = Kind("x", Measure(False, 0.7), 1, "as it was")
    assert played((kind,), rows[:121], 100)[2][0, :, 0].tolist() == shape[1:]


def test_only_whole_days_are_looked_at() -> None:
    """Rows that are exactly like the last ones, but of another time of day, are not."""
    rows = np.random.default_rng(1).standard_normal((60, 1))
    rows[-5:] = rows[32:37]  # 23 rows before
    any_time, whole = (Kind("x", Measure(False, 0.5), 1, "as it was", where) for where in (None, day(10)))
    out = played((any_time, whole), rows)[2]
    assert out[0, :, 0].tolist() == rows[37:40, 0].tolist()
    assert out[1, :, 0].tolist() in [rows[60 - lag : 63 - lag, 0].tolist() for lag in (10, 20, 30, 40, 50)]


def test_a_period_that_changes_is_followed() -> None:
    where, rows = day(10), np.tile(np.arange(7.0), 20)[:, None]
    group, past, out = played((Kind("x", Measure(False, 0.5), 1, "as it was", where),), rows)
    where["period"][:] = 7
    group.forecast(past, out)
    assert out[0, :, 0].tolist() == [0.0, 1.0, 2.0]


def test_without_a_row_to_compare_the_stream_stays_where_it_is() -> None:
    moves: tuple[Move, ...] = ("as it was", "wholly", "wearing off")
    kinds = tuple(Kind("x", Measure(False, 0.5), 3, move) for move in moves)
    assert (played(kinds, np.array([[1.0], [5.0]]))[2] == 5.0).all()


def test_a_column_that_stands_still_says_nothing_of_the_others() -> None:
    rows = np.random.default_rng(2).standard_normal((80, 2))
    alone = played((Kind("x", Measure(False, 0.5), 3, "as it was"),), rows)[2]
    rows[:, 1] = 7.0
    both = played((Kind("x", Measure(False, 0.5), 3, "as it was", together=True),), rows)[2]
    assert both[0, :, 0].tolist() == alone[0, :, 0].tolist()


def test_distances_can_be_had_from_the_rows_alone() -> None:
    kinds = (Kind("x", Measure(False, 0.8), 3, "as it was"), Kind("y", Measure(True, 0.9), 3, "as it was"))
    rows = np.cumsum(np.random.default_rng(3).standard_normal((300, 2)), 0)
    group, past, _ = played(kinds, rows)
    found, kept, few = (
        np.asarray(arrays["distance"], dtype=np.float64)
        for arrays in (group.of_rows(past.last(200)), group.arrays(), group.of_rows(rows[:10]))
    )
    np.testing.assert_allclose(found, kept, rtol=1e-4)
    np.testing.assert_allclose(few[0, -9:], np.abs(rows[9] - rows[:9]), rtol=1e-12)


def test_too_many_stretches_are_refused() -> None:
    with pytest.raises(ValueError, match="1 to 31 stretches, got .32."):
        Analogs((Kind("x", Measure(False, 0.5), 32, "wholly"),), 1, 1, 10)


def test_auto_learns_a_burst_that_no_line_fits() -> None:
    """One row ahead. The best expert that is no analog is off by more than twice as much as the mixture."""
    generator, values = np.random.default_rng(4), np.zeros((1500, 1))
    row = 20
    while row < 1490:
        values[row : row + 5, 0] = (3.0, 8.0, 2.0, 6.0, 1.0)
        row += int(generator.integers(12, 40))
    values += 0.01 * generator.standard_normal(values.shape)
    pool, error = panel(Task(60, 1, 1, season=24)), 0.0
    others = [place for place, name in enumerate(pool.names) if not name.startswith("analog_")]
    alone = np.zeros(len(others))
    for number, value in enumerate(values[:-1]):
        pool.advance(value)
        if number > 600:
            error += abs(float(pool.mean()[0, 0] - values[number + 1, 0]))
            alone += np.abs(pool.newest()[others, 0, 0] - values[number + 1, 0])
    assert error < 0.5 * alone.min()
    assert sum(weight for name, weight in pool.weights().items() if name.startswith("analog_")) > 0.3
