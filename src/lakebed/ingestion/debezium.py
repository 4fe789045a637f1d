"""Changes in Debezium's envelopes as rows: each with its operation, and Hudi's columns for where the change is from."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from lakebed.errors import InvalidOption
from lakebed.ingestion.avro_messages import decode_avro_groups
from lakebed.ingestion.columns import with_elements
from lakebed.ingestion.connect_types import Meaning, by_connect_schema, meanings_of_avro, meanings_of_connect
from lakebed.ingestion.json_messages import decode_json, disputed_types
from lakebed.ingestion.messages import BadMessage, Decoded, DecodedGroups, decode_by_halving
from lakebed.ingestion.source import RECORD_FAILURE
from lakebed.inputs.inference import unified
from lakebed.merge.unavailable import filled_inside, may_mark_inside, unavailable_values
from lakebed.model import IS_DELETED_COLUMN
from lakebed.properties.table_config import UNAVAILABLE_VALUE

Types = Mapping[str, pa.DataType]

OPERATION = "_change_operation_type"
_STATES = ("before", "after")
_TRANSACTION = "txId"
_SOURCE = pa.struct(
    [
        ("connector", pa.string()),
        ("name", pa.string()),
        ("schema", pa.string()),
        ("ts_ms", pa.int64()),
        (_TRANSACTION, pa.int64()),
        ("lsn", pa.int64()),
        ("xmin", pa.int64()),
        ("file", pa.string()),
        ("pos", pa.int64()),
        ("row", pa.int32()),
        ("change_lsn", pa.string()),
        ("commit_lsn", pa.string()),
        ("event_serial_no", pa.int64()),
        ("scn", pa.string()),
        ("commit_scn", pa.string()),
    ]
)
# PostgreSQL's transactions are numbers, those of other databases texts.
_READ_SOURCE = pa.struct([part for part in _SOURCE if part.name != _TRANSACTION])
# Hudi's columns, by the fields of the envelope's source.
_COMMON = {"db_shard_source_partition": "name", "_event_origin_ts_ms": "ts_ms"}
_SCHEMA = {"db_schema_source_partition": "schema"}
_LSN, _FILE = "_event_lsn", "_event_bin_file"
_POSTGRES = {**_SCHEMA, "_event_tx_id": _TRANSACTION, _LSN: "lsn", "_event_xmin": "xmin"}
_MYSQL = {_FILE: "file", "_event_pos": "pos", "_event_row": "row"}
_SEQUENCE = "_event_seq"
_POSITION = "_event_position"
_PROCESSED = "_upstream_event_processed_ts_ms"
META_COLUMNS = frozenset(
    [OPERATION, IS_DELETED_COLUMN, _PROCESSED, _SEQUENCE, _POSITION, *_COMMON, *_POSTGRES, *_MYSQL]
)
_ORDERING_BY_COLUMNS = 9
_CHANGES = pa.array(["c", "r", "u", "d"])
# Digits of a number in a position that is compared as text; SQL Server's log positions before the first change.
_DIGITS = 20
_NO_CHANGE_LSN = "00000000:00000000:0000"
# Debezium writes the marker of a value that it does not have as bytes, too.
_MARKER = UNAVAILABLE_VALUE.encode()
_MARKERS = pa.array([base64.b64encode(_MARKER).decode(), _MARKER.hex()])


@dataclass(frozen=True)
class Envelopes:
    """The rules by which envelopes become rows. Columns of `types` get these types. With `hudi` rows have Hudi's
    columns of Debezium sources, otherwise `_hoodie_is_deleted` and the position in the database's log. `partition` are
    columns of a partition path in which alone rows are found: an update that changes them is a delete of the old row
    and a new row."""

    types: Types = field(default_factory=dict[str, pa.DataType])
    hudi: bool = True
    partition: Sequence[str] = ()


def decode_debezium_json(messages: pa.Array, how: Envelopes) -> Decoded:
    """The rows of JSON envelopes, each with or without Kafka Connect's `schema` and `payload`."""
    groups = DecodedGroups(RECORD_FAILURE)
    for bodies, numbers, schema in by_connect_schema(messages):
        for decoded, meanings in _envelopes(bodies, how, meanings_of_connect(schema)):
            groups.take(rows_of_envelopes(decoded.of(numbers), how, meanings))
    return groups.decoded()


