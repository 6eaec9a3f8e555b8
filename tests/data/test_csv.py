"""Every way to write a table that we read, and every mistake in one that we name."""

from __future__ import annotations

import gzip
import warnings
from datetime import datetime
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

from natsr.data.csv import read_csv, read_matrix
from natsr.data.named import load
from natsr.data.series import Repeated, Series
from natsr.data.store import PACKAGED
from natsr.types import DataError, OptionError

NAN = float("nan")


def written(folder: Path, text: str, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def table(folder: Path, text: str) -> Series:
    return read_csv(written(folder, text))


# Times


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("2024-01-31 15:00:00", "2024-01-31 16:00:00"), "2024-01-31T15:00:00"),
        (("2024-01-31T15:00", "2024-01-31T16:00"), "2024-01-31T15:00:00"),
        (("2024-01-31", "2024-02-01"), "2024-01-31T00:00:00"),
        (("1/31/2010 0:00", "1/31/2010 1:00"), "2010-01-31T00:00:00"),
        (("31/1/2010 0:00:00", "31/1/2010 1:00:00"), "2010-01-31T00:00:00"),
        (("31.01.2010 00:00", "31.01.2010 01:00"), "2010-01-31T00:00:00"),
        (("1/31/2010 11:00 AM", "1/31/2010 1:00 PM"), "2010-01-31T11:00:00"),
        (("1706713200", "1706716800"), "2024-01-31T15:00:00"),
        (("1706713200000", "1706716800000"), "2024-01-31T15:00:00"),
        (("20240131", "20240201"), "2024-01-31T00:00:00"),
    ],
)
def test_times_in_many_forms(tmp_path: Path, cells: tuple[str, str], expected: str) -> None:
    series = table(tmp_path, f"x,date\n1,{cells[0]}\n2,{cells[1]}\n")
    assert str(series.times[0]) == expected and series.columns == ("x",)
    assert series.values[:, 0].tolist() == [1.0, 2.0] and series.notes == ()


@pytest.mark.parametrize(
    "cells",
    [
        ("2024-01-31T15:00:00+02:00", "2024-01-31T16:00:00+02:00"),
        ("2024-01-31 13:00:00Z", "2024-01-31 14:00:00Z"),
        ("2024-01-31 15:00:00+0200", "2024-01-31 17:00:00+0300"),  # over a change of the clock
    ],
)
def test_time_zones_become_utc_and_it_is_said(tmp_path: Path, cells: tuple[str, str]) -> None:
    series = table(tmp_path, f"when,x\n{cells[0]},1\n{cells[1]},2\n")
    assert [str(moment) for moment in series.times] == ["2024-01-31T13:00:00", "2024-01-31T14:00:00"]
    assert series.notes == ("times in when carry a time zone; they were converted to UTC",)


def test_the_order_of_day_and_month_is_the_one_that_increases(tmp_path: Path) -> None:
    days = [f"{day}/{month}/2010" for month in (1, 2) for day in range(1, 29)]
    series = table(tmp_path, "date,x\n" + "".join(f"{day},{row}\n" for row, day in enumerate(days)))
    assert str(series.times[27]) == "2010-01-28T00:00:00" and str(series.times[-1]) == "2010-02-28T00:00:00"
    doubtful = table(tmp_path, "date,x\n1/2/2010,1\n2/2/2010,2\n3/2/2010,3\n")
    assert "can be read as %m/%d/%Y or %d/%m/%Y; the first was taken" in doubtful.notes[0]


def test_year_month_day_hour_columns_make_a_time(tmp_path: Path) -> None:
    series = table(tmp_path, "No,year,month,day,hour,pm,wind\n1,2010,1,31,22,4,NW\n2,2010,1,31,23,5,cv\n")
    assert [str(moment) for moment in series.times] == ["2010-01-31T22:00:00", "2010-01-31T23:00:00"]
    assert series.columns == ("pm",)
    assert series.notes == ("column No counts the rows and was left out", "column wind holds text and was left out")


def test_the_time_column_may_be_named(tmp_path: Path) -> None:
    path = written(tmp_path, "made,seen,x\n2024-01-01,2024-02-01,1\n2024-01-01,2024-02-02,2\n")
    assert str(read_csv(path, time="seen", targets=["x"]).times[0]) == "2024-02-01T00:00:00"


