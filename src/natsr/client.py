"""A few lines to talk to `natsr serve`.

Every request can be sent again without harm, so it is: after a lost connection, a restart of the service, or when the
service asks to be left alone for a while, until `patience` is over.
"""

from __future__ import annotations

import json
import math
import time as clock
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote

import numpy as np

from natsr.exogenous import Future
from natsr.intake import number, written
from natsr.live import LEVELS, LiveForecast
from natsr.phases import Interval
from natsr.spread import Told, check_probabilities
from natsr.types import DataError, NatsrError, Option, OptionError

if TYPE_CHECKING:
    import httpx

#: What a series may be told when it is made.
Setting: TypeAlias = int | str | Sequence[str] | Mapping[str, Option]
#: A row: its time, its values, and, if one is told, the plan after it.
Given: TypeAlias = tuple[object, Mapping[str, object]] | tuple[object, Mapping[str, object], Future]
#: Rows in one request.
CHUNK = 1000
#: Answers that mean: not now.
_LATER = (429, 502, 503, 504, 507)


class ServiceError(NatsrError):
    """The service refused, or could not be reached.

    Args:
        status: Of HTTP; 0 if there was no answer.
        error: What was got.
        expected: What was expected.
        hint: What to do.
    """

    def __init__(self, status: int, error: str, expected: str = "", hint: str = "") -> None:
        parts = [error, f"expected {expected}" if expected else "", hint]
        super().__init__("; ".join(part for part in parts if part))
        self.status, self.error, self.expected, self.hint = status, error, expected, hint


class Observed(NamedTuple):
    """What became of rows: those accepted are on the service's disk."""

    accepted: int
    duplicates: int
    refused: list[dict[str, Any]]
    pending: int