def decode_debezium_avro(messages: pa.Array, schema_of: Callable[[int], str], how: Envelopes) -> Decoded:
    """The rows of Avro envelopes with the frame of a schema registry."""
    groups = DecodedGroups(RECORD_FAILURE)
    for decoded, schema in decode_avro_groups(messages, schema_of):
        groups.take(rows_of_envelopes(decoded, how, meanings_of_avro(schema)))
    return groups.decoded()


def _envelopes(
    bodies: pa.Array, how: Envelopes, meanings: Mapping[str, Meaning]
) -> list[tuple[Decoded, Mapping[str, Meaning]]]:
    """The envelopes of messages of one schema, with the meanings of their columns. Envelopes in a `payload` and
    envelopes without one are separate elements."""
    column_types = {name: kind for name, kind in how.types.items() if name not in META_COLUMNS}
    meanings = {name: meaning for name, meaning in meanings.items() if name not in META_COLUMNS}
    numeric = _written_as_numbers(bodies, meanings)
    column_types |= {
        name: kind for name in numeric if (kind := meanings[name].stored(column_types.get(name))) is not None
    }
    meanings = {name: meaning for name, meaning in meanings.items() if name not in numeric}
    read = {
        name: kind for name, meaning in meanings.items() if (kind := meaning.read(column_types.get(name))) is not None
    }
    bodies, numbers, ambiguous = _without_ambiguous(
        bodies, {name for name in column_types if name not in read}, column_types
    )
    row_types = {**column_types, **read}
    decoded = _decoded(bodies, row_types)
    # a name in another case is the column of the table
    folded = {name.lower(): kind for name, kind in row_types.items()}
    names = {name for state in _state_tables(decoded.rows) for name in state.column_names} - row_types.keys()
    cased = {name: folded[name.lower()] for name in sorted(names) if name.lower() in folded}
    if cased:
        row_types |= cased
        decoded = _decoded(bodies, row_types)
    if disputed := disputed_types(_state_tables(decoded.rows), row_types):
        decoded = _decoded(bodies, {**row_types, **disputed})
    decoded = decoded.of(numbers)
    decoded.bad += ambiguous
    if not decoded.rows.num_columns:
        return [(decoded, meanings)]
    payload = _column(decoded.rows, "payload", None)
    is_wrapped = payload.is_valid()
    flags = np.asarray(is_wrapped)
    inner = pa.table({part.name: pc.struct_field(payload, part.name) for part in payload.type})
    plain = decoded.rows.drop_columns(["payload"])
    return [
        (Decoded(plain.filter(pc.invert(is_wrapped)), decoded.numbers[~flags], decoded.bad), meanings),
        (Decoded(inner.filter(is_wrapped), decoded.numbers[flags]), meanings),
    ]


def _decoded(bodies: pa.Array, row_types: Types) -> Decoded:
    row = pa.struct(list(row_types.items()))
    fields = {"op": pa.string(), "ts_ms": pa.int64(), "source": _READ_SOURCE, "before": row, "after": row}
    return decode_json(bodies, {**fields, "payload": pa.struct(list(fields.items()))}, _needed)


def _needed(envelopes: pa.Table) -> pa.Table:
    """The fields of envelopes that are needed for rows, including those in a `payload`."""
    payload = _column(envelopes, "payload", None)
    plain, inner = _needed_fields(partial(_column, envelopes)), _needed_fields(partial(_part, payload))
    return pa.table(
        {**plain, "payload": pa.StructArray.from_arrays(list(inner.values()), list(inner), mask=payload.is_null())}
    )


def _needed_fields(field_of: Callable[[str, pa.DataType | None], Any]) -> dict[str, Any]:
    source = field_of("source", None)
    parts = _source_parts(source)
    source_fields = pa.StructArray.from_arrays(list(parts.values()), list(parts), mask=source.is_null())
    fields = {"op": field_of("op", pa.string()), "ts_ms": field_of("ts_ms", pa.int64()), "source": source_fields}
    return {**fields, **{name: field_of(name, None) for name in _STATES}}


