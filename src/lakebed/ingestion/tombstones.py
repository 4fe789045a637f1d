"""Tombstones of a topic, messages without a value, as deletes of the rows that their keys name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakebed.ingestion.columns import union_of
from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.messages import BadMessage, Decoded
from lakebed.ingestion.source import RECORD_FAILURE
from lakebed.model import IS_DELETED_COLUMN


def decode_tombstones(keys: pa.Array, types: Mapping[str, pa.DataType], field: str | None) -> Decoded:
    """The rows of message keys, marked as deletes. A key is a JSON object with the fields of the record key, or a JSON
    value or plain text that is the value of `field`.

    A message without a key, and one whose key is neither, is bad."""
    texts = pc.fill_null(keys, b"")
    is_object = pc.match_substring_regex(texts, r"^\s*\{")
    if field is not None:
        is_json = pc.match_substring_regex(texts, r'^".*"$')
        escaped = pc.replace_substring_regex(texts, rb'(["\\])', rb"\\\1")
        value = pc.if_else(is_json, texts, pc.binary_join_element_wise(b'"', escaped, b'"', b""))
        name = field.replace("\\", "\\\\").replace('"', '\\"').encode()
        texts = pc.if_else(is_object, texts, pc.binary_join_element_wise(b'{"' + name + b'": ', value, b"}", b""))
    named = pc.and_(pc.not_equal(pc.fill_null(keys, b""), b""), True if field is not None else is_object)
    at = np.flatnonzero(np.asarray(named))
    # a key has no flag of its own, also where the table has that column
    types = {name: kind for name, kind in types.items() if name != IS_DELETED_COLUMN}
    decoded = decode_json(texts.filter(named), types)
    bad = [BadMessage(int(at[message.number]), RECORD_FAILURE, f"its key: {message.error}") for message in decoded.bad]
    text = "the message has no value, and no key that names a row"
    bad += [BadMessage(number, RECORD_FAILURE, text) for number in np.flatnonzero(~np.asarray(named)).tolist()]
    rows = decoded.rows
    if rows.num_columns:
        rows = rows.append_column(IS_DELETED_COLUMN, pa.repeat(pa.scalar(True), rows.num_rows))
    return Decoded(rows, at[decoded.numbers], sorted(bad))


def in_order(rows: Decoded, deletes: Decoded) -> Decoded:
    """The rows and deletes in the order of their messages, with a column that marks the deletes."""
    tables = [part.rows for part in (rows, deletes) if part.rows.num_columns]
    if not tables:
        return Decoded(rows.rows, rows.numbers, sorted([*rows.bad, *deletes.bad]))
    numbers = np.concatenate([part.numbers for part in (rows, deletes) if part.rows.num_columns])
    table = union_of(tables)
    if IS_DELETED_COLUMN in table.column_names:
        at = table.schema.get_field_index(IS_DELETED_COLUMN)
        table = table.set_column(at, IS_DELETED_COLUMN, pc.fill_null(table.column(at), False))
    order = np.argsort(numbers, kind="stable")
    return Decoded(table.take(pa.array(order)), numbers[order], sorted([*rows.bad, *deletes.bad]))
