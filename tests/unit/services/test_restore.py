"""Restore: the rows, the indexes and the timeline of the commit that is gone back to, on every kind of table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.concurrency.heartbeat import Heartbeat
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.format.avro.encoder import read_avro_file
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.timeline.bodies.rollback import encode_restore_metadata, encode_restore_plan, planned_rollbacks
from lakebed.timeline.transitions import TimelineWriter
from property.crossing import Change, Model, Write, Writer, held_writers
from support.compaction_tables import bare
from support.crash_tables import leftovers
from support.golden_tables import golden
from support.restored_tables import (
    KINDS,
    OPTIONS,
    actions,
    cleaned,
    every_action,
    files_of,
    first_commits,
    is_whole,
    located,
    refused,
    timeline,
)
from support.tables import of_kind
from support.write_tables import content, rows

Make = Callable[..., Table]


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_a_restore_removes_every_later_commit(make: Make, version: int, kind: str, index: str) -> None:
    table = of_kind(make, version, kind, index)
    to = first_commits(table)
    before, files, instants = content(table), files_of(table), actions(table)
    saved = table.savepoints.create(name="before the change")
    every_action(table)
    later = [i for i in timeline(table).instants if i.time > to]
    assert content(table) != before
    planned = table.restore(saved, dry_run=True)
    assert planned.instant is None
    assert content(table) != before

    done = table.restore(saved)

    assert {i.time for i in done.rolled_back} == {i.time for i in later}
    assert [i.time for i in planned.rolled_back] == [i.time for i in done.rolled_back]
    assert content(table) == before
    if (version, kind) == (6, "mor"):  # log files stay there, with blocks behind them that hide theirs
        assert {f for f in files_of(table) if ".log." not in f} == {f for f in files if ".log." not in f}
    else:
        assert files_of(table) == files
    assert is_whole(table)
    assert actions(table) == [*instants, (to, "savepoint"), (done.instant, "restore")]
    # partitions of the metadata table may have been built anew
    assert [what for what in leftovers(table.uri) if "metadata file" not in what] == []
    assert located(table, 100, 101) == []
    # and life goes on
    checkpoint = done.instant
    table.upsert(rows((1, "c1", "again", 9), (100, "c4", "again", 9)), options=OPTIONS)
    after = {row[0]: row for row in before} | {1: (1, "c1", "again", 9), 100: (100, "c4", "again", 9)}
    assert content(table) == sorted(after.values())
    changed = table.changes(checkpoint).to_arrow().to_pylist()
    assert sorted(row["id"] for row in changed) == [1, 100]
    assert sorted(tuple(r.values()) for r in table.scan(as_of=to).to_arrow().to_pylist()) == before
    if kind == "mor":
        table.maintenance.compact(options=OPTIONS)
        assert content(table) == sorted(after.values())
    assert is_whole(table)


@pytest.mark.rest
@pytest.mark.parametrize(("version", "kind", "index"), [KINDS[0], KINDS[1], KINDS[5]])
def test_the_metadata_table_is_put_right_where_it_was_compacted_since(
    make: Make, version: int, kind: str, index: str
) -> None:
    table = of_kind(make, version, kind, index, indexes=["v"] if version > 6 else None)
    to = first_commits(table)
    before = content(table)
    for n in range(12):  # more than the metadata table takes without a compaction
        table.upsert(rows((n % 8, f"c{n % 2}", f"new {n}", 5 + n), (200 + n, f"c{n % 4}", "n", 5)), options=OPTIONS)
    table.delete([0, 1, 200], options=OPTIONS)
    done = table.restore(to)
    assert len(done.rolled_back) == 13
    assert content(table) == before
    assert is_whole(table)
    if version > 6:
        found = table.scan(where="v = 'b'").to_arrow()
        assert sorted(found["id"].to_pylist()) == [0, 2, 4, 6]
    table.upsert(rows((0, "c0", "again", 99), (201, "c1", "again", 9)), options=OPTIONS)
    assert is_whole(table)
    # partitions that were built anew have lost files that commits name; not those that came since
    assert leftovers(table.uri) == []
    if version > 6:
        storage = open_storage(table.uri)
        logs = [i.path for i in storage.list(".hoodie/metadata/partition_stats") if ".log.1_" in i.path]
        storage.delete(max(logs))
        assert leftovers(table.uri) == [f"missing metadata file {max(logs).removeprefix('.hoodie/metadata/')}"]


def test_an_index_that_was_built_since_is_put_right(make: Make) -> None:
    table = of_kind(make, index="global_simple")
    to = first_commits(table)
    before = content(table)
    table.upsert(rows((1, "c1", "z", 3), (100, "c3", "z", 3)))
    table.indexes.create("record_index")
    table.indexes.create("v")
    table.restore(to)
    assert content(table) == before
    assert is_whole(table)


def test_a_table_without_a_metadata_table(make: Make) -> None:
    table = of_kind(make, index="simple", properties={"hoodie.metadata.enable": False})
    to = first_commits(table)
    before = content(table)
    every_action(table)
    table.restore(to)
    assert content(table) == before


def test_a_restore_to_the_newest_commit_changes_nothing(make: Make) -> None:
    table = of_kind(make)
    to = first_commits(table)
    done = table.restore(to)
    assert (done.instant, done.rolled_back) == (None, ())
    assert "nothing to restore" in str(done)


# -- what is refused


def test_instants_that_cannot_be_restored_are_refused(make: Make) -> None:
    table = of_kind(make)
    to = first_commits(table)
    every_action(table)
    table.savepoints.create()
    later = timeline(table).commits[-1].time
    with refused(table.uri, InvalidOption, "no instant", "lakebed timeline show"):
        table.restore(to[:-1] + ("1" if to[-1] != "1" else "2"))
    with refused(table.uri, InvalidOption, "older than the active timeline"):
        table.restore("20200101000000000")
    with refused(table.uri, InvalidOption, "has a savepoint", "savepoints.delete"):
        table.restore(to)
    table.savepoints.delete(later)
    assert table.restore(to).rolled_back


@pytest.mark.parametrize(("kind", "index"), [("cow", "simple"), ("mor", "bucket")])
def test_a_restore_to_cleaned_files_is_refused(make: Make, kind: str, index: str) -> None:
    table = of_kind(make, 9, kind, index)
    to = first_commits(table)
    needed = files_of(table)
    table.upsert(rows((0, "c0", "z", 3)), options=OPTIONS)
    if kind == "mor":
        table.maintenance.compact(options=OPTIONS)
    gone = cleaned(table, lambda path: path in needed and path not in files_of(table))
    assert gone
    with refused(table.uri, InvalidOption, "cleaning has deleted", gone[0]):
        table.restore(to)
    with refused(table.uri, InvalidOption, "cannot have a savepoint"):
        table.savepoints.create(to)


def test_files_of_replaced_groups_that_were_cleaned(make: Make) -> None:
    table = of_kind(make, index="simple")
    to = first_commits(table)
    needed = files_of(table)
    last = table.insert_overwrite(rows((0, "c0", "z", 3)))
    cleaned(table, lambda path: path in needed and path not in files_of(table))
    with refused(table.uri, InvalidOption, "cleaning has deleted"):
        table.restore(to)
    with refused(table.uri, InvalidOption, "cleaning has deleted"):
        table.rollback(last.instant)


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_savepoint_is_restored_many_times_with_cleaning_between(make: Make, kind: str) -> None:
    table = of_kind(make, 9, kind)
    table.upsert(rows(*[(i, f"c{i % 2}", "a", 1) for i in range(8)]), options=OPTIONS)
    saved, before = table.savepoints.create(), content(table)
    for _ in range(2):
        instants: list[str] = []
        for n in range(4):
            done = table.upsert(rows(*[(i, f"c{i % 2}", f"n{n}", 2 + n) for i in range(8)]), options=OPTIONS)
            instants.append(done.instant)
            if kind == "mor":
                table.maintenance.compact(options=OPTIONS)
        assert table.maintenance.clean(options={"hoodie.clean.commits.retained": 1}).runs
        with refused(table.uri, InvalidOption, "cleaning has deleted"):
            table.restore(instants[1])
        table.restore(saved)
        assert content(table) == before
        assert is_whole(table)


ARCHIVING = {
    **OPTIONS,
    "hoodie.archive.automatic": False,
    "hoodie.metadata.compact.max.delta.commits": 2,
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
}


@pytest.mark.parametrize(("version", "index"), [(9, "record"), (6, "simple")])
def test_commits_that_are_archived_stay_where_all_that_is_left_has_a_savepoint(
    make: Make, version: int, index: str
) -> None:
    table = of_kind(make, version, index=index)
    first = table.upsert(rows((1, "c1", "only here", 1)), options=ARCHIVING)
    for n in range(5):
        table.upsert(rows((2, "c0", f"n{n}", n)), options=ARCHIVING)
    table.maintenance.clean(options=ARCHIVING)
    saved, before = table.savepoints.create(), content(table)
    table.upsert(rows((3, "c1", "late", 9)), options=ARCHIVING)
    assert first.instant in [one.time for one in table.maintenance.archive(options=ARCHIVING).instants]
    while timeline(table).commits[0].time < saved.instant:  # archival goes as far as the savepoint
        table.upsert(rows((3, "c1", "late", 9)), options=ARCHIVING)
        table.maintenance.archive(options=ARCHIVING)
    table.restore(saved)
    assert content(table) == before
    assert is_whole(table)
    table.savepoints.delete(saved.instant)
    assert content(table) == before
    assert is_whole(table)


@pytest.mark.rest
@pytest.mark.parametrize(("version", "kind"), [(9, "cow"), (8, "mor"), (6, "cow")])
def test_file_groups_replaced_by_an_archived_commit_do_not_block_a_restore(make: Make, version: int, kind: str) -> None:
    table = of_kind(make, version, kind, "simple")
    table.upsert(rows((1, "c0", "a", 1), (2, "c1", "a", 1)), options=ARCHIVING)
    over = table.insert_overwrite(rows((3, "c1", "b", 2)), options=ARCHIVING)
    for n in range(3, 7):
        table.upsert(rows((1, "c0", "c", n)), options=ARCHIVING)
        if kind == "mor":
            table.maintenance.compact(options=ARCHIVING)
    assert table.maintenance.clean(options=ARCHIVING).runs
    assert over.instant in [one.time for one in table.maintenance.archive(options=ARCHIVING).instants]
    assert any(i.action is Action.CLEAN for i in timeline(table).instants), "its clean stays"
    saved, before = table.savepoints.create(), content(table)
    last = table.upsert(rows((1, "c0", "late", 9)), options=ARCHIVING)
    table.rollback(last.instant)
    assert content(table) == before == [(1, "c0", "c", 6), (3, "c1", "b", 2)]
    table.upsert(rows((1, "c0", "late", 9)), options=ARCHIVING)
    table.upsert(rows((1, "c0", "later", 10)), options=ARCHIVING)
    table.restore(saved)
    assert content(table) == before
    assert is_whole(table)


# -- others beside it


def test_a_writer_in_flight_gets_a_conflict(make: Make) -> None:
    table = of_kind(make, index="simple")
    to = first_commits(table)
    before = content(table)
    table.upsert(rows((0, "c0", "z", 3)))
    with held_writers():
        write = Write("upsert", lambda t: t.upsert(rows((5, "c1", "late", 9))), lambda _: Change())
        writer = Writer(table.uri, write)
        writer.step(Model(False))
        writer.step(Model(False))  # it has begun and written, and stands before its commit
        done = lakebed.open(table.uri).restore(to)
        writer.step(Model(False))
    assert isinstance(writer.error, CommitConflict)
    assert len(done.rolled_back) == 2
    assert content(table) == before
    table.upsert(rows((1, "c1", "again", 9)))
    assert leftovers(table.uri) == []


def test_writers_wait_for_an_unfinished_restore_and_the_next_one_finishes_it(make: Make) -> None:
    table = of_kind(make, index="simple")
    to = first_commits(table)
    before = content(table)
    table.upsert(rows((0, "c0", "z", 3)))
    last = table.upsert(rows((1, "c1", "z", 3))).instant
    begun = _interrupted_restore(table, to)
    with refused(table.uri, UnsupportedFeature, "unfinished restore", "t.restore()"):
        table.upsert(rows((5, "c1", "late", 9)))
    with refused(table.uri, UnsupportedFeature, "unfinished restore", "t.restore()"):
        table.rollback(last)
    storage = open_storage(table.uri)
    with Heartbeat(storage, begun, "other"), pytest.raises(CommitConflict, match="by another process"):
        table.restore()
    assert next(i.time for i in table.restore(dry_run=True).rolled_back) == last
    done = table.restore()
    assert done.instant == begun
    assert content(table) == before
    assert is_whole(table)
    with refused(table.uri, InvalidOption, "no unfinished restore"):
        table.restore()


def _interrupted_restore(table: Table, to: str) -> str:
    """A restore whose process died as soon as its plan was there."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    now = timeline(table)
    later = [i for i in reversed(now.commits) if i.time > to]
    instant = str(int(now.greatest_time) + 1)
    with Heartbeat(storage, instant, "dead"):
        TimelineWriter(storage, config).request(Action.RESTORE, instant, encode_restore_plan(later, to))
    return instant


