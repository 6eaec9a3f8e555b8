"""The named datasets: sizes, borders, lookups; and, where the full files are there, the figures they must give."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natsr.data import named, store
from natsr.data.named import DATASETS, dataset, export_npz, load, locate, verify
from natsr.data.series import Borders, Series, prepare
from natsr.data.store import PACKAGED, File
from natsr.types import DataError, OptionError

needs_data = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("NATSR_DATA"), reason="NATSR_DATA is not set to a folder with the datasets"),
]
COMPLETE = ("ETTh1", "ETTh2", "ETTm1", "ETTm2", "ETTm1-full", "ETTm2-full", "WTH", "ECL7", "Traffic20", "BeijingPM25")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's cache of our own, so that tests neither find nor leave anything."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "natsr"


@pytest.fixture
def given(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty `$NATSR_DATA`."""
    assert not cache.exists()
    folder = tmp_path / "given"
    folder.mkdir()
    monkeypatch.setenv("NATSR_DATA", str(folder))
    return folder


def test_borders_are_the_published_ones() -> None:
    hourly, quarters = Borders(2880, 3600, 14400), Borders(11520, 14400, 57600)
    assert all(dataset(name).borders == hourly for name in ("ETTh1", "ETTh2", "ETTm1", "ETTm2"))
    assert dataset("ETTm1-full").borders == dataset("ETTm2-full").borders == quarters
    assert dataset("WTH").borders == Borders(7012, 8766, 35064)
    assert dataset("ECL").borders == dataset("ECL7").borders == Borders(5260, 6576, 26304)
    assert dataset("Traffic").borders == dataset("Traffic20").borders == Borders(3508, 4386, 17544)
    assert dataset("BeijingPM25").borders == Borders(8764, 10956, 43824)


def test_every_dataset_says_where_it_comes_from() -> None:
    for name, known in DATASETS.items():
        assert known.name == name and known.origin and known.licence
        assert known.season == (96 if name.startswith("ETTm") else 24)
        assert known.borders.online <= known.rows
        # What can be fetched can be checked.
        assert all(file.sha256 or file.git_blob for file in known.files if file.url)
    raw = {name for name, known in DATASETS.items() if known.calendar == "raw"}
    assert raw == {"WTH", "ECL", "ECL7", "Traffic", "Traffic20"}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"dataset 'ETTh' is unknown, expected one of ETTh1.*did you mean ETTh2 or"):
        load("ETTh")
    with pytest.raises(OptionError, match=r"did you mean BeijingPM25\?"):
        dataset("beijing")


def test_the_sample_loads_from_the_package(given: Path, cache: Path) -> None:
    series, borders = load("BeijingPM25")
    assert series.name == "BeijingPM25" and series.values.shape == (43824, 7) and borders.online == 43824
    assert prepare(series, borders).task(60, 24).features == 7
    assert locate("BeijingPM25") == PACKAGED / "BeijingPM25.csv" and verify("BeijingPM25").published
    assert list(given.iterdir()) == [] and [path.suffix for path in cache.iterdir()] == [".npz"]


def test_a_parsed_copy_is_used_and_a_damaged_one_is_replaced(
    given: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = load("BeijingPM25", targets=["TEMP"])
    (copy,) = cache.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(named, "_parsed", lambda _path: pytest.fail("the file was parsed again"))
        second, _ = load("BeijingPM25", targets=["TEMP"])
    np.testing.assert_array_equal(first.values, second.values)
    assert second.columns == ("TEMP",) and second.notes == first.notes and second.calendar == first.calendar
    copy.write_bytes(b"broken")
    np.testing.assert_array_equal(load("BeijingPM25", targets=["TEMP"])[0].values, first.values)
    assert copy.stat().st_size > 1000 and list(given.iterdir()) == []


def test_an_exported_copy_loads_without_pandas(given: Path, tmp_path: Path) -> None:
    path = export_npz("BeijingPM25", given)
    assert path.parent == given and path.name == "BeijingPM25-4127f868775e.npz"
    script = (
        "import sys; sys.modules['pandas'] = None\n"
        "import natsr.data as data, natsr.data.synthetic\n"
        "series, borders = data.load('BeijingPM25')\n"
        "sys.stdout.write(f'{data.prepare(series, borders).rows.inputs.shape[0]} {series.missing}')"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "empty"), "NATSR_DATA": str(given)}
    environment["PYTHONPATH"] = str(Path(named.__file__).parents[2])
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == "43824 2067"


