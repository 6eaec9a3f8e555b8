"""The log is the truth: whatever leaves memory, is damaged, fails or stops, the same rows give the same forecasts."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from benchmarks.serve.harness import moment, rows, uninterrupted
from sqlalchemy import Connection, event, text

from natsr.live import Live, LiveForecast
from natsr.serve import learners
from natsr.serve.admit import Outcome, offered
from natsr.serve.faults import ApiError, StorageError
from natsr.serve.series import Series
from natsr.serve.service import Service, checked
from natsr.serve.settings import Limits, ServeSettings, check_host
from natsr.serve.store import Store, backup
from natsr.types import OptionError

T = TypeVar("T")
PATIENCE = 120.0
#: A learner with random numbers, a memory and curvature, small enough for tests.
NATSR = {"columns": ["load"], "horizon": 2, "window": 6, "method": "natsr", "freq": "h",
         "options": {"width": 4, "depth": 2, "top": 8, "epochs": 1, "memory": 20}}  # fmt: skip
RLS = {"columns": ["load"], "horizon": 2, "window": 6, "method": "rls", "freq": "h", "options": {}}
GIVEN = {"protocol": "honest", "seed": 0}


class Running:
    """A service in this process, without HTTP."""

    def __init__(self, state: Path, **more: Any) -> None:
        self.service = Service(ServeSettings(str(state), **{"workers": 2, **more}))
        self.pragma = ""  # obeyed by every connection from the next transaction on
        # Before there are threads that connect: SQLAlchemy's list of listeners must not change under them.
        event.listen(self.service.store.engine, "begin", self._obey)
        self.service.start()

    def _obey(self, connection: Connection) -> None:
        if self.pragma:
            connection.exec_driver_sql(f"PRAGMA {self.pragma}")

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self.service.close()

    def series(self, key: str, settings: dict[str, Any] | None = None) -> Series:
        if settings is None:
            return self.service.find(key)
        created = self.service.create(key, checked({**GIVEN, **settings}, Limits())).result(PATIENCE)
        return created.series

    def post(self, key: str, number: int, first: int, last: int) -> Outcome:
        series = self.service.find(key)
        good, bad = offered([(row["time"], row["values"], None) for row in rows(number, first, last)], series.layout)
        assert not bad
        return self.service.observe(series, good).result(PATIENCE)

    def learned(self, key: str) -> Series:
        series = self.service.find(key)
        self.service.learners.wait(series, series.tail.seq).result(PATIENCE)
        return series

    def forecast(self, key: str, levels: tuple[float, ...] = (0.5, 0.9)) -> LiveForecast:
        found = self.service.forecast(self.learned(key), levels)
        return found.result(PATIENCE) if isinstance(found, Future) else found

    def mean(self, key: str) -> list[float]:
        return [float(value) for value in self.forecast(key).mean[:, 0]]


def abandoned(state: Path, work: Callable[[Running], None], **more: Any) -> None:
    """Do something, and leave without a snapshot, as after a kill: the log is all there is."""
    running = Running(state, **more)
    try:
        work(running)
    finally:
        for series in running.service.all():
            series.snapshot = series.tail.seq  # nothing is new, so nothing is kept
        running.service.close()


@pytest.mark.parametrize("settings", [NATSR, RLS], ids=["natsr", "rls"])
def test_a_restart_goes_on_to_the_last_bit(tmp_path: Path, settings: dict[str, Any]) -> None:
    alone = uninterrupted(settings, 0, 60, [19, 39, 59])
    with Running(tmp_path) as running:
        running.series("a", settings)
        running.post("a", 0, 0, 20)
        assert running.mean("a") == alone[moment(19)]
    assert list((tmp_path / "snapshots").iterdir()), "a stop takes a snapshot"

    def work(running: Running) -> None:
        running.post("a", 0, 20, 40)
        assert running.mean("a") == alone[moment(39)]

    abandoned(tmp_path, work)
    with Running(tmp_path) as running:
        assert running.series("a").tail.seq == 40
        assert running.mean("a") == alone[moment(39)]
        for row in range(40, 60):
            running.post("a", 0, row, row + 1)
        assert running.mean("a") == alone[moment(59)]


@pytest.mark.parametrize("harm", ["gone", "damaged", "ahead"])
def test_a_snapshot_that_cannot_be_used_costs_time_only(tmp_path: Path, harm: str) -> None:
    alone = uninterrupted(NATSR, 0, 30, [29])
    with Running(tmp_path) as running:
        owner = running.series("a", NATSR).id
        running.post("a", 0, 0, 30)
        running.learned("a")
    folder = tmp_path / "snapshots" / owner
    if harm == "gone":
        shutil.rmtree(folder)
    elif harm == "damaged":
        (values,) = folder.glob("values-*.json")
        values.write_bytes(values.read_bytes()[:-10])
    else:  # it has seen rows that the log has not, as when an older copy of the log is restored
        store = Store(str(tmp_path))
        with store.engine.begin() as connection:
            connection.execute(text("DELETE FROM observations WHERE seq > 20"))
        store.close()
    with Running(tmp_path) as running:
        if harm == "ahead":
            assert running.series("a").tail.seq == 20
            running.post("a", 0, 20, 30)
        assert running.forecast("a", (0.5,)).mean[:, 0].tolist() == alone[moment(29)]


def test_cold_series_leave_memory_and_come_back(tmp_path: Path) -> None:
    count = 5
    alone = [uninterrupted(RLS, number, 24, [11, 23]) for number in range(count)]
    with Running(tmp_path, resident=2) as running:
        for number in range(count):
            running.series(f"s{number}", RLS)
        for last in (12, 24):
            for number in range(count):
                running.post(f"s{number}", number, last - 12, last)
                running.learned(f"s{number}")
            for number in range(count):
                asked = running.forecast(f"s{number}", (0.33,))  # not a level that is kept, so the learner is asked
                assert asked.mean[:, 0].tolist() == alone[number][moment(last - 1)]
        _until(lambda: running.service.learners.resident <= 2)
        assert sum(series.live is not None for series in running.service.all()) <= 2


def _until(condition: Callable[[], bool]) -> None:
    event = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        if condition():
            return
        event.wait(0.02)
    raise AssertionError("it did not come to pass")


def test_a_deleted_series_is_gone_and_its_key_can_be_used_again(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        first = running.series("a", RLS)
        running.post("a", 0, 0, 20)
        running.learned("a")
        removed, again = (
            running.service.delete(first),
            running.service.create("a", checked({**GIVEN, **NATSR}, Limits())),
        )
        removed.result(PATIENCE)
        second = again.result(PATIENCE).series
        assert second.id != first.id and second.tail.seq == 0
        with pytest.raises(ApiError, match="gone"):
            running.service.observe(first, []).result(PATIENCE)
        running.post("a", 0, 0, 3)
        assert running.learned("a").tail.seq == 3
    with Running(tmp_path) as running:
        assert [series.tail.seq for series in running.service.all()] == [3]
        assert [path.name for path in (tmp_path / "snapshots").iterdir()] == [second.id]


def test_requests_at_once_keep_every_row_once(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        series = running.series("a", RLS)
        good, _ = offered([(row["time"], row["values"], None) for row in rows(0, 0, 200)], series.layout)
        outcomes: list[Outcome] = []

        def send() -> None:
            for start in range(0, 200, 20):
                outcomes.append(running.service.observe(series, good[start : start + 20]).result(PATIENCE))

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert sum(len(outcome.taken) for outcome in outcomes) == 200
        assert sum(outcome.duplicates for outcome in outcomes) == 600
        assert [row.seq for row in running.service.store.rows_after(series.id, None, 1000)] == list(range(1, 201))
        assert running.mean("a") == uninterrupted(RLS, 0, 200, [199])[moment(199)]


def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.series("a", RLS)
        running.post("a", 0, 0, 20)
        running.pragma = "max_page_count=1"  # no page more than there are
        with pytest.raises(StorageError) as caught:
            for first in range(20, 2000, 200):
                running.post("a", 0, first, first + 200)
        assert caught.value.status == 507
        kept = running.series("a").tail.seq
        assert "nothing of this request" in caught.value.hint
        running.pragma = "max_page_count=1000000"  # room was made
        running.post("a", 0, kept, kept + 20)
        assert running.mean("a") == uninterrupted(RLS, 0, kept + 20, [kept + 19])[moment(kept + 19)]
    with Running(tmp_path) as running:
        assert running.series("a").tail.seq == kept + 20


def test_a_state_that_cannot_be_written_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        running.series("a", RLS)
        running.post("a", 0, 0, 20)
        before = running.mean("a")
        running.pragma = "query_only=ON"
        with pytest.raises(StorageError) as caught:
            running.post("a", 0, 20, 30)
        assert caught.value.status == 503
        with pytest.raises(StorageError):
            running.series("b", RLS)
        assert running.mean("a") == before
        assert running.series("a").tail.seq == 20
        running.pragma = "query_only=OFF"
        assert len(running.post("a", 0, 20, 30).taken) == 10


def test_one_job_that_fails_does_not_fail_its_neighbours(tmp_path: Path) -> None:
    with Running(tmp_path) as running:
        series = running.series("a", RLS)
        journal, release = running.service._journal, threading.Event()
        hold = journal.submit(lambda _: release.wait(PATIENCE))  # so that the next ones come together
        bad = journal.submit(lambda connection: connection.execute(text("INSERT INTO nowhere VALUES (1)")))
        mistake = journal.submit(lambda _: 1 // 0)
        good, _ = offered([(row["time"], row["values"], None) for row in rows(0, 0, 5)], series.layout)
        taken = running.service.observe(series, good)
        release.set()
        assert hold.result(PATIENCE)
        for failed in (bad, mistake):
            with pytest.raises(StorageError):
                failed.result(PATIENCE)
        assert len(taken.result(PATIENCE).taken) == 5
        assert series.tail.seq == 5


def test_learning_that_fails_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learners, "LONGEST_RETRY", 0.2)
    broken, observe = threading.Event(), Live.observe

    def fragile(live: Live, time: object, row: object, future: object = None) -> None:
        if broken.is_set():
            raise ArithmeticError("a mistake of ours")
        assert future is None
        observe(live, time, row)

    monkeypatch.setattr(Live, "observe", fragile)
    with Running(tmp_path) as running:
        series = running.series("a", RLS)
        running.post("a", 0, 0, 20)
        running.learned("a")
        broken.set()
        running.post("a", 0, 20, 25)
        _until(lambda: series.failure is not None)
        assert "a mistake of ours" in str(series.failure)
        with pytest.raises(ApiError, match="learning has failed"):
            running.service.learners.ask(series, lambda live: live.forecast()).result(PATIENCE)
        broken.clear()
        _until(lambda: series.pending == 0)
        assert running.mean("a") == uninterrupted(RLS, 0, 25, [24])[moment(24)]
        _until(lambda: series.failure is None)


def test_one_service_for_a_state(tmp_path: Path) -> None:
    with Running(tmp_path), pytest.raises(OptionError, match="another natsr serve"):
        Service(ServeSettings(str(tmp_path)))


def test_states_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for state in (str(tmp_path / "file"), "mysql://x/y", "postgresql://nobody@127.0.0.1:1/none"):
        with pytest.raises((OptionError, StorageError)):
            Service(ServeSettings(state))
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "natsr.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(OptionError, match="cannot open"):
        Service(ServeSettings(str(folder)))


def test_a_backup_while_it_runs_can_be_served(tmp_path: Path) -> None:
    with Running(tmp_path / "a") as running:
        running.series("a", RLS)
        running.post("a", 0, 0, 20)
        backup(tmp_path / "a", tmp_path / "copy.db")
        expected = running.mean("a")
    (tmp_path / "b").mkdir()
    (tmp_path / "copy.db").rename(tmp_path / "b" / "natsr.db")
    with Running(tmp_path / "b") as running:
        assert running.mean("a") == expected


def test_without_tokens_it_listens_on_loopback_only(tmp_path: Path) -> None:
    check_host("127.0.0.1", None)
    check_host("0.0.0.0", tmp_path / "tokens")
    for host in ("0.0.0.0", "::", "192.168.1.7", "example.org"):
        with pytest.raises(OptionError, match="natsr token"):
            check_host(host, None)


def test_snapshots_due_by_the_clock_leave_time_to_learn(tmp_path: Path) -> None:
    """Those of many series are due at once; after each the thread rests nine times as long as it took."""
    with Running(tmp_path, workers=1, snapshot_seconds=0.05, snapshot_rows=10_000) as running:
        (lane,) = running.service.learners._lanes.every
        series = [running.series(key, RLS) for key in ("a", "b", "c")]
        lane.rest_until = time.monotonic() + 10_000
        for number, one in enumerate(series):
            running.post(one.key, number, 0, 5)
        _until(lambda: all(one.pending == 0 and time.monotonic() - one.dirty_since > 1 for one in series))
        assert [one.snapshot for one in series] == [0, 0, 0]
        lane.rest_until = 0.0
        _until(lambda: all(one.snapshot == 5 for one in series))
        assert lane.rest_until > 0
