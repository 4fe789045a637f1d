"""Tables with a record index: every action tells it which keys came and went, whoever looks at it finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import InvalidOption, UnsupportedFeature
from lakebed.handles import group_writer, stored_rows
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import key_changes
from lakebed.model import RECORD_KEY
from lakebed.opened_table import OpenedTable
from lakebed.properties.file import load_table_config
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage
from support.write_tables import content, files, refused, rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 3}", "a", 10) for n in range(12)]
Places = dict[tuple[str, str], str]


def stored(table: Table) -> Places:
    """File id of each (partition path, key), from the data."""
    found = lakebed.open(table.uri, options={"hoodie.metadata.enable": False}).scan(meta=True).to_arrow()
    names = ("_hoodie_partition_path", RECORD_KEY, "_hoodie_file_name")
    columns = [found.column(name).to_pylist() for name in names]
    return {(path, key): name.partition("_")[0] for path, key, name in zip(*columns, strict=True)}


def indexed(table: Table) -> Places:
    """The same from the record index."""
    metadata = open_snapshot(open_storage(table.uri)).metadata
    assert metadata is not None
    entries = [row for part in metadata.entries("record_index") for row in part.to_pylist()]
    found = {(row["partition"], row["key"]): row["file_id"] for row in entries}
    assert len(found) == len(entries)
    return found


def agrees(table: Table) -> None:
    assert indexed(table) == stored(table)
    found = table.indexes.verify()
    assert found.ok, found


@pytest.mark.parametrize(("version", "index"), [(9, "record"), (8, "record"), (6, "record"), (9, "record_level_index")])
@pytest.mark.parametrize("partition_by", ["city", None])
def test_every_action_keeps_the_record_index_right(
    make: Make, version: int, index: str, partition_by: str | None
) -> None:
    table = make(index=index, table_version=version, partition_by=partition_by)
    steps: list[Callable[[], Any]] = [
        lambda: table.upsert(rows(*FIRST)),
        lambda: table.upsert(rows((1, "c1", "b", 11), (2, "c2", "b", 11), (20, "c9", "new", 1))),
        lambda: table.insert(rows((30, "c0", "i", 1), (31, "c5", "i", 1))),
        lambda: table.bulk_insert(rows((40, "c0", "i", 1), (41, "c7", "i", 1))),
        lambda: table.delete([0, 41, 99]),
        lambda: table.delete(where="id = 4"),
        lambda: table.upsert(rows()),
        lambda: table.insert_overwrite(rows((3, "c0", "over", 1), (50, "c0", "over", 1))),
        lambda: table.upsert(rows(*FIRST)),
        lambda: table.insert_overwrite(rows((60, "c6", "all", 1)), "table"),
    ]
    for step in steps:
        step()
        agrees(table)
    if partition_by:
        table.delete_partitions(["c6"])
        assert indexed(table) == {}


@pytest.mark.parametrize("merge", ["event_time", "commit_time"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_rows_whose_partition_changes_move_if_the_merge_lets_them(make: Make, merge: str, version: int) -> None:
    option = "hoodie.record.index.update.partition.path"
    table = make(index="record", merge=merge, table_version=version, properties={option: True})
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c2", "moved", 11), (1, "c0", "older", 5), (2, "c2", "stays", 12)))
    wanted = {**{row[0]: row for row in FIRST}, 0: (0, "c2", "moved", 11), 2: (2, "c2", "stays", 12)}
    if merge == "commit_time":
        wanted[1] = (1, "c0", "older", 5)
    assert content(table) == sorted(wanted.values())
    agrees(table)


def test_rows_stay_where_their_key_is(make: Make) -> None:
    table = make(index="record")
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c2", "stays", 11)))
    assert (0, "c2", "stays", 11) in content(table)
    assert ("c0", "0") in indexed(table)
    agrees(table)


def test_partitioned_keys_live_in_each_partition(make: Make) -> None:
    table = make(index="record_level_index")
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c1", "another", 1)))
    table.upsert(rows((0, "c1", "again", 2)))
    assert {("c0", "0"), ("c1", "0")} <= set(indexed(table))
    assert len(content(table)) == 13
    agrees(table)


def test_tagging_reads_no_data_file(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only file groups that rows go to are read, and those by the merge alone."""
    table = make(index="record", partition_by="city")
    table.upsert(rows(*[(n, f"c{n}", "a", 10) for n in range(8)]))
    opened: list[str] = []
    whole = stored_rows.read_footer

    def counted(storage: Any, path: str, *given: Any, **named: Any) -> Any:
        opened.append(path)
        return whole(storage, path, *given, **named)

    monkeypatch.setattr(stored_rows, "read_footer", counted)
    table.upsert(rows((3, "elsewhere", "b", 11)))
    assert {path.partition("/")[0] for path in opened} == {"c3"}
    assert (3, "elsewhere", "b", 11) in content(table)


