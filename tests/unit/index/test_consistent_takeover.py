"""Consistent-hashing tables that real Hudi made: the index is told from their rings, and lakebed writes on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.index.consistent.ring import INITIAL, Children, Ring, default_ring, split
from lakebed.index.consistent.ring_files import FOLDER
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import Action
from lakebed.storage import open_storage
from lakebed.timeline.bodies.plans import planned_clustering
from support.golden_tables import GoldenTable, golden_tables
from support.same_rows import assert_same_rows

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
    assert t.maintenance.cluster(options=SPLITS).runs
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
    assert "by bucket" in str(t.scan(where=f"id = {key!r}").explain())
    assert_same_rows(t.get([key]), some)
    # a file group that is on no node of the ring
    (path, *_) = sorted(p for p in Path(t.uri.removeprefix("file://")).rglob(".*.log.*") if ".hoodie" not in str(p))
    path.rename(path.with_name(path.name.replace(path.name.split("_")[0], ".ffffffff-0000-0000-0000-000000000000-0")))
    with pytest.raises(IndexInconsistent, match="is no bucket of the partition path's ring"):
        lakebed.open(t.uri).indexes.adopt("consistent")


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_rings_and_plans_are_byte_for_byte_those_of_hudi(table: GoldenTable, tmp_path: Path) -> None:
    folder = table.unpack(tmp_path)
    files = sorted((folder / FOLDER).rglob("*.hashing_meta"))
    assert files
    found = [(path, Ring.decode(path.read_bytes(), path.name)) for path in files]
    assert [ring.encode() for _, ring in found] == [path.read_bytes() for path in files]
    rings = {(ring.partition, ring.instant): ring for _, ring in found}
    first = [ring for _, ring in found if ring.instant == INITIAL]
    assert first == [default_ring(ring.partition, 2) for ring in first]
    timeline = open_snapshot(open_storage(str(folder))).timeline
    resizes = [i for i in timeline.commits if i.action is Action.REPLACECOMMIT]
    for resize in resizes:
        groups = planned_clustering(timeline.plan(resize)).operations
        planned = [c for group in groups if (c := Children.of_metadata(group.extra)) is not None]
        assert [dict(group.extra) for group in groups] == [children.to_metadata() for children in planned]
        for partition in {children.partition for children in planned}:
            before, after = (rings[partition, at] for at in (INITIAL, resize.time))
            own = [children.nodes for children in planned if children.partition == partition]
            assert before.changed(resize.time, (node for nodes in own for node in nodes)) == after
            # each bucket was split where lakebed would split it
            halves = [split(before, place, ["a", "b"]) for place in range(len(before.nodes))]
            possible = {node.value for pair in halves if pair is not None for node in pair}
            assert {node.value for nodes in own if len(nodes) == 2 for node in nodes} <= possible
    assert bool(resizes) == table.name.endswith("_split")
