"""Ranges of partition paths: writes that only add files widen them, all others make them anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.config.settings import WriteSettings
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.stats_values import META_WITH_STATS, combined_partition_stats
from lakebed.metadata_kinds.stored import live_files
from lakebed.metadata_records.definitions import IndexName
from lakebed.metadata_records.layout import column_stats_keys, file_keys
from lakebed.metadata_records.records import V9, Records, RecordType
from lakebed.metadata_records.stats_codec import Stats, encode
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.maintain import MetadataUpkeep
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.operations.placement import EmptyLayout
from lakebed.properties.file import load_table_config
from lakebed.services import build_index
from lakebed.slices.recorded_slices import RecordedSlices
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.timeline import load_timeline
from lakebed.write_status import WriteStatus
from support.golden_tables import golden
from support.locks import held
from support.write_tables import content, rows

Make = Callable[..., Table]
SHOWN = ["key", "file_name", "min", "max", "value_count", "null_count"]


def stats_by_column(stats: Stats) -> dict[str, list[dict[str, Any]]]:
    return {c: t.select(SHOWN).sort_by("key").to_pylist() for c, t in sorted(stats.items())}


def assert_ranges_are_those_of_the_live_files(table: Table) -> dict[str, pa.Table]:
    snapshot = open_snapshot(open_storage(table.uri))
    metadata = snapshot.metadata
    assert metadata is not None
    found, of_files = metadata.partition_stats(), metadata.column_stats()
    kinds = {column: stats.schema.field("min").type for column, stats in of_files.items()}
    expected, _ = combined_partition_stats(of_files, {}, live_files(snapshot.file_slices()), kinds)
    assert stats_by_column(found) == stats_by_column(expected)
    return found


def tight(stats: Stats, column: str) -> dict[str, bool]:
    table = stats[column]
    return dict(zip(table["file_name"].to_pylist(), table["is_tight"].to_pylist(), strict=True))


@pytest.mark.parametrize("version", [9, 8])
def test_appended_rows_widen_and_a_compaction_recomputes(make: Make, version: int) -> None:
    properties = {"hoodie.compact.inline": False, "hoodie.write.table.version": version}
    t = make(type="mor", index="bucket", buckets=1, properties=properties)
    t.upsert(rows((1, "a", "b", 5), (2, "b", None, 5)))
    assert tight(assert_ranges_are_those_of_the_live_files(t), "ts") == {"a": True, "b": True}
    t.upsert(rows((1, "a", "zz", 9), (3, "c", "x", 1)))  # a path more
    assert_ranges_are_those_of_the_live_files(t)
    t.upsert(rows((1, "a", None, 12)))
    t.delete([2])
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert tight(stats, "ts") == {"a": False, "b": False, "c": True}
    t.maintenance.compact()
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert tight(stats, "ts") == {"a": True, "b": True, "c": True}
    assert stats["ts"].sort_by("key")["min"].to_pylist().count(12) == 1


def test_new_files_widen_and_changed_ones_recompute(make: Make) -> None:
    small = {"hoodie.parquet.small.file.limit": 0}
    t = make()
    t.insert(rows((1, "a", "b", 5)), options=small)
    t.insert(rows((2, "a", "c", 50)), options=small)
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert tight(stats, "ts") == {"a": False}
    t.upsert(rows((2, "a", "c", 51), (3, "a", "", 1)), options=small)
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert tight(stats, "ts") == {"a": True}


def test_a_path_whose_record_is_marked_deleted_gets_its_range_from_all_of_its_files(make: Make) -> None:
    t = make(type="mor", index="bucket", buckets=1, properties={"hoodie.compact.inline": False})
    t.upsert(rows((1, "a", "b", 5), (2, "b", "c", 5)))
    storage = open_storage(t.uri)
    snapshot = open_snapshot(storage)
    metadata = snapshot.metadata
    assert metadata is not None
    assert metadata.has_partition_stats(["v", "ts"], ["a", "b"])
    assert not metadata.has_partition_stats(["v", "ts"], ["a", "c"])
    assert not metadata.has_partition_stats(["v", "other"], ["a"])

    stats = metadata.partition_stats(["ts"], None, ["a"])["ts"]
    marked = stats.set_column(stats.schema.get_field_index("is_deleted"), "is_deleted", pa.array([True]))
    records = Records.upserts(*encode({"ts": marked}, V9, index_version=2, record_type=RecordType.PARTITION_STATS))
    store = MetadataStore(storage, snapshot.config, snapshot.timeline, lock_is_held=held)
    apply_delta(store, store.new_time(), {"partition_stats": records})
    RecordedSlices.forget(store.storage)  # another writer marks records so
    metadata = open_snapshot(storage).metadata
    assert metadata is not None
    assert not metadata.has_partition_stats(["ts"], ["a"])
    assert metadata.has_partition_stats(["ts"], ["b"])
    assert metadata.has_partition_stats(["v"], ["a"])

    t.upsert(rows((1, "a", "bb", 7)))
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert stats["ts"].filter(pc.equal(stats["ts"]["file_name"], "a")).select(["min", "max"]).to_pylist() == [
        {"min": 5, "max": 7}
    ]


def test_ranges_of_bytes_are_recomputed(tmp_path: Path) -> None:
    """Real Hudi's readers take the bytes of two records to be merged as signed."""
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("raw", pa.binary())])
    t = lakebed.create(str(tmp_path / "t"), schema, key="id", partition_by="city", index="simple")
    for number, raw in enumerate((b"\x01", b"\xff", b"\x80")):
        t.bulk_insert(pa.table([[number], ["a"], [raw]], schema=schema))
        stats = assert_ranges_are_those_of_the_live_files(t)
        assert tight(stats, "id") == {"a": True}


