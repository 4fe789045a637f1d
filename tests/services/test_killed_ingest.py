"""Processes of `lakebed ingest` that read real servers and are killed twenty times: each row is in one commit."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path

import pytest

from support.killed_ingest import ROWS, KilledJob, ids_of, kill_often
from support.sampling import today

from .postgres_server import Postgres

pytestmark = pytest.mark.full
SIMPLE = {"index": "simple"}


def test_messages_of_kafka_are_read_once_by_processes_that_are_killed(bootstrap: str, tmp_path: Path) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    topic = f"t{uuid.uuid4().hex[:8]}"
    producer = kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})

    def add(n: int) -> None:
        for i in ids_of(n):
            producer.produce(topic, json.dumps({"id": i}).encode(), partition=0)
        assert producer.flush(30) == 0

    def position(checkpoint: str) -> int:
        name, partition = checkpoint.split(",")
        number, offset = partition.split(":")
        assert (name, number) == (topic, "0")
        return int(offset)

    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap})
    for created in client.create_topics([NewTopic(topic, 1, 1)]).values():
        created.result(30)
    source = {"kind": "kafka", "topic": topic, "bootstrap": bootstrap}
    kill_often(KilledJob(tmp_path, source, SIMPLE, "insert", add, position), random.Random(today()))


def test_rows_of_postgres_are_read_once_by_processes_that_are_killed(server: Postgres, tmp_path: Path) -> None:
    adbc = pytest.importorskip("adbc_driver_postgresql.dbapi", reason="adbc-driver-postgresql is not installed")

    def execute(statement: str) -> None:
        with adbc.connect(server.info["uri"]) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()

    def add(n: int) -> None:
        execute(f"INSERT INTO killed VALUES {', '.join(f'({i}, {n})' for i in ids_of(n))}")

    def position(checkpoint: str) -> int:
        return ROWS * (int(checkpoint.partition("\n")[0]) + 1)

    execute("CREATE TABLE killed(id bigint PRIMARY KEY, at bigint)")
    source = {"kind": "sql", "uri": server.info["uri"], "query": "SELECT id, at FROM killed", "column": "at"}
    job = KilledJob(tmp_path, source, SIMPLE, "upsert", add, position, repeats_rows=True)
    kill_often(job, random.Random(today()))