def test_too_many_cells_are_refused_even_where_pandas_only_warns(tmp_path: Path) -> None:
    path = written(tmp_path, "date,x\n2024-01-01,1,7\n2024-01-02,2,8\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(DataError, match="as many cells in each row as there are names"):
            read_csv(path)


def test_a_counter_with_another_name_is_a_value(tmp_path: Path) -> None:
    assert table(tmp_path, "date,line\n2024-01-01,1\n2024-01-02,2\n").columns == ("line",)


# Gaps and missing values


@pytest.mark.parametrize("token", ["", "NA", "NaN", "null", "?", " NA"])
def test_missing_tokens(tmp_path: Path, token: str) -> None:
    series = table(tmp_path, f"date,x,y\n2024-01-01,1,1\n2024-01-02,{token},2\n2024-01-03,3,3\n")
    np.testing.assert_array_equal(series.values, [[1, 1], [NAN, 2], [3, 3]])


def test_missing_rows_of_a_regular_grid_are_put_back(tmp_path: Path) -> None:
    hours = [0, 1, 2, 5, 6, 8]
    series = table(tmp_path, "date,x\n" + "".join(f"2024-01-01 0{hour}:00,{hour}\n" for hour in hours))
    np.testing.assert_array_equal(series.values[:, 0], [0, 1, 2, NAN, NAN, 5, 6, NAN, 8])
    assert series.regular and series.step_seconds == 3600 and (np.diff(series.times) == np.timedelta64(3600, "s")).all()
    assert series.notes == ("3 missing rows were put back as missing values (the step is 3600 s)",)


@pytest.mark.parametrize(
    "times",
    [
        ["2024-01-01", "2024-02-01", "2024-03-02", "2024-04-01"],
        ["2024-01-01 00:00", "2024-01-01 00:01", "2024-01-01 00:02", "2029-01-01 00:00"],
    ],
)
def test_rows_without_a_regular_step_are_taken_as_they_come(tmp_path: Path, times: list[str]) -> None:
    series = table(tmp_path, "date,x\n" + "".join(f"{moment},1.5\n" for moment in times))
    assert not series.regular and len(series) == 4 and "keep no regular step" in " ".join(series.notes)


def test_what_is_said_of_irregular_times_is_true_of_most_of_them(tmp_path: Path) -> None:
    since = np.cumsum([0, 24, 24, 24, 3000, 3300, 3600, 3900, 4001])
    times = np.datetime64("2024-01-01T00:00:00") + since * np.timedelta64(1, "s")
    (note,) = table(tmp_path, "date,x\n" + "".join(f"{moment},{row}\n" for row, moment in enumerate(times))).notes
    assert "(52.5 minutes from row to row in the median, 37.2 minutes in the mean, most often 24 seconds)" in note
    assert "taken as they come, as if 24 seconds apart" in note


def test_infinite_values_count_as_missing_and_it_is_said(tmp_path: Path) -> None:
    series = table(tmp_path, "date,x\n2024-01-01,1\n2024-01-02,inf\n2024-01-03,-inf\n2024-01-04,2\n")
    np.testing.assert_array_equal(series.values[:, 0], [1, NAN, NAN, 2])
    assert series.notes == ("column x had 2 infinite values, which count as missing",)


def test_a_constant_column_is_only_noted(tmp_path: Path) -> None:
    series = table(tmp_path, "date,x,y\n2024-01-01,4,1\n2024-01-02,4,2\n")
    assert series.columns == ("x", "y") and series.notes == ("column x is constant (4)",)


def test_an_empty_column_is_left_out_and_it_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, "date,x,y\n2024-01-01,,1\n2024-01-02,NA,2\n")
    assert read_csv(path).columns == ("y",)
    assert read_csv(path).notes == ("column x has no values and was left out",)
    with pytest.raises(DataError, match="target 'x' has no value in any row, expected some; choose another"):
        read_csv(path, targets=["x"])


def test_targets_are_taken_in_their_order(tmp_path: Path) -> None:
    path = written(tmp_path, "date,a,b,c\n2024-01-01,1,2,3\n2024-01-02,4,5,6\n")
    assert read_csv(path, targets=["c", "a"]).values.tolist() == [[3, 1], [6, 4]]
    assert read_csv(path, targets="all").columns == ("a", "b", "c")


def test_semicolons_tabs_and_packed_files(tmp_path: Path) -> None:
    text = "date,x\n2024-01-01,1\n2024-01-02,2\n"
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    paths = [written(tmp_path, text.replace(",", mark), f"t{ord(mark)}.csv") for mark in ";\t"]
    for path in (packed, *paths):
        assert read_csv(path).values[:, 0].tolist() == [1, 2]