def test_nan_stays_the_greatest_value_of_a_range(make: Make) -> None:
    small = {"hoodie.parquet.small.file.limit": 0}
    t = make()
    t.insert(rows((1, "a", "b", 5)).append_column("f", pa.array([1.5])), options=small)
    t.insert(rows((2, "a", "c", 6)).append_column("f", pa.array([float("nan")])), options=small)
    t.insert(rows((3, "a", "c", 6)).append_column("f", pa.array([2.5])), options=small)
    stats = assert_ranges_are_those_of_the_live_files(t)
    assert t.scan(where="f = 2.5").to_arrow()["id"].to_pylist() == [3]
    assert stats["f"]["max"][0].as_py() > 1e300


def without_column_stats(make: Make, kind: str) -> Table:
    """A table that has statistics of partition paths alone, as nothing makes it any more."""
    t = make(type=kind, properties={"hoodie.compact.inline": False})
    t.upsert(rows((1, "a", "b", 5), (2, "b", "b", 5)))
    t.indexes.drop("column_stats")
    view = open_snapshot(open_storage(t.uri))
    MetadataUpkeep(view, WriteSettings(), None, held).add(IndexName("partition_stats"))
    assert [index.name for index in t.indexes.list()] == ["files", "partition_stats"]
    return t


@pytest.mark.parametrize("version", [9, 8])
def test_no_partition_stats_without_column_stats(make: Make, version: int) -> None:
    t = make(table_version=version)
    t.upsert(rows((1, "a", "b", 5)))
    if version == 9:
        t.indexes.drop("column_stats")
    with pytest.raises(InvalidOption, match="create that first"):
        t.indexes.create("partition_stats")
    with pytest.raises(InvalidOption, match="create that first"):
        t.indexes.create("partition_stats", wait=False)
    t.indexes.create("column_stats")
    t.indexes.create("partition_stats")
    assert_ranges_are_those_of_the_live_files(t)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_write_removes_partition_stats_without_column_stats(
    make: Make, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    t = without_column_stats(make, kind)
    t.upsert(rows((3, "a", "z", 9)))
    assert "partition_stats" in caplog.text
    assert [index.name for index in t.indexes.list()] == ["files"]
    t.indexes.create("column_stats")
    assert [row["id"] for row in t.scan(where="v = 'z'").to_arrow().to_pylist()] == [3]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_write_that_began_before_them_says_nothing_while_column_stats_are_built(make: Make, kind: str) -> None:
    """The ranges of the files that stay are not known to it."""
    t = without_column_stats(make, kind)
    t.indexes.create("column_stats", wait=False)
    write = build_index._Build.write  # pyright: ignore[reportPrivateUsage]

    def held(self: Any, part: Any) -> Any:
        t.upsert(rows((1, "a", "y", 9), (3, "a", "z", 9)))
        return write(self, part)

    with pytest.MonkeyPatch.context() as patch:
        # the write began before column stats, so it does not see that it cannot keep partition stats
        patch.setattr(MetadataUpkeep, "_cannot_keep", lambda _: [])
        # a write in the middle of the build
        patch.setattr(build_index._Build, "write", held)  # pyright: ignore[reportPrivateUsage]
        t.indexes.build()
    assert [row["id"] for row in t.scan(where="v = 'z'").to_arrow().to_pylist()] == [3]
    assert [row["id"] for row in t.scan(where="v = 'b'").to_arrow().to_pylist()] == [2]


@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize("version", [9, 8])
def test_a_compaction_of_a_partition_path_that_was_deleted_meanwhile_gives_it_no_ranges(
    make: Make, version: int, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"buckets": 1} if index == "bucket" else {}
    stats = ["column_stats", "partition_stats"]
    by_hand = {"hoodie.compact.inline": False}
    table = make(type="mor", table_version=version, index=index, indexes=stats, properties=by_hand, **words)
    for turn in range(2):
        table.upsert(rows((1, "c0", "a", turn), (2, "c1", "b", turn)))
    other, run = lakebed.open(table.uri), EmptyLayout.run

    def planning(layout: EmptyLayout) -> list[WriteStatus]:
        assert other.maintenance.compact(plan_only=True).plan is not None
        return run(layout)

    monkeypatch.setattr(EmptyLayout, "run", planning)
    table.delete_partitions(["c0"])
    assert table.maintenance.compact().runs
    found = assert_ranges_are_those_of_the_live_files(lakebed.open(table.uri))
    assert found["ts"]["min"].to_pylist() == [1]
    verified = lakebed.open(table.uri).indexes.verify()
    assert verified.ok, verified
    assert content(table) == [(2, "c1", "b", 1)]


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_file_written_before_its_column_was_widened_leaves_the_table_well(kind: Any, version: int) -> None:
    schema = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int32())])
    table = lakebed.create(
        f"memory://partition-stats/widened-{kind}-{version}",
        schema,
        key="id",
        partition_by="city",
        index="bucket",
        buckets=4,
        type=kind,
        table_version=version,
        properties={"hoodie.metadata.index.column.stats.enable": True},
    )
    table.upsert([{"id": n, "city": "a", "v": n if n > 3 else None} for n in range(8)])
    table.columns.widen("v", "long")
    table.upsert([{"id": 5, "city": "a", "v": 50}])
    verified = table.indexes.verify()
    assert verified.ok, str(verified)
    assert table.scan(where="v IS NULL").count() == 4
    assert sorted(table.scan(where="v > 5").to_arrow()["v"].to_pylist()) == [6, 7, 50]