def _state_tables(envelopes: pa.Table) -> list[pa.Table]:
    """The columns of the states before and after the changes, whose types have to be compatible."""
    if not envelopes.num_columns:
        return []
    payload = _column(envelopes, "payload", None)
    states = [_state(envelopes, name) for name in _STATES] + [_part(payload, name, None) for name in _STATES]
    return [
        pa.table({part.name: pc.struct_field(state, part.name) for part in state.type})
        for state in states
        if pt.is_struct(state.type)
    ]


def _written_as_numbers(bodies: pa.Array, meanings: Mapping[str, Meaning]) -> set[str]:
    """The names of decimal columns that the messages hold as JSON numbers (`decimal.format=NUMERIC`)."""
    return {
        name
        for name, meaning in meanings.items()
        if meaning.kind == "decimal"
        and _any_has(bodies, _named(name, "-?[0-9]"))
        and not _any_has(bodies, _named(name, '"'))
    }


def _any_has(bodies: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(bodies, pattern)).as_py())


def _without_ambiguous(
    bodies: pa.Array, names: set[str], column_types: Types
) -> tuple[pa.Array, np.ndarray, list[BadMessage]]:
    """The messages and their numbers without those in which a text of digits, in a decimal column with places, may be
    base64 as well as the number itself, since no schema decides it; those are bad messages."""
    names = {name for name in names if pt.is_decimal(column_types[name]) and column_types[name].scale > 0}
    bad: list[BadMessage] = []
    is_clear = np.ones(len(bodies), bool)
    for name in sorted(names):
        is_digits = np.asarray(pc.match_substring_regex(bodies, _named(name, '"(?:[0-9]{4})+"')))
        text = (
            f"column {name}: digits alone in a decimal may be the number or the base64 of another one: set"
            " value.converter.schemas.enable=true, or let Debezium write its places"
        )
        bad += [BadMessage(number, RECORD_FAILURE, text) for number in np.flatnonzero(is_digits & is_clear).tolist()]
        is_clear &= ~is_digits
    numbers = np.flatnonzero(is_clear)
    return (bodies.take(pa.array(numbers)) if bad else bodies), numbers, bad


def _named(name: str, value: str) -> str:
    quoted = "".join(letter if letter.isalnum() or letter == "_" else f"[{letter}]" for letter in name)
    return f'"{quoted}"\\s*:\\s*{value}'


def rows_of_envelopes(decoded: Decoded, how: Envelopes, meanings: Mapping[str, Meaning] | None = None) -> Decoded:
    """The rows of decoded envelopes: the state after the change, of a delete the state before.

    An envelope without an operation or without the state that it needs is bad, as are truncations of a table, and,
    where rows are found by their partition path, changes that do not say what that was."""
    table, numbers, bad = decoded.rows, decoded.numbers, list(decoded.bad)
    if not table.num_rows:
        return Decoded(pa.table({}), numbers, bad)
    operation = _column(table, "op", pa.string())
    before, after = _state(table, "before"), _state(table, "after")
    is_delete = pc.fill_null(pc.equal(operation, "d"), False)
    state_is_there = pc.if_else(is_delete, pc.is_valid(before), pc.is_valid(after))
    is_change = pc.and_(pc.fill_null(pc.is_in(operation, _CHANGES), False), state_is_there)
    bad += [
        BadMessage(int(numbers[at]), RECORD_FAILURE, _why(operation[at].as_py()))
        for at in pc.indices_nonzero(pc.invert(is_change)).to_pylist()
    ]
    table, numbers = table.filter(is_change), numbers[np.asarray(is_change)]
    if not table.num_rows:
        return Decoded(pa.table({}), numbers, sorted(bad))
    old, (new, lacks) = _state(table, "before"), _with_values_before(table)
    operation = _column(table, "op", pa.string())
    if new.type.num_fields:
        table = table.set_column(table.column_names.index("after"), "after", new)
    if how.partition:
        table, numbers, operation = _with_moves(
            table.append_column("", pa.array(lacks)), numbers, operation, how.partition, bad
        )
        old, new = _state(table, "before"), _state(table, "after")
    is_delete = pc.equal(operation, "d")
    meta = _meta(table, operation, hudi=how.hudi)
    marked = {IS_DELETED_COLUMN: is_delete}
    # the columns of `after`, of deletes those of `before`
    kinds = {part.name: _type_in([old, new], part.name) for state in (new, old) for part in state.type}
    state = {n: pc.if_else(is_delete, _part(old, n, kind), _part(new, n, kind)) for n, kind in kinds.items()}
    rows = pa.table({**meta, **state} if how.hudi else {**state, **marked, **meta})
    return _typed(Decoded(rows, numbers, sorted(bad)), meanings or {}, how.types)


