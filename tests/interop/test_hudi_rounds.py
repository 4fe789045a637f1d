"""lakebed and real Hudi take turns on one table; a dict says what must be there after each turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable, as_tuple
from support.sampling import INTEROP, rounds, some, todays

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CITIES = ("oslo", "rome", "são paulo")
ROUNDS = rounds(10, small=4)
TABLES = [
    (9, "bucket", True, True),
    (9, "simple", True, False),
    (9, "global_simple", True, True),
    (9, "bucket", False, True),
    (8, "bucket", True, True),
    (8, "simple", False, True),
    (6, "bucket", False, True),
    (6, "simple", True, True),
    (9, "bloom", True, True),
    (9, "global_bloom", True, True),
    (8, "bloom", True, False),
    (6, "global_bloom", True, False),
    (6, "bloom", False, True),
    (9, "bucket_rules", True, True),
]


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """Rows without two of one key: real Hudi does not say which of two equals wins."""
    return [
        {"id": i, "city": chance.choice(CITIES), "v": chance.randrange(1000), "ts": chance.randrange(20)}
        for i in chance.sample(range(60), 25)
    ]


@pytest.mark.parametrize(("version", "index", "partitioned", "event_time"), todays(TABLES, 6, INTEROP))
def test_both_writers_in_turn_see_each_others_rows(
    version: int, index: str, partitioned: bool, event_time: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(f"{version} {index} {partitioned}")
    table = make(tmp_path / "turns", version, index, partitioned, event_time)
    is_global = index.startswith("global")
    model = DictTable(event_time=event_time, is_global=is_global, moves=is_global, partitioned=partitioned)
    options = hudi_job(table)
    for turn in range(ROUNDS):
        rows = batch(chance)
        data = pa.Table.from_pylist(rows, SCHEMA)
        if turn % 2 == 0:
            table.upsert(data)
        else:
            oracle.write(table.uri, data, options=options)
        model.upsert(rows)
        if turn in (4, 7):
            gone = chance.sample(sorted({p[1] for p in model.rows}), 5)
            model.delete_ids(gone)
            if turn == 4:
                table.delete(gone)
            else:
                stored = table.scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
                oracle.write(table.uri, stored, operation="delete", options=options)
        assert_rows(oracle, table, model, turn)
    left_as_it_was(oracle, table, version)


@pytest.mark.parametrize(("version", "index"), some([(9, "simple"), (9, "bucket"), (6, "simple")], (9, "simple")))
def test_hudi_and_lakebed_take_turns_over_every_kind_of_write(
    version: int, index: str, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(f"{version} {index}")
    table = make(tmp_path / "turns", version, index, partitioned=True, event_time=True)
    model = DictTable(event_time=True)
    options = hudi_job(table)
    # a second bulk insert of real Hudi into a bucket table makes a second file for each bucket, and stops all writes
    theirs = "bulk_insert" if index == "simple" else "insert"
    kinds = ["bulk_insert", "upsert", "insert_overwrite", theirs, "insert", "insert_overwrite", "delete_partition",
        "upsert", "insert_overwrite_table", "delete_partition", "bulk_insert", "upsert"]  # fmt: skip
    for turn, kind in enumerate(kinds):
        rows = batch(chance)
        if "insert" in kind and "overwrite" not in kind:
            # nobody looks for their keys
            rows = [row | {"id": 1000 * (turn + 1) + n} for n, row in enumerate(rows)]
        data = pa.Table.from_pylist(rows, SCHEMA)
        city = CITIES[turn % 3]
        if turn % 2 == 0:
            ours_by_kind(table, kind, data, city)
        else:
            chosen = {"hoodie.datasource.write.partitions.to.delete": city} if kind == "delete_partition" else {}
            oracle.write(table.uri, data, operation=kind, options=options | chosen)
        apply(model, kind, rows, city)
        assert_rows(oracle, table, model, turn)
    left_as_it_was(oracle, table, version)


def ours_by_kind(table: Table, kind: str, data: pa.Table, city: str) -> None:
    match kind:
        case "delete_partition":
            table.delete_partitions([city])
        case "insert_overwrite_table":
            table.insert_overwrite(data, scope="table")
        case _:
            getattr(table, kind)(data)


def apply(model: DictTable, kind: str, rows: list[dict[str, Any]], city: str) -> None:
    match kind:
        case "upsert":
            model.upsert(rows)
        case "delete_partition":
            model.drop_partition(city)
        case "insert_overwrite" | "insert_overwrite_table":
            model.overwrite(rows, whole=kind.endswith("table"))
        case _:
            model.insert_new(rows)


def make(folder: Path, version: int, index: str, partitioned: bool, event_time: bool) -> Table:
    return lakebed.create(
        str(folder),
        SCHEMA,
        key="id",
        partition_by="city" if partitioned else None,
        ordering="ts",
        merge="event_time" if event_time else "commit_time",
        index="bucket" if index == "bucket_rules" else index,
        buckets=4 if index.startswith("bucket") else None,
        partition_buckets="^rome$,3;paulo,7" if index == "bucket_rules" else None,
        table_version=version,
        properties={"hoodie.metadata.enable": False},
    )


def assert_rows(oracle: HudiOracle, table: Table, model: DictTable, turn: int) -> None:
    """lakebed reads after every turn; real Hudi after those of lakebed, and in the end."""
    assert sorted(map(as_tuple, lakebed.open(table.uri).scan().to_arrow().to_pylist())) == model.state(), turn
    if turn % 2 == 0 or turn == ROUNDS - 1:
        assert sorted(map(as_tuple, oracle.read(table.uri).to_pylist())) == model.state(), turn


def left_as_it_was(oracle: HudiOracle, table: Table, version: int) -> None:
    assert oracle.ask("properties", table=table.uri)["hoodie.table.version"] == str(version)
    assert not (Path(table.uri) / ".hoodie" / "metadata").exists()