class Client:
    """A service that runs somewhere.

    Args:
        url: Where.
        token: If it asks for one.
        patience: Seconds to go on trying when it cannot be reached or asks to wait.
        timeout: Seconds for one answer.

    Example:
        with natsr.Client("http://127.0.0.1:8000") as client:
            client.put("plant-7", columns=["load"], horizon=24, freq="h")
            client.observe("plant-7", "2026-01-01T00:00", {"load": 1.5})
            forecast = client.forecast("plant-7", wait=10)
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        token: str | None = None,
        *,
        patience: float = 60.0,
        timeout: float = 75.0,
    ) -> None:
        try:
            import httpx  # here, so that natsr can be imported without it
        except ImportError as error:
            raise OptionError("natsr.Client needs httpx, expected it installed: pip install 'natsr[serve]'") from error
        if not url.startswith(("http://", "https://")):
            raise OptionError(f"url is {url!r}, expected one that begins with http:// or https://: http://{url}")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url, self._patience, self._lost = url.rstrip("/"), patience, httpx.TransportError
        self._http: httpx.Client = httpx.Client(base_url=self.url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    # ---- verbs ---------------------------------------------------------------------------------------------------

    def put(self, key: str, columns: Sequence[str], **settings: Setting) -> dict[str, Any]:
        """Create a series, or find it there with the same settings.

        Args:
            key: Its name.
            columns: Names of the values in a row.
            settings: `horizon`, `window`, `freq`, `method`, `protocol`, `seed`, `options`, `exogenous`, `known`, as
                for `natsr.Live`.
        """
        if isinstance(columns, str):
            raise OptionError(f"columns is the text {columns!r}, expected a list of names: [{columns!r}]")
        return self._json("PUT", _path(key), body={"columns": list(columns), **settings})

    def observe(self, key: str, time: object, row: Mapping[str, object], future: Future | None = None) -> Observed:
        """Send one row; a row that is refused raises `natsr.DataError`, as `Live.observe` does.

        Args:
            key: Of the series.
            time: Of the row.
            row: Values by column.
            future: Of columns in `known`, their values at the next `horizon` rows.
        """
        done = self.observe_many(key, [(time, row) if future is None else (time, row, future)])
        if done.refused:
            raise DataError(done.refused[0]["reason"])
        return done

    def observe_many(self, key: str, rows: Iterable[Given]) -> Observed:
        """Send many rows, each a time and values by column, or these and a plan as in `observe`.

        A thousand go in a request; those refused are in the answer, with the reason.
        """
        total = Observed(0, 0, [], 0)
        for chunk in _chunks(rows):
            got = self._json("POST", _path(key, "observations"), body={"rows": chunk})
            refused = [*total.refused, *got["refused"]]
            accepted, duplicates = total.accepted + got["accepted"], total.duplicates + got["duplicates"]
            total = Observed(accepted, duplicates, refused, got["pending"])
        return total

    def forecast(
        self, key: str, levels: Sequence[float] = LEVELS, *, quantiles: Sequence[float] = (), wait: float = 0.0
    ) -> LiveForecast:
        """What is expected of the next rows; of its quantiles those that are asked for.

        Args:
            key: Of the series.
            levels: Of the intervals.
            quantiles: Probabilities of those that `quantiles` of the answer shall have.
            wait: Seconds to wait for the rows sent so far to be learned; without it the forecast may be a few rows old.
        """
        query = {"levels": ",".join(f"{level:g}" for level in levels), "wait": f"{wait:g}"}
        if quantiles:
            check_probabilities(quantiles)
        query |= {"quantiles": ",".join(str(p) for p in quantiles)} if quantiles else {}
        return _forecast(self._json("GET", _path(key, "forecast"), query=query))

    def history(self, key: str, *, count: int = 200, step: int = 1, before: object = None) -> dict[str, Any]:
        """The last rows, or those before a time, beside what had been expected of each, `step` rows before it came."""
        return self._json("GET", _path(key, "history"), query={**_last(count, before), "step": str(step)})

    def metrics(self, key: str, *, count: int = 500, before: object = None) -> dict[str, Any]:
        """Health after each of the last rows learned, or of those before a time."""
        return self._json("GET", _path(key, "metrics"), query=_last(count, before))

    def forecasts(self, key: str, *, count: int = 10, before: object = None) -> list[LiveForecast]:
        """The last forecasts that were made, or those from before a time, oldest first, with their 90 % intervals."""
        found = self._json("GET", _path(key, "forecasts"), query=_last(count, before))
        return [_forecast(one) for one in found["forecasts"]]

    def observations(self, key: str, *, count: int = 100, before: object = None) -> list[dict[str, Any]]:
        """The last rows kept, or those before a time, oldest first, each with `time`, `values` and its plan."""
        return list(self._json("GET", _path(key, "observations"), query=_last(count, before))["rows"])

    def get(self, key: str) -> dict[str, Any]:
        """A series and how it is doing."""
        return self._json("GET", _path(key))

    def series(self) -> Iterator[dict[str, Any]]:
        """All series that may be read, by key."""
        after: str | None = ""
        while after is not None:
            page = self._json("GET", "/v1/series", query={"after": after})
            yield from page["series"]
            after = page["next"]

    def delete(self, key: str) -> None:
        """Forget a series and everything that is kept of it."""
        self._json("DELETE", _path(key))

    def events(self, key: str | None = None) -> Iterator[dict[str, Any]]:
        """Each row learned from now on, with the new forecast; of all series without a key. Never ends by itself."""
        path = "/v1/events" if key is None else _path(key, "events")
        lost_at: float | None = None
        while True:
            try:
                with self._http.stream("GET", path, timeout=60.0) as answer:
                    if answer.status_code != 200:
                        answer.read()
                        raise _error(answer)
                    lost_at = None
                    for line in answer.iter_lines():
                        if line.startswith("data: "):
                            yield json.loads(line[6:])
            except self._lost as error:
                lost_at = self._patient(lost_at, ServiceError(0, f"{self.url} is lost: {error}"))
            except ServiceError as error:
                if error.status not in _LATER:
                    raise
                lost_at = self._patient(lost_at, error)

    # ---- how ----------------------------------------------------------------------------------------------------

    def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        since: float | None = None
        while True:
            pause = 0.5
            try:
                answer = self._http.request(method, path, json=body, params=query)
            except self._lost as error:
                failure = ServiceError(0, f"{self.url} cannot be reached: {error}", "a running `natsr serve`")
            else:
                if answer.is_success:
                    return dict(answer.json()) if answer.content else {}
                if method == "DELETE" and answer.status_code == 404 and since is not None:
                    return {}  # an answer was lost: the first try did it
                failure = _error(answer)
                if answer.status_code not in _LATER:
                    raise failure
                told = answer.headers.get("retry-after", "")
                pause = min(float(told), 30.0) if told.isdigit() else pause
            since = self._patient(since, failure, pause)

    def _patient(self, since: float | None, failure: ServiceError, pause: float = 0.5) -> float:
        """Wait a little before the next try, or give up; since when it fails."""
        now = clock.monotonic()
        since = now if since is None else since
        if now + pause - since >= self._patience:
            raise failure
        clock.sleep(pause)
        return since


def _path(key: str, *more: str) -> str:
    return "/".join(["/v1/series", quote(key, safe=""), *more])


def _last(count: int, before: object) -> dict[str, str]:
    """So many of the newest, or of those before a time, as a query."""
    return {"count": str(count), **({} if before is None else {"before": written(before)})}


def _forecast(got: Mapping[str, Any]) -> LiveForecast:
    """From JSON."""
    columns = tuple(got["mean"])
    intervals = {}
    for level, ends in got["intervals"].items():
        pairs = np.array([ends[name] for name in columns], dtype=np.float64)  # (C, H, 2), None becomes NaN
        intervals[float(level)] = Interval(pairs[:, :, 0].T, pairs[:, :, 1].T)
    mean = np.array([got["mean"][name] for name in columns], dtype=np.float64).T
    times = np.array(got["times"], dtype="datetime64")  # as fine as they are written
    told = {
        float(p): np.array([values[name] for name in columns], dtype=np.float64).T
        for p, values in got.get("quantiles", {}).items()
    }
    return LiveForecast(np.datetime64(got["origin"]), times, columns, mean, intervals, Told(told))


def _chunks(rows: Iterable[Given]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for time, row, *plans in rows:
        sent: dict[str, Any] = {"time": written(time)}
        if not isinstance(row, Mapping):
            raise DataError(f'row is {row!r}, expected values by column, such as {{"load": 1.5}}')
        sent["values"] = {name: _cell(value, name) for name, value in row.items()}
        for future in plans:
            sent["future"] = {name: [_cell(value, name) for value in plan] for name, plan in future.items()}
        chunk.append(sent)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _cell(value: object, name: str) -> float | None:
    found = number(value, name)
    return None if math.isnan(found) else found


def _error(answer: httpx.Response) -> ServiceError:
    try:
        body = answer.json()
        return ServiceError(answer.status_code, body["error"], body["expected"], body["hint"])
    except (ValueError, KeyError, TypeError):
        return ServiceError(answer.status_code, f"the service answered {answer.status_code}: {answer.text[:200]}")
