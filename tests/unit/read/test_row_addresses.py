"""Tables with row addresses: every base file has those of its rows, and lookups give what they give without."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.format.footer_cache import FOOTERS, POSITIONS
from lakebed.format.row_addresses import ADDRESSES_KEY, FINGERPRINTS, fingerprints
from lakebed.format.row_groups.pages import INDEXES
from lakebed.handles import file_writer, stored_rows
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import HOODIE, RECORD_KEY
from lakebed.read.lookup import get
from lakebed.slices.snapshot import Snapshot
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from lakebed.testing import CountingStorage
from support import erased_tables
from support.erased_tables import ERASED, KEY

ROWS = 1_200
ADDRESSES: dict[str, Any] = {"lakebed.row.addresses": True}


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several row groups a file and several pages a row group, of which merges copy some."""
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(file_writer, "PAGE_ROWS", 20)
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)
    forget()


def forget() -> None:
    for cache in (FOOTERS, POSITIONS, INDEXES, FINGERPRINTS):
        cache.clear()


def rows_of(numbers: Sequence[int], at: int = 1) -> pa.Table:
    return pa.table(
        {
            "id": [f"key-{n * 7919 % 10007:05d}" for n in numbers],
            "at": [at] * len(numbers),
            "text": [f"text {n} of {at}" if n % 5 else None for n in numbers],
            "list": [[n, at] for n in numbers],
            "place": [{"x": n / 2, "name": f"n{n % 3}"} if n % 4 else None for n in numbers],
        }
    )


def new_table(uri: str, **options: Any) -> Table:
    properties = ADDRESSES | options.pop("properties", {})
    return lakebed.create(uri, rows_of([1]).schema, key="id", ordering="at", properties=properties, **options)


def check_files(snapshot: Snapshot) -> int:
    """Hold the addresses of all base files to their key columns; gives the number of files."""
    files = snapshot.base_files()
    for file in files:
        footer = FOOTERS.read(snapshot.storage, file.path, file.size)
        batches = list(
            snapshot.reader.read(
                next(s for s in snapshot.file_slices() if s.base_file == file).without_logs(), [RECORD_KEY]
            )
        )
        keys = pa.concat_arrays([batch.column(0) for batch in batches])
        addresses = footer.addresses
        assert addresses is not None, file.path
        found = addresses.read(lambda ranges, path=file.path: snapshot.storage.read_ranges(path, ranges))
        assert found is not None
        assert found.all().tolist() == (fingerprints(keys) & ((1 << found.bits) - 1)).tolist()
    return len(files)


def check_lookups(table: Table, expected: dict[str, dict[str, Any]]) -> None:
    """Hold lookups of stored and other keys to the rows that the table should have."""
    dice = np.random.default_rng(1)
    for count in (1, 9, 400):
        keys = dice.choice(sorted(expected), min(count, len(expected)), replace=False).tolist()
        for _ in range(2):
            found = table.get([*keys, "key-", "nothing", "key-99999"])
            assert {row["id"]: row for row in found.to_pylist()} == {key: expected[key] for key in keys}
            assert found.num_rows == len(keys)
            assert table.exists([*keys, "nothing"]).to_pylist() == [True] * len(keys) + [False]
        forget()


def by_id(*tables: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["id"]: row for table in tables for row in table.to_pylist()}


@pytest.mark.parametrize(
    ("kind", "index"),
    [
        ("cow", "bucket"),
        ("mor", "record"),
        *(
            pytest.param(k, i, marks=pytest.mark.rest)
            for k, i in (("cow", "simple"), ("mor", "bucket"), ("cow", "bloom"))
        ),
    ],
)
def test_lookups_find_every_row_after_writes_and_services(tmp_path: Path, kind: str, index: str) -> None:
    options: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = new_table(str(tmp_path / "t"), type=kind, index=index, **options)
    first, second = rows_of(range(ROWS)), rows_of(range(1190, 1230), 2)
    table.upsert(first)
    assert check_files(open_snapshot(open_storage(table.uri))) > 0
    check_lookups(table, by_id(first))
    table.upsert(second)
    table.delete(first["id"][:3])
    expected = by_id(first.slice(3), second)
    check_lookups(table, expected)
    if kind == "mor":
        table.maintenance.compact()
        check_files(open_snapshot(open_storage(table.uri)))
        check_lookups(table, expected)
    if index != "bucket":
        table.maintenance.cluster()
    check_files(open_snapshot(open_storage(table.uri)))
    check_lookups(table, expected)
    assert table.count() == len(expected)


