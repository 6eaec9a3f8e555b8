"""The state on SQLite or PostgreSQL: how it is opened, and every statement that is ever sent.

SQLite is used in WAL mode with `synchronous=FULL`: a commit is on the disk when it returns. One service at a time owns
a state: a lock on a file beside the database, or an advisory lock of PostgreSQL, refuses a second one.
"""

from __future__ import annotations

import fcntl
import json
import os
import time as clock
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from sqlalchemy import Connection, Engine, Row, create_engine, delete, event, func, insert, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from natsr.serve import tables
from natsr.serve.faults import StorageError, storage_error
from natsr.serve.tables import FORMAT, facts, forecasts, metadata, observations, series
from natsr.types import OptionError

#: The key of the advisory lock: "natsr" in ASCII.
_LOCK = 0x6E61747372
#: Seconds to wait for the lock of a service that was killed a moment ago.
_PATIENCE = 10.0
_CHUNK = 500  # bound parameters in one statement


class SeriesRow(NamedTuple):
    """A series as it is kept, and how long its log is."""

    id: str
    key: str
    settings: dict[str, Any]
    created: int
    snapshot_seq: int
    health: dict[str, Any]
    seq: int
    time: int | None


class LogRow(NamedTuple):
    """A row of the log."""

    seq: int
    time: int
    row: bytes


class ForecastRow(NamedTuple):
    """A forecast that was made: float32 `(3, H, C)`, and the health at that moment as JSON."""

    origin: int
    numbers: bytes
    health: str


class Store:
    """A state that is open; `close` it."""

    def __init__(self, state: str) -> None:
        self.folder: Path | None = None
        self._file: IO[bytes] | None = None
        if "://" in state:
            self.engine = _postgres(state)
        else:
            self.folder = Path(state)
            self._file = _locked_folder(self.folder)
            self.engine = _sqlite(self.folder / "natsr.db")
        try:
            self._prepare(state)
        except BaseException:
            self.close()
            raise

    def _prepare(self, state: str) -> None:
        try:
            metadata.create_all(self.engine)
            with self.engine.begin() as connection:
                found = connection.scalar(select(facts.c.value).where(facts.c.name == "format"))
                if found is None:
                    connection.execute(insert(facts).values(name="format", value=str(FORMAT)))
        except SQLAlchemyError as error:
            raise OptionError(f"cannot open the state {_shown(state)}: {storage_error(error).error}") from error
        if found is not None and found != str(FORMAT):
            raise OptionError(f"the state {_shown(state)} has format {found}, this natsr reads format {FORMAT}")

    def close(self) -> None:
        """Let go of it."""
        self.engine.dispose()
        if self._file is not None:
            self._file.close()

    def writer(self) -> Connection:
        """The connection of the one writer; on PostgreSQL it holds the lock that says so.

        Raises:
            StorageError: Another service holds it, or the database does not answer.
        """
        try:
            connection = self.engine.connect()
        except SQLAlchemyError as error:
            raise storage_error(error) from error
        if self.engine.dialect.name == "postgresql":
            try:
                self._take_lock(connection)
            except BaseException:
                connection.close()
                raise
        return connection

    def _take_lock(self, connection: Connection) -> None:
        started = clock.monotonic()
        while True:
            try:
                with connection.begin():
                    if connection.scalar(select(func.pg_try_advisory_lock(_LOCK))):
                        return
            except SQLAlchemyError as error:
                raise storage_error(error) from error
            if clock.monotonic() - started > _PATIENCE:
                raise StorageError(
                    503, "another natsr serve uses this database", "one service for a database", "stop the other one"
                )
            clock.sleep(0.1)

    def ping(self) -> None:
        """Raises if the database does not answer."""
        with self.engine.connect() as connection:
            connection.execute(select(facts.c.value)).first()

    # ---- reading -------------------------------------------------------------------------------------------------

    def all_series(self) -> list[SeriesRow]:
        """Every series, by key."""
        with self.engine.connect() as connection:
            rows = connection.execute(select(series).order_by(series.c.key)).all()
            return [self._series(row, connection) for row in rows]

    def find(self, connection: Connection, key: str) -> SeriesRow | None:
        """The series with this key."""
        row = connection.execute(select(series).where(series.c.key == key)).first()
        return self._series(row, connection) if row is not None else None

    def _series(self, row: Row[Any], connection: Connection) -> SeriesRow:
        seq, time = self.tail(row.id, connection)
        settings, health = json.loads(row.settings), json.loads(row.health)
        return SeriesRow(row.id, row.key, settings, row.created, row.snapshot_seq, health, seq, time)

    def tail(self, owner: str, connection: Connection) -> tuple[int, int | None]:
        """Rows in the log, and the time of the last."""
        log = observations.c
        newest = select(log.seq, log.time).where(log.series == owner).order_by(log.time.desc()).limit(1)
        row = connection.execute(newest).first()
        return (row.seq, row.time) if row else (0, None)

    def rows_after(self, owner: str, time: int | None, limit: int) -> list[LogRow]:
        """The next rows of the log after a time, or from its beginning."""
        log = observations.c
        wanted = select(log.seq, log.time, log.row).where(log.series == owner)
        if time is not None:
            wanted = wanted.where(log.time > time)
        with self.engine.connect() as connection:
            return [LogRow(*row) for row in connection.execute(wanted.order_by(log.time).limit(limit))]

    def times_after(self, connection: Connection, owner: str, time: int | None, limit: int) -> list[int]:
        """The next times of the log after one, or from its beginning."""
        log = observations.c
        wanted = select(log.time).where(log.series == owner)
        if time is not None:
            wanted = wanted.where(log.time > time)
        return list(connection.scalars(wanted.order_by(log.time).limit(limit)))

    def rows_before(self, owner: str, before: int | None, limit: int) -> list[LogRow]:
        """The last rows of the log, oldest first; only those before a time if it is given."""
        log = observations.c
        wanted = select(log.seq, log.time, log.row).where(log.series == owner)
        if before is not None:
            wanted = wanted.where(log.time < before)
        with self.engine.connect() as connection:
            rows = connection.execute(wanted.order_by(log.time.desc()).limit(limit)).all()
        return [LogRow(*row) for row in reversed(rows)]

    def seq_at(self, owner: str, time: int) -> int | None:
        """Which row of the log has this time."""
        log = observations.c
        with self.engine.connect() as connection:
            return connection.scalar(select(log.seq).where(log.series == owner, log.time == time))

    def forecasts_between(self, owner: str, first: int, last: int, limit: int) -> list[ForecastRow]:
        """The newest forecasts with an origin from `first` to `last`, oldest first."""
        kept = forecasts.c
        wanted = select(kept.origin, kept.numbers, kept.health).where(
            kept.series == owner, kept.origin >= first, kept.origin <= last
        )
        with self.engine.connect() as connection:
            rows = connection.execute(wanted.order_by(kept.origin.desc()).limit(limit)).all()
        return [ForecastRow(*row) for row in reversed(rows)]

    def recent(self, owners: Sequence[str], limit: int) -> dict[str, list[bytes]]:
        """The last rows of many series at once, oldest first."""
        found: dict[str, list[bytes]] = {owner: [] for owner in owners}
        log = observations.c
        with self.engine.connect() as connection:
            for owner in owners:
                newest = select(log.row).where(log.series == owner).order_by(log.time.desc()).limit(limit)
                found[owner] = list(connection.scalars(newest))[::-1]
        return found

    # ---- writing, inside the writer's transaction ----------------------------------------------------------------

    def known(self, connection: Connection, owner: str, times: Sequence[int]) -> dict[int, bytes]:
        """Those of the times that are in the log, with their rows."""
        found: dict[int, bytes] = {}
        log = observations.c
        for start in range(0, len(times), _CHUNK):
            part = times[start : start + _CHUNK]
            rows = connection.execute(select(log.time, log.row).where(log.series == owner, log.time.in_(part)))
            found.update({row.time: row.row for row in rows})
        return found

    def add_series(self, connection: Connection, row: SeriesRow) -> None:
        """A new series."""
        values = {"id": row.id, "key": row.key, "settings": json.dumps(row.settings), "created": row.created}
        connection.execute(insert(series).values(**values, snapshot_seq=0, health="{}"))

    def add_rows(self, connection: Connection, owner: str, rows: Sequence[LogRow]) -> None:
        """New rows of the log."""
        if rows:
            connection.execute(insert(observations), [{"series": owner, **row._asdict()} for row in rows])

    def add_forecasts(self, connection: Connection, owner: str, rows: Sequence[ForecastRow]) -> None:
        """Forecasts; those that a replay makes again take the place of what was there."""
        if rows:
            span = (forecasts.c.origin >= rows[0].origin) & (forecasts.c.origin <= rows[-1].origin)
            connection.execute(delete(forecasts).where(forecasts.c.series == owner, span))
            connection.execute(insert(forecasts), [{"series": owner, **row._asdict()} for row in rows])

    def note_snapshot(self, connection: Connection, owner: str, seq: int, health: str, oldest: int) -> None:
        """That a snapshot is there, and that forecasts before `oldest` need not be kept."""
        connection.execute(update(series).where(series.c.id == owner).values(snapshot_seq=seq, health=health))
        connection.execute(delete(forecasts).where(forecasts.c.series == owner, forecasts.c.origin < oldest))

    def remove_series(self, connection: Connection, owner: str) -> None:
        """A series and all that is kept of it."""
        for table in (tables.snapshots, forecasts, observations):
            connection.execute(delete(table).where(table.c.series == owner))
        connection.execute(delete(series).where(series.c.id == owner))


