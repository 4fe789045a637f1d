"""Commit callbacks through a real Kafka broker: the message, its key and its partition; a broker that is not there."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.operations import callbacks

from .service import free_ports

kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
CALLBACK = "hoodie.write.commit.callback."
KIND = "org.apache.hudi.utilities.callback.kafka.HoodieWriteCommitKafkaCallback"


def messages(bootstrap: str, topic: str, count: int) -> list[tuple[int, str, dict[str, Any]]]:
    """The first messages of a topic: partition, key and content."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found = consumer.consume(count, 30)
    finally:
        consumer.close()
    assert [message.error() for message in found] == [None] * count
    return [(message.partition(), message.key().decode(), json.loads(message.value())) for message in found]


@pytest.mark.rest
def test_a_topic_gets_a_message_for_each_commit_and_a_lost_broker_fails_none(
    bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = f"commits{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        made.result(30)
    table = lakebed.create(str(tmp_path / "trips"), {"id": [1]}, key="id", index="bucket", buckets=1)
    options = {
        CALLBACK + "on": "true",
        CALLBACK + "class": KIND,
        CALLBACK + "kafka.bootstrap.servers": bootstrap,
        CALLBACK + "kafka.topic": topic,
    }
    first = table.upsert({"id": [1, 2]}, options=options)
    second = table.delete([2], options=options)
    found = messages(bootstrap, topic, 2)
    assert [(key, body["commitTime"], body["tableName"]) for _, key, body in found] == [
        ("trips", first.instant, "trips"),
        ("trips", second.instant, "trips"),
    ]
    assert len({partition for partition, _, _ in found}) == 1
    assert [stat["numInserts"] for stat in found[0][2]["hoodieWriteStat"]] == [2]
    other = (found[0][0] + 1) % 3
    table.upsert({"id": [3]}, options=options | {CALLBACK + "kafka.partition": other, CALLBACK + "kafka.acks": "1"})
    assert {partition for partition, _, _ in messages(bootstrap, topic, 3)} == {found[0][0], other}
    monkeypatch.setattr(callbacks, "_KAFKA_SECONDS", 1.0)
    (port,) = free_ports(1)
    table.upsert({"id": [4]}, options=options | {CALLBACK + "kafka.bootstrap.servers": f"127.0.0.1:{port}"})
    assert table.count() == 3
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len([text for text in warned if f"its callback to topic {topic} at 127.0.0.1:{port} failed" in text]) == 1