def test_many_keys_go_by_side_files(make: Make, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_changes, "INLINE_BYTES", 0)
    seen: list[str] = []
    written = key_changes.as_bytes

    def noted(table: pa.Table, *, compressed: bool = False) -> bytes:
        seen.append("file" if compressed else "inline")
        return written(table, compressed=compressed)

    monkeypatch.setattr(key_changes, "as_bytes", noted)
    table = make(index="record")
    table.upsert(rows(*FIRST))
    table.delete([1, 2])
    agrees(table)
    assert set(seen) == {"file"}
    assert not [path for path in files(uri) if "/.temp/" in path]


def test_an_index_that_is_younger_than_the_write(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What tasks did not tell is read from the files: those that were written, and those before them."""
    table = make(index="global_simple")
    table.upsert(rows(*FIRST))
    run = group_writer.GroupWriter.__call__
    lock = threading.Lock()

    def late(self: Any, *given: Any) -> Any:
        with lock:
            if "record_index" not in lakebed.open(table.uri).properties["hoodie.table.metadata.partitions"]:
                table.indexes.create("record_index")
        return run(self, *given)

    monkeypatch.setattr(group_writer.GroupWriter, "__call__", late)
    table.upsert(rows((0, "c1", "moves", 20), (70, "c1", "new", 1)))
    agrees(table)


def test_a_duplicated_key_is_where_it_was_written_last(make: Make) -> None:
    table = make(index="record", partition_by=None)
    table.bulk_insert(rows((1, "c", "one", 1), (1, "c", "two", 2)))
    assert list(indexed(table)) == [("", "1")]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"indexes": ["record_index"]}, InvalidOption),
        ({"indexes": ["record_index:partitioned"], "table_version": 8}, UnsupportedFeature),
        ({"indexes": ["v"], "index": "global_simple"}, InvalidOption),
        ({"indexes": ["files"]}, InvalidOption),
        ({"indexes": ["record_index"], "key": None, "index": "simple"}, InvalidOption),
        ({"indexes": ["nothing"], "index": "record"}, lakebed.SchemaConflict),
    ],
)
def test_indexes_that_a_table_cannot_have(make: Make, uri: str, words: dict[str, Any], error: Any) -> None:
    with refused(uri, error):
        make(**words)


def test_indexes_asked_for_at_create(make: Make) -> None:
    table = make(index="global_simple", indexes=["record_index", "v", "bloom_filters"])
    table.upsert(rows(*FIRST))
    table.upsert(rows((0, "c0", "b", 11), (1, "c1", None, 11)))
    table.delete([2])
    names = {fact.name for fact in table.indexes.list()}
    assert {"record_index", "secondary_index_v", "bloom_filters"} <= names
    agrees(table)


def test_deletes_by_key_read_no_other_file_group(make: Make) -> None:
    table = make(index="record")
    table.upsert(rows(*FIRST))
    storage = CountingStorage(open_storage(table.uri))
    counted = Table(OpenedTable(storage, load_table_config(storage)))
    assert counted.delete([1, 99]).deleted == 1
    assert {path.partition("/")[0] for path in storage.opened if path.endswith(".parquet")} == {"c1"}
    agrees(table)


@pytest.mark.parametrize("kind", ["RECORD_INDEX", "RECORD_LEVEL_INDEX", "GLOBAL_RECORD_LEVEL_INDEX"])
def test_a_hudi_job_with_the_index(uri: str, kind: str) -> None:
    options = {
        "hoodie.index.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "city",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.metadata.record.index.enable": kind != "RECORD_LEVEL_INDEX",
        "hoodie.metadata.record.level.index.enable": kind == "RECORD_LEVEL_INDEX",
    }
    for batch in (FIRST, [(0, "c0", "b", 20), (50, "c1", "b", 20)]):
        lakebed.write(rows(*batch), uri, options)
    table = lakebed.open(uri)
    assert len(content(table)) == 13
    assert table.properties["lakebed.index.type"] == "record"
    agrees(table)
    with pytest.raises(InvalidOption):
        lakebed.write(rows(*FIRST), uri, {"hoodie.index.type": "SIMPLE"})
