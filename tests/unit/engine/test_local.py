"""Rows that are too many for a table: the same results as of a table, in a bound of memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import lakebed
from lakebed.engine import local
from lakebed.engine.base import GROUP, Task
from lakebed.engine.local import LocalEngine, LocalRows
from lakebed.engine.shuffle import Shuffle
from lakebed.inputs import base
from lakebed.model import PARTITION_PATH

COUNT = 60
ROWS = pa.table(
    {
        "id": [f"k{n:03}" for n in range(COUNT)],
        "city": ["Oslo", "Rome", "Paris"] * (COUNT // 3),
        "kind": pa.array(["a", "b"] * (COUNT // 2)).dictionary_encode(),
        "n": list(range(COUNT)),
    }
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is too much for a table, and parts have a few rows."""
    for module in (base, local):
        monkeypatch.setattr(module, "TABLE_BYTES", 0)
        monkeypatch.setattr(module, "BATCH_ROWS", 7)


def stream(rows: pa.Table = ROWS) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=9))


def contents(table: lakebed.Table) -> list[dict[str, Any]]:
    rows = table.scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: (row["id"], row["n"]))


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("index", ["bucket", "simple", "global_bloom", "record"])
@pytest.mark.parametrize("verb", ["upsert", "insert", "bulk_insert", "insert_overwrite"])
def test_a_stream_is_written_as_a_table_is(index: str, verb: str, kind: Any) -> None:
    buckets = 2 if index == "bucket" else None
    written: list[list[dict[str, Any]]] = []
    for name, rows in (("table", ROWS), ("stream", stream())):
        uri = f"memory://streams/{verb}-{index}-{kind}-{name}"
        t = lakebed.create(uri, ROWS.schema, key="id", partition_by="city", index=index, buckets=buckets, type=kind)
        t.upsert(ROWS.slice(0, 20).set_column(3, "n", pa.array([-1] * 20)))
        assert getattr(t, verb)(rows).rows == COUNT
        written.append(contents(t))
        assert {row["n"] for row in t.get(["k003", "k059"]).to_pylist()} >= {3, 59}
    assert written[0] == written[1]
    assert [row for row in written[0] if row["n"] >= 0] == ROWS.to_pylist()


@pytest.mark.usefixtures("tiny")
def test_a_dataset_is_read_again_for_the_schema_the_index_and_the_rows() -> None:
    t = lakebed.create("memory://streams/dataset", ds.dataset(ROWS), key="id", partition_by="city")
    assert t.bulk_insert(ds.dataset(ROWS)).inserted == COUNT
    assert contents(t) == ROWS.to_pylist()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("sort", ["key", None])
def test_files_of_a_sorted_table_are_sorted_in_each_part(sort: Any) -> None:
    t = lakebed.create(f"memory://streams/sorted-{sort}", ROWS.schema, key="id", index="simple", sort=sort)
    order = np.random.default_rng(1).permutation(COUNT)
    t.bulk_insert(stream(ROWS.take(pa.array(order))))
    assert contents(t) == ROWS.to_pylist()
    t.upsert(stream(ROWS.set_column(3, "n", pa.array(range(COUNT, 2 * COUNT)))))
    assert [row["n"] for row in contents(t)] == list(range(COUNT, 2 * COUNT))


@pytest.mark.usefixtures("tiny")
def test_rows_of_one_key_in_several_batches_are_one_row() -> None:
    for index in ("bucket", "simple"):
        t = lakebed.create(f"memory://streams/twice-{index}", ROWS.schema, key="id", ordering="n", index=index)
        t.upsert(stream(pa.concat_tables([ROWS, ROWS.set_column(3, "n", pa.array(range(100, 100 + COUNT)))])))
        assert [row["n"] for row in contents(t)] == list(range(100, 100 + COUNT))


