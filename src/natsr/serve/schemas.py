"""What goes in and out over HTTP, with examples; FastAPI makes the OpenAPI document of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from natsr.live import Live

#: Letters, digits and a few marks, so that a key fits a path, a file name and a log as it is.
KEY = r"^[A-Za-z0-9][A-Za-z0-9._~:@-]{0,127}$"
TIME = "2026-01-01T00:00:00"

Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]
Numbers = dict[str, float | None]
Columns = dict[str, list[float | None]]
Intervals = dict[str, dict[str, list[list[float | None]]]]
# Checked row by row, so that one bad row is refused with its reason and the others are taken.
Time = Annotated[
    Any, WithJsonSchema({"type": "string", "description": "ISO 8601, as fine as freq", "examples": [TIME]})
]
Values = Annotated[
    Any,
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]},
            "description": "Numbers by column, of exogenous and known ones too; null, or a column left out, is missing",
            "examples": [{"load": 1.5}],
        }
    ),
]
Plans = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {
                    "type": "object",
                    "additionalProperties": {
                        "type": "array",
                        "items": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                    },
                },
                {"type": "null"},
            ],
            "description": "Known columns at the next `horizon` rows, null where there is no plan; left out, the last "
            "plan goes on",
            "examples": [{"holiday": [0, 0, 1]}],
        }
    ),
]


class SeriesIn(BaseModel):
    """A series to create."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"columns": ["load"], "horizon": 24, "freq": "h"},
                {"columns": ["sales", "returns"], "horizon": 12, "window": 36, "freq": "MS"},
                {"columns": ["g"], "horizon": 20, "freq": "100ms", "options": {"budget": "cheap"}},
                {
                    "columns": ["load"],
                    "horizon": 3,
                    "freq": "D",
                    "exogenous": ["wind"],
                    "known": ["holiday"],
                },
            ]
        },
    )

    columns: list[Name] = Field(min_length=1, max_length=1000, description="Names of the values in a row")
    exogenous: list[Name] = Field(
        default_factory=list,
        max_length=1000,
        description="Columns that come with each row and are inputs only; for auto and networks",
    )
    known: list[Name] = Field(
        default_factory=list, max_length=1000, description="The same for columns whose future is known, such as a plan"
    )
    horizon: int = Field(Live.horizon, ge=1, le=100_000, description="Rows ahead")
    window: int = Field(Live.window, ge=1, le=100_000, description="Rows that a network sees")
    freq: str = Field(
        "h",
        max_length=20,
        description="Time between rows: 250us, 100ms, s, 15min, h, D, W; B for working days; M, Q, Y for months, "
        "quarters and years, with S on the first day of the month (MS), with E on the last (ME), else on the day that "
        "the rows show",
    )
    method: str = Field(Live.method, max_length=50, description="A method's name")
    protocol: Literal["honest", "partial"] = Field("honest", description="When labels are learned")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of everything random")
    options: dict[str, float | int | bool | str] = Field(
        default_factory=dict, max_length=50, description="Settings of the method that differ from its defaults"
    )


class RowIn(BaseModel):
    """One row."""

    model_config = ConfigDict(extra="forbid")

    time: Time
    values: Values
    future: Plans = None