# -- real Hudi's bytes


@pytest.mark.parametrize("name", ["v9_cow_savepoint_restore", "v9_mor_savepoint_restore", "v6_mor_savepoint_restore"])
def test_plans_and_bodies_are_those_of_real_hudi(name: str, tmp_path: Path) -> None:
    try:
        table = lakebed.open(str(golden(name).unpack(tmp_path)))
    except (KeyError, FileNotFoundError, StopIteration):
        pytest.skip("the subset of golden tables does not have it")
    storage = open_storage(table.uri)
    now = timeline(table)
    found = next(i for i in now.completed if i.action is Action.RESTORE)
    plan, body = now.plan(found), now.metadata(found)
    undone = planned_rollbacks(plan)
    assert read_avro_file(encode_restore_plan(undone, plan["savepointToRestoreTimestamp"]), "") == plan
    bodies = {time: list(group) for time, group in body["hoodieRestoreMetadata"].items()}
    ours = encode_restore_metadata(found.time, undone, bodies, body["timeTakenInMillis"])
    assert read_avro_file(ours, "") == body
    folder = now.config.timeline_path
    for name in (f"{found.time}.restore.requested", found.file_name):
        stored = storage.read(f"{folder}/{name}")
        written = ours if name == found.file_name else encode_restore_plan(undone, plan["savepointToRestoreTimestamp"])
        assert len(written) == len(stored)
        assert written[: written.index(b"}]}") + 3] == stored[: stored.index(b"}]}") + 3]


