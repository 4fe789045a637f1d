"""What a metadata table says wrongly is found by name, and put right in the file groups that hold it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds.bloom_filters import bloom_records_of
from lakebed.metadata_kinds.files import file_records
from lakebed.metadata_kinds.key_changes import GroupChanges, KeyChanges
from lakebed.metadata_kinds.record_index import key_records
from lakebed.metadata_kinds.secondary_index import entries
from lakebed.metadata_kinds.stats_values import column_stats_records
from lakebed.metadata_kinds.stored import NewFile
from lakebed.metadata_records.records import Records, record_form
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.properties.file import load_table_config
from lakebed.services.verify import verify
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import CountingStorage
from lakebed.timeline.timeline import load_timeline
from support.golden_tables import golden_tables
from support.locks import held
from support.tables_in_memory import in_memory
from support.write_tables import rows

Make = Callable[..., Table]
FLOATS = pa.schema([("id", pa.int64()), ("x", pa.float64())])
FIRST = [(n, f"c{n % 3}", f"v{n % 4}", 10) for n in range(30)]


def filled(make: Make, version: int, index: str = "record") -> Table:
    indexes = ["bloom_filters", "column_stats", *(["v"] if version > 6 and index == "record" else [])]
    table = make(table_version=version, index=index, indexes=indexes)
    table.upsert(rows(*FIRST))
    table.upsert(rows((1, "c1", "changed", 11), (77, "c2", None, 11)))
    return table


def put_records(table: Table, said: dict[str, Records]) -> None:
    """Put records into the metadata table that no action has."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    last = timeline.commits[-1].time
    instant = str(int(last) + 1) if config.version >= 8 else f"{last}000"
    apply_delta(MetadataStore(storage, config, timeline, lock_is_held=held), instant, said)


def wrong_keys(version: int, *, partitioned: bool) -> Records:
    """A key that is elsewhere, one that is not there; and one is missing."""
    names = ["_hoodie_record_key"]
    came, went = (pa.RecordBatch.from_arrays([pa.array(keys)], names=names) for keys in (["3", "999"], ["6"]))
    changes = KeyChanges()
    changes.added(came)
    changes.removed(went)
    group = GroupChanges("c0", "0a0a0a0a-0000-4000-8000-000000000000-0", changes.table())
    return key_records([group], "20240101000000000", record_form(version), partitioned=partitioned)


@pytest.mark.parametrize(("version", "index"), [(9, "record"), (8, "record"), (6, "record"), (9, "record_level_index")])
def test_wrong_extra_and_missing_keys_of_the_record_index_are_named(make: Make, version: int, index: str) -> None:
    table = filled(make, version, index)
    assert table.indexes.verify()
    put_records(table, {"record_index": wrong_keys(version, partitioned=index != "record")})
    found = table.indexes.verify()
    assert not found
    said = {(row["index"], row["problem"], row["what"]) for row in found.differences.to_pylist()}
    assert said == {("record_index", "wrong", "3"), ("record_index", "extra", "999"), ("record_index", "missing", "6")}
    assert "record_index: wrong 3 expected" in repr(found)
    assert table.indexes.repair("record_index").differences.num_rows == 3
    assert table.indexes.verify().ok
    table.upsert(rows((3, "c0", "after", 20), (500, "c0", "after", 20)))
    assert table.indexes.verify().ok


@pytest.mark.parametrize("version", [9, 8, 6])
def test_files_statistics_and_bloom_filters(make: Make, version: int) -> None:
    table = filled(make, version)
    snapshot = open_snapshot(open_storage(table.uri))
    metadata = snapshot.metadata
    assert metadata is not None
    form = record_form(version)
    first = snapshot.base_files()[0]
    stats = metadata.column_stats(["ts"], None, {"ts": pa.int64()})
    shifted = {"ts": stats["ts"].set_column(3, "max", pa.array([7] * len(stats["ts"]), pa.int64()))}
    bad = {
        "files": file_records(
            [NewFile("c1", "ghost.parquet", 5)], form, partitions=["nowhere"], removed={first.partition: [first.name]}
        ),
        "bloom_filters": bloom_records_of(
            [NewFile(first.partition, first.name, first.size, None, ("SIMPLE", "AAAA"))], "1", form
        ),
        "column_stats": Records.deletes(column_stats_records(shifted, form, 2 if version >= 9 else 1).keys),
    }
    put_records(table, bad)
    found = table.indexes.verify()
    problems = {(row["index"], row["problem"]) for row in found.differences.to_pylist()}
    assert problems >= {
        ("files", "missing"),
        ("files", "extra"),
        ("bloom_filters", "wrong"),
        ("column_stats", "missing"),
    }
    assert "partition nowhere" in found.of("files")["what"].to_pylist()
    table.indexes.repair()
    assert table.indexes.verify().ok, table.indexes.verify()
    assert len(table.scan().to_arrow()) == len(FIRST) + 1


