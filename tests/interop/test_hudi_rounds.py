"""lakebed and real Hudi take turns on one table; a dict says what must be there after each turn."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from oracle.client import HudiOracle
from property.model import DictTable, as_tuple

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CITIES = ("oslo", "rome", "são paulo")
ROUNDS = 10


def hudi_options(version: int, index: str, buckets: int) -> dict[str, str]:
    """What real Hudi has to be told: no metadata table, no upgrade, and the index, which it does not store."""
    options = {
        "hoodie.metadata.enable": "false",
        "hoodie.write.table.version": str(version),
        "hoodie.write.auto.upgrade": "false",
        "hoodie.embed.timeline.server": "false",
        "hoodie.index.type": index.upper(),
    }
    if index == "bucket":
        options |= {
            "hoodie.bucket.index.num.buckets": str(buckets),
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.index.bucket.engine": "SIMPLE",
        }
    return options


def batch(chance: random.Random) -> list[dict[str, Any]]:
    """Rows without two of one key: real Hudi does not say which of two equals wins."""
    return [
        {"id": i, "city": chance.choice(CITIES), "v": chance.randrange(1000), "ts": chance.randrange(20)}
        for i in chance.sample(range(60), 25)
    ]


@pytest.mark.parametrize(
    ("version", "index", "partitioned", "event_time"),
    [
        (9, "bucket", True, True),
        (9, "simple", True, False),
        (9, "global_simple", True, True),
        (9, "bucket", False, True),
        (8, "bucket", True, True),
        (8, "simple", False, True),
        (6, "bucket", False, True),
        (6, "simple", True, True),
    ],
)
def test_ten_turns(
    version: int, index: str, partitioned: bool, event_time: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(f"{version} {index} {partitioned}")
    folder = tmp_path / "turns"
    table = lakebed.create(
        str(folder),
        SCHEMA,
        key="id",
        partition_by="city" if partitioned else None,
        ordering="ts",
        merge="event_time" if event_time else "commit_time",
        index=index,
        buckets=4 if index == "bucket" else None,
        table_version=version,
    )
    is_global = index == "global_simple"
    model = DictTable(event_time=event_time, is_global=is_global, moves=is_global, partitioned=partitioned)
    options = hudi_options(version, index, 4)
    for turn in range(ROUNDS):
        rows = batch(chance)
        data = pa.Table.from_pylist(rows, SCHEMA)
        if turn % 2 == 0:
            table.upsert(data)
        else:
            oracle.write(folder, data, options=options)
        model.upsert(rows)
        if turn in (4, 7):
            gone = chance.sample(sorted({p[1] for p in model.rows}), 5)
            model.delete_ids(gone)
            if turn == 4:
                table.delete(gone)
            else:
                stored = table.scan(filter=f"id in ({', '.join(map(str, gone))})").to_arrow()
                oracle.write(folder, stored, operation="delete", options=options)
        assert sorted(map(as_tuple, table.scan().to_arrow().to_pylist())) == model.state(), f"turn {turn}, lakebed"
        assert sorted(map(as_tuple, oracle.read(folder).to_pylist())) == model.state(), f"turn {turn}, real Hudi"
    assert oracle.ask("properties", table=folder)["hoodie.table.version"] == str(version)
    assert not (folder / ".hoodie" / "metadata").exists()
