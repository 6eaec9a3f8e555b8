"""Which rows a pool has, and which one a window ends with: by number or by comparing. None is lost or taken twice."""

from __future__ import annotations

import copy

import numpy as np
import numpy.typing as npt
import pytest
import torch

from natsr.evaluate import Moment, evaluate
from natsr.experts.panel import Panel
from natsr.forecasters.base import Forecast
from natsr.forecasters.joint import Joint
from natsr.forecasters.naive import LastValue
from natsr.forecasters.pool import Pool
from natsr.recipes import make
from natsr.streams import Rows, Windows
from natsr.types import Task

Array = npt.NDArray[np.float64]


def pool(task: Task) -> Pool:
    made = make("auto", task, options={"budget": "cheap"})
    assert isinstance(made, Pool)
    return made


def rows_of(values: Array) -> Rows:
    tensor = torch.from_numpy(values).float()
    return Rows(tensor, tensor)


def solar(count: int) -> Array:
    """Nothing for two thirds of a day."""
    day = np.maximum(0, np.sin(np.arange(count) * 2 * np.pi / 24) - 0.5)
    return np.asarray((day * (1 + 0.05 * np.random.default_rng(0).normal(size=count)))[:, None])


def seldom(count: int) -> Array:
    """Nothing for longer than any window."""
    spikes = np.arange(count) % 50 < 4
    return np.asarray((spikes * (1 + 0.1 * np.random.default_rng(0).normal(size=count)))[:, None])


def noise(count: int) -> Array:
    return np.asarray(np.random.default_rng(0).normal(size=(count, 1)))


def warmed(rows: Rows, task: Task, cut: int, stop: int) -> Pool:
    made = pool(task)
    made.warm_up(Windows(rows, task, 0, cut), Windows(rows, task, cut, stop))
    return made


def told(panel: Panel, rows: Rows, start: int, stop: int) -> Panel:
    panel = copy.deepcopy(panel)
    for row in rows.truth[start:stop].double().numpy():
        panel.advance(row)
    return panel


SOLAR, SELDOM = Task(window=60, horizon=24, channels=1, season=24), Task(window=8, horizon=5, channels=1, season=6)


@pytest.mark.parametrize("protocol", ["honest", "partial", "paper"])
@pytest.mark.parametrize(("values", "task", "warm"), [(solar(520), SOLAR, 479), (seldom(260), SELDOM, 240)])
def test_where_a_stream_stands_still_every_forecast_is_that_of_its_own_row(
    values: Array, task: Task, warm: int, protocol: str
) -> None:
    rows, means = rows_of(values), list[Array]()
    auto = warmed(rows, task, warm - 60, warm)
    panel = copy.deepcopy(auto._panel)
    evaluate(
        {"auto": auto},
        rows,
        task,
        start=warm,
        stop=len(values),
        protocol=protocol,
        intervals=False,
        on_step=lambda moment: means.append(moment.means["auto"]),
    )
    ahead = task.horizon - 1 if protocol == "paper" else 0
    for number, mean in enumerate(means[: task.horizon + 3]):
        known = told(panel, rows, warm, warm + number + ahead * (number > 0))
        expected = known.mean(ahead * (number > 0)).astype(np.float32)
        np.testing.assert_array_equal(mean, expected, err_msg=f"{number} rows after the warm-up")


def test_without_numbers_the_place_is_where_most_rows_agree() -> None:
    """A night is longer than the few rows that usually tell where a window belongs."""
    rows = rows_of(solar(520))
    auto = warmed(rows, SOLAR, 419, 479)
    windows = Windows(rows, SOLAR, 0, 520)
    for row in range(478, 500):
        expected = told(auto._panel, rows, 479, row + 1).mean().astype(np.float32)
        np.testing.assert_array_equal(auto.forecast(windows.window(row)).mean[0].numpy(), expected)
    older = auto.forecast(windows.window(475)).mean[0].numpy()
    np.testing.assert_array_equal(older, auto._panel.mean(3).astype(np.float32))


