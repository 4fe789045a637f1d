"""hudi-rs, the Apache Hudi project's reader in Rust, reads what lakebed wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.test_keys_for_hudi import CASES, later, rows
from interop.test_tables_for_hudi import SCHEMA, make, typed
from interop.test_tables_for_hudi import rows as plain_rows
from support.same_rows import assert_same_rows

hudi = pytest.importorskip("hudi")

VERSIONS = pytest.mark.parametrize("version", [9, 8, 6])
# It takes `city:SIMPLE` in the table's partition fields (versions 8 and 9) for a column's name.
CUSTOM_ON = (6,)
# Its Avro reader refuses such a column name, and times without a zone.
BEYOND_IT = ["größe", "ntz"]


def read(table: lakebed.Table, **options: str) -> pa.Table:
    found = hudi.HudiTableBuilder.from_base_uri(table.uri).build()
    asked = hudi.HudiReadOptions().with_hudi_options(options)
    batches = [pa.record_batch(b) for b in found.read(asked)]
    return pa.Table.from_batches(batches, None if batches else table.schema)


@pytest.mark.parametrize(
    ("version", "case"), [(v, c) for v in (9, 8, 6) for c in CASES if c != "custom" or v in CUSTOM_ON]
)
def test_hudi_rs_reads_every_shape_of_keys_and_partitions(version: int, case: str, tmp_path: Path):
    first, wanted = rows(), CASES[case]
    buckets = 4 if wanted["index"] == "bucket" else None
    table = lakebed.create(
        str(tmp_path / "keys"), first.schema, ordering="ts", table_version=version, buckets=buckets, **wanted
    )
    table.upsert(first)
    table.upsert(later(first, 0 if case == "timestamp key" else 4))
    found = table.scan(meta=True).to_arrow()
    assert found.num_rows >= first.num_rows
    assert_same_rows(read(table), found)


@VERSIONS
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_hudi_rs_reads_every_type(version: int, index: str, tmp_path: Path):
    first = typed(*range(10)).drop_columns(BEYOND_IT)
    table = make(tmp_path, first.schema, partition_by=None, ordering=None, index=index, table_version=version)
    table.upsert(first)
    changed = typed(*range(5, 14), swap=True).drop_columns(BEYOND_IT)
    table.upsert(changed)
    assert_same_rows(read(table), pa.concat_tables([first.slice(0, 5), changed]))


@VERSIONS
@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple"])
def test_a_history_of_operations(version: int, index: str, tmp_path: Path):
    table = make(tmp_path, index=index, table_version=version)
    table.bulk_insert(plain_rows(range(20), "bulk", 1))
    assert_same_rows(read(table), plain_rows(range(20), "bulk", 1))
    before = table.upsert(plain_rows(range(15, 30), "upsert", 2))
    table.delete([0, 16, 29])
    assert_same_rows(read(table), table.scan(meta=True).to_arrow())
    table.insert_overwrite(plain_rows(range(0, 30, 3), "over", 3))
    table.delete_partitions(["c1"])
    assert table.scan().count() > 10
    assert_same_rows(read(table), table.scan(meta=True).to_arrow())
    then = read(table, **{"hoodie.read.as.of.timestamp": before.instant})
    assert_same_rows(then, table.scan(as_of=before.instant, meta=True).to_arrow())


@VERSIONS
def test_no_meta_fields_and_schema_changes(version: int, tmp_path: Path):
    bare = make(tmp_path / "bare", table_version=version, properties={"hoodie.populate.meta.fields": False})
    bare.insert(plain_rows(range(10), "a", 1))
    assert_same_rows(read(bare), plain_rows(range(10), "a", 1))
    wider = make(tmp_path / "wider", table_version=version)
    wider.upsert(plain_rows(range(10), "a", 1))
    added = plain_rows(range(6, 12), "b", 2)
    wider.upsert(added.append_column(pa.field("more", pa.int32()), pa.array(range(6), pa.int32())))
    assert wider.schema.names == [*SCHEMA.names, "more"]
    assert_same_rows(read(wider), wider.scan(meta=True).to_arrow())
