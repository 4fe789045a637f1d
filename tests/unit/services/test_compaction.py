"""Compaction: the same rows in base files, plans that wait while others write, runners that died."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.heartbeat import Heartbeat, heartbeat_path
from lakebed.concurrency.markers import list_markers
from lakebed.concurrency.running_call import RunningCall
from lakebed.errors import CommitConflict, InvalidOption
from lakebed.format.base_file import read_footer
from lakebed.model import Action, CommitMetadata, State
from lakebed.properties.file import load_table_config
from lakebed.services.compaction import Compaction
from lakebed.services.driver import run_plan, run_service
from lakebed.services.service import ServiceTransaction
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.plans import compaction_operations
from lakebed.timeline.bodies.rollback import rollback_target
from lakebed.timeline.timeline import load_timeline
from lakebed.timeline.transitions import TimelineWriter
from property.crossing import Change, Model, Write, Writer, held_writers
from support.compaction_tables import bare, log_files, pending, snapshot
from support.golden_tables import GoldenTable, golden, golden_tables
from support.sampling import HISTORIES, todays
from support.tables import context_of
from support.write_tables import content, last_commit, rows

Make = Callable[..., Table]
BY_HAND = {"hoodie.compact.inline": False}


@pytest.fixture
def mor(make: Make) -> Make:
    """Makes a merge-on-read table that compacts only by hand."""

    def create(**given: Any) -> Table:
        return make(**({"type": "mor", "index": "bucket", "buckets": 1, "properties": BY_HAND} | given))

    return create


# -- tables of real Hudi


@pytest.mark.parametrize("table", todays(golden_tables(lambda t: t.type == "mor"), 2, HISTORIES), ids=str)
def test_golden_tables_hold_the_same_rows_in_base_files(table: GoldenTable, tmp_path: Path) -> None:
    uri = str(table.unpack(tmp_path))
    opened = lakebed.open(uri)
    try:
        before = bare(opened.scan(meta=True).to_arrow())
        wrong = str(opened.indexes.verify().differences.to_pylist())
        done = opened.maintenance.compact()
    except lakebed.UnsupportedFeature as refused:
        pytest.skip(str(refused))
    assert before
    fresh = lakebed.open(uri)
    assert bare(fresh.scan(meta=True).to_arrow()) == before
    clustered = snapshot(fresh).timeline.pending_clustering
    left = [s for s in snapshot(fresh).file_slices() if s.log_files and (s.partition, s.file_id) not in clustered]
    assert left == []
    if not clustered:
        assert bare(fresh.scan(meta=True, query="read_optimized").to_arrow()) == before
    found = fresh.indexes.verify()
    known = ("partition_stats",) if "column_stats" in wrong else ()  # made of column stats that were wrong before
    assert [d for d in found.differences.to_pylist() if str(d) not in wrong and d["index"] not in known] == []
    assert all(run.slices for run in done.runs)


@pytest.mark.parametrize(
    "name", ["v9_mor_compaction_pending", "v8_mor_compaction_pending", "v6_mor_compaction_pending"]
)
def test_a_pending_plan_of_real_hudi_is_run_unchanged(name: str, tmp_path: Path) -> None:
    try:
        uri = str(golden(name).unpack(tmp_path))
    except StopIteration:
        pytest.skip("not in this set of golden tables")
    table = lakebed.open(uri)
    (plan,) = pending(table)
    before = bare(table.scan(meta=True).to_arrow())
    operations = compaction_operations(snapshot(table).timeline.plan(plan))
    run = run_plan(context_of(table), Compaction(), plan.time)
    assert run.instant == plan.time
    assert {(s.partition, s.file_id) for s in run.slices} == {(o.partition, o.file_id) for o in operations}
    assert run.log_files == sum(len(o.log_files) for o in operations)
    fresh = lakebed.open(uri)
    assert pending(fresh) == []
    assert bare(fresh.scan(meta=True).to_arrow()) == before
    assert log_files(fresh) == 3  # those that were written while the plan was pending


NUMBERS = ("numWrites", "numDeletes", "numUpdateWrites", "numInserts", "totalLogRecords", "totalLogBlocks")
_ALIKE = (
    *("fileId", "prevCommit", "prevBaseFile", "partitionPath", "totalWriteErrors", "totalLogFilesCompacted"),
    *(
        "totalUpdatedRecordsCompacted",
        "totalCorruptLogBlock",
        "totalRollbackBlocks",
        "baseFile",
        "logFiles",
        "tempPath",
    ),
    *("minEventTime", "maxEventTime", "cdcStats", "logVersion", "logOffset"),
)


@pytest.mark.parametrize("name", ["v9_mor_compaction", "v6_mor_compaction"])
def test_write_stats_are_those_of_real_hudi(name: str, tmp_path: Path) -> None:
    """Its compaction is taken back to the plan and run again."""
    uri = golden(name).unpack_without_metadata_table(tmp_path)
    table = lakebed.open(str(uri))
    timeline = snapshot(table).timeline
    theirs = next(i for i in timeline.commits if i.action is Action.COMMIT)
    expected = timeline.commit_metadata(theirs)
    folder = uri / timeline.config.timeline_path
    (folder / theirs.file_name).unlink()
    (folder / f"{theirs.time}.compaction.inflight").unlink()
    for stats in expected.stats.values():
        for stat in stats:
            (uri / stat.path).unlink()
    run_plan(context_of(lakebed.open(str(uri))), Compaction(), theirs.time)
    timeline = snapshot(lakebed.open(str(uri))).timeline
    ours = timeline.commit_metadata(next(i for i in timeline.commits if i.time == theirs.time))
    assert ours.operation == "COMPACT"
    assert ours.raw["compacted"] is True
    assert json.loads(ours.schema) == json.loads(expected.schema)
    for kept in (*NUMBERS, *_ALIKE):
        assert _field(ours, expected, kept) == _field(expected, expected, kept), kept


def _field(commit: CommitMetadata, theirs: CommitMetadata, name: str) -> list[Any]:
    """Of each write stat; older releases leave some fields out."""
    stats, known = (_stats(one) for one in (commit, theirs))
    return [stat.get(name) for stat, other in zip(stats, known, strict=True) if name in other]


def _stats(commit: CommitMetadata) -> list[dict[str, Any]]:
    stats: Any = commit.raw["partitionToWriteStats"]
    return [stat for path in sorted(stats) for stat in sorted(stats[path], key=lambda s: s["fileId"])]


# -- tables of its own


@pytest.mark.parametrize("version", [9, 8, 6])
def test_logs_become_base_files_and_rows_keep_their_meta_columns(mor: Make, version: int) -> None:
    table = mor(table_version=version)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1), (3, "b", "x", 1)))
    table.upsert(rows((1, "a", "y", 2), (4, "a", "y", 2)))
    table.delete([2])
    before = bare(table.scan(meta=True).to_arrow())
    assert log_files(table) == 2
    result = table.maintenance.compact()
    (run,) = result.runs
    assert [(s.partition, s.rows, s.updated, s.inserted, s.deleted) for s in run.slices] == [("a", 2, 1, 1, 1)]
    assert str(result).startswith(f"compact {run.instant}: 2 log files with 3 records of 1 file group merged into")
    fresh = lakebed.open(table.uri)
    assert bare(fresh.scan(meta=True).to_arrow()) == before
    assert bare(fresh.scan(meta=True, query="read_optimized").to_arrow()) == before
    names = {r["_hoodie_partition_path"]: r["_hoodie_file_name"] for r in fresh.scan(meta=True).to_arrow().to_pylist()}
    assert names["a"] == run.slices[0].file.rpartition("/")[2]
    assert run.instant in names["a"]
    assert log_files(fresh) == 0
    assert fresh.indexes.verify().ok
    commit = last_commit(fresh)
    (stat,) = commit.stats["a"]
    assert (commit.operation, stat.num_writes, stat.num_updates, stat.num_inserts, stat.num_deletes) == (
        *("COMPACT", 2, 1),
        *(1, 1),
    )


def test_nothing_to_compact_says_why(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    result = table.maintenance.compact()
    assert result.runs == ()
    assert "no file slice in the table has log files" in str(result)
    table.upsert(rows((1, "a", "y", 2)))
    assert table.maintenance.compact(plan_only=True).planned is not None
    assert "are in pending" in str(table.maintenance.compact(plan_only=True))
    table.maintenance.compact()
    table.upsert(rows((1, "a", "z", 3)))
    assert "none of 1 file slice with log files has more than" in str(table.maintenance.compact(when_due=True))
    of_hudi = table.maintenance.compact(when_due=True, options={"hoodie.compact.inline.max.delta.commits": 5})
    assert "1 delta commits since the last compaction, due from 5 on" in str(of_hudi)


def test_copy_on_write_tables_are_refused(make: Make) -> None:
    with pytest.raises(InvalidOption, match="copy-on-write"):
        make().maintenance.compact()


def test_all_rows_deleted_leave_a_file_without_rows(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)))
    table.delete([1, 2])
    (merged,) = table.maintenance.compact().slices
    assert (merged.rows, merged.deleted) == (0, 2)
    storage = open_storage(table.uri)
    assert read_footer(storage, merged.file, merged.bytes).rows == 0
    assert content(table) == []
    table.upsert(rows((1, "a", "z", 1)))
    assert content(table) == [(1, "a", "z", 1)]  # the file group lives on
    assert table.indexes.verify().ok


def test_a_slice_without_base_file_counts_inserts(mor: Make) -> None:
    """Writers that do not wait for one another begin file groups with log files."""
    table = mor()
    nbcc = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)), options=nbcc)
    table.upsert(rows((2, "a", "y", 2)), options=nbcc)
    assert snapshot(table).base_files() == ()
    before = bare(table.scan(meta=True).to_arrow())
    (merged,) = table.maintenance.compact().slices
    assert (merged.rows, merged.inserted, merged.updated) == (2, 2, 0)
    (stat,) = last_commit(table).stats["a"]
    assert (stat.prev_commit, stat.prev_base_file, stat.num_inserts) == ("null", None, 2)
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before
    assert table.indexes.verify().ok


def test_rows_of_a_sorted_table_stay_in_the_order_of_their_keys(mor: Make) -> None:
    table = mor(sort="key", partition_by=None)
    table.upsert(rows(*((i, "a", "x", 1) for i in range(100, 500, 2))))
    table.upsert(rows(*((i, "a", "y", 2) for i in range(300, 340))))
    table.maintenance.compact()
    keys = lakebed.open(table.uri).scan(meta=True).to_arrow().column("_hoodie_record_key").to_pylist()
    assert keys == sorted(keys)
    assert len(keys) == 220


def test_indexes_are_right_after_a_compaction_during_writes(mor: Make) -> None:
    table = mor(index="record", buckets=None, indexes=["v", "bloom_filters"])
    table.upsert(rows(*((i, "ab"[i % 2], "x", 1) for i in range(20))))
    table.upsert(rows((1, "b", "y", 2), (2, "a", "y", 2)))
    table.delete([3])
    planned = table.maintenance.compact(plan_only=True).planned
    table.upsert(rows((2, "a", "z", 3), (30, "a", "z", 3)))
    table.delete([4, 5])
    before = content(table)
    run = table.maintenance.compact().runs[0]
    assert run.instant == planned
    assert content(table) == before
    found = table.indexes.verify()
    assert found.ok, found
    assert sorted(table.get([1, 2, 3, 4]).column("v").to_pylist()) == ["y", "z"]
    table.maintenance.compact()
    assert content(table) == before
    assert table.indexes.verify().ok


# -- while a plan is pending


@pytest.mark.parametrize("version", [9, 8, 6])
def test_writes_go_on_while_a_plan_is_pending(mor: Make, version: int) -> None:
    table = mor(table_version=version)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1), (3, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    plan = table.maintenance.compact(plan_only=True)
    assert (len(plan.plan.slices) if plan.plan else 0) == 1
    table.upsert(rows((2, "a", "z", 3), (4, "a", "z", 3)))
    table.delete([3])
    expected = [(1, "a", "y", 2), (2, "a", "z", 3), (4, "a", "z", 3)]
    assert content(table) == expected
    explained = table.explain(upsert=rows((2, "a", "z", 3)))
    assert explained.waiting == (f"compaction {plan.planned} of 1 file slice is pending",)
    assert str(explained).endswith(explained.waiting[0])
    (waiting,) = [r for r in table.timeline.to_arrow().to_pylist() if r["state"] == "requested"]
    assert (waiting["operation"], waiting["files"]) == ("compact", 1)
    done = table.maintenance.compact()
    assert done.instants[0] == plan.planned
    assert content(table) == expected
    assert done.runs[0].log_files == 1  # exactly those of the plan
    assert done.runs[1].log_files == 2  # then what came since
    assert log_files(table) == 0
    assert table.indexes.verify().ok


@pytest.mark.rest
@pytest.mark.parametrize("version", [9, 6])
def test_a_plan_is_run_after_many_writes_and_another_compaction_follows(mor: Make, version: int) -> None:
    table = mor(table_version=version)
    expected: dict[tuple[int, str], tuple[Any, ...]] = {}
    for at in range(14):
        row = (at % 5, "ab"[at % 2], f"v{at}", at)
        table.upsert(rows(row))
        expected[row[0], row[1]] = row
        if at % 4 == 1:
            table.maintenance.compact(plan_only=True)
        if at % 4 == 3:
            run_all(table)
        assert content(table) == sorted(expected.values())
    assert table.indexes.verify().ok


def run_all(table: Table) -> None:
    for plan in pending(table):
        run_plan(context_of(table), Compaction(), plan.time)


def test_a_partition_path_in_a_pending_plan_is_not_deleted(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1), (2, "b", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    table.maintenance.compact(plan_only=True)
    with pytest.raises(CommitConflict, match=r"pending in it"):
        table.delete_partitions("a")
    table.delete_partitions("b")
    table.maintenance.compact()
    table.delete_partitions("a")
    assert content(table) == []


def test_an_overwritten_file_group_stays_overwritten(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    table.maintenance.compact(plan_only=True)
    table.insert_overwrite(rows((7, "a", "new", 1)))
    table.maintenance.compact()
    assert content(table) == [(7, "a", "new", 1)]
    assert table.indexes.verify().ok


# -- several compactors, and some that die


def test_a_plan_that_another_process_runs_is_left_to_it(mor: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunningCall, "is_running", lambda self: True)  # the test is the call that runs the plan
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    planned = table.maintenance.compact(plan_only=True).planned or ""
    other = context_of(table)
    with ServiceTransaction(other, Action.COMPACTION, "COMPACT") as tx:
        tx.take_up(planned)
        with pytest.raises(CommitConflict, match="run by another process"):
            run_plan(context_of(table), Compaction(), planned)
        result = table.maintenance.compact()
        assert result.runs == ()
        assert "was left" in str(result)
        tx.abort()
    assert [i.state for i in pending(table)] == [State.REQUESTED]
    run_plan(context_of(table), Compaction(), planned)
    with pytest.raises(CommitConflict, match="completed by another process"):
        run_plan(context_of(table), Compaction(), planned)
    assert content(table) == [(1, "a", "y", 2)]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_the_plan_of_a_runner_that_died_is_run_again(mor: Make, version: int) -> None:
    """As real Hudi: a rollback of the run, then the same instant."""
    table = mor(table_version=version)
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    planned = table.maintenance.compact(plan_only=True).planned or ""
    left = died_after_its_files(table, planned)
    assert content(table) == [(1, "a", "y", 2)]
    table.upsert(rows((1, "a", "z", 3)))  # writers leave it alone
    assert [i.state for i in pending(table)] == [State.INFLIGHT]
    result = table.maintenance.compact()
    assert result.instants[0] == planned
    assert result.runs[0].rolled_back == (planned,)
    storage = open_storage(table.uri)
    assert storage.head(left) is None
    assert storage.head(heartbeat_path(planned)) is None
    assert list_markers(storage, planned) == []
    timeline = snapshot(table).timeline
    (rollback,) = [i for i in timeline.completed if i.action is Action.ROLLBACK]
    plan = timeline.plan(rollback)
    assert (rollback_target(plan), plan["instantToRollback"]["action"]) == (planned, "compaction")
    assert content(table) == [(1, "a", "z", 3)]
    assert table.indexes.verify().ok


def died_after_its_files(table: Table, instant: str) -> str:
    """A runner wrote its files and died; gives the path of one."""
    dead = ServiceTransaction(context_of(table), Action.COMPACTION, "COMPACT")
    pending = dead.take_up(instant)
    from lakebed.handles.compact import SliceCompactor
    from lakebed.operations.context import file_format
    from lakebed.services.compaction import run_operations

    operations = compaction_operations(dead.timeline.plan(pending))
    writer = SliceCompactor(dead.snapshot.reader, instant, file_format(dead.context, dead.snapshot))
    done = run_operations(dead.context, writer, operations, "")
    dead.stop_heartbeat()  # what a process that is gone no longer does
    return done[0].status.path or ""


def test_a_runner_that_was_taken_for_dead_does_not_complete(mor: Make) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    planned = table.maintenance.compact(plan_only=True).planned or ""
    slow = ServiceTransaction(context_of(table), Action.COMPACTION, "COMPACT")
    slow.take_up(planned)
    slow.stop_heartbeat()
    table.maintenance.compact()
    before = content(table)
    with pytest.raises(CommitConflict):
        slow.finish(CommitMetadata("COMPACT"), [])
    slow.abort()
    assert content(table) == before == [(1, "a", "y", 2)]
    assert [i.time for i in snapshot(table).timeline.commits].count(planned) == 1


def test_version_6_plans_nothing_while_a_write_is_pending(mor: Make) -> None:
    table = mor(table_version=6)
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    later = str(int(load_timeline(storage, config).greatest_time) + 1)
    with Heartbeat(storage, later):
        TimelineWriter(storage, config).request(Action.DELTACOMMIT, later)
        scheduled = run_service(context_of(table), Compaction(), plan_only=True)
        assert scheduled.planned is None
        assert f"deltacommit {later} is pending" in str(scheduled)


# -- by itself


def test_tables_of_lakebed_compact_by_themselves_when_due(make: Make) -> None:
    table = make(type="mor", index="bucket", buckets=1, properties={"hoodie.compact.inline.max.delta.commits": 5})
    assert table.properties["lakebed.compact.inline"] == "true"
    batches = [rows((1, "a", f"v{at}", at), (at + 10, "a", "x", 1)) for at in range(12)]
    lines = [len(table.upsert(batch).services) for batch in batches]
    # the fifth delta commit makes one due; so do five after it
    assert lines == [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0]
    assert [i.action for i in snapshot(table).timeline.commits].count(Action.COMMIT) == 2
    assert content(table)[0] == (1, "a", "v11", 11)
    assert len(content(table)) == 13
    assert table.indexes.verify().ok


@pytest.mark.parametrize(
    ("properties", "options", "services", "planned"),
    [
        ({"hoodie.compact.inline": False}, {}, 0, 0),
        ({"hoodie.compact.inline": False}, {"hoodie.compact.inline": True}, 1, 0),
        ({}, {"hoodie.compact.inline": False}, 0, 0),
        ({"hoodie.compact.inline.max.delta.commits": 3}, {}, 1, 0),
        ({"hoodie.compact.inline.max.delta.commits": 4}, {}, 0, 0),
        ({"hoodie.compact.inline": False, "hoodie.compact.schedule.inline": True}, {}, 1, 1),
        ({}, {"hoodie.compact.schedule.inline": True}, 1, 1),
        ({}, {"hoodie.table.services.enabled": False}, 0, 0),
    ],
)
def test_settings_of_table_and_job_say_when(
    make: Make, properties: dict[str, Any], options: dict[str, Any], services: int, planned: int
) -> None:
    given = {"hoodie.compact.inline.max.delta.commits": 2} | properties
    table = make(type="mor", index="bucket", buckets=1, properties=given)
    for at in range(2):
        table.upsert(rows((1, "a", f"v{at}", at)), options={"hoodie.compact.inline": False})
    result = table.upsert(rows((1, "a", "last", 9)), options=options)
    assert len(result.services) == services
    assert len(pending(table)) == planned
    assert content(table) == [(1, "a", "last", 9)]


def test_tables_of_real_hudi_keep_what_they_say(tmp_path: Path) -> None:
    table = lakebed.open(str(golden("v9_mor_compaction").unpack(tmp_path)))
    data = table.scan().to_arrow().slice(0, 1)
    for _ in range(6):
        assert table.upsert(data).services == ()
    assert table.upsert(data, options={"hoodie.compact.inline": True}).services != ()
    assert table.indexes.verify().ok


@pytest.mark.rest
def test_a_compaction_that_fails_after_a_write_leaves_the_write(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"hoodie.compact.inline.max.delta.commits": 1}
    table = make(type="mor", index="bucket", buckets=1, properties=settings)
    table.upsert(rows((1, "a", "x", 1)))
    storage = open_storage(table.uri)
    table.upsert(rows((1, "a", "y", 2)), options={"hoodie.compact.inline": False})
    table.maintenance.compact(plan_only=True)
    (log,) = [log for s in snapshot(table).file_slices() for log in s.log_files]
    kept = storage.read(log.path)
    storage.delete(log.path)
    with caplog.at_level(logging.WARNING, "lakebed"):
        result = table.upsert(rows((2, "a", "z", 1)))
    assert (result.rows, result.inserted) == (1, None)
    assert f"the write {result.instant} is valid" in caplog.text
    storage.write(log.path, kept)
    assert content(table) == [(1, "a", "y", 2), (2, "a", "z", 1)]
    assert table.maintenance.compact().runs != ()
    assert content(table) == [(1, "a", "y", 2), (2, "a", "z", 1)]
    assert table.indexes.verify().ok


def test_inline_and_schedule_inline_together_are_refused(mor: Make) -> None:
    table = mor()
    both = {"hoodie.compact.inline": True, "hoodie.compact.schedule.inline": True}
    with pytest.raises(InvalidOption, match="both true"):
        table.upsert(rows((1, "a", "x", 1)), options=both)
    assert content(table) == []


def test_a_hudi_job_compacts_as_its_options_say(make: Make) -> None:
    uri = make(type="mor", index="bucket", buckets=1).uri + "-job"
    job = {
        "hoodie.table.name": "job",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": 1,
        "hoodie.compact.inline": True,
        "hoodie.compact.inline.max.delta.commits": 2,
    }
    results = [lakebed.write(rows((1, "a", f"v{at}", at)), uri, job) for at in range(3)]
    assert [bool(result and result.services) for result in results] == [False, True, False]
    assert content(lakebed.open(uri)) == [(1, "a", "v2", 2)]


# -- the command line


def test_the_command_line_compacts(mor: Make, capsys: pytest.CaptureFixture[str]) -> None:
    table = mor()
    table.upsert(rows((1, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    assert invoke(["maintenance", "compact", table.uri, "--plan-only", "--output", "json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["planned"]["file_groups"], planned["planned"]["log_files"], planned["runs"]) == (1, 1, [])
    assert invoke(["maintenance", "compact", table.uri, "--output", "json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert [run["instant"] for run in done["runs"]] == [planned["planned"]["instant"]]
    assert invoke(["maintenance", "compact", table.uri, "--when-due"]) == 0
    assert "no compaction is due" in capsys.readouterr().out
    assert content(table) == [(1, "a", "y", 2)]


# -- beside a write that is under way


def _writer(uri: str, *given: tuple[Any, ...]) -> Writer:
    write = Write("upsert", lambda t: t.upsert(rows(*given)), lambda _: Change())
    writer = Writer(uri, write)
    model = Model(False)
    writer.step(model)
    writer.step(model)  # it has begun and written, and stands before its commit
    return writer


@pytest.mark.parametrize("index", ["bucket", "record", "simple"])
@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("when", ["plan", "run"])
def test_a_write_that_began_before_a_plan_completes_after_it(mor: Make, version: int, index: str, when: str) -> None:
    buckets = 1 if index == "bucket" else None
    table = mor(table_version=version, index=index, buckets=buckets, indexes=["column_stats"])
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1), (3, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    with held_writers():
        writer = _writer(table.uri, (2, "a", "late", 3), (3, "a", "late", 3))
        if when == "plan":
            planned = table.maintenance.compact(plan_only=True).planned
            writer.step(Model(False))
            assert table.maintenance.compact().instants[0] == planned
        else:
            assert len(table.maintenance.compact().runs) == 1
            writer.step(Model(False))
    assert writer.error is None
    expected = [(1, "a", "y", 2), (2, "a", "late", 3), (3, "a", "late", 3)]
    assert content(table) == expected
    assert table.indexes.verify().ok
    table.maintenance.compact()
    assert content(table) == expected
    assert log_files(table) == 0
    assert table.indexes.verify().ok


def test_version_6_plans_after_the_write(mor: Make) -> None:
    table = mor(table_version=6)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    with held_writers():
        writer = _writer(table.uri, (2, "a", "late", 3))
        assert "is pending" in str(table.maintenance.compact())
        writer.step(Model(False))
    assert writer.error is None
    assert table.maintenance.compact().runs[0].log_files == 2
    assert content(table) == [(1, "a", "y", 2), (2, "a", "late", 3)]


@pytest.mark.parametrize("version", [9, 6])
def test_a_write_that_began_while_a_plan_was_pending_completes_after_its_run(mor: Make, version: int) -> None:
    table = mor(table_version=version)
    table.upsert(rows((1, "a", "x", 1), (2, "a", "x", 1)))
    table.upsert(rows((1, "a", "y", 2)))
    planned = table.maintenance.compact(plan_only=True).planned or ""
    with held_writers():
        writer = _writer(table.uri, (2, "a", "late", 3))
        run_plan(context_of(table), Compaction(), planned)
        writer.step(Model(False))
    assert writer.error is None
    assert content(table) == [(1, "a", "y", 2), (2, "a", "late", 3)]
    assert table.indexes.verify().ok
    table.maintenance.compact()
    assert content(table) == [(1, "a", "y", 2), (2, "a", "late", 3)]
    assert table.indexes.verify().ok


def test_little_memory_gives_the_same_rows(mor: Make) -> None:
    table = mor()
    table.upsert(rows(*((i, "ab"[i % 2], f"x{i}", 1) for i in range(5000))))
    for at in range(3):
        table.upsert(rows(*((i, "ab"[i % 2], f"v{at}", 2 + at) for i in range(at, 5000, 3 + at))))
    before = bare(table.scan(meta=True).to_arrow())
    table.maintenance.compact(options={"lakebed.write.memory": 10_000})
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == before


# -- how the columns of base files are encoded


@pytest.mark.parametrize("service", ["compact", "cluster"])
def test_repeated_keys_that_a_base_file_has_as_a_dictionary_come_into_the_next_one(mor: Make, service: str) -> None:
    """Keys that are in a table many times make a dictionary, from so many rows on that the next file has it, too."""
    table = mor(index="simple", buckets=None)
    count = 20_000
    table.bulk_insert(rows(*((n % 1_000, "c0", "v", 1) for n in range(count))))
    wider = rows((1, "c0", "new", 2))
    table.upsert(wider.append_column("more", pa.array(["x"])))
    if service == "compact":
        table.maintenance.compact()
    else:
        table.maintenance.cluster()
    assert not log_files(table)
    assert table.scan().count() == count
    assert table.scan(where="more = 'x'").count() == count // 1_000