def _with_values_before(table: pa.Table) -> tuple[Any, Any]:
    """The states after the changes, in which a value that the database left out is taken from the state before, if that
    has it; and flags of the changes that still lack a value."""
    old, new = _state(table, "before"), _state(table, "after")
    lacks, columns = np.zeros(len(new), bool), dict[str, Any]()
    for part in new.type:
        values = _with_text_markers(pc.struct_field(new, part.name))
        at = old.type.get_field_index(part.name)
        is_same = at >= 0 and old.type.field(at).type.equals(values.type)
        other = pc.struct_field(old, part.name) if is_same else pa.nulls(len(new), values.type)
        is_known = np.asarray(other.is_valid())
        flags = unavailable_values(values, UNAVAILABLE_VALUE)
        if flags is not None and flags.any():
            values = pc.if_else(pa.array(flags & is_known), other, values)
            lacks |= flags & ~is_known
        if may_mark_inside(values.type):
            values, _ = filled_inside(values, other, UNAVAILABLE_VALUE, is_known)
        columns[part.name] = values
    if not columns:
        return new, lacks
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=new.is_null()), lacks


def _with_moves(
    table: pa.Table, numbers: np.ndarray, operation: Any, partition: Sequence[str], bad: list[BadMessage]
) -> tuple[pa.Table, np.ndarray, Any]:
    """The envelopes with a delete before each update that changes the partition path, without those that do not have
    the old path (they are bad), with their numbers and operations."""
    old, new = _state(table, "before"), _state(table, "after")
    is_update, is_delete = pc.equal(operation, "u"), pc.equal(operation, "d")
    says_path, differs = pc.is_valid(old), pa.array(np.zeros(len(old), bool))
    for name in partition:
        kind = _type_in([old, new], name)
        was, becomes = _part(old, name, kind), _part(new, name, kind)
        says_path = pc.and_(says_path, was.is_valid())
        differs = pc.or_(differs, pc.fill_null(pc.not_equal(was, becomes), True))
    is_move = np.asarray(pc.and_(pc.and_(is_update, differs), says_path))
    # a row that moves takes no value from the stored one: it lies in another partition path
    says_path = pc.and_(says_path, pa.array(~(is_move & np.asarray(table.column("")))))
    is_unknown = pc.and_(pc.or_(is_update, is_delete), pc.invert(says_path))
    names = ", ".join(partition)
    for at in pc.indices_nonzero(is_unknown).to_pylist():
        text = (
            f"the change {operation[at].as_py()!r} does not say the row before it with its partition path ({names}), by"
            " which the table's index finds rows: take a global index, or let the database log whole rows"
            " (REPLICA IDENTITY FULL)"
        )
        bad.append(BadMessage(int(numbers[at]), RECORD_FAILURE, text))
    counts = np.where(np.asarray(is_unknown), 0, np.where(is_move, 2, 1))
    at = np.repeat(np.arange(len(counts)), counts)
    is_first = np.concatenate([[True], at[1:] != at[:-1]])[: len(at)]
    operations = pc.if_else(pa.array(is_first & is_move[at]), "d", operation.take(pa.array(at)))
    return table.take(pa.array(at)), numbers[at], operations


