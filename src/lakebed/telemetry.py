"""Metrics and spans of writes, services and reads, for OpenTelemetry and Prometheus.

They are derived from the results that writes and services return and from the plans of reads: each kind has one
function here, which is called where its result is complete. Nothing is imported, and nothing is computed, unless the
program has imported OpenTelemetry's API or has opened the Prometheus endpoint (`serve_prometheus`).
`docs/monitoring.md` lists the metrics, with the names that real Hudi has for them.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

from lakebed.errors import StorageError, UnsupportedFeature
from lakebed.hosts import REFUSED, names_this_machine

_log = logging.getLogger("lakebed")
Kind = Literal["counter", "histogram", "gauge"]
Labels = Mapping[str, str]


class Metric(NamedTuple):
    """One metric. `labels` are its labels in addition to `table`, which is the URI of the table; `hudi` has the names
    of the metric in real Hudi."""

    name: str
    kind: Kind
    unit: str
    text: str
    labels: tuple[str, ...] = ()
    hudi: str = ""


COMMITS = Metric("lakebed.commits", "counter", "", "Completed writes", ("operation",))
COMMIT_SECONDS = Metric(
    "lakebed.commit.seconds", "histogram", "s", "Time of a write", ("operation",), "commit.duration"
)
STEP_SECONDS = Metric("lakebed.commit.step.seconds", "histogram", "s", "Time of a step of a write", ("step",))
LAST_COMMIT = Metric("lakebed.commit.last", "gauge", "s", "When the last write completed, since 1970", (), "commitTime")
ROWS = Metric(
    "lakebed.commit.rows",
    "counter",
    "",
    "Rows of writes: incoming, and those inserted, updated, deleted, left unchanged or combined with others",
    ("operation", "kind"),
    "totalRecordsWritten, totalInsertRecordsWritten, totalUpdateRecordsWritten, totalRecordsDeleted",
)
FILES = Metric(
    "lakebed.commit.files", "counter", "", "Files written", ("operation",), "totalFilesInsert + totalFilesUpdate"
)
BYTES = Metric("lakebed.commit.bytes", "counter", "By", "Bytes written", ("operation",), "totalBytesWritten")
PARTITIONS = Metric(
    "lakebed.commit.partitions", "counter", "", "Partition paths written", ("operation",), "totalPartitionsWritten"
)
LOOKUP_KEYS = Metric("lakebed.index.keys", "counter", "", "Keys that an index looked up, and found", ("kind",))
LOOKUP_FILES = Metric(
    "lakebed.index.files",
    "counter",
    "",
    "File slices that could hold a key: ruled out by key range or bloom filter, searched; and data files opened",
    ("kind",),
)
CONFLICTS = Metric(
    "lakebed.conflicts",
    "counter",
    "",
    "Writes that lost against a concurrent one",
    (),
    "conflict_resolution.failure.counter",
)
RETRIES = Metric("lakebed.retries", "counter", "", "Writes that were run again after a conflict")
ROLLBACKS = Metric("lakebed.rollbacks", "counter", "", "Writes of dead writers that were rolled back")
SERVICE_RUNS = Metric("lakebed.service.runs", "counter", "", "Completed runs of table services", ("service",))
SERVICE_SECONDS = Metric(
    "lakebed.service.seconds",
    "histogram",
    "s",
    "Time of a run",
    ("service",),
    "clean.duration, archive.duration, compaction and clustering timers",
)
SERVICE_COUNTS = Metric(
    "lakebed.service.work",
    "counter",
    "",
    "What runs did: files, rows, bytes, file slices, instants",
    ("service", "kind"),
    "clean.numFilesDeleted, archive.numInstantsArchived, totalLogFilesCompacted",
)
SERVICE_FAILURES = Metric("lakebed.service.failures", "counter", "", "Services that failed", ("service",))
SERVICE_LAG = Metric(
    "lakebed.service.lag", "gauge", "s", "For how long a service has been due; 0 if it is not", ("service",)
)
SCANS = Metric("lakebed.scan.plans", "counter", "", "Planned reads", ("query",))
SCAN_SECONDS = Metric("lakebed.scan.plan.seconds", "histogram", "s", "Time of planning a read", ("query",))
SCAN_FILES = Metric(
    "lakebed.scan.files", "counter", "", "Base files of planned reads: to be read, or what ruled them out", ("kind",)
)
SCAN_BYTES = Metric("lakebed.scan.bytes", "counter", "By", "Bytes of base files to be read", ())
SCAN_PRUNED = Metric("lakebed.scan.pruned", "histogram", "1", "Share of the base files that a plan rules out", ())
CACHE_REQUESTS = Metric(
    "lakebed.cache.requests",
    "gauge",
    "",
    "Requests of a cache of this process, so far: hits and misses",
    ("cache", "kind"),
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


class Lookup(Protocol):
    """The result of an index that looked up the keys of a write; see `KeyLookup`."""

    @property
    def keys(self) -> int: ...
    @property
    def tagged(self) -> int: ...
    @property
    def out_of_range(self) -> int: ...
    @property
    def filtered(self) -> int: ...
    @property
    def searched(self) -> int: ...
    @property
    def opened(self) -> int: ...


class Written(Protocol):
    """The counts of a write; see `WriteResult`."""

    @property
    def instant(self) -> str: ...
    @property
    def operation(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def inserted(self) -> int | None: ...
    @property
    def updated(self) -> int | None: ...
    @property
    def deleted(self) -> int | None: ...
    @property
    def unchanged(self) -> int: ...
    @property
    def combined(self) -> int: ...
    @property
    def files(self) -> Sequence[str]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def seconds(self) -> Mapping[str, float]: ...
    @property
    def rolled_back(self) -> Sequence[str]: ...
    @property
    def lookup(self) -> Lookup | None: ...


class Sink(Protocol):
    """A receiver of metrics and spans."""

    def record(self, metric: Metric, value: float, labels: Labels) -> None:
        """Record one measurement: add it to a counter, record it in a histogram, or set a gauge to the value."""
        ...

    def span(self, name: str, steps: Mapping[str, float], labels: Labels) -> None:
        """Record a span that ends now. Its duration is the sum of its steps in seconds, which follow each other."""
        ...


_sinks: list[Sink] = []
# By table and service: since when it is due.
_due_since: dict[tuple[str, str], float] = {}


def is_active() -> bool:
    """Whether measurements are recorded: the program has imported OpenTelemetry's API, or the Prometheus endpoint is
    open.

    >>> is_active() or "opentelemetry.metrics" not in sys.modules
    True
    """
    return bool(_sinks) or "opentelemetry.metrics" in sys.modules or "opentelemetry.trace" in sys.modules


def write_completed(table: str, result: Written) -> None:
    """Record a write by its result, with a span for each step."""
    if not is_active():
        return
    operation = {"table": table, "operation": result.operation}
    table_labels = {"table": table}
    measured: list[tuple[Metric, float | None, Labels]] = [
        (COMMITS, 1, operation),
        (COMMIT_SECONDS, sum(result.seconds.values()), operation),
        (LAST_COMMIT, time.time(), table_labels),
        (FILES, len(result.files), operation),
        (BYTES, result.bytes, operation),
        (PARTITIONS, len({path.rpartition("/")[0] for path in result.files}), operation),
        (ROLLBACKS, len(result.rolled_back), table_labels),
    ]
    measured += [(STEP_SECONDS, seconds, {**table_labels, "step": step}) for step, seconds in result.seconds.items()]
    rows = {
        "incoming": result.rows,
        "inserted": result.inserted,
        "updated": result.updated,
        "deleted": result.deleted,
        "unchanged": result.unchanged,
        "combined": result.combined,
    }
    measured += [(ROWS, count, {**operation, "kind": kind}) for kind, count in rows.items()]
    lookup = result.lookup
    if lookup is not None:
        keys = {"looked_up": lookup.keys, "found": lookup.tagged}
        files = {"out_of_range": lookup.out_of_range, "filtered": lookup.filtered}
        files |= {"searched": lookup.searched, "opened": lookup.opened}
        measured += [(LOOKUP_KEYS, count, {**table_labels, "kind": kind}) for kind, count in keys.items()]
        measured += [(LOOKUP_FILES, count, {**table_labels, "kind": kind}) for kind, count in files.items()]
    _record(measured)
    _span(f"lakebed.{result.operation}", result.seconds, {**operation, "instant": result.instant})


def write_lost(table: str, *, again: bool) -> None:
    """Record that a write lost against a concurrent one; `again` is whether the write is repeated."""
    if is_active():
        _record([(CONFLICTS, 1, {"table": table}), (RETRIES, int(again), {"table": table})])


def service_completed(
    table: str, service: str, seconds: float, counts: Mapping[str, int], rolled_back: Sequence[str] = ()
) -> None:
    """Record a run of a service. `counts` are the numbers of things that it changed, by their kind."""
    if not is_active():
        return
    labels = {"table": table, "service": service}
    measured: list[tuple[Metric, float | None, Labels]] = [
        (SERVICE_RUNS, 1, labels),
        (SERVICE_SECONDS, seconds, labels),
        (ROLLBACKS, len(rolled_back), {"table": table}),
    ]
    measured += [(SERVICE_COUNTS, count, {**labels, "kind": kind}) for kind, count in counts.items()]
    _record(measured)
    _span(f"lakebed.service.{service}", {"run": seconds}, labels)


def service_failed(table: str, service: str) -> None:
    """Record a service that failed."""
    if is_active():
        _record([(SERVICE_FAILURES, 1, {"table": table, "service": service})])


def services_due(table: str, services: Collection[str], due: Collection[str]) -> None:
    """Record for each of the `services` the time since it is due; `due` names the services that are due now."""
    if not is_active():
        return
    now = time.monotonic()
    measured: list[tuple[Metric, float | None, Labels]] = []
    for service in services:
        since = _due_since.setdefault((table, service), now) if service in due else now
        if service not in due:
            _due_since.pop((table, service), None)
        measured.append((SERVICE_LAG, now - since, {"table": table, "service": service}))
    _record(measured)


def read_planned(table: str, query: str, seconds: float, files: Mapping[str, int], read_bytes: int) -> None:
    """Record the plan of a read: the number of base files that are `read`, and the number that each filter ruled
    out."""
    table_labels = {"table": table}
    total, query_labels = sum(files.values()), {**table_labels, "query": query}
    measured: list[tuple[Metric, float | None, Labels]] = [
        (SCANS, 1, query_labels),
        (SCAN_SECONDS, seconds, query_labels),
        (SCAN_BYTES, read_bytes, table_labels),
        (SCAN_PRUNED, 1 - files.get("read", 0) / total if total else None, table_labels),
    ]
    measured += [(SCAN_FILES, count, {**table_labels, "kind": kind}) for kind, count in files.items()]
    _record(measured)
    _span("lakebed.scan.plan", {"plan": seconds}, query_labels)


def caches_used(requests: Mapping[str, tuple[int, int]]) -> None:
    """Record the hits and misses of each cache of this process so far, by the cache's name."""
    measured: list[tuple[Metric, float | None, Labels]] = []
    for name, (hits, misses) in requests.items():
        measured += [
            (CACHE_REQUESTS, count, {"table": "", "cache": name, "kind": kind})
            for kind, count in (("hit", hits), ("miss", misses))
        ]
    _record(measured)


