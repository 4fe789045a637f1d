"""Records of a secondary index: which record keys have a value. All of it is in the key; the value says little."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import secondary_keys, split_secondary_keys
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.schemas import RecordForm

SCHEMA = pa.schema([("value", pa.string()), ("record_key", pa.string()), ("is_deleted", pa.bool_())])
_FIELD = SubRecord.SECONDARY_INDEX


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values from `value` (the indexed field as Java's text of it, or null), `record_key`, `is_deleted`."""
    if not form.has_secondary:
        raise UnsupportedFeature("tables of version 6 have no secondary index", context={"feature": "secondary index"})
    rows = table.select(SCHEMA.names).combine_chunks()
    keys = secondary_keys(plain_strings(rows["value"]), plain_strings(rows["record_key"]))
    live, deleted = (
        pa.scalar(value_head(RecordType.SECONDARY_INDEX, _FIELD) + flag + value_tail(form, _FIELD), pa.binary())
        for flag in (b"\x00", b"\x01")
    )
    return keys, pc.if_else(rows["is_deleted"].combine_chunks(), deleted, live)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """The same table back, rows in the given order. Raises `CorruptFile`."""
    encoded = values.dictionary_encode()
    cursors, form = enter(encoded.dictionary, schema_json, _FIELD)
    deleted = pa.array(cursors.booleans())
    leave(cursors, form, _FIELD)
    texts, record_keys = split_secondary_keys(keys)
    return pa.Table.from_arrays([texts, record_keys, deleted.take(encoded.indices)], schema=SCHEMA)