@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_a_bulk_insert_holds_a_part_of_the_rows(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """25 MB of rows with a bound of 1 MB."""
    for module in (base, local):
        monkeypatch.setattr(module, "TABLE_BYTES", 1 << 20)
    count, width, most = 100, 250_000, 0
    before = pa.total_allocated_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(count):
            most = max(most, pa.total_allocated_bytes() - before)
            rows = width // 250
            ids = pa.array(np.arange(number * rows, (number + 1) * rows))
            text = pa.array([f"{number}" + "x" * 240] * rows)
            yield pa.record_batch({"id": ids, "text": text})

    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    buckets = 20 if index == "bucket" else None
    t = lakebed.create(f"memory://streams/memory-{index}", schema, key="id", index=index, buckets=buckets)
    read = Shuffle.read

    def measured(self: Shuffle, group: tuple[str, int]) -> Iterator[pa.RecordBatch]:
        nonlocal most
        for batch in read(self, group):
            most = max(most, pa.total_allocated_bytes() - before)
            yield batch

    monkeypatch.setattr(Shuffle, "read", measured)
    data = pa.RecordBatchReader.from_batches(schema, batches())
    assert t.bulk_insert(data).inserted == count * (width // 250)
    assert most < 12 << 20


@pytest.mark.parametrize("streamed", [0, 1 << 40], ids=["batch by batch", "at once"])
@pytest.mark.parametrize("batch_rows", [1, 7, 1 << 16])
def test_the_rows_of_a_group_come_in_their_order(
    streamed: int, batch_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_STREAMED_ROWS", streamed)
    monkeypatch.setattr(local, "_ORDERED_BYTES", 0)
    monkeypatch.setattr(local, "BATCH_ROWS", batch_rows)
    numbers = [(7 * n) % 4 for n in range(COUNT)]
    numbers[:20] = [3] * 20  # the other groups have no row of the first batches
    parts = [ROWS.slice(start, 9) for start in range(0, COUNT, 9)]
    rows = pa.concat_tables(parts).append_column(GROUP, pa.array(numbers, pa.int32()))
    rows = rows.append_column(PARTITION_PATH, pa.array([""] * COUNT))
    seen: dict[int, list[int]] = {}

    def write(_: str, number: int, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        some = list(batches)
        assert max(batch.num_rows for batch in some) <= batch_rows
        seen[number] = [n for batch in some for n in batch["n"].to_pylist()]
        return iter(())

    LocalEngine().group_map(LocalRows(rows), write, pa.schema([]), groups=4, one_group_per_task=False)
    assert seen == {group: [n for n in range(COUNT) if numbers[n] == group] for group in range(4)}


@pytest.mark.parametrize("highest", [3, 300, 70_000], ids=["one byte", "two bytes", "four bytes"])
def test_rows_of_file_groups_with_large_numbers_come_in_their_order(highest: int) -> None:
    """The numbers of groups are sorted in as few bytes as hold them."""
    numbers = [highest - (7 * n) % 4 for n in range(COUNT)]
    paths = [f"p{n % 3}" for n in range(COUNT)]
    rows = ROWS.append_column(GROUP, pa.array(numbers, pa.int32())).append_column(PARTITION_PATH, pa.array(paths))
    seen: dict[tuple[str, int], list[int]] = {}

    def write(path: str, number: int, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        seen[path, number] = [n for batch in batches for n in batch["n"].to_pylist()]
        return iter(())

    LocalEngine().group_map(LocalRows(rows), write, pa.schema([]), groups=None, one_group_per_task=False)
    expected: dict[tuple[str, int], list[int]] = {}
    for n in range(COUNT):
        expected.setdefault((paths[n], numbers[n]), []).append(n)
    assert seen == expected


@pytest.mark.parametrize("together", [1, 2, 1 << 40])
def test_what_file_groups_give_comes_in_the_order_of_the_groups(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_TOGETHER", together)
    rows = ROWS.append_column(GROUP, pa.array([n % 5 for n in range(COUNT)], pa.int32()))
    rows = rows.append_column(PARTITION_PATH, pa.array([""] * COUNT))
    schema = pa.schema([("group", pa.int64()), ("ids", pa.list_(pa.string()))])

    def write(_: str, number: int, batches: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
        ids = [text for batch in batches for text in batch["id"].to_pylist()]
        for part in ids[:6], ids[6:]:  # two batches a group
            yield pa.RecordBatch.from_pylist([{"group": number, "ids": part}], schema)

    mapped = LocalEngine(2).group_map(LocalRows(rows), write, schema, groups=5, one_group_per_task=False).table
    ids = [ROWS["id"].to_pylist()[number::5] for number in range(5)]
    expected = [{"group": n, "ids": part} for n in range(5) for part in (ids[n][:6], ids[n][6:])]
    assert mapped.to_pylist() == expected
    assert mapped.num_columns == 2
    batches_of_each = {1: 5, 2: 3, 1 << 40: 10}
    assert len(mapped.to_batches()) == batches_of_each[together]
