"""What a commit says about itself, to lakebed and to every other reader of the timeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.base_file import read_base_file, read_footer
from lakebed.format.bloom import BloomFilter
from lakebed.storage import open_storage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage
from lakebed.timeline.bodies.commit import decode_commit
from support.write_tables import SCHEMA, content, files, last_commit, rows

Make = Callable[..., Table]
VERSIONS = pytest.mark.parametrize("version", [9, 8, 6])
FIRST = [(n, f"c{n % 2}", "a", 10) for n in range(10)]


def stats(table: Table) -> dict[str, dict[str, Any]]:
    """The raw write stats by partition; one file a partition."""
    raw: Any = last_commit(table).raw["partitionToWriteStats"]
    assert all(len(group) == 1 for group in raw.values())
    return {partition: group[0] for partition, group in raw.items()}


@VERSIONS
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_write_stats_of_an_upsert(make: Make, version: int, index: str) -> None:
    table = make(index=index, table_version=version, **({"buckets": 1} if index == "bucket" else {}))
    first = table.upsert(rows(*FIRST))
    found = stats(table)
    assert {p: (s["numWrites"], s["numInserts"], s["numUpdateWrites"], s["prevCommit"]) for p, s in found.items()} == {
        "c0": (5, 5, 0, "null"),
        "c1": (5, 5, 0, "null"),
    }
    old = {p: s["path"] for p, s in found.items()}
    flagged = rows((0, "c0", "b", 11), (2, "c0", "old", 1), (20, "c0", "b", 11))
    result = table.upsert(flagged)
    change = stats(table)
    assert set(change) == {"c0"}
    stat = change["c0"]
    assert stat["fileId"] == found["c0"]["fileId"]
    assert stat["prevCommit"] == first.instant
    assert stat["prevBaseFile"] == old["c0"].rpartition("/")[2]
    assert (stat["numWrites"], stat["numInserts"], stat["numUpdateWrites"], stat["numDeletes"]) == (6, 1, 1, 0)
    assert stat["fileSizeInBytes"] == stat["totalWriteBytes"] == len(files(table.uri)[stat["path"]]) == result.bytes
    assert stat["path"] == result.files[0]
    meta = last_commit(table)
    assert meta.operation == "UPSERT"
    assert json.loads(meta.schema)["name"] == "t_record"
    table.delete([0, 1])
    assert {p: (s["numWrites"], s["numDeletes"]) for p, s in stats(table).items()} == {"c0": (5, 1), "c1": (4, 1)}
    assert last_commit(table).operation == "DELETE"


@VERSIONS
def test_replace_commits_name_what_they_replace(make: Make, version: int) -> None:
    table = make(table_version=version)
    table.upsert(rows(*FIRST))
    ids = {f.partition: f.file_id for f in table.files}
    table.insert_overwrite(rows((1, "c0", "over", 1)))
    assert last_commit(table).operation == "INSERT_OVERWRITE"
    assert last_commit(table).replaced == {"c0": (ids["c0"],)}
    ids = {f.partition: f.file_id for f in table.files}
    table.delete_partitions(["c1"])
    assert last_commit(table).operation == "DELETE_PARTITION"
    assert last_commit(table).replaced == {"c1": (ids["c1"],)}
    assert last_commit(table).stats == {}
    table.insert_overwrite(rows((2, "c5", "over", 1)), "table")
    assert last_commit(table).operation == "INSERT_OVERWRITE_TABLE"
    assert last_commit(table).replaced["c0"] == (ids["c0"],)
    assert content(table) == [(2, "c5", "over", 1)]
    actions = [(i.action.value, i.state.name) for i in table.timeline]
    assert actions == [("commit", "COMPLETED")] + [("replacecommit", "COMPLETED")] * 3


@VERSIONS
def test_the_timeline_has_all_three_states(make: Make, version: int) -> None:
    table = make(table_version=version)
    result = table.upsert(rows(*FIRST))
    folder = ".hoodie/" if version == 6 else ".hoodie/timeline/"
    done = f"{result.instant}.commit" if version == 6 else f"{result.instant}_{result.checkpoint}.commit"
    names = {p.removeprefix(folder) for p in files(table.uri) if p.startswith(f"{folder}2")}
    assert names == {f"{result.instant}.commit.requested", f"{result.instant}.inflight", done}


def test_extra_metadata_and_the_result(make: Make) -> None:
    table = make()
    result = table.upsert(rows(*FIRST), options={"_mine": "1", "hoodie.datasource.write.commitmeta.key.prefix": "_"})
    assert last_commit(table).extra["_mine"] == "1"
    assert result.operation == "upsert"
    assert result.rows == 10
    assert set(result.seconds) == {"begin", "metadata", "tag", "write", "commit"}
    assert "10 inserted" in str(result)
    assert "10 inserted" not in result._repr_html_()
    assert json.loads(json.dumps(result.to_dict()))["files"] == list(result.files)
    assert [i.time for i in table.timeline] == [result.instant]


def test_files_carry_key_range_filter_and_schema(make: Make) -> None:
    table = make()
    result = table.upsert(rows(*FIRST[:3], (30, "c0", "a", 1)))
    path = next(p for p in result.files if p.startswith("c0/"))
    storage = open_storage(table.uri)
    footer = read_footer(storage, path, len(files(table.uri)[path])).key_values
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("0", "30")
    assert "hoodie_bloom_filter_type_code" not in footer  # Hudi's way to say SIMPLE
    assert json.loads(footer["parquet.avro.schema"])["fields"][0]["name"] == "_hoodie_commit_time"
    assert "org.apache.spark.version" in footer
    bloom = BloomFilter.from_text(footer["org.apache.hudi.bloomfilter"])
    assert bloom.might_contain(pa.array(["30", "anything"])).to_pylist() == [True, True]


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_a_real_bloom_filter_knows_every_key_after_a_merge(make: Make, index: str) -> None:
    table = make(index=index, partition_by=None, **({"buckets": 1} if index == "bucket" else {}))
    options = {"hoodie.parquet.bloom.filter.enabled": True, "hoodie.index.bloom.num_entries": 1000}
    table.upsert(rows(*FIRST), options=options)
    result = table.upsert(rows((5, "x", "b", 11), (77, "x", "b", 11)), options=options)
    path = result.files[0]
    footer = read_footer(open_storage(table.uri), path, len(files(table.uri)[path])).key_values
    bloom = BloomFilter.from_text(footer["org.apache.hudi.bloomfilter"], footer["hoodie_bloom_filter_type_code"])
    keys = pa.array([*(str(n) for n in range(10)), "77"])
    assert bloom.might_contain(keys).to_pylist() == [True] * 11
    assert bloom.might_contain(pa.array(["78", "x"])).to_pylist() == [False, False]
    assert (footer["hoodie_min_record_key"], footer["hoodie_max_record_key"]) == ("0", "9")


@pytest.mark.parametrize("kind", ["DYNAMIC_V0", "SIMPLE"])
def test_a_merge_carries_the_filter_on_and_reads_no_key_twice(uri: str, kind: str) -> None:
    filters = {
        "hoodie.parquet.bloom.filter.enabled": True,
        "hoodie.bloom.index.filter.type": kind,
        "hoodie.index.bloom.num_entries": 1000,
    }
    for options in ({}, filters):
        table = lakebed.create(f"{uri}-{len(options)}", SCHEMA, key="id", index="bucket", buckets=1)
        (base,) = table.upsert(rows(*FIRST), options=options).files
        once = CountingStorage(open_storage(table.uri))
        size = len(once.read(base))
        once.reset()
        read_footer(once, base, size)
        assert len(list(read_base_file(once, base, size))) == 1
        counted: list[CountingStorage] = []
        with wrapping(lambda inner, counted=counted: counted.append(CountingStorage(inner)) or counted[-1]):
            result = lakebed.open(table.uri).upsert(rows((5, "x", "b", 11), (77, "x", "b", 11)), options=options)
        assert sum(storage.opened.count(base) for storage in counted) == once.opened.count(base), options
        (path,) = result.files
        footer = read_footer(open_storage(table.uri), path, len(files(table.uri)[path]))
        assert footer.key_range == ("0", "9")
    assert footer.stored_bloom is not None
    assert footer.stored_bloom[0] == kind
    keys = pa.array([*(str(n) for n in range(10)), "77", "78"])
    bloom = BloomFilter.from_text(footer.stored_bloom[1], kind)
    assert bloom.might_contain(keys).to_pylist() == [True] * 11 + [False]


def test_explain_plans_an_upsert_and_writes_nothing(make: Make) -> None:
    table = make()
    table.upsert(rows(*FIRST))
    before = files(table.uri)
    plan = table.explain(upsert=rows((0, "c0", "b", 11), (50, "c7", "b", 11)))
    assert files(table.uri) == before
    assert (plan.rows, plan.rewritten, len(plan.files)) == (2, 1, 2)
    assert "simple" in str(plan)


def test_a_failed_write_is_rolled_back_on_the_timeline(make: Make) -> None:
    table = make()
    with pytest.raises(lakebed.InvalidRecord):
        table.upsert(rows((None, "c", "a", 1)))
    assert [(i.action.value, i.state.name) for i in table.timeline] == [("rollback", "COMPLETED")]
    assert content(table) == []


def test_what_a_process_remembers_of_its_commits_is_what_their_files_say(make: Make) -> None:
    table = make(index="bucket", buckets=2, type="mor", table_version=9)
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c0", "b", 11)), message="why", metadata={"ticket": "7"})
    table.maintenance.compact()
    table.delete([1])
    table.upsert(rows((2, "c0", "x", 12)))
    table.maintenance.compact(logs=True)
    table.maintenance.cluster()
    table.insert_overwrite(rows((3, "c1", "x", 12)))
    table.delete_partitions(["c0"])
    timeline = table.opened.snapshot().timeline
    assert len(timeline.commits) >= 7
    for instant in timeline.commits:
        path = f"{timeline.config.timeline_path}/{instant.file_name}"
        stored, remembered = decode_commit(open_storage(table.uri).read(path), path), timeline.commit_metadata(instant)
        for name in ("operation", "stats", "replaced", "extra"):
            assert getattr(remembered, name) == getattr(stored, name), (instant, name)
        assert remembered.raw["compacted"] == stored.raw["compacted"]
