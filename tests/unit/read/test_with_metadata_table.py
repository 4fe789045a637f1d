"""Reads of tables that lakebed wrote with a metadata table: with it as without it, and with fewer files."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from lakebed.errors import InvalidOption
from lakebed.filters.sql import parse_filter
from lakebed.metadata.lookups import open_snapshot
from lakebed.model import HOODIE
from lakebed.read.lookup import get
from lakebed.storage import open_storage
from lakebed.table import Table
from lakebed.testing import CountingStorage
from support.random_filters import FilterMaker

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("ts", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("amount", pa.decimal128(12, 2)),
        ("ok", pa.bool_()),
    ]
)
PARTITIONS = 6


def some_rows(dice: random.Random, count: int, ts: int) -> pa.Table:
    """Rows whose values lie near their partition's own, with nulls, NaN and texts beyond the basic plane."""
    rows: list[dict[str, object]] = []
    for number in dice.sample(range(200), count):
        near = number % PARTITIONS
        row: dict[str, object] = {
            "id": f"k{number:03d}",
            "part": f"p{near}",
            "ts": ts,
            "n": near * 10 + dice.randint(0, 9),
            "x": dice.choice((float("nan"), -0.0, 0.0, near + dice.random())),
            "name": dice.choice(("😀", "\ue000", "")) + f"name {near} {dice.randint(0, 3)}",
            "day": date(2024, 1, 1) + timedelta(days=near * 30 + dice.randint(0, 9)),
            "at": datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=near * 100 + dice.randint(0, 9)),
            "amount": Decimal(near * 1000 + dice.randint(0, 99)).scaleb(-2),
            "ok": near % 2 == 0,
        }
        rows.append({k: None if k not in ("id", "part", "ts") and dice.random() < 0.1 else v for k, v in row.items()})
    return pa.Table.from_pylist(rows, SCHEMA)


@cache
def new_table(version: int, partitioned: bool) -> str:
    uri = f"memory://own-tables/{version}-{partitioned}"
    table = lakebed.create(
        uri,
        SCHEMA,
        key="id",
        partition_by="part" if partitioned else None,
        ordering="ts",
        index="global_simple" if partitioned else "simple",
        table_version=version,
        indexes=["record_index", "bloom_filters", *(["name"] if version > 6 else [])],
    )
    dice = random.Random(version)
    for ts in range(4):
        table.upsert(some_rows(dice, 70, ts))
    table.delete(["k001", "k002", "k007"])
    return uri


def both(uri: str) -> tuple[Table, Table]:
    return lakebed.open(uri), lakebed.open(uri, options={"hoodie.metadata.enable": False})


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


every_table = pytest.mark.parametrize(
    ("version", "partitioned"), [(9, True), (9, False), (8, True), (6, True)], ids=lambda v: str(v)
)


@pytest.mark.rest
@every_table
def test_filtered_scans_with_and_without_metadata_agree(version: int, partitioned: bool) -> None:
    with_it, without = both(new_table(version, partitioned))
    partitions = with_it.properties["hoodie.table.metadata.partitions"]
    assert "record_index" in partitions
    assert "column_stats" in partitions or version < 9
    whole = without.scan().to_arrow()
    maker = FilterMaker(whole, version)
    fewer = 0
    for _ in range(60):
        text = maker.filter()
        predicate = parse_filter(text, whole.schema)
        try:
            expected = whole.filter(predicate.to_arrow())
        except InvalidOption:
            continue
        scan = with_it.scan(where=text)
        assert rows(scan.to_arrow()) == rows(expected), scan.explain()
        fewer += len(scan.files) < len(without.scan(where=text).files)
    assert fewer > 5 or version < 9 or not partitioned


@every_table
def test_lookups_with_and_without_metadata_agree(version: int, partitioned: bool) -> None:
    with_it, without = both(new_table(version, partitioned))
    keys = [f"k{n:03d}" for n in range(0, 210, 3)]
    assert rows(with_it.get(keys)) == rows(without.get(keys))
    assert with_it.exists(keys).equals(without.exists(keys))
    assert rows(with_it.locate(keys)) == rows(without.locate(keys))


@every_table
def test_older_views_with_and_without_metadata_agree(version: int, partitioned: bool) -> None:
    with_it, without = both(new_table(version, partitioned))
    for instant in [i.time for i in with_it.timeline if i.action.value in ("commit", "deltacommit")]:
        old = without.scan(as_of=instant).to_arrow()
        assert rows(with_it.scan(as_of=instant).to_arrow()) == rows(old)
        assert rows(with_it.scan(as_of=instant, where="id = 'k004'").to_arrow()) == rows(
            old.filter(pc.equal(old["id"], "k004"))
        )


def test_key_ranges_of_the_metadata_table_save_footers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a record index, where there are many files."""
    monkeypatch.setattr("lakebed.read.lookup._MAX_FILES", 2)
    schema = pa.schema([("id", pa.string()), ("part", pa.string())])
    uri = "memory://own-tables/ranges"
    table = lakebed.create(uri, schema, key="id", partition_by="part", index="simple")
    for number in range(6):
        keys = [f"{number}-{n}" for n in range(5)]
        table.bulk_insert(pa.table({"id": keys, "part": [f"p{number}"] * 5}))
    storage = CountingStorage(open_storage(uri))
    snapshot = open_snapshot(storage)
    assert get(snapshot, ["3-2", "5-0", "nobody"])["id"].to_pylist() == ["3-2", "5-0"]
    assert {path.partition("/")[0] for path in storage.opened if not path.startswith(HOODIE)} == {"p3", "p5"}
