"""Vector indexes in the metadata table: every verb and service leaves searches by them right, and so do writers that do
not know them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.format.hfile import blocks
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import vector_index
from lakebed.metadata_kinds.vector_store import StoredIndex
from lakebed.metadata_records import group_files
from lakebed.metadata_records.definitions import LOCAL_DEFINITIONS_PROPERTY, load_definitions
from lakebed.properties.file import load_table_config, update_table_config
from lakebed.storage import open_storage
from support.vector_tables import (
    EVERY_CLUSTER,
    INDEX,
    QUERY,
    another_writer,
    by_id,
    check_search,
    index_plan,
    indexed_table,
    nearest,
    vector_of,
    vector_rows,
    vector_table,
)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_verb_keeps_the_index_right(kind: str) -> None:
    table = indexed_table(kind)
    check_search(table)
    table.upsert(vector_rows(range(30, 60), ts=2))
    check_search(table)
    table.upsert([{"id": "k001", "emb": QUERY, "name": "near", "ts": 3, "part": "p1"}])
    assert nearest(table, 1)[0]["id"] == "k001"
    table.upsert([{"id": "k001", "emb": None, "name": "none", "ts": 4, "part": "p1"}])
    assert "k001" not in {row["id"] for row in nearest(table, **EVERY_CLUSTER)}
    table.delete(["k003", "k005"])
    check_search(table)
    assert not {"k003", "k005"} & {row["id"] for row in nearest(table, **EVERY_CLUSTER)}
    table.upsert([{"id": "k003", "emb": QUERY, "name": "again", "ts": 5, "part": "p1"}])
    assert nearest(table, 1)[0]["id"] == "k003"
    table.merge([{"id": "k007", "name": "merged"}], on="id").when_matched_update({"name": "s.name"}).execute()
    check_search(table)
    table.insert_overwrite(vector_rows(range(100, 120, 2), ts=6))
    check_search(table)
    assert {row["part"] for row in nearest(table, **EVERY_CLUSTER)} == {"p0", "p1"}
    table.delete_partitions(["p1"])
    check_search(table)
    assert table.indexes.verify(INDEX).ok


@pytest.mark.parametrize("bound", [100, 1 << 20])
def test_files_of_the_index_have_no_codec_and_blocks_of_their_own_size(
    bound: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_files, "_SMALL_BLOCK_BYTES", bound)
    table = indexed_table("mor", str(tmp_path / "table"))
    folder = Path(table.uri, ".hoodie", "metadata", INDEX)
    (base,) = folder.glob("*.hfile")
    data = base.read_bytes()
    trailer = blocks.read_trailer(data[-blocks.TRAILER_BYTES :], len(data))
    assert (trailer.codec, trailer.data_index_count > 1) == (blocks.NONE, bound == 100)
    table.upsert(vector_rows(range(5), ts=2))
    (log,) = (path for path in folder.glob(".*.log.*") if path.stat().st_size > 500)
    stored = log.read_bytes()
    end = stored.rindex(b'TRABLK"$') + blocks.TRAILER_BYTES
    assert blocks.read_trailer(stored[end - blocks.TRAILER_BYTES : end], end).codec == blocks.NONE
    check_search(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_services_move_rows_and_the_index_finds_them(kind: str) -> None:
    table = indexed_table(kind)
    table.upsert(vector_rows(range(10, 50), ts=2))
    if kind == "mor":
        table.maintenance.compact()
        check_search(table)
    table.maintenance.cluster()
    check_search(table)
    table.upsert(vector_rows(range(5), ts=3))
    check_search(table)
    table.maintenance.clean()
    table.indexes.rebuild("emb")
    check_search(table)
    assert table.indexes.verify(INDEX).ok


def test_a_late_row_that_loses_does_not_hide_the_one_that_wins() -> None:
    table = indexed_table("mor")
    table.upsert([{"id": "k001", "emb": QUERY, "name": "wins", "ts": 9, "part": "p1"}])
    table.upsert([{"id": "k001", "emb": vector_of(500), "name": "loses", "ts": 5, "part": "p1"}])
    row = table.search(QUERY, 1, metric="l2", columns=["id", "name"]).to_arrow().to_pylist()[0]
    assert (row["id"], row["name"], row["_hudi_distance"]) == ("k001", "wins", 0.0)
    table.delete(["k001"])
    check_search(table)


def test_a_partial_update_of_other_columns_changes_nothing() -> None:
    table = indexed_table("mor")
    before = entries(table)
    table.upsert([{"id": "k001", "ts": 7, "part": "p1", "name": "other"}], partial=True)
    check_search(table)
    assert entries(table) in (before, before + 1)  # a table that fills the columns in writes the vector again
    assert table.indexes.verify(INDEX).ok


def entries(table: lakebed.Table) -> int:
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    return StoredIndex(snapshot.metadata, INDEX).layered(snapshot).statistics().rows


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_commits_of_a_writer_that_does_not_know_the_index_are_searched_exactly_until_the_next_write(kind: str) -> None:
    table = indexed_table(kind)
    with another_writer():
        table.upsert([{"id": "k001", "emb": QUERY, "name": "x", "ts": 3, "part": "p1"}])
    check_search(table, gaps=True)
    assert nearest(table, 1, probes=1)[0]["id"] == "k001"
    differences = table.indexes.verify(INDEX).of(INDEX)
    instant = table.timeline.to_arrow()["time"].to_pylist()[-1]
    assert f"commit {instant}" in differences["what"].to_pylist()
    table.upsert(vector_rows(range(60, 62)))
    check_search(table)
    assert nearest(table, 1, probes=1)[0]["id"] == "k001"
    assert table.indexes.verify(INDEX).ok


def test_a_clustering_by_another_writer_takes_its_rows_along() -> None:
    table = indexed_table("cow")
    with another_writer():
        table.upsert([{"id": "k001", "emb": QUERY, "name": "x", "ts": 3, "part": "p1"}])
        table.maintenance.cluster()
    check_search(table, gaps=True)
    assert nearest(table, 1, probes=1)[0]["id"] == "k001"


def test_repair_reads_what_another_writer_wrote() -> None:
    table = indexed_table("mor")
    with another_writer():
        table.upsert(vector_rows(range(20, 25), ts=3))
        table.delete(["k030"])
    check_search(table, gaps=True)
    assert not table.indexes.repair(INDEX).ok
    assert table.indexes.verify(INDEX).ok
    check_search(table)


def test_a_damaged_index_is_built_again() -> None:
    table = indexed_table("mor")
    storage = open_storage(table.uri)
    for info in list(storage.list(f".hoodie/metadata/{INDEX}")):
        storage.delete(info.path)
    repaired = lakebed.open(table.uri).indexes.repair()
    assert repaired.of(INDEX)["problem"].to_pylist() == ["damaged"]
    check_search(lakebed.open(table.uri))


def test_archived_commits_of_another_writer_leave_exact_search_until_a_rebuild() -> None:
    options = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
    table = indexed_table(
        "cow", properties={**options, "hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
    )
    with another_writer():
        for turn in range(6):
            table.upsert(vector_rows(range(turn, turn + 3), ts=3 + turn))
        table.maintenance.clean()
        table.maintenance.archive()
    table = lakebed.open(table.uri)
    assert table.timeline.to_arrow().num_rows < 9
    assert INDEX not in index_plan(table)
    assert by_id(nearest(table, **EVERY_CLUSTER)) == by_id(nearest(table, exact=True))
    table.upsert(vector_rows(range(2), ts=20))
    assert INDEX not in index_plan(table)
    table.indexes.rebuild("emb")
    check_search(table)


def test_time_travel_goes_by_the_layers_of_that_time() -> None:
    table = vector_table("mor")
    earlier = table.timeline.to_arrow()["time"].to_pylist()[-1]
    table.indexes.create("vector", column="emb", metric="l2", clusters=4)
    instants = [table.upsert(vector_rows(range(n, n + 10), ts=n + 2)).instant for n in range(3)]
    table.delete(["k002"])
    for instant in (earlier, *instants):
        check_search(table, as_of=instant)
    table.indexes.rebuild("emb")
    assert INDEX not in index_plan(table, as_of=instants[0])
    assert by_id(nearest(table, as_of=instants[0], **EVERY_CLUSTER)) == by_id(
        nearest(table, as_of=instants[0], exact=True)
    )


def test_what_is_rolled_back_or_restored_is_not_in_the_index() -> None:
    table = indexed_table("mor")
    kept = table.upsert(vector_rows(range(3), ts=2)).instant
    gone = table.upsert([{"id": "k001", "emb": QUERY, "name": "x", "ts": 9, "part": "p1"}]).instant
    table.rollback(gone)
    check_search(table)
    assert table.indexes.verify(INDEX).ok
    table.upsert([{"id": "k003", "emb": QUERY, "name": "x", "ts": 9, "part": "p1"}])
    table.indexes.rebuild("emb")
    table.restore(kept)
    table = lakebed.open(table.uri)
    check_search(table)
    assert table.indexes.verify(INDEX).ok


def test_an_erased_row_leaves_no_code() -> None:
    table = indexed_table("mor")
    table.upsert([{"id": "k001", "emb": QUERY, "name": "x", "ts": 9, "part": "p1"}])
    table.erase(["k001"])
    check_search(table)
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    entries = StoredIndex(snapshot.metadata, INDEX).layered(snapshot).entries()
    keys = [key for part, _ in entries for key in part.keys.to_pylist()]
    assert "k002" in keys
    assert "k001" not in keys


@pytest.mark.parametrize("element", ["float", "double", "int8"])
@pytest.mark.parametrize("metric", ["cosine", "l2", "dot_product"])
def test_every_element_and_metric_is_indexed(element: Any, metric: Any) -> None:
    schema = pa.schema([("id", pa.int64()), ("emb", lakebed.vector(3, element))])
    table = lakebed.create(f"memory://elements/{element}-{metric}", schema, key="id")
    table.upsert([{"id": n, "emb": [n % 7, n % 5 - 2, n % 3]} for n in range(50)])
    table.indexes.create("vector", column="emb", metric=metric, bits=4)
    found = table.search([1, 2, 3], 50, metric=metric, **EVERY_CLUSTER)
    assert INDEX in str(found.explain())
    exact = table.search([1, 2, 3], 50, metric=metric, exact=True).to_arrow()
    assert found.to_arrow()["_hudi_distance"].to_pylist() == exact["_hudi_distance"].to_pylist()
    other = "cosine" if metric == "l2" else "l2"
    assert INDEX not in str(table.search([1, 2, 3], 5, metric=other).explain())


def test_an_index_is_listed_dropped_and_made_of_an_empty_table() -> None:
    schema = pa.schema([("id", pa.int64()), ("emb", lakebed.vector(2))])
    table = lakebed.create("memory://elements/empty", schema, key="id")
    table.indexes.create("near", column="emb", kind="vector_index", metric="l2")
    assert [(i.name, i.kind, i.fields) for i in table.indexes.list()][-1] == (
        "vector_index_near",
        "vector index",
        ("emb",),
    )
    table.upsert({"id": [1, 2], "emb": [[1.0, 0.0], [0.0, 1.0]]})
    found = table.search([1.0, 0.1], 1, metric="l2", columns=["id"])
    assert "vector_index_near" in str(found.explain())
    assert found.to_arrow()["id"].to_pylist() == [1]
    table.indexes.drop("near")
    assert table.search([1.0, 0.1], 1, metric="l2", columns=["id"]).to_arrow()["id"].to_pylist() == [1]
    assert "vector_index_near" not in {index.name for index in table.indexes.list()}


def definitions(table: lakebed.Table) -> set[str]:
    storage = open_storage(table.uri)
    names = load_definitions(storage, load_table_config(storage))
    return {name for name in names if name.startswith("vector_index_")}


def test_an_index_that_is_taken_off_leaves_no_definition() -> None:
    table = indexed_table("mor")
    table.indexes.create("planned", column="emb", kind="vector_index", metric="cosine", wait=False)
    assert {INDEX, "vector_index_planned"} <= definitions(table)
    table.indexes.drop("planned")
    assert definitions(table) == {INDEX}
    table.indexes.drop("emb")
    assert definitions(table) == set()
    table.indexes.create("vector", column="emb", metric="l2", clusters=4)
    storage = open_storage(table.uri)
    text = load_table_config(storage).properties[LOCAL_DEFINITIONS_PROPERTY]
    changed = {LOCAL_DEFINITIONS_PROPERTY: text.replace('["emb"]', '["name"]')}
    update_table_config(storage, changed, lambda: True)  # as if its column was no vector any more
    table = lakebed.open(table.uri)
    with pytest.raises(UnsupportedFeature, match=INDEX):
        table.upsert(vector_rows(range(3), ts=2), options={"lakebed.metadata.on_unknown": "refuse"})
    assert definitions(table) == {INDEX}
    table.upsert(vector_rows(range(3), ts=2), options={"lakebed.metadata.on_unknown": "drop"})
    assert definitions(table) == set()
    assert LOCAL_DEFINITIONS_PROPERTY not in load_table_config(storage).properties
    assert by_id(nearest(table)) == by_id(nearest(table, exact=True))


def test_a_planned_index_is_built_while_others_write() -> None:
    table = vector_table("mor")
    table.indexes.create("vector", column="emb", metric="l2", clusters=4, wait=False)
    table.upsert(vector_rows(range(3), ts=2))
    assert INDEX not in index_plan(table)
    table.indexes.build()
    table = lakebed.open(table.uri)
    assert by_id(nearest(table, **EVERY_CLUSTER)) == by_id(nearest(table, exact=True))
    table.upsert(vector_rows(range(2), ts=3))
    check_search(table)


def test_what_cannot_be_indexed_is_refused_and_nothing_changes() -> None:
    table = vector_table("cow")
    before = [index.name for index in table.indexes.list()]
    with pytest.raises(InvalidOption, match="no vector"):
        table.indexes.create("vector", column="name")
    with pytest.raises(InvalidOption, match="no such column"):
        table.indexes.create("vector", column="embb")
    with pytest.raises(InvalidOption, match="metric"):
        table.indexes.create("vector", column="emb", metric="hamming")
    with pytest.raises(InvalidOption, match="bits"):
        table.indexes.create("vector", column="emb", bits=3)
    with pytest.raises(InvalidOption, match="clusters"):
        table.indexes.create("vector", column="emb", clusters=0)
    with pytest.raises(InvalidOption, match="function"):
        table.indexes.create("near", column="emb", kind="vector_index", function="lower")
    with pytest.raises(InvalidOption, match="no vector index"):
        table.indexes.create("by_name", column="name", metric="l2")
    with pytest.raises(UnsupportedFeature, match="version 6"):
        vector_table("cow", table_version=6).indexes.create("vector", column="emb")
    assert [index.name for index in table.indexes.list()] == before
    table.indexes.create("vector", column="emb")
    with pytest.raises(InvalidOption, match="already"):
        table.indexes.create("vector", column="emb")
    with pytest.raises(SchemaConflict, match=INDEX):
        table.columns.rename("emb", "other")
    with pytest.raises(SchemaConflict, match=INDEX):
        table.columns.drop("emb")


def test_rows_of_a_commit_beyond_the_bound_are_searched_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed_table("mor")
    monkeypatch.setattr(vector_index, "MAX_BYTES", 200)
    table.upsert(vector_rows(range(20), ts=2))
    check_search(table, gaps=True)
    table.upsert(vector_rows(range(50, 51), ts=2))
    check_search(table, gaps=True)
    table.indexes.rebuild("emb")
    table = lakebed.open(table.uri)
    check_search(table)
    assert by_id(nearest(table, **EVERY_CLUSTER)) == by_id(nearest(table, exact=True))
