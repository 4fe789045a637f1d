"""Indexes that are built beside writers: planned on the timeline, built from the table as it was and from what writers
log meanwhile, and complete for readers when both are there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import lakebed
from lakebed.cli.main import invoke
from lakebed.errors import (
    CommitConflict,
    ErasureIncomplete,
    IndexInconsistent,
    InvalidOption,
    LakebedError,
    UnsupportedFeature,
)
from lakebed.format.avro.encoder import avro_header
from lakebed.metadata_records.layout import METADATA_FOLDER
from lakebed.metadata_upkeep.creation import PARTITIONS_INFLIGHT
from lakebed.model import Action, State
from lakebed.operations.write_transaction import WriteTransaction
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.services import build_index
from lakebed.services.create_index import pending_indexings
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed
from lakebed.timeline.bodies.plans import PlannedIndex, encode_index_metadata, encode_index_plan, planned_indexes
from lakebed.timeline.bodies.rollback import decode_action
from lakebed.timeline.timeline import Timeline, load_timeline
from lakebed.timeline.transitions import TimelineWriter
from support.golden_tables import golden
from support.locks import held
from support.write_tables import SCHEMA, content, files, rows

Make = Callable[..., Table]
NEW_FILES: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0, "lakebed.write.tasks": 1}
PLAIN: dict[str, Any] = {
    "hoodie.metadata.index.column.stats.enable": False,
    "hoodie.metadata.global.record.level.index.min.filegroup.count": 2,
}
Row = tuple[int, str, str, int]
OLD: list[Row] = [(n, f"c{n % 2}", f"v{n}", 1) for n in range(6)]
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "record": ("record_index", {}),
    "partitioned": ("record_index", {"partitioned": True}),
    "secondary": ("v", {}),
    "blooms": ("bloom_filters", {}),
    "stats": ("column_stats", {}),
    "partition_stats": ("partition_stats", {}),
    "expression": ("by_upper", {"column": "v", "function": "upper"}),
}


def timeline_of(table: Table) -> Timeline:
    storage = open_storage(table.uri)
    return load_timeline(storage, load_table_config(storage))


def created(make: Make, kind: str = "record", type: str = "cow", **more: Any) -> Table:
    """Two partition paths with a file or two each, and all that the index needs."""
    index = "simple" if kind == "partitioned" else "global_simple"
    table = make(**{"partition_by": "city", "index": index, "type": type, "ordering": "ts"} | more)
    for some in (OLD[:4], OLD[4:]):
        table.upsert(rows(*some), options=NEW_FILES | PLAIN)
    if kind == "secondary":
        table.indexes.create("record_index", groups=2)
    if kind == "partition_stats":
        table.indexes.create("column_stats")
    return table


def planned(table: Table, kind: str = "record") -> str:
    name, how = KINDS[kind]
    plan = table.indexes.create(name, wait=False, **how)
    assert plan is not None
    return plan.instant


def partition_of(kind: str) -> str:
    """The partition of the metadata table that an index of this kind is."""
    return {"secondary": "secondary_index_v", "expression": "expr_index_by_upper"}.get(kind, KINDS[kind][0])


@contextmanager
def refused(uri: str, error: type[LakebedError], *words: str) -> Iterator[None]:
    """The block raises `error` with the words, and changes nothing but the lock that it took."""

    def unlocked() -> dict[str, bytes]:
        return {path: body for path, body in files(uri).items() if not path.startswith(".hoodie/.locks/")}

    before = unlocked()
    with pytest.raises(error) as raised:
        yield
    assert all(word in str(raised.value) for word in words), raised.value
    assert unlocked() == before


@contextmanager
def while_it_is_built(before: Callable[[], object], after: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Have this happen when the file groups are there, before the base files are written and after."""
    write = build_index._Build.write  # pyright: ignore[reportPrivateUsage]
    done: list[bool] = []

    def held(self: Any, part: Any) -> Any:
        if not done:
            before()
        first, done[:] = not done, [True]
        written = write(self, part)
        if first:
            after()
        return written

    with pytest.MonkeyPatch.context() as patch:
        # between the file groups and the base files of a build is no request of the caller's thread alone
        patch.setattr(build_index._Build, "write", held)  # pyright: ignore[reportPrivateUsage]
        yield
    assert done


