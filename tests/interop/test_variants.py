"""Tables with variants, written in turns by lakebed and by real Hudi on Spark 3.5, which writes them and cannot read
them back: lakebed reads what both wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakebed
from interop.hudi_jobs import hudi_job
from lakebed import variant
from lakebed.catalog.columns import spark_schema
from oracle.client import HudiOracle
from support.vector_tables import expected, unpacked

SCHEMA = pa.schema([("id", pa.string()), ("v", variant.TYPE), ("ts", pa.int64())])
# By this key of a file's footer Spark finds the metadata of columns, and Hudi the logical type.
SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"


def document(number: int) -> Any:
    kinds = [
        {"a": number, "b": f"text {number}"},
        {"x": {"y": [number, "s", None, True]}},
        [number],
        f"s{number}",
        None,
    ]
    return kinds[number % len(kinds)]


def rows_of(model: dict[str, Any], ts: int) -> pa.Table:
    columns = [pa.array(list(model), pa.string()), variant.encode(list(model.values())), pa.array([ts] * len(model))]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def values(table: lakebed.Table) -> dict[str, Any]:
    rows = lakebed.open(table.uri).scan(["id", "v"]).to_arrow()
    return dict(zip(rows["id"].to_pylist(), variant.decode(rows["v"]), strict=True))


def by_hudi(
    oracle: HudiOracle, table: lakebed.Table, model: dict[str, Any], ts: int, operation: str = "upsert"
) -> None:
    rows = rows_of(model, ts).replace_schema_metadata({SPARK_SCHEMA: spark_schema(table.schema, ())})
    oracle.write(table.uri, rows, operation, hudi_job(table) | {"hoodie.compact.inline": "false"})


# Hudi on Spark 3.5 appends variants to logs and fails when it merges them with a base file, also in tables of its own
# ("VARIANT type is only supported in Spark 4.0+"): so lakebed compacts.
@pytest.mark.parametrize(
    ("kind", "index", "rounds"),
    [
        ("cow", "simple", 2),
        ("mor", "bucket", 2),
        pytest.param("cow", "simple", 10, marks=pytest.mark.rest),
        pytest.param("mor", "bucket", 10, marks=pytest.mark.rest),
    ],
)
def test_lakebed_and_real_hudi_write_variants_in_turns(
    kind: Literal["cow", "mor"], index: str, rounds: int, oracle: HudiOracle, tmp_path: Path
) -> None:
    table = lakebed.create(str(tmp_path / "t"), SCHEMA, key="id", ordering="ts", type=kind, index=index)
    model = {f"k{n:03d}": document(n) for n in range(30)}
    table.upsert(rows_of(model, 0))
    for turn in range(rounds):
        first = 3 * turn % 25
        changed = {f"k{first:03d}": document(100 + turn), f"h{turn:03d}": document(turn)}
        by_hudi(oracle, table, changed, 10 + 2 * turn)
        model |= changed
        gone = f"k{first + 1:03d}"
        by_hudi(oracle, table, {gone: None}, 10 + 2 * turn, "delete")
        model.pop(gone, None)
        assert values(table) == model
        assert table.schema.field("v").metadata[b"hudi_type"] == b"VARIANT"
        changed = {
            f"k{first + 2:03d}": document(200 + turn),
            f"l{turn:03d}": document(turn + 1),
            f"h{turn:03d}": [turn],
        }
        table.upsert(rows_of(changed, 11 + 2 * turn))
        model |= changed
        assert values(table) == model
        if kind == "mor" and turn % 2:
            table.maintenance.compact()
            assert values(table) == model
    selected = table.scan(["id"], where="try_variant_get(v, '$.a', 'int') is not null").to_arrow()["id"].to_pylist()
    assert sorted(selected) == sorted(key for key, value in model.items() if isinstance(value, dict) and "a" in value)


def test_a_table_of_hudi_on_spark_is_read_and_goes_on(oracle: HudiOracle, tmp_path: Path) -> None:
    table = lakebed.open(unpacked("variant35_mor", tmp_path))
    rows = table.scan().to_arrow()
    docs = dict(zip(rows["id"].to_pylist(), variant.decode(rows["v"]), strict=True))
    assert len(docs) == expected("variant35_mor").num_rows
    changed = rows.filter(pc.equal(rows["id"], "k003"))
    changed = changed.set_column(1, rows.schema.field("v"), pa.chunked_array([variant.encode([{"new": 1}])]))
    changed = changed.set_column(3, "ts", pa.array([9000], pa.int64()))
    schema = spark_schema(pa.schema(list(changed.schema)), ())
    oracle.write(table.uri, changed.replace_schema_metadata({SPARK_SCHEMA: schema}))
    docs["k003"] = {"new": 1}
    rows = lakebed.open(table.uri).scan().to_arrow()
    assert dict(zip(rows["id"].to_pylist(), variant.decode(rows["v"]), strict=True)) == docs
