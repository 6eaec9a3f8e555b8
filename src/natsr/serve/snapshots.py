"""Learners on disk, so that a restart need not learn everything again.

A snapshot says itself how far it has come: its forecast's origin is the time of the last row it has seen. So it cannot
disagree with a note kept elsewhere, and one that is missing, damaged or from another time costs a longer replay and
nothing else.
"""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine, delete, insert, select

from natsr.serve import tables
from natsr.serve.learner import Learner, LostError, Workshop
from natsr.serve.store import Store
from natsr.types import NatsrError

log = logging.getLogger(__name__)


class Snapshots(Protocol):
    """Where they are kept."""

    def put(self, owner: str, live: Learner) -> None:
        """Keep the learner in place of the snapshot before, durably and all or nothing."""

    def get(self, owner: str, workshop: Workshop) -> Learner | None:
        """The learner, if there is a snapshot that can be read."""

    def drop(self, owner: str) -> None:
        """Forget it."""

    def tidy(self, owners: set[str]) -> None:
        """Forget those of series that are gone."""


def snapshots_of(store: Store) -> Snapshots:
    """In a folder beside the SQLite file, or in the database where there is no folder."""
    return Folders(store.folder / "snapshots") if store.folder else Blobs(store.engine)


def _loaded(folder: Path, owner: str, workshop: Workshop) -> Learner | None:
    try:
        return workshop.load(folder)
    except LostError:
        raise  # that says nothing about the snapshot
    except NatsrError as error:
        log.warning("the snapshot of series %s cannot be used, its rows are learned again: %s", owner, error)
        return None


class Folders:
    """One folder for each series."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, owner: str, live: Learner) -> None:
        """See `Snapshots`."""
        live.save(self._root / owner)

    def get(self, owner: str, workshop: Workshop) -> Learner | None:
        """See `Snapshots`."""
        folder = self._root / owner
        return _loaded(folder, owner, workshop) if (folder / "manifest.json").exists() else None

    def drop(self, owner: str) -> None:
        """See `Snapshots`."""
        shutil.rmtree(self._root / owner, ignore_errors=True)

    def tidy(self, owners: set[str]) -> None:
        """See `Snapshots`."""
        if self._root.is_dir():
            for path in self._root.iterdir():
                if path.name not in owners:
                    self.drop(path.name)


class Blobs:
    """One blob for each series: a zip of the folder, stored without compression."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, owner: str, live: Learner) -> None:
        """See `Snapshots`."""
        with tempfile.TemporaryDirectory(prefix="natsr-") as folder:
            live.save(folder)
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for path in sorted(Path(folder).iterdir()):
                    archive.write(path, path.name)
        content = buffer.getvalue()
        kept = tables.snapshots
        with self._engine.begin() as connection:
            if connection.scalar(select(tables.series.c.id).where(tables.series.c.id == owner)) is None:
                return  # it was deleted meanwhile
            connection.execute(delete(kept).where(kept.c.series == owner))
            connection.execute(insert(kept).values(series=owner, size=len(content), content=content))

    def get(self, owner: str, workshop: Workshop) -> Learner | None:
        """See `Snapshots`."""
        kept = tables.snapshots
        with self._engine.connect() as connection:
            content = connection.scalar(select(kept.c.content).where(kept.c.series == owner))
        if content is None:
            return None
        with tempfile.TemporaryDirectory(prefix="natsr-") as folder:
            with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(folder)
            return _loaded(Path(folder), owner, workshop)

    def drop(self, owner: str) -> None:
        """See `Snapshots`; the database did it already, together with the series."""

    def tidy(self, owners: set[str]) -> None:
        """See `Snapshots`; the database keeps none without its series."""
