"""What the service counts, for Prometheus; in a registry of its own, so that several can live in one process."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Meters:
    """Counters, gauges and histograms. No label holds a series' key: there may be thousands."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("natsr_requests", "Requests answered", ("method", "route", "status"), registry=registry)
        self.request_seconds = Histogram(
            "natsr_request_seconds", "Seconds until the answer began", ("route",), registry=registry, buckets=_FAST
        )
        self.rows = Counter(
            "natsr_observations", "Rows offered, by what became of them", ("outcome",), registry=registry
        )
        for outcome in ("accepted", "duplicate", "refused"):
            self.rows.labels(outcome)
        self.learn_seconds = Histogram(
            "natsr_learn_seconds", "Seconds to learn a row", registry=registry, buckets=_FAST
        )
        self.learn_failures = Counter("natsr_learn_failures", "Turns of learning that failed", registry=registry)
        self.unlearned = Counter("natsr_unlearned", "Rows kept that the learner refused", registry=registry)
        self.snapshots = Counter("natsr_snapshots", "Snapshots taken", registry=registry)
        self.snapshot_failures = Counter("natsr_snapshot_failures", "Snapshots that failed", registry=registry)
        self.loads = Counter("natsr_loads", "Learners brought into memory", registry=registry)
        self.evictions = Counter("natsr_evictions", "Learners that left memory", registry=registry)
        self.storage_failures = Counter("natsr_storage_failures", "Writes that failed", registry=registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is read when somebody looks."""
        Gauge(f"natsr_{name}", text, registry=self.registry).set_function(value)

    def page(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self.registry)
