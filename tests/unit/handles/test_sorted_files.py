"""Base files in the order of their keys: every rewrite keeps it, whatever the old file's order is, and loses no row."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.format.key_order import in_order
from lakebed.format.parquet_writer import SORTED_ROW_GROUP_ROWS
from lakebed.handles import file_writer, stored_rows
from lakebed.handles.stored_rows import row_group_steps
from lakebed.model import RECORD_KEY
from lakebed.properties.file import update_table_config
from lakebed.properties.table_config import SORT
from lakebed.storage import open_storage
from lakebed.table import Table
from support.golden_tables import golden
from support.locks import held
from support.tables_in_memory import in_memory
from support.write_tables import SCHEMA, content, rows

Make = Callable[..., Table]
TEXT_KEYS = pa.schema([("id", pa.string()), ("v", pa.int64()), ("w", pa.string()), ("ts", pa.int64())])
WORDS = ["", "a", "é", "\uffff", "\U0001f600", "a\x01", "zz" * 9]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of 7 rows, merged about three at a time."""
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", 7)
    monkeypatch.setattr(stored_rows, "_STEP_ROWS", 20)
    monkeypatch.setattr(stored_rows, "_MAX_ROWS", 40)


def stored(table: Table) -> Iterator[tuple[Any, pa.Array]]:
    """Parquet's metadata and the keys of every file of the table."""
    storage = open_storage(table.uri)
    for file in lakebed.open(table.uri).scan().files:
        parquet = pq.ParquetFile(io.BytesIO(storage.read(file.path)))
        yield parquet.metadata, parquet.read(columns=[RECORD_KEY])[RECORD_KEY].combine_chunks()


def assert_sorted(table: Table) -> None:
    """Keys ascend by the bytes of their UTF-8, and the ranges of the row groups say so."""
    for metadata, keys in stored(table):
        raw = [key.encode() for key in keys.to_pylist()]
        assert raw == sorted(raw)
        at = metadata.schema.names.index(RECORD_KEY)
        ranges = [metadata.row_group(n).column(at).statistics for n in range(metadata.num_row_groups)]
        for before, after in pairwise(ranges):
            assert before.max.encode() <= after.min.encode()


def by_id(table: Table) -> dict[Any, dict[str, Any]]:
    found = lakebed.open(table.uri).scan().to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


@pytest.mark.rest
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("index", ["bucket", "simple"])
def test_random_batches_keep_the_order(make: Make, index: str, seed: int) -> None:
    dice = random.Random(seed)
    table = make(TEXT_KEYS, index=index, partition_by=None, sort="key")
    model: dict[str, dict[str, Any]] = {}
    for step in range(9):
        count = dice.randrange(1, 120)
        keys = list(dict.fromkeys(f"{dice.choice(WORDS)}{dice.randrange(60)}" for _ in range(count)))
        if dice.random() < 0.25:
            gone = set(keys[:25]) & set(model)
            assert table.delete(keys[:25]).deleted == len(gone)
            model = {key: row for key, row in model.items() if key not in gone}
        else:
            given: list[dict[str, Any]] = [
                {"id": key, "v": dice.randrange(99), "w": dice.choice(WORDS), "ts": step - dice.choice([0, 0, 3])}
                for key in keys
            ]
            done = table.upsert(pa.Table.from_pylist(given, TEXT_KEYS))
            won = [row for row in given if row["id"] not in model or row["ts"] >= model[row["id"]]["ts"]]
            assert done.inserted == len(set(keys) - set(model))
            assert done.inserted + done.updated == len(won)
            model |= {row["id"]: row for row in won}
        assert by_id(table) == model
        assert_sorted(table)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("memory", [2_000, 100_000_000], ids=["spilled", "held"])
