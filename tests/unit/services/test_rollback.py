"""Rollback of the last completed commit, of whatever kind it is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.bodies.rollback import rollback_target
from property.crossing import Change, Model, Write, Writer, held_writers
from support.crash_tables import leftovers
from support.restored_tables import (
    KINDS,
    OPTIONS,
    actions,
    files_of,
    first_commits,
    is_whole,
    located,
    refused,
    timeline,
)
from support.sampling import HISTORIES, todays
from support.tables import of_kind
from support.write_tables import content, rows

Make = Callable[..., Table]


def is_own(mutation: Mutation) -> bool:
    return not mutation.path.startswith(".hoodie/metadata")


def is_completion(mutation: Mutation) -> bool:
    return is_own(mutation) and mutation.path.endswith(".deltacommit")


LAST: dict[str, Callable[[Table], Any]] = {
    "upsert": lambda t: t.upsert(rows((1, "c1", "z", 3), (100, "c3", "z", 3)), options=OPTIONS),
    "delete": lambda t: t.delete([2, 3], options=OPTIONS),
    "bulk_insert": lambda t: t.bulk_insert(rows((300, "c0", "z", 3)), options=OPTIONS),
    "insert_overwrite": lambda t: t.insert_overwrite(rows((7, "c1", "o", 9)), options=OPTIONS),
    "delete_partitions": lambda t: t.delete_partitions(["c1"], options=OPTIONS),
    "compaction": lambda t: t.maintenance.compact(options=OPTIONS),
    "log compaction": lambda t: t.maintenance.compact(
        logs=True, options={**OPTIONS, "hoodie.log.compaction.blocks.threshold": 1}
    ),
}


def cases() -> list[tuple[int, str, str, str]]:
    return [
        (version, kind, index, last)
        for version, kind, index in KINDS
        for last in LAST
        if kind == "mor" or "compaction" not in last
        if index != "bucket" or last != "bulk_insert"
        if version > 6 or last != "log compaction"
    ]


@pytest.mark.parametrize(("version", "kind", "index", "last"), todays(cases(), 3, HISTORIES))
def test_a_rollback_of_the_last_commit_gives_the_rows_before_it(
    make: Make, version: int, kind: str, index: str, last: str
) -> None:
    table = of_kind(make, version, kind, index)
    first_commits(table)
    if kind == "mor":
        table.upsert(rows((0, "c0", "c", 3), (1, "c1", "c", 3)), options=OPTIONS)
    before, files, instants = content(table), files_of(table), actions(table)
    LAST[last](table)
    gone = timeline(table).commits[-1]
    assert gone.time > instants[-1][0]
    planned = table.rollback(gone.time, dry_run=True)
    done = table.rollback(gone.time)
    assert done.plan == planned.plan
    assert content(table) == before
    if (version, kind) != (6, "mor"):
        assert files_of(table) == files
        assert done.plan.logs == {}
    assert [i for i in actions(table) if i[1] != "rollback"] == instants
    rollback = timeline(table).instants[-1]
    assert (rollback.time, rollback_target(timeline(table).plan(rollback))) == (done.instant, gone.time)
    assert is_whole(table)
    assert [what for what in leftovers(table.uri) if "metadata file" not in what] == []
    assert located(table, 100, 300) == []
    table.upsert(rows((1, "c1", "again", 9), (100, "c4", "again", 9)), options=OPTIONS)
    after = {row[0]: row for row in before} | {1: (1, "c1", "again", 9), 100: (100, "c4", "again", 9)}
    assert content(table) == sorted(after.values())
    if kind == "mor":
        table.maintenance.compact(options=OPTIONS)
        assert content(table) == sorted(after.values())
    assert is_whole(table)


def test_commits_are_rolled_back_one_after_another(make: Make) -> None:
    table = of_kind(make)
    states = []
    for n in range(4):
        done = table.upsert(rows((n, "c0", "x", n), (100, "c1", "x", n)))
        states.append((done.instant, content(table)))
    for at in (3, 2, 1):
        table.rollback(states[at][0])
        assert content(table) == states[at - 1][1]
        assert is_whole(table)
    table.rollback(states[0][0])
    assert content(table) == []
    table.upsert(rows((1, "c0", "new", 1)))
    assert content(table) == [(1, "c0", "new", 1)]
    assert is_whole(table)


def test_rollbacks_of_other_instants_are_refused(make: Make) -> None:
    table = of_kind(make, index="simple")
    first = first_commits(table)
    second = table.upsert(rows((0, "c0", "z", 3))).instant
    with refused(table.uri, InvalidOption, "is not the last commit", second, "t.restore("):
        table.rollback(first)
    with refused(table.uri, InvalidOption, "older than the active timeline"):
        table.rollback("20200101000000000")
    table.savepoints.create()
    with refused(table.uri, InvalidOption, "has a savepoint", "savepoints.delete"):
        table.rollback(second)
    table.savepoints.delete(second)
    done = table.rollback(second)
    with refused(table.uri, InvalidOption, "is a rollback"):
        table.rollback(str(done.instant))
    with refused(table.uri, InvalidOption, "no instant"):
        table.rollback(second)


def test_pending_actions_that_began_after_it(make: Make) -> None:
    table = of_kind(make, 9, "mor", "bucket")
    first_commits(table)
    last = timeline(table).commits[-1].time
    planned = table.maintenance.compact(plan_only=True, options=OPTIONS).planned
    with refused(table.uri, CommitConflict, "is pending", str(planned), "t.restore()"):
        table.rollback(last)
    table.maintenance.compact(options=OPTIONS)
    with held_writers():
        writer = Writer(table.uri, Write("upsert", lambda t: t.upsert(rows((5, "c1", "late", 9))), lambda _: Change()))
        writer.step(Model(False))
        writer.step(Model(False))
        with pytest.raises(CommitConflict, match="is pending"):
            table.rollback(timeline(table).commits[-1].time)
        writer.step(Model(False))
    assert writer.error is None


def test_a_commit_that_the_metadata_table_has_taken_in(make: Make) -> None:
    table = of_kind(make, index="global_simple")
    first = first_commits(table)
    before = content(table)
    last = table.upsert(rows((1, "c1", "z", 3), (100, "c3", "z", 3))).instant
    table.indexes.create("record_index")
    with refused(table.uri, UnsupportedFeature, "by itself", f't.restore("{first}")'):
        table.rollback(last)
    table.restore(first)
    assert content(table) == before
    assert is_whole(table)


@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize("is_retaken", [False, True])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_logs_of_others_leave_the_list_with_their_slice(make: Make, version: int, index: str, is_retaken: bool) -> None:
    """On version 6 a dead writer's log file, and what hides it, have the instant of the slice that goes."""
    table = of_kind(make, version, "mor", index)
    first_commits(table)
    before = content(table)
    last = table.upsert(rows((100, "new", "z", 3)), options=OPTIONS).instant
    with suppress(Killed), crash_at(is_completion):
        lakebed.open(table.uri).upsert(rows((100, "new", "dead", 4)), options=OPTIONS)
    if is_retaken:
        with suppress(Killed), crash_at(lambda mutation: mutation.path.endswith(".rollback") and is_own(mutation)):
            table.rollback(last)
        table.upsert(rows((0, "c0", "later", 9)), options=OPTIONS)
    else:
        table.rollback(last)
        table.upsert(rows((0, "c0", "later", 9)), options=OPTIONS)
    after = sorted(({row[0]: row for row in before} | {0: (0, "c0", "later", 9)}).values())
    assert content(table) in (after, sorted([*after, (100, "new", "z", 3)]))
    assert is_whole(table)


def test_a_rollback_removes_change_logs(make: Make) -> None:
    table = of_kind(make, index="simple", properties={"hoodie.table.cdc.enabled": True})
    first = first_commits(table)
    last = table.upsert(rows((1, "c1", "z", 3))).instant
    there = {info.path for info in open_storage(table.uri).list() if last in info.path and ".cdc" in info.path}
    assert there
    table.rollback(last)
    assert not {info.path for info in open_storage(table.uri).list()} & there
    table.upsert(rows((1, "c1", "y", 4)))
    changed = table.cdc(first).to_arrow().to_pylist()
    assert [(c["op"], c["before"]["v"], c["after"]["v"]) for c in changed] == [("u", "a", "y")]
