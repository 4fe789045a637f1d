"""Hudi's hash functions over Arrow columns: Java's `String.hashCode`, the bucket of a key, MurmurHash2, MD5."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.schema.plain_arrow import as_numpy

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
UInt32s = npt.NDArray[np.uint32]

# The ids of plain texts and bytes, and of those with offsets of 64 bits.
_WIDE = frozenset({pa.large_string().id, pa.large_binary().id})
_PLAIN = frozenset({pa.string().id, pa.binary().id, *_WIDE})
_CHUNK = 1 << 16
_INVERSE_OF_31 = pow(31, -1, 1 << 32)
_INT_MASK = 0x7FFFFFFF
_NULL, _EMPTY = "__null__", "__empty__"


def plain_strings(strings: Any) -> pa.Array:
    """A string column of any Arrow layout (chunked, large, view, dictionary) as one plain string or binary array."""
    if isinstance(strings, pa.ChunkedArray):
        strings = strings.combine_chunks()
        if isinstance(strings, pa.ChunkedArray):
            strings = pa.concat_arrays(strings.chunks)
    kind = strings.type
    if kind.id in _PLAIN:
        return strings
    if pa.types.is_dictionary(kind):
        return plain_strings(strings.dictionary_decode())
    return strings.cast(pa.large_string())


def value_buffer(strings: pa.Array) -> tuple[npt.NDArray[np.uint8], Int64s]:
    """The bytes of a plain string column and its len + 1 offsets into them (64 bit), without a copy of the bytes."""
    _, offsets, data = strings.buffers()
    kind, count = np.int64 if strings.type.id in _WIDE else np.int32, len(strings)
    if offsets is None or count == 0:
        return np.empty(0, np.uint8), np.zeros(count + 1, np.int64)
    at = np.frombuffer(offsets, kind)[strings.offset : strings.offset + count + 1].astype(np.int64)
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), at


def java_hash(strings: Any) -> Int32s:
    """Java's `String.hashCode` of every value of any Arrow string column; the hash of null is 0.

    >>> java_hash(pa.array(["k0", None, "é€😀"])).tolist()
    [3365, 0, 16752006]
    """
    if pa.types.is_dictionary(strings.type) and not isinstance(strings, pa.ChunkedArray):
        codes = as_numpy(pc.fill_null(strings.indices, len(strings.dictionary)))
        return np.append(java_hash(strings.dictionary), np.int32(0))[codes]
    array = plain_strings(strings)
    data, offsets = value_buffer(array)
    result = np.zeros(len(array), np.uint32)
    if len(array):
        foreign = _rows_beyond_ascii(data, offsets)
        if foreign is None:
            _hash_units(data, offsets, result)
        elif foreign.all():
            _hash_units(*_utf16(data, offsets), result)
        else:
            for rows, as_utf16 in ((~foreign, False), (foreign, True)):
                part, at = value_buffer(array.filter(pa.array(rows)))
                hashes = np.zeros(len(at) - 1, np.uint32)
                _hash_units(*(_utf16(part, at) if as_utf16 else (part, at)), hashes)
                result[rows] = hashes
    if array.null_count:
        result[as_numpy(array.is_null())] = 0
    return result.view(np.int32)


def _rows_beyond_ascii(data: npt.NDArray[np.uint8], offsets: Int64s) -> npt.NDArray[np.bool_] | None:
    """A mask of the rows that hold a byte above 127; None if no row does."""
    first, last = int(offsets[0]), int(offsets[-1])
    high = np.flatnonzero(data[first:last] & 0x80)
    if not len(high):
        return None
    rows = np.searchsorted(offsets, high + first, side="right") - 1
    flags = np.zeros(len(offsets) - 1, np.bool_)
    flags[rows] = True
    return flags


def _utf16(data: npt.NDArray[np.uint8], offsets: Int64s) -> tuple[npt.NDArray[np.uint16], Int64s]:
    """UTF-8 rows as UTF-16 code units and offsets into them: the buffer is converted at once, lead bytes are
    counted."""
    first, last = int(offsets[0]), int(offsets[-1])
    used = data[first:last]
    text = used.tobytes().decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
    per_byte = ((used & 0xC0) != 0x80).astype(np.int64) + (used >= 0xF0)
    before = np.zeros(len(used) + 1, np.int64)
    np.cumsum(per_byte, out=before[1:])
    return np.frombuffer(text, "<u2"), before[offsets - first]


def _powers(base: int, count: int, start: int = 1) -> UInt32s:
    """start * base**i modulo 2**32, for i below count."""
    factors = np.full(count, base, np.uint32)
    factors[:1] = start
    return np.multiply.accumulate(factors)


_DOWN = _powers(_INVERSE_OF_31, _CHUNK)
_UP = _powers(31, _CHUNK + 1, _INVERSE_OF_31)


def _hash_units(units: npt.NDArray[Any], offsets: Int64s, result: UInt32s) -> None:
    """Fill `result` with the hash of each row's code units.

    31 is odd, so it has an inverse modulo 2**32: with w[j] = 31**-j a row's hash is 31**(end-1) times a
    difference of two prefix sums of unit[j] * w[j]. Three passes over the buffer, whatever the lengths of
    the rows are.
    """
    for first, last in _row_chunks(offsets):
        begin, end = int(offsets[first]), int(offsets[last])
        size = end - begin
        down, up = (_DOWN, _UP) if size <= _CHUNK else (_powers(_INVERSE_OF_31, size), _long_up(size))
        sums = np.empty(size + 1, np.uint32)
        sums[0] = 0
        weighted = units[begin:end].astype(np.uint32)
        weighted *= down[:size]
        np.cumsum(weighted, out=sums[1:])
        at = offsets[first : last + 1] - begin
        ends = at[1:]
        result[first:last] = (sums[ends] - sums[at[:-1]]) * up[ends]


def _long_up(size: int) -> UInt32s:
    return _powers(31, size + 1, _INVERSE_OF_31)


def _row_chunks(offsets: Int64s) -> Iterator[tuple[int, int]]:
    """Ranges of rows (first, end) whose data fits into one chunk; a longer row is a range of one row."""
    rows, first = len(offsets) - 1, 0
    while first < rows:
        limit = int(offsets[first]) + _CHUNK
        last = int(np.searchsorted(offsets, limit, side="right")) - 1
        last = min(max(last, first + 1), rows)
        yield first, last
        first = last


def java_list_hash(columns: Sequence[npt.NDArray[Any]]) -> Int32s:
    """Java's `List.hashCode` over columns of element hashes (an absent element counts 0).

    >>> java_list_hash([java_hash(pa.array(["1"])), java_hash(pa.array(["2"]))]).tolist()
    [2530]
    """
    total = np.ones(len(columns[0]) if columns else 1, np.uint32)
    for column in columns:
        total = total * np.uint32(31) + column.astype(np.int32).view(np.uint32)
    return total.view(np.int32)


def bucket_of_hash(list_hash: Int32s, buckets: int) -> Int32s:
    """The bucket number of each list hash, as the bucket index computes it: without the sign bit, modulo the number of
    buckets."""
    return (list_hash & np.int32(_INT_MASK)) % np.int32(buckets)


def extract_hash_values(key: str, fields: Sequence[str]) -> list[str | None]:
    """The values of the hash fields in a record key's text, as Hudi's bucket index parses them, in the key's order;
    None for a null value.

    No fields means all. Text that is no `name:value,...` list, or names none of the fields, is one value:
    the whole key. Ends with the rest of the key where Hudi's own parser loops for ever (`id:1,ts:13:50:42`
    hashed on `id`).

    >>> extract_hash_values("id:v1,v2,ts:7", ["id"])
    ['v1,v2']
    """
    if "," not in key or ":" not in key:
        return [key]
    wants_all = not fields or list(fields) == [""]
    values: list[str | None] = []
    for name, value, selected in _fields_of(key, None if wants_all else frozenset(fields)):
        del name
        if selected:
            values.append(None if value == _NULL else "" if value == _EMPTY else value)
    return values or [key]


def _fields_of(key: str, selected: frozenset[str] | None) -> Iterator[tuple[str, str, bool]]:
    """The name, the raw value, and whether the field is in `selected` (None: every field is), for each field that
    Hudi's parser sees in a composite key."""
    start, size = 0, len(key)
    while start < size:
        colon = key.find(":", start)
        if colon < 0:
            return
        name = key[start:colon]
        is_wanted = selected is None or name in selected
        following, comma = key.find(":", colon + 1), -1
        while following >= 0:
            comma = key.rfind(",", 0, following + 1)
            if comma >= colon:
                break
            # the value holds a colon: the comma belongs to a later one
            following, comma = key.find(":", following + 1), -1
        if comma > 0 or (comma == 0 and not is_wanted):
            end, start = comma, comma + 1
        else:
            end = start = size
        yield name, key[colon + 1 : end], is_wanted


