"""What is asked before a request is read: where it comes from, its token, how often, and how large it is.

A request that is refused here has changed nothing, and its body has not been looked at.
"""

from __future__ import annotations

import json
import time as clock
from collections import OrderedDict
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from natsr.serve.faults import ApiError
from natsr.serve.meters import Meters
from natsr.serve.settings import Limits, is_loopback
from natsr.serve.tokens import Token, Tokens

#: What may be had without a token: whether it runs, and the page, which holds no data.
_OPEN = ("/healthz", "/readyz", "/openapi.json", "/")
_SCOPES = {"GET": "read", "HEAD": "read", "POST": "write", "PUT": "admin", "DELETE": "admin"}
#: Clients that the rate is kept of.
_CLIENTS = 10_000


class Bucket(NamedTuple):
    """How many requests a client may still make, as of a moment."""

    left: float
    at: float


class Rate:
    """So many requests in a second from each client, and twice that at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, client: str, now: float) -> float:
        """Take one; 0 if there is one, or else the seconds until there is."""
        most = max(1.0, 2 * self._rate)
        left, at = self._buckets.pop(client, Bucket(most, now))
        left = min(most, left + (now - at) * self._rate)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate
        self._buckets[client] = Bucket(left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        return wait


class Bounded:
    """A body up to a limit: a length that was not told, or told wrongly, is found here."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._most, self._got = receive, most, 0
        self.exceeded = self.told = False

    async def read(self) -> Message:
        """The next part."""
        message = await self._receive()
        self._got += len(message.get("body", b""))
        if self._got > self._most:
            self.exceeded = True
            raise _too_large(self._most)
        return message


def _too_large(most: int) -> ApiError:
    return ApiError(413, "the body is too large", f"at most {most} bytes", "send the rows in several requests")


class Guard:
    """The outermost layer of the service."""

    def __init__(self, app: ASGIApp, limits: Limits, tokens: Tokens | None, meters: Meters) -> None:
        self._app, self._limits, self._tokens, self._meters = app, limits, tokens, meters
        self._rate = Rate(limits.rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or answer why not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = clock.perf_counter(), 500
        body = Bounded(receive, self._limits.body_bytes)

        async def answer(message: Message) -> None:
            nonlocal status
            if body.exceeded and not body.told:
                return  # the framework takes the end of the body for something else; the right answer follows
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Cache-Control", "no-store")
                self._meters.request_seconds.labels(_route(scope)).observe(clock.perf_counter() - started)
            await send(message)

        try:
            self._let_in(scope)
            await self._app(scope, body.read, answer)
            if body.exceeded:
                raise _too_large(self._limits.body_bytes)
        except ApiError as error:
            body.told = True
            await _refuse(error, answer)
        finally:
            self._meters.requests.labels(_method(scope), _route(scope), str(status)).inc()

    def _let_in(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        path = str(scope["path"])
        client = (scope.get("client") or ("",))[0]
        if self._tokens is None:
            _check_host(headers)
        elif path not in _OPEN and not path.startswith("/page/"):
            token = self._token(headers)
            client = f"token {token.name}"
            _check_scope(token, scope["method"], path)
            scope.setdefault("state", {})["token"] = token
        wait = self._rate.take(client, clock.monotonic())
        if wait:
            limit = f"at most {self._limits.rate:g} in a second"
            retry = {"Retry-After": str(int(wait) + 1)}
            raise ApiError(429, "too many requests", limit, "send several rows in one request", retry)
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit():
            raise ApiError(400, "content-length is not a number", "bytes in the body", "leave it to your client")
        if len(length) > 18 or int(length) > self._limits.body_bytes:
            raise _too_large(self._limits.body_bytes)

    def _token(self, headers: Headers) -> Token:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        challenge = {"WWW-Authenticate": "Bearer"}
        expected = "Authorization: Bearer TOKEN"
        if scheme.lower() != "bearer" or not given.strip():
            raise ApiError(401, "there is no token", expected, "make one with `natsr token`", challenge)
        found = self._tokens.find(given.strip()) if self._tokens else None
        if found is None:
            raise ApiError(401, "the token is not known", expected, "make one with `natsr token`", challenge)
        return found


def _check_host(headers: Headers) -> None:
    """Without tokens only this machine may ask; a page in a browser of this machine is not this machine."""
    host = headers.get("host", "")
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    if host and not is_loopback(name):
        raise ApiError(403, "the host is not this machine", "a loopback name such as 127.0.0.1", "use tokens")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise ApiError(403, "the request comes from another site", "a page of this service", "use tokens")


def _check_scope(token: Token, method: str, path: str) -> None:
    scope = _SCOPES.get(method)
    if scope is None:
        return  # no such method anywhere: the answer is 405
    parts = path.split("/")
    key = parts[3] if len(parts) > 3 and parts[1] == "v1" and parts[2] == "series" else None
    if not token.may(scope, key):
        what = f"{scope} series {key!r}" if key is not None else scope
        raise ApiError(403, f"the token may not {what}", "a token that may", "ask whoever made it")


async def _refuse(error: ApiError, send: Send) -> None:
    body = json.dumps(error.body()).encode("ascii")
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The pattern of the path, not the path: labels must stay few."""
    return str(getattr(scope.get("route"), "path", "other"))


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in _SCOPES else "other"