class RowsIn(BaseModel):
    """Rows, taken in the order of their times."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"rows": [{"time": TIME, "values": {"load": 1.5}}]},
                {
                    "rows": [
                        {
                            "time": TIME,
                            "values": {"load": 1.5, "wind": 7, "holiday": 0},
                            "future": {"holiday": [0, 0, 1]},
                        }
                    ]
                },
            ]
        },
    )

    rows: list[RowIn]


# ---- what goes out ---------------------------------------------------------------------------------------------------

_AHEAD = ["2026-01-01T01:00:00", "2026-01-01T02:00:00"]
_FORECAST = {
    "origin": TIME,
    "times": _AHEAD,
    "mean": {"load": [1.6, 1.7]},
    "intervals": {"0.9": {"load": [[1.2, 2.0], [1.1, 2.3]]}},
}
_QUANTILES = {"0.1": {"load": [1.3, 1.2]}, "0.9": {"load": [1.9, 2.2]}}
_HEALTH = {
    "phase": "warm",
    "rows": 500,
    "mase": 0.81,
    "mase_last_value": 1.0,
    "crps": 0.6,
    "coverage_90": 0.9,
    "scale": 0.12,
    "drift": 0,
    "drift_since": None,
    "refused": 0,
    "weight_lags60_plain": 0.42,
}
_SERIES = {
    "key": "plant-7",
    "columns": ["load"],
    "exogenous": [],
    "known": [],
    "horizon": 2,
    "window": 60,
    "freq": "3600s",
    "method": "auto",
    "protocol": "honest",
    "seed": 0,
    "options": {},
    "created": "2025-12-11T04:00:00Z",
    "observations": 500,
    "last_time": TIME,
    "pending": 0,
    "resident": True,
    "failure": None,
    "health": _HEALTH,
}


def _shown(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": list(examples)})


class RefusedOut(BaseModel):
    """A row that was not taken."""

    time: str | None = Field(description="As it came, if it was text")
    reason: str


class RowsOut(BaseModel):
    """What became of the rows. Those accepted are on the disk."""

    model_config = _shown(
        {
            "accepted": 1,
            "duplicates": 1,
            "refused": [{"time": "2026-01-01", "reason": "row 2026-01-01T00:00:00 is kept with other values; …"}],
            "pending": 1,
        }
    )

    accepted: int
    duplicates: int = Field(description="Kept already, with the same values")
    refused: list[RefusedOut]
    pending: int = Field(description="Rows of the series that are kept but not yet learned")


class SeriesOut(BaseModel):
    """A series and how it is doing."""

    model_config = _shown(_SERIES)

    key: str
    columns: list[str]
    exogenous: list[str]
    known: list[str]
    horizon: int
    window: int
    freq: str
    method: str
    protocol: str
    seed: int
    options: dict[str, Any]
    created: str
    observations: int = Field(description="Rows kept")
    last_time: str | None
    pending: int = Field(description="Rows kept but not yet learned")
    resident: bool = Field(description="Whether its learner is in memory")
    failure: str | None = Field(None, description="Why learning has stopped; it is tried again")
    health: dict[str, Any] = Field(
        description="What natsr.Live.health says, after the last row learned; weight_… say whose "
        "forecast it is, where the method mixes"
    )
    recent: list[float | None] | None = Field(None, description="Last values of the first column, if asked for")


class SeriesList(BaseModel):
    """Series by key; `next` is where the next page begins."""

    model_config = _shown({"series": [{**_SERIES, "recent": [1.4, None, 1.5]}], "total": 1, "next": None})

    series: list[SeriesOut]
    total: int
    next: str | None = None


class ForecastOut(BaseModel):
    """What is expected of the next rows."""

    model_config = _shown({**_FORECAST, "pending": 0})

    origin: str = Field(description="Time of the last row learned")
    times: list[str]
    mean: Columns
    intervals: Intervals = Field(description="By level and column, low and high of each row")
    quantiles: dict[str, Columns] | None = Field(
        None, description="By probability and column, if asked for", examples=[_QUANTILES]
    )
    pending: int = Field(description="Rows kept that this forecast has not seen")


class HistoryOut(BaseModel):
    """What came, and what had been expected `step` rows before."""

    model_config = _shown(
        {
            "times": [TIME, _AHEAD[0]],
            "values": {"load": [1.5, None]},
            "step": 1,
            "mean": {"load": [None, 1.6]},
            "intervals": {"0.9": {"load": [[None, None], [1.2, 2.0]]}},
        }
    )

    times: list[str]
    values: Columns
    step: int
    mean: Columns
    intervals: Intervals


class PastOut(BaseModel):
    """A forecast that was made."""

    model_config = _shown(_FORECAST)

    origin: str
    times: list[str]
    mean: Columns
    intervals: Intervals


class PastList(BaseModel):
    """Forecasts that were made, oldest first."""

    model_config = _shown({"forecasts": [_FORECAST]})

    forecasts: list[PastOut]


class MetricsOut(BaseModel):
    """Health after each of the last rows learned."""

    model_config = _shown({"times": [TIME], "figures": {name: [value] for name, value in _HEALTH.items()}})

    times: list[str]
    figures: dict[str, list[Any]]


class ErrorOut(BaseModel):
    """What went wrong: what was got, what was expected, what to do."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "error": "series 'lod' is not known",
                    "expected": "a series that is there",
                    "hint": "create it with PUT",
                }
            ]
        }
    )

    error: str
    expected: str
    hint: str
