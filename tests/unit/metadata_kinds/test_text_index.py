"""Text indexes in the metadata table: every verb and service leaves searches by them exact, and so do writers that do
not know them."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, SchemaConflict, UnsupportedFeature
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import text_index
from lakebed.metadata_kinds.text_store import StoredTextIndex
from lakebed.metadata_kinds.vector_coverage import Coverage
from lakebed.operations import advice
from lakebed.operations.advice import indexes_to_rebuild
from lakebed.storage import open_storage
from support.text_model import best_rows
from support.vector_tables import another_writer

INDEX = "text_index_body"
SCHEMA = pa.schema([("id", pa.string()), ("body", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
COLORS = ["red", "green", "blue", "grey"]
_numbers = itertools.count()


def row(n: int, body: str | None, ts: int = 1) -> dict[str, Any]:
    return {"id": f"k{n:03d}", "body": body, "ts": ts, "part": f"p{n % 2}"}


def rows_of(numbers: range, ts: int = 1) -> list[dict[str, Any]]:
    """Rows with some colors; each tenth has no text."""
    return [row(n, f"{COLORS[n % 4]} {COLORS[n % 3]} n{n + ts}" if n % 10 else None, ts) for n in numbers]


def indexed(kind: str, **given: Any) -> lakebed.Table:
    options: dict[str, Any] = {"key": "id", "partition_by": "part", "type": kind, "ordering": "ts", **given}
    table = lakebed.create(f"memory://texts/{next(_numbers)}", SCHEMA, **options)
    table.upsert(rows_of(range(40)))
    table.indexes.create("text", column="body")
    return table


def check(table: lakebed.Table, *, gaps: bool = False, **options: Any) -> None:
    """The index answers, and finds what the model finds."""
    rows = table.scan(as_of=options.get("as_of")).to_arrow().to_pylist()
    for query in ("red blue", "grey n3"):
        search = table.search(text=query, k=100, **options)
        assert f"by index    {INDEX}" in str(search.explain())
        found = search.to_arrow().to_pylist()
        expected = best_rows(rows, query)
        assert [(r["id"], r["body"], r["_score"]) for r in found] == [
            (r["id"], r["body"], pytest.approx(score, rel=1e-6)) for score, r in expected
        ]
        assert found == table.search(text=query, k=100, exact=True, **options).to_arrow().to_pylist()
    assert table.indexes.verify(INDEX).ok is not gaps


@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_every_verb_keeps_the_index_right(kind: str, ordering: str | None) -> None:
    table = indexed(kind, ordering=ordering)
    check(table)
    table.upsert(rows_of(range(30, 60), ts=2))
    check(table)
    table.upsert([row(1, "purple", 3)])
    assert table.search(text="purple").to_arrow()["id"].to_pylist() == ["k001"]
    table.upsert([row(1, None, 4), row(2, "", 4)])
    assert table.search(text="purple").count() == 0
    table.delete(["k003", "k005"])
    check(table)
    table.upsert([row(3, "purple red", 5)])
    table.merge([{"id": "k007", "ts": 9}], on="id").when_matched_update({"ts": "s.ts"}).execute()
    check(table)
    table.insert_overwrite([row(n, f"red n{n}", 6) for n in range(100, 120, 2)])
    check(table)
    table.delete_partitions(["p1"])
    check(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_services_move_rows_and_the_index_finds_them(kind: str) -> None:
    table = indexed(kind)
    table.upsert(rows_of(range(10, 50), ts=2))
    if kind == "mor":
        table.maintenance.compact()
        check(table)
    table.maintenance.cluster()
    check(table)
    table.upsert(rows_of(range(5), ts=3))
    table.maintenance.clean()
    check(table)
    table.indexes.rebuild("body")
    check(table)


def test_a_row_that_moves_to_another_partition_leaves_its_words() -> None:
    for index in ("global_simple", "record"):
        for kind in ("cow", "mor"):
            table = indexed(kind, index=index)
            table.upsert([{**row(1, "purple", 5), "part": "p0"}])
            assert table.search(text="purple").to_arrow()["part"].to_pylist() == ["p0"]
            check(table)


def test_a_late_row_that_loses_does_not_count() -> None:
    table = indexed("mor")
    table.upsert([row(1, "purple", 9)])
    table.upsert([row(1, "orange", 5)])
    check(table)
    assert table.search(text="orange").count() == 0
    assert table.search(text="purple").count() == 1


def test_a_partial_update_of_other_columns_changes_no_words() -> None:
    for kind in ("cow", "mor"):
        table = indexed(kind)
        table.upsert([{"id": "k001", "ts": 7, "part": "p1"}], partial=True)
        check(table)


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_commits_of_a_writer_that_does_not_know_the_index_are_read_until_the_next_write(kind: str) -> None:
    table = indexed(kind)
    with another_writer():
        table.upsert([row(1, "purple", 3)])
        table.delete(["k003"])
    check(table, gaps=True)
    assert table.search(text="purple").count() == 1
    table.upsert(rows_of(range(60, 62)))
    check(table)
    assert table.search(text="purple").count() == 1


def test_repair_reads_what_another_writer_wrote() -> None:
    table = indexed("cow")
    with another_writer():
        table.upsert(rows_of(range(20, 25), ts=3))
        table.delete(["k030", "k031"])
    check(table, gaps=True)
    assert not table.indexes.repair(INDEX).ok
    check(table)


def test_a_damaged_index_is_built_again() -> None:
    table = indexed("mor")
    storage = open_storage(table.uri)
    for info in list(storage.list(f".hoodie/metadata/{INDEX}")):
        storage.delete(info.path)
    repaired = lakebed.open(table.uri).indexes.repair()
    assert repaired.of(INDEX)["problem"].to_pylist() == ["damaged"]
    check(lakebed.open(table.uri))


def test_time_travel_goes_by_the_layers_of_that_time() -> None:
    table = indexed("mor")
    instants = [table.upsert(rows_of(range(n, n + 10), ts=n + 2)).instant for n in range(3)]
    table.delete(["k002"])
    for instant in instants:
        rows = table.scan(as_of=instant).to_arrow().to_pylist()
        found = table.search(text="red", k=100, as_of=instant)
        assert INDEX in str(found.explain())
        assert found.to_arrow()["id"].to_pylist() == [r["id"] for _, r in best_rows(rows, "red")]
    table.indexes.rebuild("body")
    assert f"by index    {INDEX}" not in str(table.search(text="red", as_of=instants[0]).explain())


def test_what_is_rolled_back_or_restored_is_not_in_the_index() -> None:
    table = indexed("mor")
    retained = table.upsert(rows_of(range(3), ts=2)).instant
    gone = table.upsert([row(1, "purple", 9)]).instant
    table.rollback(gone)
    check(table)
    table.upsert([row(3, "purple", 9)])
    table.restore(retained)
    table = lakebed.open(table.uri)
    check(table)
    assert table.search(text="purple").count() == 0


def test_the_words_of_an_erased_row_are_gone() -> None:
    table = indexed("mor")
    table.upsert([row(1, "purple", 9)])
    table.erase(["k001"])
    check(table)
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    text = StoredTextIndex(snapshot.metadata, INDEX).in_view(snapshot, Coverage())
    every = [word for layer in text.layers for words, *_ in layer.every_entry() for word in words.to_pylist()]
    assert "red" in every
    assert "purple" not in every
    assert b"purple" not in b"".join(
        bytes(open_storage(table.uri).read(info.path)) for info in open_storage(table.uri).list(".hoodie/metadata")
    )


def test_an_index_is_listed_dropped_and_made_of_an_empty_table() -> None:
    table = lakebed.create("memory://texts/empty", SCHEMA, key="id")
    table.indexes.create("words", column="body", kind="text_index")
    listed = [(i.name, i.kind, i.fields) for i in table.indexes.list()]
    assert ("text_index_words", "text index", ("body",)) in listed
    assert table.search(text="red").count() == 0
    table.upsert(rows_of(range(5)))
    found = table.search(text="red", columns=["id"])
    assert "text_index_words" in str(found.explain())
    assert found.to_arrow()["id"].to_pylist() == [r["id"] for _, r in best_rows(rows_of(range(5)), "red")]
    table.indexes.drop("words")
    assert "text_index_words" not in {index.name for index in table.indexes.list()}
    assert found.to_arrow() == table.search(text="red", columns=["id"], text_column="body").to_arrow()


def test_a_planned_index_is_built_while_others_write() -> None:
    table = indexed("mor")
    table.indexes.drop("body")
    table.indexes.create("text", column="body", wait=False)
    table.upsert(rows_of(range(3), ts=2))
    table.indexes.build()
    table = lakebed.open(table.uri)
    table.upsert(rows_of(range(2), ts=3))
    check(table)


def test_what_cannot_be_indexed_is_refused_and_nothing_changes() -> None:
    table = indexed("cow")
    before = [index.name for index in table.indexes.list()]
    with pytest.raises(InvalidOption, match="no text"):
        table.indexes.create("text", column="ts")
    with pytest.raises(InvalidOption, match="no such column"):
        table.indexes.create("text", column="bodyy")
    with pytest.raises(InvalidOption, match="function"):
        table.indexes.create("words", column="body", kind="text_index", function="lower")
    with pytest.raises(InvalidOption, match="no option 'stemmer'"):
        table.indexes.create("words", column="body", kind="text_index", function_options={"stemmer": "english"})
    with pytest.raises(InvalidOption, match="no vector index"):
        table.indexes.create("text", column="body", bits=4)
    with pytest.raises(InvalidOption, match="already"):
        table.indexes.create("text", column="body")
    with pytest.raises(InvalidOption, match="no vector index or text index 'other'"):
        table.indexes.rebuild("other")
    assert [index.name for index in table.indexes.list()] == before
    old = lakebed.create(f"memory://texts/{next(_numbers)}", SCHEMA, key="id", table_version=6)
    with pytest.raises(UnsupportedFeature, match="version 6"):
        old.indexes.create("text", column="body")
    with pytest.raises(SchemaConflict, match=INDEX):
        table.columns.rename("body", "other")
    with pytest.raises(SchemaConflict, match=INDEX):
        table.columns.drop("body")


def test_rows_of_a_commit_beyond_the_bound_are_read_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed("cow")
    monkeypatch.setattr(text_index, "MAX_BYTES", 200)
    table.upsert(rows_of(range(20), ts=2))
    check(table, gaps=True)
    table.upsert(rows_of(range(50, 51), ts=2))
    check(table, gaps=True)
    with pytest.raises(UnsupportedFeature, match="takes more"):
        table.indexes.rebuild("body")
    monkeypatch.undo()
    table = lakebed.open(table.uri)
    assert table.search(text="red", text_column="body").to_arrow()["id"].to_pylist() == [
        r["id"] for _, r in best_rows(table.to_arrow().to_pylist(), "red")[:10]
    ]


def test_a_clustering_after_a_commit_that_is_not_covered_takes_its_rows_along(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed("cow")
    with another_writer():
        table.upsert([row(1, "purple", 3)])
    monkeypatch.setattr(text_index, "MAX_BYTES", 1)
    table.maintenance.cluster()
    check(table, gaps=True)
    assert table.search(text="purple").count() == 1


def test_an_index_of_which_few_entries_count_is_built_again_by_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    table = indexed("mor")

    def due() -> list[str]:
        return list(indexes_to_rebuild(open_snapshot(open_storage(table.uri))))

    monkeypatch.setattr(advice, "MIN_ROWS", 10)
    assert due() == []
    table.upsert(rows_of(range(3), ts=2))
    assert due() == []
    table.upsert(rows_of(range(15), ts=3))
    assert due() == [INDEX]
    events = list(lakebed.maintenance.run(table.uri, once=True))
    assert any(f"{INDEX} was built again" in str(event) for event in events)
    assert due() == []
    check(lakebed.open(table.uri))