# Mistakes: each is named, with what was expected and what to do


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty, expected a header and rows; check"),
        ("date,x\n2024-01-01,1\n", "has 1 rows after its header, expected at least 2; use a longer file"),
        ("a,b\n1,2\n3,4\n", "no time column was found among a, b; expected one with dates.*name it"),
        (
            "date,x\n2024-01-01,1\n2024-01-02,2\n2024-01-02,3\n",
            "rows 2 and 3 both have time 2024-01-02T00:00:00, expected each time once; remove one",
        ),
        (
            "date,x\n2024-01-01,1\n2024-01-02,2\n2024-01-01,3\n",
            "rows 1 and 3 both have time 2024-01-01T00:00:00, expected each time once",
        ),
        (
            "date,x\n2024-01-01T00:00:00.1,1\n2024-01-01T00:00:00.7,2\n"
            + "".join(f"2024-01-01T{hour:02}:00:00,{hour}\n" for hour in range(1, 9)),
            r"rows 1 and 2 both have time 2024-01-01T00:00:00 \(times are kept to the second\), expected each",
        ),
        ("date,x\n2024-01-01T00:00:00.1000001,1\n2024-01-01T00:00:00.1000002,2\n", "times are kept to the microsecond"),
        (
            "date,x\n2024-01-01,1\n2024-01-03,2\n2024-01-02,3\n",
            "row 3 has time 2024-01-02T00:00:00, before row 2 with 2024-01-03T00:00:00; expected increasing.*sort",
        ),
        (
            "date,x\n2024-01-01,1\n2024-01-02,2\nsoon,3\n",
            "row 3 has date = soon, expected a time like those of the other rows; correct or remove",
        ),
        (
            "year,month,day,x\n2024,1,31,1\n2024,2,31,2\n",
            "row 2 has year = 2024, month = 2, day = 31, expected a time",
        ),
        (
            "date,x\n2024-01-01,1\n2024-01-02,2\n2024-01-03,3o\n2024-01-04,4\n",
            r"column 'x' has '3o' in row 3 \(1 such cells\), expected a number or an empty cell; correct it, or choose",
        ),
        ("date,x\n2024-01-01,a\n2024-01-02,b\n", "has no column of numbers, expected at least one among date, x"),
        ("date,x\n2024-01-01,1,7\n2024-01-02,2,8\n", "cannot be read as a CSV file"),
        ("date,x\n2024-01-01,1\n2024-01-02,2,8\n", "cannot be read as a CSV file"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        table(tmp_path, text)


def test_text_in_a_target_names_row_and_value(tmp_path: Path) -> None:
    path = written(tmp_path, "date,x,wind\n2024-01-01,1,NW\n2024-01-02,2,SE\n")
    with pytest.raises(DataError, match=r"column 'wind' has 'NW' in row 1 \(2 such cells\), expected a number"):
        read_csv(path, targets=["wind"])


def test_a_missing_file_is_answered_with_the_nearest(tmp_path: Path) -> None:
    written(tmp_path, "x", "weather.csv")
    with pytest.raises(DataError, match=r"wether.csv does not exist, expected a CSV file; did you mean weather.csv\?"):
        read_csv(tmp_path / "wether.csv")
    with pytest.raises(DataError, match="the folder .*nowhere does not exist either"):
        read_csv(tmp_path / "nowhere" / "x.csv")
    with pytest.raises(DataError, match="is a folder, expected a CSV file; name a file in it"):
        read_csv(tmp_path)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no CSV file in"):
        read_csv(tmp_path / "x.csv")


def test_unknown_columns_are_answered_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, "stamp,load,wind\n2024-01-01,1,2\n2024-01-02,2,3\n")
    with pytest.raises(OptionError, match=r"time column 'stmp' is unknown in the file.*did you mean stamp\?"):
        read_csv(path, time="stmp")
    with pytest.raises(OptionError, match=r"target 'laod' is unknown.*expected one of load, wind; did you mean load\?"):
        read_csv(path, targets=["laod"])
    with pytest.raises(OptionError, match="no target was named, expected some of load, wind"):
        read_csv(path, targets=[])


