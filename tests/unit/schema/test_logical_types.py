"""Vectors, blobs and variants: names, Arrow and Avro forms, and the values that a column takes."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CorruptFile, InvalidRecord, SchemaConflict
from lakebed.schema.arrow import normalise
from lakebed.schema.assignment import SQL, check_fits, in_column, project_incoming
from lakebed.schema.avro import arrow_to_avro, avro_to_arrow, in_logical_types
from lakebed.schema.column_changes import ColumnChange, changed
from lakebed.schema.conversion import can_cast, cast_column
from lakebed.schema.evolution import is_promotion, reconcile
from lakebed.schema.logical_types import (
    HUDI_TYPE,
    descriptor_of,
    file_values,
    is_vector,
    parse_vector,
    struct_avro,
    vector_columns,
    vector_name,
    vectors_of_bytes,
)
from lakebed.schema.spark import spark_json_to_arrow
from lakebed.schema.type_names import column_type

VECTOR = lakebed.vector(4)
FIELD = pa.field("emb", VECTOR)
VECTORS = pa.array([[1, 2, 3, 4], None, [5, 6, 7, 8], [0, -1, 0.5, 2]], VECTOR)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("VECTOR(4)", "VECTOR(4)"),
        ("vector(4, float)", "VECTOR(4)"),
        ("VECTOR( 768 , DOUBLE )", "VECTOR(768, DOUBLE)"),
        ("VECTOR(3, INT8, FIXED_BYTES)", "VECTOR(3, INT8)"),
        ("VECTOR(3, BYTE)", "VECTOR(3, INT8)"),
    ],
)
def test_a_vectors_name_is_read_and_written_as_hudi_does(text: str, name: str) -> None:
    kind = parse_vector(text)
    assert kind is not None
    assert vector_name(kind) == name


@pytest.mark.parametrize("text", ["VECTOR(0)", "VECTOR(4, INT)", "VECTOR(99999999999)"])
def test_a_vector_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(SchemaConflict, match="vector"):
        parse_vector(text)


def test_a_vector_of_files_is_its_bytes_and_nothing_is_copied() -> None:
    for part in (VECTORS, VECTORS[1:], VECTORS[1:3], VECTORS[:0], VECTORS.take(pa.array([3, 1]))):
        stored = file_values(part)
        assert stored.type == pa.binary(16)
        assert [value and np.frombuffer(value, "<f4").tolist() for value in stored.to_pylist()] == part.to_pylist()
        assert vectors_of_bytes(stored, VECTOR).equals(part)
        assert vectors_of_bytes(stored.cast(pa.binary()), VECTOR).equals(part)
    assert file_values(VECTORS).buffers()[1].address == VECTORS.values.buffers()[1].address
    assert file_values(pa.chunked_array([VECTORS, VECTORS[:1]])).to_pylist()[4] == file_values(VECTORS)[0].as_py()


def test_bytes_of_another_length_in_a_file_are_damage() -> None:
    for values in (pa.array([b"0" * 20]), pa.array([None, b"0" * 20], pa.binary(20))):
        with pytest.raises(CorruptFile, match=r"20 bytes .* have 16"):
            cast_column(values, VECTOR)
    with pytest.raises(CorruptFile, match=r"3 bytes .* have 2"):
        cast_column(pa.array([b"abc", b"ab"]), pa.binary(2))
    assert cast_column(pa.array([b"ab", None]), pa.binary(2)).to_pylist() == [b"ab", None]


@pytest.mark.parametrize(
    "values",
    [
        VECTORS,
        VECTORS.cast(pa.list_(pa.float32(), 4)),
        VECTORS.cast(pa.list_(pa.float64(), 4)),
        pa.array(VECTORS.to_pylist()),
        pa.array(VECTORS.to_pylist(), pa.large_list(pa.float32())),
        pa.array([None, *VECTORS.to_pylist()])[1:],
        file_values(VECTORS),
        file_values(VECTORS).cast(pa.binary()),
    ],
    ids=lambda values: str(values.type),
)
def test_a_vector_column_takes_lists_and_bytes_of_its_length(values: pa.Array) -> None:
    check_fits(values.type, FIELD)
    assert in_column(values, FIELD).equals(VECTORS)


def test_a_vector_column_takes_tensors_and_whole_numbers() -> None:
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(8, dtype=np.float32).reshape(2, 4))
    assert in_column(tensor, FIELD).to_pylist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    whole = pa.field("emb", lakebed.vector(2, "int8"))
    check_fits(pa.list_(pa.int64()), whole)
    assert in_column(pa.array([[1, -128], None]), whole).to_pylist() == [[1, -128], None]
    with pytest.raises(SchemaConflict, match=r"VECTOR\(2, INT8\)"):
        check_fits(pa.list_(pa.float64()), whole)
    with pytest.raises(InvalidRecord, match=r"column emb is VECTOR\(2, INT8\)"):
        in_column(pa.array([[1, 300]]), whole)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (pa.array([[1.0, 2, 3]]), "expected 4 elements, got 3"),
        (pa.array([[1.0, 2, 3, 4], [1, 2, 3, 4, 5]]), "expected 4 elements, got 5"),
        (pa.array([b"0" * 20]), "expected 16 bytes, got 20"),
        (pa.array([[1.0, 2, 3, None]]), "an element is null"),
        (pa.array([[1.0, 2, 3, math.nan]]), "an element is nan"),
        (pa.array([[1.0, 2, math.inf, 3]], VECTOR), "an element is inf"),
        (pa.array([np.array([1, 2, 3, -np.inf], "<f4").tobytes()]), "an element is -inf"),
        (pa.array([[1.0, 2, 3, 1e300]]), "an element is inf"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_is_no_vector_of_the_column_is_refused_by_name(values: pa.Array, why: str) -> None:
    with pytest.raises(InvalidRecord, match=f"column emb is VECTOR.4.*: {why}"):
        in_column(values, FIELD)
    with pytest.raises(InvalidRecord, match=why):
        project_incoming(pa.record_batch({"emb": values}), pa.schema([FIELD]))


def test_large_finite_elements_are_taken() -> None:
    kind = lakebed.vector(2, "double")
    values = pa.array([[1.7e308, 1.7e308]])
    assert in_column(values, pa.field("emb", kind)).to_pylist() == [[1.7e308, 1.7e308]]


def test_values_of_a_fixed_type_have_its_length() -> None:
    field = pa.field("code", pa.binary(2))
    assert in_column(pa.array([b"ab", None]), field).type == pa.binary(2)
    with pytest.raises(InvalidRecord, match=r"column code .*expected 2 bytes, got 3"):
        in_column(pa.array([b"ab", b"abc"]), field, SQL)


def test_the_metadata_hudi_type_of_a_field_is_its_type() -> None:
    columns = normalise(
        pa.schema(
            [
                pa.field("a", pa.list_(pa.float64()), metadata={"hudi_type": "VECTOR(4)"}),
                pa.field("b", pa.binary(), metadata={"hudi_type": "vector(2, double)"}),
                pa.field("c", pa.list_(pa.float32(), 4)),
                pa.field("d", VECTOR),
            ]
        )
    )
    assert [descriptor_of(field) for field in columns] == ["VECTOR(4)", "VECTOR(2, DOUBLE)", "", "VECTOR(4)"]
    assert columns.types == [VECTOR, lakebed.vector(2, "double"), pa.list_(pa.float32()), VECTOR]
    spark = {"name": "e", "type": {"type": "array", "elementType": "float"}, "metadata": {"hudi_type": "VECTOR(4)"}}
    assert spark_json_to_arrow(json.dumps({"type": "struct", "fields": [spark]})).types == [VECTOR]


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (pa.field("x", pa.list_(pa.float32()), metadata={"hudi_type": "TENSOR(4)"}), "column x .*TENSOR.4"),
        (pa.field("x", pa.list_(pa.float32(), 5), metadata={"hudi_type": "VECTOR(4)"}), "column x is VECTOR.4"),
        (pa.field("x", pa.string(), metadata={"hudi_type": "VECTOR(4)"}), "column x is VECTOR.4"),
        (pa.field("x", pa.string(), metadata={"hudi_type": "BLOB"}), "column x is BLOB"),
        (pa.field("x", pa.struct([("v", VECTOR)])), r"x\.v is a VECTOR.4. inside"),
        (pa.field("x", pa.list_(VECTOR)), r"x\.element is a VECTOR.4. inside"),
        (pa.field("x", pa.map_(pa.string(), VECTOR)), r"x\.value is a VECTOR.4. inside"),
    ],
    ids=str,
)
def test_a_type_that_hudi_does_not_have_is_refused_by_name(field: pa.Field, why: str) -> None:
    with pytest.raises(SchemaConflict, match=why):
        normalise(pa.schema([field]))


def test_vectors_in_avro_are_those_of_hudi() -> None:
    columns = pa.schema([pa.field("a", VECTOR), pa.field("b", VECTOR), pa.field("c", lakebed.vector(2, "int8"), False)])
    a, b, c = (field["type"] for field in json.loads(arrow_to_avro(columns, "t"))["fields"])
    assert a[1] == {
        "type": "fixed",
        "name": "vector_float_4",
        "namespace": "",
        "size": 16,
        "logicalType": "vector",
        "dimension": 4,
        "elementType": "FLOAT",
        "storageBacking": "FIXED_BYTES",
    }
    assert b[1] == "vector_float_4"
    assert (c["name"], c["size"], c["elementType"]) == ("vector_int8_2", 2, "INT8")
    again = avro_to_arrow(arrow_to_avro(columns, "t"))
    assert again.equals(columns)
    assert [descriptor_of(field) for field in again] == ["VECTOR(4)", "VECTOR(4)", "VECTOR(2, INT8)"]
    bare = {"type": "fixed", "name": "v", "size": 12, "logicalType": "vector", "dimension": 3}
    assert avro_to_arrow({"type": "record", "name": "r", "fields": [{"name": "v", "type": bare}]}).types == [
        lakebed.vector(3)
    ]
    with pytest.raises(CorruptFile, match="3 elements in 13 bytes"):
        avro_to_arrow({"type": "record", "name": "r", "fields": [{"name": "v", "type": {**bare, "size": 13}}]})


def test_a_fixed_type_keeps_its_length_and_its_name() -> None:
    fixed = {"type": "fixed", "name": "md5", "size": 16}
    avro = {"type": "record", "name": "r", "fields": [{"name": "sum", "type": ["null", fixed], "default": None}]}
    columns = avro_to_arrow(avro)
    assert columns.types == [pa.binary(16)]
    assert json.loads(arrow_to_avro(columns, "t"))["fields"][0]["type"] == ["null", fixed]
    assert normalise(columns).types == [pa.binary(16)]
    assert reconcile(columns, pa.schema([("sum", pa.binary())])).equals(columns)


def test_a_vectors_type_never_changes() -> None:
    table = pa.schema([FIELD])
    for kind in (pa.list_(pa.float64()), pa.list_(pa.int32()), pa.binary(), pa.binary(16)):
        assert reconcile(table, pa.schema([("emb", kind)])).equals(table)
    for kind in (lakebed.vector(5), pa.string(), pa.binary(20), pa.list_(pa.string()), pa.float32()):
        with pytest.raises(SchemaConflict, match=r"column emb is VECTOR\(4\)"):
            reconcile(table, pa.schema([("emb", kind)]))
    with pytest.raises(SchemaConflict, match=r"column emb is VECTOR\(4\) and cannot become VECTOR\(8\)"):
        changed(table, ColumnChange("widen", "emb", lakebed.vector(8)))
    assert is_promotion(pa.binary(), VECTOR)
    assert is_promotion(pa.binary(16), VECTOR)
    assert not is_promotion(VECTOR, pa.list_(pa.float32()))
    assert not can_cast(VECTOR, pa.string())


def test_a_list_column_takes_vectors() -> None:
    lists = pa.field("emb", pa.list_(pa.field("element", pa.float64())))
    check_fits(VECTOR, lists)
    assert in_column(VECTORS, lists).to_pylist() == VECTORS.to_pylist()


def _struct_field(descriptor: str, kind: pa.DataType) -> pa.Field:
    return normalise(pa.schema([pa.field("c", kind, metadata={"hudi_type": descriptor})])).field(0)


BLOB = pa.struct(
    [
        ("type", pa.string()),
        ("data", pa.large_binary()),
        (
            "reference",
            pa.struct(
                [
                    ("external_path", pa.string()),
                    ("offset", pa.int64()),
                    ("length", pa.int64()),
                    ("managed", pa.bool_()),
                ]
            ),
        ),
    ]
)
VARIANT = pa.struct([("metadata", pa.binary()), ("value", pa.binary())])


@pytest.mark.parametrize(("descriptor", "loose"), [("BLOB", BLOB), ("VARIANT", VARIANT)])
def test_data_with_other_declarations_do_not_change_a_logical_type(descriptor: str, loose: pa.DataType) -> None:
    (declared,) = in_logical_types(pa.schema([_struct_field(descriptor, loose)]))
    avro = json.loads(arrow_to_avro(pa.schema([declared]), "t"))["fields"][0]["type"][1]
    assert avro == struct_avro(descriptor)
    incoming = pa.schema([("c", loose)])
    table = pa.schema([declared])
    for evolution in ("widen", "add", "strict"):
        after = reconcile(table, normalise(incoming), evolution=evolution)
        assert after.equals(table)
        assert after.field(0).metadata[HUDI_TYPE].decode() == descriptor
    wider = pa.struct([*loose, ("more", pa.string())])
    with pytest.raises(SchemaConflict, match=r"c\.more"):
        reconcile(table, pa.schema([("c", normalise(pa.schema([("c", wider)])).field(0).type)]))
    with pytest.raises(SchemaConflict, match=f"column c is {descriptor} in the table and STRING"):
        reconcile(table, pa.schema([("c", pa.string())]))


def test_a_null_where_a_logical_type_has_none_is_refused_by_name() -> None:
    (declared,) = in_logical_types(pa.schema([_struct_field("VARIANT", VARIANT)]))
    good = pa.array([{"metadata": b"\x01\x00\x00", "value": b"\x00"}, None], VARIANT)
    assert in_column(good, declared).to_pylist() == good.to_pylist()
    bad = pa.array([{"metadata": b"m", "value": None}], VARIANT)
    with pytest.raises(InvalidRecord, match="column c has a null in its field value"):
        in_column(bad, declared)


def test_types_of_columns_have_sql_names() -> None:
    assert column_type("VECTOR(4)", "e") == VECTOR
    assert column_type("vector(4, double)", "e") == lakebed.vector(4, "double")
    with pytest.raises(SchemaConflict, match="inside"):
        column_type("array<vector(4)>", "e")


def test_a_footer_names_the_vectors() -> None:
    columns = pa.schema([("id", pa.string()), ("a", VECTOR), ("b", lakebed.vector(2, "int8"))])
    assert vector_columns(columns) == {"hoodie.vector.columns": "a:VECTOR(4),b:VECTOR(2, INT8)"}
    assert vector_columns(columns.remove(2).remove(1)) == {}


def test_a_vectors_type_is_known_after_it_is_pickled() -> None:
    assert is_vector(pickle.loads(pickle.dumps(VECTOR)))