@pytest.mark.parametrize("name", ["v9_cow_savepoint_restore", "v9_mor_savepoint_restore", "v6_mor_savepoint_restore"])
def test_tables_of_real_hudi_go_back_to_its_savepoint(name: str, tmp_path: Path) -> None:
    try:
        table = lakebed.open(str(golden(name).unpack(tmp_path)))
    except (KeyError, FileNotFoundError, StopIteration):
        pytest.skip("the subset of golden tables does not have it")
    (saved,) = table.savepoints.list()
    expected = bare(table.scan(as_of=saved.instant, meta=True).to_arrow())
    assert {f"{p}/{name}" for p, names in saved.files.items() for name in names} <= {
        info.path for info in open_storage(table.uri).list()
    }
    done = table.restore(saved)
    assert len(done.rolled_back) == 1
    assert bare(lakebed.open(table.uri).scan(meta=True).to_arrow()) == expected
    assert table.indexes.verify()


# -- the command line


def test_the_command_line_restores(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = str(tmp_path / "t")
    table = lakebed.create(uri, rows().schema, key="id", partition_by="city", ordering="ts", index="simple")
    to = first_commits(table)
    before = content(table)
    last = table.upsert(rows((0, "c0", "z", 3))).instant
    assert invoke(["savepoints", "create", uri, to, "--name", "keep", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "keep"
    assert invoke(["savepoints", "list", uri, "-o", "json"]) == 0
    assert [one["instant"] for one in json.loads(capsys.readouterr().out)] == [to]
    assert invoke(["rollback", uri, last, "--dry-run"]) == 0
    assert "nothing was done" in capsys.readouterr().out
    assert invoke(["restore", uri, to, "--dry-run", "-o", "json"]) == 0
    assert [one["instant"] for one in json.loads(capsys.readouterr().out)["rolled_back"]] == [last]
    assert content(table) != before
    assert invoke(["restore", uri, to]) == 0
    assert "1 instant rolled back" in capsys.readouterr().out
    assert content(table) == before
    last = table.upsert(rows((0, "c0", "z", 3))).instant
    assert invoke(["rollback", uri, last, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rolled_back"] == last
    assert content(table) == before
    assert invoke(["savepoints", "delete", uri, to]) == 0
    assert table.savepoints.list() == []
    assert invoke(["savepoints", "delete", uri]) == 2
    assert invoke(["restore", uri, "20200101000000000"]) != 0
