"""Every type that goes in comes out the same, also after merges; what a write may do to the schema, and what not."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import SchemaConflict
from lakebed.table import Table
from support.write_tables import SCHEMA, content, refused, rows

Make = Callable[..., Table]
BOTH = pytest.mark.parametrize("index", ["bucket", "simple"])
UTC = dt.UTC
WIDEN = {"lakebed.write.evolution": "widen"}

NESTED = pa.struct(
    [
        pa.field("a", pa.int32()),
        pa.field("B", pa.list_(pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.string())]))),
        pa.field("m", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "bool": (pa.bool_(), True, False),
    "int": (pa.int32(), -(2**31), 2**31 - 1),
    "long": (pa.int64(), -(2**63), 2**63 - 1),
    "float": (pa.float32(), 0.10000000149011612, float("-inf")),
    "double": (pa.float64(), 0.1, 1.7976931348623157e308),
    "string": (pa.string(), "", "ä\u0000😀"),
    "binary": (pa.binary(), b"", bytes(range(256))),
    "fixed": (pa.binary(4), b"abcd", b"\x00\xff\x00\xff"),
    "small_decimal": (pa.decimal128(9, 2), Decimal("-1234567.89"), Decimal("0.01")),
    "long_decimal": (pa.decimal128(18, 6), Decimal("123456789012.123456"), Decimal("-0.000001")),
    "wide_decimal": (pa.decimal128(38, 10), Decimal("1234567890123456789012345678.0123456789"), Decimal("-1e-10")),
    "date": (pa.date32(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "julian_date": (pa.date32(), dt.date(1582, 10, 4), dt.date(1500, 2, 28)),
    "micros": (pa.timestamp("us", "UTC"), dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(2024, 1, 1, 0, 0, 0, 1, UTC)),
    "ntz": (pa.timestamp("us"), dt.datetime(1883, 11, 18, 12, 3, 58), dt.datetime(2038, 1, 19, 3, 14, 8, 999999)),
    "millis": (pa.timestamp("ms", "UTC"), dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2024, 1, 1, tzinfo=UTC)),
    "list": (pa.list_(pa.string()), [], ["a", None]),
    "struct": (NESTED, {"a": None, "B": None, "m": None}, {"a": 1, "B": [{"x": 1.5, "y": None}], "m": [("k", [1])]}),
    "map": (pa.map_(pa.string(), pa.int32()), [], [("a", 1), ("b", None)]),
    "Upper_Case": (pa.string(), "x", "y"),
    "größe": (pa.float64(), 1.0, 2.0),
}


def typed(*ids: int, swap: bool = False) -> pa.Table:
    """Rows with a value of every type: the first one for even ids, the second for odd ones, null for multiples of 3."""
    columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.int64())}
    for name, (kind, even, odd) in VALUES.items():
        values = [None if n % 3 == 0 else (even, odd)[(n + swap) % 2] for n in ids]
        columns[name] = pa.array(values, kind)
    return pa.table(columns)


def same(found: pa.Table, expected: pa.Table) -> None:
    found, expected = found.sort_by("id"), expected.sort_by("id")
    assert found.column_names == expected.column_names
    for name in expected.column_names:
        assert found.column(name).to_pylist() == expected.column(name).to_pylist(), name


@pytest.mark.parametrize("version", [9, 6])
@BOTH
def test_every_type_survives_writes_and_merges(make: Make, index: str, version: int) -> None:
    table = make(typed(1).schema, index=index, partition_by=None, ordering=None, table_version=version)
    table.upsert(typed(*range(10)))
    same(table.scan().to_arrow(), typed(*range(10)))
    table.upsert(typed(*range(5, 15), swap=True))
    expected = pa.concat_tables([typed(*range(5)), typed(*range(5, 15), swap=True)])
    same(lakebed.open(table.uri).scan().to_arrow(), expected)
    stored = table.schema
    for name, (kind, _, _) in VALUES.items():
        assert stored.field(name).nullable
        if name == "fixed":
            assert stored.field(name).type == pa.binary()
        elif not pa.types.is_nested(kind):
            assert stored.field(name).type == kind, name
    one = table.get([7]).to_pylist()
    assert one == typed(7, swap=True).to_pylist()


@pytest.mark.parametrize("version", [9, 8, 6])
def test_column_statistics_take_every_type_or_leave_it_out(make: Make, version: int) -> None:
    """Records of versions 6 and 8 have no room for a decimal with more than 15 digits before or behind the point."""
    options = {"table_version": version, "index": "simple", "indexes": ["column_stats"]}
    table = make(typed(1).schema, partition_by="bool", ordering=None, **options)
    for some in (typed(1, 2), typed(4, 5, 8), typed(6, 7)):
        table.upsert(some)
    table = lakebed.open(table.uri)
    assert table.indexes.verify().ok
    rows = table.scan().to_arrow()
    for name in ("wide_decimal", "long_decimal", "small_decimal"):
        kind, even, odd = VALUES[name]
        for value in (even, odd):
            wanted = rows.filter(pc.equal(rows[name], pa.scalar(value, kind)))["id"].to_pylist()
            assert len(wanted) >= 2
            found = table.scan(["id"], where=pc.field(name) == pa.scalar(value, kind)).to_arrow()["id"].to_pylist()
            assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.timestamp("s", "UTC"), None),
        (pa.timestamp("ns", "Europe/Berlin"), None),
        (pa.large_list(pa.int16()), None),
    ],
    ids=str,
)
@BOTH
def test_types_that_are_stored_as_another(
    make: Make, index: str, given: pa.DataType, stored: pa.DataType | None
) -> None:
    schema = pa.schema([("id", pa.int64()), ("x", given)])
    table = make(schema, index=index, partition_by=None, ordering=None)
    value: Any = 7
    if pa.types.is_timestamp(given):
        value = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    elif pa.types.is_large_list(given):
        value = [7]
    elif stored == pa.string():
        value = "seven"
    values = (
        pa.array([value, None], given.value_type).dictionary_encode()
        if pa.types.is_dictionary(given)
        else pa.array([value, None], given)
    )
    for _ in range(2):
        table.upsert(
            pa.table({"id": pa.array([1, 2]), "x": values}, schema=pa.schema([("id", pa.int64()), ("x", values.type)]))
        )
    assert table.scan().to_arrow().sort_by("id").column("x").to_pylist() == [value, None]
    if stored is not None:
        assert table.schema.field("x").type == stored


def test_nullability_and_order_of_columns(make: Make) -> None:
    schema = pa.schema(
        [pa.field("z", pa.string(), False), pa.field("id", pa.int64(), False), pa.field("a", pa.int32())]
    )
    table = make(schema, partition_by=None, ordering=None)
    table.upsert(pa.table({"a": pa.array([1], pa.int32()), "z": ["x"], "id": [1]}, schema=None))
    assert table.schema.names == ["z", "id", "a"]
    assert [f.nullable for f in lakebed.open(table.uri).schema] == [True, True, True]
    strict = lakebed.create(table.uri + "/strict", schema, key="id")
    strict.upsert(pa.table([["x"], [1], pa.array([1], pa.int32())], schema=schema))
    assert [f.nullable for f in lakebed.open(strict.uri).schema] == [False, False, True]


# -- schemas that change with a write

FIRST = [(1, "c", "a", 10), (2, "c", "a", 10)]


def added(name: str, values: pa.Array, *given: tuple[Any, ...]) -> pa.Table:
    return rows(*given).append_column(name, values)


@BOTH
@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_new_column_is_added_and_null_in_old_rows(make: Make, index: str, operation: str) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    getattr(table, operation)(added("x", pa.array([1.5]), (9, "d", "b", 11)))
    table = lakebed.open(table.uri)
    assert table.schema.names == [*SCHEMA.names, "x"]
    found = {r["id"]: r["x"] for r in table.scan().to_arrow().to_pylist()}
    assert found == {1: None, 2: None, 9: 1.5}
    table.upsert(added("x", pa.array([2.5]), (1, "c", "b", 11)))
    assert {r["id"]: r["x"] for r in table.scan().to_arrow().to_pylist()} == {1: 2.5, 2: None, 9: 1.5}
    assert table.get([2]).to_pylist() == [{"id": 2, "city": "c", "v": "a", "ts": 10, "x": None}]


@BOTH
@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        (pa.int32(), pa.int64(), 7, 7),
        (pa.int32(), pa.float64(), 7, 7.0),
        (pa.int32(), pa.string(), 7, "7"),
        (pa.float32(), pa.float64(), 0.1, 0.1),
        (pa.float64(), pa.string(), 1e7, "1.0E7"),
        (pa.decimal128(5, 2), pa.decimal128(10, 3), Decimal("1.25"), Decimal("1.250")),
        (pa.decimal128(5, 2), pa.string(), Decimal("1.25"), "1.25"),
        (pa.date32(), pa.string(), dt.date(2024, 2, 3), None),
    ],
    ids=str,
)
def test_promotions_rewrite_old_rows_and_keep_them_readable(
    make: Make, index: str, old: pa.DataType, new: pa.DataType, before: Any, after: Any
) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("x", old)])
    table = make(schema, index=index, ordering=None, properties=WIDEN)

    def given(kind: pa.DataType, *cells: tuple[int, str, Any]) -> pa.Table:
        ids, cities, values = zip(*cells, strict=True)
        return pa.table({"id": ids, "city": cities, "x": pa.array(values, kind)})

    table.upsert(given(old, (1, "c", before), (2, "c", None), (3, "untouched", before)))
    if after is None:
        with refused(table.uri, SchemaConflict, "x"):
            table.upsert(given(new, (4, "c", "text")))
        return
    table.upsert(given(new, (4, "c", after)))
    assert lakebed.open(table.uri).schema.field("x").type == new
    table.upsert(given(old, (5, "c", before)))  # what is narrower is widened
    assert lakebed.open(table.uri).schema.field("x").type == new
    found = {r["id"]: r["x"] for r in lakebed.open(table.uri).scan().to_arrow().to_pylist()}
    assert found == {1: after, 2: None, 3: after, 4: after, 5: after}


def test_nested_columns_take_wider_types_and_new_fields(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))])
    table = make(schema, partition_by=None, ordering=None, properties=WIDEN)
    table.upsert(pa.Table.from_pylist([{"id": 1, "s": {"a": 1}}, {"id": 2, "s": {"a": 2}}], schema))
    wider = pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))])
    table.upsert(pa.Table.from_pylist([{"id": 2, "s": {"a": 2**40, "b": "x"}}], wider))
    found = lakebed.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "s": {"a": 1, "b": None}}, {"id": 2, "s": {"a": 2**40, "b": "x"}}]


@BOTH
def test_missing_columns_are_refused_filled_or_dropped(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    short = rows((1, "c", "gone", 11), (3, "c", "gone", 11)).drop_columns(["v"])
    with refused(table.uri, SchemaConflict, "lacks", "column v", "hoodie.write.set.null.for.missing.columns"):
        table.upsert(short)
    table.upsert(short, options={"hoodie.write.set.null.for.missing.columns": True})
    assert content(table) == [(1, "c", None, 11), (2, "c", "a", 10), (3, "c", None, 11)]
    table.upsert(short, options={"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": True})
    table = lakebed.open(table.uri)
    assert table.schema.names == ["id", "city", "ts"]
    assert content(table) == [(1, "c", 11), (2, "c", 10), (3, "c", 11)]


@pytest.mark.parametrize("operation", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("v", pa.int64(), None),
        ("v", pa.struct([("a", pa.int64())]), {"a": 1}),
        ("v", pa.timestamp("us", "UTC"), dt.datetime(2024, 1, 1)),
        ("x", pa.int64(), 1),
        ("x", pa.date32(), dt.date(2024, 1, 1)),
        ("s", pa.struct([("b", pa.int32())]), {"b": 1}),
        ("l", pa.list_(pa.string()), ["a"]),
    ],
    ids=str,
)
def test_changes_that_are_refused(make: Make, operation: str, column: str, kind: pa.DataType, value: Any) -> None:
    schema = pa.schema(
        [
            *SCHEMA,
            ("x", pa.bool_()),
            ("s", pa.struct([("a", pa.int32())])),
            ("l", pa.list_(pa.struct([("q", pa.int32())]))),
        ]
    )
    table = make(schema)
    row = {"id": 1, "city": "c", "v": "a", "ts": 1, "x": True, "s": {"a": 1}, "l": [{"q": 1}]}
    table.upsert(pa.Table.from_pylist([row], schema))
    other = schema.set(schema.get_field_index(column), pa.field(column, kind))
    if column == "v" and pa.types.is_integer(kind):
        # a narrower type is widened to the table's
        getattr(table, operation)(pa.Table.from_pylist([row | {"v": 5}], other))
        assert table.schema.field("v").type == pa.string()
        assert "5" in table.scan(["v"]).to_arrow().column("v").to_pylist()
        return
    with refused(table.uri, SchemaConflict, column):
        getattr(table, operation)(pa.Table.from_pylist([row | {column: value}], other))


def test_a_required_column_takes_no_null(make: Make) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.string(), False)])
    table = make(schema, partition_by=None, ordering=None)
    table.upsert(pa.table([[1], ["a"]], schema=schema))
    table.upsert(pa.table({"id": [2], "v": pa.array([None], pa.string())}))
    assert table.schema.field("v").nullable
    assert sorted(r["id"] for r in table.scan().to_arrow().to_pylist()) == [1, 2]


# -- columns that are taken off and come back

DROP = {"hoodie.datasource.write.schema.allow.auto.evolution.column.drop": True}


def with_x(kind: pa.DataType | None, *cells: tuple[int, str, Any]) -> pa.Table:
    """Data of (id, city, x); without x where it has no type."""
    columns = {"id": pa.array([c[0] for c in cells], pa.int64()), "city": pa.array([c[1] for c in cells], pa.string())}
    return pa.table(columns if kind is None else columns | {"x": pa.array([c[2] for c in cells], kind)})


@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize(
    ("back", "given", "stored"),
    [(pa.int32(), 9, 7), (pa.int64(), 2**40, 7), (pa.string(), "nine", "7"), (pa.date32(), dt.date(2024, 1, 1), None)],
    ids=str,
)
def test_a_dropped_column_that_is_added_again_has_its_type_and_values(
    make: Make, index: str, back: pa.DataType, given: Any, stored: Any
) -> None:
    table = make(with_x(pa.int32()).schema, index=index, ordering=None)
    table.upsert(with_x(pa.int32(), (1, "a", 5), (2, "b", 7)))
    table.upsert(with_x(None, (1, "a", None)), options=DROP)
    assert lakebed.open(table.uri).schema.names == ["id", "city"]
    if stored is None:
        with refused(table.uri, SchemaConflict, "column x was taken off", "INT", "another name"):
            table.upsert(with_x(back, (3, "a", given)))
        table.upsert(with_x(None, (2, "b", None)))  # now no file holds it
    table.upsert(with_x(back, (3, "a", given)))
    found = lakebed.open(table.uri).scan().to_arrow()
    assert found.schema.field("x").type == back
    # of files that were not rewritten meanwhile, as real Hudi shows them
    assert {r["id"]: r["x"] for r in found.to_pylist()} == {1: None, 2: stored, 3: given}
    kept = table.scan(["id"], where="x IS NOT NULL").to_arrow()["id"].to_pylist()
    assert sorted(kept) == ([3] if stored is None else [2, 3])
    assert table.get([2])["x"].to_pylist() == [stored]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_values_of_a_column_that_came_back_with_a_foreign_type_stay_hidden(
    make: Make, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real Hudi lets the name come back with any type."""
    table = make(with_x(pa.int32()).schema, index="simple", ordering=None, table_version=version)
    table.upsert(with_x(pa.int32(), (1, "a", 5), (2, "b", 7)))
    table.upsert(with_x(None, (1, "a", None)), options=DROP)
    # lakebed refuses this write, which real Hudi makes
    monkeypatch.setattr("lakebed.operations.context._check_names_that_come_back", lambda *_: None)
    table.upsert(with_x(pa.date32(), (3, "a", dt.date(2024, 1, 1))))
    table = lakebed.open(table.uri)
    found = {r["id"]: r["x"] for r in table.scan().to_arrow().to_pylist()}
    assert found == {1: None, 2: None, 3: dt.date(2024, 1, 1)}
    assert table.get([2])["x"].to_pylist() == [None]
    assert sorted(table.scan(["id"], where="x IS NULL").to_arrow()["id"].to_pylist()) == [1, 2]
    assert table.scan(["id"], where="x > DATE '1969-01-01'").to_arrow()["id"].to_pylist() == [3]


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 6)])
def test_columns_that_nest_thirty_types_deep(kind: str, version: int, make: Make) -> None:
    nested, value = pa.int64(), 7
    for level in range(30):
        nested = [pa.list_(nested), pa.map_(pa.string(), nested), pa.struct([("f", nested)])][level % 3]
        value = [[value], [("k", value)], {"f": value}][level % 3]
    schema = pa.schema([("id", pa.int64()), ("n", nested)])
    table = make(schema, key="id", partition_by=None, ordering=None, type=kind, index="simple", table_version=version)
    table.upsert(pa.Table.from_pylist([{"id": 1, "n": None}, {"id": 2, "n": None}], schema))
    table.upsert(pa.Table.from_pylist([{"id": 1, "n": value}], schema))
    expected = [{"id": 1, "n": value}, {"id": 2, "n": None}]
    assert table.scan().to_arrow().sort_by("id").to_pylist() == expected
    if kind == "mor":
        table.maintenance.compact()
    assert table.get([1, 2]).sort_by("id").to_pylist() == expected
    assert table.indexes.verify().ok
