"""Every golden table's timeline against what real Hudi read from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from lakebed.model import Action, CommitMetadata
from lakebed.timeline.bodies.rollback import clustering_groups, decode_action
from lakebed.timeline.instants import parse_instant_file
from lakebed.timeline.timeline import Timeline
from support.golden_tables import GoldenTable, golden, golden_tables, spread

Open = Callable[[GoldenTable], Any]
every_table = pytest.mark.parametrize("table", spread(golden_tables()), ids=str)


@cache
def as_hudi_reads(name: str) -> list[dict[str, Any]]:
    return golden(name).more("timeline.json")


def listed(table: GoldenTable, part: str) -> list[dict[str, Any]]:
    return [entry for entry in as_hudi_reads(table.name) if entry["timeline"] == part]


@every_table
def test_instants_are_those_hudi_lists(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    # The listed completion times of version 6 are modification times; its files hold none.
    told = "completion" if table.version >= 8 else ""
    expected = [(e["instant"], e["action"], e["state"], e.get(told)) for e in listed(table, "active")]
    assert [(i.time, i.action.value, i.state.name, i.completion_time) for i in timeline.instants] == expected
    assert {i.time for i in timeline.pending} == {e[0] for e in expected if e[2] != "COMPLETED"}
    archived = timeline.archived()
    # A version 6 archive has an entry for each state; the timeline shows the highest.
    old = {(e["instant"], e["action"], e.get(told)) for e in listed(table, "archived") if e["state"] == "COMPLETED"}
    assert {(i.time, i.action.value, i.completion_time) for i in archived.instants} == old
    for time, _, completion in old:
        assert archived.completion_time(time) == completion
    assert_visible(timeline)


def assert_visible(timeline: Timeline) -> None:
    for instant in timeline.commits:
        assert timeline.is_committed(instant.time)
        assert timeline.completion_time(instant.time) == instant.completion_time
    for instant in timeline.pending:
        assert not timeline.is_committed(instant.time)
        assert timeline.completion_time(instant.time) is None
    for archived in timeline.archived().instants:
        if archived.action in (Action.COMMIT, Action.DELTACOMMIT):
            assert timeline.is_committed(archived.time)
            assert timeline.completion_time(archived.time) == archived.completion_time
    assert not timeline.is_committed("29991231235959999")
    assert timeline.greatest_time >= max(i.time for i in timeline.instants)


@every_table
def test_commit_metadata_is_what_hudi_reads(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    by_time = {(i.time, i.action.value): i for i in timeline.instants if i.is_completed}
    for entry in as_hudi_reads(table.name):
        expected = entry.get("metadata")
        if not expected or entry["action"] == "savepoint" or entry["state"] != "COMPLETED":
            continue
        if entry["timeline"] == "active":
            meta = timeline.commit_metadata(by_time[entry["instant"], entry["action"]])
        else:
            meta = timeline.archived().commit_metadata(entry["instant"])
        assert meta.operation == expected["operationType"]
        assert meta.extra == expected["extraMetadata"]
        assert meta.replaced == {
            part: tuple(ids) for part, ids in (expected.get("partitionToReplaceFileIds") or {}).items()
        }
        assert_stats(meta, expected["partitionToWriteStats"])


def assert_stats(meta: CommitMetadata, expected: dict[str, list[dict[str, Any]]]) -> None:
    assert set(meta.stats) == set(expected)
    for partition, stats in expected.items():
        assert len(stats) == len(meta.stats[partition])
        for stat, theirs in zip(meta.stats[partition], stats, strict=True):
            runtime = theirs["runtimeStats"] or {}
            assert stat.file_id == theirs["fileId"]
            assert stat.path == theirs["path"]
            assert stat.partition == theirs["partitionPath"] == partition
            assert stat.prev_commit == theirs["prevCommit"]
            assert (stat.num_writes, stat.num_inserts) == (theirs["numWrites"], theirs["numInserts"])
            assert (stat.num_updates, stat.num_deletes) == (theirs["numUpdateWrites"], theirs["numDeletes"])
            assert stat.file_size == theirs["fileSizeInBytes"]
            assert stat.prev_base_file == theirs["prevBaseFile"]
            # The archive of 0.15 keeps no run times.
            if runtime and (stat.create_millis or stat.upsert_millis):
                assert (stat.create_millis, stat.upsert_millis) == (
                    runtime["totalCreateTime"],
                    runtime["totalUpsertTime"],
                )


@every_table
def test_every_timeline_file_decodes(table: GoldenTable, opened: Open) -> None:
    table_folder = opened(table).folder
    folders = [table_folder / ".hoodie", table_folder / ".hoodie/timeline"]
    folders += [table_folder / ".hoodie/metadata/.hoodie", table_folder / ".hoodie/metadata/.hoodie/timeline"]
    names = 0
    for path in (path for folder in folders if folder.is_dir() for path in folder.iterdir() if path.is_file()):
        instant = parse_instant_file(path.name, table.version)
        # Upgraded tables keep the properties; metadata tables of version 6 have times that differ in length.
        if instant is None:
            assert path.name in ("hoodie.properties", ".hoodie_partition_metadata"), path.name
            continue
        names += 1
        record = decode_action(path.read_bytes(), path.name)
        assert bool(record) == (path.stat().st_size > 0)
    assert names


def named(*names: str) -> pytest.MarkDecorator:
    present = {table.name for table in golden_tables()}
    return pytest.mark.parametrize("table", [golden(n) for n in names if n in present], ids=str)


@named("v9_cow_insert_overwrite", "v9_cow_delete_partition", "v9_cow_clustering_inline", "v6_cow_insert_overwrite")
def test_replaced_file_groups_are_those_of_the_commits(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    expected = {
        (partition, file_id): entry["instant"]
        for entry in listed(table, "active")
        for partition, ids in ((entry.get("metadata") or {}).get("partitionToReplaceFileIds") or {}).items()
        for file_id in ids
    }
    assert expected
    assert {group: instant.time for group, instant in timeline.replaced_files.items()} == expected


@named("v9_cow_clustering_pending", "v9_mor_clustering_pending")
def test_pending_clustering_names_its_groups(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    (pending,) = timeline.pending
    assert timeline.is_pending_clustering(pending)
    written = {
        (s.partition, s.file_id)
        for m in timeline.commits_metadata(timeline.commits)
        for g in m.stats.values()
        for s in g
    }
    assert timeline.pending_clustering
    assert set(timeline.pending_clustering) <= written
    assert set(timeline.pending_clustering.values()) == {pending}


@named("v9_mor_compaction_pending", "v8_mor_compaction_pending", "v6_mor_compaction_pending")
def test_pending_compaction_names_its_groups(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    (pending,) = [i for i in timeline.pending if i.action is Action.COMPACTION]
    operations = timeline.plan(pending)["operations"]
    assert set(timeline.pending_compaction) == {(op["partitionPath"], op["fileId"]) for op in operations}


@named("v6_cow_clustering_inline")
def test_version_6_clustering_is_recognised_by_its_plan(table: GoldenTable, opened: Open) -> None:
    timeline = opened(table).timeline
    (clustering,) = [i for i in timeline.commits if i.action is Action.REPLACECOMMIT]
    assert clustering_groups(timeline.plan(clustering)) == set(timeline.replaced_files)