def test_a_named_time_column_without_times_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "stamp,load,place\n2024-01-01,1,a\n2024-01-02,2,b\n")
    with pytest.raises(DataError, match="time column 'place' begins with 'a', expected dates such as"):
        read_csv(path, time="place")
    with pytest.raises(DataError, match="time column 'load' begins with"):
        read_csv(path, time="load")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.csv"
    path.write_bytes(bytes(range(128, 256)) * 20)
    with pytest.raises(DataError, match="cannot be read as a CSV file .* expected UTF-8 text"):
        read_csv(path)
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"date,x\n2024-01-01,1\n" * 100)[:40])
    with pytest.raises(DataError, match="cannot be read as a CSV file"):
        read_csv(broken)


# Whole files


def test_the_bundled_sample_is_read_whole() -> None:
    series = read_csv(PACKAGED / "BeijingPM25.csv")
    assert series.values.shape == (43824, 7) and series.missing == 2067 and series.regular
    assert series.columns == ("pm2.5", "DEWP", "TEMP", "PRES", "Iws", "Is", "Ir")
    assert series.values[:, 0][24:27].tolist() == [129.0, 148.0, 159.0]
    assert int(np.isnan(series.values[:, 0]).sum()) == 2067
    assert (str(series.times[0]), str(series.times[-1])) == ("2010-01-01T00:00:00", "2014-12-31T23:00:00")


def test_a_matrix_without_header_gets_nominal_times(tmp_path: Path) -> None:
    path = tmp_path / "m.txt.gz"
    path.write_bytes(gzip.compress(b"1,2.5,3\n4,5,6\n"))
    series = read_matrix(path, "2016-07-01T02:00:00", 3600)
    assert series.values.tolist() == [[1, 2.5, 3], [4, 5, 6]] and series.columns == ("0", "1", "2")
    assert [str(moment) for moment in series.times] == ["2016-07-01T02:00:00", "2016-07-01T03:00:00"]
    assert series.notes == ("the file has no times; its first row was given 2016-07-01T02:00:00",)


# Tables as other programs write them


def hours(line: str, count: int = 4, between: str = "\n") -> str:
    """The line for each of the first hours of a year, `{}` for the hour."""
    return between.join(line.replace("{}", f"{hour:02d}") for hour in range(count)) + between


def test_decimal_commas_are_read_where_semicolons_separate(tmp_path: Path) -> None:
    text = "Zeit;Last;Preis;Menge\n" + hours("01.01.2026 {}:00;1.234,{};-0,5;95.123")
    series = table(tmp_path, text)
    assert series.columns == ("Last", "Preis", "Menge")
    assert series.values[2].tolist() == [1234.02, -0.5, 95123.0], "a point stands between thousands in such a file"
    assert any("decimal commas" in note for note in series.notes)


def test_points_stay_points_where_semicolons_separate(tmp_path: Path) -> None:
    series = table(tmp_path, "time;x;y\n" + hours("2026-01-01 {}:00;95.123;1.5"))
    assert series.values[0].tolist() == [95.123, 1.5] and series.notes[-1] == "column y is constant (1.5)"


def test_a_mistake_beside_decimal_commas_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'x' has 'ERR' in row 5"):
        table(tmp_path, "time;x\n" + hours("2026-01-01 {}:00;1,5") + "2026-01-01 04:00;ERR\n")


def test_marks_between_thousands_are_left_away(tmp_path: Path) -> None:
    assert table(tmp_path, "time,x\n" + hours('2026-01-01 {}:00,"1,234.{}"')).values[3].tolist() == [1234.03]


def test_numbers_that_can_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="column 'x': 1,234 can be read as 1234 or as 1.234, expected"):
        table(tmp_path, "time,x\n" + hours('2026-01-01 {}:00,"1,234"'))


@pytest.mark.parametrize("first", ["2026-01-01 00:00,5.5", "1767225600,5.5", "5,01.01.2026 00:00"])
def test_a_table_without_names_loses_no_row_silently(tmp_path: Path, first: str) -> None:
    with pytest.raises(DataError, match=r"table.csv begins with .*, which is a row, expected the names of the columns"):
        table(tmp_path, f"{first}\n" + hours("2026-01-01 {}:30,7"))


def test_years_may_be_names_of_columns(tmp_path: Path) -> None:
    assert table(tmp_path, "time,2024,2025\n" + hours("2026-01-01 {}:00,1,{}")).columns == ("2024", "2025")


