"""Avro records written column by column: what fastavro writes for the same rows, byte for byte."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict
from lakebed.format.avro.writer import write_records
from lakebed.schema.avro import avro_to_arrow
from support.avro_values import MAKERS, NULL, ORDERS, batch_of, by_fastavro, column, record


@pytest.mark.every_case
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", list(MAKERS))
def test_values_of_every_type_are_written_as_fastavro_writes_them(name: str, order: str) -> None:
    schema, rows = column(name, order, 300)
    batch = batch_of(rows, schema)
    wanted = by_fastavro(rows, schema)
    pieces, count = write_records([batch], schema)
    assert (b"".join(pieces), count) == (wanted, 300)
    # a part of a batch has its arrays somewhere in the middle
    parts, _ = write_records([batch.slice(0, 7), batch.slice(7, 100), batch.slice(107)], schema)
    assert b"".join(parts) == wanted


@pytest.mark.parametrize("value", [None, "", "one text"])
def test_dictionaries_are_written_as_their_values(value: str | None) -> None:
    schema = record(("a", [NULL, "string"]), ("b", [NULL, "string"]))
    rows = [{"a": value, "b": ("x", "yy", None)[i % 3]} for i in range(50)]
    plain = batch_of(rows, schema)
    encoded = pa.RecordBatch.from_arrays([c.dictionary_encode() for c in plain.columns], names=["a", "b"])
    assert b"".join(write_records([encoded], schema)[0]) == by_fastavro(rows, schema)
    assert b"".join(write_records([encoded.slice(10, 20)], schema)[0]) == by_fastavro(rows[10:30], schema)


def test_a_union_of_several_types_is_written_from_the_member_that_is_there() -> None:
    schema = record(("v", [NULL, "string", "long"]))
    rows = [
        {"member0": "a", "member1": None},
        None,
        {"member0": None, "member1": 300},
        {"member0": "b", "member1": None},
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(rows, avro_to_arrow(schema).field("v").type)], names=["v"])
    wanted = by_fastavro([{"v": "a"}, {"v": None}, {"v": 300}, {"v": "b"}], schema)
    assert b"".join(write_records([batch], schema)[0]) == wanted


def test_a_field_that_is_always_null_takes_no_column() -> None:
    schema = record(("a", "long"), ("nothing", NULL), ("b", [NULL, "long"]))
    batch = pa.RecordBatch.from_pydict({"a": [1, 2], "b": [None, 3]})
    assert b"".join(write_records([batch], schema)[0]) == by_fastavro([{"a": 1, "b": None}, {"a": 2, "b": 3}], schema)


def test_no_rows_are_no_bytes() -> None:
    schema = record(("a", "long"))
    assert write_records([], schema) == ([], 0)
    assert write_records([pa.RecordBatch.from_pydict({"a": pa.array([], pa.int64())})], schema) == ([], 0)


def test_a_null_where_the_schema_has_none_is_refused_by_name() -> None:
    batch = pa.RecordBatch.from_pydict({"a": pa.array([1, None], pa.int64())})
    with pytest.raises(SchemaConflict, match="column 'a' has 1 null"):
        write_records([batch], record(("a", "long")))
