"""lakebed and real Hudi take turns on one merge-on-read table, each with upserts, deletes and compactions; a dict says
what must be there after each turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.format.hashes import bucket_ids
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable, LoggedTable, Place, as_tuple
from support.sampling import INTEROP, rounds, todays

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CITIES = ("oslo", "rome", "são paulo")
ROUNDS = rounds(20, small=13)  # in the small run each kind of turn comes once
BUCKETS = 2
OUR_DELETE, THEIR_DELETE = (4, 12), (7, 15)
OUR_COMPACTION, THEIR_COMPACTION = (6, 14), (9, 17)

KINDS = [
    (version, index, partitioned, merge, metadata)
    for version in (9, 8, 6)
    for index, partitioned in (("bucket", True), ("simple", True), ("global_simple", True), ("record", False))
    for merge in ("event_time", "commit_time")
    for metadata in (False, True)
    if metadata or index != "record"
]


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """Rows without two of one key: real Hudi does not say which of two equals wins."""
    return [
        {"id": i, "city": chance.choice(CITIES), "v": chance.randrange(1000), "ts": chance.randrange(20)}
        for i in chance.sample(range(60), 25)
    ]


def bucket_of(number: int) -> int:
    return int(bucket_ids(pa.array([str(number)]), ("id",), BUCKETS)[0])


@pytest.mark.parametrize(("version", "index", "partitioned", "merge", "metadata"), todays(KINDS, 14, INTEROP))
def test_both_writers_take_turns_on_a_table_with_logs(
    version: int, index: str, partitioned: bool, merge: str, metadata: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(f"{version} {index} {partitioned} {merge}")
    table = make(tmp_path / "turns", version, index, partitioned, merge, metadata)
    event_time, is_global = merge == "event_time", index in ("global_simple", "record")
    model = DictTable(event_time, is_global, moves=index == "global_simple", partitioned=partitioned)
    if index == "bucket":
        model = LoggedTable(event_time, partitioned=partitioned, bucket_of=bucket_of)
    options = hudi_job(table) | {"hoodie.metadata.enable": str(metadata).lower(), "hoodie.compact.inline": "false"}
    deleted: set[Place] = set()
    for turn in range(ROUNDS):
        rows = batch(chance)
        if turn % 2 and event_time and index == "simple":
            # real Hudi logs them beside the base row, which wins over those that are older
            rows = [row for row in rows if model.place(row) not in deleted]
        data = pa.Table.from_pylist(rows, SCHEMA)
        model.upsert(rows)
        deleted -= model.rows.keys()
        if turn % 2 == 0:
            table.upsert(data)
        else:
            inline = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
            oracle.write(table.uri, data, options=options | (inline if turn in THEIR_COMPACTION else {}))
        if turn in (*OUR_DELETE, *THEIR_DELETE):
            before = set(model.rows)
            delete(oracle, table, model, chance, ours=turn in OUR_DELETE, options=options)
            deleted |= before - model.rows.keys()
        if turn in OUR_COMPACTION:
            assert lakebed.open(table.uri).maintenance.compact()
        if turn in (*OUR_COMPACTION, *THEIR_COMPACTION):
            deleted.clear()
            if isinstance(model, LoggedTable):
                model.compact()
        assert_rows(oracle, table, model, turn)
    assert oracle.ask("properties", table=table.uri)["hoodie.table.version"] == str(version)
    if metadata:
        assert oracle.problems(table.uri) == []
        assert lakebed.open(table.uri).indexes.verify().ok


def delete(
    oracle: HudiOracle, table: Table, model: DictTable, chance: random.Random, *, ours: bool, options: dict[str, str]
) -> None:
    gone = chance.sample(sorted({place[1] for place in model.rows}), 5)
    model.delete_ids(gone)
    if ours:
        # the model of log records has deletes without the ordering value of the row that they delete
        lookup = not isinstance(model, LoggedTable)
        table.delete(gone, options={"lakebed.delete.lookup": lookup})
        return
    stored = lakebed.open(table.uri).scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
    oracle.write(table.uri, stored, operation="delete", options=options)


def make(folder: Path, version: int, index: str, partitioned: bool, merge: str, metadata: bool) -> Table:
    return lakebed.create(
        str(folder),
        SCHEMA,
        key="id",
        partition_by="city" if partitioned else None,
        ordering="ts",
        type="mor",
        merge=merge,
        index=index,
        buckets=BUCKETS if index == "bucket" else None,
        table_version=version,
        properties={"hoodie.metadata.enable": metadata, "hoodie.compact.inline": False},
    )


def assert_rows(oracle: HudiOracle, table: Table, model: DictTable, turn: int) -> None:
    """lakebed reads after every turn; real Hudi after those of lakebed, and in the end."""
    assert sorted(map(as_tuple, lakebed.open(table.uri).scan().to_arrow().to_pylist())) == model.state(), turn
    if turn % 2 == 0 or turn == ROUNDS - 1:
        assert sorted(map(as_tuple, oracle.read(table.uri).to_pylist())) == model.state(), turn
