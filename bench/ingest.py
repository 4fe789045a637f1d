"""Ingest in this process: JSON messages into a merge-on-read table, 50,000 a commit.

    python bench/ingest.py                       500,000 messages
    python bench/ingest.py --messages 2000000 --format avro --batch 5000

CPU seconds of this process for decoding and writing, services apart; a broker is not in it. The messages are in memory
as a Kafka client gives them, a bytes object each.

Bar: 250,000 JSON rows a CPU second at 50,000 a commit.
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import time
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

import lakebed
from lakebed.ingestion.avro_messages import decode_avro
from lakebed.ingestion.debezium import Envelopes, decode_debezium_json
from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.messages import Decoded
from lakebed.ingestion.protobuf_messages import FramedProtobuf
from lakebed.ingestion.source import IngestPoll, IngestSource

BAR = 250_000
SCHEMA = {
    "type": "record",
    "name": "Trip",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": "string"},
        {"name": "fare", "type": "double"},
        {"name": "at", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
    ],
}


def trip(number: int) -> dict[str, object]:
    note = "x" * 20 if number % 3 else None
    return {"id": number, "city": f"c{number % 97}", "fare": number / 7, "at": 1_700_000_000_000 + number, "note": note}


@cache
def protobuf_file() -> FileDescriptorProto:
    file = FileDescriptorProto(name="trip.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Trip")
    for number, field in enumerate(SCHEMA["fields"], 1):
        kind = {"long": "INT64", "double": "DOUBLE"}.get(str(field["type"]), "STRING")
        message.field.add(name=field["name"], number=number, type=f"TYPE_{kind}", label="LABEL_OPTIONAL")
    return file


@cache
def protobuf_class() -> Any:
    pool = DescriptorPool()
    pool.Add(protobuf_file())
    return GetMessageClass(pool.FindMessageTypeByName("bench.Trip"))


def message(number: int, form: str) -> bytes:
    row = trip(number)
    if form == "protobuf":
        return struct.pack(">bIb", 0, 1, 0) + protobuf_class()(**row).SerializeToString()
    if form == "avro":
        out = io.BytesIO(struct.pack(">bI", 0, 1))
        out.seek(5)
        fastavro.schemaless_writer(out, SCHEMA, row)
        return out.getvalue()
    if form == "debezium-json":
        source = {"connector": "postgresql", "name": "pg", "schema": "public", "ts_ms": 1, "txId": 1, "lsn": number}
        row = {"before": None, "after": row, "op": "c", "ts_ms": 2, "source": source}
    return json.dumps(row, separators=(",", ":")).encode()


class Messages(IngestSource):
    def __init__(self, messages: list[bytes], form: str) -> None:
        self._messages, self._form = messages, form
        self.decoding = 0.0
        self._protobuf = FramedProtobuf(lambda _: {"": protobuf_file().SerializeToString()})

    def poll(self, checkpoint: str | None, limit: int) -> IngestPoll:
        start = int(checkpoint or 0)
        if start == len(self._messages):
            return IngestPoll(None, None, checkpoint)
        began = time.process_time()
        values = pa.array(self._messages[start : start + limit], pa.binary())
        decoded = self._decoded(values)
        assert not decoded.bad
        self.decoding += time.process_time() - began
        end = start + len(values)
        return IngestPoll(decoded.rows, None, str(end), more=end < len(self._messages))

    def _decoded(self, values: pa.Array) -> Decoded:
        if self._form == "avro":
            return decode_avro(values, lambda _: json.dumps(SCHEMA))
        if self._form == "protobuf":
            return self._protobuf.decode(values)
        if self._form == "debezium-json":
            return decode_debezium_json(values, Envelopes(self.types))
        return decode_json(values, self.types)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--format", choices=["json", "avro", "protobuf", "debezium-json"], default="json")
    parser.add_argument("--type", choices=["mor", "cow"], default="mor")
    parser.add_argument("--folder", default="memory://bench-ingest")
    given = parser.parse_args()
    messages = [message(number, given.format) for number in range(given.messages)]
    source = Messages(messages, given.format)
    properties = {"hoodie.compact.inline": False, "hoodie.clean.automatic": False}
    create = {"key": "id", "type": given.type, "index": "bucket", "buckets": 4, "properties": properties}
    job = {"source": source, "target": {"uri": f"{given.folder}/trips", "create": create}, "max_rows": given.batch}
    began = time.process_time()
    result = lakebed.ingest(job, once=True)
    seconds = time.process_time() - began
    assert lakebed.open(f"{given.folder}/trips").count() == given.messages == result.rows
    rate = given.messages / seconds
    print(f"{given.format}, {given.type}: {rate:,.0f} rows a CPU second in {result.commits} commits of {given.batch:,}")
    print(f"decoding alone: {given.messages / source.decoding:,.0f} rows a CPU second")
    if (given.format, given.type, given.batch) == ("json", "mor", 50_000) and rate < BAR:
        raise SystemExit(f"the bar is {BAR:,}")


if __name__ == "__main__":
    main()