@pytest.mark.rest
def test_a_secondary_index_and_partition_statistics(make: Make) -> None:
    table = filled(make, 9)
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    gone = pa.array(["v1$9", "\0$77"])
    stats = metadata.partition_stats(["ts"], {"ts": pa.int64()})["ts"]
    put_records(
        table,
        {"secondary_index_v": Records.deletes(gone), "partition_stats": Records.deletes(stats["key"].combine_chunks())},
    )
    found = table.indexes.repair()
    assert found.of("secondary_index_v")["key"].to_pylist() == gone.to_pylist()
    assert found.of("partition_stats").num_rows == len(stats)
    assert table.indexes.verify().ok


def test_floating_numbers_as_older_java_prints_them() -> None:
    MemoryStorage.drop("services-floating")
    table = lakebed.create("memory://services-floating/t", FLOATS, key="id", index="record", indexes=["x"])
    table.upsert(pa.table({"id": [1, 2, 3], "x": [2.0**60, 1.5, None]}, FLOATS))
    pairs = pa.table({"value": ["1.15292150460684698E18"], "record_key": ["1"]})
    shortest = pa.array(["1.152921504606847E18$1"])
    put_records(table, {"secondary_index_x": Records(*entries(pairs, record_form(9)), shortest)})
    assert table.indexes.verify().ok, table.indexes.verify()
    # the same value of a record that does not have it
    wrong = pa.table({"value": ["1.15292150460684698E18"], "record_key": ["2"]})
    table.upsert(pa.table({"id": [4], "x": [7.0]}, FLOATS))
    put_records(table, {"secondary_index_x": Records(*entries(wrong, record_form(9)), pa.array([], pa.string()))})
    found = table.indexes.repair()
    assert found.differences["key"].to_pylist() == ["1.15292150460684698E18$2"]
    assert table.indexes.verify().ok, table.indexes.verify()


def test_records_without_a_value_in_an_index_of_version_8(make: Make) -> None:
    table = filled(make, 8)
    pairs = pa.table({"value": pa.array([None], pa.string()), "record_key": ["77"]})
    put_records(table, {"secondary_index_v": Records(*entries(pairs, record_form(8)), pa.array([], pa.string()))})
    assert table.indexes.verify().ok, table.indexes.verify()


def test_only_file_groups_that_differ_are_written(make: Make) -> None:
    table = filled(make, 9)
    put_records(table, {"record_index": wrong_keys(9, partitioned=False)})
    storage = open_storage(table.uri)
    before = {info.path for info in storage.list(".hoodie/metadata")}
    table.indexes.repair()
    written = {info.path for info in storage.list(".hoodie/metadata")} - before
    logs = [path.split("/") for path in written if ".log." in path]
    assert {path[2] for path in logs} == {"record_index"}
    assert len(logs) <= 4


def test_a_table_without_metadata_table_has_nothing_to_verify(make: Make) -> None:
    table = make(index="simple", properties={"hoodie.metadata.enable": False})
    table.upsert(rows(*FIRST))
    assert table.indexes.verify().checked == ()
    assert table.indexes.repair().ok
    assert table.indexes.list() == ()


def test_an_index_that_others_stand_on_is_not_dropped(make: Make) -> None:
    table = filled(make, 9)
    for name, word in (("record_index", "adopt"), ("files", "is built on"), ("nothing", "no index")):
        with pytest.raises(InvalidOption, match=word):
            table.indexes.drop(name)
    table.indexes.adopt("global_simple")
    with pytest.raises(InvalidOption, match="secondary_index_v"):
        table.indexes.drop("record_index")
    table.indexes.drop("v")
    table.indexes.drop("record_index")
    table.indexes.drop("column_stats")
    assert [f.name for f in table.indexes.list()] == ["files", "bloom_filters"]
    table.upsert(rows((1, "c1", "later", 30)))
    assert [f.name for f in table.indexes.list()] == ["files", "bloom_filters"]
    assert table.indexes.verify().ok
    assert "bloom filters" in repr(table.indexes)
    assert "<table>" in table.indexes._repr_html_()


