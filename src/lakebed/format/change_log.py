"""The Avro schemas of change logs, and their blocks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import pyarrow as pa

from lakebed.format.data_block import encode_data_block
from lakebed.format.log_file import BlockType, HeaderKey, LogBlock

LogMode = Literal["OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER"]
"""What a change log holds of each change: operation and record key, the row before it as well, or both rows."""

OP, KEY, TIME, BEFORE, AFTER = "op", "record_key", "ts_ms", "before", "after"
INSERT, UPDATE, DELETE = "i", "u", "d"

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "OP_KEY_ONLY": (OP, KEY),
    "DATA_BEFORE": (OP, KEY, BEFORE),
    "DATA_BEFORE_AFTER": (OP, TIME, BEFORE, AFTER),
}
"""The fields of a change log's records by mode, in their order."""


def change_log_schema(mode: LogMode, table: str) -> str:
    """The Avro schema of a change log; `table` is that of the table's columns without meta columns.

    >>> change_log_schema("OP_KEY_ONLY", "{}")[:44]
    '{"type":"record","name":"Record","fields":[{'
    """
    if mode == "OP_KEY_ONLY":
        fields: list[dict[str, Any]] = [{"name": name, "type": ["string", "null"]} for name in COLUMNS[mode]]
        return _dump({"type": "record", "name": "Record", "fields": fields})
    record = cast("dict[str, Any]", json.loads(table))
    namespace = record.get("namespace") or ""
    image = {name: value for name, value in record.items() if name != "namespace"}
    kinds: dict[str, Any] = {BEFORE: image, AFTER: record["name"]}
    fields = [
        {"name": name, "type": ["null", kinds.get(name, "string")], "doc": "", "default": None}
        for name in COLUMNS[mode]
    ]
    return _dump({"type": "record", "name": "CDC", "namespace": namespace, "doc": "", "fields": fields})


def change_log_block(rows: Sequence[pa.RecordBatch], avro_schema: str, instant: str) -> LogBlock:
    """A block of changes, which have the columns of the schema."""
    headers = {int(HeaderKey.INSTANT_TIME): instant}
    return encode_data_block(rows, avro_schema, headers, BlockType.CDC_DATA)


def _dump(avro: Any) -> str:
    return json.dumps(avro, separators=(",", ":"), ensure_ascii=False)
