"""Metrics and spans: what OpenTelemetry's own SDK and Prometheus' own client get of writes, services and reads."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import lakebed
from lakebed import telemetry
from lakebed.cli.main import invoke
from lakebed.errors import CommitConflict, StorageError
from lakebed.hosts import names_this_machine
from lakebed.table import Table

ROWS = pa.table({"id": [1, 2, 3], "city": ["a", "b", "a"], "ts": [1, 1, 1]})
Make = Callable[..., Table]
DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"


@cache
def providers() -> tuple[InMemoryMetricReader, InMemorySpanExporter]:
    """The SDK of this process, which can be set once."""
    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    metrics.set_meter_provider(MeterProvider([reader]))
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracing)
    return reader, exporter


def measured(uri: str) -> dict[str, dict[str, Any]]:
    """The metrics of a table: by name, and by the values of their labels; of histograms the count."""
    found: dict[str, dict[str, Any]] = {}
    data: Any = providers()[0].get_metrics_data()
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        for point in metric.data.data_points:
            labels = dict(point.attributes)
            if labels.pop("table") in (uri, ""):
                value = point.value if hasattr(point, "value") else point.count
                found.setdefault(metric.name, {})[" ".join(labels.values())] = value
    return found


@pytest.fixture
def spans() -> Callable[[], list[Any]]:
    """The spans that have ended since the test began."""
    exporter = providers()[1]
    exporter.clear()
    return lambda: list(exporter.get_finished_spans())


def make(uri: str, **given: Any) -> Table:
    return lakebed.create(uri, ROWS, key="id", partition_by="city", ordering="ts", **given)


def test_a_write_is_counted_by_its_result(uri: str) -> None:
    providers()
    table = make(uri, index="simple")
    first = table.upsert(ROWS)
    second = table.upsert(ROWS.slice(0, 2))
    table.delete([3, 9])
    found = measured(uri)
    assert found["lakebed.commits"] == {"upsert": 2, "delete": 1}
    assert found["lakebed.commit.rows"] == {
        "upsert incoming": 5,
        "upsert inserted": 3,
        "upsert updated": 2,
        "delete incoming": 1,
        "delete deleted": 1,
    }
    assert found["lakebed.commit.files"]["upsert"] == len(first.files) + len(second.files)
    assert found["lakebed.commit.bytes"]["upsert"] == first.bytes + second.bytes
    assert found["lakebed.commit.partitions"]["upsert"] == 4
    assert found["lakebed.commit.seconds"] == {"upsert": 2, "delete": 1}
    assert found["lakebed.commit.step.seconds"] == dict.fromkeys(["begin", "metadata", "tag", "write", "commit"], 3)
    assert found["lakebed.index.keys"]["looked_up"] >= 2
    assert found["lakebed.index.keys"]["found"] == 2
    assert "lakebed.conflicts" not in found


def test_a_write_is_a_span_whose_steps_follow_one_another(uri: str, spans: Callable[[], list[Any]]) -> None:
    table = make(uri, index="bucket", buckets=1)
    with trace.get_tracer("application").start_as_current_span("job") as job:
        result = table.upsert(ROWS)
    steps = ["begin", "metadata", "tag", "write", "commit"]
    by_name = {span.name: span for span in spans()}
    write = by_name["lakebed.upsert"]
    assert write.parent.span_id == job.get_span_context().span_id
    assert dict(write.attributes) == {
        "lakebed.table": uri,
        "lakebed.operation": "upsert",
        "lakebed.instant": result.instant,
    }
    children = [by_name[f"lakebed.upsert.{step}"] for step in steps]
    assert {child.parent.span_id for child in children} == {write.context.span_id}
    assert children[0].start_time == write.start_time
    assert [child.start_time for child in children[1:]] == [child.end_time for child in children[:-1]]
    assert children[-1].end_time == write.end_time
    assert write.end_time - write.start_time == pytest.approx(1e9 * sum(result.seconds.values()), abs=10)


def test_conflicts_and_retries_are_counted(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    providers()
    table = make(uri, index="simple")
    table.upsert(ROWS)

    def cross(times: int) -> Any:
        """Rows that are read while another writer commits to the same file groups."""
        left = [times]

        def batches() -> Iterator[pa.RecordBatch]:
            yield from ROWS.to_batches()

        from lakebed.operations.write_transaction import WriteTransaction

        commit = WriteTransaction.commit

        def crossed(self: Any, *given: Any, **named: Any) -> Any:
            if left[0]:
                left[0] -= 1
                lakebed.open(uri).upsert(ROWS)
            return commit(self, *given, **named)

        monkeypatch.setattr(WriteTransaction, "commit", crossed)
        return pa.RecordBatchReader.from_batches(ROWS.schema, batches())

    assert table.upsert(cross(1), retries=1).retries == 1
    found = measured(uri)
    assert (found["lakebed.conflicts"], found["lakebed.retries"]) == ({"": 1}, {"": 1})
    with pytest.raises(CommitConflict):
        table.upsert(cross(1), retries=0)
    found = measured(uri)
    assert (found["lakebed.conflicts"], found["lakebed.retries"]) == ({"": 2}, {"": 1})


def test_services_are_counted_by_what_they_did(uri: str, spans: Callable[[], list[Any]]) -> None:
    quiet = {"hoodie.clean.automatic": False, "hoodie.compact.inline": False, "hoodie.clean.commits.retained": 1}
    table = make(uri, type="mor", index="bucket", buckets=1, properties=quiet)
    for _ in range(3):
        table.upsert(ROWS)
    compacted = list(table.maintenance.compact().runs)
    table.upsert(ROWS)
    table.upsert(ROWS)
    compacted += table.maintenance.compact().runs
    cleaned = table.maintenance.clean()
    work = measured(uri)["lakebed.service.work"]
    assert work["compact log_files"] == sum(run.log_files for run in compacted) == 8
    assert work["compact rows"] == 6
    assert work["compact bytes"] == sum(run.bytes for run in compacted)
    assert work["clean files_deleted"] == cleaned.files
    assert measured(uri)["lakebed.service.runs"] == {"compact": 2, "clean": 1}
    assert [span.name for span in spans() if span.name.endswith("clean")] == ["lakebed.service.clean"]


def test_a_plan_of_a_read_is_counted_with_what_ruled_files_out(uri: str) -> None:
    providers()
    table = make(uri, index="simple")
    table.upsert(ROWS)
    table.scan(where="city = 'a'").to_arrow()
    table.scan().to_arrow()
    found = measured(uri)
    assert found["lakebed.scan.plans"] == {"snapshot": 2}
    assert found["lakebed.scan.files"] == {"read": 3, "pruned by partition": 1}
    assert found["lakebed.scan.pruned"] == {"": 2}
    assert found["lakebed.scan.bytes"][""] > 0
    assert set(found["lakebed.cache.requests"]) >= {"timelines hit", "timelines miss", "footers miss"}


def test_the_lag_of_a_service_grows_until_it_has_run(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    providers()
    settings = {"hoodie.compact.inline": False, "hoodie.compact.inline.max.delta.commits": 2}
    table = make(uri, type="mor", index="bucket", buckets=1, properties=settings)
    table.upsert(ROWS)
    table.upsert(ROWS)
    now = [100.0]
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now[0])
    telemetry.services_due(uri, ["compact", "clean"], ["compact"])
    now[0] = 160.0
    telemetry.services_due(uri, ["compact", "clean"], ["compact"])
    assert measured(uri)["lakebed.service.lag"] == {"compact": 60.0, "clean": 0.0}
    monkeypatch.undo()
    events = list(lakebed.maintenance.run(uri, once=True))
    assert [event.kind for event in events] == ["due", "ran"]
    assert measured(uri)["lakebed.service.lag"]["compact"] != 0
    assert list(lakebed.maintenance.run(uri, once=True)) == []
    assert measured(uri)["lakebed.service.lag"]["compact"] == 0
    assert next(iter(lakebed.maintenance.run(f"{uri}-none", once=True))).kind == "failed"
    assert measured(f"{uri}-none")["lakebed.service.failures"] == {"opening": 1}


def test_prometheus_gets_the_same_counts(uri: str) -> None:
    with telemetry.serve_prometheus(0) as port:
        make(uri, index="bucket", buckets=1).upsert(ROWS)
        text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        with (
            pytest.raises(StorageError, match="metrics cannot be served at"),
            telemetry.serve_prometheus(port),
        ):
            pass
    rows = [line for line in text.splitlines() if line.startswith("lakebed_commit_rows_total")]
    assert f'lakebed_commit_rows_total{{kind="inserted",operation="upsert",table="{uri}"}} 3.0' in rows
    assert f'lakebed_commit_step_seconds_count{{step="commit",table="{uri}"}} 1.0' in text
    assert f'lakebed_commit_last{{table="{uri}"}} 1.' in text


def test_the_endpoint_answers_requests_that_name_this_machine_only() -> None:
    with telemetry.serve_prometheus(0) as port:
        for host, status in ((f"127.0.0.1:{port}", 200), ("localhost", 200), (f"[::1]:{port}", 200),
                             (f"rebound.example:{port}", 400), ("127.0.0.1.rebound.example", 400), ("", 400),
                             ("10.0.0.7", 400)):  # fmt: skip
            asked = Request(f"http://127.0.0.1:{port}/metrics", headers={"Host": host})
            try:
                code, text = urlopen(asked, timeout=10).status, b""
            except HTTPError as refused:
                code, text = refused.code, refused.read()
            assert code == status, host
            assert b"lakebed" not in text


def test_a_server_for_other_machines_is_named_by_addresses_and_by_its_machine() -> None:
    for host in ("10.0.0.7:9464", "[fd00::7]:9464", "localhost", "0.0.0.0:1", socket.gethostname()):
        assert names_this_machine(host, "0.0.0.0"), host
    for host in ("rebound.example:9464", "10.0.0.7.rebound.example", ""):
        assert not names_this_machine(host, "0.0.0.0"), host
    assert names_this_machine("lake.example:9464", "lake.example")


def test_the_endpoint_of_the_services_command_ends_with_it(uri: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(uri, index="bucket", buckets=1).upsert(ROWS)
    assert invoke(["maintenance", "run", uri, "--once", "--metrics-port", "0"]) == 0
    page = capsys.readouterr().err.split()[-1]
    assert page.startswith("http://127.0.0.1:")
    with pytest.raises(URLError):
        urlopen(page, timeout=10)
    assert telemetry._sinks == []


@pytest.mark.rest
def test_the_services_command_serves_metrics_on_the_loopback_address(tmp_path: Path) -> None:
    settings = {"hoodie.compact.inline": False, "hoodie.compact.inline.max.delta.commits": 2}
    uri = str(tmp_path / "trips")
    table = make(uri, type="mor", index="bucket", buckets=1, properties=settings)
    table.upsert(ROWS)
    table.upsert(ROWS)
    command = [sys.executable, "-m", "lakebed", "maintenance", "run", uri, "--interval", "60", "-o", "json"]
    process = subprocess.Popen(
        [*command, "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        page = process.stderr.readline().split()[-1]
        events = [json.loads(process.stdout.readline())["event"] for _ in range(3)]
        text = urlopen(page, timeout=10).read().decode()
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert page.startswith("http://127.0.0.1:")
    assert events == ["due", "ran", "waiting"]
    assert f'lakebed_service_runs_total{{service="compact",table="{uri}"}} 1.0' in text
    assert f'lakebed_service_lag{{service="clean",table="{uri}"}} 0.0' in text
    assert process.returncode == 0


def test_a_sink_that_fails_does_not_fail_the_write(uri: str, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def record(self, *_: object) -> None:
            raise OSError("the collector is gone")

        def span(self, *_: object) -> None:
            raise OSError("the collector is gone")

    telemetry._warn_once.cache_clear()
    telemetry._sinks.append(Broken())
    try:
        table = make(uri, index="bucket", buckets=1)
        for _ in range(2):
            table.upsert(ROWS)
    finally:
        telemetry._sinks.clear()
    assert table.count() == 3
    assert [record.message for record in caplog.records if "metrics" in record.message] == [
        "metrics were not recorded: OSError: the collector is gone"
    ]


def test_an_api_that_is_too_old_does_not_fail_the_write(
    uri: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    providers()
    telemetry._opentelemetry.cache_clear()
    monkeypatch.delattr("opentelemetry.metrics._internal._ProxyMeter.create_gauge")
    monkeypatch.delattr("opentelemetry.sdk.metrics.Meter.create_gauge")
    monkeypatch.delattr("opentelemetry.metrics.Meter.create_gauge")
    make(uri, index="bucket", buckets=1).upsert(ROWS)
    telemetry._opentelemetry.cache_clear()
    assert lakebed.open(uri).count() == 3
    assert any("create_gauge" in record.message for record in caplog.records)


WITHOUT = """
import sys, lakebed
from collections import Counter
from lakebed import telemetry
from lakebed.cli.main import invoke
calls = Counter()
def called(frame, event, arg):
    if event == "call" and frame.f_code.co_filename == telemetry.__file__:
        calls[frame.f_code.co_name] += 1
t = lakebed.create("memory://telemetry/none", {"id": [1]}, key="id", index="bucket", buckets=1)
t.upsert({"id": [1]})
sys.setprofile(called)
t.upsert({"id": [1]})
sys.setprofile(None)
print(dict(calls), [name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))])
"""


@pytest.mark.rest
def test_without_opentelemetry_a_write_makes_two_calls_and_imports_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "{'write_completed': 1, 'is_active': 1} []\n"


def test_the_documentation_lists_every_metric_with_its_name_in_hudi() -> None:
    text = DOCS.read_text(encoding="utf-8")
    lines = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `lakebed.")}
    assert set(lines) == {metric.name for metric in telemetry.METRICS}
    for metric in telemetry.METRICS:
        line = lines[metric.name]
        assert metric.kind in line
        assert all(f"`{label}`" in line for label in metric.labels)
        assert not metric.hudi or metric.hudi in line.replace("`", "")
