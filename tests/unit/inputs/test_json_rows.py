"""Rows of JSON files: their columns, their forms, and values as the table's types have them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.engine.arrow_data import of_python, to_arrow_table
from lakebed.errors import InvalidRecord
from lakebed.inputs.json_rows import Rows, read_json_rows

TYPES: dict[str, pa.DataType] = {
    "id": pa.int64(),
    "name": pa.string(),
    "fare": pa.float64(),
    "price": pa.decimal128(20, 2),
    "day": pa.date32(),
    "at": pa.timestamp("us", "UTC"),
    "clock": pa.time64("us"),
    "paid": pa.bool_(),
    "code": pa.binary(),
    "tags": pa.map_(pa.string(), pa.int32()),
    "stops": pa.list_(pa.struct([("km", pa.float64()), ("name", pa.string())])),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.json"


def rows(file: Path, text: str, types: dict[str, pa.DataType] = TYPES) -> list[dict[str, Any]]:
    file.write_text(text, encoding="utf-8")
    return table_of(read_json_rows(file.read_bytes(), str(file), types), types).to_pylist()


def table_of(given: Rows, types: dict[str, pa.DataType] = TYPES) -> pa.Table:
    """As every write takes them."""
    return given if isinstance(given, pa.Table) else to_arrow_table(of_python(given, types))


def test_columns_that_no_object_names_are_not_in_the_rows(file: Path) -> None:
    assert rows(file, '{"id": 1, "fare": 2}\n{"id": 2}\n') == [{"id": 1, "fare": 2.0}, {"id": 2, "fare": None}]
    assert rows(file, '[{"id": 1, "tags": {}}]') == [{"id": 1, "tags": []}]


def test_a_column_that_is_null_in_every_object_is_in_the_rows_with_its_type(file: Path) -> None:
    assert rows(file, '{"id": 1, "fare": null}\n') == [{"id": 1, "fare": None}]
    assert table_of(read_json_rows(file.read_bytes(), str(file), TYPES)).schema.field("fare").type == pa.float64()


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1, "stops": [{"km": 1, "name": "a\\nb"}]}\n\n{"id": 2, "stops": []}',
        '[{"id": 1, "stops": [{"km": 1, "name": "a\\nb"}]},{"id": 2, "stops": []}]',
        '\ufeff \n[\n {"id": 1,\n  "stops": [{"km": 1,\r\n "name": "a\\nb"}]},\n {"id": 2, "stops": []}\n]\n',
        '{"id": 1,\n "stops": [{"km": 1, "name": "a\\nb"}]\n}\n{\n"id": 2, "stops": []}',
    ],
    ids=["lines", "array", "array over lines", "objects over lines"],
)
def test_lines_arrays_and_objects_over_several_lines_are_the_same_rows(file: Path, text: str) -> None:
    expected = [{"id": 1, "stops": [{"km": 1.0, "name": "a\nb"}]}, {"id": 2, "stops": []}]
    assert rows(file, text) == expected
    assert rows(file, text, {}) == [
        {"id": 1, "stops": [{"km": 1, "name": "a\nb"}]},
        {"id": 2, "stops": []},
    ]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("id", "42", 42),
        ("id", 42.0, 42),
        ("fare", "9.5", 9.5),
        ("fare", "Infinity", float("inf")),
        ("price", "12345678901234567.89", Decimal("12345678901234567.89")),
        ("name", 501, "501"),
        ("name", True, "true"),
        ("day", "2024-02-29", date(2024, 2, 29)),
        ("at", "2024-02-29T01:02:03+01:00", datetime(2024, 2, 29, 0, 2, 3, tzinfo=UTC)),
        ("at", "2024-02-29 01:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("clock", "01:02:03", time(1, 2, 3)),
        ("paid", "true", True),
        ("code", "AAH/", b"\x00\x01\xff"),
        ("tags", {"a": 1, "b": "2"}, [("a", 1), ("b", 2)]),
        ("tags", [{"key": "a", "value": None}], [("a", None)]),
        ("stops", [{"km": "1.5", "name": 3}, None], [{"km": 1.5, "name": "3"}, None]),
    ],
)
def test_a_value_is_read_as_the_columns_type_has_it(file: Path, name: str, given: Any, expected: Any) -> None:
    for text in (json.dumps({name: given}), json.dumps([{name: given}, {name: None}])):
        assert rows(file, text)[0] == {name: expected}
        assert table_of(read_json_rows(file.read_bytes(), str(file), TYPES)).schema.field(name).type == TYPES[name]


def test_a_numbers_digits_are_all_in_a_decimal_and_in_a_text(file: Path) -> None:
    text = '{"price": 12345678901234567.80, "name": 1.50, "tags": {}}'
    assert rows(file, text) == [{"price": Decimal("12345678901234567.80"), "name": "1.50", "tags": []}]


def test_a_name_in_another_case_has_the_type_of_the_tables_column(file: Path) -> None:
    assert rows(file, '{"NAME": "2024-01-01"}\n') == [{"NAME": "2024-01-01"}]
    assert rows(file, '[{"NAME": "2024-01-01", "Price": 1}]') == [{"NAME": "2024-01-01", "Price": Decimal("1.00")}]


def test_new_columns_have_the_same_types_in_an_array_as_in_lines(file: Path) -> None:
    new = {"new": "2024-01-01", "deep": {"x": [1, 2.5]}}
    expected = [{"new": date(2024, 1, 1), "deep": {"x": [1.0, 2.5]}, "id": 1}]
    for text in (json.dumps({**new, "id": 1}), json.dumps([{**new, "id": 1}]), json.dumps({**new, "id": "1"})):
        assert rows(file, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1}\n{"id": "x"}\n', 'row 2, column id: "x" is no int64'),
        ('[{"id": 1}, {"id": 1.5}]', "row 2, column id: 1.5 is no int64"),
        ('{"id": 9223372036854775808}', "row 1, column id: 9223372036854775808 is no int64"),
        ('{"price": "1.234"}', 'row 1, column price: "1.234" is no decimal128(20, 2)'),
        ('{"stops": [{"km": "far"}]}', 'row 1, column stops.km: "far" is no double'),
        ('{"name": {"a": 1}}', 'row 1, column name: {"a": 1} is no string'),
        ('{"at": 1700000000}', "row 1, column at: 1700000000 is no timestamp[us, tz=UTC]"),
        ('{"paid": 1}', "row 1, column paid: 1 is no bool"),
        ('{"code": "no base64"}', 'row 1, column code: "no base64" is no binary'),
        ('{"id": 1}\n{"id" 2}\n', "line 2: Expecting ':' delimiter"),
        ('[{"id": 1},\n 7]', "line 2: '7' is no JSON object"),
        ('{"id": 1, "id": 2}', "row 1 names 'id' twice"),
        ("", "holds no JSON object"),
        ("[]", "holds no JSON object"),
    ],
)
def test_an_error_names_the_row_the_column_and_the_value(file: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        rows(file, text)
    assert message in caught.value.message


@pytest.mark.parametrize("form", ["lines", "array"])
def test_partial_rows_distinguish_a_null_from_a_missing_column(file: Path, form: str) -> None:
    objects = [{"id": 1, "fare": None, "new": 3}, {"id": 2, "new": None}]
    file.write_text("\n".join(map(json.dumps, objects)) if form == "lines" else json.dumps(objects))
    assert read_json_rows(file.read_bytes(), str(file), TYPES, partial=True) == objects


STRUCT = {"id": pa.int64(), "address": pa.struct([("city", pa.string()), ("zip", pa.int32())]), **TYPES}


@pytest.mark.parametrize("form", ["lines", "array", "by value"])
def test_fields_that_no_object_names_are_not_in_the_rows(file: Path, form: str) -> None:
    objects: list[dict[str, Any]] = [{"id": 1, "address": {"city": "Oslo"}, "stops": [{"km": 1.5}]}, {"id": 2}]
    if form == "by value":
        objects[0]["tags"] = {"a": 1}  # a map, which Arrow does not read from JSON
    file.write_text("\n".join(map(json.dumps, objects)) if form == "lines" else json.dumps(objects))
    schema = table_of(read_json_rows(file.read_bytes(), str(file), STRUCT), STRUCT).schema
    assert schema.field("address").type == pa.struct([("city", pa.string())])
    assert schema.field("stops").type == pa.list_(pa.struct([("km", pa.float64())]))


def test_fields_that_are_null_in_every_object_are_in_the_rows_with_their_type(file: Path) -> None:
    file.write_text('{"id": 1, "address": {"zip": null}}\n{"id": 2, "address": null, "stops": []}')
    schema = table_of(read_json_rows(file.read_bytes(), str(file), STRUCT), STRUCT).schema
    assert schema.field("address").type == pa.struct([("zip", pa.int32())])
    assert schema.field("stops").type == STRUCT["stops"]


def test_partial_rows_distinguish_a_null_from_a_missing_field(file: Path) -> None:
    objects = [{"id": 1, "address": {"city": "Oslo"}}, {"id": 2, "address": {"city": "Rome", "zip": 7}}]
    file.write_text("\n".join(map(json.dumps, objects)))
    assert read_json_rows(file.read_bytes(), str(file), STRUCT, partial=True) == objects
