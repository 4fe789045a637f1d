"""What all records of the metadata table share: the fields around the one sub-record that is set."""

from __future__ import annotations

import io
import json
from enum import IntEnum
from functools import lru_cache
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile
from lakebed.format.avro.columns import AvroCursors
from lakebed.format.avro.encoder import decode_long, encode_long
from lakebed.format.hashes import value_buffer
from lakebed.metadata.schemas import V9, RecordForm, known_form, record_schema
from lakebed.model import META_COLUMNS

_avro: Any = fastavro  # its stubs leave streams and schemas half typed


class SubRecord(IntEnum):
    """The nullable fields of a record in their order; exactly one is set."""

    FILES = 0
    BLOOM_FILTER = 1
    COLUMN_STATS = 2
    RECORD_INDEX = 3
    SECONDARY_INDEX = 4


class RecordType(IntEnum):
    """The `type` field."""

    PARTITION_LIST = 1
    FILES = 2
    COLUMN_STATS = 3
    BLOOM_FILTER = 4
    RECORD_INDEX = 5
    PARTITION_STATS = 6
    SECONDARY_INDEX = 7


def enter(values: pa.BinaryArray, schema_json: str, sub_record: SubRecord) -> tuple[AvroCursors, RecordForm]:
    """Cursors at the start of the sub-record of every value, and the form the values are in.

    Values of a schema that lakebed has not met are first put into the newest known form, one by one. Raises
    `CorruptFile` where a value has another sub-record or none.
    """
    try:
        form = known_form(schema_json)
    except ValueError as cause:
        raise CorruptFile(f"the schema of the metadata table's records cannot be read: {cause}") from cause
    if form is None:
        values, form = _into_newest_form(values, schema_json), V9
    cursors = AvroCursors.over(values, f"a record of the metadata table ({sub_record.name.lower()})")
    if len(cursors) and cursors.all_null(len(META_COLUMNS)):
        cursors.skip_nulls(len(META_COLUMNS))
    else:
        for _ in META_COLUMNS:
            cursors.nullable_texts()
    cursors.skip_bytes()
    cursors.longs()
    cursors.skip_nulls(sub_record)
    if not cursors.present().all():
        raise CorruptFile(f"a record of the metadata table has no {sub_record.name.lower()} data")
    return cursors, form


def leave(cursors: AvroCursors, form: RecordForm, sub_record: SubRecord) -> None:
    """Check that nothing but nulls follows the sub-record."""
    cursors.skip_nulls(_fields(form) - sub_record - 1)
    cursors.finish()


def value_head(record_type: RecordType, sub_record: SubRecord) -> bytes:
    """The bytes of a value in front of its sub-record: null meta columns, an empty key, the type, nulls."""
    return bytes(len(META_COLUMNS) + 1) + encode_long(record_type) + bytes(sub_record) + b"\x02"


def value_tail(form: RecordForm, sub_record: SubRecord) -> bytes:
    """The bytes behind the sub-record."""
    return bytes(_fields(form) - sub_record - 1)


def record_type_of(value: bytes) -> RecordType:
    """The `type` of one value, of any form. Raises `CorruptFile`."""
    at = 0
    try:
        for nullable in [True] * len(META_COLUMNS) + [False]:
            present, at = decode_long(value, at) if nullable else (1, at)
            if present:
                length, at = decode_long(value, at)
                at += length
        return RecordType(decode_long(value, at)[0])
    except (IndexError, ValueError) as cause:
        raise CorruptFile("a record of the metadata table does not tell its type") from cause


def into_form(values: pa.BinaryArray, schema_json: str, form: RecordForm) -> pa.BinaryArray:
    """Values of one partition, written with this schema, in a form that is as new or newer. What a newer form has more
    is null or false: zeros at the end of the value. A schema that lakebed has not met becomes the newest form."""
    if not len(values):
        return values
    known = known_form(schema_json)
    if known is None:
        values, known = _into_newest_form(values, schema_json), V9
    if known.version > form.version:
        raise ValueError(f"records of form {known.version} have no place in form {form.version}")
    kind = record_type_of(values[0].as_py())
    more = form.has_secondary - known.has_secondary
    if kind is RecordType.RECORD_INDEX:
        more += form.has_position - known.has_position
    if kind in (RecordType.COLUMN_STATS, RecordType.PARTITION_STATS):
        more += form.has_tight_bound - known.has_tight_bound + form.has_value_type - known.has_value_type
    return pc.binary_join_element_wise(values, pa.scalar(bytes(more), values.type), b"") if more else values


def _fields(form: RecordForm) -> int:
    return len(SubRecord) if form.has_secondary else len(SubRecord) - 1


@lru_cache(maxsize=64)
def _parsed(schema_json: str) -> Any:
    return _avro.parse_schema(json.loads(schema_json))


def _into_newest_form(values: pa.BinaryArray, schema_json: str) -> pa.BinaryArray:
    data, offsets = value_buffer(values)
    newest = _parsed(record_schema(V9))
    out: list[bytes] = []
    try:
        written_with = _parsed(schema_json)
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            source, target = io.BytesIO(data[start:end].tobytes()), io.BytesIO()
            record = _avro.schemaless_reader(source, written_with, newest, return_record_name=True)
            _avro.schemaless_writer(target, newest, record)
            out.append(target.getvalue())
    except Exception as cause:  # fastavro raises whatever broken bytes or an odd schema lead it to
        raise CorruptFile(f"a record of the metadata table cannot be decoded: {cause!r}") from cause
    return pa.array(out, pa.binary())
