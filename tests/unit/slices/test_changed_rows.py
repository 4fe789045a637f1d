"""Which rows of base files a read of changes needs, and that it gives the rows of whole merges."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.format.footer_cache import FOOTERS
from lakebed.handles import file_writer
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.read import batches
from lakebed.read.batches import scan_batches
from lakebed.read.incremental import Changes
from lakebed.slices import changed_rows
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import CountingStorage

SEARCHED = pytest.mark.parametrize("searched", [0, 1 << 40], ids=["searched", "read"])
COUNT = 30


@pytest.fixture
def place() -> Iterator[str]:
    name = f"changed-{uuid.uuid4().hex}"
    yield f"memory://{name}/t"
    MemoryStorage.drop(name)


def loaded(place: str, orderings: Any, **settings: Any) -> tuple[Table, str]:
    """A table of one base file, and its checkpoint."""
    rows = pa.table({"id": range(COUNT), "v": ["old"] * COUNT, "o": orderings})
    named: dict[str, Any] = {"key": "id", "ordering": "o", "type": "mor", "index": "bucket", "buckets": 1, **settings}
    table = lakebed.create(place, rows, **named)
    return table, table.bulk_insert(rows).checkpoint


def written(table: Table, values: dict[int, Any], name: str = "new") -> str:
    kind = table.schema.field("o").type
    some = {"id": list(values), "v": [name] * len(values), "o": pa.array(list(values.values()), kind)}
    return table.upsert(pa.table(some)).checkpoint


def changed(table: Table, start: str) -> dict[int, str]:
    """The rows of the changes, which are those that whole merges give."""
    changes = lakebed.open(table.uri).changes(start)
    rows = {row["id"]: row["v"] for row in changes.to_arrow().to_pylist()}
    assert rows == {row["id"]: row["v"] for row in full_changes(changes)}
    return rows


def full_changes(changes: Changes) -> list[dict[str, Any]]:
    plan = replace(changes.plan, since="")
    return pa.Table.from_batches(list(scan_batches(plan, changes.reader)), plan.schema).to_pylist()


def base_reads(table: Table, start: str) -> tuple[int, set[str]]:
    """How many base files a read of changes opens, and the columns that it reads of them from the first row on."""
    FOOTERS.clear()
    columns: set[str] = set()
    original = changed_rows.BaseFileRows.read

    def read(self: Any, names: Any) -> Any:
        columns.update(names)
        return original(self, names)

    storage = CountingStorage(open_storage(table.uri))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changed_rows.BaseFileRows, "read", read)
        lakebed.Table(OpenedTable(storage, load_table_config(storage))).changes(start).to_arrow()
    return len({path for path in storage.opened if is_base_file(path)}), columns


def is_base_file(path: str) -> bool:
    return path.endswith(".parquet") and not path.startswith(".hoodie")


def test_where_the_later_row_wins_no_base_file_is_opened(place: str) -> None:
    table, start = loaded(place, range(COUNT), merge="commit_time", ordering=None)
    written(table, {3: 0, 40: 0})
    table.delete([5])
    assert changed(table, start) == {3: "new", 40: "new"}
    assert base_reads(table, start) == (0, set())


ORDERED = [
    (pa.array(range(COUNT), pa.int64()), COUNT - 1, 1),
    (pa.array(range(COUNT), pa.int32()), COUNT - 1, 1),
    (pa.array([date(2024, 1, 1)] * COUNT), date(2024, 1, 1), date(2023, 1, 1)),
    (pa.array([datetime(2024, 1, 1, tzinfo=UTC)] * COUNT), datetime(2024, 1, 1, tzinfo=UTC), datetime(2023, 1, 1)),
]
IDS = ["int64", "int32", "date", "timestamp"]


@pytest.mark.parametrize(("stored", "greatest", "late"), ORDERED, ids=IDS)
@SEARCHED
def test_rows_beyond_the_statistics_of_the_base_file_are_not_compared(
    place: str, stored: pa.Array, greatest: Any, late: Any, searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_rows, "_SEARCHED", searched)
    table, start = loaded(place, stored)
    middle = written(table, {3: greatest, 29: greatest, 40: greatest})
    assert changed(table, start) == dict.fromkeys([3, 29, 40], "new")
    assert base_reads(table, start) == (1, set())
    written(table, {4: late, 41: late}, "late")
    assert changed(table, start) == {**dict.fromkeys([3, 29, 40], "new"), 41: "late"}
    assert changed(table, middle) == {41: "late"}
    assert base_reads(table, middle) == (1, {"_hoodie_record_key", "o"} if searched else set())


UNSURE = [
    pa.array([float(n) for n in range(COUNT - 1)] + [float("nan")]),
    pa.array([f"{n:03d}" for n in range(COUNT)]),
    pa.array([n % 2 == 0 for n in range(COUNT)]),
]


@pytest.mark.parametrize("stored", UNSURE, ids=["float", "text", "flag"])
@SEARCHED
def test_values_whose_statistics_are_not_exact_are_compared(
    place: str, stored: pa.Array, searched: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_rows, "_SEARCHED", searched)
    table, start = loaded(place, stored)
    greatest = stored[COUNT - 2].as_py()
    written(table, {3: greatest, COUNT - 1: greatest, 40: greatest})
    wins = {3: "new", 40: "new"}
    assert changed(table, start) == (wins | {COUNT - 1: "new"} if pa.types.is_boolean(stored.type) else wins)
    assert base_reads(table, start)[1] == ({"_hoodie_record_key", "o"} if searched else set())


def test_the_second_ordering_field_decides_where_the_first_is_equal(place: str) -> None:
    rows = pa.table({"id": range(COUNT), "v": ["old"] * COUNT, "a": [7] * COUNT, "b": range(COUNT)})
    table = lakebed.create(place, rows, key="id", ordering=["a", "b"], type="mor", index="bucket", buckets=1)
    start = table.bulk_insert(rows).checkpoint
    some = {"id": [3, 9, 10, 11], "v": ["new"] * 4, "a": [8, 7, 7, 7], "b": [0, 9, 11, 10]}
    table.upsert(pa.table(some))
    assert changed(table, start) == {3: "new", 9: "new", 10: "new"}


def test_rows_of_log_files_before_the_start_take_part(place: str) -> None:
    table, _ = loaded(place, [1] * COUNT)
    start = written(table, {3: 9, 4: 2, 50: 9}, "before")
    written(table, {3: 5, 4: 5, 50: 5, 51: 0})
    assert changed(table, start) == {4: "new", 51: "new"}
    table.maintenance.compact(logs=True, options={"hoodie.log.compaction.blocks.threshold": 2})
    assert changed(table, start) == {4: "new", 51: "new"}
    table.maintenance.compact()
    assert changed(table, start) == {4: "new", 51: "new"}


def test_a_null_ordering_value_of_the_base_file_loses(place: str) -> None:
    rows = pa.table({"id": range(COUNT), "v": ["old"] * COUNT, "o": pa.array([None, *range(COUNT - 1)])})
    table = lakebed.create(place, rows, key="id", ordering="o", type="mor", index="bucket", buckets=1)
    start = table.bulk_insert(rows, options={"lakebed.write.null.ordering": "lowest"}).checkpoint
    written(table, {0: 0, 1: 0, 9: 0})
    assert changed(table, start) == {0: "new", 1: "new"}


def test_a_key_text_of_two_meanings_is_refused_as_by_a_full_merge(place: str) -> None:
    fields = pa.table({"a": ["x"], "b": ["y,b:z"], "v": [1]})
    table = lakebed.create(place, fields, key=["a", "b"], merge="commit_time", type="mor", index="bucket", buckets=1)
    start = table.bulk_insert(fields).checkpoint
    table.upsert(fields.set_column(2, "v", pa.array([2])))
    assert lakebed.open(place).changes(start).to_arrow().to_pylist() == [{"a": "x", "b": "y,b:z", "v": 2}]


@pytest.mark.parametrize("is_small", [False, True])
def test_only_row_groups_with_late_rows_of_a_base_file_are_read_unless_it_is_small(
    place: str, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", 10)
    table, start = loaded(place, range(COUNT), type="cow", sort="key")
    written(table, {3: 40, 4: 40, 90: 40})
    read: list[list[int]] = []
    original = changed_rows.row_groups_since

    def noted(*values: Any) -> Any:
        footer, late = original(*values)
        read.append([len(late), footer.row_groups])
        return footer, late

    monkeypatch.setattr(changed_rows, "row_groups_since", noted)
    (file,) = table.scan().files
    monkeypatch.setattr(batches, "SMALL_BYTES", file.size - (not is_small))
    assert changed(table, start) == dict.fromkeys([3, 4, 90], "new")
    assert len(read) == (not is_small)
    assert is_small or 0 < read[0][0] < read[0][1]
