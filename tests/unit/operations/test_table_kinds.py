"""Tables that are set up in other ways: no meta fields, dropped partition columns, generated keys, partition styles."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.table import Table
from support.write_tables import SCHEMA, content, files, refused, rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 2}", "a", 10) for n in range(6)]


def data_files(table: Table) -> dict[str, pa.Table]:
    return {p: pq.read_table(pa.BufferReader(b)) for p, b in files(table.uri).items() if p.endswith(".parquet")}


@pytest.mark.parametrize("version", [9, 6])
def test_without_meta_fields_rows_can_be_added_only(make: Make, version: int) -> None:
    table = make(table_version=version, properties={"hoodie.populate.meta.fields": False})
    table.insert(rows(*FIRST))
    table.bulk_insert(rows((0, "c0", "again", 1)))
    assert content(table) == sorted([*FIRST, (0, "c0", "again", 1)])
    for stored in data_files(table).values():
        assert stored.column("_hoodie_record_key").null_count == stored.num_rows
    for write in (
        lambda: table.upsert(rows(*FIRST)),
        lambda: table.delete([1]),
        lambda: table.delete(where="id = 1"),
        lambda: table.insert(rows(*FIRST), options={"hoodie.datasource.write.insert.drop.duplicates": True}),
    ):
        with refused(table.uri, lakebed.LakebedError, "meta fields"):
            write()
    table.insert_overwrite(rows((7, "c0", "over", 1)))
    assert content(table) == sorted([r for r in FIRST if r[1] == "c1"] + [(7, "c0", "over", 1)])


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("version", [9, 6])
def test_partition_columns_that_are_not_stored(make: Make, index: str, version: int) -> None:
    table = make(
        index=index,
        table_version=version,
        properties={
            "hoodie.datasource.write.drop.partition.columns": True,
            "hoodie.datasource.write.hive_style_partitioning": True,
        },
    )
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c0", "b", 11), (9, "c0", "b", 11)))
    table.delete([1])
    assert all("city" not in stored.column_names for stored in data_files(table).values())
    expected = [(0, "c0", "b", 11), *FIRST[2:], (9, "c0", "b", 11)]
    found = lakebed.open(table.uri).scan(["id", "city", "v", "ts"]).to_arrow().to_pylist()
    assert sorted(tuple(r.values()) for r in found) == expected
    assert table.get([9], ["city"]).to_pylist() == [{"city": "c0"}]
    assert lakebed.open(table.uri).scan(where="city = 'c1'").count() == 2


@pytest.mark.parametrize("version", [9, 6])
def test_generated_keys_are_distinct(make: Make, version: int) -> None:
    table = make(key=None, ordering=None, table_version=version)
    first = table.insert(rows(*FIRST, *FIRST))
    second = table.bulk_insert(rows(*FIRST))
    stored = [
        r
        for t in data_files(table).values()
        for r in t.select(["_hoodie_record_key", "_hoodie_commit_time"]).to_pylist()
    ]
    assert len({r["_hoodie_record_key"] for r in stored if r["_hoodie_commit_time"] == second.instant}) == 6
    keys = table.scan(["_hoodie_record_key"]).to_arrow().column(0).to_pylist()
    assert len(set(keys)) == len(keys) == 18
    assert sum(k.startswith(first.instant) for k in keys) == 12
    assert content(table) == sorted(FIRST * 3)
    for write in (lambda: table.upsert(rows(*FIRST)), lambda: table.delete(["x"])):
        with refused(table.uri, InvalidOption, "generated record keys"):
            write()
    table.delete(where="id = 3")
    assert content(table) == sorted(r for r in FIRST * 3 if r[0] != 3)
    assert set(table.scan(["_hoodie_record_key"]).to_arrow().column(0).to_pylist()) < set(keys)
    table.insert_overwrite(rows((1, "c1", "over", 1)))
    assert content(table) == sorted([(1, "c1", "over", 1), *(r for r in FIRST * 3 if r[1] == "c0")])


STYLES: list[tuple[dict[str, Any], Any, str]] = [
    ({}, "c0", "c0"),
    ({}, None, "__HIVE_DEFAULT_PARTITION__"),
    ({}, "", "__HIVE_DEFAULT_PARTITION__"),
    ({"hoodie.datasource.write.hive_style_partitioning": True}, "c0", "city=c0"),
    ({"hoodie.datasource.write.partitionpath.urlencode": True}, "a/b c", "a%2Fb c"),
    ({"hoodie.datasource.write.hive_style_partitioning": True}, None, "city=__HIVE_DEFAULT_PARTITION__"),
]


@pytest.mark.parametrize(("properties", "value", "path"), STYLES, ids=str)
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_partition_values_become_paths_and_come_back(
    make: Make, index: str, properties: dict[str, Any], value: Any, path: str
) -> None:
    table = make(index=index, properties=properties)
    table.upsert(rows((1, value, "a", 1), (2, "other", "a", 1)))
    table.upsert(rows((1, value, "b", 2)))
    assert path in {f.partition for f in table.files}
    found = {r["id"]: (r["city"], r["v"]) for r in lakebed.open(table.uri).scan().to_arrow().to_pylist()}
    assert found == {1: (value, "b"), 2: ("other", "a")}
    assert table.delete_partitions([path]).replaced_file_groups == 1
    assert content(table) == [(2, "other", "a", 1)]


def test_a_table_with_several_partition_columns_is_written_and_read(make: Make) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("city", pa.string()), ("n", pa.int32())])
    table = make(schema, partition_by=["day", "city"], ordering=None, key=["id", "n"])

    def given(*cells: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(schema.names, c, strict=True)) for c in cells], schema)

    day = dt.date(2024, 2, 3)
    table.upsert(given((1, day, "a", 1), (1, day, "b", 1), (1, day, "a", 2)))
    assert {f.partition for f in table.files} == {"2024-02-03/a", "2024-02-03/b"}
    table.delete(given((1, day, "a", 1)))
    assert content(table) == [(1, day, "a", 2), (1, day, "b", 1)]
    table.delete_partitions(["*/b"])
    assert content(table) == [(1, day, "a", 2)]


def test_timestamps_become_partition_paths(make: Make) -> None:
    table = make(
        partition_by="ts",
        properties={
            "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
        },
    )
    table.upsert(rows((1, "c", "a", 1_700_000_000_000), (2, "c", "a", 1_710_000_000_000)))
    assert {f.partition for f in table.files} == {"2023/11/14", "2024/03/09"}
    table.upsert(rows((1, "c", "b", 1_700_000_000_001)))
    assert content(table) == [(1, "c", "b", 1_700_000_000_001), (2, "c", "a", 1_710_000_000_000)]


def test_a_table_without_partitions_has_its_files_in_its_folder(make: Make) -> None:
    table = make(partition_by=None)
    table.upsert(rows(*FIRST))
    assert {f.partition for f in table.files} == {""}
    assert all("/" not in path for path in data_files(table))
    assert SCHEMA.names == table.schema.names


@pytest.mark.parametrize(("index", "version"), [("bucket", 9), ("simple", 9), ("record", 8), ("bucket", 6)])
def test_a_merge_on_read_table_without_meta_fields_is_refused_before_it_is_there(
    make: Make, uri: str, index: str, version: int
) -> None:
    with refused(uri, InvalidOption, "needs the meta fields", "type='cow'"):
        make(type="mor", index=index, table_version=version, properties={"hoodie.populate.meta.fields": False})
    assert files(uri) == {}
