"""Write the series that public packages bring along as CSVs, for `benchmarks.auto.others --folder`.

python -m venv other && other/bin/pip install statsmodels vega_datasets river sktime pmdarima
other/bin/python benchmarks/auto/packages.py FOLDER

It needs none of natsr and is run with the packages' own Python. Nothing is fetched: only files that lie in the packages
are read. `versions.json` in the folder says which packages they came from.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

#: Of `pmdarima.datasets`: what loads it, its first time and its step.
ARRAYS = {
    "ausbeer": ("load_ausbeer", "1956-01-01", "QS"),
    "heartrate": ("load_heartrate", "2020-01-01", "30s"),
    "lynx": ("load_lynx", "1821-01-01", "YS"),
    "sunspots_monthly": ("load_sunspots", "1749-01-01", "MS"),
    "taylor": ("load_taylor", "2000-06-05", "30min"),
    "wineind": ("load_wineind", "1980-01-01", "MS"),
    "woolyrnq": ("load_woolyrnq", "1965-01-01", "QS"),
}


def folder_of(package: str) -> Path:
    return Path(str(importlib.import_module(package).__file__)).parent


def stamped(values: npt.ArrayLike, start: str, step: str, names: list[str] | None = None) -> pd.DataFrame:
    """Columns with a time column before them."""
    table = pd.DataFrame(np.asarray(values, dtype=float), columns=names)
    table.columns = [str(name) for name in table.columns]
    table.insert(0, "time", pd.date_range(start, periods=len(table), freq=step).strftime("%Y-%m-%d %H:%M:%S"))
    return table


def found() -> dict[str, pd.DataFrame]:
    """Every series by its name."""
    tables: dict[str, pd.DataFrame] = {}
    arrays = importlib.import_module("pmdarima.datasets")
    for name, (load, start, step) in ARRAYS.items():
        tables[name] = stamped(np.asarray(getattr(arrays, load)())[:, None], start, step, [name])
    msft = arrays.load_msft()
    tables["msft"] = pd.DataFrame({"time": pd.to_datetime(msft["Date"]), "close": msft["Close"]}).dropna()

    models = folder_of("statsmodels") / "datasets"
    co2 = pd.read_csv(models / "co2" / "co2.csv")
    tables["co2"] = stamped(co2[["co2"]].to_numpy(), "1958-03-29", "7D", ["co2"])
    months = pd.read_csv(models / "elnino" / "elnino.csv")
    tables["elnino"] = stamped(months.iloc[:, 1:].to_numpy().reshape(-1, 1), "1950-01-01", "MS", ["temperature"])
    sunspots = pd.read_csv(models / "sunspots" / "sunspots.csv")
    tables["sunspots_yearly"] = stamped(sunspots.iloc[:, 1:2].to_numpy(), "1700-01-01", "YS", ["sunspots"])
    macro = pd.read_csv(models / "macrodata" / "macrodata.csv").iloc[:, 2:]
    tables["macrodata"] = stamped(macro.to_numpy(), "1959-01-01", "QS", [*macro.columns])
    orders = pd.read_csv(models / "elec_equip" / "elec_equip.csv").iloc[:, 1:]
    tables["elec_equip"] = stamped(orders.to_numpy(), "1995-01-01", "MS", ["orders"])

    vega = folder_of("vega_datasets") / "_data"
    for name in ("seattle-weather", "seattle-temps", "sf-temps", "us-employment"):
        table = pd.read_csv(vega / f"{name}.csv").select_dtypes("number")
        dates = pd.read_csv(vega / f"{name}.csv")
        times = pd.to_datetime(dates["month" if "month" in dates else "date"])
        table.insert(0, "time", times.dt.strftime("%Y-%m-%d %H:%M:%S"))
        tables[name] = table.drop_duplicates("time")

    river = folder_of("river") / "datasets"
    flow = pd.read_csv(river / "water-flow.csv").iloc[:, 1:]
    tables["water-flow"] = stamped(flow.to_numpy(), "2022-03-20 11:00", "h", ["flow"])
    polls = pd.read_csv(river / "trump_approval.csv.gz").iloc[:, 1:]
    tables["trump_approval"] = stamped(polls.to_numpy(), "2017-03-02", "D", [*polls.columns])
    returns = pd.read_csv(river / "sp500.csv.gz").iloc[:, 1:-1]
    tables["sp500_prices"] = stamped(100 * np.exp(returns.cumsum() / 100), "2013-02-11", "D", [*returns.columns])

    time = folder_of("sktime") / "datasets" / "data"
    pulse = pd.read_csv(time / "mitdb" / "mitdb.csv")
    tables["mitdb"] = stamped(pulse[["data"]].to_numpy(), "2020-01-01", "s", ["pulse"])
    yahoo = pd.read_csv(time / "yahoo" / "yahoo.csv")
    tables["yahoo"] = stamped(yahoo[["data"]].to_numpy(), "2020-01-01", "h", ["value"])
    belts = pd.read_csv(time / "seatbelts" / "seatbelts.csv")
    tables["seatbelts"] = stamped(belts[["KSI"]].to_numpy(), "1969-01-01", "MS", ["killed or injured"])
    change = pd.read_csv(time / "Uschange" / "Uschange.csv").iloc[:, 2:]
    tables["uschange"] = stamped(change.to_numpy(), "1970-01-01", "QS", [*change.columns])
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Where to write them.")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in found().items():
        table.to_csv(folder / f"{name}.csv", index=False)
    packages = ("statsmodels", "vega_datasets", "river", "sktime", "pmdarima")
    versions = {package: importlib.metadata.version(package) for package in packages}
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
