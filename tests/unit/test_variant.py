"""Columns of VARIANT values: made, read, stored and read back."""

from __future__ import annotations

import datetime
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed import variant
from lakebed.errors import InvalidOption, InvalidRecord, SchemaConflict

_numbers = itertools.count()
OBJECTS: list[Any] = [
    {"stops": [1, "via", None], "at": {"y": 1, "x": 2.5}},
    None,
    [True, False, []],
    "text",
    -7,
    1 << 40,
    0.1,
    {},
    datetime.date(2020, 1, 2),
    datetime.datetime(2020, 1, 2, 3, 4, 5, 6),
    Decimal("12.340"),
    b"\x00\xff",
    math.inf,
    {"day": datetime.date(2020, 1, 2), "price": Decimal("1.10")},
    "ä" * 70,
    {f"k{number:02}": number for number in reversed(range(40))},
]


def test_python_objects_come_back_as_they_were_given() -> None:
    column = variant.encode(OBJECTS)
    assert column.type == variant.TYPE
    assert column.null_count == 1
    assert variant.decode(column) == OBJECTS


def test_an_arrow_column_of_any_type_becomes_variants() -> None:
    for column in (
        pa.array([1, None, 3]),
        pa.array(["a", None]),
        pa.array([[1.5, None], None, []]),
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
        pa.chunked_array([[datetime.date(2020, 1, 1)], [None]]),
    ):
        assert variant.decode(variant.encode(column)) == column.to_pylist()


def test_names_of_fields_stand_in_ascending_order_in_the_bytes() -> None:
    # readers look names up by bisection
    (value,) = variant.encode([{"z": 1, "b": 2, "a": 3}]).to_pylist()
    assert value["metadata"].endswith(b"abz")
    assert value["value"][2:5] == b"\x00\x01\x02"


def test_json_texts_become_variants_and_back() -> None:
    texts = ['{"b": [1, null, {"c": "ü"}], "a": 1.5}', None, "null", '"x"', "[]"]
    column = variant.parse_json(texts)
    assert column.null_count == 1
    assert variant.to_json(column).to_pylist() == ['{"a":1.5,"b":[1,null,{"c":"ü"}]}', None, "null", '"x"', "[]"]


@pytest.mark.parametrize(
    ("path", "kind", "expected"),
    [
        ("$.a.b", "int", [7, None, None]),
        ("$.a.l[1]", "bigint", [20, None, None]),
        ("$.a.l[2]", "bigint", [None, None, None]),
        ("$['k.y z']", "string", ["it's", None, None]),
        ('$["it\'s"]', "double", [0.5, None, None]),
        ("$.a.n", "string", [None, None, None]),
        ("$.a.d", "date", [datetime.date(2020, 1, 1), None, None]),
        ("$.a.l", "array<int>", [[10, 20], None, None]),
        ("$.a", "string", ['{"b":7,"d":"2020-01-01","l":[10,20],"n":null}', None, None]),
        ("$.a.l", "string", ["[10,20]", None, None]),
        ("$.f", "int", [-2, None, None]),
        ("$.c", "bigint", [12, None, None]),
        ("$.sp", "int", [12, None, None]),
        ("$.sp", "double", [12.0, None, None]),
        ("$.f", "boolean", [True, None, None]),
        ("$.ft", "int", [None, None, None]),
        (f"$.a.l[{2**31 - 1}]", "int", [None, None, None]),
        ("$", "string", [None, None, "x"]),
    ],
)
def test_get_gives_what_is_at_a_path(path: str, kind: str, expected: list[Any]) -> None:
    first = {"a": {"b": 7, "l": [10, 20], "n": None, "d": "2020-01-01"}, "k.y z": "it's", "it's": 0.5}
    first |= {"f": -2.7, "c": Decimal("12.99"), "sp": " 12 ", "ft": "2.7"}
    column = variant.encode([first, None, "x"])
    got = variant.get(column, path, kind, invalid="null")
    assert got.to_pylist() == expected if path != "$" else got.to_pylist()[1:] == expected[1:]