def test_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    text = "Zeit,Größe\n" + hours("2026-01-01 {}:00,{}", between="\r\n")
    for encoding, notes in (("utf-8-sig", 0), ("utf-16", 0), ("cp1252", 1)):
        path.write_bytes(text.encode(encoding))
        series = read_csv(path)
        assert series.columns == ("Größe",) and len(series) == 4
        assert len([note for note in series.notes if "Windows-1252" in note]) == notes


def test_remarks_above_the_names_are_skipped_and_a_name_may_begin_like_one(tmp_path: Path) -> None:
    rows = hours("2026-01-01 {}:00;{}")
    assert table(tmp_path, f"# made by a logger\n# station 7\ntime;load\n{rows}").columns == ("load",)
    assert table(tmp_path, f"#time;load\n{rows}").columns == ("load",)


def test_packed_files_may_have_semicolons(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(("time;load\n" + hours("2026-01-01 {}:00;{}")).encode()))
    assert read_csv(path).values[:, 0].tolist() == [0, 1, 2, 3]


def test_the_newest_row_may_come_first(tmp_path: Path) -> None:
    series = table(tmp_path, "time,x\n2026-01-01 02:00,3\n2026-01-01 01:00,2\n2026-01-01 00:00,1\n")
    assert series.values[:, 0].tolist() == [1, 2, 3] and "turned round" in series.notes[0]


def test_a_row_that_is_there_twice_is_taken_once(tmp_path: Path) -> None:
    series = table(tmp_path, "time,x\n2026-01-01 00:00,1\n2026-01-01 01:00,2\n2026-01-01 01:00,2\n")
    assert series.values[:, 0].tolist() == [1, 2] and "1 row was there twice" in series.notes[0]


def test_rows_of_several_series_are_told_apart_in_the_message(tmp_path: Path) -> None:
    text = "time,meter,x\n" + hours("2026-01-01 {}:00,a,1\n2026-01-01 {}:00,b,2")
    with pytest.raises(DataError, match=r"column meter \(a, b …\) seems to tell several series apart.*natsr.Fleet"):
        table(tmp_path, text)


@pytest.mark.parametrize("clock", ["time,{}:30", "Time,{}:30:00", "hour,{}"])
def test_dates_and_clocks_in_two_columns(tmp_path: Path, clock: str) -> None:
    name, cell = clock.split(",")
    series = table(tmp_path, f"date,{name},x\n" + hours(f"2026-01-01,{cell},5.{{}}"))
    assert series.columns == ("x",) and series.step_seconds == 3600 and len(series) == 4


@pytest.mark.parametrize(
    ("name", "cells", "last"),
    [
        ("month", ["2026-01", "2026-02", "2026-03"], "2026-03-01"),
        ("month", ["2026-01-31", "2026-02-28", "2026-04-30"], "2026-04-30"),
        ("q", ["2025Q4", "2026Q1", "2026 Q2"], "2026-04-01"),
        ("year", ["2024", "2025", "2026"], "2026-01-01"),
        ("year,month", ["2025,11", "2025,12", "2026,01"], "2026-01-01"),
        ("ts", ["1767225600000000", "1767229200000000", "1767232800000000"], "2026-01-01T02:00:00"),
        ("ts", ["1767225600000000000", "1767229200000000000", "1767232800000000000"], "2026-01-01T02:00:00"),
    ],
)
def test_months_quarters_years_and_fine_epochs(tmp_path: Path, name: str, cells: list[str], last: str) -> None:
    series = table(tmp_path, f"{name},x\n" + "".join(f"{cell},{place}\n" for place, cell in enumerate(cells)))
    assert series.times[-1] == np.datetime64(last) and series.columns == ("x",) and series.values[-1] == 2


def test_a_file_of_working_days_has_no_weekends(tmp_path: Path) -> None:
    days = [day for day in pd.bdate_range("2026-01-05", periods=20) if day != pd.Timestamp("2026-01-14")]
    series = table(tmp_path, "day,x\n" + "".join(f"{day.date()},{place}\n" for place, day in enumerate(days)))
    assert len(series) == 20 and series.missing == 1 and series.season == 5
    assert series.notes == ("one row every working day; 1 missing rows were put back as missing values",)


def test_a_month_that_is_missing_is_put_back(tmp_path: Path) -> None:
    text = "month,x\n" + "".join(f"2026-{month:02d},{month}\n" for month in (1, 2, 3, 5, 6))
    series = table(tmp_path, text)
    assert len(series) == 6 and np.isnan(series.values[3, 0]) and str(series.times[3]) == "2026-04-01T00:00:00"
    assert series.notes == ("one row every month; 1 missing rows were put back as missing values",)


