"""The kind `bloom_filters`: the bloom filter of each base file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakebed.format.avro.columns import encode_binaries, encode_fixed, join_pieces
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import (
    file_keys,
)
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.layout import BLOOM_FILTERS
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.records import Records
from lakebed.metadata.schemas import RecordForm
from lakebed.upkeep.stored_files import NewFile

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("type", pa.string()),
        ("timestamp", pa.string()),
        ("bloom", pa.binary()),
        ("is_deleted", pa.bool_()),
    ]
)
_FIELD = SubRecord.BLOOM_FILTER


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values, one a row: `key`, the filter's `type` code, `timestamp` (the instant), `bloom` (the text of
    `BloomFilter.to_text` as bytes), `is_deleted`. A tombstone has an empty type and filter."""
    rows = table.select(SCHEMA.names).combine_chunks()
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(RecordType.BLOOM_FILTER, _FIELD),
        encode_binaries(plain_strings(rows["type"])),
        encode_binaries(plain_strings(rows["timestamp"])),
        encode_binaries(plain_strings(rows["bloom"])),
        encode_fixed(rows["is_deleted"].to_numpy()),
    ]
    return plain_strings(rows["key"]), join_pieces([*pieces, value_tail(form, _FIELD)])


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """The same table back, rows in the given order. Raises `CorruptFile`."""
    cursors, form = enter(values, schema_json, _FIELD)
    columns = [cursors.texts(), cursors.texts(), cursors.binaries(), pa.array(cursors.booleans())]
    leave(cursors, form, _FIELD)
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=SCHEMA)


KIND = MetadataKind(BLOOM_FILTERS, file_id_start="bloom-filters", file_groups=4, decode=decode, build_position=20)


def bloom_records_of(files: Sequence[NewFile], instant: str, form: RecordForm) -> Records:
    """Records of `bloom_filters`, for the files that have a filter."""
    having = [(f, f.bloom) for f in files if f.bloom is not None]
    columns = [
        file_keys([f.partition for f, _ in having], [f.name for f, _ in having]),
        pa.array([kind for _, (kind, _) in having], pa.string()),
        pa.repeat(pa.scalar(instant), len(having)),
        pa.array([text.encode() for _, (_, text) in having], pa.binary()),
        pa.repeat(pa.scalar(False), len(having)),
    ]
    return Records.upserts(*encode(pa.Table.from_arrays(columns, schema=SCHEMA), form))
