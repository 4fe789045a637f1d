"""Values that Arrow has no type for are refused by name; what stands for a missing value is null; indexes of pandas."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from itertools import count
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import LakebedError, SchemaConflict
from lakebed.table import Table

# Its bytes are the text `abcdefghijklmnop`.
UUID = uuid.UUID(bytes=b"abcdefghijklmnop")
STRUCT = pa.struct([("a", pa.int32())])
_numbers = count()


def new(schema: Any) -> Table:
    return lakebed.create(f"memory://other-libraries/{next(_numbers)}", schema, key="id", index="simple")


def of_kind(kind: pa.DataType) -> Table:
    return new(pa.schema([("id", pa.int64()), ("u", kind)]))


@pytest.mark.parametrize("as_rows", [True, False])
@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ([("a", 1), None], "None, which is no pair of key and value"),
        ([("a", 1), ("b",)], "('b',), which is no pair of key and value"),
        ([("a", 1), (None, 2)], "(None, 2), which has no key"),
        ({"a": 1, None: 2}, "(None, 2), which has no key"),
    ],
)
def test_a_map_with_an_entry_that_is_none_is_refused_with_its_row(entries: Any, what: str, as_rows: bool) -> None:
    table = of_kind(pa.map_(pa.string(), pa.int64()))
    data = [{"id": 1, "u": {"a": 1}}, {"id": 2, "u": entries}]
    with pytest.raises(SchemaConflict) as caught:
        table.upsert(data if as_rows else {"id": [1, 2], "u": [row["u"] for row in data]})
    assert caught.value.message == f"column u has maps, and that of row 1 has the entry {what}"
    assert table.count() == 0


def values(table: Table) -> list[Any]:
    return [row["u"] for row in sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])]


def from_parquet(frame: pd.DataFrame) -> pa.Table:
    """The frame as Arrow reads it from a Parquet file in a process without pandas: by its storage."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    field = table.schema.field("u")
    names = {"ARROW:extension:name": field.type.extension_name, "ARROW:extension:metadata": "{}"}
    stored = pa.field("u", field.type.storage_type, metadata=names)
    return pa.table([table.column("id"), pa.array([672])], schema=pa.schema([table.schema.field("id"), stored]))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (lambda: pl.DataFrame({"id": [1], "u": pl.Series([UUID], dtype=pl.Object)}), "Object"),
        (lambda: pl.DataFrame({"id": [1], "u": pl.Series([UUID], dtype=pl.Object)}).lazy(), "Object"),
        (lambda: duckdb.sql("select 1::bigint id, 5::bignum u"), "BIGNUM"),
        (lambda: duckdb.sql("select 1::bigint id, '101'::bit u"), "BIT"),
        (lambda: duckdb.sql("select 1::bigint id, ['101'::bit] u"), "BIT"),
        (lambda: duckdb.sql("select 1::bigint id, {'a': '10:00:00+02'::timetz} u"), "TIME WITH TIME ZONE"),
        (lambda: pd.DataFrame({"id": [1], "u": pd.period_range("2024-01", "2024-01", freq="M")}), "pandas.period"),
        (lambda: pd.DataFrame({"id": [1], "u": pd.interval_range(0, 1)}), "pandas.interval"),
        (lambda: from_parquet(pd.DataFrame({"id": [1], "u": pd.period_range("2024", "2024")})), "pandas.period"),
        (lambda: pa.table({"id": [1], "u": pa.array([b"x"], pa.opaque(pa.binary(), "bignum", "DuckDB"))}), "opaque"),
    ],
    ids=["object", "lazy", "bignum", "bit", "bit-list", "timetz", "period", "interval", "period-file", "opaque"],
)
def test_types_without_a_meaning_in_arrow_are_refused_by_name(data: Any, named: str) -> None:
    for write in (new, of_kind(pa.binary()).upsert):
        with pytest.raises(SchemaConflict, match=f"column u has .*{named}"):
            write(data())


def test_duckdbs_other_types_are_taken() -> None:
    nested = "{'BIT': 1} s, [1] l, map {'a': 1} m"
    query = f"select 1::bigint id, 'BIT'::enum('BIT') u, uuid() i, '{{}}'::json j, 5::hugeint h, {nested}"
    table = new(duckdb.sql(query))
    table.upsert(duckdb.sql(query))
    assert values(table) == ["BIT"]


