"""Tombstones as deletes: the keys of messages, their order among rows, and what is no key."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord
from lakebed.ingestion.source import IngestPoll
from lakebed.ingestion.sources.kafka import KafkaSettings, KafkaSource, Messages
from lakebed.ingestion.tombstones import decode_tombstones


@pytest.mark.parametrize(
    ("key", "field", "row"),
    [
        (b'{"id": 7}', None, {"id": 7}),
        (b' {"id": "7", "city": "x"}', "id", {"id": 7, "city": "x"}),
        (b"7", "id", {"id": 7}),
        (b'"7"', "id", {"id": 7}),
        (b'a"\\b', "name", {"name": 'a"\\b'}),
        (b'"a\\"b"', "name", {"name": 'a"b'}),
        ("Ωx".encode(), "name", {"name": "Ωx"}),
    ],
)
def test_a_key_is_a_json_object_or_the_value_of_a_field(key: bytes, field: str | None, row: dict[str, Any]) -> None:
    found = decode_tombstones(pa.array([key], pa.binary()), {"id": pa.int64()}, field)
    marked = {name: value for name, value in found.rows.to_pylist()[0].items() if value is not None}
    assert (marked, found.bad) == (row | {"_hoodie_is_deleted": True}, [])


@pytest.mark.parametrize(
    ("key", "field"), [(None, "id"), (b"", "id"), (b"x", "id"), (b"7", None), (b'{"id": ', "id"), (b"\xff", "name")]
)
def test_a_message_without_a_key_of_a_row_is_bad(key: bytes | None, field: str | None) -> None:
    keys = pa.array([b'{"id": 1}', key, b'{"id": 2}'], pa.binary())
    found = decode_tombstones(keys, {"id": pa.int64(), "name": pa.string()}, field)
    assert ([row["id"] for row in found.rows.to_pylist()], found.numbers.tolist()) == ([1, 2], [0, 2])
    assert [(bad.number, bad.reason) for bad in found.bad] == [(1, "RECORD_CREATION")]


class Topic(KafkaSource):
    """Messages that are given, key and value, in place of a broker's."""

    def __init__(self, *messages: tuple[bytes | None, bytes | None], **settings: Any) -> None:
        super().__init__(KafkaSettings("t", "broker", **settings))
        self.messages = messages

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        if checkpoint is not None:
            return IngestPoll(None, None, checkpoint)
        count = len(self.messages)
        keys, values = [key for key, _ in self.messages], [value for _, value in self.messages]
        rows, bad, _ = self._decoded(Messages("t", values, [0] * count, [*range(count)], [0] * count, keys))
        return IngestPoll(rows, bad, "t,0:1")


MESSAGES = [
    (b"1", b'{"id": 1, "city": "a"}'),
    (b"2", b'{"id": 2, "city": "b"}'),
    (b"1", None),
    (b"9", None),
    (b"2", None),
    (b"2", b'{"id": 2, "city": "c"}'),
]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_tombstones_delete_in_the_order_of_the_messages_or_are_passed_by(kind: str) -> None:
    for tombstones, expected in (("ignore", [(1, "a"), (2, "c"), (9, "z")]), ("delete", [(2, "c")])):
        t = lakebed.create(
            f"memory://tombstones/{kind}", {"id": [1], "city": ["a"]}, key="id", type=kind, index="simple"
        )
        t.upsert({"id": [9], "city": ["z"]})
        topic = Topic(*MESSAGES, tombstones=tombstones, key_field="id")
        lakebed.ingest({"source": topic, "target": {"uri": t.uri}}, once=True)
        rows = t.scan(["id", "city"]).to_arrow().sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in rows] == expected
        lakebed.drop(t.uri)


def test_a_delete_whose_key_lacks_the_partition_path_is_bad_where_the_index_needs_it() -> None:
    for index, key in (("simple", b'{"id": 1, "city": "a"}'), ("global_simple", b'{"id": 1}')):
        t = lakebed.create(
            "memory://tombstones/p", {"id": [1], "city": ["a"]}, key="id", index=index, partition_by="city"
        )
        t.upsert({"id": [1], "city": ["a"]})
        if index == "simple":
            job = {"source": Topic((b'{"id": 1}', None), tombstones="delete"), "target": {"uri": t.uri}}
            with pytest.raises(InvalidRecord, match="a delete lacks a column of the partition path: city"):
                lakebed.ingest(job, once=True)
            assert t.count() == 1
        lakebed.ingest({"source": Topic((key, None), tombstones="delete"), "target": {"uri": t.uri}}, once=True)
        assert t.count() == 0
        lakebed.drop(t.uri)


def test_debezium_topics_take_no_deletes_by_tombstones() -> None:
    with pytest.raises(InvalidOption, match="Debezium's envelopes have the deletes"):
        Topic(format="debezium-json", tombstones="delete")