def test_a_horizon_longer_than_a_window_loses_no_row_and_copies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task, copies = Task(window=8, horizon=20, channels=1, season=6), list[object]()
    rows, means = rows_of(noise(200)), list[Array]()
    auto = warmed(rows, task, 100, 130)
    panel = copy.deepcopy(auto._panel)
    plain = copy.deepcopy

    def counted(thing: object) -> object:
        copies.append(thing)
        return plain(thing)

    def keep(moment: Moment) -> None:
        means.append(moment.means["auto"])

    with monkeypatch.context() as patched:
        patched.setattr(copy, "deepcopy", counted)
        evaluate({"auto": auto}, rows, task, start=130, stop=200, intervals=False, on_step=keep)
    assert len(copies) == 1
    for number, mean in enumerate(means[:25]):
        np.testing.assert_array_equal(mean, told(panel, rows, 130, 130 + number).mean().astype(np.float32))


@pytest.mark.parametrize("stop", [100, 103, 119])
def test_a_warm_up_takes_in_a_part_that_is_too_short_for_an_example(stop: int) -> None:
    task = Task(window=8, horizon=20, channels=1, season=6)
    rows = rows_of(noise(200))
    auto = warmed(rows, task, 100, stop)
    assert auto.state_dict()["row"] == stop - 1 and auto._panel.past.seen == stop
    np.testing.assert_array_equal(auto._panel.past.last(20), rows.truth[stop - 20 : stop].numpy())
    fresh = pool(task)
    fresh.warm_up(Windows(rows, task, 0, 20), Windows(rows, task, 20, 27))  # no example at all
    assert fresh._panel.past.seen == 0


def test_rows_that_no_window_has_shown_are_missing_ones() -> None:
    """The forecast beyond the end of a file, for which the rows of a long horizon have not been learned."""
    task = Task(window=8, horizon=20, channels=1, season=6)
    rows = rows_of(noise(400))
    auto, windows = warmed(rows, task, 100, 130), Windows(rows, task, 0, 400)
    for row, missing in ((141, 4), (300, 163 - 126)):  # of a gap whole weeks of 42 rows are left out
        expected = copy.deepcopy(auto._panel)
        for _ in range(missing):
            expected.advance(np.full(1, np.nan))
        expected = told(expected, rows, row - 7, row + 1)
        found = warmed(rows, task, 100, 130)
        mean = found.forecast_from(windows.window(row), torch.tensor([row])).mean[0].numpy()
        np.testing.assert_array_equal(mean, expected.mean().astype(np.float32))
        found.learn(windows.at(torch.tensor([row])))
        assert found.state_dict()["row"] == row + 20
        assert found._panel.past.seen == expected.past.seen + 20


def test_what_is_known_already_does_not_move_the_number() -> None:
    rows, task = rows_of(noise(200)), SELDOM
    auto, windows = warmed(rows, task, 100, 130), Windows(rows, task, 0, 200)
    auto.learn(windows.at(torch.tensor([110])))
    assert auto.state_dict()["row"] == 129


def test_beside_other_columns_the_pool_is_told_the_numbers_too() -> None:
    values, asked = seldom(260), list[object]()

    class Asked(LastValue):
        def forecast_from(self, window: torch.Tensor, origins: torch.Tensor | None) -> Forecast:
            asked.append(origins)
            return super().forecast_from(window, origins)

    rows = rows_of(values)
    auto = warmed(rows, SELDOM, 180, 240)
    joint = Joint(SELDOM, auto, Asked(SELDOM))
    window = Windows(rows, SELDOM, 0, 260).window(243)
    found = joint.forecast_from(window, torch.tensor([243])).mean
    expected = told(auto._panel, rows, 240, 244).mean().astype(np.float32)
    np.testing.assert_array_equal(found[0].numpy(), expected)
    assert asked == [torch.tensor([243])]