def upsert(uri: str, *given: Row) -> Callable[[], object]:
    return lambda: lakebed.open(uri).upsert(rows(*given), options=NEW_FILES | PLAIN)


def is_right(table: Table, kind: str) -> None:
    """The index is there, says what the table says, and goes on being kept."""
    before = content(table)
    assert table.indexes.waiting == []
    assert timeline_of(table).pending == ()
    table.upsert(rows((50, "c0", "later", 9), (0, "c0", "later", 9)), options=PLAIN)
    found = table.indexes.verify()
    assert found.ok, found
    names = [fact.name for fact in table.indexes.list()]
    assert len([n for n in names if n.startswith(("record", "secondary", "bloom", "column", "partition", "expr"))]) >= 1
    assert content(table) == sorted(
        [*(row for row in before if row[0] not in (0, 50)), (50, "c0", "later", 9), (0, "c0", "later", 9)]
    )
    for key, city, *rest in content(table):
        assert [*table.get([key]).select(["city", "v", "ts"]).to_pylist()[0].values()] == [city, *rest]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type", ["cow", "mor"])
def test_writes_during_a_build_are_in_the_index(make: Make, kind: str, type: str) -> None:
    table = created(make, kind, type)
    before = content(table)
    instant = planned(table, kind)
    assert [(p.instant, p.is_running) for p in table.indexes.waiting] == [(instant, False)]
    seen: list[bool] = []

    def change() -> None:
        seen.extend(plan.is_running for plan in lakebed.open(table.uri).indexes.waiting)
        upsert(table.uri, (1, "c1", "changed", 2), (20, "c0", "new", 2), (21, "new path", "new", 2))()
        lakebed.open(table.uri).delete([2], options=PLAIN)

    def once_more() -> None:
        upsert(table.uri, (1, "c1", "again", 3), (2, "c0", "back", 3), (22, "c1", "new", 3))()
        lakebed.open(table.uri).delete([20, 3], options=PLAIN)

    with while_it_is_built(change, once_more):
        done = table.indexes.build()
    assert seen == [True]
    assert [run.instant for run in done.runs] == [instant], done
    kept = {row[0]: row for row in before if row[0] != 3}
    new: list[Row] = [(1, "c1", "again", 3), (2, "c0", "back", 3), (21, "new path", "new", 2), (22, "c1", "new", 3)]
    assert content(table) == sorted((kept | {row[0]: row for row in new}).values())
    is_right(table, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_began_before_the_plan_and_commits_while_it_is_run(make: Make, kind: str) -> None:
    table = created(make, kind)
    commit, plans = WriteTransaction.commit, list[str]()

    def late(self: WriteTransaction, *given: Any, **more: Any) -> Any:
        if plans:
            return commit(self, *given, **more)
        plans.append(planned(lakebed.open(table.uri), kind))
        committed: list[Any] = []
        with while_it_is_built(lambda: committed.append(commit(self, *given, **more))):
            lakebed.open(table.uri).indexes.build()
        return committed[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WriteTransaction, "commit", late)
        upsert(table.uri, (1, "c1", "late", 2), (30, "c0", "late", 2))()
    assert (30, "c0", "late", 2) in content(table)
    is_right(table, kind)


SERVICES: dict[str, Callable[[Table], object]] = {
    "cluster": lambda t: t.maintenance.cluster(),
    "clean": lambda t: t.maintenance.clean(options={"hoodie.clean.commits.retained": 1}),
    "overwrite": lambda t: t.insert_overwrite(rows((1, "c1", "over", 5), (3, "c1", "over", 5)), options=PLAIN),
    "delete_partitions": lambda t: t.delete_partitions("c1", options=PLAIN),
}


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_services_and_overwrites_meanwhile(make: Make, kind: str, service: str) -> None:
    table = created(make, kind)
    upsert(table.uri, (0, "c0", "second version", 2))()
    planned(table, kind)
    with while_it_is_built(lambda: SERVICES[service](lakebed.open(table.uri))):
        assert table.indexes.build().runs
    is_right(table, kind)


def test_compactions_of_both_tables_meanwhile(make: Make) -> None:
    table = created(make, type="mor")
    planned(table)
    often = PLAIN | {"hoodie.metadata.compact.max.delta.commits": 1}

    def change() -> None:
        other = lakebed.open(table.uri)
        for n in range(3):
            other.upsert(rows((n, f"c{n % 2}", f"w{n}", 2 + n), (60 + n, "c0", "new", 1)), options=often)
        other.maintenance.compact(options=often)

    with while_it_is_built(change):
        assert table.indexes.build().runs
    is_right(table, "record")


def test_a_commit_that_is_taken_back_before_its_files_are_listed(make: Make) -> None:
    """The table is looked at again."""
    table = created(make)
    last = [i.time for i in timeline_of(table).commits][-1]
    planned(table)
    with while_it_is_built(lambda: lakebed.open(table.uri).rollback(last)):
        assert table.indexes.build().built == ("record_index",)
    assert content(table) == sorted(OLD[:4])
    is_right(table, "record")


def test_a_commit_that_is_taken_back_meanwhile(make: Make) -> None:
    table = created(make)
    last = [i.time for i in timeline_of(table).commits][-1]
    planned(table)
    with while_it_is_built(lambda: None, lambda: lakebed.open(table.uri).rollback(last)):
        done = table.indexes.build()
    assert not done.runs
    assert "was taken back" in done.notes[0]
    assert [plan.is_running for plan in table.indexes.waiting] == [False]
    assert table.indexes.build().built == ("record_index",)
    assert content(table) == sorted(OLD[:4])
    is_right(table, "record")


@pytest.mark.parametrize("early", [True, False])
def test_an_index_that_is_dropped_meanwhile(make: Make, early: bool) -> None:
    table = created(make)
    planned(table)

    def drop() -> None:
        lakebed.open(table.uri).indexes.drop("record_index")

    with while_it_is_built(*((drop,) if early else (lambda: None, drop))):
        done = table.indexes.build()
    assert not done.runs
    assert ("was dropped" if early else "not on the timeline any more") in done.notes[0]
    config = load_table_config(open_storage(table.uri))
    assert config.metadata_partitions == ("files",)
    assert config.metadata_partitions_inflight == ()
    assert not list(open_storage(table.uri).list(f"{METADATA_FOLDER}/record_index"))
    planned(table)
    assert table.indexes.build().runs
    is_right(table, "record")


def test_a_plan_is_taken_off_with_its_index(make: Make) -> None:
    table = created(make)
    planned(table)
    table.indexes.drop("record_index")
    assert table.indexes.waiting == []
    assert str(table.indexes.build()) == "no index waits to be built"
    with pytest.raises(InvalidOption):
        table.indexes.drop("record_index")


def test_a_plan_is_taken_off_with_the_index_that_it_needs(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    table = created(make, "partition_stats")
    planned(table, "partition_stats")
    table.indexes.drop("column_stats")
    assert table.indexes.waiting == []
    assert str(table.indexes.build()) == "no index waits to be built"
    upsert(table.uri, (1, "c1", "changed", 2))()
    assert caplog.messages == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_of_a_dead_process_is_run_by_the_next(make: Make, kind: str) -> None:
    """Files that were written since the first process began are in the index once."""
    table = created(make, kind)
    instant = planned(table, kind)

    def dies() -> None:
        upsert(table.uri, (1, "c1", "changed", 2))()
        raise Killed("here")

    with pytest.raises(Killed), while_it_is_built(lambda: None, dies):
        table.indexes.build()
    upsert(table.uri, (2, "c0", "changed", 2), (31, "c1", "new", 2))()
    (plan,) = pending_indexings(timeline_of(table))
    assert (plan.time, plan.state) == (instant, State.INFLIGHT)
    assert table.indexes.build().built == (partition_of(kind),)
    assert table.indexes.verify().ok
    is_right(table, kind)


@pytest.mark.parametrize(("kind", "has_keys"), [("record", True), ("blooms", False), ("expression", False)])
def test_an_erasure_leaves_an_index_that_is_being_built_and_names_it_if_it_has_a_key(
    make: Make, kind: str, has_keys: bool
) -> None:
    """A base file in a partition that is being built would be deleted by the next process that runs its plan."""
    table = created(make, kind)
    planned(table, kind)

    def dies() -> None:
        upsert(table.uri, (1, "c1", "changed", 2))()
        raise Killed("here")

    with pytest.raises(Killed), while_it_is_built(lambda: None, dies):
        table.indexes.build()
    partition = partition_of(kind)
    if has_keys:
        with pytest.raises(ErasureIncomplete, match=f"{partition} is being built") as raised:
            table.erase([1])
        remainders = raised.value.report.tables[0].remainders
        assert {remainder.path.split("/")[2] for remainder in remainders} == {partition}
    else:
        assert table.erase([1]).is_clean
    assert table.indexes.build().built == (partition,)
    assert table.indexes.verify().ok
    assert table.erase([1]).is_clean
    assert sorted(row[0] for row in content(table)) == [0, 2, 3, 4, 5]
    is_right(table, kind)


def test_keys_that_stand_twice_end_the_plan(make: Make) -> None:
    table = make(partition_by="city", index="global_simple")
    table.insert(rows((1, "a", "x", 1)), options=NEW_FILES | PLAIN)
    table.insert(rows((1, "b", "y", 1)), options=NEW_FILES | PLAIN)
    planned(table)
    with pytest.raises(IndexInconsistent):
        table.indexes.build()
    assert table.indexes.waiting == []
    assert load_table_config(open_storage(table.uri)).metadata_partitions_inflight == ()
    upsert(table.uri, (2, "a", "x", 1))()


@pytest.mark.parametrize("kind", KINDS)
def test_a_build_waits_for_writers_of_other_engines(make: Make, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(make, kind)
    storage = open_storage(table.uri)
    writer = TimelineWriter(storage, load_table_config(storage))
    theirs = "20990101000000000"
    writer.request(Action.COMMIT, theirs)
    pending = writer.inflight(Action.COMMIT, theirs)
    storage.write(f".hoodie/.heartbeat/{theirs}", b"")  # as real Hudi's
    planned(table, kind)
    looks: list[float] = []

    def look(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 1:
            upsert(table.uri, (2, "c0", "meanwhile", 2), (31, "c1", "new", 2))()
        if len(looks) == 2:
            writer.remove_pending(pending)

    monkeypatch.setattr(build_index.time, "sleep", look)
    assert table.indexes.build().built == (partition_of(kind),)
    assert len(looks) == 2
    assert table.indexes.verify().ok
    is_right(table, kind)


def test_a_build_does_not_wait_for_ever(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created(make)
    storage = open_storage(table.uri)
    writer = TimelineWriter(storage, load_table_config(storage))
    theirs = "20990101000000000"
    writer.request(Action.COMMIT, theirs)
    writer.inflight(Action.COMMIT, theirs)
    storage.write(f".hoodie/.heartbeat/{theirs}", b"")
    planned(table)
    monkeypatch.setattr(build_index, "PATIENCE_SECONDS", -1.0)
    done = table.indexes.build()
    assert theirs in done.notes[0]
    assert [plan.is_running for plan in table.indexes.waiting] == [False]


def test_index_builds_that_conflict_are_refused_before_anything_is_written(make: Make) -> None:
    table = created(make)
    planned(table)
    with refused(table.uri, InvalidOption, "waits to be built", "t.indexes.build()"):
        table.indexes.create("record_index")
    with refused(table.uri, InvalidOption, "waits to be built"):
        planned(table)
    with refused(table.uri, LakebedError, "no record index"):
        planned(table, "secondary")
    with refused(table.uri, CommitConflict, "index is being built"):
        table.restore(next(i.time for i in timeline_of(table).commits))


def test_a_table_of_version_6_is_refused(make: Make) -> None:
    table = created(make, table_version=6)
    with refused(table.uri, UnsupportedFeature, "version 6", "wait=True"):
        planned(table)


@pytest.mark.parametrize("name", ["../../outside", "secondary_index_../../x", "unknown_kind", ""])
def test_a_plan_with_a_foreign_name_is_not_run(make: Make, name: str) -> None:
    table = created(make)
    storage = open_storage(table.uri)
    body = encode_index_plan([PlannedIndex(name, "")])
    TimelineWriter(storage, load_table_config(storage)).request(Action.INDEXING, "20990101000000000", body)
    with pytest.raises(UnsupportedFeature, match="does not build"):
        table.indexes.build()
    assert load_table_config(storage).metadata_partitions_inflight == ()
    upsert(table.uri, (2, "c0", "x", 2))()


def test_a_table_without_metadata_table_gets_one(make: Make) -> None:
    table = make(partition_by="city", index="simple", properties={"hoodie.metadata.enable": False})
    table.upsert(rows(*OLD), options={"lakebed.write.tasks": 1})
    assert load_table_config(open_storage(table.uri)).metadata_partitions == ()
    table.configure({"hoodie.metadata.enable": None})
    planned(table, "blooms")
    assert table.indexes.build().built == ("bloom_filters",)
    is_right(table, "blooms")


def test_services_build_planned_indexes(make: Make) -> None:
    table = created(make)
    instant = planned(table)
    quiet = {"hoodie.clean.automatic": False}
    due = list(lakebed.maintenance.run([table.uri], dry_run=True, options=quiet))
    assert [(e.service, e.text) for e in due] == [("indexing", f"the plan of {instant} waits to be run")]
    ran = [e for e in lakebed.maintenance.run([table.uri], once=True, options=quiet) if e.kind == "ran"]
    assert [(e.service, e.detail["runs"][0]["built"]) for e in ran] == [("indexing", ["record_index"])]
    is_right(table, "record")


@pytest.mark.rest
def test_the_command_line_plans_and_builds(make: Make, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = created(lambda **words: lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", **words))
    assert invoke(["indexes", "create", table.uri, "record_index", "--no-wait", "--groups", "3", "-o", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["indexes"], plan["running"]) == (["record_index"], False)
    assert invoke(["indexes", "build", table.uri, "-o", "json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["runs"][0]["instant"] == plan["instant"]
    facts = {fact.name: fact.file_groups for fact in lakebed.open(table.uri).indexes.list()}
    assert facts == {"files": 1, "record_index": 3}
    assert invoke(["indexes", "build", table.uri]) == 0
    assert capsys.readouterr().out.strip() == "no index waits to be built"
    is_right(table, "record")


def test_an_index_that_real_hudi_has_begun_to_build_is_in_no_writers_way(make: Make) -> None:
    table = created(make)
    storage = open_storage(table.uri)
    # it names the partition before it makes the file groups
    update_table_config(storage, {PARTITIONS_INFLIGHT: "bloom_filters"}, held)
    upsert(table.uri, (1, "c1", "changed", 2), (40, "c0", "new", 2))()
    assert (40, "c0", "new", 2) in content(table)
    instant = "20990101000000000"
    writer = TimelineWriter(storage, load_table_config(storage))
    writer.request(Action.INDEXING, instant, encode_index_plan([PlannedIndex("bloom_filters", "")]))
    writer.inflight(Action.INDEXING, instant)
    (note,) = table.indexes.build().notes  # without a heartbeat it may live yet
    assert "being run by another process" in note
    storage.delete(f".hoodie/timeline/{instant}.indexing.inflight")
    assert table.indexes.build().built == ("bloom_filters",)
    is_right(table, "blooms")


def test_plans_and_bodies_are_those_of_real_hudi(tmp_path: Any) -> None:
    storage = open_storage(str(golden("v9_cow_mdt_secondary").unpack(tmp_path)))
    timeline = load_timeline(storage, load_table_config(storage))
    done = [i for i in timeline.completed if i.action is Action.INDEXING]
    assert done
    for instant in done:
        bodies = {f"{instant.time}.indexing.requested": encode_index_plan, instant.file_name: encode_index_metadata}
        for name, encode in bodies.items():
            body = storage.read(f".hoodie/timeline/{name}")
            record = decode_action(body)
            ours = encode(planned_indexes(record))
            assert decode_action(ours) == record
            assert (avro_header(ours).schema, len(ours)) == (avro_header(body).schema, len(body))
