"""News for those who watch: each row learned, to everyone who follows the series, without ever waiting for anyone."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

#: News kept for somebody who is slow to read; older ones are left out, and counted.
KEPT = 256
News = dict[str, Any]


class Subscription:
    """One who watches; read with `next` in the loop it was made in."""

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted
        self._news: deque[News] = deque()
        self._missed = 0
        self._ready = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.closed = False

    def push(self, news: News | None) -> None:
        """From any thread; `None` ends it."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take, news)

    def _take(self, news: News | None) -> None:
        if news is None:
            self.closed = True
        elif len(self._news) >= KEPT:
            self._news.popleft()
            self._missed += 1
        if news is not None:
            self._news.append(news)
        self._ready.set()

    async def next(self, timeout: float) -> News | None:
        """The next piece of news; `None` if none came in time, or it has ended."""
        if not self._news and not self.closed:
            self._ready.clear()
            try:
                await asyncio.wait_for(self._ready.wait(), timeout)
            except TimeoutError:
                return None
        if not self._news:
            return None
        news, self._missed, missed = self._news.popleft(), 0, self._missed
        return {**news, "missed": missed} if missed else news


class Bus:
    """From the threads that learn to those who watch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: set[Subscription] = set()
        self._closed = False

    def subscribe(self, wanted: Callable[[str], bool]) -> Subscription:
        """Follow the series whose keys are wanted, from now on."""
        subscription = Subscription(wanted)
        with self._lock:
            self._all.add(subscription)
            if self._closed:
                subscription.push(None)
        return subscription

    def leave(self, subscription: Subscription) -> None:
        """Stop following."""
        with self._lock:
            self._all.discard(subscription)

    def watched(self, key: str) -> bool:
        """Whether anyone follows; what nobody reads need not be written."""
        with self._lock:
            return any(subscription.wanted(key) for subscription in self._all)

    def publish(self, key: str, news: News) -> None:
        """Tell those who follow."""
        with self._lock:
            following = [subscription for subscription in self._all if subscription.wanted(key)]
        for subscription in following:
            subscription.push(news)

    def close(self) -> None:
        """End every subscription, now and to come."""
        with self._lock:
            self._closed = True
            everyone = list(self._all)
        for subscription in everyone:
            subscription.push(None)

    def __len__(self) -> int:
        with self._lock:
            return len(self._all)
