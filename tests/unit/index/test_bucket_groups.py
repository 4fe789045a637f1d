"""Buckets with several file groups: files stay within their size, look-ups within the bucket, keys unique."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import IndexInconsistent, InvalidOption
from lakebed.format.file_names import bucket_of_file_id
from lakebed.format.hashes import bucket_ids
from lakebed.metadata.lookups import open_snapshot
from lakebed.opened_table import OpenedTable
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage
from support.write_tables import content, refused, rows

Made = Callable[..., Table]
LIMIT = 12_000
SMALL = {
    "hoodie.parquet.max.file.size": LIMIT,
    "hoodie.parquet.small.file.limit": LIMIT // 2,
    "hoodie.parquet.compression.codec": "uncompressed",
    "hoodie.index.bloom.num_entries": 200,
    "hoodie.bloom.index.filter.dynamic.max.entries": 200,
}


def batch(numbers: range, turn: int) -> list[tuple[Any, ...]]:
    return [(n, "c0", f"{turn}-{n:040d}", turn) for n in numbers]


def new_table(make: Made, kind: Literal["cow", "mor"], **given: Any) -> tuple[Table, dict[int, tuple[Any, ...]]]:
    table = make(index="bucket_groups", buckets=2, type=kind, properties={"hoodie.compact.inline": False}, **given)
    table.upsert(rows(*batch(range(300), 0)), options=SMALL)
    return table, {row[0]: row for row in batch(range(300), 0)}


def files_of(table: Table) -> list[dict[str, Any]]:
    return table.files.to_arrow().to_pylist()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_bucket_grows_by_file_groups(make: Made, kind: Literal["cow", "mor"]) -> None:
    table, model = new_table(make, kind)
    steps = [range(100, 400), range(380, 500), range(50, 60), range(500, 501)]
    for turn, numbers in enumerate(steps, 1):
        new = len([n for n in numbers if n not in model])
        model.update({row[0]: row for row in batch(numbers, turn)})
        result = table.upsert(rows(*batch(numbers, turn)), options=SMALL)
        assert (result.rows, result.inserted, result.updated) == (len(numbers), new, len(numbers) - new)
        assert content(table) == sorted(model.values())
    groups = Counter(bucket_of_file_id(f["file_id"]) for f in files_of(table))
    assert set(groups) == {0, 1}
    assert min(groups.values()) > 2
    blooms, ids = 3_000, 6 * 4  # beside the rows; the id of a column takes up to six bytes of the footer
    assert max(f["bytes"] for f in files_of(table) if f["bytes"]) < LIMIT * 1.05 + blooms + ids
    table.delete([1, 400])
    table.delete(where="id = 2")
    for gone in (1, 2, 400):
        del model[gone]
    assert content(table) == sorted(model.values())
    # a key that was deleted comes back once
    for turn in (7, 8):
        table.upsert(rows(*batch(range(1, 3), turn)), options=SMALL)
        model.update({row[0]: row for row in batch(range(1, 3), turn)})
        assert content(table) == sorted(model.values())
    if kind == "mor":
        table.maintenance.compact()
        assert content(table) == sorted(model.values())
    table.maintenance.cluster(["v"])
    assert content(table) == sorted(model.values())
    assert lakebed.open(table.uri).indexes.verify().ok
    assert {bucket_of_file_id(f["file_id"]) for f in files_of(table)} == {0, 1}


def test_look_ups_stay_in_the_bucket(make: Made) -> None:
    """Of the files of the other bucket not one byte is read; in the bucket ranges and filters leave one file."""
    table, _ = new_table(make, "cow", partition_by=None)
    key = next(n for n in range(300) if bucket_ids(pa.array([str(n)]), ["id"], 2)[0] == 0)
    read: set[str] = set()

    class Noting(CountingStorage):
        def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
            read.add(path)
            return super().open_input(path, size)

        def read_ranges(self, path: str, ranges: Any) -> list[bytes]:
            read.add(path)
            return super().read_ranges(path, ranges)

    noting = Table(OpenedTable(Noting(open_storage(table.uri)), open_snapshot(open_storage(table.uri)).config))
    noting.upsert(rows((key, "c0", "new", 9)), options=SMALL)
    data = {path for path in read if path.endswith(".parquet")}
    assert data
    assert {bucket_of_file_id(path) for path in data} == {0}
    assert dict(zip(*[noting.get([key]).column(n).to_pylist() for n in ("id", "v")], strict=True)) == {key: "new"}


def test_replaced_and_added_rows(make: Made) -> None:
    table, model = new_table(make, "mor")
    added = batch(range(900, 1000), 1)
    table.bulk_insert(rows(*added), options=SMALL)
    model.update({row[0]: row for row in added})
    assert content(table) == sorted(model.values())
    known = table.insert(
        rows(*batch(range(950, 1050), 2)), options={**SMALL, "hoodie.datasource.write.insert.drop.duplicates": True}
    )
    assert known.rows == 100
    model.update({row[0]: row for row in batch(range(1000, 1050), 2)})
    assert content(table) == sorted(model.values())
    table.insert_overwrite(rows(*batch(range(5), 3)), options=SMALL)
    assert content(table) == batch(range(5), 3)


def test_two_file_groups_of_a_bucket_can_be_adopted(make: Made, uri: str) -> None:
    """What a second bulk insert of real Hudi's row writer leaves behind is a table of this index."""
    table, model = new_table(make, "cow")
    more = batch(range(300, 900), 1)
    table.upsert(rows(*more), options=SMALL)
    model |= {row[0]: row for row in more}
    storage = open_storage(uri)
    text = storage.read(".hoodie/hoodie.properties").decode()
    assert "lakebed.index.type=bucket_groups" in text
    assert isinstance(lakebed.open(uri).indexes.adopt("bucket_groups", buckets=2, hash_fields=["id"]).settings(), dict)
    with pytest.raises(IndexInconsistent):
        lakebed.open(uri).indexes.adopt("bucket_groups", buckets=3, hash_fields=["id"])
    with pytest.raises(IndexInconsistent, match="two file groups"):
        lakebed.open(uri).indexes.adopt("bucket", buckets=2, hash_fields=["id"])
    assert content(table) == sorted(model.values())


def test_wrong_uses_of_bucket_groups_are_refused(make: Made, uri: str) -> None:
    table, _ = new_table(make, "mor")
    with refused(uri, InvalidOption, "the options have bucket, the table has bucket_groups"):
        table.upsert(rows(*batch(range(3), 1)), options={"hoodie.index.type": "BUCKET"})
    with refused(uri, InvalidOption, "non-blocking writers need"):
        table.upsert(
            rows(*batch(range(3), 1)), options={"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
        )