def test_a_value_of_another_type_is_refused_or_null() -> None:
    column = variant.encode([{"a": 1}, {"a": "x"}])
    with pytest.raises(InvalidRecord, match=r'"x" is no INTEGER.*try_variant_get'):
        variant.get(column, "$.a", "int")
    assert variant.get(column, "$.a", "int", invalid="null").to_pylist() == [1, None]


def test_a_map_from_texts_becomes_an_object() -> None:
    maps = pa.array([[("b", 1), ("a", None)], [], None], pa.map_(pa.string(), pa.int32()))
    column = variant.encode(maps)
    assert variant.decode(column) == [{"a": None, "b": 1}, {}, None]
    assert variant.to_json(column).to_pylist() == ['{"a":null,"b":1}', "{}", None]
    for kind in (pa.map_(pa.int64(), pa.string()), pa.list_(maps.type), pa.map_(pa.string(), maps.type)):
        with pytest.raises(InvalidRecord, match="maps that are no objects"):
            variant.encode(pa.array([None], kind))


@pytest.mark.parametrize("encoded", [lambda d: variant.encode([d]), lambda d: variant.parse_json([json.dumps(d)])])
def test_a_name_with_a_nul_is_refused_and_a_text_keeps_it(encoded: Callable[[Any], Any]) -> None:
    for document in ({"a\0": 1}, [{"x": {"\0": 1}}]):
        with pytest.raises(InvalidRecord, match="position 0 has a name with the character NUL"):
            encoded(document)
    assert variant.decode(encoded({"": "x\0y", "b": [{"": 1}]})) == [{"": "x\0y", "b": [{"": 1}]}]


@pytest.mark.parametrize(
    ("document", "kind", "expected"),
    [
        ([3.7, "5", "x", None, {"a": 1}, 2**40], "array<int>", [3, 5, None, None, None, None]),
        ([{"x": 1}, [None], "t", 1.5], "array<string>", ['{"x":1}', "[null]", "t", "1.5"]),
        ({"a": 1.9, "A": "u", "c": [1]}, "struct<a: int, C: int>", {"a": 1, "C": None}),
        ({"a": 1.9, "A": "u"}, "struct<A: string>", {"A": "u"}),
        ({"a": [{"b": 2.5}, 3]}, "struct<a: array<struct<b: int>>>", {"a": [{"b": 2}, None]}),
        ({"x": 1, "X": 2}, "int", None),
        ([1], "int", None),
        ([1], "struct<a: int>", None),
        ({"a": 1}, "array<int>", None),
        (1e22, "decimal(38, 10)", Decimal("1e22")),
        (123456789012.1, "decimal(38, 10)", Decimal("123456789012.1")),
        ("1e3", "decimal(10, 1)", Decimal(1000)),
        ("1_000", "double", None),
        ("-Infinity", "double", -math.inf),
        ("epoch", "date", None),
        ("infinity", "date", None),
        ("2024-01-05 10:00:00", "date", datetime.date(2024, 1, 5)),
        ("2024-01-05 10:00:00", "timestamp", datetime.datetime(2024, 1, 5, 10, tzinfo=datetime.UTC)),
        ("2024-01-05 10:00:00+02", "timestamp", datetime.datetime(2024, 1, 5, 8, tzinfo=datetime.UTC)),
        ("epoch", "timestamp", None),
        ("ü", "binary", "ü".encode()),
    ],
)
def test_values_of_other_types_are_those_of_spark(document: Any, kind: str, expected: Any) -> None:
    found = variant.get(variant.encode([document, None]), "$", kind, invalid="null").to_pylist()
    assert found == [expected, None]


