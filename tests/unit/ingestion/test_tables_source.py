"""Another table as a source: rows in their latest state or each change, by the completion time of its commits."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import lakebed
from lakebed.errors import InvalidOption, TableNotFound


@pytest.fixture
def folder() -> str:
    return f"memory://tables-source/{uuid.uuid4().hex}"


def job_of(folder: str, create: dict[str, Any] | None = None, **source: Any) -> dict[str, Any]:
    create = {"key": "id", "ordering": "at", "type": "mor", **(create or {})}
    return {
        "source": {"kind": "table", "uri": f"{folder}/from", **source},
        "target": {"uri": f"{folder}/to", "create": create},
    }


def create(folder: str, **more: Any) -> lakebed.Table:
    data = {"id": [1], "text": ["a"], "at": [1]}
    return lakebed.create(f"{folder}/from", data, key="id", ordering="at", **more)


def rows(table: lakebed.Table | str) -> list[tuple[Any, ...]]:
    t = lakebed.open(table) if isinstance(table, str) else table
    return sorted(tuple(row.values()) for row in t.to_arrow().select(["id", "text", "at"]).to_pylist())


def put(t: lakebed.Table, *values: tuple[int, str, int]) -> None:
    ids, texts, ats = zip(*values, strict=True)
    t.upsert({"id": list(ids), "text": list(texts), "at": list(ats)})


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_rows_of_new_commits_are_read_and_the_checkpoint_is_a_time_of_the_source(
    folder: str, version: int, kind: str
) -> None:
    t = create(folder, table_version=version, type=kind)
    assert lakebed.ingest(job_of(folder), once=True).commits == 0
    put(t, (1, "a", 1), (2, "b", 1))
    result = lakebed.ingest(job_of(folder), once=True)
    last = t.timeline.last
    assert last is not None
    assert (result.rows, result.checkpoint) == (2, last.completion_time or last.time)
    put(t, (2, "B", 2), (3, "c", 1))
    t.maintenance.compact() if kind == "mor" else None
    assert lakebed.ingest(job_of(folder), once=True).rows == 2
    assert rows(f"{folder}/to") == rows(t) == [(1, "a", 1), (2, "B", 2), (3, "c", 1)]
    assert lakebed.ingest(job_of(folder), once=True).rows == 0


def test_commits_are_read_so_many_a_round(folder: str) -> None:
    t = create(folder)
    for n in range(3):
        put(t, (n, "x", n))
    events: list[lakebed.IngestEvent] = []
    result = lakebed.ingest(job_of(folder, max_commits=1), once=True, on_event=events.append)
    assert (result.commits, result.rows) == (3, 3)
    assert [event.lag["commits"] for event in events] == [2, 1, 0]
    assert rows(f"{folder}/to") == rows(t)


def test_columns_a_condition_and_the_start_select(folder: str) -> None:
    t = create(folder)
    put(t, (1, "a", 1), (2, "b", 5))
    lakebed.ingest(job_of(folder, columns=["id", "at"], where="at > 2"), once=True)
    assert lakebed.open(f"{folder}/to").to_arrow().to_pylist() == [{"id": 2, "at": 5}]
    latest = job_of(f"{folder}/x", start="latest") | {"source": job_of(folder, start="latest")["source"]}
    lakebed.create(latest["target"]["uri"], t.schema, key="id")
    assert lakebed.ingest(latest, once=True).rows == 0
    put(t, (3, "c", 1))
    assert lakebed.ingest(latest, once=True).rows == 1


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_each_change_is_read_with_deletes(folder: str, kind: str) -> None:
    t = create(folder, type=kind, properties={"hoodie.table.cdc.enabled": True})
    put(t, (1, "a", 1), (2, "b", 1))
    assert lakebed.ingest(job_of(folder, query="cdc"), once=True).rows == 2
    put(t, (2, "B", 2))
    t.delete([1])
    put(t, (3, "c", 1))
    assert lakebed.ingest(job_of(folder, query="cdc"), once=True).rows == 3
    assert rows(f"{folder}/to") == rows(t) == [(2, "B", 2), (3, "c", 1)]


def test_a_source_that_is_not_there_or_keeps_no_changes_is_named(folder: str) -> None:
    with pytest.raises(TableNotFound, match="from"):
        lakebed.ingest(job_of(folder), once=True)
    create(folder)
    put(lakebed.open(f"{folder}/from"), (1, "a", 1))
    with pytest.raises(InvalidOption, match="keeps no change log"):
        lakebed.ingest(job_of(folder, query="cdc"), once=True)
    for settings in ({"query": "all"}, {"query": "cdc", "where": "id > 1"}, {"max_commits": 0}):
        with pytest.raises(InvalidOption, match=r"\[source\]"):
            lakebed.ingest(job_of(folder, **settings), once=True)


def test_checkpoints_of_hudi_that_name_a_time_are_understood(folder: str) -> None:
    t = create(folder)
    put(t, (1, "a", 1))
    first = t.timeline.last
    put(t, (2, "b", 1))
    assert first is not None
    for number, text in enumerate(
        (f"resumeFromInstantRequestTime:{first.time}", f"resumeFromInstantCompletionTime:{first.completion_time}")
    ):
        job = job_of(folder) | {"target": {"uri": f"{folder}/{number}", "create": {"key": "id"}}}
        assert lakebed.ingest(job, once=True, checkpoint=text).rows == 1
        assert rows(f"{folder}/{number}") == [(2, "b", 1)]
