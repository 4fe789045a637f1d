"""Consistent-hashing tables that real Hudi made: the index is told from their rings, and lakebed writes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from golden_tables import GoldenTable, golden_tables
from lakebed.errors import IndexInconsistent, InvalidOption
from same_rows import assert_same_rows

TABLES = golden_tables(lambda t: "bucket_consistent" in t.name)
SPLITS = {"hoodie.bucket.index.max.num.buckets": 8, "hoodie.parquet.max.file.size": 1500}


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_lakebed_writes_on_and_splits_buckets(table: GoldenTable, tmp_path: Path) -> None:
    t = lakebed.open(str(table.unpack(tmp_path)))
    assert t.indexes.index.settings() == {"type": "consistent", "bucket.count": "2", "bucket.fields": "id"}
    before = t.scan().to_arrow()
    on_ring = {f["file_id"] for f in t.files.to_arrow().to_pylist()}
    changed = before.slice(0, 10)
    at = changed.column_names.index("ts")
    later = pa.array([n + 1000 for n in changed.column("ts").to_pylist()], changed.schema.field("ts").type)
    changed = changed.set_column(at, changed.schema.field("ts"), later)
    t.upsert(changed)
    assert {f["file_id"] for f in t.files.to_arrow().to_pylist()} == on_ring
    after = pa.concat_tables([changed, before.slice(10)])
    assert_same_rows(lakebed.open(t.uri).scan().to_arrow(), after)
    assert t.cluster(options=SPLITS).runs
    assert len(t.files.to_arrow()) > len(on_ring)
    gone = after.slice(3, 4)
    t.delete(gone.select(["id", "region"]))
    after = pa.concat_tables([after.slice(0, 3), after.slice(7)])
    assert_same_rows(lakebed.open(t.uri).scan().to_arrow(), after)
    assert t.indexes.verify().ok


@pytest.mark.parametrize("table", TABLES[:1], ids=str)
def test_the_index_can_be_adopted_and_no_other(table: GoldenTable, tmp_path: Path) -> None:
    t = lakebed.open(str(table.unpack_without_metadata_table(tmp_path)))
    some = t.scan().to_arrow().slice(0, 1)
    with pytest.raises(InvalidOption, match="has consistent-hashing buckets, the write asks for simple"):
        t.upsert(some, options={"hoodie.index.type": "SIMPLE"})
    t.indexes.adopt("consistent")
    key = some.column("id")[0].as_py()
    t = lakebed.open(t.uri)
    assert "by bucket" in str(t.scan(filter=f"id = {key!r}").explain())
    assert_same_rows(t.get([key]), some)
    # a file group that is on no node of the ring
    (path, *_) = sorted(p for p in Path(t.uri.removeprefix("file://")).rglob(".*.log.*") if ".hoodie" not in str(p))
    path.rename(path.with_name(path.name.replace(path.name.split("_")[0], ".ffffffff-0000-0000-0000-000000000000-0")))
    with pytest.raises(IndexInconsistent, match="is no bucket of the partition path's ring"):
        lakebed.open(t.uri).indexes.adopt("consistent")
