from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.schema.evolution import is_promotion, reconcile, spark_projection

INT, LONG, FLOAT, DOUBLE = pa.int32(), pa.int64(), pa.float32(), pa.float64()
BOOL, TEXT, BYTES, DATE = pa.bool_(), pa.string(), pa.binary(), pa.date32()
MICROS, MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")
LOCAL, LOCAL_MILLIS = pa.timestamp("us"), pa.timestamp("ms")
DEC = pa.decimal128(10, 2)
ALL = [INT, LONG, FLOAT, DOUBLE, BOOL, TEXT, BYTES, DATE, MICROS, MILLIS, LOCAL, LOCAL_MILLIS, DEC]
# what Hudi's compatibility checker said, run over all pairs
ALLOWED: dict[pa.DataType, set[pa.DataType]] = {
    INT: {LONG, FLOAT, DOUBLE, TEXT},
    LONG: {FLOAT, DOUBLE, TEXT, MICROS, MILLIS, LOCAL, LOCAL_MILLIS},
    FLOAT: {DOUBLE, TEXT},
    DOUBLE: {TEXT},
    TEXT: {BYTES},
    BYTES: {TEXT},
    MICROS: {MILLIS},
    LOCAL: set(),
    DEC: {TEXT},
}


def schema_of(kind: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("c", kind, nullable)])


@pytest.mark.parametrize("stored", ALL, ids=str)
def test_the_promotions_allowed_are_hudis(stored: pa.DataType):
    found = {kind for kind in ALL if is_promotion(stored, kind)} - {stored}
    assert found == ALLOWED.get(stored, set())


@pytest.mark.parametrize(
    ("precision", "scale", "allowed"),
    [(10, 2, True), (12, 2, True), (12, 4, True), (10, 4, False), (12, 1, False), (11, 4, False), (9, 2, False)],
)
def test_decimals_may_only_gain_digits(precision: int, scale: int, allowed: bool):
    assert is_promotion(DEC, pa.decimal128(precision, scale)) is allowed


def test_promotions_reach_into_nested_types():
    assert is_promotion(list_of(INT), list_of(LONG))
    assert is_promotion(map_of(FLOAT), map_of(DOUBLE))
    assert is_promotion(pa.struct([("a", INT)]), pa.struct([("a", TEXT), ("b", DATE)]))
    assert not is_promotion(pa.struct([("a", INT)]), pa.struct([("a", INT), pa.field("b", DATE, False)]))
    assert not is_promotion(list_of(LONG), list_of(INT))
    assert not is_promotion(list_of(TEXT), map_of(TEXT))


@pytest.mark.parametrize(
    ("table", "incoming", "result"),
    [
        (INT, LONG, LONG),
        (LONG, INT, LONG),
        (FLOAT, DOUBLE, DOUBLE),
        (TEXT, INT, TEXT),
        (INT, TEXT, TEXT),
        (TEXT, BYTES, TEXT),
        (BYTES, TEXT, BYTES),
        (DEC, pa.decimal128(12, 4), pa.decimal128(12, 4)),
        (DEC, pa.decimal128(5, 1), DEC),
        (MILLIS, MICROS, MILLIS),
        (list_of(INT), list_of(DOUBLE), list_of(DOUBLE)),
        (map_of(LONG), map_of(INT, nullable=False), map_of(LONG)),
    ],
    ids=str,
)
def test_types_meet_at_the_wider_one(table: pa.DataType, incoming: pa.DataType, result: pa.DataType):
    assert reconcile(schema_of(table), schema_of(incoming)).equals(schema_of(result))


@pytest.mark.parametrize(
    ("table", "incoming", "shown"),
    [
        (BOOL, INT, "BOOLEAN in the table and INT in the data"),
        (DATE, TEXT, "DATE in the table and STRING in the data"),
        (LOCAL, MICROS, "TIMESTAMP_NTZ in the table and TIMESTAMP_LTZ in the data"),
        (LONG, MICROS, "BIGINT in the table and TIMESTAMP_LTZ in the data"),
        (MICROS, LONG, "TIMESTAMP_LTZ in the table and BIGINT in the data"),
        (DEC, pa.decimal128(10, 4), r"DECIMAL\(10,2\) in the table and DECIMAL\(10,4\) in the data"),
        (list_of(INT), INT, "ARRAY<INT> in the table and INT in the data"),
        (map_of(INT), list_of(INT), "MAP<STRING, INT> in the table and ARRAY<INT> in the data"),
    ],
    ids=str,
)
def test_refusals_name_column_types_and_remedy(table: pa.DataType, incoming: pa.DataType, shown: str):
    with pytest.raises(SchemaConflict, match=f"column c is {shown}") as error:
        reconcile(schema_of(table), schema_of(incoming))
    assert "Cast the data to" in error.value.hint


