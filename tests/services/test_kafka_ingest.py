"""Topics of a real Kafka broker as a source: each message once, hostile ones, and topics that lost messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, SourceError
from lakebed.storage import open_storage
from lakebed.timeline.timeline import load_timeline
from support.protobuf_types import classes, describe

kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")


Create = Callable[..., str]


@pytest.fixture
def topic(bootstrap: str) -> Create:
    """Creates a topic with some partitions, and gives its name."""
    from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

    def created(partitions: int = 1, name: str | None = None) -> str:
        name = name or f"t{uuid.uuid4().hex[:8]}"
        client = AdminClient({"bootstrap.servers": bootstrap})
        for made in client.create_topics([NewTopic(name, partitions, 1)]).values():
            made.result(30)
        # The controller answers before the broker that is asked for topics knows the new one.
        end = time.monotonic() + 30
        while len(client.list_topics(timeout=10).topics.get(name, TopicMetadata()).partitions) < partitions:
            assert time.monotonic() < end
        return name

    return created


def send(bootstrap: str, topic: str, values: Iterable[bytes | None], partition: int = 0) -> None:
    producer = kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": 16 << 20})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def numbers(start: int, end: int) -> list[bytes]:
    return [json.dumps({"id": n, "text": f"row {n}"}).encode() for n in range(start, end)]


def job_of(bootstrap: str, topic: str, uri: str, **more: Any) -> dict[str, Any]:
    source = {"kind": "kafka", "topic": topic, "bootstrap": bootstrap, **more.pop("source", {})}
    create = {"key": "id", "type": "mor", "index": "bucket", "buckets": 1}
    return {"source": source, "target": {"uri": uri, "create": create}, "interval": 0.1} | more


def ids(uri: str) -> list[int]:
    return sorted(lakebed.open(uri).to_arrow()["id"].to_pylist())


def commits(uri: str) -> list[tuple[str, int]]:
    """The checkpoint and the number of rows of each commit."""
    t = lakebed.open(uri)
    timeline = load_timeline(open_storage(uri), t.opened.config)
    bodies = [timeline.commit_metadata(i) for i in timeline.commits if i.action.value == "deltacommit"]
    key = "streamer.checkpoint.key.v2"
    return [(b.extra[key], sum(s.num_writes for part in b.stats.values() for s in part)) for b in bodies]


def test_each_message_is_a_row_once_and_the_checkpoint_names_each_partition(bootstrap: str, topic: Create) -> None:
    name, uri = topic(2), f"memory://kafka/{uuid.uuid4().hex}"
    send(bootstrap, name, numbers(0, 7))
    send(bootstrap, name, numbers(100, 103), partition=1)
    result = lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    assert (result.rows, result.commits, result.checkpoint) == (10, 1, f"{name},0:7,1:3")
    assert lakebed.ingest(job_of(bootstrap, name, uri), once=True).commits == 0
    send(bootstrap, name, numbers(7, 9))
    events: list[lakebed.IngestEvent] = []
    result = lakebed.ingest(job_of(bootstrap, name, uri, max_rows=1), once=True, on_event=events.append)
    assert (result.rows, result.commits, events[0].lag["messages"]) == (2, 2, 1)
    assert ids(uri) == [*range(9), *range(100, 103)]
    assert commits(uri) == [(f"{name},0:7,1:3", 10), (f"{name},0:8,1:3", 1), (f"{name},0:9,1:3", 1)]


def test_hostile_messages_go_to_the_table_of_errors_and_tombstones_are_passed_by(bootstrap: str, topic: Create) -> None:
    name, uri = topic(), f"memory://kafka/{uuid.uuid4().hex}"
    huge = json.dumps({"id": 3, "text": "x" * (3 << 20)}).encode()
    bad = [b"null", b'{"id":1}{"id":2}', b'{"id":1,"id":2}', b"", b'{"id":1,"text":"\xff"}', b'{"id":null}']
    send(bootstrap, name, [*bad, None, huge, *numbers(4, 5)])
    with pytest.raises(InvalidRecord, match=f"{name}/0/0 is no row"):
        lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    job = job_of(bootstrap, name, uri, errors={"table": f"{uri}-errors"})
    result = lakebed.ingest(job, once=True)
    assert (result.rows, result.bad_rows, result.checkpoint) == (2, 6, f"{name},0:9")
    assert ids(uri) == [3, 4]
    rows = lakebed.open(f"{uri}-errors").to_arrow().sort_by("position").to_pylist()
    assert [(row["position"], row["payload"]) for row in rows] == [(f"{name}/0/{n}", bad[n]) for n in range(6)]


def test_lost_messages_are_an_error_unless_the_job_takes_what_is_there(bootstrap: str, topic: Create) -> None:
    from confluent_kafka.admin import AdminClient

    name, uri = topic(2), f"memory://kafka/{uuid.uuid4().hex}"
    send(bootstrap, name, numbers(0, 3))
    send(bootstrap, name, numbers(10, 12), partition=1)
    lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    send(bootstrap, name, numbers(3, 6))
    send(bootstrap, name, numbers(12, 13), partition=1)
    client = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in client.delete_records([kafka.TopicPartition(name, 0, 5)]).values():
        deleted.result(30)
    with pytest.raises(SourceError, match="partition 0 begins at 5, and 3 is next") as error:
        lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    assert not error.value.retryable
    assert ids(uri) == [0, 1, 2, 10, 11]
    job = job_of(bootstrap, name, uri, source={"on_data_loss": "earliest"})
    assert lakebed.ingest(job, once=True).checkpoint == f"{name},0:6,1:3"
    # of the other partition nothing is read again
    assert commits(uri)[-1] == (f"{name},0:6,1:3", 2)
    assert ids(uri) == [0, 1, 2, 5, 10, 11, 12]


def test_a_topic_that_was_created_again_or_is_another_one_is_an_error(bootstrap: str, topic: Create) -> None:
    from confluent_kafka.admin import AdminClient

    name, uri = topic(), f"memory://kafka/{uuid.uuid4().hex}"
    send(bootstrap, name, numbers(0, 3))
    lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    with pytest.raises(InvalidOption, match="one of the topic"):
        lakebed.ingest(job_of(bootstrap, topic(), uri), once=True)
    client = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in client.delete_topics([name]).values():
        deleted.result(30)
    end = time.monotonic() + 20
    while name in client.list_topics(timeout=10).topics:
        assert time.monotonic() < end
    with pytest.raises(SourceError, match="does not exist"):
        lakebed.ingest(job_of(bootstrap, name, uri), once=True)
    topic(name=name)
    with pytest.raises(SourceError, match="partition 0 ends at 0, and 3 is next"):
        lakebed.ingest(job_of(bootstrap, name, uri), once=True)


@pytest.mark.rest
def test_messages_that_come_while_the_topic_is_read_are_rows_once(bootstrap: str, topic: Create) -> None:
    name, uri, stop = topic(2), f"memory://kafka/{uuid.uuid4().hex}", threading.Event()
    send(bootstrap, name, numbers(0, 1))

    def produce() -> None:
        for at in range(1, 400, 10):
            send(bootstrap, name, numbers(at, at + 10), partition=at % 2)

    producer = threading.Thread(target=produce)
    end = time.monotonic() + 60

    def see(event: lakebed.IngestEvent) -> None:
        if (event.kind == "nothing" and not producer.is_alive()) or time.monotonic() > end:
            stop.set()

    producer.start()
    job = job_of(bootstrap, name, uri, interval=0.0, services=False, max_rows=7)
    job["target"]["operation"] = "insert"
    assert lakebed.ingest(job, stop=stop, on_event=see).rows == 401
    producer.join()
    assert ids(uri) == list(range(401))


@pytest.mark.rest
def test_a_job_that_starts_reads_at_once(bootstrap: str, topic: Create) -> None:
    name, uri, seconds = topic(3), f"memory://kafka/{uuid.uuid4().hex}", list[float]()
    for n in range(8):
        send(bootstrap, name, numbers(n, n + 1), partition=n % 3)
        started = time.monotonic()
        assert lakebed.ingest(job_of(bootstrap, name, uri), once=True).rows == 1
        seconds.append(time.monotonic() - started)
    # half of them waited for a timer of a second
    assert sorted(seconds)[-3] < 0.8
    assert ids(uri) == list(range(8))


def test_protobuf_messages_are_rows_and_bad_ones_go_to_the_table_of_errors(
    bootstrap: str, topic: Create, tmp_path: Path
) -> None:
    pytest.importorskip("ptars", reason="ptars is not installed")
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    file = describe("ride.proto", {"Ride": {"id": "int64", "text": "string", "stops": "repeated string"}})
    ride = classes(file)["shop.Ride"]
    (tmp_path / "ride.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    name, uri = topic(), f"memory://kafka/{uuid.uuid4().hex}"
    good = [ride(id=n, text=f"row {n}", stops=["a"] * n).SerializeToString() for n in range(3)]
    send(bootstrap, name, [good[0], b"\xff", good[1], None, good[2], b"\x12\x01\xff"])
    source = {"format": "protobuf", "descriptor": str(tmp_path / "ride.desc"), "message": "shop.Ride"}
    job = job_of(bootstrap, name, uri, source=source, errors={"table": f"{uri}-errors"})
    result = lakebed.ingest(job, once=True)
    assert (result.rows, result.bad_rows, result.checkpoint) == (3, 2, f"{name},0:6")
    rows = lakebed.open(uri).to_arrow().select(["id", "text", "stops"]).sort_by("id").to_pylist()
    assert rows == [{"id": n, "text": f"row {n}", "stops": ["a"] * n} for n in range(3)]
    bad = lakebed.open(f"{uri}-errors").to_arrow().sort_by("position").select(["position", "payload", "reason"])
    assert [tuple(row.values()) for row in bad.to_pylist()] == [
        (f"{name}/0/1", b"\xff", "RECORD_CREATION"),
        (f"{name}/0/5", b"\x12\x01\xff", "RECORD_CREATION"),
    ]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"format": "protobuf"}, "Add registry = URL, or descriptor and message"),
        ({"format": "protobuf", "descriptor": "x"}, "takes a registry, or descriptor and message"),
        ({"format": "protobuf", "descriptor": "x", "message": "m", "registry": "http://r"}, "takes a registry, or"),
        ({"format": "avro", "message": "m", "registry": "http://r"}, "has no message type"),
        ({"format": "avro"}, "lacks registry. Add registry = URL"),
    ],
)
def test_a_format_without_its_schema_is_refused(source: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption) as error:
        lakebed.ingest(job_of("127.0.0.1:1", "t", "memory://kafka/none", source=source), once=True)
    assert text in str(error.value)


def test_messages_of_transactions_are_rows_where_they_were_committed(bootstrap: str, topic: Create) -> None:
    name, uri = topic(), f"memory://kafka/{uuid.uuid4().hex}"
    producer = kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for n, commits_it in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce(name, json.dumps({"id": n}).encode())
        producer.flush(30)
        (producer.commit_transaction if commits_it else producer.abort_transaction)(30)
    assert lakebed.ingest(job_of(bootstrap, name, uri), once=True).checkpoint == f"{name},0:6"
    assert ids(uri) == [1, 3]


def test_rows_have_the_columns_of_offset_and_partition_where_the_job_asks(bootstrap: str, topic: Create) -> None:
    name, uri = topic(), f"memory://kafka/{uuid.uuid4().hex}"
    send(bootstrap, name, numbers(0, 2))
    for _ in range(2):
        lakebed.ingest(job_of(bootstrap, name, uri, source={"append_offsets": True}), once=True)
        send(bootstrap, name, numbers(1, 2))
    found = lakebed.open(uri).to_arrow().sort_by("id")
    prefix = "_hoodie_kafka_source_"
    assert found.select(["id", f"{prefix}offset", f"{prefix}partition", f"{prefix}key"]).to_pylist() == [
        {"id": 0, f"{prefix}offset": 0, f"{prefix}partition": 0, f"{prefix}key": None},
        {"id": 1, f"{prefix}offset": 2, f"{prefix}partition": 0, f"{prefix}key": None},
    ]


def test_a_broker_that_is_down_is_an_error_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakebed.ingestion.sources.kafka._ANSWER_SECONDS", 0.5)
    with pytest.raises(SourceError, match="cannot be read") as error:
        lakebed.ingest(job_of("127.0.0.1:1", "t", "memory://kafka/down"), once=True)
    assert error.value.retryable


@pytest.mark.rest
def test_the_command_ends_well_when_it_is_asked_to(bootstrap: str, topic: Create, tmp_path: Path) -> None:
    name, uri = topic(), str(tmp_path / "table")
    send(bootstrap, name, numbers(0, 3))
    text = f"""
interval = 0.05
[source]
kind = "kafka"
topic = "{name}"
bootstrap = "{bootstrap}"
[target]
uri = "{uri}"
create = {{ key = "id", type = "mor", index = "bucket", buckets = 1 }}
"""
    (tmp_path / "job.toml").write_text(text)
    command = [sys.executable, "-m", "lakebed", "ingest", str(tmp_path / "job.toml"), "--output", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    assert process.stdout is not None
    first = json.loads(process.stdout.readline())
    assert (first["event"], first["rows"], first["checkpoint"]) == ("committed", 3, f"{name},0:3")
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["event"] == "stopped"
    assert ids(uri) == [0, 1, 2]