def _record(measured: Sequence[tuple[Metric, float | None, Labels]]) -> None:
    """Pass measurements to the sinks, except counts that are unknown or 0."""
    measurements = [
        (metric, value, labels)
        for metric, value, labels in measured
        if value is not None and (metric.kind != "counter" or value > 0)
    ]
    _each(lambda sink: [sink.record(*measurement) for measurement in measurements])


def _span(name: str, steps: Mapping[str, float], labels: Labels) -> None:
    _each(lambda sink: sink.span(name, steps, labels))


def _each(record: Callable[[Sink], object]) -> None:
    """Call `record` with each sink. An error is logged once, and never fails the recorded operation."""
    has_api = "opentelemetry.metrics" in sys.modules or "opentelemetry.trace" in sys.modules
    for sink in (*_sinks, *((_opentelemetry,) if has_api else ())):
        try:
            record(sink() if callable(sink) else sink)
        except Exception as error:
            _warn_once(f"{type(error).__name__}: {error}")


@cache
def _opentelemetry() -> Sink:
    return _OpenTelemetry()


@cache
def _warn_once(text: str) -> None:
    _log.warning("metrics were not recorded: %s", text)


class _OpenTelemetry:
    """A sink for the providers that the program has set, possibly after this object was created."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        meter, self._trace = metrics.get_meter("lakebed"), trace
        make = {"counter": meter.create_counter, "histogram": meter.create_histogram, "gauge": meter.create_gauge}
        self._tracer = trace.get_tracer("lakebed")
        self._instruments: dict[str, Any] = {
            metric.name: make[metric.kind](metric.name, metric.unit, metric.text) for metric in METRICS
        }

    def record(self, metric: Metric, value: float, labels: Labels) -> None:
        instrument = self._instruments[metric.name]
        if metric.kind == "counter":
            instrument.add(value, labels)
        elif metric.kind == "gauge":
            instrument.set(value, labels)
        else:
            instrument.record(value, labels)

    def span(self, name: str, steps: Mapping[str, float], labels: Labels) -> None:
        at = time.time_ns() - sum(_nanoseconds(seconds) for seconds in steps.values())
        attributes = {f"lakebed.{key}": value for key, value in labels.items()}
        span = self._tracer.start_span(name, start_time=at, attributes=attributes)
        inside = self._trace.set_span_in_context(span)
        for step, seconds in steps.items():
            child = self._tracer.start_span(f"{name}.{step}", inside, start_time=at)
            at += _nanoseconds(seconds)
            child.end(at)
        span.end(at)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


class _Prometheus:
    """A registry of prometheus_client with lakebed's metrics."""

    def __init__(self, client: Any) -> None:
        self.registry: Any = client.CollectorRegistry()
        make = {"counter": client.Counter, "histogram": client.Histogram, "gauge": client.Gauge}
        self._instruments: dict[str, Any] = {
            metric.name: make[metric.kind](
                metric.name.replace(".", "_"), metric.text, ["table", *metric.labels], registry=self.registry
            )
            for metric in METRICS
        }

    def record(self, metric: Metric, value: float, labels: Labels) -> None:
        child = self._instruments[metric.name].labels(**labels)
        if metric.kind == "counter":
            child.inc(value)
        elif metric.kind == "gauge":
            child.set(value)
        else:
            child.observe(value)

    def span(self, name: str, steps: Mapping[str, float], labels: Labels) -> None:
        """Do nothing: Prometheus has no spans."""