def bucket_ids(keys: Any, fields: Sequence[str], buckets: int) -> Int32s:
    """The bucket number of every record key text, as Hudi's simple bucket index computes it; a null key counts as "".

    `fields` are the hash fields (a subset of the key fields; empty: all). Kernels for all keys but those
    whose values could confuse Hudi's parser, which go through `extract_hash_values` one by one.

    >>> bucket_ids(pa.array(["k0", "id:1,ts:2"]), ["id"], 8).tolist()
    [4, 0]
    """
    return bucket_of_hash(key_list_hash(plain_strings(keys), fields), buckets)


def key_list_hash(keys: pa.Array, fields: Sequence[str]) -> Int32s:
    """The list hash of the values of the hash fields in each key text, from which `bucket_ids` computes the bucket."""
    names = [] if list(fields) == [""] else list(fields)
    rows = _composite_rows(keys, names)
    if not len(rows):
        return java_list_hash([java_hash(keys)])
    result = np.empty(len(keys), np.int32)
    if len(rows) < len(keys):
        result[:] = java_list_hash([java_hash(keys)])
    result[rows] = _composite_hash(keys.take(pa.array(rows)), names)
    return result


def joined_hash_values(keys: Any, fields: Sequence[str]) -> pa.Array:
    """The values of the hash fields in every key text, joined with nothing between them and "null"
    for a null: the text that Hudi's consistent hashing hashes.

    >>> joined_hash_values(pa.array(["k0", "id:1,ts:2", "id:__null__,ts:5"]), ["id", "ts"]).to_pylist()
    ['k0', '12', 'null5']
    """
    texts = plain_strings(keys)
    names = [] if list(fields) == [""] else list(fields)
    rows = _composite_rows(texts, names)
    if not len(rows):
        return texts
    composite = texts.take(pa.array(rows))
    values, left = _composite_values(composite, names)
    joined = composite
    if values:
        joined = pc.binary_join_element_wise(*map(_value_text, values), pa.scalar("", texts.type))
    odd = np.flatnonzero(left)
    if len(odd):
        exact = [_joined(extract_hash_values(key, names)) for key in composite.take(pa.array(odd)).to_pylist()]
        joined = pc.replace_with_mask(joined, pa.array(left), pa.array(exact, texts.type))
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts, pa.array(mask), joined)


