"""Columns that lakebed changes without rewriting files, and columns that real Hudi alters: each reads and continues
the other's table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed.table import Table
from oracle.client import HudiOracle
from support.same_rows import assert_same_rows
from support.sampling import some

# Without the second real Hudi refuses to read fields of structs that have another type now.
BY_IDS = {"hoodie.schema.on.read.enable": "true", "spark.sql.parquet.enableVectorizedReader": "false"}
# a column that an ALTER TABLE takes away is missing to Hudi's own check
ALTERING = {**BY_IDS, "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true"}
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("fare", pa.float64()),
        ("stops", pa.int32()),
        ("note", pa.string()),
        ("home", pa.struct([("street", pa.string()), ("number", pa.int32())])),
        ("day", pa.date32()),
        ("ts", pa.int64()),
    ]
)
KINDS = [(9, "cow"), (9, "mor"), (8, "cow"), (8, "mor"), (6, "cow"), (6, "mor")]


def rows(ids: range, ts: int, **names: str) -> pa.Table:
    table = pa.Table.from_pylist(
        [
            {
                "id": n,
                "city": f"c{n % 2}",
                "fare": n + 0.5,
                "stops": n,
                "note": f"n{n}",
                "home": {"street": f"s{n}", "number": n},
                "day": n,
                "ts": ts,
            }
            for n in ids
        ],
        SCHEMA,
    )
    return table.rename_columns([names.get(name, name) for name in table.column_names])


def both_read(oracle: HudiOracle, table: Table, **request: object) -> pa.Table:
    ours = lakebed.open(table.uri).scan().to_arrow()
    theirs = oracle.read(table.uri, option=BY_IDS, conf=BY_IDS, **request)
    theirs = theirs.drop_columns([name for name in theirs.column_names if name.startswith("_hoodie")])
    assert_same_rows(theirs.select(ours.column_names), ours)
    assert theirs.column_names == ours.column_names
    return ours


@pytest.mark.parametrize(("version", "kind"), some(KINDS, (9, "cow"), (9, "mor"), (6, "mor")))
def test_hudi_reads_columns_that_lakebed_changed(version: int, kind: str, tmp_path: Path, oracle: HudiOracle):
    keeps = version > 6
    table = lakebed.create(
        str(tmp_path / "table"),
        SCHEMA,
        key="id",
        partition_by="city",
        ordering="ts",
        type=kind,
        index="bucket",
        buckets=1,
        table_version=version,
        properties={} if keeps else {"hoodie.metadata.enable": False},
    )
    first = table.upsert(rows(range(8), 1))
    table.upsert(rows(range(2, 4), 2))
    table.columns.rename("fare", "price")
    table.columns.widen("stops", "bigint")
    table.columns.add("tip", "decimal(8, 2)", after="city", comment="in euro")
    table.columns.add("home.floor", "int", after="street")
    table.columns.widen("home.number", "bigint")
    both_read(oracle, table)
    newer = rows(range(4, 6), 3, fare="price")
    newer = newer.append_column("tip", pa.array([1, 2], pa.decimal128(8, 2)))
    homes = pa.array([{"street": "s", "floor": 3, "number": 1}] * 2, table.schema.field("home").type)
    newer = newer.set_column(newer.schema.get_field_index("home"), "home", homes)
    table.upsert(newer)
    both_read(oracle, table)
    table.columns.drop("note")
    table.columns.add("note", "string")
    table.columns.widen("day", "string")
    table.columns.move("ts", first=True)
    found = both_read(oracle, table)
    assert found["note"].null_count == 8
    if kind == "mor":
        table.maintenance.compact()
        both_read(oracle, table)

    then = oracle.read(table.uri, as_of=first.instant, option=BY_IDS, conf=BY_IDS)
    assert_same_rows(then.select(SCHEMA.names), rows(range(8), 1))
    assert_same_rows(table.scan(as_of=first.instant).to_arrow(), rows(range(8), 1))
    written = oracle.incremental(table.uri, "000", option=BY_IDS, conf=BY_IDS)
    changes = table.changes(start="earliest").to_arrow()
    assert_same_rows(written.select(changes.column_names), changes)
    for condition in ("price > 5", "note is null", "stops = 3"):
        found = oracle.read(table.uri, where=condition, option=BY_IDS, conf=BY_IDS)
        assert found.num_rows == table.count(where=condition)
    job = {**hudi_job(table), **BY_IDS, "hoodie.metadata.enable": str(keeps).lower()}
    later = both_read(oracle, table).slice(0, 3)
    later = later.set_column(later.schema.get_field_index("note"), "note", pa.array(["a", "b", "c"]))
    oracle.write(table.uri, later, options=job, conf=BY_IDS)
    both_read(oracle, table)
    if keeps:
        assert oracle.problems(table.uri, conf=BY_IDS) == []
    altering = {**job, **ALTERING}
    oracle.ask("sql", table=table.uri, conf=altering, sql="alter table {t} rename column price to cost")
    both_read(oracle, table)
    oracle.ask("sql", table=table.uri, conf=altering, sql="alter table {t} alter column stops type string")
    oracle.ask("sql", table=table.uri, conf=altering, sql="alter table {t} add columns (more int)")
    found = both_read(oracle, table)
    table = lakebed.open(table.uri)
    table.upsert(
        found.slice(0, 2).set_column(found.schema.get_field_index("more"), "more", pa.array([1, 2], pa.int32()))
    )
    both_read(oracle, table)
    table.columns.rename("cost", "fare")
    found = both_read(oracle, table)
    assert found.num_rows == 8