def changelog_rows(ids: list[int], ts: int) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "city": ["abc"[i % 3] for i in ids],
            "name": [f"x{i}" for i in ids],
            "n": pa.array(ids, pa.int64()),
            "ts": pa.array([ts] * len(ids), pa.int64()),
        }
    )


def test_a_write_widens_the_meta_columns_of_a_version_6_table_whose_file_groups_begin_as_logs(tmp_path: Path) -> None:
    table = lakebed.open(str(golden("flinklike_v6_mor_changelog").unpack(tmp_path)))
    table.upsert(changelog_rows([1, 20], 9))
    written = open_snapshot(open_storage(table.uri)).timeline.latest_time
    found = assert_ranges_are_those_of_the_live_files(table)
    ranges = {
        column: {row["file_name"]: (row["min"], row["max"]) for row in stats}
        for column, stats in stats_by_column(found).items()
        if column.startswith("_hoodie_")
    }
    first, last = "20261128183826394", "20261128183853592"
    assert ranges == {
        "_hoodie_commit_time": {"a": (first, last), "b": (first, written), "c": (first, written)},
        "_hoodie_partition_path": {"a": ("a", "a"), "b": ("b", "b"), "c": ("c", "c")},
        "_hoodie_record_key": {"a": ("3", "6"), "b": ("1", "7"), "c": ("2", "5")},
    }
    assert table.indexes.verify().ok


def test_verify_names_files_without_statistics_of_meta_columns_and_repair_adds_them(tmp_path: Path) -> None:
    table = lakebed.open(str(golden("flinklike_v6_mor_changelog").unpack(tmp_path)))
    table.upsert(changelog_rows([1, 20], 9))
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    new = [file for file in open_snapshot(storage).base_files() if file.instant == timeline.latest_time]
    keys = file_keys([file.partition for file in new], [file.name for file in new])
    gone = Records.deletes(pa.concat_arrays([column_stats_keys(column, keys) for column in META_WITH_STATS]))
    store = MetadataStore(storage, config, timeline, lock_is_held=held)
    apply_delta(store, f"{timeline.latest_time}000", {"column_stats": gone})
    differences = table.indexes.verify().differences.to_pylist()
    assert {(row["problem"], row["what"]) for row in differences} == {
        ("missing", f"{column} of c/{new[0].name}") for column in META_WITH_STATS
    }
    table.indexes.repair()
    assert table.indexes.verify().ok
    table.maintenance.compact()
    verified = table.indexes.verify()
    assert verified.ok
    assert "partition_stats" in verified.checked
