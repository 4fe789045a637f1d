"""`lakebed.write.skip.unchanged`: an upsert leaves rows that change nothing unwritten, and counts them as unchanged."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.operations.result import WriteResult
from lakebed.table import Table

SKIP = {"lakebed.write.skip.unchanged": True}
INDEXES = [
    ("cow", "bucket"),
    ("cow", "bloom"),
    ("cow", "record"),
    ("cow", "bucket_groups"),
    ("mor", "bucket"),
    ("mor", "consistent"),
    ("mor", "global_simple"),
    ("mor", "simple"),
]


def rows(*ids: int, v: float = 1.0, ts: int = 1, deleted: bool = False) -> pa.Table:
    """Rows with a value of each kind of type that is compared."""
    n = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "city": ["x"] * n,
            "v": pa.array([v] * n),
            "ts": pa.array([ts] * n, pa.int64()),
            "nan": [float("nan")] * n,
            "tags": pa.array([["a", None]] * n),
            "at": pa.array([{"lat": 1.5, "name": None}] * n, pa.struct([("lat", pa.float64()), ("name", pa.string())])),
            "kept": pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64())),
            "_hoodie_is_deleted": [deleted] * n,
        }
    )


def new_table(kind: Any, index: str, *, version: int = 9, **more: Any) -> Table:
    if index.startswith("bucket"):
        more["buckets"] = 1
    uri = f"memory://{uuid.uuid4().hex}"
    table = lakebed.create(
        uri, rows(1), key="id", partition_by="city", type=kind, index=index, table_version=version, **more
    )
    table.upsert(rows(1, 2, 3))
    return table


def counts(result: WriteResult) -> list[int | None]:
    names = ("rows", "inserted", "updated", "deleted", "unchanged", "combined")
    return [getattr(result, name) for name in names]


def stored(table: Table) -> dict[int, tuple[float, int, str]]:
    """By key the value, the ordering value and the commit of each row."""
    batch = table.scan(["id", "v", "ts"], meta=True).to_arrow()
    names = ("id", "v", "ts", "_hoodie_commit_time")
    return {key: (v, ts, at) for key, v, ts, at in zip(*(batch[n].to_pylist() for n in names), strict=True)}


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize(("kind", "index"), INDEXES)
def test_equal_rows_are_not_written_again(kind: str, index: str, version: int) -> None:
    table = new_table(kind, index, version=version)
    before, start = stored(table), table.changes("000").end
    again = table.upsert(rows(1, 2), options=SKIP)
    assert (counts(again), again.files) == ([2, 0, 0, 0, 2, 0], ())
    assert stored(table) == before
    assert table.changes(start).to_arrow().num_rows == 0
    assert "2 unchanged" in str(again)


@pytest.mark.parametrize(("kind", "index"), INDEXES)
def test_only_rows_of_a_batch_that_change_something_are_written(kind: str, index: str) -> None:
    table = new_table(kind, index)
    before = stored(table)
    batch = pa.concat_tables([rows(1, 2), rows(3, 4, 4, v=2.0), rows(98, deleted=True), rows(2, deleted=True)])
    done = table.upsert(batch, options=SKIP)
    assert counts(done) == [7, 1, 1, 1, 2, 2]
    after = stored(table)
    assert after == {1: before[1], 3: (2.0, 1, done.instant), 4: (2.0, 1, done.instant)}


@pytest.mark.parametrize(("kind", "index"), INDEXES)
def test_rows_that_lose_are_unchanged_on_both_types_of_tables(kind: str, index: str) -> None:
    table = new_table(kind, index, ordering="ts")
    done = table.upsert(pa.concat_tables([rows(1, ts=0, v=9.0), rows(2, ts=1), rows(3, ts=2)]), options=SKIP)
    assert counts(done) == [3, 0, 1, 0, 2, 0]
    assert {key: (v, ts) for key, (v, ts, _) in stored(table).items()} == {1: (1.0, 1), 2: (1.0, 1), 3: (1.0, 2)}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_delete_of_an_absent_key_still_outlives_an_older_row(kind: str) -> None:
    table = new_table(kind, "bucket", ordering="ts")
    done = table.upsert(rows(50, ts=9, deleted=True), options=SKIP)
    assert counts(done) == [1, 0, 0, 0, 1, 0]
    late = table.upsert(rows(50, ts=5))
    assert (50 in stored(table), late.inserted) == ((True, 1) if kind == "cow" else (False, None))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_partial_rows_that_repeat_the_stored_values_are_unchanged(kind: str) -> None:
    table = new_table(kind, "bucket")
    part = rows(1, 2).select(["id", "city", "v"]).set_column(2, "v", pa.array([1.0, 7.0]))
    done = table.upsert(part, partial=True, options=SKIP)
    assert counts(done) == [2, 0, 1, 0, 1, 0]
    assert {key: v for key, (v, _, _) in stored(table).items()} == {1: 1.0, 2: 7.0, 3: 1.0}


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_table_remembers_the_setting_and_its_change_log_has_no_equal_rows(kind: str) -> None:
    table = new_table(kind, "simple", properties={"hoodie.table.cdc.enabled": True})
    start = table.changes("000").end
    table.upsert(rows(1))  # as Hudi: an equal row is an update
    end = table.changes("000").end
    assert table.cdc(start, end).to_arrow()["op"].to_pylist() == ["u"]
    table.configure(SKIP)
    done = table.upsert(pa.concat_tables([rows(1, 2), rows(3, v=4.0)]))
    assert counts(done) == [3, 0, 1, 0, 2, 0]
    logged = table.cdc(end).to_arrow()
    assert logged["op"].to_pylist() == ["u"]
    assert [(row["id"], row["v"]) for row in logged["after"].to_pylist()] == [(3, 4.0)]


def test_a_merge_payload_decides_before_the_rows_are_compared() -> None:
    table = new_table("cow", "bucket", ordering="ts", merge="PartialUpdateAvroPayload")
    nulls = rows(1, ts=1).set_column(2, "v", pa.array([None], pa.float64()))  # the stored value stays
    assert counts(table.upsert(nulls, options=SKIP)) == [1, 0, 0, 0, 1, 0]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["bucket", "simple", "record", "bloom"])
def test_an_absent_key_is_unchanged_where_another_key_has_several_rows(kind: Any, index: str) -> None:
    table = lakebed.create(f"memory://{uuid.uuid4().hex}", {"id": [1], "v": [1]}, key="id", type=kind, index=index)
    table.bulk_insert({"id": [1, 7, 7], "v": [1, 1, 2]})
    dry = table.delete([7, 98], dry_run=True)
    done = table.delete([7, 98])
    assert counts(dry) == [2, 0, 0, 2, 1, 0]
    if done.deleted is not None:
        assert counts(done) == [2, 0, 0, 2, 1, 0]
        assert table.to_arrow().to_pylist() == [{"id": 1, "v": 1}]
