"""The verbs over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from natsr.data.ticks import FINEST, Unit, converted, shown
from natsr.intake import stamp
from natsr.live import LEVELS, LiveForecast
from natsr.serve import schemas
from natsr.serve.admit import offered, unpacked
from natsr.serve.answers import past_answer, row_answer
from natsr.serve.faults import ApiError
from natsr.serve.schemas import KEY, ErrorOut, RowsIn, SeriesIn
from natsr.serve.series import Series
from natsr.serve.service import Service, checked, looked_answer, places
from natsr.serve.tokens import Token
from natsr.types import DataError

#: Seconds between two signs of life on a stream of events.
HEARTBEAT = 15.0
_MOST_LEVELS = 20

Key = Annotated[str, Path(pattern=KEY, description="Name of the series", examples=["plant-7"])]
Count = Annotated[int, Query(ge=1, le=10_000, description="At most so many, the newest")]
Before = Annotated[str | None, Query(max_length=40, description="Only what is before this time")]
Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for the rows that are kept now to be learned")]
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorOut, "description": text}
    for status, text in {
        400: "The request cannot be read",
        401: "No token, or one that is not known",
        403: "The token does not allow it, or a limit is reached",
        404: "No such series",
        413: "Too large, or too many rows",
        422: "Makes no sense",
        429: "Too often, or rows come faster than they are learned; Retry-After says when to come back",
        503: "The state or the learner cannot be used now",
        507: "The disk is full; nothing was taken",
    }.items()
}
_CONFLICT: dict[int | str, dict[str, Any]] = {409: {"model": ErrorOut, "description": "Not as things are"}}
router = APIRouter(prefix="/v1", responses=_ERRORS)


class Answer(JSONResponse):
    """JSON in ASCII: whatever text came in can go out."""

    def render(self, content: Any) -> bytes:
        """As bytes."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def service_of(request: Request) -> Service:
    """The one that runs."""
    service: Service = request.app.state.service
    return service


def token_of(request: Request) -> Token | None:
    """Of the request, where there are tokens."""
    return getattr(request.state, "token", None)


def described(series: Series) -> dict[str, Any]:
    """A series as it is sent."""
    row, tail = series.row, series.tail
    return {
        "key": row.key,
        "columns": list(series.columns),
        "exogenous": [],
        "known": [],
        **row.settings,
        "options": row.settings.get("options") or {},
        "created": shown(row.created, "s") + "Z",
        "observations": tail.seq,
        "last_time": shown(tail.time, series.unit) if tail.time is not None else None,
        "pending": series.pending,
        "resident": series.live is not None,
        "failure": series.failure,
        "health": series.health,
    }


@router.get("/series", response_model=schemas.SeriesList)
async def list_series(
    request: Request,
    count: Annotated[int, Query(ge=1, le=1000, description="Series on a page")] = 100,
    after: Annotated[str, Query(max_length=128, description="Begin after this key")] = "",
    recent: Annotated[int, Query(ge=0, le=500, description="Last values of the first column to send along")] = 0,
) -> Response:
    """All series that the token may read, by key."""
    service, token = service_of(request), token_of(request)
    seen = [series for series in service.all() if token is None or token.may("read", series.key)]
    page = [series for series in seen if series.key > after][: count + 1]
    more, page = len(page) > count, page[:count]
    answers = [described(series) for series in page]
    if recent:
        rows = await run_in_threadpool(service.store.recent, [series.id for series in page], recent)
        for answer, series in zip(answers, page, strict=True):
            firsts = [float(unpacked(row)[0]) for row in rows[series.id]]
            answer["recent"] = [value if value == value else None for value in firsts]
    return Answer({"series": answers, "total": len(seen), "next": page[-1].key if more else None})


@router.put(
    "/series/{key}", response_model=schemas.SeriesOut, responses={201: {"model": schemas.SeriesOut}, **_CONFLICT}
)
async def put_series(key: Key, body: SeriesIn, request: Request) -> Response:
    """Create a series; 200 and no change if it is there with the same settings, 409 if with others."""
    service = service_of(request)
    settings = await run_in_threadpool(checked, body.model_dump(), service.settings.limits)
    created = await asyncio.wrap_future(service.create(key, settings))
    return Answer(described(created.series), status_code=201 if created.new else 200)