def _typed(rows: Decoded, meanings: Mapping[str, Meaning], types: Types) -> Decoded:
    """The rows with columns in the types that they mean; rows with a value that cannot be converted are bad."""
    table = rows.rows
    of_columns = {name: meaning for name, meaning in meanings.items() if name in table.column_names}
    if not of_columns:
        return Decoded(table, rows.numbers, rows.bad)
    bad: list[BadMessage] = []
    change = partial(_in_meaning, meanings=of_columns, types=types)
    parts = decode_by_halving(table, change, change, 0, bad, RECORD_FAILURE)
    bad = [message._replace(number=int(rows.numbers[message.number])) for message in bad]
    row_numbers = np.concatenate([np.arange(start, end) for _, start, end in parts] or [np.zeros(0, np.int64)])
    order = np.argsort(row_numbers, kind="stable")
    typed = pa.concat_tables([part for part, _, _ in parts]).take(pa.array(order)) if parts else pa.table({})
    return Decoded(typed, rows.numbers[row_numbers[order]], sorted([*rows.bad, *bad]))


def _in_meaning(rows: pa.Table, meanings: Mapping[str, Meaning], types: Types) -> pa.Table:
    for name, meaning in meanings.items():
        values = meaning.typed(_array(rows.column(name)), types.get(name))
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return rows


