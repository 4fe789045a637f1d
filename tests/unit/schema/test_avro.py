from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict, UnsupportedFeature
from lakebed.format.avro.encoder import decode_record
from lakebed.format.avro.writer import write_records
from lakebed.model import META_COLUMNS
from lakebed.schema.arrow import list_of, map_of, normalise
from lakebed.schema.avro import (
    arrow_to_avro,
    avro_to_arrow,
    avro_with_meta,
    avro_without_meta,
    decimal_bytes,
    sanitise_name,
)
from lakebed.schema.logical_types import VARIANT, vector
from support.golden_tables import GoldenTable, golden_tables, spread


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    entries = [
        {"name": n, "type": t, "default": None} if isinstance(t, list) else {"name": n, "type": t} for n, t in fields
    ]
    return {"type": "record", "name": "t_record", "namespace": "hoodie.t", "fields": entries}


def fixed_decimal(column: str, precision: int, scale: int, parent: str = "hoodie.t.t_record") -> dict[str, Any]:
    return {
        "type": "fixed",
        "name": "fixed",
        "namespace": f"{parent}.{column}",
        "size": decimal_bytes(precision),
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


PAIRS: list[tuple[Any, pa.DataType]] = [
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("bytes", pa.binary()),
    ("string", pa.string()),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    (fixed_decimal("c", 12, 2), pa.decimal128(12, 2)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}, pa.decimal128(9, 1)),
    ({"type": "fixed", "name": "F", "size": 12}, pa.binary(12)),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string()),
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "array", "items": ["null", "int"]}, list_of(pa.int32())),
    (
        {"type": "array", "items": {"type": "array", "items": "string"}},
        list_of(list_of(pa.string(), nullable=False), nullable=False),
    ),
    ({"type": "map", "values": "double"}, map_of(pa.float64(), nullable=False)),
    (
        {
            "type": "record",
            "name": "c",
            "namespace": "hoodie.t.t_record",
            "fields": [
                {"name": "x", "type": ["null", fixed_decimal("x", 5, 0, "hoodie.t.t_record.c")], "default": None},
                {"name": "y", "type": "int"},
            ],
        },
        pa.struct([("x", pa.decimal128(5, 0)), pa.field("y", pa.int32(), False)]),
    ),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("avro", "arrow"), PAIRS, ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_both_ways(avro: Any, arrow: pa.DataType, nullable: bool):
    schema = record(("c", ["null", avro] if nullable else avro), ("last", "string"))
    converted = avro_to_arrow(schema)
    assert converted.equals(pa.schema([pa.field("c", arrow, nullable), pa.field("last", pa.string(), False)]))
    assert normalise(converted).equals(converted, check_metadata=True)
    assert json.loads(arrow_to_avro(converted, "t")) == schema


def test_null_may_stand_second_in_a_union():
    assert avro_to_arrow(record(("c", ["string", "null"]))).field("c").nullable


def test_a_union_of_several_types_is_a_struct_and_comes_back():
    schema = record(("c", ["null", "int", "string"]))
    converted = avro_to_arrow(schema)
    assert converted.field("c").type == pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    assert json.loads(arrow_to_avro(converted, "t")) == schema


def test_fields_of_type_null_are_left_out():
    assert avro_to_arrow(record(("n", "null"), ("m", ["null"]), ("c", "int"))).names == ["c"]


def test_java_string_annotations_do_not_matter():
    text = {"type": "string", "avro.java.string": "String"}
    assert avro_to_arrow(record(("c", ["null", text]))).equals(pa.schema([("c", pa.string())]))


def test_named_types_may_be_used_again():
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    schema = record(("a", enum), ("b", ["null", "E"]), ("c", {"type": "array", "items": "hoodie.t.E"}))
    converted = avro_to_arrow(schema)
    assert converted.types == [pa.string(), pa.string(), list_of(pa.string(), nullable=False)]
    back = json.loads(arrow_to_avro(converted, "t"))
    assert [f["type"] for f in back["fields"]] == [
        enum,
        ["null", "hoodie.t.E"],
        {"type": "array", "items": "hoodie.t.E"},
    ]
    fastavro.parse_schema(back)


