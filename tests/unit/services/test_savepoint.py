"""Savepoints: which files they name, in real Hudi's bytes, and where there can be none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.concurrency.heartbeat import HEARTBEAT_FOLDER, Heartbeat
from lakebed.errors import InvalidOption
from lakebed.format.avro.encoder import read_avro_file
from lakebed.model import Action
from lakebed.operations.placement import AssignedRows
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, crash_at
from lakebed.timeline.bodies.rollback import encode_savepoint, savepointed_names
from lakebed.timeline.transitions import TimelineWriter
from lakebed.write_status import WriteStatus
from support.golden_tables import golden
from support.restored_tables import KINDS, OPTIONS, actions, cleaned, files_of, first_commits, refused, timeline
from support.write_tables import content, rows

Make = Callable[..., Table]


def new_table(make: Make, version: int = 9, kind: str = "cow", index: str = "simple", **given: Any) -> Table:
    return make(type=kind, index=index, table_version=version, **({"buckets": 2} if index == "bucket" else {}), **given)


@pytest.mark.parametrize(("version", "kind", "index"), KINDS)
def test_the_last_commit_and_its_files(make: Make, version: int, kind: str, index: str) -> None:
    table = new_table(make, version, kind, index)
    to = first_commits(table)
    start = datetime.now(UTC)
    made_one = table.savepoints.create(name="why", user="ann")
    assert (made_one.instant, made_one.user, made_one.name) == (to, "ann", "why")
    assert abs((made_one.created - start).total_seconds()) < 60
    assert {f"{p}/{name}" for p, names in made_one.files.items() for name in names} == files_of(table)
    found = lakebed.open(table.uri).savepoints.list()
    assert [one.to_dict() for one in found] == [made_one.to_dict()]
    assert {p: list(names) for p, names in found[0].files.items()} == made_one.files
    names = [name for name in open_storage(table.uri).list_names(timeline(table).config.timeline_path) if to in name]
    completed = f"{to}_{timeline(table).find(to, Action.SAVEPOINT).completion_time}"  # pyright: ignore
    assert f"{to}.savepoint.inflight" in names
    assert (f"{completed}.savepoint" if version >= 8 else f"{to}.savepoint") in names
    # base files come before their log files
    for group in made_one.files.values():
        seen: set[str] = set()
        for name in group:
            file_id = name.lstrip(".").partition("_")[0]
            assert not (name.endswith(".parquet") and file_id in seen)
            seen.add(file_id)
    table.upsert(rows((1, "c1", "z", 3)), options=OPTIONS)
    deleted = table.savepoints.delete(to)
    assert deleted is not None
    assert deleted.files == found[0].files
    assert table.savepoints.list() == []
    assert "savepoint" not in str(actions(table))


def test_an_older_commit_has_the_slice_of_then_and_all_its_logs(make: Make) -> None:
    table = new_table(make, 9, "mor", "bucket")
    to = first_commits(table)
    then = files_of(table)
    table.upsert(rows((0, "c0", "later", 3)), options=OPTIONS)
    whole = files_of(table)
    table.maintenance.compact(options=OPTIONS)
    table.upsert(rows((0, "c0", "last", 4)), options=OPTIONS)
    found = table.savepoints.create(to)
    names = {f"{p}/{name}" for p, group in found.files.items() for name in group}
    assert names == whole > then


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_cleaning_keeps_what_a_write_from_before_it_completed_after_it(
    make: Make, monkeypatch: pytest.MonkeyPatch, version: int, kind: str
) -> None:
    """The savepoint was made before that write completed, so it does not name its files."""
    table = new_table(make, version, kind, properties={"hoodie.compact.inline": False})
    table.upsert(rows((1, "c1", "a", 1), (2, "c2", "a", 1)))
    run = AssignedRows.run

    def with_savepoint(layout: AssignedRows) -> list[WriteStatus]:
        monkeypatch.setattr(AssignedRows, "run", run)
        written = run(layout)
        other = lakebed.open(table.uri)
        other.upsert(rows((2, "c2", "b", 2)))
        other.savepoints.create()
        return written

    monkeypatch.setattr(AssignedRows, "run", with_savepoint)
    table.upsert(rows((1, "c1", "b", 2), (3, "c3", "b", 2)))
    (saved,) = table.savepoints.list()
    expected = [(1, "c1", "b", 2), (2, "c2", "b", 2), (3, "c3", "b", 2)]
    for turn in range(3, 7):
        table.upsert(rows(*((n, f"c{n}", "later", turn) for n in (1, 2, 3))))
        if kind == "mor":
            table.maintenance.compact()
    cleaned_up = table.maintenance.clean(options={"hoodie.clean.commits.retained": 1})
    assert cleaned_up.files
    past = lakebed.open(table.uri).scan(as_of=saved.instant).to_arrow().to_pylist()
    assert sorted(tuple(row.values()) for row in past) == expected
    table.restore(saved.instant)
    # from version 8 on a restore takes back what completed later, before what was requested later
    assert content(table) == (expected if version == 6 else [(1, "c1", "a", 1), (2, "c2", "b", 2)])
    assert lakebed.open(table.uri).indexes.verify().ok


def test_newest_log_files_come_first(make: Make) -> None:
    table = new_table(make, 9, "mor", "bucket", partition_by=None)
    for n in range(3):
        table.upsert(rows((0, "c0", "x", n), (1, "c0", "x", n)), options=OPTIONS)
    (names,) = table.savepoints.create().files.values()
    by_group: dict[str, list[str]] = {}
    for name in names:
        if ".log." in name:
            by_group.setdefault(name.partition("_")[0], []).append(name.split("_")[1])
    assert by_group
    assert all(times == sorted(times, reverse=True) for times in by_group.values())


def test_instants_that_cannot_be_saved_are_refused(make: Make) -> None:
    table = new_table(make)
    with refused(table.uri, InvalidOption, "no commit yet"):
        table.savepoints.create()
    first = table.upsert(rows((0, "c0", "a", 1))).instant
    second = table.upsert(rows((0, "c0", "b", 2))).instant
    with refused(table.uri, InvalidOption, "older than the active timeline"):
        table.savepoints.create("20200101000000000")
    with refused(table.uri, InvalidOption, "is no instant", "t.savepoints.create(name='before-import')"):
        table.savepoints.create("before-import")
    with refused(table.uri, InvalidOption, "has no savepoint"):
        table.savepoints.delete(first)
    table.savepoints.create(second)
    with refused(table.uri, InvalidOption, "has a savepoint already"):
        table.savepoints.create(second)
    old = {info.path for info in open_storage(table.uri).list() if info.path.endswith(f"{first}.parquet")}
    assert cleaned(table, lambda path: path in old, earliest=second)
    with refused(table.uri, InvalidOption, "cannot have a savepoint", "1 file", second):
        table.savepoints.create(first)


def test_a_commit_before_the_first_that_cleaning_retained(make: Make) -> None:
    table = new_table(make)
    first = table.upsert(rows((0, "c0", "a", 1))).instant
    second = table.upsert(rows((1, "c1", "b", 2))).instant
    cleaned(table, lambda path: False, earliest=second)
    with refused(table.uri, InvalidOption, "cannot have a savepoint", f"from {second} on"):
        table.savepoints.create(first)
    assert table.savepoints.create(second).instant == second


def test_an_interrupted_savepoint_is_completed_or_deleted(make: Make) -> None:
    table = new_table(make)
    to = first_commits(table)
    storage = open_storage(table.uri)
    TimelineWriter(storage, load_table_config(storage)).inflight(Action.SAVEPOINT, to)
    assert table.savepoints.list() == []
    table.upsert(rows((1, "c1", "z", 3)))
    assert table.indexes.repair().ok
    assert table.savepoints.delete(to) is None
    TimelineWriter(storage, load_table_config(storage)).inflight(Action.SAVEPOINT, to)
    table.savepoints.create(to)
    assert [one.instant for one in table.savepoints.list()] == [to]
    assert len(content(table)) == 8


@pytest.mark.parametrize("version", [9, 8, 6])
def test_the_next_write_takes_off_a_savepoint_whose_process_died_so_that_cleaning_goes_on(
    make: Make, version: int
) -> None:
    table = new_table(make, version)
    to = first_commits(table)
    begun = f"{to}.savepoint.inflight"
    with crash_at(lambda mutation: mutation.path.endswith(begun), "unacknowledged"), pytest.raises(Killed):
        lakebed.open(table.uri).savepoints.create(to)
    assert [(i.time, i.action) for i in timeline(table).pending] == [(to, Action.SAVEPOINT)]
    before = files_of(table)
    for n in range(3):
        table.upsert(rows((0, "c0", "later", 3 + n)), options=OPTIONS)
    assert timeline(table).pending == ()
    assert not open_storage(table.uri).list_names(HEARTBEAT_FOLDER)
    table.maintenance.clean(options=OPTIONS | {"hoodie.clean.commits.retained": 1})
    assert before - {info.path for info in open_storage(table.uri).list()}, "nothing was cleaned"
    assert table.savepoints.list() == []


def test_a_pending_savepoint_of_a_living_process_stays(make: Make) -> None:
    table = new_table(make)
    to = first_commits(table)
    storage = open_storage(table.uri)
    with Heartbeat(storage, to, "another"):
        TimelineWriter(storage, load_table_config(storage)).inflight(Action.SAVEPOINT, to)
        table.upsert(rows((1, "c1", "z", 3)), options=OPTIONS)
        assert [(i.time, i.action) for i in timeline(table).pending] == [(to, Action.SAVEPOINT)]
    table.upsert(rows((1, "c1", "z", 4)), options=OPTIONS)
    assert timeline(table).pending == ()


@pytest.mark.parametrize("name", ["v9_cow_savepoint_restore", "v9_mor_savepoint_restore", "v6_mor_savepoint_restore"])
def test_the_body_is_that_of_real_hudi(name: str, tmp_path: Path) -> None:
    try:
        table = lakebed.open(str(golden(name).unpack(tmp_path)))
    except (KeyError, FileNotFoundError, StopIteration):
        pytest.skip("the subset of golden tables does not have it")
    now = timeline(table)
    instant = next(i for i in now.completed if i.action is Action.SAVEPOINT)
    body = now.metadata(instant)
    stored = open_storage(table.uri).read(f"{now.config.timeline_path}/{instant.file_name}")
    ours = encode_savepoint(
        savepointed_names(body),
        user=body["savepointedBy"],
        comment=body["comments"],
        at_millis=body["savepointedAt"],
    )
    assert read_avro_file(ours, "") == body
    assert len(ours) == len(stored)
    # real Hudi's files of the same commit, made by us once more
    (old,) = table.savepoints.list()
    assert table.savepoints.delete(instant.time) is not None
    again = table.savepoints.create(instant.time)
    assert again.files.keys() == old.files.keys()
    for partition, names in again.files.items():
        # log files that came since are among ours
        assert set(names) >= set(old.files[partition])
        assert {n for n in names if ".log." not in n} == {n for n in old.files[partition] if ".log." not in n}


@pytest.mark.parametrize("version", [9, 6])
def test_a_process_that_dies_as_it_deletes_a_savepoint_leaves_it_or_deletes_it(make: Make, version: int) -> None:
    """It is complete until its last file is deleted: a pending one would hold back cleaning for as long as its
    process may be alive."""
    table = new_table(make, version)
    table.upsert(rows((0, "c0", "a", 1)), options=OPTIONS)
    is_there: list[bool] = []
    for at in range(1, 100):
        saved = next(iter(table.savepoints.list()), None) or table.savepoints.create()
        with crash_at(at) as crash:
            try:
                lakebed.open(table.uri).savepoints.delete(saved.instant)
            except Killed:
                assert crash.fired
        assert [i for i in timeline(table).pending if i.action is Action.SAVEPOINT] == []
        is_there.append(bool(table.savepoints.list()))
        if not crash.fired:
            break
    assert is_there[-1] is False
    assert True in is_there


def test_a_name_that_no_file_can_hold_is_refused(make: Make) -> None:
    table = new_table(make)
    table.upsert(rows((0, "c0", "a", 1)))
    with refused(table.uri, InvalidOption, "name of the savepoint", "no bytes in UTF-8"):
        table.savepoints.create(name="a\ud800")