def test_the_zone_of_the_machine_does_not_matter(tmp_path: Path) -> None:
    code = """
from lakebed import variant
print(variant.get(variant.encode(["2024-01-31 10:00:00"]), "$", "timestamp")[0].as_py().isoformat())
"""
    environment = {**os.environ, "TZ": "America/New_York"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2024-01-31T10:00:00+00:00"


@pytest.mark.parametrize(
    "kind", ["variant", "blob", "vector(3)", "map<string, int>", "array<map<string, int>>", "tinyint", "int8", "short"]
)
def test_no_value_of_a_variant_has_a_logical_type(kind: str) -> None:
    with pytest.raises(InvalidOption, match=f"no values of the type {re.escape(kind)}"):
        variant.get(variant.encode([1]), "$", kind)


def test_a_path_is_a_text() -> None:
    for path in (None, 5):
        with pytest.raises(InvalidOption, match=r"path=.* is no text"):
            variant.get(variant.encode([1]), path)  # pyright: ignore[reportArgumentType]


def test_a_variant_is_a_column_of_its_own() -> None:
    for kind in (pa.struct([("v", variant.TYPE)]), pa.list_(variant.TYPE), pa.map_(pa.string(), variant.TYPE)):
        with pytest.raises(SchemaConflict, match="VARIANT inside another type"):
            lakebed.create("memory://variant/inside", pa.schema([("id", pa.int64()), ("s", kind)]), key="id")


def test_a_position_beyond_32_bits_is_refused() -> None:
    with pytest.raises(InvalidOption, match=r"2147483648.*at most 2,147,483,647"):
        variant.get(variant.encode([[1]]), "$[2147483648]", "int")


@pytest.mark.parametrize(
    ("metadata", "value"),
    [(b"", b"\x00"), (b"\x02\x00\x00", b"\x00"), (b"\x01\x00\x00", b""), (b"\x01\x00\x00", b"\xff" * 5)],
)
def test_binaries_that_are_no_variant_are_not_stored(metadata: bytes, value: bytes) -> None:
    table = lakebed.create("memory://variant/junk", pa.schema([("id", pa.int64()), ("v", variant.TYPE)]), key="id")
    junk = pa.StructArray.from_arrays([pa.array([metadata]), pa.array([value])], fields=list(variant.TYPE))
    with pytest.raises(InvalidRecord, match="column v is VARIANT"):
        table.upsert(pa.table({"id": [1], "v": junk}))
    lakebed.drop("memory://variant/junk")


@pytest.mark.parametrize("path", ["a", "", "$a", "$.", "$.a[", "$.a[x]", "$..a", "$[-1]"])
def test_a_path_that_does_not_parse_is_refused_by_its_text(path: str) -> None:
    with pytest.raises(InvalidOption, match="no path into a variant"):
        variant.get(variant.encode([1]), path)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: variant.encode([1, object()]), "position 1"),
        (lambda: variant.encode([{"a": [1, datetime.date(2020, 1, 1)]}]), "position 0"),
        (lambda: variant.parse_json(['{"a"']), "JSON"),
        (lambda: variant.parse_json(['"\ud800"']), "JSON texts are needed"),
        (lambda: variant.parse_json([1]), "JSON texts are needed"),
        (lambda: variant.parse_json(None), "JSON texts are needed"),
        (lambda: variant.encode(None), "not of a NoneType"),
        (lambda: variant.encode("text"), "not of a str"),
        (lambda: variant.encode({"a": 1}), "not of a dict"),
        (lambda: variant.encode(pa.array([Decimal("9" * 39)], pa.decimal256(40, 0))), "cannot be read"),
        (lambda: variant.decode(pa.array([1])), "int64"),
        (lambda: variant.decode([1]), "Python objects"),
        (lambda: variant.decode(pa.array([{"metadata": b"", "value": b"x"}])), "version"),
        (lambda: variant.decode(pa.array([{"metadata": b"\x01\x00\x00", "value": b"\xff"}])), "cannot be read"),
    ],
)
def test_what_is_no_variant_is_refused_by_what_it_is(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(InvalidRecord, match=named):
        call()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_stores_variants_and_keeps_their_type(kind: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", variant.TYPE)])
    table = lakebed.create(f"memory://variants/{kind}", schema, key="id", type=kind, index="bucket", buckets=1)
    table.upsert(pa.table({"id": [1, 2, 3], "v": variant.encode([{"a": 1}, None, [1, "x"]])}))
    table.upsert(pa.table({"id": [1], "v": variant.encode([{"a": 2, "b": None}])}))
    table.columns.add("w", "variant")
    table.upsert(pa.table({"id": [2], "v": variant.encode(["y"]), "w": variant.encode([2.5])}))
    rows = lakebed.open(table.uri).scan().to_arrow().sort_by("id")
    assert variant.decode(rows["v"]) == [{"a": 2, "b": None}, "y", [1, "x"]]
    assert variant.decode(rows["w"]) == [None, 2.5, None]
    for name in ("v", "w"):
        assert rows.schema.field(name).metadata[b"hudi_type"] == b"VARIANT"


def test_create_in_sql_takes_the_name_of_the_type() -> None:
    tables = {"t": "memory://variants/sql"}
    lakebed.sql("create table t (id bigint, v variant) using lakebed tblproperties (primaryKey = 'id')", tables=tables)
    table = lakebed.open(tables["t"])
    table.upsert(pa.table({"id": [1], "v": variant.encode([{"a": [1]}])}))
    assert variant.to_json(table.scan().to_arrow()["v"]).to_pylist() == ['{"a":[1]}']


def trips(kind: Any) -> lakebed.Table:
    schema = pa.schema([("id", pa.int64()), ("v", variant.TYPE)])
    table = lakebed.create(f"memory://variants/trips/{next(_numbers)}", schema, key="id", type=kind)
    documents = [{"a": {"b": 1}}, {"a": {"b": 7}, "s": "x"}, None, {"a": "text", "o'q": [5]}]
    table.upsert(pa.table({"id": [1, 2, 3, 4], "v": variant.encode(documents)}))
    table.upsert(pa.table({"id": [5], "v": variant.encode([{"a": {"b": 9}}])}))
    return table


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("try_variant_get(v, '$.a.b', 'int') > 3", [2, 5]),
        ("variant_get(v, '$.s', 'string') = 'x' OR id = 1", [1, 2]),
        ("variant_get(v, '$.s', 'string') IS NOT NULL", [2]),
        ("variant_get(v, '$[\"o''q\"][0]', 'bigint') = 5", [4]),
        ("NOT try_variant_get(v, '$.a.b', 'double') < 8.5", [5]),
    ],
)
def test_conditions_look_into_variants(kind: Any, condition: str, ids: list[int]) -> None:
    table = trips(kind)
    assert sorted(table.scan(where=condition).to_arrow()["id"].to_pylist()) == ids
    rows = lakebed.sql(f"SELECT id FROM t WHERE {condition} ORDER BY id", tables={"t": table}).to_arrow()
    assert rows["id"].to_pylist() == ids
    table.delete(where=condition)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == sorted({1, 2, 3, 4, 5} - set(ids))


