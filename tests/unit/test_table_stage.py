"""A stage: its reads show the table with its write, others see it after the commit, and nothing is left without one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict, InvalidOption, UnsupportedFeature
from lakebed.storage.memory import MemoryStorage
from support.crash_tables import leftovers

NAME = "stages"
URI = f"memory://{NAME}/t"
FIRST = {"id": [1, 2, 3, 4], "city": ["Oslo", "Rome", "Oslo", "Rome"], "fare": [1.0, 2.0, 3.0, 4.0], "ts": [1, 1, 1, 1]}
SECOND = {"id": [2, 4, 5], "city": ["Rome", "Rome", "Bonn"], "fare": [20.0, 40.0, 5.0], "ts": [2, 2, 2]}

Write = Callable[[lakebed.Table], Any]
WRITES: dict[str, Write] = {
    "upsert": lambda t: t.upsert(SECOND),
    "partial upsert": lambda t: t.upsert({"id": [1], "city": ["Oslo"], "ts": [4], "fare": [None]}),
    "insert": lambda t: t.insert({"id": [9], "city": ["Oslo"], "fare": [9.0], "ts": [3]}),
    "bulk_insert": lambda t: t.bulk_insert({"id": [9], "city": ["Oslo"], "fare": [9.0], "ts": [3]}),
    "delete of keys": lambda t: t.delete([1, 99]),
    "delete where": lambda t: t.delete(where="city = 'Rome'"),
    "update": lambda t: t.update({"fare": "fare * 2"}, where="id < 3"),
    "merge": lambda t: t.merge(SECOND).when_matched_delete().when_not_matched_insert().execute(),
    "insert_overwrite": lambda t: t.insert_overwrite(SECOND),
    "insert_overwrite of the table": lambda t: t.insert_overwrite(SECOND, "table"),
    "delete_partitions": lambda t: t.delete_partitions("Os*"),
}
TABLES: dict[str, dict[str, Any]] = {
    "mor, bucket": {"type": "mor", "index": "bucket", "buckets": 2},
    "cow, simple": {"type": "cow", "index": "simple"},
    "cow, record": {"type": "cow", "index": "record"},
    "mor, bloom, version 6": {"type": "mor", "index": "bloom", "table_version": 6},
    "cow, global": {"type": "cow", "index": "global_simple", "table_version": 8},
    "mor, consistent": {"type": "mor", "index": "consistent", "buckets": 2},
}


@pytest.fixture(autouse=True)
def _dropped() -> Iterator[None]:
    MemoryStorage.drop(NAME)
    yield
    MemoryStorage.drop(NAME)


def created(uri: str = URI, **settings: Any) -> lakebed.Table:
    t = lakebed.create(uri, FIRST, key="id", partition_by="city", ordering="ts", **settings)
    t.upsert(FIRST)
    return t


def rows_of(t: lakebed.Table) -> list[dict[str, Any]]:
    return sorted(t.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def counts(result: lakebed.WriteResult) -> tuple[Any, ...]:
    return (
        *(result.operation, result.rows, result.inserted, result.updated, result.deleted, result.unchanged),
        *(result.combined, result.duplicates, len(result.files), result.replaced_rows, getattr(result, "clauses", ())),
    )


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("table", TABLES)
def test_a_staged_write_is_the_write_and_is_seen_by_its_stage_alone(table: str, write: str) -> None:
    twin = created(f"memory://{NAME}/twin", **TABLES[table])
    expected = WRITES[write](twin)
    t = created(**TABLES[table])
    before = rows_of(t)
    with t.stage() as staged:
        result = WRITES[write](staged)
        assert result.checkpoint == ""
        assert rows_of(staged) == rows_of(twin)
        assert staged.count() == twin.count()
        assert staged.get([2, 9], columns=["id", "fare"]).to_pylist() == twin.get([2, 9], ["id", "fare"]).to_pylist()
        assert sorted(staged.partitions) == sorted(twin.partitions)
        changed = staged.diff().to_arrow().to_pylist()
        for view in (t, lakebed.open(URI)):
            assert rows_of(view) == before
        done = staged.commit()
    assert counts(done) == counts(expected)
    last = t.timeline.last
    assert last is not None
    assert (done.instant, done.checkpoint) == (result.instant, last.completion_time or result.instant)
    assert {"begin", "metadata", "tag", "write", "staged", "commit"} >= done.seconds.keys() >= {"staged", "commit"}
    for view in (t, lakebed.open(URI)):
        assert rows_of(view) == rows_of(twin)
    shown = {row["id"]: row for row in before}
    for change in changed:
        if change["change"] != "insert":
            assert shown.pop(change["before"]["id"]) == change["before"]
        if change["change"] != "delete":
            shown[change["after"]["id"]] = change["after"]
    assert sorted(shown.values(), key=lambda row: row["id"]) == rows_of(t)
    assert t.indexes.verify().ok


@pytest.mark.parametrize("write", WRITES)
def test_a_stage_without_a_commit_leaves_nothing(write: str) -> None:
    t = created(type="cow", index="record")
    before = rows_of(t)
    with t.stage() as staged:
        WRITES[write](staged)
    assert rows_of(t) == before
    assert leftovers(URI) == []
    assert [i.action.value for i in t.timeline if not i.is_completed] == []
    staged = t.stage()
    WRITES[write](staged)
    with pytest.raises(ZeroDivisionError), staged:
        _ = 1 // 0
    assert rows_of(t) == before
    assert leftovers(URI) == []
    assert t.indexes.verify().ok


def test_a_write_that_fails_leaves_the_stage_open_for_another_one() -> None:
    t = created()
    with t.stage() as staged:
        with pytest.raises(lakebed.LakebedError, match="key"):
            staged.upsert({"id": [None], "city": ["Oslo"], "fare": [1.0], "ts": [1]})
        staged.upsert(SECOND)
        staged.commit()
    assert t.count() == 5


def test_a_stage_is_one_write() -> None:
    t = created()
    with t.stage() as staged:
        staged.upsert(SECOND)
        with pytest.raises(InvalidOption, match="one write: delete would be the second"):
            staged.delete([1])
        staged.commit()
        with pytest.raises(InvalidOption, match="has ended"):
            staged.delete([1])
        with pytest.raises(InvalidOption, match="has ended"):
            staged.commit()
        assert rows_of(staged) == rows_of(t)
    assert (t.count(), len([i for i in t.timeline if i.action.value == "commit"])) == (5, 2)


def test_a_stage_without_a_write_has_nothing_to_commit() -> None:
    t = created()
    with t.stage() as staged, pytest.raises(InvalidOption, match="no write to commit"):
        staged.commit()
    with pytest.raises(InvalidOption, match="has ended"):
        staged.upsert(SECOND)
    assert len(t.timeline) == 1


def test_services_and_settings_are_no_part_of_a_stage() -> None:
    t = created()
    with t.stage() as staged:
        for name in ("maintenance", "savepoints", "columns", "restore", "undo", "configure", "erase", "stage"):
            assert not hasattr(staged, name)
            with pytest.raises(UnsupportedFeature, match=f"{name} is no part of a stage") as caught:
                getattr(staged, name)
            copy = pickle.loads(pickle.dumps(caught.value))
            assert (str(copy), type(copy)) == (str(caught.value), type(caught.value))
        with pytest.raises(AttributeError, match="upsertt"):
            _ = staged.upsertt  # pyright: ignore
        with pytest.raises(InvalidOption, match="without its write"):
            staged.diff(1)
    assert "ended" in repr(staged)


def test_another_write_to_the_file_groups_wins_over_a_stage_that_commits_later() -> None:
    t = created(index="bucket", buckets=1)
    with t.stage() as staged:
        staged.upsert(SECOND)
        t.upsert({"id": [4], "city": ["Rome"], "fare": [44.0], "ts": [9]})
        with pytest.raises(CommitConflict):
            staged.commit()
    assert {row["id"]: row["fare"] for row in rows_of(t)} == {1: 1.0, 2: 2.0, 3: 3.0, 4: 44.0}
    assert leftovers(URI) == []


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_look_never_leaves_staged_rows_out_where_another_write_changed_their_file_group(kind: str) -> None:
    t = created(index="bucket", buckets=1, type=kind)
    with t.stage() as staged:
        staged.upsert(SECOND)
        t.upsert({"id": [4], "city": ["Rome"], "fare": [44.0], "ts": [9]})
        for look in (staged.diff, staged.count, staged.to_arrow):
            with pytest.raises(CommitConflict, match="was changed by another writer"):
                look()
    assert {row["id"]: row["fare"] for row in rows_of(t)} == {1: 1.0, 2: 2.0, 3: 3.0, 4: 44.0}
    assert leftovers(URI) == []


def test_a_stage_shows_what_others_commit_to_other_file_groups() -> None:
    t = created(index="bucket", buckets=1)
    with t.stage() as staged:
        staged.upsert(SECOND)
        assert staged.count() == 5
        t.upsert({"id": [7], "city": ["Oslo"], "fare": [7.0], "ts": [1]})
        expected = {1: 1.0, 2: 20.0, 3: 3.0, 4: 40.0, 5: 5.0, 7: 7.0}
        assert {row["id"]: row["fare"] for row in rows_of(staged)} == expected
        assert staged.diff().summary.inserted == 1
        staged.commit()
    assert {row["id"]: row["fare"] for row in rows_of(t)} == expected


def test_services_that_the_write_makes_due_run_after_the_commit() -> None:
    t = created(type="mor", index="bucket", buckets=1)
    options = {"hoodie.compact.inline": True, "hoodie.compact.inline.max.delta.commits": 1}
    with t.stage() as staged:
        staged.upsert(SECOND, options=options)
        assert [i.action.value for i in t.timeline if i.is_completed] == ["deltacommit"]
        done = staged.commit()
    assert any("compact" in line for line in done.services), done.services
    assert t.count() == 5


def test_a_batch_that_the_table_has_is_not_staged_again() -> None:
    t = created()
    once = lakebed.Once("loads", 1)
    first = t.upsert(SECOND, once=once)
    with t.stage() as staged:
        assert staged.upsert(SECOND, once=once).skipped
        assert staged.commit().instant == first.instant
    with t.stage() as staged:
        staged.upsert({"id": [6], "city": ["Bonn"], "fare": [6.0], "ts": [1]}, once=lakebed.Once("loads", 2))
        staged.commit()
    assert t.upsert(FIRST, once=lakebed.Once("loads", 2)).skipped
    assert t.count() == 6


def test_new_columns_and_notes_of_a_staged_write_are_those_of_its_commit() -> None:
    t = created()
    with t.stage() as staged:
        rows = {**SECOND, "note": ["a", "b", "c"]}
        staged.upsert(rows, options={"lakebed.write.evolution": "widen"}, message="checked by hand")
        assert staged.schema.names == [*FIRST, "note"]
        assert t.schema.names == [*FIRST]
        staged.commit()
    assert t.schema.names == [*FIRST, "note"]
    assert list(t.versions)[-1].message == "checked by hand"


def test_a_stage_on_a_disk(tmp_path: Path) -> None:
    t = created(str(tmp_path / "t"), type="mor", index="bucket", buckets=2)
    with t.stage() as staged:
        staged.upsert(SECOND)
        assert staged.count(where="fare >= 5") == 3
        assert max(staged.to_pandas()["fare"].tolist()) == 40.0
        staged.commit()
    assert lakebed.open(t.uri).count(where="fare >= 5") == 3
