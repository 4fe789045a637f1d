"""Records of the `record_index` partition: where each record key lives."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.errors import CorruptFile, IndexInconsistent
from lakebed.format.avro.columns import encode_binaries, encode_longs, encode_nullable, join_pieces
from lakebed.format.hashes import plain_strings
from lakebed.metadata.record_values import RecordType, SubRecord, enter, leave, value_head, value_tail
from lakebed.metadata.schemas import RecordForm
from lakebed.timeline.instants import format_millis, parse_time

_TEXTS = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("key", pa.string()), ("partition", _TEXTS), ("file_id", _TEXTS), ("instant", _TEXTS)])

_FIELD = SubRecord.RECORD_INDEX
_UUID, _RAW = 0, 1
_FILE_ID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{4})-([0-9a-f]{12})(?:-(\d{1,9}))?")
_LOCAL = "LOCAL"
# Combinations of partition, file id and instant that are numbered by a table, not by hashing.
_COMBINATIONS = 1 << 22
Int64s = npt.NDArray[np.int64]


def encode(table: pa.Table, form: RecordForm) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Keys and values of record index entries, in the table's order: `key`, `partition` (path), `file_id`, `instant`
    (17 digits: the commit that put the key there), each plain or dictionary-encoded.

    Values repeat for all keys of a file group and commit, so each different one is made once.
    """
    columns = [_encoded(table[name]) for name in ("partition", "file_id", "instant")]
    rows, codes = _distinct([column.indices for column in columns])
    partition, file_id, instant = (column.dictionary.take(column.indices.take(rows)) for column in columns)
    values = _payloads(partition, file_id, instant, form)
    return plain_strings(table["key"]), values.take(codes)


def decode(keys: pa.Array, values: pa.BinaryArray, schema_json: str) -> pa.Table:
    """A table of `key`, `partition`, `file_id` and `instant`, in the given order; all but the key are
    dictionary-encoded.

    `instant` is read in this process's time zone, as Hudi does: where the writer's differs, it is shifted by whole
    hours. Raises `CorruptFile`.
    """
    encoded = values.dictionary_encode()
    partition, file_id, instant = _locations(encoded.dictionary, schema_json)
    columns = [_take_encoded(column, encoded.indices) for column in (partition, file_id, instant)]
    return pa.Table.from_arrays([keys.cast(pa.string()), *columns], schema=SCHEMA)


def file_ids(high: Int64s, low: Int64s, index: Int64s) -> pa.StringArray:
    """File ids from the two halves of their UUIDs and the number behind (none: -1).

    >>> file_ids(np.array([0x30C43BAAEBD74580]), np.array([-0x7814DE5BEED73F8D]), np.array([0]))[0].as_py()
    '30c43baa-ebd7-4580-87eb-21a41128c073-0'
    """
    raw = np.stack([high, low], axis=1).astype(">i8").view(np.uint8)
    nibbles = np.stack([raw >> 4, raw & 15], axis=2).reshape(len(high), 32)
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]
    text = np.full((len(high), 36), ord("-"), np.uint8)
    for start, end, at in ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24)):
        text[:, at : at + end - start] = digits[:, start:end]
    offsets = np.arange(0, 36 * len(high) + 1, 36, dtype=np.int32)
    uuids = pa.StringArray.from_buffers(len(high), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))
    numbered = pc.binary_join_element_wise(uuids, pa.array(index).cast(pa.string()), "-")
    return pc.if_else(pa.array(index == -1), uuids, numbered)


def _payloads(partition: pa.Array, file_id: pa.Array, instant: pa.Array, form: RecordForm) -> pa.BinaryArray:
    high, low, index, plain = _uuid_parts(file_id)
    raw_id = pc.if_else(pa.array(plain), "", file_id)
    pieces: list[pa.BinaryArray | bytes] = [
        value_head(RecordType.RECORD_INDEX, _FIELD),
        encode_nullable(encode_binaries(partition)),
        encode_nullable(encode_longs(high)),
        encode_nullable(encode_longs(low)),
        encode_nullable(encode_longs(index)),
        encode_nullable(encode_binaries(raw_id)),
        encode_nullable(encode_longs(_epoch_millis(instant))),
        encode_longs(np.where(plain, _UUID, _RAW)),
    ]
    if form.has_position:
        pieces.append(b"\x00")
    return join_pieces([*pieces, value_tail(form, _FIELD)])