def _has_texts(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(_has_texts(part.type) for part in kind)
    return _has_texts(kind.value_type) if pt.is_list(kind) else pt.is_string(kind)


def _with_text_markers(values: pa.Array) -> pa.Array:
    """The values with the marker of an unavailable value as text, where it is the base64 text or the digits of its
    bytes."""
    if pt.is_string(values.type):
        is_marker = pc.is_in(values, _MARKERS)
        return pc.if_else(is_marker, UNAVAILABLE_VALUE, values) if pc.any(is_marker).as_py() else values
    if pt.is_list(values.type) and _has_texts(values.type):
        return with_elements(values, _with_text_markers(values.flatten()))
    if pt.is_struct(values.type) and _has_texts(values.type):
        children = [_with_text_markers(pc.struct_field(values, part.name)) for part in values.type]
        return pa.StructArray.from_arrays(children, [part.name for part in values.type], mask=values.is_null())
    return values


def _meta(table: pa.Table, operation: Any, *, hudi: bool) -> dict[str, Any]:
    """The columns with the origin of changes: Hudi's columns, or only the position in the database's log."""
    source = _column(table, "source", None)
    parts = _source_parts(source)
    is_mysql = parts["file"].null_count < len(source)
    position = _log_position(parts)
    if not hudi:
        if is_mysql:
            position = _joined(_padded(_file_number(parts["file"])), _padded(parts["pos"].cast(pa.string())))
        if position is not None:
            return {_POSITION: position}
        return {_LSN: parts["lsn"]} if parts["lsn"].null_count < len(source) else {}
    names = {**_COMMON, **(_MYSQL if is_mysql else _SCHEMA if position is not None else _POSTGRES)}
    meta: dict[str, Any] = {OPERATION: operation, _PROCESSED: _column(table, "ts_ms", pa.int64())}
    meta |= {name: parts[part] for name, part in names.items()}
    if is_mysql:
        meta[_SEQUENCE] = _joined(_file_number(parts["file"]), parts["pos"].cast(pa.string()))
    elif position is not None:
        meta[_POSITION] = position
    return meta


def _source_parts(source: Any) -> dict[str, Any]:
    """The fields of an envelope's source. A transaction that is not a number is null."""
    parts = {part.name: _part(source, part.name, part.type) for part in _READ_SOURCE}
    transaction = _part(source, _TRANSACTION, None)
    if pt.is_string(transaction.type):
        transaction = pc.if_else(pc.match_substring_regex(transaction, "^[0-9]{1,18}$"), transaction, None)
    elif not pt.is_integer(transaction.type):
        transaction = pa.nulls(len(source))
    return {**parts, _TRANSACTION: transaction.cast(pa.int64())}


def _log_position(parts: Mapping[str, Any]) -> Any:
    """The position in the log of SQL Server, Db2 or Oracle, as a text that sorts; None for other databases."""
    if parts["commit_lsn"].null_count < len(parts["commit_lsn"]):
        change = pc.fill_null(parts["change_lsn"], _NO_CHANGE_LSN)
        serial = pc.fill_null(parts["event_serial_no"], 0).cast(pa.string())
        return _joined(_joined(pc.utf8_lower(parts["commit_lsn"]), pc.utf8_lower(change)), _padded(serial))
    if parts["scn"].null_count < len(parts["scn"]):
        commit = pc.coalesce(parts["commit_scn"], parts["scn"])
        return _joined(_padded(commit), _padded(parts["scn"]))
    return None


def _joined(left: Any, right: Any) -> Any:
    return pc.binary_join_element_wise(left, right, ".")


def _padded(numbers: Any) -> Any:
    """Whole numbers as texts of one length, which sort as the numbers do; null for any other text."""
    is_number = pc.match_substring_regex(numbers, "^[0-9]+$")
    return pc.utf8_lpad(pc.if_else(is_number, numbers, None), _DIGITS, "0")


def _file_number(files: Any) -> Any:
    return pc.replace_substring_regex(files, r"^.*\.", "")


def table_defaults(rows: pa.Table, version: int) -> dict[str, Any]:
    """The settings by which a table of changes orders the changes of a key. Raises `InvalidOption` if no change has a
    position in a log that lakebed supports."""
    names = rows.column_names
    if _POSITION in names:
        deletes = {"hoodie.payload.delete.field": OPERATION, "hoodie.payload.delete.marker": "d"}
        return {"ordering": _POSITION, **({"properties": deletes} if OPERATION in names else {})}
    if _LSN in names:
        if rows.column(_LSN).null_count == rows.num_rows:
            raise InvalidOption(
                "the changes name no position in a log of PostgreSQL, MySQL, SQL Server, Db2 or Oracle, by which those"
                " of one key are ordered",
                hint='name a column that grows with each change: [target] create = { ordering = "..." }',
            )
        return {"ordering": _LSN, "merge": "PostgresDebeziumAvroPayload"}
    if _SEQUENCE in names:
        # before version 9 the payload compares the two parts of the text as numbers
        ordering = [_FILE, "_event_pos"] if version >= _ORDERING_BY_COLUMNS else _SEQUENCE
        return {"ordering": ordering, "merge": "MySqlDebeziumAvroPayload"}
    return {}


def _why(operation: str | None) -> str:
    if operation is None:
        return "the message is no envelope of Debezium: it has no operation (op)"
    if operation in _CHANGES.to_pylist():
        which = "before" if operation == "d" else "after"
        return f"the change {operation!r} has no state {which} it"
    return f"the operation {operation!r} is no change of a row"


def _array(column: pa.ChunkedArray) -> Any:
    array = column.combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _column(table: pa.Table, name: str, kind: pa.DataType | None) -> Any:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind or pa.struct([]))
    array = _array(table.column(name))
    return array if kind is None or array.type.equals(kind) else array.cast(kind)


def _state(table: pa.Table, name: str) -> Any:
    """A state of the rows as structs, null for a message without one."""
    states = _column(table, name, None)
    return states if pt.is_struct(states.type) else pa.nulls(len(states), pa.struct([]))


def _part(struct: Any, name: str, kind: pa.DataType | None) -> Any:
    """A field of a struct, null if there is none; with `kind` None in its own type."""
    if not pt.is_struct(struct.type) or struct.type.get_field_index(name) < 0:
        return pa.nulls(len(struct), kind or pa.null())
    part = pc.struct_field(struct, name)
    return part if kind is None else part.cast(kind)


def _type_in(states: Sequence[Any], name: str) -> pa.DataType:
    """The type that keeps the values of a field in all states."""
    fields = [state.type.field(name) for state in states if state.type.get_field_index(name) >= 0]
    return unified([pa.schema([field]) for field in fields]).field(0).type if fields else pa.null()
