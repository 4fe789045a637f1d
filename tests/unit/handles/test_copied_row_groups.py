"""Merges that copy row groups leave the rows, commits and metadata table of merges that encode every row."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed.format.row_groups import assembled
from lakebed.format.row_groups.assembled import AssembledFile
from lakebed.handles import file_writer, stored_rows
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import META_COLUMNS, WriteStat
from lakebed.storage import open_storage
from lakebed.storage.memory import MemoryStorage
from lakebed.table import Table
from support.same_rows import assert_same_rows
from support.write_tables import files, last_commit

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("city", pa.string()),
        ("ts", pa.int64()),
        ("word", pa.string()),
        ("number", pa.float64()),
        ("count", pa.int32()),
    ]
)
PLAIN = {"lakebed.write.copy.row.groups": False}
KEYS = [f"key-{n:04}" for n in range(600)]
STATS = ("id", "city", "ts", "word", "number", "count")


class Counted(AssembledFile):
    """Every file that was put together of stored row groups."""

    made: list[Counted]

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        Counted.made.append(self)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "ROW_GROUP_ROWS", 25)
    monkeypatch.setattr(file_writer, "SORTED_ROW_GROUP_ROWS", 25)
    monkeypatch.setattr(file_writer, "AssembledFile", Counted)
    monkeypatch.setattr(stored_rows, "_WORTH_COPYING", 1)
    Counted.made = []


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    found = f"copied-{uuid.uuid4().hex}", f"plain-{uuid.uuid4().hex}"
    yield found
    for name in found:
        MemoryStorage.drop(name)


def batch(dice: random.Random, keys: Sequence[str]) -> pa.Table:
    made = [
        {
            "id": key,
            "city": f"c{int(key[4:]) % 2}",
            "ts": dice.randrange(100),
            "word": dice.choice(["oak", "elm", "ash", None]),
            "number": dice.choice([float("nan"), -0.0, dice.random(), None, *[float(n) for n in range(9)]]),
            "count": dice.randrange(1000),
        }
        for key in keys
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def statistics_of(stat: WriteStat) -> tuple[Any, ...]:
    return stat.partition, stat.num_writes, stat.num_inserts, stat.num_updates, stat.num_deletes


def state(table: Table) -> list[Any]:
    """Rows with their meta columns, ranges of columns, and places of keys: without names and times of this table."""
    fresh = lakebed.open(table.uri)
    found = fresh.scan(meta=True).to_arrow().sort_by("_hoodie_record_key")
    instants = [i.time for i in fresh.timeline]
    commits = [instants.index(t) for t in found["_hoodie_commit_time"].to_pylist()]
    paths = {file.path.rpartition("/")[2]: file.path.partition("/")[0] for file in fresh.scan().files}
    places = [paths[name] for name in found["_hoodie_file_name"].to_pylist()]
    assert pc.count_distinct(found["_hoodie_commit_seqno"]).as_py() == found.num_rows
    snapshot = open_snapshot(open_storage(table.uri))
    assert snapshot.metadata is not None
    kinds = {name: SCHEMA.field(name).type for name in STATS}
    stats = snapshot.metadata.column_stats(list(STATS), None, kinds)
    ranges: list[Any] = []
    for name, rows in stats.items():
        of_files = [
            (paths[row["file_name"]], *(row[c] for c in ("min", "max", "null_count", "value_count")))
            for row in rows.to_pylist()
            if row["file_name"] in paths
        ]
        ranges.append((name, sorted(map(repr, of_files))))
    located = fresh.locate(KEYS)
    rows = repr(found.select([n for n in found.column_names if n not in META_COLUMNS]).to_pylist())
    return [rows, commits, places, sorted(ranges), sorted(map(repr, located.select([0, 1]).to_pylist()))]


@pytest.mark.rest
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "words",
    [
        {"index": "record", "indexes": ["column_stats", "partition_stats", "bloom_filters", "word"]},
        {"index": "simple", "indexes": ["column_stats"], "sort": "key"},
        {"index": "bucket", "buckets": 2, "indexes": ["column_stats", "partition_stats"], "table_version": 8},
    ],
    ids=lambda words: words["index"],
)
def test_random_histories_end_the_same_both_ways(names: tuple[str, str], words: dict[str, Any], seed: int) -> None:
    dice = random.Random(f"{words['index']}{seed}")
    tables = [
        lakebed.create(f"memory://{name}/t", SCHEMA, key="id", partition_by="city", ordering="ts", **words)
        for name in names
    ]
    ways: list[dict[str, Any]] = [{}, PLAIN]

    def each(verb: str, data: Any, **options: Any) -> None:
        for table, way in zip(tables, ways, strict=True):
            getattr(lakebed.open(table.uri), verb)(data, options={**way, **options})

    each("upsert", batch(dice, dice.sample(KEYS, 450)))
    for _ in range(6):
        near = dice.randrange(500)
        keys = dice.sample(KEYS[near : near + 80], dice.randrange(1, 40))
        match dice.choice(["upsert", "upsert", "partial", "delete"]):
            case "upsert":
                each("upsert", batch(dice, keys))
            case "partial":
                known = lakebed.open(tables[0].uri).scan(columns=["id"]).to_arrow()["id"].to_pylist()
                some = batch(dice, sorted(set(keys) & set(known))).select(["id", "city", "ts", "count"])
                each("upsert", some, **{"lakebed.write.partial": True})
            case _:
                each("delete", keys)
        commits = [last_commit(table) for table in tables]
        mine, theirs = (sorted(statistics_of(s) for part in c.stats.values() for s in part) for c in commits)
        assert mine == theirs
        assert state(tables[0]) == state(tables[1])
    for table in tables:
        assert lakebed.open(table.uri).indexes.verify().ok
    assert sum(one.traffic.copied_groups for one in Counted.made) > 10


@pytest.mark.rest
@pytest.mark.parametrize(
    "words",
    [
        {"index": "record", "indexes": ["column_stats", "partition_stats", "bloom_filters", "word"]},
        {"index": "simple", "indexes": ["column_stats"], "table_version": 8, "merge": "commit_time"},
        {"index": "bucket", "buckets": 2, "indexes": ["column_stats"], "table_version": 6},
    ],
    ids=lambda words: words["index"],
)
def test_compactions_end_the_same_both_ways(names: tuple[str, str], words: dict[str, Any]) -> None:
    dice = random.Random(words["index"])
    by_hand = {"hoodie.compact.inline": False}
    given: dict[str, Any] = {
        "key": "id",
        "partition_by": "city",
        "ordering": "ts",
        "type": "mor",
    }
    tables = [lakebed.create(f"memory://{name}/t", SCHEMA, properties=by_hand, **given, **words) for name in names]
    ways: list[dict[str, Any]] = [{}, PLAIN]

    def each(verb: str, *data: Any, **options: Any) -> None:
        for table, way in zip(tables, ways, strict=True):
            opened = lakebed.open(table.uri)
            owner = opened.maintenance if verb == "compact" else opened
            getattr(owner, verb)(*data, options={**way, **options})

    each("bulk_insert", batch(dice, sorted(dice.sample(KEYS, 450))))
    for turn in range(4):
        near = dice.randrange(500)
        for _ in range(2):
            keys = dice.sample(KEYS[near : near + 60], dice.randrange(1, 12))
            each("upsert", batch(dice, keys))
        known = lakebed.open(tables[0].uri).scan(columns=["id"]).to_arrow()["id"].to_pylist()
        each("delete", dice.sample(known, 2 * (turn % 2)) or ["none"])
        if turn > 1:
            some = batch(dice, sorted(dice.sample(known, 5))).select(["id", "city", "ts", "count"])
            each("upsert", some, **{"lakebed.write.partial": True})
        made = len(Counted.made)
        each("compact")
        assert sum(one.traffic.copied_groups for one in Counted.made[made:]) > 3
        mine, theirs = (
            sorted(statistics_of(s) for part in last_commit(table).stats.values() for s in part) for table in tables
        )
        assert mine == theirs
        assert state(tables[0]) == state(tables[1])
    for table in tables:
        fresh = lakebed.open(table.uri)
        assert_same_rows(fresh.scan(query="read_optimized").to_arrow(), fresh.scan().to_arrow())
        assert lakebed.open(table.uri).indexes.verify().ok


def test_the_option_encodes_every_row(names: tuple[str, str]) -> None:
    table = lakebed.create(f"memory://{names[0]}/t", SCHEMA, key="id", partition_by="city", ordering="ts")
    table.upsert(batch(random.Random(1), KEYS))
    table.upsert(batch(random.Random(2), KEYS[:3]), options=PLAIN)
    assert not Counted.made
    before = files(table.uri)
    table.upsert(batch(random.Random(2), KEYS[:3]).set_column(2, "ts", pa.array([100] * 3)))
    assert Counted.made
    assert before.keys() < files(table.uri).keys()


def begins_with_first_columns(table: Table) -> bool:
    """Whether each row group of the table's base files has the bytes of its first column first."""
    storage = open_storage(table.uri)
    for file in open_snapshot(storage).base_files():
        metadata = pq.ParquetFile(pa.BufferReader(storage.read(file.path))).metadata
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            columns = [group.column(number) for number in range(group.num_columns)]
            starts = [c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset for c in columns]
            if min(starts) != starts[0]:
                return False
    return True


@pytest.mark.parametrize("assembled_rows", [1, 1 << 20])
def test_row_groups_begin_with_their_first_column(
    names: tuple[str, str], assembled_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of Hadoop, which read a file in parts, take a row group for one of the part in which that column is."""
    monkeypatch.setattr(assembled, "_ASSEMBLED_ROWS", assembled_rows)
    dice = random.Random(1)
    table = lakebed.create(f"memory://{names[0]}/t", SCHEMA, key="id", index="bucket", buckets=1)
    table.upsert(batch(dice, KEYS))
    assert begins_with_first_columns(table)
    for keys in (KEYS[3:5], KEYS[300:330]):
        table.upsert(batch(dice, keys))
        assert begins_with_first_columns(table)
    table.update({"count": 7}, where="id < 'key-0100'")
    assert begins_with_first_columns(table)