def test_a_record_that_holds_itself_is_refused():
    node = {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
    with pytest.raises(UnsupportedFeature, match="holds itself"):
        avro_to_arrow(record(("c", node)))


@pytest.mark.parametrize("avro", ['"string"', record(("c", "Unknown"))])
def test_a_schema_that_makes_no_table_is_refused(avro: Any):
    with pytest.raises(SchemaConflict):
        avro_to_arrow(avro)


@pytest.mark.parametrize("table", spread(golden_tables(lambda t: not t.entry.get("without_dump"))), ids=str)
def test_schemas_of_real_commits_come_back_letter_by_letter(table: GoldenTable):
    texts = schemas_in(table.more("timeline.json"))
    assert texts
    for text in texts:
        name = json.loads(text)["name"].removesuffix("_record")
        has_meta = META_COLUMNS[0] in text
        assert arrow_to_avro(avro_to_arrow(text), name, meta=has_meta) == text
        assert avro_without_meta(avro_with_meta(text)) == avro_without_meta(text)


def schemas_in(node: Any) -> set[str]:
    if isinstance(node, list):
        return set().union(*(schemas_in(child) for child in node))
    if not isinstance(node, dict):
        return set()
    own = (node.get("extraMetadata") or {}).get("schema") if isinstance(node.get("extraMetadata"), dict) else None
    return set().union({own} if own else set(), *(schemas_in(child) for child in node.values()))


def test_meta_columns_are_put_in_front_once():
    text = avro_with_meta(json.dumps(record(("c", "int"))))
    fields = json.loads(text)["fields"]
    assert [f["name"] for f in fields] == [*META_COLUMNS, "c"]
    assert fields[0] == {"name": META_COLUMNS[0], "type": ["null", "string"], "doc": "", "default": None}
    assert avro_with_meta(text) == text
    assert arrow_to_avro(avro_to_arrow(text), "t", meta=True) == text
    assert arrow_to_avro(avro_to_arrow(text), "t") == avro_without_meta(text)


@pytest.mark.parametrize("name", ["größe", "数", "_x1", "UPPER"])
def test_names_of_any_script_are_kept(name: str):
    text = arrow_to_avro(pa.schema([(name, pa.int32())]), "t")
    assert f'"name":"{name}"' in text


@pytest.mark.parametrize("name", ["a b", "a.b", "1a", "a-b", "😀", "a€"])
def test_names_that_hudi_cannot_parse_are_refused(name: str):
    with pytest.raises(SchemaConflict, match="Avro"):
        arrow_to_avro(pa.schema([("s", pa.struct([(name, pa.int32())]))]), "t")


@pytest.mark.parametrize(("name", "avro"), [("trips", "trips"), ("my-trips.v2", "my__trips__v2"), ("2x", "__x")])
def test_table_names_in_avro(name: str, avro: str):
    assert sanitise_name(name) == avro


@pytest.mark.parametrize("precision", range(1, 39))
def test_decimals_get_the_fewest_bytes(precision: int):
    size = decimal_bytes(precision)
    assert 2 ** (8 * size - 1) - 1 >= 10**precision - 1 > 2 ** (8 * (size - 1) - 1) - 1


def test_avro_readers_accept_what_is_written():
    schema = avro_to_arrow(record(*[(f"c{i}", ["null", avro]) for i, (avro, _) in enumerate(PAIRS[:14])]))
    parsed = fastavro.parse_schema(json.loads(arrow_to_avro(schema, "t", meta=True)))
    fastavro.schemaless_writer(io.BytesIO(), parsed, {})


def test_two_columns_of_one_type_without_a_namespace() -> None:
    columns = pa.schema([("id", pa.int64()), ("a", vector(2)), ("b", vector(2)), ("v", VARIANT), ("w", VARIANT)])
    stored = normalise(columns)
    text = arrow_to_avro(stored, "t")
    assert text.count('"vector_float_2"') == 2
    assert avro_to_arrow(text).equals(stored, check_metadata=True)
    rows = pa.record_batch(
        {
            "id": [1],
            "a": pa.array([[1, 2]], vector(2)),
            "b": pa.array([[3, 4]], vector(2)),
            "v": pa.array([{"metadata": b"m", "value": b"v"}], stored.field("v").type),
            "w": pa.array([{"metadata": b"n", "value": b"w"}], stored.field("w").type),
        }
    )
    (written,), _ = write_records([rows], text)
    assert decode_record(text, written[4:])["b"] == np.array([3, 4], "<f4").tobytes()