def test_text_with_a_unit_is_shown_in_the_message(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="no column of numbers, expected at least one among time, x; x begins with '5 kW'"
    ):
        table(tmp_path, "time,x\n" + hours("2026-01-01 {}:00,5 kW"))


FINE = {
    "tenths of seconds": (["2026-01-01T00:00:00.0", "2026-01-01T00:00:00.1", "2026-01-01T00:00:00.3"], "ms", 0.1, 4),
    "microseconds": (["2026-01-01 00:00:00.000000", "2026-01-01 00:00:00.000250"], "us", 0.00025, 2),
    "steps of two and a half seconds": ([f"2026-01-01T00:00:{2.5 * row:04}" for row in range(4)], "ms", 2.5, 4),
    "a German clock": (["31.12.2026 10:00:00.100", "31.12.2026 10:00:00.200"], "ms", 0.1, 2),
    "milliseconds since 1970": (["1767225600000", "1767225600020"], "ms", 0.02, 2),
    "nanoseconds since 1970": (["1767225600000000000", "1767225600000250000"], "us", 0.00025, 2),
    "seconds, each half past": (["2026-01-01T00:00:00.5", "2026-01-01T00:00:01.5"], "s", 1, 2),
}


@pytest.mark.parametrize("name", FINE)
def test_rows_that_come_more_often_than_every_second(name: str, tmp_path: Path) -> None:
    times, unit, step, rows = FINE[name]
    series = read_csv(written(tmp_path, "time,x\n" + "".join(f"{time},{row}\n" for row, time in enumerate(times))))
    assert series.times.dtype == f"datetime64[{unit}]" and series.step_seconds == pytest.approx(step, rel=1e-12)
    assert len(series) == rows and series.regular
    assert series.calendar == ("standardised" if unit == "s" else "bounded")
    assert series.grid is not None and series.grid.unit == unit


def test_uneven_times_within_a_second_are_taken_as_they_come(tmp_path: Path) -> None:
    cells = ["00.000", "00.101", "00.198", "00.301", "00.402"]
    text = "time,x\n" + "".join(f"2026-01-01T00:00:{cell},{row}\n" for row, cell in enumerate(cells))
    series = read_csv(written(tmp_path, text))
    assert not series.regular and series.grid is None and str(series.times[1]) == "2026-01-01T00:00:00.101"
    assert series.pace.named == "101 milliseconds" and series.season == 1
    assert "most often 101 milliseconds" in " ".join(series.notes)


REPEATED_ROWS = "time,a,b\n2024-01-01 00:00,1,1\n2024-01-01 02:00,3,\n2024-01-01 01:00,2,5\n2024-01-01 02:00,5,7\n"


@pytest.mark.parametrize(("how", "third"), [("first", (3.0, 7.0)), ("last", (5.0, 7.0)), ("mean", (4.0, 7.0))])
def test_rows_with_the_same_time_become_one_where_that_is_asked_for(
    tmp_path: Path, how: Repeated, third: tuple[float, float]
) -> None:
    path = written(tmp_path, REPEATED_ROWS)
    series = read_csv(path, repeated=how)
    assert series.times.tolist() == [datetime(2024, 1, 1, hour) for hour in range(3)]
    assert series.values.tolist() == [[1.0, 1.0], [2.0, 5.0], list(third)]
    assert f"1 row(s) had the time of another; {how} of each column was taken" in series.notes
    assert "1 row(s) came after one with a later time; rows were put in order" in series.notes
    more = "".join(f"2024-01-01 0{hour}:00,1,1\n" for hour in range(3, 7))
    assert load(written(tmp_path, REPEATED_ROWS + more), repeated=how)[0].values[2].tolist() == list(third)


def test_rows_with_the_same_time_are_refused_unless_something_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, REPEATED_ROWS)
    with pytest.raises(DataError, match="rows 2 and 4 both have time .*--repeated first, last or mean"):
        read_csv(path)
    with pytest.raises(OptionError, match="repeated is 'both', expected one of refuse, first, last, mean"):
        read_csv(path, repeated=cast("Repeated", "both"))
    with pytest.raises(OptionError, match="a named dataset whose times are distinct"):
        load("BeijingPM25", repeated="mean")
    path.write_text("time,a\n2024-01-01,1\nsome day,2\n2024-01-03,3")
    with pytest.raises(DataError, match="row 2 has time = some day, expected a time"):
        read_csv(path, repeated="mean")