@contextmanager
def serve_prometheus(port: int, address: str = "127.0.0.1") -> Generator[int]:
    """Serve the metrics of the block for Prometheus at `http://address:port/metrics`. Yields the port, which is a free
    one if `port` is 0. A request that names another host than this machine is refused.

    Raises `UnsupportedFeature` without the package prometheus-client, `StorageError` if the port is taken.

    >>> from urllib.request import urlopen
    >>> with serve_prometheus(0) as port:
    ...     service_completed("memory://docs/trips", "clean", 0.5, {"files_deleted": 3})
    ...     text = urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    >>> 'lakebed_service_work_total{kind="files_deleted",service="clean",table="memory://docs/trips"} 3.0' in text
    True
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise UnsupportedFeature(
            "prometheus_client is not installed",
            hint="pip install 'lakebed[telemetry]'",
            context={"feature": "metrics"},
        ) from error
    sink = _Prometheus(prometheus_client)
    answer = prometheus_client.make_wsgi_app(sink.registry)

    def answer_own(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if names_this_machine(request.get("HTTP_HOST", ""), address):
            return answer(request, start)
        start("400 Bad Request", [("Content-Type", "text/plain")])
        return [REFUSED.encode()]

    try:
        server, thread = prometheus_client.start_http_server(port, address, sink.registry)
        server.set_app(answer_own)
    except OSError as error:
        raise StorageError(
            f"metrics cannot be served at {address}:{port}: {error.strerror or error}", hint="choose another port"
        ) from error
    _sinks.append(sink)
    try:
        yield server.server_port
    finally:
        _sinks.remove(sink)
        server.shutdown()
        server.server_close()
        thread.join()