def _shown(state: str) -> str:
    """Without the password."""
    return make_url(state).render_as_string(hide_password=True) if "://" in state else state


def _postgres(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise OptionError(f"--state is {url.split('@')[-1]!r}, expected a folder or postgresql://…") from error
    if parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise OptionError(
            f"--state is a URL of {parsed.drivername}, expected postgresql://USER@HOST/DATABASE, or a folder"
        )
    try:
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True, pool_size=10)
    except ImportError as error:
        raise OptionError("PostgreSQL needs psycopg, expected it installed: pip install 'natsr[postgres]'") from error


def _locked_folder(folder: Path) -> IO[bytes]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("ab")
    except OSError as error:
        raise OptionError(f"--state {folder} cannot be written: {error}; expected a folder of your own") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OptionError(f"another natsr serve uses {folder}, expected one at a time; stop it first") from error
    return file


def _sqlite(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": 30})

    def prepare(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=30000", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    event.listen(engine, "connect", prepare)
    return engine


def backup(state: Path, target: Path) -> None:
    """A consistent copy of a SQLite state's database, also while it is served; snapshots are made again from it."""
    if target.exists():
        raise OptionError(f"{target} is there already, expected a new file")
    if not (state / "natsr.db").is_file():
        raise OptionError(f"{state} holds no natsr.db, expected the folder that `natsr serve --state` was given")
    engine = _sqlite(state / "natsr.db")
    try:
        with engine.connect() as connection:
            connection.execute(text("VACUUM INTO :target"), {"target": os.fspath(target)})
    except SQLAlchemyError as error:
        raise OptionError(f"cannot copy {state}: {storage_error(error).error}") from error
    finally:
        engine.dispose()
