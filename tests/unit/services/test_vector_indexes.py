"""Vector indexes are built again when they are due, and their recall is measured."""

from __future__ import annotations

import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.metadata.lookups import open_snapshot
from lakebed.operations import advice
from lakebed.operations.advice import indexes_to_rebuild
from lakebed.storage import open_storage
from support.vector_tables import another_writer, indexed_table, stored_index, vector_rows, vector_table

INDEX = "vector_index_emb"


def due(table: lakebed.Table) -> list[str]:
    return list(indexes_to_rebuild(open_snapshot(open_storage(table.uri))))


def test_an_index_with_many_new_rows_is_built_again_by_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    table = vector_table("mor")
    table.indexes.create("vector", column="emb", metric="l2", clusters=1)
    table.upsert(vector_rows(range(40, 50)))
    assert due(table) == []
    table.upsert(vector_rows(range(50, 80)))
    assert due(table) == []  # few rows are compared in no time
    assert "built again" not in str(table.indexes.advise())
    monkeypatch.setattr(advice, "MIN_ROWS", 10)
    assert due(table) == [INDEX]
    reason = f"{INDEX} is to be built again: 36 rows of 72 came after it was built, and its largest cluster has 72"
    assert reason in str(table.indexes.advise())
    lines = [str(f.text) for f in table.maintenance.doctor().findings if "indexing" in f.text]
    assert lines == [f"indexing is due: {reason}; no write runs it"]
    planned = list(lakebed.maintenance.run(table.uri, once=True, dry_run=True))
    assert any(reason in str(event) for event in planned)
    events = list(lakebed.maintenance.run(table.uri, once=True))
    assert any(f"{INDEX} was built again" in str(event) for event in events)
    assert due(table) == []
    assert table.indexes.verify(INDEX).ok


def test_an_index_that_lacks_archived_commits_is_built_again() -> None:
    options = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 1}
    table = vector_table("cow", properties={**options, "hoodie.clean.automatic": False})
    table.indexes.create("vector", column="emb", metric="l2")
    with another_writer():
        for turn in range(7):
            table.upsert(vector_rows(range(turn, turn + 3), ts=3 + turn))
        table.maintenance.clean()
        table.maintenance.archive()
    assert due(lakebed.open(table.uri)) == [INDEX]


def test_recall_is_the_share_of_the_nearest_rows_that_searches_find() -> None:
    table = vector_table("cow")
    table.indexes.create("vector", column="emb", metric="l2")
    recall = table.indexes.recall("emb", rows=20, k=3)
    assert (recall.index, recall.k) == (INDEX, 3)
    assert 0 < recall.queries <= 20
    assert recall.recall == 1.0
    assert recall.to_dict()["recall"] == 1.0
    assert str(recall).startswith(f"{INDEX}: 1.000 of the 3 nearest rows, over")


def test_names_that_there_are_not_are_refused() -> None:
    table = vector_table("cow")
    for call in (table.indexes.recall, table.indexes.rebuild):
        with pytest.raises(InvalidOption, match="no vector index"):
            call("emb")
    with pytest.raises(InvalidOption, match="rows"):
        table.indexes.recall("emb", rows=0)


def test_new_rows_count_over_folds_until_the_next_build() -> None:
    table = indexed_table("mor")
    assert stored_index(table).coder.shape.new_rows == 0
    for turn in range(2):
        table.upsert(vector_rows(range(40 + turn * 4, 44 + turn * 4), ts=2))
        list(table.maintenance.run(once=True, options={"hoodie.metadata.compact.max.delta.commits": 1}))
    assert stored_index(table).coder.shape.new_rows == 7  # k040 has no vector
    snapshot = open_snapshot(open_storage(table.uri))
    statistics = stored_index(table).layered(snapshot).statistics()
    assert (statistics.rows, statistics.new_rows) == (43, 7)
    table.indexes.rebuild("emb")
    assert (stored_index(table).coder.shape.new_rows, stored_index(table).coder.shape.generation) == (0, 0)
