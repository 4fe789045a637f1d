"""A name with a typo: every error about a column, a partition or an index that is not there gives the near name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import LakebedError
from lakebed.table import Table

ROWS = {"id": [1, 2], "city": ["Oslo", "Rome"], "qty": [1, 2], "ts": [1, 1], "event": [{"at": 1}] * 2}
_numbers = count()


def new_table(**more: Any) -> Table:
    given: dict[str, Any] = {
        "key": "id",
        "partition_by": "city",
        "ordering": "ts",
        "type": "mor",
        "index": "record",
        **more,
    }
    table = lakebed.create(f"memory://near-names/{next(_numbers)}", ROWS, **given)
    table.upsert(ROWS)
    return table


@pytest.fixture(scope="module")
def table() -> Table:
    return new_table()


def of(**columns: Any) -> dict[str, Any]:
    return {"id": [1], "city": ["Oslo"], "ts": [2], **columns}


CALLS: dict[str, tuple[Callable[[Table], Any], str]] = {
    "key": (lambda t: new_table(key="idd"), "id"),
    "partition column": (lambda t: new_table(partition_by="ciy"), "city"),
    "ordering": (lambda t: new_table(ordering="tss"), "ts"),
    "hash field": (
        lambda t: new_table(
            key=["id", "qty"], index="bucket", buckets=2, properties={"hoodie.bucket.index.hash.field": "qyt"}
        ),
        "qty",
    ),
    "hash field of adopt": (lambda t: t.indexes.adopt("bucket", buckets=2, hash_fields=["ix"]), "id"),
    "scanned column": (lambda t: t.scan(["qyt"]).to_arrow(), "qty"),
    "filter": (lambda t: t.scan(where="qyt = 1").to_arrow(), "qty"),
    "field of a struct": (lambda t: t.scan(where="event.a = 1").to_arrow(), "event.at"),
    "Arrow filter": (lambda t: t.scan(where=pc.field("qyt") == 1).to_arrow(), "qty"),
    "keys of a lookup": (lambda t: t.get(pa.table({"idd": [1]})), "idd"),
    "changes": (lambda t: t.changes("000", columns=["qyt"]).to_arrow(), "qty"),
    "delete": (lambda t: t.delete(where="qyt = 1"), "qty"),
    "update": (lambda t: t.update({"qyt": 1}), "qty"),
    "partition": (lambda t: t.delete_partitions("Oslp"), "Oslo"),
    "partition of a statement": (
        lambda t: lakebed.sql("ALTER TABLE t DROP PARTITION (city = 'Osl')", tables={"t": t}),
        "Oslo",
    ),
    "partition to cluster": (lambda t: t.maintenance.cluster(partitions=["Rom"]), "Rome"),
    "secondary index": (lambda t: t.indexes.create("qyt"), "qty"),
    "expression index": (lambda t: t.indexes.create("a", column="cty", function="upper"), "city"),
    "index to drop": (lambda t: t.indexes.drop("column_stat"), "column_stats"),
    "index to verify": (lambda t: t.indexes.verify("column_stat"), "column_stats"),
    "index to repair": (lambda t: t.indexes.repair("column_stat"), "column_stats"),
    "column to rename": (lambda t: t.columns.rename("qyt", "q"), "qty"),
    "rows without the key": (lambda t: t.upsert({"idd": [1], "city": ["Oslo"], "ts": [2]}), "idd"),
}


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.every_case
def test_an_error_gives_the_near_name(case: str, table: Table) -> None:
    call, near = CALLS[case]
    with pytest.raises(LakebedError) as raised:
        call(table)
    assert f"id you mean {near!r}?" in raised.value.hint


def test_a_column_named_for_statistics_that_is_not_there_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    option = "hoodie.metadata.index.column.stats.column.list"
    name = new_table(properties={option: "qtty,id,event.at"}).name
    warned = f"{option} names 'qtty', which is no column of table {name!r}"
    assert [record.getMessage() for record in caplog.records] == [f"{warned}; did you mean 'qty'?"]
    caplog.clear()
    table = new_table()
    for _ in range(2):
        table.upsert(ROWS, options={option: "citty"})
    assert [record.getMessage().partition("; ")[2] for record in caplog.records] == ["did you mean 'city'?"]


def test_a_secondary_index_on_a_column_that_is_not_there_gives_the_near_name() -> None:
    with pytest.raises(LakebedError, match="qtty") as caught:
        new_table(index="bloom").indexes.create("qtty")
    assert "'qty'" in caught.value.hint


@pytest.mark.parametrize(
    ("version", "way"),
    [
        (9, "With t.indexes.create('record_index', partitioned=True) each partition path has an index of its own."),
        (8, "Tables of version 9 can have a record index for each partition path: t.maintenance.upgrade()."),
        (6, "Tables of version 9 can have a record index for each partition path: t.maintenance.upgrade()."),
    ],
)
def test_a_global_record_index_that_is_refused_names_what_the_version_has(version: int, way: str) -> None:
    table = new_table(index="bloom", table_version=version)
    with pytest.raises(LakebedError, match="a global record index has one place for it") as caught:
        table.indexes.create("record_index", partitioned=False)
    assert caught.value.hint == f"Make the table with the index 'record' or 'global_simple'. {way}"


def test_an_index_that_is_not_there_is_named_with_those_that_are(table: Table) -> None:
    with pytest.raises(LakebedError, match=r"has no index 'secondary_index_fare'.* It has column_stats"):
        table.indexes.drop("secondary_index_fare")


def test_partial_rows_with_a_short_name_mistyped_are_refused(table: Table) -> None:
    with pytest.raises(LakebedError, match=r"the new column 'qyt', and table .* has 'qty'"):
        table.upsert(of(qyt=[5]), partial=True)
    assert table.schema.names == list(ROWS)


def test_a_path_into_a_column_that_is_no_struct_is_left_to_spark(table: Table) -> None:
    with pytest.raises(lakebed.errors.InvalidOption, match="runs on Spark only: a field of city, which is no struct"):
        table.scan(where="city.name = 1").to_arrow()