def _uuid_parts(file_ids: pa.Array) -> tuple[Int64s, Int64s, Int64s, npt.NDArray[np.bool_]]:
    """High and low half of each UUID, the number behind it, and whether the id is one; -1 where not. Runs over distinct
    file groups."""
    parts = np.full((3, len(file_ids)), -1, np.int64)
    plain = np.zeros(len(file_ids), np.bool_)
    for row, text in enumerate(file_ids.to_pylist()):
        found = _FILE_ID.fullmatch(text)
        if found is None or (found[6] or "0") != str(int(found[6] or 0)):
            continue
        bits = int("".join(found.groups()[:5]), 16)
        plain[row] = True
        parts[:, row] = _signed(bits >> 64), _signed(bits & (1 << 64) - 1), int(found[6]) if found[6] else -1
    return parts[0], parts[1], parts[2], plain


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _locations(values: pa.BinaryArray, schema_json: str) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Partition path, file id and instant of each (distinct) value."""
    cursors, form = enter(values, schema_json, _FIELD)
    partition = pc.fill_null(cursors.nullable_texts(), "")
    high, _ = cursors.nullable_longs()
    low, _ = cursors.nullable_longs()
    index, _ = cursors.nullable_longs()
    raw_id = cursors.nullable_texts()
    millis, _ = cursors.nullable_longs()
    encoding = cursors.longs()
    if form.has_position:
        cursors.nullable_longs()
    leave(cursors, form, _FIELD)
    if ((encoding != _UUID) & (encoding != _RAW)).any():
        raise CorruptFile("a record index entry has an unknown encoding of its file id")
    ids = pc.if_else(pa.array(encoding == _UUID), file_ids(high, low, index), raw_id)
    return partition, ids, _instants(millis)


def _epoch_millis(instants: pa.Array) -> Int64s:
    """The moments that instants name in this process's zone; as many calls as there are distinct instants."""
    encoded = instants.dictionary_encode()
    moments = [round(parse_time(text, _LOCAL).timestamp() * 1000) for text in encoded.dictionary.to_pylist()]
    return np.array(moments, np.int64)[encoded.indices.to_numpy()]


def _instants(millis: Int64s) -> pa.StringArray:
    encoded = pa.array(millis).dictionary_encode()
    try:
        texts = [format_millis(moment, _LOCAL) for moment in encoded.dictionary.to_pylist()]
    except (OverflowError, ValueError, OSError) as cause:
        raise CorruptFile("a record index entry's instant is beyond any calendar") from cause
    return pa.array(texts, pa.string()).take(encoded.indices)


def _encoded(column: Any) -> pa.DictionaryArray:
    """A text column as one dictionary array."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.unify_dictionaries().chunk(0) if array.num_chunks else pa.array([], pa.string())
    if not pa.types.is_dictionary(array.type):
        array = plain_strings(array).dictionary_encode()
    if array.null_count:
        raise IndexInconsistent("an entry for the record index lacks its partition, file id or instant")
    return array


def _distinct(codes: list[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """A row of each combination of codes that occurs, and for every row the number of its combination."""
    combined, size = np.zeros(len(codes[0]), np.int64), 1
    for code in codes:
        numbers = code.to_numpy(zero_copy_only=False)
        width = int(numbers.max(initial=0)) + 1
        if size * width > _COMBINATIONS:
            combined = pa.array(combined).dictionary_encode().indices.to_numpy().astype(np.int64)
            size = int(combined.max(initial=0)) + 1
        combined = combined * width + numbers if size > 1 else numbers.astype(np.int64)
        size *= width
    rows = np.full(size, -1, np.int64)
    rows[combined] = np.arange(len(combined))
    used = rows >= 0
    numbered = np.cumsum(used, dtype=np.int32) - 1
    return pa.array(rows[used]), pa.array(numbered[combined].astype(np.int32, copy=False))


def _take_encoded(distinct: pa.Array, codes: pa.Array) -> pa.DictionaryArray:
    encoded = distinct.cast(pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(codes), encoded.dictionary)