@router.get("/series/{key}", response_model=schemas.SeriesOut)
async def get_series(key: Key, request: Request) -> Response:
    """A series and how it is doing."""
    return Answer(described(service_of(request).find(key)))


@router.delete("/series/{key}", status_code=204)
async def delete_series(key: Key, request: Request) -> Response:
    """Forget a series: its rows, its forecasts, its learner."""
    service = service_of(request)
    await asyncio.wrap_future(service.delete(service.find(key)))
    return Response(status_code=204)


@router.post("/series/{key}/observations", response_model=schemas.RowsOut)
async def post_observations(key: Key, body: Annotated[RowsIn, Body()], request: Request) -> Response:
    """Take rows. What is answered as accepted is on the disk. To send the same rows again changes nothing."""
    service = service_of(request)
    series = service.find(key)
    most = service.settings.limits.rows
    if len(body.rows) > most:
        raise ApiError(413, f"there are {len(body.rows)} rows", f"at most {most}", "send them in several requests")
    given = [(row.time, row.values, row.future) for row in body.rows]
    if len(given) > 100:  # long enough for others to notice
        good, bad = await run_in_threadpool(offered, given, series.layout, series.unit)
    else:
        good, bad = offered(given, series.layout, series.unit)
    service.count(0, 0, len(bad))
    outcome = await asyncio.wrap_future(service.observe(series, good))
    return Answer(
        {
            "accepted": len(outcome.taken),
            "duplicates": outcome.duplicates,
            "refused": places([*bad, *outcome.refused], [time for time, _, _ in given]),
            "pending": series.pending,
        }
    )


@router.get("/series/{key}/observations", response_model=RowsIn)
async def get_observations(key: Key, request: Request, count: Count = 100, before: Before = None) -> Response:
    """The last rows kept, oldest first, in the form in which they are posted."""
    service = service_of(request)
    series = service.find(key)
    rows = await run_in_threadpool(service.rows, series, count, _moment(before, series.unit))
    cells = [row_answer(row, series.layout, series.unit) for row in rows]
    return Answer({"rows": cells})


@router.get("/series/{key}/forecast", response_model=schemas.ForecastOut, responses=_CONFLICT)
async def get_forecast(
    key: Key,
    request: Request,
    levels: Annotated[str, Query(max_length=200, description="Of the intervals", examples=["0.5,0.9"])] = "0.5,0.9",
    quantiles: Annotated[
        str, Query(max_length=500, description="Probabilities of quantiles to send along", examples=["0.1,0.5,0.9"])
    ] = "",
    wait: Wait = 0,
) -> Response:
    """What is expected of the next rows, with intervals and, if asked for, quantiles."""
    service = service_of(request)
    series = service.find(key)
    chosen, probabilities = _levels(levels), _quantiles(quantiles)
    if wait and (series.pending or not series.sure):
        reached = asyncio.wrap_future(service.learners.wait(series, series.tail.seq))
        with contextlib.suppress(TimeoutError, ApiError):  # then the forecast is as old as it is, or says why not
            await asyncio.wait_for(reached, wait)
    found = service.forecast(series, chosen, probabilities)
    forecast: LiveForecast = await asyncio.wrap_future(found) if isinstance(found, Future) else found
    return Answer({**forecast.plain(probabilities), "pending": series.pending})


@router.get("/series/{key}/history", response_model=schemas.HistoryOut)
async def get_history(
    key: Key,
    request: Request,
    count: Count = 200,
    before: Before = None,
    step: Annotated[int, Query(ge=1, le=100_000, description="Rows ahead")] = 1,
) -> Response:
    """The last rows beside what had been expected of each, `step` rows before it came."""
    service = service_of(request)
    series = service.find(key)
    horizon = series.row.settings["horizon"]
    if step > horizon:
        raise ApiError(422, f"step is {step}", f"at most the horizon, {horizon}", "choose a smaller step")
    rows = await run_in_threadpool(service.rows, series, count, _moment(before, series.unit))
    looked = await run_in_threadpool(service.look_back, series, rows, step)
    return Answer({**looked_answer(series, looked), "step": step})


