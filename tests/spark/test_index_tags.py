"""The indexes that look into files tag alike on Spark and in this process."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from lakebed.engine.local import LocalEngine
from lakebed.engine.spark import SparkEngine
from lakebed.index.base import Tagged
from lakebed.index.bloom import search
from lakebed.index.bloom.index import BloomIndex, GlobalBloomIndex
from lakebed.index.bloom.known_files import SearchOptions
from lakebed.index.simple import GlobalSimpleIndex, SimpleIndex
from lakebed.merge.locations import BooleanLiteral, Case, Coalesce, FileIdOf, InstantOf, Moves, Promoted, delete_columns
from lakebed.merge.rules import MergeRules
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import DELETE, FILE_ID, INSTANT, MOVED, OPENED, PARTITION_PATH, POSITION, RECORD_KEY
from lakebed.storage import open_storage
from support.tagged_rows import tagged_rows

INDEXES = (
    SimpleIndex(),
    GlobalSimpleIndex(),
    GlobalSimpleIndex(False),
    BloomIndex(),
    GlobalBloomIndex(),
    GlobalBloomIndex(False),
)
ORDERING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [1, 2, -(2**62), None]),
    "double": (pa.float64(), [1.0, 2.5, -math.inf, math.inf, math.nan, None]),
    "text": (pa.string(), ["", "a", "Z", "é", "😀", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "day": (pa.date32(), [0, 1, -200_000, None]),
    "time": (pa.timestamp("us", "UTC"), [0, 1, -1, None]),
}


@pytest.mark.parametrize("kinds", [["long"], ["double"], ["text"], ["flag"], ["day"], ["time"], ["long", "double"]])
def test_spark_and_arrow_agree_which_rows_move(spark: Any, kinds: list[str]) -> None:
    chance = random.Random("-".join(kinds))
    rows = 400
    fields = [f"o{i}" for i in range(len(kinds))]
    stored = tuple(f"s{i}" for i in range(len(kinds)))
    columns = {
        "new": pa.array([chance.choice(["eu", "us", "", None]) for _ in range(rows)], pa.string()),
        "old": pa.array([chance.choice(["eu", "us", "", None]) for _ in range(rows)], pa.string()),
        DELETE: pa.array([chance.choice([True, False, False, None]) for _ in range(rows)], pa.bool_()),
        "_hoodie_is_deleted": pa.array([chance.choice([True, False, None]) for _ in range(rows)], pa.bool_()),
        "op": pa.array([chance.choice(["D", "d", "U", "'", None]) for _ in range(rows)], pa.string()),
    }
    for kind, *names in zip(kinds, fields, stored, strict=True):
        type_, values = ORDERING[kind]
        for name in names:
            columns[name] = pa.array([chance.choice(values) for _ in range(rows)], type_)
    rules = MergeRules(tuple(fields), "op", "D")
    expressions = {
        "moves": Moves("new", "old", rules, stored, delete_columns(list(columns), rules)),
        "later": Moves("new", "old", MergeRules(), (), ()),
        "flag": BooleanLiteral(True),
        "first": Coalesce(("old", "new")),
        "unless": Case(DELETE, Coalesce(("old", "new"))),
    }
    local, on_spark = _both(spark, pa.table(columns), expressions)
    assert local == on_spark
    assert {True, False} == set(local["moves"]) == set(local["later"])


def test_locations_out_of_file_names(spark: Any) -> None:
    names = [
        "00000003-7bb4-4bb3-bb31-691a40023d81-0_0-12-7_20240102030405006.parquet",
        "00000003-7bb4-4bb3-bb31-691a40023d81_0-12-7_20240102030405.parquet",
        None,
    ]
    table = pa.table({"_hoodie_file_name": pa.array(names, pa.string())})
    local, on_spark = _both(spark, table, {"id": FileIdOf(), "instant": InstantOf()})
    assert local == on_spark
    assert local["id"] == [names[0][:38], names[1][:36], None]  # type: ignore[index]
    assert local["instant"] == ["20240102030405006", "20240102030405", None]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [(pa.int32(), pa.int64()), (pa.float32(), pa.float64()), (pa.int32(), pa.string()), (None, pa.int64())],
)
def test_ordering_values_of_older_types(spark: Any, stored: pa.DataType | None, wanted: pa.DataType) -> None:
    table = pa.table({"ts": pa.array([1, 7, None], pa.int32()).cast(stored or pa.int32())})
    local, on_spark = _both(spark, table, {"ts": Promoted("ts", stored, wanted)})
    assert local == on_spark
    assert local["ts"][2] is None


@pytest.mark.parametrize("index", INDEXES, ids=lambda index: index.name)
@pytest.mark.parametrize("rules", [MergeRules(), MergeRules(("ts",))], ids=["commit time", "event time"])
def test_both_engines_tag_the_same_way(spark: Any, tmp_path: Path, index: Any, rules: MergeRules) -> None:
    chance = random.Random(7)
    stored = pa.table(
        {
            "id": [f"k{i}" for i in range(300)],
            "region": [chance.choice(["eu", "us"]) for _ in range(300)],
            "ts": [chance.randrange(5) for _ in range(300)],
        }
    )
    table = lakebed.create(
        str(tmp_path / "t"), stored.schema, key="id", partition_by="region", ordering="ts", index="global_simple"
    )
    table.upsert(stored)
    incoming = pa.table(
        {
            RECORD_KEY: [f"k{i}" for i in range(200, 400)],
            PARTITION_PATH: [chance.choice(["eu", "us", "asia"]) for _ in range(200)],
            "ts": [chance.randrange(5) for _ in range(200)],
        }
    )
    snapshot = open_snapshot(open_storage(str(tmp_path / "t")))
    found: list[list[tuple[Any, ...]]] = []
    for engine in (LocalEngine(), SparkEngine(spark)):
        tagged = engine.collect(tagged_rows(index, incoming, snapshot, engine, rules))
        names = [RECORD_KEY, PARTITION_PATH, "ts", FILE_ID, INSTANT]
        names += [name for name in (DELETE, MOVED) if name in tagged.column_names]
        assert {*tagged.column_names} - {OPENED} == {*names}
        found.append(sorted(zip(*(tagged.column(n).to_pylist() for n in names), strict=True), key=repr))
    assert found[0] == found[1]
    assert any(row[3] is None for row in found[0])
    assert any(row[3] is not None for row in found[0])


@pytest.mark.rest
@pytest.mark.parametrize("index", [SimpleIndex(), GlobalSimpleIndex(), GlobalSimpleIndex(False)])
@pytest.mark.parametrize("rules", [MergeRules(), MergeRules(("ts",))], ids=["commit time", "event time"])
def test_both_engines_number_the_rows_of_base_files_the_same_way(
    spark: Any, tmp_path: Path, index: Any, rules: MergeRules
) -> None:
    """Of a sorted table, whose files have several row groups; the slices of one partition path have log files."""
    rows = 20_000
    stored = pa.table({"id": [f"k{i:05}" for i in range(rows)], "region": ["eu", "us"] * (rows // 2), "ts": [1] * rows})
    table = lakebed.create(
        str(tmp_path / "t"), stored.schema, key="id", partition_by="region", ordering="ts", type="mor", sort="key"
    )
    table.upsert(stored)
    table.delete(stored.slice(3).slice(0, 1))
    chosen = [1, 5, 9_001, 19_999, 4, 18_000, 3]
    incoming = pa.table(
        {
            RECORD_KEY: [f"k{i:05}" for i in chosen] + ["new"],
            PARTITION_PATH: ["us", "us", "us", "us", "us", "eu", "us", "eu"],
            "ts": [2] * 8,
        }
    )
    snapshot = open_snapshot(open_storage(str(tmp_path / "t")))
    assert sum(bool(s.log_files) for s in snapshot.file_slices()) == 1
    found: list[list[tuple[Any, ...]]] = []
    for engine in (LocalEngine(), SparkEngine(spark)):
        tagged = engine.collect(tagged_rows(index, incoming, snapshot, engine, rules))
        names = [RECORD_KEY, PARTITION_PATH, FILE_ID, POSITION]
        assert tagged.schema.field(POSITION).type == pa.int64()
        found.append(sorted(zip(*(tagged.column(n).to_pylist() for n in names), strict=True), key=repr))
    assert found[0] == found[1]
    known = {(row[0], row[3]) for row in found[0] if row[3] is not None}
    places = {(f"k{i:05}", i // 2) for i in chosen if i != 3}
    assert known == (places if index.is_global else places - {("k00004", 2)})
    assert all((row[3] is None) == (row[2] is None) for row in found[0])


@pytest.mark.rest
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_bloom_search_in_tasks_finds_what_this_process_finds(
    spark: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one shuffle, of the keys that ranges let through; the rows are not shuffled to be tagged."""
    rows = pa.table({"id": [f"k{i:04}" for i in range(1000)], "region": ["eu", "us"] * 500, "ts": [1] * 1000})
    words: dict[str, Any] = {"key": "id", "partition_by": "region", "ordering": "ts", "type": kind}
    table = lakebed.create(str(tmp_path / "t"), rows.schema, index="bloom", indexes=["bloom_filters"], **words)
    for part in range(4):
        table.insert(rows.slice(part * 250, 250), options={"hoodie.parquet.small.file.limit": 0})
    table.delete(["k0000", "k0003"])
    snapshot = open_snapshot(open_storage(table.uri))
    keys = [f"k{i:04}" for i in (*range(0, 400, 3), 260, 1001)]
    columns = {RECORD_KEY: keys, PARTITION_PATH: ["eu", "us", "asia"] * (len(keys) // 3) + ["us"] * (len(keys) % 3)}
    incoming = pa.table(columns | {"ts": [2] * len(keys)})
    monkeypatch.setattr(search, "KEYS_HERE", 0)
    for index in (BloomIndex(), GlobalBloomIndex(), GlobalBloomIndex(False), BloomIndex(SearchOptions(True, True, 10))):
        (here, told), (in_tasks, told_too) = (
            _placed(index, incoming, snapshot, engine) for engine in (LocalEngine(), SparkEngine(spark))
        )
        assert in_tasks == here
        assert told is not None
        assert told_too is not None
        # a file whose keys are many is opened by several tasks
        assert told_too.opened >= told.opened > 0
        assert replace(told_too, opened=told.opened, bytes=told.bytes) == told
        assert told.tagged > 30


def _placed(index: Any, rows: pa.Table, snapshot: Any, engine: Any) -> tuple[list[dict[str, Any]], Any]:
    """The rows as the index places them, and what it tells of its search."""
    answer = index.place(engine.rows(rows), snapshot, engine)
    assert isinstance(answer, Tagged)
    with answer.released(engine) as tagged:
        if engine.is_distributed:
            plan = tagged._jdf.queryExecution().executedPlan().toString()
            assert "BroadcastHashJoin" in plan
            assert "SortMergeJoin" not in plan
        table = engine.collect(tagged)
    return sorted(table.select(sorted(table.column_names)).to_pylist(), key=repr), answer.lookup


def _both(spark: Any, table: pa.Table, expressions: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for engine in (LocalEngine(), SparkEngine(spark)):
        derived = engine.collect(engine.derive(engine.rows(table), expressions, keep=[]))
        results.append(derived.to_pydict())
    return results[0], results[1]