def _joined(values: Sequence[str | None]) -> str:
    return "".join("null" if value is None else value for value in values)


def _value_text(values: pa.Array) -> pa.Array:
    is_null = pc.equal(values, pa.scalar(_NULL, values.type))
    is_empty = pc.equal(values, pa.scalar(_EMPTY, values.type))
    return pc.if_else(is_null, "null", pc.if_else(is_empty, "", values))


def _composite_rows(keys: pa.Array, names: Sequence[str]) -> Int64s:
    """The positions of the keys that Hudi's parser takes apart: lists of fields of which one is in `names` (any field
    if `names` is empty)."""
    data, offsets = value_buffer(keys)
    if not (data[offsets[0] : offsets[-1]] == ord(",")).any():  # a search in each text costs ten times as much
        return np.empty(0, np.int64)
    composite = pc.and_(pc.match_substring(keys, ","), pc.match_substring(keys, ":"))
    if names and pc.any(composite).as_py():
        pattern = "(?:^|,)(?:" + "|".join(_literal(f) for f in names) + "):"
        composite = pc.and_(composite, pc.match_substring_regex(keys, pattern))
    return np.flatnonzero(as_numpy(pc.fill_null(composite, False)))


def _literal(text: str) -> str:
    """The text as a regular expression that matches only the text, and that RE2 and Python read the same way."""
    return re.sub(r"([\\.+*?()|\[\]{}^$-])", r"\\\1", text)


def _composite_values(keys: pa.Array, fields: Sequence[str]) -> tuple[list[pa.Array], npt.NDArray[np.bool_]]:
    """The raw values of the hash fields in keys that all have the first key's fields, and a mask of the keys that do
    not have them or that may be misread, which the caller parses one by one. Without values if that mask is true for
    all keys."""
    selected = frozenset(fields) or None
    layout = [(name, want) for name, _, want in _fields_of(keys[0].as_py(), selected)]
    if not layout or any("," in name or ":" in name for name, _ in layout) or not any(w for _, w in layout):
        return [], np.ones(len(keys), np.bool_)
    # a value that no parser can misread has no colon after its first comma
    parts = [f"{_literal(n)}:(?P<v{i}>[^,]*(?:,[^:]*)?)" for i, (n, _) in enumerate(layout)]
    captures = pc.extract_regex(keys, "^" + ",".join(parts) + "$")
    values = [pc.struct_field(captures, [i]) for i, (_, want) in enumerate(layout) if want]
    return values, as_numpy(captures.is_null())


def _composite_hash(keys: pa.Array, fields: Sequence[str]) -> Int32s:
    values, left = _composite_values(keys, fields)
    result = java_list_hash([_value_hash(v) for v in values]) if values else np.zeros(len(keys), np.int32)
    odd = np.flatnonzero(left)
    if len(odd):
        result[odd] = [_exact_hash(key, fields) for key in keys.take(pa.array(odd)).to_pylist()]
    return result


def _value_hash(values: pa.Array) -> Int32s:
    hashes = java_hash(values)
    special = pc.is_in(values, pa.array([_NULL, _EMPTY], values.type))
    hashes[as_numpy(pc.fill_null(special, False))] = 0
    return hashes


def _exact_hash(key: str, fields: Sequence[str]) -> int:
    total = 1
    for value in extract_hash_values(key, fields):
        total = (31 * total + (_java_hash_of(value) if value else 0)) & 0xFFFFFFFF
    return total - (1 << 32) if total >> 31 else total


def _java_hash_of(text: str) -> int:
    total = 0
    units = text.encode("utf-16-le", "surrogatepass")
    for i in range(0, len(units), 2):
        total = (31 * total + (units[i] | units[i + 1] << 8)) & 0xFFFFFFFF
    return total


def record_index_shard(keys: Any, shards: int) -> Int32s:
    """The number of the file group of each key, in a metadata-table partition of `shards` file groups (record index and
    others).

    >>> record_index_shard(pa.array(["k1"]), 1000).tolist()
    [366]
    """
    return (np.abs(java_hash(keys).astype(np.int64)) % shards).astype(np.int32)
