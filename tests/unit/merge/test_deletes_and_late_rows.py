"""Event time, merge-on-read: after a delete a late row stays deleted and a newer one is inserted. Readers show nothing
of the deleted row again."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.avro.wrappers import INT, Wrapped
from lakebed.format.delete_block import decode_deletes
from lakebed.format.log_file import BlockType, read_blocks
from lakebed.metadata.lookups import open_snapshot
from lakebed.storage import open_storage
from lakebed.storage.opening import wrapping
from lakebed.table import Table
from lakebed.testing import CountingStorage

# They do not look for keys; the others do, and put the row of a key that they do not find where no file has the key.
HASHED = ["bucket", "consistent"]
LOOKING = ["bucket_groups", "simple", "bloom", "record", "global_simple", "global_bloom"]
BUCKETS = [*HASHED, "bucket_groups"]
ORDERED = {
    "int": (pa.int32(), 5, 10, 20),
    "long": (pa.int64(), 5, 10, 20),
    "float": (pa.float32(), 0.5, 1.5, 2.5),
    "double": (pa.float64(), 0.5, 1.5, 2.5),
    "text": (pa.string(), "a", "b", "c"),
    "decimal": (pa.decimal128(12, 2), Decimal("0.50"), Decimal("1.50"), Decimal("2.50")),
    "date": (pa.date32(), date(2020, 1, 1), date(2021, 1, 1), date(2022, 1, 1)),
    "millis": (pa.timestamp("ms", "UTC"), *(datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))),
    "micros": (pa.timestamp("us", "UTC"), *(datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2021, 2022))),
}


def rows(*given: tuple[int, Any, str], kind: pa.DataType | None = None) -> pa.Table:
    ids, times, texts = zip(*given, strict=True)
    columns = [pa.array(ids, pa.int64()), pa.array(times, kind or pa.int64()), pa.array(texts, pa.string())]
    return pa.table(columns, names=["id", "ts", "text"])


def table(first: pa.Table, index: str = "bucket", version: int = 9, blocks: str = "avro", **more: Any) -> Table:
    named: dict[str, Any] = {"key": "id", "ordering": "ts", "buckets": 2 if index in BUCKETS else None, **more}
    t = lakebed.create(
        f"memory://late/{uuid.uuid4().hex}", first, type="mor", index=index, table_version=version, **named
    )
    t.upsert(first, options={"hoodie.logfile.data.block.format": blocks})
    return t


def visible_rows(t: Table, *columns: str) -> list[tuple[Any, ...]]:
    """The rows, which are the same whole, by key, and after a compaction."""
    names = columns or ("id", "ts", "text")
    found = [tuple(row[n] for n in names) for row in t.scan().to_arrow().sort_by("id").to_pylist()]
    keys = range(1, 50)
    assert sorted(tuple(row[n] for n in names) for row in t.get(list(keys)).to_pylist()) == found
    assert t.count() == len(found)
    t.maintenance.compact()
    assert [tuple(row[n] for n in names) for row in t.scan().to_arrow().sort_by("id").to_pylist()] == found
    return found


def by_keys(t: Table) -> None:
    t.delete([1])


def by_condition(t: Table) -> None:
    t.delete(where="text = 'old'")


def by_rows_of_keys(t: Table) -> None:
    t.delete(pa.table({"id": [1]}))


def by_older_rows(t: Table) -> None:
    t.delete(rows((1, 3, "old")))


DELETES = [by_keys, by_condition, by_rows_of_keys, by_older_rows]


@pytest.mark.parametrize("delete", DELETES)
@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("index", HASHED)
def test_a_late_row_stays_deleted_and_a_newer_one_is_inserted(index: str, version: int, delete: Any) -> None:
    if index == "consistent" and version == 6 and delete is by_condition:
        pytest.skip("the same way as in the other versions")
    for late, expected in ((5, []), (10, [(1, 10, "new")]), (20, [(1, 20, "new")])):
        t = table(rows((1, 10, "old"), (2, 10, "other")), index, version)
        delete(t)
        assert t.count() == 1
        t.upsert(rows((1, late, "new")))
        assert visible_rows(t) == [*expected, (2, 10, "other")]


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("index", LOOKING)
def test_indexes_that_look_keys_up_never_show_the_deleted_row_again(index: str, version: int) -> None:
    for late in (5, 20):
        t = table(rows((1, 10, "old"), (2, 10, "other")), index, version)
        t.delete([1])
        t.upsert(rows((1, late, "new")))
        assert visible_rows(t) == [(1, late, "new"), (2, 10, "other")]


@pytest.mark.parametrize("blocks", ["avro", "parquet"])
@pytest.mark.parametrize("kind", ORDERED)
def test_ordering_values_of_every_type(kind: str, blocks: str) -> None:
    arrow, early, middle, late = ORDERED[kind]
    for ts, expected in ((early, []), (middle, [(1, middle, "new")]), (late, [(1, late, "new")])):
        t = table(rows((1, middle, "old"), (2, middle, "other"), kind=arrow), blocks=blocks)
        t.delete([1])
        t.upsert(rows((1, ts, "new"), kind=arrow))
        assert visible_rows(t) == [*expected, (2, middle, "other")]


@pytest.mark.parametrize("partial", [False, True])
def test_partial_rows_bring_nothing_of_the_deleted_row(partial: bool) -> None:
    for late, expected in ((5, []), (20, [(1, 20, None)])):
        t = table(rows((1, 10, "old"), (2, 10, "other")))
        t.delete([1])
        new = pa.table({"id": [1], "ts": [late]})
        if not partial:
            new = new.append_column("text", pa.nulls(1, pa.string()))
        t.upsert(new, partial=partial)
        assert visible_rows(t) == [*expected, (2, 10, "other")]


def written_deletes(t: Table) -> list[tuple[str, Any]]:
    """Key and ordering value (None: it wins whatever the stored one is) of each record of the newest delete blocks."""
    storage = open_storage(t.uri)
    logs = [log for one in open_snapshot(storage).file_slices() for log in one.log_files]
    newest = max(log.instant for log in logs)
    found: list[tuple[str, Any]] = []
    for log in logs:
        for block in read_blocks(storage.read(log.path), log.path):
            if block.type is BlockType.DELETE and log.instant == newest:
                deletes = decode_deletes(block.content)
                found += zip(deletes.keys.to_pylist(), _values(deletes.ordering), strict=True)
    return sorted(found)


def _values(ordering: Wrapped) -> list[Any]:
    values: list[Any] = [None] * len(ordering.branch)
    for kind, (row_numbers, column) in ordering.values.items():
        for at, value in zip(row_numbers.tolist(), column.to_pylist(), strict=True):
            values[at] = None if (kind, value) == (INT, 0) else value
    return values


def test_a_delete_carries_the_greatest_value_that_its_row_had() -> None:
    t = table(rows((1, 10, "old"), (2, 10, "other"), (3, 30, "third")))
    t.upsert(rows((1, 25, "newer"), (1, 15, "late")))
    assert t.delete([1, 3, 99]).deleted == 2
    assert written_deletes(t) == [("1", 25), ("3", 30)]
    t.upsert(rows((1, 20, "late"), (3, 31, "new")))
    assert visible_rows(t) == [(2, 10, "other"), (3, 31, "new")]


def test_keys_that_are_not_stored_are_not_deleted_again() -> None:
    """A second delete must not take the ordering value of the first one away."""
    t = table(rows((1, 10, "old"), (2, 10, "other")))
    t.delete([1])
    again = t.delete([1])
    assert (again.deleted, again.unchanged, again.files) == (0, 1, ())
    t.upsert(rows((1, 5, "late")))
    assert visible_rows(t) == [(2, 10, "other")]


def test_rows_of_a_delete_keep_their_own_value_where_it_is_greater() -> None:
    for kind in (pa.int64(), pa.int32()):
        t = table(rows((1, 10, "old"), (2, 10, "other"), kind=kind))
        t.delete({"id": [1, 2], "ts": [20, None]})
        assert written_deletes(t) == [("1", 20), ("2", 10)]
        t.upsert(rows((1, 15, "late"), (2, 15, "new"), kind=kind))
        assert visible_rows(t) == [(2, 15, "new")]


def test_rows_of_a_delete_may_have_anything_in_the_ordering_column() -> None:
    t = table(rows((1, 10, "old"), (2, 10, "other")))
    t.delete({"id": [1], "ts": ["yesterday"]})
    assert written_deletes(t) == [("1", 10)]


@pytest.mark.parametrize("index", ["simple", "global_simple", "record", "bucket"])
def test_several_ordering_fields_and_fields_of_structs(index: str) -> None:
    def of(id: int, a: int, b: str) -> pa.Table:
        return pa.table({"id": [id], "a": [a], "b": [b], "event": [{"at": a}]})

    for ordering in (["a", "b"], "event.at"):
        t = table(pa.concat_tables([of(1, 5, "m"), of(2, 5, "m")]), index, ordering=ordering)
        t.delete(pa.table({"id": [1]}))
        assert [key for key, _ in written_deletes(t)] == ["1"]
        t.upsert(of(1, 4, "z"))
        first = [] if index == "bucket" else [(1, 4)]
        assert visible_rows(t, "id", "a") == [*first, (2, 5)]
        t.upsert(of(1, 6, "a"))
        assert visible_rows(t, "id", "a") == [(1, 6), (2, 5)]


@pytest.mark.parametrize("index", ["global_simple", "global_bloom", "record"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_a_row_that_moved_leaves_a_delete_with_its_value(index: str, version: int) -> None:
    def of(id: int, ts: int, city: str) -> pa.Table:
        return pa.table({"id": [id], "ts": [ts], "city": [city]})

    given: dict[str, Any] = {"partition_by": "city", "properties": {"lakebed.index.update_partition": True}}
    t = table(pa.concat_tables([of(1, 10, "oslo"), of(2, 10, "oslo")]), index, version, **given)
    t.upsert(of(1, 20, "rome"))
    assert written_deletes(t) == [("1", 10)]
    t.delete([1])
    t.upsert(of(1, 5, "oslo"))
    found = visible_rows(t, "id", "ts", "city")
    assert found == [(1, 5, "oslo"), (2, 10, "oslo")]
    t.upsert(of(1, 4, "rome"))
    assert visible_rows(t, "id", "ts", "city") == found


def test_without_the_lookup_nothing_is_read_and_a_late_row_brings_the_deleted_one_back() -> None:
    t = table(rows((1, 10, "old"), (2, 10, "other")))
    read: list[CountingStorage] = []
    with wrapping(lambda inner: read.append(CountingStorage(inner)) or read[-1]):
        lakebed.open(t.uri).delete([1, 99], options={"lakebed.delete.lookup": False})
    assert [path for one in read for path in one.opened if path.endswith(".parquet") and ".hoodie" not in path] == []
    assert written_deletes(t) == [("1", None), ("99", None)]
    t.upsert(rows((1, 5, "late")))
    assert t.scan().to_arrow().sort_by("id")["text"].to_pylist() == ["old", "other"]


def test_only_touched_slices_are_read_and_upserts_read_none() -> None:
    t = table(pa.concat_tables([rows((n, 10, "old")) for n in range(1, 9)]), buckets=8)
    (one,) = t.locate([1]).to_pylist()
    opened: list[CountingStorage] = []
    with wrapping(lambda inner: opened.append(CountingStorage(inner)) or opened[-1]):
        again = lakebed.open(t.uri)
        again.delete([1])
        by_delete = {path for storage in opened for path in storage.opened if ".hoodie" not in path}
        opened.clear()
        lakebed.open(t.uri).upsert(rows((1, 20, "new"), (2, 5, "late")))
        by_upsert = [path for storage in opened for path in storage.opened if ".hoodie" not in path]
    assert {path.partition("_")[0] for path in by_delete} == {one["file_id"]}
    assert by_upsert == []


@pytest.mark.parametrize("version", [9, 8, 6])
def test_buckets_that_are_about_to_split_get_the_value_as_well(version: int) -> None:
    split = {"hoodie.bucket.index.max.num.buckets": 4, "hoodie.parquet.max.file.size": 900}
    ids = range(1, 41)
    t = table(pa.concat_tables([rows((n, 10, f"old{n}")) for n in ids]), "consistent", version)
    assert t.maintenance.cluster(plan_only=True, options=split).planned
    t.delete([1, 2, 3])
    t.upsert(rows((1, 5, "late"), (2, 20, "new")))
    expected = [(2, 20, "new"), *((n, 10, f"old{n}") for n in ids if n > 3)]
    assert t.maintenance.cluster(options=split).instants
    assert visible_rows(t) == expected


def test_values_that_delete_blocks_have_no_form_for_are_left_out() -> None:
    """A delete by key takes any row, as it did without ordering values."""
    kind = pa.decimal128(24, 18)
    t = table(rows((1, Decimal("1.000000000000000001"), "old"), (2, Decimal(2), "other"), kind=kind))
    t.delete([1])
    assert written_deletes(t) == [("1", None)]
    assert visible_rows(t) == [(2, Decimal(2), "other")]


def test_zero_orders_whole_numbers() -> None:
    """Int 0 is a delete's way to say that it has no value: nothing but a negative late row is then taken wrong."""
    for late, expected in ((0, [(1, 0, "new")]), (3, [(1, 3, "new")])):
        t = table(rows((1, 0, "old"), (2, 0, "other"), kind=pa.int32()))
        t.delete([1])
        t.upsert(rows((1, late, "new"), kind=pa.int32()))
        assert visible_rows(t) == [*expected, (2, 0, "other")]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_late_rows_stay_deleted_during_a_pending_compaction(version: int) -> None:
    t = table(rows((1, 10, "old"), (2, 10, "other")), version=version)
    t.upsert(rows((1, 20, "newer")))
    t.maintenance.compact(plan_only=True)
    t.delete([1])
    t.upsert(rows((1, 15, "late")))
    assert t.scan().to_arrow()["id"].to_pylist() == [2]
    assert visible_rows(t) == [(2, 10, "other")]