def test_sql_selects_what_is_in_variants() -> None:
    text = "SELECT t.id, variant_get(t.v, '$.s', 'string') AS s, try_variant_get(v, '$.a.b', 'int') AS b FROM t"
    rows = lakebed.sql(f"{text} WHERE id < 3 ORDER BY id", tables={"t": trips("cow")}).to_arrow()
    assert rows.to_pylist() == [{"id": 1, "s": None, "b": 1}, {"id": 2, "s": "x", "b": 7}]
    assert rows.schema.field("b").type == pa.int32()


def test_a_selected_value_of_a_variant_is_named_by_its_text() -> None:
    rows = pa.table({"id": [1, 2], "v": variant.encode([{"a": 1, "b": "x"}, None])})
    call = "variant_get(v, '$.a', 'int')"
    for text, names in (
        (f"SELECT id, {call} FROM rows", ["id", call]),
        (f"SELECT DISTINCT {call}, id FROM rows", [call, "id"]),
        (f"SELECT {call} AS a FROM rows", ["a"]),
        (f"SELECT {call} a FROM rows", ["a"]),
        (f"SELECT greatest(1, {call}, 2) AS g FROM rows", ["g"]),
        (f"SELECT id FROM rows ORDER BY id, {call}", ["id"]),
        (f"SELECT count(*) AS c FROM rows GROUP BY {call}", ["c"]),
        (f"SELECT * FROM (SELECT {call} FROM rows)", [call]),
        (f"SELECT (SELECT max(n) FROM (SELECT {call} AS n FROM rows)) AS m, id FROM rows", ["m", "id"]),
    ):
        assert lakebed.sql(text, tables={"rows": rows}).to_arrow().column_names == names, text


