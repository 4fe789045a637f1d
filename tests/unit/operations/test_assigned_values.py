"""What MERGE, UPDATE and INSERT store is what an upsert stores, or they raise the same error: structs field by field,
the types that fit, numbers that are rounded, columns that take no null."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, LakebedError, SchemaConflict
from lakebed.schema.arrow import list_of, map_of
from lakebed.table import Table

PART = pa.struct([("x", pa.int32()), ("y", pa.string())])
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("st", PART),
        ("ls", list_of(PART)),
        ("mp", map_of(PART)),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("n", pa.int32()),
        ("txt", pa.string()),
        ("seen", pa.timestamp("us", "UTC")),
        ("x", pa.int32()),
    ]
)
WHOLE = {"x": 1, "y": "a"}
STORED: dict[str, Any] = {"id": 1, "st": WHOLE, "ls": [WHOLE], "mp": [("k", WHOLE)], "price": Decimal("1.50")}
STORED |= {"f": 1.0, "n": 7, "txt": "t", "seen": datetime(2024, 1, 1, tzinfo=UTC), "x": 0}
KINDS = [("cow", "simple"), ("mor", "bucket")]
Way = Callable[[Table, pa.Table, str], Any]


@pytest.fixture(params=KINDS, ids=str)
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    kind, index = request.param
    uri = f"memory://assigned/{request.node.name}"
    made = lakebed.create(uri, COLUMNS, key="id", type=kind, index=index)
    made.upsert([STORED])
    yield made
    lakebed.drop(uri)


def rows(table: Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().sort_by("id").to_pylist()


def by_sql(text: str) -> Way:
    return lambda table, source, column: lakebed.sql(text.format(c=column), {"t": table, "s": source})


WAYS: dict[str, Way] = {
    "merge by key": lambda t, s, c: t.merge(s).when_matched_update().execute(),
    "merge by key of an expression": lambda t, s, c: t.merge(s).when_matched_update({c: f"s.{c}"}).execute(),
    "merge by join": lambda t, s, c: (
        t.merge(s, "t.id <= s.id AND t.id >= s.id").when_matched_update().when_not_matched_insert().execute()
    ),
    "MERGE": by_sql("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"),
    "MERGE of an expression": by_sql("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET {c} = s.{c}"),
    "MERGE that inserts": by_sql("MERGE INTO t USING (SELECT id + 1 AS id, {c} FROM s) s ON t.id = s.id"
                                 " WHEN NOT MATCHED THEN INSERT *"),
    "INSERT": by_sql("INSERT INTO t (id, {c}) SELECT id + 1, {c} FROM s"),
    "INSERT BY NAME": by_sql("INSERT INTO t BY NAME SELECT id + 1 AS id, {c} FROM s"),
    "INSERT OVERWRITE": by_sql("INSERT OVERWRITE t BY NAME SELECT * FROM s"),
    "REPLACE WHERE": by_sql("INSERT INTO t BY NAME REPLACE WHERE id = 1 SELECT * FROM s"),
}  # fmt: skip


def source(column: str, kind: pa.DataType, value: Any) -> pa.Table:
    return pa.table({"id": pa.array([1], pa.int64()), column: pa.array([value], kind)})


MORE = pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.int64())])
FEWER = pa.struct([("x", pa.int32())])
OTHER = pa.struct([("a", pa.int32()), ("b", pa.string())])


def test_a_struct_with_other_fields_is_refused_in_every_statement_and_nothing_is_lost(table: Table) -> None:
    values: list[tuple[pa.DataType, Any]] = [
        (MORE, {"x": 2, "y": "b", "z": 9}),
        (FEWER, {"x": 2}),
        (OTHER, {"a": 2, "b": "b"}),
    ]
    for kind, value in values:
        nested = [("st", kind, value), ("ls", list_of(kind), [value]), ("mp", map_of(kind), [("k", value)])]
        for column, column_kind, column_value in nested:
            for name, way in WAYS.items():
                with pytest.raises(SchemaConflict, match=f"{column}\\.") as raised:
                    way(table, source(column, column_kind, column_value), column)
                assert raised.value.context["columns"], (name, column, kind)
    assert rows(table) == [STORED]


def test_schema_evolution_takes_in_the_new_fields_of_structs(table: Table) -> None:
    value = {"x": 2, "y": "b", "z": 9}
    given = pa.table(
        {
            "id": pa.array([1, 2], pa.int64()),
            "st": pa.array([value, value], MORE),
            "ls": pa.array([[value], []], list_of(MORE)),
            "mp": pa.array([[("k", value)], []], map_of(MORE)),
        }
    )
    merge = table.merge(given).with_schema_evolution().when_matched_update().when_not_matched_insert()
    strict = {"lakebed.write.evolution": "strict"}
    with pytest.raises(SchemaConflict, match=r"st\.z"):
        merge.execute(options=strict)
    assert rows(table) == [STORED]
    merge.execute()
    new = dict.fromkeys(COLUMNS.names) | {"id": 2, "st": value, "ls": [], "mp": []}
    assert rows(table) == [STORED | {"st": value, "ls": [value], "mp": [("k", value)]}, new]
    table.update({"n": 8}, where="id = 1")
    assert rows(table)[0]["st"] == value


def test_missing_fields_are_null_where_the_write_says_so(table: Table) -> None:
    merge = table.merge(source("st", FEWER, {"x": 2})).when_matched_update()
    merge.execute(options={"hoodie.write.set.null.for.missing.columns": True})
    assert rows(table) == [STORED | {"st": {"x": 2, "y": None}}]


def test_fields_in_another_order_are_found_by_their_names(table: Table) -> None:
    turned = pa.struct([("y", pa.string()), ("x", pa.int64())])
    for way in list(WAYS.values())[:5]:
        way(table, source("st", turned, {"y": "b", "x": 2}), "st")
        assert rows(table) == [STORED | {"st": {"x": 2, "y": "b"}}]
        table.upsert([STORED])


def test_a_set_of_a_field_is_refused_by_its_whole_name(table: Table) -> None:
    texts = ["UPDATE t SET st.x = 9", "UPDATE t SET t.st.x = 9", "UPDATE t AS a SET a.st.x = 9"]
    texts += ["MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.st.x = 9"]
    texts += ["MERGE INTO t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, st.x) VALUES (2, 9)"]
    texts += ["INSERT INTO t (id, st.x) VALUES (2, 9)"]
    for text in texts:
        with pytest.raises(InvalidOption, match=r"st\.x'"):
            lakebed.sql(text, {"t": table, "s": pa.table({"id": [1]})})
    with pytest.raises(InvalidOption, match=r"st\.x'"):
        table.update({"st.x": 9})
    assert rows(table) == [STORED]
    lakebed.sql("UPDATE t AS a SET a.x = 9", {"t": table})
    assert rows(table) == [STORED | {"x": 9}]


def test_a_field_of_a_struct_called_as_the_target_is_no_column() -> None:
    columns = pa.schema([("id", pa.int64()), ("t", pa.struct([("x", pa.int32())])), ("x", pa.int32())])
    table = lakebed.create("memory://assigned/called_t", columns, key="id")
    before = {"id": 1, "t": {"x": 1}, "x": 2}
    table.upsert([before])
    with pytest.raises(InvalidOption, match=r"t\.x"):
        table.update({"t.x": 9})
    assert rows(table) == [before]


def test_values_of_other_types_are_refused_not_read_as_something_else(table: Table) -> None:
    moment = (pa.timestamp("us", "UTC"), datetime(2024, 1, 2, tzinfo=UTC))
    for column, kind, value in [
        ("txt", *moment),
        ("txt", pa.time64("us"), 5),
        ("seen", pa.int64(), 5),
        ("seen", pa.date32(), date(2024, 1, 1)),
        ("n", pa.bool_(), True),
        ("n", pa.string(), "5"),
        ("price", pa.bool_(), True),
    ]:
        for name, way in WAYS.items():
            with pytest.raises(SchemaConflict, match=f"column '{column}' is") as raised:
                way(table, source(column, kind, value), column)
            assert raised.value.context["column"] == column, name
        with pytest.raises(SchemaConflict, match=f"column {column} is"):
            table.upsert(source(column, kind, value), partial=True)
    for name, way in WAYS.items():
        with pytest.raises(InvalidRecord, match=r"column txt is STRING in the table, which does not keep b'\\xff'"):
            way(table, source("txt", pa.binary(), b"\xff"), "txt")
        assert rows(table) == [STORED], name


NUMBERS: list[tuple[str, str, Any]] = [
    ("price", "5", Decimal("5.00")),
    ("price", "99999999", Decimal("99999999.00")),
    ("price", "100000000", None),
    ("price", "1.239", Decimal("1.24")),
    ("price", "-1.235", Decimal("-1.24")),
    ("price", "99999999.994", Decimal("99999999.99")),
    ("price", "99999999.995", None),
    ("price", "1.2345e1", Decimal("12.35")),
    ("price", "1e-300", Decimal("0.00")),
    ("price", "1e300", None),
    ("price", "'7.125'", Decimal("7.13")),
    ("price", "'seven'", None),
    ("f", "1.5", 1.5),
    ("f", "3e38", 2.9999999e38),
    ("f", "4e38", None),
    ("f", "1e300", None),
    ("f", "16777216", 16777216.0),
    ("f", "16777217", None),
    ("n", "1.9", 1),
    ("n", "-1.9", -1),
    ("n", "2147483647.9", 2147483647),
    ("n", "2147483648", None),
    ("n", "1e20", None),
    ("txt", "5", "5"),
    ("txt", "date '2024-01-02'", "2024-01-02"),
    ("txt", "true", "true"),
]


def test_numbers_are_rounded_as_in_store_assignment_and_what_is_too_great_is_an_error() -> None:
    columns = pa.schema([COLUMNS.field(name) for name in ("id", "price", "f", "n", "txt")])
    table = lakebed.create("memory://assigned/numbers", columns, key="id")
    table.upsert({"id": [1], "price": [Decimal("1.50")], "f": [1.0], "n": [7], "txt": ["t"]})
    for column, text, stored in NUMBERS:
        statements = [
            lambda: table.update({column: text}, where="id = 1"),  # noqa: B023
            lambda: lakebed.sql(f"INSERT OVERWRITE t BY NAME SELECT 1 AS id, {text} AS {column}", {"t": table}),  # noqa: B023
        ]
        for statement in statements:
            if stored is not None:
                statement()
                (row,) = rows(table)
                assert row[column] == (pytest.approx(stored, rel=1e-6) if column == "f" else stored), (column, text)
                continue
            before = rows(table)
            with pytest.raises(
                InvalidRecord, match=f"column {column} is .* in the table, which does not keep"
            ) as raised:
                statement()
            assert {"value", "column"} <= raised.value.context.keys()
            assert rows(table) == before, (column, text)


@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_rows_that_no_source_row_matched_are_deleted_where_updated_columns_take_no_null(kind: Any, index: str) -> None:
    fields = [pa.field("id", pa.int64(), False), pa.field("a", pa.int64(), False), pa.field("b", PART, False)]
    stored = [{"id": n, "a": n, "b": WHOLE} for n in (1, 2, 3)]
    for at, on in enumerate(["t.id = s.id", "t.id <= s.id AND t.id >= s.id"]):
        table = lakebed.create(
            f"memory://assigned/not_null/{kind}{at}", pa.schema(fields), key="id", type=kind, index=index
        )
        table.upsert(pa.Table.from_pylist(stored, pa.schema(fields)))
        given = pa.Table.from_pylist([{"id": 1, "a": 10, "b": {"x": 2, "y": "b"}}], pa.schema(fields))
        done = table.merge(given, on).when_matched_update({"a": "s.a", "b": "s.b"}).when_not_matched_by_source_delete()
        result = done.execute()
        assert (result.updated, result.deleted) == (1, 2)
        assert rows(table) == given.to_pylist()


@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_rows_are_deleted_beside_inserted_ones_where_columns_take_no_null(kind: Any, index: str) -> None:
    fields = [pa.field("id", pa.int64(), False), pa.field("a", pa.int64(), False), pa.field("b", PART, False)]
    stored = [{"id": n, "a": n, "b": WHOLE} for n in (1, 2, 3)]
    given = [{"id": n, "a": n * 10, "b": {"x": n, "y": "b"}} for n in (1, 4)]
    cases = [
        ("t.id = s.id", "when_not_matched_by_source_delete", [stored[0], given[1]], 2),
        ("t.id = s.id + 0", "when_not_matched_by_source_delete", [stored[0], given[1]], 2),
        ("t.id = s.id", "when_matched_delete", [*stored[1:], given[1]], 1),
        ("t.id <= s.id AND t.id >= s.id", "when_matched_delete", [*stored[1:], given[1]], 1),
    ]
    for at, (on, delete, expected, deleted) in enumerate(cases):
        table = lakebed.create(
            f"memory://assigned/inserted/{kind}{at}", pa.schema(fields), key="id", type=kind, index=index
        )
        table.upsert(pa.Table.from_pylist(stored, pa.schema(fields)))
        merge = table.merge(pa.Table.from_pylist(given, pa.schema(fields)), on).when_not_matched_insert()
        result = getattr(merge, delete)().execute()
        assert (result.inserted, result.deleted) == (1, deleted), (on, delete)
        assert rows(table) == expected, (on, delete)


def test_texts_that_nest_too_deep_or_are_no_unicode_are_refused_as_sql() -> None:
    table = lakebed.create("memory://assigned/texts", COLUMNS, key="id")
    table.upsert([STORED])
    parentheses, sums, half = "(" * 3000 + "1" + ")" * 3000, "1" + " + 1" * 3000, "'\ud800'"
    writes = [
        lambda: table.update({"n": parentheses}),
        lambda: table.update({"n": sums}),
        lambda: table.merge([{"id": 1}], f"t.id = s.id AND {parentheses} = 1").when_matched_delete().execute(),
        lambda: table.update({"n": half}),
        lambda: table.delete(where=f"txt = {half}"),
        lambda: lakebed.sql(f"UPDATE t SET n = {half}", {"t": table}),
    ]
    for write in writes:
        with pytest.raises(InvalidOption, match=r"nested too deeply|half of a surrogate pair"):
            write()
    with pytest.raises(InvalidOption, match="half of a surrogate pair"):
        table.update({"txt": "\ud800"})
    assert rows(table) == [STORED]


def test_constants_that_no_column_holds_are_refused_by_name() -> None:
    table = lakebed.create("memory://assigned/constants", COLUMNS, key="id")
    table.upsert([STORED])
    great: list[Any] = [10**38, -(10**38), Decimal("1e400"), Decimal("1" * 39), Decimal("NaN"), Decimal("Infinity")]
    for value in great:
        with pytest.raises(InvalidOption, match="at most 38 digits"):
            table.update({"price": value})
    for value in (2**63, -(2**63) - 1, 10**38 - 1, Decimal("123456789")):
        with pytest.raises(InvalidRecord, match="which does not keep"):
            table.update({"price": value})
    for text in ("CAST(1 AS DECIMAL(39, 2))", "map('a')", "abs(-9223372036854775808)", "- -9223372036854775808"):
        with pytest.raises(InvalidOption, match=r"at most 38 digits|too few arguments|is no BIGINT"):
            table.update({"price": text})
    for value, name in ((2**63, "price"), (2**63, "n"), (-(2**63) - 1, "price")):
        with pytest.raises(LakebedError):
            lakebed.sql(f"UPDATE t SET {name} = :p", {"t": table}, {"p": value})
        with pytest.raises(LakebedError):
            lakebed.sql(f"INSERT INTO t (id, {name}) VALUES (2, ?)", {"t": table}, [value])
    assert rows(table) == [STORED]


def test_times_beyond_what_a_column_holds_are_refused_by_name(table: Table) -> None:
    for kind in (pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC")):
        given = pa.table({"id": pa.array([1], pa.int64()), "seen": pa.array([2**62], pa.int64()).cast(kind)})
        writes = [
            lambda: table.upsert(given, partial=True),  # noqa: B023
            lambda: table.merge(given).when_matched_update().execute(),  # noqa: B023
            lambda: lakebed.sql("INSERT OVERWRITE t BY NAME SELECT * FROM s", {"t": table, "s": given}),  # noqa: B023
        ]
        for write in writes:
            with pytest.raises(LakebedError):
                write()
    with pytest.raises(InvalidRecord, match="column txt is STRING in the table, which does not keep"):
        table.merge(source("txt", pa.binary(), b"\xff")).when_matched_update().execute()
    assert rows(table) == [STORED]


def test_values_that_nest_too_deep_and_halves_of_surrogate_pairs_are_refused_by_column(table: Table) -> None:
    deep_list: Any = 1
    deep_dict: Any = 1
    kind = pa.int32()
    for _ in range(2000):
        deep_list = [deep_list]
    for _ in range(150):  # Arrow takes seconds for a thousand
        deep_dict = {"a": deep_dict}
    for _ in range(60):
        kind = pa.list_(kind)
    many: list[Any] = [[{"id": 1, name: value}] for name in ("ls", "new") for value in (deep_list, deep_dict)]
    many.append(pa.table({"id": pa.array([1], pa.int64()), "new": pa.array([None], kind)}))
    for data in many:
        for write in (
            lambda: table.upsert(data, partial=True),  # noqa: B023
            lambda: table.merge(data).with_schema_evolution().when_matched_update().execute(),  # noqa: B023
        ):
            with pytest.raises(SchemaConflict, match="levels deep"):
                write()
    with pytest.raises(InvalidRecord, match="column txt has a text with half of a surrogate pair in row 1"):
        table.upsert([{"id": 1, "txt": "a"}, {"id": 2, "txt": "\ud800"}], partial=True)
    assert rows(table) == [STORED]


def test_a_partition_value_that_is_too_great_is_refused_by_name() -> None:
    columns = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    table = lakebed.create("memory://assigned/partition", columns, key="id", partition_by="n")
    table.upsert({"id": [1], "n": [1]})
    for value in (2**31, 2**63, 2**70):
        with pytest.raises((InvalidOption, InvalidRecord), match=rf"\bn\b.*{value}|{value} is no INT"):
            lakebed.sql("INSERT OVERWRITE t PARTITION (n = :p) SELECT 2", {"t": table}, {"p": value})
    assert rows(table) == [{"id": 1, "n": 1}]
