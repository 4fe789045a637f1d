"""The record index on Spark: tags as in one process, keys looked up here or by tasks; jobs for many keys."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from lakebed.engine.spark import SparkEngine
from lakebed.index import record
from lakebed.index.record import RecordIndex
from lakebed.merge.rules import MergeRules
from lakebed.metadata.lookups import MetadataTable, open_snapshot
from lakebed.metadata_kinds import expression_results
from lakebed.metadata_records.layout import file_group
from lakebed.metadata_upkeep import maintain
from lakebed.model import DELETE, FILE_ID, INSTANT, MOVED, OPENED, PARTITION_PATH, RECORD_KEY
from lakebed.services import create_index
from lakebed.storage import open_storage
from support.tagged_rows import tagged_rows, with_rules

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("v", pa.string()), ("ts", pa.int64())])


def rows(first: int, last: int, seed: int = 7, regions: tuple[str, ...] = ("eu", "us")) -> pa.Table:
    chance = random.Random(seed)
    ids = range(first, last)
    columns = [
        [f"k{i}" for i in ids],
        [chance.choice(regions) for _ in ids],
        [f"v{chance.randrange(9)}" for _ in ids],
        [chance.randrange(5) for _ in ids],
    ]
    return pa.table(columns, schema=SCHEMA)


def new_table(tmp_path: Path, index: str, spark: Any = None, **words: Any) -> lakebed.Table:
    where = str(tmp_path / f"t{random.random()}")
    return lakebed.create(
        where, SCHEMA, key="id", partition_by="region", ordering="ts", index=index, spark=spark, **words
    )


@pytest.mark.parametrize(
    "index", [RecordIndex(), RecordIndex(True), RecordIndex(partitioned=True)], ids=["stay", "move", "partitioned"]
)
@pytest.mark.parametrize("rules", [MergeRules(), MergeRules(("ts",))], ids=["commit time", "event time"])
def test_both_engines_tag_the_same_way(spark: Any, tmp_path: Path, index: RecordIndex, rules: MergeRules) -> None:
    table = new_table(tmp_path, "record_level_index" if index.partitioned else "record")
    table.upsert(rows(0, 300))
    incoming = rows(200, 400, 8, ("eu", "us", "asia")).rename_columns([RECORD_KEY, PARTITION_PATH, "v", "ts"])
    snapshot = open_snapshot(open_storage(table.uri))
    found: list[list[tuple[Any, ...]]] = []
    for engine in (LocalEngine(), SparkEngine(spark)):
        tagged = engine.collect(tagged_rows(index, incoming, snapshot, engine, rules))
        names = [RECORD_KEY, PARTITION_PATH, "ts", FILE_ID, INSTANT]
        names += [name for name in (DELETE, MOVED) if name in tagged.column_names]
        assert {*tagged.column_names} - {OPENED} == {*names, "v"}
        found.append(sorted(zip(*(tagged.column(n).to_pylist() for n in names), strict=True), key=repr))
    assert found[0] == found[1]
    assert {row[3] is None for row in found[0]} == {True, False}


@pytest.mark.parametrize("moves", [False, True])
def test_rows_of_a_key_are_made_one_where_it_is_looked_up(spark: Any, tmp_path: Path, moves: bool) -> None:
    table = new_table(tmp_path, "record")
    table.upsert(rows(0, 300))
    several = pa.concat_tables([rows(200, 400, seed, ("eu", "us", "asia")) for seed in (8, 9, 10)])
    ordered = several.set_column(3, "ts", pa.array(range(several.num_rows)))
    incoming = ordered.rename_columns([RECORD_KEY, PARTITION_PATH, "v", "ts"])
    rules = MergeRules(("ts",))
    snapshot = with_rules(open_snapshot(open_storage(table.uri)), rules)
    found: list[list[tuple[Any, ...]]] = []
    for engine in (LocalEngine(), SparkEngine(spark)):
        placed = RecordIndex(moves).place_in_one(engine.rows(incoming), rules, snapshot, engine)
        assert placed is not None
        with placed.released(engine) as tagged:
            names = [RECORD_KEY, PARTITION_PATH, "ts", FILE_ID, INSTANT]
            columns = engine.collect(tagged).select(names).to_pydict()
            found.append(sorted(zip(*columns.values(), strict=True), key=repr))
    assert found[0] == found[1]
    newest = dict(zip(incoming[RECORD_KEY].to_pylist(), incoming["ts"].to_pylist(), strict=True))
    assert {row[0] for row in found[0]} == set(newest)
    assert all(row[2] == newest[row[0]] for row in found[0])


def test_tasks_open_only_their_shards(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every task is given keys of one file group of the index; the others are taken away and nobody misses them."""
    monkeypatch.setattr(record, "IN_PROCESS_KEYS", 0)
    table = new_table(tmp_path, "record")
    table.upsert(rows(0, 2000))
    snapshot = open_snapshot(open_storage(table.uri))
    metadata = snapshot.metadata
    assert metadata is not None
    slices = metadata.slices.file_slices("record_index")
    keys = pa.array([f"k{i}" for i in range(2000)])
    wanted = keys.filter(pa.array(file_group(keys, len(slices)) < 2))
    for unwanted in slices[2:]:
        for log in unwanted.log_files:
            (Path(table.uri) / ".hoodie" / "metadata" / log.path).unlink()
    engine = SparkEngine(spark)
    asked = engine.rows(pa.table({RECORD_KEY: wanted, PARTITION_PATH: pa.array(["eu"] * len(wanted))}))
    places = engine.collect(record.find_locations(asked, metadata, engine))
    assert sorted(places.column(RECORD_KEY).to_pylist()) == sorted(wanted.to_pylist())
    assert len(metadata.to_be_sent("record_index").slices.timeline.files) == 0
    assert isinstance(metadata, MetadataTable)