def test_a_refusal_deep_inside_names_the_path():
    table = schema_of(list_of(pa.struct([("m", map_of(BOOL))])))
    with pytest.raises(SchemaConflict, match=r"column c\.element\.m\.value is BOOLEAN"):
        reconcile(table, schema_of(list_of(pa.struct([("m", map_of(DATE))]))))


def test_new_columns_go_to_the_end_and_are_nullable():
    table = pa.schema([pa.field("a", INT, False), ("s", pa.struct([("x", INT)]))])
    incoming = pa.schema(
        [
            pa.field("n", TEXT, False),
            ("s", pa.struct([pa.field("y", INT, False), ("x", INT)])),
            pa.field("a", INT, False),
        ]
    )
    assert reconcile(table, incoming).equals(
        pa.schema([pa.field("a", INT, False), ("s", pa.struct([("x", INT), ("y", INT)])), ("n", TEXT)])
    )


@pytest.mark.parametrize("table", [True, False])
@pytest.mark.parametrize("incoming", [True, False])
def test_a_column_is_nullable_as_soon_as_one_side_is(table: bool, incoming: bool):
    assert reconcile(schema_of(INT, table), schema_of(INT, incoming)).field("c").nullable == (table or incoming)


TABLE = pa.schema([pa.field("a", INT, False), ("s", pa.struct([("x", INT), ("y", INT)])), ("b", TEXT)])
LESS = pa.schema([("s", pa.struct([("x", INT)])), ("b", TEXT)])


def test_missing_columns_are_an_error_that_names_the_options():
    with pytest.raises(SchemaConflict, match="lacks the table's column a") as error:
        reconcile(TABLE, LESS)
    assert "hoodie.write.set.null.for.missing.columns" in error.value.hint
    assert "partial=True" in error.value.hint
    assert error.value.context == {"columns": ["a"]}
    with pytest.raises(SchemaConflict, match=r"column s\.y") as error:
        reconcile(TABLE, pa.schema([*LESS, ("a", INT)]))
    assert "partial" not in error.value.hint  # whole columns alone may be left out


def test_missing_columns_may_be_filled_or_dropped():
    assert reconcile(TABLE, LESS, missing="null").equals(
        pa.schema([("a", INT), ("s", pa.struct([("x", INT), ("y", INT)])), ("b", TEXT)])
    )
    assert reconcile(TABLE, LESS, missing="drop").equals(LESS)


def test_names_that_differ_in_case_are_no_new_columns():
    with pytest.raises(SchemaConflict, match="differ in case"):
        reconcile(pa.schema([("id", INT)]), pa.schema([("ID", INT), ("id", INT)]))


def expression(stored: pa.DataType, wanted: pa.DataType) -> Any:
    return spark_projection(schema_of(stored), schema_of(wanted))[0].removesuffix(" AS `c`")


@pytest.mark.parametrize(
    ("stored", "wanted", "sql"),
    [
        (INT, INT, "`c`"),
        (list_of(INT, nullable=False), list_of(INT), "`c`"),
        (pa.struct([("x", list_of(INT, nullable=False))]), pa.struct([("x", list_of(INT))]), "`c`"),
        (INT, LONG, "CAST(`c` AS BIGINT)"),
        (FLOAT, DOUBLE, "CAST(CAST(`c` AS STRING) AS DOUBLE)"),
        (DEC, TEXT, "CAST(`c` AS STRING)"),
        (pa.decimal128(9, 8), TEXT, "format_number(`c`, '0.00000000')"),
        (LONG, MICROS, "timestamp_micros(`c`)"),
        (list_of(FLOAT), list_of(DOUBLE), "transform(`c`, x0 -> CAST(CAST(x0 AS STRING) AS DOUBLE))"),
        (
            pa.struct([("it's", INT)]),
            pa.struct([("it's", LONG), ("n", DATE)]),
            r"IF(`c` IS NULL, NULL, named_struct('it\'s', CAST(`c`.`it's` AS BIGINT), 'n', CAST(NULL AS DATE)))",
        ),
    ],
    ids=str,
)
def test_casts_for_spark_are_spelled_as_expected(stored: pa.DataType, wanted: pa.DataType, sql: str):
    assert expression(stored, wanted) == sql