@pytest.mark.parametrize(
    "data",
    [
        [{"id": 1, "u": UUID}, {"id": 2, "u": None}],
        pa.table({"id": [0, 1, 2], "u": pa.array([None, UUID.bytes, None], pa.uuid())}).slice(1),
        pd.DataFrame({"id": [1, 2], "u": [UUID, None]}),
    ],
    ids=["dicts", "arrow", "pandas"],
)
def test_uuids_are_texts_in_a_text_column_and_bytes_in_others(data: Any) -> None:
    for kind, stored in ((pa.string(), str(UUID)), (pa.binary(), UUID.bytes)):
        table = of_kind(kind)
        table.upsert(data)
        assert values(table) == [stored, None]


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.date32(), STRUCT], ids=str)
@pytest.mark.parametrize("missing", [float("nan"), np.float32("nan")])
def test_nan_is_null_in_a_column_of_another_kind(kind: pa.DataType, missing: Any) -> None:
    table = of_kind(kind)
    table.upsert([{"id": 1, "u": missing}])
    table.upsert({"id": [2], "u": [missing]})
    table.upsert({"id": [3], "u": np.array([missing])})
    assert values(table) == [None] * 3
    assert table.scan(where="u IS NULL").count() == 3


def test_nan_among_texts_is_null_and_in_a_floating_column_a_number() -> None:
    table = of_kind(pa.string())
    table.upsert([{"id": 1, "u": "a"}, {"id": 2, "u": float("nan")}])
    assert values(table) == ["a", None]
    floats = of_kind(pa.float64())
    floats.upsert([{"id": 1, "u": float("nan")}])
    assert np.isnan(values(floats)[0])
    fresh = new({"id": [1, 2], "u": [float("nan"), "x"]})
    assert fresh.schema.field("u").type == pa.string()


@pytest.mark.parametrize(
    ("kind", "given", "stored", "type_now"),
    [
        (STRUCT, {"a": 1, "b": "x"}, {"a": 1, "b": "x"}, pa.struct([("a", pa.int32()), ("b", pa.string())])),
        (STRUCT, {"A": 1}, {"a": 1}, STRUCT),
        (pa.map_(pa.string(), pa.int32()), {"k": 1, "n": None}, [("k", 1), ("n", None)], None),
        (pa.map_(pa.string(), pa.int32()), [("k", 1)], [("k", 1)], None),
        (pa.map_(pa.string(), pa.int32()), {}, [], None),
        (pa.map_(pa.string(), STRUCT), {"k": {"A": 1}}, [("k", {"a": 1})], None),
        (pa.list_(STRUCT), [{"A": 1}, None], [{"a": 1}, None], None),
        (pa.list_(STRUCT), [], [], None),
        (pa.struct([("m", pa.map_(pa.string(), pa.int32()))]), {"m": {}}, {"m": []}, None),
        (pa.struct([("t", pa.string())]), {"t": float("nan")}, {"t": None}, None),
    ],
    ids=str,
)
def test_nested_values_of_python_are_taken_as_the_tables_type_says(
    kind: pa.DataType, given: Any, stored: Any, type_now: pa.DataType | None
) -> None:
    table = of_kind(kind)
    before = table.schema.field("u").type
    table.upsert([{"id": 1, "u": given}, {"id": 2, "u": None}])
    assert values(table) == [stored, None]
    assert table.schema.field("u").type == (type_now or before)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.map_(pa.string(), pa.int32()), {"k": 1.5}),
        (pa.map_(pa.string(), pa.int32()), {"k": 1 << 40}),
        (STRUCT, {"a": 1.5, "b": "x"}),
        (STRUCT, {"a": "x"}),
        (STRUCT, {}),  # a field that no row names is missing, as a column is
    ],
    ids=str,
)
def test_nested_values_that_do_not_fit_are_refused(kind: pa.DataType, given: Any) -> None:
    table = of_kind(kind)
    with pytest.raises(lakebed.LakebedError):
        table.upsert([{"id": 1, "u": given}])
    assert values(table) == []


def frame() -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2, 3], "u": ["a", "b", "a"], "v": [1, 2, 3]})