def test_the_plan_reads_no_data_file(spark: Any, tmp_path: Path) -> None:
    table = new_table(tmp_path, "record", spark)
    table.upsert(rows(0, 300))
    snapshot = open_snapshot(open_storage(table.uri))
    engine = SparkEngine(spark)
    incoming = rows(200, 400).rename_columns([RECORD_KEY, PARTITION_PATH, "v", "ts"])
    tagged = tagged_rows(RecordIndex(), incoming, snapshot, engine, MergeRules(("ts",)))
    plan = tagged._jdf.queryExecution().toString()
    assert "parquet" not in plan.lower()
    assert "Join" not in plan
    assert plan.count("Exchange") == 1


@pytest.mark.rest
def test_many_keys_by_jobs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintain, "LARGE_KEYS", 0)
    table = new_table(tmp_path, "record", spark, indexes=["v"])
    data = rows(0, 3000)
    table.upsert(spark.createDataFrame(data.to_pandas()))
    assert table.indexes.verify().ok
    changed = pa.concat_tables([rows(100, 200, 9, ("asia",)), rows(3000, 3100, 9, ("asia",))])
    table.upsert(spark.createDataFrame(changed.combine_chunks().to_pandas()))  # Spark 4.2 wants texts in one chunk
    table.delete(spark.createDataFrame(data.slice(0, 50).to_pandas()))
    found = table.indexes.verify()
    assert found.ok, found
    assert table.exists(["k0", "k60", "k3050"]).to_pylist() == [False, True, True]


@pytest.mark.rest
@pytest.mark.parametrize("large", [1, 1_000_000])
@pytest.mark.parametrize("index", ["record", "record_level_index"])
def test_keys_that_inserts_store_again_are_noted(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, large: int
) -> None:
    """By the tasks that write the index, and by this process where there are few."""
    monkeypatch.setattr(maintain, "CHECKED_KEYS", large)
    table = new_table(tmp_path, index, spark)
    insert = {"hoodie.parquet.small.file.limit": 0}
    table.insert(spark.createDataFrame(rows(0, 30).to_pandas()), options=insert)
    table.bulk_insert(spark.createDataFrame(rows(30, 60).to_pandas()), options=insert)
    assert "lakebed.index.repeated" not in lakebed.open(table.uri).properties
    table.bulk_insert(spark.createDataFrame(rows(29, 31).to_pandas()), options=insert)
    before = rows(29, 31).to_pylist() + rows(0, 30).slice(29).to_pylist() + rows(30, 60).slice(0, 1).to_pylist()
    asked = "id in ('k29', 'k30')"
    for one in (lakebed.open(table.uri), lakebed.open(table.uri, spark=spark)):
        assert one.get(["k29", "k30"]).num_rows == len(before) == 4
        assert one.scan(where=asked).to_arrow().num_rows == 4
        assert one.scan(where=asked).to_spark().count() == 4
    table.delete(spark.createDataFrame([("k29",), ("k31",)], ["id"]))
    left = lakebed.open(table.uri).scan().to_arrow()["id"].to_pylist()
    assert sorted(left) == sorted(f"k{i}" for i in [*range(29), 30, 30, *range(32, 60)])


def test_indexes_built_by_jobs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_index, "is_large", lambda *_: True)
    table = new_table(tmp_path, "global_simple", spark)
    table.upsert(rows(0, 3000))
    table.indexes.create("record_index", groups=4)
    table.indexes.create("v", groups=3)
    table.indexes.create("ts", groups=3)
    found = table.indexes.verify()
    assert found.ok, found
    table = new_table(tmp_path, "simple", spark)
    table.upsert(rows(0, 3000))
    table.indexes.create("record_index")
    assert table.indexes.verify().ok


def test_expression_indexes_built_by_jobs(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    each = expression_results.each

    def counted(engine: Any, work: Any, items: Any) -> Any:
        ran.append(len(items))
        return each(engine, work, items)

    monkeypatch.setattr(expression_results, "LARGE_BYTES", 0)
    monkeypatch.setattr(expression_results, "each", counted)
    table = new_table(tmp_path, "simple", spark)
    table.upsert(rows(0, 3000))
    table.indexes.create("shouted", column="v", function="upper")
    table.indexes.create("quiet", column="v", function="lower", kind="bloom_filters")
    files = len(list(table.files))
    assert ran == [files, files]
    found = table.indexes.verify()
    assert found.ok, found
