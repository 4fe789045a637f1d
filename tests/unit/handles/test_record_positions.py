"""Log blocks say for which rows of the base file their records are, where the index has seen those rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from lakebed.format.base_file import read_base_file
from lakebed.format.data_block import open_data_block
from lakebed.format.delete_block import decode_deletes
from lakebed.format.log_file import BlockType, HeaderKey, decode_positions, scan_blocks
from lakebed.format.sources import FileSource
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import FILE_NAME, POSITION, RECORD_KEY, FileSlice
from lakebed.properties.file import load_table_config
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.table import Table
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
FIRST = [(n, f"c{n % 2}", "a", 5) for n in range(40)]
OFF = {"hoodie.write.record.positions": False}


@pytest.fixture
def mor(make: Make) -> Make:
    return lambda **given: make(type="mor", **given)


@dataclass(frozen=True)
class Block:
    """A log block: its record keys, and the keys of the rows that its header names; `base` is the base file's
    instant."""

    kind: str
    keys: list[str]
    base: str | None
    named: list[str] | None


def snapshot_of_table(table: Table) -> Snapshot:
    storage = open_storage(table.uri)
    return open_snapshot(storage, load_table_config(storage))


def slices(table: Table) -> list[FileSlice]:
    return list(snapshot_of_table(table).file_slices())


def blocks(table: Table) -> list[Block]:
    """The blocks of all slices."""
    storage = snapshot_of_table(table).storage
    found: list[Block] = []
    for file_slice in slices(table):
        base = file_slice.base_file
        batches = [] if base is None else list(read_base_file(storage, base.path, columns=[RECORD_KEY]))
        stored = [key for batch in batches for key in batch.column(0).to_pylist()]
        for log in file_slice.log_files:
            for head in scan_blocks(FileSource(storage, log.path, log.size)):
                if head.type is BlockType.DELETE:
                    keys = decode_deletes(head.read()).keys.to_pylist()
                else:
                    keys = open_data_block(head, log.path).read([RECORD_KEY]).column(0).to_pylist()
                header = head.header(HeaderKey.RECORD_POSITIONS)
                named = None if header is None else [stored[n] for n in decode_positions(header, len(keys))]
                instant = head.header(HeaderKey.BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS)
                assert instant is None or (base is not None and instant == base.instant)
                found.append(Block(head.type.name, keys, instant, named))
    return found


def in_file_order(table: Table, *numbers: int) -> list[int]:
    """Keys of one base file in the order of its rows."""
    storage = snapshot_of_table(table).storage
    stored: list[str] = []
    for file_slice in slices(table):
        if file_slice.base_file is not None:
            for batch in read_base_file(storage, file_slice.base_file.path, columns=[RECORD_KEY]):
                stored += batch.column(0).to_pylist()
    return sorted(numbers, key=lambda n: stored.index(str(n)))


@pytest.mark.parametrize(("index", "version"), list(product(("simple", "global_simple"), (9, 8))))
def test_every_block_names_the_rows_of_its_records_in_their_order(mor: Make, index: str, version: int) -> None:
    table = mor(index=index, table_version=version)
    table.bulk_insert(rows(*FIRST))
    given = [(n, f"c{n % 2}", "b", 6) for n in (31, 2, 17, 8, 3, 30)]
    table.upsert(rows(*given))
    table.delete([39, 4, 16])
    table.delete(rows((0, "c0", "", 9), (35, "c1", "", 9)))
    found = blocks(table)
    assert sorted(b.kind for b in found) == ["AVRO_DATA"] * 2 + ["DELETE"] * 4
    assert all(b.named == b.keys for b in found)
    assert sorted(int(k) for b in found for k in b.keys) == [0, 2, 3, 4, 8, 16, 17, 30, 31, 35, 39]
    new = {r[0]: r for r in given}
    assert content(table) == [new.get(r[0], r) for r in FIRST if r[0] not in (39, 4, 16, 0, 35)]
    # rows of merged slices are named by their numbers in the base file as well
    table.upsert(rows((2, "c0", "c", 7), (38, "c0", "c", 7), (6, "c0", "c", 7)))
    assert all(b.named == b.keys for b in blocks(table))
    new |= {n: (n, "c0", "c", 7) for n in (2, 38, 6)}
    assert content(table) == [new.get(r[0], r) for r in FIRST if r[0] not in (39, 4, 16, 0, 35)]


@pytest.mark.parametrize("merge", ["event_time", "commit_time", "IGNORE_DEFAULTS"])
def test_a_row_that_moves_is_deleted_by_its_number(mor: Make, merge: str) -> None:
    partial = {"properties": {"hoodie.table.partial.update.mode": merge}} if merge.isupper() else {}
    table = mor(index="global_simple", ordering=None if merge == "commit_time" else "ts", **partial)
    table.bulk_insert(rows(*FIRST))
    table.upsert(rows((2, "c1", "moved", 6), (4, "c0", "stays", 6), (6, "c1", None, 6)))
    found = [b for b in blocks(table) if b.kind == "DELETE"]
    assert [(b.named, b.named == b.keys) for b in found] == [(list(map(str, in_file_order(table, 2, 6))), True)]
    new = {2: (2, "c1", "moved", 6), 4: (4, "c0", "stays", 6), 6: (6, "c1", "a" if partial else None, 6)}
    assert content(table) == [new.get(r[0], r) for r in FIRST]


def test_a_key_stays_where_it_is_by_its_number(mor: Make) -> None:
    table = mor(index="global_simple", properties={"hoodie.simple.index.update.partition.path": False})
    table.bulk_insert(rows(*FIRST))
    table.upsert(rows((2, "c1", "b", 6), (1, "c1", "b", 6)))
    assert sorted((b.keys, b.named) for b in blocks(table)) == [(["1"], ["1"]), (["2"], ["2"])]


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"table_version": 6}, {}),
        ({"index": "bucket"}, {}),
        ({"index": "record"}, {}),
        ({}, OFF),
    ],
    ids=["version 6", "bucket", "record", "switched off"],
)
def test_blocks_of_others_name_none(mor: Make, given: dict[str, Any], options: dict[str, Any]) -> None:
    table = mor(**given)
    table.upsert(rows(*FIRST))
    table.upsert(rows((1, "c1", "b", 6), (2, "c0", "b", 6)), options=options)
    table.delete(rows((3, "c1", "", 9)), options=options)
    found = blocks(table)
    assert found
    assert {(b.base, b.named) for b in found} == {(None, None)}
    assert len(content(table)) == 39


def test_each_block_of_a_large_write_names_its_own_rows(mor: Make) -> None:
    table = mor(partition_by=None)
    table.bulk_insert(rows(*((n, "c", "a" * 100, 5) for n in range(3000))))
    changed = range(2999, -1, -3)
    small = {"hoodie.logfile.data.block.max.size": 20_000, "hoodie.logfile.max.size": 60_000}
    table.upsert(rows(*((n, "c", "b" * 100, 6) for n in changed)), options=small)
    found = blocks(table)
    assert len(found) > 5
    assert all(b.named == b.keys for b in found)
    assert sorted(int(k) for b in found for k in b.keys) == sorted(changed)
    assert len({log.name for s in slices(table) for log in s.log_files}) > 1
    assert content(table) == [
        (n, "c", ("b" if n in changed else "a") * 100, 6 if n in changed else 5) for n in range(3000)
    ]


@pytest.mark.parametrize("ordering", ["ts", None])
def test_all_rows_of_a_repeated_key_are_updated_and_deleted(mor: Make, ordering: str | None) -> None:
    table = mor(ordering=ordering)
    table.insert(rows((1, "c", "a", 1), (2, "c", "a", 1), (1, "c", "again", 2), (3, "c", "a", 1), (3, "c", "b", 1)))
    assert len(content(table)) == 5
    table.upsert(rows((1, "c", "old", 3), (1, "c", "new", 4)))
    (block,) = blocks(table)
    assert (block.keys, block.named) == (["1", "1"], ["1", "1"])
    assert content(table) == [(1, "c", "new", 4)] * 2 + [(2, "c", "a", 1), (3, "c", "a", 1), (3, "c", "b", 1)]
    table.delete([3])
    assert content(table) == [(1, "c", "new", 4)] * 2 + [(2, "c", "a", 1)]
    table.maintenance.compact()
    assert content(table) == [(1, "c", "new", 4)] * 2 + [(2, "c", "a", 1)]


def test_partial_rows_name_their_columns(mor: Make) -> None:
    table = mor(ordering=None)
    table.bulk_insert(rows(*FIRST))
    table.upsert(rows((7, "c1", "", 8), (3, "c1", "", 8)).drop_columns(["v"]), options={"lakebed.write.partial": True})
    (block,) = blocks(table)
    assert block.named == block.keys == list(map(str, in_file_order(table, 3, 7)))
    new = {n: (n, "c1", "a", 8) for n in (3, 7)}
    assert content(table) == [new.get(r[0], r) for r in FIRST]


def test_numbers_are_those_of_the_base_file_that_is_there(mor: Make) -> None:
    """A compaction writes another base file: blocks that name rows of the one before are merged by their keys."""
    table = mor(partition_by=None)
    table.bulk_insert(rows(*((n, "c", "a", 5) for n in range(20))))
    first = slices(table)[0].instant
    table.delete([0, 1, 2])
    assert {b.base for b in blocks(table)} == {first}
    planned = table.maintenance.compact(plan_only=True)
    assert planned
    table.upsert(rows((7, "c", "b", 6), (3, "c", "b", 6)))
    before = content(table)
    lakebed.open(table.uri).maintenance.compact()
    assert content(table) == before
    table.upsert(rows((19, "c", "c", 7), (4, "c", "c", 7)))
    model = {n: (n, "c", "a", 5) for n in range(3, 20)} | {n: (n, "c", "b", 6) for n in (3, 7)}
    assert content(table) == sorted((model | {n: (n, "c", "c", 7) for n in (4, 19)}).values())
    (second,) = {s.base_file.instant for s in slices(table) if s.base_file is not None}
    assert second != first
    table.maintenance.compact()
    table.upsert(rows((19, "c", "d", 8)))
    (block,) = blocks(table)
    assert (block.keys, block.named) == (["19"], ["19"])


def test_rows_of_log_files_alone_have_no_number(mor: Make) -> None:
    table = mor(index="bucket", buckets=1, partition_by=None)
    table.upsert(rows(*((n, "c", "a", 5) for n in range(5))))
    table.upsert(rows((2, "c", "b", 6), (9, "c", "new", 6)))
    table.delete([3])
    snapshot = snapshot_of_table(table)
    (file_slice,) = snapshot.file_slices()
    names = [POSITION, RECORD_KEY, FILE_NAME]
    found = LocalEngine().read_columns(snapshot, [file_slice], names).table
    order = in_file_order(table, *range(5))
    told = dict(zip(found[RECORD_KEY].to_pylist(), found[POSITION].to_pylist(), strict=True))
    assert told == {str(n): order.index(n) for n in (0, 1, 2, 4)} | {"9": None}
    assert found.schema.field(POSITION).type == pa.int64()
    none = LocalEngine().read_columns(snapshot, [], names).table
    assert none.schema.field(POSITION).type == pa.int64()
    assert SCHEMA.names == ["id", "city", "v", "ts"]