@pytest.mark.parametrize(
    "given",
    [
        lambda: frame().groupby("u")[["id", "u", "v"]].apply(lambda part: part.tail(2)),
        lambda: frame().set_index("id", drop=False),
        lambda: frame().set_index("id"),
        lambda: frame().set_index(["u", "id"]),
        lambda: frame().set_index(pd.Index([7, 8, 9], name="nobody")),
        lambda: frame().set_index(pd.MultiIndex.from_arrays([[7, 8, 9], [1, 2, 3]], names=[None, "id"]))[["u", "v"]],
        lambda: frame()[lambda rows: rows.v > 0],
    ],
)
def test_levels_of_an_index_are_columns_where_the_table_has_them(given: Any) -> None:
    table = new(pa.schema([("id", pa.int64()), ("u", pa.string()), ("v", pa.int64())]))
    result = table.upsert(given())
    assert result.schema_changes == ()
    assert sorted(map(tuple, frame().values.tolist())) == sorted(
        (row["id"], row["u"], row["v"]) for row in table.scan().to_arrow().to_pylist()
    )
    assert table.schema.names == ["id", "u", "v"]


def test_a_new_table_has_the_named_levels_of_an_index() -> None:
    assert new(frame().set_index("id")).schema.names == ["u", "v", "id"]
    assert new(frame().groupby("u")[["id", "v"]].apply(lambda part: part.tail(2))).schema.names == ["id", "v", "u"]


@pytest.mark.parametrize("column", [pd.arrays.SparseArray([1.0]), [1 + 2j]], ids=["sparse", "complex"])
def test_pandas_types_that_arrow_lacks_are_refused_by_column(column: Any) -> None:
    with pytest.raises(SchemaConflict, match=r"column u has pandas' type (Sparse|complex)"):
        of_kind(pa.float64()).upsert(pd.DataFrame({"id": [1], "u": column}))


def test_a_change_of_what_may_be_null_inside_says_so() -> None:
    table = of_kind(pa.list_(pa.field("element", pa.int32(), nullable=False)))
    table.upsert(pa.table({"id": [1], "u": pa.array([[1]], pa.list_(pa.field("element", pa.int32(), nullable=False)))}))
    result = table.upsert(pa.table({"id": [1], "u": pa.array([[1]], pa.list_(pa.int32()))}))
    assert result.schema_changes == ("column u may hold nulls inside now",)


EXACT = 1 << 53


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()], ids=str)
@pytest.mark.parametrize(
    "given",
    [
        lambda numbers: pd.DataFrame({"id": [1, 2, 3], "u": numbers}),
        lambda numbers: pd.DataFrame({"id": [1, 2, 3], "U": np.array(numbers, np.float32)}),
        lambda numbers: pd.DataFrame({"id": [1, 2, 3], "u": numbers}).to_dict("records"),
        lambda numbers: pd.DataFrame({"id": [1, 2, 3], "u": numbers}).to_dict("list"),
        lambda numbers: {"id": [1, 2, 3], "u": np.array(numbers)},
        lambda numbers: {"id": [1, 2, 3], "u": [7, None, numbers[2]]},
    ],
    ids=["frame", "float32", "records", "lists", "numpy", "with-none"],
)
def test_whole_numbers_with_a_missing_one_are_integers_in_an_integer_column(kind: pa.DataType, given: Any) -> None:
    table = of_kind(kind)
    result = table.upsert(given([7.0, float("nan"), float("nan")]))
    assert result.schema_changes == ()
    assert values(table) == [7, None, None]
    assert table.schema.field("u").type == kind


def test_whole_numbers_of_pandas_without_a_missing_one_are_integers_too() -> None:
    table = of_kind(pa.int32())
    table.upsert(pd.DataFrame({"id": [1, 2], "u": [7.0, -8.0]}))
    assert values(table) == [7, -8]


@pytest.mark.parametrize(
    ("kind", "number", "taken"),
    [
        (pa.int64(), 1.5, False),
        (pa.int64(), float("inf"), False),
        (pa.int64(), float(EXACT - 1), True),
        (pa.int64(), float(EXACT), False),
        (pa.int64(), float(1 - EXACT), True),
        (pa.int32(), float((1 << 31) - 1), True),
        (pa.int32(), float(1 << 31), False),
    ],
)
def test_floating_numbers_are_never_cut_or_rounded_to_integers(kind: pa.DataType, number: float, taken: bool) -> None:
    table = of_kind(kind)
    data = pd.DataFrame({"id": [1, 2], "u": [number, float("nan")]})
    if taken:
        table.upsert(data)
        assert values(table) == [int(number), None]
    else:
        with pytest.raises(SchemaConflict, match="column u is"):
            table.upsert(data)
        assert values(table) == []