@pytest.mark.rest
def test_a_table_without_the_option_writes_no_addresses_and_takes_it_later(tmp_path: Path) -> None:
    without = {"lakebed.row.addresses": False}
    schema = rows_of([1]).schema
    table = lakebed.create(str(tmp_path / "t"), schema, key="id", index="bucket", buckets=1, properties=without)
    first = rows_of(range(ROWS))
    table.upsert(first)
    storage = open_storage(table.uri)
    assert all(
        ADDRESSES_KEY not in FOOTERS.read(storage, f.path, f.size).footer.key_values
        for f in open_snapshot(storage).base_files()
    )
    check_lookups(table, by_id(first))
    second = rows_of([5], 2)
    table.upsert(second, options=ADDRESSES)
    assert check_files(open_snapshot(storage)) == 1
    check_lookups(table, by_id(first, second))
    table.upsert(rows_of([6], 3))
    file = open_snapshot(storage).base_files()[0]
    assert FOOTERS.read(storage, file.path, file.size).addresses is None
    check_lookups(table, by_id(first, second, rows_of([6], 3)))


@pytest.mark.parametrize("how", ["bit", "end", "place", "other"])
def test_broken_addresses_give_the_right_rows(tmp_path: Path, how: str) -> None:
    table = new_table(str(tmp_path / "t"), index="bucket", buckets=1)
    first = rows_of(range(ROWS))
    table.upsert(first)
    storage = open_storage(table.uri)
    file = open_snapshot(storage).base_files()[0]
    path = tmp_path / "t" / file.path
    data = bytearray(path.read_bytes())
    addresses = FOOTERS.read(storage, file.path, file.size).addresses
    assert addresses is not None
    at = addresses.offset
    length = addresses.nbytes
    if how == "bit":
        data[at + 100] ^= 1
    elif how == "end":
        data[at + length - 1] ^= 1
    elif how == "place":
        text = addresses.text.encode()
        assert data.count(text) == 1
        data = bytearray(bytes(data).replace(text, replace(addresses, offset=at - 8).text.encode()))
    else:
        other = new_table(str(tmp_path / "u"), index="bucket", buckets=1)
        other.upsert(rows_of(range(3000, 3000 + ROWS)))
        there = open_storage(other.uri)
        its = open_snapshot(there).base_files()[0]
        its_addresses = FOOTERS.read(there, its.path, its.size).addresses
        assert its_addresses is not None
        data[at : at + length] = there.read_ranges(its.path, [(its_addresses.offset, length)])[0]
    path.write_bytes(bytes(data))
    forget()
    check_lookups(lakebed.open(table.uri), by_id(first))
    table.upsert(rows_of([7], 2))
    assert check_files(open_snapshot(storage)) == 1
    check_lookups(table, by_id(first, rows_of([7], 2)))


@pytest.mark.parametrize("kind", ["cow", pytest.param("mor", marks=pytest.mark.rest)])
def test_an_erased_key_has_no_fingerprint_in_any_file(tmp_path: Path, kind: str) -> None:
    table = erased_tables.new_table(str(tmp_path / "t"), kind, **ADDRESSES)
    uri = table.uri

    def may_hold() -> list[bool]:
        """Of each base file below the table's folder, old ones included: whether it has a row with the key's
        fingerprint."""
        storage = open_storage(uri)
        names = [
            str(path.relative_to(tmp_path / "t"))
            for path in (tmp_path / "t").rglob("*.parquet")
            if HOODIE not in path.parts
        ]
        held: list[bool] = []
        for name in names:
            addresses = FOOTERS.read(storage, name, (tmp_path / "t" / name).stat().st_size).addresses
            assert addresses is not None
            found = addresses.read(lambda ranges, name=name: storage.read_ranges(name, ranges))
            assert found is not None
            held.append(len(found.find(pa.array([KEY]))) > 0)
        return held

    assert any(may_hold())
    table.erase([KEY])
    forget()
    assert may_hold()
    assert not any(may_hold())
    assert ERASED not in [int(row["id"][-8:]) for row in table.scan().to_arrow().to_pylist()]
    check_files(open_snapshot(open_storage(table.uri)))


@pytest.fixture
def bucket() -> Iterator[str]:
    name = f"addresses-{uuid.uuid4().hex}"
    yield name
    MemoryStorage.drop(name)


def test_a_cold_lookup_reads_footer_addresses_and_pages_of_its_file(bucket: str) -> None:
    """Three requests one after another, and no key column."""
    rows = rows_of(range(3_000)).drop_columns(["list"])
    table = lakebed.create(f"memory://{bucket}", rows.schema, key="id", index="bucket", buckets=1, properties=ADDRESSES)
    table.upsert(rows)
    size = open_snapshot(open_storage(table.uri)).base_files()[0].size
    asked: list[list[tuple[int, int]]] = []

    class Seen(CountingStorage):
        def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            if not path.startswith(HOODIE):
                asked.append(list(ranges))
            return super().read_ranges(path, ranges)

    storage = Seen(MemoryStorage(bucket))
    snapshot = open_snapshot(storage)
    forget()
    found = get(snapshot, [rows["id"][17].as_py()], ["id", "at", "text", "place"])
    assert found.to_pylist() == rows.slice(17, 1).to_pylist()
    assert len(asked) == 2, "addresses, then pages; the footer came with the offset indexes"
    assert sum(length for _, length in asked[1]) < size / 10
