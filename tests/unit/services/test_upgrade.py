"""Upgrade and downgrade: the rows, the past, the indexes and what is archived, on every kind of table, both ways."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.metadata_records.definitions import load_definitions
from lakebed.model import Action, Instant
from lakebed.operations.upsert import upsert
from lakebed.properties.file import load_table_config
from lakebed.services.upgrade import NOTED_PROPERTY
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.instants import completes_as, parse_instant_file
from lakebed.timeline.transitions import TimelineWriter
from support.compaction_tables import log_files, pending
from support.crash_tables import leftovers
from support.golden_tables import GoldenTable, golden_tables
from support.restored_tables import OPTIONS, every_action, first_commits, is_whole, located, refused, timeline
from support.same_rows import assert_same_rows
from support.sampling import HISTORIES, todays
from support.tables import context_of, of_kind
from support.write_tables import content, files, rows

Make = Callable[..., Table]
Row = tuple[Any, ...]

KINDS = (("cow", "record"), ("mor", "record"), ("mor", "bucket"), ("cow", "simple"), ("cow", "bucket"))
WAYS = ((6, 8, 9, 8, 6), (9, 6, 9), (8, 9, 6, 8))
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def new_table(make: Make, version: int, kind: str = "cow", index: str = "record", **given: Any) -> Table:
    words = {"indexes": ["v"]} if index == "record" and version > 6 else {}
    return of_kind(make, version, kind, index, **words, **given)


def change(table: Table, to: int, **given: Any) -> Any:
    up = to > version_of(table)
    return (table.maintenance.upgrade if up else table.maintenance.downgrade)(to=to, options=OPTIONS, **given)


def version_of(table: Table) -> int:
    return load_table_config(open_storage(table.uri)).version


def past(table: Table, instant: str) -> list[Row]:
    return sorted(tuple(row.values()) for row in table.scan(as_of=instant).to_arrow().to_pylist())


def changed(table: Table) -> list[str]:
    return sorted(map(str, table.changes(LONG_AGO).to_arrow().to_pylist()))


def left(table: Table) -> list[str]:
    """Litter; files of metadata partitions that were built anew are none, nor logs of version 6 that were undone."""
    return [what for what in leftovers(table.uri) if "metadata file" not in what and "cleaned, yet" not in what]


def _todays_ways() -> list[tuple[str, str, tuple[int, ...]]]:
    every = [(*kind, way) for n, kind in enumerate(KINDS) for way in (WAYS[n % 3 :] + WAYS[: n % 3])]
    return list(todays(every, 5, HISTORIES))


@pytest.mark.parametrize(("kind", "index", "way"), _todays_ways(), ids=str)
def test_rows_and_the_past_stay_as_they_are(make: Make, kind: str, index: str, way: tuple[int, ...]) -> None:
    table = new_table(make, way[0], kind, index)
    first_commits(table)
    every_action(table)
    known = {i.time: past(table, i.time) for i in timeline(table).commits}
    saved = "" if kind == "mor" else table.savepoints.create(timeline(table).commits[1].time).instant
    for number, (source, to) in enumerate(pairwise(way)):
        before, feed = content(table), changed(table)
        done = change(table, to)
        assert (done.plan.source, done.plan.target, version_of(table)) == (source, to, to)
        assert content(table) == before
        assert left(table) == []
        assert pending(table) == []
        assert NOTED_PROPERTY not in table.properties
        if (kind, to) == ("mor", 6):  # log files of the past mean something else there
            found = {time: _past_or_gone(table, time) for time in known}
            known = {time: rows for time, rows in found.items() if rows is not None and rows == known[time]}
            assert {time: rows for time, rows in found.items() if rows is not None} == known
            with suppress(InvalidOption):
                assert changed(table) == feed
        else:
            assert {time: past(table, time) for time in known} == known
            assert changed(table) == feed
        assert is_whole(table)
        # and life goes on
        again = rows((1, "c1", f"new {number}", 50 + number), (200 + number, "c2", "n", 5))
        written = table.upsert(again, options=OPTIONS).instant
        expected = {row[0]: row for row in before} | {row[0]: row for row in map(tuple, _values(again))}
        assert content(table) == sorted(expected.values())
        known[written] = content(table)
        assert is_whole(table)
    if saved:
        table.restore(saved, options=OPTIONS)
        assert content(table) == known[saved]
        assert is_whole(table)


def _past_or_gone(table: Table, instant: str) -> list[Row] | None:
    """Never other rows than there were."""
    try:
        return past(table, instant)
    except InvalidOption:
        return None


def _values(table: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize(("source", "to"), [(9, 8), (8, 9), (8, 6), (6, 9)])
def test_indexes_are_kept_rebuilt_or_dropped(make: Make, source: int, to: int) -> None:
    table = new_table(make, source, "cow", "record")
    first_commits(table)
    had = set(load_table_config(open_storage(table.uri)).metadata_partitions)
    done = change(table, to)
    config = load_table_config(open_storage(table.uri))
    assert set(config.metadata_partitions) == had - set(done.plan.dropped)
    expected = {"secondary_index_v", "column_stats", "partition_stats"} & had if (source, to) == (9, 8) else None
    if expected is not None:
        assert set(done.plan.rebuilt) == expected
    assert set(done.plan.dropped) == ({"secondary_index_v", "partition_stats"} & had if to == 6 else set())
    versions = {one.name: one.version for one in load_definitions(open_storage(table.uri), config).values()}
    assert all(
        versions.get(name) == (2 if to == 9 else 1)
        for name in done.plan.rebuilt
        if name in versions and name != "record_index"
    )
    assert located(table, 0, 1) == [row for row in content(table) if row[0] in (0, 1)]
    found = lakebed.open(table.uri).scan(where="v = 'b'").to_arrow()
    assert sorted(found["id"].to_pylist()) == [0, 2, 4, 6]
    assert bool(table.indexes.verify())


def test_indexes_that_an_older_version_cannot_have(make: Make) -> None:
    partitioned = make(index="simple")
    first_commits(partitioned)
    partitioned.indexes.create("record_index", partitioned=True)
    partitioned.indexes.create("upper_v", column="v", function="upper")
    done = partitioned.maintenance.downgrade(to=8)
    assert set(done.plan.dropped) == {"record_index", "expr_index_upper_v"}
    assert "dropped: record_index (one for each partition path is for version 9)" in str(done)
    assert set(partitioned.properties["hoodie.table.metadata.partitions"].split(",")) & set(done.plan.dropped) == set()
    assert bool(partitioned.indexes.verify())


def test_writes_that_need_an_index_of_version_9_prevent_the_downgrade(make: Make) -> None:
    table = make(index="record_level_index")
    first_commits(table)
    with refused(table.uri, UnsupportedFeature, "record index for each partition path", "adopt"):
        table.maintenance.downgrade(to=8)


@pytest.mark.parametrize("source", [9, 6])
def test_every_archived_instant_is_carried_over(make: Make, source: int) -> None:
    table = new_table(make, source, "cow", "simple")
    often = {
        "hoodie.keep.min.commits": 3,
        "hoodie.keep.max.commits": 4,
        "hoodie.clean.commits.retained": 1,
        "hoodie.archive.automatic": False,
        "hoodie.clean.automatic": False,
        "hoodie.metadata.compact.max.delta.commits": 2,
    }
    for n in range(16):
        table.upsert(rows((n % 5, f"c{n % 2}", f"v{n}", n)), options=often)
        if n in (5, 10):
            table.maintenance.clean(options={**often, "hoodie.clean.commits.retained": 3})
    table.maintenance.archive(options=often)
    before = _archived(table)
    assert len(before) > 11
    assert {action.value for _, action in before} == {"commit", "clean"}
    start = past(table, timeline(table).commits[0].time)
    for to in (6, 9) if source == 9 else (9, 6):
        change(table, to)
        assert _archived(table) == before
        assert past(table, timeline(table).commits[0].time) == start
    if source == 9:
        completed = [i.completion_time or "" for i in timeline(table).archived().instants]
        assert all(time < done for (time, _), done in zip(before, completed, strict=True))
        assert len({*completed}) == len(completed)
    for n in range(4):  # archival goes on behind what was carried over
        table.upsert(rows((n % 5, f"c{n % 2}", f"w{n}", 100 + n)), options=often)
    table.maintenance.clean(options={**often, "hoodie.clean.commits.retained": 3})
    table.maintenance.archive(options=often)
    after = _archived(table)
    assert before.items() < after.items()


def _archived(table: Table) -> dict[tuple[str, Action], tuple[Any, ...]]:
    """What the archive tells of each instant."""
    found = timeline(table).archived()
    return {(i.time, i.action): _archived_facts(found, i) for i in found.instants if i.is_completed}


def _archived_facts(archive: Any, instant: Instant) -> tuple[Any, ...]:
    if completes_as(instant.action) not in (Action.COMMIT, Action.DELTACOMMIT, Action.REPLACECOMMIT):
        plan = archive.plan(instant.time)
        return (plan.get("policy"), str(plan.get("filePathsToBeDeletedPerPartition")))
    meta = archive.commit_metadata(instant.time)
    return meta.operation, meta.stats, dict(meta.extra), meta.replaced


def test_a_dry_run_says_all_and_writes_nothing(make: Make) -> None:
    table = new_table(make, 9, "mor", "bucket")
    first_commits(table)
    before = files(table.uri)
    planned = table.maintenance.downgrade(to=6, dry_run=True)
    assert files(table.uri) == before
    assert not planned.done
    assert planned.plan.slices == log_files(table) == 1
    text = str(planned)
    for words in (
        "table version 9 -> 6",
        "compaction of 1 file slice",
        "the past cannot be read",
        "2 instants and 0 archived",
        "hoodie.table.version: 6",
        "hoodie.record.merge.mode: (removed)",
        "(nothing was done)",
    ):
        assert words in text
    done = table.maintenance.downgrade(to=6)
    assert done.plan.target == 6
    assert {k: v for k, v in planned.plan.properties.items() if v is not None}.items() <= table.properties.items()
    assert json.loads(json.dumps(done.to_dict()))["to"] == 6


def test_an_upgrade_stops_at_the_requested_version(make: Make) -> None:
    table = new_table(make, 8)
    first_commits(table)
    with refused(table.uri, InvalidOption, "no table version 7"):
        table.maintenance.upgrade(to=7)
    with refused(table.uri, InvalidOption, "version 6 is before that", "t.maintenance.downgrade(to=6)"):
        table.maintenance.upgrade(to=6)
    with refused(table.uri, InvalidOption, "version 9 is after that", "t.maintenance.upgrade(to=9)"):
        table.maintenance.downgrade(to=9)
    table.upsert(rows((1, "c1", "stays", 9)))
    assert version_of(table) == 8
    assert str(table.maintenance.upgrade(to=8)) == "the table has version 8"
    assert table.maintenance.upgrade().plan.target == 9


def test_a_change_that_was_cut_off_is_completed_by_the_same_call(make: Make) -> None:
    table = new_table(make, 9, "cow", "simple")
    first_commits(table)
    storage = open_storage(table.uri)
    old = {path: data for path, data in files(table.uri).items() if path.startswith(".hoodie/timeline/")}
    before = content(table)
    table.maintenance.downgrade(to=6)
    for path, data in old.items():  # as if it had died behind the properties
        storage.write(path, data)
    assert content(table) == before
    done = table.maintenance.downgrade(to=6)
    assert "files of the old timeline removed" in str(done)
    assert not [info.path for info in storage.list(".hoodie/timeline")]
    # and what an attempt before the properties left is none of the next timeline
    storage.write(".hoodie/timeline/20200101000000000_20200101000000001.commit", b"")
    table.maintenance.upgrade(to=9)
    assert content(table) == before
    assert [i.time for i in timeline(table).instants if i.time < "2021"] == []


def test_writers_that_opened_the_table_before_do_not_write_the_old_way(make: Make) -> None:
    table = new_table(make, 8, "cow", "simple")
    first_commits(table)
    early = context_of(table, **OPTIONS)
    other = lakebed.open(table.uri)
    table.maintenance.downgrade(to=6)
    before = content(table)
    with pytest.raises(CommitConflict, match="was of version 8 when this began, and is of version 6 now") as raised:
        upsert(early, rows((1, "c1", "lost", 99)))
    assert raised.value.retryable
    assert content(table) == before
    assert left(table) == []
    other.upsert(rows((1, "c1", "found", 99)))
    assert (1, "c1", "found", 99) in content(table)
    assert [i.file_name for i in timeline(table).instants if parse_instant_file(i.file_name, 6) is None] == []


def test_nothing_happens_while_another_process_writes(make: Make) -> None:
    table = new_table(make, 9, "cow", "simple")
    first_commits(table)
    storage = open_storage(table.uri)
    instant = "20990101000000000"
    with Heartbeat(storage, instant, "another"):
        TimelineWriter(storage, load_table_config(storage)).request(Action.COMMIT, instant)
        with pytest.raises(CommitConflict, match="commit 20990101000000000 is pending") as raised:
            table.maintenance.downgrade(to=8)
        assert raised.value.retryable
    assert version_of(table) == 9


def test_plans_that_wait_are_settled_first(make: Make) -> None:
    table = new_table(make, 9, "mor", "bucket")
    first_commits(table)
    table.maintenance.compact(plan_only=True, options=OPTIONS)
    table.upsert(rows((1, "c1", "behind the plan", 9)), options=OPTIONS)
    table.upsert(rows((3, "c1", "and more", 9)), options=OPTIONS)
    table.maintenance.compact(
        logs=True, plan_only=True, options={**OPTIONS, "hoodie.log.compaction.blocks.threshold": 1}
    )
    table.maintenance.clean(plan_only=True, options={**OPTIONS, "hoodie.clean.commits.retained": 1})
    waiting = {i.action for i in pending(table)}
    assert Action.COMPACTION in waiting
    before = content(table)
    table.maintenance.downgrade(to=8, options=OPTIONS)
    assert (content(table), pending(table), log_files(table)) == (before, [], 0)


def test_a_pending_clustering_has_to_be_settled_first(make: Make) -> None:
    table = new_table(make, 9, "cow", "simple")
    for n in range(3):
        table.bulk_insert(rows((10 * n, "c1", "v", 1), (10 * n + 1, "c2", "v", 1)), options=OPTIONS)
    table.maintenance.cluster(plan_only=True, options=OPTIONS)
    with refused(table.uri, CommitConflict, "clustering", "t.maintenance.cluster()"):
        table.maintenance.downgrade(to=6)
    before = content(table)
    table.maintenance.cluster(options=OPTIONS)
    table.maintenance.downgrade(to=6)
    assert content(table) == before


def test_savepoints_with_log_files_stay_in_their_version(make: Make) -> None:
    table = new_table(make, 9, "mor", "bucket")
    first_commits(table)
    saved = table.savepoints.create()
    with refused(table.uri, InvalidOption, saved.instant, "t.savepoints.delete"):
        table.maintenance.downgrade(to=6)
    before = content(table)
    table.maintenance.downgrade(to=8)
    table.maintenance.upgrade(to=9)
    table.upsert(rows((1, "c1", "later", 9)), options=OPTIONS)
    table.restore(saved)
    assert content(table) == before


@pytest.mark.parametrize("compacted", [False, True])
def test_a_savepoint_whose_file_slices_got_log_files_later_is_named_before_anything_is_done(
    make: Make, compacted: bool
) -> None:
    table = new_table(make, 9, "mor", "bucket")
    first_commits(table)
    table.maintenance.compact()
    saved = table.savepoints.create()
    table.upsert(rows((1, "c1", "later", 9)), options=OPTIONS)
    if compacted:
        table.maintenance.compact()
    before, last = content(table), table.timeline.last
    with refused(table.uri, InvalidOption, saved.instant, "t.savepoints.delete"):
        table.maintenance.downgrade(to=6)
    assert (content(table), table.timeline.last) == (before, last)
    table.savepoints.delete(saved.instant)
    table.maintenance.downgrade(to=6)
    assert content(table) == before
    assert table.indexes.verify().ok


@pytest.mark.rest
def test_a_log_of_changes_of_a_merge_on_read_table_does_not_stand_against_it(make: Make) -> None:
    table = new_table(make, 9, "mor", "simple", properties={"hoodie.table.cdc.enabled": True})
    first_commits(table)
    table.delete([0, 1], options=OPTIONS)
    table.upsert(rows(*[(n, "c0", "new", 9) for n in range(2, 12)]), options=OPTIONS)
    before = content(table)
    for to in (6, 8, 9):
        change(table, to)
        assert content(table) == before
        table.upsert(rows((2, "c0", f"new {to}", 10 + to)), options=OPTIONS)
        before = sorted([*(row for row in before if row[0] != 2), (2, "c0", f"new {to}", 10 + to)])
        assert content(table) == before


def test_a_log_of_changes_goes_on(make: Make) -> None:
    table = new_table(make, 9, "cow", "simple", properties={"hoodie.table.cdc.enabled": True})
    first_commits(table)
    before = sorted(map(str, table.cdc(LONG_AGO).to_arrow().to_pylist()))
    for to in (6, 8, 9):
        change(table, to)
        assert sorted(map(str, table.cdc(LONG_AGO).to_arrow().to_pylist())) == before
    table.upsert(rows((1, "c1", "new", 9)), options=OPTIONS)
    assert len(table.cdc(LONG_AGO).to_arrow()) == len(before) + 1


def test_a_table_without_rows_and_one_without_a_metadata_table(make: Make) -> None:
    table = make(index="simple", table_version=6)
    assert table.maintenance.upgrade(to=9).plan.instants == 0
    table.upsert(rows((1, "c1", "a", 1)), options={"hoodie.metadata.enable": False})
    assert "hoodie.table.metadata.partitions" not in table.properties
    table.maintenance.downgrade(to=6)
    assert content(table) == [(1, "c1", "a", 1)]
    assert not table.properties.get("hoodie.table.metadata.partitions")
    assert [path for path in files(table.uri) if path.startswith(".hoodie/metadata/")] == []


@pytest.mark.parametrize(("source", "to"), [(9, 8), (8, 9)])
def test_statistics_of_columns_that_came_later_are_carried_over(make: Make, source: int, to: int) -> None:
    """Real Hudi takes a file without a range for one of nulls where another file of the table has a range."""
    table = new_table(make, source, index="simple", indexes=["column_stats"])
    table.upsert(rows((1, "c0", "a", 1), (2, "c1", "b", 1)))
    with_tip = rows((3, "c0", "c", 1)).append_column("tip", pa.array([5], pa.int32()))
    table.upsert(with_tip, options={"hoodie.parquet.small.file.limit": 0})
    change(table, to)
    assert bool(lakebed.open(table.uri).indexes.verify())
    changed = lakebed.open(table.uri)
    changed.upsert(rows((4, "c0", "d", 1)).append_column("tip", pa.array([9], pa.int32())))
    assert bool(changed.indexes.verify())
    assert changed.scan(["id"], "tip < 6").to_arrow().to_pylist() == [{"id": 3}]


@pytest.mark.rest
def test_the_command_line_upgrades(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, rows().schema, key="id", partition_by="city", ordering="ts", table_version=6)
    first_commits(table)
    assert invoke(["maintenance", "upgrade", uri, "--dry-run", "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["from"], told["to"], told["done"]) == (6, 9, False)
    assert invoke(["maintenance", "upgrade", uri, "--to", "8"]) == 0
    assert "table version 6 -> 8" in capsys.readouterr().out
    assert invoke(["maintenance", "downgrade", uri, "--to", "9"]) == InvalidOption.exit_code
    capsys.readouterr()
    assert invoke(["maintenance", "downgrade", uri, "--to", "6", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] is True
    assert version_of(table) == 6


# What may stand on a timeline, in a metadata table or in log files; how keys and rows look is nothing to it.
_TOLD = (
    *("archival", "clustering_inline", "compaction", "delete_", "failed_left", "insert_overwrite", "log_compaction"),
    *(
        "mdt_",
        "nbcc",
        "rollback",
        "event_time",
        "partial_update",
        "debezium",
        "aws_dms",
        "savepoint_restore",
        "cdc_data",
    ),
)


def _changing(table: GoldenTable) -> bool:
    return table.name.startswith(("up_", "down_")) or any(part in table.name for part in _TOLD)


@pytest.mark.parametrize("table", todays(golden_tables(_changing), 8, HISTORIES), ids=str)
def test_tables_of_real_hudi_keep_their_rows(table: GoldenTable, tmp_path: Path) -> None:
    for to in {6, 8, 9} - {table.version}:
        t = lakebed.open(str(table.unpack(tmp_path / str(to))))
        before = t.scan(meta=True).to_arrow()
        if table.name == "v9_mor_savepoint_restore" and to == 6:
            with pytest.raises(InvalidOption, match="keeps log files"):
                change(t, to)
            continue
        change(t, to)
        t = lakebed.open(t.uri)
        assert_same_rows(t.scan(meta=True).to_arrow(), before, without=("_hoodie_file_name",))
        assert version_of(t) == to
        assert bool(t.indexes.verify())
