"""The kind `secondary_index_*`: which record keys have a value in the indexed field."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import UnsupportedFeature
from lakebed.format.hashes import plain_strings
from lakebed.metadata.keys import secondary_file_groups, secondary_keys, split_secondary_keys
from lakebed.metadata.kinds.definitions import IndexDefinition
from lakebed.metadata.kinds.key_changes import AFTER, BEFORE, KEY, GroupChanges, field_of
from lakebed.metadata.kinds.kind import MetadataKind
from lakebed.metadata.layout import SECONDARY_INDEX
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.records import Records
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


# From this index version on records without a value are in the index too.
_FIRST_WITH_NULLS = 2


def secondary_index_records(
    groups: Sequence[GroupChanges], field: str, form: RecordForm, *, index_version: int
) -> Records:
    """Records of the index on a field: the value of each key that was added or changed, and deletes of what it was.

    A record that moves to another file group with its value is deleted and inserted, which is an insert.
    """
    deleted = [_texts(g.changes, field, BEFORE, index_version) for g in groups]
    written = [_texts(g.changes, field, AFTER, index_version) for g in groups]
    keys, values = entries(_joined(written), form)
    removed = _joined(deleted)
    return Records(keys, values, pc.unique(secondary_keys(removed["value"], removed["record_key"])))


def entries(pairs: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values of the index entries of (`value`, `record_key`), each pair once."""
    if not pairs.num_rows:
        return pa.array([], pa.string()), pa.array([], pa.binary())
    live = pairs.append_column("is_deleted", pa.repeat(pa.scalar(False), pairs.num_rows))
    keys, values = encode(live, form)
    # the payload is the same for all of them
    once = pc.unique(keys)
    return once, values.slice(0, len(once))


def indexed_pairs(values: pa.Array, keys: pa.Array, index_version: int) -> pa.Table:
    """`value` and `record_key` of what an index of this version holds."""
    pairs = pa.table({"value": plain_strings(values), "record_key": plain_strings(keys)})
    return pairs if index_version >= _FIRST_WITH_NULLS else pairs.filter(pairs["value"].is_valid())


def pairs_of(changes: pa.Table, field: str, index_version: int) -> pa.Table:
    """`value`, `record_key` and `added`: what of a file group's changes an index on the field gets and loses."""
    parts = [(_texts(changes, field, side, index_version), side == AFTER) for side in (BEFORE, AFTER)]
    flagged = [pairs.append_column("added", pa.repeat(pa.scalar(added), pairs.num_rows)) for pairs, added in parts]
    return pa.concat_tables(flagged).combine_chunks()


def _texts(changes: pa.Table, field: str, side: str, index_version: int) -> pa.Table:
    """The pairs of the records that were there before (`was`) or are there now (`is`), where the value is not the same
    on both sides."""
    before, after = field_of(changes, field)
    same = pc.or_(pc.fill_null(pc.equal(before, after), False), pc.and_(before.is_null(), after.is_null()))
    stays = pc.and_(pc.and_(changes[BEFORE], changes[AFTER]), same)
    rows = changes.filter(pc.and_(changes[side], pc.invert(stays)))
    return indexed_pairs(rows[f"{side}.{field}"], rows[KEY], index_version)


def _joined(pairs: Sequence[pa.Table]) -> pa.Table:
    empty = pa.table({"value": pa.array([], pa.string()), "record_key": pa.array([], pa.string())})
    return pa.concat_tables([empty, *pairs])


def _shard(keys: pa.Array, file_groups: int, index_version: int) -> npt.NDArray[np.int32]:
    return secondary_file_groups(keys, file_groups, version=index_version)


def _describe(definition: IndexDefinition | None) -> str:
    return "secondary index"


KIND = MetadataKind(
    SECONDARY_INDEX,
    is_prefix=True,
    grows=True,
    shard=_shard,
    shard_by_version=True,
    decode=decode,
    build_position=50,
    describe=_describe,
)