def test_a_copy_alone_is_enough(given: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = export_npz("BeijingPM25", given)
    shutil.rmtree(cache)
    monkeypatch.setattr(store, "PACKAGED", given / "no package")
    assert load("BeijingPM25", download=False)[0].missing == 2067
    with pytest.raises(DataError, match="only a parsed copy of it is there"):
        export_npz("BeijingPM25", given)
    copy.write_bytes(b"broken")
    with pytest.raises(DataError, match="cannot be used"):
        load("BeijingPM25", download=False)


def test_a_changed_file_is_not_taken_for_the_published_one(given: Path) -> None:
    text = (PACKAGED / "BeijingPM25.csv").read_text(encoding="utf-8")
    (given / "BeijingPM25.csv").write_text(text.replace("129", "130", 1), encoding="utf-8")
    for refuse in (lambda: load("BeijingPM25"), lambda: verify("BeijingPM25")):
        with pytest.raises(DataError, match="it is not the published file; replace it, or pass its path"):
            refuse()
    assert load(given / "BeijingPM25.csv")[0].missing == 2067  # as one's own file it is fine


@pytest.mark.usefixtures("given")
def test_a_file_that_is_nowhere_is_named_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"ETTh1.csv was not found in .*not to be downloaded; get it from https://raw"):
        load("ETTh1", download=False)
    with pytest.raises(DataError, match="ETTh1.csv was not found.* nothing to verify"):
        verify("ETTh1")
    assert locate("ETTh1") is None
    unreachable = replace(dataset("ETTh1"), files=(File("ETTh1.csv", sha256="0" * 64, url="http://127.0.0.1:9/E.csv"),))
    monkeypatch.setitem(DATASETS, "ETTh1", unreachable)
    with pytest.raises(DataError, match=r"downloading it failed .* get it from http://127.0.0.1:9/E.csv and put it"):
        load("ETTh1")


def test_a_file_of_ones_own_is_split_in_the_usual_way(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("when,x,y\n" + "".join(f"2024-01-01 {h // 60:02}:{h % 60:02},{h},2\n" for h in range(100)))
    series, borders = load(str(path), time="when", targets=["x"])
    assert series.name == "mine" and series.columns == ("x",) and borders == Borders(20, 25, 100)
    assert series.calendar == "standardised"
    with pytest.raises(DataError, match="does not exist"):
        load("no/such/file.csv")
    with pytest.raises(OptionError, match="named dataset whose time is known; leave it out"):
        load("BeijingPM25", time="when")


def small(monkeypatch: pytest.MonkeyPatch, name: str, rows: int, channels: int) -> None:
    """Let a dataset be small, so that its forms can be tried without the full file."""
    files = tuple(replace(file, git_blob=None) for file in dataset(name).files)
    monkeypatch.setitem(
        DATASETS, name, replace(dataset(name), rows=rows, channels=channels, files=files, borders=Borders(2, 3, rows))
    )


@pytest.mark.parametrize(
    ("name", "plain", "packed"),
    [("ECL", "electricity.csv", "electricity.txt.gz"), ("Traffic", "Traffic.csv", "traffic.txt.gz")],
)
def test_the_wide_datasets_are_the_same_in_both_forms(
    given: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, name: str, plain: str, packed: str
) -> None:
    small(monkeypatch, name, rows=6, channels=4)
    numbers = np.random.default_rng(0).uniform(0, 9, (6, 4)).round(3)
    lines = [",".join(map(str, row)) for row in numbers.tolist()]
    loaded: list[Series] = []
    for file, text in (
        (plain, "date,0,1,2,OT\n" + "\n".join(f"2016-07-01 0{2 + i}:00:00,{line}" for i, line in enumerate(lines))),
        (packed, "\n".join(lines)),
    ):
        content = text.encode()
        (given / file).write_bytes(gzip.compress(content) if file.endswith(".gz") else content)
        loaded.append(load(name)[0])
        (given / file).unlink()
        assert load(name, download=False)[0].columns == ("0", "1", "2", "OT")  # from the copy
        shutil.rmtree(cache)
    for series in loaded:
        np.testing.assert_array_equal(series.values, numbers)
        np.testing.assert_array_equal(series.times, loaded[0].times)
        assert series.columns == ("0", "1", "2", "OT") and series.calendar == "raw" and series.name == name


def test_a_file_of_the_wrong_width_is_refused(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, "ECL", rows=26304, channels=321)
    (given / "electricity.txt.gz").write_bytes(gzip.compress(b"1,2,3\n4,5,6\n"))
    with pytest.raises(
        DataError, match="has 2 rows and 3 columns of numbers, expected 26304 and 321 for ECL; replace it"
    ):
        load("ECL")


class TestFullFiles:
    """What the complete files must give."""

    pytestmark = needs_data

    @pytest.mark.parametrize("name", COMPLETE)
    def test_loads_with_the_published_checksum(self, cache: Path, name: str) -> None:
        assert verify(name).published and not cache.exists()
        series, borders = load(name, download=False)
        known = dataset(name)
        assert series.values.shape == (known.rows, known.channels) and series.regular
        assert series.step_seconds == known.step_seconds and prepare(series, borders).season == known.season
        assert series.missing == (2067 if name == "BeijingPM25" else 0)

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("ETTh1", 0.3550), ("ETTh2", 0.3363), ("ETTm1", 0.1855), ("ETTm2", 0.2321), ("WTH", 0.1880)],
    )
    def test_the_naive_error_is_the_papers_denominator(self, cache: Path, name: str, expected: float) -> None:
        ready = prepare(*load(name, download=False))
        online = ready.rows.truth[ready.borders.valid : ready.borders.online].double()
        # Differences inside the online part: its first row has no predecessor in it.
        assert round(float(online.diff(dim=0).abs().mean()), 4) == expected
        assert cache.exists()

    def test_the_last_column_is_the_target_of_the_papers(self, cache: Path) -> None:
        assert load("WTH", download=False)[0].columns[-1] == "WetBulbCelsius"
        ecl = load("ECL7", download=False)[0]
        assert str(ecl.times[0]) == "2016-07-01T02:00:00" and ecl.columns[-1] == "OT" and cache.exists()