@pytest.mark.parametrize(
    ("condition", "error", "why"),
    [
        ("variant_get(v, '$.a', 'int') = 1", InvalidRecord, "cannot be read as asked"),
        ("variant_get(id, '$.a', 'int') = 1", InvalidOption, "which is no VARIANT column"),
        ("variant_get(v, 'a..', 'int') = 1", InvalidOption, "is no path into a variant"),
        ("variant_get(v, '$.a', 'animal') = 1", SchemaConflict, "'animal' is no type"),
        ("variant_get(v, '$.a') = 1", InvalidOption, "without a type"),
        ("v = v", InvalidOption, "the condition compares a VARIANT"),
        ("v = 5", InvalidOption, "the condition compares a VARIANT"),
        ("v in (1, 2)", InvalidOption, "the condition compares a VARIANT"),
    ],
)
def test_a_condition_on_a_variant_that_cannot_be_is_refused(condition: str, error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        trips("cow").scan(where=condition).to_arrow()


def test_a_call_in_sql_needs_a_constant_path_and_type() -> None:
    for call in ("variant_get(v, '$.a')", "variant_get(v, s, 'int')", "try_variant_get(v, '$.a', 'int', 1)"):
        with pytest.raises(InvalidOption, match="a constant path and a constant type"):
            lakebed.sql(f"SELECT {call} FROM t", tables={"t": trips("cow")})


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_each_verb_keeps_the_variants(kind: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", variant.TYPE), ("n", pa.int64())])
    table = lakebed.create(f"memory://variants/verbs/{kind}", schema, key="id", type=kind)
    table.upsert(pa.table({"id": [1, 2, 3], "v": variant.encode([{"a": 1}, [1], "x"]), "n": [1, 1, 1]}))
    first = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.update({"n": "2"}, where="variant_get(v, '$', 'string') = 'x'")
    table.upsert([{"id": 2, "n": 5}], partial=True)
    source = pa.table({"id": [1, 9], "v": variant.encode([{"a": 2}, {"b": None}]), "n": [7, 7]})
    table.merge(source).when_matched_update({"v": "s.v"}).when_not_matched_insert().execute()
    model = {1: {"a": 2}, 2: [1], 3: "x", 9: {"b": None}}
    assert _decoded(table.scan()) == model
    assert _decoded(table.scan(as_of=first)) == {1: {"a": 1}, 2: [1], 3: "x"}
    assert _decoded(table.changes(first))[1] == {"a": 2}
    table.maintenance.compact() if kind == "mor" else table.maintenance.cluster()
    assert _decoded(table.scan()) == model
    assert [(c.name, c.type) for c in table.columns] == [("id", "BIGINT"), ("v", "VARIANT"), ("n", "BIGINT")]


def _decoded(rows: Any) -> dict[int, Any]:
    table = rows.to_arrow()
    return dict(zip(table["id"].to_pylist(), variant.decode(table["v"]), strict=True))