def test_deletes_of_writers_that_do_not_wait_for_one_another_take_what_they_did_not_see() -> None:
    at_once = {"hoodie.write.concurrency.mode": "NON_BLOCKING_CONCURRENCY_CONTROL"}
    t = table(rows((1, 10, "old"), (2, 10, "other")))
    t.delete([1], options=at_once)
    assert written_deletes(t) == [("1", None)]


def test_ordering_values_of_a_type_that_was_widened_since() -> None:
    t = table(rows((1, 10, "old"), (2, 10, "other"), kind=pa.int32()))
    t.upsert(rows((2, 11, "other")), options={"lakebed.write.evolution": "widen"})
    t.delete([1])
    t.upsert(rows((1, 5, "late")))
    assert visible_rows(t) == [(2, 11, "other")]


@pytest.mark.parametrize("version", [9, 8])
def test_log_compaction_and_indexes_of_keys_know_of_late_rows(version: int) -> None:
    first = rows((1, 10, "old"), (2, 10, "other"))
    t = table(first, version=version, indexes=["record_index"])
    t.delete([1])
    t.upsert(rows((1, 5, "late"), (3, 1, "new")))
    expected = [(2, 10, "other"), (3, 1, "new")]
    assert lakebed.open(t.uri).indexes.verify().ok
    t.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2})
    t.upsert(rows((1, 7, "late")))
    assert lakebed.open(t.uri).indexes.verify().ok
    assert visible_rows(t) == expected
