"""The application: routes, errors, health endpoints, and the service that lives as long as it does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from natsr.serve import pages, routes
from natsr.serve.faults import ApiError, storage_error
from natsr.serve.guard import Guard
from natsr.serve.learner import Workshop
from natsr.serve.routes import Answer, service_of
from natsr.serve.service import Service
from natsr.serve.settings import ServeSettings
from natsr.serve.tokens import Tokens
from natsr.version import __version__

_WORDS = {404: "there is nothing at this path", 405: "this path does not take this method"}


def make_app(settings: ServeSettings, workshops: Sequence[Workshop] = ()) -> FastAPI:
    """The application; the state is opened now, so that what is wrong with it is told before anything listens.

    Args:
        settings: What is served.
        workshops: Where learners live, one for each thread that learns; without them, in this process.
    """
    tokens = Tokens(settings.tokens) if settings.tokens else None
    service = Service(settings, workshops)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        try:
            await run_in_threadpool(service.start)
            yield
        finally:
            await run_in_threadpool(service.close)

    app = FastAPI(
        title="natsr",
        version=__version__,
        summary="Forecasts many rows ahead of series that it learns from with every row",
        lifespan=lifespan,
        docs_url=None,  # it would come from elsewhere; docs/serve.md is the reference for people
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.add_middleware(Guard, limits=settings.limits, tokens=tokens, meters=service.meters)
    app.include_router(routes.router)
    app.include_router(pages.router)
    app.add_api_route("/healthz", healthz, tags=["health"])
    app.add_api_route("/readyz", readyz, tags=["health"])
    app.add_api_route("/metrics", metrics, tags=["health"], response_class=Response)
    _add_errors(app)
    return app


async def healthz() -> Answer:
    """Whether the process answers."""
    return Answer({"status": "ok", "version": __version__})


async def readyz(request: Request) -> Answer:
    """Whether the state can be read; 503 if not."""
    service = service_of(request)
    try:
        await run_in_threadpool(service.store.ping)
    except SQLAlchemyError as error:
        raise storage_error(error) from error
    if not service.ready:
        raise ApiError(503, "the service is starting or stopping", "a running service", "try again")
    return Answer({"status": "ready", "failing": service.learners.failed})


async def metrics(request: Request) -> Response:
    """For Prometheus."""
    return Response(service_of(request).meters.page(), media_type=CONTENT_TYPE_LATEST)


#: What a body looks like, by the method of the request.
_BODIES = {
    "PUT": 'JSON such as {"columns": ["load"], "horizon": 24, "freq": "h"}',
    "POST": 'JSON such as {"rows": [{"time": "2026-01-31T15:00:00", "values": {"load": 1.5}}]}',
}


def _add_errors(app: FastAPI) -> None:
    """Every error in one form."""

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Answer:
        return Answer(error.body(), status_code=error.status, headers=error.headers)

    @app.exception_handler(SQLAlchemyError)
    async def storage(request: Request, error: SQLAlchemyError) -> Answer:
        return await refused(request, storage_error(error))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Answer:
        text = _WORDS.get(error.status_code, str(error.detail))
        headers = dict(error.headers or {})
        return await refused(request, ApiError(error.status_code, text, "see /openapi.json", "", headers))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Answer:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first.get("loc", ()))
        text = f"{place}: {first.get('msg', 'not valid')}"[:500]
        expected, hint = "what /openapi.json describes", "correct the request"
        if place.startswith("body"):
            expected = _BODIES.get(request.method, expected)
            kind = request.headers.get("content-type", "")
            if not kind.partition(";")[0].strip().lower().endswith("json"):  # curl's -d says that it sends a form
                text = f"the body is of the type {kind[:100] or 'that nobody has said'!r}"
                hint = "say that it is JSON: -H 'Content-Type: application/json'"
        return await refused(request, ApiError(422, text, expected, hint))
