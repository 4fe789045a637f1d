"""What a lookup asks of a file: few requests at first, fewer once it is known where keys are; never a wrong row."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed.format.bounded_cache import BoundedCache
from lakebed.format.footer_cache import FOOTERS, POSITIONS, KeyPositions
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_records.records import Records
from lakebed.metadata_upkeep.commit import apply_delta
from lakebed.metadata_upkeep.store import MetadataStore
from lakebed.model import HOODIE
from lakebed.properties.file import load_table_config
from lakebed.read.lookup import exists, get
from lakebed.storage import open_storage
from lakebed.storage.base import Storage
from lakebed.storage.memory import MemoryStorage
from lakebed.storage.opening import wrapping
from lakebed.storage.streams import RangeFile
from lakebed.table import Table
from lakebed.testing import CountingStorage
from lakebed.timeline.timeline import load_timeline
from support.locks import held

ROWS = 40_000
INDEXES = pytest.mark.parametrize("indexes", [["record_index"], []], ids=["record_index", "plain"])
SORTS = pytest.mark.parametrize("sort", ["key", "none"])


class RemoteStorage(MemoryStorage):
    """Files are read by ranges, as from an object store; each request is counted by its path."""

    requests: Counter[str]

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        data = self.read(path)

        def fetch(offset: int, length: int) -> bytes:
            self.requests[path] += 1
            return data[offset : offset + length]

        return pa.PythonFile(RangeFile(fetch, len(data), block=1 << 16), mode="r")

    def read_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.requests[path] += 1
        return super().read_ranges(path, ranges)


@pytest.fixture
def place() -> Iterator[str]:
    name = f"warm-{uuid.uuid4().hex}"
    yield name
    MemoryStorage.drop(name)


def rows_of(count: int) -> pa.Table:
    dice = np.random.default_rng(3)
    numbers = dice.permutation(count)
    columns = {f"c{n}": dice.integers(0, 10**9, count) for n in range(6)}
    return pa.table({"id": [f"key-{n:06d}" for n in numbers.tolist()], "n": numbers, **columns})


def new_table(place: str, sort: str, indexes: list[str]) -> tuple[Table, RemoteStorage]:
    rows = rows_of(ROWS)
    table = lakebed.create(f"memory://{place}", rows.schema, key="id", index="simple", sort=sort, indexes=indexes)  # pyright: ignore[reportArgumentType]
    table.bulk_insert(rows[: ROWS // 2])
    table.bulk_insert(rows[ROWS // 2 :])
    storage = RemoteStorage(place)
    storage.requests = Counter()
    return table, storage


def of_data(storage: RemoteStorage) -> list[int]:
    return [count for path, count in storage.requests.items() if not path.startswith(HOODIE)]


@SORTS
@INDEXES
def test_a_touched_file_takes_few_requests(place: str, sort: str, indexes: list[str]) -> None:
    _, storage = new_table(place, sort, indexes)
    snapshot = open_snapshot(storage)
    for file in snapshot.base_files():
        FOOTERS.read(storage, file.path, file.size)
    for number in range(3, ROWS, 3_333):
        storage.requests.clear()
        assert get(snapshot, [f"key-{number:06d}"])["n"].to_pylist() == [number]
        assert max(of_data(storage)) <= 3  # the row addresses, the key, the columns
        storage.requests.clear()
        assert get(snapshot, [f"key-{number:06d}"])["n"].to_pylist() == [number]
        # the file that holds the row, and no other: its key, which the row addresses only point at, and the columns
        assert of_data(storage) in ([1], [2])
    storage.requests.clear()
    assert exists(snapshot, ["key-000003", "nobody"]).to_pylist() == [True, False]
    assert of_data(storage) == ([] if indexes else [1])


@SORTS
@INDEXES
def test_every_row_is_found_cold_and_warm(place: str, sort: str, indexes: list[str]) -> None:
    table, _ = new_table(place, sort, indexes)
    expected = {row["id"]: row for row in rows_of(ROWS).to_pylist()}
    dice = np.random.default_rng(4)
    for count in (1, 10, 500):
        for _ in range(3):
            numbers = dice.choice(ROWS, count, replace=False).tolist()
            keys = [f"key-{n:06d}" for n in numbers]
            found = {row["id"]: row for row in table.get([*keys, "key-x", "a", "z"]).to_pylist()}
            assert found == {key: expected[key] for key in keys}
            POSITIONS.clear()


def test_keys_of_one_hash_are_distinguished(place: str) -> None:
    """ "Aa" and "BB" have one hash in Java."""
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = lakebed.create(f"memory://{place}", schema, key="id", index="simple")
    table.bulk_insert(pa.table({"id": ["AaAa", "x", "BBBB"], "n": [1, 2, 3]}))
    for _ in range(2):
        assert table.get(["AaAa"]).to_pylist() == [{"id": "AaAa", "n": 1}]
        assert table.get(["AaBB"]).num_rows == 0
        assert table.exists(["BBBB", "BBAa"]).to_pylist() == [True, False]


def test_a_rewritten_file_is_another_one(place: str) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = lakebed.create(f"memory://{place}", schema, key="id", index="bucket", buckets=1)
    for step in range(4):
        table.upsert(pa.table({"id": ["a", "b", f"c{step}"], "n": [step] * 3}))
        assert table.get(["b"])["n"].to_pylist() == [step]
        assert table.get([f"c{step}"])["n"].to_pylist() == [step]
    table.delete(["b"])
    assert table.get(["b"]).num_rows == 0


@INDEXES
def test_a_second_lookup_reads_nothing_but_settings_of_the_tables_own_folder(place: str, indexes: list[str]) -> None:
    new_table(place, "key", indexes)
    seen: list[CountingStorage] = []

    def counting(storage: Storage) -> Storage:
        seen.append(CountingStorage(storage))
        return seen[-1]

    with wrapping(counting):
        table = lakebed.open(f"memory://{place}")
        keys = ["key-000003", "key-012345"]
        table.get(keys)
        for storage in seen:
            storage.reset()
        assert sorted(table.get(keys)["id"].to_pylist()) == keys
    own = [path for storage in seen for path in storage.opened if path.startswith(HOODIE)]
    lists = sum(storage.counts["list"] for storage in seen)
    assert {path.rpartition("/")[2] for path in own} == {"hoodie.properties"}
    assert lists == 2, "one of each timeline"


def test_reads_of_two_moments_in_turn_keep_both_views(place: str) -> None:
    rows = pa.table({"id": ["a", "b"], "n": [1, 1]})
    table = lakebed.create(f"memory://{place}", rows.schema, key="id", index="simple")
    moments = [table.upsert(rows.set_column(1, "n", pa.array([n, n]))).instant for n in range(1, 8)]
    views = [table.opened.snapshot(moment) for moment in (None, moments[0], moments[1])]
    for _ in range(2):
        for n, moment in enumerate(moments[:2], 1):
            assert table.scan(as_of=moment).to_arrow()["n"].to_pylist() == [n, n]
            assert table.scan().to_arrow()["n"].to_pylist() == [7, 7]
    again = [table.opened.snapshot(moment) for moment in (None, moments[0], moments[1])]
    assert all(one is other for one, other in zip(views, again, strict=True))
    for n, moment in enumerate(moments, 1):
        assert table.scan(as_of=moment).to_arrow()["n"].to_pylist() == [n, n]
    assert len(table.opened._views) == 4  # pyright: ignore[reportPrivateUsage]
    table.upsert(rows)
    assert table.scan().to_arrow()["n"].to_pylist() == [1, 1]


@pytest.mark.rest
def test_a_view_that_is_kept_shows_what_others_write(place: str) -> None:
    rows = pa.table({"id": ["a", "b"], "n": [1, 1]})
    reader = lakebed.create(f"memory://{place}", rows.schema, key="id", index="simple", indexes=["record_index", "n"])
    writer = lakebed.open(f"memory://{place}")
    for step in range(1, 14):  # the metadata table is compacted on the way
        writer.upsert(pa.table({"id": ["a", f"c{step}"], "n": [step, step]}))
        for _ in range(2):
            assert reader.get(["a"])["n"].to_pylist() == [step]
            assert reader.count() == step + 1
            assert reader.scan(where=f"n = {step}").to_arrow().num_rows == 2
    writer.indexes.drop("n")
    assert reader.scan(where="n = 13").to_arrow().num_rows == 2
    writer.delete(["a"])
    assert reader.get(["a"]).num_rows == 0
    assert reader.exists(["a", "c1"]).to_pylist() == [False, True]


def test_a_view_that_is_kept_shows_a_repair(place: str) -> None:
    """Nothing is written on the table's own timeline then, only on the metadata table's."""
    rows = pa.table({"id": ["a", "b"], "n": [1, 2]})
    table = lakebed.create(f"memory://{place}", rows.schema, key="id", index="simple", indexes=["record_index"])
    table.upsert(rows)
    lose_key(table, "a")
    reader = lakebed.open(table.uri)
    assert reader.get(["a"]).num_rows == 0
    assert not table.indexes.repair().ok
    assert reader.get(["a"])["n"].to_pylist() == [1]


def lose_key(table: Table, key: str) -> None:
    """Take a key off the record index, as a writer that does not know it would leave it."""
    storage = open_storage(table.uri)
    config = load_table_config(storage)
    timeline = load_timeline(storage, config)
    store = MetadataStore(storage, config, timeline, lock_is_held=held)
    time = str(int(timeline.commits[-1].time) + 1)
    apply_delta(store, time, {"record_index": Records.deletes(pa.array([key]))})


def test_positions_are_those_of_the_keys() -> None:
    keys = pa.array(["b", "a", "", "b", "é", "BB", "Aa"])
    held = KeyPositions.of(keys)
    assert held.rows(pa.array(["b"])).tolist() == [0, 3]
    assert held.rows(pa.array(["é", "", "nobody"])).tolist() == [2, 4]
    assert held.rows(pa.array(["Aa"])).tolist() == [5, 6]
    assert held.rows(pa.array([], pa.string())).tolist() == []
    assert held.nbytes == 8 * len(keys)
    assert KeyPositions.of(pa.array([], pa.string())).rows(keys).tolist() == []


def test_the_cache_of_key_positions_is_bounded() -> None:
    cache = BoundedCache[KeyPositions](max_bytes=100)
    for number in range(5):
        cache.put(("file", number, 0), KeyPositions.of(pa.array(["a"] * 5)))
        assert cache.get(("file", 0, 0)) is not None
    assert cache.nbytes == 80
    assert [cache.get(("file", n, 0)) is not None for n in range(5)] == [True, False, False, False, True]
    cache.put("large", KeyPositions.of(pa.array(["a"] * 13)))
    assert cache.get("large") is None
    cache.clear()
    assert cache.nbytes == 0
    assert FOOTERS.nbytes <= 64 << 20
