"""The page at `/` and its files, as they lie in `natsr.serve.page` and `natsr.report`: nothing is built or fetched."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from natsr.serve.faults import ApiError

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
    "png": "image/png",
    "ico": "image/x-icon",
    "webmanifest": "application/manifest+json",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: Files of the report page that this page draws with as well.
_SHARED = ("chart.js", "page.css")
#: Files of the report that the page uses too.
_SHARED = ("page.css", "chart.js")
router = APIRouter(include_in_schema=False)


class File(NamedTuple):
    """One file of the page."""

    content: bytes
    kind: str
    tag: str


@cache
def files() -> dict[str, File]:
    """All files of the page, read once."""
    found = {}
    shared = [resources.files("natsr.report").joinpath(name) for name in _SHARED]
    for entry in (*resources.files("natsr.serve").joinpath("page").iterdir(), *shared):
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if entry.is_file() and kind is not None:
            content = entry.read_bytes()
            found[entry.name] = File(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def _answer(name: str, request: Request) -> Response:
    file = files().get(name)
    if file is None:
        raise ApiError(404, f"the page has no file {name!r}", "one of its own files", "start at /")
    # no-cache: kept, but asked for each time, which costs a 304; so a new version is seen at once.
    headers = {
        "ETag": file.tag,
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.kind, headers=headers)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    """The page."""
    return _answer("index.html", request)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def asset(name: str, request: Request) -> Response:
    """A file that the page asks for."""
    return _answer(name, request)