@pytest.mark.parametrize("make", [pd.DataFrame, dict, lambda data: pd.DataFrame(data).to_dict("records")])
def test_a_column_of_several_types_is_refused_with_the_first_row_of_each(make: Any) -> None:
    data = make({"id": [1, 2, 3, 4], "u": [None, 5, 6, "x"]})
    for write in (new, of_kind(pa.string()).upsert):
        with pytest.raises(SchemaConflict, match=r"column u has values of several types: int .*row 1 \(5.*'x'\)"):
            write(data)


@pytest.mark.parametrize(
    ("value", "named"),
    [(pd.Period("2026-01"), "Period in row 1"), (1 + 2j, "complex in row 1"), (object(), "object in row 1")],
    ids=["period", "complex", "object"],
)
def test_a_value_of_a_type_without_a_column_is_refused_by_its_row(value: Any, named: str) -> None:
    with pytest.raises(SchemaConflict, match=f"column u has values of a type that no table can hold: {named}"):
        new([{"id": 1, "u": None}, {"id": 2, "u": value}])


DAY, TIME = date(2020, 1, 1), datetime(2020, 1, 1, 5, 6)
UTC_TIMES = pa.timestamp("us", "UTC")


@pytest.mark.parametrize("missing", [pd.NaT, pd.NA, np.datetime64("NaT")])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(pa.date32(), DAY), (pa.timestamp("us"), TIME), (UTC_TIMES, TIME.replace(tzinfo=UTC)), (pa.int64(), 1)],
)
def test_missing_values_of_pandas_are_null(kind: pa.DataType, value: Any, missing: Any) -> None:
    table = of_kind(kind)
    table.upsert([{"id": 1, "u": value}, {"id": 2, "u": missing}])
    table.upsert({"id": [3], "u": np.array([missing], object)})
    assert values(table) == [value, None, None]
    nested = of_kind(pa.struct([("a", kind)]))
    nested.upsert([{"id": 1, "u": {"a": value}}, {"id": 2, "u": {"a": missing}}])
    assert values(nested) == [{"a": value}, {"a": None}]


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (pa.date32(), [DAY, TIME]),
        (pa.date32(), [DAY, 5]),
        (UTC_TIMES, [TIME.replace(tzinfo=UTC), TIME]),
        (UTC_TIMES, [TIME.replace(tzinfo=UTC), 5]),
        (pa.timestamp("us"), [TIME, TIME.replace(tzinfo=UTC)]),
        (pa.time64("us"), [TIME.time(), 5]),
    ],
)
def test_times_of_another_sort_are_not_made_to_fit(kind: pa.DataType, given: list[Any]) -> None:
    """Arrow cuts a time to its date, takes one without a zone for one in UTC, and counts numbers from 1970."""
    for inside, wrap in (
        (kind, lambda value: value),
        (pa.list_(kind), lambda value: [value]),
        (pa.map_(pa.string(), kind), lambda value: {"a": value}),
    ):
        table = of_kind(inside)
        with pytest.raises(LakebedError):
            table.upsert([{"id": at, "u": wrap(value)} for at, value in enumerate(given)])
        assert values(table) == []
    with pytest.raises(SchemaConflict, match="values of several types"):
        new(pa.schema([("id", pa.int64())])).upsert({"id": [1, 2], "u": given})


def test_whole_numbers_beyond_64_bits_are_named_and_fit_into_decimals() -> None:
    with pytest.raises(SchemaConflict, match=f"BIGINT does not hold: {2**64} in row 1"):
        of_kind(pa.int64()).upsert([{"id": 1, "u": 1}, {"id": 2, "u": 2**64}])
    table = of_kind(pa.decimal128(38, 0))
    table.upsert([{"id": 1, "u": 2**64}])
    assert values(table) == [2**64]


@pytest.mark.parametrize("entries", [[None], [("a", 1), None]])
def test_null_among_the_entries_of_a_map_is_an_error(entries: list[Any]) -> None:
    with pytest.raises(LakebedError):
        of_kind(pa.map_(pa.string(), pa.int64())).upsert([{"id": 1, "u": entries}])


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(SchemaConflict, match="hold twice the name u"):
        new(pd.DataFrame([[1, 2, 3]], columns=["id", "u", "u"]))
