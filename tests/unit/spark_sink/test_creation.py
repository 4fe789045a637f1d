"""The table of a write by `format("lakebed")`: found, created, or refused."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict, TableExists, TableNotFound
from lakebed.spark_sink.creation import create_table, table_to_write
from lakebed.spark_sink.options import WriteOptions, write_options

COLUMNS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("at", pa.int64())])


def options_of(path: str, **options: str) -> WriteOptions:
    return write_options({"path": path, **options}, streaming=False)


def test_a_table_is_created_by_lakebeds_names_and_by_hudis() -> None:
    own = options_of("memory://sink/own", key="id", partition_by="city", ordering="at", type="mor", index="simple")
    hudi = options_of(
        "memory://sink/hudi",
        **{
            "hoodie.table.name": "own",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city",
            "hoodie.datasource.write.precombine.field": "at",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.operation": "upsert",
            "hoodie.index.type": "SIMPLE",
        },
    )
    created = [table_to_write(options.storage(), options, COLUMNS) for options in (own, hudi)]
    for config in created:
        assert (config.name, config.table_type) == ("own", "mor")
        assert (config.key_fields, config.partition_fields, config.ordering_fields) == (("id",), ("city",), ("at",))
    assert lakebed.open("memory://sink/hudi").schema == COLUMNS
    assert [table_to_write(options.storage(), options, COLUMNS) for options in (own, hudi)] == created


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "city"}, "recordkey.fields: the options have city, the table has id"),
        ({"partition_by": "city"}, "partition.fields"),
        ({"ordering": "id"}, "ordering.fields"),
        ({"type": "mor"}, "table.type: the options have mor, the table has cow"),
        ({"index": "bloom"}, "index.type: the options have bloom, the table has bucket"),
        ({"buckets": "3"}, "bucket.count: the options have 3, the table has 2"),
    ],
)
def test_arguments_that_contradict_a_table_are_refused(options: dict[str, str], message: str) -> None:
    path = "memory://sink/contradicted"
    if not lakebed.list_tables(path, depth=0):
        lakebed.create(path, COLUMNS, key="id", ordering="at", index="bucket", buckets=2)
    same = options_of(path, key="ID", ordering="at", type="cow", index="bucket", buckets="2")
    assert table_to_write(same.storage(), same, COLUMNS).key_fields == ("id",)
    other = options_of(path, **options)
    with pytest.raises(InvalidOption, match=re.escape(message)):
        table_to_write(other.storage(), other, COLUMNS)


def test_a_place_without_a_table_stays_empty_where_none_can_be_created(tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    for options, kind in (
        ({}, TableNotFound),
        ({"hoodie.table.name": "x"}, TableNotFound),
        ({"key": "z"}, SchemaConflict),
    ):
        named = options_of(path, **options)
        with pytest.raises(kind):
            table_to_write(named.storage(), named, COLUMNS)
        assert not (tmp_path / "none").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.parquet").write_bytes(b"of another")
    named = options_of(str(tmp_path / "other"), key="id")
    with pytest.raises(TableExists, match="not empty"):
        table_to_write(named.storage(), named, COLUMNS)
    assert [file.name for file in (tmp_path / "other").rglob("*")] == ["a.parquet"]


def test_of_writers_that_begin_at_once_one_creates_the_table(tmp_path: Path) -> None:
    named = options_of(str(tmp_path / "shared"), key="id", partition_by="city")
    with ThreadPoolExecutor(4) as pool:
        configs = list(pool.map(lambda _: table_to_write(named.storage(), named, COLUMNS), range(8)))
    assert all(config == configs[0] for config in configs)
    assert configs[0].key_fields == ("id",)
    with pytest.raises(TableExists):
        create_table(named, COLUMNS)