@pytest.mark.parametrize("foreign_rows", [5, 30, 400])
def test_files_in_no_order_are_sorted_when_they_are_rewritten(make: Make, foreign_rows: int, memory: int) -> None:
    """The table's word counts for nothing: a file is as any writer left it."""
    dice = random.Random(foreign_rows)
    ids = dice.sample(range(1000), 400)
    table = make(index="bucket", buckets=1, partition_by=None)
    for start in range(0, 400, foreign_rows):
        part = ids[start : start + foreign_rows]
        table.upsert(rows(*[(n, "c", "old", 5) for n in part]))
        if start >= 3 * foreign_rows:
            ids = ids[: start + foreign_rows]
            break
    assert not all(in_order(keys) for _, keys in stored(table))
    update_table_config(open_storage(table.uri), {SORT: "key"}, held)
    sorted_table = lakebed.open(table.uri)
    new = [(n, "c", "new", 4 if n % 3 == 0 else 6) for n in dice.sample(range(1200), 300)]
    sorted_table.upsert(rows(*new), options={"lakebed.write.memory": memory})
    model = {n: (n, "c", "old", 5) for n in ids}
    model |= {r[0]: r for r in new if r[0] not in model or r[3] == 6}
    assert content(table) == sorted(model.values())
    assert_sorted(table)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["v9_cow_simple", "v8_cow_bucket_simple", "v6_cow_bloom"])
def test_files_that_hudi_wrote_take_rows_in_order(name: str) -> None:
    storage = in_memory(name, "sorted")
    uri = storage.spec.uri
    before = golden(name).expected
    table = lakebed.open(uri)
    everything = table.scan().to_arrow()
    changed = everything.take(pa.array(range(0, len(everything), 3)))
    update_table_config(open_storage(uri), {SORT: "key"}, held)
    lakebed.open(uri).upsert(changed)
    after = lakebed.open(uri).scan(meta=True).to_arrow()
    keys = ["_hoodie_partition_path", RECORD_KEY]
    same = everything.column_names
    order = [(key, "ascending") for key in keys]
    assert after.sort_by(order).select(same).to_pylist() == before.sort_by(order).select(same).to_pylist()
    written = {f.instant for f in lakebed.open(uri).scan().files}
    assert len(written) >= 1
    newest = max(written)
    for file in lakebed.open(uri).scan().files:
        if file.instant == newest:
            parquet = pq.ParquetFile(io.BytesIO(open_storage(uri).read(file.path)))
            assert in_order(parquet.read(columns=[RECORD_KEY])[RECORD_KEY].combine_chunks())


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
def test_equal_keys_stay_and_are_all_replaced(make: Make, operation: str) -> None:
    """Rows of one key on both sides of row group bounds."""
    table = make(index="bucket", buckets=1, partition_by=None, sort="key")
    once = rows(*[(n, "c", "a", 1) for n in range(40)])
    for _ in range(3):
        getattr(table, operation)(rows(*[(7, "c", "twin", 1)] * 30))
        getattr(table, operation)(once)
    assert_sorted(table)
    assert len(content(table)) == 3 * 70
    table.upsert(rows((7, "c", "one", 2), (100, "c", "b", 2)))
    assert_sorted(table)
    found = content(table)
    assert [row for row in found if row[0] == 7] == [(7, "c", "one", 2)] * 93
    assert len(found) == 3 * 70 + 1
    assert table.delete([7]).deleted == 93
    assert len(content(table)) == 3 * 39 + 1


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("index", ["bucket", "simple", "global_simple", "record"])
def test_every_operation_writes_in_order(make: Make, index: str) -> None:
    table = make(index=index, sort="key")
    dice = random.Random(5)
    cities = ["c", "d"]
    model = {n: (n, cities[n % 2], "a", 1) for n in dice.sample(range(500), 100)}
    table.bulk_insert(rows(*model.values()))
    assert_sorted(table)
    fresh = {n: (n, cities[n % 2], "b", 1) for n in dice.sample(range(500, 900), 100)}
    known = dice.sample(sorted(model), 20)
    table.insert(
        rows(*fresh.values(), *[model[n] for n in known]),
        options={"hoodie.datasource.write.insert.drop.duplicates": True},
    )
    model |= fresh
    assert content(table) == sorted(model.values())
    assert_sorted(table)
    table.delete(where="v = 'a' and id < 250")
    model = {n: r for n, r in model.items() if r[2] != "a" or n >= 250}
    assert content(table) == sorted(model.values())
    assert_sorted(table)
    table.insert_overwrite(rows((3, "c", "x", 1), (1, "c", "x", 1), (2, "c", "x", 1)))
    assert_sorted(table)
    assert [r for r in content(table) if r[1] == "c"] == [(1, "c", "x", 1), (2, "c", "x", 1), (3, "c", "x", 1)]


