"""The fold of the layers of an index with compactions of the metadata table: searches stay right, before it and
after it, and the index has one layer again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import lakebed
from lakebed.errors import CommitConflict, CorruptFile
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import layer_fold, text_index, vector_index
from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.metadata_kinds.layered_kind import layered_kind
from lakebed.metadata_records.records import record_form
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.transitions import TimelineWriter
from support.layered_tables import EACH, LayeredTables, by_id
from support.vector_tables import another_writer

# every fifth commit compacts the metadata table before it writes
pytestmark = pytest.mark.parametrize("tables", EACH, ids=str)
SOON = {"hoodie.metadata.compact.max.delta.commits": 5, "hoodie.clean.automatic": False}


def fold(tables: LayeredTables, table: lakebed.Table) -> lakebed.Table:
    """The table after the compaction of its metadata table, which is due."""
    before = tables.stored(table).metadata.slices.timeline.completed[-1]
    list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
    assert tables.stored(table).metadata.slices.timeline.completed[-1] != before
    return lakebed.open(table.uri)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_compaction_of_the_metadata_table_folds_the_layers(tables: LayeredTables, kind: str) -> None:
    table = tables.indexed(kind, properties=SOON)
    before = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.upsert(tables.rows(range(10, 60), ts=2))
    table.delete(["k011", "k012"])
    middle = table.upsert(tables.rows(range(11, 20), ts=3)).instant
    last = table.upsert(tables.rows(range(70, 75), ts=4)).instant
    assert len(tables.layers(table)) == 4
    tables.check(table, as_of=middle)
    table = fold(tables, table)
    assert tables.layers(table) == []
    tables.check(table)
    tables.check(table, as_of=last)
    assert table.indexes.verify(tables.index).ok
    for instant in (before, middle):
        assert tables.index not in tables.plan(table, as_of=instant)
        assert tables.answers(table, as_of=instant) == tables.answers(table, as_of=instant, exact=True)
    table.upsert(tables.rows(range(5), ts=9))
    assert len(tables.layers(table)) == 1
    tables.check(table)
    tables.check(table, as_of=last)
    table.indexes.rebuild(tables.column)
    tables.check(table)
    assert table.indexes.verify(tables.index).ok


def test_a_fold_drops_entries_that_do_not_count(tables: LayeredTables) -> None:
    table = tables.indexed("cow", properties=SOON)
    for ts in (2, 3, 4):
        table.upsert(tables.rows(range(40), ts=ts))
    assert sum(head.rows for head in tables.stored(table).layer_heads.values()) == 4 * 36
    table = fold(tables, table)
    assert tables.stored(table).layer_heads[BUILD].rows == 36
    tables.check(table)


def test_writes_fold_layers_as_they_compact_the_metadata_table(tables: LayeredTables) -> None:
    table = tables.indexed("mor", properties=SOON)
    counts: list[int] = []
    for turn in range(14):
        table.upsert(tables.rows(range(turn, turn + 20), ts=turn + 2))
        counts.append(len(tables.layers(table)))
        tables.check(table)
    assert max(counts) <= 6
    assert counts.count(1) >= 2
    assert table.indexes.verify(tables.index).ok


@pytest.mark.every_case
@pytest.mark.parametrize(("share", "folds"), [(0.25, True), (0.26, False)])
def test_layers_with_few_changes_are_folded_later(
    tables: LayeredTables, share: float, folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_fold, "MIN_SHARE", share)
    table = tables.indexed("mor", properties=SOON)
    table.insert(tables.rows(range(41, 50), ts=2))  # 9 rows beside 36
    table = fold(tables, table)
    assert len(tables.layers(table)) == (0 if folds else 1)
    tables.check(table)


@pytest.mark.every_case
@pytest.mark.parametrize(("most", "folds"), [(2, True), (3, False)])
def test_many_layers_are_folded_whatever_they_have(
    tables: LayeredTables, most: int, folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer_fold, "MIN_SHARE", 1000)
    monkeypatch.setattr(layer_fold, "MAX_LAYERS", most)
    table = tables.indexed("mor", properties=SOON)
    for turn in range(3):
        table.upsert(tables.rows(range(41 + turn, 42 + turn), ts=2))
    table = fold(tables, table)
    assert len(tables.layers(table)) == (0 if folds else 3)
    tables.check(table)


@pytest.mark.every_case
@pytest.mark.parametrize(("most", "relocates"), [(49, True), (48, False)])
def test_a_fold_finds_rows_that_a_clustering_moved(
    tables: LayeredTables, most: int, relocates: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.indexed("cow", properties={**SOON, "hoodie.parquet.small.file.limit": 0})
    table.insert(tables.rows(range(41, 50), ts=2))  # in files of their own
    monkeypatch.setattr(layer_fold, "MAX_MOVED", most)
    table.maintenance.cluster()
    tables.check(table)
    table = fold(tables, table)
    live = {s.file_id for s in open_snapshot(open_storage(table.uri)).file_slices()}
    of_base = tables.stored(table).layer_heads[BUILD].groups.ids.to_pylist()
    assert (set(of_base) <= live) is relocates
    tables.check(table)
    assert table.indexes.verify(tables.index).ok


def test_rows_that_another_writer_deleted_and_moved_are_not_in_the_base_of_later_views(tables: LayeredTables) -> None:
    table = tables.indexed("cow", properties=SOON)
    last = table.upsert(tables.rows(range(10), ts=2)).instant
    with another_writer():
        table.delete_partitions(["p1"])
        table.maintenance.cluster()
    table = fold(tables, table)
    assert tables.layers(table) == []
    tables.check(table, as_of=last)
    assert by_id(tables.answers(table)) == by_id(tables.answers(table, exact=True))
    table.upsert(tables.rows(range(3), ts=3))
    tables.check(table)


def test_layers_after_a_commit_that_is_still_written_stay(tables: LayeredTables) -> None:
    table = tables.indexed("mor", properties=SOON)
    first = table.upsert(tables.rows(range(41, 60), ts=2)).instant
    second = table.upsert(tables.rows(range(51, 70), ts=3)).instant
    assert first is not None
    storage = open_storage(table.uri)
    between = str(int(first) + 1)
    assert first < between < str(second)
    writer = TimelineWriter(storage, load_table_config(storage))
    pending = writer.request(Action.DELTACOMMIT, between)
    snapshot = open_snapshot(storage)
    index = tables.opened(snapshot)
    records = layer_fold.folded_records(index, snapshot, record_form(9))
    assert records is not None
    keys = [key for batch, _ in records for key in batch.to_pylist()]
    assert keys == sorted(keys)
    assert [key for key in keys if key[0] in "HW"] == [f"H|{BUILD}", f"H|{second}", f"W|{second}"]
    assert f"E|{second}|00000000" in keys
    assert not [key for key in keys if str(first) in key]
    writer.remove_pending(pending)
    records = layer_fold.folded_records(index, open_snapshot(storage), record_form(9))
    assert records is not None
    assert [key for batch, _ in records for key in batch.to_pylist() if key[0] in "HW"] == [f"H|{BUILD}"]


def test_an_index_with_taken_back_commits_in_its_base_is_copied_as_it_is(tables: LayeredTables) -> None:
    table = tables.indexed("mor", properties=SOON)
    kept = table.upsert(tables.rows(range(41, 60), ts=2)).instant
    table.upsert(tables.rows(range(3), ts=3))
    table = fold(tables, table)
    table.restore(kept)
    table = lakebed.open(table.uri)
    tables.check(table)
    table.upsert(tables.rows(range(4), ts=4))
    tables.check(fold(tables, table))
    assert table.indexes.verify(tables.index).ok


def while_it_is_built(
    tables: LayeredTables, monkeypatch: pytest.MonkeyPatch, table: lakebed.Table, change: Callable[[], object]
) -> None:
    """Build the index again; the change happens after the entries were made, before they are published."""
    kind = type(layered_kind(tables.index))
    real = kind.built

    def built(*given: Any) -> Any:
        result = real(*given)
        change()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(kind, "built", built)
        table.indexes.rebuild(tables.column)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_others_write_and_search_while_an_index_is_built_again(
    tables: LayeredTables, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.indexed(kind, properties=SOON)
    table.upsert(tables.rows(range(10), ts=2))
    instants: list[str | None] = []

    def write() -> None:
        writer = lakebed.open(table.uri)
        instants.append(writer.upsert(tables.rows(range(5, 60), ts=3)).instant)
        instants.append(writer.delete(["k011", "k050"]).instant)
        instants.append(writer.upsert(tables.rows(range(70, 72), ts=4)).instant)
        tables.check(writer)
        tables.check(table)

    while_it_is_built(tables, monkeypatch, table, write)
    table = lakebed.open(table.uri)
    tables.check(table)
    assert tables.layers(table) == [f"{instants[-1]}+0000"]
    assert table.indexes.verify(tables.index).ok
    for instant in instants:
        assert f"{tables.index}: " in tables.plan(table, as_of=instant)
        assert by_id(
            tables.answers(
                table,
                as_of=instant,
            )
        ) == by_id(tables.answers(table, as_of=instant, exact=True))
    table.upsert(tables.rows(range(80, 83), ts=5))
    tables.check(table)
    table = fold(tables, table)
    assert tables.layers(table) == []
    tables.check(table)


def test_a_fold_while_an_index_is_built_again_takes_no_commit_from_it(
    tables: LayeredTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.indexed("mor", properties=SOON)

    def write_and_fold() -> None:
        writer = lakebed.open(table.uri)
        writer.upsert(tables.rows(range(41, 60), ts=3))
        fold(tables, writer)

    while_it_is_built(tables, monkeypatch, table, write_and_fold)
    tables.check(lakebed.open(table.uri))
    assert table.indexes.verify(tables.index).ok


def test_a_build_does_not_take_the_place_of_an_index_that_it_does_not_fit(
    tables: LayeredTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.indexed("mor", properties=SOON)
    with pytest.raises(CommitConflict, match="dropped or defined anew"):
        while_it_is_built(tables, monkeypatch, table, lambda: lakebed.open(table.uri).indexes.drop(tables.column))
    assert tables.index not in {index.name for index in table.indexes.list()}
    table = tables.indexed("mor", properties=SOON)
    last = table.upsert(tables.rows(range(3), ts=2)).instant
    assert last is not None
    with pytest.raises(CommitConflict, match="does not fit the table any more"):
        while_it_is_built(tables, monkeypatch, table, lambda: lakebed.open(table.uri).rollback(last))
    tables.check(lakebed.open(table.uri))
    table.indexes.rebuild(tables.column)
    tables.check(lakebed.open(table.uri))


def test_rows_of_too_many_commits_meanwhile_are_searched_exactly(
    tables: LayeredTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tables.indexed("mor", properties=SOON)

    def write() -> None:
        lakebed.open(table.uri).upsert(tables.rows(range(41, 60), ts=3))
        for kind in (text_index, vector_index):
            monkeypatch.setattr(kind, "MAX_BYTES", 200)

    while_it_is_built(tables, monkeypatch, table, write)
    monkeypatch.undo()
    table = lakebed.open(table.uri)
    tables.check(table, gaps=True)
    table.upsert(tables.rows(range(1, 2), ts=4))
    tables.check(table)


def test_an_index_is_not_built_again_before_a_dead_writer_is_rolled_back(tables: LayeredTables) -> None:
    table = tables.indexed("mor", properties=SOON)
    table.upsert(tables.rows(range(3), ts=2))

    def completes(mutation: Mutation) -> bool:
        return re.fullmatch(r"\.hoodie/timeline/\d+_\d+\.deltacommit", mutation.path) is not None

    with crash_at(completes), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(tables.rows(range(50, 55), ts=3))
    table = lakebed.open(table.uri)
    with pytest.raises(CommitConflict, match="a writer that died is not rolled back"):
        table.indexes.rebuild(tables.column)
    tables.check(table)
    table.upsert(tables.rows(range(60, 62), ts=3))
    table.indexes.rebuild(tables.column)
    tables.check(table)


def test_an_index_that_lost_its_files_is_left_to_repair(tables: LayeredTables) -> None:
    table = tables.indexed("mor", properties=SOON)
    storage = open_storage(table.uri)
    for info in list(storage.list(f".hoodie/metadata/{tables.index}")):
        storage.delete(info.path)
    table = lakebed.open(table.uri)
    with pytest.raises(CorruptFile, match=r"t\.indexes\.repair"):
        table.indexes.rebuild(tables.column)
    table.indexes.repair()
    tables.check(lakebed.open(table.uri))


def test_an_erasure_passes_over_an_index_that_is_being_built(tables: LayeredTables) -> None:
    table = tables.table("mor", properties=SOON)
    tables.create(table, wait=False)

    def completes(mutation: Mutation) -> bool:
        return mutation.path.endswith(".hfile")

    with crash_at(completes), pytest.raises(Killed):
        lakebed.open(table.uri).indexes.build()
    table = lakebed.open(table.uri)
    assert table.indexes.waiting
    table.upsert(tables.rows(range(3), ts=2))
    table.erase(["k001"])
    table = lakebed.open(table.uri)
    assert table.upsert(tables.rows(range(2, 4), ts=3)).updated == 2
    assert by_id(tables.answers(table)) == by_id(tables.answers(table, exact=True))
    assert "k001" not in {row["id"] for row in tables.answers(table)}
