"""What is kept: the series, the log of their rows, the forecasts made, and, on PostgreSQL, the snapshots.

The log has one row for each series and time. `seq` counts the rows of a series from 1; since a row is taken only if it
is later than all before it, the order of `seq` and of `time` is the same. Times of rows and forecasts are ticks since
1970: seconds or, where the `freq` of the series is in parts of a second (`100ms`, `250us`), these (`natsr.data.ticks`).
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, MetaData, String, Table, Text

#: Of the tables; a state of another format is refused.
FORMAT = 1

metadata = MetaData()

facts = Table("facts", metadata, Column("name", String(40), primary_key=True), Column("value", Text, nullable=False))

series = Table(
    "series",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("key", String(128), nullable=False, unique=True),
    Column("settings", Text, nullable=False),  # JSON, the arguments of natsr.Live
    Column("created", BigInteger, nullable=False),  # seconds since 1970, UTC
    Column("snapshot_seq", BigInteger, nullable=False, default=0),  # a hint: the newest snapshot has seen so many rows
    Column("health", Text, nullable=False, default="{}"),  # JSON, as it was at that snapshot
)


def _owner() -> Column[str]:
    return Column("series", String(32), ForeignKey("series.id"), primary_key=True)


observations = Table(
    "observations",
    metadata,
    _owner(),
    Column("time", BigInteger, primary_key=True, autoincrement=False),  # ticks since 1970
    Column("seq", BigInteger, nullable=False),
    Column("row", LargeBinary, nullable=False),  # float64, little endian, NaN where missing
    sqlite_with_rowid=False,
)

forecasts = Table(
    "forecasts",
    metadata,
    _owner(),
    Column("origin", BigInteger, primary_key=True, autoincrement=False),
    Column("numbers", LargeBinary, nullable=False),  # float32 (3, H, C): mean, low and high of the 90 % interval
    Column("health", Text, nullable=False),  # JSON, after that row
    sqlite_with_rowid=False,
)

snapshots = Table(
    "snapshots",
    metadata,
    _owner(),
    Column("size", Integer, nullable=False),
    Column("content", LargeBinary, nullable=False),  # a zip of what Live.save writes
)
