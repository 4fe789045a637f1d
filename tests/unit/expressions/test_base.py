from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import SchemaConflict
from lakebed.expressions.base import Column, Constant, columns_of, quote_name, sql_literal

SCHEMA = pa.schema(
    [
        ("a", pa.struct([("b", pa.int32()), ("it's", pa.struct([("c.d", pa.int8()), ("e", pa.string())]))])),
        ("a.b", pa.string()),
        ("UPPER", pa.string()),
    ]
)


@pytest.mark.parametrize(
    ("path", "sql", "kind"),
    [
        ("a.b", "`a.b`", pa.string()),
        ("a", "`a`", SCHEMA.field("a").type),
        ("a.it's.e", "`a`.`it's`['e']", pa.string()),
        ("UPPER", "`UPPER`", pa.string()),
    ],
)
def test_a_path_is_found_literally_first_then_through_structs(path: str, sql: str, kind: pa.DataType) -> None:
    assert Column(path).sql(SCHEMA) == sql
    assert Column(path).type_in(SCHEMA) == kind


def test_a_field_of_a_null_struct_is_null() -> None:
    rows = pa.record_batch({"a": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())]))})
    assert Column("a.x").arrow(rows).to_pylist() == [1, None, None]


@pytest.mark.parametrize(
    ("path", "hint"),
    [("upper", "Did you mean 'UPPER'"), ("zzz", "The columns are a, a.b"), ("a.x", ""), ("UPPER.x", "")],
)
def test_a_missing_column_is_named_with_the_nearest_one(path: str, hint: str) -> None:
    with pytest.raises(SchemaConflict, match=f"no column `{path}`") as error:
        Column(path).sql(SCHEMA)
    assert hint in error.value.hint


@pytest.mark.parametrize(
    "text", ["it's", 'say "x"', "back\\slash", "${spark.app.name}", "line\nbreak", "\x00", "\u200b"]
)
def test_a_literal_never_holds_what_a_parser_setting_can_change(text: str) -> None:
    sql = sql_literal(text)
    assert sql == f"CAST(X'{text.encode().hex()}' AS STRING)"


def test_names_constants_and_columns_of() -> None:
    assert quote_name("x`y") == "`x``y`"
    assert Constant(None).sql(SCHEMA) == "CAST(NULL AS STRING)"
    assert Constant("é").arrow(pa.record_batch({"n": [1, 2]})).to_pylist() == ["é", "é"]
    assert columns_of([Column("a"), Column("b"), Column("a")]) == ("a", "b")
