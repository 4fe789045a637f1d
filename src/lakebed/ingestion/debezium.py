"""Changes in Debezium's envelopes as rows: each with its operation, and Hudi's columns for where the change is from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.ingestion.json_messages import decode_json
from lakebed.ingestion.messages import BadMessage, Decoded
from lakebed.ingestion.source import RECORD_FAILURE
from lakebed.model import IS_DELETED_COLUMN

Types = Mapping[str, pa.DataType]

OPERATION = "_change_operation_type"
_SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("name", pa.string()),
        ("schema", pa.string()),
        ("ts_ms", pa.int64()),
        ("txId", pa.int64()),
        ("lsn", pa.int64()),
        ("xmin", pa.int64()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int32()),
    ]
)
# Hudi's columns, by the fields of the envelope's source.
_COMMON = {"db_shard_source_partition": "name", "_event_origin_ts_ms": "ts_ms"}
_POSTGRES = {
    "db_schema_source_partition": "schema",
    "_event_tx_id": "txId",
    "_event_lsn": "lsn",
    "_event_xmin": "xmin",
}
_MYSQL = {"_event_bin_file": "file", "_event_pos": "pos", "_event_row": "row"}
_SEQUENCE = "_event_seq"
_PROCESSED = "_upstream_event_processed_ts_ms"
META_COLUMNS = frozenset([OPERATION, IS_DELETED_COLUMN, _PROCESSED, _SEQUENCE, *_COMMON, *_POSTGRES, *_MYSQL])
_ORDERING_BY_COLUMNS = 9
_CHANGES = pa.array(["c", "r", "u", "d"])


def decode_debezium_json(messages: pa.Array, types: Types, *, hudi: bool) -> Decoded:
    """The rows of JSON envelopes, with or without Kafka Connect's `schema` and `payload`; columns of `types` have these
    types."""
    row = pa.struct([pa.field(name, kind) for name, kind in types.items() if name not in META_COLUMNS])
    fields = {"op": pa.string(), "ts_ms": pa.int64(), "source": _SOURCE}
    if row.num_fields:
        fields |= {"before": row, "after": row}
    wrapped = _is_wrapped(messages)
    envelope: Types = {"payload": pa.struct(list(fields.items()))} if wrapped else fields
    decoded = decode_json(messages, envelope)
    if wrapped and "payload" in decoded.rows.column_names:
        payload = decoded.rows.column("payload").combine_chunks()
        payload = pa.concat_arrays(payload.chunks) if isinstance(payload, pa.ChunkedArray) else payload
        decoded.rows = pa.table({field.name: pc.struct_field(payload, field.name) for field in payload.type})
    return rows_of_envelopes(decoded, hudi=hudi)


def _is_wrapped(messages: pa.Array) -> bool:
    """Whether the first message that is an object has its envelope in `payload`."""
    texts = messages.drop_null()
    if not len(texts):
        return False
    rows = decode_json(texts.slice(0, 1), {}).rows
    return "payload" in rows.column_names and pt.is_struct(rows.schema.field("payload").type)


def rows_of_envelopes(decoded: Decoded, *, hudi: bool) -> Decoded:
    """The rows of decoded envelopes: the state after the change, of a delete the state before. With `hudi` they have
    Hudi's columns of Debezium sources, else `_hoodie_is_deleted` alone.

    An envelope without an operation or without the state that it needs is bad, as are truncations of a table."""
    table, numbers = decoded.rows, decoded.numbers
    if not table.num_rows:
        return Decoded(pa.table({}), numbers, decoded.bad)
    operation = _column(table, "op", pa.string())
    before, after = _column(table, "before", None), _column(table, "after", None)
    is_delete = pc.fill_null(pc.equal(operation, "d"), False)
    state_is_there = pc.if_else(is_delete, pc.is_valid(before), pc.is_valid(after))
    is_change = pc.and_(pc.is_in(operation, _CHANGES), state_is_there)
    if not pc.all(is_change).as_py():
        for at in pc.indices_nonzero(pc.invert(is_change)).to_pylist():
            text = _why(operation[at].as_py())
            decoded.bad.append(BadMessage(int(numbers[at]), RECORD_FAILURE, text))
        decoded.bad.sort()
        table, numbers = table.filter(is_change), numbers[np.asarray(is_change)]
        if not table.num_rows:
            return Decoded(pa.table({}), numbers, decoded.bad)
        operation, is_delete = operation.filter(is_change), is_delete.filter(is_change)
        before, after = before.filter(is_change), after.filter(is_change)
    columns = _states(before, after, is_delete)
    if not hudi:
        return Decoded(pa.table({**columns, IS_DELETED_COLUMN: is_delete}), numbers, decoded.bad)
    source = _column(table, "source", None)
    meta: dict[str, Any] = {OPERATION: operation, _PROCESSED: _column(table, "ts_ms", pa.int64())}
    is_mysql = _part(source, "file", pa.string()).null_count < len(source)
    for name, part in {**_COMMON, **(_MYSQL if is_mysql else _POSTGRES)}.items():
        meta[name] = _part(source, part, _SOURCE.field(part).type)
    if is_mysql:
        file = pc.replace_substring_regex(meta["_event_bin_file"], r"^.*\.", "")
        meta[_SEQUENCE] = pc.binary_join_element_wise(file, pc.cast(meta["_event_pos"], pa.string()), ".")
    return Decoded(pa.table({**meta, **columns}), numbers, decoded.bad)


def table_defaults(rows: pa.Table, version: int) -> dict[str, Any]:
    """How a table of Hudi's columns orders the changes of a key."""
    if "_event_lsn" in rows.column_names:
        return {"ordering": "_event_lsn", "merge": "PostgresDebeziumAvroPayload"}
    if _SEQUENCE in rows.column_names:
        # before version 9 the payload compares the two parts of the text as numbers
        ordering = ["_event_bin_file", "_event_pos"] if version >= _ORDERING_BY_COLUMNS else _SEQUENCE
        return {"ordering": ordering, "merge": "MySqlDebeziumAvroPayload"}
    return {}


def _why(operation: str | None) -> str:
    if operation is None:
        return "the message is no envelope of Debezium: it has no operation (op)"
    if operation in _CHANGES.to_pylist():
        which = "before" if operation == "d" else "after"
        return f"the change {operation!r} has no state {which} it"
    return f"the operation {operation!r} is no change of a row"


def _column(table: pa.Table, name: str, kind: pa.DataType | None) -> Any:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind or pa.struct([]))
    column = table.column(name).combine_chunks()
    array = pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column
    return array if kind is None or array.type.equals(kind) else array.cast(kind)


def _part(struct: Any, name: str, kind: pa.DataType) -> Any:
    """A field of a struct, null where there is none."""
    if not pt.is_struct(struct.type) or struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), kind)
    return pc.struct_field(struct, name).cast(kind)


def _states(before: Any, after: Any, is_delete: Any) -> dict[str, Any]:
    """The columns of the rows: of `after`, of deletes those of `before`."""
    names = list(dict.fromkeys(field.name for state in (after, before) for field in state.type))
    columns: dict[str, Any] = {}
    for name in names:
        parts = [pc.struct_field(s, name) for s in (before, after) if s.type.get_field_index(name) >= 0]
        kinds = [part.type for part in parts if not pt.is_null(part.type)]
        if not kinds:
            continue
        fields = [pa.schema([(name, kind)]) for kind in kinds]
        kind = pa.unify_schemas(fields, promote_options="permissive").field(0).type
        columns[name] = pc.if_else(is_delete, _part(before, name, kind), _part(after, name, kind))
    return columns
