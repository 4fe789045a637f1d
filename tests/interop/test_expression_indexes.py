"""Expression indexes: lakebed's records are real Hudi's to the byte, both read by them, both keep them in turns."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakebed
from interop.expression_jobs import (
    FILTERS,
    SCHEMA,
    STATS,
    Index,
    build_by_hudi,
    data_of,
    make,
    options_of,
    rows,
    stored_records,
)
from lakebed.metadata.lookups import open_snapshot
from lakebed.metadata_kinds import bloom_filters
from lakebed.metadata_kinds.expression_results import ExpressionIndex, first_records
from lakebed.metadata_records.records import record_form, record_schema
from lakebed.storage import open_storage
from lakebed.table import Table
from oracle.client import HudiOracle
from property.model import DictTable
from support.same_rows import assert_same_rows
from support.sampling import INTEROP, todays

PLAIN = {"hoodie.metadata.enable": "false"}
SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}


@pytest.mark.parametrize("partitioned", [True, False], ids=["by-city", "flat"])
def test_lakebed_builds_what_real_hudi_builds(partitioned: bool, tmp_path: Path, oracle: HudiOracle) -> None:
    table = make(str(tmp_path / "same"), partitioned=partitioned)
    for seed in (3, 4):
        table.upsert(data_of(rows(random.Random(seed))))
    for index in todays(STATS + FILTERS, 3, INTEROP) if partitioned else STATS[::6] + FILTERS[:1]:
        build_by_hudi(oracle, table, index)
        snapshot = open_snapshot(open_storage(table.uri))
        assert snapshot.metadata is not None
        assert snapshot.metadata.slices.definitions[index.partition] == index.definition
        theirs = stored_records(table, index.partition)
        ours = ours_of(table, index)
        if index.kind == "bloom_filters":
            theirs, ours = without_instant(theirs), without_instant(ours)
        assert ours == theirs, index
    assert table.indexes.verify().ok, table.indexes.verify()


def ours_of(table: Table, index: Index) -> dict[str, bytes]:
    snapshot = open_snapshot(open_storage(table.uri))
    built = ExpressionIndex.of(index.definition, snapshot.schema)
    records = first_records(snapshot, built, snapshot.instant)
    keys, values = records.keys.to_pylist(), records.values.to_pylist()
    return {str(k): bytes(v) for k, v in zip(keys, values, strict=True)}


def without_instant(records: dict[str, bytes]) -> dict[str, Any]:
    """Filters note the instant that they were made at."""
    keys, values = pa.array(list(records), pa.string()), pa.array(list(records.values()), pa.binary())
    found = bloom_filters.decode(keys, values, record_schema(record_form(9)))
    return {row["key"]: (row["type"], row["bloom"]) for row in found.to_pylist()}


# Filters that real Hudi prunes by: comparisons with one constant, and IN.
ASKED = (
    "lower(name) = 'bob'",
    "lower(name) in ('émile', 'żółw')",
    "date_format(at, 'yyyy-MM-dd') = '{day}'",
    "from_unixtime(secs, 'yyyy-MM-dd') = '{secs}'",
    "date_add(day, 30) = date'2001-01-01'",
    "lower(city) = 'oslo'",
    "lower(city) = 'nowhere'",
)
# One of a column: of several of column stats on one, real Hudi reads another than the filter means, on its own as well.
KEPT = (
    Index("low", "name", "lower"),
    Index("day", "at", "date_format", {"format": "yyyy-MM-dd"}),
    Index("secs", "secs", "from_unixtime", {"format": "yyyy-MM-dd"}),
    Index("later", "day", "date_add", {"days": "30"}),
    Index("f_low", "city", "lower", kind="bloom_filters"),
)
TURNS = ("upsert", "upsert", "insert", "delete", "insert_overwrite", "upsert", "delete", "insert",
    "delete_partition", "upsert")  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("partitioned", todays([True, False], 2, INTEROP), ids="partitioned={}".format)
def test_both_writers_in_turn_keep_expression_indexes_right(
    partitioned: bool, tmp_path: Path, oracle: HudiOracle
) -> None:
    chance = random.Random(partitioned)
    table = make(str(tmp_path / "turns"), partitioned=partitioned, index="simple" if partitioned else "bucket")
    model = DictTable(event_time=True, partitioned=partitioned)
    first = rows(chance)
    table.upsert(data_of(first))
    model.upsert(first)
    for index in KEPT:
        table.indexes.create(
            index.name, column=index.column, function=index.function, function_options=index.options, kind=index.kind
        )
    options = options_of(table) | {"hoodie.metadata.compact.max.delta.commits": "4"}
    for turn, kind in enumerate(TURNS):
        if kind == "delete_partition" and not partitioned:
            kind = "upsert"
        batch = rows(chance)
        if kind == "insert":
            batch = [row | {"id": 1000 * (turn + 1) + n} for n, row in enumerate(batch)]
        gone = chance.sample(sorted({p[1] for p in model.rows}), min(7, len(model.rows)))
        take_turn(oracle if turn % 2 else None, table, kind, batch, gone, options)
        model.follow(kind, batch, gone, dropped="oslo")
        check(oracle, lakebed.open(table.uri), model, turn)
    kept = set(open_snapshot(open_storage(table.uri)).config.metadata_partitions)
    assert {index.partition for index in KEPT} <= kept


def take_turn(
    oracle: HudiOracle | None,
    table: Table,
    kind: str,
    batch: list[dict[str, Any]],
    gone: list[int],
    options: dict[str, str],
) -> None:
    data = data_of(batch)
    if oracle is None:
        if kind == "delete":
            table.delete(gone)
        elif kind == "delete_partition":
            table.delete_partitions(["oslo"])
        else:
            getattr(table, kind)(data)
        return
    if kind == "delete":
        data = table.scan(where=f"id in ({', '.join(map(str, gone))})").to_arrow()
    oracle.write(table.uri, data, operation=kind, options=options)


def check(oracle: HudiOracle, table: Table, model: DictTable, turn: int) -> None:
    expected = pa.Table.from_pylist(list(model.rows.values()), SCHEMA)
    found = table.indexes.verify()
    assert found.ok, (turn, found)
    assert_same_rows(table.scan().to_arrow(), expected)
    if turn % 2 == 0 or turn == len(TURNS) - 1:  # what real Hudi wrote itself it reads with what comes next
        some = next(row for row in model.rows.values() if row["secs"] is not None)
        at = {"day": f"{some['at']:%Y-%m-%d}"}
        secs = table.scan(where=f"id = {some['id']}").to_arrow()["secs"].cast(pa.timestamp("s"))[0].as_py()
        for text in ASKED if turn in (6, len(TURNS) - 1) else [ASKED[turn // 2]]:
            where = text.format(**at, secs=f"{secs:%Y-%m-%d}")
            plain = oracle.read(table.uri, where=where, option=PLAIN)
            assert_same_rows(oracle.read(table.uri, where=where, option=SKIPPING), plain)
            assert_same_rows(table.scan(where=where).to_arrow(), plain.select(SCHEMA.names))
