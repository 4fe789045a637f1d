"""Rows as JSON texts, made column by column."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import UnsupportedFeature
from lakebed.schema.java_text import to_java_text
from lakebed.schema.plain_arrow import as_numpy, is_list

_SPECIAL = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = '["\\\\\\x00-\\x1f]'
_NULL = "null"


def json_texts(rows: pa.RecordBatch) -> pa.StringArray:
    """Each row as a JSON object of its columns, in their order and without spaces.

    Dates are days and times units since 1970, as real Hudi shows them; decimals are numbers, bytes base64, floating
    numbers in Java's form (what JSON has no number for as a text).

    >>> json_texts(pa.record_batch({"id": ['a"b', None], "n": pa.array([1.5, 2.0])})).to_pylist()
    ['{"id":"a\\\\"b","n":1.5}', '{"id":null,"n":2.0}']
    """
    return _objects(rows.schema.names, rows.columns, rows.num_rows)


def _objects(names: Iterable[str], columns: Iterable[pa.Array], rows: int) -> pa.StringArray:
    pieces: list[pa.Array | pa.Scalar] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        pieces += [_text(f"{before}{json.dumps(name, ensure_ascii=False)}:"), _values(column)]
        before = ","
    if not pieces:
        return pa.repeat(_text("{}"), rows)
    return pc.binary_join_element_wise(*pieces, _text("}"), _text(""))


def _text(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.string())


def _values(column: pa.Array) -> pa.StringArray:
    """The JSON of each value; `null` for a null."""
    return pc.fill_null(_present(column), _NULL)


def _present(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pt.is_dictionary(kind):
        return _present(column.dictionary).take(column.indices)
    if pt.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pt.is_boolean(kind) or pt.is_integer(kind):
        return column.cast(pa.string())
    if pt.is_floating(kind):
        text = to_java_text(column).cast(pa.string())
        return pc.if_else(pc.is_finite(column), text, _quoted(text))
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _quoted(_escaped(column.cast(pa.string())))
    if pt.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.string())
    if pt.is_decimal(kind) or pt.is_timestamp(kind) or pt.is_time(kind):
        return to_java_text(column)
    if pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        return _quoted(_base64(column))
    return _nested(column)


def _nested(column: pa.Array) -> pa.StringArray:
    kind = column.type
    if pt.is_struct(kind):
        texts = _objects((f.name for f in kind), column.flatten(), len(column))
    elif pt.is_map(kind):
        lists = column.cast(pa.list_(pa.struct([("key", pa.string()), ("value", kind.item_type)])))
        keys, values = lists.flatten().flatten()
        pairs = pc.binary_join_element_wise(_quoted(_escaped(keys)), _values(values), ":")
        texts = _joined(lists, pairs, "{", "}")
    elif is_list(kind):
        texts = _joined(column, _values(column.flatten()), "[", "]")
    else:
        raise UnsupportedFeature(f"values of type {kind} have no JSON form", hint="take images='rows'")
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _joined(column: pa.Array, texts: pa.StringArray, left: str, right: str) -> pa.StringArray:
    """The texts of each list's elements between brackets."""
    lengths = as_numpy(pc.fill_null(pc.list_value_length(column), 0))
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    inside = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")
    return pc.binary_join_element_wise(_text(left), inside, _text(right), _text(""))


def _quoted(texts: pa.Array) -> pa.StringArray:
    return pc.binary_join_element_wise(_text('"'), texts, _text('"'), _text(""))


def _escaped(texts: pa.Array) -> pa.StringArray:
    if not pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return texts
    texts = pc.replace_substring(texts, "\\", "\\\\")
    texts = pc.replace_substring(texts, '"', '\\"')
    for code in range(0x20):
        character = chr(code)
        if pc.any(pc.match_substring(texts, character)).as_py():
            texts = pc.replace_substring(texts, character, _SPECIAL.get(character, f"\\u{code:04x}"))
    return texts


def _base64(column: pa.Array) -> pa.StringArray:
    """The values in base64: all are padded to groups of three bytes and encoded at once, then the padding is marked."""
    plain = column.cast(pa.binary())
    lengths = as_numpy(pc.fill_null(pc.binary_length(plain), 0)).astype(np.int64)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(-(-lengths // 3), out=starts[1:])
    data = np.zeros(int(starts[-1]) * 3, np.uint8)
    values = _bytes(pc.drop_null(plain))
    within = np.arange(len(values)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    data[np.repeat(starts[:-1] * 3, lengths) + within] = values
    encoded = np.frombuffer(base64.b64encode(data.tobytes()), np.uint8).copy()
    for remainder, marks in ((1, 2), (2, 1)):
        ends = starts[1:][lengths % 3 == remainder] * 4
        for back in range(1, marks + 1):
            encoded[ends - back] = ord("=")
    offsets = pa.py_buffer((starts * 4).astype(np.int32))
    texts = pa.StringArray.from_buffers(len(column), offsets, pa.py_buffer(encoded))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string())) if column.null_count else texts


def _bytes(values: pa.BinaryArray) -> npt.NDArray[np.uint8]:
    """The bytes of all values, concatenated; the values have no nulls."""
    _, offsets, data = values.buffers()
    if not len(values) or data is None:
        return np.empty(0, np.uint8)
    at = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[at[values.offset] : at[values.offset + len(values)]]
