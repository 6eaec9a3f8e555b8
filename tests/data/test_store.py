"""Where files are found, how they arrive whole or not at all, and how copies are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from natsr.data import store
from natsr.data.series import Series
from natsr.data.store import File
from natsr.types import DataError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A `$NATSR_DATA` and a user's cache of our own."""
    given, cache = tmp_path / "given", tmp_path / "cache" / "natsr"
    given.mkdir()
    monkeypatch.setenv("NATSR_DATA", str(given))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent))
    return given, cache


def series() -> Series:
    times = np.datetime64("2024-01-01", "s") + np.arange(3) * np.timedelta64(60, "s")
    return Series("s", times, np.array([[1.0, np.nan], [2.0, 5.0], [3.0, 6.0]]), ("a", "b"), 60, notes=("one note",))


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_natsr_data_comes_before_the_cache_before_the_package(places: tuple[Path, Path]) -> None:
    given, cache = places
    files = (File("BeijingPM25.csv"),)
    assert store.find(files) == (files[0], store.PACKAGED / "BeijingPM25.csv")
    cache.mkdir(parents=True)
    for folder in (cache, given):
        (folder / "BeijingPM25.csv").write_text("x")
        assert store.find(files) == (files[0], folder / "BeijingPM25.csv")
    assert store.find((File("other.csv"),)) is None


def test_the_cache_is_under_home_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("NATSR_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store.folders() == [tmp_path / ".cache" / "natsr", store.PACKAGED]


def test_checksums_of_both_kinds(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"hello\n")
    blob = "ce013625030ba8dba906f756967f9e9ca394464a"  # what `git hash-object` answers
    assert store.checked(File("f", sha256=sha256(b"hello\n"), git_blob=blob), path) == sha256(b"hello\n")
    for wrong in (File("f", sha256="0" * 64), File("f", git_blob="0" * 40)):
        with pytest.raises(DataError, match="has checksum .*, expected 0000.*not the published file; replace it, or"):
            store.checked(wrong, path)


def test_a_download_reports_progress_and_is_checked(places: tuple[Path, Path], tmp_path: Path) -> None:
    content = bytes(1000) * 1000
    (tmp_path / "there.csv").write_bytes(content)
    seen: list[tuple[int, int, str]] = []
    file = File("here.csv", sha256=sha256(content), url=(tmp_path / "there.csv").as_uri())
    got, path = store.fetch((File("no_address.csv"), file), lambda *call: seen.append(call))
    assert (got, path) == (file, places[1] / "here.csv") and path.read_bytes() == content
    assert len(seen) > 1 and seen[-1] == (len(content), len(content), "here.csv")


def test_a_wrong_download_leaves_nothing_behind(places: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "there.csv").write_text("something else")
    with pytest.raises(DataError, match="not the published file"):
        store.fetch((File("here.csv", sha256="0" * 64, url=(tmp_path / "there.csv").as_uri()),))
    assert list(places[1].iterdir()) == []


def test_without_a_network_the_error_says_what_to_do(places: tuple[Path, Path]) -> None:
    url = "http://127.0.0.1:9/official/here.csv"
    with pytest.raises(DataError) as caught:
        store.fetch((File("here.csv", url=url),))
    message = str(caught.value)
    assert message.startswith(f"here.csv was not found in {places[0]}, {places[1]}, and downloading it failed (")
    assert f"); get it from {url} and put it into one of these folders" in message
    with pytest.raises(DataError, match="here.csv was not found in .* it has no official address to fetch it from"):
        store.fetch((File("here.csv"),))


def test_a_broken_off_file_does_not_appear(tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    with pytest.raises(RuntimeError), store.atomic(target) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert list(target.parent.iterdir()) == []
    with store.atomic(target) as stream:
        stream.write(b"whole")
    assert target.read_bytes() == b"whole" and list(target.parent.iterdir()) == [target]


def test_a_copy_comes_back_as_it_was(places: tuple[Path, Path]) -> None:
    before, digest = series(), "ab" * 32
    store.keep_copy(before, "s", digest)
    path = store.find_copy("s", digest)
    assert path == places[1] / "s-abababababab.npz" and store.find_copy("s", None) == path
    assert store.find_copy("s", "cd" * 32) is None and store.find_copy("t", None) is None
    after = store.read_copy(path, "s")
    np.testing.assert_array_equal(after.values, before.values)
    np.testing.assert_array_equal(after.times, before.times)
    assert after.times.dtype == before.times.dtype
    assert (after.columns, after.step_seconds, after.notes) == (("a", "b"), 60, ("one note",))


def test_a_damaged_copy_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    store.write_copy(series(), path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"s.npz cannot be used .* expected a parsed copy of s; delete it"):
        store.read_copy(path, "s")


def test_a_copy_of_another_version_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.npz"
    store.write_copy(series(), path)
    monkeypatch.setattr(store, "_COPY_VERSION", 99)
    with pytest.raises(DataError, match="version 1, not 99"):
        store.read_copy(path, "s")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "natsr").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store.keep_copy(series(), "s", "ab" * 32)
    assert (tmp_path / "natsr").is_file()