@router.get("/series/{key}/forecasts", response_model=schemas.PastList)
async def get_forecasts(
    key: Key, request: Request, count: Annotated[int, Query(ge=1, le=500)] = 10, before: Before = None
) -> Response:
    """The last forecasts that were made, oldest first, with their 90 % intervals."""
    service = service_of(request)
    series = service.find(key)
    last = (_moment(before, series.unit) or series.tail.time or 0) - (before is not None)
    made = await run_in_threadpool(service.past, series, -(2**62), last, count)
    grid = await run_in_threadpool(service.grid, series)
    return Answer({"forecasts": [past_answer(row, series.columns, grid) for row in made]})


@router.get("/series/{key}/metrics", response_model=schemas.MetricsOut)
async def get_metrics(key: Key, request: Request, count: Count = 500, before: Before = None) -> Response:
    """Health after each of the last rows learned: running error beside that of the last value, coverage, scale."""
    service = service_of(request)
    series = service.find(key)
    last = (_moment(before, series.unit) or series.tail.time or 0) - (before is not None)
    made = await run_in_threadpool(service.past, series, -(2**62), last, count)
    readings = [json.loads(row.health) for row in made]
    names = sorted({name for reading in readings for name in reading})
    figures = {name: [reading.get(name) for reading in readings] for name in names}
    return Answer({"times": [shown(row.origin, series.unit) for row in made], "figures": figures})


_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Server-sent events"}
}


@router.get("/series/{key}/events", responses=_STREAM, response_class=StreamingResponse)
async def get_events(key: Key, request: Request) -> Response:
    """An event `row` for each row learned, from now on: the row, the new forecast, and the health."""
    service_of(request).find(key)
    return _stream(request, lambda name: name == key)


@router.get("/events", responses=_STREAM, response_class=StreamingResponse)
async def get_all_events(request: Request) -> Response:
    """The same for every series that the token may read."""
    token = token_of(request)
    return _stream(request, lambda name: token is None or token.may("read", name))


def _stream(request: Request, wanted: Any) -> StreamingResponse:
    bus = service_of(request).bus

    async def events() -> AsyncIterator[str]:
        subscription = bus.subscribe(wanted)  # here, so that a reader who never comes leaves nothing behind
        try:
            yield "retry: 2000\n\n"
            while not subscription.closed:
                news = await subscription.next(HEARTBEAT)
                if news is not None:
                    yield f"id: {news['seq']}\nevent: row\ndata: {json.dumps(news)}\n\n"
                elif not subscription.closed:
                    yield ": still here\n\n"
        finally:
            bus.leave(subscription)

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


def _levels(text: str) -> tuple[float, ...]:
    if not text.strip():
        return ()
    try:
        levels = tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        levels = (0.0,)
    if not all(0 < level <= 0.99 for level in levels) or len(levels) > _MOST_LEVELS:
        expected = f"numbers above 0 and at most 0.99 with commas, at most {_MOST_LEVELS}"
        raise ApiError(422, f"levels is {text!r}", expected, f"such as {','.join(map(str, LEVELS))}")
    return levels


def _quantiles(text: str) -> tuple[float, ...]:
    if not text.strip():
        return ()
    try:
        found = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError:
        found = (0.0,)
    if not all(0 < p < 1 for p in found) or len(found) > _MOST_LEVELS:
        expected = f"numbers above 0 and below 1 with commas, at most {_MOST_LEVELS}"
        raise ApiError(422, f"quantiles is {text!r}", expected, "such as 0.1,0.5,0.9")
    return found


def _moment(text: str | None, unit: Unit) -> int | None:
    """The first tick of a series that is not before this time."""
    if text is None:
        return None
    try:
        return converted(stamp(text, FINEST), FINEST, unit)
    except (DataError, OverflowError, ValueError):
        raise ApiError(422, f"before is {text!r}", "ISO 8601 such as 2026-01-31T15:00:00", "leave it out") from None