def test_an_index_asked_for_at_create_can_be_let_go(make: Make) -> None:
    table = make(index="global_simple", indexes=["record_index", "bloom_filters"])
    table.indexes.drop("record_index")
    table.upsert(rows(*FIRST))
    assert [f.name for f in table.indexes.list() if f.name.endswith(("index", "filters"))] == ["bloom_filters"]


COW = [t.name for t in golden_tables(lambda t: bool(t.entry.get("metadata_partitions"))) if "_cow_" in t.name]


@pytest.mark.parametrize("name", COW)
def test_tables_of_real_hudi_verify_but_for_nan_and_repeated_keys(name: str) -> None:
    """Nothing differs, but for the ranges of columns with NaN, of which Hudi's footers say zero; keys that inserts made
    stand twice are told."""
    found = verify(in_memory(name, "verified"))
    repeated = found.of("record keys")
    assert bool(repeated.num_rows) == ("insert_dups" in name)
    labels = [row["what"] for row in found.differences.to_pylist() if row["index"] != "record keys"]
    assert all(label.split(" ")[0] in ("f32", "f64") for label in labels), found


def test_verify_writes_nothing_to_storage(make: Make) -> None:
    table = filled(make, 9)
    storage = CountingStorage(open_storage(table.uri))
    assert verify(storage).ok
    assert not storage.written


def test_errors_name_the_way_on(make: Make) -> None:
    table = filled(make, 9)
    with pytest.raises(lakebed.InvalidOption, match="already"):
        table.indexes.create("v")
    with pytest.raises(lakebed.InvalidOption, match="groups=3"):
        table.indexes.create("column_stats", groups=3)


NUMBERS = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int32()), ("ts", pa.int64())])


@pytest.mark.parametrize("version", [9, 8])
def test_ranges_from_before_a_column_became_text(version: int) -> None:
    uri = f"memory://services-widened-{version}/t"
    words: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts", "index": "simple"}
    table = lakebed.create(uri, NUMBERS, table_version=version, indexes=["column_stats"], **words)
    table.upsert(pa.table({"id": [1], "city": ["a"], "v": [10], "ts": [1]}, NUMBERS))
    table.insert(
        pa.table({"id": [2], "city": ["a"], "v": [9], "ts": [1]}, NUMBERS),
        options={"hoodie.parquet.small.file.limit": 0},
    )
    widened = pa.table({"id": [1], "city": ["a"], "v": ["abc"], "ts": [1]})
    table.upsert(widened, options={"lakebed.write.evolution": "widen"})
    assert table.indexes.verify().ok, table.indexes.verify()
    # statistics that are built by now know the texts
    table.indexes.drop("column_stats")
    table.indexes.create("column_stats")
    assert table.indexes.verify().ok, table.indexes.verify()
    # what is wrong is still found
    storage = open_storage(table.uri)
    metadata = open_snapshot(storage).metadata
    assert metadata is not None
    stats = metadata.column_stats(["v"], None, {"v": pa.string()})["v"]
    lower = stats.set_column(stats.column_names.index("max"), "max", pa.array(["0"] * len(stats)))
    form = record_form(version)
    put_records(table, {"column_stats": column_stats_records({"v": lower}, form, 2 if version >= 9 else 1)})
    assert table.indexes.verify().of("column_stats").num_rows == len(stats)
    MemoryStorage.drop(f"services-widened-{version}")


def test_a_partition_that_a_refused_write_began(make: Make) -> None:
    table = make(index="simple")
    table.upsert(rows(*FIRST))
    good, bad = (1000, "new", "v", 1), (1001, "other", "v", None)
    with pytest.raises(lakebed.LakebedError):
        table.upsert(rows(good, bad))
    assert table.indexes.verify().ok, table.indexes.verify()
    table.upsert(rows((1, "c1", "after", 20)))
    assert table.indexes.verify().ok, table.indexes.verify()
    put_records(table, {"files": file_records([], record_form(9), deleted_partitions=["c1"])})
    assert table.indexes.verify().differences["what"].to_pylist() == ["partition c1"]
    table.indexes.repair()
    assert table.indexes.verify().ok, table.indexes.verify()
