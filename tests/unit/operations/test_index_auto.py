"""`index="auto"`: what it takes for data of some size, and that the table remembers why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.index import ranking
from lakebed.table import Table
from support.write_tables import SCHEMA, content, refused, rows

FIRST = [(n, f"c{n % 3}", "a", 10) for n in range(12)]


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few rows make a table that is worth an index."""
    monkeypatch.setattr(ranking, "_SMALL", 100)
    monkeypatch.setattr(ranking, "_BUCKET", 100)


def new_table(path: Path, data: Any, **given: Any) -> Table:
    settings: dict[str, Any] = {"key": "id", "ordering": "ts", "partition_by": "city", **given}
    return lakebed.create(str(path / "t"), data, **settings)


def index_of(table: Table) -> tuple[str, int | None]:
    settings = table.indexes.index.settings()
    return settings["type"], int(settings["bucket.count"]) if "bucket.count" in settings else None


def test_a_schema_says_nothing_of_the_size(tmp_path: Path) -> None:
    table = new_table(tmp_path, SCHEMA)
    assert index_of(table) == ("simple", None)
    assert table.indexes.reason.startswith("simple: the size of the table is not known")


def test_auto_takes_a_simple_index_for_few_rows(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(*FIRST))
    assert index_of(table) == ("simple", None)
    assert "a base file or two" in table.indexes.reason
    assert f"chosen: {table.indexes.reason}\n" in repr(table.indexes)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize(("partition_by", "buckets"), [("city", 2), (None, 4)])
def test_many_rows_get_buckets_for_each_partition_path(tmp_path: Path, partition_by: str | None, buckets: int) -> None:
    table = new_table(tmp_path, rows(*FIRST), partition_by=partition_by)
    assert index_of(table) == ("bucket", buckets)
    assert f"make {buckets} buckets" in table.indexes.reason
    table.upsert(rows(*FIRST))
    # the table's own index is what auto means from then on
    table.upsert(rows((1, "c1", "b", 20)), options={"lakebed.index.type": "auto"})
    assert content(lakebed.open(table.uri)) == [FIRST[0], (1, "c1", "b", 20), *FIRST[2:]]


@pytest.mark.usefixtures("small_is_large")
def test_partition_paths_that_a_generator_makes_are_not_counted(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(*FIRST), partition_by=["city:SIMPLE"])
    assert index_of(table) == ("simple", None)
    assert "whose number is not known" in table.indexes.reason


MANY = {"lakebed.expect.rows": 100_000_000}


@pytest.mark.parametrize(
    ("partition_by", "expected", "index", "reason"),
    [
        (None, {}, "bucket", "make 16 buckets"),
        ("city", {}, "simple", "whose number is not known"),
        ("city", {"lakebed.expect.partitions": 10}, "bucket", "in each of 10 partitions"),
        ("city", {"lakebed.expect.partitions": 10, "lakebed.expect.growing.keys": True}, "simple", "few partitions"),
        ("city", {"lakebed.expect.partitions": 1000, "lakebed.expect.batch": 900}, "bucket", "bucket"),
        (
            "city",
            {"lakebed.expect.partitions": 1000, "lakebed.expect.batch": 900, "lakebed.expect.unique.keys": True},
            "bucket",
            "bucket",
        ),
    ],
)
def test_auto_chooses_by_what_the_caller_expects(
    tmp_path: Path, partition_by: str | None, expected: dict[str, Any], index: str, reason: str
) -> None:
    table = new_table(tmp_path, SCHEMA, partition_by=partition_by, properties={**MANY, **expected})
    assert index_of(table)[0] == index
    assert reason in table.indexes.reason
    table.upsert(rows(*FIRST))
    assert content(lakebed.open(table.uri)) == FIRST


def test_auto_takes_a_bucket_index_where_buckets_are_given(tmp_path: Path) -> None:
    table = new_table(tmp_path, rows(*FIRST), buckets=3)
    assert index_of(table) == ("bucket", 3)
    assert table.indexes.reason == "bucket: 3 buckets were given"
    fields = lakebed.create(str(tmp_path / "f"), SCHEMA, key=["id", "v"], hash_fields=["id"])
    assert index_of(fields) == ("bucket", 8)


def test_a_job_may_leave_it_to_auto(tmp_path: Path) -> None:
    options = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id", "lakebed.index.type": "auto"}
    lakebed.write(rows(*FIRST), str(tmp_path / "t"), options)
    assert "a base file or two" in lakebed.open(str(tmp_path / "t")).indexes.reason


def test_an_index_that_was_named_or_adopted_has_no_reason(tmp_path: Path) -> None:
    assert lakebed.create(str(tmp_path / "named"), SCHEMA, key="id", index="simple").indexes.reason == ""
    table = new_table(tmp_path, rows(*FIRST))
    table.indexes.adopt("global_simple")
    assert table.indexes.reason == ""
    assert table.indexes.index.name == "global_simple"


def test_the_record_index_by_lakebeds_own_option(tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "lakebed.index.type": "record",
    }
    lakebed.write(rows(*FIRST), str(tmp_path / "t"), options)
    table = lakebed.open(str(tmp_path / "t"))
    assert index_of(table) == ("record", None)
    with refused(table.uri, lakebed.InvalidOption, "record", "simple"):
        table.upsert(rows(*FIRST), options={"lakebed.index.type": "simple"})
