"""What every operation makes of the rows, held against a plain computation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption, InvalidRecord, UnsupportedFeature
from lakebed.table import Table
from support.write_tables import SCHEMA, content, refused, rows

Make = Callable[..., Table]
EVERY_INDEX = pytest.mark.parametrize("index", ["bucket", "simple", "global_simple"])
FIRST = [(n, f"c{n % 3}", "a", 10) for n in range(12)]


def counts(result: Any) -> tuple[int, int, int, int]:
    return result.inserted, result.updated, result.deleted, result.unchanged


@EVERY_INDEX
@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("partition_by", ["city", None])
def test_upsert_replaces_and_adds(make: Make, index: str, version: int, partition_by: str | None) -> None:
    table = make(index=index, table_version=version, partition_by=partition_by)
    assert counts(table.upsert(rows(*FIRST))) == (12, 0, 0, 0)
    second = [(n, f"c{n % 3}", "b", 20) for n in range(8, 16)]
    assert counts(table.upsert(rows(*second))) == (4, 4, 0, 0)
    older = [(n, f"c{n % 3}", "old", 5) for n in (0, 9)]
    result = table.upsert(rows(*older))
    assert counts(result) == (0, 0, 0, 2)
    assert result.files == ()
    assert content(table) == sorted(FIRST[:8] + second)


@EVERY_INDEX
def test_an_empty_write_commits_nothing_new(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    for result in (table.upsert(rows()), table.delete([]), table.delete(where="id > 100"), table.bulk_insert(rows())):
        assert counts(result) == (0, 0, 0, 0)
        assert result.files == ()
    assert content(table) == FIRST


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_insert_adds_without_looking(make: Make, index: str) -> None:
    table = make(index=index)
    table.insert(rows(*FIRST))
    again = [(0, "c0", "again", 1), (20, "c2", "new", 1)]
    assert counts(table.insert(rows(*again))) == (2, 0, 0, 0)
    assert content(table) == sorted([*FIRST, *again])


@EVERY_INDEX
@pytest.mark.parametrize(
    "options",
    [{"hoodie.datasource.write.insert.drop.duplicates": True}, {"hoodie.datasource.insert.dup.policy": "drop"}],
)
def test_insert_leaves_known_keys_out(make: Make, index: str, options: dict[str, Any]) -> None:
    table = make(index=index)
    table.insert(rows(*FIRST))
    given = [(0, "c0", "again", 99), (20, "c2", "new", 1), (20, "c2", "newer", 2), (20, "c2", "older", 1)]
    result = table.insert(rows(*given), options=options)
    assert (result.inserted, result.updated, result.deleted) == (1, 0, 0)
    assert content(table) == sorted([*FIRST, (20, "c2", "newer", 2)])


@EVERY_INDEX
def test_insert_refuses_known_keys_where_its_option_says_so(make: Make, index: str) -> None:
    table = make(index=index)
    table.insert(rows(*FIRST))
    options = {"hoodie.datasource.insert.dup.policy": "fail"}
    with pytest.raises(InvalidRecord, match="record key '3'"):
        table.insert(rows((3, "c0", "again", 99), (20, "c2", "new", 1)), options=options)
    assert content(table) == FIRST
    table.insert(rows((20, "c2", "new", 1)), options=options)
    assert content(table) == sorted([*FIRST, (20, "c2", "new", 1)])


@pytest.mark.parametrize("mode", ["NONE", "GLOBAL_SORT", "PARTITION_SORT"])
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_bulk_insert_writes_every_row(make: Make, index: str, mode: str) -> None:
    table = make(index=index)
    shuffled = [FIRST[(n * 5) % 12] for n in range(12)]
    result = table.bulk_insert(rows(*shuffled), options={"hoodie.bulkinsert.sort.mode": mode})
    assert counts(result) == (12, 0, 0, 0)
    assert content(table) == FIRST
    if mode != "NONE" and index == "simple":
        for path in result.files:
            stored = lakebed.open(table.uri).scan(["_hoodie_record_key", "_hoodie_file_name"]).to_arrow().to_pylist()
            keys = [r["_hoodie_record_key"] for r in stored if path.endswith(r["_hoodie_file_name"])]
            assert keys == sorted(keys)
            assert keys
    more = [(n, f"c{n % 3}", "more", 1) for n in range(100, 106)]
    table.bulk_insert(rows(*more))
    assert content(table) == sorted([*FIRST, *more])
    table.upsert(rows((0, "c0", "new", 99)))
    assert content(table) == sorted([*FIRST[1:], (0, "c0", "new", 99), *more])


@EVERY_INDEX
@pytest.mark.parametrize(
    "keys",
    [
        [1, 4, 77],
        pa.array([1, 4, 77]),
        (1, 4, 77),
        lakebed.KeyText(["1", "4", "77"]),
        pa.table({"id": [1, 4, 77]}),
        pa.table({"id": [1, 4, 77], "city": ["c1", "c1", "c9"]}),
        {"where": "id in (1, 4, 77)"},
        {"where": pc.field("id").isin([1, 4, 77])},
    ],
    ids=["list", "array", "tuple", "key text", "keys", "keys and partitions", "SQL", "expression"],
)
def test_delete_by_any_word(make: Make, index: str, keys: Any) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    what = keys if isinstance(keys, dict) else {"keys": keys}
    assert table.delete(**what, dry_run=True).deleted == 2
    assert content(table) == FIRST
    assert table.delete(**what).deleted == 2
    assert content(table) == [r for r in FIRST if r[0] not in (1, 4)]
    assert table.exists([1, 4, 5]).to_pylist() == [False, False, True]
    # the key is free again, whatever its ordering value was
    table.upsert(rows((1, "c1", "back", 0)))
    assert (1, "c1", "back", 0) in content(table)


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_delete_takes_a_key_from_every_partition_unless_the_partition_is_named(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows((1, "c0", "a", 1), (1, "c1", "a", 1), (1, "c2", "a", 1), (2, "c0", "a", 1)))
    table.delete(pa.table({"id": [1], "city": ["c1"]}))
    assert content(table) == [(1, "c0", "a", 1), (1, "c2", "a", 1), (2, "c0", "a", 1)]
    assert table.delete([1]).deleted == 2
    assert content(table) == [(2, "c0", "a", 1)]


@pytest.mark.parametrize("kind", [set, np.array, pl.Series, pd.Series, pd.Index, pa.array])
def test_keys_to_delete_come_in_any_column(make: Make, kind: Callable[[list[int]], Any]) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    assert table.delete(kind([FIRST[0][0], 10_000])).deleted == 1
    assert content(table) == FIRST[1:]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_delete_by_tuples_of_a_composite_key(make: Make, index: str) -> None:
    table = make(index=index, key=["id", "v"])
    table.upsert(rows((1, "c0", "a", 1), (1, "c0", "b", 1), (2, "c1", "a", 1)))
    assert table.delete([(1, "b"), (2, "b")]).deleted == 1
    assert table.delete(lakebed.KeyText(["id:2,v:a"])).deleted == 1
    assert content(table) == [(1, "c0", "a", 1)]


@EVERY_INDEX
def test_delete_wins_over_any_ordering_value(make: Make, index: str) -> None:
    table = make(index=index)
    table.upsert(rows(*FIRST))
    table.delete(rows((3, "c0", "x", 0)))
    assert content(table) == [r for r in FIRST if r[0] != 3]


def test_deleting_all_rows_of_a_file_leaves_a_table_that_works(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    assert table.delete(where="city = 'c1'").deleted == 4
    assert content(table) == [r for r in FIRST if r[1] != "c1"]
    assert table.delete(where="true").deleted == 8
    assert content(table) == []
    table.upsert(rows(*FIRST))
    assert content(table) == FIRST


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("version", [9, 6])
def test_insert_overwrite_replaces_the_partitions_it_writes(make: Make, index: str, version: int) -> None:
    table = make(index=index, table_version=version)
    table.upsert(rows(*FIRST))
    given = [(100, "c0", "over", 1), (101, "c7", "over", 1)]
    result = table.insert_overwrite(rows(*given))
    assert result.inserted == 2
    assert result.replaced_file_groups > 0
    assert content(table) == sorted([r for r in FIRST if r[1] != "c0"] + given)
    table.upsert(rows((0, "c0", "new", 1), (100, "c0", "newer", 2)))
    assert [r for r in content(table) if r[1] == "c0"] == [(0, "c0", "new", 1), (100, "c0", "newer", 2)]


@pytest.mark.parametrize("index", ["bucket", "simple"])
@pytest.mark.parametrize("version", [9, 6])
def test_insert_overwrite_replaces_the_table(make: Make, index: str, version: int) -> None:
    table = make(index=index, table_version=version)
    table.upsert(rows(*FIRST))
    given = [(100, "c0", "over", 1), (101, "c7", "over", 1)]
    table.insert_overwrite(rows(*given), "table")
    assert content(table) == given
    first = next(iter(table.timeline)).time
    assert lakebed.open(table.uri).scan(as_of=first).count() == 12
    table.insert_overwrite(rows(), "table")
    assert content(table) == []


def test_insert_overwrite_without_partitions(make: Make) -> None:
    table = make(partition_by=None)
    table.upsert(rows(*FIRST))
    table.insert_overwrite(rows((1, "x", "over", 1)))
    assert content(table) == [(1, "x", "over", 1)]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ("c0", {"c1", "c2", "d1"}),
        (["c0"], {"c1", "c2", "d1"}),
        (["c*"], {"d1"}),
        (["*1"], {"c0", "c2"}),
        (["c0", "d1"], {"c1", "c2"}),
    ],
)
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_named_partitions_are_deleted(make: Make, index: str, given: str | list[str], left: set[str]) -> None:
    table = make(index=index)
    data = [*FIRST, (50, "d1", "a", 1)]
    table.upsert(rows(*data))
    table.delete_partitions(given)
    assert content(table) == [r for r in data if r[1] in left]
    table.upsert(rows((51, "c0", "back", 1)))
    assert (51, "c0", "back", 1) in content(table)


def test_a_partition_that_is_not_there_is_an_error(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    with refused(table.uri, InvalidOption, "c9", "'c0', 'c1', 'c2'"):
        table.delete_partitions(["c0", "c9"])
    with refused(table.uri, InvalidOption, "d*"):
        table.delete_partitions(["d*"])
    with refused(table.uri, InvalidOption, "everything"):
        table.insert_overwrite(rows(*FIRST), "everything")  # pyright: ignore[reportArgumentType]


def test_a_partition_path_is_no_pattern(make: Make) -> None:
    table = make()
    data = [(1, "[a]", "a", 1), (2, "a", "a", 1), (3, "?", "a", 1)]
    table.upsert(rows(*data))
    table.delete_partitions(["[a*"])
    assert content(table) == data[1:]
    with refused(table.uri, InvalidOption, "??*"):
        table.delete_partitions(["??*"])


@pytest.mark.parametrize("moves", [True, False])
def test_a_global_index_finds_a_key_in_any_partition(make: Make, moves: bool) -> None:
    table = make(index="global_simple", properties={"hoodie.simple.index.update.partition.path": moves})
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c9", "moved", 99), (1, "c9", "late", 1)))
    place = "c9" if moves else "c0"
    found = {r[0]: r for r in content(table)}
    assert len(found) == len(content(table)) == 12
    assert found[1] == (1, "c1", "a", 10)
    assert found[0][2:] == ("moved", 99)
    assert table.locate([0]).column("partition_path").to_pylist() == [place]


def test_a_hudi_job_runs_by_its_options(uri: str) -> None:
    options = {
        "hoodie.table.name": "trips",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "true",
    }
    lakebed.write(rows(*FIRST), uri, options)
    lakebed.write(rows((0, "c0", "b", 20), (1, "c1", "old", 1)), uri, options)
    table = lakebed.open(uri)
    assert content(table) == [(0, "c0", "b", 20), *FIRST[1:]]
    assert {f.partition for f in table.files} == {"city=c0", "city=c1", "city=c2"}
    lakebed.write(rows((0, "c0", "", 0)), uri, options | {"hoodie.datasource.write.operation": "delete"})
    assert len(content(table)) == 11
    lakebed.write(rows(*FIRST[:2]), uri, options, mode="overwrite")
    assert content(table) == FIRST[:2]
    assert lakebed.write(rows(*FIRST), uri, options, mode="ignore") is None
    with refused(uri, lakebed.errors.TableExists, uri):
        lakebed.write(rows(*FIRST), uri, options, mode="errorifexists")


def test_rows_read_with_their_generated_keys_are_not_added_again(uri: str) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.partitionpath.field": "city"}
    lakebed.write(rows(*FIRST), uri, options)
    table = lakebed.open(uri)
    read = table.scan(where="id < 2", meta=True).to_arrow()
    for again in (read, read.select(SCHEMA.names).to_reader()):
        with refused(uri, UnsupportedFeature, "recordkey.field"):
            lakebed.write(again, uri, options)
    lakebed.write(rows(*FIRST[:2]).to_reader(), uri, options)
    assert content(table) == sorted([*FIRST, *FIRST[:2]])
    lakebed.write(read, uri, options | {"hoodie.datasource.write.operation": "bulk_insert"})
    assert content(table) == sorted([*FIRST, *FIRST[:2], *FIRST[:2]])


def test_the_data_may_be_anything_arrow(make: Make) -> None:
    table = make(index="bucket")
    table.upsert(pl.DataFrame({"id": [1, 5], "city": ["c", "d"], "v": ["polars", "views"], "ts": [1, 1]}))
    table.upsert(pd.DataFrame({"id": [2], "city": ["c"], "v": ["pandas"], "ts": [1]}))
    table.upsert(pd.DataFrame({"id": [6], "city": ["c"], "v": ["filtered"], "ts": [1]}, index=[17]))
    table.upsert(pd.DataFrame({"city": ["c"], "v": ["by key"], "ts": [1]}, index=pd.Index([7], name="id")))
    table.upsert(rows((3, "c", "batch", 1)).to_batches()[0])
    table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, rows((4, "c", "reader", 1)).to_batches()))
    assert content(table) == [
        (1, "c", "polars", 1),
        (2, "c", "pandas", 1),
        (3, "c", "batch", 1),
        (4, "c", "reader", 1),
        (5, "d", "views", 1),
        (6, "c", "filtered", 1),
        (7, "c", "by key", 1),
    ]
    assert table.schema.names == SCHEMA.names
    with refused(table.uri, InvalidOption, "builtins.int"):
        table.upsert(7)


def test_a_condition_that_only_spark_knows_is_refused_by_its_function(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    with refused(table.uri, InvalidOption, "unknown function no_such_thing()"):
        table.delete(where="no_such_thing(v) = 1")
    for function in ("levenshtein(v, 'one') < 2",):
        with refused(table.uri, InvalidOption, "runs on Spark only", function.partition("(")[0].upper()):
            table.delete(where=function)
