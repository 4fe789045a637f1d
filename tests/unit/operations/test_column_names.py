"""User columns may have any name but lakebed's own and Hudi's: no derived column meets them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import SchemaConflict
from lakebed.index.record import RecordIndex
from lakebed.table import Table
from support.hostile_columns import FLAGS, HOSTILE, hostile_rows, hostile_schema
from support.sampling import HISTORIES, todays_of
from support.write_tables import SCHEMA, content, refused, rows

Make = Callable[..., Table]
INDEXES: dict[str, dict[str, Any]] = {
    "bucket": {"index": "bucket"},
    "simple": {"index": "simple"},
    "global_simple": {"index": "global_simple"},
    "record": {"index": "record"},
    "moving record": {"index": RecordIndex(update_partition_path=True)},
    "partitioned record": {"index": RecordIndex(partitioned=True)},
}
EVERY_INDEX = pytest.mark.parametrize("index", INDEXES)


def stored(table: Table) -> list[dict[str, Any]]:
    return lakebed.open(table.uri).scan().to_arrow().sort_by("id").to_pylist()


def expected(*parts: pa.Table) -> list[dict[str, Any]]:
    return pa.concat_tables(parts).sort_by("id").to_pylist()


@pytest.mark.parametrize(("index", "partition_by"), todays_of([*INDEXES], ["city", None], parts=2, variable=HISTORIES))
def test_columns_of_every_name_keep_their_values(make: Make, index: str, partition_by: str | None) -> None:
    table = make(hostile_schema(), **INDEXES[index], partition_by=partition_by)
    first, second = hostile_rows(list(range(9)), 10), hostile_rows(list(range(6, 12)), 20)
    table.upsert(first)
    result = table.upsert(second)
    assert (result.inserted, result.updated, result.deleted) == (3, 3, 0)
    assert stored(table) == expected(first.slice(0, 6), second)
    assert table.changes(result.instant).count() == 0
    assert table.changes("000").to_arrow().sort_by("id").to_pylist() == stored(table)
    assert table.get([7]).to_pylist() == second.slice(1, 1).to_pylist()
    assert (
        table.scan(where="_FILE_ID = '_file_id-7-20' and _delete").to_arrow().to_pylist()
        == second.slice(1, 1).to_pylist()
    )

    assert table.delete([0]).deleted == 1
    assert table.delete(first.slice(1, 1)).deleted == 1
    assert table.delete(pa.table({"id": [2]})).deleted == 1
    assert table.delete(where="_group = '_group-3-10'").deleted == 1
    assert stored(table) == expected(first.slice(4, 2), second)

    third = hostile_rows([20, 21, 22], 30)
    table.bulk_insert(third)
    assert stored(table) == expected(first.slice(4, 2), second, third)
    table.insert(hostile_rows([22, 23], 40), options={"hoodie.datasource.write.insert.drop.duplicates": True})
    assert stored(table) == expected(first.slice(4, 2), second, third, hostile_rows([23], 40))
    last = hostile_rows([1, 2, 3], 50)
    table.insert_overwrite(last, "table")
    assert stored(table) == expected(last)
    assert lakebed.open(table.uri).indexes.verify().ok


@pytest.mark.parametrize("index", ["global_simple", "moving record"])
def test_rows_with_columns_of_every_name_move(make: Make, index: str) -> None:
    table = make(hostile_schema(), **INDEXES[index])
    table.upsert(hostile_rows([1, 2, 3], 10))
    moved = hostile_rows([1, 2], 20, ["elsewhere", "elsewhere"])
    table.upsert(moved)
    table.upsert(hostile_rows([3], 5, ["too old to move"]))
    assert stored(table) == expected(moved, hostile_rows([3], 10))


@pytest.mark.parametrize("name", HOSTILE[:14])
@pytest.mark.parametrize("role", ["key", "partition_by", "ordering"])
def test_key_partition_and_ordering_of_every_name(make: Make, name: str, role: str) -> None:
    kind = pa.int64() if role == "ordering" else pa.bool_() if name in FLAGS and role != "key" else pa.string()
    other = {"key": "k", "partition_by": "p", "ordering": "o"}
    schema = pa.schema([(n, kind if r == role else pa.int64()) for r, n in (other | {role: name}).items()])
    table = make(schema, **(other | {role: name}), index="global_simple")
    for time in (1, 2):
        values = {pa.bool_(): [True, False], pa.int64(): [time, time], pa.string(): ["x", "y"]}[kind]
        columns = {"k": [1, 2], "p": [7, 7], "o": [time, time]} | {name: values}
        data = pa.table(columns).select(schema.names).cast(schema)
        table.upsert(data)
    assert content(table) == sorted(tuple(row.values()) for row in data.to_pylist())


@pytest.mark.parametrize("name", ["value", "record_key", "key", "came", "_file_id", "size", "partition"])
def test_secondary_indexes_on_columns_of_every_name(make: Make, name: str) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("ts", pa.int64()), (name, pa.string())])
    table = make(schema, index="record", indexes=[name])
    for ts in (1, 2):
        table.upsert(pa.table([[1, 2], ["a", "b"], [ts, ts], [f"x{ts}", f"y{ts}"]], schema=schema))
    assert table.scan(where=f"{name} = 'x2'").to_arrow()["id"].to_pylist() == [1]
    assert table.scan(where=f"{name} = 'x1'").count() == 0
    assert table.indexes.verify().ok


@pytest.mark.parametrize("name", ["_lakebed_group", "_LAKEBED_x", "_Hoodie_Record_Key", "_HOODIE_FILE_NAME"])
def test_reserved_names_are_refused(make: Make, uri: str, name: str) -> None:
    with refused(uri, SchemaConflict, name, "ename"):
        make(SCHEMA.append(pa.field(name, pa.string())))
    table = make()
    table.upsert(rows((1, "c", "a", 10)))
    more = rows((1, "c", "b", 20)).append_column(name, pa.array(["x"]))
    for verb in ("upsert", "insert", "bulk_insert", "insert_overwrite"):
        with refused(uri, SchemaConflict, name, "ename"):
            getattr(table, verb)(more)
    assert content(table) == [(1, "c", "a", 10)]


BAD_NAMES = ["Sample Number", "a-b", "a.b", "2020", "v ", "a\U0001f600"]
RENAMED = ["Sample__Number", "a__b", "a__b_2", "__020", "v__", "a__"]


def test_all_names_that_hudi_cannot_hold_are_refused_at_once_with_a_call_that_renames_them(make: Make) -> None:
    data = pa.table({"id": [1], **{name: [n] for n, name in enumerate(BAD_NAMES)}})
    with pytest.raises(SchemaConflict) as raised:
        make(data, key="id", partition_by=None, ordering=None)
    assert all(repr(name) in raised.value.message for name in BAD_NAMES)
    renames = dict(zip(BAD_NAMES, RENAMED, strict=True))
    assert f"rows.rename_columns({renames})" in raised.value.hint
    assert raised.value.context["rename"] == renames
    renamed = data.rename_columns(renames)
    table = make(renamed, key="id", partition_by=None, ordering=None)
    table.upsert(renamed)
    assert table.scan().to_arrow().to_pylist() == renamed.to_pylist()
    with refused(table.uri, SchemaConflict, "rename_columns", *map(repr, BAD_NAMES)):
        table.upsert(data)
    with refused(table.uri, SchemaConflict, "rename_columns({'no good': 'no__good'})"):
        table.upsert(renamed.append_column("no good", pa.array([1])))


def test_a_key_that_is_only_renamed_is_refused_by_the_name_of_the_data(make: Make) -> None:
    table = make(pa.schema([("a__b", pa.int64())]), key="a__b", partition_by=None, ordering=None)
    with refused(table.uri, SchemaConflict, "'a-b' is not possible", "{'a-b': 'a__b'}"):
        table.upsert([{"a-b": 1}])


@pytest.mark.parametrize(
    "kind",
    [
        pa.struct([("no-good", pa.int64())]),
        pa.list_(pa.struct([("no-good", pa.int64())])),
        pa.map_(pa.string(), pa.struct([("x", pa.struct([("no-good", pa.int64())]))])),
    ],
)
def test_a_field_inside_a_column_is_refused_by_its_path(make: Make, kind: pa.DataType) -> None:
    with pytest.raises(SchemaConflict, match=r"'c(|\.element|\.value\.x)\.no-good' is not possible") as raised:
        make(pa.schema([("id", pa.int64()), ("c", kind)]), key="id", partition_by=None, ordering=None)
    assert raised.value.hint == "Build the struct with other field names."