@pytest.mark.parametrize("operation", ["upsert", "insert", "insert_overwrite", "bulk_insert"])
def test_a_full_file_leaves_rows_to_others(make: Make, operation: str) -> None:
    dice = random.Random(1)
    options = {"hoodie.parquet.max.file.size": 100_000, "hoodie.parquet.small.file.limit": 80_000}
    table = make(sort="key")

    def wide(ids: list[int]) -> pa.Table:
        return rows(*[(n, "c", "".join(chr(dice.randrange(33, 127)) for _ in range(200)), 1) for n in ids])

    first, second = wide(dice.sample(range(10_000), 200)), wide(dice.sample(range(10_000, 20_000), 2_000))
    table.upsert(first, options=options)
    only = next(iter(table.files)).file_id
    getattr(table, operation)(second, options=options)
    given = [second] if operation == "insert_overwrite" else [first, second]
    assert content(table) == sorted(tuple(r.values()) for part in given for r in part.to_pylist())
    assert_sorted(table)
    sizes = [f.base_file.size for f in table.files if f.base_file]
    assert max(sizes) <= 120_000
    assert 4 <= len(sizes) <= 8
    if operation != "insert_overwrite":
        assert only in {f.file_id for f in table.files}


def footer_of(*groups: list[str], **options: Any) -> Any:
    sink = io.BytesIO()
    schema = pa.schema([(RECORD_KEY, pa.string())])
    with pq.ParquetWriter(sink, schema, **options) as writer:
        for keys in groups:
            writer.write_table(pa.table({RECORD_KEY: keys}, schema=schema))
    return pq.read_metadata(io.BytesIO(sink.getvalue()))


def test_row_groups_that_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_rows, "_STEP_ROWS", 1)
    monkeypatch.setattr(stored_rows, "_MAX_ROWS", 4)
    assert row_group_steps(footer_of(["a", "b"], ["b", "c"], ["d"])) == [(2, "b"), (2, "d"), (1, None)]
    assert row_group_steps(footer_of(["a", "x"], ["b"], ["y"])) == [(3, "y"), (1, None)]
    assert row_group_steps(footer_of(["b", "a"], ["\uffff"], ["\U0001f600"])) == [
        (2, "\uffff"),
        (1, "\U0001f600"),
        (1, None),
    ]
    assert row_group_steps(footer_of(["z", "y"], ["x", "w"], ["v"])) is None, "more than may be held"
    assert row_group_steps(footer_of(["a"], ["b"], write_statistics=False)) is None
    assert row_group_steps(footer_of()) == []
    monkeypatch.setattr(stored_rows, "_STEP_ROWS", 3)
    assert row_group_steps(footer_of(["a", "b"], ["c"], ["d"])) == [(3, "d"), (1, None)]


def test_row_groups_are_small_and_their_dictionaries_too(make: Make) -> None:
    table = make(index="bucket", buckets=1, partition_by=None, sort="key")
    names = [f"name-{n // 8:06d}" for n in range(100_000)]
    table.bulk_insert(rows(*[(10**6 + n, names[n], names[n], 1) for n in range(100_000)]))
    table.upsert(rows((10**6 + 5, "changed", "changed", 2)))
    ((metadata, keys),) = stored(table)
    full, rest = divmod(100_000, SORTED_ROW_GROUP_ROWS)
    sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    assert sizes == [*[SORTED_ROW_GROUP_ROWS] * full, rest]
    assert len(keys) == 100_000
    at = metadata.schema.names.index("v")
    pages = [metadata.row_group(n).column(at) for n in range(len(sizes))]
    assert all(page.has_dictionary_page for page in pages)
    assert sum(page.total_uncompressed_size for page in pages) < 300_000


def test_columns_that_cannot_be_sorted_are_refused(uri: str) -> None:
    with pytest.raises(InvalidOption, match="record key"):
        lakebed.create(uri, SCHEMA, sort="key")
    with pytest.raises(InvalidOption, match="meta fields"):
        lakebed.create(uri, SCHEMA, key="id", sort="key", properties={"hoodie.populate.meta.fields": False})
    with pytest.raises(InvalidOption, match="sort='city' is unknown"):
        lakebed.create(uri, SCHEMA, key="id", sort="city")  # pyright: ignore[reportArgumentType]
    table = lakebed.create(uri, SCHEMA, key="id", properties={SORT: "key"})
    assert table.properties[SORT] == "key"
    with pytest.raises(InvalidOption, match="the table has key"):
        table.upsert(rows((1, "c", "a", 1)), options={SORT: "none"})
