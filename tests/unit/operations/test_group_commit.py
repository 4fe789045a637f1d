"""Upserts of threads that wait for one another become one action; each has the result that it would have alone."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import threading
import uuid
from typing import Any, cast

import pyarrow as pa
import pytest

import lakebed
from lakebed.operations import group_commit
from lakebed.operations.group_commit import Batch, JointUpsert
from lakebed.operations.write import RowMatch
from lakebed.table import Table
from lakebed.testing import Mutation
from support.joined_upserts import Upserts, commits, together, waiting
from support.sampling import so_many
from support.tables import context_of

OFF = {"lakebed.write.group.commit": False}
COUNTS = ("rows", "inserted", "updated", "deleted", "unchanged", "combined", "duplicates")
KINDS = [
    ("cow", "bucket"),
    ("mor", "bucket"),
    ("cow", "bucket_groups"),
    ("mor", "bucket_groups"),
    ("mor", "consistent"),
    ("cow", "simple"),
    ("mor", "simple"),
    ("cow", "bloom"),
    ("mor", "global_bloom"),
    ("cow", "global_simple"),
    ("mor", "global_simple"),
    ("cow", "record"),
    ("mor", "record"),
    ("cow", "record_level_index"),
]
CITIES = ("oslo", "rome")


def rows(*given: tuple[int, int], city: str = "oslo", v: float = 1.0, deleted: bool = False) -> pa.Table:
    """Rows by id and ordering value."""
    n = len(given)
    return pa.table(
        {
            "id": pa.array([one for one, _ in given], pa.int64()),
            "city": [city] * n,
            "ts": pa.array([ts for _, ts in given], pa.int64()),
            "v": pa.array([v] * n, pa.float64()),
            "_hoodie_is_deleted": [deleted] * n,
        }
    )


def created(kind: Any = "mor", index: str = "bucket", **more: Any) -> Table:
    """A table with the rows 0 to 19."""
    more = {"buckets": 2, **more} if index in ("bucket", "bucket_groups") else more
    table = lakebed.create(
        f"memory://{uuid.uuid4().hex}/t", rows((0, 1)), key="id", type=kind, index=index, **{"ordering": "ts", **more}
    )
    table.upsert(pa.concat_tables(rows(*((n, 5) for n in range(20) if n % 2 == at), city=CITIES[at]) for at in (0, 1)))
    return table


def stored(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.scan(["id", "city", "ts", "v"]).to_arrow().to_pylist())


def written(table: Table) -> list[Any]:
    """The commits of the table."""
    done = [instant for instant in table.timeline if instant.is_completed]
    return [instant for instant in done if instant.action.value in ("commit", "deltacommit")]


def counts(result: lakebed.WriteResult) -> dict[str, int | None]:
    return {name: getattr(result, name) for name in COUNTS}


def batch(dice: random.Random) -> pa.Table:
    """Up to eight rows: of known keys, new ones, deletes, keys that come twice, older and newer ones."""
    parts = [
        rows(
            (dice.randrange(40), dice.randrange(10)), city=dice.choice(CITIES), v=dice.random(),
            deleted=dice.random() < 0.2,
        )
        for _ in range(dice.randrange(1, 8))
    ]  # fmt: skip
    if dice.random() < 0.3:
        parts.append(parts[0])
    return pa.concat_tables(parts)


def check_as_in_order(table: Table, alone: Table, batches: list[pa.Table], results: list[Any], **words: Any) -> None:
    """The same upserts alone, in the order of the actions, give the same rows and counts; where an upsert alone did not
    look whether its keys are stored, the joined one may have known that its file group is new, or the other way."""
    in_order = [at for action in commits(results) for at in action]
    for at in in_order:
        expected, found = counts(alone.upsert(batches[at], **words)), counts(results[at])
        if table.properties["hoodie.table.type"] == "MERGE_ON_READ" and table.indexes.index.name == "bucket_groups":
            # an older row, or delete, is updated where it is logged, and unchanged where a small file is written again
            # for the new rows of others
            for of_one in (expected, found):
                several = [of_one.pop(name) for name in ("updated", "deleted", "unchanged")]
                of_one["seen"] = None if None in several else sum(filter(None, several))
        compared = [name for name in expected if expected[name] is not None and found[name] is not None]
        assert {name: found[name] for name in compared} == {name: expected[name] for name in compared}, at
    assert stored(table) == stored(alone)


@pytest.mark.parametrize("merge", ["event_time", "commit_time", "PartialUpdateAvroPayload", "skip unchanged"])
@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_joined_upserts_are_as_upserts_one_after_another(kind: str, index: str, merge: str) -> None:
    more: dict[str, Any] = {"partition_by": "city"} if index not in ("global_bloom",) else {}
    more |= {"properties": {"lakebed.write.skip.unchanged": True}} if merge == "skip unchanged" else {"merge": merge}
    if merge == "commit_time":
        more["ordering"] = None
    for seed in range(so_many(2, 1)):
        dice = random.Random(f"{kind} {index} {merge} {seed}")
        table, alone = created(kind, index, **more), created(kind, index, **more)
        batches = [batch(dice) for _ in range(dice.randrange(3, 8))]
        results = together(table.uri, batches)
        actions = commits(results)
        for action in actions:
            keys = [set(batches[at]["id"].to_pylist()) for at in action]
            assert len(set().union(*keys)) == sum(map(len, keys)), "a key is in two upserts of an action"
            assert {results[at].joined for at in action} == {len(action)}
        check_as_in_order(table, alone, batches, results, options=OFF)
        assert table.indexes.verify().ok


@pytest.mark.parametrize(("kind", "index"), KINDS)
def test_upserts_of_other_keys_are_one_action_whose_counts_add_up(kind: str, index: str) -> None:
    table = created(kind, index)
    before = len(written(table))
    batches = [rows((at, 9), (100 + at, 9), (200 + at, 9)) for at in range(8)]
    results = together(table.uri, batches)
    assert [result.joined for result in results] == [1, 7, 7, 7, 7, 7, 7, 7]
    after = written(table)
    assert len(after) == before + 2
    for result in results:
        assert (result.rows, result.combined, result.unchanged) == (3, 0, 0)
        if result.inserted is not None:
            assert (result.inserted, result.updated, result.deleted) == (2, 1, 0)
        assert result.files
        assert "one commit with 6 other upserts" in str(result) or result is results[0]
    stats = table.timeline.commit(after[-1]).stats.values()
    assert {stat.path for group in stats for stat in group} == set().union(*(result.files for result in results[1:]))
    assert table.count() == 20 + 16


def test_rows_that_move_count_as_updates_of_their_upsert() -> None:
    table = created("cow", "global_simple", partition_by="city")
    moving = [rows((n, 9), (n + 2, 9), (50 + n, 9), city=CITIES[1 - n % 2]) for n in (0, 1, 5, 8)]
    for result in together(table.uri, moving):
        assert (result.rows, result.inserted, result.updated, result.deleted) == (3, 1, 2, 0)


def test_equal_keys_come_in_the_order_of_arrival() -> None:
    table = created(merge="commit_time", ordering=None)
    given = [rows((0, 1)), *(rows((1, 1), (10 + n, 1), v=float(n)) for n in range(3)), rows((2, 1))]
    results = together(table.uri, given)
    assert commits(results) == [[0], [1, 4], [2], [3]]
    assert [v for n, _, _, v in stored(table) if n == 1] == [2.0]


def test_an_upsert_that_shares_a_key_with_a_waiting_one_is_written_after_it() -> None:
    table = created(merge="commit_time", ordering=None)
    results = together(
        table.uri, [rows((0, 1)), rows((1, 1)), rows((1, 2), (2, 2), v=2.0), rows((2, 3), v=3.0), rows((4, 1))]
    )
    assert commits(results) == [[0], [1, 4], [2], [3]]
    assert [v for n, _, _, v in stored(table) if n == 2] == [3.0]


def test_rows_that_the_table_refuses_fail_alone() -> None:
    table = created()
    wrong_type = rows((2, 9)).set_column(0, "id", pa.array(["two"]))
    no_key = rows((3, 9)).set_column(0, "id", pa.array([None], pa.int64()))
    no_ordering = rows((4, 9)).set_column(2, "ts", pa.array([None], pa.int64()))
    upserts = Upserts(table.uri, [rows((0, 9)), rows((1, 9)), wrong_type, no_key, no_ordering, rows((5, 9))])
    upserts.begin()
    found = upserts.finish()
    result, schema, record = lakebed.WriteResult, lakebed.errors.SchemaConflict, lakebed.errors.InvalidRecord
    expected = (result, result, schema, record, record, result)
    assert [one for one, kind in zip(found, expected, strict=True) if not isinstance(one, kind)] == []
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [0, 1, 5]


def test_rows_with_other_columns_are_another_action() -> None:
    table = created()
    wider = rows((3, 9)).append_column("w", pa.array(["new"]))
    results = together(
        table.uri, [rows((0, 9)), rows((1, 9)), wider, rows((2, 9))], options={"lakebed.write.evolution": "add"}
    )
    assert commits(results) == [[0], [1, 3], [2]]
    assert table.get([1, 3], ["id", "w"]).to_pylist() == [{"id": 1, "w": None}, {"id": 3, "w": "new"}]


@pytest.mark.parametrize(
    "words",
    [
        {"options": OFF},
        {"partial": True},
        {"once": lakebed.Once("s", 0)},
        {"options": {"hoodie.datasource.write.insert.drop.duplicates": True}},
        {"options": {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}},
        {"options": {"lakebed.index.bucket.grow": True}},
        {"options": {"hoodie.datasource.write.commitmeta.key.prefix": "mine", "mine.note": "x"}},
    ],
    ids=lambda words: ",".join(map(str, words.values()))[:40],
)
def test_these_upserts_do_not_wait_for_others(words: dict[str, Any]) -> None:
    table = created()
    given = [rows((number, 9)) for number in (100, 103, 106)]
    upserts = Upserts(table.uri, given, **{"retries": 9, **words})
    upserts.begin(are_joined=False)
    upserts.finish()
    if "once" in words:  # the same batch
        assert sorted(result.skipped for result in upserts.results) == [False, True, True]
        return
    assert [result.joined for result in upserts.results] == [1, 1, 1]
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [100, 103, 106]


def test_options_that_differ_are_not_joined() -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((0, 9)), rows((3, 9))], retries=8)
    upserts.begin()
    others = Upserts(table.uri, [rows((6, 9))], retries=9)
    others.threads[0].start()
    others.finish()
    upserts.finish()
    assert others.results[0].joined == 1
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [0, 3, 6]


def test_tables_of_one_name_in_other_stores_are_not_joined() -> None:
    one, other = created(), created()
    first = Upserts(one.uri, [rows((0, 9)), rows((3, 9))])
    first.begin()
    assert other.upsert(rows((3, 9))).joined == 1
    first.finish()
    assert [n for n, _, ts, _ in stored(other) if ts == 9] == [3]


@pytest.mark.parametrize("form", ["table", "record batch", "dicts"])
def test_rows_in_memory_are_joined_and_large_ones_are_not(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = created()
    forms: dict[str, Any] = {
        "table": lambda t: t,
        "record batch": lambda t: t.to_batches()[0],
        "dicts": pa.Table.to_pylist,
    }
    given = [forms[form](rows((n, 9))) for n in range(4)]
    results = together(table.uri, given)
    assert commits(results) == [[0], [1, 2, 3]]
    monkeypatch.setattr(group_commit, "MAX_BYTES", 10)
    upserts = Upserts(table.uri, given, retries=9)
    upserts.begin(are_joined=False)
    upserts.finish()
    assert len(commits(upserts.results)) == 4


def test_no_more_bytes_are_joined_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = created()
    given = [rows((n, 9)) for n in range(5)]
    monkeypatch.setattr(group_commit, "MAX_JOINED_BYTES", 2 * given[0].nbytes)
    assert commits(together(table.uri, given)) == [[0], [1, 2], [3, 4]]
    monkeypatch.setattr(group_commit, "MAX_JOINED_BYTES", 0)
    assert commits(together(table.uri, given)) == [[0], [1], [2], [3], [4]]


def test_upserts_of_one_table_object_are_joined_and_it_still_pickles() -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(3)])
    upserts.tables = [upserts.tables[0]] * 3
    upserts.begin()
    assert pickle.loads(pickle.dumps(table)).uri == table.uri
    upserts.finish()
    assert commits(upserts.results) == [[0], [1, 2]]
    assert waiting() == 0


def test_services_run_once_for_an_action() -> None:
    table = created(properties={"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 2})
    table.upsert(rows((0, 6)))
    results = together(table.uri, [rows((n, 9)) for n in range(4)])
    assert [bool(result.services) for result in results] == [False, True, False, False]
    assert len([i for i in table.timeline if i.action.value == "commit"]) == 2


def test_upserts_are_not_joined_while_a_clustering_is_pending() -> None:
    table = created("cow", "simple")
    table.bulk_insert(rows((50, 1)))  # a second file
    table.maintenance.cluster(["id"], plan_only=True)
    assert len(table.timeline.pending) == 1
    results = together(table.uri, [rows((100 + n, 9)) for n in range(3)])
    assert commits(results) == [[0], [1], [2]]


def test_a_joint_upsert_that_is_asked_for_its_schema_takes_no_waiting_upsert() -> None:
    class Refuses:
        def take(self, *_: object) -> None:
            raise AssertionError("upserts were taken")

    context = context_of(created())
    data = rows((1, 1))
    verb = JointUpsert(
        operation="UPSERT",
        match=RowMatch("keys"),
        rows=context.engine.from_arrow(data),
        batch=cast("Batch", Refuses()),
    )
    assert verb.schema(context, context.opened).data.names == data.column_names
    with pytest.raises(AssertionError, match="taken"):
        verb.begun(context, context.opened, "1")


class Interrupted(BaseException):
    """As KeyboardInterrupt, in any thread."""


def test_waiting_upserts_are_written_where_the_first_one_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(4)])
    calls: list[int] = []
    prepare = group_commit.prepare

    def interrupted(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:  # of the first joined action
            raise KeyboardInterrupt
        return prepare(*given)

    monkeypatch.setattr(group_commit, "prepare", interrupted)
    upserts.begin()
    first, second, *others = upserts.finish()
    assert isinstance(second, KeyboardInterrupt)
    assert isinstance(first, lakebed.WriteResult)
    assert [result.joined for result in others] == [2, 2]
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [0, 2, 3]
    assert waiting() == 0


def test_committed_rows_are_not_written_again_where_their_writer_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(4)])
    group_run = group_commit.run

    def run(*given: Any) -> Any:
        result = group_run(*given)
        if result.joined > 1:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(group_commit, "run", run)
    upserts.begin()
    first, second, *others = upserts.finish()
    assert isinstance(first, lakebed.WriteResult)
    assert isinstance(second, KeyboardInterrupt)
    for error in others:
        assert isinstance(error, lakebed.errors.CommitStateUnknown)
        assert error.instant == written(table)[-1].time
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [0, 1, 2, 3]


def test_rows_of_a_thread_that_no_longer_waits_are_not_written() -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(3)])
    upserts.begin()
    interrupt(upserts.threads[1])
    upserts.threads[1].join(60)
    assert waiting() == 1
    first, second, third = upserts.finish()
    assert isinstance(second, Interrupted)
    assert [one.joined for one in (first, third) if isinstance(one, lakebed.WriteResult)] == [1, 1]
    assert [n for n, _, ts, _ in stored(table) if ts == 9] == [0, 2]


def interrupt(thread: threading.Thread) -> None:
    """Raise in a thread that waits for its turn."""
    queues = group_commit._queues.values()  # pyright: ignore[reportPrivateUsage]
    member = next(one for queue in queues for one in queue.waiting if one.thread == thread.ident)

    # an exception that is set for a thread is raised once it runs again
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(member.thread), ctypes.py_object(Interrupted))
    member.turn.set()


@pytest.mark.parametrize("retries", [0, 1])
def test_a_lost_action_is_run_again_as_one_or_by_each_upsert(retries: int) -> None:
    table = created()
    met: list[str] = []

    def meanwhile(mutation: Mutation) -> None:
        """Another process commits to the same file groups while the second action writes its files."""
        if mutation.path.startswith(".0000") and len(written(table)) == 2 and not met:
            met.append(mutation.path)
            table.upsert(rows(*((n, 7) for n in range(10, 20))))

    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(4)], meanwhile=meanwhile, retries=retries)
    upserts.begin()
    upserts.finish()
    assert met
    assert [one.retries for one in upserts.results] == [0, 1, 1, 1]
    assert [one.joined for one in upserts.results] == ([1, 3, 3, 3] if retries else [1, 1, 1, 1])
    assert [(n, ts) for n, _, ts, _ in stored(table)] == [
        *((n, 9) for n in range(4)), *((n, 5) for n in range(4, 10)), *((n, 7) for n in range(10, 20))
    ]  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_does_not_wait_for_threads_of_its_parent() -> None:
    table = created()
    upserts = Upserts(table.uri, [rows((n, 9)) for n in range(3)])
    upserts.begin()
    child = os.fork()
    if not child:
        has_queue = waiting() > 0
        table = lakebed.create("memory://forked/t", rows((0, 1)), key="id")
        os._exit(0 if table.upsert(rows((0, 1))).rows == 1 and not has_queue else 1)
    assert os.waitpid(child, 0)[1] == 0
    upserts.finish()
    assert commits(upserts.results) == [[0], [1, 2]]
