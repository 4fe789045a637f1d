"""The fold of the layers of a vector index with compactions of the metadata table: searches stay right, before it and
after it, and the index has one layer again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import CommitConflict, CorruptFile
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import vector_fold, vector_index
from lakebed.metadata_kinds.layer_records import BUILD
from lakebed.metadata_kinds.vector_fold import Locators
from lakebed.metadata_kinds.vector_store import StoredIndex
from lakebed.metadata_records.records import record_form
from lakebed.model import Action
from lakebed.properties.file import load_table_config
from lakebed.services import vector_indexes
from lakebed.storage import open_storage
from lakebed.testing import Killed, Mutation, crash_at
from lakebed.timeline.transitions import TimelineWriter
from lakebed.vector_index.entries import NO_ROW, WrittenRows, coded_entries, row_hashes
from lakebed.vector_index.layers import Groups
from support.vector_layers import small_coder
from support.vector_tables import (
    INDEX,
    another_writer,
    by_id,
    check_search,
    index_plan,
    indexed_table,
    nearest,
    stored_index,
    vector_rows,
    vector_table,
)

# every fifth commit compacts the metadata table before it writes
SOON = {"hoodie.metadata.compact.max.delta.commits": 5, "hoodie.clean.automatic": False}


def layers(table: lakebed.Table) -> list[str]:
    return [of for of in stored_index(table).layer_heads if of != BUILD]


def fold(table: lakebed.Table) -> lakebed.Table:
    """The table after the compaction of its metadata table, which is due."""
    before = stored_index(table).metadata.slices.timeline.completed[-1]
    list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
    assert stored_index(table).metadata.slices.timeline.completed[-1] != before
    return lakebed.open(table.uri)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_compaction_of_the_metadata_table_folds_the_layers(kind: str) -> None:
    table = indexed_table(kind, properties=SOON)
    before = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.upsert(vector_rows(range(10, 60), ts=2))
    table.delete(["k011", "k012"])
    middle = table.upsert(vector_rows(range(11, 20), ts=3)).instant
    last = table.upsert(vector_rows(range(70, 75), ts=4)).instant
    assert len(layers(table)) == 4
    check_search(table, as_of=middle)
    table = fold(table)
    assert (layers(table), stored_index(table).coder.shape.generation) == ([], 1)
    check_search(table)
    check_search(table, as_of=last)
    assert table.indexes.verify(INDEX).ok
    for instant in (before, middle):
        assert INDEX not in index_plan(table, as_of=instant)
        assert nearest(table, as_of=instant) == nearest(table, as_of=instant, exact=True)
    table.upsert(vector_rows(range(5), ts=9))
    assert len(layers(table)) == 1
    check_search(table)
    check_search(table, as_of=last)
    table.indexes.rebuild("emb")
    check_search(table)
    assert table.indexes.verify(INDEX).ok


def test_a_fold_drops_entries_that_do_not_count() -> None:
    table = indexed_table("cow", properties=SOON)
    for ts in (2, 3, 4):
        table.upsert(vector_rows(range(40), ts=ts))
    assert sum(head.rows for head in stored_index(table).layer_heads.values()) == 4 * 36
    table = fold(table)
    assert stored_index(table).layer_heads[BUILD].rows == 36
    check_search(table)


def test_writes_fold_layers_as_they_compact_the_metadata_table() -> None:
    table = indexed_table("mor", properties=SOON)
    counts: list[int] = []
    for turn in range(14):
        table.upsert(vector_rows(range(turn, turn + 20), ts=turn + 2))
        counts.append(len(layers(table)))
        check_search(table)
    assert max(counts) <= 6
    assert counts.count(1) >= 2
    assert table.indexes.verify(INDEX).ok


def test_new_rows_count_over_folds_until_the_next_build() -> None:
    table = indexed_table("mor", properties=SOON)
    assert stored_index(table).coder.shape.new_rows == 0
    for turn in range(2):
        table.upsert(vector_rows(range(40 + turn * 4, 44 + turn * 4), ts=2))
        table = fold(table)
    assert stored_index(table).coder.shape.new_rows == 7  # k040 has no vector
    snapshot = open_snapshot(open_storage(table.uri))
    statistics = stored_index(table).layered(snapshot).statistics()
    assert (statistics.rows, statistics.new_rows) == (43, 7)
    table.indexes.rebuild("emb")
    assert (stored_index(table).coder.shape.new_rows, stored_index(table).coder.shape.generation) == (0, 0)


@pytest.mark.every_case
@pytest.mark.parametrize(("share", "folds"), [(0.25, True), (0.26, False)])
def test_layers_with_few_changes_are_folded_later(share: float, folds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_fold, "MIN_SHARE", share)
    table = indexed_table("mor", properties=SOON)
    table.insert(vector_rows(range(41, 50), ts=2))  # 9 rows beside 36
    table = fold(table)
    assert len(layers(table)) == (0 if folds else 1)
    check_search(table)


@pytest.mark.every_case
@pytest.mark.parametrize(("most", "folds"), [(2, True), (3, False)])
def test_many_layers_are_folded_whatever_they_have(most: int, folds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_fold, "MIN_SHARE", 1000)
    monkeypatch.setattr(vector_fold, "MAX_LAYERS", most)
    table = indexed_table("mor", properties=SOON)
    for turn in range(3):
        table.upsert(vector_rows(range(41 + turn, 42 + turn), ts=2))
    table = fold(table)
    assert len(layers(table)) == (0 if folds else 3)
    check_search(table)


def groups(table: lakebed.Table) -> set[str]:
    return set(stored_index(table).layer_heads[BUILD].groups.ids.to_pylist())


@pytest.mark.every_case
@pytest.mark.parametrize(("most", "relocates"), [(49, True), (48, False)])
def test_a_fold_finds_rows_that_a_clustering_moved(most: int, relocates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("cow", properties={**SOON, "hoodie.parquet.small.file.limit": 0})
    table.insert(vector_rows(range(41, 50), ts=2))  # in files of their own
    monkeypatch.setattr(vector_fold, "MAX_MOVED", most)
    table.maintenance.cluster()
    check_search(table)
    table = fold(table)
    live = {s.file_id for s in open_snapshot(open_storage(table.uri)).file_slices()}
    assert (groups(table) <= live) is relocates
    check_search(table)
    assert table.indexes.verify(INDEX).ok


def positions(table: lakebed.Table) -> dict[str, int]:
    """The positions that the index has for the rows of its base, by key; an entry of a deleted row has none."""
    parts = [(e.keys.to_pylist(), e.rows.tolist()) for e, _ in stored_index(table).of_layers((BUILD,)).entries()]
    return {key: row for part in parts for key, row in zip(*part, strict=True) if row != NO_ROW}


def stored_positions(table: lakebed.Table) -> dict[str, int]:
    """The positions of the rows with a vector in the base files of a table without log files, by key."""
    snapshot = open_snapshot(open_storage(table.uri))
    rows: dict[str, int] = {}
    for file_slice in snapshot.file_slices():
        assert not file_slice.log_files
        (batch,) = snapshot.reader.read(file_slice, ["id", "emb"])
        ids, has_vector = batch.column("id").to_pylist(), batch.column("emb").is_valid().to_pylist()
        rows |= {key: row for row, (key, valid) in enumerate(zip(ids, has_vector, strict=True)) if valid}
    return rows


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_fold_records_where_rows_are_in_files_that_were_written_again(kind: str) -> None:
    table = indexed_table(kind, properties=SOON)
    assert positions(table) == stored_positions(table)
    table.delete(["k001", "k003", "k006"])
    table.upsert(vector_rows(range(30, 50), ts=2))
    if kind == "mor":
        table.maintenance.compact()
    else:
        table.maintenance.cluster()
    assert positions(table) != stored_positions(table)
    table = fold(table)
    assert positions(table) == stored_positions(table)
    check_search(table)


@pytest.mark.parametrize("records", [True, False])
def test_a_fold_reads_no_more_keys_than_it_may(records: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor", properties=SOON)
    built = stored_index(table).coder.shape.instant
    table.upsert(vector_rows(range(40, 46), ts=2))
    table.upsert(vector_rows(range(1, 2), ts=3))
    table.maintenance.compact()
    snapshot = open_snapshot(open_storage(table.uri))
    bases = [s for s in snapshot.file_slices() if s.base_file is not None and s.base_file.instant > built]
    written_again = sum(snapshot.reader.count(file_slice) for file_slice in bases)
    monkeypatch.setattr(vector_fold, "MAX_MOVED", written_again - (not records))
    table = fold(table)
    assert (positions(table) == stored_positions(table)) is records
    check_search(table)


def test_rows_that_another_writer_deleted_and_moved_are_not_in_the_base_of_later_views() -> None:
    table = indexed_table("cow", properties=SOON)
    last = table.upsert(vector_rows(range(10), ts=2)).instant
    with another_writer():
        table.delete_partitions(["p1"])
        table.maintenance.cluster()
    table = fold(table)
    assert layers(table) == []
    check_search(table, as_of=last)
    assert by_id(nearest(table, probes=1000, rerank=1000)) == by_id(nearest(table, exact=True))
    table.upsert(vector_rows(range(3), ts=3))
    check_search(table)


def test_layers_after_a_commit_that_is_still_written_stay() -> None:
    table = indexed_table("mor", properties=SOON)
    first = table.upsert(vector_rows(range(41, 60), ts=2)).instant
    second = table.upsert(vector_rows(range(51, 70), ts=3)).instant
    assert first is not None
    storage = open_storage(table.uri)
    between = str(int(first) + 1)
    assert first < between < str(second)
    writer = TimelineWriter(storage, load_table_config(storage))
    pending = writer.request(Action.DELTACOMMIT, between)
    snapshot = open_snapshot(storage)
    assert snapshot.metadata is not None
    index = StoredIndex(snapshot.metadata, INDEX)
    records = vector_fold.folded_records(index, snapshot, record_form(9))
    assert records is not None
    keys = [key for batch, _ in records for key in batch.to_pylist()]
    assert keys == sorted(keys)
    assert [key for key in keys if key[0] in "HW"] == [f"H|{BUILD}", f"H|{second}", f"W|{second}"]
    assert f"E|{second}|00000000" in keys
    assert not [key for key in keys if str(first) in key]
    writer.remove_pending(pending)
    records = vector_fold.folded_records(index, open_snapshot(storage), record_form(9))
    assert records is not None
    assert [key for batch, _ in records for key in batch.to_pylist() if key[0] in "HW"] == [f"H|{BUILD}"]


def test_an_index_with_taken_back_commits_in_its_base_is_copied_as_it_is() -> None:
    table = indexed_table("mor", properties=SOON)
    kept = table.upsert(vector_rows(range(41, 60), ts=2)).instant
    table.upsert(vector_rows(range(3), ts=3))
    table = fold(table)
    table.restore(kept)
    table = lakebed.open(table.uri)
    check_search(table)
    table.upsert(vector_rows(range(4), ts=4))
    check_search(fold(table))
    assert table.indexes.verify(INDEX).ok


def test_exact_vectors_stay_where_their_file_group_has_log_files() -> None:
    table = indexed_table("mor", properties=SOON)
    table.upsert(vector_rows(range(1, 2), ts=2))  # a log file in p1
    snapshot = open_snapshot(open_storage(table.uri))
    slices = {s.partition: s for s in snapshot.file_slices()}
    assert slices["p1"].log_files
    assert not slices["p0"].log_files
    old = Groups(pa.array(["p0", "p1", "p1"]), pa.array([slices["p0"].file_id, slices["p1"].file_id, "gone"]))
    vectors = np.arange(16, dtype=np.float32).reshape(4, 4)
    keys = pa.array(["k002", "k001", "k003", "unknown"])
    paths = pa.array(["p0", "p1", "p1", "p1"])
    rows = WrittenRows(
        vectors, keys, row_hashes(keys, paths), np.array([0, 1, 2, 2]), np.arange(4), np.ones(4, np.bool_)
    )
    entries = coded_entries(small_coder(vectors, 1), rows)
    locators = Locators(snapshot, old, snapshot.instant)
    moved = locators.relocated(entries)
    assert moved.keys.to_pylist() == ["k002", "k001", "k003"]
    ids = locators.groups.ids.take(pa.array(moved.groups)).to_pylist()
    assert ids == [slices["p0"].file_id, slices["p1"].file_id, slices["p1"].file_id]
    assert moved.rows.tolist() == [0, 1, 0xFFFFFFFF]
    assert moved.vector_rows.tolist() == [-1, 0, 1]
    assert moved.vectors.tolist() == vectors[1:3].tolist()


def while_it_is_built(monkeypatch: pytest.MonkeyPatch, table: lakebed.Table, change: Callable[[], object]) -> None:
    """Build the index again; the change happens after the entries were made, before they are published."""
    real = vector_indexes.built_index

    def built(*given: Any) -> Any:
        result = real(*given)
        change()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(vector_indexes, "built_index", built)
        table.indexes.rebuild("emb")


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_others_write_and_search_while_an_index_is_built_again(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table(kind, properties=SOON)
    table.upsert(vector_rows(range(10), ts=2))
    instants: list[str | None] = []

    def write() -> None:
        writer = lakebed.open(table.uri)
        instants.append(writer.upsert(vector_rows(range(5, 60), ts=3)).instant)
        instants.append(writer.delete(["k011", "k050"]).instant)
        instants.append(writer.upsert(vector_rows(range(70, 72), ts=4)).instant)
        check_search(writer)
        check_search(table)

    while_it_is_built(monkeypatch, table, write)
    table = lakebed.open(table.uri)
    check_search(table)
    assert layers(table) == [f"{instants[-1]}+0000"]
    assert table.indexes.verify(INDEX).ok
    for instant in instants:
        assert f"{INDEX}: " in index_plan(table, as_of=instant)
        assert by_id(nearest(table, as_of=instant, probes=1000)) == by_id(nearest(table, as_of=instant, exact=True))
    table.upsert(vector_rows(range(80, 83), ts=5))
    check_search(table)
    table = fold(table)
    assert layers(table) == []
    check_search(table)


def test_a_fold_while_an_index_is_built_again_takes_no_commit_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor", properties=SOON)

    def write_and_fold() -> None:
        writer = lakebed.open(table.uri)
        writer.upsert(vector_rows(range(41, 60), ts=3))
        fold(writer)

    while_it_is_built(monkeypatch, table, write_and_fold)
    check_search(lakebed.open(table.uri))
    assert table.indexes.verify(INDEX).ok


def test_a_build_does_not_take_the_place_of_an_index_that_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor", properties=SOON)
    with pytest.raises(CommitConflict, match="dropped or defined anew"):
        while_it_is_built(monkeypatch, table, lambda: lakebed.open(table.uri).indexes.drop("emb"))
    assert INDEX not in {index.name for index in table.indexes.list()}
    table = indexed_table("mor", properties=SOON)
    last = table.upsert(vector_rows(range(3), ts=2)).instant
    assert last is not None
    with pytest.raises(CommitConflict, match="does not fit the table any more"):
        while_it_is_built(monkeypatch, table, lambda: lakebed.open(table.uri).rollback(last))
    check_search(lakebed.open(table.uri))
    table.indexes.rebuild("emb")
    check_search(lakebed.open(table.uri))


def test_rows_of_too_many_commits_meanwhile_are_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor", properties=SOON)

    def write() -> None:
        lakebed.open(table.uri).upsert(vector_rows(range(41, 60), ts=3))
        monkeypatch.setattr(vector_index, "MAX_BYTES", 200)

    while_it_is_built(monkeypatch, table, write)
    monkeypatch.undo()
    table = lakebed.open(table.uri)
    check_search(table, gaps=True)
    table.upsert(vector_rows(range(1, 2), ts=4))
    check_search(table)


def test_an_index_is_not_built_again_before_a_dead_writer_is_rolled_back() -> None:
    table = indexed_table("mor", properties=SOON)
    table.upsert(vector_rows(range(3), ts=2))

    def completes(mutation: Mutation) -> bool:
        return re.fullmatch(r"\.hoodie/timeline/\d+_\d+\.deltacommit", mutation.path) is not None

    with crash_at(completes), pytest.raises(Killed):
        lakebed.open(table.uri).upsert(vector_rows(range(50, 55), ts=3))
    table = lakebed.open(table.uri)
    with pytest.raises(CommitConflict, match="a writer that died is not rolled back"):
        table.indexes.rebuild("emb")
    check_search(table)
    table.upsert(vector_rows(range(60, 62), ts=3))
    table.indexes.rebuild("emb")
    check_search(table)


def test_an_index_that_lost_its_files_is_left_to_repair() -> None:
    table = indexed_table("mor", properties=SOON)
    storage = open_storage(table.uri)
    for info in list(storage.list(f".hoodie/metadata/{INDEX}")):
        storage.delete(info.path)
    table = lakebed.open(table.uri)
    with pytest.raises(CorruptFile, match=r"t\.indexes\.repair"):
        table.indexes.rebuild("emb")
    table.indexes.repair()
    check_search(lakebed.open(table.uri))


def test_an_erasure_passes_over_an_index_that_is_being_built() -> None:
    table = vector_table("mor", properties=SOON)
    table.indexes.create("vector", column="emb", metric="l2", clusters=4, wait=False)

    def completes(mutation: Mutation) -> bool:
        return mutation.path.endswith(".hfile")

    with crash_at(completes), pytest.raises(Killed):
        lakebed.open(table.uri).indexes.build()
    table = lakebed.open(table.uri)
    assert table.indexes.waiting
    table.upsert(vector_rows(range(3), ts=2))
    table.erase(["k001"])
    table = lakebed.open(table.uri)
    assert table.upsert(vector_rows(range(2, 4), ts=3)).updated == 2
    assert by_id(nearest(table)) == by_id(nearest(table, exact=True))
    assert "k001" not in {row["id"] for row in nearest(table)}


def test_a_moved_entry_is_for_each_file_group_that_has_its_key() -> None:
    table = vector_table("cow", properties={**SOON, "hoodie.parquet.small.file.limit": 0})
    table.insert(vector_rows(range(1, 2), ts=2))  # the key is there already
    snapshot = open_snapshot(open_storage(table.uri))
    having = {s.file_id for s in snapshot.file_slices() if s.partition == "p1"}
    assert len(having) == 2
    keys = pa.array(["k001", "k003"])
    vectors = np.eye(4, dtype=np.float32)[:2]
    rows = WrittenRows(vectors, keys, row_hashes(keys, "p1"), np.array([0, 0]), np.arange(2))
    locators = Locators(snapshot, Groups(pa.array(["p1"]), pa.array(["gone"])), snapshot.instant)
    moved = locators.relocated(coded_entries(small_coder(vectors, 1), rows))
    assert moved.keys.to_pylist() == ["k001", "k001", "k003"]
    ids = locators.groups.ids.take(pa.array(moved.groups)).to_pylist()
    assert set(ids[:2]) == having
    assert ids[2] in having
